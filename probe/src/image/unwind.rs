//! Unwind tables of moved code: each row of `.eh_frame` again, for the addresses where its code now stands.
//!
//! The instructions of a row are copied byte by byte; only the distances between them are written anew, since
//! probes and branches of other lengths move them apart. The language-specific data of C++ and Rust follow
//! the same way (`lsda`). Beside the new table stands a search table over old and new rows together: old code
//! still runs where functions stay.
//!
//! Source: LSB 5.0, 10.6 (`.eh_frame`, `.eh_frame_hdr`); DWARF 5, 6.4.2 and 7.24 for the instructions.
#![warn(clippy::indexing_slicing)]

mod entries;
mod instructions;

use crate::arch::Runtime;
use crate::bytes::{put_distance, set_distance};
use crate::image::lsda;
use crate::layout::place::Placed;
use entries::{Common, Row, Writer, entry_bounds};
use instructions::translate;
use program::Va;
use program::image::Image;
use std::collections::BTreeMap;
use std::ops::Range;

const PCREL_SDATA4: u8 = 0x1b;
const DATAREL_SDATA4: u8 = 0x3b;
const UDATA4: u8 = 0x03;

/// The unwind tables of a module with moved code.
#[derive(Debug, Default)]
pub struct Unwind {
    /// What PT_GNU_EH_FRAME leads to: the search table, then rows and language-specific data.
    pub bytes: Vec<u8>,
    /// How much of that is the search table.
    pub header_len: usize,
    /// How much of the rest are rows.
    pub rows_len: usize,
    /// Moved ranges that have a row which could not be taken over: a throw through them would end the
    /// program.
    pub left_out: Vec<Range<Va>>,
}

/// Builds the tables that stand at `at`; `pieces` are sorted by old address; `runtime` has what signal
/// handlers return to, what calls something when the program ends, and, if these are counted, what indirect
/// calls go through; `called` is code of ours that is called as functions are, with what it does to the
/// stack.
pub fn build(
    image: &Image,
    pieces: &[Placed<'_>],
    runtime: Option<&Runtime>,
    counts_indirect_calls: bool,
    called: Vec<(Range<Va>, &[u8])>,
    at: Va,
) -> Unwind {
    let tables = image.unwind_tables();
    let mut rows = Rows {
        image,
        pieces,
        old: Vec::new(),
        new: Vec::new(),
        left_out: Vec::new(),
        writer: Writer::default(),
    };
    for (base, bytes) in &tables {
        rows.take_over(*base, bytes);
    }
    if !tables.is_empty() {
        rows.add_ours(runtime, counts_indirect_calls, called);
    }
    rows.finish(at, tables.first().map(|t| t.0))
}

/// The rows of a module: those that there were, and those of new code.
struct Rows<'a> {
    image: &'a Image,
    pieces: &'a [Placed<'a>],
    /// Where the code of each old row starts, and where the row is.
    old: Vec<(Va, Va)>,
    /// Where the code of each new row starts, and its offset among what is written.
    new: Vec<(Va, usize)>,
    left_out: Vec<Range<Va>>,
    writer: Writer,
}

impl Rows<'_> {
    /// Takes over the rows of the table `bytes` at `base`.
    fn take_over(&mut self, base: Va, bytes: &[u8]) {
        // Each common entry, and where it is written, if it is.
        let mut commons: BTreeMap<usize, Option<(Common, Option<usize>)>> = BTreeMap::new();
        let mut offset = 0;
        while let Some((next, id_at)) = entry_bounds(bytes, offset) {
            let this = std::mem::replace(&mut offset, next);
            if id_at != this + 4 {
                continue; // of 64 bits, which no unwinder reads
            }
            let Some(id) =
                bytes.get(id_at..).and_then(|b| b.first_chunk::<4>()).map(|b| u32::from_le_bytes(*b))
            else {
                break;
            };
            if id == 0 {
                continue;
            }
            let Some(cie_at) = id_at.checked_sub(id as usize) else { continue };
            let common = commons
                .entry(cie_at)
                .or_insert_with(|| Common::read(self.image, base, bytes, cie_at).map(|c| (c, None)));
            let Some((common, written)) = common else { continue };
            let table = bytes.get(..next).unwrap_or_default();
            let Some(row) = Row::read(self.image, base, table, id_at + 4, common) else { continue };
            self.old.push((row.range.start, base.plus(this as u64)));
            self.write(common, written, &row);
        }
    }

    /// Writes `row` for where its code now is; `written` is where its common entry is.
    fn write(&mut self, common: &Common, written: &mut Option<usize>, row: &Row) {
        let pieces = self.pieces;
        let from = pieces.partition_point(|p| p.piece.range.end <= row.range.start);
        for placed in pieces.iter().skip(from).take_while(|p| p.piece.range.start < row.range.end) {
            if !common.known {
                self.left_out.push(placed.piece.range.clone());
                continue;
            }
            let cie = *written.get_or_insert_with(|| self.writer.common(common));
            match self.write_moved(common, cie, row, placed) {
                Some(at) => {
                    let start = placed.map(row.range.start.max(placed.piece.range.start));
                    self.new.push((start, at));
                }
                None => self.left_out.push(placed.piece.range.clone()),
            }
        }
        if common.known
            && common.code_align == 1
            && pieces.get(from).is_none_or(|p| p.piece.range.start > row.range.start)
        {
            // Code that is not moved: debuggers read the new rows only.
            let cie = *written.get_or_insert_with(|| self.writer.common(common));
            self.writer.kept(common, cie, row);
        }
    }

    /// Writes the part of `row` that is about `placed`; `None` if it cannot be taken over.
    fn write_moved(&mut self, common: &Common, cie: usize, row: &Row, placed: &Placed<'_>) -> Option<usize> {
        let range = &placed.piece.range;
        let covered = row.range.start.max(range.start)..row.range.end.min(range.end);
        let new = placed.map(covered.start)..placed.map(covered.end);
        let instructions = translate(row, common, &covered, placed)?;
        let lsda = match row.lsda {
            Some(at) => {
                Some(lsda::translate(self.image, at, row.range.start, &covered, placed, self.pieces)?)
            }
            None => None,
        };
        Some(self.writer.row(common, cie, &new, lsda, &instructions))
    }

    /// Adds rows of the code of ours that may be on a stack.
    fn add_ours(
        &mut self,
        runtime: Option<&Runtime>,
        counts_indirect_calls: bool,
        called: Vec<(Range<Va>, &[u8])>,
    ) {
        if let Some(runtime) = runtime {
            let start = Va(runtime.signalled.0.wrapping_sub(1));
            self.new.push((start, self.writer.signal_frame(start)));
            self.new.push((runtime.last.start, self.writer.last_frame(&runtime.last)));
        }
        if let Some(runtime) = runtime.filter(|_| counts_indirect_calls) {
            let (len, own) = Runtime::indirect_call_frame();
            let code = runtime.callee..runtime.callee.plus(len);
            self.new.push((code.start, self.writer.called(&code, &own)));
        }
        for (code, own) in called {
            self.new.push((code.start, self.writer.called(&code, own)));
        }
    }

    /// The tables that stand at `at`; `main` is where the first of the old ones is.
    fn finish(self, at: Va, main: Option<Va>) -> Unwind {
        let Rows { old, new, left_out, writer, .. } = self;
        Unwind { left_out, ..tables(writer, old, &new, at, main) }
    }
}

/// The tables of `code` of ours that is called as functions are, which stand at `at`; `row` is what it does
/// to the stack.
pub fn of_code(code: &Range<Va>, row: &[u8], at: Va) -> Vec<u8> {
    let mut writer = Writer::default();
    let written = writer.called(code, row);
    tables(writer, Vec::new(), &[(code.start, written)], at, None).bytes
}

/// What `writer` has, to stand at `at` behind a search table for `rows` and what is `new` of it; `main` is
/// where the first of the old tables is.
fn tables(writer: Writer, mut rows: Vec<(Va, Va)>, new: &[(Va, usize)], at: Va, main: Option<Va>) -> Unwind {
    let Writer { mut out, mut relocated, lsdas } = writer;
    out.extend([0; 4]);
    let header_len = 12 + 8 * (rows.len() + new.len());
    let table_at = at.plus(header_len as u64);
    rows.extend(new.iter().map(|&(start, offset)| (start, table_at.plus(offset as u64))));
    // As a reader sees them: by signed distance, since moved code may stand below address zero of the
    // image.
    rows.sort_unstable_by_key(|r| (r.0.since(at).cast_signed(), r.1));
    rows.dedup_by_key(|r| r.0);
    let mut data: Vec<u8> = Vec::new();
    let data_at = table_at.plus(out.len() as u64);
    for (place, lsda) in &lsdas {
        relocated.push((*place, lsda.append(&mut data, data_at)));
    }
    for (place, to) in relocated {
        let from = table_at.plus(place as u64);
        set_distance(&mut out, place, to.since(from));
    }
    let mut bytes = vec![1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4];
    put_distance(&mut bytes, main.unwrap_or(table_at).since(at.plus(4)));
    put_distance(&mut bytes, rows.len() as u64);
    for (start, row) in &rows {
        put_distance(&mut bytes, start.since(at));
        put_distance(&mut bytes, row.since(at));
    }
    bytes.resize(header_len, 0);
    let rows_len = out.len();
    bytes.extend(out);
    bytes.extend(data);
    Unwind { bytes, header_len, rows_len, left_out: Vec::new() }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
