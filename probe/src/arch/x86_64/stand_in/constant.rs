//! A known result: who calls with these words gets it, everybody else is led to what was called.
//!
//! Source: VPROF, section 2.1 (specialisation).

use super::{
    Assembler, CONTROL, DEFAULT, FLAGS, Label, ORIGINAL, StandIn, To, Words, Written, at, errno_at, mxcsr,
    nowhere,
};
use crate::arch::x86_64::snippet::NoValue;
use iced_x86::{Code, Instruction, Register};

use Register::{R10, R10D, R11, RSP};

/// What a call with known arguments came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// The arguments, a word each; of four bytes, the lower half.
    pub arguments: Vec<u64>,
    /// The results.
    pub results: Vec<u64>,
    /// Flags of MXCSR that it has raised, in the mode of calculation in which programs start.
    pub raised: u32,
    /// What it has set errno to, if it did: how far from where the thread pointer leads that is, and what.
    pub errno: Option<(i32, u32)>,
    /// In which other modes it comes to the same.
    pub counts: Counts,
}

/// In which modes of calculation a call comes to the same: results, flags and errno.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counts {
    /// In all.
    Always,
    /// Wherever numbers are rounded to the nearest.
    Nearest,
    /// It is known of the one alone in which programs start.
    Default,
}

/// What stands in for a call of a function of these `words` whose result is `known` for some arguments.
///
/// # Errors
/// If the code cannot be written.
pub fn constant(words: &Words, known: &Known) -> Result<StandIn, NoValue> {
    let mut a = Assembler::new(&[ORIGINAL]);
    let (otherwise, slow, hit) = (a.label(), a.label(), a.label());
    for (word, value) in words.arguments.iter().zip(&known.arguments) {
        a.read(R11, *word)?;
        a.put(Instruction::with2(Code::Mov_r64_imm64, R10, value.cast_signed())?)?;
        a.put(Instruction::with2(Code::Cmp_r64_rm64, R10, R11)?)?;
        a.jump(Code::Jne_rel32_64, otherwise)?;
    }
    let mut has_slow = false;
    match (known.counts, known.raised & mxcsr::FLAGS) {
        (Counts::Always, 0) => {}
        (Counts::Always, mxcsr::INEXACT) => a.round(None)?,
        (Counts::Nearest, mxcsr::INEXACT) => a.round(Some(otherwise))?,
        (_, raised) => {
            has_slow = true;
            a.has_raised(raised.cast_signed(), slow)?;
        }
    }
    a.here(hit);
    if let Some((distance, value)) = known.errno {
        a.put(Instruction::with2(Code::Mov_rm32_imm32, errno_at(distance), value.cast_signed())?)?;
    }
    for (word, value) in words.results.iter().zip(&known.results) {
        a.put(Instruction::with2(Code::Mov_r64_imm64, R10, value.cast_signed())?)?;
        a.give(*word, R10)?;
    }
    a.put(Instruction::with(Code::Retnq))?;
    a.here(slow);
    if has_slow {
        a.raise((known.raised & mxcsr::FLAGS).cast_signed(), otherwise)?;
        a.jump(Code::Jmp_rel32_64, hit)?;
    }
    a.here(otherwise);
    a.put_to(Instruction::with1(Code::Jmp_rm64, nowhere())?, To::Slot(0))?;
    let mut made = a.finish()?;
    made.changes.add(words.of_results());
    Ok(made)
}

impl Assembler {
    /// Goes to `slow` unless all that is to be `raised` is, in the mode in which programs start.
    fn has_raised(&mut self, raised: i32, slow: Label) -> Written {
        // The red zone is nobody's here.
        self.put(Instruction::with1(Code::Stmxcsr_m32, at(RSP, -8))?)?;
        self.load(R10D, at(RSP, -8))?;
        self.with_number(Code::And_rm32_imm32, R10D, CONTROL | raised)?;
        self.with_number(Code::Cmp_rm32_imm32, R10D, DEFAULT | raised)?;
        self.jump(Code::Jne_rel32_64, slow)
    }

    /// Raises what is to be `raised`; goes to `otherwise` in every other mode.
    fn raise(&mut self, raised: i32, otherwise: Label) -> Written {
        const { assert!(FLAGS & CONTROL == 0) };
        self.load(R10D, at(RSP, -8))?;
        self.with_number(Code::And_rm32_imm32, R10D, CONTROL)?;
        self.with_number(Code::Cmp_rm32_imm32, R10D, DEFAULT)?;
        self.jump(Code::Jne_rel32_64, otherwise)?;
        self.put(Instruction::with2(Code::Or_rm32_imm32, at(RSP, -8), raised)?)?;
        self.put(Instruction::with1(Code::Ldmxcsr_m32, at(RSP, -8))?)
    }
}
