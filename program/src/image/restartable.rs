//! Restartable sequences: code that the kernel has start again where a thread was interrupted in it.
//!
//! A thread tells the kernel of such code by its addresses, in a descriptor: where it starts, how long it is,
//! and where to go if it was interrupted. Moved code is at other addresses, so it would never start again.
//!
//! Descriptors are found by the sections that are meant for them, and in all data by the signature that must
//! stand before the place to go to: files without section headers have these, too.
//!
//! Source: Linux, include/uapi/linux/rseq.h (`struct rseq_cs`) and kernel/rseq.c (what is refused, the
//! signature); glibc, sysdeps/unix/sysv/linux/x86/bits/rseq.h (`RSEQ_SIG`); librseq, rseq-x86.h (the names of
//! the sections).
//!
//! Not here: descriptors that only code makes (`probe`).
#![warn(clippy::indexing_slicing)]

use super::headers::{Headers, LE};
use super::{Image, RelocationTo};
use crate::addr::Va;
use memchr::memmem;
use object::read::elf::SectionHeader as _;
use std::ops::Range;

/// What programs register, and what the kernel asks for before each place that it goes to.
const SIGNATURE: [u8; 4] = 0x5305_3053_u32.to_le_bytes();
/// Bytes of a descriptor: version and flags, start, length, where to go.
const LEN: u64 = 32;
/// Where in a descriptor the place to go to stands.
const ABORT: u64 = 24;

/// A restartable sequence, as a descriptor says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restartable {
    /// From its first instruction to behind the one that commits.
    pub range: Range<Va>,
    /// Where the kernel has a thread go on that was interrupted in it.
    pub abort: Va,
}

/// What the file says of restartable sequences.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RestartableSequences {
    /// Those that descriptors in its data describe, by address.
    pub described: Vec<Restartable>,
    /// Places in code behind the signature, by address: where sequences that are interrupted may go on.
    pub aborts: Vec<Va>,
    /// The code of those that are described, by address, without overlaps.
    code: Vec<Range<Va>>,
}

impl RestartableSequences {
    /// Whether `at` lies in a sequence that is described.
    pub fn hold(&self, at: Va) -> bool {
        let i = self.code.partition_point(|r| r.end <= at);
        self.code.get(i).is_some_and(|r| r.contains(&at))
    }
}

/// Finds them in `image`, which has its segments, code and relocations.
pub(super) fn find(image: &Image, headers: &Headers) -> RestartableSequences {
    let aborts = aborts(image);
    let mut described: Vec<Restartable> = Vec::new();
    described.extend(listed(image, headers).into_iter().filter_map(|at| descriptor(image, at)));
    if !aborts.is_empty() {
        let is_abort = |at: Va| aborts.binary_search(&at).is_ok();
        let mut places: Vec<Va> = Vec::new();
        for r in &image.relocations {
            if matches!(r.to, RelocationTo::Address(to) | RelocationTo::Symbol(_, Some(to)) if is_abort(to)) {
                places.push(r.at);
            }
        }
        if !image.kind.is_relocated() {
            places.extend(words(image).filter(|w| is_abort(w.1)).map(|w| w.0));
        }
        let start = |place: Va| place.0.checked_sub(ABORT).map(Va);
        described.extend(places.into_iter().filter_map(start).filter_map(|at| descriptor(image, at)));
    }
    described.sort_unstable_by_key(|s| (s.range.start, s.range.end, s.abort));
    described.dedup();
    let mut code: Vec<Range<Va>> = Vec::new();
    for range in described.iter().map(|s| &s.range) {
        match code.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => code.push(range.clone()),
        }
    }
    RestartableSequences { described, aborts, code }
}

/// Places in code behind the signature.
fn aborts(image: &Image) -> Vec<Va> {
    let finder = memmem::Finder::new(&SIGNATURE);
    let mut found = Vec::new();
    for range in image.code_ranges() {
        let bytes = image.bytes_in(&range).unwrap_or_default();
        let behind = |n: usize| range.start.plus((n + SIGNATURE.len()) as u64);
        found.extend(finder.find_iter(bytes).map(behind).filter(|at| image.is_code(*at)));
    }
    found
}

/// All words of the segments' data, at multiples of their length.
fn words(image: &Image) -> impl Iterator<Item = (Va, Va)> {
    image.segments.iter().flat_map(|segment| {
        let first = Va(segment.range.start.0.next_multiple_of(8));
        let bytes = image.bytes_from(first).unwrap_or_default();
        let word = move |(n, b): (usize, &[u8; 8])| (first.plus(8 * n as u64), Va(u64::from_le_bytes(*b)));
        bytes.as_chunks::<8>().0.iter().enumerate().map(word)
    })
}

/// Where descriptors are, by the sections that are meant for them.
fn listed(image: &Image, headers: &Headers) -> Vec<Va> {
    let section = |name: &str, step: u64| {
        let ranges = headers.sections.iter().filter(|(n, _)| n == name).map(|(_, h)| {
            let start = h.sh_addr(LE);
            let known = image.bytes_from(Va(start)).map_or(0, <[u8]>::len) as u64;
            (start, h.sh_size(LE).min(known))
        });
        let places =
            ranges.flat_map(move |(start, len)| (0..len / step).map(move |n| Va(start).plus(n * step)));
        places.collect::<Vec<Va>>()
    };
    let mut found = section("__rseq_cs", LEN);
    let pointers = section("__rseq_cs_ptr_array", 8);
    found.extend(pointers.into_iter().filter_map(|at| image.address_at(at)));
    found
}

/// The sequence of the descriptor at `at`, if one can be there.
fn descriptor(image: &Image, at: Va) -> Option<Restartable> {
    let version = image.word_at(at)? & 0xffff_ffff;
    let [start, abort] = [image.address_at(at.plus(8))?, image.address_at(at.plus(ABORT))?];
    let end = Va(start.0.checked_add(image.word_at(at.plus(16))?)?);
    let holds = version == 0
        && start < end
        && image.is_code(start)
        && image.is_code(Va(end.0 - 1))
        && image.is_code(abort)
        && !(start..end).contains(&abort);
    holds.then_some(Restartable { range: start..end, abort })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    /// A sequence of three instructions in a function; where it goes on is in a section of its own.
    const CODE: &str = ".text\n.globl main, inside, committed, aborted\nmain: nop\ninside: mov $1,%eax\n\
        inc %eax\ncommitted: ret\n.section apart,\"ax\"\n.byte 0x0f,0xb9,0x3d\n.long 0x53053053\n\
        aborted: jmp main\n.section .note.GNU-stack\n";
    const ENTRY: &str = "3: .long 0,0\n.quad inside,committed-inside,aborted\n";

    /// What is found in the file that gcc makes of `CODE` and `data`, as it is and without section headers;
    /// and what the linker says.
    fn found_in(data: &str, flags: &str) -> [Vec<Restartable>; 3] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a");
        std::fs::write(folder.path().join("a.s"), format!("{CODE}{data}")).expect("written");
        let mut gcc = Command::new("gcc");
        gcc.args(flags.split_whitespace()).arg("-o").arg(&path).arg(folder.path().join("a.s"));
        assert!(gcc.status().expect("gcc runs").success());
        let whole = Image::load(&path).expect("gcc makes good files");
        let at = |name: &str| whole.symbols.iter().find(|s| *s.name == *name).expect("a label").at;
        let want = Restartable { range: at("inside")..at("committed"), abort: at("aborted") };
        [vec![want], whole.restartable.described.clone(), bare(&path).restartable.described]
    }

    /// The file without its section headers and all that only they lead to.
    fn bare(path: &Path) -> Image {
        let mut bytes = std::fs::read(path).expect("there");
        // e_shoff, e_shnum, e_shstrndx.
        for field in [0x28..0x30, 0x3c..0x40] {
            bytes.get_mut(field).expect("a header").fill(0);
        }
        Image::parse(bytes, "bare").expect("it can do without")
    }

    #[test]
    fn descriptors_are_found_in_their_section_and_in_all_data() {
        let list = format!(".section __rseq_cs,\"aw\"\n.balign 32\n{ENTRY}");
        let other = format!(".data\n.quad 7\n.balign 32\n{ENTRY}.quad inside\n");
        let fixed = format!(".section .rodata\n.balign 32\n{ENTRY}");
        for flags in ["", "-no-pie", "-static", "-static-pie", "-Wl,-z,pack-relative-relocs", "-shared -fPIC"]
        {
            for data in [&list, &other] {
                // A library's globals may be others'.
                let data = if flags.starts_with("-shared") {
                    format!(".hidden inside, committed, aborted, main\n{data}")
                } else {
                    data.clone()
                };
                let [want, whole, bare] = found_in(&data, flags);
                assert_eq!((&whole, &bare), (&want, &want), "{data} {flags}");
            }
        }
        let [want, whole, bare] = found_in(&fixed, "-no-pie");
        assert_eq!((&whole, &bare), (&want, &want));
    }

    /// A program may register another signature: then the section alone tells.
    #[test]
    fn with_another_signature_the_section_tells() {
        let other = CODE.replace("0x53053053", "0x12345678");
        let listed = format!(".section __rseq_cs_ptr_array,\"aw\"\n.quad 3f\n.data\n.quad 1\n{ENTRY}");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a");
        std::fs::write(folder.path().join("a.s"), format!("{other}{listed}")).expect("written");
        let made = Command::new("gcc").arg("-o").arg(&path).arg(folder.path().join("a.s")).status();
        assert!(made.expect("gcc runs").success());
        let whole = Image::load(&path).expect("gcc makes good files");
        assert_eq!((whole.restartable.described.len(), whole.restartable.aborts.len()), (1, 0));
        assert_eq!(bare(&path).restartable, RestartableSequences::default());
    }

    /// What no kernel would take is none: of another version, empty, or with the place to go to in itself.
    #[test]
    fn what_the_kernel_refuses_is_none() {
        for data in [
            ".long 1,0\n.quad inside,committed-inside,aborted",
            ".long 0,0\n.quad inside,0,aborted",
            ".long 0,0\n.quad inside,-1,aborted",
            ".long 0,0\n.quad aborted,1,aborted",
            ".long 0,0\n.quad 3b,8,aborted",
        ] {
            for place in [".data", ".section __rseq_cs,\"aw\""] {
                let [_, whole, bare] = found_in(&format!("{place}\n.balign 32\n3: {data}\n"), "-no-pie");
                assert_eq!((whole, bare), (vec![], vec![]), "{data} {place}");
            }
        }
    }
}
