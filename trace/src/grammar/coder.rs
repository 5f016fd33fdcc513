//! A grammar as few bytes: rules stand where they are first used, and each symbol is told by what can follow.
//!
//! The sequences are written from left to right. A rule that has not been written yet is written in place: a
//! flag, its length, its body. Everything else has been seen, and is written in two steps: with which
//! terminal it begins, by what followed the last terminal before (behind an exit: the last two) so far; then
//! which of the symbols that begin with this terminal it is, the latest first. The place among these moves
//! half way up whenever a symbol is used.
//!
//! ```text
//! section = version 2, terminals, sequences: varint, for each: thread, n symbols; n rules,
//!           n symbols of all bodies, range-coded body
//! ```
//!
//! How numbers and bits are coded is said in `range`. What is coded takes a byte for each 1,024 symbols,
//! rules and numbers beyond the first 1,024, if need be zeros at its end, so that what says that it has more
//! is known to be damaged. Columns (`columns`) are coded the same way; the version is that of the file.
#![warn(clippy::indexing_slicing)]

use crate::file::unpacked_words;
use crate::file::varint::{self, Cursor};
use crate::grammar::range::{Bit, Coder, Decoder, Encoder, Number};
use crate::grammar::{Grammar, Sequence, Terminal};
use crate::ids::{FuncId, ThreadId};
use crate::symbol::{Step, Symbol};

/// What the section of the grammar is called.
pub(crate) const GRAMMAR: [u8; 4] = *b"GRAM";

/// The version of the section of a grammar.
const GRAMMAR_VERSION: u8 = 2;
/// What a byte may stand for, at most, of symbols, rules and numbers; so many may come for nothing.
const A_BYTE: usize = 1024;
/// Symbols of all kinds that a grammar may have.
const MOST: usize = 1 << 30;

/// Rules over terminals that are numbers, in the form that is coded. A symbol is a terminal if it is below
/// their number, else a rule.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Slp {
    /// How many terminals there are.
    pub n_terminals: u32,
    /// The bodies of the rules; what a rule is made of comes before it.
    pub bodies: Vec<u32>,
    /// Where each ends.
    pub ends: Vec<u32>,
    /// What is made of them.
    pub sequences: Vec<Vec<u32>>,
}

/// What has been seen, and how likely what follows is. The same for writing and reading.
#[expect(clippy::indexing_slicing, reason = "symbols are checked where they come in")]
mod model {
    use super::*;

    pub struct Model<'a> {
        n_terminals: usize,
        is_exit: &'a dyn Fn(u32) -> bool,
        last: [u32; 2],
        followers: Vec<Vec<u32>>,
        rank: Vec<[Bit; 6]>,
        far_rank: Number,
        fresh: Number,
        by_first: Vec<Vec<Seen>>,
        n_seen: u32,
        /// By symbol, for who writes: where it is in the list of those that begin as it does, and how that
        /// is.
        places: Vec<(u32, u32)>,
        depth: Vec<Number>,
        is_new: [Bit; 16],
        pub length: Number,
        was_new: bool,
    }

    pub const NONE: u32 = u32::MAX;

    /// A symbol that has been seen. How it ends is kept beside its number: looked up elsewhere, it would not
    /// be in the processor's cache.
    #[derive(Clone, Copy)]
    struct Seen {
        symbol: u32,
        /// Its last terminal and that before it, which terminals have not.
        ends: [u32; 2],
    }

    impl<'a> Model<'a> {
        pub fn new(n_terminals: u32, is_exit: &'a dyn Fn(u32) -> bool) -> Self {
            let n = n_terminals as usize;
            Self {
                n_terminals: n,
                is_exit,
                last: [NONE; 2],
                followers: vec![Vec::new(); 2 * n + 2],
                rank: vec![<[Bit; 6]>::default(); 2 * n + 2],
                far_rank: Number::default(),
                fresh: Number::default(),
                by_first: (0..n_terminals).map(|t| vec![Seen { symbol: t, ends: [t, NONE] }]).collect(),
                n_seen: n_terminals,
                places: (0..n_terminals).map(|t| (0, t)).collect(),
                depth: vec![Number::default(); 32],
                is_new: <[Bit; 16]>::default(),
                length: Number::default(),
                was_new: false,
            }
        }

        pub fn start(&mut self) {
            self.last = [NONE; 2];
        }

        fn context(&self) -> usize {
            match self.last {
                [NONE, _] => 2 * self.n_terminals,
                [last, before] if (self.is_exit)(last) => match before {
                    NONE => 2 * self.n_terminals + 1,
                    before => self.n_terminals + before as usize,
                },
                [last, _] => last as usize,
            }
        }

        /// Whether a rule is written in place here.
        pub fn is_new(&mut self, coder: &mut impl Coder, is_new: bool, is_inner: bool) -> bool {
            let kind = match self.last[0] {
                NONE => 0,
                last if (self.is_exit)(last) => 1,
                _ => 2,
            };
            let context = kind | usize::from(self.was_new) << 2 | usize::from(is_inner) << 3;
            self.was_new = coder.bit(&mut self.is_new[context], is_new);
            self.was_new
        }

        /// A symbol that has been seen, and its first terminal.
        pub fn symbol<C: Coder>(&mut self, coder: &mut C, symbol: u32) -> Option<(u32, u32)> {
            let context = self.context();
            let (place, first) = self.places.get(symbol as usize).copied().unwrap_or((0, NONE));
            let followers = &mut self.followers[context];
            let bits = &mut self.rank[context];
            let rank = if C::WRITES { followers.iter().position(|&f| f == first) } else { None };
            let [bit_fresh, near @ ..] = bits;
            let is_fresh = followers.is_empty() || coder.bit(bit_fresh, rank.is_none());
            let first = if is_fresh {
                let first = self.fresh.code(coder, first.min(i32::MAX.cast_unsigned() - 1));
                if first as usize >= self.n_terminals {
                    return None;
                }
                followers.insert(0, first);
                first
            } else {
                let rank = rank.unwrap_or(0);
                let most = followers.len() - 1;
                let mut got = 0;
                while got < most.min(near.len()) && coder.bit(&mut near[got], rank > got) {
                    got += 1;
                }
                if got == near.len() && most > got {
                    let far = self.far_rank.code(coder, u32::try_from(rank.saturating_sub(got)).ok()?);
                    got += far as usize;
                }
                let first = *followers.get(got)?;
                followers[..=got].rotate_right(1);
                first
            };
            let list = &mut self.by_first[first as usize];
            let top = list.len() - 1;
            let mut at = top;
            if top > 0 {
                // One more than what is coded is at most the length of the list.
                let most_bits = list.len().ilog2();
                let depth = self.depth.get_mut(most_bits as usize)?;
                let wanted = u32::try_from(top.saturating_sub(place as usize)).ok()?;
                at = top.checked_sub(depth.code_below(coder, wanted, most_bits) as usize)?;
            }
            let got = list[at];
            let up = at + (top - at).div_ceil(2);
            list.swap(at, up);
            if C::WRITES {
                self.places[list[at].symbol as usize].0 = u32::try_from(at).ok()?;
                self.places[got.symbol as usize].0 = u32::try_from(up).ok()?;
            }
            let [last, before] = got.ends;
            self.last = if before == NONE { [last, self.last[0]] } else { got.ends };
            Some((got.symbol, first))
        }

        /// The rule that was written last, which begins with terminal `first`, gets the next number: it ends
        /// as what was written does.
        pub fn define<C: Coder>(&mut self, first: u32) -> u32 {
            let symbol = self.n_seen;
            let list = &mut self.by_first[first as usize];
            if C::WRITES {
                self.places.push((u32::try_from(list.len()).unwrap_or(NONE), first));
            }
            list.push(Seen { symbol, ends: self.last });
            self.n_seen += 1;
            symbol
        }
    }
}

use model::Model;

/// Rules over terminals, borrowed, and numbers that go with them.
pub struct Parts<'a> {
    /// How many terminals there are.
    pub n_terminals: u32,
    /// As in [`Slp`].
    pub bodies: &'a [u32],
    /// As in [`Slp`].
    pub ends: &'a [u32],
    /// As in [`Slp`].
    pub sequences: Vec<&'a [u32]>,
    /// Any numbers.
    pub counts: &'a [u64],
}

/// Numbers from this on are rare, and written raw.
const LARGE: u32 = 1 << 30;

fn code_count(model: &mut Number, coder: &mut impl Coder, count: u64) -> u64 {
    let small = u32::try_from(count).unwrap_or(LARGE).min(LARGE);
    let got = model.code(coder, small);
    if got < LARGE {
        return u64::from(got);
    }
    let half = |n: u64| u32::try_from(n & 0xffff_ffff).unwrap_or(0);
    let high = coder.raw(32, half(count >> 32));
    u64::from(high) << 32 | u64::from(coder.raw(32, half(count)))
}

/// Sets the terminal that something begins with, if it is not known yet.
fn begin(begins: &mut u32, first: u32) {
    if *begins == model::NONE {
        *begins = first;
    }
}

/// Writes rules; `is_exit` says of a terminal whether it tells little of what follows.
pub fn encode(slp: &Parts, is_exit: &dyn Fn(u32) -> bool) -> Vec<u8> {
    let mut coder = Encoder::default();
    let mut counts = Number::default();
    for &count in slp.counts {
        code_count(&mut counts, &mut coder, count);
    }
    let mut model = Model::new(slp.n_terminals, is_exit);
    let n_terminals = slp.n_terminals as usize;
    let mut number: Vec<u32> = vec![model::NONE; slp.ends.len()];
    let body = |rule: usize| {
        let start =
            rule.checked_sub(1).and_then(|before| slp.ends.get(before)).map_or(0, |&end| end as usize);
        slp.ends.get(rule).and_then(|&end| slp.bodies.get(start..end as usize)).unwrap_or_default()
    };
    for sequence in &slp.sequences {
        model.start();
        // Rules that are being written, innermost last: what is left of each, and its first terminal.
        let mut open: Vec<(usize, &[u32], u32)> = vec![(usize::MAX, sequence, model::NONE)];
        while let Some((rule, rest, begins)) = open.last_mut() {
            let is_inner = *rule != usize::MAX;
            let Some((&symbol, behind)) = rest.split_first() else {
                let Some((rule, _, first)) = open.pop().filter(|_| is_inner) else { break };
                let made = model.define::<Encoder>(first);
                if let Some(number) = number.get_mut(rule) {
                    *number = made;
                }
                if let Some((_, _, begins)) = open.last_mut() {
                    begin(begins, first);
                }
                continue;
            };
            *rest = behind;
            let known = match (symbol as usize).checked_sub(n_terminals) {
                None => symbol,
                Some(rule) => number.get(rule).copied().unwrap_or(model::NONE),
            };
            if model.is_new(&mut coder, known == model::NONE, is_inner) {
                let rule = symbol as usize - n_terminals;
                let body = body(rule);
                model.length.code(&mut coder, u32::try_from(body.len() - 2).unwrap_or(0));
                open.push((rule, body, model::NONE));
            } else if let Some((_, first)) = model.symbol(&mut coder, known) {
                begin(begins, first);
            }
        }
    }
    let mut bytes = coder.finish();
    let lengths = slp.sequences.iter().map(|sequence| sequence.len());
    let n_all = n_all(lengths, [slp.ends.len(), slp.bodies.len(), slp.counts.len()]);
    let least = n_all.saturating_sub(A_BYTE).div_ceil(A_BYTE);
    bytes.resize(bytes.len().max(least), 0);
    bytes
}

/// All that is coded, each thing once.
fn n_all(lengths: impl Iterator<Item = usize>, others: [usize; 3]) -> usize {
    lengths.chain(others).fold(0, usize::saturating_add)
}

/// Reads what [`encode`] wrote: `lengths` are those of the sequences, then so many rules, symbols of bodies,
/// and numbers.
pub fn decode(
    bytes: &[u8],
    n_terminals: u32,
    lengths: &[usize],
    n_rules: usize,
    n_symbols: usize,
    n_counts: usize,
    is_exit: &dyn Fn(u32) -> bool,
) -> Option<(Slp, Vec<u64>)> {
    // What says that it has more would only use up memory.
    let most = bytes.len().saturating_add(1).saturating_mul(A_BYTE);
    if n_all(lengths.iter().copied(), [n_rules, n_symbols, n_counts]) > most {
        return None;
    }
    let mut coder = Decoder::new(bytes);
    let mut model = Number::default();
    let counts = (0..n_counts).map(|_| code_count(&mut model, &mut coder, 0)).collect();
    let mut model = Model::new(n_terminals, is_exit);
    let mut slp = Slp { n_terminals, ..Slp::default() };
    slp.bodies.reserve_exact(n_symbols.min(1 << 24));
    slp.ends.reserve_exact(n_rules.min(1 << 24));
    // Symbols of bodies that are not done, innermost last: where each begins, how long it will be, and its
    // first terminal.
    let (mut stack, mut open): (Vec<u32>, Vec<(usize, usize, u32)>) = (Vec::new(), Vec::new());
    let mut n_open = 0;
    for &len in lengths {
        model.start();
        stack.clear();
        open.push((0, len, model::NONE));
        let mut n_outer = 0;
        while let Some((start, len, begins)) = open.last_mut() {
            let (start, len, first) = (*start, *len, *begins);
            let is_inner = n_outer > 0;
            if stack.len() - start == len {
                open.pop();
                if let Some((_, _, begins)) = open.last_mut() {
                    n_outer -= 1;
                    begin(begins, first);
                    let made = model.define::<Decoder<'_>>(first);
                    slp.bodies.extend_from_slice(stack.get(start..)?);
                    slp.ends.push(u32::try_from(slp.bodies.len()).ok()?);
                    stack.truncate(start);
                    stack.push(made);
                }
                continue;
            }
            if model.is_new(&mut coder, false, is_inner) {
                let len = model.length.code(&mut coder, 0) as usize + 2;
                n_open += 1;
                if n_open > n_rules || len > n_symbols - slp.bodies.len().min(n_symbols) {
                    return None;
                }
                n_outer += 1;
                open.push((stack.len(), len, model::NONE));
            } else {
                let (symbol, first) = model.symbol(&mut coder, model::NONE)?;
                begin(begins, first);
                stack.push(symbol);
            }
        }
        slp.sequences.push(stack.clone());
    }
    (slp.ends.len() == n_rules && slp.bodies.len() == n_symbols).then_some((slp, counts))
}

/// The section of a grammar.
pub fn write_grammar(grammar: &Grammar) -> Vec<u8> {
    let mut out = vec![GRAMMAR_VERSION];
    let mut terminals = Vec::new();
    let funcs: Vec<&[Terminal]> = grammar.terminals.chunk_by(|a, b| a.func == b.func).collect();
    varint::put(&mut terminals, funcs.len() as u64);
    let mut last = 0;
    for of_func in funcs {
        let func = of_func.first().map_or(FuncId(0), |t| t.func);
        varint::put(&mut terminals, u64::from(func.0 - last));
        last = func.0;
        varint::put_rising(&mut terminals, of_func.iter().map(|t| t.symbol.0));
    }
    let terminals = zstd::bulk::compress(&terminals, 19).expect("memory is no error");
    varint::put(&mut out, terminals.len() as u64);
    out.extend(terminals);
    varint::put(&mut out, grammar.sequences.len() as u64);
    for sequence in &grammar.sequences {
        varint::put(&mut out, u64::from(sequence.thread.0));
        varint::put(&mut out, sequence.body.len() as u64);
    }
    varint::put(&mut out, grammar.ends.len() as u64);
    varint::put(&mut out, grammar.bodies.len() as u64);
    let slp = Parts {
        n_terminals: u32::try_from(grammar.terminals.len()).expect("numbered by u32"),
        bodies: &grammar.bodies,
        ends: &grammar.ends,
        sequences: grammar.sequences.iter().map(|s| s.body.as_slice()).collect(),
        counts: &[],
    };
    let is_exit = |t: u32| grammar.terminals.get(t as usize).is_some_and(|t| t.symbol.step() == Step::Exit);
    out.extend(encode(&slp, &is_exit));
    out
}

/// Reads the section of a grammar.
pub fn read_grammar(bytes: &[u8]) -> Option<Grammar> {
    let mut cursor = Cursor::new(bytes);
    if cursor.get()? != u64::from(GRAMMAR_VERSION) {
        return None;
    }
    let n = cursor.get_len()?;
    let packed = unpacked_words(cursor.take(n)?)?;
    let mut inner = Cursor::new(&packed);
    let (mut terminals, mut last): (Vec<Terminal>, u32) = (Vec::new(), 0);
    for _ in 0..inner.get_len()? {
        last = last.checked_add(inner.get_u32()?)?;
        let (func, symbols) = (FuncId(last), inner.get_rising()?);
        terminals.extend(symbols.into_iter().map(|code| Terminal { func, symbol: Symbol(code) }));
    }
    let in_order = terminals.windows(2).all(|two| matches!(two, [a, b] if a < b));
    if !in_order || !terminals.iter().all(|t| t.symbol.is_valid()) {
        return None;
    }
    let (mut threads, mut lengths) = (Vec::new(), Vec::new());
    for _ in 0..cursor.get_len()? {
        threads.push(ThreadId(cursor.get_u32()?));
        lengths.push(usize::try_from(cursor.get()?).ok().filter(|&n| n < MOST)?);
    }
    let n_rules = usize::try_from(cursor.get()?).ok().filter(|&n| n < MOST)?;
    let n_symbols = usize::try_from(cursor.get()?).ok().filter(|&n| n < MOST)?;
    let is_exit = |t: u32| terminals.get(t as usize).is_some_and(|t| t.symbol.step() == Step::Exit);
    let n_terminals = u32::try_from(terminals.len()).ok()?;
    let (slp, _none) = decode(cursor.rest(), n_terminals, &lengths, n_rules, n_symbols, 0, &is_exit)?;
    let sequences = threads.into_iter().zip(slp.sequences).map(|(thread, body)| Sequence { thread, body });
    let sequences = sequences.collect();
    Some(Grammar { terminals, bodies: slp.bodies, ends: slp.ends, sequences })
}
