//! A trial: calls are recorded, or go to the function and to what is tried in its place by turns, and how
//! long both took is summed up.
//!
//! What is done is told by a word of its data, which whoever watches writes while the program runs.

use super::{Assembler, ORIGINAL, REPLACEMENT, StandIn, To, at, nowhere};
use crate::arch::x86_64::snippet::NoValue;
use iced_x86::{Code, Instruction, MemoryOperand, Register};
use std::mem::{offset_of, size_of};

use Register::{R10, R11, R11D, RAX, RDX, RSP};

/// What a trial does, and what came of it: its data.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trial {
    /// One of [`TRIAL`].
    pub what: u64,
    /// The state of the dice.
    pub dice: u64,
    /// How many calls were to be recorded.
    pub n_recorded: u64,
    /// Of the function itself: how many ticks its calls took, and how many came back.
    pub old: [u64; 2],
    /// The same of what is tried.
    pub new: [u64; 2],
    unused: u64,
}

/// What a trial does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Does {
    /// All calls go to the function.
    pub pass: u64,
    /// The same, and their arguments are recorded.
    pub record: u64,
    /// They go to one or the other, by dice, and are timed.
    pub alternate: u64,
    /// All go to the function, and are timed.
    pub old: u64,
    /// All go to what is tried, and are timed.
    pub new: u64,
}

/// The numbers for it.
pub const TRIAL: Does = Does { pass: 0, record: 1, alternate: 2, old: 3, new: 4 };

/// A recorded call: it is whole if the first word is not 0.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ring {
    /// 1 once it is whole; the control word of MXCSR above.
    pub state: u64,
    /// rdi, rsi, rdx, rcx, r8, r9, rax.
    pub general: [u64; 7],
    /// The low halves of xmm0 to xmm7.
    pub vector: [u64; 8],
}

/// Registers as they are recorded.
const GENERAL: [u32; 7] = [7, 6, 2, 1, 8, 9, 0];

impl Trial {
    /// Where [`Trial::what`] and [`Trial::dice`] are in the data.
    pub const WHAT: u64 = offset_of!(Trial, what) as u64;
    /// See above.
    pub const DICE: u64 = offset_of!(Trial, dice) as u64;
    /// Where recorded calls are in the data.
    pub const CALLS: u64 = size_of::<Trial>() as u64;
    /// How many are recorded at most.
    pub const MOST_CALLS: u64 = 4096;
    /// How long its data are.
    pub const LEN: u64 = Trial::CALLS + Trial::MOST_CALLS * size_of::<Ring>() as u64;

    /// It as it is in memory.
    ///
    /// # Panics
    /// Never: words are taken from what has as many.
    pub fn of_bytes(bytes: &[u8; size_of::<Trial>()]) -> Trial {
        let word = |n: usize| u64::from_le_bytes(bytes[8 * n..8 * n + 8].try_into().expect("8 bytes"));
        Trial {
            what: word(0),
            dice: word(1),
            n_recorded: word(2),
            old: [word(3), word(4)],
            new: [word(5), word(6)],
            unused: word(7),
        }
    }
}

impl Ring {
    /// It as it is in memory.
    ///
    /// # Panics
    /// Never: as above.
    pub fn of_bytes(bytes: &[u8; size_of::<Ring>()]) -> Ring {
        let word = |n: usize| u64::from_le_bytes(bytes[8 * n..8 * n + 8].try_into().expect("8 bytes"));
        Ring {
            state: word(0),
            general: std::array::from_fn(|n| word(1 + n)),
            vector: std::array::from_fn(|n| word(8 + n)),
        }
    }
}

/// An odd number for the dice: a linear congruence of 64 bits, whose top bit is looked at.
///
/// Source: Knuth, The Art of Computer Programming, vol. 2, 3.3.4, table 1, line 26.
const FACTOR: i64 = 6_364_136_223_846_793_005;

fn data(field: usize) -> To {
    To::Data(field as u64)
}

/// Such code. It leaves all registers as its function takes them, but r11 and flags.
///
/// # Errors
/// If it cannot be written: never.
pub fn trial() -> Result<StandIn, NoValue> {
    let mut a = Assembler::new(&[ORIGINAL, REPLACEMENT]);
    let (pass, timed, record) = (a.label(), a.label(), a.label());
    a.put_to(Instruction::with2(Code::Mov_r32_rm32, R11D, nowhere())?, data(offset_of!(Trial, what)))?;
    a.with_number(Code::Cmp_rm32_imm8, R11D, 1)?;
    a.jump(Code::Ja_rel32_64, timed)?;
    a.jump(Code::Je_rel32_64, record)?;
    a.here(pass);
    a.put_to(Instruction::with1(Code::Jmp_rm64, nowhere())?, To::Slot(0))?;
    a.here(record);
    write_record(&mut a, pass)?;
    a.here(timed);
    time(&mut a)?;
    let mut made = a.finish()?;
    made.data_len = Trial::LEN;
    Ok(made)
}

/// Records a call, and goes to `pass`.
fn write_record(a: &mut Assembler, pass: super::Label) -> super::Written {
    // A register that the function may be given something in.
    a.store(at(RSP, -8), R10)?;
    a.put(Instruction::with2(Code::Mov_r32_imm32, R11D, 1)?)?;
    let counter = data(offset_of!(Trial, n_recorded));
    let mut add = Instruction::with2(Code::Xadd_rm64_r64, nowhere(), R11)?;
    add.set_has_lock_prefix(true);
    a.put_to(add, counter)?;
    let most = i32::try_from(Trial::MOST_CALLS).unwrap_or(i32::MAX);
    a.with_number(Code::Cmp_rm64_imm32, R11, most)?;
    a.jump(Code::Jae_rel32_64, pass)?;
    a.put(Instruction::with2(Code::Shl_rm64_imm8, R11, size_of::<Ring>().trailing_zeros())?)?;
    a.put_to(Instruction::with2(Code::Lea_r64_m, R10, nowhere())?, To::Data(Trial::CALLS))?;
    a.put(Instruction::with2(Code::Add_r64_rm64, R11, R10)?)?;
    for (n, reg) in (0..).zip(GENERAL) {
        a.store(at(R11, field(offset_of!(Ring, general)) + 8 * n), RAX + reg)?;
    }
    for n in 0..8u8 {
        let place = at(R11, field(offset_of!(Ring, vector)) + 8 * i32::from(n));
        a.put(Instruction::with2(Code::Movq_xmmm64_xmm, place, Register::XMM0 + u32::from(n))?)?;
    }
    a.put(Instruction::with1(Code::Stmxcsr_m32, at(R11, field(offset_of!(Ring, state)) + 4))?)?;
    a.put(Instruction::with2(Code::Mov_rm32_imm32, at(R11, field(offset_of!(Ring, state))), 1)?)?;
    a.load(R10, at(RSP, -8))?;
    a.jump(Code::Jmp_rel32_64, pass)
}

fn field(offset: usize) -> i32 {
    i32::try_from(offset).unwrap_or(i32::MAX)
}

/// Calls one or the other, and sums up how long it took.
fn time(a: &mut Assembler) -> super::Written {
    const FRAME: i32 = 56;
    let (sum, rax, rdx, start, r10) = (8, 16, 24, 32, 40);
    a.lower(FRAME)?;
    a.store(at(RSP, rax), RAX)?;
    a.store(at(RSP, rdx), RDX)?;
    a.store(at(RSP, r10), R10)?;
    let (is_new, chosen) = (a.label(), a.label());
    let choose_by_dice = a.label();
    a.with_number(Code::Cmp_rm32_imm8, R11D, field(usize::try_from(TRIAL.old).unwrap_or(0)))?;
    a.jump(Code::Jb_rel32_64, choose_by_dice)?;
    a.jump(Code::Ja_rel32_64, is_new)?;
    let is_old = a.label();
    a.here(is_old);
    a.put_to(Instruction::with2(Code::Lea_r64_m, RAX, nowhere())?, data(offset_of!(Trial, old)))?;
    a.put_to(Instruction::with2(Code::Mov_r64_rm64, R11, nowhere())?, To::Slot(0))?;
    a.jump(Code::Jmp_rel32_64, chosen)?;
    a.here(choose_by_dice);
    // Threads that throw at once may throw the same: no harm.
    a.put_to(Instruction::with2(Code::Mov_r64_rm64, R11, nowhere())?, data(offset_of!(Trial, dice)))?;
    a.put(Instruction::with2(Code::Mov_r64_imm64, RAX, FACTOR)?)?;
    a.put(Instruction::with2(Code::Imul_r64_rm64, R11, RAX)?)?;
    a.with_number(Code::Add_rm64_imm8, R11, 1)?;
    a.put_to(Instruction::with2(Code::Mov_rm64_r64, nowhere(), R11)?, data(offset_of!(Trial, dice)))?;
    a.put(Instruction::with2(Code::Test_rm64_r64, R11, R11)?)?;
    a.jump(Code::Jns_rel32_64, is_old)?;
    a.here(is_new);
    a.put_to(Instruction::with2(Code::Lea_r64_m, RAX, nowhere())?, data(offset_of!(Trial, new)))?;
    a.put_to(Instruction::with2(Code::Mov_r64_rm64, R11, nowhere())?, To::Slot(1))?;
    a.here(chosen);
    a.store(at(RSP, sum), RAX)?;
    read_ticks(a)?;
    a.store(at(RSP, start), RAX)?;
    a.load(RAX, at(RSP, rax))?;
    a.load(RDX, at(RSP, rdx))?;
    a.load(R10, at(RSP, r10))?;
    a.put(Instruction::with1(Code::Call_rm64, R11)?)?;
    a.store(at(RSP, rax), RAX)?;
    a.store(at(RSP, rdx), RDX)?;
    read_ticks(a)?;
    a.put(Instruction::with2(Code::Sub_r64_rm64, RAX, at(RSP, start))?)?;
    a.load(R11, at(RSP, sum))?;
    for (n, code, with) in [(0, Code::Add_rm64_r64, Some(RAX)), (8, Code::Inc_rm64, None)] {
        let place: MemoryOperand = at(R11, n);
        let mut add = match with {
            Some(reg) => Instruction::with2(code, place, reg)?,
            None => Instruction::with1(code, place)?,
        };
        add.set_has_lock_prefix(true);
        a.put(add)?;
    }
    a.load(RAX, at(RSP, rax))?;
    a.load(RDX, at(RSP, rdx))?;
    a.lower(-FRAME)?;
    a.put(Instruction::with(Code::Retnq))
}

/// rax is the time stamp counter; rdx is changed.
fn read_ticks(a: &mut Assembler) -> super::Written {
    a.put(Instruction::with(Code::Rdtsc))?;
    a.put(Instruction::with2(Code::Shl_rm64_imm8, RDX, 32)?)?;
    a.put(Instruction::with2(Code::Or_r64_rm64, RAX, RDX)?)
}

/// The words that a recorded call has passed, as its function takes them.
impl Ring {
    /// General registers as it had them, by number, as far as they were recorded; zeros else.
    pub fn general_by_number(&self) -> [u64; 16] {
        let mut all = [0; 16];
        for (number, value) in GENERAL.iter().zip(self.general) {
            all[*number as usize] = value;
        }
        all
    }

    /// What was in `word`, above it zeros; nothing, if it was not recorded.
    pub fn word(&self, word: super::Word) -> Option<u64> {
        let value = match word.is_vector {
            true => *self.vector.get(usize::from(word.number))?,
            false => {
                let n = GENERAL.iter().position(|reg| *reg == u32::from(word.number))?;
                *self.general.get(n)?
            }
        };
        Some(if word.len <= 4 { value & 0xffff_ffff } else { value })
    }
}
