//! What is seen of a process from outside, which does not hold it up: the program that it becomes,
//! the files that are mapped in it.

use live::{Deaths, Root};
use profile::{Beyond, Profile};
use program::{Image, Va};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// What a thread has seen that watches until something is over, which is over.
pub(super) fn seen_by<T>(watch: std::io::Result<std::thread::ScopedJoinHandle<'_, T>>) -> Option<T> {
    let watch = watch.ok()?;
    watch.thread().unpark();
    watch.join().ok()
}

/// The file that process `pid` runs in place of `started` after an exec, if it is seen with one before it
/// ends, as `is_gone` says.
pub(super) fn becomes(pid: u32, started: &Path, is_gone: &AtomicBool) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let first = identity(started)?;
    let mut pause = Duration::from_millis(1);
    loop {
        // A process that has ended has no such link.
        let now = identity(&link)?;
        // Its number may be another's then.
        if is_gone.load(Ordering::Relaxed) {
            return None;
        }
        if now != first {
            return std::fs::read_link(&link).ok();
        }
        std::thread::park_timeout(pause);
        pause = (2 * pause).min(Duration::from_millis(100));
    }
}

/// Takes what the kernel tells now and then, so that there is room for more, until the program is over, as
/// `is_gone` says.
pub(super) fn take(told: &Deaths, is_gone: &AtomicBool) {
    while !is_gone.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(50));
        told.take();
    }
}

const SOON: Duration = Duration::from_micros(50);

/// Says that a library is about to be loaded.
#[derive(Default)]
pub(crate) struct Bell {
    has_rung: AtomicBool,
    wakes: Mutex<Option<Thread>>,
}

impl Bell {
    /// Rings.
    pub(crate) fn ring(&self) {
        self.has_rung.store(true, Ordering::Relaxed);
        let wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        wakes.iter().for_each(Thread::unpark);
    }

    fn has_rung(&self) -> bool {
        self.has_rung.swap(false, Ordering::Relaxed)
    }

    fn wakes(&self, thread: Thread) {
        *self.wakes.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }
}

/// What was mapped in the process that was started, as far as it was seen: code of files, by its end.
#[derive(Default)]
pub(crate) struct Maps {
    /// By where it ends.
    code: BTreeMap<u64, Mapped>,
    /// By which names those files are opened here that mean others here, or nothing.
    seen: HashMap<PathBuf, PathBuf>,
}

/// Code that is mapped.
#[derive(Clone, PartialEq, Eq)]
struct Mapped {
    start: u64,
    path: String,
    /// Where the file's first byte is.
    base: u64,
}

impl Maps {
    /// Looks at process `pid` now and then, which does not hold it up, until it is gone, as `is_gone` may
    /// say; and whenever `bell` rings.
    pub(super) fn watch(pid: u32, is_gone: &AtomicBool, bell: &Bell) -> Maps {
        let mut maps = Maps::default();
        bell.wakes(std::thread::current());
        // Libraries are there soon, and short programs gone.
        let mut pause = SOON;
        while let Some(text) =
            std::fs::read_to_string(format!("/proc/{pid}/maps")).ok().filter(|t| !t.is_empty())
        {
            // Its number may be another's then.
            if is_gone.load(Ordering::Relaxed) {
                break;
            }
            maps.add(&text);
            std::thread::park_timeout(pause);
            pause = if bell.has_rung() { SOON } else { (pause * 5 / 4).min(Duration::from_millis(100)) };
        }
        maps
    }

    /// Of process `pid`, as they are now; none if it is gone. Its files are `seen` from here by other names.
    pub(crate) fn of(pid: i32, seen: HashMap<PathBuf, PathBuf>) -> Maps {
        let mut maps = Maps { seen, ..Maps::default() };
        maps.add(&std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default());
        let root = Root::of(pid);
        for mapped in maps.code.values_mut() {
            mapped.path = root.named(Path::new(&mapped.path)).to_string_lossy().into_owned();
        }
        maps
    }

    fn add(&mut self, text: &str) {
        let mut files: HashMap<&str, u64> = HashMap::new();
        for line in text.lines() {
            // Addresses, rights, offset, device, inode, path.
            let mut words = line.splitn(6, ' ');
            let (Some(range), Some(rights), Some(offset)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let path = words.nth(2).unwrap_or_default().trim();
            let hex = |text| u64::from_str_radix(text, 16).ok();
            let Some((Some(start), Some(end))) = range.split_once('-').map(|(a, b)| (hex(a), hex(b))) else {
                continue;
            };
            if path.is_empty() {
                continue;
            }
            if hex(offset) == Some(0) {
                files.insert(path, start);
            }
            if rights.contains('x') {
                let base = files.get(path).copied().unwrap_or(start);
                self.code.insert(end, Mapped { start, path: path.to_owned(), base });
            }
        }
    }

    /// What is opened here of the file that the process calls `path`.
    pub(crate) fn file<'a>(&'a self, path: &'a Path) -> &'a Path {
        self.seen.get(path).map_or(path, PathBuf::as_path)
    }

    /// The file whose code is at `at`, and where in it.
    pub(crate) fn find(&self, at: u64, firsts: &mut HashMap<String, u64>) -> Option<(String, Va)> {
        let mapped = self.code.range(at + 1..).next().map(|m| m.1).filter(|m| m.start <= at)?;
        let first = firsts.entry(mapped.path.clone()).or_insert_with(|| {
            let image = Image::load(self.file(Path::new(&mapped.path))).ok();
            image.and_then(|image| image.segments.first().map(|s| s.range.start.0 & !0xfff)).unwrap_or(0)
        });
        Some((mapped.path.clone(), Va((at - mapped.base).wrapping_add(*first))))
    }

    /// Says of the calls in `profile` that led somewhere in the process in which file that was.
    pub(crate) fn name(&self, profile: &mut Profile) {
        let mut firsts = HashMap::new();
        let calls = std::mem::take(&mut profile.calls_beyond);
        for ((at, to), n) in calls {
            let to = match to {
                Beyond::Process(to) => match self.find(to, &mut firsts) {
                    Some((path, to)) => Beyond::Image(path, to),
                    None => Beyond::Process(to),
                },
                other => other,
            };
            let sum = profile.calls_beyond.entry((at, to)).or_insert(0);
            *sum = sum.saturating_add(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_file_that_is_mapped_there() {
        let text = "\
7f0000000000-7f0000001000 r--p 00000000 fe:00 12   /no/such/lib a.so
7f0000001000-7f0000003000 r-xp 00001000 fe:00 12   /no/such/lib a.so
7f0000003000-7f0000004000 rwxp 00000000 00:00 0 
7ffff7fc9000-7ffff7fcb000 r-xp 00000000 00:00 0                          [vdso]
";
        let mut maps = Maps::default();
        maps.add(text);
        maps.add("garbage\n\n1-2\n");
        let mut firsts = HashMap::new();
        let mut check = |at: u64, want: Option<(&str, u64)>| {
            let want = want.map(|(path, at)| (path.to_owned(), Va(at)));
            assert_eq!(maps.find(at, &mut firsts), want, "{at:#x}");
        };
        check(0x7f00_0000_1000, Some(("/no/such/lib a.so", 0x1000)));
        check(0x7f00_0000_2fff, Some(("/no/such/lib a.so", 0x2fff)));
        check(0x7f00_0000_0fff, None);
        check(0x7f00_0000_3000, None);
        check(0x7fff_f7fc_9a00, Some(("[vdso]", 0xa00)));
        check(u64::MAX - 1, None);
    }
}
