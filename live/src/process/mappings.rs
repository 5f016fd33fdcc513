//! What a process has mapped.
//!
//! Source: proc(5).

use program::LiveVa;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A mapping of a process.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<LiveVa>,
    /// The file behind it, as the process calls it.
    pub path: Option<PathBuf>,
    /// May be run.
    pub executable: bool,
    /// May be written.
    pub writable: bool,
    /// What is written there others see, who have mapped the same.
    pub shared: bool,
    /// Where in the file it starts.
    pub offset: u64,
    /// The file's number.
    pub inode: u64,
    /// What the kernel calls it, if there is no file behind it: `[stack]`, `[vdso]`.
    pub name: Option<String>,
}

impl Mapping {
    /// What can be opened, from here, of the file behind it in process `pid`: as the process sees it, if that
    /// is still the file that is mapped; else what the kernel keeps of that.
    pub fn file(&self, pid: i32) -> Option<PathBuf> {
        self.path.as_ref()?;
        let range = || format!("{:x}-{:x}", self.range.start.0, self.range.end.0);
        let kept = || PathBuf::from(format!("/proc/{pid}/map_files/{}", range()));
        Some(self.seen_file(pid).unwrap_or_else(kept))
    }

    /// The same, if the process still sees it under its name: by that name, if it means the same here, for
    /// that can be opened also when the process is gone.
    pub fn seen_file(&self, pid: i32) -> Option<PathBuf> {
        let path = self.path.as_deref()?;
        let seen = PathBuf::from(format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap_or(path));
        let which = |file: &Path| std::fs::metadata(file).map(|about| (about.dev(), about.ino())).ok();
        let own = which(&seen).filter(|own| own.1 == self.inode)?;
        Some(if which(path) == Some(own) { path.to_owned() } else { seen })
    }
}

/// The folder that is `/` to a process: that of another need not be ours.
pub struct Root(Option<PathBuf>);

impl Root {
    /// That of process `pid`.
    pub fn of(pid: i32) -> Root {
        let root = std::fs::read_link(format!("/proc/{pid}/root")).ok();
        Root(root.filter(|root| root != Path::new("/")))
    }

    /// What the process calls the file that the kernel calls `path`: that says what we would call it, or, of
    /// what we cannot reach, what others in the process's namespace would.
    pub fn named(&self, path: &Path) -> PathBuf {
        let within = self.0.as_ref().and_then(|root| path.strip_prefix(root).ok());
        within.map_or_else(|| path.to_owned(), |within| Path::new("/").join(within))
    }
}

/// A line of `/proc/PID/maps`: addresses, rights, offset, device, inode, and the path, which need not be
/// text.
pub(super) fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut words = line.splitn(6, |&b| b == b' ');
    let (from, to) = std::str::from_utf8(words.next()?).ok()?.split_once('-')?;
    let address = |digits| u64::from_str_radix(digits, 16).ok().map(LiveVa);
    let rights = words.next()?;
    let [writable, executable, shared] = [b'w', b'x', b's'].map(|right| rights.contains(&right));
    let offset = u64::from_str_radix(std::str::from_utf8(words.next()?).ok()?, 16).ok()?;
    let inode = std::str::from_utf8(words.nth(1)?).ok()?.parse().ok()?;
    let text = words.next().map_or(&b""[..], <[u8]>::trim_ascii_start);
    let path = text.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(text)));
    let name = text.starts_with(b"[").then(|| String::from_utf8_lossy(text).into_owned());
    let range = address(from)?..address(to)?;
    Some(Mapping { range, path, executable, writable, shared, offset, inode, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_what_the_process_calls_them() {
        let named = |root: Option<&str>, path| Root(root.map(PathBuf::from)).named(Path::new(path));
        assert_eq!(named(Some("/srv/root"), "/srv/root/lib/a.so"), Path::new("/lib/a.so"));
        // What it had before its root was changed.
        assert_eq!(named(Some("/srv/root"), "/srv/roots/a.so"), Path::new("/srv/roots/a.so"));
        assert_eq!(named(None, "/lib/a.so"), Path::new("/lib/a.so"));
        assert_eq!(Root::of(1).named(Path::new("/lib/a.so")), Path::new("/lib/a.so"));
    }

    #[test]
    fn mappings_are_read_as_the_kernel_writes_them() {
        for (line, path, executable) in [
            (&b"1000-2f00 r-xp 00002000 08:01 1311     /bin/a b"[..], Some(&b"/bin/a b"[..]), true),
            (b"1000-2f00 rw-p 00000000 08:01 1311      /bin/\xff", Some(b"/bin/\xff"), false),
            (b"1000-2f00 rw-p 00000000 00:00 0         [stack]", None, false),
            (b"1000-2f00 rw-p 00000000 00:00 0 ", None, false),
            (b"1000-2f00 rw-s 00000000 00:00 0 ", None, false),
        ] {
            let got = mapping(line).expect("a mapping");
            assert_eq!((got.range, got.executable), (LiveVa(0x1000)..LiveVa(0x2f00), executable));
            assert_eq!((got.writable, got.offset), (!executable, if executable { 0x2000 } else { 0 }));
            assert_eq!(got.shared, line.get(13) == Some(&b's'));
            assert_eq!(got.inode, if path.is_some() { 1311 } else { 0 });
            assert_eq!(got.name.as_deref(), line.ends_with(b"[stack]").then_some("[stack]"));
            assert_eq!(got.path.as_deref().map(|p| p.as_os_str().as_bytes()), path);
        }
    }
}
