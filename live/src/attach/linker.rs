//! ld.so told of moved code by its data alone, so that unwinders find the tables of that: exceptions,
//! `backtrace`, the cancelling of threads.
//!
//! - A module's `link_map`: where its program headers are, and how many, which `dl_iterate_phdr` says.
//! - The word by which the C library's `_dl_find_object` comes to ld.so's: code of ours stands in between.
//!
//! Source: glibc 2.36, include/link.h, elf/dl-find_object.c; musl 1.2, ldso/dynlink.c (`struct dso`), whose
//! list is the same. Where the fields are that are no interface is found by what they hold.

use super::AttachError;
use super::journal::{Journal, PutIn, Word};
use crate::give::{PAGE, fill};
use crate::process::{Mapping, Stopped};
use nix::libc;
use probe::arch;
use probe::arch::shared::{FINDER, FoundObject};
use program::{Image, LiveVa};
use std::ops::Range;
use std::path::Path;

/// The program headers are found by it. Source: getauxval(3), elf(5).
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const HEADER_LEN: u64 = 56;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const DT_DEBUG: u64 = 21;
/// No process has more modules.
const MOST: usize = 1 << 14;
/// So many words of a `link_map` are looked at.
const WORDS: usize = 160;

/// A program header.
struct Header {
    kind: u32,
    at: u64,
}

/// What changes in the data of ld.so for what `journal` says, in the order in which it is to change.
///
/// # Errors
/// If that cannot be found out.
pub(super) fn changes(
    stopped: &Stopped,
    process: i32,
    mappings: &[Mapping],
    journal: &Journal,
) -> Result<Vec<Word>, AttachError> {
    let maps = link_maps(stopped, process)?;
    let mut words = Vec::new();
    let mut objects = Vec::new();
    for module in &journal.modules {
        let map = maps.iter().find(|(bias, _)| *bias == module.at).map(|(_, at)| *at);
        let tables = module.live(module.segments.tables_at);
        if let Some(search) = search_table(stopped, module)? {
            let text = module.text();
            let (link_map, tables) = (map.unwrap_or(0), search);
            objects.push(FoundObject { start: text.start, end: text.end, link_map, tables });
        }
        let Some(map) = map else { continue };
        words.extend(headers_of(stopped, module, map, tables)?.into_iter().flatten());
    }
    for graft in &journal.grafts {
        if let Some(tables) = graft.unwind {
            let Range { start, end } = graft.code;
            objects.push(FoundObject { start, end, link_map: 0, tables });
        }
    }
    words.extend(finder(stopped, process, mappings, &objects)?);
    Ok(words)
}

/// Where the search table is of the unwind tables of `module`'s moved code, if it has any.
///
/// # Errors
/// If its tables cannot be read.
pub(super) fn search_table(stopped: &Stopped, module: &PutIn) -> Result<Option<u64>, AttachError> {
    let tables = module.live(module.segments.tables_at);
    let all = headers(stopped, tables, u64::from(module.segments.n_headers))?;
    Ok(all.into_iter().find(|h| h.kind == PT_GNU_EH_FRAME).map(|search| module.live(search.at)))
}

/// Of each module that ld.so has loaded: how far it was moved, and where its `link_map` is. None, where there
/// is no ld.so.
fn link_maps(stopped: &Stopped, process: i32) -> Result<Vec<(u64, u64)>, AttachError> {
    let auxiliary = std::fs::read(format!("/proc/{process}/auxv")).unwrap_or_default();
    let rows = auxiliary.as_chunks::<16>().0.iter().map(|row| {
        let word = |n: usize| row[n..n + 8].iter().rev().fold(0u64, |sum, b| sum << 8 | u64::from(*b));
        (word(0), word(8))
    });
    let (mut at, mut n) = (0, 0);
    for (tag, value) in rows {
        match tag {
            AT_PHDR => at = value,
            AT_PHNUM => n = value,
            _ => {}
        }
    }
    let all = headers(stopped, at, n)?;
    let own = all.iter().find(|h| h.kind == PT_PHDR).map(|h| h.at);
    let bias = own.map_or(0, |own| at.wrapping_sub(own));
    let Some(dynamic) = all.iter().find(|h| h.kind == PT_DYNAMIC) else { return Ok(Vec::new()) };
    let mut row = bias.wrapping_add(dynamic.at);
    let debug = loop {
        match (stopped.word(LiveVa(row))?, stopped.word(LiveVa(row + 8))?) {
            (0, _) => break 0,
            (DT_DEBUG, value) => break value,
            _ => row += 16,
        }
    };
    let mut found = Vec::new();
    if debug == 0 {
        return Ok(found);
    }
    let mut map = stopped.word(LiveVa(debug + 8))?;
    while map != 0 && found.len() < MOST {
        found.push((stopped.word(LiveVa(map))?, map));
        map = stopped.word(LiveVa(map + 24))?;
    }
    Ok(found)
}

fn headers(stopped: &Stopped, at: u64, n: u64) -> Result<Vec<Header>, AttachError> {
    let header = |n: u64| {
        let at = at + HEADER_LEN * n;
        let kind = u32::try_from(stopped.word(LiveVa(at))? & u64::from(u32::MAX)).unwrap_or(0);
        Ok(Header { kind, at: stopped.word(LiveVa(at + 16))? })
    };
    (0..n).map(header).collect()
}

/// Where the program headers of `module` are said to be, and how many there are, in its `link_map` at `map`;
/// none, if that is not found.
fn headers_of(
    stopped: &Stopped,
    module: &PutIn,
    map: u64,
    tables: u64,
) -> Result<Option<[Word; 2]>, AttachError> {
    let start = module.live(module.segments.old.start);
    let mut head = [0; 64];
    stopped.read(LiveVa(start), &mut head)?;
    let offset = u64::from_le_bytes(head[32..40].try_into().expect("eight bytes"));
    let n = u16::from_le_bytes(head[56..58].try_into().expect("two bytes"));
    let mut words = Vec::with_capacity(WORDS);
    for k in 0..WORDS as u64 {
        match stopped.word(LiveVa(map + 8 * k)) {
            Ok(word) => words.push(word),
            Err(_) => break,
        }
    }
    let Some(k) = words.iter().position(|word| *word == start + offset) else { return Ok(None) };
    let at = map + 8 * k as u64;
    // musl has their number behind it; glibc the entry point first, and two numbers in one word.
    let low = |k: usize| words.get(k).map(|word| word & 0xffff);
    let behind = match (words.get(k + 1), low(k + 2)) {
        (Some(word), _) if *word == u64::from(n) => at + 8,
        (_, Some(low)) if low == u64::from(n) => at + 16,
        _ => return Ok(None),
    };
    let n_headers = module.segments.n_headers;
    Ok(Some([
        Word { at, old: (start + offset).to_le_bytes().to_vec(), new: tables.to_le_bytes().to_vec() },
        Word { at: behind, old: n.to_le_bytes().to_vec(), new: n_headers.to_le_bytes().to_vec() },
    ]))
}

/// Has `_dl_find_object` know `objects`, where the C library has it.
fn finder(
    stopped: &Stopped,
    process: i32,
    mappings: &[Mapping],
    objects: &[FoundObject],
) -> Result<Option<Word>, AttachError> {
    let Some((slot, original)) = slot(stopped, process, mappings)? else { return Ok(None) };
    let code = arch::find_object(original, objects);
    fill(stopped, LiveVa(FINDER), &code, libc::PROT_READ | libc::PROT_EXEC)?;
    let new = FINDER + arch::find_object_entry();
    Ok(Some(Word { at: slot, old: original.to_le_bytes().to_vec(), new: new.to_le_bytes().to_vec() }))
}

/// The word by which the C library comes to ld.so's `_dl_find_object`, and what it holds; `None` where there
/// is no such function, and unwinders ask for all program headers.
///
/// # Errors
/// If there is one that is not understood: exceptions through moved code would find no tables.
fn slot(stopped: &Stopped, process: i32, mappings: &[Mapping]) -> Result<Option<(u64, u64)>, AttachError> {
    let Some(at) = find_object(process, mappings) else { return Ok(None) };
    let mut code = [0; 32];
    stopped.read(LiveVa(at), &mut code)?;
    let unknown =
        || stopped.space(format!("how unwinders find tables, by what is at {at:#x}, is not known to us"));
    let (from, distance) = arch::find_object_slot(&code).ok_or_else(unknown)?;
    let data = stopped.word(LiveVa(at.wrapping_add_signed(from)))?;
    let slot = data.wrapping_add_signed(distance);
    let original = stopped.word(LiveVa(slot))?;
    let is_code =
        mappings.iter().any(|m| m.executable && (m.range.start.0..m.range.end.0).contains(&original));
    if !is_code {
        return Err(unknown().into());
    }
    Ok(Some((slot, original)))
}

/// Where `_dl_find_object` of the C library is in the process.
fn find_object(process: i32, mappings: &[Mapping]) -> Option<u64> {
    let is_libc = |path: &Path| {
        path.file_name().is_some_and(|name| program::image::is_libc_file(&name.to_string_lossy()))
    };
    let mut firsts: Vec<(&Path, &Mapping)> = Vec::new();
    for mapping in mappings {
        if let Some(path) = mapping.path.as_deref().filter(|path| is_libc(path))
            && firsts.iter().all(|first| first.0 != path)
        {
            firsts.push((path, mapping));
        }
    }
    firsts.into_iter().find_map(|(_, mapping)| {
        let image = Image::load(&mapping.file(process)?).ok()?;
        let is_it = |name: &str| name.split('@').next() == Some("_dl_find_object");
        let symbol = image.symbols.iter().find(|s| s.dynamic && is_it(&s.name))?;
        let first = image.segments.first()?;
        Some(mapping.range.start.0 + (symbol.at.0 - first.range.start.0 / PAGE * PAGE))
    })
}
