//! A known result: who calls with these words gets it, everybody else is led to what was called.
//!
//! Source: VPROF, section 2.1 (specialisation).

use super::{Assembler, CONTROL, DEFAULT, FLAGS, ORIGINAL, StandIn, To, Words, at, nowhere};
use crate::arch::x86_64::snippet::NoValue;
use iced_x86::{Code, Instruction, Register};
use program::arch::RegSet;

use Register::{R10, R10D, R11, RSP};

/// What a call with known arguments came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// The arguments, a word each; of four bytes, the lower half.
    pub arguments: Vec<u64>,
    /// The results.
    pub results: Vec<u64>,
    /// Flags of MXCSR that it has raised, rounding to nearest.
    pub raised: u32,
    /// What it has set errno to, if it did: how far from where the thread pointer leads that is, and what.
    pub errno: Option<(i32, u32)>,
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
    let raised = known.raised.cast_signed() & FLAGS;
    a.put(Instruction::with1(Code::Stmxcsr_m32, at(RSP, -8))?)?;
    a.load(R10D, at(RSP, -8))?;
    a.with_number(Code::And_rm32_imm32, R10D, CONTROL | raised)?;
    a.with_number(Code::Cmp_rm32_imm32, R10D, DEFAULT | raised)?;
    a.jump(Code::Jne_rel32_64, slow)?;
    a.here(hit);
    if let Some((distance, value)) = known.errno {
        a.put(Instruction::with2(Code::Mov_rm32_imm32, a.errno(distance), value.cast_signed())?)?;
    }
    for (word, value) in words.results.iter().zip(&known.results) {
        a.put(Instruction::with2(Code::Mov_r64_imm64, R10, value.cast_signed())?)?;
        a.give(*word, R10)?;
    }
    a.put(Instruction::with(Code::Retnq))?;
    a.here(slow);
    a.load(R10D, at(RSP, -8))?;
    a.with_number(Code::And_rm32_imm32, R10D, CONTROL)?;
    a.with_number(Code::Cmp_rm32_imm32, R10D, DEFAULT)?;
    a.jump(Code::Jne_rel32_64, otherwise)?;
    a.put(Instruction::with2(Code::Or_rm32_imm32, at(RSP, -8), raised)?)?;
    a.put(Instruction::with1(Code::Ldmxcsr_m32, at(RSP, -8))?)?;
    a.jump(Code::Jmp_rel32_64, hit)?;
    a.here(otherwise);
    a.put_to(Instruction::with1(Code::Jmp_rm64, nowhere())?, To::Slot(0))?;
    let mut made = a.finish()?;
    let mut results = RegSet::EMPTY;
    words.results.iter().for_each(|word| results.insert(word.reg()));
    made.changes.add(results);
    Ok(made)
}
