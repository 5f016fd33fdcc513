//! The memory that a loop uses: where it is, how it advances, and which accesses may not be exchanged.
//!
//! Two iterations at once make each access of both before the next. So a later access of an iteration comes
//! behind an earlier one of the next: that matters if one of them is a store and they overlap, which they do
//! if the later one's address is 1 to 31 bytes behind the earlier one's.

use super::NotVectorised;
use super::count::Steps;
use iced_x86::{MemoryOperand, Register};
use program::Va;
use program::arch::Insn;

/// How far accesses advance in an iteration.
const STRIDE: i64 = 16;
/// How long those of two iterations are.
const PAIR: i64 = 2 * STRIDE;
/// So many pairs of places are compared at an entry at most.
const MOST: usize = 24;

/// Where 16 bytes are, by registers as they are at the header.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Place {
    base: Register,
    index: Register,
    scale: u32,
    disp: i64,
}

/// An access to one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) place: Place,
    pub(super) is_store: bool,
    /// The instruction.
    pub(super) at: Va,
}

impl Place {
    /// That of the memory operand of `insn`, where registers are so far from what they were at the header.
    pub(super) fn of(insn: &Insn, deltas: &[i64; 16]) -> Result<Place, NotVectorised> {
        let i = insn.iced();
        let (base, index, scale) = (i.memory_base(), i.memory_index(), i.memory_index_scale());
        if matches!(base, Register::RIP | Register::EIP) {
            return Err(NotVectorised::OnePlace(insn.at()));
        }
        let is_whole = |register: Register| register == Register::None || register.is_gpr64();
        if !is_whole(base) || !is_whole(index) || matches!(i.segment_prefix(), Register::FS | Register::GS) {
            return Err(NotVectorised::Address(insn.at()));
        }
        let mut place = Place { base, index, scale, disp: i.memory_displacement64().cast_signed() };
        let moved: i64 = place.factors().iter().zip(deltas).map(|(factor, delta)| factor * delta).sum();
        place.disp = place.disp.checked_add(moved).ok_or(NotVectorised::TooFar)?;
        match i32::try_from(place.disp) {
            Ok(_) => Ok(place),
            Err(_) => Err(NotVectorised::TooFar),
        }
    }

    /// By how much each register is multiplied.
    pub(super) fn factors(&self) -> [i64; 16] {
        let mut all = [0; 16];
        let mut add = |register: Register, factor: u32| {
            if register != Register::None
                && let Some(own) = all.get_mut(register.number())
            {
                *own += i64::from(factor);
            }
        };
        add(self.base, 1);
        add(self.index, self.scale);
        all
    }

    /// As an operand.
    pub(super) fn operand(&self) -> MemoryOperand {
        let scale = if self.index == Register::None { 1 } else { self.scale };
        MemoryOperand::new(self.base, self.index, scale, self.disp, 1, false, Register::None)
    }
}

impl Access {
    /// Whether it is to what follows what it was to in the iteration before.
    ///
    /// # Errors
    /// If not, why.
    pub(super) fn is_contiguous(&self, steps: &Steps) -> Result<(), NotVectorised> {
        let mut bytes = 0;
        for (number, factor) in self.place.factors().into_iter().enumerate().filter(|one| one.1 != 0) {
            match steps.get(number) {
                Some((_, false)) => return Err(NotVectorised::Address(self.at)),
                Some((by, true)) => bytes += factor * by,
                None => {}
            }
        }
        match bytes {
            STRIDE => Ok(()),
            0 => Err(NotVectorised::OnePlace(self.at)),
            bytes => Err(NotVectorised::Stride { at: self.at, bytes }),
        }
    }
}

/// The places that may not overlap as said above, where it is not known whether they do: earlier, later.
pub(super) fn overlaps(accesses: &[Access]) -> Result<Vec<[Place; 2]>, NotVectorised> {
    let mut all: Vec<[Place; 2]> = Vec::new();
    for (n, later) in accesses.iter().enumerate() {
        for earlier in accesses.iter().take(n).filter(|earlier| earlier.is_store || later.is_store) {
            let (first, second) = (earlier.place, later.place);
            if first.factors() == second.factors() {
                let bytes = second.disp - first.disp;
                if 0 < bytes && bytes < PAIR {
                    return Err(NotVectorised::Overlaps { at: later.at, bytes });
                }
                continue;
            }
            if !all.contains(&[first, second]) {
                all.push([first, second]);
            }
        }
    }
    if all.len() > MOST {
        return Err(NotVectorised::Places);
    }
    Ok(all)
}
