//! Segments of the sequences of a grammar, with the index that lets schemes 3 and 4 pass over them.
//!
//! A segment is passed over if the function neither is entered nor executes a block in it; and, of a plain
//! path of two blocks or more, if the last of the path's pairs of neighbours is not completed in it, or any
//! of them, while no activation has executed two blocks of the path before it. Then no occurrence ends in it.
//! The states behind it are known from the last block that each open activation executed in it, the first
//! block of the path or any other; if it is the second of a pair of the path that is completed in the
//! segment, they are not, and the segment is searched.
//!
//! ```text
//! section  = zstd of: pairs: varint, for each: first terminal − last first (rising), second;
//!            for each sequence: segments: varint, for each: length in the sequence, n symbols, pops,
//!            pushes, functions (rising), 1 + last block of the survivor or 0, last blocks of what was
//!            entered; then for each segment its bits, one a pair, exclusive-or those of the segment before
//! ```
//! Source: Zhang and Gupta, section 4.4 (128 segments of the first rule; [`Levels`] for what it leaves open);
//! pairs are ours.
#![warn(clippy::indexing_slicing)]

use crate::balance::Levels;
use crate::file::unpacked;
use crate::file::varint::{self, Cursor};
use crate::grammar::{Grammar, Terminal};
use crate::ids::{BlockId, FuncId};
use crate::search::automaton::{Automaton, State};
use crate::symbol::{Step, Symbol};

/// What the section of the segments is called.
pub(crate) const SEGMENTS: [u8; 4] = *b"SEGM";

/// Segments that a sequence is divided into, at most.
const MOST_SEGMENTS: usize = 128;

/// Bytes of the section before it is packed, at most.
const MOST_BYTES: usize = 1 << 30;

/// A piece of a sequence.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Segment {
    /// Where in the sequence it ends.
    pub end: usize,
    /// How many symbols of the trace it makes.
    pub n_symbols: u64,
    /// What it does to the stack.
    pub levels: Levels,
    /// The functions that are entered or execute a block in it, rising.
    functions: Vec<FuncId>,
    /// The last block, a terminal, that the topmost of the functions that stay open executed in it.
    survivor: Option<u32>,
    /// For each function that is entered and stays open, its last block; its entry if it executed none.
    entered: Vec<u32>,
    /// The pairs that are completed in it, a bit each.
    pairs: Vec<u64>,
}

/// All segments.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Segments {
    /// By sequence.
    pub of: Vec<Vec<Segment>>,
    /// Blocks, as terminals, that one activation executed one after the other; sorted.
    pairs: Vec<(u32, u32)>,
}

/// What a search needs of a segment.
pub enum Wanted {
    /// Nothing: the path does not occur.
    Nothing,
    /// The function.
    Function,
    /// All of these pairs, or the last if something has begun, or one that leaves the state open: each with
    /// its second block, a terminal.
    Pairs(Vec<(usize, u32)>),
}

#[expect(
    clippy::indexing_slicing,
    reason = "a grammar that was made or checked is indexed by its own symbols"
)]
mod compute {
    use super::*;
    use std::collections::{HashMap, HashSet};

    const NONE: u32 = u32::MAX;

    /// By level, the first and the last block that a symbol adds; of what it enters, the entry where there is
    /// no block.
    struct Rules {
        at: Vec<u32>,
        pieces: Vec<(u32, u32)>,
        pair_ends: Vec<u32>,
        pairs: Vec<u32>,
        ids: HashMap<(u32, u32), u32>,
    }

    impl Rules {
        fn pieces(&self, symbol: u32) -> &[(u32, u32)] {
            &self.pieces[self.at[symbol as usize] as usize..self.at[symbol as usize + 1] as usize]
        }

        fn pair(&mut self, a: u32, b: u32) -> u32 {
            let next = u32::try_from(self.ids.len()).expect("fewer than symbols");
            *self.ids.entry((a, b)).or_insert(next)
        }
    }

    fn is_block(grammar: &Grammar, terminal: u32) -> bool {
        grammar.terminals[terminal as usize].symbol.is_block()
    }

    /// Adds a piece to a level: the pair that this completes, if any.
    fn add(grammar: &Grammar, level: &mut (u32, u32), piece: (u32, u32)) -> Option<(u32, u32)> {
        if piece.1 == NONE || !is_block(grammar, piece.1) {
            return None;
        }
        let before = level.1;
        level.1 = piece.1;
        if before == NONE || !is_block(grammar, before) {
            level.0 = piece.0;
            return None;
        }
        Some((before, piece.0))
    }

    /// How many symbols a piece of a sequence makes, and what it does to the stack.
    pub fn sums(piece: &[u32], lengths: &[u64], levels: &[Levels]) -> (u64, Levels) {
        let n_symbols = piece.iter().fold(0, |sum: u64, &s| sum.saturating_add(lengths[s as usize]));
        (n_symbols, piece.iter().fold(Levels::default(), |sum, &s| sum.then(levels[s as usize])))
    }

    /// More bytes than the section has before it is packed: 10 for each number, and one segment's bits for
    /// each symbol of a grammar that may complete a pair.
    pub fn longest(grammar: &Grammar, levels: &[Levels]) -> usize {
        let n_levels = |&s: &u32| levels[s as usize].pops as usize + levels[s as usize].pushes as usize + 1;
        let sum = |body: &[u32]| body.iter().map(n_levels).fold(0, usize::saturating_add);
        let n_sequences = grammar.sequences.iter().map(|s| sum(&s.body)).fold(0, usize::saturating_add);
        let n_pairs = sum(&grammar.bodies).saturating_add(n_sequences);
        let n_segments: usize =
            grammar.sequences.iter().map(|s| s.body.len().min(MOST_SEGMENTS).saturating_add(1)).sum();
        let of_segment = n_pairs / 8 + 10 * grammar.terminals.len() + 100;
        let all = n_segments.saturating_mul(of_segment).saturating_add(n_pairs.saturating_mul(20));
        all.min(MOST_BYTES)
    }

    fn rules(grammar: &Grammar, levels: &[Levels]) -> Rules {
        let mut rules = Rules {
            at: vec![0],
            pieces: Vec::new(),
            pair_ends: Vec::new(),
            pairs: Vec::new(),
            ids: HashMap::new(),
        };
        let end = |n: usize| u32::try_from(n).expect("the grammar is in memory");
        for (t, terminal) in (0..).zip(&grammar.terminals) {
            match terminal.symbol.step() {
                Step::Block(_) => rules.pieces.push((t, t)),
                Step::Enter(_) => rules.pieces.extend([(NONE, NONE), (t, t)]),
                Step::Exit => rules.pieces.extend([(NONE, NONE); 2]),
            }
            rules.at.push(end(rules.pieces.len()));
        }
        let (mut done, mut open) = (Vec::new(), Vec::new());
        for rule in 0..grammar.n_rules() {
            done.clear();
            open.clear();
            open.push((NONE, NONE));
            for &symbol in grammar.body(rule) {
                let pops = levels[symbol as usize].pops as usize;
                let start = rules.at[symbol as usize] as usize;
                for i in 0..rules.pieces(symbol).len() {
                    let piece = rules.pieces[start + i];
                    if i > pops {
                        open.push(piece);
                        continue;
                    }
                    let level = open.last_mut().expect("a level is always open");
                    if let Some((a, b)) = add(grammar, level, piece) {
                        let id = rules.pair(a, b);
                        rules.pairs.push(id);
                    }
                    if i < pops {
                        let left = open.pop().expect("a level is always open");
                        if open.is_empty() {
                            done.push(left);
                            open.push((NONE, NONE));
                        }
                    }
                }
            }
            rules.pieces.extend_from_slice(&done);
            rules.pieces.extend_from_slice(&open);
            rules.at.push(end(rules.pieces.len()));
            rules.pair_ends.push(end(rules.pairs.len()));
        }
        rules
    }

    impl Segments {
        /// The segments of a grammar.
        pub fn of_grammar(grammar: &Grammar, lengths: &[u64], levels: &[Levels]) -> Self {
            let n_terminals = grammar.terminals.len();
            let mut rules = rules(grammar, levels);
            let mut seen = vec![0_u32; lengths.len()];
            let (mut round, mut todo) = (0, Vec::new());
            let mut of: Vec<Vec<(Segment, HashSet<u32>)>> = Vec::new();
            for sequence in &grammar.sequences {
                let len = sequence.body.len().div_ceil(MOST_SEGMENTS).max(1);
                let mut segments = Vec::new();
                // The last block of each open function, and the round in which it was executed.
                let mut open: Vec<((u32, u32), u32)> = vec![((NONE, NONE), 0)];
                for (i, piece) in sequence.body.chunks(len).enumerate() {
                    round += 1;
                    let (mut functions, mut pairs) = (HashSet::new(), HashSet::new());
                    todo.extend_from_slice(piece);
                    while let Some(symbol) = todo.pop() {
                        if std::mem::replace(&mut seen[symbol as usize], round) == round {
                            continue;
                        }
                        let Some(rule) = (symbol as usize).checked_sub(n_terminals) else {
                            functions.insert(grammar.terminals[symbol as usize].func);
                            continue;
                        };
                        todo.extend_from_slice(grammar.body(rule));
                        let start = if rule == 0 { 0 } else { rules.pair_ends[rule - 1] };
                        pairs.extend(&rules.pairs[start as usize..rules.pair_ends[rule] as usize]);
                    }
                    let mut lowest = open.len();
                    for &symbol in piece {
                        let pops = levels[symbol as usize].pops as usize;
                        let start = rules.at[symbol as usize] as usize;
                        for i in 0..rules.pieces(symbol).len() {
                            let piece = rules.pieces[start + i];
                            if i > pops {
                                open.push((piece, round));
                                continue;
                            }
                            let level = open.last_mut().expect("the outermost stays");
                            if piece.1 != NONE {
                                level.1 = round;
                            }
                            if let Some((a, b)) = add(grammar, &mut level.0, piece) {
                                let id = rules.pair(a, b);
                                pairs.insert(id);
                            }
                            if i < pops && open.len() > 1 {
                                open.pop();
                                lowest = lowest.min(open.len());
                            }
                        }
                    }
                    functions.remove(&Terminal::NO_FUNC);
                    let mut functions: Vec<FuncId> = functions.into_iter().collect();
                    functions.sort_unstable();
                    let (last, when) = open[lowest - 1];
                    let (n_symbols, levels) = sums(piece, lengths, levels);
                    let segment = Segment {
                        end: i * len + piece.len(),
                        n_symbols,
                        levels,
                        functions,
                        survivor: (when == round && last.1 != NONE).then_some(last.1),
                        entered: open[lowest..].iter().map(|(piece, _)| piece.1).collect(),
                        pairs: Vec::new(),
                    };
                    segments.push((segment, pairs));
                }
                of.push(segments);
            }
            Self::with_pair_bits(of, rules.ids)
        }

        /// Each segment with the pairs that are completed in it as bits, in the order of all pairs.
        fn with_pair_bits(of: Vec<Vec<(Segment, HashSet<u32>)>>, ids: HashMap<(u32, u32), u32>) -> Self {
            let mut pairs: Vec<((u32, u32), u32)> = ids.into_iter().collect();
            pairs.sort_unstable();
            let mut place = vec![0; pairs.len()];
            for (i, (_, id)) in pairs.iter().enumerate() {
                place[*id as usize] = i;
            }
            let n_words = pairs.len().div_ceil(64);
            let with_bits = |(mut segment, ids): (Segment, HashSet<u32>)| {
                segment.pairs = vec![0; n_words];
                for id in ids {
                    let at = place[id as usize];
                    segment.pairs[at / 64] |= 1 << (at % 64);
                }
                segment
            };
            let of = of.into_iter().map(|segments| segments.into_iter().map(with_bits).collect()).collect();
            Self { of, pairs: pairs.into_iter().map(|(pair, _)| pair).collect() }
        }
    }
}

use compute::{longest, sums};

impl Segments {
    /// What a path needs of a segment.
    pub fn wanted(&self, terminals: &[Terminal], automaton: &Automaton) -> Wanted {
        let Some(blocks) = automaton.plain().filter(|blocks| blocks.len() > 1) else {
            return Wanted::Function;
        };
        let number = |block: &BlockId| {
            let terminal = Terminal { func: automaton.func, symbol: Symbol::block(*block) };
            terminals.binary_search(&terminal).ok().and_then(|t| u32::try_from(t).ok())
        };
        let pair = |two: &[BlockId]| match two {
            [a, b] => {
                let b = number(b)?;
                Some((self.pairs.binary_search(&(number(a)?, b)).ok()?, b))
            }
            _ => None,
        };
        blocks.windows(2).map(pair).collect::<Option<Vec<_>>>().map_or(Wanted::Nothing, Wanted::Pairs)
    }

    /// Writes the section.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, self.pairs.len() as u64);
        let mut last = 0;
        for &(a, b) in &self.pairs {
            varint::put(&mut out, u64::from(a - last));
            last = a;
            varint::put(&mut out, varint::zigzag(i64::from(b) - i64::from(a)));
        }
        for segments in &self.of {
            varint::put(&mut out, segments.len() as u64);
            let mut start = 0;
            for segment in segments {
                varint::put(&mut out, (segment.end - start) as u64);
                start = segment.end;
                varint::put(&mut out, segment.n_symbols);
                varint::put(&mut out, u64::from(segment.levels.pops));
                varint::put(&mut out, u64::from(segment.levels.pushes));
                varint::put_rising(&mut out, segment.functions.iter().map(|func| func.0));
                varint::put(&mut out, segment.survivor.map_or(0, |t| u64::from(t) + 1));
                segment.entered.iter().for_each(|&t| varint::put(&mut out, u64::from(t)));
            }
        }
        let mut before = vec![0; self.pairs.len().div_ceil(64)];
        for segment in self.of.iter().flatten() {
            for (word, before) in segment.pairs.iter().zip(&mut before) {
                out.extend((word ^ *before).to_le_bytes());
                *before = *word;
            }
        }
        zstd::bulk::compress(&out, 19).expect("memory is no error")
    }

    /// Reads the section of a grammar's segments; what they say of it must be so.
    pub fn decode(bytes: &[u8], grammar: &Grammar, lengths: &[u64], levels: &[Levels]) -> Option<Self> {
        let bytes = unpacked(bytes, longest(grammar, levels))?;
        let mut cursor = Cursor::new(&bytes);
        let (mut pairs, mut last) = (Vec::new(), 0_u32);
        for _ in 0..cursor.get_len()? {
            last = last.checked_add(cursor.get_u32()?)?;
            let second = i64::from(last).checked_add(varint::unzigzag(cursor.get()?))?;
            pairs.push((last, u32::try_from(second).ok()?));
        }
        let is_terminal = |t: u32| (t as usize) < grammar.terminals.len();
        let mut of = Vec::new();
        for sequence in &grammar.sequences {
            let (mut segments, mut end) = (Vec::new(), 0_usize);
            for _ in 0..cursor.get_len()? {
                let start = end;
                end = usize::try_from(cursor.get()?).ok()?.checked_add(start)?;
                let (made, does) = sums(sequence.body.get(start..end)?, lengths, levels);
                let n_symbols = cursor.get()?;
                let levels = Levels { pops: cursor.get_u32()?, pushes: cursor.get_u32()? };
                ((made, does) == (n_symbols, levels)).then_some(())?;
                let functions = cursor.get_rising()?.into_iter().map(FuncId).collect();
                let survivor = cursor.get_u32()?.checked_sub(1);
                let entered = (0..levels.pushes).map(|_| cursor.get_u32()).collect::<Option<Vec<u32>>>()?;
                (entered.iter().chain(&survivor).all(|&t| is_terminal(t))).then_some(())?;
                segments.push(Segment {
                    end,
                    n_symbols,
                    levels,
                    functions,
                    survivor,
                    entered,
                    pairs: Vec::new(),
                });
            }
            (end == sequence.body.len()).then_some(())?;
            of.push(segments);
        }
        let mut before = vec![0; pairs.len().div_ceil(64)];
        for segment in of.iter_mut().flatten() {
            for word in &mut before {
                *word ^= u64::from_le_bytes(cursor.take(8)?.try_into().ok()?);
            }
            segment.pairs.clone_from(&before);
        }
        Some(Self { of, pairs })
    }
}

impl Segment {
    /// Whether a search that wants this need not look into the segment; `has_begun` says whether an
    /// activation executed two blocks of a plain path, or more, before it.
    pub fn is_passed(&self, wanted: &Wanted, func: FuncId, has_begun: impl FnOnce() -> bool) -> bool {
        let has = |pair: usize| self.pairs.get(pair / 64).is_some_and(|word| word >> (pair % 64) & 1 == 1);
        let leaves_open = |block: &u32, pairs: &[(usize, u32)]| {
            pairs.iter().any(|&(pair, second)| second == *block && has(pair))
        };
        match wanted {
            Wanted::Nothing => true,
            _ if self.functions.binary_search(&func).is_err() => true,
            Wanted::Function => false,
            Wanted::Pairs(pairs) => {
                let may_end = pairs.last().is_some_and(|&(pair, _)| has(pair))
                    && (pairs.iter().all(|&(pair, _)| has(pair)) || has_begun());
                !may_end && !self.entered.iter().chain(&self.survivor).any(|block| leaves_open(block, pairs))
            }
        }
    }

    /// Brings the states of open functions from before the segment to behind it, if it is passed over. The
    /// first state stands for no function, and stays; `other` is the state of other functions.
    pub fn pass(&self, terminals: &[Terminal], automaton: &Automaton, other: State, states: &mut Vec<State>) {
        let kept = states.len().saturating_sub(self.levels.pops as usize).max(1);
        states.truncate(kept);
        let behind = |terminal: u32| match terminals.get(terminal as usize) {
            Some(t) if t.func == automaton.func => match t.symbol.step() {
                Step::Block(block) => automaton.next(0, automaton.class(block)),
                _ => 0,
            },
            _ => other,
        };
        if let (Some(survivor), Some(top)) = (self.survivor, states.last_mut())
            && terminals.get(survivor as usize).is_some_and(|t| t.func == automaton.func)
        {
            *top = behind(survivor);
        }
        states.extend(self.entered.iter().map(|&terminal| behind(terminal)));
    }
}
