//! The text form of a [`Matching`], which a person can read, edit and hand back.
//!
//! ```text
//! engraft-map 1
//! old 5f0c…e1 lua-5.4.7
//! new 93aa…07 lua-5.4.8
//! pin luaD_hook 0x4011f0                  # these two are each other, whatever the passes say
//! forbid luaH_get luaH_getn               # these two are not
//! pin block 0x401136 0x401150             # the same of two blocks
//! forbid block 0x401136 0x401158
//! match luaD_call luaD_call name 1        # a function: old, new, method, confidence
//! block 0x401136 0x401150 unique-1 1 1    # a block: old, new, method, confidence, share, maybe `partial`
//! data 0x40a000 0x40b000 hash             # a data object: old, new, method
//! ```
//!
//! A function stands as its name where only it has that name, else as the address of its entry. `#` after a
//! space begins a comment. Blocks and data stand as the address of their start. Lines may be in any order
//! after the head.
//!
//! What a person said goes before what was found: a pin or a forbid overrules the other lines, an edited line
//! stands, what was deleted is not matched. Blocks of two functions that no `block` line is about are matched
//! anew ([`Matching::of_map`]).
//!
//! Invariant: parsing what was written gives the same matching. A map of other builds is refused with all of
//! them named, one that contradicts itself with both lines.

use crate::names::is_label;
use crate::relation::{
    BlockMatch, BlockMethod, DataMatch, DataMethod, FunctionMatch, FunctionMethod, Level, Matching,
};
use program::{BlockId, FuncId, ImageId, Program, Va};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

/// Why a text cannot be read as a map of two programs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// A line that cannot be read.
    #[error("line {line} of the map: {why}: {text:?}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
        /// The line itself.
        text: String,
    },
    /// The map is of other builds.
    #[error(
        "line {line} of the map: it is of the {side} build {want} ({want_name}), not of {got} ({got_name})"
    )]
    WrongBuild {
        /// The line of the head that says so, from 1.
        line: usize,
        /// `old` or `new`.
        side: &'static str,
        /// The identity that the map has.
        want: ImageId,
        /// The file name that the map has.
        want_name: String,
        /// The identity of the program given.
        got: ImageId,
        /// The file name of the program given.
        got_name: String,
    },
    /// The head is missing.
    #[error("no map: the text does not begin with `engraft-map 1` and the two builds")]
    Head,
}

/// What a map says of two programs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Map {
    /// Functions that a person says match.
    pub pins: Vec<(FuncId, FuncId)>,
    /// Functions that a person says do not match.
    pub forbids: Vec<(FuncId, FuncId)>,
    /// Blocks that a person says match.
    pub block_pins: Vec<(BlockId, BlockId)>,
    /// Blocks that a person says do not match.
    pub block_forbids: Vec<(BlockId, BlockId)>,
    /// The matches that the map lists.
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
    /// The text form of `matching`, of the programs `old` and `new`.
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
        for (verb, list) in [("pin", &self.block_pins), ("forbid", &self.block_forbids)] {
            for &(o, n) in list {
                writeln!(out, "{verb} block {} {}", old.block(o).start, new.block(n).start)?;
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
            let (line, text) = lines.next().ok_or(MapError::Head)?;
            let mut words = text.split_whitespace();
            let id = match (words.next(), words.next().map(|w| u128::from_str_radix(w, 16))) {
                (Some(s), Some(Ok(id))) if s == side => ImageId(id),
                _ => return Err(MapError::Head),
            };
            if id != program.image.id {
                return Err(MapError::WrongBuild {
                    line,
                    side,
                    want: id,
                    want_name: words.next().unwrap_or("no name").to_owned(),
                    got: program.image.id,
                    got_name: program.image.name.clone(),
                });
            }
        }
        let (a, b) = (Names::of(old), Names::of(new));
        let mut lines_read = Lines { old, new, a, b, map: Map::default(), said: LineNumbers::default() };
        for (line, text) in lines {
            let bad = |why| MapError::Line { line, why, text: text.to_owned() };
            lines_read.take(line, text).map_err(bad)?;
        }
        let mut map = lines_read.map;
        let m = &mut map.matching;
        m.functions.sort_by_key(|f| (f.new, f.old));
        // Stable: of the old blocks of a new one, the best stands first.
        m.blocks.sort_by_key(|k| k.new);
        m.data.sort_by_key(|d| (d.new, d.old));
        Ok(map)
    }
}

/// On which line what was said, to find what contradicts it.
#[derive(Default)]
struct LineNumbers {
    functions: Orders<FuncId>,
    blocks: Orders<BlockId>,
    match_old: BTreeMap<FuncId, usize>,
    match_new: BTreeMap<FuncId, usize>,
    block: BTreeMap<(BlockId, BlockId), usize>,
    data_old: BTreeMap<usize, usize>,
    data_new: BTreeMap<usize, usize>,
}

/// Pins and forbids of one sort of thing, each with its line.
struct Orders<T> {
    pin_old: BTreeMap<T, (T, usize)>,
    pin_new: BTreeMap<T, (T, usize)>,
    forbid: BTreeMap<(T, T), usize>,
}

impl<T> Default for Orders<T> {
    fn default() -> Self {
        Orders { pin_old: BTreeMap::new(), pin_new: BTreeMap::new(), forbid: BTreeMap::new() }
    }
}

impl<T: Ord + Copy> Orders<T> {
    /// Records a pin; answers whether it was new.
    fn pin(&mut self, old: T, new: T, line: usize) -> Result<bool, String> {
        if let Some(at) = self.forbid.get(&(old, new)) {
            return Err(format!("line {at} forbids the same two"));
        }
        match (self.pin_old.get(&old), self.pin_new.get(&new)) {
            (Some(&(to, at)), _) if to != new => Err(format!("line {at} pins the old one to another")),
            (_, Some(&(from, at))) if from != old => Err(format!("line {at} pins another to the new one")),
            (Some(_), _) => Ok(false),
            (None, _) => {
                self.pin_old.insert(old, (new, line));
                self.pin_new.insert(new, (old, line));
                Ok(true)
            }
        }
    }
    /// Records a forbid; answers whether it was new.
    fn forbid(&mut self, old: T, new: T, line: usize) -> Result<bool, String> {
        match self.pin_old.get(&old) {
            Some(&(to, at)) if to == new => Err(format!("line {at} pins the same two")),
            _ => Ok(self.forbid.insert((old, new), line).is_none()),
        }
    }
}

/// Records `line`, unless an earlier line was about `what`.
fn once<K: Ord>(lines: &mut BTreeMap<K, usize>, what: K, line: usize, which: &str) -> Result<(), String> {
    match lines.insert(what, line) {
        Some(at) => Err(format!("line {at} matches {which} already")),
        None => Ok(()),
    }
}

/// A map while it is being read.
struct Lines<'a> {
    old: &'a Program,
    new: &'a Program,
    a: Names<'a>,
    b: Names<'a>,
    map: Map,
    said: LineNumbers,
}

impl Lines<'_> {
    fn take(&mut self, line: usize, text: &str) -> Result<(), String> {
        let mut words = text.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        let (map, said) = (&mut self.map, &mut self.said);
        let (old, new) = (self.old, self.new);
        let functions = |o: &str, n: &str| -> Result<(FuncId, FuncId), String> {
            let o = self.a.read(old, o).map_err(|why| format!("the old build has {why}"))?;
            let n = self.b.read(new, n).map_err(|why| format!("the new build has {why}"))?;
            Ok((o, n))
        };
        let blocks = |o: &str, n: &str| -> Result<(BlockId, BlockId), String> {
            let o = block(old, o).map_err(|why| format!("the old build has {why}"))?;
            let n = block(new, n).map_err(|why| format!("the new build has {why}"))?;
            Ok((o, n))
        };
        match (verb, words.as_slice()) {
            ("pin", ["block", o, n]) => {
                let (o, n) = blocks(o, n)?;
                if said.blocks.pin(o, n, line)? {
                    map.block_pins.push((o, n));
                }
            }
            ("forbid", ["block", o, n]) => {
                let (o, n) = blocks(o, n)?;
                if said.blocks.forbid(o, n, line)? {
                    map.block_forbids.push((o, n));
                }
            }
            ("pin", [o, n]) => {
                let (o, n) = functions(o, n)?;
                if said.functions.pin(o, n, line)? {
                    map.pins.push((o, n));
                }
            }
            ("forbid", [o, n]) => {
                let (o, n) = functions(o, n)?;
                if said.functions.forbid(o, n, line)? {
                    map.forbids.push((o, n));
                }
            }
            ("match", [o, n, method, confidence]) => {
                let (old, new) = functions(o, n)?;
                let all = METHODS.into_iter().chain(LEVELS.map(FunctionMethod::Hash));
                let method = by_text(method, all).ok_or(NO_METHOD)?;
                let confidence = number(confidence)?;
                once(&mut said.match_old, old, line, "the old function")?;
                once(&mut said.match_new, new, line, "the new function")?;
                map.matching.functions.push(FunctionMatch { old, new, method, confidence });
            }
            ("block", [o, n, method, confidence, share, rest @ ..]) => {
                let (old, new) = blocks(o, n)?;
                let found = block_match(old, new, [method, confidence, share], rest)?;
                once(&mut said.block, (old, new), line, "the two")?;
                map.matching.blocks.push(found);
            }
            ("data", [o, n, method]) => {
                let (old, new) = (data_object(old, o, "old")?, data_object(new, n, "new")?);
                let method = by_text(method, DATA_METHODS.into_iter()).ok_or(NO_METHOD)?;
                once(&mut said.data_old, old, line, "the old object")?;
                once(&mut said.data_new, new, line, "the new object")?;
                map.matching.data.push(DataMatch { old, new, method });
            }
            ("pin" | "forbid" | "match" | "block" | "data", _) => {
                let form = match verb {
                    "match" => "match OLD NEW METHOD CONFIDENCE",
                    "block" => "block OLD NEW METHOD CONFIDENCE SHARE [partial]",
                    "data" => "data OLD NEW METHOD",
                    "pin" => "pin OLD NEW, or pin block OLD NEW",
                    _ => "forbid OLD NEW, or forbid block OLD NEW",
                };
                return Err(format!("what is wanted is {form}"));
            }
            _ => return Err("a line begins with pin, forbid, match, block or data".to_owned()),
        }
        Ok(())
    }
}

const NO_METHOD: &str = "no such method";
const NO_ADDRESS: &str = "an address such as 0x401136 is wanted";

/// The match of a line's blocks; `numbers` are its method, confidence and share, `rest` what follows.
fn block_match(
    old: BlockId,
    new: BlockId,
    [method, confidence, share]: [&str; 3],
    rest: &[&str],
) -> Result<BlockMatch, String> {
    let levels = LEVELS.into_iter();
    let all = BLOCK_METHODS
        .into_iter()
        .chain(levels.flat_map(|l| [BlockMethod::Unique(l), BlockMethod::Propagated(l)]));
    let method = by_text(method, all).ok_or(NO_METHOD)?;
    let (confidence, share) = (number(confidence)?, number(share)?);
    let partial = match rest {
        [] => false,
        ["partial"] => true,
        _ => return Err("nothing but `partial` may follow".to_owned()),
    };
    Ok(BlockMatch { old, new, method, confidence, share, partial })
}

/// The data object that starts at the address `at` of the `side` build.
fn data_object(p: &Program, at: &str, side: &str) -> Result<usize, String> {
    let va = address(at).ok_or(NO_ADDRESS)?;
    let found = p.data_at(va).filter(|&d| p.data[d].range.start == va);
    found.ok_or_else(|| format!("the {side} build has no data object that starts at {at}"))
}

fn number(word: &str) -> Result<f32, String> {
    let number = word.parse().ok().filter(|n| (0.0..=1.0).contains(n));
    number.ok_or_else(|| "a number from 0 to 1 is wanted".to_owned())
}

/// The block that starts at the address `word`, or what there is instead.
fn block(program: &Program, word: &str) -> Result<BlockId, String> {
    let at = address(word).ok_or_else(|| format!("no block {word}: {NO_ADDRESS}"))?;
    program.block_from(at).ok_or_else(|| match program.block_at(at) {
        Some(b) => format!(
            "no block that starts at {at}; the one that holds it starts at {}",
            program.block(b).start
        ),
        None => format!("no block at {at}"),
    })
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
    /// The function of this name or entry, or what there is instead.
    fn read(&self, program: &Program, word: &str) -> Result<FuncId, String> {
        let Some(at) = address(word) else {
            return match self.0.get(word) {
                Some(Some(id)) => Ok(*id),
                Some(None) => Err(format!("several functions {word}: the address of one is wanted")),
                None => Err(format!("no function {word}")),
            };
        };
        program.function_from(at).ok_or_else(|| match program.function_at(at) {
            Some(f) => {
                let f = program.function(f);
                format!("no function that starts at {at}; {} holds it, which starts at {}", f.name(), f.entry)
            }
            None => format!("no function at {at}"),
        })
    }
}

#[cfg(test)]
mod tests;
