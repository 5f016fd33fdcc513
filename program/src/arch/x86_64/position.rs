//! What of an instruction depends on where it stands, so that it can be moved.
//!
//! Not here: how branches are written again (crate `probe`).
//!
//! Source: Intel SDM vol. 2A, 2.2.1.6 (`rip`-relative addressing).

use super::{ControlFlow, Decoder, Insn, Quick};
use crate::addr::Va;
use iced_x86::{Code, Register};

/// How a direct branch is written again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Branch {
    /// `jmp`: 2 bytes (±127) or 5.
    Jump,
    /// `jcc` with this condition code, 0 to 15: 2 bytes or 6.
    Conditional(u8),
    /// `call`: 5 bytes.
    Call,
    /// `loop`, `loopne`, `loope`, `jrcxz`, which have no long form: the bytes before their offset, and how
    /// many.
    ShortOnly([u8; 2], u8),
}

/// What of an instruction depends on where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PositionDependence {
    /// Nothing: its bytes mean the same anywhere.
    Independent,
    /// A direct branch to this address.
    Branch(Branch, Va),
    /// Four bytes at this offset of the instruction hold the distance from its end to this address.
    Displacement(u8, Va),
    /// It cannot be moved: `xbegin`, 16-bit branches, 32-bit `rip`-relative addresses.
    Fixed,
}

impl Decoder<'_> {
    /// What of `insn`, the last that was decoded, depends on its place; `bytes` are its own.
    pub fn position_of(&self, insn: &Insn, bytes: &[u8]) -> PositionDependence {
        let i = &insn.0;
        let branch_to = |target: Va| match (i.code(), bytes) {
            (Code::Jmp_rel8_64 | Code::Jmp_rel32_64, _) => PositionDependence::Branch(Branch::Jump, target),
            (Code::Call_rel32_64, _) => PositionDependence::Branch(Branch::Call, target),
            (code, [.., op, _]) if code.is_jcc_short() => {
                PositionDependence::Branch(Branch::Conditional(op & 15), target)
            }
            (code, [.., op, _, _, _, _]) if code.is_jcc_near() && i.len() >= 6 => {
                PositionDependence::Branch(Branch::Conditional(op & 15), target)
            }
            (code, [op, _]) if code.is_loop() || code.is_loopcc() || code.is_jcx_short() => {
                PositionDependence::Branch(Branch::ShortOnly([*op, 0], 1), target)
            }
            (code, [prefix, op, _]) if code.is_loop() || code.is_loopcc() || code.is_jcx_short() => {
                PositionDependence::Branch(Branch::ShortOnly([*prefix, *op], 2), target)
            }
            _ => PositionDependence::Fixed,
        };
        if let Some(target) = insn.flow().target() {
            return branch_to(target);
        }
        if !i.is_ip_rel_memory_operand() {
            return PositionDependence::Independent;
        }
        if i.memory_base() != Register::RIP {
            return PositionDependence::Fixed;
        }
        let Some(inner) = &self.inner else { return PositionDependence::Fixed };
        let offsets = inner.get_constant_offsets(i);
        match u8::try_from(offsets.displacement_offset()) {
            Ok(at) if offsets.displacement_size() == 4 => {
                PositionDependence::Displacement(at, Va(i.ip_rel_memory_address()))
            }
            _ => PositionDependence::Fixed,
        }
    }
}

impl Quick {
    /// What of it depends on its place; it lies at `at`, and `bytes` are its own.
    #[inline]
    pub fn position(&self, at: Va, bytes: &[u8]) -> PositionDependence {
        match (self.flow, bytes) {
            (ControlFlow::Next | ControlFlow::Return, _) => match self.written_place(at) {
                Some((offset, to)) => PositionDependence::Displacement(offset, to),
                None => PositionDependence::Independent,
            },
            (ControlFlow::Jump(to), _) => PositionDependence::Branch(Branch::Jump, to),
            (ControlFlow::Call(to), _) => PositionDependence::Branch(Branch::Call, to),
            (ControlFlow::Branch(to), [.., op, _, _, _, _]) if bytes.len() >= 6 => {
                PositionDependence::Branch(Branch::Conditional(op & 15), to)
            }
            (ControlFlow::Branch(to), [.., op, _]) => {
                PositionDependence::Branch(Branch::Conditional(op & 15), to)
            }
            _ => PositionDependence::Fixed,
        }
    }
}

impl Insn {
    /// The slot that it calls through, if it names that by its distance: `call *SLOT(%rip)`.
    pub fn called_slot(&self) -> Option<Va> {
        let insn = self.iced();
        let is_one = insn.code() == Code::Call_rm64 && insn.is_ip_rel_memory_operand();
        is_one.then(|| Va(insn.ip_rel_memory_address()))
    }
}
