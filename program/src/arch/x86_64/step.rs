//! What single instructions do to values, as far as slicing for jump tables and looks at prologues need it.
//!
//! Source: Intel SDM vol. 2 for the instructions; System V ABI, AMD64 supplement, 3.2.1 and 3.2.3 for who may
//! read what at an entry.

use super::{Insn, Operand, Reg, RegSet};
use iced_x86::{Mnemonic, OpKind, Register};

/// What an instruction does to one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// to = from, extended to the register's width: `mov`, `movzx`, `movsx`.
    Copy {
        /// Register written.
        to: Reg,
        /// Register, number, or memory read.
        from: Operand,
        /// Whether it is sign-extended.
        signed: bool,
    },
    /// to = address of `from`.
    Address {
        /// Register written.
        to: Reg,
        /// Memory operand whose address is computed.
        from: Operand,
    },
    /// to += from.
    Add {
        /// Register written.
        to: Reg,
        /// What is added.
        from: Operand,
    },
    /// to &= mask.
    And {
        /// Register written.
        to: Reg,
        /// The mask.
        mask: u64,
    },
    /// to >>= by, zeros shifted in; `bits` is the width.
    ShiftRight {
        /// Register written.
        to: Reg,
        /// Bits shifted.
        by: u32,
        /// Width of the register part that is shifted.
        bits: u32,
    },
    /// Memory = register.
    Store {
        /// The place.
        to: Operand,
        /// The register stored.
        from: Reg,
    },
    /// Flags of left − right. `sub` gives this and [`Step::Add`]; only `cmp` is told here.
    Compare {
        /// Left operand.
        left: Operand,
        /// Right operand.
        right: Operand,
    },
    /// Anything else: see [`Insn::effects`].
    Other,
}

/// How a conditional branch reads the flags of an unsigned comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// Taken if left > right.
    Above,
    /// Taken if left ≥ right.
    AboveOrEqual,
    /// Taken if left < right.
    Below,
    /// Taken if left ≤ right.
    BelowOrEqual,
    /// Anything else.
    Other,
}

/// What an instruction does to the stack pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackMove {
    /// Adds this many bytes.
    By(i64),
    /// Sets it to the frame pointer plus this (`leave`, `mov %rbp,%rsp`, `lea -40(%rbp),%rsp`).
    FromFrame(i64),
    /// Makes the frame pointer equal to it (`mov %rsp,%rbp`).
    ToFrame,
    /// Sets it to something that is not followed.
    Unknown,
}

impl Insn {
    /// What it does, if it is one of the simple forms of [`Step`].
    pub fn step(&self) -> Step {
        let i = &self.0;
        if i.mnemonic() == Mnemonic::Cdqe {
            return Step::Copy { to: Reg(0), from: Operand::Reg(Reg(0), 4), signed: true };
        }
        let mut operands = self.operands();
        let (Some(first), second) = (operands.next(), operands.next()) else { return Step::Other };
        match (i.mnemonic(), first, second) {
            (Mnemonic::Mov | Mnemonic::Movzx, Operand::Reg(to, width), Some(from)) if width >= 4 => {
                Step::Copy { to, from, signed: false }
            }
            (Mnemonic::Movsx | Mnemonic::Movsxd, Operand::Reg(to, width), Some(from)) if width >= 4 => {
                Step::Copy { to, from, signed: true }
            }
            (
                Mnemonic::Mov,
                to @ (Operand::Mem { .. } | Operand::Place { .. }),
                Some(Operand::Reg(from, _)),
            ) => Step::Store { to, from },
            (Mnemonic::Lea, Operand::Reg(to, _), Some(from)) => Step::Address { to, from },
            (Mnemonic::Add, Operand::Reg(to, _), Some(from)) => Step::Add { to, from },
            (Mnemonic::Sub, Operand::Reg(to, _), Some(Operand::Imm(n))) => {
                Step::Add { to, from: Operand::Imm(n.wrapping_neg()) }
            }
            (Mnemonic::Inc, Operand::Reg(to, _), _) => Step::Add { to, from: Operand::Imm(1) },
            (Mnemonic::Dec, Operand::Reg(to, _), _) => Step::Add { to, from: Operand::Imm(-1) },
            (Mnemonic::And, Operand::Reg(to, width), Some(Operand::Imm(mask))) => {
                Step::And { to, mask: mask.cast_unsigned() & ones(u32::from(width) * 8) }
            }
            (Mnemonic::Shr, Operand::Reg(to, width), Some(Operand::Imm(by))) => {
                let bits = u32::from(width) * 8;
                Step::ShiftRight { to, by: u32::try_from(by & 63).unwrap_or(0), bits }
            }
            (Mnemonic::Shr, Operand::Reg(to, width), None) => {
                Step::ShiftRight { to, by: 1, bits: u32::from(width) * 8 }
            }
            (Mnemonic::Cmp, left, Some(right)) => Step::Compare { left, right },
            _ => Step::Other,
        }
    }

    /// How it reads the flags, if it is a conditional branch.
    pub fn test(&self) -> Test {
        match self.0.mnemonic() {
            Mnemonic::Ja => Test::Above,
            Mnemonic::Jae => Test::AboveOrEqual,
            Mnemonic::Jb => Test::Below,
            Mnemonic::Jbe => Test::BelowOrEqual,
            _ => Test::Other,
        }
    }

    /// Whether it sets flags that a branch may read.
    pub fn sets_flags(&self) -> bool {
        self.0.rflags_modified() != 0
    }

    /// What it does to the stack pointer; `None` if nothing. A call comes back with it unchanged.
    pub fn stack_move(&self) -> Option<StackMove> {
        let i = &self.0;
        if i.is_stack_instruction() {
            return match i.mnemonic() {
                Mnemonic::Call => None,
                Mnemonic::Leave => Some(StackMove::FromFrame(8)),
                _ => Some(StackMove::By(i64::from(i.stack_pointer_increment()))),
            };
        }
        if i.op_count() == 0 || i.op0_kind() != OpKind::Register || i.op0_register() != Register::RSP {
            let frame = i.mnemonic() == Mnemonic::Mov
                && i.op0_kind() == OpKind::Register
                && i.op0_register() == Register::RBP
                && i.op1_kind() == OpKind::Register
                && i.op1_register() == Register::RSP;
            return frame.then_some(StackMove::ToFrame);
        }
        match (i.mnemonic(), i.op1_kind()) {
            (Mnemonic::Cmp | Mnemonic::Test, _) => None,
            (Mnemonic::Add, OpKind::Immediate8to64 | OpKind::Immediate32to64) => {
                Some(StackMove::By(i.immediate(1).cast_signed()))
            }
            (Mnemonic::Sub, OpKind::Immediate8to64 | OpKind::Immediate32to64) => {
                Some(StackMove::By(i.immediate(1).cast_signed().wrapping_neg()))
            }
            (Mnemonic::Lea, _) if i.memory_base() == Register::RSP && i.memory_index() == Register::None => {
                Some(StackMove::By(i.memory_displacement64().cast_signed()))
            }
            (Mnemonic::Lea, _) if i.memory_base() == Register::RBP && i.memory_index() == Register::None => {
                Some(StackMove::FromFrame(i.memory_displacement64().cast_signed()))
            }
            (Mnemonic::Mov, OpKind::Register) if i.op1_register() == Register::RBP => {
                Some(StackMove::FromFrame(0))
            }
            _ => Some(StackMove::Unknown),
        }
    }

    /// The register a `push` saves.
    pub fn pushed(&self) -> Option<Reg> {
        let i = &self.0;
        (i.mnemonic() == Mnemonic::Push && i.op0_kind() == OpKind::Register)
            .then(|| Reg::of(i.op0_register()))
            .flatten()
    }

    /// Whether it zeroes a register by combining it with itself (`xor %eax,%eax`), which reads nothing.
    pub fn is_zeroing(&self) -> bool {
        let i = &self.0;
        matches!(
            i.mnemonic(),
            Mnemonic::Xor
                | Mnemonic::Sub
                | Mnemonic::Pxor
                | Mnemonic::Xorps
                | Mnemonic::Xorpd
                | Mnemonic::Vpxor
                | Mnemonic::Vxorps
                | Mnemonic::Sbb
        ) && i.op_count() >= 2
            && i.op0_kind() == OpKind::Register
            && i.op1_kind() == OpKind::Register
            && i.op_register(i.op_count() - 1) == i.op_register(i.op_count() - 2)
    }

    /// Whether it may write `reg`, at any width.
    pub fn writes(&self, reg: Reg) -> bool {
        let i = &self.0;
        let first =
            i.op_count() > 0 && i.op0_kind() == OpKind::Register && Reg::of(i.op0_register()) == Some(reg);
        match i.mnemonic() {
            Mnemonic::Cmp
            | Mnemonic::Test
            | Mnemonic::Nop
            | Mnemonic::Bt
            | Mnemonic::Jmp
            | Mnemonic::Call => false,
            Mnemonic::Push => reg.number() == 4,
            Mnemonic::Mov
            | Mnemonic::Lea
            | Mnemonic::Movzx
            | Mnemonic::Movsx
            | Mnemonic::Movsxd
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Inc
            | Mnemonic::Dec
            | Mnemonic::Neg
            | Mnemonic::Not => first,
            _ if i.op_count() == 0 && i.is_jcc_short_or_near() => false,
            _ => self.effects().writes.contains(reg),
        }
    }

    /// The address of data or code that it refers to relative to itself.
    pub fn relative_place(&self) -> Option<crate::addr::Va> {
        let i = &self.0;
        i.is_ip_rel_memory_operand().then(|| crate::addr::Va(i.ip_rel_memory_address()))
    }

    /// Whether it puts a constant address into a register: `lea`, or `mov` of a number.
    pub fn makes_address(&self) -> bool {
        let i = &self.0;
        match i.mnemonic() {
            Mnemonic::Lea => true,
            Mnemonic::Mov => i.op0_kind() == OpKind::Register && i.op1_kind() != OpKind::Memory,
            _ => false,
        }
    }

    /// The constant address it refers to: what `lea`, a load, or a store names. Not where a branch goes.
    pub fn place(&self) -> Option<crate::addr::Va> {
        let i = &self.0;
        if i.is_ip_rel_memory_operand() {
            return Some(crate::addr::Va(i.ip_rel_memory_address()));
        }
        match (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory).then(|| self.memory()) {
            Some(Operand::Place { at, .. }) => Some(at),
            _ => None,
        }
    }

    /// A number among its operands that is wide enough to be an address of non-PIE code.
    pub fn wide_immediate(&self) -> Option<crate::addr::Va> {
        let i = &self.0;
        let last = i.op_count().checked_sub(1)?;
        match i.op_kind(last) {
            OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64 => {
                Some(crate::addr::Va(i.immediate(last)))
            }
            _ => None,
        }
    }
}

/// The `n` lowest bits.
fn ones(n: u32) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// The stack pointer's number in DWARF. Source: System V ABI, AMD64 supplement, figure 3.36.
pub const DWARF_STACK_POINTER: u16 = 7;

/// The number that DWARF has for the frame pointer.
pub const DWARF_FRAME_POINTER: u16 = 6;

impl RegSet {
    /// Registers that hold something a callee may read at its entry: arguments, the count of vector
    /// arguments, the static chain, the stack and special registers.
    pub fn defined_at_entry() -> RegSet {
        let mut set = RegSet::EMPTY;
        // The x87 stack counts as read by all that touches it; vector arguments may be wide.
        let floating = (16..24).chain(56..64).chain(88..96);
        for n in (0..8).filter(|&n| n != 3 && n != 5).chain(8..=10).chain(floating).chain(80..=87) {
            set.insert(Reg(n));
        }
        // The direction flag is clear.
        set.insert(Reg(70));
        set
    }
    /// Registers that a call may change.
    pub fn lost_at_calls() -> RegSet {
        let mut set = RegSet::EMPTY;
        for n in [0, 1, 2].into_iter().chain(6..=11).chain(16..64) {
            set.insert(Reg(n));
        }
        set
    }
    /// Registers that a callee gives back as they were.
    pub fn kept_at_calls() -> RegSet {
        let mut set = RegSet::EMPTY;
        for n in [3, 5].into_iter().chain(12..=15) {
            set.insert(Reg(n));
        }
        set
    }
}

impl Reg {
    /// Whether it is the stack or frame pointer.
    pub fn is_frame(self) -> bool {
        matches!(self.0, 4 | 5)
    }
    /// Whether it is the stack pointer.
    pub fn is_stack_pointer(self) -> bool {
        self.0 == 4
    }
}
