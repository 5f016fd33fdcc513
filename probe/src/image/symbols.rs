//! Names of moved code: for who asks the dynamic linker (`backtrace_symbols`), and for who reads the file
//! (gdb, nm, Rust's backtraces).
//!
//! A function's address stays its old entry, so nobody who looks a name up may find the moved code; who has
//! an address in moved code is to find the name. Two tables grow:
//!
//! ```text
//!  DT_SYMTAB, DT_GNU_HASH   a copy with local symbols behind the old ones, in a chain of their own whose
//!                           hashes are of no name
//!  .symtab                  a copy with local symbols before the global ones; they share the strings of
//!                           those that they are copies of
//! ```
//! Invariant: numbers of old dynamic symbols do not change; no name leads to a new symbol by its hash.
//!
//! Source: System V ABI, chapter 4 (sections, symbols); glibc 2.36, elf/dl-addr.c for how it searches all
//! chains of `DT_GNU_HASH`.
#![warn(clippy::indexing_slicing)]

use program::Va;
use std::ops::Range;

/// Bytes a symbol.
const SYMBOL_LEN: usize = 24;
/// Bytes a section header.
const SECTION_LEN: usize = 64;
const FUNCTION: u8 = 2;
const INDIRECT_FUNCTION: u8 = 10;
const PROGRAM_BITS: u32 = 1;
const SYMBOLS: u32 = 2;
const ROWS: u32 = 4;
const DYNAMIC_SYMBOLS: u32 = 11;
const MORE_SECTION_NUMBERS: u32 = 18;
const ALLOCATED: u64 = 2;
const EXECUTABLE: u64 = 4;
/// Numbers of sections from here on mean something else.
const RESERVED: u16 = 0xff00;
/// Name of the section of moved code.
const TEXT: &[u8] = b".text.moved\0";
/// Name of a section of names, where the file has none.
const SYMTAB: &[u8] = b".symtab\0";
/// Name that the unwind rows of old code get, since those of the new code take theirs.
const OLD_ROWS: &[u8] = b".eh_frame.old\0";

/// A run of code, and where it now is.
#[derive(Clone, Debug)]
pub struct Span {
    /// The old code.
    pub old: Range<Va>,
    /// The new.
    pub new: Range<Va>,
}

/// Where code was moved to.
#[derive(Clone, Copy, Debug)]
pub struct Moves<'a> {
    /// Its runs, by old address; they do not overlap.
    pub spans: &'a [Span],
    /// Its blocks: old start, new start; by old address.
    pub blocks: &'a [(Va, Va)],
}

impl Moves<'_> {
    /// Where the code of a symbol now is: a range for each run it has a part in.
    fn of(&self, old: Range<Va>) -> Vec<Range<Va>> {
        let from = self.spans.partition_point(|s| s.old.end <= old.start);
        let block_from = |at: Va| {
            let i = self.blocks.partition_point(|b| b.0 < at);
            self.blocks.get(i).copied()
        };
        let is_in = |s: &&Span| s.old.start < old.end || s.old.start == old.start;
        let place = |s: &Span| {
            let start = match old.start <= s.old.start {
                true => s.new.start,
                false => block_from(old.start).filter(|b| b.0 < s.old.end)?.1,
            };
            let end = match old.end >= s.old.end {
                true => s.new.end,
                false => block_from(old.end).filter(|b| b.0 < s.old.end).map_or(s.new.end, |b| b.1),
            };
            (start <= end).then_some(start..end)
        };
        self.spans.iter().skip(from).take_while(is_in).filter_map(place).collect()
    }
}

/// A row of a table of symbols.
#[derive(Clone, Copy)]
struct Row<'a>(&'a [u8; SYMBOL_LEN]);

impl<'a> Row<'a> {
    fn all(table: &'a [u8]) -> impl Iterator<Item = Row<'a>> {
        table.chunks_exact(SYMBOL_LEN).filter_map(|row| row.first_chunk().map(Row))
    }
    fn name(self) -> u32 {
        u32::from_le_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }
    fn section(self) -> u16 {
        u16::from_le_bytes([self.0[6], self.0[7]])
    }
    fn word(self, at: usize) -> u64 {
        self.0.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
    }
    /// The code that a symbol for a function names; nothing for other symbols.
    fn code(self) -> Option<Range<Va>> {
        let is_function = matches!(self.0[4] & 15, FUNCTION | INDIRECT_FUNCTION);
        let start = Va(self.word(8));
        (is_function && self.section() != 0).then(|| start..Va(start.0.saturating_add(self.word(16))))
    }
    /// The same name for other code, seen by nobody who looks the name up.
    fn moved(self, to: &Range<Va>, section: u16) -> [u8; SYMBOL_LEN] {
        let mut row = *self.0;
        row[4] = FUNCTION;
        row[6..8].copy_from_slice(&section.to_le_bytes());
        row[8..16].copy_from_slice(&to.start.0.to_le_bytes());
        row[16..].copy_from_slice(&to.end.since(to.start).to_le_bytes());
        row
    }
}

/// What the dynamic section says of symbols, as bytes from where each table starts to the end of what is
/// loaded with it.
#[derive(Clone, Copy)]
pub struct Dynamic<'a> {
    /// DT_SYMTAB.
    pub symbols: &'a [u8],
    /// DT_STRTAB.
    pub strings: &'a [u8],
    /// DT_GNU_HASH.
    pub hash: &'a [u8],
}

/// The dynamic tables with names for moved code: symbols, then hashes; both at offsets that are multiples of
/// 8.
pub struct Grown {
    /// Both.
    pub bytes: Vec<u8>,
    /// Where the hashes start.
    pub hash_at: usize,
}

/// The tables of `old` with names for what was moved; `None` if there is nothing to add.
pub fn dynamic(old: Dynamic<'_>, moves: Moves<'_>) -> Option<Grown> {
    let word = |at: usize| old.hash.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
    let (n_buckets, first, n_bloom) = (word(0)? as usize, word(4)? as usize, word(8)? as usize);
    let buckets_at = n_bloom.checked_mul(8)?.checked_add(16)?;
    let chains_at = n_buckets.checked_mul(4)?.checked_add(buckets_at)?;
    let buckets = old.hash.get(buckets_at..chains_at)?;
    let starts = buckets.chunks_exact(4).filter_map(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
    // Chains follow one another: the last symbol is at the end of the last one.
    let mut last = usize::try_from(starts.max()?).ok()?;
    let chain = |n: usize| word(n.checked_sub(first)?.checked_mul(4)?.checked_add(chains_at)?);
    if last < first {
        return None;
    }
    while chain(last)? & 1 == 0 {
        last += 1;
    }
    let n = last + 1;
    let table = old.symbols.get(..n.checked_mul(SYMBOL_LEN)?)?;
    let mut symbols = table.to_vec();
    let mut hashes = Vec::new();
    for row in Row::all(table).skip(first) {
        let Some(code) = row.code() else { continue };
        let text = old.strings.get(row.name() as usize..)?;
        let name = text.split(|&b| b == 0).next()?;
        for to in moves.of(code) {
            symbols.extend(row.moved(&to, row.section()));
            // Not that of its name, so that nobody takes it for what was asked for.
            hashes.push((hash(name) ^ 2) & !1);
        }
    }
    *hashes.last_mut()? |= 1;
    let mut bytes = symbols;
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let hash_at = bytes.len();
    bytes.extend(old.hash.get(..chains_at.checked_add((n - first).checked_mul(4)?)?)?);
    let mut set = |at: usize, word: u32| -> Option<()> {
        bytes.get_mut(hash_at + at..)?.first_chunk_mut().map(|b| *b = word.to_le_bytes())
    };
    match buckets.chunks_exact(4).position(|b| b == [0; 4]) {
        // A bucket that no name is in.
        Some(free) => set(buckets_at + 4 * free, u32::try_from(n).ok()?)?,
        None => set(chains_at + 4 * (last - first), chain(last)? & !1)?,
    }
    hashes.iter().for_each(|h| bytes.extend(h.to_le_bytes()));
    Some(Grown { bytes, hash_at })
}

/// The hash of `DT_GNU_HASH`.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |h: u32, &b| h.wrapping_mul(33).wrapping_add(u32::from(b)))
}

/// What a file with moved code has that it did not have: where it is in memory and in the file.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its address.
    pub at: Va,
    /// Its place in the file.
    pub offset: u64,
    /// Its length.
    pub len: u64,
}

/// The parts of a rewritten file that get sections.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The moved code.
    pub text: Part,
    /// The search table of unwind rows.
    pub search: Part,
    /// The unwind rows.
    pub rows: Part,
}

/// A section header.
#[derive(Clone, Copy)]
struct Section([u8; SECTION_LEN]);

impl Section {
    fn half(&self, at: usize) -> u32 {
        self.0.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
    }
    fn word(&self, at: usize) -> u64 {
        self.0.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
    }
    fn set_half(&mut self, at: usize, to: u32) {
        if let Some(b) = self.0.get_mut(at..at + 4) {
            b.copy_from_slice(&to.to_le_bytes());
        }
    }
    fn set_word(&mut self, at: usize, to: u64) {
        if let Some(b) = self.0.get_mut(at..at + 8) {
            b.copy_from_slice(&to.to_le_bytes());
        }
    }
    fn kind(&self) -> u32 {
        self.half(4)
    }
    /// Says where it is: address, offset, length.
    fn put(&mut self, part: &Part) {
        self.set_word(16, part.at.0);
        self.set_word(24, part.offset);
        self.set_word(32, part.len);
    }
    fn bytes<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let from = usize::try_from(self.word(24)).ok()?;
        file.get(from..from.checked_add(usize::try_from(self.word(32)).ok()?)?)
    }
}

/// Appends to `out`, the rewritten form of `old`, section headers with names for moved code. Returns where
/// they are, and how many; `None`, with `out` as it was, if the old file has none, or none that can be
/// understood.
pub fn sections(old: &[u8], out: &mut Vec<u8>, parts: &Parts, moves: Moves<'_>) -> Option<(u64, u16)> {
    let (mut all, strings_index) = section_table(old)?;
    let text = u16::try_from(all.len()).ok()?;
    let old_strings = all.get(strings_index)?.bytes(old)?;
    // Names of ours stand behind all others, and offsets of names have four bytes.
    u32::try_from(old_strings.len() + TEXT.len() + OLD_ROWS.len() + SYMTAB.len()).ok()?;
    let mut strings = old_strings.to_vec();
    let mut add_name = |name: &[u8]| {
        let at = u32::try_from(strings.len()).expect("there is room for our names");
        strings.extend(name);
        at
    };
    let named = |all: &[Section], name: &[u8]| {
        all.iter().position(|s| {
            let text = old_strings.get(s.half(0) as usize..).unwrap_or_default();
            text.split(|&b| b == 0).next() == Some(name)
        })
    };
    let mut code = Section([0; SECTION_LEN]);
    code.set_half(0, add_name(TEXT));
    code.set_half(4, PROGRAM_BITS);
    code.set_word(8, ALLOCATED | EXECUTABLE);
    code.put(&parts.text);
    code.set_word(48, 16);

    let names = all.iter().position(|s| s.kind() == SYMBOLS);
    let source = names.or_else(|| all.iter().position(|s| s.kind() == DYNAMIC_SYMBOLS));
    let Symbols { bytes: symbols, n_new, first_global } = match source.and_then(|i| all.get(i)) {
        Some(source) => Symbols::with_moved(source.bytes(old)?, source.half(44), moves, text)?,
        None => Symbols::default(),
    };
    let rows = named(&all, b".eh_frame");
    if let Some(old_rows) = rows.and_then(|i| all.get_mut(i)) {
        let mut section = *old_rows;
        old_rows.set_half(0, add_name(OLD_ROWS));
        section.put(&parts.rows);
        section.set_half(4, PROGRAM_BITS);
        all.push(code);
        all.push(section);
        if let Some(search) = named(&all, b".eh_frame_hdr").and_then(|i| all.get_mut(i)) {
            search.put(&parts.search);
        }
    } else {
        all.push(code);
    }
    let mut append = |bytes: &[u8]| {
        out.resize(out.len().next_multiple_of(8), 0);
        let at = out.len() as u64;
        out.extend(bytes);
        at
    };
    if n_new > 0 {
        let offset = append(&symbols);
        if names.is_none() {
            let mut section = *all.get(source?)?;
            section.set_half(0, add_name(SYMTAB));
            section.set_half(4, SYMBOLS);
            section.set_word(8, 0);
            section.set_word(16, 0);
            all.push(section);
        }
        let at = names.unwrap_or(all.len() - 1);
        let section = all.get_mut(at)?;
        section.set_word(24, offset);
        section.set_word(32, symbols.len() as u64);
        section.set_half(44, first_global + n_new);
    }
    let offset = append(&strings);
    let section = all.get_mut(strings_index)?;
    section.set_word(24, offset);
    section.set_word(32, strings.len() as u64);
    let n_sections = u16::try_from(all.len()).ok()?;
    let bytes: Vec<u8> = all.iter().flat_map(|s| s.0).collect();
    let at = append(&bytes);
    if let Some(names) = names {
        shift(out, &all, names, first_global, n_new);
    }
    Some((at, n_sections))
}

/// The section headers of the file `old`, and which of them has their names.
fn section_table(old: &[u8]) -> Option<(Vec<Section>, usize)> {
    let header = old.get(..64)?;
    let number = |at: usize| header.get(at..).and_then(|b| b.first_chunk()).map(|b| u16::from_le_bytes(*b));
    let (n, strings_index) = (number(60)?, usize::from(number(62)?));
    if n == 0 || n >= RESERVED - 2 || usize::from(number(58)?) != SECTION_LEN {
        return None;
    }
    let from = usize::try_from(u64::from_le_bytes(*header.get(40..)?.first_chunk()?)).ok()?;
    let table = old.get(from..from.checked_add(usize::from(n) * SECTION_LEN)?)?;
    let all: Vec<Section> =
        table.chunks_exact(SECTION_LEN).filter_map(|s| s.first_chunk().map(|s| Section(*s))).collect();
    let has_more = all.iter().any(|s| s.kind() == MORE_SECTION_NUMBERS);
    (!has_more).then_some((all, strings_index))
}

/// A table of symbols, local ones first.
#[derive(Default)]
struct Symbols {
    bytes: Vec<u8>,
    /// How many of the local ones are new, the last of them.
    n_new: u32,
    /// Which was the first global one, before these came.
    first_global: u32,
}

impl Symbols {
    /// Those of `rows`, with local ones for what was moved to the section `text`.
    fn with_moved(rows: &[u8], first_global: u32, moves: Moves<'_>, text: u16) -> Option<Symbols> {
        let new: Vec<u8> = Row::all(rows)
            .filter_map(|row| Some((row, row.code()?)))
            .flat_map(|(row, at)| moves.of(at).into_iter().flat_map(move |to| row.moved(&to, text)))
            .collect();
        let (locals, globals) = rows.split_at_checked(first_global as usize * SYMBOL_LEN)?;
        let n_new = u32::try_from(new.len() / SYMBOL_LEN).ok()?;
        Some(Symbols { bytes: [locals, &new, globals].concat(), n_new, first_global })
    }
}

/// Relocations that were left in the file (`ld --emit-relocs`) number symbols: those from `first` on by `n`
/// more.
fn shift(out: &mut [u8], all: &[Section], names: usize, first: u32, n: u32) {
    for section in all.iter().filter(|s| s.kind() == ROWS && s.half(40) as usize == names) {
        let (Ok(from), Ok(len)) = (usize::try_from(section.word(24)), usize::try_from(section.word(32)))
        else {
            continue;
        };
        let Some(rows) = out.get_mut(from..from.saturating_add(len)) else { continue };
        for row in rows.chunks_exact_mut(24) {
            let Some(symbol) = row.get_mut(12..16).and_then(|b| b.first_chunk_mut::<4>()) else { continue };
            let old = u32::from_le_bytes(*symbol);
            if old >= first {
                *symbol = (old + n).to_le_bytes();
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;

    fn symbol(name: u32, kind: u8, section: u16, at: u64, len: u64) -> Vec<u8> {
        let mut row = name.to_le_bytes().to_vec();
        row.extend([0x10 | kind, 0]);
        row.extend(section.to_le_bytes());
        row.extend(at.to_le_bytes());
        row.extend(len.to_le_bytes());
        row
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"))
    }

    /// What the linker finds: by name, and all symbols that it walks over when it is asked for an address.
    fn search(hash_table: &[u8], name: &[u8], symbols: &[u8], strings: &[u8]) -> (Option<usize>, Vec<usize>) {
        let (n_buckets, first, n_bloom) =
            (word(hash_table, 0) as usize, word(hash_table, 4) as usize, word(hash_table, 8) as usize);
        let buckets = 16 + 8 * n_bloom;
        let chains = buckets + 4 * n_buckets;
        let mut walked = Vec::new();
        let mut found = None;
        for bucket in 0..n_buckets {
            let mut n = word(hash_table, buckets + 4 * bucket) as usize;
            while n != 0 {
                let h = word(hash_table, chains + 4 * (n - first));
                walked.push(n);
                let text = &strings[word(symbols, 24 * n) as usize..];
                let same = text.starts_with(name) && text[name.len()] == 0;
                if hash(name) as usize % n_buckets == bucket && (h ^ hash(name)) >> 1 == 0 && same {
                    found = found.or(Some(n));
                }
                if h & 1 == 1 {
                    break;
                }
                n += 1;
            }
        }
        (found, walked)
    }

    #[test]
    fn names_lead_to_old_code_and_addresses_to_names() {
        let strings = b"\0ab\0cd\0data\0";
        // With a free bucket and without one: `ab` and `cd` are in the same bucket of two, or in the only
        // one.
        for n_buckets in [1u32, 2] {
            let names: [(&[u8], u32); 2] = [(b"ab", 1), (b"cd", 4)];
            assert!(names.iter().all(|(name, _)| hash(name) % 2 == hash(b"ab") % 2));
            let mut symbols = vec![0; SYMBOL_LEN];
            symbols.extend(symbol(1, FUNCTION, 9, 0x1000, 0x20));
            symbols.extend(symbol(4, INDIRECT_FUNCTION, 9, 0x1020, 0x10));
            let mut table = Vec::new();
            [n_buckets, 1, 1, 0].iter().for_each(|w| table.extend(w.to_le_bytes()));
            table.extend([0xff; 8]);
            for bucket in 0..n_buckets {
                let is_it = hash(b"ab") % n_buckets == bucket;
                table.extend(u32::from(is_it).to_le_bytes());
            }
            table.extend((hash(b"ab") & !1).to_le_bytes());
            table.extend((hash(b"cd") | 1).to_le_bytes());
            let spans = [
                Span { old: Va(0x1000)..Va(0x1010), new: Va(0x5000)..Va(0x5030) },
                Span { old: Va(0x1010)..Va(0x1030), new: Va(0x7000)..Va(0x7060) },
            ];
            let blocks = [(Va(0x1000), Va(0x5000)), (Va(0x1010), Va(0x7000)), (Va(0x1020), Va(0x7040))];
            let moves = Moves { spans: &spans, blocks: &blocks };
            let grown =
                dynamic(Dynamic { symbols: &symbols, strings, hash: &table }, moves).expect("understood");
            let (new, new_table) = grown.bytes.split_at(grown.hash_at);
            assert_eq!(new[..symbols.len()], symbols);
            for (name, n) in [(&b"ab"[..], Some(1)), (b"cd", Some(2)), (b"data", None)] {
                let (found, walked) = search(new_table, name, new, strings);
                assert_eq!(found, n);
                let mut walked = walked;
                walked.sort_unstable();
                assert_eq!(walked, [1, 2, 3, 4, 5], "{n_buckets} buckets");
            }
            let rows: Vec<(u32, Range<Va>)> =
                Row::all(new).skip(3).map(|r| (r.name(), r.code().expect("a function"))).collect();
            let want =
                [(1, Va(0x5000)..Va(0x5030)), (1, Va(0x7000)..Va(0x7040)), (4, Va(0x7040)..Va(0x7060))];
            assert_eq!(rows, want);
        }
    }

    #[test]
    fn tables_that_are_cut_off_are_left_alone() {
        let moves = Moves { spans: &[], blocks: &[] };
        for len in 0..40 {
            let hash = vec![1; len];
            assert!(dynamic(Dynamic { symbols: &[0; 48], strings: b"\0", hash: &hash }, moves).is_none());
            assert!(sections(&hash, &mut Vec::new(), &no_parts(), moves).is_none());
        }
    }

    fn no_parts() -> Parts {
        let part = Part { at: Va(0), offset: 0, len: 0 };
        Parts { text: part.clone(), search: part.clone(), rows: part }
    }
}
