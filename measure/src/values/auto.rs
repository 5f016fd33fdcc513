//! What is recorded of instructions because of what they are: what integers are divided by, where indirect
//! calls and jumps lead, how many elements string instructions take, and where in its line of the cache
//! memory is read or written.
//!
//! What is in memory is read where the instruction itself is about to read it. What counts from `rip` is at
//! one place, and `fs` and `gs` lead to memory of the thread, where a compiler has aligned it: neither is
//! recorded.

use super::asked::{Piece, Wanted};
use probe::Field;
use profile::values::Watched;
use program::arch::{ControlFlow, Insn, Operand, Reg};
use program::signature::Type;
use serde::{Deserialize, Serialize};

/// A line of the cache in bytes.
pub(super) const LINE: u64 = 64;

/// An instruction, and what is to be known of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Found {
    /// What.
    pub watched: Watched,
    /// The value.
    pub value: Wanted,
    /// If it is an address, of what it is made up.
    pub line: Option<InLine>,
}

/// Where in its line of the cache an address is: what the parts of a value, times these factors, and a
/// displacement add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InLine {
    /// By part.
    pub factors: [u8; 2],
    /// In bytes.
    pub disp: i64,
}

impl InLine {
    /// The distance from the start of the line.
    pub(super) fn of(self, parts: [u64; 2]) -> u64 {
        let sum =
            parts.into_iter().zip(self.factors).fold(self.disp.cast_unsigned(), |sum, (part, factor)| {
                sum.wrapping_add(part.wrapping_mul(u64::from(factor)))
            });
        sum % LINE
    }
}

/// All that is to be known of an instruction.
pub(super) fn of(insn: &Insn) -> Vec<Found> {
    [divisor(insn), target(insn), count(insn)].into_iter().flatten().chain(lines(insn)).collect()
}

fn divisor(insn: &Insn) -> Option<Found> {
    let divisor = insn.divisor()?;
    let (Operand::Reg(_, size) | Operand::Mem { size, .. }) = divisor else { return None };
    let kind = Type::Integer { bytes: size, is_signed: insn.divides_signed() };
    Some(Found {
        watched: Watched::Divisor,
        value: wanted("divisor", kind, field(divisor)?, size),
        line: None,
    })
}

fn target(insn: &Insn) -> Option<Found> {
    if !matches!(insn.flow(), ControlFlow::CallIndirect | ControlFlow::JumpIndirect) {
        return None;
    }
    let target = insn.operands().next()?;
    let kind = Type::Pointer(Box::new(Type::Void));
    Some(Found { watched: Watched::Target, value: wanted("target", kind, field(target)?, 8), line: None })
}

/// String instructions that take as many elements as a register says.
fn count(insn: &Insn) -> Option<Found> {
    let (reg, element) = insn.repeats()?;
    let kind = Type::Integer { bytes: 8, is_signed: false };
    let value = wanted("count", kind, Field::General { reg, len: 8 }, 8);
    Some(Found { watched: Watched::Size { element }, value, line: None })
}

fn lines(insn: &Insn) -> Vec<Found> {
    if insn.memory_uses().is_empty() {
        return Vec::new();
    }
    insn.operands().filter_map(line).collect()
}

fn line(operand: Operand) -> Option<Found> {
    let Operand::Mem { base, index, disp, size: width, segment: None } = operand else { return None };
    if !matches!(width, 2 | 4 | 8 | 16 | 32) {
        return None;
    }
    let index_factor = index.map_or(0, |(_, factor)| factor);
    let registers = [base, index.map(|(reg, _)| reg)];
    let mut pieces = Vec::new();
    let mut factors = [0; 2];
    for (reg, factor) in registers.into_iter().zip([1, index_factor]).filter_map(|(reg, f)| Some((reg?, f))) {
        // Others are vectors: an address for each element.
        let reg = (0..16).map(Reg::general).find(|general| *general == reg)?;
        *factors.get_mut(pieces.len())? = factor;
        let at = u16::try_from(8 * pieces.len()).unwrap_or(u16::MAX);
        pieces.push(Piece { field: Field::General { reg, len: 8 }, at, len: 8 });
    }
    let kind = Type::Integer { bytes: 1, is_signed: false };
    let value = Wanted { name: "in line".to_owned(), type_name: "u8".to_owned(), kind, pieces };
    let is_there = !value.pieces.is_empty();
    is_there.then_some(Found {
        watched: Watched::Access { width },
        value,
        line: Some(InLine { factors, disp }),
    })
}

/// A value of one piece.
fn wanted(name: &str, kind: Type, field: Field, len: u8) -> Wanted {
    let type_name = match &kind {
        Type::Integer { bytes, is_signed } => {
            format!("{}{}", if *is_signed { 'i' } else { 'u' }, 8 * u32::from(*bytes))
        }
        _ => "ptr".to_owned(),
    };
    Wanted { name: name.to_owned(), type_name, kind, pieces: vec![Piece { field, at: 0, len }] }
}

/// Where an operand is, if one look finds it.
fn field(operand: Operand) -> Option<Field> {
    match operand {
        Operand::Reg(reg, 2 | 4) => Some(Field::General { reg, len: 4 }),
        Operand::Reg(reg, 8) => Some(Field::General { reg, len: 8 }),
        Operand::Mem { base: Some(base), index: None, disp, size: len @ (4 | 8), segment: None } => {
            Some(Field::Memory { base, at: i32::try_from(disp).ok()?, len })
        }
        Operand::Mem { base, index: Some((index, factor)), disp, size: len @ (4 | 8), segment: None } => {
            Some(Field::Indexed { base, index, factor, at: i32::try_from(disp).ok()?, len })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::Va;
    use program::arch::decode;

    /// What is recorded of an instruction: what, the kind of its value, where its first piece is, its line.
    type Row = (Watched, Type, Option<Field>, Option<InLine>);

    fn rows(bytes: &[u8]) -> Vec<Row> {
        let all = of(&decode(bytes, Va(0x1000)).expect("it is an instruction"));
        let field = |found: &Found| found.value.pieces.first().map(|piece| piece.field);
        all.iter().map(|found| (found.watched, found.value.kind.clone(), field(found), found.line)).collect()
    }

    /// Without those of accesses.
    fn without_lines(bytes: &[u8]) -> Vec<Row> {
        rows(bytes).into_iter().filter(|row| row.3.is_none()).collect()
    }

    fn general(number: u8, len: u8) -> Option<Field> {
        Some(Field::General { reg: Reg::general(number), len })
    }

    fn integer(bytes: u8, is_signed: bool) -> Type {
        Type::Integer { bytes, is_signed }
    }

    #[test]
    fn divisors_are_in_registers_or_memory() {
        let one = |kind, field| vec![(Watched::Divisor, kind, field, None)];
        // idiv %ecx; div %rsi
        assert_eq!(rows(&[0xf7, 0xf9]), one(integer(4, true), general(1, 4)));
        assert_eq!(rows(&[0x48, 0xf7, 0xf6]), one(integer(8, false), general(6, 8)));
        // divl 8(%rsp,%rax,4); idivq 0x10(%rbp)
        let (base, index) = (Some(Reg::general(4)), Reg::general(0));
        let memory = Field::Indexed { base, index, factor: 4, at: 8, len: 4 };
        assert_eq!(without_lines(&[0xf7, 0x74, 0x84, 0x08]), one(integer(4, false), Some(memory)));
        let memory = Field::Memory { base: Reg::general(5), at: 0x10, len: 8 };
        assert_eq!(without_lines(&[0x48, 0xf7, 0x7d, 0x10]), one(integer(8, true), Some(memory)));
        // imul %ecx
        assert!(rows(&[0xf7, 0xe9]).is_empty());
    }

    #[test]
    fn targets_are_in_registers_or_memory() {
        let one = |field| vec![(Watched::Target, Type::Pointer(Box::new(Type::Void)), field, None)];
        // call *%rax; jmp *0x18(%rax); call *0x2000(%rip); ret
        assert_eq!(rows(&[0xff, 0xd0]), one(general(0, 8)));
        let memory = Field::Memory { base: Reg::general(0), at: 0x18, len: 8 };
        assert_eq!(without_lines(&[0xff, 0x60, 0x18]), one(Some(memory)));
        assert!(rows(&[0xff, 0x15, 0, 0x20, 0, 0]).is_empty() && rows(&[0xc3]).is_empty());
    }

    #[test]
    fn repeated_instructions_say_how_often() {
        let one = |element| vec![(Watched::Size { element }, integer(8, false), general(1, 8), None)];
        // rep stosq; rep movsb; movsb; repe cmpsb, which may stop early
        assert_eq!(rows(&[0xf3, 0x48, 0xab]), one(8));
        assert_eq!(rows(&[0xf3, 0xa4]), one(1));
        assert!(rows(&[0xa4]).is_empty() && rows(&[0xf3, 0xa6]).is_empty());
    }

    #[test]
    fn addresses_add_up() {
        let one = |width, field, factors, disp| {
            let line = Some(InLine { factors, disp });
            vec![(Watched::Access { width }, integer(1, false), field, line)]
        };
        // mov -4(%rdi,%rcx,8),%rax; mov 4(,%rcx,2),%eax
        assert_eq!(rows(&[0x48, 0x8b, 0x44, 0xcf, 0xfc]), one(8, general(7, 8), [1, 8], -4));
        assert_eq!(rows(&[0x8b, 0x04, 0x4d, 4, 0, 0, 0]), one(4, general(1, 8), [2, 0], 4));
        // mov %fs:8(%rax),%eax; lea 8(%rax),%rax; nopl (%rax); movb (%rax),%al
        for none in [&[0x64, 0x8b, 0x40, 8][..], &[0x48, 0x8d, 0x40, 8], &[0x0f, 0x1f, 0], &[0x8a, 0]] {
            assert!(rows(none).is_empty());
        }
        let line = InLine { factors: [1, 8], disp: -4 };
        assert_eq!((line.of([0x1000, 1]), line.of([2, 0])), (4, 62));
    }
}
