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
mod location;
mod reaching;
mod slice;

use crate::addr::Va;
use crate::arch::Reg;
use crate::discovery::sweep::jump_tables::reaching::Reaching;
use crate::discovery::sweep::jump_tables::slice::{How, Slice};
use crate::discovery::sweep::listing::Listing;
use crate::discovery::sweep::raw::{Context, NOWHERE, RawTable, Rel, Swept};
use crate::image::RelocationTo;
use crate::model::{Sure, Unread};
use std::ops::Range;

/// How an indirect jump was understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// It reads a table, now in the list.
    Table,
    /// It reads a table that was not understood.
    Unresolved(Unread),
    /// It leaves the function.
    Out,
}

/// Instructions looked at for one question.
const BUDGET: u32 = 3000;
/// The same of a second look, which few jumps need.
const LAST_BUDGET: u32 = 20 * BUDGET;
/// More entries than any compiler writes.
const MAX_ENTRIES: u64 = 1 << 16;

/// A way of reading an entry.
#[derive(Clone, Debug)]
struct Shape {
    /// Where tables may start: several, where code for several switches shares the jump.
    bases: Vec<Va>,
    entry_len: u8,
    signed: bool,
    /// Whether entries are distances, or addresses.
    relative: bool,
    /// What distances count from, where it is known not to be the table's address.
    anchor: Option<Va>,
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
    match tables(cx, listing, range, jump, &out.data_refs[named], How::AtFirst { many }) {
        Ok(mut found) => {
            lead_to(listing, range, &found);
            out.tables.append(&mut found);
            Resolved::Table
        }
        Err(Some(why)) => Resolved::Unresolved(why),
        Err(None) => Resolved::Out,
    }
}

/// Looks a second time at the jumps at the indices `left`, with what is certain of the registers they
/// use; the other jumps of the region read the tables from `first` on of `out`. Returns those that are
/// still not understood.
///
/// What is certain depends on where the jumps lead. At first those that are left lead nowhere, so that one
/// that is understood helps the next. Then all that were understood are looked at again, now that they lead
/// somewhere and what is still left leads everywhere: what does not hold any more was not certain.
pub fn resolve_rest(
    cx: &Context<'_>,
    listing: &mut Listing,
    range: &Range<Rel>,
    jumps: Vec<u32>,
    out: &mut Swept,
    named: Range<usize>,
    first: usize,
) -> Vec<(u32, Unread)> {
    let mut left = jumps;
    let mut understood: Vec<(u32, Vec<RawTable>)> = Vec::new();
    let mut whys: Vec<(u32, Unread)> = Vec::new();
    let mut look = |left: &[u32], jumps: &[u32], understood: &[(u32, Vec<RawTable>)]| {
        listing.forget_derived();
        listing.make_sources();
        let known = out.tables[first..].iter().chain(understood.iter().flat_map(|u| &u.1));
        let known: Vec<&RawTable> = known.collect();
        let reaching = Reaching::compute(cx, listing, range, &known, left)?;
        let mut found = Vec::new();
        for &jump in jumps {
            let named = &out.data_refs[named.clone()];
            match tables(cx, listing, range, jump, named, How::Certain(&reaching)) {
                Ok(tables) => found.push((jump, tables)),
                Err(why) => whys.push((jump, why.unwrap_or(Unread::Base))),
            }
        }
        found.iter().for_each(|(_, tables)| lead_to(listing, range, tables));
        Some(found)
    };
    while let Some(mut found) = look(&[], &left, &understood).filter(|found| !found.is_empty()) {
        left.retain(|jump| found.iter().all(|f| f.0 != *jump));
        understood.append(&mut found);
    }
    while !understood.is_empty() {
        let jumps: Vec<u32> = understood.iter().map(|u| u.0).collect();
        let again = look(&left, &jumps, &understood).unwrap_or_default();
        let before = understood.len();
        understood.retain(|(jump, tables)| again.iter().any(|(j, t)| j == jump && is_same(t, tables)));
        left.extend(jumps.into_iter().filter(|jump| understood.iter().all(|u| u.0 != *jump)));
        if understood.len() == before {
            break;
        }
    }
    out.tables.extend(understood.into_iter().flat_map(|u| u.1));
    let why = |jump: u32| whys.iter().rev().find(|w| w.0 == jump).map_or(Unread::Base, |w| w.1);
    left.into_iter().map(|jump| (jump, why(jump))).collect()
}

/// Whether two lists hold tables at the same places that lead to the same ones.
fn is_same(a: &[RawTable], b: &[RawTable]) -> bool {
    let what = |t: &RawTable| (t.at, t.anchor, t.targets.clone());
    a.iter().map(what).eq(b.iter().map(what))
}

/// The tables of the jump at index `jump`, or why it reads none that is understood: `None` if it does not
/// look as if it read one.
fn tables(
    cx: &Context<'_>,
    listing: &mut Listing,
    range: &Range<Rel>,
    jump: u32,
    named: &[Rel],
    how: How<'_>,
) -> Result<Vec<RawTable>, Option<Unread>> {
    let budget = if how.certain().is_some() { LAST_BUDGET } else { BUDGET };
    let mut slice = Slice { cx, listing, range, budget, how, spilled: Vec::new(), why: None };
    let mut shapes = Vec::new();
    let suspicious = slice.shapes(jump, &mut shapes);
    let mut bounds = Vec::new();
    for shape in &shapes {
        slice.budget = budget;
        bounds.push(shape.index.map_or(Some(0), |(reg, at)| slice.bound(at, reg)));
    }
    let why = slice.why.unwrap_or(if shapes.is_empty() { Unread::Base } else { Unread::Entries });
    let at = listing.insns[jump as usize].at;
    let mut found = Vec::new();
    for (shape, bound) in shapes.iter().zip(bounds) {
        for &base in &shape.bases {
            let table = read(cx, listing, range, shape, base, bound, named);
            found.extend(table.map(|table| RawTable { jump: at, ..table }));
        }
    }
    found.sort_by_key(|t| t.at);
    found.dedup_by_key(|t| t.at);
    if found.is_empty() { Err(suspicious.then_some(why)) } else { Ok(found) }
}

/// Makes leaders of the places in the region that `tables` lead to.
fn lead_to(listing: &mut Listing, range: &Range<Rel>, tables: &[RawTable]) {
    for &to in tables.iter().flat_map(|t| t.targets.iter()) {
        if range.contains(&to) && listing.starts.get(to) {
            listing.leaders.set(to);
        }
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
        anchor: shape.anchor.filter(|&anchor| anchor != base),
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
        return Some(shape.anchor.unwrap_or(base).plus(value));
    }
    if cx.image.kind.is_relocated() && shape.entry_len == 8 {
        return match cx.image.relocation_at(at)?.to {
            RelocationTo::Address(to) => Some(to),
            _ => None,
        };
    }
    Some(Va(value))
}
