//! A trace as a grammar: rules over terminals, a sequence a thread; what each rule does to the stack; pieces
//! of it, expanded.
//!
//! Terminals are numbered over the whole program: a block of a function is one, wherever it stands. So the
//! path-context problem is gone: each rule says by its terminals whose blocks it has.
//!
//! Source: Larus, Whole Program Paths, PLDI 1999 (the grammar); Zhang and Gupta, section 4.2.

use crate::balance::Levels;
use crate::grammar::rules::{RULE, Rules};
use crate::ids::{FuncId, ThreadId};
use crate::symbol::{Step, Symbol};
use std::collections::HashMap;

pub mod activations;
pub(crate) mod coder;
pub(crate) mod loaded;
pub mod pack;
pub(crate) mod range;
pub mod repair;
pub mod rules;
pub(crate) mod segments;
pub mod sequitur;

/// A symbol that may stand in a trace, with the function that it belongs to. Exits belong to all: to none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Terminal {
    /// The function; [`Terminal::NO_FUNC`] for exits.
    pub func: FuncId,
    /// The symbol, with its marks.
    pub symbol: Symbol,
}

impl Terminal {
    /// In place of the function of an exit.
    pub const NO_FUNC: FuncId = FuncId(u32::MAX);
}

/// A sequence of the grammar: the stream of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sequence {
    /// Which thread.
    pub thread: ThreadId,
    /// What it is made of.
    pub body: Vec<u32>,
}

/// A grammar. A symbol of it is a terminal if it is below the number of terminals; else it is a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grammar {
    /// Sorted.
    pub terminals: Vec<Terminal>,
    /// The bodies of the rules, one behind the other; what a rule is made of comes before it.
    pub bodies: Vec<u32>,
    /// Where each body ends.
    pub ends: Vec<u32>,
    /// By thread.
    pub sequences: Vec<Sequence>,
}

/// Numbers terminals as they appear.
#[derive(Default)]
pub struct Alphabet {
    /// In order of appearance.
    pub terminals: Vec<Terminal>,
    /// By function: of its blocks, and of its entry without a mark.
    blocks: Vec<Vec<u32>>,
    entries: Vec<u32>,
    /// Of the exit without a mark.
    exit: Option<u32>,
    others: HashMap<Terminal, u32>,
}

impl Alphabet {
    /// The number of `symbol`, which belongs to `func`.
    #[inline]
    pub fn number(&mut self, func: FuncId, symbol: Symbol) -> u32 {
        let known = match symbol.step() {
            Step::Block(block) => {
                self.blocks.get(func.index()).and_then(|blocks| blocks.get(block.index())).copied()
            }
            _ if symbol != symbol.plain() => None,
            Step::Enter(entered) => self.entries.get(entered.index()).copied(),
            Step::Exit => self.exit,
        };
        match known {
            Some(number) if number != u32::MAX => number,
            _ => self.other(func, symbol),
        }
    }

    fn other(&mut self, func: FuncId, symbol: Symbol) -> u32 {
        let func = if symbol.step() == Step::Exit { Terminal::NO_FUNC } else { func };
        let next = u32::try_from(self.terminals.len()).expect("fewer than 2^32 terminals");
        let number = *self.others.entry(Terminal { func, symbol }).or_insert(next);
        if number == next {
            self.terminals.push(Terminal { func, symbol });
            self.keep(func, symbol, number);
        }
        number
    }

    /// Puts the number of what comes often into a table, unless the table would become large.
    fn keep(&mut self, func: FuncId, symbol: Symbol, number: u32) {
        let put = |table: &mut Vec<u32>, at: u32| {
            if table.len() <= at as usize {
                table.resize(at as usize + 1, u32::MAX);
            }
            table[at as usize] = number;
        };
        match symbol.step() {
            Step::Block(block) if block.0 < 1 << 12 && func.0 < 1 << 16 => {
                if self.blocks.len() <= func.index() {
                    self.blocks.resize_with(func.index() + 1, Vec::new);
                }
                put(&mut self.blocks[func.index()], block.0);
            }
            _ if symbol != symbol.plain() => {}
            Step::Enter(func) if func.0 < 1 << 16 => put(&mut self.entries, func.0),
            Step::Exit => self.exit = Some(number),
            _ => {}
        }
    }
}

impl Grammar {
    /// What a compressor made of streams, with terminals sorted.
    pub fn new(rules: Rules, alphabet: &Alphabet, threads: &[ThreadId]) -> Self {
        let Rules { mut bodies, ends, sequences } = rules;
        let mut order: Vec<u32> =
            (0..u32::try_from(alphabet.terminals.len()).expect("numbered by u32")).collect();
        order.sort_by_key(|&t| alphabet.terminals[t as usize]);
        let mut number = vec![0; order.len()];
        for (new, &old) in (0..).zip(&order) {
            number[old as usize] = new;
        }
        let n_terminals = u32::try_from(order.len()).expect("numbered by u32");
        let renamed = |s: u32| if s & RULE == 0 { number[s as usize] } else { n_terminals + (s & !RULE) };
        bodies.iter_mut().for_each(|s| *s = renamed(*s));
        let sequences = threads
            .iter()
            .zip(sequences)
            .map(|(&thread, body)| Sequence { thread, body: body.into_iter().map(renamed).collect() });
        Self {
            terminals: order.iter().map(|&t| alphabet.terminals[t as usize]).collect(),
            bodies,
            ends: ends.into_iter().map(|end| u32::try_from(end).expect("fewer than 2^32 symbols")).collect(),
            sequences: sequences.collect(),
        }
    }

    /// How many rules there are.
    pub fn n_rules(&self) -> usize {
        self.ends.len()
    }

    /// The symbols of rule `rule`.
    #[inline]
    pub fn body(&self, rule: usize) -> &[u32] {
        let start = if rule == 0 { 0 } else { self.ends[rule - 1] as usize };
        &self.bodies[start..self.ends[rule] as usize]
    }

    /// Symbols in all bodies and sequences.
    pub fn n_symbols(&self) -> usize {
        self.bodies.len() + self.sequences.iter().map(|s| s.body.len()).sum::<usize>()
    }

    /// How many terminals each symbol makes.
    pub fn lengths(&self) -> Vec<u64> {
        let mut lengths = vec![1; self.terminals.len()];
        for rule in 0..self.n_rules() {
            let len = self.body(rule).iter().fold(0_u64, |sum, &s| sum.saturating_add(lengths[s as usize]));
            lengths.push(len);
        }
        lengths
    }

    /// What each symbol does to the stack.
    pub fn levels(&self) -> Vec<Levels> {
        let mut levels: Vec<Levels> = self.terminals.iter().map(|t| Levels::of(t.symbol)).collect();
        for rule in 0..self.n_rules() {
            levels
                .push(self.body(rule).iter().fold(Levels::default(), |sum, &s| sum.then(levels[s as usize])));
        }
        levels
    }

    /// Whether what it makes is not too long to be counted, nor the functions that it leaves open too many to
    /// be kept: a few bytes may stand for any number.
    pub fn is_sane(&self, lengths: &[u64], levels: &[Levels]) -> bool {
        let sum = |body: &[u32]| body.iter().fold(0, |sum: u64, &s| sum.saturating_add(lengths[s as usize]));
        let n_symbols = self.sequences.iter().fold(0, |n: u64, s| n.saturating_add(sum(&s.body)));
        let n_levels = |l: &Levels| u64::from(l.pops) + u64::from(l.pushes);
        let n_kept = levels.iter().fold(0, |n: u64, l| n.saturating_add(n_levels(l)));
        let symbols = || self.bodies.iter().chain(self.sequences.iter().flat_map(|s| &s.body));
        let n_steps = symbols().fold(0, |n: u64, &s| n.saturating_add(n_levels(&levels[s as usize])));
        let is_deep = |sequence: &Sequence| {
            let mut symbols = sequence.body.iter().map(|&s| &levels[s as usize]);
            let behind =
                |open: u64, l: &Levels| Some(open.saturating_sub(l.pops.into()) + u64::from(l.pushes));
            let open = symbols.try_fold(0, |open, l| behind(open, l).filter(|&open| open <= MOST_KEPT));
            open.is_none()
        };
        let is_short = n_symbols <= MOST_SYMBOLS && n_steps <= MOST_STEPS;
        is_short && n_kept <= MOST_KEPT && !self.sequences.iter().any(is_deep)
    }
}

/// Symbols that all sequences make: to run through them takes days.
const MOST_SYMBOLS: u64 = 1 << 48;
/// Levels of all rules, which searches keep, and functions that are open at once.
const MOST_KEPT: u64 = 1 << 26;
/// Levels of all symbols of rules and sequences: steps that a search takes.
const MOST_STEPS: u64 = 1 << 32;

/// Symbols that are expanded at once: they stay in the cache.
pub(crate) const PIECE: usize = 1 << 16;

/// Expands a sequence from its start, a buffer at a time.
pub struct Expansion<'a> {
    grammar: &'a Grammar,
    /// Bodies that are not done, innermost last.
    open: Vec<&'a [u32]>,
    /// Where in the buffer each rule was expanded last, and which buffer that was.
    last: Vec<(u32, u32)>,
    lengths: &'a [u64],
    round: u32,
    buffer: Vec<u32>,
}

/// Rules this long at most are copied from where they were expanded before.
const COPIED: u64 = 1 << 14;

impl<'a> Expansion<'a> {
    /// Nothing yet; `lengths` are the grammar's.
    pub fn new(grammar: &'a Grammar, lengths: &'a [u64]) -> Self {
        let last = vec![(0, 0); grammar.n_rules()];
        Self { grammar, open: Vec::new(), last, lengths, round: 0, buffer: Vec::new() }
    }

    /// Expands `body` next, some symbols of the grammar.
    pub fn start(&mut self, body: &'a [u32]) {
        self.open.clear();
        self.open.push(body);
    }

    /// Expands what is left of bodies next, the innermost last.
    pub fn resume(&mut self, bodies: impl Iterator<Item = &'a [u32]>) {
        self.open.clear();
        self.open.extend(bodies);
    }

    /// The next symbols of the trace, `at_least` of them unless it ends; none when it has ended.
    pub fn next(&mut self, at_least: usize) -> &[u32] {
        self.buffer.clear();
        self.round += 1;
        let n_terminals = self.grammar.terminals.len();
        // A rule that is being expanded, and is short enough to be copied when it comes again.
        let mut begun: Vec<(usize, usize, u32)> = Vec::new();
        loop {
            while let Some(&(depth, rule, start)) = begun.last().filter(|b| b.0 > self.open.len()) {
                debug_assert_eq!(depth, self.open.len() + 1);
                self.last[rule] = (self.round, start);
                begun.pop();
            }
            if self.buffer.len() >= at_least {
                break;
            }
            let Some(body) = self.open.last_mut() else { break };
            let Some((&symbol, rest)) = body.split_first() else {
                self.open.pop();
                continue;
            };
            *body = rest;
            let symbol = symbol as usize;
            if symbol < n_terminals {
                self.buffer.push(self.grammar.terminals[symbol].symbol.0);
                continue;
            }
            let rule = symbol - n_terminals;
            let (round, start) = self.last[rule];
            let len = self.lengths[symbol];
            if round == self.round && len <= COPIED {
                let start = start as usize;
                self.buffer.extend_from_within(start..start + usize::try_from(len).unwrap_or(0));
            } else {
                self.open.push(self.grammar.body(rule));
                if len <= COPIED {
                    begun.push((self.open.len(), rule, u32::try_from(self.buffer.len()).unwrap_or(0)));
                }
            }
        }
        &self.buffer
    }
}
