//! The whole log of a run matched with another's as Chainsaw does it, to be held against our alignment.
//!
//! The log is flat: each call is an event, what was called stands behind it, and its return is an event, too.
//! A call and a return are known by the name of the function, rounds of a loop by what [`Keys`] say of that;
//! nothing is spliced, and it does not matter where a call is made. An event can be an *anchor* if it comes
//! as often in both logs; all that it comes to is paired then, the first with the first. Anchors are scored
//! by how many others they share *ordering signatures* with, and chosen from the best down, as far as they
//! are in the same order in both logs as all that were chosen before. The same is done again between each
//! two neighbours.
//!
//! Source: Chainsaw (2009), "Log-based event matching", "Computing ordering signatures", "Selecting
//! matches", "Real-world challenges". These are slides, and leave open:
//!
//! - which "event count" a signature is changed by, and the constants: here it is the count of the event
//!   that was just seen, and there are two constants, one for its row and one for its column, without which
//!   `abab` and `baba` were alike. The numbers of the slides cannot be had: `B C B` and `A C A` are told to
//!   change one number, `a1`, into two.
//! - which of several with the highest score is the first: the one that the old log has first.
//! - how the second pass, of the heavyweight log, keeps to what the first has found: it is of the intervals
//!   between what was paired in the lightweight log, with all events in these.
//! - what ends the recursion: nothing that can be an anchor is left.
//! - what is done where there are too many events for a table of all pairs: each has signatures with those
//!   alone that come least often ("landmarks" of the order).
//!
//! We differ in loops: [`Log`](super::Log) has all rounds between two calls as one event, and so has this; of
//! two that are paired, the numbers of rounds may differ, which is told ([`Comparison::whole_rounds`]).
//!
//! [`Comparison::whole_rounds`]: super::Comparison::whole_rounds
//! [`Keys`]: super::keys::Keys

use super::code::NONE;
use super::items::{Item, Reading};
use super::log::{Kind, Log, Place};
use super::pairs::Aligned;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// So many events a log may have.
const MOST_EVENTS: u64 = 1 << 24;
/// So many signatures a table may have.
const MOST_CELLS: usize = 1 << 22;

/// Why two runs were not matched by signatures.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignaturesError {
    /// There is too much of one.
    #[error("signatures are of at most {most} events, and the {build} build's log has {n_events}")]
    TooLong {
        /// Whether it is the old or the new one.
        build: &'static str,
        /// How many events it has.
        n_events: u64,
        /// How many it may have.
        most: u64,
    },
}

impl SignaturesError {
    /// What can be done about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "use the default scheme, or a smaller input",
        }
    }
}

/// Matches what each pair of threads, `roots`, did; gives each to `take`.
///
/// # Errors
/// [`SignaturesError::TooLong`]; nothing was given to `take` then.
pub fn align(
    sides: &[Reading<'_>; 2],
    roots: &[[u32; 2]],
    take: impl FnMut(Aligned),
) -> Result<(), SignaturesError> {
    align_at_most(MOST_EVENTS, sides, roots, take)
}

fn align_at_most(
    most: u64,
    sides: &[Reading<'_>; 2],
    roots: &[[u32; 2]],
    mut take: impl FnMut(Aligned),
) -> Result<(), SignaturesError> {
    for (n, build) in [(0, "old"), (1, "new")] {
        let sizes = sizes(sides[n].side.log);
        // A thread does not return.
        let size = |root: &[u32; 2]| sizes.get(root[n] as usize).map_or(0, |size| size - 1);
        let n_events = roots.iter().map(size).max().unwrap_or_default();
        if n_events > most {
            return Err(SignaturesError::TooLong { build, n_events, most });
        }
    }
    let mut numbers = FxHashMap::default();
    for root in roots {
        let items = [0, 1].map(|n: usize| flat(&sides[n], root[n], &mut numbers));
        let mut matcher = Matcher::new(numbers.len(), MOST_CELLS);
        let logs = [0, 1].map(|n: usize| log(&sides[n], &items[n]));
        let all = matcher.in_two_passes([&logs[0].keys, &logs[1].keys], [&logs[0].light, &logs[1].light]);
        let at = |n: usize, at: usize| logs[n].at.get(at).map_or(usize::MAX, |at| *at as usize);
        let pairs = all.into_iter().map(|(x, y)| (at(0, x), at(1, y))).collect();
        take(Aligned {
            activities: *root,
            times: 1.0,
            items,
            pairs,
            is_first: true,
            is_last: true,
            is_flat: true,
        });
    }
    Ok(())
}

/// By activity: how many events it is, with its return, and all that it called.
fn sizes(log: &Log) -> Vec<u64> {
    let mut sizes: Vec<u64> = Vec::with_capacity(log.activities.len());
    // Who calls another one has a larger number.
    for activity in &log.activities {
        let mut size = 1u64;
        for token in &activity.tokens {
            let inner = match token.kind() {
                Kind::Call(call) => log.calls.get(call as usize).map(|of| of.activity),
                Kind::Rounds(_) => None,
            };
            let inner = inner.and_then(|of| sizes.get(of as usize)).copied().unwrap_or_default();
            size = size.saturating_add(1).saturating_add(inner);
        }
        sizes.push(size);
    }
    sizes
}

/// An event, as both builds know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Event {
    /// A function is called, by the number of its name.
    Call(u32),
    /// It returns.
    Return(u32),
    /// Rounds of a loop, by its key.
    Rounds(u32),
}

/// All that is in activity `root`, one behind the other; each event has its number in `numbers`.
fn flat(reading: &Reading<'_>, root: u32, numbers: &mut FxHashMap<Event, u32>) -> Vec<Item> {
    let mut items = Vec::new();
    // Activities, one in another, each with the next token.
    let mut open = vec![(root, 0u32)];
    while let Some((activity, next)) = open.last_mut() {
        let (activity, token) = (*activity, *next);
        *next += 1;
        let Some(of) = reading.side.log.activities.get(activity as usize) else {
            open.pop();
            continue;
        };
        let event = match of.tokens.get(token as usize) {
            None => {
                open.pop();
                let name = reading.keys.functions[reading.n].get(of.function as usize);
                // A thread, which has no name, does not return.
                name.map(|name| Event::Return(*name))
            }
            Some(token) => match token.kind() {
                Kind::Rounds(of) => {
                    reading.keys.loops[reading.n].get(of as usize).map(|key| Event::Rounds(*key))
                }
                Kind::Call(_) => {
                    let Some(call) = reading.call(of.function, *token) else { continue };
                    open.push((call.activity, 0));
                    Some(Event::Call(call.key.callee))
                }
            },
        };
        let next = super::code::count(numbers.len());
        let key = event.map_or(NONE, |event| *numbers.entry(event).or_insert(next));
        items.push(Item { key, name: key, activity, token });
    }
    items
}

/// What is matched of a flat log.
struct Events {
    /// Keys of events.
    keys: Vec<u32>,
    /// Where they are among the items.
    at: Vec<u32>,
    /// Those of the lightweight log: all but rounds of innermost loops.
    light: Vec<u32>,
}

fn log(reading: &Reading<'_>, items: &[Item]) -> Events {
    let mut log = Events { keys: Vec::new(), at: Vec::new(), light: Vec::new() };
    for (at, item) in (0..).zip(items).filter(|(_, item)| item.is_event()) {
        let is_innermost = match reading.place(item) {
            Place::Rounds(of) => reading.side.code.loops.get(of as usize).is_none_or(|of| of.is_innermost),
            _ => false,
        };
        if !is_innermost {
            log.light.push(super::code::count(log.keys.len()));
        }
        log.keys.push(item.key);
        log.at.push(at);
    }
    log
}

/// Positions in the old and the new log.
type Pairs = Vec<(usize, usize)>;
/// Parts of both logs: where each begins and ends.
type Parts = [(usize, usize); 2];

/// Matches logs of keys.
struct Matcher {
    most_cells: usize,
    /// By key: how often each log has it, in the part that is looked at.
    counts: Vec<[u32; 2]>,
    /// By key: its number among the candidates of that; [`NONE`] if it is none.
    numbers: Vec<u32>,
}

impl Matcher {
    /// Of so many keys, with so large tables at most.
    fn new(n_keys: usize, most_cells: usize) -> Matcher {
        Matcher { most_cells, counts: vec![[0; 2]; n_keys], numbers: vec![NONE; n_keys] }
    }

    /// What is paired in two logs, in order: first among those events that are `light`, by their positions,
    /// then, among all, between what was paired of those.
    fn in_two_passes(&mut self, logs: [&[u32]; 2], light: [&[u32]; 2]) -> Pairs {
        let key = |n: usize, at: &u32| logs[n].get(*at as usize).copied().unwrap_or(NONE);
        let of_light = [0, 1].map(|n: usize| light[n].iter().map(|at| key(n, at)).collect::<Vec<u32>>());
        let at = |n: usize, at: usize| light[n].get(at).map_or(usize::MAX, |at| *at as usize);
        let in_light = self.pairs([&of_light[0], &of_light[1]]);
        let in_light: Pairs = in_light.into_iter().map(|(x, y)| (at(0, x), at(1, y))).collect();
        let mut found = Vec::with_capacity(in_light.len());
        between([(0, logs[0].len()), (0, logs[1].len())], &in_light, |parts| {
            let of = |n: usize| logs[n].get(parts[n].0..parts[n].1).unwrap_or_default();
            let inner = self.pairs([of(0), of(1)]);
            found.extend(inner.into_iter().map(|(x, y)| (x + parts[0].0, y + parts[1].0)));
        });
        found.extend(in_light);
        found.sort_unstable();
        found
    }

    /// What is paired in two logs, in order.
    fn pairs(&mut self, logs: [&[u32]; 2]) -> Pairs {
        let mut found = Vec::new();
        let mut todo = vec![[(0, logs[0].len()), (0, logs[1].len())]];
        while let Some(parts) = todo.pop() {
            let of = |n: usize| logs[n].get(parts[n].0..parts[n].1).unwrap_or_default();
            let chosen = self.chosen([of(0), of(1)]);
            if chosen.is_empty() {
                continue;
            }
            let chosen: Pairs = chosen.into_iter().map(|(x, y)| (x + parts[0].0, y + parts[1].0)).collect();
            between(parts, &chosen, |parts| todo.push(parts));
            found.extend(chosen);
        }
        found.sort_unstable();
        found
    }

    /// What is paired of two logs as wholes, in order.
    fn chosen(&mut self, logs: [&[u32]; 2]) -> Pairs {
        let keys = self.candidates(logs);
        if keys.is_empty() {
            return Vec::new();
        }
        let positions = [0, 1].map(|n: usize| self.positions(n, &keys, logs[n]));
        let mut ranked: Vec<(Reverse<usize>, usize)> =
            self.scores(&keys, logs).into_iter().map(Reverse).zip(0..).collect();
        ranked.sort_unstable();
        keys.iter().for_each(|key| self.forget(*key));
        // By position in the old log: the one in the new log.
        let mut chosen: BTreeMap<u32, u32> = BTreeMap::new();
        for (_, candidate) in ranked {
            let [old, new] = [0, 1].map(|n: usize| positions[n].of(candidate));
            if old.iter().zip(new).all(|pair| is_legal(&chosen, pair)) {
                chosen.extend(old.iter().copied().zip(new.iter().copied()));
            }
        }
        chosen.into_iter().map(|(x, y)| (x as usize, y as usize)).collect()
    }

    /// Keys that both logs have as often, those that the old one has first first. They have their numbers, in
    /// this order, until they are forgotten.
    fn candidates(&mut self, logs: [&[u32]; 2]) -> Vec<u32> {
        let mut seen = Vec::new();
        for (n, log) in logs.into_iter().enumerate() {
            for key in log {
                let Some(counts) = self.counts.get_mut(*key as usize) else { continue };
                if *counts == [0; 2] {
                    seen.push(*key);
                }
                counts[n] += 1;
            }
        }
        let is_candidate = |key: &u32| self.counts.get(*key as usize).is_some_and(|of| of[0] == of[1]);
        let (candidates, others): (Vec<u32>, Vec<u32>) = seen.into_iter().partition(is_candidate);
        for (number, key) in (0..).zip(&candidates) {
            self.numbers.get_mut(*key as usize).into_iter().for_each(|of| *of = number);
        }
        others.into_iter().for_each(|key| self.forget(key));
        candidates
    }

    fn forget(&mut self, key: u32) {
        self.counts.get_mut(key as usize).into_iter().for_each(|of| *of = [0; 2]);
        self.numbers.get_mut(key as usize).into_iter().for_each(|of| *of = NONE);
    }

    /// The candidates of a log, by number.
    fn numbered<'a>(&'a self, log: &'a [u32]) -> impl Iterator<Item = (u32, usize)> + 'a {
        let number = |key: &u32| self.numbers.get(*key as usize).copied().unwrap_or(NONE);
        let all = (0..).zip(log).map(move |(at, key)| (at, number(key)));
        all.filter(|(_, number)| *number != NONE).map(|(at, number)| (at, number as usize))
    }

    /// Where the candidates are in log `n`.
    fn positions(&self, n: usize, keys: &[u32], log: &[u32]) -> Positions {
        let mut next = 0u32;
        let mut starts = vec![0];
        for key in keys {
            next += self.counts.get(*key as usize).map_or(0, |counts| counts[n]);
            starts.push(next);
        }
        let mut free = starts.clone();
        let mut all = vec![0; next as usize];
        for (at, number) in self.numbered(log) {
            let Some(free) = free.get_mut(number) else { continue };
            all.get_mut(*free as usize).into_iter().for_each(|place| *place = at);
            *free += 1;
        }
        Positions { starts, all }
    }

    /// By candidate: how many signatures both logs have in common.
    fn scores(&self, keys: &[u32], logs: [&[u32]; 2]) -> Vec<usize> {
        let landmarks = self.landmarks(keys);
        let tables = logs.map(|log| {
            let mut table = OrdTable::new(keys.len(), &landmarks);
            self.numbered(log).for_each(|(_, number)| table.see(number));
            table.end();
            table
        });
        let [old, new] = &tables;
        (0..keys.len())
            .map(|of| old.row(of).iter().zip(new.row(of)).filter(|(a, b)| a == b).count())
            .collect()
    }

    /// Which candidates have columns in tables: all, or as many as there is room for, of those that come
    /// least often.
    fn landmarks(&self, keys: &[u32]) -> Vec<usize> {
        let n_most = (self.most_cells / keys.len()).max(1);
        let mut all: Vec<usize> = (0..keys.len()).collect();
        if keys.len() > n_most {
            let times = |of: &usize| keys.get(*of).and_then(|key| self.counts.get(*key as usize));
            all.sort_by_key(|of| times(of).map_or(0, |counts| counts[0]));
            all.truncate(n_most);
            all.sort_unstable();
        }
        all
    }
}

/// Gives the parts between `pairs` to `take` that both logs have something in.
fn between(parts: Parts, pairs: &[(usize, usize)], mut take: impl FnMut(Parts)) {
    let (mut a, mut b) = (parts[0].0, parts[1].0);
    for &(x, y) in pairs.iter().chain([&(parts[0].1, parts[1].1)]) {
        if a < x && b < y {
            take([(a, x), (b, y)]);
        }
        (a, b) = (x + 1, y + 1);
    }
}

/// Where candidates are in a log.
struct Positions {
    /// By candidate: where its own begin; and where the last one's end.
    starts: Vec<u32>,
    all: Vec<u32>,
}

impl Positions {
    fn of(&self, candidate: usize) -> &[u32] {
        let at = |n: usize| self.starts.get(n).map_or(0, |at| *at as usize);
        self.all.get(at(candidate)..at(candidate + 1)).unwrap_or_default()
    }
}

/// Whether a pair crosses none of those that were `chosen`.
fn is_legal(chosen: &BTreeMap<u32, u32>, (x, y): (&u32, &u32)) -> bool {
    chosen.range(..x).next_back().is_none_or(|(_, before)| before < y)
        && chosen.range(x..).next().is_none_or(|(_, behind)| y < behind)
}

/// Signatures of the order in which events of a log come: of each with each landmark, by row and column. On
/// the diagonal is how often an event comes.
///
/// A signature changes where the log goes on with one of two events behind the other, by how often it has
/// come. So it says of the two how often each came between the other.
struct OrdTable {
    n_columns: usize,
    cells: Vec<u64>,
    /// By event: its column; [`NONE`] if it is no landmark.
    columns: Vec<u32>,
    counts: Vec<u64>,
    /// By event: when it was seen last; 0: never.
    seen: Vec<u64>,
    now: u64,
    /// All events that were seen, and the landmarks of these.
    stacks: [Stack; 2],
}

/// What a signature is multiplied with in the row of the event that was seen, and in the other's.
const PRIMES: [u64; 2] = [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f];
/// How far it is shifted.
const SHIFT: u32 = 29;

impl OrdTable {
    /// Of so many events, and of which of these are landmarks.
    fn new(n: usize, landmarks: &[usize]) -> OrdTable {
        let mut columns = vec![NONE; n];
        for (column, of) in (0..).zip(landmarks) {
            columns.get_mut(*of).into_iter().for_each(|of| *of = column);
        }
        OrdTable {
            n_columns: landmarks.len(),
            cells: vec![0; n * landmarks.len()],
            columns,
            counts: vec![0; n],
            seen: vec![0; n],
            now: 0,
            stacks: [Stack::new(n), Stack::new(n)],
        }
    }

    fn column(&self, of: usize) -> Option<usize> {
        self.columns.get(of).filter(|column| **column != NONE).map(|column| *column as usize)
    }

    fn row(&self, of: usize) -> &[u64] {
        self.cells.get(of * self.n_columns..(of + 1) * self.n_columns).unwrap_or_default()
    }

    /// Event `of` comes next.
    fn see(&mut self, of: usize) {
        let is_landmark = self.column(of).is_some();
        self.counts.get_mut(of).into_iter().for_each(|count| *count += 1);
        if let Some(column) = self.column(of) {
            let diagonal = self.cells.get_mut(of * self.n_columns + column);
            diagonal.into_iter().for_each(|count| *count += 1);
        }
        // What is no landmark has signatures with landmarks alone.
        let which = usize::from(!is_landmark);
        let mut other = self.stacks[which].last();
        while let Some(at) = other.filter(|other| self.is_since(*other, of)) {
            self.update(of, at);
            other = self.stacks[which].below(at);
        }
        self.now += 1;
        self.seen.get_mut(of).into_iter().for_each(|seen| *seen = self.now);
        self.stacks[0].push(of);
        if is_landmark {
            self.stacks[1].push(of);
        }
    }

    /// Whether `other` was seen since `of` was.
    fn is_since(&self, other: usize, of: usize) -> bool {
        self.seen.get(other) > self.seen.get(of)
    }

    /// Event `of` has come behind `other`.
    fn update(&mut self, of: usize, other: usize) {
        let count = self.counts.get(of).copied().unwrap_or_default();
        for (row, column, prime) in [(of, other, PRIMES[0]), (other, of, PRIMES[1])] {
            let Some(column) = self.column(column) else { continue };
            let cell = self.cells.get_mut(row * self.n_columns + column);
            cell.into_iter().for_each(|cell| *cell = (*cell ^ count).rotate_left(SHIFT).wrapping_mul(prime));
        }
    }

    /// The log ends.
    fn end(&mut self) {
        let mut of = self.stacks[0].last();
        while let Some(event) = of {
            let which = usize::from(self.column(event).is_none());
            let mut other = self.stacks[which].last();
            while let Some(at) = other {
                if self.is_since(event, at) {
                    self.update(event, at);
                }
                other = self.stacks[which].below(at);
            }
            of = self.stacks[0].below(event);
        }
    }
}

/// Events, the one that was seen last on top.
struct Stack {
    /// By event: the one that was seen before it, and the one that was seen behind it; [`NONE`]: none.
    neighbours: Vec<[u32; 2]>,
    last: u32,
}

impl Stack {
    fn new(n: usize) -> Stack {
        Stack { neighbours: vec![[NONE; 2]; n], last: NONE }
    }

    fn last(&self) -> Option<usize> {
        (self.last != NONE).then_some(self.last as usize)
    }

    fn below(&self, of: usize) -> Option<usize> {
        self.neighbours.get(of).filter(|two| two[0] != NONE).map(|two| two[0] as usize)
    }

    /// Puts an event on top, from wherever it was.
    fn push(&mut self, of: usize) {
        let number = super::code::count(of);
        if self.last == number {
            return;
        }
        let [below, above] = self.neighbours.get(of).copied().unwrap_or([NONE; 2]);
        self.neighbours.get_mut(below as usize).into_iter().for_each(|two| two[1] = above);
        self.neighbours.get_mut(above as usize).into_iter().for_each(|two| two[0] = below);
        self.neighbours.get_mut(of).into_iter().for_each(|two| *two = [self.last, NONE]);
        self.neighbours.get_mut(self.last as usize).into_iter().for_each(|two| two[1] = number);
        self.last = number;
    }
}

#[cfg(test)]
mod tests;
