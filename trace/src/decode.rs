//! From events to symbols: which functions were entered, which blocks executed, which functions left.
//!
//! The decoder walks through the code as the program did. Where control can go one way only, it goes there; where it can go several ways, or
//! something else may come first, it waits for an event. What comes unexpected is a handler of a signal, a callback, or what a
//! `longjmp` or an exception led to: for the last two, the activation is found by the stack pointer, and those above it are left.
//!
//! Invariant: whatever the events, what comes out is balanced but for what is open at the end.
#![warn(clippy::indexing_slicing)]

use crate::events::{Block, Code, ENTRY, End, FROM_ANYWHERE, HAS_FRAME, LIMIT, Point};
use crate::symbol::{Cause, Symbol};
use std::collections::HashMap;

/// The modules of a recording.
#[derive(Debug, Default)]
pub struct Codes {
    all: Vec<Code>,
    /// The number of the first function of each.
    first: Vec<u32>,
    by_key: HashMap<u32, usize>,
}

impl Codes {
    /// Of `all`, whose functions are numbered in this order.
    pub fn new(all: Vec<Code>) -> Codes {
        let mut first = Vec::with_capacity(all.len());
        let mut n = 0u32;
        for code in &all {
            first.push(n);
            n = n.saturating_add(u32::try_from(code.functions.len()).unwrap_or(u32::MAX));
        }
        let by_key = all.iter().enumerate().map(|(m, code)| (code.key, m)).collect();
        Codes { all, first, by_key }
    }

    /// All modules, each with the number of its first function.
    pub fn modules(&self) -> impl Iterator<Item = (u32, &Code)> {
        self.first.iter().copied().zip(&self.all)
    }

    fn block(&self, of: Of, block: u32) -> Option<&Block> {
        self.all.get(of.module)?.functions.get(of.func as usize)?.blocks.get(block as usize)
    }

    fn n_blocks(&self, of: Of) -> usize {
        let function = self.all.get(of.module).and_then(|code| code.functions.get(of.func as usize));
        function.map_or(0, |f| f.blocks.len())
    }

    fn point(&self, module: usize, n: u32) -> Option<Point> {
        self.all.get(module)?.points.get((n as usize).checked_sub(1)?).copied()
    }

    fn entry(&self, module: usize, n: u32) -> Option<(u32, u32)> {
        self.all.get(module)?.entries.get(n as usize).copied()
    }
}

/// A function of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Of {
    module: usize,
    func: u32,
}

/// A function that is open.
#[derive(Clone, Copy, Debug)]
struct Activation {
    of: Of,
    block: u32,
    /// The call of it that is next, or that control is in.
    call: u32,
    /// What the call has come to by a jump out of what it had come to: whether that was the call's own.
    follows: Option<bool>,
    /// Whether the call that is under way has come to something.
    has_come: bool,
    /// Whether it has gone through its stub, if it has one.
    has_gone: bool,
    /// Whether the event at the start of its block is still to come.
    is_before: bool,
    /// Whether the call below it ends when this returns.
    is_awaited: bool,
    frame: Option<u32>,
}

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
    codes: &'c Codes,
    open: Vec<Activation>,
    /// Words of an event whose others have not come yet.
    rest: Vec<u32>,
    /// What was open on other stacks, when control went to one that was left before.
    parked: Vec<Vec<Activation>>,
    /// What was open where streams may have gone on in another process: by module, point and frame.
    forked: Forked,
    /// What was wrong.
    pub faults: Faults,
}

/// What was open where streams may have gone on in another process: by module, point and stack pointer.
#[derive(Debug, Default)]
pub struct Forked(HashMap<(usize, u32, u32), Vec<Activation>>);

impl<'c> Decoder<'c> {
    /// Of a stream that has not begun.
    pub fn new(codes: &'c Codes) -> Decoder<'c> {
        Decoder {
            codes,
            open: Vec::new(),
            rest: Vec::new(),
            parked: Vec::new(),
            forked: Forked::default(),
            faults: Faults::default(),
        }
    }

    /// The same, for a stream that may begin where one went on in another process that was decoded before.
    #[must_use]
    pub fn behind(mut self, forked: Forked) -> Decoder<'c> {
        self.forked = forked;
        self
    }

    /// Appends to `out` what `words` tell.
    pub fn push(&mut self, words: &[u32], out: &mut Vec<u32>) {
        let mut words = words.iter().copied();
        loop {
            while let Some(len) = self.rest.first().map(|head| event_len(*head))
                && self.rest.len() < len
            {
                let Some(word) = words.next() else { return };
                self.rest.push(word);
            }
            if let &[head, key, ..] = self.rest.as_slice() {
                let frame = self.rest.get(2).copied();
                self.rest.clear();
                self.far(head, key, frame, out);
            }
            let Some(word) = words.next() else { return };
            match word {
                0 => {}
                _ if word & (ENTRY | FROM_ANYWHERE) != 0 => self.rest.push(word),
                _ => self.near(word, out),
            }
        }
    }

    /// Leaves all that is open.
    pub fn finish(mut self, cause: Cause, out: &mut Vec<u32>) -> Forked {
        while self.open.pop().is_some() {
            out.push(Symbol::exit(cause).0);
        }
        self.forked
    }

    /// An event of more than one word.
    fn far(&mut self, head: u32, key: u32, frame: Option<u32>, out: &mut Vec<u32>) {
        let n = head & (LIMIT - 1);
        let Some(&module) = self.codes.by_key.get(&key) else {
            self.faults.n_lost += 1;
            return;
        };
        if head & ENTRY != 0 {
            match self.codes.entry(module, n) {
                Some((func, block)) => self.entered(n, Of { module, func }, block, frame, out),
                None => self.faults.n_lost += 1,
            }
            return;
        }
        let (func, block, call) = match self.codes.point(module, n) {
            Some(Point::Start(func, block)) => (func, block, None),
            Some(Point::Behind(func, block, call)) => (func, block, Some(call)),
            _ => {
                self.faults.n_lost += 1;
                return;
            }
        };
        let of = Of { module, func };
        let lands = self.codes.block(of, block).is_some_and(|b| b.lands);
        let cause = if lands { Cause::Exception } else { Cause::Longjmp };
        // Its own frame starts above where the stack pointer is; the nearest one is it.
        let above = |a: &Activation| match (a.frame, frame) {
            (Some(at), Some(frame)) => at.wrapping_sub(frame),
            _ => 0,
        };
        let open = self.open.iter().enumerate().rev().filter(|(_, a)| a.of == of);
        let found = open.map(|(n, a)| (above(a), n)).filter(|a| a.0 < 1 << 31).min_by_key(|a| a.0);
        match found {
            Some((_, n)) => {
                if call.is_some() && n + 1 < self.open.len() {
                    // Control may go back there.
                    self.parked.truncate(MOST_STACKS);
                    self.parked.insert(0, self.open.get(n + 1..).unwrap_or_default().to_vec());
                }
                self.leave_above(n, cause, out);
            }
            None => {
                let is_it = |a: &Activation| a.of == of && above(a) < 1 << 31;
                let parked = self.parked.iter().position(|open| open.last().is_some_and(is_it));
                let open = parked
                    .map(|n| self.parked.remove(n))
                    .or_else(|| frame.and_then(|frame| self.forked.0.get(&(module, n, frame)).cloned()));
                self.faults.n_astray += u64::from(open.is_none());
                for one in open.unwrap_or_else(|| vec![Activation::at(of, block, frame)]) {
                    self.enter(one, true, out);
                }
            }
        }
        match call {
            None => self.go(block, out),
            Some(call) => {
                self.returned(block, call);
                if let Some(frame) = frame {
                    self.forked.0.insert((module, n, frame), self.open.clone());
                }
            }
        }
        self.run(out);
    }

    fn leave_above(&mut self, n: usize, cause: Cause, out: &mut Vec<u32>) {
        for _ in n + 1..self.open.len() {
            out.push(Symbol::exit(cause).0);
        }
        self.open.truncate(n + 1);
    }

    /// Entry `n` was entered.
    fn entered(&mut self, n: u32, of: Of, block: u32, frame: Option<u32>, out: &mut Vec<u32>) {
        let mut new = Activation::at(of, block, frame);
        let mut is_from_outside = true;
        if let Some(top) = self.open.last_mut().filter(|top| !top.is_before)
            && let Some(site) =
                self.codes.block(top.of, top.block).and_then(|b| b.calls.get(top.call as usize))
        {
            let is_own = top.of.module == of.module && site.entry == Some(n);
            if let Some(awaited) = top.follows.take() {
                (new.is_awaited, is_from_outside) = (awaited, false);
            } else if !top.has_come {
                new.is_awaited = is_own;
                let code = self.codes.all.get(top.of.module);
                let import = code.and_then(|c| c.imports.get((site.import as usize).checked_sub(1)?));
                let name = self.codes.all.get(of.module).and_then(|c| c.functions.get(of.func as usize));
                is_from_outside = match (site.entry, import) {
                    (Some(_), _) => !is_own,
                    (None, Some(import)) => name.is_none_or(|f| f.name != *import),
                    (None, None) => false,
                };
            }
            top.has_come |= !is_from_outside;
        }
        new.is_before = self.codes.block(of, block).is_some_and(|b| b.point != 0);
        let is_before = new.is_before;
        self.enter(new, is_from_outside, out);
        if !is_before {
            self.go(block, out);
            self.run(out);
        }
    }

    fn enter(&mut self, new: Activation, is_from_outside: bool, out: &mut Vec<u32>) {
        let first = self.codes.first.get(new.of.module).copied().unwrap_or_default();
        let symbol = Symbol::enter(first + new.of.func);
        out.push(if is_from_outside { symbol.from_outside().0 } else { symbol.0 });
        self.open.push(new);
    }

    /// The function on top goes to `block`.
    fn go(&mut self, block: u32, out: &mut Vec<u32>) {
        if let Some(top) = self.open.last_mut() {
            out.push(Symbol::block(block).0);
            (top.block, top.call) = (block, 0);
            (top.follows, top.has_come, top.has_gone, top.is_before) = (None, false, false, false);
        }
    }

    /// A call of the function on top has returned.
    fn returned(&mut self, block: u32, call: u32) {
        if let Some(top) = self.open.last_mut() {
            (top.block, top.call, top.is_before) = (block, call.saturating_add(1), false);
            (top.follows, top.has_come, top.has_gone) = (None, false, false);
        }
    }

    /// Point `n` of the function on top, or of one below it.
    fn near(&mut self, n: u32, out: &mut Vec<u32>) {
        for is_first in [true, false] {
            // Where it fits where control is, else where the function fits.
            let fits = |a: &Activation| {
                let point = self.codes.point(a.of.module, n)?;
                let block = self.codes.block(a.of, a.block)?;
                let at_end = a.call as usize >= block.calls.len();
                let fits = point.function() == a.of.func
                    && (!is_first
                        || match point {
                            Point::Start(_, to) if a.is_before => to == a.block,
                            Point::Start(_, to) => {
                                at_end && matches!(&block.end, End::To(all) if all.contains(&to))
                            }
                            Point::Behind(_, b, call) => b == a.block && call == a.call,
                            Point::Leaves(_, b) => b == a.block && at_end,
                        });
                fits.then_some(point)
            };
            let mut all = self.open.iter().enumerate().rev();
            let found = match is_first {
                true => all.next().and_then(|(n, a)| Some((n, fits(a)?))),
                false => all.find_map(|(n, a)| Some((n, fits(a)?))),
            };
            let Some((at, point)) = found else { continue };
            if !is_first {
                self.faults.n_astray += 1;
                self.leave_above(at, Cause::Longjmp, out);
            }
            match point {
                Point::Start(_, block) => self.go(block, out),
                Point::Behind(_, block, call) => self.returned(block, call),
                Point::Leaves(_, block) => {
                    let of = self.open.last().map(|a| a.of);
                    let to = of.and_then(|of| self.codes.block(of, block)?.leaves).and_then(|l| l.1);
                    self.jump_out(to, out);
                }
            }
            self.run(out);
            return;
        }
        self.faults.n_lost += 1;
    }

    /// Control goes through a stub.
    fn through(&self, module: usize, stub: u32, out: &mut Vec<u32>) {
        if let (Some(n), Some(first)) = (stub.checked_sub(1), self.codes.first.get(module)) {
            let tail = Symbol::exit(Cause::Tail);
            out.extend([Symbol::enter(first.saturating_add(n)).0, Symbol::block(0).0, tail.0]);
        }
    }

    /// The function on top is left by a jump, to an entry that is recorded or to something else.
    fn jump_out(&mut self, to: Option<u32>, out: &mut Vec<u32>) {
        let Some(left) = self.open.pop() else { return };
        out.push(Symbol::exit(Cause::Tail).0);
        let stub = self.codes.block(left.of, left.block).map_or(0, |b| b.stub);
        self.through(left.of.module, stub, out);
        if let Some(below) = self.open.last_mut() {
            below.follows = to.map(|_| left.is_awaited);
            below.has_come = to.is_some();
        }
    }

    /// Goes on as far as there is one way only.
    fn run(&mut self, out: &mut Vec<u32>) {
        // A circle without events is none of a program's.
        let mut n_left = self.open.last().map_or(0, |a| self.codes.n_blocks(a.of)).min(LONGEST_WAY) + 1;
        while n_left > 0
            && let Some(top) = self.open.last()
            && let Some(block) = self.codes.block(top.of, top.block)
            && !top.is_before
        {
            if let Some(site) = block.calls.get(top.call as usize) {
                if !top.has_gone {
                    self.through(top.of.module, site.stub, out);
                }
                self.open.last_mut().into_iter().for_each(|top| top.has_gone = true);
                return;
            }
            match &block.end {
                End::Return => {
                    let is_awaited = top.is_awaited;
                    self.open.pop();
                    n_left = self.open.last().map_or(0, |a| self.codes.n_blocks(a.of)).min(LONGEST_WAY) + 1;
                    out.push(Symbol::EXIT.0);
                    if let Some(below) = self.open.last_mut()
                        && is_awaited
                    {
                        let block = self.codes.block(below.of, below.block);
                        let site = block.and_then(|b| b.calls.get(below.call as usize));
                        if site.is_some_and(|site| site.point == 0) {
                            below.call += 1;
                            (below.follows, below.has_come, below.has_gone) = (None, false, false);
                        }
                    }
                }
                End::Tail(to) => self.jump_out(*to, out),
                End::To(all) => {
                    if !top.has_gone && block.leaves.is_none() {
                        self.through(top.of.module, block.stub, out);
                        self.open.last_mut().into_iter().for_each(|top| top.has_gone = true);
                    }
                    let &[next] = all.as_slice() else { return };
                    let of = self.open.last().map(|top| top.of);
                    let has_point = of.and_then(|of| self.codes.block(of, next)).is_none_or(|b| b.point != 0);
                    if has_point || block.leaves.is_some() {
                        return;
                    }
                    self.go(next, out);
                    n_left -= 1;
                }
                End::Stop => return,
            }
        }
    }
}

impl Activation {
    fn at(of: Of, block: u32, frame: Option<u32>) -> Activation {
        Activation {
            of,
            block,
            call: 0,
            follows: None,
            has_come: false,
            has_gone: false,
            is_before: false,
            is_awaited: false,
            frame,
        }
    }
}

/// How many blocks control goes through at most without an event.
const LONGEST_WAY: usize = 1 << 16;

/// How many stacks are kept in mind that control has left.
const MOST_STACKS: usize = 1 << 12;

/// How many words an event has that starts with `head`, one of several.
fn event_len(head: u32) -> usize {
    if head & ENTRY != 0 && head & HAS_FRAME == 0 { 2 } else { 3 }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
