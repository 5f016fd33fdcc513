//! Code that makes a call of a jump out of a function, so that code of ours can stand behind it: where the
//! result is, which the function's caller gets.
//!
//! ```text
//!    lea TEXT(%rip),%r; cmp %r,(%rsp); jb 1f          does its caller stand behind such a call already?
//!    lea TEXT_END(%rip),%r; cmp %r,(%rsp); jae 1f
//!    mov (%rsp),%r; cmpl $MARK,3(%r); je 2f           then it jumps, and its caller's result is its own
//! 1: lea -8(%rsp),%rsp; call TARGET
//!    nopl MARK(%rax)
//!    lea 8(%rsp),%rsp
//!    …                                                code of ours
//!    ret
//! 2:                                                  the jump
//! ```
//! If all registers may be read by who is called, one is kept on the stack while its caller is looked at.
//!
//! So a ring of functions that jump to each other for ever takes no more of the stack than without. Of rings
//! through several modules that holds in each: one frame more a module, and turn.
//!
//! Only for functions that have no arguments in memory: what they jump to finds none there either, and does
//! not see that its frame stands lower.
//!
//! Invariant: as of all snippets; where the stack is, is said everywhere, so that exceptions pass.

use super::{NoValue, RSP, SOMEWHERE, Snippet, SnippetTarget, Writer, operand, wide};
use crate::arch::emit::Stack;
use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};
use program::arch::{Insn, Reg, RegSet, abi};

/// What stands behind calls that were jumps: no other instruction has this distance.
pub const MARK: u32 = 0x5e1f_ca11;

/// `jb`, `jae` over 8 bits, `je` over 32, their offsets zero.
const JUMP_IF_BELOW: [u8; 2] = [0x72, 0];
const JUMP_UNLESS_BELOW: [u8; 2] = [0x73, 0];
const JUMP_IF_FAR: [u8; 6] = [0x0f, 0x84, 0, 0, 0, 0];
/// What control goes to.
#[derive(Clone, Copy, Debug)]
pub enum Leads<'a> {
    /// One place.
    Here,
    /// Where this jump through a register or memory leads.
    By(&'a Insn),
}

/// What stands around the code of ours, which is `len` bytes long and ends with `ret`, in front of that jump;
/// `live` is what who is called may read.
///
/// # Errors
/// If flags may be read, or the jump goes by the stack.
pub fn tail_call(leads: Leads<'_>, live: RegSet, len: usize) -> Result<[Snippet; 2], NoValue> {
    let mut w = Writer::new();
    let by = match leads {
        Leads::Here => None,
        Leads::By(insn) => Some(called(insn)?),
    };
    let reads = by.as_ref().map_or(RegSet::EMPTY, |by| by.reads);
    if !live.both(abi::FLAGS).is_empty() {
        return Err(NoValue::FlagsAreRead);
    }
    let all = || abi::CALLER_SAVED.iter().filter(|reg| reg.number() < 16 && !reads.contains(*reg));
    let dead = all().find(|reg| !live.contains(*reg));
    let r = dead.or_else(|| all().next()).ok_or(NoValue::TooMany)?;
    let is_kept = dead.is_none();
    if is_kept {
        w.lea(RSP, RSP, -128)?;
        w.at_depth(128);
        w.push(r)?;
    }
    let depth = w.depth;
    let returns_to = || MemoryOperand::with_base_displ(Register::RSP, i64::from(depth));
    let mut ways = Vec::new();
    for (text, jump) in [(SnippetTarget::Text, JUMP_IF_BELOW), (SnippetTarget::TextEnd, JUMP_UNLESS_BELOW)] {
        let here = MemoryOperand::with_base_displ(Register::RIP, SOMEWHERE.cast_signed());
        w.put(Instruction::with2(Code::Lea_r64_m, wide(r), here)?, Some(text))?;
        w.put(Instruction::with2(Code::Cmp_rm64_r64, returns_to(), wide(r))?, None)?;
        ways.push(w.jump(jump));
    }
    w.put(Instruction::with2(Code::Mov_r64_rm64, wide(r), returns_to())?, None)?;
    let mark = MemoryOperand::with_base_displ(wide(r), 3);
    w.put(Instruction::with2(Code::Cmp_rm32_imm32, mark, MARK)?, None)?;
    w.out.extend(JUMP_IF_FAR);
    let jumps = w.out.len();
    for way in ways {
        w.land(way)?;
    }
    if is_kept {
        w.pop(r)?;
        w.lea(RSP, RSP, 128)?;
        w.at_depth(0);
    }
    w.lea(RSP, RSP, -8)?;
    w.depth = 8;
    w.stack.push((w.out.len(), Stack::Call(8)));
    match by {
        None => {
            let call = Instruction::with_branch(Code::Call_rel32_64, SOMEWHERE)?;
            w.put(call, Some(SnippetTarget::Callee))?;
        }
        Some(by) => w.put(by.call, by.place)?,
    }
    w.out.extend([0x0f, 0x1f, 0x80]);
    w.out.extend(MARK.to_le_bytes());
    w.lea(RSP, RSP, 8)?;
    w.at_depth(0);
    let distance = w.out.len() - jumps + len;
    let distance = u32::try_from(distance).map_err(|_| NoValue::TooLong)?;
    w.out.get_mut(jumps - 4..jumps).ok_or(NoValue::Unwritable)?.copy_from_slice(&distance.to_le_bytes());
    let mut jumping = Writer::new();
    if is_kept {
        jumping.at_depth(depth);
        jumping.pop(r)?;
        jumping.lea(RSP, RSP, 128)?;
        jumping.at_depth(0);
    }
    Ok([w, jumping].map(|w| Snippet { bytes: w.out, places: w.places, stack: w.stack }))
}

/// A call to where a jump leads.
struct Called {
    call: Instruction,
    place: Option<SnippetTarget>,
    reads: RegSet,
}

fn called(jump: &Insn) -> Result<Called, NoValue> {
    let i = jump.iced();
    if i.code() != Code::Jmp_rm64 {
        return Err(NoValue::Unwritable);
    }
    if i.op0_kind() == OpKind::Register {
        let reg = (0..16).map(Reg::general).find(|reg| wide(*reg) == i.op0_register());
        let reg = reg.filter(|reg| *reg != RSP).ok_or(NoValue::NotGeneral)?;
        let mut reads = RegSet::EMPTY;
        reads.insert(reg);
        return Ok(Called { call: Instruction::with1(Code::Call_rm64, wide(reg))?, place: None, reads });
    }
    let operand = operand(Some(jump), true)?;
    if operand.regs.contains(RSP) {
        return Err(NoValue::NotGeneral);
    }
    let call = Instruction::with1(Code::Call_rm64, operand.memory)?;
    Ok(Called { call, place: operand.at.map(SnippetTarget::At), reads: operand.regs })
}
