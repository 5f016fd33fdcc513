//! The ELF header, the two tables that it leads to, and the records of symbols and notes.
//!
//! Invariant: no count, size or offset of the file is believed before it was compared with the file's length.
#![warn(clippy::indexing_slicing)]

use super::{LoadError, Symbol, SymbolKind};
use crate::addr::{FileOff, Va};
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::{LittleEndian, pod};

pub(super) const LE: LittleEndian = LittleEndian;
pub(super) type Phdr = ProgramHeader64<LittleEndian>;
pub(super) type Shdr = SectionHeader64<LittleEndian>;

/// The header and the two tables it points to, copied.
pub(super) struct Headers {
    pub file: FileHeader64<LittleEndian>,
    pub segments: Vec<Phdr>,
    /// All sections, also those that are not loaded, with their names.
    pub sections: Vec<(String, Shdr)>,
    /// Whether the file ends before its table of sections does: then there are none.
    pub sections_cut: bool,
}

impl Headers {
    /// The first section of this name.
    pub fn section(&self, name: &str) -> Option<&Shdr> {
        self.sections.iter().find(|(n, _)| n == name).map(|(_, h)| h)
    }
}

/// The bytes a section has in the file.
pub(super) fn section_bytes<'a>(bytes: &'a [u8], h: &Shdr) -> Option<&'a [u8]> {
    if h.sh_type(LE) == elf::SHT_NOBITS {
        return None;
    }
    let from = usize::try_from(h.sh_offset(LE)).ok()?;
    let len = usize::try_from(h.sh_size(LE)).ok()?;
    bytes.get(from..from.checked_add(len)?)
}

/// As many whole records as `bytes` has.
pub(super) fn records<T: pod::Pod>(bytes: &[u8]) -> &[T] {
    let n = bytes.len() / size_of::<T>();
    pod::slice_from_bytes(bytes, n).map(|(records, _)| records).unwrap_or_default()
}

/// The bytes of `table` from `offset` to the next zero, as text.
pub(super) fn string_at(table: &[u8], offset: u32) -> Option<std::borrow::Cow<'_, str>> {
    let rest = table.get(usize::try_from(offset).ok()?..)?;
    let len = memchr::memchr(0, rest)?;
    rest.get(..len).map(String::from_utf8_lossy)
}

/// Its ELF header, if it is a file that we analyse.
pub(super) fn file_header(bytes: &[u8], name: &str) -> Result<FileHeader64<LittleEndian>, LoadError> {
    let damaged = |what: &str, at: u64| LoadError::Damaged {
        name: name.to_owned(),
        what: what.to_owned(),
        at: FileOff(at),
    };
    if !bytes.starts_with(b"\x7fELF") {
        let start = bytes.iter().take(4).copied().collect();
        return Err(LoadError::NotElf { name: name.to_owned(), start });
    }
    let unsupported = |what: &str| LoadError::Unsupported { name: name.to_owned(), what: what.to_owned() };
    match (bytes.get(4), bytes.get(5)) {
        (Some(2), Some(1)) => {}
        (Some(1), Some(2)) => return Err(unsupported("a big-endian 32-bit file")),
        (Some(1), Some(_)) => return Err(unsupported("a 32-bit file")),
        (Some(2), Some(2)) => return Err(unsupported("a big-endian file")),
        _ => return Err(damaged("the ELF header", 4)),
    }
    let file = FileHeader64::<LittleEndian>::parse(bytes).map_err(|_| damaged("the ELF header", 0))?;
    if file.e_machine(LE) != elf::EM_X86_64 {
        return Err(unsupported(&format!("for another machine (e_machine {})", file.e_machine(LE))));
    }
    match file.e_type(LE) {
        elf::ET_EXEC | elf::ET_DYN => {}
        elf::ET_REL => return Err(unsupported("an object file")),
        elf::ET_CORE => return Err(unsupported("a core file")),
        other => return Err(unsupported(&format!("of unknown type {other}"))),
    }
    Ok(*file)
}

/// Checks what the file is, and copies its headers. A file of debug information without code is refused, or
/// wanted.
pub(super) fn headers(bytes: &[u8], name: &str, debug_wanted: bool) -> Result<Headers, LoadError> {
    let damaged = |what: &str, at: u64| LoadError::Damaged {
        name: name.to_owned(),
        what: what.to_owned(),
        at: FileOff(at),
    };
    let unsupported = |what: &str| LoadError::Unsupported { name: name.to_owned(), what: what.to_owned() };
    let file = file_header(bytes, name)?;
    let segments = file
        .program_headers(LE, bytes)
        .map_err(|_| damaged("the program header table", file.e_phoff(LE)))?
        .to_vec();
    // Who loads it does not look at them; of a file of debug information, nothing else is of use.
    let table = file.section_headers(LE, bytes);
    let sections_cut = table.is_err();
    if sections_cut && debug_wanted {
        return Err(damaged("the section header table", file.e_shoff(LE)));
    }
    let headers = table.unwrap_or_default();
    let names = file
        .section_strings_index(LE, bytes)
        .ok()
        .and_then(|i| headers.get(i.0))
        .and_then(|h| section_bytes(bytes, h))
        .unwrap_or_default();
    let mut sections = Vec::with_capacity(headers.len());
    for h in headers {
        if h.sh_type(LE) != elf::SHT_NOBITS
            && h.sh_type(LE) != elf::SHT_NULL
            && section_bytes(bytes, h).is_none()
        {
            return Err(damaged("a section that the file is too short for", h.sh_offset(LE)));
        }
        // Names longer than this are nobody's, and could be as long as the file, once a section.
        let name = string_at(names, h.sh_name(LE)).filter(|n| n.len() <= 256).unwrap_or_default();
        sections.push((name.into_owned(), *h));
    }
    let is_debug = |(name, h): &(String, Shdr)| {
        name == ".text" && h.sh_type(LE) == elf::SHT_NOBITS && h.sh_flags(LE).contains(elf::SHF_EXECINSTR)
    };
    if sections.iter().any(is_debug) && !debug_wanted {
        return Err(unsupported("a file of debug information without code"));
    }
    Ok(Headers { file, segments, sections, sections_cut })
}

/// The symbols of `.symtab`.
pub(super) fn symtab(headers: &Headers, bytes: &[u8], names_left: &mut usize) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    let table = headers.sections.iter().find(|(_, h)| h.sh_type(LE) == elf::SHT_SYMTAB);
    let Some((_, table)) = table else { return symbols };
    let strings = usize::try_from(table.sh_link(LE)).ok().and_then(|i| headers.sections.get(i));
    let strings = strings.and_then(|(_, h)| section_bytes(bytes, h)).unwrap_or_default();
    for sym in records::<Sym64<LittleEndian>>(section_bytes(bytes, table).unwrap_or_default()) {
        symbols.extend(symbol(sym, strings, false, names_left));
    }
    symbols
}

/// The symbol, unless it is undefined.
pub(super) fn symbol(
    sym: &Sym64<LittleEndian>,
    strings: &[u8],
    dynamic: bool,
    names_left: &mut usize,
) -> Option<Symbol> {
    let absolute = sym.st_shndx(LE) == elf::SHN_ABS || sym.st_shndx(LE) == elf::SHN_COMMON;
    let kind = match sym.st_type() {
        elf::STT_FILE => SymbolKind::File,
        _ if absolute => SymbolKind::Other,
        elf::STT_FUNC => SymbolKind::Function,
        elf::STT_GNU_IFUNC => SymbolKind::IndirectFunction,
        elf::STT_OBJECT => SymbolKind::Object,
        elf::STT_NOTYPE => SymbolKind::Untyped,
        _ => SymbolKind::Other,
    };
    if sym.st_shndx(LE) == elf::SHN_UNDEF && kind != SymbolKind::File {
        return None;
    }
    let name = string_at(strings, sym.st_name(LE)).unwrap_or_default();
    let Some(left) = names_left.checked_sub(name.len()) else {
        *names_left = 0;
        return None;
    };
    *names_left = left;
    Some(Symbol {
        name: name.into(),
        at: Va(sym.st_value(LE)),
        len: sym.st_size(LE),
        kind,
        local: sym.st_bind() == elf::STB_LOCAL,
        dynamic,
    })
}

pub(super) fn build_id(headers: &Headers, bytes: &[u8]) -> Option<Vec<u8>> {
    let from_segment = |p: &Phdr| p.notes(LE, bytes).ok().flatten();
    let from_section = |(_, h): &(String, Shdr)| h.notes(LE, bytes).ok().flatten();
    let tables = headers.segments.iter().filter_map(from_segment);
    for mut notes in tables.chain(headers.sections.iter().filter_map(from_section)) {
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc().to_vec());
            }
        }
    }
    None
}
