//! The text form of a [`Matching`], which a person can read, edit and hand back.
//!
//! ```text
//! engraft-map 1
//! old 5f0c…e1 lua-5.4.7
//! new 93aa…07 lua-5.4.8
//! pin luaD_hook 0x4011f0                  # these two are each other, whatever the passes say
//! forbid luaH_get luaH_getn               # these two are not
//! match luaD_call luaD_call name 1        # a function: old, new, method, confidence
//! block 0x401136 0x401150 unique-1 1 1    # a block: old, new, method, confidence, share, and perhaps `partial`
//! data 0x40a000 0x40b000 hash             # a data object: old, new, method
//! ```
//!
//! A function stands as its name where only it has that name, else as the address of its entry. `#` after a space
//! begins a comment. Blocks and data stand as the address of their start. Lines may be in any order after the head.
//!
//! Invariant: parsing what was written gives the same matching. A map of other builds is refused with all of them named.

use crate::names::is_label;
use crate::relation::{
    BlockMatch, BlockMethod, DataMatch, DataMethod, FunctionMatch, FunctionMethod, Level, Matching,
};
use program::{FuncId, ImageId, Program, Va};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

/// Why a text is no map of two programs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// A line that says nothing we know.
    #[error("line {line} of the map: {why}: {text:?}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        why: &'static str,
        /// It.
        text: String,
    },
    /// The map speaks of another build.
    #[error("the map is of the {side} build {want} ({want_name}), not of {got} ({got_name})")]
    WrongBuild {
        /// `old` or `new`.
        side: &'static str,
        /// In the map.
        want: ImageId,
        /// Its file's name, by the map.
        want_name: String,
        /// What was given.
        got: ImageId,
        /// Its file's name.
        got_name: String,
    },
    /// The head is missing.
    #[error("no map: the text does not begin with `engraft-map 1` and the two builds")]
    Head,
}

/// What a map says of two programs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Map {
    /// Functions that a person says are each other.
    pub pins: Vec<(FuncId, FuncId)>,
    /// Functions that a person says are not.
    pub forbids: Vec<(FuncId, FuncId)>,
    /// What was found.
    pub matching: Matching,
}

const METHODS: [FunctionMethod; 7] = [
    FunctionMethod::Pinned,
    FunctionMethod::Name,
    FunctionMethod::BareName,
    FunctionMethod::HierarchicalName,
    FunctionMethod::SimilarName,
    FunctionMethod::Neighbours,
    FunctionMethod::Order,
];
const LEVELS: [Level; 8] =
    [Level::L0, Level::L1, Level::L1a, Level::L2, Level::L3, Level::L3a, Level::L4, Level::L5];
const BLOCK_METHODS: [BlockMethod; 4] =
    [BlockMethod::Pinned, BlockMethod::ControlFlow, BlockMethod::Aligned, BlockMethod::Inlined];
const DATA_METHODS: [DataMethod; 4] =
    [DataMethod::Name, DataMethod::Hash, DataMethod::Position, DataMethod::Reference];

/// The value whose text form is `word`.
fn by_text<T: Display>(word: &str, mut all: impl Iterator<Item = T>) -> Option<T> {
    all.find(|v| v.to_string() == word)
}

impl Map {
    /// The text form.
    pub fn write(&self, old: &Program, new: &Program) -> String {
        let mut out = String::new();
        let text = self.write_to(&mut out, old, new);
        text.expect("a string takes any text");
        out
    }

    fn write_to(&self, out: &mut String, old: &Program, new: &Program) -> fmt::Result {
        writeln!(out, "engraft-map 1")?;
        for (side, program) in [("old", old), ("new", new)] {
            let name: String = program.image.name.split_whitespace().collect::<Vec<_>>().join("_");
            writeln!(out, "{side} {} {name}", program.image.id)?;
        }
        let (a, b) = (Names::of(old), Names::of(new));
        for (verb, list) in [("pin", &self.pins), ("forbid", &self.forbids)] {
            for &(o, n) in list {
                writeln!(out, "{verb} {} {}", a.write(old, o), b.write(new, n))?;
            }
        }
        let m = &self.matching;
        for f in &m.functions {
            let (o, n) = (a.write(old, f.old), b.write(new, f.new));
            writeln!(out, "match {o} {n} {} {}", f.method, f.confidence)?;
        }
        for k in &m.blocks {
            let (o, n) = (old.block(k.old).start, new.block(k.new).start);
            let partial = if k.partial { " partial" } else { "" };
            writeln!(out, "block {o} {n} {} {} {}{partial}", k.method, k.confidence, k.share)?;
        }
        for d in &m.data {
            let (o, n) = (old.data[d.old].range.start, new.data[d.new].range.start);
            writeln!(out, "data {o} {n} {}", d.method)?;
        }
        Ok(())
    }

    /// What `text` says of `old` and `new`.
    ///
    /// # Errors
    /// [`MapError::Head`], [`MapError::WrongBuild`], or the first [`MapError::Line`] that cannot be read.
    pub fn parse(text: &str, old: &Program, new: &Program) -> Result<Map, MapError> {
        let mut lines = text.lines().enumerate().map(|(i, l)| (i + 1, without_comment(l)));
        let mut lines = lines.by_ref().filter(|(_, l)| !l.is_empty());
        if lines.next().map(|(_, l)| l) != Some("engraft-map 1") {
            return Err(MapError::Head);
        }
        for (side, program) in [("old", old), ("new", new)] {
            let (_, line) = lines.next().ok_or(MapError::Head)?;
            let mut words = line.split_whitespace();
            let id = match (words.next(), words.next().map(|w| u128::from_str_radix(w, 16))) {
                (Some(s), Some(Ok(id))) if s == side => ImageId(id),
                _ => return Err(MapError::Head),
            };
            if id != program.image.id {
                return Err(MapError::WrongBuild {
                    side,
                    want: id,
                    want_name: words.next().unwrap_or("no name").to_owned(),
                    got: program.image.id,
                    got_name: program.image.name.clone(),
                });
            }
        }
        let (a, b) = (Names::of(old), Names::of(new));
        let mut map = Map::default();
        for (line, text) in lines {
            let bad = |why| MapError::Line { line, why, text: text.to_owned() };
            map.line(text, (old, &a), (new, &b)).map_err(bad)?;
        }
        let m = &mut map.matching;
        m.functions.sort_by_key(|f| (f.new, f.old));
        // Stable: of the old blocks of a new one, the best stands first.
        m.blocks.sort_by_key(|k| k.new);
        m.data.sort_by_key(|d| (d.new, d.old));
        if m.functions.windows(2).any(|w| w[0].new == w[1].new) {
            return Err(MapError::Line {
                line: 0,
                why: "a new function is matched twice",
                text: String::new(),
            });
        }
        Ok(map)
    }

    fn line(
        &mut self,
        text: &str,
        (old, a): (&Program, &Names<'_>),
        (new, b): (&Program, &Names<'_>),
    ) -> Result<(), &'static str> {
        let mut words = text.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let (o, n) = match (words.next(), words.next()) {
            (Some(o), Some(n)) => (o, n),
            _ => return Err("an old and a new part are wanted"),
        };
        let function = || -> Result<(FuncId, FuncId), &'static str> {
            let o = a.read(old, o).ok_or("the old build has no such function, or several")?;
            let n = b.read(new, n).ok_or("the new build has no such function, or several")?;
            Ok((o, n))
        };
        let starts = || Some((address(o)?, address(n)?));
        const NO_METHOD: &str = "no such method";
        const NO_SHARE: &str = "a number from 0 to 1 is wanted";
        match verb {
            "pin" => self.pins.push(function()?),
            "forbid" => self.forbids.push(function()?),
            "match" => {
                let (old, new) = function()?;
                let all = METHODS.into_iter().chain(LEVELS.map(FunctionMethod::Hash));
                let method = by_text(words.next().unwrap_or_default(), all).ok_or(NO_METHOD)?;
                let mut number = || words.next()?.parse().ok().filter(|n| (0.0..=1.0).contains(n));
                let confidence = number().ok_or(NO_SHARE)?;
                self.matching.functions.push(FunctionMatch { old, new, method, confidence });
            }
            "block" => {
                let (o, n) = starts().ok_or("addresses are wanted")?;
                let old = old.block_from(o).ok_or("no block of the old build starts there")?;
                let new = new.block_from(n).ok_or("no block of the new build starts there")?;
                let levels = LEVELS.into_iter();
                let all = BLOCK_METHODS
                    .into_iter()
                    .chain(levels.flat_map(|l| [BlockMethod::Unique(l), BlockMethod::Propagated(l)]));
                let method = by_text(words.next().unwrap_or_default(), all).ok_or(NO_METHOD)?;
                let mut number = || words.next()?.parse().ok().filter(|n| (0.0..=1.0).contains(n));
                let confidence = number().ok_or(NO_SHARE)?;
                let share = number().ok_or(NO_SHARE)?;
                let partial = words.next() == Some("partial");
                self.matching.blocks.push(BlockMatch { old, new, method, confidence, share, partial });
            }
            "data" => {
                let (o, n) = starts().ok_or("addresses are wanted")?;
                let find = |p: &Program, at| p.data_at(at).filter(|&d| p.data[d].range.start == at);
                let old = find(old, o).ok_or("no data object of the old build starts there")?;
                let new = find(new, n).ok_or("no data object of the new build starts there")?;
                let method = by_text(words.next().unwrap_or_default(), DATA_METHODS.into_iter());
                let method = method.ok_or(NO_METHOD)?;
                self.matching.data.push(DataMatch { old, new, method });
            }
            _ => return Err("a line begins with pin, forbid, match, block or data"),
        }
        Ok(())
    }
}

/// A line up to a `#` that stands at its start or after a space.
fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (i, c) in line.char_indices() {
        if c == '#' && before.is_whitespace() {
            return line[..i].trim();
        }
        before = c;
    }
    line.trim()
}

fn address(word: &str) -> Option<Va> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok().map(Va)
}

/// Functions by name, where a name is one function's only.
struct Names<'a>(BTreeMap<&'a str, Option<FuncId>>);

impl<'a> Names<'a> {
    fn of(program: &'a Program) -> Names<'a> {
        let mut names = BTreeMap::new();
        for id in program.func_ids() {
            for name in &program.function(id).names {
                let plain = !name.contains(char::is_whitespace) && !name.starts_with("0x");
                if plain && !name.starts_with('#') && !is_label(name) {
                    names
                        .entry(&**name)
                        .and_modify(|f: &mut Option<FuncId>| *f = f.filter(|&f| f == id))
                        .or_insert(Some(id));
                }
            }
        }
        Names(names)
    }
    fn write(&self, program: &Program, id: FuncId) -> String {
        let f = program.function(id);
        match f.names.first() {
            Some(name) if self.0.get(&**name) == Some(&Some(id)) => name.to_string(),
            _ => f.entry.to_string(),
        }
    }
    fn read(&self, program: &Program, word: &str) -> Option<FuncId> {
        match address(word) {
            Some(at) => program.function_from(at),
            None => self.0.get(word).copied().flatten(),
        }
    }
}

#[cfg(test)]
mod tests;
