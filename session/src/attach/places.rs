//! Where modules are in a process that runs, and where there is room for what is new of them.

use live::{Mapping, Root};
use program::{Bias, Image, LiveVa, Va};
use std::ops::Range;
use std::path::{Path, PathBuf};

const PAGE: u64 = 0x1000;
/// What is new starts at multiples of this, so that it is at the same distance more often than not.
const STEP: u64 = 1 << 21;
/// How far code may be from code, with room for what is put between.
const REACH: u64 = 0x7780_0000;
/// Below, nothing of a process's own is mapped by the kernel.
const LOWEST: u64 = 0x1_0000;
/// Above, there are none.
const HIGHEST: u64 = 0x7fff_ffff_0000;

/// A file of which code is mapped.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    /// What the process calls it.
    pub(crate) path: PathBuf,
    /// What can be opened from here: also if it is gone from its folder, or is in a container.
    pub(crate) file: PathBuf,
    /// The start of its first mapping.
    pub(crate) start: LiveVa,
    /// Where in the file that is.
    pub(crate) offset: u64,
}

/// The files of which process `pid` has code mapped, the executable first.
pub(crate) fn mapped(pid: i32, mappings: &[Mapping]) -> Vec<Mapped> {
    let mut all: Vec<Mapped> = Vec::new();
    let executable = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let executable = executable.map(|path| Root::of(pid).named(&path));
    let with_code = mappings.iter().filter(|m| m.executable).filter_map(|m| m.path.as_deref());
    let mut paths: Vec<&Path> = executable.iter().map(PathBuf::as_path).collect();
    for path in with_code {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    for path in paths {
        // Not where code alone was mapped once more.
        let own = mappings.iter().filter(|m| m.path.as_deref() == Some(path));
        let Some(first) = own.min_by_key(|m| (m.offset, m.range.start)) else { continue };
        let is_executable = executable.as_deref() == Some(path);
        let file = match first.seen_file(pid) {
            None if is_executable => Some(PathBuf::from(format!("/proc/{pid}/exe"))),
            None => first.file(pid),
            seen => seen,
        };
        let file = file.unwrap_or_else(|| path.to_owned());
        let path = without_remark(path);
        all.push(Mapped { path, file, start: first.range.start, offset: first.offset });
    }
    all
}

/// The path, if the kernel says of it that it is gone.
pub(crate) fn without_remark(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    text.strip_suffix(" (deleted)").map_or_else(|| path.to_owned(), PathBuf::from)
}

/// How far `image`, of which `mapped` is mapped, was moved.
pub(crate) fn bias(image: &Image, mapped: &Mapped) -> Option<Bias> {
    let first = image.segments.iter().find(|s| s.offset.0 / PAGE * PAGE == mapped.offset)?;
    Some(Bias::between(Va(first.range.start.0 / PAGE * PAGE), mapped.start))
}

/// How much room may be needed for what is new of `image`.
fn need(image: &Image) -> u64 {
    let code: u64 =
        image.segments.iter().filter(|s| s.executable).map(|s| s.range.end.since(s.range.start)).sum();
    (6 * code + 2 * image.file_bytes().len() as u64 + (4 << 20)).next_multiple_of(STEP)
}

/// Room for what is new of `image` near it, where nothing is `taken`, sorted: as it is in the process.
pub(super) fn room(image: &Image, bias: Bias, taken: &[Range<u64>]) -> Option<Range<u64>> {
    let (first, last) = (image.segments.first()?, image.segments.last()?);
    let own = bias.to_live(first.range.start).0..bias.to_live(last.range.end).0;
    let need = need(image);
    let lowest = own.end.saturating_sub(REACH).max(LOWEST);
    let highest = own.start.saturating_add(REACH).min(HIGHEST);
    // Where nothing is moved, the heap grows behind the program; and below there is no room.
    let from_above = !image.kind.is_relocated();
    let mut gaps: Vec<Range<u64>> = Vec::new();
    let mut at = lowest;
    for range in taken.iter().filter(|r| r.end > lowest) {
        if range.start > at {
            gaps.push(at..range.start.min(highest));
        }
        at = at.max(range.end);
    }
    gaps.push(at..highest);
    // By its own addresses, so that what is made for one process fits into the next.
    let low_step = |at: u64| bias.to_live(Va(bias.to_image(LiveVa(at)).0 & !(STEP - 1))).0;
    let high = |gap: &Range<u64>| {
        let at = low_step(gap.end.checked_sub(need)?);
        (at >= gap.start).then_some(at..at + need)
    };
    let low = |gap: &Range<u64>| {
        let at = low_step(gap.start.checked_add(STEP - 1)?);
        at.checked_add(need).filter(|end| *end <= gap.end).map(|end| at..end)
    };
    // As far away as code may be: right below its libraries, a process maps what is next.
    let below = gaps.iter().filter(|gap| gap.end <= own.start).find_map(low);
    let above = || {
        let mut behind = gaps.iter().filter(|gap| gap.start >= own.end);
        if from_above { behind.rev().find_map(high) } else { behind.find_map(low) }
    };
    if from_above { above().or(below) } else { below.or_else(above) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where this very program is, as if it were at `at`.
    fn image() -> Image {
        Image::load(Path::new("/proc/self/exe")).expect("an image")
    }

    #[test]
    fn what_is_new_goes_to_where_nothing_is() {
        let image = image();
        assert!(image.kind.is_relocated());
        let at = 0x7f00_0000_0000;
        let bias = Bias::between(Va(0), LiveVa(at));
        let end = bias.to_live(image.segments.last().expect("some").range.end).0;
        let need = need(&image);
        // Far below it; behind what is there; above, where there is no room below.
        let own = at..end;
        let below = room(&image, bias, std::slice::from_ref(&own)).expect("room");
        assert!(below.start >= end - REACH && below.start < end - REACH + STEP, "{below:x?}");
        assert_eq!(below.end - below.start, need);
        // In another process, elsewhere, it is the same for the module.
        let again = Bias::between(Va(0), LiveVa(at + 0x5000));
        let there = at + 0x5000..end + 0x5000;
        let moved = room(&image, again, std::slice::from_ref(&there)).expect("room");
        assert_eq!(again.to_image(LiveVa(moved.start)), bias.to_image(LiveVa(below.start)));
        let other = below.start - STEP..below.end;
        let behind = room(&image, bias, &[other.clone(), own.clone()]).expect("room");
        assert!(behind.start >= other.end && behind.end <= at, "{behind:x?}");
        let all_below = at - REACH - (1 << 32)..at;
        let above = room(&image, bias, &[all_below, own.clone()]).expect("room");
        assert!(above.start >= end && above.end <= at + REACH, "{above:x?}");
        let everything = 0..u64::MAX;
        assert_eq!(room(&image, bias, &[everything]), None);
    }

    #[test]
    fn a_file_is_where_its_start_is_mapped() {
        let mapping = |start: u64, offset, executable| Mapping {
            range: LiveVa(start)..LiveVa(start + 0x1000),
            path: Some(PathBuf::from("/no/such/library.so")),
            executable,
            shared: false,
            writable: false,
            offset,
            inode: 1,
            name: None,
        };
        // Code of it that was mapped once more is lower.
        let all = [mapping(0x1000, 0x3000, true), mapping(0x5000, 0, false), mapping(0x8000, 0x3000, true)];
        let found = mapped(1, &all);
        let library = found.iter().find(|m| m.path == Path::new("/no/such/library.so"));
        assert_eq!(library.map(|m| (m.start, m.offset)), Some((LiveVa(0x5000), 0)));
    }
}
