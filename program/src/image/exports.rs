//! Names that a file defines for other modules, read without the rest of it.
//!
//! Source: System V ABI, chapter 5 (symbol interposition: the first module in search order that defines a
//! name is taken).

use super::{Image, LoadError};
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSymbol as _};
use std::path::Path;

impl Image {
    /// The names that it defines for other modules.
    pub fn exports(&self) -> impl Iterator<Item = &str> {
        self.symbols.iter().filter(|s| s.dynamic && !s.local).map(|s| &*s.name)
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
