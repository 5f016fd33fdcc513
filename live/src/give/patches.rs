//! Changes of a module's old segments, made in a process that is stopped: many at once, for each by itself
//! would cost two system calls.

use super::calls::PAGE;
use crate::process::{ProcessError, Stopped};
use probe::{Memory, Patch, PatchError};
use program::{Bias, Va};

/// A stopped process's memory by the addresses of a module in it.
pub(crate) struct ModuleMemory<'a> {
    pub(crate) stopped: &'a Stopped,
    pub(crate) bias: Bias,
}

impl ModuleMemory<'_> {
    /// Whether all that is to be patched is as the file has it.
    pub(crate) fn check_unchanged(&self, patches: &[Patch]) -> Result<(), ProcessError> {
        stretches(patches).try_for_each(|patches| {
            let copy = Copy::of(self, patches)?;
            patches.iter().try_for_each(|patch| patch.check(&copy)).map_err(|why| self.refused(why))
        })
    }

    /// Makes all patches.
    pub(crate) fn change(&mut self, patches: &[Patch]) -> Result<(), ProcessError> {
        stretches(patches).try_for_each(|patches| {
            let mut copy = Copy::of(self, patches)?;
            patches.iter().try_for_each(|patch| patch.apply(&mut copy)).map_err(|why| self.refused(why))?;
            self.write(copy.at, &copy.bytes)
        })
    }

    fn refused(&self, why: PatchError<NotInCopy>) -> ProcessError {
        match why {
            PatchError::Memory(NotInCopy) => self.stopped.space("patches overlap"),
            PatchError::Unexpected { at } => self.stopped.space(format!(
                "{} does not hold what the file holds: it was changed while it was started",
                self.bias.to_live(at)
            )),
        }
    }
}

/// Whether `there` is what `patch` changes, or changes it to, or partly one and partly the other.
pub(crate) fn is_of(patch: &Patch, there: &[u8]) -> bool {
    let both = patch.old.iter().zip(&patch.new);
    there.len() == patch.old.len()
        && there.iter().zip(both).all(|(byte, (old, new))| byte == old || byte == new)
}

/// Makes `there` what it was before `patch`, if it is of that.
pub(crate) fn unmade(patch: &Patch, there: &mut [u8]) {
    if is_of(patch, there) {
        there.copy_from_slice(&patch.old);
    }
}

/// `patches`, which are by address, in parts between whose bytes no whole page lies, so that what is between
/// them is mapped, too, and is on pages that change.
fn stretches(patches: &[Patch]) -> impl Iterator<Item = &[Patch]> {
    let is_near = |a: &Patch, b: &Patch| b.at.0 < a.at.0 + a.old.len() as u64 + PAGE;
    patches.chunk_by(is_near).flat_map(|near| near.chunks(MOST_TOGETHER))
}

/// So many patches take a few hundred kilobytes together.
const MOST_TOGETHER: usize = 1 << 12;

/// A copy of a part of a module's memory, in which patches are checked and made: each by itself would cost
/// two system calls.
struct Copy {
    at: Va,
    bytes: Vec<u8>,
}

/// A patch is not in the part that was copied for it.
#[derive(Debug)]
struct NotInCopy;

impl Copy {
    /// From the first of `patches` to the end of the last.
    fn of(memory: &ModuleMemory<'_>, patches: &[Patch]) -> Result<Copy, ProcessError> {
        let at = patches.first().map_or(Va(0), |patch| patch.at);
        let end = patches.last().map_or(at, |patch| patch.at.plus(patch.old.len() as u64));
        let mut bytes = vec![0; usize::try_from(end.since(at)).unwrap_or(0)];
        memory.read(at, &mut bytes)?;
        Ok(Copy { at, bytes })
    }

    fn place(&self, at: Va, len: usize) -> Result<std::ops::Range<usize>, NotInCopy> {
        let from =
            at.0.checked_sub(self.at.0).and_then(|from| usize::try_from(from).ok()).ok_or(NotInCopy)?;
        let end = from.checked_add(len).filter(|end| *end <= self.bytes.len()).ok_or(NotInCopy)?;
        Ok(from..end)
    }
}

impl Memory for Copy {
    type Error = NotInCopy;

    fn read(&self, at: Va, bytes: &mut [u8]) -> Result<(), NotInCopy> {
        bytes.copy_from_slice(&self.bytes[self.place(at, bytes.len())?]);
        Ok(())
    }

    fn write(&mut self, at: Va, bytes: &[u8]) -> Result<(), NotInCopy> {
        let place = self.place(at, bytes.len())?;
        self.bytes[place].copy_from_slice(bytes);
        Ok(())
    }
}

impl Memory for ModuleMemory<'_> {
    type Error = ProcessError;

    fn read(&self, at: Va, bytes: &mut [u8]) -> Result<(), ProcessError> {
        self.stopped.read(self.bias.to_live(at), bytes)
    }

    fn write(&mut self, at: Va, bytes: &[u8]) -> Result<(), ProcessError> {
        self.stopped.write(self.bias.to_live(at), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_that_was_made_in_part_is_unmade() {
        let patch = Patch { at: Va(0), old: [1, 2, 3][..].into(), new: [4, 2, 6][..].into() };
        for there in [[1, 2, 3], [4, 2, 6], [4, 2, 3], [1, 2, 6]] {
            let mut bytes = there;
            assert!(is_of(&patch, &bytes));
            unmade(&patch, &mut bytes);
            assert_eq!(bytes, [1, 2, 3]);
        }
        // Somebody else has written there.
        let mut other = [1, 9, 3];
        unmade(&patch, &mut other);
        assert_eq!(other, [1, 9, 3]);
        assert!(!is_of(&patch, &[1, 2]));
    }
}
