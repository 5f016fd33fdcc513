//! An ELF file as the analysis sees it: bytes at addresses, symbols, relocations, unwind ranges.
//!
//! Invariant: made once from bytes that are ours; nothing is read from the file again, so a file
//! that changes or shrinks later cannot hurt. Everything is range-checked here, once.
//!
//! Source: System V ABI, chapters 4 and 5; AMD64 supplement 4.
//!
//! Not here: what the code means (`discovery`).
#![warn(clippy::indexing_slicing)]

mod debug;
pub(crate) mod dwarf;
mod dynamic;
mod elf;
mod exports;
mod go;
mod headers;
mod memory;
mod plt;
mod realigned;
mod restartable;
#[cfg(test)]
mod tests;
mod unwind;

pub use dynamic::is_libc_file;
pub use exports::{Defined, Definition, exports};
pub use memory::Read;
pub use realigned::Realigned;
pub use restartable::{Restartable, RestartableSequences};

use crate::addr::{FileOff, LiveVa, Va};
use crate::recorded_lines::RecordedLines;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Not an ELF file at all.
    #[error("{name} is no ELF file: {}", looks(start))]
    NotElf {
        /// The file.
        name: String,
        /// Its first bytes, at most four.
        start: Vec<u8>,
    },
    /// ELF, but not what we analyse.
    #[error(
        "{name} is {what}; only 64-bit little-endian x86-64 executables and shared objects can be analysed"
    )]
    Unsupported {
        /// The file.
        name: String,
        /// What it is, with an article.
        what: String,
    },
    /// ELF, but a table in it is cut off or contradicts itself.
    #[error("{name} is damaged: {what} at {at}")]
    Damaged {
        /// The file.
        name: String,
        /// Which part.
        what: String,
        /// Where that part should be.
        at: FileOff,
    },
    /// A module of a process, of which a part is not in memory.
    #[error("{name} cannot be read from memory: {what} at {at}")]
    NotInMemory {
        /// The module.
        name: String,
        /// Which part.
        what: String,
        /// Where that part should be.
        at: LiveVa,
    },
}

/// What a file starts with, in words: text as text, anything else as what it is known for.
fn looks(start: &[u8]) -> String {
    match start {
        [] => "it is empty".to_owned(),
        [b'#', b'!', ..] => "it is a script".to_owned(),
        [b'P', b'K', ..] => "it is a zip archive".to_owned(),
        [0x1f, 0x8b, ..] => "it is compressed with gzip".to_owned(),
        [b'M', b'Z', ..] => "it is a program for Windows".to_owned(),
        [b'!', b'<', ..] => "it is an archive of object files".to_owned(),
        [0xcf | 0xce, 0xfa, 0xed, 0xfe] => "it is a program for macOS".to_owned(),
        text if text.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) => {
            format!("it is text that starts with {:?}", String::from_utf8_lossy(text))
        }
        other => {
            let hex: Vec<String> = other.iter().map(|b| format!("{b:02x}")).collect();
            format!("its first bytes are {} in hexadecimal, an ELF file's 7f 45 4c 46", hex.join(" "))
        }
    }
}

impl LoadError {
    /// What the reader of the message can do about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Damaged { .. } => {
                Some("copy or build the file again; `readelf -lS` shows what is left of it")
            }
            Self::NotElf { .. } => Some("name the executable or shared object itself"),
            Self::NotInMemory { .. } => {
                Some("the process may have ended or unmapped it meanwhile: try again")
            }
            Self::Unsupported { .. } => Some("`file` tells what it is; link object files first"),
            _ => None,
        }
    }
}

/// Identity of an image: a hash of its executable segments, so that it holds for stripped files too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId(pub u128);

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What sort of file it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// At fixed addresses, with a dynamic linker.
    Executable,
    /// Position-independent, with a dynamic linker.
    Pie,
    /// At fixed addresses, without a dynamic linker.
    Static,
    /// Position-independent, without a dynamic linker.
    StaticPie,
    /// A shared object.
    SharedObject,
}

impl Kind {
    /// Whether addresses written in it are moved when it is loaded.
    pub fn is_relocated(self) -> bool {
        matches!(self, Kind::Pie | Kind::StaticPie | Kind::SharedObject)
    }
    /// Whether no dynamic linker runs before it.
    pub fn is_static(self) -> bool {
        matches!(self, Kind::Static | Kind::StaticPie)
    }
}

/// A loaded part of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// Addresses it takes up in memory.
    pub range: Range<Va>,
    /// Where its bytes start in the file.
    pub offset: FileOff,
    /// How many of its bytes are in the file; the rest is zero.
    pub file_len: u64,
    /// May be run.
    pub executable: bool,
    /// May be written.
    pub writable: bool,
}

/// A section that is loaded. Files may have none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub range: Range<Va>,
    /// Holds code.
    pub executable: bool,
    /// May be written.
    pub writable: bool,
    /// Has no bytes in the file (`.bss`).
    pub zero: bool,
    /// Of mergeable strings.
    pub strings: bool,
}

/// What a symbol stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SymbolKind {
    /// STT_FUNC.
    Function,
    /// STT_GNU_IFUNC: its resolver.
    IndirectFunction,
    /// STT_OBJECT.
    Object,
    /// STT_FILE.
    File,
    /// STT_NOTYPE.
    Untyped,
    /// STT_TLS, STT_SECTION and others.
    Other,
}

/// A defined symbol, or a file symbol. In the order of the table, `.symtab` before `.dynsym`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Symbol {
    /// Name, without version.
    pub name: Box<str>,
    /// Its address.
    pub at: Va,
    /// Its size in bytes, 0 if not given.
    pub len: u64,
    /// What it stands for.
    pub kind: SymbolKind,
    /// STB_LOCAL.
    pub local: bool,
    /// From `.dynsym`.
    pub dynamic: bool,
}

/// What the dynamic linker writes to a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RelocationTo {
    /// An address of this image.
    Address(Va),
    /// The address of an imported or exported symbol, by name; with the address (addend included) if it is
    /// defined here.
    Symbol(Arc<str>, Option<Va>),
    /// What the resolver at this address returns.
    Resolver(Va),
    /// Anything else.
    Other,
}

/// A dynamic relocation; sorted by place.
#[derive(Clone, Debug)]
pub struct Relocation {
    /// The place.
    pub at: Va,
    /// What is written there.
    pub to: RelocationTo,
}

/// A PLT stub: it jumps where its slot says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PltStub {
    /// Its addresses, with the padding that makes all stubs equally long.
    pub range: Range<Va>,
    /// The import's name. `None` for the parts that only the dynamic linker uses (the first entry, and the
    /// halves of lazy IBT stubs that push a number), and where the slot belongs to a resolver without a name.
    pub import: Option<Box<str>>,
    /// The slot it jumps through; `None` for the parts that only the dynamic linker uses.
    pub slot: Option<Va>,
}

impl PltStub {
    /// Whether it is the head of the table, or another part that the dynamic linker alone uses: known, and no
    /// function.
    pub fn is_linkers(&self) -> bool {
        self.slot.is_none()
    }
}

/// What `.eh_frame` says of a piece of code.
#[derive(Clone, Debug)]
pub struct UnwindRange {
    /// The code.
    pub range: Range<Va>,
    /// Its call-site table: where control goes when a call throws.
    pub landing: Box<[CallSite]>,
    /// A signal frame ('S' augmentation).
    pub signal: bool,
    /// Its first row is that of a function's entry: false for the cold part of a function that has a frame.
    pub at_entry: bool,
}

/// A row of an LSDA's call-site table.
#[derive(Clone, Debug)]
pub struct CallSite {
    /// Instructions covered.
    pub range: Range<Va>,
    /// Where an exception raised there lands.
    pub pad: Va,
}

/// An ELF file, loaded and checked.
#[derive(Debug)]
pub struct Image {
    /// File name for messages.
    pub name: String,
    /// Identity by content of the code.
    pub id: ImageId,
    /// GNU build-id, if the file has one.
    pub build_id: Option<Vec<u8>>,
    /// What sort of file it is.
    pub kind: Kind,
    /// Entry point, if there is one.
    pub entry: Option<Va>,
    /// Loaded segments, by address, without overlaps.
    pub segments: Vec<Segment>,
    /// What is written while it is loaded, and never again (PT_GNU_RELRO).
    pub relro: Vec<Range<Va>>,
    /// Loaded sections, by address.
    pub sections: Vec<Section>,
    /// Whether the file ends before its table of sections does: then nothing is known of them.
    pub sections_cut: bool,
    /// Defined symbols and file symbols, in table order.
    pub symbols: Vec<Symbol>,
    /// Dynamic relocations, by place, one a place.
    pub relocations: Vec<Relocation>,
    /// Imports that the C library defined when the file was linked, sorted; another module may still define
    /// them for it ([`Image::interpose`]).
    pub libc_imports: Vec<Box<str>>,
    /// Functions named by DT_INIT, DT_FINI and the init and fini arrays, by address.
    pub init_fini: Vec<Va>,
    /// PLT stubs, by address.
    pub plt: Vec<PltStub>,
    /// Code that the kernel has start again where a thread was interrupted in it.
    pub restartable: RestartableSequences,
    /// Unwind ranges, by address.
    pub unwind: Vec<UnwindRange>,
    /// Starts and names of functions in Go's own table, by address.
    pub go_functions: Vec<(Va, Box<str>)>,
    /// What `.comment` says of compilers, each once; for Rust and Go also what the file holds besides.
    pub compilers: Vec<String>,
    /// What was left out while loading, and why: damaged tables, debug files of another build.
    pub notes: Vec<String>,
    /// The file of debug information that belongs to this one, where it was found.
    pub debug_file: Option<PathBuf>,
    /// The dynamic linker it asks for.
    pub interpreter: Option<PathBuf>,
    unwind_tables: Vec<Range<Va>>,
    /// Without sections: where the linker's other tables are, which hold no pointers to code of ours.
    linkers_tables: Vec<Range<Va>>,
    code: Vec<Range<Va>>,
    bytes: Vec<u8>,
    /// If these are not the bytes of the file, but of some functions: where they belong.
    kept: Option<Kept>,
    /// Whether these are not the bytes of a file, but what a process has of it in memory.
    is_of_memory: bool,
}

/// What a recording kept of an image, beside its head.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Code, by address: its range, and where its bytes start.
    pub(crate) pieces: Vec<(Range<Va>, usize)>,
    /// The source lines of that code, if they were known.
    pub(crate) lines: Option<Arc<RecordedLines>>,
}

impl Image {
    /// Of which only `bytes` are known, as `kept` says; its other tables are empty.
    pub(crate) fn of_excerpt(
        name: String,
        id: ImageId,
        kind: Kind,
        bytes: Vec<u8>,
        kept: Kept,
        code: Vec<Range<Va>>,
    ) -> Image {
        Image {
            name,
            id,
            build_id: None,
            kind,
            entry: None,
            segments: Vec::new(),
            relro: Vec::new(),
            sections_cut: false,
            sections: Vec::new(),
            symbols: Vec::new(),
            relocations: Vec::new(),
            libc_imports: Vec::new(),
            init_fini: Vec::new(),
            restartable: RestartableSequences::default(),
            plt: Vec::new(),
            unwind: Vec::new(),
            go_functions: Vec::new(),
            compilers: Vec::new(),
            notes: Vec::new(),
            debug_file: None,
            interpreter: None,
            unwind_tables: Vec::new(),
            linkers_tables: Vec::new(),
            code,
            bytes,
            kept: Some(kept),
            is_of_memory: false,
        }
    }

    /// The lines that a recording kept, if this is what it kept of an image.
    pub(crate) fn recorded_lines(&self) -> Option<Option<&Arc<RecordedLines>>> {
        self.kept.as_ref().map(|kept| kept.lines.as_ref())
    }

    /// Whether the import of this name is the C library's, not that of a library which calls a function of
    /// its own so.
    pub fn is_libc_import(&self, name: &str) -> bool {
        self.libc_imports.binary_search_by(|n| (**n).cmp(name)).is_ok()
    }

    /// Imports of these `names`, sorted, are other modules' that come before the C library, which define
    /// them, too: they are none of the C library's. Returns those that there are.
    pub fn interpose(&mut self, names: &[Box<str>]) -> Vec<Box<str>> {
        let is_taken = |name: &mut Box<str>| names.binary_search(name).is_ok();
        self.libc_imports.extract_if(.., is_taken).collect()
    }

    /// Whether the word at `at` is what the file and its relocations say for as long as the program runs.
    pub fn is_constant(&self, at: Va) -> bool {
        self.segment_at(at).is_some_and(|s| !s.writable) || self.relro.iter().any(|r| r.contains(&at))
    }

    /// Whether it was read from a process's memory: then it has no sections, and offsets are not the file's.
    pub fn is_of_memory(&self) -> bool {
        self.is_of_memory
    }

    /// The file's bytes, as they were when it was loaded; of an excerpt, the code that was kept.
    pub fn file_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes that the section of this name has in the file, also one that is not loaded.
    pub fn section_in_file(&self, name: &str) -> Option<&[u8]> {
        if self.is_of_memory {
            return None;
        }
        let headers = headers::headers(&self.bytes, &self.name, true).ok()?;
        headers::section_bytes(&self.bytes, headers.section(name)?)
    }

    /// The segment that holds `at`.
    pub fn segment_at(&self, at: Va) -> Option<&Segment> {
        let i = self.segments.partition_point(|s| s.range.end <= at);
        self.segments.get(i).filter(|s| s.range.contains(&at))
    }

    /// The section that holds `at`.
    pub fn section_at(&self, at: Va) -> Option<&Section> {
        let i = self.sections.partition_point(|s| s.range.end <= at);
        self.sections.get(i).filter(|s| s.range.contains(&at))
    }

    /// The bytes from `at` to the end of what its segment has in the file.
    pub fn bytes_from(&self, at: Va) -> Option<&[u8]> {
        if let Some(kept) = &self.kept {
            let i = kept.pieces.partition_point(|(range, _)| range.end <= at);
            let (range, from) = kept.pieces.get(i).filter(|(range, _)| range.contains(&at))?;
            let place = |va: Va| from.checked_add(usize::try_from(va.since(range.start)).ok()?);
            return self.bytes.get(place(at)?..place(range.end)?);
        }
        let segment = self.segment_at(at)?;
        let into = at.since(segment.range.start);
        let from = usize::try_from(segment.offset.0.checked_add(into)?).ok()?;
        let len = usize::try_from(segment.file_len.checked_sub(into)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }

    /// The bytes of `range`, all of them or none.
    pub fn bytes_in(&self, range: &Range<Va>) -> Option<&[u8]> {
        let len = usize::try_from(range.end.0.checked_sub(range.start.0)?).ok()?;
        self.bytes_from(range.start)?.get(..len)
    }

    /// The little-endian word of 8 bytes at `at`.
    pub fn word_at(&self, at: Va) -> Option<u64> {
        self.bytes_from(at)?.first_chunk().map(|b| u64::from_le_bytes(*b))
    }

    /// The word at `at` as the running program sees it: relocated, if it is an address of this image.
    pub fn address_at(&self, at: Va) -> Option<Va> {
        match self.relocation_at(at).map(|r| &r.to) {
            Some(RelocationTo::Address(to) | RelocationTo::Symbol(_, Some(to))) => Some(*to),
            Some(_) => None,
            None => self.word_at(at).map(Va),
        }
    }

    /// Whether `at` lies in code.
    pub fn is_code(&self, at: Va) -> bool {
        let i = self.code.partition_point(|r| r.end <= at);
        self.code.get(i).is_some_and(|r| r.contains(&at))
    }

    /// The relocation at exactly `at`.
    pub fn relocation_at(&self, at: Va) -> Option<&Relocation> {
        let i = self.relocations.binary_search_by_key(&at, |r| r.at).ok()?;
        self.relocations.get(i)
    }

    /// The tables that `unwind` was read from: their addresses and bytes.
    pub fn unwind_tables(&self) -> Vec<(Va, &[u8])> {
        self.unwind_tables.iter().filter_map(|r| Some((r.start, self.bytes_in(r)?))).collect()
    }

    /// Those parts of `range` in which the linker's tables are not.
    pub(crate) fn without_linkers_tables(&self, range: Range<Va>) -> Vec<Range<Va>> {
        let mut parts = Vec::new();
        let mut at = range.start;
        for table in self.linkers_tables.iter().filter(|t| t.start < range.end && range.start < t.end) {
            parts.push(at..table.start.max(at));
            at = at.max(table.end);
        }
        parts.push(at..range.end.max(at));
        parts.retain(|part| part.start < part.end);
        parts
    }

    /// Runs of code, by address: executable sections, or executable segments where there are no sections.
    pub fn code_ranges(&self) -> Vec<Range<Va>> {
        self.code.clone()
    }
}
