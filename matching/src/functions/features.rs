//! Evidence as words: what a function is made of and what stands around it. Two functions are alike as far as
//! they share words, each worth as much as it is rare.
//!
//! Content words (blocks, runs of instructions, strings, imports, constants, what stands beside a pointer to
//! the function in data) are made once. Context words (matched callees, callers, neighbours in the file and
//! in tables of pointers) change with every match and are made anew each round.
//!
//! Invariant: a word means the same in both builds; it holds no address and no id but of what is matched.

use super::side::Side;
use crate::hash::{Keys, combine, read_function};
use crate::relation::OneToOne;
use program::image::RelocationTo;
use program::{FuncId, Program, Va};
use rayon::prelude::*;

/// What sort of evidence a word is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A block, at level 3.
    Block,
    /// A block, at level 4.
    Shape,
    /// A block, at level 1, without and with structure offsets.
    Exact,
    /// Three instructions on end, by their families.
    Run,
    /// A string, an import, a number, a named callee, matched data.
    Reference,
    /// What stands beside a pointer to the function in data.
    Beside,
    /// A matched callee.
    Callee,
    /// A matched caller.
    Caller,
    /// A matched caller, and the place among its calls that are not matched.
    Place,
    /// The nearest matched function before it in the file, or after it.
    Near,
    /// The same, where nothing stands between.
    Next,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::Block,
        Kind::Shape,
        Kind::Exact,
        Kind::Run,
        Kind::Reference,
        Kind::Beside,
        Kind::Callee,
        Kind::Caller,
        Kind::Place,
        Kind::Near,
        Kind::Next,
    ];
    /// The kind of evidence of a word.
    pub fn of(word: u64) -> Kind {
        let i = usize::try_from(word >> 56).unwrap_or(0);
        Kind::ALL[i.min(Kind::ALL.len() - 1)]
    }
    /// How much a word of this kind is worth where it is shared, for its rarity; and how much it counts
    /// against where it is missing.
    pub fn worth(self) -> (f32, f32) {
        match self {
            Kind::Block => (0.6, 0.6),
            Kind::Shape => (0.4, 0.4),
            Kind::Exact => (0.2, 0.0),
            Kind::Run => (0.2, 0.2),
            Kind::Reference => (1.0, 1.0),
            Kind::Beside => (1.0, 0.3),
            Kind::Callee => (1.0, 0.8),
            Kind::Caller => (1.0, 0.5),
            Kind::Place => (0.5, 0.0),
            Kind::Near => (0.7, 0.2),
            Kind::Next => (0.7, 0.0),
        }
    }
}

fn word(kind: Kind, hash: u64) -> u64 {
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8) | (kind as u64) << 56
}

/// Longest list of words; of more, those with the smallest hashes stay, which are the same ones on both
/// sides.
const MOST_WORDS: usize = 3000;

/// Numbers repeated words, so that a list is a set: the second `x` is another word than the first.
fn distinct(mut words: Vec<u64>) -> Vec<u64> {
    words.sort_unstable();
    let mut out = Vec::with_capacity(words.len());
    for run in words.chunk_by(|a, b| a == b) {
        out.push(run[0]);
        // Further ones tell less and less.
        for (i, &w) in run.iter().enumerate().skip(1).take(3) {
            let kind = Kind::of(w);
            out.push(word(kind, combine(w, i as u64)));
        }
    }
    out.sort_unstable();
    out.dedup();
    if out.len() > MOST_WORDS {
        out.sort_unstable_by_key(|w| w << 8);
        out.truncate(MOST_WORDS);
        out.sort_unstable();
    }
    out
}

/// The content words of each of `funcs`, sorted.
pub fn content(side: &Side<'_>, keys: &Keys, pointers_to: &[Vec<Va>], funcs: &[usize]) -> Vec<Vec<u64>> {
    funcs
        .par_iter()
        .map(|&f| {
            let mut words = Vec::new();
            read_function(side.program, keys, FuncId::at(f), |_, hash, tokens| {
                words.push(word(Kind::Block, hash.three_with_direction()));
                words.push(word(Kind::Shape, hash.four));
                words.push(word(Kind::Exact, hash.one));
                words.push(word(Kind::Exact, combine(hash.fine, 1)));
                for t in tokens.windows(3) {
                    let run = t.iter().fold(0, |h, t| combine(h, u64::from(t.weak)));
                    words.push(word(Kind::Run, run));
                }
                for t in tokens.iter().filter(|t| t.reference != 0) {
                    words.push(word(Kind::Reference, u64::from(t.reference)));
                }
            });
            for &at in &pointers_to[f] {
                beside(side.program, at, &mut words);
            }
            distinct(words)
        })
        .collect()
}

/// How far around a pointer is looked, in words of eight bytes.
const AROUND: u64 = 6;
/// How many pointers to one function are looked at.
const MOST_POINTERS: usize = 16;

/// What stands around the pointer at `at`: strings, imports, plain numbers.
fn beside(program: &Program, at: Va, words: &mut Vec<u64>) {
    let relocated = program.image.kind.is_relocated();
    for step in (1..=AROUND).flat_map(|k| [k * 8, (k * 8).wrapping_neg()]) {
        let place = at.plus(step);
        match program.image.relocation_at(place).map(|r| &r.to) {
            Some(RelocationTo::Address(to)) => {
                if let Some(text) = text_at(program, *to) {
                    words.push(word(Kind::Beside, combine(step, text)));
                }
            }
            Some(RelocationTo::Symbol(name, _)) => {
                words.push(word(Kind::Beside, combine(step, crate::hash::name_key(name))));
            }
            Some(_) => {}
            None => {
                let Some(value) = number_at(program, place) else { continue };
                if !relocated && program.image.segment_at(Va(value)).is_some() {
                    if let Some(text) = text_at(program, Va(value)) {
                        words.push(word(Kind::Beside, combine(step, text)));
                    }
                } else if step <= 16 || step >= 16_u64.wrapping_neg() {
                    words.push(word(Kind::Beside, combine(combine(step, 1), value)));
                }
            }
        }
    }
}

fn number_at(program: &Program, at: Va) -> Option<u64> {
    let bytes = program.image.bytes_from(at)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*bytes))
}

/// A hash of the string at `at`, if there is one.
pub fn text_at(program: &Program, at: Va) -> Option<u64> {
    if program.image.is_code(at) {
        return None;
    }
    let bytes = program.image.bytes_from(at)?;
    let bytes = &bytes[..bytes.len().min(256)];
    let len = bytes.iter().take_while(|&&b| (0x20..0x7f).contains(&b) || b"\t\n\r".contains(&b)).count();
    let is_terminated = len == 256 || bytes.get(len) == Some(&0);
    (len >= 1 && is_terminated).then(|| crate::hash::content_key(&bytes[..len]))
}

/// Where data hold the address of a function, at most [`MOST_POINTERS`] places each.
pub fn pointers(program: &Program) -> Vec<Vec<Va>> {
    let mut out = vec![Vec::new(); program.functions.len()];
    let mut add = |at: Va, to: Va| {
        if let Some(f) = program.function_from(to)
            && out[f.index()].len() < MOST_POINTERS
        {
            out[f.index()].push(at);
        }
    };
    let image = &program.image;
    for r in &image.relocations {
        match &r.to {
            RelocationTo::Address(to) | RelocationTo::Symbol(_, Some(to)) => add(r.at, *to),
            _ => {}
        }
    }
    if !image.kind.is_relocated() {
        for s in image.segments.iter().filter(|s| !s.executable) {
            let Some(bytes) = image.bytes_from(s.range.start) else { continue };
            let skip = s.range.start.0.wrapping_neg() % 8;
            let words = bytes.get(usize::try_from(skip).unwrap_or(0)..).unwrap_or_default();
            for (i, w) in words.as_chunks::<8>().0.iter().enumerate() {
                let value = u64::from_le_bytes(*w);
                if value != 0 && image.is_code(Va(value)) {
                    add(s.range.start.plus(skip + 8 * i as u64), Va(value));
                }
            }
        }
    }
    out
}

/// Which build a side is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Build {
    /// The old one.
    Old,
    /// The new one.
    New,
}

/// What of the context may be used.
#[derive(Clone, Copy, Debug)]
pub struct ContextUse {
    /// Callees, callers, tables of pointers.
    pub graph: bool,
    /// Order in the file.
    pub order: bool,
}

/// The matched counterpart of a function as a number that is the same for both builds.
fn canonical(pairs: &OneToOne, build: Build, f: usize) -> Option<u64> {
    match build {
        Build::Old => pairs.new_of(f).map(|n| n as u64),
        Build::New => pairs.old_of(f).map(|_| f as u64),
    }
}

/// Context words of each of `funcs` (sorted by id, all of them free), sorted.
pub fn around(
    side: &Side<'_>,
    build: Build,
    pairs: &OneToOne,
    pointers_to: &[Vec<Va>],
    funcs: &[usize],
    what: ContextUse,
) -> Vec<Vec<u64>> {
    let id = |f: usize| canonical(pairs, build, f);
    // Nearest matched function before and after each.
    let n = side.len();
    let mut before = vec![None; n];
    let mut after = vec![None; n];
    if what.order {
        let mut last = None;
        for (f, slot) in before.iter_mut().enumerate() {
            *slot = last;
            last = id(f).map(|c| (c, f)).or(last);
        }
        last = None;
        for (f, slot) in after.iter_mut().enumerate().rev() {
            *slot = last;
            last = id(f).map(|c| (c, f)).or(last);
        }
    }
    funcs
        .par_iter()
        .map(|&f| {
            let mut words = Vec::new();
            if what.graph {
                graph(side, &id, f, &mut words);
                for &at in &pointers_to[f] {
                    for step in (1..=AROUND).flat_map(|k| [k * 8, (k * 8).wrapping_neg()]) {
                        let place = at.plus(step);
                        let to = match side.program.image.relocation_at(place).map(|r| &r.to) {
                            Some(RelocationTo::Address(to) | RelocationTo::Symbol(_, Some(to))) => *to,
                            Some(_) => continue,
                            None => match number_at(side.program, place) {
                                Some(value) if !side.program.image.kind.is_relocated() => Va(value),
                                _ => continue,
                            },
                        };
                        if let Some(c) = side.program.function_from(to).and_then(|g| id(g.index())) {
                            words.push(word(Kind::Beside, combine(combine(step, 2), c)));
                        }
                    }
                }
            }
            for (near, far, step) in [(before[f], 1, f.checked_sub(1)), (after[f], 2, Some(f + 1))] {
                let Some((c, at)) = near else { continue };
                words.push(word(Kind::Near, combine(far, c)));
                if step == Some(at) {
                    words.push(word(Kind::Next, combine(far, c)));
                }
            }
            words.sort_unstable();
            words.dedup();
            words
        })
        .collect()
}

/// Calls from and to matched functions.
fn graph(side: &Side<'_>, id: &impl Fn(usize) -> Option<u64>, f: usize, words: &mut Vec<u64>) {
    /// Callers looked at; a function with more is known by its content.
    const MOST: usize = 64;
    let mut seen = Vec::new();
    for &callee in side.callees.of(f).iter().take(512) {
        if let Some(c) = id(callee as usize) {
            seen.push(word(Kind::Callee, c));
        }
    }
    words.extend(distinct(seen));
    let callers = side.callers.of(f);
    if callers.len() > MOST {
        return;
    }
    let mut seen = Vec::new();
    let mut last = None;
    for &caller in callers {
        let Some(c) = id(caller as usize) else { continue };
        seen.push(word(Kind::Caller, c));
        if last == Some(caller) {
            continue;
        }
        last = Some(caller);
        let calls = side.callees.of(caller as usize);
        if calls.len() <= 512 {
            // Between which matched calls it stands, and the how-manieth it is there.
            let mut anchor = 0;
            let mut nth = 0;
            for &callee in calls {
                match id(callee as usize) {
                    Some(a) => (anchor, nth) = (a + 1, 0),
                    None => {
                        nth += 1;
                        if callee as usize == f {
                            words.push(word(Kind::Place, combine(combine(c, anchor), nth)));
                        }
                    }
                }
            }
        }
    }
    words.extend(distinct(seen));
}
