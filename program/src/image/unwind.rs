//! `.eh_frame` and the tables it leads to: which code belongs together, and where exceptions land.
//!
//! Source: LSB 5.0, 10.6 (`.eh_frame`, `.eh_frame_hdr`); Itanium C++ ABI, exception handling, level II
//! (LSDA).
#![warn(clippy::indexing_slicing)]

use super::headers::{Headers, LE};
use super::{CallSite, Image, UnwindRange};
use crate::addr::Va;
use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EhFrameOffset, LittleEndian, Pointer, UnwindSection as _};
use object::elf;
use object::read::elf::{ProgramHeader as _, SectionHeader as _};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

/// What unwind tables say, and where they are.
pub struct Unwind {
    /// The unwind ranges of a file, by address.
    pub ranges: Vec<UnwindRange>,
    /// The tables that they were read from; without sections, to the end of what the file has there.
    pub tables: Vec<Range<Va>>,
    /// What was read of these tables, and of those that they lead to (LSDA).
    pub held: Vec<Range<Va>>,
}

/// Tables of call sites of one program are this close together.
const NEAR: u64 = 0x1000;

/// The unwind ranges of a file, and where the tables lie that they were read from.
///
/// A row that makes no sense is skipped. The table is the section of that name, or where the header of
/// PT_GNU_EH_FRAME says it is.
pub fn parse(image: &Image, headers: &Headers) -> Unwind {
    let segment = headers.segments.iter().find(|p| p.p_type(LE) == elf::PT_GNU_EH_FRAME);
    let hdr_at = segment.map(|p| Va(p.p_vaddr(LE)));
    let bases = bases(image, hdr_at);
    let hdr_bytes = hdr_at.and_then(|at| image.bytes_from(at)).unwrap_or_default();
    let hdr = EhFrameHdr::new(hdr_bytes, LittleEndian).parse(&bases, 8).ok();
    let mut tables: Vec<(Va, &[u8])> = Vec::new();
    for (name, h) in &headers.sections {
        let start = Va(h.sh_addr(LE));
        if name == ".eh_frame" || h.sh_type(LE) == elf::SHT_X86_64_UNWIND && name != ".eh_frame_hdr" {
            let len = usize::try_from(h.sh_size(LE)).unwrap_or(0);
            tables.extend(image.bytes_from(start).and_then(|b| b.get(..len)).map(|b| (start, b)));
        }
    }
    tables.dedup_by_key(|t| t.0);
    let mut listed: Vec<Va> = Vec::new();
    if let Some(hdr) = &hdr
        && let Some(at) = address(image, hdr.eh_frame_ptr())
    {
        if !tables.iter().any(|t| t.0 == at) {
            tables.extend(image.bytes_from(at).map(|b| (at, b)));
        }
        if let Some(table) = hdr.table() {
            let mut rows = table.iter(&bases);
            while let Ok(Some((_, fde))) = rows.next() {
                listed.extend(address(image, fde));
            }
        }
    }
    if tables.is_empty() && headers.sections.is_empty() {
        tables.extend(by_first_cie(image));
    }
    let places = tables.iter().map(|(at, bytes)| *at..at.plus(bytes.len() as u64)).collect();
    let mut found = Vec::new();
    let mut held = Vec::new();
    let mut call_sites: Vec<Range<Va>> = Vec::new();
    let mut call_sites_left = image.file_bytes().len();
    for (at, bytes) in tables {
        let bases = bases.clone().set_eh_frame(at.0);
        let frames = EhFrame::new(bytes, LittleEndian);
        let end = at.plus(bytes.len() as u64);
        let mut offsets = rows(bytes);
        offsets.extend(
            listed.iter().filter(|r| (at..end).contains(r)).filter_map(|r| usize::try_from(r.since(at)).ok()),
        );
        let mut last = 0;
        let mut cies: HashMap<usize, Option<gimli::CommonInformationEntry<Slice<'_>>>> = HashMap::new();
        for offset in offsets {
            let fde = frames.fde_from_offset(&bases, EhFrameOffset(offset), |frames, bases, cie| {
                let parsed = cies.entry(cie.0).or_insert_with(|| frames.cie_from_offset(bases, cie).ok());
                parsed.clone().ok_or(gimli::Error::NotCieId(cie.0 as u64))
            });
            let Ok(fde) = fde else { continue };
            let start = Va(fde.initial_address());
            let range = start..start.plus(fde.len());
            if range.end <= range.start || image.bytes_in(&range).is_none() {
                continue;
            }
            let lsda = fde.lsda().and_then(|p| address(image, p)).filter(|l| l.0 != 0);
            let read = lsda.and_then(|l| sites_of(image, l, start, &mut call_sites_left));
            call_sites.extend(read.iter().map(|read| read.1.clone()));
            let landing = read.map_or_else(Vec::new, |read| read.0);
            last = last.max(offset.saturating_add(4 + fde.entry_len()));
            found.push(UnwindRange {
                range,
                landing: landing.into(),
                signal: fde.is_signal_trampoline(),
                at_entry: starts_at_entry(fde.instructions(&frames, &bases)),
            });
        }
        held.push(at..at.plus(last as u64));
    }
    held.extend(near_together(call_sites));
    found.sort_by_key(|r| (r.range.start, r.range.end));
    found.dedup_by(|b, a| a.range == b.range);
    Unwind { ranges: found, tables: places, held }
}

/// What addresses in the tables are relative to.
fn bases(image: &Image, hdr_at: Option<Va>) -> BaseAddresses {
    let mut bases = BaseAddresses::default();
    if let Some(section) = image.sections.iter().find(|s| s.name == ".text") {
        bases = bases.set_text(section.range.start.0);
    }
    if let Some(section) = image.sections.iter().find(|s| s.name == ".got") {
        bases = bases.set_got(section.range.start.0);
    }
    if let Some(at) = hdr_at {
        bases = bases.set_eh_frame_hdr(at.0);
    }
    bases
}

/// Tables of call sites that are near together as one, with what handlers need between.
fn near_together(mut tables: Vec<Range<Va>>) -> Vec<Range<Va>> {
    tables.sort_unstable_by_key(|r| r.start);
    tables.dedup_by(|b, a| {
        let is_near = b.start.since(a.start) <= a.end.since(a.start).saturating_add(NEAR);
        if is_near {
            a.end = a.end.max(b.end);
        }
        is_near
    });
    tables
}

/// Whether an unwind table begins as that of a function does: the caller's frame is 8 bytes above the stack
/// pointer, and one byte of code, a push or nothing, makes it 16 at most. A cold part may start with a
/// padding byte before its real first row.
fn starts_at_entry(mut instructions: gimli::CallFrameInstructionIter<'_, Slice<'_>>) -> bool {
    use gimli::CallFrameInstruction as Cfi;
    let mut room = 8;
    while let Ok(Some(instruction)) = instructions.next() {
        match instruction {
            Cfi::AdvanceLoc { delta: 1 } if room == 8 => room = 16,
            Cfi::AdvanceLoc { .. } | Cfi::SetLoc { .. } => break,
            Cfi::DefCfa { register, offset: 8 } if register.0 == crate::arch::DWARF_STACK_POINTER => {}
            Cfi::DefCfaOffset { offset } if offset <= room => {}
            Cfi::DefCfa { .. }
            | Cfi::DefCfaOffset { .. }
            | Cfi::DefCfaRegister { .. }
            | Cfi::DefCfaExpression { .. } => return false,
            _ => {}
        }
    }
    true
}

/// The table of a file with neither section headers nor PT_GNU_EH_FRAME (static programs): where the first
/// CIE stands that compilers write for x86-64: no factor for code, −8 for data, return address in column 16.
fn by_first_cie(image: &Image) -> Option<(Va, &[u8])> {
    let cie = |augmentation: &[u8]| [b"\0\0\0\0\x01", augmentation, b"\0\x01\x78\x10"].concat();
    let first = |s: &super::Segment| {
        let bytes = image.bytes_from(s.range.start)?;
        let at =
            [b"zR".as_slice(), b"zPLR"].iter().filter_map(|a| memchr::memmem::find(bytes, &cie(a))).min()?;
        let at = at.checked_sub(4)?;
        Some((s.range.start.plus(at as u64), bytes.get(at..)?))
    };
    image.segments.iter().find_map(first)
}

fn address(image: &Image, pointer: Pointer) -> Option<Va> {
    match pointer {
        Pointer::Direct(at) => Some(Va(at)),
        Pointer::Indirect(at) => image.address_at(Va(at)),
    }
}

/// Offsets of the FDEs, by walking from length to length. A terminator in the middle is stepped over.
fn rows(bytes: &[u8]) -> BTreeSet<usize> {
    let mut offsets = BTreeSet::new();
    let mut at = 0usize;
    let u32_at = |at: usize| bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
    let u64_at = |at: usize| bytes.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
    while let Some(len) = u32_at(at) {
        let (body, len) = match len {
            0xffff_ffff => (at.saturating_add(12), u64_at(at + 4).unwrap_or(u64::MAX)),
            len => (at + 4, u64::from(len)),
        };
        let end =
            usize::try_from(len).ok().and_then(|len| body.checked_add(len)).filter(|&e| e <= bytes.len());
        let Some(end) = end else { break };
        if len >= 4 && u32_at(body).is_some_and(|cie| cie != 0) {
            offsets.insert(at);
        }
        at = end;
    }
    offsets
}

/// The call sites of an LSDA that have a landing pad, and where the table of all of them is.
///
/// `left` bounds how many are read in all: every honest one takes at least four bytes of the file.
fn sites_of(image: &Image, lsda: Va, function: Va, left: &mut usize) -> Option<(Vec<CallSite>, Range<Va>)> {
    let bytes = image.bytes_from(lsda)?;
    let mut at = Cursor { image, bytes, at: 0, base: lsda, function };
    let pads_start = at.pointer_by_encoding()?.unwrap_or(function);
    let types = at.u8()?;
    if types != gimli::DW_EH_PE_omit.0 {
        at.uleb()?;
    }
    let encoding = at.u8()?;
    let len = usize::try_from(at.uleb()?).ok()?;
    let end = at.at.checked_add(len).filter(|&e| e <= bytes.len())?;
    let mut found = Vec::new();
    while at.at < end {
        *left = left.checked_sub(1)?;
        let start = function.plus(at.offset(encoding)?);
        let len = at.offset(encoding)?;
        let pad = at.offset(encoding)?;
        at.uleb()?;
        let range = start..start.plus(len);
        if pad != 0 && range.end > range.start {
            let pad = pads_start.plus(pad);
            if image.is_code(pad) && image.is_code(start) {
                found.push(CallSite { range, pad });
            }
        }
    }
    Some((found, lsda..lsda.plus(end as u64)))
}

/// A place in an LSDA.
struct Cursor<'a> {
    image: &'a Image,
    bytes: &'a [u8],
    at: usize,
    base: Va,
    function: Va,
}

impl Cursor<'_> {
    fn u8(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }
    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(bytes)
    }
    fn uleb(&mut self) -> Option<u64> {
        self.read(|rest| gimli::leb128::read::unsigned(rest))
    }
    fn sleb(&mut self) -> Option<u64> {
        self.read(|rest| gimli::leb128::read::signed(rest)).map(i64::cast_unsigned)
    }
    /// What `read` takes from the bytes that follow.
    fn read<T>(&mut self, read: impl Fn(&mut Slice<'_>) -> gimli::Result<T>) -> Option<T> {
        let mut rest = Slice::new(self.bytes.get(self.at..)?, LittleEndian);
        let value = read(&mut rest).ok()?;
        self.at = self.bytes.len() - rest.len();
        Some(value)
    }
    /// A value without a base, in the format of the low four bits of `encoding`.
    fn offset(&mut self, encoding: u8) -> Option<u64> {
        Some(match gimli::DwEhPe(encoding & 0x0f) {
            gimli::DW_EH_PE_absptr | gimli::DW_EH_PE_udata8 | gimli::DW_EH_PE_sdata8 => {
                u64::from_le_bytes(self.fixed()?)
            }
            gimli::DW_EH_PE_uleb128 => self.uleb()?,
            gimli::DW_EH_PE_sleb128 => self.sleb()?,
            gimli::DW_EH_PE_udata2 => u64::from(u16::from_le_bytes(self.fixed()?)),
            gimli::DW_EH_PE_sdata2 => i64::from(i16::from_le_bytes(self.fixed()?)).cast_unsigned(),
            gimli::DW_EH_PE_udata4 => u64::from(u32::from_le_bytes(self.fixed()?)),
            gimli::DW_EH_PE_sdata4 => i64::from(i32::from_le_bytes(self.fixed()?)).cast_unsigned(),
            _ => return None,
        })
    }
    /// An encoding and the pointer in it; `Some(None)` if it is left out.
    fn pointer_by_encoding(&mut self) -> Option<Option<Va>> {
        let encoding = self.u8()?;
        if encoding == gimli::DW_EH_PE_omit.0 {
            return Some(None);
        }
        let place = self.base.plus(self.at as u64);
        let value = self.offset(encoding)?;
        let at = match gimli::DwEhPe(encoding & 0x70) {
            gimli::DW_EH_PE_absptr => Va(value),
            gimli::DW_EH_PE_pcrel => place.plus(value),
            gimli::DW_EH_PE_funcrel => self.function.plus(value),
            _ => return None,
        };
        Some(if encoding & 0x80 == 0 { Some(at) } else { self.image.address_at(at) })
    }
}
