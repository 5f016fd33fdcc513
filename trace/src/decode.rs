//! From events to symbols: which functions were entered, which blocks executed, which functions left.
//!
//! The decoder walks through the code as the program did. It stays where it is until an event comes, to which
//! one way leads (`region`). That may lead out of the function, and out of the one below, and into others.
//! What comes unexpected is a signal handler, a callback, or what a `longjmp` or an exception led to:
//! for the last two, the activation is found by the stack pointer, and those above it are left.
//!
//! Invariant: whatever the events, what comes out is balanced but for what is open at the end.
#![warn(clippy::indexing_slicing)]

mod activation;
mod callers;
mod filter;
mod module_codes;
pub mod region;
mod signals;
mod stack;
mod steps;

use crate::decode::region::{BlockPosition, Border, MOST_PLAIN, Region};
use crate::ids::BlockId;
use crate::recording::event::{Event, Head, Reader};
use crate::recording::module_code::{Block, End, PointPlace, SiteTold};
use crate::symbol::{Cause, Symbol};
use activation::Activation;
use filter::Filter;
pub use module_codes::ModuleCodes;
use module_codes::ModuleFunction;
use signals::{Next, Signals};
pub use stack::Forked;
use stack::Stack;
use steps::{CachedStep, StepCache};

/// What an event tells.
#[derive(Clone, Copy, Debug)]
enum Observation {
    /// That control came to the point of this word.
    Point(u32),
    /// That entry `n` of a module was entered.
    Entry { module: usize, n: u32 },
    /// That a signal came in this part of a block of a function.
    In { of: ModuleFunction, block: BlockId, part: Part },
}

/// A part of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Any,
    /// The code of its event, which was not written.
    Event,
    /// A call, or what that has come to.
    Call,
}

/// How control came to what is told.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Through how many silent ends of regions.
    n_ends: usize,
    /// How many functions are open there.
    n_open: usize,
}

/// Why it is not known how control came to what is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NotFound {
    /// All that is open was left, and nobody knows for what.
    RanOut,
    /// It leads nowhere near.
    Nowhere,
}

/// The most functions that control enters one in another before an event comes.
const MOST_INSIDE: usize = 1 << 10;

/// What was wrong with a stream's events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// How often control was somewhere else than the events before say.
    pub n_astray: u64,
    /// How many events were of no use.
    pub n_lost: u64,
}

/// Decodes one stream.
#[derive(Debug)]
pub struct Decoder<'c> {
    codes: &'c ModuleCodes,
    reader: Reader,
    stack: Stack,
    filter: Filter,
    steps: StepCache,
    next: Next,
    signals: Signals,
    /// What was wrong.
    pub faults: Faults,
}

impl<'c> Decoder<'c> {
    /// Of a stream that has not begun.
    pub fn new(codes: &'c ModuleCodes) -> Decoder<'c> {
        Decoder {
            codes,
            reader: Reader::default(),
            stack: Stack::default(),
            filter: Filter::default(),
            steps: StepCache::default(),
            next: Next::default(),
            signals: Signals::default(),
            faults: Faults::default(),
        }
    }

    /// The same, for a stream that may begin where one went on in another process that was decoded before.
    #[must_use]
    pub fn behind(mut self, forked: Forked) -> Decoder<'c> {
        self.stack.forked = forked;
        self
    }

    /// The next event, which is no mark.
    fn tell(&mut self, event: Event, out: &mut Vec<u32>) {
        match event {
            Event::Point(word) => {
                self.signals.is_unwritten = false;
                self.near(word, out);
            }
            Event::Entry { number, frame } => {
                self.signals.is_unwritten = false;
                self.entry(number, frame, out);
            }
            Event::FarPoint { number, frame } => {
                self.signals.is_unwritten = false;
                self.far(number, frame, out);
            }
            Event::Signal { key, place } => self.interrupted(key, place, out),
            Event::Redirected => self.redirected(out),
            Event::Ended { is_placed } => self.ended(is_placed, out),
            Event::Unused | Event::Gap | Event::Start | Event::Another | Event::Pause => {}
        }
    }

    /// Leaves all that is open. Where the recording ended first, what ran behind the last event is not known;
    /// where a signal ended the thread, it is where that came.
    pub fn finish(mut self, cause: Cause, out: &mut Vec<u32>) -> Forked {
        self.cut_off(&mut *out);
        if !self.is_told() {
            return self.stack.forked;
        }
        if cause != Cause::RecordingEnd && !self.next.is_elsewhere() && !self.signals.has_ended {
            self.settle(0, true, out);
        }
        while self.stack.open.pop().is_some() {
            out.push(Symbol::exit(cause).0);
        }
        self.stack.forked
    }

    /// An entry of this number.
    fn entry(&mut self, number: u32, frame: Option<u32>, out: &mut Vec<u32>) {
        let entry =
            self.codes.module(number).and_then(|(module, n)| Some((module, n, self.codes.entry(module, n)?)));
        match entry {
            Some((module, n, (func, block))) => {
                self.entered(n, ModuleFunction { module, func }, block, frame, out)
            }
            None => self.faults.n_lost += 1,
        }
    }

    /// A point that control may come to from any depth.
    fn far(&mut self, word: u32, frame: u32, out: &mut Vec<u32>) {
        let Some((module, n)) = self.codes.module(word) else {
            self.faults.n_lost += 1;
            return;
        };
        self.next = self.next.arrived();
        let (func, block, call) = match self.codes.point(module, word) {
            Some(PointPlace::Start(func, block)) => (func, block, None),
            Some(PointPlace::Behind(func, block, call)) => (func, block, Some(call)),
            _ => {
                self.faults.n_lost += 1;
                return;
            }
        };
        let of = ModuleFunction { module, func };
        let lands = self.codes.block(of, block).is_some_and(|b| b.lands);
        let cause = if lands { Cause::Exception } else { Cause::Longjmp };
        // Its own frame starts above where the stack pointer is; the nearest one is it.
        let above = |a: &Activation| a.frame.map_or(0, |at| at.wrapping_sub(frame));
        let found = self.stack.open.nearest(of, frame);
        // One that another stack was left in is nearer.
        let last = |open: &[Activation]| open.last().filter(|a| a.function == of).map(above);
        let parked = self.stack.parked.iter().enumerate().filter_map(|(n, open)| Some((last(open)?, n)));
        let parked = parked.filter(|a| a.0 < 1 << 31).min_by_key(|a| a.0);
        let is_nearer = |parked: (u32, usize)| found.is_none_or(|found| parked.0 < found.0);
        let parked = parked.filter(|parked| is_nearer(*parked)).map(|(_, n)| n);
        match found.filter(|_| parked.is_none()) {
            Some((_, at)) => {
                // It may have come there by itself, or from a call that did not come back.
                match self.find(Observation::Point(word)) {
                    Ok(found) if found.n_open == at + 1 => {
                        self.approach(found, Observation::Point(word), out)
                    }
                    _ => self.settle(at + 1, false, out),
                }
                let n = at;
                if call.is_some() && n + 1 < self.stack.open.len() {
                    // Control may go back there.
                    self.stack.parked.truncate(MOST_STACKS);
                    self.stack.parked.push_front(self.stack.open.get(n + 1..).unwrap_or_default().to_vec());
                }
                self.leave_above(n, cause, out);
            }
            None => {
                let parked = parked.and_then(|n| self.stack.parked.remove(n));
                let forked = || self.stack.forked.get((module, n, frame));
                let forked = if parked.is_none() { forked() } else { None };
                if forked.is_some() && !self.stack.open.is_empty() {
                    // Another process goes on with the stream of a thread that is no more.
                    self.settle(0, false, out);
                    let n_left = self.stack.open.leave_from(0);
                    out.extend((0..n_left).map(|_| Symbol::exit(Cause::ThreadEnd).0));
                }
                if parked.is_some() {
                    // In the call that went to the other stack.
                    self.settle(self.stack.open.len(), false, out);
                }
                let open = parked.or(forked);
                self.faults.n_astray += u64::from(open.is_none() && !self.filter.is_cut);
                for one in open.unwrap_or_else(|| vec![Activation::at(of, block, Some(frame))]) {
                    self.enter(one, true, out);
                }
            }
        }
        match call {
            None => self.go(block, out),
            Some(call) => {
                self.returned(block, call);
                self.stack.forked.keep((module, n, frame), &mut self.stack.open);
            }
        }
        self.pass_stub(out);
    }

    fn leave_above(&mut self, n: usize, cause: Cause, out: &mut Vec<u32>) {
        for _ in n + 1..self.stack.open.len() {
            out.push(Symbol::exit(cause).0);
        }
        self.stack.open.truncate(n + 1);
    }

    /// Entry `n` was entered.
    fn entered(
        &mut self,
        n: u32,
        of: ModuleFunction,
        block: BlockId,
        frame: Option<u32>,
        out: &mut Vec<u32>,
    ) {
        let mut new = Activation::at(of, block, frame);
        let mut is_from_outside = true;
        let next = std::mem::take(&mut self.next);
        new.is_handler = next.is_handler();
        let is_apart = next != Next::Onward;
        new.is_handler |= std::mem::take(&mut self.signals.hands_on);
        let observed = Observation::Entry { module: of.module, n };
        if !is_apart && let Ok(found) = self.find(observed) {
            self.approach(found, observed, out);
            if self.stack.open.last().is_some_and(|top| self.is_at_tail(top)) {
                self.leave(out);
            }
        }
        let is_before = self.codes.block(of, block).is_some_and(|b| b.point != 0);
        if !is_apart
            && self.stack.open.last().is_some_and(|top| top.function == of && self.is_at_open_jump(top))
        {
            // It jumped there itself.
            match self.stack.open.last_mut() {
                Some(top) if is_before => (top.block, top.call, top.is_before) = (block, 0, true),
                _ => self.go(block, out),
            }
            self.pass_stub(out);
            return;
        }
        if !is_apart
            && let Some(top) = self.stack.open.last_mut().filter(|top| !top.is_before)
            && let Some(site) =
                self.codes.block(top.function, top.block).and_then(|b| b.calls.get(top.call as usize))
        {
            let comes_there = self.codes.comes_to(top.function.module, site, of.module, n);
            if let Some(awaited) = top.follows.take() {
                (new.is_awaited, is_from_outside) = (awaited, false);
            } else if !top.has_come {
                new.is_awaited = site.entry.is_some() && comes_there;
                is_from_outside = !comes_there && (site.entry.is_some() || site.import != 0);
            }
            top.has_come |= !is_from_outside;
        }
        new.is_before = is_before;
        self.enter(new, is_from_outside, out);
        if !is_before {
            self.go(block, out);
            self.pass_stub(out);
        }
    }

    /// Whether it is where it jumps to another function.
    fn is_at_tail(&self, a: &Activation) -> bool {
        let block = self.codes.block(a.function, a.block);
        let at_end = |b: &Block| a.call as usize >= b.calls.len() && matches!(b.end, End::Tail(_));
        !a.is_before && block.is_some_and(at_end)
    }

    /// Whether it is at a jump that may lead to places of its function that are not known.
    fn is_at_open_jump(&self, a: &Activation) -> bool {
        let block = self.codes.block(a.function, a.block);
        !a.is_before && block.is_some_and(|b| b.is_open && a.call as usize >= b.calls.len())
    }

    fn enter(&mut self, new: Activation, is_from_outside: bool, out: &mut Vec<u32>) {
        let symbol = Symbol::enter(self.number_of(&new));
        out.push(if is_from_outside { symbol.from_outside().0 } else { symbol.0 });
        self.stack.open.push(new);
    }

    /// The function on top goes to `block`.
    fn go(&mut self, block: BlockId, out: &mut Vec<u32>) {
        self.stack.open.last_mut().into_iter().for_each(|top| top.go(self.codes, block, out));
    }

    /// A call of the function on top has returned.
    fn returned(&mut self, block: BlockId, call: u32) {
        self.stack.open.last_mut().into_iter().for_each(|top| top.returned(block, call));
    }

    fn walk(&mut self, step: u32, border: Option<Border>, out: &mut Vec<u32>) {
        self.stack.open.last_mut().into_iter().for_each(|top| top.walk(self.codes, step, border, out));
    }

    fn pass_stub(&mut self, out: &mut Vec<u32>) {
        self.stack.open.last_mut().into_iter().for_each(|top| top.pass_stub(self.codes, out));
    }

    /// The point of this word: of the function on top, or of one below it.
    fn near(&mut self, word: u32, out: &mut Vec<u32>) {
        let is_elsewhere = self.next.is_elsewhere();
        self.next = self.next.arrived();
        let observed = Observation::Point(word);
        let found = if is_elsewhere { Err(NotFound::Nowhere) } else { self.find(observed) };
        // All that is open is left, and nobody knows for what.
        let is_left = matches!(found, Err(NotFound::RanOut)) && self.filter.is_cut;
        let found = if is_left { self.find_caller(observed, out) } else { found.ok() };
        let point = match found {
            Some(found) => {
                self.approach(found, observed, out);
                self.stack.open.last().and_then(|a| self.codes.point(a.function.module, word))
            }
            None => {
                // Something was left that nobody told of.
                let module = self.codes.module(word).map(|(module, _)| module);
                let point = module.and_then(|module| self.codes.point(module, word));
                let of = module.zip(point).map(|(module, p)| ModuleFunction { module, func: p.function() });
                let n_asked = if is_elsewhere || is_left { 0 } else { MOST_ASKED };
                let open = of.map_or(&[][..], |of| self.stack.open.of(of));
                let asked: Vec<usize> = open.iter().rev().take(n_asked).copied().collect();
                let nearest = open.last().copied().filter(|_| !is_left);
                // One that may come there from where it is, or else the nearest: it may have been another's
                // that it left.
                let leads =
                    |a: &Activation| a.region(self.codes).is_some_and(|r| self.way(a, r, observed).is_some());
                let is_led = |n: &usize| self.stack.open.get(*n).is_some_and(leads);
                let found = asked.into_iter().find(is_led).or(nearest).zip(point);
                self.faults.n_astray += u64::from(found.is_some() || !self.filter.is_cut);
                if let Some((at, _)) = found {
                    // A handler that returns elsewhere returns.
                    if !is_elsewhere {
                        self.settle(at + 1, false, out);
                    }
                    self.leave_above(at, Cause::Longjmp, out);
                    // It may have come there by itself meanwhile, where nobody knew in which call of it the
                    // handler was entered.
                    let found_again = if is_elsewhere { None } else { self.find(observed).ok() };
                    if let Some(found) = found_again.filter(|found| found.n_open == at + 1) {
                        self.approach(found, observed, out);
                    }
                    found.map(|(_, point)| point)
                } else {
                    self.taken_up(word, out)
                }
            }
        };
        match point {
            Some(PointPlace::Start(_, block) | PointPlace::Way(_, _, block)) => self.go(block, out),
            Some(PointPlace::Behind(_, block, call)) => self.returned(block, call),
            Some(PointPlace::Leaves(_, block)) => {
                let of = self.stack.open.last().map(|a| a.function);
                let to = of.and_then(|of| self.codes.block(of, block)?.leaves).and_then(|l| l.1);
                self.jump_out(to, out);
            }
            None => self.faults.n_lost += 1,
        }
        self.pass_stub(out);
    }

    /// The point of this word, of a function that is open since before the events: what was above it has
    /// returned.
    fn taken_up(&mut self, word: u32, out: &mut Vec<u32>) -> Option<PointPlace> {
        let (module, _) = self.codes.module(word)?;
        let point = self.codes.point(module, word)?;
        self.settle(0, false, out);
        let n_left = self.stack.open.leave_from(0);
        out.extend((0..n_left).map(|_| Symbol::EXIT.0));
        let block = match point {
            PointPlace::Start(_, block)
            | PointPlace::Behind(_, block, _)
            | PointPlace::Leaves(_, block)
            | PointPlace::Way(_, block, _) => block,
        };
        self.enter(Activation::at(ModuleFunction { module, func: point.function() }, block, None), true, out);
        Some(point)
    }

    /// Whether control is at `border` of the function of `a`, or was before, if that is told.
    fn fits(&self, a: &Activation, border: Border, observed: Observation) -> bool {
        let module = a.function.module;
        match (border, observed) {
            (Border::Point(n), Observation::Point(word)) => self.codes.is_point(module, n, word),
            (_, Observation::In { .. })
            | (Border::Point(_), Observation::Entry { .. })
            | (Border::End { .. }, Observation::Point(_)) => false,
            (Border::Call { block, call }, observed) => {
                let of_block = self.codes.block(a.function, block);
                let site = of_block.and_then(|b| b.calls.get(call as usize));
                let Some(site) = site.filter(|site| site.told == SiteTold::Event) else { return false };
                match (observed, site.entry) {
                    // Of one that tells itself by its entry, it is told when it was entered.
                    (Observation::Point(word), entry) => {
                        self.codes.is_point(module, site.point, word)
                            && (entry.is_none() || (a.block, a.call) == (block, call))
                    }
                    (Observation::Entry { module: of, n }, Some(_)) => {
                        self.codes.comes_to(module, site, of, n)
                    }
                    (Observation::Entry { .. }, None) => true,
                    (Observation::In { .. }, _) => false,
                }
            }
            (Border::End { block }, Observation::Entry { module: of, n }) => {
                match self.codes.block(a.function, block) {
                    Some(Block { is_open: true, .. }) => {
                        of == module
                            && self.codes.entry(module, n).is_some_and(|(func, _)| func == a.function.func)
                    }
                    Some(Block { end: End::Tail(Some(to)), .. }) => (of, n) == (module, *to),
                    _ => false,
                }
            }
        }
    }

    /// How control came to what is told: functions above return, or are left by a jump, without an event, and
    /// others are entered so. Nothing is open if all are left. Each step of it is in `steps.chain`.
    fn find(&mut self, observed: Observation) -> Result<Found, NotFound> {
        let mut below = None;
        let found = self.find_from_top(observed, &mut below);
        if let (None, Some((n, at)), Some(word)) = (found, below, self.word(observed)) {
            self.stack.open.note_dead_end(n, at, word);
        }
        found.unwrap_or(Err(NotFound::Nowhere))
    }

    /// Notes in `below` how many are open, and where the last of them is, when the first is left.
    fn find_from_top(
        &mut self,
        observed: Observation,
        below: &mut Option<(usize, BlockPosition)>,
    ) -> Option<Result<Found, NotFound>> {
        let word = self.word(observed);
        let mut found = Found { n_ends: 0, n_open: self.stack.open.len() };
        self.steps.tidy();
        self.steps.chain.clear();
        let mut a = *self.stack.open.last()?;
        // Whether it was entered on the way.
        let mut is_new = false;
        loop {
            if a.is_before {
                let of_start = self.codes.block(a.function, a.block).map_or(0, |b| b.point);
                return self.fits(&a, Border::Point(of_start), observed).then_some(Ok(found));
            }
            let step = self.step(&a, observed)?;
            self.steps.chain.push(step);
            if step.is_here {
                return Some(Ok(found));
            }
            found.n_ends += 1;
            match step.border? {
                Border::Call { block, call } => {
                    a = self.inside(a.function, block, call)?;
                    is_new = true;
                    found.n_open += 1;
                    if found.n_open > self.stack.open.len() + MOST_INSIDE {
                        return None;
                    }
                }
                Border::End { block } => {
                    let returns = match self.codes.block(a.function, block)?.end {
                        End::Return => true,
                        End::Tail(None) => false,
                        _ => return None,
                    };
                    // What is told inside would have been told before.
                    if is_new {
                        return None;
                    }
                    found.n_open -= 1;
                    let is_awaited = a.is_awaited;
                    let Some(next) = found.n_open.checked_sub(1).and_then(|n| self.stack.open.get(n)) else {
                        let is_entered = matches!(observed, Observation::Entry { .. });
                        return Some(is_entered.then_some(found).ok_or(NotFound::RanOut));
                    };
                    a = *next;
                    let block = self.codes.block(a.function, a.block)?;
                    let is_silent = block.calls.get(a.call as usize).is_some_and(|site| site.point == 0);
                    a.call += u32::from(returns && is_awaited && is_silent);
                    let at = BlockPosition { block: a.block, call: a.call };
                    // Else all that is open would be walked through again for each event that leads nowhere.
                    if word.is_some_and(|word| self.stack.open.is_dead_end(found.n_open, at, word)) {
                        return None;
                    }
                    below.get_or_insert((found.n_open, at));
                }
                Border::Point(_) => return None,
            }
        }
    }

    /// The word that tells `observed`, if that is a point or an entry.
    fn word(&self, observed: Observation) -> Option<u32> {
        match observed {
            Observation::Point(word) => Some(word),
            Observation::Entry { module, n } => {
                let number = self.codes.all.get(module)?.base.checked_add(n)?;
                Some(Head::Entry { number, has_frame: false }.word())
            }
            Observation::In { .. } => None,
        }
    }

    /// Where a function goes to what is told, or to its silent end.
    fn step(&mut self, a: &Activation, observed: Observation) -> Option<CachedStep> {
        let codes = self.codes;
        let at = BlockPosition { block: a.block, call: a.call };
        let position = codes.number(a.function, at)?;
        let word = self.word(observed);
        if let Some(step) = word.and_then(|word| self.steps.get(position, word)) {
            return Some(step);
        }
        let region = codes.region(a.function, at)?;
        let way = self.way(a, region, observed).map(|(step, border)| (true, step, border));
        let silent = || region.silent().map(|(border, step)| (false, step, Some(border)));
        let (is_here, step, border) = way.or_else(silent)?;
        let walk = |a: &mut Activation, out: &mut Vec<u32>| a.walk(codes, step, border, out);
        Some(self.steps.put(position, word, (is_here, border), *a, walk))
    }

    /// What a call comes to that what is inside tells of.
    fn inside(&self, of: ModuleFunction, block: BlockId, call: u32) -> Option<Activation> {
        let site = self.codes.block(of, block)?.calls.get(call as usize)?;
        let (func, to) = self.codes.entry(of.module, site.entry?)?;
        let of = ModuleFunction { module: of.module, func };
        let is_before = self.codes.block(of, to)?.point != 0;
        let new = Activation { is_awaited: true, is_before, ..Activation::at(of, to, None) };
        (site.told != SiteTold::Event).then_some(new)
    }

    /// The step of a region that leads to what is told, and what is there.
    fn way(&self, a: &Activation, region: &Region, observed: Observation) -> Option<(u32, Option<Border>)> {
        let Observation::In { of, block, part } = observed else {
            let (border, step) = region.border(|border| self.fits(a, border, observed))?;
            return Some((step, Some(border)));
        };
        if of == a.function {
            let is_there = || match part {
                Part::Call => self.codes.block(of, block).is_some_and(|b| (a.call as usize) < b.calls.len()),
                Part::Any | Part::Event => true,
            };
            let step = if block == a.block && is_there() { Some(0) } else { region.to_block(block) };
            // The event of the block may be still to come.
            let is_before =
                |border| matches!(border, Border::Point(n) if self.codes.leads_to(of, n) == Some(block));
            let before = || region.border(is_before).map(|(border, step)| (step, Some(border)));
            // A trap says that it is behind its instruction.
            let trap = || {
                let before = block.0.checked_sub(1).map(BlockId);
                let n = before.filter(|n| self.codes.block(of, *n).is_some_and(|b| b.end == End::Stop))?;
                Some((if n == a.block { 0 } else { region.to_block(n)? }, None))
            };
            let there = || step.map(|step| (step, None));
            return match part {
                Part::Event => before().or_else(there),
                Part::Any | Part::Call => there().or_else(before),
            }
            .or_else(trap);
        }
        // In what a call goes to that nothing tells of; the first of them, if there are several: what is told
        // of fits each.
        for (n, step) in [(a.block, 0)].into_iter().chain(region.blocks()) {
            let first = if step == 0 { a.call } else { 0 };
            let block = self.codes.block(a.function, n)?;
            for (call, site) in (0u32..).zip(&block.calls).skip(first as usize) {
                if site.told != SiteTold::Nothing {
                    break;
                }
                if self.codes.may_be_in(a.function.module, site, of, MOST_PLAIN) {
                    return Some((step, Some(Border::Call { block: n, call })));
                }
            }
        }
        None
    }

    /// Goes where what is told fits, as [`Decoder::find`] has just said.
    fn approach(&mut self, found: Found, observed: Observation, out: &mut Vec<u32>) {
        let chain = std::mem::take(&mut self.steps.chain);
        let mut border = None;
        for (n, step) in chain.iter().enumerate() {
            let Some(top) = self.stack.open.last_mut() else { break };
            self.steps.follow(step, top, out);
            if n < found.n_ends {
                let _goes = step.border.is_some_and(|border| self.pass_border(border, out));
            } else {
                border = step.border;
            }
        }
        self.steps.chain = chain;
        if let (Observation::In { of, .. }, Some(Border::Call { block, call })) = (observed, border)
            && let Some(new) = self.stack.open.last().and_then(|top| self.inside(top.function, block, call))
        {
            self.enter(new, false, out);
            self.go(new.block, out);
            // It may be in what that calls.
            let n_open = self.stack.open.len();
            if let Ok(found) = self.find(observed)
                && (new.function != of || found.n_open < n_open)
            {
                self.approach(found, observed, out);
            }
        }
    }

    /// Control goes where its region ends silently, and on from there: out of the function, or into another.
    /// Whether it does.
    fn pass_end(&mut self, out: &mut Vec<u32>) -> bool {
        // What a call of it jumped to tells that it is entered.
        if self.stack.open.last().is_some_and(|top| top.follows.is_some()) {
            return false;
        }
        let Some((border, step)) = self.stack.open.last().and_then(|top| top.region(self.codes)?.silent())
        else {
            return false;
        };
        self.walk(step, Some(border), out);
        self.pass_border(border, out)
    }

    /// Control is at the silent end of its region, and goes on.
    fn pass_border(&mut self, border: Border, out: &mut Vec<u32>) -> bool {
        match (border, self.stack.open.last()) {
            (Border::End { .. }, Some(_)) => {
                let n_open = self.stack.open.len();
                self.leave(out);
                self.stack.open.len() < n_open
            }
            (Border::Call { block, call }, Some(top)) => match self.inside(top.function, block, call) {
                Some(new) => {
                    self.stack.open.last_mut().into_iter().for_each(|top| top.has_come = true);
                    self.enter(new, false, out);
                    if !new.is_before {
                        self.go(new.block, out);
                    }
                    true
                }
                None => false,
            },
            _ => false,
        }
    }

    /// Goes where nothing else is left to it without an event; functions above the first `least` may be left.
    /// If it `is_last`, not beyond a system call.
    fn settle(&mut self, least: usize, is_last: bool, out: &mut Vec<u32>) {
        // Each step leaves one or enters one; the code of a damaged file may go round in a circle.
        for _ in 0..self.stack.open.len() + MOST_INSIDE {
            let silent = self.stack.open.last().and_then(|top| top.region(self.codes)?.silent());
            let Some((border, step)) = silent else { return };
            // In a system call, it may have ended.
            let is_over = |a: &Activation| self.codes.block(a.function, a.block).is_some_and(|b| b.may_end);
            let is_end = matches!(border, Border::End { .. });
            let may_leave = self.stack.open.len() > least;
            if is_last && let Some(step) = self.to_over(step) {
                self.walk(step, None, out);
                return;
            }
            self.walk(step, Some(border), out);
            let stays = is_end && (!may_leave || self.stack.open.last().is_some_and(is_over));
            if stays || !self.pass_end(out) {
                return;
            }
        }
    }

    /// The step to the first block on the way to another step, that of the position among them, where the
    /// process may have ended.
    fn to_over(&self, step: u32) -> Option<u32> {
        let top = self.stack.open.last()?;
        let is_over = |n: BlockId| self.codes.block(top.function, n).is_some_and(|b| b.may_end);
        let region = top.region(self.codes)?;
        if is_over(top.block) {
            return Some(0);
        }
        region.path(step).into_iter().find(|n| is_over(*n)).and_then(|n| region.to_block(n))
    }

    /// Leaves the function on top, whose block ends so.
    fn leave(&mut self, out: &mut Vec<u32>) {
        let Some(top) = self.stack.open.last() else { return };
        match self.codes.block(top.function, top.block).map(|b| &b.end) {
            Some(End::Return) => {
                let is_awaited = top.is_awaited;
                self.stack.open.pop();
                out.push(Symbol::EXIT.0);
                if let Some(below) = self.stack.open.last_mut()
                    && is_awaited
                {
                    let block = self.codes.block(below.function, below.block);
                    let site = block.and_then(|b| b.calls.get(below.call as usize));
                    if site.is_some_and(|site| site.point == 0) {
                        below.returned(below.block, below.call);
                        below.pass_stub(self.codes, out);
                    }
                }
            }
            Some(End::Tail(to)) => self.jump_out(*to, out),
            _ => {}
        }
    }

    /// The function on top is left by a jump, to an entry that is recorded or to something else.
    fn jump_out(&mut self, to: Option<u32>, out: &mut Vec<u32>) {
        let Some(left) = self.stack.open.pop() else { return };
        out.push(Symbol::exit(Cause::Tail).0);
        let stub = self.codes.block(left.function, left.block).map_or(0, |b| b.stub);
        self.codes.through(left.function.module, stub, out);
        if let Some(below) = self.stack.open.last_mut() {
            below.follows = to.map(|_| left.is_awaited);
            self.signals.hands_on = to.is_some() && left.is_handler;
            below.has_come = to.is_some();
        }
    }
}

/// How many open functions are asked whether they lead to what is told.
const MOST_ASKED: usize = 1 << 10;
/// How many stacks are kept in mind that control has left.
const MOST_STACKS: usize = 1 << 12;

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
