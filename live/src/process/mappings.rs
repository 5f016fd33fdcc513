//! What a process has mapped.
//!
//! Source: proc(5).

use program::LiveVa;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// A mapping of a process.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<LiveVa>,
    /// The file behind it.
    pub path: Option<PathBuf>,
    /// May be run.
    pub executable: bool,
}

/// A line of `/proc/PID/maps`: addresses, rights, offset, device, inode, and the path, which need not be
/// text.
pub(super) fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut words = line.splitn(6, |&b| b == b' ');
    let (from, to) = std::str::from_utf8(words.next()?).ok()?.split_once('-')?;
    let address = |digits| u64::from_str_radix(digits, 16).ok().map(LiveVa);
    let executable = words.next()?.contains(&b'x');
    let path = words.nth(3).map_or(&b""[..], <[u8]>::trim_ascii_start);
    let path = path.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(path)));
    Some(Mapping { range: address(from)?..address(to)?, path, executable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_as_the_kernel_writes_them() {
        for (line, path, executable) in [
            (&b"1000-2f00 r-xp 00002000 08:01 1311     /bin/a b"[..], Some(&b"/bin/a b"[..]), true),
            (b"1000-2f00 rw-p 00000000 08:01 1311      /bin/\xff", Some(b"/bin/\xff"), false),
            (b"1000-2f00 rw-p 00000000 00:00 0         [stack]", None, false),
            (b"1000-2f00 rw-p 00000000 00:00 0 ", None, false),
        ] {
            let got = mapping(line).expect("a mapping");
            assert_eq!((got.range, got.executable), (LiveVa(0x1000)..LiveVa(0x2f00), executable));
            assert_eq!(got.path.as_deref().map(|p| p.as_os_str().as_bytes()), path);
        }
    }
}
