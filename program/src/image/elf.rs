//! From bytes to an [`Image`]: ELF header, segments, sections, symbols, relocations, PLT.
#![warn(clippy::indexing_slicing)]

use super::{
    Image, ImageId, Kind, LoadError, Relocation, RelocationTo, Section, Segment, Symbol, SymbolKind, unwind,
};
use crate::addr::{FileOff, Va};
use object::elf;
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::{LittleEndian, Object as _, ObjectSection as _};
use std::path::Path;

type File<'a> = ElfFile64<'a, LittleEndian>;
const LE: LittleEndian = LittleEndian;

impl Image {
    /// Reads and parses the file at `path`.
    ///
    /// # Errors
    /// Any [`LoadError`].
    pub fn load(path: &Path) -> Result<Image, LoadError> {
        let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
        let bytes = std::fs::read(path).map_err(unreadable)?;
        Image::parse(bytes, &path.display().to_string())
    }

    /// Parses an ELF file that was read into `bytes`. `name` is for messages.
    ///
    /// # Errors
    /// [`LoadError::NotElf`], [`LoadError::Unsupported`], [`LoadError::Damaged`].
    pub fn parse(bytes: Vec<u8>, name: &str) -> Result<Image, LoadError> {
        let damaged = |what: &str, at: u64| LoadError::Damaged {
            name: name.to_owned(),
            what: what.to_owned(),
            at: FileOff(at),
        };
        if !bytes.starts_with(b"\x7fELF") {
            let start = bytes.iter().take(4).copied().collect();
            return Err(LoadError::NotElf { name: name.to_owned(), start });
        }
        let unsupported =
            |what: &str| LoadError::Unsupported { name: name.to_owned(), what: what.to_owned() };
        match (bytes.get(4), bytes.get(5)) {
            (Some(2), Some(1)) => {}
            (Some(1), _) => return Err(unsupported("a 32-bit file")),
            (_, Some(2)) => return Err(unsupported("a big-endian file")),
            _ => return Err(damaged("the ELF header", 4)),
        }
        let file = File::parse(bytes.as_slice()).map_err(|e| damaged(&format!("the ELF header ({e})"), 0))?;
        let header = file.elf_header();
        if header.e_machine(LE) != elf::EM_X86_64 {
            return Err(unsupported(&format!("for another machine (e_machine {})", header.e_machine(LE))));
        }
        match header.e_type(LE) {
            elf::ET_EXEC | elf::ET_DYN => {}
            elf::ET_REL => return Err(unsupported("an object file")),
            elf::ET_CORE => return Err(unsupported("a core file")),
            other => return Err(unsupported(&format!("of unknown type {other}"))),
        }
        let mut segments = Vec::new();
        let mut interpreter = false;
        for p in file.elf_program_headers() {
            match p.p_type(LE) {
                elf::PT_INTERP => interpreter = true,
                elf::PT_LOAD => {
                    let (va, len, file_len) = (p.p_vaddr(LE), p.p_memsz(LE), p.p_filesz(LE));
                    let end = va.checked_add(len).ok_or_else(|| damaged("a segment", p.p_offset(LE)))?;
                    let file_end = p.p_offset(LE).checked_add(file_len);
                    if file_end.is_none_or(|e| e > bytes.len() as u64) {
                        return Err(damaged("a segment that the file is too short for", p.p_offset(LE)));
                    }
                    segments.push(Segment {
                        range: Va(va)..Va(end),
                        offset: FileOff(p.p_offset(LE)),
                        file_len: file_len.min(len),
                        executable: p.p_flags(LE).contains(elf::PF_X),
                        writable: p.p_flags(LE).contains(elf::PF_W),
                    });
                }
                _ => {}
            }
        }
        segments.sort_by_key(|s| s.range.start);
        let mut sections: Vec<Section> = Vec::new();
        for section in file.sections() {
            let h = section.elf_section_header();
            let flags = h.sh_flags(LE);
            if !flags.contains(elf::SHF_ALLOC)
                || h.sh_size(LE) == 0
                || flags.contains(elf::SHF_TLS) && h.sh_type(LE) == elf::SHT_NOBITS
            {
                continue;
            }
            let start = Va(h.sh_addr(LE));
            sections.push(Section {
                name: String::from_utf8_lossy(section.name_bytes().unwrap_or_default()).into_owned(),
                range: start..start.plus(h.sh_size(LE)),
                executable: flags.contains(elf::SHF_EXECINSTR),
                writable: flags.contains(elf::SHF_WRITE),
                zero: h.sh_type(LE) == elf::SHT_NOBITS,
                strings: flags.contains(elf::SHF_STRINGS),
            });
        }
        sections.sort_by_key(|s| s.range.start);
        let mut symbols = Vec::new();
        for (table, dynamic) in [(file.elf_symbol_table(), false), (file.elf_dynamic_symbol_table(), true)] {
            for sym in table.iter() {
                let kind = match sym.st_type() {
                    elf::STT_FUNC => SymbolKind::Function,
                    elf::STT_GNU_IFUNC => SymbolKind::IndirectFunction,
                    elf::STT_OBJECT => SymbolKind::Object,
                    elf::STT_FILE => SymbolKind::File,
                    elf::STT_NOTYPE => SymbolKind::Untyped,
                    _ => SymbolKind::Other,
                };
                if sym.st_shndx(LE) == elf::SHN_UNDEF && kind != SymbolKind::File {
                    continue;
                }
                let name = sym.name(LE, table.strings()).unwrap_or_default();
                symbols.push(Symbol {
                    name: String::from_utf8_lossy(name).into(),
                    at: Va(sym.st_value(LE)),
                    len: sym.st_size(LE),
                    kind,
                    local: sym.st_bind() == elf::STB_LOCAL,
                    dynamic,
                });
            }
        }
        let mut relocations = Vec::new();
        for (at, r) in file.dynamic_relocations().into_iter().flatten() {
            let to = match r.target() {
                object::RelocationTarget::Absolute => RelocationTo::Address(Va(r.addend().cast_unsigned())),
                object::RelocationTarget::Symbol(i) => match file.elf_dynamic_symbol_table().symbol(i) {
                    Ok(sym) => {
                        let name =
                            sym.name(LE, file.elf_dynamic_symbol_table().strings()).unwrap_or_default();
                        let own = (sym.st_shndx(LE) != elf::SHN_UNDEF).then(|| Va(sym.st_value(LE)));
                        RelocationTo::Symbol(String::from_utf8_lossy(name).into(), own)
                    }
                    Err(_) => RelocationTo::Other,
                },
                _ => RelocationTo::Other,
            };
            relocations.push(Relocation { at: Va(at), to });
        }
        relocations.sort_by_key(|r| r.at);
        let kind = match (header.e_type(LE), interpreter, header.e_entry(LE)) {
            (elf::ET_EXEC, true, _) => Kind::Executable,
            (elf::ET_EXEC, false, _) => Kind::Static,
            (_, true, _) => Kind::Pie,
            (_, false, 0) => Kind::SharedObject,
            _ => Kind::SharedObject,
        };
        let entry = Some(Va(header.e_entry(LE))).filter(|e| e.0 != 0);
        let build_id = file.build_id().ok().flatten().map(<[u8]>::to_vec);
        let unwind = unwind::parse(&file);
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        for s in segments.iter().filter(|s| s.executable) {
            hash.update(&s.range.start.0.to_le_bytes());
            let from = usize::try_from(s.offset.0).unwrap_or(usize::MAX);
            let len = usize::try_from(s.file_len).unwrap_or(usize::MAX);
            hash.update(bytes.get(from..from.saturating_add(len)).unwrap_or_default());
        }
        Ok(Image {
            name: name.to_owned(),
            id: ImageId(hash.digest128()),
            build_id,
            kind,
            entry,
            segments,
            sections,
            symbols,
            relocations,
            init_fini: Vec::new(),
            plt: Vec::new(),
            unwind,
            compilers: Vec::new(),
            bytes,
        })
    }
}
