//! Bytes of a module that change: where, what was there, what is there now; and the change, made and unmade,
//! in a copy of its file or in a process.
//!
//! Invariant: nothing is written over what is not known.

use crate::arch::emit;
use crate::bytes::set_distance;
use program::arch::ControlFlow;
use program::{Program, Va};
use smallvec::SmallVec;

/// Bytes of a patch: a jump takes five, and of a large module there are a hundred thousand.
pub type PatchBytes = SmallVec<[u8; 8]>;

/// No instruction is longer.
const MOST: u64 = 15;

/// Bytes of the old module that change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patch {
    /// Where.
    pub at: Va,
    /// What was there.
    pub old: PatchBytes,
    /// What is there now; as long.
    pub new: PatchBytes,
}

/// A module's memory, by its own addresses: a copy of its file, or that of a process that is stopped.
pub trait Memory {
    /// Why it cannot be read or written.
    type Error;
    /// What is at `at`, as far as `bytes` are long.
    ///
    /// # Errors
    /// If not all of that is there.
    fn read(&self, at: Va, bytes: &mut [u8]) -> Result<(), Self::Error>;
    /// Puts `bytes` there.
    ///
    /// # Errors
    /// If it cannot be written.
    fn write(&mut self, at: Va, bytes: &[u8]) -> Result<(), Self::Error>;
}

/// Why a patch is not made, or not unmade.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatchError<E> {
    /// There is something else than what is to be changed: nothing was written.
    #[error("{at} does not hold what it should")]
    Unexpected {
        /// Where.
        at: Va,
    },
    /// It cannot be read or written.
    #[error("it cannot be read or written")]
    Memory(#[source] E),
}

impl Patch {
    /// The change of what `program` has at `at` to `new`.
    ///
    /// # Panics
    /// If the file has not all of these bytes: who plans a patch has read what it is to change.
    pub(crate) fn of(program: &Program, at: Va, new: impl Into<PatchBytes>) -> Patch {
        let new = new.into();
        let old = program.image.bytes_in(&(at..at.plus(new.len() as u64)));
        let old = old.unwrap_or_else(|| panic!("the file has no {} bytes at {at} to change", new.len()));
        Patch { at, old: old.into(), new }
    }

    /// A jump to `to` at `at`.
    pub(crate) fn jump(program: &Program, at: Va, to: Va) -> Patch {
        let mut bytes = emit::JUMP.to_vec();
        set_distance(&mut bytes, 1, to.since(at.plus(5)));
        Patch::of(program, at, bytes)
    }

    /// The call at `at` led to `to`, if there is one that can be. Where it comes back to stays the same.
    pub(crate) fn call(program: &Program, at: Va, to: Va) -> Option<Patch> {
        let insn = program.insns_in(&(at..at.plus(MOST))).next()?;
        let mut bytes = match insn.len_bytes() {
            5 if matches!(insn.flow(), ControlFlow::Call(_)) => vec![emit::CALL, 0, 0, 0, 0],
            6 if insn.called_slot().is_some() => vec![emit::NO_PREFIX, emit::CALL, 0, 0, 0, 0],
            _ => return None,
        };
        let end = at.plus(bytes.len() as u64);
        let place = bytes.len() - 4;
        set_distance(&mut bytes, place, to.since(end));
        Some(Patch::of(program, at, bytes))
    }

    /// Whether `memory` holds what was there before the change.
    ///
    /// # Errors
    /// If it does not, or cannot be read.
    pub fn check<M: Memory>(&self, memory: &M) -> Result<(), PatchError<M::Error>> {
        self.holds(memory, &self.old)
    }

    /// Makes the change.
    ///
    /// # Errors
    /// If `memory` does not hold what was there before, and then nothing is written; if it cannot be read or
    /// written.
    pub fn apply<M: Memory>(&self, memory: &mut M) -> Result<(), PatchError<M::Error>> {
        self.check(memory)?;
        memory.write(self.at, &self.new).map_err(PatchError::Memory)
    }

    /// Unmakes the change.
    ///
    /// # Errors
    /// If `memory` does not hold what the change put there, and then nothing is written; if it cannot be read
    /// or written.
    pub fn undo<M: Memory>(&self, memory: &mut M) -> Result<(), PatchError<M::Error>> {
        self.holds(memory, &self.new)?;
        memory.write(self.at, &self.old).map_err(PatchError::Memory)
    }

    fn holds<M: Memory>(&self, memory: &M, want: &[u8]) -> Result<(), PatchError<M::Error>> {
        let mut got = vec![0; want.len()];
        memory.read(self.at, &mut got).map_err(PatchError::Memory)?;
        if got == want { Ok(()) } else { Err(PatchError::Unexpected { at: self.at }) }
    }
}

/// `patches`, by address, those that follow one another without a gap as one.
pub(crate) fn joined(patches: &[Patch]) -> Vec<Patch> {
    let mut out: Vec<Patch> = Vec::new();
    for p in patches {
        match out.last_mut() {
            Some(last) if last.at.plus(last.old.len() as u64) == p.at => {
                last.old.extend_from_slice(&p.old);
                last.new.extend_from_slice(&p.new);
            }
            _ => out.push(p.clone()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes from address 0 on.
    #[derive(Clone, PartialEq, Debug)]
    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        type Error = &'static str;
        fn read(&self, at: Va, bytes: &mut [u8]) -> Result<(), Self::Error> {
            let from = usize::try_from(at.0).map_err(|_| "far")?;
            let there = self.0.get(from..from + bytes.len()).ok_or("not there")?;
            bytes.copy_from_slice(there);
            Ok(())
        }
        fn write(&mut self, at: Va, bytes: &[u8]) -> Result<(), Self::Error> {
            let from = usize::try_from(at.0).map_err(|_| "far")?;
            self.0.get_mut(from..from + bytes.len()).ok_or("not there")?.copy_from_slice(bytes);
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn what_is_unmade_is_as_it_was(
            before in proptest::collection::vec(any::<u8>(), 1..100),
            changes in proptest::collection::vec((0..100usize, proptest::collection::vec(any::<u8>(), 1..8)), 0..8),
        ) {
            let mut memory = Bytes(before.clone());
            let mut made = Vec::new();
            for (at, new) in changes {
                let Some(old) = memory.0.get(at..at + new.len()) else { continue };
                let patch = Patch { at: Va(at as u64), old: old.into(), new: new.into() };
                prop_assert_eq!(patch.apply(&mut memory), Ok(()));
                prop_assert_eq!(&memory.0[at..at + patch.new.len()], &patch.new[..]);
                made.push(patch);
            }
            for patch in made.iter().rev() {
                prop_assert_eq!(patch.undo(&mut memory), Ok(()));
            }
            prop_assert_eq!(memory.0, before);
        }
    }

    #[test]
    fn nothing_is_written_over_what_is_not_known() {
        let mut memory = Bytes(vec![1, 2, 3, 4]);
        let before = memory.clone();
        let patch = Patch { at: Va(1), old: [2, 9][..].into(), new: [7, 8][..].into() };
        let refused = Err(PatchError::Unexpected { at: Va(1) });
        assert_eq!(patch.check(&memory), refused);
        assert_eq!(patch.apply(&mut memory), refused);
        assert_eq!(patch.undo(&mut memory), refused);
        let outside = Patch { at: Va(3), old: [4, 5][..].into(), new: [6, 7][..].into() };
        assert_eq!(outside.apply(&mut memory), Err(PatchError::Memory("not there")));
        assert_eq!(memory, before);
    }

    #[test]
    fn patches_without_a_gap_are_one() {
        let patch = |at, byte| Patch { at: Va(at), old: [0][..].into(), new: [byte][..].into() };
        let all = joined(&[patch(1, 1), patch(2, 2), patch(4, 4)]);
        let want = [Patch { at: Va(1), old: [0, 0][..].into(), new: [1, 2][..].into() }, patch(4, 4)];
        assert_eq!(all, want);
    }
}
