//! What holds a value: a register, or a place in memory by the operand that names it.

use crate::arch::{Insn, Operand, Reg};

/// Something that holds a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Location {
    Reg(Reg),
    Mem(Operand),
}

/// The registers that the address of `memory` is made of.
pub(super) fn address_of(memory: &Operand) -> impl Iterator<Item = Reg> + use<> {
    let (base, index) = match *memory {
        Operand::Mem { base, index, .. } | Operand::Place { base, index, .. } => (base, index.map(|i| i.0)),
        _ => (None, None),
    };
    [base, index].into_iter().flatten()
}

/// Whether `insn` changes a register that the address of `memory` is made of.
pub(super) fn touches(insn: &Insn, memory: &Operand) -> bool {
    address_of(memory).any(|reg| insn.writes(reg))
}

/// The operand with its width left out: a byte of a place that was compared is loaded as a word.
pub(super) fn sizeless(operand: Operand) -> Operand {
    match operand {
        Operand::Mem { base, index, disp, segment, .. } => {
            Operand::Mem { base, index, disp, segment, size: 0 }
        }
        Operand::Place { at, index, base, .. } => Operand::Place { at, index, base, size: 0 },
        other => other,
    }
}
