//! What a loop does with general registers: it counts in them, and compares one with where it ends.
//!
//! How often it goes round need not be known exactly, only that it does at least so often: the rest is the
//! loop's own. If it goes on while what it compares is not, or is below, its bound, then it does at least as
//! often as its step fits into the distance of both, whatever wraps around.
//!
//! Source: Intel SDM vol. 2A, Jcc, CMP.

use super::NotVectorised;
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};
use program::arch::Insn;

/// What an instruction does in a loop.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Work {
    /// Nothing.
    Nothing,
    /// A number is added to a register.
    Step(Step),
    /// Two things are compared: flags are set.
    Compare,
    /// Vectors.
    Vector(super::Shape, iced_x86::Code),
}

/// A number added to a register.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Step {
    /// The register, its full name.
    register: Register,
    pub(super) by: i64,
    /// Whether all 64 bits count, or the lower half alone, and the upper one is cleared.
    is_wide: bool,
    pub(super) sets_flags: bool,
}

impl Step {
    pub(super) fn number(&self) -> usize {
        self.register.number()
    }
}

impl Work {
    /// Of an instruction that works on general registers alone, if it may stand in a loop.
    pub(super) fn of(insn: &Insn) -> Option<Work> {
        let i = insn.iced();
        if insn.is_nop() || insn.is_landing_mark() {
            return Some(Work::Nothing);
        }
        let is_counted = |n: u32| {
            let register = i.op_register(n);
            i.op_kind(n) == OpKind::Register && (register.is_gpr32() || register.is_gpr64())
        };
        let number = |n: u32| number(i, n);
        if i.has_lock_prefix() || i.op_count() == 0 || !is_counted(0) {
            // What it compares may be in memory: `Count` says so.
            return (i.mnemonic() == Mnemonic::Cmp).then_some(Work::Compare);
        }
        let by = match i.mnemonic() {
            Mnemonic::Add => number(1)?,
            Mnemonic::Sub => number(1)?.checked_neg()?,
            Mnemonic::Inc => 1,
            Mnemonic::Dec => -1,
            Mnemonic::Lea => {
                let is_own = i.memory_base().full_register() == i.op0_register().full_register()
                    && i.memory_base().is_gpr64()
                    && i.memory_index() == Register::None;
                if !is_own {
                    return None;
                }
                i.memory_displacement64().cast_signed()
            }
            Mnemonic::Cmp | Mnemonic::Test => return Some(Work::Compare),
            _ => return None,
        };
        let register = i.op0_register().full_register();
        if register == Register::RSP || i32::try_from(by).is_err() {
            return None;
        }
        let sets_flags = i.mnemonic() != Mnemonic::Lea;
        Some(Work::Step(Step { register, by, is_wide: i.op0_register().is_gpr64(), sets_flags }))
    }
}

/// The number that operand `n` is, sign-extended.
fn number(i: &Instruction, n: u32) -> Option<i64> {
    match i.op_kind(n) {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => Some(i.immediate(n).cast_signed()),
        #[expect(clippy::cast_possible_truncation, reason = "it has 32 bits")]
        OpKind::Immediate8to32 | OpKind::Immediate32 => {
            Some(i64::from((i.immediate(n) as u32).cast_signed()))
        }
        _ => None,
    }
}

/// By how much registers change in an iteration, and whether all of them does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Steps([Option<(i64, bool)>; 16]);

impl Steps {
    pub(super) fn of(works: &[Work]) -> Steps {
        let mut all = [None; 16];
        for work in works {
            if let Work::Step(step) = work
                && let Some(total) = all.get_mut(step.number())
            {
                let (by, is_wide) = total.unwrap_or((0, true));
                *total = Some((by + step.by, is_wide && step.is_wide));
            }
        }
        Steps(all)
    }

    /// By how much the register changes, and whether as a whole; `None` if it does not.
    pub(super) fn get(&self, number: usize) -> Option<(i64, bool)> {
        self.0.get(number).copied().flatten()
    }

    /// All that change: their numbers, by how much, and whether as a whole.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, i64, bool)> + '_ {
        self.0.iter().enumerate().filter_map(|(n, step)| step.map(|(by, is_wide)| (n, by, is_wide)))
    }
}

/// How often it goes round at least: while the counter and `offset`, which is so much more each time, have
/// not come to the bound.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Count {
    /// A full name.
    pub(super) counter: Register,
    pub(super) offset: i32,
    pub(super) step: i64,
    pub(super) bound: Bound,
    /// Whether they have 64 bits, or the lower 32 count.
    pub(super) is_wide: bool,
    /// How they compare; nothing: it goes on while they are not the same.
    pub(super) order: Option<Order>,
}

/// Where a loop ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Bound {
    /// A full name.
    Register(Register),
    Number(i32),
}

/// How numbers compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Unsigned,
    Signed,
}

/// What a comparison says that has a loop go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GoesOn {
    Unequal,
    Below(Order),
    Above(Order),
}

impl GoesOn {
    fn of(jump: &Instruction) -> Option<GoesOn> {
        Some(match jump.condition_code() {
            ConditionCode::ne => GoesOn::Unequal,
            ConditionCode::b | ConditionCode::be => GoesOn::Below(Order::Unsigned),
            ConditionCode::a | ConditionCode::ae => GoesOn::Above(Order::Unsigned),
            ConditionCode::l | ConditionCode::le => GoesOn::Below(Order::Signed),
            ConditionCode::g | ConditionCode::ge => GoesOn::Above(Order::Signed),
            _ => return None,
        })
    }

    /// The same with both sides exchanged.
    fn exchanged(self) -> GoesOn {
        match self {
            GoesOn::Unequal => GoesOn::Unequal,
            GoesOn::Below(order) => GoesOn::Above(order),
            GoesOn::Above(order) => GoesOn::Below(order),
        }
    }
}

impl Count {
    /// Of a loop whose `jump` back reads the flags of `setter`, behind which registers are so far from what
    /// they were at the header.
    pub(super) fn of(
        setter: &Insn,
        jump: &Insn,
        deltas: &[i64; 16],
        steps: &Steps,
    ) -> Result<Count, NotVectorised> {
        let unknown = |why| Err(NotVectorised::Count(why));
        let i = setter.iced();
        let Some(goes_on) = GoesOn::of(jump.iced()) else {
            return unknown("its jump back asks for something else than an order");
        };
        let is_compare = i.mnemonic() == Mnemonic::Cmp;
        let is_same = i.mnemonic() == Mnemonic::Test
            && i.op1_kind() == OpKind::Register
            && i.op0_register() == i.op1_register();
        if i.mnemonic() == Mnemonic::Test && !is_same || !is_compare && goes_on != GoesOn::Unequal {
            return unknown("its jump back asks for something else than an order");
        }
        if (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory) {
            return unknown("its bound is in memory");
        }
        let first = i.op0_register();
        if !first.is_gpr32() && !first.is_gpr64() {
            return unknown("it counts in less than 32 bits");
        }
        let second = match i.op_kind(i.op_count() - 1) {
            _ if !is_compare => Bound::Number(0),
            OpKind::Register => Bound::Register(i.op1_register().full_register()),
            _ => {
                let number = number(i, 1).and_then(|number| i32::try_from(number).ok());
                Bound::Number(number.ok_or(NotVectorised::Unwritable)?)
            }
        };
        let first = first.full_register();
        let is_counted = |register: Register| steps.get(register.number()).is_some_and(|step| step.0 != 0);
        let (counter, bound, goes_on) = match (is_counted(first), second) {
            (true, Bound::Register(second)) if is_counted(second) => {
                return unknown("its bound changes, too");
            }
            (true, bound) => (first, bound, goes_on),
            (false, Bound::Register(second)) if is_counted(second) => {
                (second, Bound::Register(first), goes_on.exchanged())
            }
            (false, _) => return unknown("what it compares does not count"),
        };
        let (step, has_all) = steps.get(counter.number()).unwrap_or((0, false));
        let is_wide = i.op0_register().is_gpr64();
        if is_wide && !has_all {
            return unknown("it counts in 32 bits, and compares 64");
        }
        let order = match goes_on {
            GoesOn::Unequal => None,
            GoesOn::Below(order) if step > 0 => Some(order),
            GoesOn::Above(order) if step < 0 => Some(order),
            GoesOn::Below(_) | GoesOn::Above(_) => return unknown("it counts away from its bound"),
        };
        let delta = deltas.get(counter.number()).copied().unwrap_or_default();
        let offset = i32::try_from(delta).map_err(|_| NotVectorised::TooFar)?;
        Ok(Count { counter, offset, step, bound, is_wide, order })
    }

    /// By how many bits the distance of both is shifted to have the number of pairs of iterations, or fewer.
    pub(super) fn shift(&self) -> Result<u32, NotVectorised> {
        let bits = self.step.unsigned_abs().next_power_of_two().trailing_zeros() + 1;
        match bits < if self.is_wide { 64 } else { 32 } {
            true => Ok(bits),
            false => Err(NotVectorised::TooFar),
        }
    }
}
