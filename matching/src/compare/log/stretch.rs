//! What a stretch of an activation comes to: its blocks between two calls, from where it is entered, or to
//! where it is left.

use super::{Counted, GapKey, Place, Sums, counter};
use crate::compare::code::{Code, Leads, NONE};

/// Where an activation is when a stretch of it begins. What a stretch comes to follows from this and its
/// blocks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The function.
    pub function: u32,
    /// The place where the stretch begins.
    pub from: Place,
    /// The block that ran last.
    pub block: u32,
    /// Which call of that is next.
    pub cursor: u32,
    /// The loops that it is in, the innermost last.
    pub loops: Box<[u32]>,
}

impl State {
    /// Where a function is entered.
    pub fn at_start(function: u32) -> State {
        State { function, from: Place::Start, block: NONE, cursor: 0, loops: Box::default() }
    }
}

/// Rounds of a loop, as a stretch has them.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// The loop.
    pub of: u32,
    /// In front of which symbol of the stretch they begin.
    pub at: u64,
    /// What goes with them.
    pub sums: Sums,
}

/// What ran in a gap of a stretch.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct Ran {
    /// The gap.
    pub key: GapKey,
    /// Instructions.
    pub insns: u64,
    /// By [`counter`]: how often.
    pub counts: Box<[(u32, u64)]>,
}

/// What a stretch comes to.
#[derive(Debug)]
pub struct Found {
    /// Rounds of loops, in order.
    pub rounds: Box<[Rounds]>,
    /// Instructions behind these.
    pub rest: u64,
    /// What ran, gap by gap.
    pub ran: Vec<Ran>,
    /// The call at its end; [`NONE`] if there is none, or nobody knows it.
    pub site: u32,
    /// Where the activation goes on behind that call.
    pub behind: Option<State>,
    /// How many blocks nobody knows.
    pub n_unknown: u64,
}

/// What a stretch ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// This function is called; whether by what is not recorded.
    Call(u32, bool),
    /// The function is left.
    Leave,
}

/// In place of a block: the function is left by a jump.
pub const TAIL: u32 = u32::MAX;

/// A point in a stretch.
#[derive(Clone, Copy, Default, Debug)]
struct Mark {
    /// How many counters were written.
    at: usize,
    insns: u64,
    light: u64,
    heavy: u64,
}

/// Rounds of a loop in a stretch.
#[derive(Debug)]
struct Recent {
    of: u32,
    /// The symbol.
    at: u64,
    start: Mark,
    end: Mark,
    /// What was written in it and taken away again.
    packed: Vec<(u32, u64)>,
}

/// A loop that an activation is in.
#[derive(Clone, Copy, Debug)]
struct OpenLoop {
    of: u32,
    /// Its rounds in this stretch: where among those.
    recent: Option<usize>,
}

/// Counts by counter.
#[derive(Default)]
struct Tally {
    n: Vec<u64>,
    touched: Vec<u32>,
}

impl Tally {
    fn add(&mut self, counter: u32, more: u64) {
        let at = counter as usize;
        if self.n.len() <= at {
            self.n.resize(at + 1, 0);
        }
        let Some(n) = self.n.get_mut(at) else { return };
        if *n == 0 {
            self.touched.push(counter);
        }
        *n += more;
    }

    /// What was counted, in order; nothing is left.
    fn take(&mut self) -> impl ExactSizeIterator<Item = (u32, u64)> + '_ {
        self.touched.sort_unstable();
        let n = &mut self.n;
        self.touched.drain(..).map(|counter| (counter, n.get_mut(counter as usize).map_or(0, std::mem::take)))
    }
}

/// So many counters of rounds are kept one by one.
const MOST_COUNTERS: usize = 1 << 14;

/// Goes through stretches, one at a time.
pub struct Walk<'a> {
    code: &'a Code,
    function: u32,
    from: Place,
    block: u32,
    cursor: u32,
    loops: Vec<OpenLoop>,
    recent: Vec<Recent>,
    counters: Vec<u32>,
    now: Mark,
    n_symbols: u64,
    n_unknown: u64,
    tally: Tally,
}

impl<'a> Walk<'a> {
    /// Of a run of this code.
    pub fn new(code: &'a Code) -> Walk<'a> {
        Walk {
            code,
            function: NONE,
            from: Place::Start,
            block: NONE,
            cursor: 0,
            loops: Vec::new(),
            recent: Vec::new(),
            counters: Vec::new(),
            now: Mark::default(),
            n_symbols: 0,
            n_unknown: 0,
            tally: Tally::default(),
        }
    }

    /// A stretch begins.
    pub fn start(&mut self, state: &State) {
        (self.function, self.from) = (state.function, state.from);
        (self.block, self.cursor) = (state.block, state.cursor);
        self.loops.clear();
        self.loops.extend(state.loops.iter().map(|of| OpenLoop { of: *of, recent: None }));
        self.recent.clear();
        self.counters.clear();
        self.now = Mark::default();
        (self.n_symbols, self.n_unknown) = (0, 0);
    }

    /// How many symbols there were since.
    pub fn n_symbols(&self) -> u64 {
        self.n_symbols
    }

    /// The block that ran last.
    pub fn last_block(&self) -> u32 {
        self.block
    }

    /// The next block, or [`TAIL`].
    pub fn push(&mut self, symbol: u32) {
        match symbol {
            // It may have been left by a branch.
            TAIL => {
                let of = self.code.blocks.get(self.block as usize);
                if of.is_some_and(|of| of.not_taken.0 != NONE) {
                    self.counters.push(counter(self.block, Counted::Taken));
                }
            }
            block => self.block(block),
        }
        self.n_symbols += 1;
    }

    fn block(&mut self, number: u32) {
        let Some(block) = self.code.block(self.function, number) else {
            self.n_unknown += 1;
            return;
        };
        let Some(of) = self.code.blocks.get(block as usize) else { return };
        let before = self.block;
        if let Some(last) = self.code.blocks.get(before as usize).filter(|last| last.not_taken.0 != NONE) {
            let (to, padding) = last.not_taken;
            if to != block {
                self.counters.push(counter(before, Counted::Taken));
            } else if padding > 0 {
                self.counters.push(counter(before, Counted::Padding));
                self.now.insns += u64::from(padding);
            }
        }
        if of.innermost != NONE || !self.loops.is_empty() {
            self.go_round(of.innermost, of.is_header);
        }
        self.counters.push(counter(block, Counted::Run));
        self.now.at = self.counters.len();
        self.now.insns += u64::from(of.weight);
        (self.block, self.cursor) = (block, 0);
    }

    /// Control comes to a block in this loop, if it is in one.
    fn go_round(&mut self, innermost: u32, is_header: bool) {
        self.now.at = self.counters.len();
        while let Some(&last) = self.loops.last()
            && !self.code.is_in(innermost, last.of)
        {
            self.leave_loop(last);
        }
        if !is_header {
            return;
        }
        if self.loops.last().is_none_or(|last| last.of != innermost) {
            self.loops.push(OpenLoop { of: innermost, recent: None });
        }
        let start = self.now;
        let is_light = self.code.loops.get(innermost as usize).is_some_and(|of| !of.is_innermost);
        self.now.heavy += 1;
        self.now.light += u64::from(is_light);
        let Some(last) = self.loops.last_mut() else { return };
        if let Some(at) = last.recent {
            self.end_rounds(at);
            self.pack(at);
        } else {
            last.recent = Some(self.recent.len());
            let (at, end) = (self.n_symbols, self.now);
            self.recent.push(Recent { of: innermost, at, start, end, packed: Vec::new() });
        }
    }

    /// Rounds go up to here. What went round in them meanwhile is a part of them.
    fn end_rounds(&mut self, at: usize) {
        let Some((rounds, inner)) = self.recent.get_mut(at..).and_then(<[_]>::split_first_mut) else {
            return;
        };
        rounds.end = self.now;
        inner.iter_mut().for_each(|inner| rounds.packed.append(&mut inner.packed));
        self.recent.truncate(at + 1);
    }

    /// Takes away what was written in rounds, if it has become much.
    fn pack(&mut self, at: usize) {
        let Some(rounds) = self.recent.get_mut(at) else { return };
        if self.counters.len() - rounds.start.at < MOST_COUNTERS {
            return;
        }
        rounds.packed.drain(..).for_each(|(counter, n)| self.tally.add(counter, n));
        self.counters.drain(rounds.start.at..).for_each(|counter| self.tally.add(counter, 1));
        rounds.packed.extend(self.tally.take());
        self.now.at = self.counters.len();
        rounds.end.at = self.now.at;
    }

    fn leave_loop(&mut self, last: OpenLoop) {
        self.loops.pop();
        last.recent.into_iter().for_each(|at| self.end_rounds(at));
    }

    /// What the stretch comes to, that ends here.
    pub fn end(&mut self, end: End) -> Found {
        self.now.at = self.counters.len();
        let (mut site, mut to) = (NONE, Place::End);
        match end {
            End::Call(function, is_from_outside) => {
                site = self.site(function, is_from_outside);
                to = if site == NONE { Place::Called(function) } else { Place::Site(site) };
            }
            End::Leave => {
                while let Some(&last) = self.loops.last() {
                    self.leave_loop(last);
                }
            }
        }
        let behind = (end != End::Leave).then(|| State {
            function: self.function,
            from: to,
            block: self.block,
            cursor: self.cursor,
            loops: self.loops.iter().map(|of| of.of).collect(),
        });
        let (function, mut from, mut last) = (self.function, self.from, Mark::default());
        let mut rounds = Vec::with_capacity(self.recent.len());
        let mut ran = Vec::with_capacity(2 * self.recent.len() + 1);
        let all = std::mem::take(&mut self.recent);
        for recent in &all {
            let Recent { of, at, start, end, .. } = *recent;
            let here = Place::Rounds(of);
            ran.push(self.ran(GapKey { function, from, to: here, is_inside: false }, (last, start), &[]));
            let inside = GapKey { function, from: here, to: here, is_inside: true };
            ran.push(self.ran(inside, (start, end), &recent.packed));
            let sums = Sums {
                gap: start.insns - last.insns,
                inside: end.insns - start.insns,
                light: end.light - start.light,
                heavy: end.heavy - start.heavy,
            };
            rounds.push(Rounds { of, at, sums });
            (from, last) = (here, end);
        }
        self.recent = all;
        ran.push(self.ran(GapKey { function, from, to, is_inside: false }, (last, self.now), &[]));
        let rest = self.now.insns - last.insns;
        Found { rounds: rounds.into(), rest, ran, site, behind, n_unknown: self.n_unknown }
    }

    fn ran(&mut self, key: GapKey, (start, end): (Mark, Mark), packed: &[(u32, u64)]) -> Ran {
        let written = self.counters.get(start.at..end.at).unwrap_or_default();
        written.iter().for_each(|counter| self.tally.add(*counter, 1));
        packed.iter().for_each(|(counter, n)| self.tally.add(*counter, *n));
        Ran { key, insns: end.insns - start.insns, counts: self.tally.take().collect() }
    }

    /// The call that leads to `function`; goes on behind it.
    fn site(&mut self, function: u32, is_from_outside: bool) -> u32 {
        let code = self.code;
        let Some(of) = code.blocks.get(self.block as usize) else { return NONE };
        let mut rest = of.sites.clone().skip(self.cursor as usize);
        let site = |site: &u32| code.sites.get(*site as usize);
        if is_from_outside {
            // Called by what is not recorded, which was called from here.
            let is_open = |at: &u32| site(at).is_some_and(|site| !matches!(site.leads, Leads::To(_)));
            return rest.find(is_open).unwrap_or(NONE);
        }
        let leads = |at: &u32| site(at).is_some_and(|site| code.may_lead(site, function));
        let Some(found) = rest.find(leads) else { return NONE };
        self.cursor = found - of.sites.start + 1;
        found
    }
}
