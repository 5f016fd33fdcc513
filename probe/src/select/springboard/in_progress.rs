//! Where old code may be in the middle of something in a process that runs: calls that will come back, or by
//! which an exception will come, and system calls that the kernel may have a thread make again.
//!
//! Source: E. Riou et al., "PADRONE" (2014), 3.2, which leaves such frames to themselves; signal(7),
//! "Interruption of system calls", for why the instruction must stay.

use memchr::memmem;
use program::arch::Decoder;
use program::{BlockEnd, Call, CallKind, Program, Va};
use std::ops::Range;

/// What control may come back to in old code.
#[derive(Default)]
pub struct InProgress {
    /// Calls that may come back, and system calls: each with where it comes back; ascending.
    pub calls: Vec<(Va, Va)>,
    /// Calls that never come back, each with its end, which is kept all the same, and looked up by whoever
    /// unwinds the stack; ascending.
    pub never: Vec<(Va, Va)>,
    /// Behind calls that may come back, and behind system calls; ascending.
    pub backs: Vec<Va>,
    /// The instructions that enter the kernel, ascending.
    pub system_calls: Vec<Va>,
    /// Where exceptions land that are thrown by what old code has called, ascending.
    pub landing_pads: Vec<Va>,
}

/// Length of the instruction that enters the kernel.
pub const SYSTEM_CALL: u64 = 2;

impl InProgress {
    /// All of `program`.
    pub fn find(program: &Program) -> InProgress {
        let system_calls = system_calls(program);
        let comes_back = |call: &&Call| {
            let block = program.block(call.block);
            let never = call.at == block.last_insn() && matches!(block.end, BlockEnd::NoReturn);
            !never
        };
        let (calls, never): (Vec<&Call>, Vec<&Call>) =
            program.calls.iter().filter(|call| call.kind == CallKind::Call).partition(comes_back);
        let ends = |calls: Vec<&Call>| -> Vec<(Va, Va)> {
            calls.into_iter().filter_map(|call| Some((call.at, end_of(program, call.at)?))).collect()
        };
        let (mut calls, mut never) = (ends(calls), ends(never));
        calls.extend(system_calls.iter().map(|at| (*at, at.plus(SYSTEM_CALL))));
        for all in [&mut calls, &mut never] {
            all.sort_unstable();
            all.dedup();
        }
        let mut backs: Vec<Va> = calls.iter().map(|call| call.1).collect();
        backs.sort_unstable();
        backs.dedup();
        let pads = program.blocks.iter().filter(|block| block.landing_pad);
        let mut landing_pads: Vec<Va> = pads.map(|block| block.start).collect();
        landing_pads.sort_unstable();
        InProgress { calls, never, backs, system_calls, landing_pads }
    }

    /// Whether the instruction right before `at` enters the kernel.
    pub fn is_behind_system_call(&self, at: Va) -> bool {
        self.system_calls.binary_search(&Va(at.0.wrapping_sub(SYSTEM_CALL))).is_ok()
    }

    /// Those of `all`, sorted, that are in `range`.
    pub fn within<'a>(all: &'a [Va], range: &Range<Va>) -> &'a [Va] {
        let from = all.partition_point(|at| *at < range.start);
        let to = all.partition_point(|at| *at < range.end);
        all.get(from..to).unwrap_or_default()
    }
}

/// The end of the instruction at `at`.
fn end_of(program: &Program, at: Va) -> Option<Va> {
    let bytes = program.image.bytes_from(at)?;
    let mut decoder = Decoder::new(bytes.get(..16).unwrap_or(bytes), at);
    decoder.next()?;
    Some(decoder.at())
}

/// Where the instructions that enter the kernel stand, ascending.
fn system_calls(program: &Program) -> Vec<Va> {
    let image = &program.image;
    let of = |range: &Range<Va>| {
        let bytes = image.bytes_in(range).unwrap_or_default();
        let found = memmem::find_iter(bytes, &[0x0f, 0x05]).map(|n| range.start.plus(n as u64));
        found.filter(|at| is_instruction(program, *at)).collect::<Vec<_>>()
    };
    let mut all: Vec<Va> = image.code_ranges().iter().flat_map(of).collect();
    all.sort_unstable();
    all
}

/// Whether an instruction starts at `at`.
fn is_instruction(program: &Program, at: Va) -> bool {
    program.block_at(at).is_some_and(|block| program.insns(block).any(|insn| insn.at() == at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assembled;

    #[test]
    fn control_comes_back_behind_calls_and_system_calls() {
        let program = assembled(&[
            ("_start", "call f\nmov $0x050f,%eax\nsyscall\ncall *%rax\nud2"),
            ("f", "mov $60,%eax\nsyscall\nret"),
        ]);
        let found = InProgress::find(&program);
        // call f: 5 bytes; mov: 5; syscall: 2; call *: 2.
        let backs = [0x401005, 0x40100c, 0x40100e, 0x401017].map(Va);
        assert_eq!(found.backs, backs);
        assert_eq!(found.system_calls, [Va(0x40100a), Va(0x401015)]);
        let from_kernel: Vec<bool> = found.backs.iter().map(|at| found.is_behind_system_call(*at)).collect();
        assert_eq!(from_kernel, [false, true, false, true]);
        let range = Va(0x401005)..Va(0x401017);
        assert_eq!(InProgress::within(&found.backs, &range), &backs[..3]);
    }

    #[test]
    fn nothing_comes_back_from_what_never_returns() {
        let program = assembled(&[("_start", "call f\nud2"), ("f", "1: jmp 1b")]);
        let found = InProgress::find(&program);
        assert_eq!(found.backs, []);
        // Who unwinds the stack looks it up all the same.
        assert_eq!(found.never, [(Va(0x401000), Va(0x401005))]);
    }
}
