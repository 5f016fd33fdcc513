//! Names that a file defines for other modules, read without the rest of it.
//!
//! Source: System V ABI, chapter 5 (symbol interposition: the first module in search order that defines a
//! name is taken).

use super::{Image, LoadError};
use crate::addr::Va;
use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _, Sym as _};
use object::{LittleEndian, LittleEndian as LE, Object as _, ObjectSymbol as _, SymbolIndex};
use std::path::Path;

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defined {
    /// A function or data.
    Here,
    /// A function that returns where it is (STT_GNU_IFUNC).
    Resolver,
    /// A variable of each thread's own: its address is one within these (STT_TLS).
    OfThreads,
}

/// A name that a file defines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// The name, without version.
    pub name: Box<str>,
    /// Which version of it.
    pub version: Option<Box<str>>,
    /// Whether whoever names no version means this one.
    pub is_default: bool,
    /// Where.
    pub at: Va,
    /// What.
    pub defined: Defined,
    /// Whether it is for other modules; else only `.symtab` has it.
    pub is_exported: bool,
}

impl Image {
    /// The names that it defines for other modules.
    pub fn exports(&self) -> impl Iterator<Item = &str> {
        self.symbols.iter().filter(|s| s.dynamic && !s.local).map(|s| &*s.name)
    }
}

impl Image {
    /// What it defines under those names that are `wanted`, for others or itself.
    pub fn definitions(&self, wanted: impl Fn(&str) -> bool) -> Vec<Definition> {
        let bytes = self.file_bytes();
        let Ok(file) = ElfFile64::<LittleEndian>::parse(bytes) else { return Vec::new() };
        let sections = file.elf_header().sections(LE, bytes).ok();
        let versions = sections.and_then(|sections| sections.versions(LE, bytes).ok().flatten());
        let version = |index: SymbolIndex| {
            let index = versions.as_ref()?.version_index(LE, index);
            let name = versions.as_ref()?.version(index.index()).ok().flatten()?.name();
            Some((String::from_utf8_lossy(name).into(), !index.is_hidden()))
        };
        let tables = [(file.elf_dynamic_symbol_table(), true), (file.elf_symbol_table(), false)];
        let mut found = Vec::new();
        for (table, is_dynamic) in tables {
            for (index, symbol) in table.enumerate() {
                let defined = match symbol.st_type() {
                    elf::STT_FUNC | elf::STT_OBJECT | elf::STT_NOTYPE => Defined::Here,
                    elf::STT_GNU_IFUNC => Defined::Resolver,
                    elf::STT_TLS => Defined::OfThreads,
                    _ => continue,
                };
                let name = table.symbol_name(LE, symbol).ok().and_then(|name| std::str::from_utf8(name).ok());
                let Some(name) = name.filter(|name| symbol.st_shndx(LE) != elf::SHN_UNDEF && wanted(name))
                else {
                    continue;
                };
                let version = if is_dynamic { version(index) } else { None };
                found.push(Definition {
                    name: name.into(),
                    is_default: version.as_ref().is_none_or(|(_, is_default)| *is_default),
                    version: version.map(|(name, _)| name),
                    at: Va(symbol.st_value(LE)),
                    defined,
                    is_exported: is_dynamic && symbol.st_bind() != elf::STB_LOCAL,
                });
            }
        }
        found
    }

    /// How far below a thread pointer the memory starts that threads have of an executable, if it has any.
    ///
    /// Source: U. Drepper, "ELF handling for thread-local storage", 3.4.6 (variant II), for the first module.
    pub fn thread_data_below(&self) -> Option<u64> {
        let bytes = self.file_bytes();
        let headers = FileHeader64::<LE>::parse(bytes).ok()?.program_headers(LE, bytes).ok()?;
        let tls = headers.iter().find(|header| header.p_type(LE) == elf::PT_TLS)?;
        let (len, at) = (tls.p_memsz(LE), tls.p_vaddr(LE));
        let align = tls.p_align(LE).max(1);
        // The least number from `len` on that is congruent to −`at`, so that the block is aligned as its file
        // is.
        let rest = len.wrapping_add(at) % align;
        Some(if rest == 0 { len } else { len.checked_add(align - rest)? })
    }
}

/// Those of the names that the file at `path` defines for other modules that are `wanted`.
///
/// # Errors
/// [`LoadError`], if it cannot be read.
pub fn exports(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<Box<str>>, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let bytes = std::fs::read(path).map_err(unreadable)?;
    // Symbols are found by section headers here.
    let found =
        ElfFile64::<LittleEndian>::parse(&*bytes).ok().filter(|file| file.dynamic_symbol_table().is_some());
    let Some(file) = found else {
        let image = Image::load(path)?;
        return Ok(image.exports().filter(|name| wanted(name)).map(Box::from).collect());
    };
    let defined = file.dynamic_symbols().filter(|s| !s.is_undefined() && !s.is_local());
    Ok(defined.filter_map(|s| s.name().ok()).filter(|name| wanted(name)).map(Box::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::process::Command;

    #[test]
    fn what_is_defined_is_found_also_without_section_headers() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (source, file) = (folder.path().join("a.c"), folder.path().join("a.so"));
        let text = "int strlen(char *p) { return 1; } static int strspn(void) { return 2; } int memcmp(void);
            int other(void) { return strspn() + memcmp(); }";
        std::fs::write(&source, text).expect("written");
        let flags = ["-w", "-O0", "-fno-builtin", "-shared", "-fPIC", "-o"];
        let made = Command::new("gcc").args(flags).arg(&file).arg(&source).status();
        assert!(made.expect("gcc runs").success());
        let found = || {
            let asked = |name: &str| ["strlen", "strspn", "memcmp"].contains(&name);
            let read: BTreeSet<Box<str>> = exports(&file, asked).expect("read").into_iter().collect();
            let image = Image::load(&file).expect("loaded");
            (read, image.exports().filter(|name| asked(name)).map(Box::from).collect::<BTreeSet<Box<str>>>())
        };
        let strlen = BTreeSet::from([Box::from("strlen")]);
        assert_eq!(found(), (strlen.clone(), strlen.clone()));
        let mut bytes = std::fs::read(&file).expect("there");
        // e_shoff, e_shnum, e_shstrndx.
        for field in [0x28..0x30, 0x3c..0x40] {
            bytes.get_mut(field).expect("a header").fill(0);
        }
        std::fs::write(&file, bytes).expect("written");
        assert_eq!(found(), (strlen.clone(), strlen));
    }
}
