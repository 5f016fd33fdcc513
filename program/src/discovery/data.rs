//! Data objects: what code and data refer to as one piece.
//!
//! Where symbols say what the pieces are, they are believed. Elsewhere a piece starts where an instruction, a
//! relocated word or (in files at fixed addresses) a word that holds an address of data points, and ends
//! before the next one; strings and padding are told by their bytes.
//!
//! Not here: finding jump tables (`jump_tables`); which object of one build is which of another (crate
//! `matching`).
#![warn(clippy::indexing_slicing)]

mod pieces;
mod regions;
#[cfg(test)]
mod tests;

use crate::addr::Va;
use crate::discovery::sweep::raw::{DataRef, Space};
use crate::image::{Image, RelocationTo, SymbolKind};
use crate::model::{DataKind, DataObject, Program, Sure};
use pieces::Fixed;
use rayon::prelude::*;
use regions::{Region, regions};
use std::ops::Range;

/// Tables of distances are read to this many bytes.
const MOST_DISTANCES: u64 = 4096;

/// A place that something refers to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mark {
    /// The place.
    pub at: Va,
    /// The widest access to it, in bytes; 0 if only its address is taken.
    pub size: u8,
}

/// The data objects of a program whose code has been analysed, by address. `refs` is what instructions refer
/// to, by instruction.
pub fn find(program: &Program, refs: Vec<Vec<DataRef>>) -> Vec<DataObject> {
    let image = &program.image;
    let regions = regions(program);
    let mut marks = marks_of_code(program, refs);
    marks.extend(marks_of_data(image, &regions));
    sort(&mut marks);
    let next_marks = marks.iter().skip(1).map(|m| m.at).chain([Va(u64::MAX)]);
    let far: Vec<Mark> = marks
        .iter()
        .zip(next_marks)
        .filter(|(m, _)| m.size == 0 && !image.is_code(m.at))
        .flat_map(|(m, next)| pieces::by_distance(image, m.at, next.min(m.at.plus(MOST_DISTANCES))))
        .map(|at| Mark { at, size: 0 })
        .collect();
    if !far.is_empty() {
        marks.extend(far);
        sort(&mut marks);
    }
    let fixed = fixed(program);
    // Rust and Go put strings side by side without zero bytes, so a reference into text starts a new one
    // there.
    let joined = !image.compilers.iter().any(|c| c.contains("rustc") || c.starts_with("go1") || c == "Go");
    let found: Vec<Vec<DataObject>> = regions
        .par_iter()
        .map(|region| {
            let marks = within(&marks, &region.range, |m| m.at);
            let fixed = within(&fixed, &region.range, |f| f.range.start);
            pieces::cut(image, region, marks, fixed, joined)
        })
        .collect();
    let mut all = Vec::with_capacity(found.iter().map(Vec::len).sum());
    found.into_iter().for_each(|mut found| all.append(&mut found));
    all
}

/// Sorts by place, and keeps each once, with the widest access.
fn sort(marks: &mut Vec<Mark>) {
    marks.par_sort_unstable();
    marks.dedup_by(|b, a| {
        let same = a.at == b.at;
        a.size = if same { b.size } else { a.size };
        same
    });
}

/// The part of `sorted` whose places lie in `range`.
fn within<'a, T>(sorted: &'a [T], range: &Range<Va>, at: impl Fn(&T) -> Va) -> &'a [T] {
    let from = sorted.partition_point(|x| at(x) < range.start);
    let to = sorted.partition_point(|x| at(x) < range.end);
    sorted.get(from..to).unwrap_or_default()
}

/// Places that instructions of functions refer to; not sorted. `refs` are by instruction.
fn marks_of_code(program: &Program, refs: Vec<Vec<DataRef>>) -> Vec<Mark> {
    let space = Space::of(&program.image);
    let mut refs = refs.into_iter().flatten().map(|r| (space.va(r.from), r)).peekable();
    let mut marks = Vec::new();
    for &block in &program.by_address {
        let range = program.block(block).range();
        while refs.next_if(|r| r.0 < range.start).is_some() {}
        while let Some((_, r)) = refs.next_if(|r| r.0 < range.end) {
            marks.push(Mark { at: space.va(r.to), size: r.size });
        }
    }
    marks
}

/// Places that words of data refer to.
fn marks_of_data(image: &Image, regions: &[Region]) -> Vec<Mark> {
    let mut marks = Vec::new();
    for r in &image.relocations {
        if let RelocationTo::Address(to) | RelocationTo::Symbol(_, Some(to)) = r.to {
            marks.push(Mark { at: to, size: 0 });
        }
    }
    if !image.kind.is_relocated() {
        let inside = |at: Va| {
            let i = regions.partition_point(|r| r.range.end <= at);
            regions.get(i).is_some_and(|r| r.range.contains(&at) && !r.in_code)
        };
        for region in regions.iter().filter(|r| !r.zero && !r.in_code) {
            let words = pieces::words(image, &region.range);
            marks.extend(words.map(|(_, to)| Mark { at: to, size: 0 }).filter(|m| inside(m.at)));
        }
    }
    marks
}

/// What symbols and jump tables say, by address, without overlaps: of several the first and longest counts.
fn fixed(program: &Program) -> Vec<Fixed<'_>> {
    let mut all: Vec<Fixed<'_>> = Vec::new();
    for s in program.image.symbols.iter().filter(|s| s.kind == SymbolKind::Object) {
        let end = s.at.0.saturating_add(s.len);
        all.push(Fixed { range: s.at..Va(end), name: Some(s), table: false });
    }
    for t in &program.tables {
        let len = u64::from(t.entry_len).saturating_mul(t.targets.len() as u64);
        all.push(Fixed { range: t.at..Va(t.at.0.saturating_add(len)), name: None, table: true });
    }
    // Names: global before local, then by text, so that the order of the table does not matter.
    all.sort_by_key(|f| {
        let name = f.name.map(|s| (s.local, &s.name));
        (f.range.start, std::cmp::Reverse(f.range.end), name.is_none(), name)
    });
    let mut kept: Vec<Fixed<'_>> = Vec::with_capacity(all.len());
    for f in all {
        match kept.last_mut() {
            Some(last) if f.range.start == last.range.start || f.range.start < last.range.end => {
                // The symbol of a table of labels names it.
                last.table |= f.table && f.range.start == last.range.start;
            }
            _ => kept.push(f),
        }
    }
    kept
}

/// What the bytes of an object look like.
pub(crate) fn kind(image: &Image, range: &Range<Va>, zero: bool, table: bool) -> DataKind {
    if table {
        return DataKind::JumpTable;
    }
    if zero {
        return DataKind::Zero;
    }
    let Some(bytes) = image.bytes_in(range) else { return DataKind::Bytes };
    if range.start.0.is_multiple_of(8) && bytes.len() >= 8 && bytes.len().is_multiple_of(8) {
        // Null pointers are pointers too, but there must be others.
        let mut pointers = 0;
        let mut others = bytes.as_chunks::<8>().0.iter().enumerate().filter(|(i, word)| {
            let is_pointer =
                pieces::is_pointer(image, range.start.plus(8 * *i as u64), u64::from_le_bytes(**word));
            pointers += usize::from(is_pointer);
            !is_pointer && **word != [0; 8]
        });
        if others.next().is_none() && pointers > 0 {
            return DataKind::Pointers;
        }
    }
    match pieces::text_len(bytes) {
        Some(len) if len + 1 == bytes.len() && !pieces::has_pointer(image, range) => DataKind::String,
        _ => DataKind::Bytes,
    }
}

fn object(image: &Image, range: Range<Va>, fixed: Option<&Fixed<'_>>, zero: bool) -> DataObject {
    let name = fixed.and_then(|f| f.name);
    DataObject {
        kind: kind(image, &range, zero, fixed.is_some_and(|f| f.table)),
        range,
        name: name.map(|s| s.name.clone()),
        sure: if name.is_some() { Sure::Proved } else { Sure::Likely },
    }
}
