//! BAT: profiles of a program that llvm-bolt made, translated back to the program that it was made of.
//!
//! `llvm-bolt --enable-bat` leaves a table in the section `.note.bolt_bat`: for each function that it wrote,
//! where each block and each branch or call stood before. The profile is read as one of the program that ran;
//! this turns it into one of the original.
//!
//! ```text
//! note header: name length 5, length, type 1, "BOLT"
//! hot functions, then cold parts:      ULEB number of them, then for each
//!   ULEB address, from the address before (the last one of the entries before)
//!   hot: 8 bytes hash, ULEB blocks, ULEB inner entries      cold: ULEB index of its hot one, from the one
//!                                                           before; ULEB skew
//!   ULEB entries; ULEB equal: so many at first have input offset = output offset - skew, and a bitmap says
//!       which are branches
//!   entries: ULEB address, from the one before; if not equal SLEB input offset * 2 + is-branch, from the one
//!       before;
//!            for blocks 8 bytes hash, ULEB number, from the one before
//!   hot: ULEB inner entries, from the one before
//! ```
//! The table has no names and no original addresses: functions are found by their symbol, which llvm-bolt
//! keeps in its place in the symbol table. Code that llvm-bolt did not move has its old address. A block that
//! llvm-bolt deleted stands at its function's end.
//!
//! Source: LLVM 19, `bolt/docs/BAT.md`, `bolt/lib/Profile/BoltAddressTranslation.cpp`; the behaviour, checked
//! against 19.1.7.

use crate::complete::derive::{add, derive_blocks};
use crate::complete::transfers::Layer;
use crate::counts::{Lost, Profile};
use crate::formats::bolt::view::BoltView;
use program::image::SymbolKind;
use program::{EdgeKind, Image, Program, Va};
use std::collections::{BTreeMap, HashMap};

const SECTION: &str = ".note.bolt_bat";

/// Why a profile cannot be translated back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatError {
    /// The program that ran has no table.
    #[error("{program} has no table of what llvm-bolt moved ({SECTION})")]
    NoTable {
        /// Its name.
        program: String,
    },
    /// The table cannot be understood.
    #[error(
        "the table of what llvm-bolt moved in {program} is damaged at byte {at}, or not of llvm-bolt 19 or later: {what}"
    )]
    Damaged {
        /// Name of the program that ran.
        program: String,
        /// Where, from the start of the section.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The program that ran was made of another one.
    #[error("{bolted} was not made of {original}: its build-id says it was made of {made_of}")]
    OtherOriginal {
        /// Name of the program that ran.
        bolted: String,
        /// Name of the one that is taken for its original.
        original: String,
        /// Build-id of the original.
        made_of: String,
    },
}

impl BatError {
    /// What the reader of the message can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoTable { .. } => "make it again with llvm-bolt --enable-bat, or profile the original",
            Self::Damaged { .. } => "make it again with llvm-bolt 19 or later, or profile the original",
            Self::OtherOriginal { .. } => "name the binary that llvm-bolt was given",
        }
    }
}

/// Whether llvm-bolt made this image.
pub fn is_bolted(image: &Image) -> bool {
    image.section_in_file(".note.bolt_info").is_some() || image.section_in_file(SECTION).is_some()
}

/// Turns a profile of `bolted` into one of `original`, of which llvm-bolt made it.
///
/// # Errors
/// [`BatError`] if `bolted` has no table that can be read, or was made of another program.
pub fn translate(
    profile: &Profile,
    bolted: &Program,
    original: &Program,
) -> Result<(Profile, Vec<Lost>), BatError> {
    same_origin(&bolted.image, &original.image)?;
    let name = &bolted.image.name;
    let bytes =
        bolted.image.section_in_file(SECTION).ok_or_else(|| BatError::NoTable { program: name.clone() })?;
    let fragments =
        parse(bytes).map_err(|(at, what)| BatError::Damaged { program: name.clone(), at, what })?;
    let view = BoltView::of(original);
    let mut translator = Translator {
        bolted,
        original,
        view: &view,
        moved: bind(&fragments, bolted, original),
        layer: Layer::onto(original),
        entered: BTreeMap::new(),
    };
    translator.blocks(profile);
    translator.edges(profile);
    translator.calls(profile);
    translator.entries(profile);
    let Layer { profile: mut done, lost, .. } = translator.layer;
    done.exactness = profile.exactness;
    let joined = |at: Va| view.function_at(at).is_some_and(|f| !view.blocks(f).is_leader(at));
    derive_blocks(&mut done, original, &joined);
    Ok((done, lost.into_list()))
}

/// llvm-bolt gives what it writes the build-id of its input with the last bit turned over.
fn same_origin(bolted: &Image, original: &Image) -> Result<(), BatError> {
    let (Some(made), Some(of)) = (&bolted.build_id, &original.build_id) else { return Ok(()) };
    let mut turned = made.clone();
    if let Some(last) = turned.last_mut() {
        *last ^= 1;
    }
    if turned == *of {
        return Ok(());
    }
    Err(BatError::OtherOriginal {
        bolted: bolted.name.clone(),
        original: original.name.clone(),
        made_of: turned.iter().map(|b| format!("{b:02x}")).collect(),
    })
}

/// A hot or cold part of a function as the table has it.
#[derive(PartialEq, Eq, Debug)]
struct Fragment {
    /// Where it was written.
    start: u64,
    /// For a cold part, which of the hot ones it belongs to.
    hot: Option<usize>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    /// Address in the program that ran.
    at: u64,
    /// Offset in the original function.
    input: u64,
    /// A branch or call; else the start of a block.
    branch: bool,
}

/// Reads little-endian and LEB128 numbers; knows where it is.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Damage = (usize, &'static str);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Damage> {
        let end = self.at.checked_add(n).ok_or((self.at, "it is cut off"))?;
        let taken = self.bytes.get(self.at..end).ok_or((self.at, "it is cut off"))?;
        self.at = end;
        Ok(taken)
    }

    fn uleb(&mut self) -> Result<u64, Damage> {
        let (from, mut value, mut shift) = (self.at, 0u64, 0u32);
        loop {
            let &byte = self.take(1)?.first().unwrap_or(&0);
            if shift >= 64 || shift == 63 && byte & 0x7e != 0 {
                return Err((from, "a number has more than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
    }

    /// As two's complement.
    fn sleb(&mut self) -> Result<u64, Damage> {
        let (from, mut value, mut shift) = (self.at, 0u64, 0u32);
        loop {
            let &byte = self.take(1)?.first().unwrap_or(&0);
            if shift >= 64 {
                return Err((from, "a number has more than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                if byte & 0x40 != 0 && shift < 64 {
                    value |= u64::MAX << shift;
                }
                return Ok(value);
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<Fragment>, Damage> {
    let mut cursor = Cursor { bytes, at: 0 };
    let header = cursor.take(12)?;
    let word = |i: usize| header.get(i..i + 4).and_then(|w| w.try_into().ok()).map_or(0, u32::from_le_bytes);
    let name_len = usize::try_from(word(0)).map_err(|_| (0, "its name is too long"))?;
    if word(8) != 1 {
        return Err((8, "it is a note of another type"));
    }
    let name = cursor.take(name_len)?;
    if !name.starts_with(b"BOLT") {
        return Err((12, "it is a note of somebody else"));
    }
    cursor.take((4 - name_len % 4) % 4)?;
    let mut fragments = Vec::new();
    let mut address = 0;
    let n_hot = functions(&mut cursor, &mut address, &mut fragments, None)?;
    functions(&mut cursor, &mut address, &mut fragments, Some(n_hot))?;
    let rest = bytes.get(cursor.at..).unwrap_or_default();
    if rest.len() >= 4 || rest.iter().any(|b| *b != 0) {
        return Err((cursor.at, "there is more than the table says"));
    }
    Ok(fragments)
}

/// One of the two tables; `n_hot` is given for the second. Returns how many functions it has.
fn functions(
    cursor: &mut Cursor,
    address: &mut u64,
    fragments: &mut Vec<Fragment>,
    n_hot: Option<usize>,
) -> Result<usize, Damage> {
    let n = cursor.uleb()?;
    let mut hot_index = 0u64;
    for _ in 0..n {
        let from = cursor.at;
        *address = address.wrapping_add(cursor.uleb()?);
        let start = *address;
        let (mut hot, mut skew, mut n_inner) = (None, 0, 0);
        match n_hot {
            Some(n_hot) => {
                hot_index = hot_index.wrapping_add(cursor.uleb()?);
                skew = cursor.uleb()?;
                let index = usize::try_from(hot_index).ok().filter(|&i| i < n_hot);
                hot = Some(index.ok_or((from, "a cold part of no function"))?);
            }
            None => {
                cursor.take(8)?;
                cursor.uleb()?;
                n_inner = cursor.uleb()?;
            }
        }
        let (n_entries, n_equal) = (cursor.uleb()?, cursor.uleb()?);
        if n_equal > n_entries {
            return Err((from, "more entries are equal than there are"));
        }
        let n_bytes = usize::try_from(n_equal.div_ceil(8)).map_err(|_| (from, "it is cut off"))?;
        let is_branch = cursor.take(n_bytes)?;
        let (mut entries, mut value) = (Vec::new(), 0u64);
        for i in 0..n_entries {
            *address = address.wrapping_add(cursor.uleb()?);
            if i < n_equal {
                let byte = usize::try_from(i / 8).ok().and_then(|b| is_branch.get(b)).copied().unwrap_or(0);
                let input = address.wrapping_sub(start).wrapping_add(skew);
                value = input << 1 | u64::from(byte >> (i % 8) & 1);
            } else {
                value = value.wrapping_add(cursor.sleb()?);
            }
            let branch = value & 1 == 1;
            if !branch {
                cursor.take(8)?;
                cursor.uleb()?;
            }
            // Offsets are of 32 bits.
            entries.push(Entry { at: *address, input: (value >> 1) & 0x7fff_ffff, branch });
        }
        for _ in 0..n_inner {
            cursor.uleb()?;
        }
        fragments.push(Fragment { start, hot, entries });
    }
    usize::try_from(n).map_err(|_| (cursor.at, "it is cut off"))
}

/// A fragment with its function of the original.
struct Moved {
    start: Va,
    end: Va,
    /// Where the function was; `None` if it was not found.
    origin: Option<Va>,
    cold: bool,
    /// By address; of blocks at the same place, the last one has the code. None past the end.
    entries: Vec<Entry>,
}

/// Finds the original function of each fragment by symbol: same name, same source file, as manyth in the
/// table.
fn bind(fragments: &[Fragment], bolted: &Program, original: &Program) -> Vec<Moved> {
    let of_original: HashMap<_, Va> =
        symbols(&original.image).into_iter().map(|(key, at, _)| (key, at)).collect();
    let mut origins: HashMap<Va, Va> = HashMap::new();
    let mut ends: HashMap<Va, Va> = HashMap::new();
    for (key, at, len) in symbols(&bolted.image) {
        if let Some(&origin) = of_original.get(&key) {
            origins.entry(at).or_insert(origin);
        }
        let end = ends.entry(at).or_insert(at);
        *end = (*end).max(at.plus(len));
    }
    let mut moved: Vec<Moved> = fragments
        .iter()
        .map(|f| {
            let hot = f.hot.and_then(|i| fragments.get(i)).unwrap_or(f);
            let start = Va(f.start);
            let mut entries = f.entries.clone();
            entries.sort_by_key(|e| e.at);
            Moved {
                start,
                end: ends.get(&start).copied().unwrap_or(start),
                origin: origins.get(&Va(hot.start)).copied(),
                cold: f.hot.is_some(),
                entries,
            }
        })
        .collect();
    moved.sort_by_key(|m| m.start);
    let starts: Vec<Va> = moved.iter().map(|m| m.start).collect();
    for (m, next) in moved.iter_mut().zip(starts.iter().skip(1).copied().chain([Va(u64::MAX)])) {
        if m.end == m.start || m.end > next {
            m.end = next;
        }
        let end = m.end.0;
        m.entries.retain(|e| e.at < end);
    }
    moved
}

/// Function symbols: (name, source file for local ones, how many of that name came before), address, length.
fn symbols(image: &Image) -> Vec<((&str, &str, u32), Va, u64)> {
    let mut file = "";
    let mut seen: HashMap<(&str, &str), u32> = HashMap::new();
    let mut found = Vec::new();
    for s in image.symbols.iter().filter(|s| !s.dynamic) {
        match s.kind {
            SymbolKind::File => file = &s.name,
            SymbolKind::Function | SymbolKind::IndirectFunction | SymbolKind::Untyped => {
                let key = (&*s.name, if s.local { file } else { "" });
                let n = seen.entry(key).or_insert(0);
                *n += 1;
                found.push(((key.0, key.1, *n), s.at, s.len));
            }
            _ => {}
        }
    }
    found
}

struct Translator<'a> {
    bolted: &'a Program,
    original: &'a Program,
    view: &'a BoltView<'a>,
    /// By address.
    moved: Vec<Moved>,
    layer: Layer<'a>,
    entered: BTreeMap<Va, u64>,
}

/// Why counts are lost.
const NOT_MOVED: &str = "no code of the original program became this";
const NO_EDGE: &str = "the original program has no such edge";

impl Translator<'_> {
    fn moved_at(&self, at: Va) -> Option<&Moved> {
        let i = self.moved.partition_point(|m| m.start <= at);
        self.moved.get(i.checked_sub(1)?).filter(|m| at < m.end)
    }

    fn name(&self, at: Va) -> String {
        let func = self.bolted.function_at(at);
        func.map_or_else(|| "code outside of functions".to_owned(), |f| self.bolted.function(f).name())
    }

    fn lose(&mut self, at: Va, why: &'static str, count: u64) {
        let name = self.name(at);
        self.layer.lost.add(&name, why, count);
    }

    /// The original address of the block at `at`, or of code within one.
    fn block(&self, at: Va) -> Option<Va> {
        let Some(moved) = self.moved_at(at) else {
            return Some(at).filter(|&at| self.original.image.is_code(at));
        };
        let origin = moved.origin?;
        let i = moved.entries.partition_point(|e| e.at <= at.0);
        let before = moved.entries.get(..i).unwrap_or_default();
        match before.iter().rev().find(|e| e.at < at.0 || !e.branch) {
            Some(e) => Some(origin.plus(e.input).plus(at.0 - e.at)),
            // A function whose blocks llvm-bolt did not understand was moved as it was.
            None if moved.entries.is_empty() => Some(origin.plus(at.since(moved.start))),
            None => None,
        }
    }

    /// Whether an original block starts at `at`, or llvm-bolt did not touch the code there.
    fn starts_block(&self, at: Va) -> bool {
        let Some(moved) = self.moved_at(at).filter(|m| !m.entries.is_empty()) else { return true };
        let i = moved.entries.partition_point(|e| e.at < at.0);
        let here = moved.entries.get(i..).unwrap_or_default().iter().take_while(|e| e.at == at.0);
        here.into_iter().any(|e| !e.branch)
    }

    /// The start of the original block that `at` is in now.
    fn block_around(&self, at: Va) -> Option<Va> {
        let Some(moved) = self.moved_at(at).filter(|m| !m.entries.is_empty()) else { return self.block(at) };
        let i = moved.entries.partition_point(|e| e.at <= at.0);
        let before = moved.entries.get(..i).unwrap_or_default();
        let e = before.iter().rev().find(|e| !e.branch)?;
        Some(moved.origin?.plus(e.input))
    }

    /// The original address of the branch or call at `at`, if it was one.
    fn branch(&self, at: Va) -> Option<Va> {
        let Some(moved) = self.moved_at(at).filter(|m| !m.entries.is_empty()) else { return self.block(at) };
        let i = moved.entries.partition_point(|e| e.at < at.0);
        let here = moved.entries.get(i..).unwrap_or_default().iter().take_while(|e| e.at == at.0);
        // A block that starts with it has no entry of its own for it.
        let e = here.max_by_key(|e| e.branch)?;
        Some(moved.origin?.plus(e.input))
    }

    /// Starts of the original blocks that the block at `start` of the program that ran is made of.
    fn parts(&self, start: Va, end: Va) -> Vec<Va> {
        let Some(moved) = self.moved_at(start).filter(|m| !m.entries.is_empty()) else {
            return Vec::from_iter(self.block(start));
        };
        let Some(origin) = moved.origin else { return Vec::new() };
        let mut parts = Vec::from_iter(self.block_around(start));
        let inside = moved.entries.iter().filter(|e| start.0 < e.at && e.at < end.0 && !e.branch);
        let mut last = start.0;
        for e in inside {
            if e.at == last {
                // Without code of its own.
                parts.pop();
            }
            parts.push(origin.plus(e.input));
            last = e.at;
        }
        parts
    }

    /// Blocks ran as often as what they became; within what became one block, control went from each to the
    /// next.
    fn blocks(&mut self, profile: &Profile) {
        for (&start, &n) in &profile.blocks {
            let Some(id) = self.bolted.block_from(start) else { continue };
            let parts = self.parts(start, self.bolted.block(id).end_va());
            if parts.is_empty() && n > 0 {
                self.lose(start, NOT_MOVED, n);
            }
            let starts_one = self.starts_block(start);
            for (i, &part) in parts.iter().enumerate() {
                if (i > 0 || starts_one) && self.original.block_from(part).is_some() {
                    self.layer.profile.blocks.add(part, n);
                }
            }
            if n > 0 {
                for (a, b) in parts.iter().zip(parts.iter().skip(1)) {
                    self.edge(start, *a, *b, 0, n);
                }
            }
        }
    }

    fn edges(&mut self, profile: &Profile) {
        for (edge, &n) in profile.edges.iter().filter(|(_, n)| **n > 0) {
            if !self.starts_block(edge.to) {
                // A jump that llvm-bolt put behind a block: the same block of the original goes on.
                continue;
            }
            let misses = profile.mispredicts.get(edge).copied().unwrap_or(0);
            let last = self.bolted.block_from(edge.from).map(|id| self.bolted.block(id).last_insn());
            let around = last.and_then(|last| self.block_around(last));
            match (around, self.block(edge.to)) {
                (Some(from), Some(to)) => self.edge(edge.from, from, to, misses, n),
                _ => self.lose(edge.from, NOT_MOVED, n),
            }
        }
    }

    /// An edge between the original blocks at `from` and `to`, perhaps over one that llvm-bolt found to be
    /// nothing but a jump.
    fn edge(&mut self, at: Va, from: Va, to: Va, misses: u64, count: u64) {
        let found = self.view.function_at(from).and_then(|f| {
            let blocks = self.view.blocks(f);
            let leader = blocks.leader_of(from)?;
            let falls = || blocks.leaves_at(leader).filter(|_| blocks.over_padding(leader, to).is_some());
            blocks.exit_to(leader, to).or_else(falls)
        });
        if let Some(exit) = found {
            self.layer.branch(Some(exit), Some(to), misses, count);
            return;
        }
        match self.route(from, to) {
            Some((first, exit)) => {
                self.layer.branch(Some(first.0), Some(first.1), misses, count);
                self.layer.branch(Some(exit), Some(to), 0, count);
            }
            None => self.lose(at, NO_EDGE, count),
        }
    }

    /// Ways from a block to another over a third that has no other way out: (exit, the third's start), the
    /// third's exit.
    fn route(&self, from: Va, to: Va) -> Option<((Va, Va), Va)> {
        let function = self.view.function_at(from)?;
        let blocks = self.view.blocks(function);
        let leader = blocks.leader_of(from)?;
        let last = self.original.block_at(blocks.leaves_at(leader)?)?;
        let over = self.original.successors(last).iter().filter(|e| e.kind != EdgeKind::LandingPad);
        over.map(|e| self.original.block(e.to).start)
            .find_map(|third| Some(((blocks.exit_to(leader, third)?, third), blocks.exit_to(third, to)?)))
    }

    fn calls(&mut self, profile: &Profile) {
        for (&(at, callee), &n) in profile.calls.iter().filter(|(_, n)| **n > 0) {
            add(&mut self.entered, callee, n);
            match (self.branch(at), self.block(callee)) {
                (Some(from), Some(to)) => self.layer.branch(Some(from), Some(to), 0, n),
                // A jump of llvm-bolt's own, to the cold part.
                (None, Some(to)) => match self.block_around(at) {
                    Some(from) => self.edge(at, from, to, 0, n),
                    None => self.lose(at, NOT_MOVED, n),
                },
                _ => self.lose(at, NOT_MOVED, n),
            }
        }
        for (&at, &n) in profile.calls_out.iter().filter(|(_, n)| **n > 0) {
            match self.branch(at) {
                Some(from) => self.layer.branch(Some(from), None, 0, n),
                None => self.lose(at, NOT_MOVED, n),
            }
        }
    }

    /// Entries that no call says.
    fn entries(&mut self, profile: &Profile) {
        for (&at, &n) in &profile.entries {
            let rest = n.saturating_sub(self.entered.get(&at).copied().unwrap_or(0));
            let cold = self.moved_at(at).is_some_and(|m| m.cold);
            if rest == 0 || cold {
                continue;
            }
            match self.block(at) {
                Some(to) => self.layer.branch(None, Some(to), 0, rest),
                None => self.lose(at, NOT_MOVED, rest),
            }
        }
    }
}

#[cfg(test)]
mod tests;
