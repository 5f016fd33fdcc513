//! What a run did, as a log of events: calls, returns, and rounds of loops. Equal activations are one.
//!
//! ```text
//! thread: gap CALL f gap CALL g gap          an activation of f: gap ROUNDS of loop 3 gap CALL h gap
//! ```
//! An [`Activity`] is what activations of one function did that did the same: the same calls of the same
//! activities at the same sites, and rounds of the same loops in between. How often loops went round is not
//! in it, but summed up: between two calls, all rounds of the outermost loop that went round are one event.
//! So its size is that of what differs, not of the run.
//!
//! What ran between two events is counted by where these are ([`Gap`]), whatever the activation.
//!
//! Source: Chainsaw (2009), "Log-based event matching"; hash-consing: Ershov, CACM 1(8), 1958.

#[cfg(test)]
mod tests;

use super::code::{Code, Leads, NONE, TracedModule, count};
use std::collections::HashMap;
use trace::{Cause, Step, Symbol, ThreadId};
use xxhash_rust::xxh3::xxh3_128;

/// What stands in an activity: a call, or rounds of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(u32);

/// What a [`Token`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A call, by its number in [`Log::calls`].
    Call(u32),
    /// Rounds of this loop.
    Rounds(u32),
}

impl Token {
    const ROUNDS: u32 = 1 << 31;

    /// What it is.
    pub fn kind(self) -> Kind {
        match self.0 & Token::ROUNDS {
            0 => Kind::Call(self.0),
            _ => Kind::Rounds(self.0 & !Token::ROUNDS),
        }
    }
}

/// A call with what it came to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Called {
    /// Where; [`NONE`] if nobody knows.
    pub site: u32,
    /// The activity of the function that was called.
    pub activity: u32,
}

/// What goes with a token, in all activations together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sums {
    /// Instructions between the token before and this one.
    pub gap: u64,
    /// Instructions in rounds.
    pub inside: u64,
    /// Rounds of loops that have loops in them.
    pub light: u64,
    /// Rounds of all loops.
    pub heavy: u64,
}

/// What activations of one function did that did the same.
#[derive(Clone, Debug)]
pub struct Activity {
    /// The function; [`NONE`]: a thread.
    pub function: u32,
    /// What they did, in order.
    pub tokens: Box<[Token]>,
    /// The same, in numbers; one more for what is behind the last.
    pub sums: Box<[Sums]>,
    /// How many activations.
    pub times: u64,
}

/// An end of a gap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// Where the function is entered.
    Start,
    /// This call.
    Site(u32),
    /// A call of this function from a place that nobody knows.
    Called(u32),
    /// Rounds of this loop.
    Rounds(u32),
    /// Where the function is left.
    End,
}

/// What runs between two places of a function; between rounds and the same rounds, what runs in them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GapKey {
    /// The function.
    pub function: u32,
    /// Where it begins.
    pub from: Place,
    /// Where it ends.
    pub to: Place,
    /// Whether it is what runs in rounds.
    pub is_inside: bool,
}

/// What ran in a gap.
#[derive(Clone, Debug, Default)]
pub struct Gap {
    /// How often.
    pub times: u64,
    /// Instructions.
    pub insns: u64,
    /// By [`counter`]: how often.
    counts: Vec<(u32, u64)>,
    /// Where the next one is looked for first.
    next: usize,
}

/// What is counted of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// That it ran.
    Run = 0,
    /// That the branch at its end was taken.
    Taken = 1,
    /// That the padding behind a branch ran that was not taken.
    Padding = 2,
}

fn counter(block: u32, what: Counted) -> u32 {
    3 * block + what as u32
}

impl Gap {
    fn add(&mut self, counter: u32, n: u64) {
        // They come in much the same order each time.
        let len = self.counts.len();
        for step in 0..len {
            let at = (self.next + step) % len;
            if let Some((_, sum)) = self.counts.get_mut(at).filter(|(known, _)| *known == counter) {
                *sum += n;
                self.next = at + 1;
                return;
            }
        }
        self.next = 0;
        self.counts.push((counter, n));
    }

    /// By block: what, and how often.
    pub fn counts(&self) -> impl Iterator<Item = (u32, Counted, u64)> + '_ {
        self.counts.iter().map(|&(counter, n)| {
            let what = match counter % 3 {
                0 => Counted::Run,
                1 => Counted::Taken,
                _ => Counted::Padding,
            };
            (counter / 3, what, n)
        })
    }
}

/// The log of a run.
#[derive(Debug, Default)]
pub struct Log {
    /// What activations did. One that calls another has a larger number.
    pub activities: Vec<Activity>,
    /// Calls, as tokens number them.
    pub calls: Vec<Called>,
    /// By thread: the activity that is all of it.
    pub threads: Vec<(ThreadId, u32)>,
    /// By thread, if they are asked for: the number of the symbol where each event is, in the order of
    /// events, those of what was called behind the call.
    pub positions: Vec<Vec<u64>>,
    /// What ran between events.
    pub gaps: Vec<(GapKey, Gap)>,
    /// Blocks that are of no function, or of none that is known.
    pub n_unknown: u64,
}

/// One of the two runs.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// Its code.
    pub code: &'a Code,
    /// What it did.
    pub log: &'a Log,
    /// Its programs.
    pub modules: &'a [TracedModule<'a>],
}

/// A point in what an activation does.
#[derive(Clone, Copy, Default, Debug)]
struct Mark {
    /// How many counters were written.
    at: usize,
    insns: u64,
    light: u64,
    heavy: u64,
}

/// A token of the stretch since the last call.
#[derive(Debug)]
struct Recent {
    /// [`NONE`] of a call.
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
    /// Its rounds in this stretch: where among those, and which stretch that is.
    recent: (usize, u32),
}

/// An open activation.
#[derive(Debug)]
struct Open {
    function: u32,
    block: u32,
    /// Which call of the block is next.
    cursor: u32,
    /// Where its tokens, and its loops, begin.
    tokens: usize,
    loops: usize,
    /// Which stretch.
    stretch: u32,
    /// The place of the token before the stretch.
    from: Place,
    /// Where it was called.
    site: u32,
    /// It has jumped out, and whoever is entered next stands in its place.
    is_tail: bool,
}

/// Makes a log of symbols.
pub struct Builder<'a> {
    code: &'a Code,
    log: Log,
    known: HashMap<u128, u32>,
    calls: HashMap<Called, u32>,
    gaps: HashMap<GapKey, u32>,
    open: Vec<Open>,
    tokens: Vec<(Token, Sums)>,
    loops: Vec<OpenLoop>,
    /// Of the stretch on top.
    recent: Vec<Recent>,
    counters: Vec<u32>,
    now: Mark,
    thread: Option<ThreadId>,
    /// Where each event of that is, if this is kept.
    positions: Option<Vec<u64>>,
    /// How many symbols of the thread there were.
    n_symbols: u64,
    /// Reused.
    bytes: Vec<u8>,
    sums: HashMap<u32, u64>,
}

/// So many counters of rounds are kept one by one.
const MOST_COUNTERS: usize = 1 << 14;

impl<'a> Builder<'a> {
    /// Of a run of this code.
    pub fn new(code: &'a Code) -> Builder<'a> {
        Builder {
            code,
            log: Log::default(),
            known: HashMap::new(),
            calls: HashMap::new(),
            gaps: HashMap::new(),
            open: Vec::new(),
            tokens: Vec::new(),
            loops: Vec::new(),
            recent: Vec::new(),
            counters: Vec::new(),
            now: Mark::default(),
            thread: None,
            positions: None,
            n_symbols: 0,
            bytes: Vec::new(),
            sums: HashMap::new(),
        }
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
                Step::Block(block) => self.block(block.0),
                Step::Enter(func) => self.enter(func.0, symbol.is_from_outside()),
                Step::Exit => self.exit(symbol.cause()),
            }
            self.n_symbols += 1;
        }
    }

    /// The log of all of it.
    pub fn finish(mut self) -> Log {
        self.end_thread();
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
        self.open.push(Open {
            function,
            block: NONE,
            cursor: 0,
            tokens: self.tokens.len(),
            loops: self.loops.len(),
            stretch: 0,
            from: Place::Start,
            site,
            is_tail: false,
        });
        self.now = Mark::default();
        self.counters.clear();
        self.recent.clear();
    }

    fn block(&mut self, number: u32) {
        self.end_tails();
        let Some(top) = self.open.last() else { return };
        let Some(block) = self.code.block(top.function, number) else {
            self.log.n_unknown += 1;
            return;
        };
        let Some(of) = self.code.blocks.get(block as usize) else { return };
        let before = top.block;
        if let Some(last) = self.code.blocks.get(before as usize).filter(|last| last.not_taken.0 != NONE) {
            let (to, padding) = last.not_taken;
            if to != block {
                self.counters.push(counter(before, Counted::Taken));
            } else if padding > 0 {
                self.counters.push(counter(before, Counted::Padding));
                self.now.insns += u64::from(padding);
            }
        }
        if of.innermost != NONE || self.loops.len() > top.loops {
            self.go_round(of.innermost, of.is_header);
        }
        self.counters.push(counter(block, Counted::Run));
        self.now.at = self.counters.len();
        self.now.insns += u64::from(of.weight);
        if let Some(top) = self.open.last_mut() {
            (top.block, top.cursor) = (block, 0);
        }
    }

    /// Control comes to a block in this loop, if it is in one.
    fn go_round(&mut self, innermost: u32, is_header: bool) {
        self.now.at = self.counters.len();
        let Some(top) = self.open.last() else { return };
        let (first, stretch) = (top.loops, top.stretch);
        while self.loops.len() > first
            && let Some(&last) = self.loops.last()
            && !self.code.is_in(innermost, last.of)
        {
            self.leave_loop(last, stretch);
        }
        if !is_header {
            return;
        }
        let is_open = self.loops.len() > first && self.loops.last().is_some_and(|last| last.of == innermost);
        if !is_open {
            self.loops.push(OpenLoop { of: innermost, recent: (0, NONE) });
        }
        let start = self.now;
        let is_light = self.code.loops.get(innermost as usize).is_some_and(|of| !of.is_innermost);
        self.now.heavy += 1;
        self.now.light += u64::from(is_light);
        let Some(last) = self.loops.last_mut() else { return };
        if last.recent.1 == stretch {
            // What went round in it meanwhile is a part of it.
            let at = last.recent.0;
            let inner: Vec<Recent> = self.recent.drain(at + 1..).collect();
            if let Some(rounds) = self.recent.get_mut(at) {
                rounds.end = self.now;
                rounds.packed.extend(inner.into_iter().flat_map(|recent| recent.packed));
            }
            self.pack(at);
        } else {
            last.recent = (self.recent.len(), stretch);
            self.recent.push(Recent {
                of: innermost,
                at: self.n_symbols,
                start,
                end: self.now,
                packed: Vec::new(),
            });
        }
    }

    /// Takes away what was written in rounds, if it has become much.
    fn pack(&mut self, at: usize) {
        let Some(rounds) = self.recent.get_mut(at) else { return };
        if self.counters.len() - rounds.start.at < MOST_COUNTERS {
            return;
        }
        self.sums.clear();
        for (counter, n) in rounds.packed.drain(..) {
            *self.sums.entry(counter).or_default() += n;
        }
        for counter in self.counters.drain(rounds.start.at..) {
            *self.sums.entry(counter).or_default() += 1;
        }
        rounds.packed.extend(self.sums.drain());
        rounds.packed.sort_unstable();
        self.now.at = self.counters.len();
        rounds.end.at = self.now.at;
    }

    fn leave_loop(&mut self, last: OpenLoop, stretch: u32) {
        self.loops.pop();
        if last.recent.1 == stretch
            && let Some(rounds) = self.recent.get_mut(last.recent.0)
        {
            rounds.end = self.now;
            let inner: Vec<Recent> = self.recent.drain(last.recent.0 + 1..).collect();
            if let Some(rounds) = self.recent.get_mut(last.recent.0) {
                rounds.packed.extend(inner.into_iter().flat_map(|recent| recent.packed));
            }
        }
    }

    /// Ends a stretch: at a call, or where the function is left.
    fn end_stretch(&mut self, to: Place) -> Sums {
        let Some(top) = self.open.last() else { return Sums::default() };
        let (function, mut from) = (top.function, top.from);
        let mut last = Mark::default();
        self.now.at = self.counters.len();
        for recent in std::mem::take(&mut self.recent) {
            let Recent { of, at, start, end, packed } = recent;
            let here = Place::Rounds(of);
            self.add_gap(GapKey { function, from, to: here, is_inside: false }, (last, start), &[]);
            self.add_gap(GapKey { function, from: here, to: here, is_inside: true }, (start, end), &packed);
            let sums = Sums {
                gap: start.insns - last.insns,
                inside: end.insns - start.insns,
                light: end.light - start.light,
                heavy: end.heavy - start.heavy,
            };
            self.tokens.push((Token(Token::ROUNDS | of), sums));
            self.positions.as_mut().into_iter().for_each(|all| all.push(at));
            (from, last) = (here, end);
        }
        self.add_gap(GapKey { function, from, to, is_inside: false }, (last, self.now), &[]);
        let gap = self.now.insns - last.insns;
        self.now = Mark::default();
        self.counters.clear();
        Sums { gap, ..Sums::default() }
    }

    fn add_gap(&mut self, key: GapKey, (start, end): (Mark, Mark), packed: &[(u32, u64)]) {
        let gaps = &mut self.log.gaps;
        let at = *self.gaps.entry(key).or_insert_with(|| {
            gaps.push((key, Gap::default()));
            count(gaps.len() - 1)
        });
        let Some((_, gap)) = gaps.get_mut(at as usize) else { return };
        gap.times += 1;
        gap.insns += end.insns - start.insns;
        gap.next = 0;
        for &counter in self.counters.get(start.at..end.at).unwrap_or_default() {
            gap.add(counter, 1);
        }
        packed.iter().for_each(|&(counter, n)| gap.add(counter, n));
    }

    fn enter(&mut self, function: u32, is_from_outside: bool) {
        while let Some(top) = self.open.last().filter(|top| top.is_tail)
            && (is_from_outside || !self.may_jump_to(top, function))
        {
            self.close_one();
        }
        let site = self.site(function, is_from_outside);
        let place = if site == NONE { Place::Called(function) } else { Place::Site(site) };
        let sums = self.end_stretch(place);
        // What it is a call of is known when that has returned.
        self.tokens.push((Token(0), sums));
        let at = self.n_symbols;
        self.positions.as_mut().into_iter().for_each(|all| all.push(at));
        if let Some(top) = self.open.last_mut() {
            top.stretch += 1;
            top.from = place;
        }
        self.start(function, site);
    }

    /// Whether what has jumped out may have jumped to `function`. A stub jumps to what it is a stub of: if
    /// that is not recorded, its caller may call another one next, and no block stands between.
    fn may_jump_to(&self, open: &Open, function: u32) -> bool {
        let Some(block) = self.code.blocks.get(open.block as usize) else { return true };
        let sites = self.code.sites.get(block.sites.start as usize..block.sites.end as usize);
        let mut jumps = sites.unwrap_or_default().iter().filter(|site| site.is_tail).peekable();
        jumps.peek().is_none() || jumps.any(|site| self.code.may_lead(site, function))
    }

    /// The call of the function on top that leads to `function`; goes on behind it.
    fn site(&mut self, function: u32, is_from_outside: bool) -> u32 {
        let code = self.code;
        let Some(top) = self.open.last_mut() else { return NONE };
        let Some(of) = code.blocks.get(top.block as usize) else { return NONE };
        let mut rest = of.sites.clone().skip(top.cursor as usize);
        if is_from_outside {
            // Called by what is not recorded, which was called from here.
            let is_open = |site: &u32| {
                code.sites.get(*site as usize).is_some_and(|site| !matches!(site.leads, Leads::To(_)))
            };
            return rest.find(is_open).unwrap_or(NONE);
        }
        let leads =
            |site: &u32| code.sites.get(*site as usize).is_some_and(|site| code.may_lead(site, function));
        let Some(site) = rest.find(leads) else { return NONE };
        top.cursor = site - of.sites.start + 1;
        site
    }

    fn exit(&mut self, cause: Option<Cause>) {
        self.end_tails();
        if cause == Some(Cause::Tail)
            && self.open.len() > 1
            && let Some(top) = self.open.last_mut()
        {
            top.is_tail = true;
            let block = top.block;
            // It may have been left by a branch.
            if self.code.blocks.get(block as usize).is_some_and(|of| of.not_taken.0 != NONE) {
                self.counters.push(counter(block, Counted::Taken));
            }
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
        self.tokens.last_mut().into_iter().for_each(|token| token.0 = Token(call));
        // The function below begins a stretch.
        self.now = Mark::default();
        self.counters.clear();
        self.recent.clear();
    }

    /// The activity of what is on top, which is open no more; and where it was called.
    fn closed(&mut self) -> Option<(u32, u32)> {
        self.now.at = self.counters.len();
        let stretch = self.open.last()?.stretch;
        while self.loops.len() > self.open.last()?.loops
            && let Some(&last) = self.loops.last()
        {
            self.leave_loop(last, stretch);
        }
        let rest = self.end_stretch(Place::End);
        let top = self.open.pop()?;
        self.bytes.clear();
        self.bytes.extend(top.function.to_le_bytes());
        let tokens = self.tokens.get(top.tokens..).unwrap_or_default();
        self.bytes.extend(tokens.iter().flat_map(|(token, _)| token.0.to_le_bytes()));
        let sums = tokens.iter().map(|(_, sums)| *sums).chain([rest]);
        let activities = &mut self.log.activities;
        let activity = match self.known.entry(xxh3_128(&self.bytes)) {
            std::collections::hash_map::Entry::Occupied(known) => {
                let at = *known.get();
                if let Some(known) = activities.get_mut(at as usize) {
                    known.times += 1;
                    known.sums.iter_mut().zip(sums).for_each(|(sum, more)| sum.add(&more));
                }
                at
            }
            std::collections::hash_map::Entry::Vacant(place) => {
                let at = *place.insert(count(activities.len()));
                let sums = sums.collect();
                let tokens = tokens.iter().map(|(token, _)| *token).collect();
                activities.push(Activity { function: top.function, tokens, sums, times: 1 });
                at
            }
        };
        self.tokens.truncate(top.tokens);
        Some((activity, top.site))
    }
}

impl Sums {
    fn add(&mut self, more: &Sums) {
        self.gap += more.gap;
        self.inside += more.inside;
        self.light += more.light;
        self.heavy += more.heavy;
    }
}
