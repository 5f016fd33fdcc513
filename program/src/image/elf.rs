//! From bytes to an [`Image`]: segments, sections, what kind of file it is; the other files of this folder do
//! the rest.
//!
//! Invariant: no count, size or offset of the file is believed before it was compared with the file's length,
//! and what is kept is proportional to that length.
#![warn(clippy::indexing_slicing)]

use super::headers::{Headers, LE, build_id, headers, section_bytes, symtab};
use super::{Image, ImageId, Kind, LoadError, RestartableSequences, Section, Segment};
use super::{debug, dynamic, go, plt, restartable, unwind};
use crate::addr::{Bias, FileOff, Va};
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use std::ops::Range;
use std::path::Path;
use std::path::PathBuf;

impl Image {
    /// Reads and parses the file at `path`; symbols that it lacks are taken from its debug file, if that is
    /// there.
    ///
    /// # Errors
    /// Any [`LoadError`].
    pub fn load(path: &Path) -> Result<Image, LoadError> {
        let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
        // A device may have no end, a pipe no beginning.
        match std::fs::metadata(path) {
            Ok(m) if !m.is_file() => return Err(unreadable(std::io::Error::other("it is no regular file"))),
            _ => {}
        }
        let bytes = std::fs::read(path).map_err(unreadable)?;
        let name = path.display().to_string();
        let headers = headers(&bytes, &name, false)?;
        let mut image = Image::from_headers(bytes, &headers, &name, None)?;
        debug::attach(&mut image, &headers, path);
        Ok(image)
    }

    /// Parses an ELF file that was read into `bytes`. `name` is for messages.
    ///
    /// # Errors
    /// [`LoadError::NotElf`], [`LoadError::Unsupported`], [`LoadError::Damaged`].
    pub fn parse(bytes: Vec<u8>, name: &str) -> Result<Image, LoadError> {
        let headers = headers(&bytes, name, false)?;
        Image::from_headers(bytes, &headers, name, None)
    }

    /// From `bytes`, at whose offsets the headers' segments are; as a dynamic linker left them that has moved
    /// it, if one has.
    pub(super) fn from_headers(
        bytes: Vec<u8>,
        headers: &Headers,
        name: &str,
        moved: Option<Bias>,
    ) -> Result<Image, LoadError> {
        let mut notes = Vec::new();
        if headers.sections_cut {
            notes.push(format!("sections: their table at {:#x} is cut off", headers.file.e_shoff(LE)));
        }
        let segments = segments(headers, &bytes, name)?;
        let sections = sections(headers, &segments, &mut notes);
        let mut image = Image {
            name: name.to_owned(),
            id: id_of(&segments, &bytes),
            build_id: build_id(headers, &bytes),
            kind: Kind::SharedObject,
            entry: Some(Va(headers.file.e_entry(LE))).filter(|e| e.0 != 0),
            code: code_ranges(&sections, &segments),
            relro: relro(headers),
            segments,
            sections,
            sections_cut: headers.sections_cut,
            symbols: Vec::new(),
            relocations: Vec::new(),
            libc_imports: Vec::new(),
            init_fini: Vec::new(),
            plt: Vec::new(),
            restartable: RestartableSequences::default(),
            unwind: Vec::new(),
            unwind_tables: Vec::new(),
            linkers_tables: Vec::new(),
            go_functions: Vec::new(),
            compilers: Vec::new(),
            notes,
            debug_file: None,
            interpreter: interpreter(headers, &bytes),
            bytes,
            kept: None,
            is_of_memory: false,
        };
        let mut names_left = image.bytes.len().saturating_mul(8).saturating_add(1 << 20);
        let mut symbols = symtab(headers, &image.bytes, &mut names_left);
        let dynamic = dynamic::Dynamic::read(&image, headers);
        if let Some(bias) = moved {
            let words = dynamic.words_of_file(&image, headers, bias);
            image.put_words(&words);
        }
        image.relocations = dynamic.relocations(&image, headers);
        symbols.extend(dynamic.symbols(&mut names_left));
        image.libc_imports = dynamic.libc_imports(&image, &mut names_left);
        if names_left == 0 {
            image.notes.push("symbol names take up more than the file: some left out".to_owned());
        }
        image.symbols = symbols;
        image.kind = kind(&image, headers, &dynamic);
        image.init_fini = dynamic.init_fini(&image, headers);
        image.plt = plt::find(&image);
        image.restartable = restartable::find(&image, headers);
        let unwind = unwind::parse(&image, headers);
        if image.sections.is_empty() {
            image.linkers_tables = linkers_tables(headers, &dynamic, &image, unwind.held);
        }
        (image.unwind, image.unwind_tables) = (unwind.ranges, unwind.tables);
        image.go_functions = go::functions(&image);
        image.compilers = compilers(&image, headers);
        Ok(image)
    }

    /// Writes words of the file in place of what the dynamic linker has made of them.
    fn put_words(&mut self, words: &[(Va, u64)]) {
        for (at, word) in words {
            let place = self.segment_at(*at).and_then(|s| {
                let into = at.since(s.range.start);
                usize::try_from(s.offset.0 + into).ok().filter(|_| into + 8 <= s.file_len)
            });
            if let Some(bytes) = place.and_then(|from| self.bytes.get_mut(from..from.checked_add(8)?)) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// A hash of the executable segments.
pub(super) fn id_of(segments: &[Segment], bytes: &[u8]) -> ImageId {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for s in segments.iter().filter(|s| s.executable) {
        hash.update(&s.range.start.0.to_le_bytes());
        let from = usize::try_from(s.offset.0).unwrap_or(usize::MAX);
        let len = usize::try_from(s.file_len).unwrap_or(usize::MAX);
        hash.update(bytes.get(from..from.saturating_add(len)).unwrap_or_default());
    }
    ImageId(hash.digest128())
}

/// Where the tables are that linkers make for dynamic linkers and unwinders, as far as program headers and
/// the dynamic section tell; by address, without overlaps. `unwind` are those of unwinders.
fn linkers_tables(
    headers: &Headers,
    dynamic: &dynamic::Dynamic,
    image: &Image,
    unwind: Vec<Range<Va>>,
) -> Vec<Range<Va>> {
    let mut all = unwind;
    let is_table = |p: &&super::headers::Phdr| {
        [elf::PT_NOTE, elf::PT_INTERP, elf::PT_GNU_EH_FRAME].contains(&p.p_type(LE))
    };
    for p in headers.segments.iter().filter(is_table) {
        all.push(Va(p.p_vaddr(LE))..Va(p.p_vaddr(LE).saturating_add(p.p_memsz(LE))));
    }
    all.extend(dynamic.tables(image));
    all.retain(|r| r.start < r.end);
    all.sort_unstable_by_key(|r| (r.start, r.end));
    all.dedup_by(|b, a| {
        let touches = b.start <= a.end;
        if touches {
            a.end = a.end.max(b.end);
        }
        touches
    });
    all
}

fn relro(headers: &Headers) -> Vec<Range<Va>> {
    let rows = headers.segments.iter().filter(|p| p.p_type(LE) == elf::PT_GNU_RELRO);
    rows.map(|p| Va(p.p_vaddr(LE))..Va(p.p_vaddr(LE).saturating_add(p.p_memsz(LE)))).collect()
}

fn segments(headers: &Headers, bytes: &[u8], name: &str) -> Result<Vec<Segment>, LoadError> {
    let damaged = |what: &str, at: u64| LoadError::Damaged {
        name: name.to_owned(),
        what: what.to_owned(),
        at: FileOff(at),
    };
    let mut segments = Vec::new();
    for p in headers.segments.iter().filter(|p| p.p_type(LE) == elf::PT_LOAD) {
        let (va, len, file_len) = (p.p_vaddr(LE), p.p_memsz(LE), p.p_filesz(LE));
        let end = va.checked_add(len).ok_or_else(|| damaged("a segment", p.p_offset(LE)))?;
        let file_end = p.p_offset(LE).checked_add(file_len);
        if file_end.is_none_or(|e| e > bytes.len() as u64) {
            return Err(damaged("a segment that the file is too short for", p.p_offset(LE)));
        }
        if len > 0 {
            segments.push(Segment {
                range: Va(va)..Va(end),
                offset: FileOff(p.p_offset(LE)),
                file_len: file_len.min(len),
                executable: p.p_flags(LE).contains(elf::PF_X),
                writable: p.p_flags(LE).contains(elf::PF_W),
            });
        }
    }
    if segments.is_empty() {
        return Err(damaged("the program header table (it loads nothing)", headers.file.e_phoff(LE)));
    }
    segments.sort_by_key(|s| s.range.start);
    for (a, b) in segments.iter().zip(segments.iter().skip(1)) {
        if b.range.start < a.range.end {
            return Err(damaged("a segment that overlaps another", b.offset.0));
        }
    }
    Ok(segments)
}

/// Sections that are loaded, those left out that lie outside all segments or over another section.
fn sections(headers: &Headers, segments: &[Segment], notes: &mut Vec<String>) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for (name, h) in &headers.sections {
        let flags = h.sh_flags(LE);
        let zero = h.sh_type(LE) == elf::SHT_NOBITS;
        if !flags.contains(elf::SHF_ALLOC) || h.sh_size(LE) == 0 || flags.contains(elf::SHF_TLS) && zero {
            continue;
        }
        let start = Va(h.sh_addr(LE));
        let end = start.0.checked_add(h.sh_size(LE)).map(Va);
        let i = segments.partition_point(|s| s.range.end <= start);
        let inside = segments.get(i).is_some_and(|s| s.range.start <= start);
        let Some(end) = end.filter(|&e| inside && segments.get(i).is_some_and(|s| e <= s.range.end)) else {
            notes.push(format!("section {name} at {start} lies in no segment: left out"));
            continue;
        };
        sections.push(Section {
            name: name.clone(),
            range: start..end,
            executable: flags.contains(elf::SHF_EXECINSTR),
            writable: flags.contains(elf::SHF_WRITE),
            zero,
            strings: flags.contains(elf::SHF_STRINGS),
        });
    }
    sections.sort_by_key(|s| s.range.start);
    let mut end = Va(0);
    sections.retain(|s| {
        let apart = s.range.start >= end;
        if apart {
            end = s.range.end;
        } else {
            notes.push(format!("section {} at {} lies over another: left out", s.name, s.range.start));
        }
        apart
    });
    sections
}

/// Runs of code: executable sections, or executable segments where there are no sections.
fn code_ranges(sections: &[Section], segments: &[Segment]) -> Vec<Range<Va>> {
    let code: Vec<_> = sections.iter().filter(|s| s.executable && !s.zero).map(|s| s.range.clone()).collect();
    if !code.is_empty() {
        return code;
    }
    let has_bytes = |s: &&Segment| s.executable && s.file_len > 0;
    segments.iter().filter(has_bytes).map(|s| s.range.start..s.range.start.plus(s.file_len)).collect()
}

/// The path in PT_INTERP.
fn interpreter(headers: &Headers, bytes: &[u8]) -> Option<PathBuf> {
    let segment = headers.segments.iter().find(|p| p.p_type(LE) == elf::PT_INTERP)?;
    let from = usize::try_from(segment.p_offset(LE)).ok()?;
    let path = bytes.get(from..)?.split(|&b| b == 0).next()?;
    Some(PathBuf::from(std::str::from_utf8(path).ok()?))
}

/// ET_DYN covers three kinds; the linker marks executables with DF_1_PIE, older ones can be told by what they
/// lack.
fn kind(image: &Image, headers: &Headers, dynamic: &dynamic::Dynamic) -> Kind {
    let interpreter = headers.segments.iter().any(|p| p.p_type(LE) == elf::PT_INTERP);
    if headers.file.e_type(LE) == elf::ET_EXEC {
        let loaded = interpreter || dynamic.value(elf::DT_NEEDED.0).is_some();
        return if loaded { Kind::Executable } else { Kind::Static };
    }
    let marked = dynamic.value(elf::DT_FLAGS_1.0).is_some_and(|f| f & elf::DF_1_PIE.0 != 0);
    // libc.so.6 and ld.so have an entry, the former an interpreter too, but they have a soname.
    let shared = dynamic.value(elf::DT_SONAME.0).is_some();
    let runs = image.entry.is_some_and(|e| image.is_code(e));
    let alone = dynamic.value(elf::DT_NEEDED.0).is_none() && !dynamic.exports();
    match (marked, interpreter) {
        (true, true) => Kind::Pie,
        (true, false) => Kind::StaticPie,
        (false, true) if !shared => Kind::Pie,
        (false, false) if !shared && runs && alone => Kind::StaticPie,
        _ => Kind::SharedObject,
    }
}

/// Lines of `.comment`, each once, and languages whose compilers leave nothing there.
fn compilers(image: &Image, headers: &Headers) -> Vec<String> {
    let comment =
        headers.section(".comment").and_then(|h| section_bytes(&image.bytes, h)).unwrap_or_default();
    let mut found: Vec<String> = Vec::new();
    for line in comment.split(|&b| b == 0).filter(|l| !l.is_empty() && l.len() <= 256).take(4096) {
        let line = String::from_utf8_lossy(line);
        if !found.iter().any(|f| *f == line) && found.len() < 64 {
            found.push(line.into_owned());
        }
    }
    // Paths of the standard library's sources in panic messages name the compiler's commit.
    if !found.iter().any(|f| f.contains("rustc")) {
        let at = memchr::memmem::find(&image.bytes, b"/rustc/").map(|at| at + b"/rustc/".len());
        let commit = at.and_then(|at| image.bytes.get(at..at + 40)).unwrap_or_default();
        if commit.len() == 40 && commit.iter().all(u8::is_ascii_hexdigit) {
            found.push(format!("rustc {}", String::from_utf8_lossy(commit)));
        }
    }
    // Source: Go, src/debug/buildinfo/buildinfo.go: the version stands inline after 32 bytes since Go 1.18.
    // Who looks for such programs holds the same words.
    let is_go = !image.go_functions.is_empty() || image.sections.iter().any(|s| s.name == ".go.buildinfo");
    if is_go && let Some(at) = memchr::memmem::find(&image.bytes, b"\xff Go buildinf:") {
        let header = image.bytes.get(at..).unwrap_or_default();
        let len =
            header.get(32).copied().filter(|&len| header.get(15).is_some_and(|f| f & 2 != 0) && len < 128);
        let version = len.and_then(|len| header.get(33..33 + usize::from(len)));
        found.push(version.map_or("Go".to_owned(), |v| String::from_utf8_lossy(v).into_owned()));
    }
    found
}
