//! Activations that are equal, made one symbol each: a function is entered, does the same, and is left.
//!
//! When a function is left, what it did since its entry is looked up; its calls have been made symbols by
//! then. What is new goes to the compressor as a part of its own, and has a symbol from then on, which stands
//! in the activation below. So the compressor does not see what was seen before, but one symbol of it, and no
//! repetition is cut by a call that was made.
//!
//! What stands in one activation is gathered, too, since loops may run long in it: the rounds of its loops (a
//! block behind one of a higher number begins one), about eight of these, and about eight of those. Where a
//! gathering ends is said by the last symbol of it alone, so that what is equal is cut alike. Where much is
//! known already, only the second round of its kind is made a symbol: in code that never does the same, most
//! come once.
//!
//! Activations are told by 128 bits of their symbols, as strings are in the columns: they need not be kept.
//! One that becomes too long to be kept until it ends is given to the compressor as it comes, with those that
//! it was called from.
//!
//! Source: the technique is hash-consing (Ershov, On programming of arithmetic operations, CACM 1(8), 1958);
//! to use it on calls is ours. Borders that contents say are those of Muthitacharoen, Chen and Mazières, A
//! Low-bandwidth Network File System, SOSP 2001, section 3.1.

use crate::ids::BlockId;
use crate::symbol::{Step, Symbol};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Takes sequences of symbols, and makes rules of what is repeated.
pub trait Compressor {
    /// Appends to the stream.
    fn push(&mut self, symbols: &[u32]);
    /// Takes a part: the symbol that stands for it.
    fn part(&mut self, symbols: &[u32]) -> u32;
}

/// Symbols of open activations that are kept, at most: 1 MB.
const MOST_KEPT: usize = 1 << 18;

/// How often rounds are gathered: those of loops, some of these, some of those.
const LEVELS: usize = 3;
/// Bits of a symbol's hash that are zero where it ends a gathering.
const BORDER: u64 = 7;
/// While fewer activations and rounds are known, the first round of its kind is a symbol.
const MOST_AT_ONCE: usize = 1 << 16;
/// Rounds that are kept in mind that came once.
const MOST_ONCE: usize = 1 << 16;

/// What is known of activations of all streams.
pub struct Activations {
    most_kept: usize,
    most_at_once: usize,
    has_rounds: bool,
    /// What open activations did so far, one behind the other; calls are one symbol each.
    kept: Vec<u32>,
    open: Vec<Open>,
    known: HashMap<Print, u32, BuildHasherDefault<Low>>,
    /// Some of what came once, by its fingerprint's last bits.
    once: Vec<Print>,
}

/// An open activation.
struct Open {
    /// Where it begins; `None` if that was given to the compressor.
    start: Option<usize>,
    /// Where what is gathered next begins, of each level.
    rounds: [usize; LEVELS],
    /// Its last block.
    block: BlockId,
}

/// A fingerprint.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Print([u64; 2]);

impl std::hash::Hash for Print {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.0[0]);
    }
}

/// The hash of what is one.
#[derive(Default)]
struct Low(u64);

impl Hasher for Low {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0 << 8 | u64::from(byte));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

/// Both halves of a product: each bit depends on all of both factors.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    let (low, high) = (product as u64, (product >> 64) as u64);
    low ^ high
}

impl Print {
    fn of(symbols: &[u32]) -> Self {
        let (mut a, mut b) = (symbols.len() as u64 ^ 0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344_u64);
        let (twos, last) = symbols.as_chunks::<2>();
        let twos = twos.iter().map(|&[x, y]| u64::from(x) << 32 | u64::from(y));
        for two in twos.chain(last.iter().map(|&x| u64::from(x))) {
            a = mix(a ^ two, 0xa409_3822_299f_31d1).wrapping_add(two);
            b = mix(b.wrapping_add(two), 0x082e_fa98_ec4e_6c89) ^ two.rotate_left(23);
        }
        Self([mix(a, 0x4528_21e6_38d0_1377), mix(b, 0xbe54_66cf_34e9_0c6d)])
    }
}

impl Default for Activations {
    fn default() -> Self {
        Self {
            most_kept: MOST_KEPT,
            most_at_once: MOST_AT_ONCE,
            has_rounds: true,
            kept: Vec::new(),
            open: Vec::new(),
            known: HashMap::default(),
            once: vec![Print([0; 2]); MOST_ONCE],
        }
    }
}

impl Activations {
    /// The same, for a compressor that finds loops better by itself, in more time.
    pub fn without_rounds() -> Self {
        Self { has_rounds: false, once: Vec::new(), ..Self::default() }
    }

    /// Takes the next symbol of a stream, `number` to the compressor.
    #[inline]
    pub fn push(&mut self, symbol: Symbol, number: u32, to: &mut impl Compressor) {
        match symbol.step() {
            Step::Enter(_) => {
                let start = self.kept.len();
                self.open.push(Open { start: Some(start), rounds: [start + 1; LEVELS], block: BlockId(0) });
                self.kept.push(number);
            }
            Step::Block(block) => {
                let last = self.open.last_mut().map(|open| std::mem::replace(&mut open.block, block));
                if self.has_rounds && last.is_some_and(|last| block <= last) {
                    self.end_round(to);
                }
                self.kept.push(number);
            }
            Step::Exit => {
                self.kept.push(number);
                if let Some(start) = self.open.pop().and_then(|open| open.start) {
                    let symbols = &self.kept[start..];
                    let made = *self.known.entry(Print::of(symbols)).or_insert_with(|| to.part(symbols));
                    self.kept.truncate(start);
                    self.kept.push(made);
                }
            }
        }
        if self.open.is_empty() {
            self.give(to);
        } else if self.kept.len() >= self.most_kept {
            to.push(&self.kept);
            self.kept.clear();
            self.open.iter_mut().for_each(|open| (open.start, open.rounds) = (None, [0; LEVELS]));
        }
    }

    /// A round of the innermost activation's is over.
    fn end_round(&mut self, to: &mut impl Compressor) {
        let Some(open) = self.open.last_mut() else { return };
        for level in 0..LEVELS {
            let start = open.rounds[level];
            let symbols = &self.kept[start..];
            let made = match symbols {
                [] | [_] => None,
                _ => {
                    let print = Print::of(symbols);
                    let at = print.0[1] % MOST_ONCE as u64;
                    let once = &mut self.once[usize::try_from(at).expect("few")];
                    match self.known.get(&print) {
                        Some(&made) => Some(made),
                        None if std::mem::replace(once, print) == print
                            || self.known.len() < self.most_at_once =>
                        {
                            let made = to.part(symbols);
                            self.known.insert(print, made);
                            Some(made)
                        }
                        None => None,
                    }
                }
            };
            if let Some(made) = made {
                self.kept.truncate(start);
                self.kept.push(made);
            }
            open.rounds[..=level].fill(self.kept.len());
            let is_border = |made: u32| mix(u64::from(made), 0x9e37_79b9_7f4a_7c15) & BORDER == 0;
            if !made.is_some_and(is_border) {
                break;
            }
        }
    }

    /// Gives what is kept to the compressor, at the end of a stream.
    pub fn give(&mut self, to: &mut impl Compressor) {
        to.push(&self.kept);
        self.kept.clear();
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::rules::{PART, RULE, Rules};
    use crate::grammar::sequitur::Sequitur;
    use crate::tests::random_stream;
    use proptest::prelude::*;

    /// Keeps what it is given.
    #[derive(Default)]
    struct Given {
        stream: Vec<u32>,
        parts: Vec<Vec<u32>>,
    }

    impl Compressor for Given {
        fn push(&mut self, symbols: &[u32]) {
            self.stream.extend(symbols);
        }

        fn part(&mut self, symbols: &[u32]) -> u32 {
            self.parts.push(symbols.to_vec());
            PART | u32::try_from(self.parts.len() - 1).expect("few")
        }
    }

    fn expand(symbol: u32, body: &dyn Fn(u32) -> Option<Vec<u32>>, out: &mut Vec<u32>) {
        match body(symbol) {
            Some(symbols) => symbols.iter().for_each(|&symbol| expand(symbol, body, out)),
            None => out.push(symbol),
        }
    }

    /// Numbers that a compressor may be given.
    fn number(code: u32) -> u32 {
        match Symbol(code).step() {
            Step::Enter(func) => 100 + func.0,
            Step::Block(block) => block.0,
            Step::Exit => 99,
        }
    }

    proptest! {
        #[test]
        fn streams_come_out_as_they_went_in(seed: u64, n in 1..500_usize, most_kept in 1..200_usize, most_at_once in 0..50_usize) {
            let streams = [random_stream(seed, n), random_stream(seed ^ 0x77, n)];
            let (mut given, mut sequitur) = (Given::default(), Sequitur::new());
            let mut want = Vec::new();
            let mut to_given = Activations { most_kept, most_at_once, ..Activations::default() };
            let mut to_sequitur = Activations { most_kept, most_at_once, ..Activations::default() };
            for stream in &streams {
                for &code in stream {
                    to_given.push(Symbol(code), number(code), &mut given);
                    to_sequitur.push(Symbol(code), number(code), &mut sequitur);
                }
                to_given.give(&mut given);
                to_sequitur.give(&mut sequitur);
                sequitur.end();
                want.push(stream.iter().map(|&code| number(code)).collect::<Vec<_>>());
            }
            let part = |s: u32| given.parts.get((s & !PART) as usize).filter(|_| s & PART != 0).cloned();
            let mut got = Vec::new();
            given.stream.iter().for_each(|&symbol| expand(symbol, &part, &mut got));
            prop_assert_eq!(&got, &want.concat());
            // None is given twice.
            let mut parts = given.parts.clone();
            parts.sort_unstable();
            parts.dedup();
            prop_assert_eq!(parts.len(), given.parts.len());
            let Rules { bodies, ends, sequences } = sequitur.finish().in_order();
            let rule = |s: u32| {
                let rule = (s & RULE != 0).then_some((s & !RULE) as usize)?;
                let start = if rule == 0 { 0 } else { ends[rule - 1] };
                Some(bodies[start..ends[rule]].to_vec())
            };
            let expanded = sequences.iter().map(|sequence| {
                let mut out = Vec::new();
                sequence.iter().for_each(|&symbol| expand(symbol, &rule, &mut out));
                out
            });
            prop_assert_eq!(expanded.collect::<Vec<_>>(), want);
            // Each rule is used twice, and says something.
            for rule in 0..ends.len() {
                let symbol = RULE | u32::try_from(rule).expect("few");
                let uses = bodies.iter().chain(sequences.iter().flatten()).filter(|&&s| s == symbol).count();
                prop_assert!(uses > 1, "rule {} is used {} times", rule, uses);
                let start = if rule == 0 { 0 } else { ends[rule - 1] };
                prop_assert!(ends[rule] - start > 1);
            }
        }
    }
}
