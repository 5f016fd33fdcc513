//! A rewritten module as a file: the old one with its patches, the new segments behind it.
#![warn(clippy::indexing_slicing)]

use crate::arch::emit;
use crate::error::RewriteError;
use crate::image::NewSegments;
use crate::image::program_headers::Tables;
use crate::image::symbols::{self, Moves, Part, Parts};
use crate::layout::place::PAGE;
use crate::patch::Patch;
use object::LittleEndian as LE;
use object::U16;
use object::elf::FileHeader64;
use object::read::elf::FileHeader as _;
use program::{Image, Va};
use std::ops::Range;

/// What becomes of the old code of moved functions in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Old {
    /// It stays.
    Kept,
    /// Traps, but for springboards: the proof that nothing reaches it.
    Poisoned,
}

/// The file of `image` with `new` segments and `patches`; traps stand in the ranges that are `poisoned`, and
/// the program starts at `entry`, if it is to start elsewhere.
///
/// # Errors
/// If its program headers cannot be extended, or what is to change is not in the file.
pub fn write(
    image: &Image,
    new: &NewSegments,
    patches: &[Patch],
    poisoned: &[Range<Va>],
    moves: Moves<'_>,
    entry: Option<Va>,
) -> Result<Vec<u8>, RewriteError> {
    let bad = |why: &str| RewriteError::headers(image, why);
    let mut out = image.file_bytes().to_vec();
    for range in poisoned {
        let len = range.end.since(range.start);
        let bytes = in_file(image, &mut out, range.start, usize::try_from(len).unwrap_or(usize::MAX));
        bytes.ok_or_else(|| bad("code without bytes"))?.fill(emit::TRAP);
    }
    for p in patches {
        let bytes = in_file(image, &mut out, p.at, p.new.len());
        bytes.ok_or_else(|| bad("a patch outside the file"))?.copy_from_slice(&p.new);
    }
    let text_off = append(&mut out, new.text.at, &new.text.bytes);
    let tables_off = (text_off + new.text.bytes.len() as u64).next_multiple_of(PAGE);
    let tables = Tables::new(image, new, text_off, tables_off)?;
    append(&mut out, new.tables, &tables.bytes);
    let sections = symbols::sections(image.file_bytes(), &mut out, &parts(new, text_off, tables_off), moves);

    let header = FileHeader64::<LE>::parse(image.file_bytes()).map_err(|e| bad(&e.to_string()))?;
    let mut header = *header;
    header.e_phoff.set(LE, tables_off);
    header.e_phnum = U16::new(LE, tables.n_headers);
    if let Some((at, n)) = sections {
        header.e_shoff.set(LE, at);
        header.e_shnum.set(LE, n);
    }
    if let Some(entry) = entry {
        header.e_entry.set(LE, entry.0);
    }
    let raw = object::pod::bytes_of(&header);
    out.get_mut(..raw.len()).ok_or_else(|| bad("no header"))?.copy_from_slice(raw);
    Ok(out)
}

/// The `len` bytes at `at`, in the copy `out` of the file.
fn in_file<'o>(image: &Image, out: &'o mut [u8], at: Va, len: usize) -> Option<&'o mut [u8]> {
    let segment = image.segment_at(at)?;
    let into = at.since(segment.range.start);
    let from = (into < segment.file_len).then(|| usize::try_from(segment.offset.0 + into).ok()).flatten()?;
    out.get_mut(from..from.checked_add(len)?)
}

/// Appends the segment at `at`; returns its offset, which is as far into a page as `at` is.
fn append(out: &mut Vec<u8>, at: Va, bytes: &[u8]) -> u64 {
    let offset = (out.len() as u64).next_multiple_of(PAGE) + at.0 % PAGE;
    out.resize(usize::try_from(offset).expect("files fit into memory"), 0);
    out.extend(bytes);
    offset
}

/// What gets sections.
fn parts(new: &NewSegments, text_off: u64, tables_off: u64) -> Parts {
    let part = |into: usize, len: usize| Part {
        at: new.unwind_at().plus(into as u64),
        offset: tables_off + PAGE + into as u64,
        len: len as u64,
    };
    Parts {
        text: Part { at: new.text.at, offset: text_off, len: new.text.bytes.len() as u64 },
        search: part(0, new.unwind.header_len),
        rows: part(new.unwind.header_len, new.unwind.rows_len),
    }
}
