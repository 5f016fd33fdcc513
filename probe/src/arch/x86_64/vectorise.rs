//! Loops of packed SSE instructions, and what runs most of their iterations two by two, with AVX2.
//!
//! A loop is understood from its decoded instructions ([`PackedLoop::recognise`]): one block, whose vector
//! instructions have wide forms that do the same in each half, whose accesses advance by 16 bytes, and of
//! which it is known at the entry how often it goes round at least. What stands at the entry
//! ([`PackedLoop::entry`]) runs pairs of iterations, and leaves one or two for the loop itself, so that all
//! that is read behind it (temporaries, flags) comes from the loop's own last iteration.
//!
//! ```text
//! how many pairs? too few: SKIP    what it counts to, less what it starts with, over twice its step
//! do places overlap? SKIP          a later access of an iteration with an earlier one of the next
//! upper halves                     of what stays: as the lower ones; of sums: of nothing
//! 1: v… ymm; add twice the steps; sub $1,%pairs; jne 1b
//! sums: lower with upper half; vzeroupper
//! SKIP: the loop
//! ```
//! The state at the header is one that the loop may be entered with at any time: so whoever comes to the
//! entry from the middle of the loop, as threads that are taken over, finds nothing else.
//!
//! Invariant: behind it, memory and all that is live at the header are, bit for bit, what they are after so
//! many iterations of the loop; the flags of MXCSR, too. The stack pointer does not move, nothing is written
//! to the stack, and no register changes that callers keep values in: rows of unwind tables stay true.
//!
//! Source: Intel SDM vol. 1, 14.1.1 (each half by itself), 14.3 (VZEROUPPER); R. Allen, K. Kennedy,
//! "Optimizing Compilers for Modern Architectures" (2002), 2.2 and 5, for dependences.

mod carried;
mod count;
mod forms;
mod places;
#[cfg(test)]
mod tests;
mod write;

use carried::Carried;
use count::{Count, Steps, Work};
use forms::Shape;
use iced_x86::{Code, EncodingKind, Instruction, Mnemonic, OpKind, Register};
use places::{Access, Place};
use program::Va;
use program::arch::{ControlFlow, Insn};

/// Why a loop is not vectorised.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotVectorised {
    /// More than one block.
    #[error("it has {0} blocks")]
    Blocks(usize),
    /// It is left or entered otherwise than at its ends.
    #[error("an exception may leave it, or it is entered otherwise than from code in front of it")]
    Entered,
    /// Something is called in it.
    #[error("it calls something")]
    Calls,
    /// Its function is one for AVX already.
    #[error("its function has AVX instructions already")]
    Avx,
    /// Upper halves of vector registers may be kept through its function.
    #[error("who calls its function may keep values in upper halves of vector registers")]
    Uppers,
    /// No vectors.
    #[error("nothing in it works on vectors")]
    NoVectors,
    /// One value.
    #[error("`{0}` works on one value, not on a vector")]
    Scalar(String),
    /// Half a vector.
    #[error("`{0}` moves or converts half a vector")]
    Half(String),
    /// A store or load past the caches.
    #[error("`{0}` goes past the caches")]
    NonTemporal(String),
    /// What is read depends on what was read.
    #[error("`{0}` loads an index or an address: what is read depends on memory")]
    Gathers(String),
    /// Atomic, or of strings.
    #[error("`{0}` is atomic, or of strings")]
    Atomic(String),
    /// Something else with general registers.
    #[error("`{0}` does more with general registers than count")]
    General(String),
    /// No wide form.
    #[error("`{0}` has no AVX2 form that does the same in each half")]
    NoForm(String),
    /// A shift by what changes.
    #[error("`{0}` shifts by what is computed in the loop")]
    Shifts(String),
    /// An access that is not contiguous.
    #[error("the access at {at} advances by {bytes} bytes an iteration, not by 16")]
    Stride {
        /// The instruction.
        at: Va,
        /// By how much.
        bytes: i64,
    },
    /// An access to one place.
    #[error("the access at {0} is to the same memory in each iteration")]
    OnePlace(Va),
    /// An address that is counted in 32 bits, or is in a segment.
    #[error("the address of the access at {0} is counted in 32 bits, or of a segment")]
    Address(Va),
    /// Iterations depend on each other through memory.
    #[error("the access at {at} is {bytes} bytes from one that the next iteration makes before it")]
    Overlaps {
        /// The later instruction.
        at: Va,
        /// How far it is behind the earlier one's address.
        bytes: i64,
    },
    /// Too many places.
    #[error("it has too many places in memory that may overlap")]
    Places,
    /// A sum of floats.
    #[error("a sum of floats would be added in another order, in {0}")]
    FloatSum(String),
    /// A value that goes from iteration to iteration.
    #[error("each iteration needs what the one before left in {0}")]
    Carried(String),
    /// It is not known how often it goes round.
    #[error("how often it goes round is not known at its entry: {0}")]
    Count(&'static str),
    /// What it counts with.
    #[error("it counts too far at once to be written twice")]
    TooFar,
    /// No register to work with.
    #[error("no register is free at its entry")]
    NoRegister,
    /// Flags are read.
    #[error("flags from before it are read in it")]
    Flags,
    /// The code cannot be written.
    #[error("its code cannot be written")]
    Unwritable,
}

/// Whether this processor, and the system that runs on it, can run such code.
pub fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// Whether `insn` is an instruction of AVX, or of what came after it.
pub fn is_avx(insn: &Insn) -> bool {
    insn.iced().code().encoding() != EncodingKind::Legacy
}

/// A loop of packed SSE instructions.
#[derive(Clone, PartialEq, Debug)]
pub struct PackedLoop {
    body: Vec<Wide>,
    steps: Steps,
    count: Count,
    /// Places that may overlap: of the access that comes first in an iteration, and of the later one.
    overlaps: Vec<[Place; 2]>,
    carried: Carried,
}

/// A vector instruction.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Wide {
    shape: Shape,
    narrow: Code,
    code: Code,
    to: Operand,
    from: Operand,
    number: Option<u8>,
}

/// An operand of one.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Operand {
    Vector(u8),
    Memory(Place),
    None,
}

impl Wide {
    /// The vector registers whose value it depends on, a bit each.
    fn reads(&self) -> u16 {
        let bit = |operand: Operand| match operand {
            Operand::Vector(n) => 1u16 << n,
            Operand::Memory(_) | Operand::None => 0,
        };
        if self.shape == Shape::Binary && self.to == self.from && forms::reads_nothing_of_itself(self.narrow)
        {
            return 0;
        }
        let from = bit(self.from);
        match self.shape {
            Shape::Plain => from,
            Shape::Blend => from | bit(self.to) | 1,
            Shape::Binary | Shape::Shift | Shape::Count => from | bit(self.to),
        }
    }

    /// The one that it writes.
    fn writes(&self) -> Option<u8> {
        match self.to {
            Operand::Vector(n) => Some(n),
            Operand::Memory(_) | Operand::None => None,
        }
    }
}

impl PackedLoop {
    /// The loop of these instructions, a block that starts at `header` and leads back there.
    ///
    /// # Errors
    /// Why it is none.
    pub fn recognise(insns: &[Insn], header: Va) -> Result<PackedLoop, NotVectorised> {
        let (jump, rest) = insns.split_last().ok_or(NotVectorised::NoVectors)?;
        let works = rest.iter().map(|insn| work(insn, rest)).collect::<Result<Vec<Work>, _>>()?;
        if jump.flow() != ControlFlow::Branch(header) {
            return Err(NotVectorised::Count("it does not end in a jump back"));
        }
        let steps = Steps::of(&works);
        let mut deltas = [0; 16];
        let (mut body, mut accesses, mut setter) = (Vec::new(), Vec::new(), None);
        for (insn, work) in rest.iter().zip(&works) {
            match work {
                Work::Nothing => {}
                Work::Step(step) => {
                    let delta = deltas.get_mut(step.number()).ok_or(NotVectorised::Unwritable)?;
                    *delta += step.by;
                    if step.sets_flags {
                        setter = Some((insn, deltas));
                    }
                }
                Work::Compare => setter = Some((insn, deltas)),
                Work::Vector(shape, code) => {
                    let wide = wide(insn, (*shape, *code), &deltas)?;
                    accesses.extend(access(insn, &wide));
                    body.push(wide);
                }
            }
        }
        if body.is_empty() {
            return Err(NotVectorised::NoVectors);
        }
        let carried = Carried::of(&body)?;
        accesses.iter().try_for_each(|access| access.is_contiguous(&steps))?;
        let overlaps = places::overlaps(&accesses)?;
        let (setter, deltas) = setter.ok_or(NotVectorised::Flags)?;
        let count = Count::of(setter, jump, &deltas, &steps)?;
        Ok(PackedLoop { body, steps, count, overlaps, carried })
    }
}

/// What `insn` does in a loop of `all`.
fn work(insn: &Insn, all: &[Insn]) -> Result<Work, NotVectorised> {
    let i = insn.iced();
    if is_avx(insn) {
        return Err(NotVectorised::Avx);
    }
    if let Some(work) = Work::of(insn) {
        return Ok(work);
    }
    match forms::wide(i.code()) {
        Some((shape, code)) if !i.has_lock_prefix() => Ok(Work::Vector(shape, code)),
        _ => Err(refused(insn, all)),
    }
}

/// The wide form of a vector instruction, where general registers are so far from what they were.
fn wide(insn: &Insn, (shape, code): (Shape, Code), deltas: &[i64; 16]) -> Result<Wide, NotVectorised> {
    let i = insn.iced();
    let operand = |n: u32| -> Result<Operand, NotVectorised> {
        match i.op_kind(n) {
            OpKind::Register => {
                let number = u8::try_from(i.op_register(n).number()).ok().filter(|n| *n < 16);
                Ok(Operand::Vector(number.ok_or(NotVectorised::Unwritable)?))
            }
            OpKind::Memory => Ok(Operand::Memory(Place::of(insn, deltas)?)),
            _ => Ok(Operand::None),
        }
    };
    let last = i.op_count().saturating_sub(1);
    let number =
        matches!(i.op_kind(last), OpKind::Immediate8).then(|| forms::number(i.code(), i.immediate8()));
    let (to, from) = (operand(0)?, operand(1)?);
    if shape == Shape::Count && !matches!(from, Operand::Vector(_)) {
        return Err(NotVectorised::Shifts(name(i)));
    }
    Ok(Wide { shape, narrow: i.code(), code, to, from, number })
}

/// The memory that it uses.
fn access(insn: &Insn, wide: &Wide) -> Option<Access> {
    match (wide.to, wide.from) {
        (Operand::Memory(place), _) => Some(Access { place, is_store: true, at: insn.at() }),
        (_, Operand::Memory(place)) => Some(Access { place, is_store: false, at: insn.at() }),
        _ => None,
    }
}

/// What an instruction is called.
fn name(i: &Instruction) -> String {
    format!("{:?}", i.mnemonic()).to_lowercase()
}

/// Why an instruction may not stand in a loop of `all`.
fn refused(insn: &Insn, all: &[Insn]) -> NotVectorised {
    use Mnemonic as M;
    let i = insn.iced();
    let name = name(i);
    let is = |all: &[Mnemonic]| all.contains(&i.mnemonic());
    let kinds = || (0..i.op_count()).map(|n| i.op_kind(n));
    let is_string = |kind: OpKind| {
        !matches!(kind, OpKind::Memory | OpKind::Register) && format!("{kind:?}").starts_with("Memory")
    };
    if matches!(insn.flow(), ControlFlow::Call(_) | ControlFlow::CallIndirect) {
        return NotVectorised::Calls;
    }
    if i.has_lock_prefix() || i.has_rep_prefix() || i.has_repne_prefix() || kinds().any(is_string) {
        return NotVectorised::Atomic(name);
    }
    if is(&[M::Movntps, M::Movntpd, M::Movntdq, M::Movntdqa, M::Movnti, M::Maskmovdqu]) {
        return NotVectorised::NonTemporal(name);
    }
    if is(&HALF) {
        return NotVectorised::Half(name);
    }
    let has_vector = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_xmm());
    if has_vector && (name.ends_with("ss") || name.ends_with("sd") || name.contains("2s")) {
        return NotVectorised::Scalar(name);
    }
    let first = if i.op_count() > 0 { i.op0_register() } else { Register::None };
    if has_vector || i.op_count() == 0 {
        return NotVectorised::NoForm(name);
    }
    let loads = is(&[M::Mov, M::Movzx, M::Movsx, M::Movsxd]) && i.op1_kind() == OpKind::Memory;
    if first.is_gpr() && loads {
        let is_address = |other: &Insn| {
            let registers = [other.iced().memory_base(), other.iced().memory_index()];
            registers.iter().any(|one| one.is_gpr() && one.full_register() == first.full_register())
        };
        return match all.iter().any(is_address) {
            true => NotVectorised::Gathers(name),
            false => NotVectorised::Scalar(name),
        };
    }
    NotVectorised::General(name)
}

/// What moves or converts half a vector.
const HALF: [Mnemonic; 30] = [
    Mnemonic::Movq,
    Mnemonic::Movd,
    Mnemonic::Movlps,
    Mnemonic::Movlpd,
    Mnemonic::Movhps,
    Mnemonic::Movhpd,
    Mnemonic::Movlhps,
    Mnemonic::Movhlps,
    Mnemonic::Movddup,
    Mnemonic::Cvtps2pd,
    Mnemonic::Cvtpd2ps,
    Mnemonic::Cvtdq2pd,
    Mnemonic::Cvtpd2dq,
    Mnemonic::Cvttpd2dq,
    Mnemonic::Pinsrb,
    Mnemonic::Pinsrw,
    Mnemonic::Pinsrd,
    Mnemonic::Pinsrq,
    Mnemonic::Pmovsxbw,
    Mnemonic::Pmovsxbd,
    Mnemonic::Pmovsxbq,
    Mnemonic::Pmovsxwd,
    Mnemonic::Pmovsxwq,
    Mnemonic::Pmovsxdq,
    Mnemonic::Pmovzxbw,
    Mnemonic::Pmovzxbd,
    Mnemonic::Pmovzxbq,
    Mnemonic::Pmovzxwd,
    Mnemonic::Pmovzxwq,
    Mnemonic::Pmovzxdq,
];
