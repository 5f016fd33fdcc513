//! Names that a file defines for other modules, read without the rest of it.
//!
//! Source: System V ABI, chapter 5 (symbol interposition: the first module in search order that defines a name is taken).

use super::LoadError;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSymbol as _, ReadCache};
use std::collections::BTreeSet;
use std::path::Path;

/// The names that the file at `path` defines for other modules.
///
/// # Errors
/// [`LoadError::Unreadable`], also if it is no 64-bit ELF file that can be taken apart.
pub fn exports(path: &Path) -> Result<BTreeSet<Box<str>>, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let file = ReadCache::new(std::fs::File::open(path).map_err(unreadable)?);
    let file =
        ElfFile64::<LittleEndian, _>::parse(&file).map_err(|err| unreadable(std::io::Error::other(err)))?;
    let defined = file.dynamic_symbols().filter(|s| !s.is_undefined() && !s.is_local());
    Ok(defined.filter_map(|s| s.name().ok().map(Box::from)).collect())
}
