//! Scheme 5: the columns. The blocks of each function by themselves, activation by activation, calls left
//! out.
//!
//! They are not recorded a second time: the grammar gives them. What a rule adds to the function on top, to
//! the one below, and so on (see `compressed`), are strings of blocks, made of the strings of what the rule
//! is made of; equal ones are one, told by two fingerprints of 61 bits. So each function gets a grammar of
//! its own, whose sequence is its distinct strings, each with the number of activations that executed it. In
//! it a path is neither interrupted nor in another context.
//!
//! A count needs one pass over that grammar; a plain path is first made shorter where it must go as it goes:
//! if each b is followed by c, a path that ends in b c occurs as often as one that ends in b. Counts of pairs
//! are made when a column is read.
//!
//! ```text
//! section  = functions: varint, for each: number − last number, length of its column in bytes; the columns
//! column   = n blocks, n strings, n rules, n symbols of bodies; blocks (rising); range-coded counts of
//!            strings, and grammar (`coder`)
//! ```
//! Zhang and Gupta refuse to unwind a trace (section 3.2), because compression would not be on-line: this is
//! done behind it.

use crate::file::varint::{self, Cursor};
use crate::grammar::Grammar;
use crate::grammar::coder::{self, Parts, Slp};
use crate::ids::{BlockId, FuncId};
use crate::search::automaton::Automaton;
use crate::search::effects::{EffectId, Effects, NOTHING};
use crate::symbol::Step;
use hashbrown::HashTable;
use std::collections::{BTreeMap, HashMap};

/// What the section of the columns is called.
pub(crate) const COLUMNS: [u8; 4] = *b"COLS";

/// A string that stands for no block.
const EMPTY: u32 = 0;
const PRIME: u64 = (1 << 61) - 1;
const BASES: [u64; 2] = [0x1234_5678_9abc_def1, 0x0fed_cba9_8765_4321];

/// Blocks of a function of which all pairs have a place in a table.
const MOST_DENSE: usize = 512;

/// A fingerprint of a string: its value, and the power of the base that it shifts what stands before it by.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Print([(u64, u64); 2]);

fn times(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let low = u64::try_from(product & u128::from(PRIME)).expect("61 bits");
    let high = u64::try_from(product >> 61).expect("61 bits, of factors of 61");
    let sum = low + high;
    if sum >= PRIME { sum - PRIME } else { sum }
}

impl Print {
    fn of(terminal: u32) -> Self {
        Self(BASES.map(|base| ((u64::from(terminal) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % PRIME, base)))
    }

    /// They are as good as random.
    fn hash(self) -> u64 {
        self.0[0].0 << 3 ^ self.0[1].0
    }

    fn then(self, next: Self) -> Self {
        let add = |a: (u64, u64), b: (u64, u64)| ((times(a.0, b.1) + b.0) % PRIME, times(a.1, b.1));
        Self([add(self.0[0], next.0[0]), add(self.0[1], next.0[1])])
    }
}

/// Strings made of strings. 0 is empty, then the terminals, then those that are made of others.
struct Strings {
    n_terminals: u32,
    bodies: Vec<u32>,
    ends: Vec<usize>,
    prints: Vec<Print>,
    /// All but the empty one, by their fingerprints.
    known: HashTable<u32>,
}

impl Strings {
    fn new(n_terminals: u32) -> Self {
        let prints: Vec<Print> = (0..=n_terminals).map(Print::of).collect();
        let hash = |&known: &u32| prints[known as usize].hash();
        let mut known = HashTable::new();
        for t in 1..=n_terminals {
            known.insert_unique(hash(&t), t, hash);
        }
        Self { n_terminals, bodies: Vec::new(), ends: Vec::new(), prints, known }
    }

    fn intern(&mut self, parts: &[u32]) -> u32 {
        match parts {
            [] => EMPTY,
            [one] => *one,
            [first, rest @ ..] => {
                let start = self.prints[*first as usize];
                let print = rest.iter().fold(start, |print, &part| print.then(self.prints[part as usize]));
                let next = u32::try_from(self.prints.len()).expect("no more strings than symbols");
                let is_it = |&known: &u32| self.prints[known as usize] == print;
                let hash = |&known: &u32| self.prints[known as usize].hash();
                let id = *self.known.entry(print.hash(), is_it, hash).or_insert(next).get();
                if id == next {
                    self.prints.push(print);
                    self.bodies.extend_from_slice(parts);
                    self.ends.push(self.bodies.len());
                }
                id
            }
        }
    }

    fn body(&self, string: u32) -> &[u32] {
        let Some(made) = string.checked_sub(self.n_terminals + 1) else { return &[] };
        let made = made as usize;
        let start = if made == 0 { 0 } else { self.ends[made - 1] };
        &self.bodies[start..self.ends[made]]
    }
}

/// The column of a function.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Column {
    /// Its blocks that were executed, rising.
    blocks: Vec<BlockId>,
    /// Its strings, over indices of `blocks`: one sequence.
    slp: Slp,
    /// How many activations executed each of them.
    counts: Vec<u64>,
    /// How often which block followed which, by their indices.
    pairs: BTreeMap<(u32, u32), u64>,
    /// How often each block was executed.
    executed: Vec<u64>,
}

/// The columns of all functions, from the grammar of the trace.
pub fn of_grammar(grammar: &Grammar) -> BTreeMap<FuncId, Column> {
    let n_terminals = u32::try_from(grammar.terminals.len()).expect("numbered by u32");
    let mut strings = Strings::new(n_terminals);
    let runs = runs(grammar);
    let mut counts: HashMap<u32, u64> = HashMap::new();
    // By symbol, where in `pieces` its strings begin, and how many levels it leaves.
    let mut at: Vec<(u32, u32)> = Vec::new();
    let mut pieces: Vec<u32> = Vec::new();
    for (i, terminal) in (1..).zip(&grammar.terminals) {
        at.push((u32::try_from(pieces.len()).expect("few"), u32::from(terminal.symbol.step() == Step::Exit)));
        match terminal.symbol.step() {
            Step::Block(_) => pieces.push(i),
            Step::Enter(_) | Step::Exit => pieces.extend([EMPTY; 2]),
        }
    }
    at.push((u32::try_from(pieces.len()).expect("few"), 0));
    let mut done: Vec<u32> = Vec::new();
    let mut open: Vec<Vec<u32>> = Vec::new();
    let mut spare: Vec<Vec<u32>> = Vec::new();
    let rules = (0..grammar.n_rules()).map(|rule| (grammar.body(rule), runs[rule], false));
    let sequences = grammar.sequences.iter().map(|s| (s.body.as_slice(), 1, true));
    for (body, n_runs, is_sequence) in rules.chain(sequences) {
        done.clear();
        open.clear();
        open.push(spare.pop().unwrap_or_default());
        for &symbol in body {
            let (start, pops) = at[symbol as usize];
            let end = at[symbol as usize + 1].0;
            for (level, &piece) in (0..).zip(&pieces[start as usize..end as usize]) {
                if level > pops {
                    open.push(spare.pop().unwrap_or_default());
                }
                if piece != EMPTY {
                    open.last_mut().expect("a level is always open").push(piece);
                }
                if level < pops {
                    let mut left = open.pop().expect("a level is always open");
                    let string = strings.intern(&left);
                    left.clear();
                    spare.push(left);
                    if open.is_empty() {
                        done.push(string);
                        open.push(spare.pop().unwrap_or_default());
                    } else if string != EMPTY {
                        *counts.entry(string).or_insert(0) += n_runs;
                    }
                }
            }
        }
        let n_done = done.len();
        for mut left in open.drain(..) {
            done.push(strings.intern(&left));
            left.clear();
            spare.push(left);
        }
        if is_sequence {
            // What a cut trace leaves open has been executed all the same.
            for &string in done.iter().filter(|&&string| string != EMPTY) {
                *counts.entry(string).or_insert(0) += 1;
            }
            continue;
        }
        pieces.extend_from_slice(&done);
        at.last_mut().expect("it has a last").1 = u32::try_from(n_done).expect("no more than symbols");
        at.push((u32::try_from(pieces.len()).expect("in memory"), 0));
    }
    by_function(grammar, &strings, counts)
}

/// How often each rule is expanded in the trace.
pub(crate) fn runs(grammar: &Grammar) -> Vec<u64> {
    let n_terminals = grammar.terminals.len();
    let mut runs = vec![0_u64; grammar.n_rules()];
    let add = |runs: &mut Vec<u64>, body: &[u32], n: u64| {
        for rule in body.iter().filter_map(|&s| (s as usize).checked_sub(n_terminals)) {
            runs[rule] = runs[rule].saturating_add(n);
        }
    };
    grammar.sequences.iter().for_each(|s| add(&mut runs, &s.body, 1));
    for rule in (0..grammar.n_rules()).rev() {
        let n = runs[rule];
        add(&mut runs, grammar.body(rule), n);
    }
    runs
}

fn by_function(grammar: &Grammar, strings: &Strings, counts: HashMap<u32, u64>) -> BTreeMap<FuncId, Column> {
    // The first terminal of each string: whose it is.
    let mut first: Vec<u32> =
        (0..strings.prints.len()).map(|s| u32::try_from(s).expect("numbered by u32")).collect();
    let mut n_uses = vec![0_u32; first.len()];
    for string in strings.n_terminals as usize + 1..first.len() {
        let body = strings.body(u32::try_from(string).expect("numbered by u32"));
        first[string] = first[body[0] as usize];
    }
    let mut roots: Vec<(u32, u64)> = counts.into_iter().collect();
    roots.sort_unstable();
    let mut is_used = vec![false; first.len()];
    roots.iter().for_each(|&(string, _)| is_used[string as usize] = true);
    for string in (strings.n_terminals as usize + 1..first.len()).rev() {
        if is_used[string] {
            for &part in strings.body(u32::try_from(string).expect("numbered by u32")) {
                is_used[part as usize] = true;
                n_uses[part as usize] += 1;
            }
        }
    }
    for &(string, _) in &roots {
        n_uses[string as usize] += 2;
    }
    let mut columns: BTreeMap<FuncId, Column> = BTreeMap::new();
    let func_of = |string: u32| grammar.terminals[first[string as usize] as usize - 1].func;
    // Terminals are sorted: those of a function are rising.
    let mut number = vec![u32::MAX; first.len()];
    for (t, terminal) in (1..).zip(&grammar.terminals) {
        if let Step::Block(block) = terminal.symbol.step()
            && is_used[t as usize]
        {
            let column = columns.entry(terminal.func).or_default();
            number[t as usize] = u32::try_from(column.blocks.len()).expect("numbered by u32");
            column.blocks.push(block);
            column.slp.n_terminals += 1;
        }
    }
    let mut todo = Vec::new();
    let mut flat = |column: &mut Column, number: &[u32], string: u32| {
        // A string that is used once stands where it is used.
        todo.extend(strings.body(string).iter().rev());
        while let Some(part) = todo.pop() {
            if number[part as usize] == u32::MAX {
                todo.extend(strings.body(part).iter().rev());
            } else {
                column.slp.bodies.push(number[part as usize]);
            }
        }
    };
    for string in strings.n_terminals + 1..u32::try_from(first.len()).expect("numbered by u32") {
        if !is_used[string as usize] || n_uses[string as usize] < 2 {
            continue;
        }
        let column = columns.entry(func_of(string)).or_default();
        flat(column, &number, string);
        number[string as usize] =
            column.slp.n_terminals + u32::try_from(column.slp.ends.len()).expect("numbered by u32");
        column.slp.ends.push(u32::try_from(column.slp.bodies.len()).expect("in memory"));
    }
    for &(string, count) in &roots {
        let column = columns.entry(func_of(string)).or_default();
        match column.slp.sequences.as_mut_slice() {
            [sequence] => sequence.push(number[string as usize]),
            _ => column.slp.sequences.push(vec![number[string as usize]]),
        }
        column.counts.push(count);
    }
    columns
}

impl Column {
    /// How many blocks of it were executed.
    pub fn n_terminals(&self) -> usize {
        self.blocks.len()
    }

    /// The number in its function of the block that a terminal stands for.
    pub fn block(&self, terminal: u32) -> BlockId {
        self.blocks[terminal as usize]
    }

    /// How many rules it has.
    pub fn n_rules(&self) -> usize {
        self.slp.ends.len()
    }

    /// What a rule is made of: terminals, and rules before it, numbered behind the terminals.
    pub fn body(&self, rule: usize) -> &[u32] {
        let start = if rule == 0 { 0 } else { self.slp.ends[rule - 1] as usize };
        &self.slp.bodies[start..self.slp.ends[rule] as usize]
    }

    fn roots(&self) -> &[u32] {
        self.slp.sequences.first().map_or(&[], Vec::as_slice)
    }

    /// How often each symbol occurs in the activations.
    pub fn weights(&self) -> Vec<u64> {
        let n_terminals = self.slp.n_terminals as usize;
        let mut weights = vec![0_u64; n_terminals + self.slp.ends.len()];
        for (&root, &count) in self.roots().iter().zip(&self.counts) {
            weights[root as usize] = weights[root as usize].saturating_add(count);
        }
        for rule in (0..self.slp.ends.len()).rev() {
            let weight = weights[n_terminals + rule];
            for &part in self.body(rule) {
                weights[part as usize] = weights[part as usize].saturating_add(weight);
            }
        }
        weights
    }

    fn count_pairs(&mut self) {
        let weights = self.weights();
        let n_terminals = self.slp.n_terminals as usize;
        let mut ends: Vec<(u32, u32)> = (0..self.slp.n_terminals).map(|t| (t, t)).collect();
        // Of few blocks, a table of all pairs: most of what it costs to open a column.
        let n_dense = if n_terminals < MOST_DENSE { n_terminals } else { 0 };
        let mut dense = vec![0_u64; n_dense * n_dense];
        let mut pairs = HashMap::new();
        for rule in 0..self.slp.ends.len() {
            let (body, weight) = (self.body(rule), weights[n_terminals + rule]);
            for two in body.windows(2) {
                let pair = (ends[two[0] as usize].1, ends[two[1] as usize].0);
                match dense.get_mut(pair.0 as usize * n_dense + pair.1 as usize) {
                    Some(n) => *n = n.saturating_add(weight),
                    None => {
                        let n: &mut u64 = pairs.entry(pair).or_insert(0);
                        *n = n.saturating_add(weight);
                    }
                }
            }
            ends.push((ends[body[0] as usize].0, ends[body[body.len() - 1] as usize].1));
        }
        self.pairs = pairs.into_iter().collect();
        for (a, row) in (0..).zip(dense.chunks(n_dense.max(1))) {
            self.pairs.extend((0..).zip(row).filter(|(_, n)| **n > 0).map(|(b, &n)| ((a, b), n)));
        }
        self.executed = weights.into_iter().take(n_terminals).collect();
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for n in [self.blocks.len(), self.counts.len(), self.slp.ends.len(), self.slp.bodies.len()] {
            varint::put(&mut out, n as u64);
        }
        varint::put_rising(&mut out, self.blocks.iter().map(|block| block.0));
        let parts = Parts {
            n_terminals: self.slp.n_terminals,
            bodies: &self.slp.bodies,
            ends: &self.slp.ends,
            sequences: vec![self.roots()],
            counts: &self.counts,
        };
        out.extend(coder::encode(&parts, &|_| false));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let mut len = || usize::try_from(cursor.get()?).ok().filter(|&n| n < 1 << 30);
        let (n_blocks, n_strings, n_rules, n_symbols) = (len()?, len()?, len()?, len()?);
        let blocks = cursor.get_rising().filter(|blocks| blocks.len() == n_blocks)?;
        let blocks = blocks.into_iter().map(BlockId).collect();
        let n_terminals = u32::try_from(n_blocks).ok()?;
        let lengths = [n_strings];
        let (slp, counts) =
            coder::decode(cursor.rest(), n_terminals, &lengths, n_rules, n_symbols, n_strings, &|_| false)?;
        let mut column = Self { blocks, slp, counts, ..Self::default() };
        column.count_pairs();
        Some(column)
    }

    /// How often a path of the function occurs.
    pub fn count(&self, automaton: &Automaton) -> u64 {
        if let Some(blocks) = automaton.plain() {
            let indices = blocks
                .iter()
                .map(|block| self.blocks.binary_search(block).ok().and_then(|i| u32::try_from(i).ok()));
            let Some(indices) = indices.collect::<Option<Vec<u32>>>() else { return 0 };
            return self.count_plain(&indices);
        }
        let classes: Vec<u16> = self.blocks.iter().map(|&block| automaton.class(block)).collect();
        self.count_by(automaton, &classes)
    }

    fn count_plain(&self, mut path: &[u32]) -> u64 {
        let pair = |a: u32, b: u32| self.pairs.get(&(a, b)).copied().unwrap_or(0);
        if path.windows(2).any(|two| pair(two[0], two[1]) == 0) {
            return 0;
        }
        let executed = |block: u32| self.executed[block as usize];
        while let [rest @ .., a, b] = path
            && pair(*a, *b) == executed(*a)
        {
            path = &path[..rest.len() + 1];
        }
        while let [a, b, ..] = path
            && pair(*a, *b) == executed(*b)
        {
            path = &path[1..];
        }
        match path {
            [block] => executed(*block),
            [a, b] => pair(*a, *b),
            _ => {
                // To it, places in the column are blocks.
                let path: Vec<BlockId> = path.iter().copied().map(BlockId).collect();
                let Ok(automaton) = Automaton::new(&crate::search::path::Path::of(FuncId(0), &path)) else {
                    return 0;
                };
                let classes: Vec<u16> =
                    (0..self.slp.n_terminals).map(|block| automaton.class(BlockId(block))).collect();
                self.count_by(&automaton, &classes)
            }
        }
    }

    /// One pass: what each symbol does to the automaton, and how many occurrences are wholly in it.
    fn count_by(&self, automaton: &Automaton, classes: &[u16]) -> u64 {
        let mut effects = Effects::new(automaton);
        let mut summed: Vec<(EffectId, u64)> = Vec::with_capacity(classes.len() + self.slp.ends.len());
        summed.extend(classes.iter().map(|&class| effects.of_class(class)));
        let mut start = 0;
        for &end in &self.slp.ends {
            let (mut effect, mut count) = (NOTHING, 0_u64);
            for &part in &self.slp.bodies[start..end as usize] {
                let (next, within) = summed[part as usize];
                let (both, gained) = effects.then(effect, next);
                effect = both;
                count = count.saturating_add(within).saturating_add(gained);
            }
            summed.push((effect, count));
            start = end as usize;
        }
        let roots = self.roots().iter().zip(&self.counts);
        roots.map(|(&root, &n)| summed[root as usize].1.saturating_mul(n)).fold(0, u64::saturating_add)
    }
}

/// The section of columns.
pub fn write(columns: &BTreeMap<FuncId, Column>) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, columns.len() as u64);
    let mut last = 0;
    let coded: Vec<Vec<u8>> = columns.values().map(Column::encode).collect();
    for (&func, coded) in columns.keys().zip(&coded) {
        varint::put(&mut out, u64::from(func.0 - last));
        last = func.0;
        varint::put(&mut out, coded.len() as u64);
    }
    coded.iter().for_each(|coded| out.extend(coded));
    out
}

/// The functions that have columns in a section. `None` if the section makes no sense.
pub fn functions(bytes: &[u8]) -> Option<Vec<FuncId>> {
    let mut cursor = Cursor::new(bytes);
    let (mut number, mut all) = (0_u32, Vec::new());
    for _ in 0..cursor.get_len()? {
        number = number.checked_add(cursor.get_u32()?)?;
        cursor.get()?;
        all.push(FuncId(number));
    }
    Some(all)
}

/// The column of `func` in a section; an empty one if it has none. `None` if the section makes no sense.
pub fn read(bytes: &[u8], func: FuncId) -> Option<Column> {
    let mut cursor = Cursor::new(bytes);
    let (mut number, mut at, mut found) = (0_u32, 0_usize, None);
    for _ in 0..cursor.get_len()? {
        number = number.checked_add(cursor.get_u32()?)?;
        let len = usize::try_from(cursor.get()?).ok()?;
        if FuncId(number) == func {
            found = Some((at, len));
        }
        at = at.checked_add(len)?;
    }
    let Some((at, len)) = found else { return Some(Column::default()) };
    Column::decode(cursor.rest().get(at..at.checked_add(len)?)?)
}
