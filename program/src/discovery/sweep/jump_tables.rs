//! Jump tables and tables of labels: from an indirect jump back to the table it reads.
//!
//! A jump is sliced backwards to the load of an entry, from there to the table's address (a constant put into
//! a register, perhaps in the prologue, perhaps spilled), and to the comparison, mask or width that bounds
//! the index. Where nothing bounds it (clang leaves the check out when the default cannot happen), the table
//! ends before the next address that anything refers to, and at the first entry that leads to no instruction
//! of this function.
//!
//! Invariant: every entry of an unbounded table leads to an instruction of its function; an indirect jump
//! that reads no table leaves the function (a tail call through a vtable or a slot).
//!
//! Source: C. Cifuentes, M. Van Emmerik, "Recovery of jump table case statements from binary code", 1999, for
//! the slice.

mod bound;
mod slice;

use crate::addr::Va;
use crate::arch::Reg;
use crate::discovery::sweep::jump_tables::slice::Slice;
use crate::discovery::sweep::listing::Listing;
use crate::discovery::sweep::raw::{Context, NOWHERE, RawTable, Rel, Swept};
use crate::image::RelocationTo;
use crate::model::Sure;
use std::ops::Range;

/// How an indirect jump was understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// It reads a table, now in the list.
    Table,
    /// It reads a table that was not understood.
    Unresolved,
    /// It leaves the function.
    Out,
}

/// Instructions looked at for one question.
const BUDGET: u32 = 3000;
/// More entries than any compiler writes.
const MAX_ENTRIES: u64 = 1 << 16;

/// A way of reading an entry.
#[derive(Clone, Debug)]
struct Shape {
    /// Where tables may start: several, where code for several switches shares the jump.
    bases: Vec<Va>,
    entry_len: u8,
    signed: bool,
    /// Whether entries count from the table's address, or are addresses.
    relative: bool,
    /// What holds the index, and the instruction that uses it; `None` if one entry is always read.
    index: Option<(Reg, u32)>,
    /// Bytes the index is multiplied by.
    factor: u8,
}

/// Finds the tables of the jump at index `jump`, and appends them to `out`; their targets become leaders.
///
/// `named` are the positions in `out.data_refs` of what this region refers to.
pub fn resolve(
    cx: &Context<'_>,
    listing: &mut Listing,
    range: &Range<Rel>,
    jump: u32,
    out: &mut Swept,
    named: Range<usize>,
    many: bool,
) -> Resolved {
    listing.make_sources();
    let at = listing.insns[jump as usize].at;
    let mut slice = Slice { cx, listing, range, budget: BUDGET, many, spilled: Vec::new() };
    let mut shapes = Vec::new();
    let suspicious = slice.shapes(jump, &mut shapes);
    let mut found = Vec::new();
    let mut bounds = Vec::new();
    for shape in &shapes {
        slice.budget = BUDGET;
        bounds.push(shape.index.map_or(Some(0), |(reg, at)| slice.bound(at, reg)));
    }
    for (shape, bound) in shapes.iter().zip(bounds) {
        for &base in &shape.bases {
            if let Some(mut table) =
                read(cx, listing, range, shape, base, bound, &out.data_refs[named.clone()])
            {
                table.jump = at;
                found.push(table);
            }
        }
    }
    found.sort_by_key(|t| t.at);
    found.dedup_by_key(|t| t.at);
    for table in &found {
        for &to in &table.targets {
            if range.contains(&to) && listing.starts.get(to) {
                listing.leaders.set(to);
            }
        }
    }
    if !found.is_empty() {
        out.tables.append(&mut found);
        Resolved::Table
    } else if suspicious {
        Resolved::Unresolved
    } else {
        Resolved::Out
    }
}

/// Reads a table's entries; `None` if they are none.
fn read(
    cx: &Context<'_>,
    listing: &mut Listing,
    range: &Range<Rel>,
    shape: &Shape,
    base: Va,
    bound: Option<u64>,
    named: &[Rel],
) -> Option<RawTable> {
    let step = u64::from(shape.entry_len);
    if shape.factor != 0 && shape.factor != shape.entry_len {
        return None;
    }
    let from = cx.space.rel(base);
    if from == NOWHERE || cx.image.segment_at(base).is_none() {
        return None;
    }
    let room = (u64::from(listing.next_ref(cx, from, named)) - u64::from(from)).div_ceil(step);
    let count = |limit: u64| {
        let mut targets: Vec<Rel> = Vec::new();
        let mut own = 0;
        for n in 0..limit.min(MAX_ENTRIES) {
            let at = base.plus(n * step);
            let Some(target) = entry(cx, shape, base, at) else { break };
            let to = cx.space.rel(target);
            let inside = range.contains(&to) && listing.starts.get(to);
            let part = !inside && cx.in_part(to);
            let out = bound.is_some() && n < room && cx.is_code(to) && !range.contains(&to);
            // One past the end: what clang writes where the default cannot happen.
            if !(inside || part || to == range.end || out) {
                break;
            }
            // Who leads to the function's start, and else only to others, calls: a table of functions, this
            // one among them.
            own += u32::from(inside && to != range.start);
            targets.push(to);
        }
        (targets, own)
    };
    let whole = |targets: &[Rel]| bound.is_some_and(|n| n.saturating_add(1) == targets.len() as u64);
    // A reference into the middle of a checked table is another one's base with an offset; but a check may be
    // of something else.
    let (mut targets, mut own) = count(bound.map_or(room, |n| n.saturating_add(1)));
    if bound.is_some() && targets.len() as u64 > room && !whole(&targets) {
        (targets, own) = count(room);
    }
    if bound.is_none() {
        while targets.last().is_some_and(|&t| t == range.end) {
            targets.pop();
        }
    }
    let whole = whole(&targets);
    // A switch in a cold part may lead to nothing but the hot one; not to the starts of functions, as a table
    // of those does.
    let leads_in = || targets.iter().any(|&to| !is_start(cx, to));
    if own == 0 && !(whole && cx.in_part(range.start) && leads_in()) {
        return None;
    }
    Some(RawTable {
        at: base,
        entry_len: shape.entry_len,
        jump: 0,
        targets: targets.into(),
        sure: if whole { Sure::Proved } else { Sure::Likely },
    })
}

/// Whether a function that unwinders know starts at `to`.
fn is_start(cx: &Context<'_>, to: Rel) -> bool {
    let (at, unwind) = (cx.space.va(to), &cx.image.unwind);
    unwind.binary_search_by_key(&at, |u| u.range.start).is_ok_and(|i| unwind[i].at_entry)
}

/// Where the entry at `at` leads.
fn entry(cx: &Context<'_>, shape: &Shape, base: Va, at: Va) -> Option<Va> {
    let bytes = cx.image.bytes_in(&(at..at.plus(u64::from(shape.entry_len))))?;
    let mut word = [0; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let value = u64::from_le_bytes(word);
    let above = 64 - 8 * u32::from(shape.entry_len.min(8));
    let value = match shape.signed {
        true => ((value << above).cast_signed() >> above).cast_unsigned(),
        false => value,
    };
    if shape.relative {
        return Some(base.plus(value));
    }
    if cx.image.kind.is_relocated() && shape.entry_len == 8 {
        return match cx.image.relocation_at(at)?.to {
            RelocationTo::Address(to) => Some(to),
            _ => None,
        };
    }
    Some(Va(value))
}
