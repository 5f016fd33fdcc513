//! Images without a file: a module as a process has it in memory, and code that was made while it ran.
//!
//! Memory has what program headers load, and no sections: functions are found as in a file whose section
//! headers were stripped. What the dynamic linker has written there is taken back where the module itself
//! says that it has (dynamic section, relocations): the image equals the file's, but for what the program has
//! changed since.
//!
//! Invariant: as of a file, nothing is believed before it was compared with what could be read; the process
//! may change meanwhile.
//!
//! Source: System V ABI, chapter 5; glibc, elf/get-dynamic-info.h (which entries are relocated in place).
//!
//! Not here: whose memory it is and how it is read (`live`); which of it is a module (`session`).
#![warn(clippy::indexing_slicing)]

use super::headers::{Headers, LE, Phdr, file_header, records};
use super::{Image, Kind, LoadError, RestartableSequences, Segment, Symbol, SymbolKind, debug, elf::id_of};
use crate::addr::{Bias, FileOff, LiveVa, Va};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::ProgramHeader as _;
use std::ops::Range;
use std::path::Path;

/// Fills the bytes with what is in memory from there on; says whether all of it could be read.
pub type Read<'r> = &'r dyn Fn(LiveVa, &mut [u8]) -> bool;

/// What an ELF header takes.
const HEADER: usize = 64;
/// What an entry of the program header table takes.
const ENTRY: usize = 56;
/// No module is larger: what says so is no header.
const MOST: u64 = 2 << 30;
/// How much is read at once, and what can be missing alone.
const CHUNK: usize = 1 << 20;
const PAGE: usize = 0x1000;

/// Entries of a dynamic section that hold addresses, which dynamic linkers relocate in place.
const ADDRESSES: [i64; 18] = [
    elf::DT_PLTGOT.0,
    elf::DT_HASH.0,
    elf::DT_STRTAB.0,
    elf::DT_SYMTAB.0,
    elf::DT_RELA.0,
    elf::DT_INIT.0,
    elf::DT_FINI.0,
    elf::DT_REL.0,
    elf::DT_JMPREL.0,
    elf::DT_INIT_ARRAY.0,
    elf::DT_FINI_ARRAY.0,
    elf::DT_PREINIT_ARRAY.0,
    elf::DT_RELR.0,
    elf::DT_GNU_HASH.0,
    elf::DT_VERSYM.0,
    elf::DT_VERDEF.0,
    elf::DT_VERNEED.0,
    elf::DT_TLSDESC_PLT.0,
];

impl Image {
    /// The module whose ELF header is at `header`, and how far it was moved. `table` says where in memory is
    /// what its file has at an offset, as far as that is known; `name` is a file's, if there is one, whose
    /// debug file is looked for.
    ///
    /// # Errors
    /// [`LoadError::NotInMemory`] if a part of it that is needed cannot be read; else as of a file.
    pub fn from_memory(
        name: &str,
        header: LiveVa,
        table: impl Fn(FileOff) -> Option<LiveVa>,
        read: Read<'_>,
    ) -> Result<(Image, Bias), LoadError> {
        let Layout { file, mut segments, bias } = Layout::read(name, header, table, read)?;
        let (mut bytes, unread) = contents(name, &mut segments, bias, read)?;
        take_back_addresses(&mut bytes, &segments, bias);
        let headers = Headers { file, segments, sections: Vec::new(), sections_cut: false };
        let mut image = Image::from_headers(bytes, &headers, name, Some(bias))?;
        let hole = |r: &Range<LiveVa>| {
            format!("{} bytes at {} could not be read: taken for zeros", r.end.0 - r.start.0, r.start)
        };
        image.notes.extend(unread.iter().take(8).map(hole));
        image.is_of_memory = true;
        debug::attach(&mut image, &headers, Path::new(name));
        Ok((image, bias))
    }

    /// Where in memory the module is whose ELF header is at `header`, if one is there; `table` as above.
    pub fn extent_in_memory(
        header: LiveVa,
        table: impl Fn(FileOff) -> Option<LiveVa>,
        read: Read<'_>,
    ) -> Option<Range<LiveVa>> {
        let Layout { segments, bias, .. } = Layout::read("", header, table, read).ok()?;
        let loaded = || segments.iter().filter(|p| p.p_type(LE) == elf::PT_LOAD && p.p_memsz(LE) > 0);
        loaded().find(|p| p.p_flags(LE).contains(elf::PF_X))?;
        let start = loaded().map(|p| p.p_vaddr(LE)).min()?;
        let end = loaded().map(|p| p.p_vaddr(LE).saturating_add(p.p_memsz(LE))).max()?;
        let [start, end] = [start / PAGE as u64 * PAGE as u64, end.checked_next_multiple_of(PAGE as u64)?];
        let range = bias.to_live(Va(start))..bias.to_live(Va(end));
        (range.start < range.end).then_some(range)
    }

    /// Code that was made at run time, which nothing describes but names: `parts` with their bytes, without
    /// overlaps, and functions in them.
    pub fn of_code(name: &str, parts: Vec<(Va, Vec<u8>)>, functions: Vec<(Range<Va>, Box<str>)>) -> Image {
        let mut parts = parts;
        parts.sort_by_key(|part| part.0);
        let mut bytes = Vec::new();
        let mut segments: Vec<Segment> = Vec::new();
        for (start, part) in parts {
            segments.push(Segment {
                range: start..start.plus(part.len() as u64),
                offset: FileOff(bytes.len() as u64),
                file_len: part.len() as u64,
                executable: true,
                writable: false,
            });
            bytes.extend(part);
        }
        let function = |(range, name): (Range<Va>, Box<str>)| Symbol {
            name,
            at: range.start,
            len: range.end.since(range.start),
            kind: SymbolKind::Function,
            local: false,
            dynamic: false,
        };
        Image {
            name: name.to_owned(),
            id: id_of(&segments, &bytes),
            build_id: None,
            // No word of it is taken for an address because it looks like one.
            kind: Kind::SharedObject,
            entry: None,
            code: segments.iter().map(|s| s.range.clone()).collect(),
            segments,
            relro: Vec::new(),
            sections: Vec::new(),
            sections_cut: false,
            symbols: functions.into_iter().map(function).collect(),
            relocations: Vec::new(),
            libc_imports: Vec::new(),
            init_fini: Vec::new(),
            plt: Vec::new(),
            restartable: RestartableSequences::default(),
            unwind: Vec::new(),
            go_functions: Vec::new(),
            compilers: Vec::new(),
            notes: Vec::new(),
            debug_file: None,
            interpreter: None,
            unwind_tables: Vec::new(),
            linkers_tables: Vec::new(),
            bytes,
            kept: None,
            is_of_memory: true,
        }
    }
}

/// What the headers in memory say.
struct Layout {
    file: FileHeader64<LittleEndian>,
    segments: Vec<Phdr>,
    bias: Bias,
}

impl Layout {
    fn read(
        name: &str,
        header: LiveVa,
        table: impl Fn(FileOff) -> Option<LiveVa>,
        read: Read<'_>,
    ) -> Result<Layout, LoadError> {
        let damaged = |what: &str, at: u64| LoadError::Damaged {
            name: name.to_owned(),
            what: what.to_owned(),
            at: FileOff(at),
        };
        let mut first = [0; HEADER];
        if !read(header, &mut first) {
            return Err(missing(name, "its ELF header", header));
        }
        let file = file_header(&first, name)?;
        let (phoff, n) = (file.e_phoff.get(LE), usize::from(file.e_phnum.get(LE)));
        if usize::from(file.e_phentsize.get(LE)) != ENTRY || n == 0 || n == usize::from(elf::PN_XNUM) {
            return Err(damaged("the program header table", phoff));
        }
        let at = table(FileOff(phoff)).unwrap_or(LiveVa(header.0.wrapping_add(phoff)));
        let mut rows = vec![0; n * ENTRY];
        if !read(at, &mut rows) {
            return Err(missing(name, "its program header table", at));
        }
        let segments: Vec<Phdr> = records::<Phdr>(&rows).to_vec();
        let loads = |p: &&Phdr| p.p_type(LE) == elf::PT_LOAD;
        let Some(start) = segments.iter().filter(loads).find(|p| p.p_offset(LE) < PAGE as u64) else {
            return Err(damaged("the program header table (nothing that it loads has the header)", phoff));
        };
        let bias = Bias::between(Va(start.p_vaddr(LE).wrapping_sub(start.p_offset(LE))), header);
        if segments.iter().filter(loads).map(|p| p.p_filesz(LE)).fold(0, u64::saturating_add) > MOST {
            return Err(damaged("the program header table (it loads more than 2 GiB)", phoff));
        }
        Ok(Layout { file, segments, bias })
    }
}

fn missing(name: &str, what: &str, at: LiveVa) -> LoadError {
    LoadError::NotInMemory { name: name.to_owned(), what: what.to_owned(), at }
}

/// What is in memory of the segments, one behind the other, to where their offsets are changed; and what
/// could not be read of it.
fn contents(
    name: &str,
    segments: &mut [Phdr],
    bias: Bias,
    read: Read<'_>,
) -> Result<(Vec<u8>, Vec<Range<LiveVa>>), LoadError> {
    let mut bytes = Vec::new();
    let mut unread = Vec::new();
    let mut placed: Vec<(Range<u64>, u64)> = Vec::new();
    // The header first, wherever its segment is.
    let mut order: Vec<&Phdr> = segments.iter().filter(|p| p.p_type(LE) == elf::PT_LOAD).collect();
    order.sort_by_key(|p| (p.p_offset(LE), p.p_vaddr(LE)));
    for p in order {
        let (va, len) = (p.p_vaddr(LE), p.p_filesz(LE).min(p.p_memsz(LE)));
        let to = bytes.len() as u64;
        let holes = append(&mut bytes, bias.to_live(Va(va)), len, read);
        if let (Some(hole), true) = (holes.first(), p.p_flags(LE).contains(elf::PF_X)) {
            return Err(missing(name, "code", hole.start));
        }
        unread.extend(holes);
        placed.push((va..va.saturating_add(len), to));
    }
    for p in segments {
        let va = p.p_vaddr(LE);
        let holds = |range: &Range<u64>| range.contains(&va) || range.is_empty() && range.start == va;
        match placed.iter().find(|(range, _)| holds(range)) {
            Some((range, to)) => p.p_offset.set(LE, to + (va - range.start)),
            None => {
                p.p_offset.set(LE, 0);
                p.p_filesz.set(LE, 0);
            }
        }
    }
    Ok((bytes, unread))
}

/// Appends `len` bytes of memory from `at` on; zeros where nothing can be read, which is returned.
fn append(bytes: &mut Vec<u8>, at: LiveVa, len: u64, read: Read<'_>) -> Vec<Range<LiveVa>> {
    let mut holes: Vec<Range<LiveVa>> = Vec::new();
    let mut done = 0;
    while done < len {
        let n = CHUNK.min(usize::try_from(len - done).unwrap_or(CHUNK));
        let (from, live) = (bytes.len(), LiveVa(at.0.wrapping_add(done)));
        bytes.resize(from + n, 0);
        let chunk = bytes.get_mut(from..).unwrap_or_default();
        if !read(live, chunk) {
            let mut page = live.0;
            // Pages of memory, not of the chunk.
            let mut rest = chunk;
            while !rest.is_empty() {
                let to_next = PAGE - usize::try_from(page % PAGE as u64).unwrap_or(0);
                let (part, behind) = rest.split_at_mut(to_next.min(rest.len()));
                if !read(LiveVa(page), part) {
                    part.fill(0);
                    let end = page.wrapping_add(part.len() as u64);
                    match holes.last_mut().filter(|hole| hole.end.0 == page) {
                        Some(hole) => hole.end = LiveVa(end),
                        None => holes.push(LiveVa(page)..LiveVa(end)),
                    }
                }
                page = page.wrapping_add(part.len() as u64);
                rest = behind;
            }
        }
        done += n as u64;
    }
    holes
}

/// Makes addresses of the image of those live ones that the dynamic linker has put into the dynamic section.
fn take_back_addresses(bytes: &mut [u8], segments: &[Phdr], bias: Bias) {
    let Some(dynamic) = segments.iter().find(|p| p.p_type(LE) == elf::PT_DYNAMIC) else { return };
    let place = usize::try_from(dynamic.p_offset(LE)).unwrap_or(usize::MAX);
    let len = usize::try_from(dynamic.p_filesz(LE)).unwrap_or(0);
    let Some(rows) = place.checked_add(len).and_then(|end| bytes.get_mut(place..end)) else { return };
    let holds = |at: Va| {
        let is_in = |p: &Phdr| at.0.wrapping_sub(p.p_vaddr(LE)) < p.p_memsz(LE);
        segments.iter().any(|p| p.p_type(LE) == elf::PT_LOAD && is_in(p))
    };
    for row in rows.as_chunks_mut::<16>().0 {
        let (tag, value) = row.split_at_mut(8);
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let (tag, old) = (word(tag).cast_signed(), word(value));
        if tag == elf::DT_NULL.0 {
            break;
        }
        let new = match bias.to_image(LiveVa(old)) {
            to if ADDRESSES.contains(&tag) && !holds(Va(old)) && holds(to) => to.0,
            // The list of modules, which debuggers look for there.
            _ if tag == elf::DT_DEBUG.0 => 0,
            _ => old,
        };
        value.copy_from_slice(&new.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
