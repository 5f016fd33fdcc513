//! What an instruction does to registers and flags, exactly enough to call a register dead.
//!
//! Where the manuals leave open what happens, nothing is killed: a count of zero leaves the flags of a shift
//! alone, and so does a repeated string operation; `undefined` may mean `unchanged`, and on some processors
//! does (AMD APM vol. 3, IMUL, DIV, BSF). A legacy SSE instruction keeps the upper part of its register, one
//! with a VEX or EVEX prefix clears it: so that part is a register of its own here.
//!
//! Source: Intel SDM vol. 1, 3.4.1.1 (32-bit results clear the upper half), 14.1.3 (VEX); vol. 2 for the
//! instructions. iced-x86's tables say which operands an operation reads and writes; the most common
//! operations take a short way around them, which a test compares.

use super::{Insn, Reg, RegSet, abi};
use iced_x86::{
    Code, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register,
};

/// What an instruction does to registers and flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// Read, always or on a condition.
    pub reads: RegSet,
    /// Written, always or on a condition, whole or in part.
    pub writes: RegSet,
    /// Written whole, always, without being read: what was there before is dead.
    pub kills: RegSet,
}

/// Computes effects; keeps its scratch memory from one instruction to the next.
pub struct EffectsOf {
    factory: InstructionInfoFactory,
}

impl Default for EffectsOf {
    fn default() -> EffectsOf {
        EffectsOf::new()
    }
}

impl EffectsOf {
    /// With empty scratch memory.
    pub fn new() -> EffectsOf {
        EffectsOf { factory: InstructionInfoFactory::new() }
    }

    /// What `insn` does. Of a call or system call, only what the instruction itself does to registers: not
    /// what is called.
    pub fn effects(&mut self, insn: &Insn) -> Effects {
        short_way(&insn.0).unwrap_or_else(|| self.long_way(insn))
    }

    fn long_way(&mut self, insn: &Insn) -> Effects {
        let i = &insn.0;
        let mut out = Effects::default();
        if insn.is_nop() {
            return out;
        }
        match i.mnemonic() {
            // The kernel may look at any register (clone, sigreturn); it returns in rax and destroys rcx and
            // r11.
            Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int => {
                out.reads = RegSet(0xffff);
                if i.mnemonic() == Mnemonic::Syscall {
                    out.writes = RegSet(1 | 1 << 1 | 1 << 11);
                    out.kills = RegSet(1 << 1 | 1 << 11);
                }
                return out;
            }
            Mnemonic::Vzeroupper | Mnemonic::Vzeroall => {
                let low = if i.mnemonic() == Mnemonic::Vzeroall { 0xffff } else { 0 };
                out.writes = RegSet(low << Reg::VECTOR_BASE | 0xffff << Reg::UPPER_BASE);
                out.kills = out.writes;
                return out;
            }
            _ => {}
        }
        let info = self.factory.info_options(i, InstructionInfoOptions::NO_MEMORY_USAGE);
        for used in info.used_registers() {
            let register = used.register();
            let (regs, whole) = parts(register);
            match used.access() {
                OpAccess::Read | OpAccess::CondRead => out.reads.add(regs),
                OpAccess::Write => {
                    out.writes.add(regs);
                    if whole {
                        out.kills.add(regs);
                    }
                }
                OpAccess::CondWrite => out.writes.add(regs),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                    out.reads.add(regs);
                    out.writes.add(regs);
                }
                _ => {}
            }
        }
        if sets_all_ones(i) {
            let (regs, _) = parts(i.op0_register());
            out.reads = RegSet::EMPTY;
            out.kills.add(regs);
        }
        if saves_state(i.mnemonic()) {
            out.reads.add(abi::ALL.minus(abi::FLAGS).minus(RegSet(0xffff)));
        }
        if is_x87(i) || !out.reads.union(out.writes).both(RegSet(0xff << 56)).is_empty() {
            // One stack: numbers are relative to its top.
            out.reads.add(RegSet(0xff << 56));
            out.writes.add(RegSet(0xff << 56));
        }
        out.reads.add(RegSet::flags(i.rflags_read()));
        let modified = RegSet::flags(i.rflags_modified());
        out.writes.add(modified);
        out.kills = out.kills.union(modified.minus(maybe_kept(i))).minus(out.reads);
        out
    }
}

/// What one instruction does, where no [`EffectsOf`] is at hand.
pub(super) fn once(insn: &Insn) -> Effects {
    short_way(&insn.0).unwrap_or_else(|| EffectsOf::new().long_way(insn))
}

/// The arithmetic flags that `insn` reads and kills.
pub(super) fn flags(insn: &Insn) -> (u8, u8) {
    let i = &insn.0;
    let (read, modified) = (i.rflags_read(), i.rflags_modified());
    let is_system_call = || matches!(i.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int);
    if (read, modified) == (0, 0) || is_system_call() {
        return (0, 0);
    }
    let reads = RegSet::flags(read);
    let kills = RegSet::flags(modified).minus(maybe_kept(i)).minus(reads);
    (reads.flag_bits() & 0x3f, kills.flag_bits() & 0x3f)
}

/// The registers that `register` is, and whether writing it writes them whole.
fn parts(register: Register) -> (RegSet, bool) {
    let Some(reg) = Reg::of(register) else { return (RegSet::EMPTY, false) };
    let mut set = RegSet(1 << reg.0);
    if register.is_vector_register() && register.size() > 16 {
        set.0 |= 1 << (reg.0 - Reg::VECTOR_BASE + Reg::UPPER_BASE);
    }
    // iced names the 64-bit register where a 32-bit result clears the upper half.
    (set, !register.is_gpr() || register.size() >= 4)
}

/// Flags that an instruction is said to modify, but that may come out as they went in.
fn maybe_kept(i: &Instruction) -> RegSet {
    match i.mnemonic() {
        Mnemonic::Shl
        | Mnemonic::Sal
        | Mnemonic::Shr
        | Mnemonic::Sar
        | Mnemonic::Rol
        | Mnemonic::Ror
        | Mnemonic::Rcl
        | Mnemonic::Rcr
        | Mnemonic::Shld
        | Mnemonic::Shrd
            if (1..i.op_count())
                .any(|n| i.op_kind(n) == OpKind::Register && i.op_register(n) == Register::CL) =>
        {
            abi::ALL
        }
        _ if i.has_rep_prefix() || i.has_repne_prefix() => abi::ALL,
        // AF is undefined after these, and cleared by every processor we know of.
        Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test => RegSet::EMPTY,
        _ => RegSet::flags(i.rflags_undefined()),
    }
}

/// `pcmpeq x, x`: all ones, whatever was there.
fn sets_all_ones(i: &Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Pcmpeqb | Mnemonic::Pcmpeqw | Mnemonic::Pcmpeqd | Mnemonic::Pcmpeqq)
        && i.op1_kind() == OpKind::Register
        && i.op0_register() == i.op1_register()
        && i.op0_register().is_xmm()
}

/// Whether it writes the vector state to memory, or part of it back.
fn saves_state(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Fxsave
            | M::Fxsave64
            | M::Fxrstor
            | M::Fxrstor64
            | M::Xsave
            | M::Xsave64
            | M::Xsavec
            | M::Xsavec64
            | M::Xsaveopt
            | M::Xsaveopt64
            | M::Xsaves
            | M::Xsaves64
            | M::Xrstor
            | M::Xrstor64
            | M::Xrstors
            | M::Xrstors64
    )
}

/// Opcodes d8 to df: iced numbers codes in the order of opcodes, `loopne` (e0) comes next.
fn is_x87(i: &Instruction) -> bool {
    (Code::Fadd_m32fp as u16..Code::Loopne_rel8_16_CX as u16).contains(&(i.code() as u16))
}

/// How the most common operations use their operands, and which flags they write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Common {
    /// Operand 0 is written, 1 read.
    Move,
    /// Operand 0 is written whatever was in it, and all arithmetic flags.
    Zero,
    /// Operand 0 is read and written, 1 read; all arithmetic flags are written.
    Arithmetic,
    /// The same, but which flags the tables know.
    Shift,
    /// Operand 0 is perhaps written, 1 read; flags are read.
    Conditional,
    /// Both are read; all arithmetic flags are written.
    Compare,
    /// Operand 0 is read, if there is one, and the stack pointer moved.
    Stack,
    /// Operand 0 is written, and the stack pointer moved.
    Pop,
    /// Operand 0 is read.
    Jump,
}

/// Effects of the most common instructions, nine of ten, without tables of operands.
fn short_way(i: &Instruction) -> Option<Effects> {
    let common = match i.mnemonic() {
        Mnemonic::Mov if !special_move(i) => Common::Move,
        Mnemonic::Lea | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => Common::Move,
        Mnemonic::Movaps | Mnemonic::Movups | Mnemonic::Movdqa | Mnemonic::Movdqu => Common::Move,
        Mnemonic::Add => Common::Arithmetic,
        Mnemonic::Xor if same_registers(i) && i.op0_register().size() >= 4 => Common::Zero,
        Mnemonic::Sub | Mnemonic::And | Mnemonic::Or | Mnemonic::Xor if !same_registers(i) => {
            Common::Arithmetic
        }
        Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar | Mnemonic::Neg | Mnemonic::Inc | Mnemonic::Dec => {
            Common::Shift
        }
        Mnemonic::Cmp | Mnemonic::Test => Common::Compare,
        Mnemonic::Push if i.code() == Code::Push_r64 => Common::Stack,
        Mnemonic::Pop if i.code() == Code::Pop_r64 && i.op0_register() != Register::RSP => Common::Pop,
        Mnemonic::Ret if i.code() == Code::Retnq => Common::Stack,
        Mnemonic::Call if matches!(i.code(), Code::Call_rel32_64 | Code::Call_rm64) => Common::Stack,
        Mnemonic::Jmp if i.op0_kind() == OpKind::NearBranch64 || i.code() == Code::Jmp_rm64 => Common::Jump,
        Mnemonic::Nop | Mnemonic::Endbr64 => return Some(Effects::default()),
        _ if i.is_jcc_short_or_near() => {
            return Some(Effects { reads: RegSet::flags(i.rflags_read()), ..Effects::default() });
        }
        _ if is_setcc_or_cmov(i) => Common::Conditional,
        _ => return None,
    };
    if same_registers(i) && matches!(i.mnemonic(), Mnemonic::Mov) {
        return None; // perhaps a no-operation
    }
    let mut out = Effects::default();
    let n_operands = i.op_count();
    if n_operands > 0 {
        short_operand(i, i.op0_kind(), i.op0_register(), Some(common), &mut out)?;
    }
    if n_operands > 1 {
        let read = Some(common).filter(|c| *c == Common::Zero);
        short_operand(i, i.op1_kind(), i.op1_register(), read, &mut out)?;
    }
    if n_operands > 2 {
        return None;
    }
    match common {
        Common::Arithmetic | Common::Compare | Common::Zero => {
            out.writes.add(abi::FLAGS);
            out.kills.add(abi::FLAGS);
        }
        Common::Shift => {
            let modified = RegSet::flags(i.rflags_modified());
            out.writes.add(modified);
            out.kills.add(modified.minus(maybe_kept(i)));
        }
        Common::Conditional => out.reads.add(RegSet::flags(i.rflags_read())),
        Common::Stack | Common::Pop => {
            out.reads.add(abi::STACK_POINTER);
            out.writes.add(abi::STACK_POINTER);
        }
        Common::Move | Common::Jump => {}
    }
    out.kills = out.kills.minus(out.reads);
    Some(out)
}

/// Adds what an operand is used for: the first as `common` says, the second (`None`) is read.
fn short_operand(
    i: &Instruction,
    kind: OpKind,
    register: Register,
    common: Option<Common>,
    out: &mut Effects,
) -> Option<()> {
    match kind {
        OpKind::Register => {
            let reg = RegSet(1 << short_number(register)?);
            let (read, written, killed) = match common {
                Some(Common::Move | Common::Zero | Common::Pop) => (false, true, register.size() >= 4),
                Some(Common::Arithmetic | Common::Shift) => (true, true, false),
                // The upper half is cleared, whatever the condition.
                Some(Common::Conditional) => (register.size() == 4, true, false),
                Some(Common::Compare | Common::Stack | Common::Jump) | None => (true, false, false),
            };
            if read {
                out.reads.add(reg);
            }
            if written {
                out.writes.add(reg);
            }
            if killed {
                out.kills.add(reg);
            }
        }
        OpKind::Memory => {
            for register in [i.memory_base(), i.memory_index()] {
                if register != Register::None && !matches!(register, Register::RIP | Register::EIP) {
                    out.reads.add(RegSet(1 << short_number(register)?));
                }
            }
            if matches!(i.segment_prefix(), Register::FS | Register::GS) {
                out.reads.insert(Reg::of(i.segment_prefix())?);
            }
        }
        OpKind::Immediate8
        | OpKind::Immediate16
        | OpKind::Immediate32
        | OpKind::Immediate64
        | OpKind::Immediate8to16
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32to64
        | OpKind::NearBranch64 => {}
        _ => return None,
    }
    Some(())
}

/// The number of a general register, or of one of 128 bits; `None` for others.
fn short_number(register: Register) -> Option<u8> {
    // iced numbers the eight-bit ones with ah to bh between; above them, each width counts from 0 to 15.
    let number = register as u8;
    let from = |first: Register| number - first as u8;
    Some(match register {
        _ if register >= Register::RAX && register <= Register::R15 => from(Register::RAX),
        _ if register >= Register::EAX && register <= Register::R15D => from(Register::EAX),
        _ if register >= Register::AX && register <= Register::R15W => from(Register::AX),
        _ if register >= Register::AL && register <= Register::R15L => {
            u8::try_from(register.full_register().number()).ok()?
        }
        _ if register >= Register::XMM0 && register <= Register::XMM31 => {
            Reg::VECTOR_BASE + from(Register::XMM0)
        }
        _ => return None,
    })
}

/// `set` and `cmov` of any condition, but for the 16-bit moves.
fn is_setcc_or_cmov(i: &Instruction) -> bool {
    let code = i.code() as u16;
    (Code::Seto_rm8 as u16..=Code::Setg_rm8 as u16).contains(&code)
        || (Code::Cmovo_r16_rm16 as u16..=Code::Cmovg_r64_rm64 as u16).contains(&code)
            && i.op0_register().size() >= 4
}

/// A move from or to a segment, control or debug register.
fn special_move(i: &Instruction) -> bool {
    let special = |n| i.op_kind(n) == OpKind::Register && !i.op_register(n).is_gpr();
    special(0) || special(1)
}

fn same_registers(i: &Instruction) -> bool {
    i.op0_kind() == OpKind::Register
        && i.op1_kind() == OpKind::Register
        && i.op0_register() == i.op1_register()
}

#[cfg(test)]
mod tests;
