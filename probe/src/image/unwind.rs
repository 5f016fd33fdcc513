//! Unwind tables of moved code: each row of `.eh_frame` again, for the addresses where its code now stands.
//!
//! The instructions of a row are copied byte by byte; only the distances between them are written anew, since
//! probes and branches of other lengths move them apart. The language-specific data of C++ and Rust follow
//! the same way (`lsda`). Beside the new table stands a search table over old and new rows together: old code
//! still runs where functions stay.
//!
//! Source: LSB 5.0, 10.6 (`.eh_frame`, `.eh_frame_hdr`); DWARF 5, 6.4.2 and 7.24 for the instructions.
#![warn(clippy::indexing_slicing)]

use crate::arch::emit::Stack;
use crate::arch::{LAST_FRAME, Runtime, SIGNAL_FRAME};
use crate::bytes::{Reader, put_distance, put_uleb, set_distance};
use crate::image::lsda::{self, Lsda};
use crate::layout::place::Placed;
use program::Va;
use program::image::Image;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Range;
use std::slice::Iter;

const PCREL_SDATA4: u8 = 0x1b;
const DATAREL_SDATA4: u8 = 0x3b;
const UDATA4: u8 = 0x03;
const OMIT: u8 = 0xff;

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

/// A common entry, as read.
struct Common {
    /// Everything behind the length and the id, with the augmentation data set apart.
    version: u8,
    augmentation: Vec<u8>,
    code_align: u64,
    data_align: Vec<u8>,
    return_register: Vec<u8>,
    pointer: u8,
    lsda: u8,
    personality: Option<(u8, Va)>,
    instructions: Vec<u8>,
    /// Whether all of its augmentation is understood.
    known: bool,
}

/// Builds the tables that stand at `at`; `pieces` are sorted by old address; `runtime` has what handlers of
/// signals return to, what calls something when the program ends, and, if these are counted, what calls
/// through pointers go through; `own_stubs` is called as functions are, and leaves the stack as it is.
pub fn build(
    image: &Image,
    pieces: &[Placed<'_>],
    runtime: Option<&Runtime>,
    counts_callees: bool,
    own_stubs: Option<Range<Va>>,
    at: Va,
) -> Unwind {
    let mut rows: Vec<(Va, Va)> = Vec::new();
    let mut left_out = Vec::new();
    let tables = image.unwind_tables();
    // New rows, with their places relative to the table's start; common entries as they are needed.
    let mut out: Vec<u8> = Vec::new();
    let mut relocated: Vec<(usize, Va)> = Vec::new();
    let mut lsdas: Vec<(usize, Lsda)> = Vec::new();
    let mut new_rows: Vec<(Va, usize)> = Vec::new();
    for (base, bytes) in &tables {
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
                .or_insert_with(|| common(image, *base, bytes, cie_at).map(|c| (c, None)));
            let Some((common, written)) = common else { continue };
            let Some(row) = row(image, *base, bytes.get(..next).unwrap_or_default(), id_at + 4, common)
            else {
                continue;
            };
            rows.push((row.range.start, base.plus(this as u64)));
            let from = pieces.partition_point(|p| p.piece.range.end <= row.range.start);
            for placed in pieces.iter().skip(from).take_while(|p| p.piece.range.start < row.range.end) {
                if !common.known {
                    left_out.push(placed.piece.range.clone());
                    continue;
                }
                let cie = *written.get_or_insert_with(|| write_common(&mut out, common, &mut relocated));
                match write_row(
                    image,
                    &mut out,
                    common,
                    cie,
                    &row,
                    placed,
                    pieces,
                    &mut relocated,
                    &mut lsdas,
                ) {
                    Some(at) => {
                        new_rows.push((placed.map(row.range.start.max(placed.piece.range.start)), at))
                    }
                    None => left_out.push(placed.piece.range.clone()),
                }
            }
            if common.known
                && common.code_align == 1
                && pieces.get(from).is_none_or(|p| p.piece.range.start > row.range.start)
            {
                // Code that stays: debuggers read the new rows only.
                let cie = *written.get_or_insert_with(|| write_common(&mut out, common, &mut relocated));
                write_kept(&mut out, common, cie, &row, &mut relocated);
            }
        }
    }
    if let Some(runtime) = runtime.filter(|_| !tables.is_empty()) {
        let start = Va(runtime.signalled.0.wrapping_sub(1));
        new_rows.push((start, write_signal_frame(&mut out, start, &mut relocated)));
        new_rows.push((runtime.last.start, write_last_frame(&mut out, &runtime.last, &mut relocated)));
    }
    if let Some(runtime) = runtime.filter(|_| counts_callees && !tables.is_empty()) {
        let (len, own) = Runtime::callee_frame();
        let code = runtime.callee..runtime.callee.plus(len);
        new_rows.push((code.start, write_called(&mut out, &code, &own, &mut relocated)));
    }
    if let Some(code) = own_stubs.filter(|_| !tables.is_empty()) {
        new_rows.push((code.start, write_called(&mut out, &code, &[], &mut relocated)));
    }
    out.extend([0; 4]);
    let n_rows = rows.len() + new_rows.len();
    let header_len = 12 + 8 * n_rows;
    let table_at = at.plus(header_len as u64);
    rows.extend(new_rows.iter().map(|&(start, offset)| (start, table_at.plus(offset as u64))));
    // As a reader sees them: by signed distance, since moved code may stand below address zero of the image.
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
    let main = tables.first().map_or(table_at, |t| t.0);
    put_distance(&mut bytes, main.since(at.plus(4)));
    put_distance(&mut bytes, rows.len() as u64);
    for (start, row) in &rows {
        put_distance(&mut bytes, start.since(at));
        put_distance(&mut bytes, row.since(at));
    }
    bytes.resize(header_len, 0);
    let rows_len = out.len();
    bytes.extend(out);
    bytes.extend(data);
    Unwind { bytes, header_len, rows_len, left_out }
}

/// Where the entry at `offset` ends, and where its id stands; `None` at the end of the table.
fn entry_bounds(bytes: &[u8], offset: usize) -> Option<(usize, usize)> {
    let len = u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?);
    match len {
        0 => None,
        0xffff_ffff => {
            let len = u64::from_le_bytes(*bytes.get(offset.checked_add(4)?..)?.first_chunk()?);
            let end = offset.checked_add(12)?.checked_add(usize::try_from(len).ok()?)?;
            (end <= bytes.len()).then_some((end, offset + 12))
        }
        0xffff_fff0.. => None,
        _ => {
            let end = offset.checked_add(4)?.checked_add(len as usize)?;
            (end <= bytes.len() && len >= 4).then_some((end, offset + 4))
        }
    }
}

fn common(image: &Image, base: Va, table: &[u8], at: usize) -> Option<Common> {
    let (end, id_at) = entry_bounds(table, at)?;
    let mut r = Reader::new(table.get(..end)?, base, id_at + 4);
    let version = r.byte()?;
    let augmentation = r.until_zero()?.to_vec();
    let code_align = r.uleb()?;
    let data_align = r.raw_leb()?.to_vec();
    let return_register = if version == 1 { vec![r.byte()?] } else { r.raw_leb()?.to_vec() };
    let (mut pointer, mut lsda, mut personality, mut known) = (0, OMIT, None, true);
    match augmentation.split_first() {
        None => {}
        Some((b'z', rest)) => {
            let len = usize::try_from(r.uleb()?).ok()?;
            let behind = r.position().checked_add(len)?;
            for c in rest {
                match c {
                    b'R' => pointer = r.byte()?,
                    b'L' => lsda = r.byte()?,
                    b'P' => {
                        let encoding = r.byte()?;
                        personality = Some((encoding, r.pointer(image, encoding & 0x7f)?));
                    }
                    b'S' | b'B' => {}
                    // The data of one that is unknown have an unknown length, but all of them together are
                    // stepped over.
                    _ => {
                        known = false;
                        break;
                    }
                }
            }
            r.seek(behind)?;
        }
        Some(_) => return None,
    }
    let instructions = r.rest().to_vec();
    Some(Common {
        version,
        augmentation,
        code_align,
        data_align,
        return_register,
        pointer,
        lsda,
        personality,
        instructions,
        known,
    })
}

/// A row, as read.
struct Row {
    range: Range<Va>,
    lsda: Option<Va>,
    instructions: Vec<u8>,
}

fn row(image: &Image, base: Va, table: &[u8], at: usize, common: &Common) -> Option<Row> {
    let mut r = Reader::new(table, base, at);
    let start = r.pointer(image, common.pointer)?;
    let len = r.pointer(image, common.pointer & 0x0f)?.0;
    let mut lsda = None;
    if common.augmentation.first() == Some(&b'z') {
        let len = usize::try_from(r.uleb()?).ok()?;
        let behind = r.position().checked_add(len)?;
        if common.lsda != OMIT && len > 0 {
            lsda = r.pointer(image, common.lsda).filter(|l| l.0 != 0);
        }
        r.seek(behind)?;
    }
    let end = Va(start.0.checked_add(len)?);
    (len > 0).then(|| Row { range: start..end, lsda, instructions: r.rest().to_vec() })
}

/// Writes `common` with pointers that count from where they stand; returns its offset.
fn write_common(out: &mut Vec<u8>, common: &Common, relocated: &mut Vec<(usize, Va)>) -> usize {
    let at = out.len();
    out.extend([0; 8]);
    out.push(common.version);
    // Without augmentation data there is no way to say how pointers are written: give it some.
    let letters: Vec<u8> = match common.augmentation.as_slice() {
        [] => b"zR".to_vec(),
        letters if letters.contains(&b'R') => letters.to_vec(),
        letters => [letters, b"R"].concat(),
    };
    out.extend(&letters);
    out.push(0);
    put_uleb(out, 1);
    out.extend(&common.data_align);
    out.extend(&common.return_register);
    let mut data = Vec::new();
    let mut place = None;
    for c in &letters {
        match c {
            b'R' => data.push(PCREL_SDATA4),
            b'L' => data.push(if common.lsda == OMIT { OMIT } else { PCREL_SDATA4 }),
            b'P' => {
                let (encoding, to) = common.personality.unwrap_or((0, Va(0)));
                data.push(PCREL_SDATA4 | encoding & 0x80);
                place = Some((data.len(), to));
                data.extend([0; 4]);
            }
            _ => {}
        }
    }
    put_uleb(out, data.len() as u64);
    if let Some((place, to)) = place {
        relocated.push((out.len() + place, to));
    }
    out.extend(data);
    // Rows of the common part are at the entry: no distances in them.
    out.extend(&common.instructions);
    finish(out, at);
    at
}

/// Writes the row of what handlers of signals return to, with a common entry of its own; returns where.
fn write_signal_frame(out: &mut Vec<u8>, start: Va, relocated: &mut Vec<(usize, Va)>) -> usize {
    let frame = &SIGNAL_FRAME;
    let cie = out.len();
    out.extend([0; 8]);
    out.extend(b"\x01zRS\0\x01");
    out.extend(frame.columns);
    out.extend([1, PCREL_SDATA4]);
    finish(out, cie);
    let at = out.len();
    out.extend([0; 4]);
    put_distance(out, (at + 4 - cie) as u64);
    relocated.push((out.len(), start));
    out.extend([0; 4]);
    put_distance(out, u64::from(frame.len));
    out.push(0);
    out.extend(frame.stack);
    for (column, offset) in frame.registers {
        let mut place = vec![frame.base];
        put_sleb_positive(&mut place, offset);
        out.extend([DW_CFA_EXPRESSION, column, u8::try_from(place.len()).unwrap_or(0)]);
        out.extend(place);
    }
    finish(out, at);
    at
}

/// Writes the row of what is called when the program ends; returns where.
fn write_last_frame(out: &mut Vec<u8>, last: &Range<Va>, relocated: &mut Vec<(usize, Va)>) -> usize {
    let (.., own) = LAST_FRAME;
    write_called(out, last, &own, relocated)
}

/// Writes the row of code of ours that is called, with a common entry of its own.
fn write_called(out: &mut Vec<u8>, code: &Range<Va>, own: &[u8], relocated: &mut Vec<(usize, Va)>) -> usize {
    let (columns, common, _) = LAST_FRAME;
    let cie = out.len();
    out.extend([0; 8]);
    out.extend(b"\x01zR\0\x01");
    out.extend(columns);
    out.extend([1, PCREL_SDATA4]);
    out.extend(common);
    finish(out, cie);
    let at = out.len();
    out.extend([0; 4]);
    put_distance(out, (at + 4 - cie) as u64);
    relocated.push((out.len(), code.start));
    out.extend([0; 4]);
    put_distance(out, code.end.since(code.start));
    out.push(0);
    out.extend(own);
    finish(out, at);
    at
}

const DW_CFA_EXPRESSION: u8 = 0x10;

fn put_sleb_positive(out: &mut Vec<u8>, n: u8) {
    match n {
        0..64 => out.push(n),
        _ => out.extend([n & 0x7f | 0x80, n >> 7]),
    }
}

/// Pads the entry at `at` and writes its length.
fn finish(out: &mut Vec<u8>, at: usize) {
    out.resize(out.len().next_multiple_of(4), 0);
    let len = out.len() - at - 4;
    set_distance(out, at, len as u64);
}

#[expect(clippy::too_many_arguments, reason = "one row of one table, with all that it refers to")]
fn write_row(
    image: &Image,
    out: &mut Vec<u8>,
    common: &Common,
    cie: usize,
    row: &Row,
    placed: &Placed<'_>,
    pieces: &[Placed<'_>],
    relocated: &mut Vec<(usize, Va)>,
    lsdas: &mut Vec<(usize, Lsda)>,
) -> Option<usize> {
    let covered = row.range.start.max(placed.piece.range.start)..row.range.end.min(placed.piece.range.end);
    let new = placed.map(covered.start)..placed.map(covered.end);
    let instructions = translate(row, common, &covered, placed)?;
    let lsda = match row.lsda {
        Some(at) => Some(lsda::translate(image, at, row.range.start, &covered, placed, pieces)?),
        None => None,
    };
    let at = out.len();
    out.extend([0; 4]);
    put_distance(out, (at + 4 - cie) as u64);
    relocated.push((out.len(), new.start));
    out.extend([0; 4]);
    put_distance(out, new.end.since(new.start));
    if common.augmentation.first() == Some(&b'z') && common.lsda != OMIT {
        out.push(4);
        lsdas.extend(lsda.map(|lsda| (out.len(), lsda)));
        out.extend([0; 4]);
    } else {
        out.push(0);
    }
    out.extend(instructions);
    finish(out, at);
    Some(at)
}

/// Writes `row` as it is.
fn write_kept(out: &mut Vec<u8>, common: &Common, cie: usize, row: &Row, relocated: &mut Vec<(usize, Va)>) {
    let at = out.len();
    out.extend([0; 4]);
    put_distance(out, (at + 4 - cie) as u64);
    relocated.push((out.len(), row.range.start));
    out.extend([0; 4]);
    put_distance(out, row.range.end.since(row.range.start));
    if common.augmentation.first() == Some(&b'z') && common.lsda != OMIT {
        out.push(4);
        relocated.extend(row.lsda.map(|lsda| (out.len(), lsda)));
        out.extend([0; 4]);
    } else {
        out.push(0);
    }
    // In code units of the common entry that was written, which are bytes.
    out.extend(&row.instructions);
    finish(out, at);
}

/// The rule for the canonical frame address, as far as it is a register and a distance.
#[derive(Clone, Copy)]
struct Frame {
    register: u64,
    distance: u64,
}

/// Follows what instructions say of the canonical frame address.
struct Frames {
    now: Option<Frame>,
    kept: Vec<Option<Frame>>,
}

const STACK_POINTER: u64 = program::arch::DWARF_STACK_POINTER as u64;
/// `DW_CFA_nop`, which fills rows up.
const NOP: u8 = 0;
/// r12 in DWARF's numbers.
const HOLDER: u64 = 12;

impl Frames {
    /// After `instruction`, one whole instruction.
    fn follow(&mut self, instruction: &[u8]) -> Option<()> {
        let mut r = Reader::new(instruction, Va(0), 1);
        match *instruction.first()? {
            0x0c => self.now = Some(Frame { register: r.uleb()?, distance: r.uleb()? }),
            0x0d => {
                let register = r.uleb()?;
                self.now = self.now.map(|now| Frame { register, ..now });
            }
            0x0e => {
                let distance = r.uleb()?;
                self.now = self.now.map(|now| Frame { distance, ..now });
            }
            0x0f | 0x12 | 0x13 => self.now = None,
            0x0a => self.kept.push(self.now),
            0x0b => self.now = self.kept.pop().flatten(),
            _ => {}
        }
        Some(())
    }
}

/// Appends a step of so many bytes.
fn advance(out: &mut Vec<u8>, by: u32) {
    match by {
        0 => {}
        1..=0x3f => out.push(0x40 | u8::try_from(by).unwrap_or(0)),
        0x40..=0xff => out.extend([0x02, u8::try_from(by).unwrap_or(0)]),
        0x100..=0xffff => {
            out.push(0x03);
            out.extend(u16::try_from(by).unwrap_or(0).to_le_bytes());
        }
        _ => {
            out.push(0x04);
            out.extend(by.to_le_bytes());
        }
    }
}

/// The moves of the stack pointer by code of ours, up to `to`: where the frame is found by it, the distance
/// changes.
fn move_frame(
    out: &mut Vec<u8>,
    frames: &Frames,
    moves: &mut Peekable<Iter<'_, (u32, Stack)>>,
    at: Va,
    new: &mut Va,
    to: Va,
) -> Option<()> {
    while let Some(&(offset, stack)) = moves.next_if(|m| at.plus(u64::from(m.0)) < to) {
        let here = at.plus(u64::from(offset));
        let Some(frame) = frames.now.filter(|f| f.register == STACK_POINTER) else { continue };
        if here.0 < new.0 {
            continue;
        }
        advance(out, u32::try_from(here.since(*new)).ok()?);
        *new = here;
        let (register, depth) = match stack {
            Stack::Lower(depth) => (STACK_POINTER, depth),
            Stack::HeldInR12(depth) => (HOLDER, depth),
        };
        out.push(0x0c); // def_cfa
        put_uleb(out, register);
        put_uleb(out, frame.distance + u64::from(depth));
    }
    Some(())
}

/// The row's instructions with the distances of the moved code; `None` if they hold one we do not know.
fn translate(row: &Row, common: &Common, covered: &Range<Va>, placed: &Placed<'_>) -> Option<Vec<u8>> {
    let mut frames = Frames { now: None, kept: Vec::new() };
    let mut r = Reader::new(&common.instructions, Va(0), 0);
    while r.position() < common.instructions.len() {
        let from = r.position();
        if instruction(&mut r)?.is_some() {
            return None;
        }
        frames.follow(common.instructions.get(from..r.position())?)?;
    }
    let mut moves = placed.piece.stack.iter().peekable();
    let mut out = Vec::with_capacity(row.instructions.len() + 8);
    let mut r = Reader::new(&row.instructions, Va(0), 0);
    let mut old = row.range.start;
    let mut new = placed.map(covered.start);
    let mut owed = false;
    while r.position() < row.instructions.len() {
        let from = r.position();
        if row.instructions.get(from) == Some(&NOP) {
            r.byte()?;
            continue;
        }
        match instruction(&mut r)? {
            Some(n) => {
                old = old.plus(n.checked_mul(common.code_align)?);
                owed = true;
            }
            None => {
                if owed && old > covered.start {
                    let to = placed.map(old.min(covered.end));
                    move_frame(&mut out, &frames, &mut moves, placed.at, &mut new, to)?;
                    advance(&mut out, u32::try_from(to.since(new)).ok()?);
                    new = to;
                }
                owed = false;
                if old >= covered.end && covered.end < row.range.end {
                    break;
                }
                let whole = row.instructions.get(from..r.position())?;
                frames.follow(whole)?;
                out.extend(whole);
            }
        }
    }
    let end = placed.map(covered.end);
    move_frame(&mut out, &frames, &mut moves, placed.at, &mut new, end)?;
    Some(out)
}

/// Reads one instruction; how far it advances, if that is what it does; `None` if it is one we do not know.
fn instruction(r: &mut Reader<'_>) -> Option<Option<u64>> {
    let op = r.byte()?;
    let advance = match op {
        NOP => None,
        0x40..=0x7f => Some(u64::from(op & 0x3f)),
        0x02 => Some(u64::from(r.byte()?)),
        0x03 => Some(u64::from(u16::from_le_bytes(*r.take(2)?.first_chunk()?))),
        0x04 => Some(u64::from(u32::from_le_bytes(*r.take(4)?.first_chunk()?))),
        // offset, restore; restore_extended, undefined, same_value, def_cfa_register, def_cfa_offset,
        // args_size
        0x80..=0xbf | 0x06 | 0x07 | 0x08 | 0x0d | 0x0e | 0x2e => {
            r.uleb()?;
            None
        }
        0xc0..=0xff | 0x0a | 0x0b => None,
        // offset_extended, register, def_cfa, val_offset, and the signed forms
        0x05 | 0x09 | 0x0c | 0x11 | 0x12 | 0x14 | 0x15 | 0x2f => {
            r.uleb()?;
            r.uleb()?;
            None
        }
        0x13 => {
            r.uleb()?;
            None
        }
        0x0f => {
            let len = usize::try_from(r.uleb()?).ok()?;
            r.take(len)?;
            None
        }
        0x10 | 0x16 => {
            r.uleb()?;
            let len = usize::try_from(r.uleb()?).ok()?;
            r.take(len)?;
            None
        }
        _ => return None,
    };
    Some(advance)
}
