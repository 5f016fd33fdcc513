//! A rewritten module as a file: the old one with its patches, the new segments behind it.
#![warn(clippy::indexing_slicing)]

use crate::arch::emit;
use crate::error::RewriteError;
use crate::image::NewSegments;
use crate::image::program_headers::Tables;
use crate::image::symbols::{self, Moves, Part, Parts};
use crate::layout::place::PAGE;
use crate::patch::{Memory, Patch};
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
    let mut copy = Copy { image, bytes: image.file_bytes().to_vec() };
    patches.iter().try_for_each(|p| p.check(&copy)).map_err(|_| bad("a patch outside the file"))?;
    for range in poisoned {
        let len = usize::try_from(range.end.since(range.start)).unwrap_or(usize::MAX);
        copy.place(range.start, len).map_err(|_| bad("code without bytes"))?.fill(emit::TRAP);
    }
    patches.iter().try_for_each(|p| copy.write(p.at, &p.new)).map_err(|_| bad("a patch outside the file"))?;
    let mut out = copy.bytes;
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

/// A copy of the file of `image`.
struct Copy<'a> {
    image: &'a Image,
    bytes: Vec<u8>,
}

/// Something is not in the file.
struct NotInFile;

impl Copy<'_> {
    /// Where the `len` bytes at `at` are.
    fn range(&self, at: Va, len: usize) -> Option<Range<usize>> {
        let segment = self.image.segment_at(at)?;
        let into = at.since(segment.range.start);
        let from = usize::try_from(segment.offset.0 + into).ok().filter(|_| into < segment.file_len)?;
        Some(from..from.checked_add(len)?)
    }

    fn place(&mut self, at: Va, len: usize) -> Result<&mut [u8], NotInFile> {
        let range = self.range(at, len).ok_or(NotInFile)?;
        self.bytes.get_mut(range).ok_or(NotInFile)
    }
}

impl Memory for Copy<'_> {
    type Error = NotInFile;

    fn read(&self, at: Va, bytes: &mut [u8]) -> Result<(), NotInFile> {
        let range = self.range(at, bytes.len()).ok_or(NotInFile)?;
        bytes.copy_from_slice(self.bytes.get(range).ok_or(NotInFile)?);
        Ok(())
    }

    fn write(&mut self, at: Va, bytes: &[u8]) -> Result<(), NotInFile> {
        self.place(at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }
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
