//! A rewritten module as a process is given it, and what its file is known by.
//!
//! Invariant: files with different bytes have different keys, also if their code is the same.
//!
//! Not here: how the segments are made (`module`), how they are mapped (crate `live`).
#![warn(clippy::indexing_slicing)]

use crate::arch::ExecSite;
use crate::patch::Patch;
use program::{Image, Program, Va};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_128;

/// Identity of a whole file, data and tables included: files with the same code are not interchangeable. What
/// is made of a file, and its place in a recording, are known by it.
pub fn file_key(image: &Image) -> u128 {
    xxh3_128(image.file_bytes())
}

/// The file of `image`, but for asking at `sites` before it becomes another program.
pub fn asking(image: &Image, sites: &[ExecSite]) -> Vec<u8> {
    let mut bytes = image.file_bytes().to_vec();
    for site in sites {
        let Some(segment) = image.segment_at(Va(site.at)) else { continue };
        let from = usize::try_from(segment.offset.0 + (site.at - segment.range.start.0)).ok();
        let place = from.and_then(|from| bytes.get_mut(from..from + site.new.len()));
        if let Some(place) = place.filter(|place| **place == site.old) {
            place.copy_from_slice(&site.new);
        }
    }
    bytes
}

/// Puts the call that asks at each of `sites`: in old code that stays, and in new code, `text` from `text_at`
/// on, where their blocks have `moved`.
pub(crate) fn ask_at(
    sites: &[ExecSite],
    moved: &[(Va, Va)],
    patches: &mut Vec<Patch>,
    text_at: Va,
    text: &mut [u8],
) {
    let offset = |at: Va| usize::try_from(at.since(text_at)).expect("within the text");
    for site in sites {
        let range = site.at..site.at + site.old.len() as u64;
        let is_apart = |p: &Patch| p.at.0 >= range.end || p.at.0 + p.new.len() as u64 <= range.start;
        if patches.iter().all(is_apart) {
            patches.push(Patch {
                at: Va(site.at),
                old: site.old.as_slice().into(),
                new: site.new.as_slice().into(),
            });
        }
        let n = moved.partition_point(|m| m.0.0 <= site.at);
        let Some(&(_, from)) = n.checked_sub(1).and_then(|n| moved.get(n)) else { continue };
        // Up to whatever block follows there.
        let end = moved.iter().map(|m| m.1).filter(|at| *at > from).min().map_or(text.len(), offset);
        let Some(code) = text.get_mut(offset(from)..end) else { continue };
        if let Some(at) = code.windows(site.old.len()).position(|w| w == site.old)
            && let Some(place) = code.get_mut(at..at + site.new.len())
        {
            place.copy_from_slice(&site.new);
        }
    }
    patches.sort_by_key(|p| p.at);
}

/// What a process is given in which a module is to run moved: the new segments and what changes in the old
/// ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Segments {
    /// Identity of the module's file ([`file_key`]).
    pub key: u128,
    /// Its entry point.
    pub entry: Option<u64>,
    /// How many counters it has.
    pub n_counters: usize,
    /// Where they are, with the page in front of them.
    pub counters_at: u64,
    /// Where the runtime is, if anything is counted.
    pub runtime_at: Option<u64>,
    /// The byte that says whether a library has started, if anything is counted.
    pub started_at: Option<u64>,
    /// Where its old segments are.
    pub old: Range<u64>,
    /// Address of the moved code.
    pub text_at: u64,
    /// How long it is.
    pub text_len: u64,
    /// The moved code; nothing, where it is kept in a file of its own.
    #[serde(with = "program::as_bytes")]
    pub text: Vec<u8>,
    /// Address of the tables, which start with the program headers.
    pub tables_at: u64,
    /// How long they are.
    pub tables_len: u64,
    /// The tables; nothing, where they are in that file.
    #[serde(with = "program::as_bytes")]
    pub tables: Vec<u8>,
    /// How many program headers there are.
    pub n_headers: u16,
    /// Changes of the old segments, by address.
    #[serde(with = "crate::encoding::patches")]
    pub patches: Vec<Patch>,
}

/// From the first of the old segments to the end of the last.
pub(crate) fn old_segments(program: &Program) -> Range<Va> {
    let segments = &program.image.segments;
    let end = segments.iter().map(|s| s.range.end).max();
    segments.first().map_or(Va(0), |s| s.range.start)..end.unwrap_or(Va(0))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::arch::exec_sites;
    use crate::image::file::Old;
    use crate::layout::place::Room;
    use crate::module::Module;
    use crate::plan::Plan;
    use crate::testing::{assembled, disassembly};
    use std::collections::BTreeMap;

    /// `_start` is entered from outside: a springboard stands over its first instruction.
    const CALLS: [(&str, &str); 3] = [
        ("_start", "mov $59,%eax\nsyscall\ncall f\nhlt"),
        (
            "f",
            "lea 8(%rdi,%rsi),%rdx\ntest %edi,%edi\nje 1f\nmov $59,%eax\nxor %edx,%edx\nsyscall\n1: mov $322,%eax\nsyscall\nmov $59,%eax\nsyscall\nret",
        ),
        ("g", "mov $59,%eax\nret"),
    ];

    /// What objdump says of the calls that ask, and of system calls: where, and which.
    fn asks(file: &[u8]) -> Vec<(Va, String)> {
        let is_one = |insn: &str| insn.starts_with("call *0x") || insn == "syscall";
        disassembly(file).into_iter().filter(|(_, insn)| is_one(insn)).collect()
    }

    #[test]
    fn a_file_asks_in_place_of_each_call() {
        let program = assembled(&CALLS);
        let before = disassembly(program.image.file_bytes());
        let file = asking(&program.image, &exec_sites(&program));
        let after: BTreeMap<Va, String> = disassembly(&file).into_iter().collect();
        let texts = |range: Range<u64>| after.range(Va(range.start)..Va(range.end)).map(|i| i.1.as_str());
        assert_eq!(texts(0x401000..0x401007).collect::<Vec<_>>(), ["call *0x7f000000"]);
        let f = [
            "lea 0x8(%rdi,%rsi,1),%rdx",
            "test %edi,%edi",
            "je 401022",
            "xor %edx,%edx",
            "call *0x7f000000",
            "call *0x7f000008",
            "call *0x7f000000",
            "ret",
        ];
        let short = |text: &str| text.split(" <").next().unwrap_or_default().to_owned();
        assert_eq!(texts(0x401010..0x401031).map(short).collect::<Vec<_>>(), f);
        // All else is as it was.
        let g = |(at, _): &(Va, String)| *at >= Va(0x401040);
        let rest: Vec<_> = before.into_iter().filter(g).collect();
        assert_eq!(after.into_iter().filter(g).collect::<Vec<_>>(), rest);
        assert_eq!(file.len(), program.image.file_bytes().len());
    }

    #[test]
    fn what_is_not_as_it_was_found_is_left_alone() {
        let program = assembled(&CALLS);
        let mut sites = exec_sites(&program);
        for site in &mut sites {
            site.old[1] ^= 1;
        }
        sites.push(ExecSite { at: 0x10, ..sites[0].clone() });
        assert_eq!(asking(&program.image, &sites), program.image.file_bytes());
    }

    #[test]
    fn a_module_asks_in_old_code_and_in_moved_code() {
        let program = assembled(&CALLS);
        let mut sites = exec_sites(&program);
        sites.sort_by_key(|site| site.at);
        assert_eq!(
            sites.iter().map(|site| site.at).collect::<Vec<_>>(),
            [0x401000, 0x401019, 0x401022, 0x401029]
        );
        for plan in [Plan::NULL, Plan::BLOCKS] {
            let mut module = Module::build(&program, &plan, Room::Behind).expect("it can be moved");
            let n_patches = module.patches.len();
            module.ask_at(&sites);
            assert!(module.patches.is_sorted_by_key(|p| p.at));
            // Over the first stands a springboard, which stays.
            assert_eq!(module.patches.len(), n_patches + sites.len() - 1);
            let found = asks(&module.to_file(Old::Kept).expect("it can be written"));
            // The runtime's own system calls stand behind all moved code.
            let end = module.runtime.as_ref().map(|runtime| runtime.at);
            let text = Va(module.to_segments().expect("it can be mapped").text_at);
            let (old, new): (Vec<_>, Vec<_>) = found
                .into_iter()
                .filter(|(at, _)| end.is_none_or(|end| *at < end))
                .partition(|(at, _)| *at < text);
            let texts = |all: Vec<(Va, String)>| all.into_iter().map(|(_, insn)| insn).collect::<Vec<_>>();
            let all = ["call *0x7f000000", "call *0x7f000000", "call *0x7f000008", "call *0x7f000000"];
            assert_eq!(texts(new), all);
            let [_, rest @ ..] = all;
            // What is left of the first: nobody comes there.
            assert_eq!(texts(old), [&["syscall"][..], &rest].concat());
        }
    }

    #[test]
    fn files_with_the_same_code_have_different_keys() {
        let of =
            |data: &str| assembled(&[("_start", &format!("hlt\n.pushsection .data\n{data}\n.popsection"))]);
        let (one, two) = (of(".quad 1"), of(".quad 2"));
        assert_ne!(file_key(&one.image), file_key(&two.image));
        assert_eq!(file_key(&one.image), file_key(&of(".quad 1").image));
    }
}
