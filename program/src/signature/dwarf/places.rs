//! Where debug information says that a parameter is when its function is entered.
//!
//! Source: DWARF 5, 2.6 (location descriptions), 2.5.1.7 (`DW_OP_entry_value`).

use super::units::{Die, Units};
use crate::arch::abi::arguments::{Piece, Place, is_of_arguments, of_dwarf};
use crate::image::dwarf::Reader;
use gimli::{AttributeValue, Operation};
use std::ops::Range;

/// The pieces of the parameter at `die`, `size` bytes long, of the function that is entered at `entry`; none,
/// if it is not said where all of it is. `function` is where the function is described.
pub fn at_entry(units: &Units, die: Die, size: u64, function: Die, entry: u64) -> Option<Vec<Piece>> {
    let (_, said) = locations(units, die)?.into_iter().find(|(code, _)| code.contains(&entry))?;
    let pieces = pieces(units, &said, size, function)?;
    let all_there = pieces.iter().map(|piece| piece.len).sum::<u64>() == size;
    (all_there && pieces.iter().all(|piece| is_of_arguments(piece.place))).then_some(pieces)
}

/// Whether the location is said for all of the function, in its frame: then it is not where the argument is
/// at entry, but where unoptimised code puts it.
pub fn is_in_frame(units: &Units, die: Die) -> bool {
    let said = locations(units, die).unwrap_or_default();
    let [(code, said)] = &said[..] else { return false };
    let is_frame = matches!(said[..], [Operation::FrameOffset { .. } | Operation::RegisterOffset { .. }, ..]);
    is_frame && *code == (0..u64::MAX)
}

/// Whether the parameter itself is somewhere, and not what a pointer leads to.
pub fn is_direct(units: &Units, die: Die) -> bool {
    let said = locations(units, die).unwrap_or_default();
    matches!(
        said.first().map(|(_, said)| &said[..]),
        Some(
            [Operation::Register { .. }, ..] | [Operation::FrameOffset { .. }] | [.., Operation::StackValue]
        )
    )
}

/// Whether the parameter is what a pointer leads to, which is all that was passed.
pub fn is_behind_pointer(units: &Units, die: Die) -> bool {
    let said = locations(units, die).unwrap_or_default();
    matches!(
        said.first().map(|(_, said)| &said[..]),
        Some(
            [Operation::FrameOffset { .. }, Operation::Deref { .. }]
                | [Operation::RegisterOffset { .. }, Operation::Deref { .. }]
                | [Operation::RegisterOffset { offset: 0, .. }]
        )
    )
}

/// In which code something is there, and where that is.
type Said = (Range<u64>, Vec<Operation<Reader>>);

/// Where it is, and in which code.
fn locations(units: &Units, die: Die) -> Option<Vec<Said>> {
    let value = units.entry(die)?.attr_value(gimli::DW_AT_location)?;
    let unit = units.unit(die)?;
    let operations = |expression: gimli::Expression<Reader>| {
        let mut read = expression.operations(unit.encoding());
        let mut all = Vec::new();
        while let Some(operation) = read.next().ok()? {
            all.push(operation);
        }
        Some(all)
    };
    if let AttributeValue::Exprloc(expression) = value {
        return Some(vec![(0..u64::MAX, operations(expression)?)]);
    }
    let mut list = units.dwarf().attr_locations(unit, value).ok()??;
    let mut all = Vec::new();
    while let Some(next) = list.next().ok()? {
        all.push((next.range.begin..next.range.end, operations(next.data).unwrap_or_default()));
    }
    Some(all)
}

fn pieces(units: &Units, all: &[Operation<Reader>], size: u64, function: Die) -> Option<Vec<Piece>> {
    let mut found = Vec::new();
    let (mut at, mut rest) = (0, all);
    while !rest.is_empty() {
        let (place, behind) = place(units, rest, function)?;
        let (len, behind) = match behind {
            [Operation::Piece { size_in_bits, bit_offset: None | Some(0) }, behind @ ..] => {
                (size_in_bits.is_multiple_of(8).then_some(size_in_bits / 8)?, behind)
            }
            [] if found.is_empty() => (size, behind),
            _ => return None,
        };
        let most = match place {
            Place::General(_) => 8,
            Place::Vector(_) => 64,
            _ => u64::MAX,
        };
        if len == 0 || len > most {
            return None;
        }
        found.push(Piece { place, at, len });
        at = u64::checked_add(at, len)?;
        rest = behind;
    }
    Some(found)
}

/// What the first operations say, and those behind them.
fn place<'o>(
    units: &Units,
    operations: &'o [Operation<Reader>],
    function: Die,
) -> Option<(Place, &'o [Operation<Reader>])> {
    match operations {
        [Operation::Register { register }, behind @ ..] => Some((of_dwarf(register.0)?, behind)),
        [Operation::RegisterOffset { register, offset: 0, .. }, Operation::StackValue, behind @ ..] => {
            Some((of_dwarf(register.0)?, behind))
        }
        [Operation::EntryValue { expression }, Operation::StackValue, behind @ ..] => {
            let encoding = units.unit(function)?.encoding();
            let mut inner = gimli::Expression(expression.clone()).operations(encoding);
            match (inner.next(), inner.next()) {
                (Ok(Some(Operation::Register { register })), Ok(None)) => {
                    Some((of_dwarf(register.0)?, behind))
                }
                _ => None,
            }
        }
        // Above the frame: what was there before it.
        [Operation::FrameOffset { offset }, behind @ ..] => {
            let base = units.attribute(function, gimli::DW_AT_frame_base)?.1.exprloc_value()?;
            let mut base = base.operations(units.unit(function)?.encoding());
            let is_caller_s = matches!(base.next(), Ok(Some(Operation::CallFrameCFA)));
            let above = u64::try_from(*offset).ok().filter(|_| is_caller_s)?;
            Some((Place::Stack(above.checked_add(8)?), behind))
        }
        _ => None,
    }
}
