//! A log in the making.
//!
//! Stretches that are equal, in activations that are at the same place, come to the same, and are looked into
//! once; so are activations of equal stretches and calls. Stretches that are long, or come to be too many,
//! are looked into as they come.

use super::stretch::{End, Found, Ran, Rounds, State, TAIL, Walk};
use super::{Activity, AllSums, Called, Gap, GapKey, Log, Sums, Token};
use crate::compare::code::{Code, NONE, count};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::collections::hash_map::Entry;
use std::hash::BuildHasher as _;
use trace::{Cause, Step, Symbol, ThreadId};
use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// Of the number of a stretch: it is one that is not known, of an activation that is open.
const SINGLE: u32 = 1 << 31;
/// Of the number of a function that is called: by what is not recorded.
const OUTSIDE: u32 = 1 << 31;
/// In front of the symbols of a stretch: where it begins, and what it ends with.
const N_HEAD: usize = 2;

/// What is known of a stretch.
struct Stretch {
    rounds: Box<[Rounds]>,
    /// Instructions behind these.
    rest: u64,
    /// What ran in it, by numbers: most of it ran in other stretches, too.
    ran: Box<[u32]>,
    n_unknown: u64,
    site: u32,
    /// The number of where it goes on.
    behind: u32,
    times: u64,
}

/// Activations of the same stretches.
struct Variant {
    activity: u32,
    /// What they are: stretches, and calls between these.
    ids: Box<[u32]>,
    times: u64,
}

/// An open activation.
#[derive(Debug)]
struct Open {
    function: u32,
    /// Where its stretch began.
    state: u32,
    /// Where its stretches and calls, and those stretches that are not known, begin.
    ids: usize,
    singles: usize,
    /// Where it was called.
    site: u32,
    /// It has jumped out, and whoever is entered next stands in its place.
    is_tail: bool,
}

/// How much is kept of what was seen, so that it is known if it comes again.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Symbols of a stretch, kept until it ends.
    symbols: usize,
    /// Stretches, and activations.
    known: usize,
    /// Stretches and calls of an activation.
    ids: usize,
}

const LIMITS: Limits = Limits { symbols: 1 << 11, known: 1 << 20, ids: 1 << 12 };

/// Makes a log of symbols.
pub struct Builder<'a> {
    code: &'a Code,
    limits: Limits,
    log: Log,
    walk: Walk<'a>,
    /// Whether the stretch on top is gone through as it comes.
    is_long: bool,
    /// Else: what it is, so far.
    symbols: Vec<u32>,
    states: Numbered<State>,
    /// By function: the state where it is entered.
    starts: Vec<u32>,
    stretches: Vec<Stretch>,
    known_stretches: FxHashMap<u128, u32>,
    rans: Numbered<Ran>,
    singles: Vec<Stretch>,
    variants: Vec<Variant>,
    known_variants: FxHashMap<u128, u32>,
    known: FxHashMap<u128, u32>,
    calls: FxHashMap<Called, u32>,
    gaps: FxHashMap<GapKey, u32>,
    /// By gap and counter.
    counts: Vec<FxHashMap<u32, u64>>,
    /// Numbers of sums.
    sums: FxHashMap<Sums, u32>,
    open: Vec<Open>,
    ids: Vec<u32>,
    thread: Option<ThreadId>,
    /// Where each event of that is, if this is kept.
    positions: Option<Vec<u64>>,
    /// How many symbols of the thread there were.
    n_symbols: u64,
}

/// Numbers for what is.
struct Numbered<T> {
    all: Vec<T>,
    /// By hash: the first one that has it.
    known: FxHashMap<u64, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered { all: Vec::new(), known: FxHashMap::default() }
    }
}

impl<T: Eq + std::hash::Hash> Numbered<T> {
    fn number(&mut self, of: T) -> u32 {
        let hash = FxBuildHasher.hash_one(&of);
        let known = self.known.get(&hash).copied();
        match known.filter(|known| self.all.get(*known as usize) == Some(&of)) {
            Some(known) => known,
            None => {
                // Of several with one hash, the others are there as often as they come.
                let next = count(self.all.len());
                self.known.entry(hash).or_insert(next);
                self.all.push(of);
                next
            }
        }
    }
}

impl<'a> Builder<'a> {
    /// Of a run of this code.
    pub fn new(code: &'a Code) -> Builder<'a> {
        Builder {
            code,
            limits: LIMITS,
            log: Log::default(),
            walk: Walk::new(code),
            is_long: false,
            symbols: vec![0; N_HEAD],
            states: Numbered::default(),
            starts: Vec::new(),
            stretches: Vec::new(),
            known_stretches: FxHashMap::default(),
            rans: Numbered::default(),
            singles: Vec::new(),
            variants: Vec::new(),
            known_variants: FxHashMap::default(),
            known: FxHashMap::default(),
            calls: FxHashMap::default(),
            gaps: FxHashMap::default(),
            counts: Vec::new(),
            sums: FxHashMap::default(),
            open: Vec::new(),
            ids: Vec::new(),
            thread: None,
            positions: None,
            n_symbols: 0,
        }
    }

    /// Keeps as much as that.
    #[cfg(test)]
    pub fn with_limits(mut self, symbols: usize, known: usize, ids: usize) -> Builder<'a> {
        self.limits = Limits { symbols, known, ids };
        self
    }

    /// Keeps where each event is.
    #[must_use]
    pub fn with_positions(mut self) -> Builder<'a> {
        self.positions = Some(Vec::new());
        self
    }

    /// The next symbols of a thread. Each thread's come one behind the other.
    pub fn push(&mut self, thread: ThreadId, symbols: &[u32]) {
        if self.thread != Some(thread) {
            self.end_thread();
            self.thread = Some(thread);
            self.start(NONE, NONE);
        }
        for &code in symbols {
            let symbol = Symbol(code);
            match symbol.step() {
                Step::Block(block) => {
                    self.end_tails();
                    self.step(block.0);
                }
                Step::Enter(func) => self.enter(func.0, symbol.is_from_outside()),
                Step::Exit => self.exit(symbol.cause()),
            }
            self.n_symbols += 1;
        }
    }

    /// The log of all of it.
    pub fn finish(mut self) -> Log {
        self.end_thread();
        for Variant { activity, ids, times } in std::mem::take(&mut self.variants) {
            let Some(activity) = self.log.activities.get_mut(activity as usize) else { continue };
            activity.times += times;
            let more = each(&self.stretches, &[], &ids);
            add_sums(&mut activity.sums, (&mut self.sums, &mut self.log.sums), more, times);
        }
        let mut times_of = vec![0; self.rans.all.len()];
        for Stretch { ran, n_unknown, times, .. } in std::mem::take(&mut self.stretches) {
            self.log.n_unknown += n_unknown * times;
            for ran in ran {
                times_of.get_mut(ran as usize).into_iter().for_each(|of| *of += times);
            }
        }
        for (ran, times) in std::mem::take(&mut self.rans.all).iter().zip(times_of) {
            self.add_gap(ran, times);
        }
        for (n, counts) in self.counts.into_iter().enumerate() {
            let mut counts: Vec<(u32, u64)> = counts.into_iter().collect();
            counts.sort_unstable();
            let gap = self.log.gaps.get_mut(n);
            gap.into_iter().for_each(|(_, gap)| gap.counts = std::mem::take(&mut counts).into());
        }
        self.log
    }

    fn end_thread(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        while self.open.len() > 1 {
            self.close();
        }
        if let Some(activity) = self.closed() {
            self.log.threads.push((thread, activity.0));
            self.log.positions.extend(self.positions.as_mut().map(std::mem::take));
        }
        self.n_symbols = 0;
    }

    fn start(&mut self, function: u32, site: u32) {
        let state = match self.starts.get(function as usize) {
            Some(&state) if state != NONE => state,
            _ => {
                let state = self.states.number(State::at_start(function));
                if self.starts.len() <= function as usize && function != NONE {
                    self.starts.resize(function as usize + 1, NONE);
                }
                self.starts.get_mut(function as usize).into_iter().for_each(|start| *start = state);
                state
            }
        };
        let (ids, singles) = (self.ids.len(), self.singles.len());
        self.open.push(Open { function, state, ids, singles, site, is_tail: false });
    }

    /// The next block of the activation on top, or [`TAIL`].
    fn step(&mut self, symbol: u32) {
        if self.is_long {
            self.walk.push(symbol);
            return;
        }
        self.symbols.push(symbol);
        if self.symbols.len() >= self.limits.symbols {
            self.is_long = true;
            self.walk_kept();
        }
    }

    /// Goes through what is kept of the stretch on top.
    fn walk_kept(&mut self) {
        let state = self.open.last().and_then(|top| self.states.all.get(top.state as usize));
        state.into_iter().for_each(|state| self.walk.start(state));
        self.symbols.drain(N_HEAD..).for_each(|symbol| self.walk.push(symbol));
    }

    /// Ends the stretch on top: its number, and itself.
    fn end_stretch(&mut self, end: End) -> Option<(u32, u32, u32)> {
        let state = self.open.last()?.state;
        let n_kept = (self.symbols.len() - N_HEAD) as u64;
        let (mut print, mut known) = (None, None);
        if !self.is_long {
            let of_end = match end {
                End::Call(function, is_from_outside) => function | if is_from_outside { OUTSIDE } else { 0 },
                End::Leave => NONE,
            };
            self.symbols.get_mut(..N_HEAD)?.copy_from_slice(&[state, of_end]);
            let made = xxh3_128(bytemuck::cast_slice(&self.symbols));
            print = Some(made).filter(|_| self.known_stretches.len() < self.limits.known);
            known = self.known_stretches.get(&made).copied();
        }
        if let Some(n) = known {
            self.symbols.truncate(N_HEAD);
            let stretch = self.stretches.get_mut(n as usize)?;
            stretch.times += 1;
            let first = self.n_symbols - n_kept;
            let at = stretch.rounds.iter().map(|rounds| first + rounds.at);
            self.positions.as_mut().into_iter().for_each(|all| all.extend(at.clone()));
            return Some((n, stretch.site, stretch.behind));
        }
        if !self.is_long {
            self.walk_kept();
        }
        let first = self.n_symbols - self.walk.n_symbols();
        let mut found = self.walk.end(end);
        let at = found.rounds.iter().map(|rounds| first + rounds.at);
        self.positions.as_mut().into_iter().for_each(|all| all.extend(at.clone()));
        self.is_long = false;
        self.symbols.truncate(N_HEAD);
        let behind = found.behind.take().map_or(NONE, |state| self.states.number(state));
        // In the order in which they come.
        found.ran.iter().for_each(|ran| _ = self.gap(ran.key));
        let Found { rounds, rest, ran, site, n_unknown, .. } = found;
        let mut made = Stretch { rounds, rest, ran: Box::default(), n_unknown, site, behind, times: 0 };
        let n = match print {
            Some(print) => {
                made.times = 1;
                made.ran = ran.into_iter().map(|ran| self.rans.number(ran)).collect();
                let n = count(self.stretches.len());
                self.known_stretches.insert(print, n);
                self.stretches.push(made);
                n
            }
            None => {
                self.log.n_unknown += n_unknown;
                ran.iter().for_each(|ran| self.add_gap(ran, 1));
                self.singles.push(made);
                SINGLE | count(self.singles.len() - 1)
            }
        };
        Some((n, site, behind))
    }

    /// The number of a gap.
    fn gap(&mut self, key: GapKey) -> usize {
        let gaps = &mut self.log.gaps;
        let at = *self.gaps.entry(key).or_insert_with(|| {
            gaps.push((key, Gap::default()));
            self.counts.push(FxHashMap::default());
            count(gaps.len() - 1)
        });
        at as usize
    }

    fn add_gap(&mut self, ran: &Ran, times: u64) {
        let at = self.gap(ran.key);
        let Some((_, gap)) = self.log.gaps.get_mut(at) else { return };
        gap.times += times;
        gap.insns += ran.insns * times;
        let Some(counts) = self.counts.get_mut(at) else { return };
        ran.counts.iter().for_each(|(counter, n)| *counts.entry(*counter).or_default() += n * times);
    }

    fn enter(&mut self, function: u32, is_from_outside: bool) {
        while let Some(top) = self.open.last().filter(|top| top.is_tail)
            && (is_from_outside || !self.may_jump_to(top, function))
        {
            self.close_one();
        }
        let ended = self.end_stretch(End::Call(function, is_from_outside));
        let Some((stretch, site, behind)) = ended else { return };
        // What it is a call of is known when that has returned.
        self.ids.extend([stretch, NONE]);
        let at = self.n_symbols;
        self.positions.as_mut().into_iter().for_each(|all| all.push(at));
        self.open.last_mut().into_iter().for_each(|top| top.state = behind);
        self.start(function, site);
    }

    /// Whether what has jumped out may have jumped to `function`. A stub jumps to what it is a stub of: if
    /// that is not recorded, its caller may call another one next, and no block stands between.
    fn may_jump_to(&self, open: &Open, function: u32) -> bool {
        let number = self.symbols.get(N_HEAD..).unwrap_or_default().iter().rev().find(|of| **of != TAIL);
        let at_start = || self.states.all.get(open.state as usize).map_or(NONE, |state| state.block);
        let block = match number {
            _ if self.is_long => self.walk.last_block(),
            Some(number) => self.code.block(open.function, *number).unwrap_or(NONE),
            None => at_start(),
        };
        let Some(block) = self.code.blocks.get(block as usize) else { return true };
        let sites = self.code.sites.get(block.sites.start as usize..block.sites.end as usize);
        let mut jumps = sites.unwrap_or_default().iter().filter(|site| site.is_tail).peekable();
        jumps.peek().is_none() || jumps.any(|site| self.code.may_lead(site, function))
    }

    fn exit(&mut self, cause: Option<Cause>) {
        self.end_tails();
        if cause == Some(Cause::Tail)
            && self.open.len() > 1
            && let Some(top) = self.open.last_mut()
        {
            top.is_tail = true;
            self.step(TAIL);
            return;
        }
        self.close();
    }

    /// Whoever has jumped to what is not recorded is left.
    fn end_tails(&mut self) {
        while self.open.last().is_some_and(|top| top.is_tail) {
            self.close_one();
        }
    }

    /// Leaves the function on top, and those that had jumped to it.
    fn close(&mut self) {
        self.close_one();
        self.end_tails();
    }

    fn close_one(&mut self) {
        if self.open.len() <= 1 {
            return;
        }
        let Some((activity, site)) = self.closed() else { return };
        let called = Called { site, activity };
        let calls = &mut self.log.calls;
        let call = *self.calls.entry(called).or_insert_with(|| {
            calls.push(called);
            count(calls.len() - 1)
        });
        self.ids.last_mut().into_iter().for_each(|last| *last = call);
    }

    /// The activity of what is on top, which is open no more; and where it was called.
    fn closed(&mut self) -> Option<(u32, u32)> {
        let (last, ..) = self.end_stretch(End::Leave)?;
        self.ids.push(last);
        let top = self.open.pop()?;
        let ids = self.ids.get(top.ids..).unwrap_or_default();
        let is_known = self.singles.len() == top.singles && ids.len() <= self.limits.ids;
        let print = is_known.then(|| xxh3_128(bytemuck::cast_slice(ids)));
        let known = print.and_then(|print| self.known_variants.get(&print)).copied();
        let is_full = self.variants.len() >= self.limits.known;
        let activity = if let Some(variant) = known.and_then(|n| self.variants.get_mut(n as usize)) {
            variant.times += 1;
            variant.activity
        } else if let Some(print) = print.filter(|_| !is_full) {
            let activity = self.activity(top.function, top.ids, 0);
            self.known_variants.insert(print, count(self.variants.len()));
            let ids = self.ids.get(top.ids..).unwrap_or_default().into();
            self.variants.push(Variant { activity, ids, times: 1 });
            activity
        } else {
            self.activity(top.function, top.ids, 1)
        };
        self.ids.truncate(top.ids);
        self.singles.truncate(top.singles);
        Some((activity, top.site))
    }

    /// The activity that the stretches and calls from `start` on are, of this function; `times` activations
    /// more.
    fn activity(&mut self, function: u32, start: usize, times: u64) -> u32 {
        let ids = self.ids.get(start..).unwrap_or_default();
        let all = || each(&self.stretches, &self.singles, ids);
        let tokens: Vec<u32> = all().filter_map(|(token, _)| Some(token?.0)).collect();
        let print = xxh3_128_with_seed(bytemuck::cast_slice(&tokens), u64::from(function));
        let at = match self.known.entry(print) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let tokens: Box<[Token]> = tokens.into_iter().map(Token).collect();
                let n = tokens.len() + 1;
                let sums = match n > self.limits.ids {
                    true => {
                        let none = number_of(&mut self.sums, &mut self.log.sums, Sums::default());
                        AllSums::Numbered(vec![none; n].into())
                    }
                    false => AllSums::Each(vec![Sums::default(); n].into()),
                };
                self.log.activities.push(Activity { function, tokens, times: 0, sums });
                *place.insert(count(self.log.activities.len() - 1))
            }
        };
        let Some(activity) = self.log.activities.get_mut(at as usize).filter(|_| times > 0) else {
            return at;
        };
        activity.times += times;
        add_sums(&mut activity.sums, (&mut self.sums, &mut self.log.sums), all(), times);
        at
    }
}

/// What is in stretches and calls: tokens, with what goes with each; last what is behind the last.
fn each<'a>(
    stretches: &'a [Stretch],
    singles: &'a [Stretch],
    ids: &'a [u32],
) -> impl Iterator<Item = (Option<Token>, Sums)> + 'a {
    ids.chunks(2).flat_map(move |two| {
        let of = two.first().copied().unwrap_or(NONE);
        let found = match of & SINGLE {
            0 => stretches.get(of as usize),
            _ => singles.get((of & !SINGLE) as usize),
        };
        let rounds = found.into_iter().flat_map(|found| &found.rounds);
        let rounds = rounds.map(|rounds| (Some(Token(Token::ROUNDS | rounds.of)), rounds.sums));
        let rest = Sums { gap: found.map_or(0, |found| found.rest), ..Sums::default() };
        rounds.chain([(two.get(1).copied().map(Token), rest)])
    })
}

/// The number of sums.
fn number_of(known: &mut FxHashMap<Sums, u32>, all: &mut Vec<Sums>, sums: Sums) -> u32 {
    *known.entry(sums).or_insert_with(|| {
        all.push(sums);
        count(all.len() - 1)
    })
}

/// Adds what goes with tokens, `times` over.
fn add_sums(
    to: &mut AllSums,
    (known, numbered): (&mut FxHashMap<Sums, u32>, &mut Vec<Sums>),
    more: impl Iterator<Item = (Option<Token>, Sums)>,
    times: u64,
) {
    match to {
        AllSums::Each(sums) => sums.iter_mut().zip(more).for_each(|(sum, (_, more))| sum.add(&more, times)),
        AllSums::Numbered(numbers) => {
            for (number, (_, more)) in numbers.iter_mut().zip(more) {
                let mut sums = numbered.get(*number as usize).copied().unwrap_or_default();
                sums.add(&more, times);
                *number = number_of(known, numbered, sums);
            }
        }
    }
}
