//! Code before an indirect call or jump: how often it leads where.
//!
//! ```text
//! lea OWNER(%rip),%r11; sub 8(%rdi),%r11     where it leads, by the distance from a word of ours: the same
//!                                            in every process
//! cmp %r11,%gs:SITE(%rip); jne 1f            is it where it led first?
//! incq %gs:SITE+8(%rip); jmp 2f
//! 1: push $SITE; call ROUTINE                which takes SITE off the stack
//! 2: call *8(%rdi)
//! ```
//! What a call leads to may expect nothing in r11, in the flags, or below the stack pointer: they are free.
//!
//! Invariant: as of all snippets; nothing is written below the stack pointer before a jump but beyond the red
//! zone.
//!
//! Source: System V ABI, AMD64 supplement, 3.2.1 (r11), 3.2.2 (the red zone); the cache beside the call is
//! that of L. P. Deutsch and A. Schiffman, "Efficient Implementation of the Smalltalk-80 System", POPL 1984.

use super::{
    JUMP, JUMP_IF_NOT, NoValue, Operand, RSP, SOMEWHERE, Snippet, SnippetTarget, Writer, operand, word,
};
use crate::arch::shared::{CallSite, word_at};
use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};
use program::arch::{Insn, Reg};
use std::mem::offset_of;

const R11: Reg = Reg::general(11);
/// The word of a call site that counts; the first says where it led.
const N: u32 = word_at(offset_of!(CallSite, n));

/// The code that counts where `insn` leads, which calls or jumps through a register or memory, in the words
/// of the thread's own memory from `site` on. `keeps_r11`: what it leads to may expect something there.
///
/// # Errors
/// If that cannot be seen before it.
pub fn indirect_call(insn: &Insn, keeps_r11: bool, site: u32) -> Result<Snippet, NoValue> {
    let i = insn.iced();
    let is_jump = i.code() == Code::Jmp_rm64;
    if !is_jump && i.code() != Code::Call_rm64 {
        return Err(NoValue::NoMemory);
    }
    let site = i32::try_from(site).map_err(|_| NoValue::Unwritable)?;
    let mut w = Writer::new();
    let (register, memory) = match i.op0_kind() {
        OpKind::Register if i.op0_register() == Register::RSP => return Err(NoValue::NotGeneral),
        OpKind::Register => (Some(i.op0_register()), None),
        _ => (None, Some(operand(Some(insn), true)?)),
    };
    let is_in_r11 = register == Some(Register::R11);
    let is_by_r11 = memory.as_ref().is_some_and(|m| m.regs.contains(R11));
    let saves = keeps_r11 || is_in_r11 || is_by_r11;
    // What is called, too, may be read from below the stack pointer.
    if saves {
        w.lea(RSP, RSP, -128)?;
        w.at_depth(128);
        w.push(R11)?;
    }
    distance(&mut w, register, memory)?;
    w.with_word(Code::Cmp_rm64_r64, R11)?;
    let other = w.jump(JUMP_IF_NOT);
    w.put(
        Instruction::with1(Code::Inc_rm64, word(Register::RIP, Register::None))?,
        Some(SnippetTarget::Word(N)),
    )?;
    let done = w.jump(JUMP);
    w.land(other)?;
    let depth = w.depth;
    if !saves {
        w.lea(RSP, RSP, -128)?;
        w.at_depth(depth + 128);
    }
    w.put(Instruction::with1(Code::Pushq_imm32, site)?, None)?;
    w.at_depth(w.depth + 8);
    w.put(Instruction::with_branch(Code::Call_rel32_64, SOMEWHERE)?, Some(SnippetTarget::Routine))?;
    w.at_depth(w.depth - 8);
    if !saves {
        w.lea(RSP, RSP, 128)?;
        w.at_depth(depth);
    }
    w.land(done)?;
    if saves {
        w.pop(R11)?;
        w.lea(RSP, RSP, 128)?;
        w.at_depth(0);
    }
    Ok(Snippet { bytes: w.out, places: w.places, stack: w.stack })
}

/// Computes into r11, which is on the stack if it is needed, how far from a word of ours it leads: to where
/// `register` or `memory` says.
fn distance(w: &mut Writer, register: Option<Register>, memory: Option<Operand>) -> Result<(), NoValue> {
    let base = MemoryOperand::with_base_displ(Register::RIP, SOMEWHERE.cast_signed());
    let base = Instruction::with2(Code::Lea_r64_m, Register::R11, base)?;
    let sub = |from: MemoryOperand| Instruction::with2(Code::Sub_r64_rm64, Register::R11, from);
    let top = MemoryOperand::with_base(Register::RSP);
    match (register, memory) {
        (Some(Register::R11), _) => {
            w.put(base, Some(SnippetTarget::Owner))?;
            w.put(sub(top)?, None)?;
        }
        (Some(register), _) => {
            w.put(base, Some(SnippetTarget::Owner))?;
            w.put(Instruction::with2(Code::Sub_r64_rm64, Register::R11, register)?, None)?;
        }
        (None, Some(mut m)) => {
            if m.memory.base == Register::RSP {
                m.memory.displacement += i64::from(w.depth);
            }
            let place = m.at.map(SnippetTarget::At);
            if m.regs.contains(R11) {
                w.put(Instruction::with2(Code::Mov_r64_rm64, Register::R11, m.memory)?, place)?;
                w.push(R11)?;
                w.put(base, Some(SnippetTarget::Owner))?;
                w.put(sub(top)?, None)?;
                w.lea(RSP, RSP, 8)?;
                w.at_depth(w.depth - 8);
            } else {
                w.put(base, Some(SnippetTarget::Owner))?;
                w.put(sub(m.memory)?, place)?;
            }
        }
        (None, None) => return Err(NoValue::NoMemory),
    }
    Ok(())
}

/// Whether `insn` may be the first of `lea x@tlsdesc(%rip),%rax; call *(%rax)`, by which a variable of a
/// thread is found: the call keeps all registers but rax.
///
/// Source: A. Oliva and G. Araujo, "Speeding Up Thread-Local Storage Access in Dynamic Libraries", 2006.
pub fn takes_descriptor(insn: &Insn) -> bool {
    let i = insn.iced();
    i.code() == Code::Lea_r64_m && i.op0_register() == Register::RAX && i.is_ip_rel_memory_operand()
}

/// Whether it may be the second.
pub fn calls_descriptor(insn: &Insn) -> bool {
    let i = insn.iced();
    i.op0_kind() == OpKind::Memory
        && i.memory_base() == Register::RAX
        && i.memory_index() == Register::None
        && i.memory_displacement64() == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::Va;
    use program::arch::{Decoder, decode};

    /// The instructions of the code before `bytes`, as the assembler writes them.
    fn check(bytes: &[u8], keeps_r11: bool, want: &[&str]) {
        let insn = decode(bytes, Va(0x1000)).expect("it decodes");
        let made = indirect_call(&insn, keeps_r11, 7).expect("it can be seen");
        let mut decoder = Decoder::new(&made.bytes, Va(0x1000));
        let got: Vec<String> = std::iter::from_fn(|| decoder.next()).map(|i| i.to_string()).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn the_cheapest_code_that_fits_is_written() {
        let owner = "lea 0x1007,%r11";
        let head = [owner, "sub %rax,%r11", "cmp %r11,%gs:0x1012", "jne 0x101e", "incq %gs:0x101c"];
        let tail = ["lea -0x80(%rsp),%rsp", "push $0x7", "call 0x102d", "lea 0x80(%rsp),%rsp"];
        check(&[0xff, 0xd0], false, &[&head[..], &["jmp 0x1035"], &tail].concat());
        check(&[0xff, 0xe0], false, &[&head[..], &["jmp 0x1035"], &tail].concat());
        let memory = [owner, "sub 0x8(%rdi),%r11", "cmp %r11,%gs:0x1016", "jne 0x1022", "incq %gs:0x1020"];
        let tail = ["jmp 0x1039", "lea -0x80(%rsp),%rsp", "push $0x7", "call 0x1031", "lea 0x80(%rsp),%rsp"];
        check(&[0xff, 0x57, 0x08], false, &[memory, tail].concat());
        // What the stack pointer is added to stands further off by what was pushed.
        let kept = [
            ["lea -0x80(%rsp),%rsp", "push %r11", "lea 0x100e,%r11", "sub 0x90(%rsp),%r11"],
            ["cmp %r11,%gs:0x101e", "jne 0x102a", "incq %gs:0x1028", "jmp 0x1034"],
            ["push $0x7", "call 0x1034", "pop %r11", "lea 0x80(%rsp),%rsp"],
        ];
        check(&[0xff, 0x54, 0x24, 0x08], true, &kept.concat());
        let in_r11 = [
            ["lea -0x80(%rsp),%rsp", "push %r11", "lea 0x100e,%r11", "sub (%rsp),%r11"],
            ["cmp %r11,%gs:0x101a", "jne 0x1026", "incq %gs:0x1024", "jmp 0x1030"],
            ["push $0x7", "call 0x1030", "pop %r11", "lea 0x80(%rsp),%rsp"],
        ];
        check(&[0x41, 0xff, 0xe3], false, &in_r11.concat());
        let by_r11 = [
            ["lea -0x80(%rsp),%rsp", "push %r11", "mov (%r11,%rbx),%r11", "push %r11", "lea 0x1018,%r11"],
            ["sub (%rsp),%r11", "lea 0x8(%rsp),%rsp", "cmp %r11,%gs:0x1029", "jne 0x1035", "incq %gs:0x1033"],
            ["jmp 0x103f", "push $0x7", "call 0x103f", "pop %r11", "lea 0x80(%rsp),%rsp"],
        ];
        check(&[0x41, 0xff, 0x14, 0x1b], false, &by_r11.concat());
    }

    #[test]
    fn what_cannot_be_seen_is_refused() {
        for bytes in [&[0xff, 0xd4][..], &[0xff, 0x18], &[0xe8, 0, 0, 0, 0]] {
            let insn = decode(bytes, Va(0x1000)).expect("it decodes");
            let made = indirect_call(&insn, false, 7);
            assert!(made.is_err(), "{insn}: {made:?}");
        }
    }
}
