//! What a process that runs already needs of a moved module beside its segments: words that its linker has
//! relocated, where each instruction is, so that threads can be taken from old code to new and back, and the
//! jumps that lead moved code back.
//!
//! Invariant: of each pair of addresses, both are starts of instructions; a thread may be taken from one to
//! the other at any time with its registers as they are.
#![warn(clippy::indexing_slicing)]

use crate::arch::Runtime;
use crate::bytes::set_distance;
use crate::encoding::Row;
use crate::layout::code_map::CodeMap;
use crate::select::plt;
use crate::select::springboard::{Comes, InProgress, Springboard};
use program::arch::{ControlFlow, Decoder};
use program::{BlockId, FuncId, Program, Va};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A word of data that the linker has relocated, and that is to lead elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MovedWord {
    /// Where.
    pub at: u64,
    /// What it leads to.
    pub old: u64,
    /// What it is to lead to.
    pub new: u64,
}

/// An instruction of old code, and where it is now: distances from [`Running::old_at`] and from the moved
/// code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedInsn {
    /// Where it was.
    pub old: u32,
    /// Where it is, with the code of ours that stands in front of it.
    pub way_in: u32,
    /// Where it is itself.
    pub own: u32,
}

impl Row<3> for MovedInsn {
    fn to_words(&self) -> [u32; 3] {
        [self.old, self.way_in, self.own]
    }

    fn of_words([old, way_in, own]: [u32; 3]) -> MovedInsn {
        MovedInsn { old, way_in, own }
    }
}

/// A function that is not moved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stayed {
    /// Where it starts.
    pub at: u64,
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

/// What a process that runs already is given of a module, beside [`crate::Segments`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Running {
    /// Where old code starts.
    pub old_at: u64,
    /// Words of data that lead to moved code.
    pub words: Vec<MovedWord>,
    /// Where springboards stand, ascending; distances as in [`MovedInsn`].
    #[serde(with = "crate::encoding::rows")]
    pub boards: Vec<u32>,
    /// All instructions of moved functions, by old address. What stands between blocks and does nothing is
    /// not moved: it is where control goes on behind it.
    #[serde(with = "crate::encoding::rows")]
    pub insns: Vec<MovedInsn>,
    /// Where moved code is led back to old code when it is to be left: where functions start and where calls
    /// come back. Distances as in [`MovedInsn`], new and old, by new address, each five bytes from the next.
    #[serde(with = "crate::encoding::rows")]
    pub ways_back: Vec<(u32, u32)>,
    /// Behind calls of moved code, be it that they never come back, and system calls, and where exceptions
    /// land. Distances as in [`MovedInsn`], new and old, by new address.
    #[serde(with = "crate::encoding::rows")]
    pub returns: Vec<(u32, u32)>,
    /// Parts of our routines that may be returned to, as [`Running::returns`]: behind signal handlers, and
    /// when the program ends.
    pub routines: Vec<(u32, u32)>,
    /// Where a thread goes that was stopped in old code, with where to go on on its stack; nowhere, if
    /// threads have nothing of their own in the module.
    pub taken_over: Option<u64>,
    /// How many functions are moved.
    pub n_moved: u64,
    /// Functions that are not moved.
    pub stayed: Vec<Stayed>,
}

impl Running {
    /// The instruction that was at `old`, a distance from where old code starts.
    pub fn moved(&self, old: u32) -> Option<&MovedInsn> {
        self.insns.binary_search_by_key(&old, |insn| insn.old).ok().and_then(|n| self.insns.get(n))
    }

    /// Where a thread goes on that was stopped at `old`, a distance from where old code starts: `None` if it
    /// goes on there, since it is not moved, or a springboard stands there.
    pub fn taken_to(&self, old: u32) -> Option<u32> {
        let is_board = self.boards.binary_search(&old).is_ok();
        self.moved(old).filter(|_| !is_board).map(|insn| insn.way_in)
    }

    /// Where a thread goes on in old code that is at `new`, a distance from where moved code starts; `None`
    /// if that is within code of ours.
    pub fn given_back(&self, new: u32) -> Option<u32> {
        // Control comes back behind calls to what stands in front of the next instruction.
        let way = self.ways_back.binary_search_by_key(&new, |way| way.0).ok();
        let way = way.and_then(|n| self.ways_back.get(n)).map(|way| way.1);
        way.or_else(|| self.returned_to(new)).or_else(|| self.old_of(new))
    }

    /// What stands for `new` in old code, if that is one of [`Running::returns`].
    pub fn returned_to(&self, new: u32) -> Option<u32> {
        let n = self.returns.binary_search_by_key(&new, |back| back.0).ok()?;
        self.returns.get(n).map(|back| back.1)
    }

    /// Whether somebody may keep `new`, a distance from where moved code starts, to go there: where calls
    /// come back, functions are entered and exceptions land; in our routines, what is returned to.
    pub fn may_be_kept(&self, new: u32) -> bool {
        self.returned_to(new).is_some()
            || self.ways_back.binary_search_by_key(&new, |way| way.0).is_ok()
            || self.routines.iter().any(|(from, to)| (*from..*to).contains(&new))
    }

    /// Whether a thread at `new` is in the middle of what leads back when moved code is left: then it cannot
    /// be left yet.
    pub fn is_in_way_back(&self, new: u32) -> bool {
        let n = self.ways_back.partition_point(|way| way.0 < new);
        let before = n.checked_sub(1).and_then(|n| self.ways_back.get(n));
        before.is_some_and(|way| new - way.0 < JUMP)
    }

    /// Where the instruction was that is at `new`, or that code of ours stands in front of which starts
    /// there.
    pub fn old_of(&self, new: u32) -> Option<u32> {
        // Functions keep their order, and so do the instructions in each. Of what is not moved and goes on
        // here, and what was here, the latter comes last.
        let n = self.insns.partition_point(|insn| insn.own < new);
        let own = self.insns.get(n)?.own;
        let n = self.insns.partition_point(|insn| insn.own <= own).checked_sub(1)?;
        let insn = self.insns.get(n).filter(|insn| insn.own == new || insn.way_in == new)?;
        Some(insn.old)
    }

    /// Where the instruction was within which `new` is, a distance from where moved code starts, or that the
    /// code of ours at `new` stands in front of; what is farther behind the last one than code is out of
    /// line is of none.
    pub fn old_within(&self, new: u32) -> Option<u32> {
        const OUT_OF_LINE: u32 = 0x100;
        let n = self.insns.partition_point(|insn| insn.way_in <= new);
        let insn = self.insns.get(n.checked_sub(1)?)?;
        let is_last = n == self.insns.len();
        (!is_last || new - insn.own.min(new) < OUT_OF_LINE).then_some(insn.old)
    }

    /// The moved code `text`, which starts at `text_at`, as it is when it is left: it leads back at once.
    pub fn leading_back(&self, text_at: u64, text: &[u8]) -> Vec<u8> {
        let mut bytes = text.to_vec();
        for &(new, old) in &self.ways_back {
            let from = new as usize;
            let Some(place) = bytes.get_mut(from..from + JUMP_LEN) else { continue };
            place.copy_from_slice(&crate::arch::emit::JUMP);
            let end = text_at + u64::from(new) + JUMP_LEN as u64;
            set_distance(place, 1, (self.old_at + u64::from(old)).wrapping_sub(end));
        }
        bytes
    }
}

#[expect(clippy::cast_possible_truncation, reason = "it is 5")]
const JUMP: u32 = crate::arch::emit::JUMP.len() as u32;
const JUMP_LEN: usize = crate::arch::emit::JUMP.len();

/// What of `runtime`, and of the `keepers`, may be returned to, as distances from `text_at`.
pub fn routines(runtime: Option<&Runtime>, keepers: &[Range<Va>], text_at: Va) -> Vec<(u32, u32)> {
    let distance = |at: Va| u32::try_from(at.since(text_at)).unwrap_or(u32::MAX);
    let of_runtime = runtime.into_iter().flat_map(|runtime| {
        let signalled = distance(runtime.signalled);
        [(signalled, signalled.saturating_add(1)), (distance(runtime.last.start), distance(runtime.last.end))]
    });
    let keepers = keepers.iter().map(|range| (distance(range.start), distance(range.end)));
    of_runtime.chain(keepers).collect()
}

/// Where springboards stand, as distances from `old_at`.
pub fn boards(springboards: &[Springboard], old_at: Va) -> Vec<u32> {
    let mut all: Vec<u32> =
        springboards.iter().filter_map(|board| u32::try_from(board.at.since(old_at)).ok()).collect();
    all.sort_unstable();
    all
}

/// All moved instructions of `program`, by old address; `old_at` and `text_at` are where old code and new
/// code start.
pub fn insns(
    program: &Program,
    is_moved: &(impl Fn(FuncId) -> bool + Sync),
    map: &CodeMap,
    (old_at, text_at): (Va, Va),
) -> Vec<MovedInsn> {
    let distance = |at: Va, from: Va| u32::try_from(at.since(from)).ok();
    let of = |id: FuncId| {
        let blocks: Vec<BlockId> = plt::blocks(program, id).collect();
        let insns = blocks
            .iter()
            .flat_map(|block| program.insns(*block).map(|insn| (insn.at(), insn.at())).collect::<Vec<_>>());
        // A thread that is at one that does nothing would else go on in old code, under springboards.
        let passed = blocks.iter().flat_map(|block| passed_behind(program, *block));
        let moved = insns.chain(passed).filter_map(|(old, at)| {
            let (way_in, own) = (map.new_of(at)?, map.own_of(at)?);
            Some(MovedInsn {
                old: distance(old, old_at)?,
                way_in: distance(way_in, text_at)?,
                own: distance(own, text_at)?,
            })
        });
        moved.collect::<Vec<_>>()
    };
    let moved: Vec<FuncId> = program.func_ids().filter(|id| is_moved(*id)).collect();
    let mut all: Vec<MovedInsn> = moved.into_par_iter().flat_map_iter(of).collect();
    all.sort_unstable_by_key(|insn| insn.old);
    all.dedup_by_key(|insn| insn.old);
    all
}

/// The instructions behind `block` that do nothing and are in no block, each with where control comes through
/// them: the block behind them. Compilers align loops so.
fn passed_behind(program: &Program, block: BlockId) -> Vec<(Va, Va)> {
    /// More bytes are no alignment.
    const MOST: u64 = 64;
    let end = program.block(block).range().end;
    let mut passed = Vec::new();
    for insn in program.insns_in(&(end..end.plus(MOST))) {
        if program.block_from(insn.at()).is_some() {
            return passed.into_iter().map(|at| (at, insn.at())).collect();
        }
        if !insn.is_nop() {
            break;
        }
        passed.push(insn.at());
    }
    Vec::new()
}

/// Where the moved code, `text`, is led back to old code: the starts of blocks that functions are entered at,
/// behind calls and system calls, and where exceptions land; and [`Running::returns`]. `instead` is
/// code of ours in whose place there is a block, new and old, as distances.
pub fn ways_back(
    program: &Program,
    running: &Running,
    boards: &[Springboard],
    instead: &[(u32, u32)],
    (old_at, text): (Va, &[u8]),
) -> [Vec<(u32, u32)>; 2] {
    let distance = |at: Va| u32::try_from(at.since(old_at)).ok();
    let starts = boards.iter().filter(|b| b.comes == Comes::In).filter_map(|b| {
        let insn = running.moved(distance(b.at)?)?;
        Some((insn.own, insn.old))
    });
    // Of an instruction that control comes back behind: where that is in moved code.
    let behind = |at: Va, end: Va| {
        let insn = running.moved(distance(at)?)?;
        let code = text.get(insn.own as usize..)?;
        let mut decoder = Decoder::new(code.get(..16).unwrap_or(code), Va(0));
        let moved = decoder.next()?;
        let is_it = matches!(moved.flow(), ControlFlow::Call(_) | ControlFlow::CallIndirect)
            || code.starts_with(&[0x0f, 0x05]);
        let len = u32::try_from(decoder.at().0).ok()?;
        is_it.then_some((insn.own + len, distance(end)?))
    };
    let backs = InProgress::find(program);
    let calls: Vec<(u32, u32)> = backs.calls.iter().filter_map(|&(at, end)| behind(at, end)).collect();
    let never = backs.never.iter().filter_map(|&(at, end)| behind(at, end));
    // Where exceptions land: from the search for who catches one until it is caught, the exception itself
    // keeps that.
    let pads = backs.landing_pads.iter().filter_map(|pad| running.moved(distance(*pad)?));
    let pads: Vec<(u32, u32)> =
        pads.flat_map(|insn| [(insn.way_in, insn.old), (insn.own, insn.old)]).collect();
    let calls: Vec<(u32, u32)> = calls.into_iter().chain(pads).collect();
    // A call that never comes back needs no way, but its frame's tables are found by what is behind it.
    let mut returns: Vec<(u32, u32)> = never.chain(calls.iter().copied()).collect();
    returns.sort_by_key(|back| back.0);
    returns.dedup_by_key(|back| back.0);
    let mut all: Vec<(u32, u32)> = starts.chain(calls).chain(instead.iter().copied()).collect();
    all.sort_unstable();
    all.dedup_by_key(|way| way.0);
    // Of two that are too near, control comes from the first to the second.
    let mut apart: Vec<(u32, u32)> = Vec::with_capacity(all.len());
    for way in all {
        if apart.last().is_some_and(|last| way.0 - last.0 < JUMP) {
            apart.pop();
        }
        apart.push(way);
    }
    [apart, returns]
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::image::segments::Segments;
    use crate::layout::place::Room;
    use crate::module::Module;
    use crate::plan::Plan;
    use crate::testing::{assembled, compiled, function};
    use std::collections::BTreeMap;

    const TEXT: &str = "
        #include <stdlib.h>
        volatile int sink; int (*way)(int) = abs;
        int twice(int n) { return way(way(n)) + abs(n); }
        int choose(int n, int a) { switch (n) { case 0: return twice(a * 3); case 1: return a ^ 77; case 2: return a / 7;
            case 3: return a << 5; case 4: return a % 11; case 5: return -a; case 6: return a | 9; } return a; }
        int main(int n, char **v) { for (int i = 0; i < n; i++) sink += choose(i, twice(i)); return sink; }";

    /// What a process is given in which the program that gcc makes of the text with `flags` runs, from `at`
    /// on.
    fn made(flags: &str, at: u64) -> (Program, Segments, Running) {
        let program = compiled(TEXT, "c", &format!("-O1 {flags}"));
        let module = Module::build(&program, &Plan::BLOCKS, Room::Running(Va(at))).expect("it can be moved");
        let (segments, running) = (module.to_segments().expect("it can be mapped"), module.to_running());
        drop(module);
        (program, segments, running)
    }

    /// Above and below a program that is relocated, and above one that is not.
    const CASES: [(&str, u64); 4] = [
        ("-pie -fPIE", 0x100_0000),
        ("-pie -fPIE", 0x100_0000u64.wrapping_neg()),
        ("-no-pie -fno-pie", 0x1000_0000),
        ("-shared -fPIC", 0x100_0000),
    ];

    #[test]
    fn each_instruction_is_the_same_in_both_places() {
        for (flags, at) in CASES {
            let (program, segments, running) = made(flags, at);
            assert!(running.insns.len() > 60, "{}", running.insns.len());
            let insns = running.insns.iter().filter(|insn| {
                // What does nothing between blocks is none of its own.
                program.block_at(Va(running.old_at + u64::from(insn.old))).is_some()
            });
            for insn in insns.clone() {
                let old = Va(running.old_at + u64::from(insn.old));
                let of_old =
                    program.insns(program.block_at(old).expect("in a block")).find(|i| i.at() == old);
                let of_old = of_old.expect("an instruction").mnemonic();
                let code = &segments.text[insn.own as usize..];
                let of_new = Decoder::new(code, Va(0)).next().expect("an instruction");
                // A branch may be inverted, and a call of a stub go past it.
                let is_kept = of_new.mnemonic() == of_old || matches!(of_new.flow(), ControlFlow::Branch(_));
                assert!(is_kept, "{old}: {of_new}");
                assert!(insn.way_in <= insn.own);
                assert_eq!(running.old_of(insn.own), Some(insn.old));
                assert_eq!(running.old_of(insn.way_in), Some(insn.old));
                assert_eq!(running.moved(insn.old), Some(insn));
                let last = insn.own + u32::try_from(of_new.len_bytes()).expect("small") - 1;
                for within in insn.way_in..=last {
                    assert_eq!(running.old_within(within), Some(insn.old));
                }
            }
            // Nothing is in front of the first, and what is far behind the last is of none.
            assert!(
                running.insns.first().is_some_and(|insn| insn.way_in == 0) || running.old_within(0).is_none()
            );
            assert_eq!(running.old_within(u32::MAX), None);
            // No instruction starts within another.
            let starts: BTreeMap<u32, u32> = insns.clone().map(|i| (i.own, i.old)).collect();
            assert_eq!(starts.len(), insns.count());
        }
    }

    #[test]
    fn who_stands_at_what_does_nothing_is_taken_to_what_is_behind_it() {
        let loops = "test %edi,%edi\njle 2f\n.p2align 6\n1: call g\nsub $1,%edi\njne 1b\n2: ret";
        let program = assembled(&[
            ("_start", "call f\nmov $60,%eax\nsyscall\nhlt"),
            ("f", loops),
            ("g", "add %edi,%eax\nnop\nnop\nxor $3,%eax\nret"),
        ]);
        let module = Module::build(&program, &Plan::BLOCKS, Room::Running(Va(0x1000_0000)));
        let running = module.expect("it can be moved").to_running();
        let f = function(&program, "f");
        let header = program.block(program.function(f).block_ids().nth(1).expect("the loop")).start;
        let at = |va: Va| running.moved(u32::try_from(va.since(Va(running.old_at))).expect("small"));
        let before = program.block(program.function(f).block_ids().next().expect("an entry")).range().end;
        assert!(before < header, "as is aligned");
        let insns: Vec<Va> = program.insns_in(&(before..header)).map(|insn| insn.at()).collect();
        for nop in insns {
            let (there, behind) = (at(nop).expect("it is known"), at(header).expect("it is moved"));
            assert_eq!((there.way_in, there.own), (behind.way_in, behind.own), "{nop}");
            assert_eq!(running.old_of(there.own), Some(behind.old), "{nop}");
            assert_eq!(running.old_of(there.way_in), Some(behind.old), "{nop}");
        }
        // All that a function runs is known.
        for id in program.func_ids().filter(|id| program.function(*id).name() != "_start") {
            let range = program.function(id).ranges[0].clone();
            for insn in program.insns_in(&range) {
                assert!(at(insn.at()).is_some(), "{}", insn.at());
            }
        }
    }

    #[test]
    fn code_that_is_left_leads_back_from_where_calls_come_back() {
        for (flags, at) in CASES {
            let (program, segments, running) = made(flags, at);
            let left = running.leading_back(segments.text_at, &segments.text);
            let jump = |new: u32| {
                let at = Va(segments.text_at + u64::from(new));
                Decoder::new(&left[new as usize..], at).next().and_then(|insn| insn.flow().target())
            };
            let ways: BTreeMap<u32, u32> = running.ways_back.iter().copied().collect();
            for (&new, &old) in &ways {
                assert_eq!(jump(new), Some(Va(running.old_at + u64::from(old))));
            }
            assert!(running.returns.is_sorted());
            for &new in ways.keys() {
                assert!(!running.is_in_way_back(new));
                assert!((1..5).all(|n| running.is_in_way_back(new + n)));
            }
            // Every call of moved code whose old one comes back does.
            let mut n = 0;
            for &(call, end) in &InProgress::find(&program).calls {
                let distance = |at: Va| u32::try_from(at.since(Va(running.old_at))).expect("small");
                let Some(insn) = running.moved(distance(call)) else { continue };
                let code = &segments.text[insn.own as usize..];
                let len = Decoder::new(code, Va(0)).next().expect("an instruction").len_bytes();
                let new = insn.own + u32::try_from(len).expect("small");
                assert_eq!(running.returned_to(new), Some(distance(end)));
                // From one that is too near to the next, control goes on to that.
                if ways.range(new..new + 5).next().is_some_and(|way| *way.0 > new) {
                    continue;
                }
                assert_eq!(ways.get(&new), Some(&distance(end)), "{call}");
                n += 1;
            }
            assert!(n > 3, "{n}");
        }
    }

    #[test]
    fn where_exceptions_land_may_be_kept_and_is_known_in_old_code() {
        let text = "int risky(int n) { if (n > 2) throw n; return n; }
            int main(int n, char **v) { try { return risky(n); } catch (int got) { return got * 7; } }";
        let program = compiled(text, "cc", "-O1 -fno-inline -Wl,--no-as-needed -lstdc++");
        let room = Room::Running(Va(0x100_0000));
        for plan in [Plan::NULL, Plan::BLOCKS] {
            let module = Module::build(&program, &plan, room).expect("it can be moved");
            let running = module.to_running();
            let pads: Vec<Va> = program.blocks.iter().filter(|b| b.landing_pad).map(|b| b.start).collect();
            assert!(!pads.is_empty());
            for pad in pads {
                let old = u32::try_from(pad.since(Va(running.old_at))).expect("small");
                let insn = *running.moved(old).expect("it is moved");
                for new in [insn.way_in, insn.own] {
                    assert!(running.returned_to(new) == Some(old) && running.may_be_kept(new));
                    assert_eq!(running.given_back(new), Some(old));
                }
            }
        }
    }

    #[test]
    fn words_that_are_relocated_are_changed_themselves() {
        let labels = "int choose(int n, int a) { static void *const to[] = { &&zero, &&one, &&two, &&one };
            goto *to[n & 3]; zero: return a * 3; one: return a ^ 77; two: return a / 7; }
            int main(int n, char **v) { return choose(n, n * 5); }";
        let program = compiled(labels, "c", "-O2 -fno-inline -pie -fPIE");
        let room = Room::Running(Va(0x100_0000u64.wrapping_neg()));
        let module = Module::build(&program, &Plan::BLOCKS, room).expect("it can be moved");
        let running = module.to_running();
        assert_eq!(running.words.len(), 4);
        for word in &running.words {
            let block = program.block_from(Va(word.old)).expect("a block");
            let moved = module.code_map.blocks.iter().find(|b| b.0 == program.block(block).start);
            assert_eq!(moved.map(|b| b.1), Some(Va(word.new)));
            assert!(
                module
                    .patches
                    .iter()
                    .all(|p| p.at.0 + p.old.len() as u64 <= word.at || p.at.0 >= word.at + 8)
            );
        }
        // Nothing is changed but code and jump tables: the linker has read the rest.
        let image = &program.image;
        let is_code = |p: &crate::Patch| image.is_code(p.at);
        let is_table = |p: &crate::Patch| program.tables.iter().any(|t| t.at <= p.at);
        assert!(module.patches.iter().all(|p| is_code(p) || is_table(p)));
    }
}
