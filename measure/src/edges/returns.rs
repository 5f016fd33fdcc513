//! Calls that are sure to come back: once, to the instruction behind them, unless the process dies in them or
//! a signal's handler leaves them.

use memchr::memmem::Finder;
use program::{BlockId, Call, CallKind, Callee, FuncId, Program, Va, libc};
use std::ops::Range;

/// Which calls are sure to come back, and what that means for the blocks that call.
pub struct Returns<'a> {
    program: &'a Program,
    imports: Vec<bool>,
    /// Per block: what its calls may do.
    calls: Vec<u8>,
    /// Per function: whether it stands for an import that comes back.
    stubs: Vec<bool>,
    /// Where there may be system calls, by address.
    systems: Vec<Va>,
}

/// A call behind one that may not come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubtful {
    /// The call.
    pub at: Va,
    /// Its block.
    pub block: BlockId,
    /// Whether it comes back, and all behind it: who comes to it leaves the block at its end.
    pub is_last: bool,
}

/// A call of the block leaves the function as far as is known: a tail call, or one that never comes back.
const ENDS: u8 = 1;
/// A call of the block is not sure to come back.
const UNSURE: u8 = 2;
/// The block calls something.
const CALLS: u8 = 4;

impl<'a> Returns<'a> {
    /// Of `program`.
    pub fn of(program: &'a Program) -> Returns<'a> {
        // A library may have a function of its own that is called `log`.
        let is_sure = |name: &str| libc::does(name, libc::COMES_BACK) && program.image.is_libc_import(name);
        let imports: Vec<bool> = program.imports.iter().map(|name| is_sure(name)).collect();
        let stubs = program.functions.iter().map(|f| f.import.as_deref().is_some_and(is_sure)).collect();
        let find = Finder::new(&SYSTEM_CALL);
        let in_segment = |start: Va| {
            let bytes = program.image.bytes_from(start).unwrap_or_default();
            find.find_iter(bytes).map(move |n| start.plus(n as u64))
        };
        let segments = program.image.segments.iter().filter(|s| s.executable);
        let mut systems: Vec<Va> = segments.flat_map(|s| in_segment(s.range.start)).collect();
        systems.sort_unstable();
        let mut returns = Returns { program, imports, calls: Vec::new(), stubs, systems };
        let mut calls = vec![0; program.blocks.len()];
        for call in &program.calls {
            let ends = call.kind != CallKind::Call || !call.returns;
            let unsure = !returns.are_sure(call);
            calls[call.block.index()] |=
                CALLS | if ends { ENDS } else { 0 } | if unsure { UNSURE } else { 0 };
        }
        returns.calls = calls;
        returns
    }

    /// Whether `call` comes back. Of a function of the program nobody knows: a signal's handler may leave it,
    /// or the process may die in it.
    fn are_sure(&self, call: &Call) -> bool {
        call.kind == CallKind::Call
            && call.returns
            && match call.callee {
                Callee::Function(f) => self.stubs[f.index()],
                Callee::Import(i) => self.imports[i as usize],
                Callee::Unknown(_) | Callee::Indirect => false,
            }
    }

    /// The direct calls of `program` that control may not come to where it comes to their blocks: an earlier
    /// call of the block may not come back.
    pub fn doubtful(&self) -> Vec<Doubtful> {
        let mut all = Vec::new();
        let mut is_behind = (None, false);
        for (i, call) in self.program.calls.iter().enumerate() {
            if is_behind.0 != Some(call.block) {
                is_behind = (Some(call.block), false);
            }
            if is_behind.1 {
                let later = self.program.calls.iter().skip(i).take_while(|c| c.block == call.block);
                let is_last = later.clone().all(|c| self.are_sure(c));
                all.push(Doubtful { at: call.at, block: call.block, is_last });
            }
            is_behind.1 |= !self.are_sure(call);
        }
        all.sort_unstable_by_key(|d| d.at);
        all
    }

    /// Whether `block` calls anything.
    pub fn calls(&self, block: BlockId) -> bool {
        self.calls[block.index()] & CALLS != 0
    }

    /// Whether all calls of `block` come back, once.
    pub fn are_all_sure(&self, block: BlockId) -> bool {
        self.calls[block.index()] & UNSURE == 0
    }

    /// Whether no call of `block` leaves its function as far as is known.
    pub fn may_all_be(&self, block: BlockId) -> bool {
        self.calls[block.index()] & ENDS == 0
    }

    /// Whether there may be a system call in `id`, which may end the process, or make another program of it.
    pub fn calls_system(&self, id: FuncId) -> bool {
        self.program.function(id).ranges.iter().any(|range| self.is_system_called_in(range))
    }

    /// The same of a block.
    pub fn block_calls_system(&self, block: BlockId) -> bool {
        self.is_system_called_in(&self.program.block(block).range())
    }

    fn is_system_called_in(&self, range: &Range<Va>) -> bool {
        let first = self.systems.partition_point(|&at| at < range.start);
        self.systems.get(first).is_some_and(|at| at.plus(SYSTEM_CALL.len() as u64) <= range.end)
    }
}

/// `syscall`.
pub const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Steps through each with arguments of many kinds.
    #[test]
    fn imports_stay_near() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (source, file) = (folder.path().join("near.c"), folder.path().join("near"));
        std::fs::write(&source, include_str!("returns/near.c")).expect("written");
        let flags = ["-O1", "-w", "-fno-builtin", "-o"];
        let made = std::process::Command::new("gcc").args(flags).arg(&file).arg(&source).arg("-lm").status();
        assert!(made.expect("gcc runs").success());
        let said = std::process::Command::new(&file).output().expect("it runs").stdout;
        let said = String::from_utf8(said).expect("text");
        let tried: BTreeSet<&str> = said.lines().filter_map(|line| line.split(' ').next()).collect();
        let untried: Vec<_> = libc::named(libc::COMES_BACK).filter(|name| !tried.contains(name)).collect();
        // That one is of the dynamic linker, for what compilers write.
        assert_eq!(untried, ["__tls_get_addr"]);
        for line in said.lines() {
            let numbers: Vec<u64> = line.split(' ').skip(1).map(|n| n.parse().expect("a number")).collect();
            assert!(
                numbers[0] < u64::from(probe::arch::NEAR) && numbers[1] < u64::from(probe::arch::DEEP),
                "{line}"
            );
        }
    }
}
