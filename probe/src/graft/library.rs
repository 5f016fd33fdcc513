//! A shared object, as the dynamic linker would lay it out.

use super::{Binding, Graft, GraftError, Kind, Name, Part, To};
use crate::arch;
use crate::arch::shared::PAGE;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _, Sym as _, VersionTable};
use object::{Object as _, ObjectSegment as _, RelocationFlags, RelocationTarget, SymbolIndex};
use program::image::{Kind as ImageKind, RelocationTo, SymbolKind};
use program::{Image, Va};
use std::collections::HashMap;

const WHAT: &str = "a shared object for x86-64 Linux";

type File<'d> = ElfFile64<'d, LE>;

impl Graft {
    /// What the shared object `bytes`, called `name`, has.
    ///
    /// # Errors
    /// If it is none, or one of which not all can be had so.
    pub fn of_library(name: &str, bytes: &[u8]) -> Result<Graft, GraftError> {
        let not_one = |why: String| GraftError::NotOne { name: name.to_owned(), what: WHAT, why };
        let image = Image::parse(bytes.to_vec(), name).map_err(|err| not_one(err.to_string()))?;
        if image.kind != ImageKind::SharedObject {
            return Err(not_one("it is a program".to_owned()));
        }
        let file = File::parse(bytes).map_err(|err| not_one(err.to_string()))?;
        let kinds = || file.elf_program_headers().iter().map(|header| header.p_type(LE));
        if kinds().any(|kind| kind == elf::PT_TLS) {
            return Err(GraftError::DefinesThreadData { name: name.to_owned() });
        }
        if image.sections.is_empty() {
            // By them alone it is known how long its tables are.
            return Err(not_one("it has no section headers".to_owned()));
        }
        if has_constructors(&image) {
            return Err(GraftError::Constructors { name: name.to_owned() });
        }
        let parts = parts(&file, &not_one)?;
        let mut graft = Graft { parts, bytes: bytes.to_vec(), ..Graft::of_code(name, &[]) };
        // What it relocates by itself, packed ones too.
        for relocation in &image.relocations {
            if let RelocationTo::Address(to) = relocation.to {
                graft.bindings.push(Binding {
                    at: relocation.at.0,
                    kind: Kind::Word,
                    to: To::Own(to.0),
                    addend: 0,
                });
            }
        }
        graft.bind(&file)?;
        for symbol in image.symbols.iter().filter(|symbol| symbol.dynamic) {
            graft.defined.insert(symbol.name.clone(), symbol.at.0);
            let is_one = matches!(symbol.kind, SymbolKind::Function | SymbolKind::Untyped);
            if is_one && graft.parts.iter().any(|part| part.executable && part.has(symbol.at.0)) {
                graft.functions.insert(symbol.name.clone());
            }
        }
        let code: Vec<&Part> = graft.parts.iter().filter(|part| part.executable).collect();
        graft.code = match (code.first(), code.last()) {
            (Some(first), Some(last)) => first.at..last.end(),
            _ => return Err(not_one("it has no code".to_owned())),
        };
        let unwind =
            file.elf_program_headers().iter().find(|header| header.p_type(LE) == elf::PT_GNU_EH_FRAME);
        graft.unwind = unwind.map(|header| header.p_vaddr(LE));
        Ok(graft)
    }

    /// Takes over the relocations of `file` that name symbols.
    fn bind(&mut self, file: &File<'_>) -> Result<(), GraftError> {
        let versions = versions(file);
        let mut known: HashMap<SymbolIndex, To> = HashMap::new();
        for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            let kind = match r_type {
                elf::R_X86_64_NONE | elf::R_X86_64_RELATIVE | elf::R_X86_64_RELATIVE64 => continue,
                elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT => Kind::Word,
                elf::R_X86_64_TPOFF64 => Kind::FromThread,
                elf::R_X86_64_DTPMOD64 => Kind::Module,
                elf::R_X86_64_DTPOFF64 => Kind::WithinModule,
                other => {
                    return Err(GraftError::Relocation { name: self.name.clone(), at, kind: other.0 });
                }
            };
            let RelocationTarget::Symbol(index) = relocation.target() else {
                return Err(self.damaged("a relocation names no symbol"));
            };
            let to = match known.get(&index) {
                Some(to) => *to,
                None => {
                    let to = self.meant(file, versions.as_ref(), index)?;
                    known.insert(index, to);
                    to
                }
            };
            let addend = match r_type {
                // Source: AMD64 supplement, table 4.9: S alone.
                elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT => 0,
                _ => relocation.addend(),
            };
            self.bindings.push(Binding { at, kind, to, addend });
        }
        Ok(())
    }

    /// What symbol `index` of `file` is.
    fn meant(
        &mut self,
        file: &File<'_>,
        versions: Option<&VersionTable<'_, FileHeader64<LE>>>,
        index: SymbolIndex,
    ) -> Result<To, GraftError> {
        let table = file.elf_dynamic_symbol_table();
        let symbol = table.symbol(index).map_err(|err| self.damaged(&err.to_string()))?;
        // What it defines itself it uses itself, whoever else has the name.
        if symbol.st_shndx(LE) != elf::SHN_UNDEF {
            if symbol.st_type() == elf::STT_GNU_IFUNC {
                let name = table.symbol_name(LE, symbol).unwrap_or_default();
                let why = "is chosen by a resolver, which nobody would run".to_owned();
                return Err(self.unbound(String::from_utf8_lossy(name).into_owned(), &why));
            }
            return Ok(To::Own(symbol.st_value(LE)));
        }
        let name = table.symbol_name(LE, symbol).map_err(|err| self.damaged(&err.to_string()))?;
        let version = versions.and_then(|versions| {
            let version = versions.version(versions.version_index(LE, index).index()).ok().flatten()?;
            Some(String::from_utf8_lossy(version.name()).into())
        });
        self.names.push(Name {
            name: String::from_utf8_lossy(name).into(),
            version,
            is_weak: symbol.st_bind() == elf::STB_WEAK,
            is_of_threads: symbol.st_type() == elf::STT_TLS,
        });
        Ok(To::Name(self.names.len() - 1))
    }
}

/// Which versions the symbols of `file` have.
fn versions<'d>(file: &File<'d>) -> Option<VersionTable<'d, FileHeader64<LE>>> {
    let data = file.data();
    let sections = file.elf_header().sections(LE, data).ok()?;
    sections.versions(LE, data).ok().flatten()
}

/// What of `file` is loaded: whole pages, of which those that two segments share have the rights of both.
fn parts(file: &File<'_>, not_one: &impl Fn(String) -> GraftError) -> Result<Vec<Part>, GraftError> {
    /// No file that somebody replaces a function by is larger.
    const MOST: u64 = 1 << 30;
    let mut parts: Vec<Part> = Vec::new();
    for segment in file.segments() {
        let (at, len) = (segment.address(), segment.size());
        let start = at / PAGE * PAGE;
        if at.checked_add(len).is_none_or(|end| end > MOST) {
            return Err(not_one("it is too large".to_owned()));
        }
        if parts.last().is_some_and(|last| start < last.end()) {
            return Err(not_one("two of its segments share a page".to_owned()));
        }
        let data = segment.data().map_err(|err| not_one(err.to_string()))?;
        let mut bytes = vec![0; usize::try_from(at - start).unwrap_or(0)];
        bytes.extend_from_slice(data);
        let object::SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
        let rights = (p_flags.contains(elf::PF_W), p_flags.contains(elf::PF_X));
        parts.push(Part::new(start, bytes, at - start + len, rights));
    }
    Ok(parts)
}

/// Whether `image` has more to run at its start than what compilers put into every library, which does
/// nothing where nothing has registered for it.
fn has_constructors(image: &Image) -> bool {
    let word = |at| image.relocation_at(at).map(|relocation| &relocation.to);
    let sections = image.sections.iter().filter(|section| matches!(&*section.name, ".init_array" | ".ctors"));
    let mut entries = sections.flat_map(|section| {
        let n = section.range.end.since(section.range.start) / 8;
        (0..n).map(|k| section.range.start.plus(8 * k))
    });
    entries.any(|at| match word(at) {
        Some(RelocationTo::Address(to)) => {
            !arch::registers_clones(to.0, |at| image.bytes_from(Va(at)).unwrap_or_default())
        }
        _ => true,
    })
}
