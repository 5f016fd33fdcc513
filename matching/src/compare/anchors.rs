//! Points of two runs that are the same, one by one, in the order in which they came.
//!
//! Activities are aligned once, however often they come. So each pair of them has its anchors as distances in
//! the order of events, and the whole of them is unrolled from the threads down.

use super::code::NONE;
use super::items::{Item, Reading};
use super::log::{Kind, Place};
use super::pairs::Aligned;
use program::Va;
use std::collections::HashMap;
use trace::ThreadId;

/// A point in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// The thread.
    pub thread: ThreadId,
    /// The number of the symbol in the trace of that: where what was called is entered, or a loop first.
    pub index: u64,
    /// The call, or the loop's header; where what was called begins, if nobody knows from where.
    pub at: Va,
}

/// A point of both runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Anchor {
    /// In the old and the new one.
    pub points: [Point; 2],
    /// How sure it is that they are the same, from 0 to 1.
    pub confidence: f64,
}

/// A pair of events of two activities.
struct Relative {
    /// How many events are before each in its activity.
    before: [u64; 2],
    /// Where each is.
    at: [Va; 2],
    /// The activities that were called.
    called: Option<[u32; 2]>,
    confidence: f64,
}

/// Pairs, by the activities that they are of.
pub struct Anchors<'a> {
    readings: &'a [Reading<'a>; 2],
    order: [Order<'a>; 2],
    pairs: HashMap<[u32; 2], Vec<Relative>>,
}

impl<'a> Anchors<'a> {
    /// Of two sides.
    pub fn new(readings: &'a [Reading<'a>; 2]) -> Anchors<'a> {
        Anchors { readings, order: readings.each_ref().map(Order::new), pairs: HashMap::new() }
    }

    /// Adds the pairs of two activities.
    pub fn add(&mut self, aligned: &Aligned) {
        let before = [0, 1].map(|n: usize| self.order[n].before(aligned.activities[n], &aligned.items[n]));
        let sure = sureness(self.readings, aligned);
        let relative = |(&(x, y), confidence): (&(usize, usize), f64)| {
            let items = [aligned.items[0].get(x)?, aligned.items[1].get(y)?];
            let called = [0, 1].map(|n: usize| self.readings[n].called(items[n]));
            Some(Relative {
                before: [*before[0].get(x)?, *before[1].get(y)?],
                at: [0, 1].map(|n: usize| at(&self.readings[n], items[n])),
                called: called[0].zip(called[1]).map(|(a, b)| [a, b]),
                confidence,
            })
        };
        let all = aligned.pairs.iter().zip(sure).filter_map(relative).collect();
        self.pairs.insert(aligned.activities, all);
    }

    /// All anchors below `roots`, the activities of each pair of threads.
    pub fn all(&self, roots: &[[u32; 2]]) -> Vec<Anchor> {
        let mut found = Vec::new();
        for root in roots {
            let thread = |n: usize| {
                let log = self.readings[n].side.log;
                let at = log.threads.iter().position(|(_, of)| *of == root[n])?;
                Some((log.threads.get(at)?.0, log.positions.get(at)?.as_slice()))
            };
            let [Some(old), Some(new)] = [thread(0), thread(1)] else { continue };
            // Pairs that are gone through, one in another: the next one, what is before, how sure they are.
            let mut open = vec![(*root, 0usize, [0u64; 2], 1.0f64)];
            while let Some((activities, next, before, sure)) = open.last_mut() {
                let Some(pair) = self.pairs.get(&*activities).and_then(|all| all.get(*next)) else {
                    open.pop();
                    continue;
                };
                *next += 1;
                let (before, confidence) =
                    ([0, 1].map(|n: usize| before[n] + pair.before[n]), sure.min(pair.confidence));
                let point = |n: usize, (thread, positions): (ThreadId, &[u64])| {
                    let index = usize::try_from(before[n]).ok().and_then(|at| positions.get(at))?;
                    Some(Point { thread, index: *index, at: pair.at[n] })
                };
                if let [Some(a), Some(b)] = [point(0, old), point(1, new)] {
                    found.push(Anchor { points: [a, b], confidence });
                }
                if let Some(called) = pair.called {
                    open.push((called, 0, before.map(|n| n + 1), confidence));
                }
            }
        }
        found
    }
}

/// The order of all events of a side, those of what was called behind the call.
pub struct Order<'a> {
    reading: &'a Reading<'a>,
    /// By activity: how many events it is, with all that it called.
    sizes: Vec<u64>,
}

impl<'a> Order<'a> {
    /// Of a side.
    pub fn new(reading: &'a Reading<'a>) -> Order<'a> {
        Order { reading, sizes: sizes(reading) }
    }

    /// By item of `activity`: how many events are before it, of all that came, whether they are items or not.
    pub fn before(&self, activity: u32, items: &[Item]) -> Vec<u64> {
        let log = self.reading.side.log;
        let size = |activity: u32, token: u32| {
            let of = log.activities.get(activity as usize).and_then(|of| of.tokens.get(token as usize));
            match of.map(|token| token.kind()) {
                Some(Kind::Call(call)) => {
                    let called =
                        log.calls.get(call as usize).and_then(|of| self.sizes.get(of.activity as usize));
                    1 + called.copied().unwrap_or_default()
                }
                _ => 1,
            }
        };
        // What is gone through, one in another: its next token, and how many events are before that.
        let mut open = vec![(activity, 0u32, 0u64)];
        let mut found = Vec::with_capacity(items.len());
        for item in items {
            while open.len() > 1 && open.last().is_some_and(|top| top.0 != item.activity) {
                open.pop();
            }
            let Some(top) = open.last_mut() else { break };
            while top.1 < item.token {
                top.2 += size(item.activity, top.1);
                top.1 += 1;
            }
            let before = top.2;
            found.push(before);
            let n_tokens = log.activities.get(item.activity as usize).map_or(0, |of| of.tokens.len());
            if item.token as usize >= n_tokens {
                open.pop();
            } else if let Some(called) = self.reading.called(item).filter(|_| !item.is_event()) {
                open.push((called, 0, before + 1));
            }
        }
        found
    }
}

/// By activity: how many events it is, with all that it called.
fn sizes(reading: &Reading<'_>) -> Vec<u64> {
    let log = reading.side.log;
    let mut sizes: Vec<u64> = Vec::with_capacity(log.activities.len());
    for activity in &log.activities {
        let inner = activity.tokens.iter().map(|token| match token.kind() {
            Kind::Call(call) => {
                let called = log.calls.get(call as usize).and_then(|of| sizes.get(of.activity as usize));
                1 + called.copied().unwrap_or_default()
            }
            Kind::Rounds(_) => 1,
        });
        let size = inner.sum();
        sizes.push(size);
    }
    sizes
}

/// How sure the pairs of two activities are: as sure as both have as many events with that key; more, if
/// what was called is the same all the way down.
fn sureness(readings: &[Reading<'_>; 2], aligned: &Aligned) -> Vec<f64> {
    let mut times: HashMap<u32, [f64; 2]> = HashMap::new();
    for n in [0, 1] {
        for item in aligned.items[n].iter().filter(|item| item.is_event()) {
            times.entry(item.key).or_default()[n] += 1.0;
        }
    }
    // No surer than that the functions are one.
    let new = readings[1].side.log.activities.get(aligned.activities[1] as usize);
    let most = new.map_or(1.0, |of| readings[1].keys.how_function(of.function).1);
    let sure = |&(x, y): &(usize, usize)| {
        let (Some(a), Some(b)) = (aligned.items[0].get(x), aligned.items[1].get(y)) else { return 0.0 };
        let [old, new] = times.get(&a.key).copied().unwrap_or_default();
        let share = if a.key == b.key { old.min(new) / old.max(new).max(1.0) } else { 0.5 };
        let is_same = readings[0].print(a.name, a) == readings[1].print(b.name, b);
        most.min(if is_same { share.sqrt() } else { share })
    };
    aligned.pairs.iter().map(sure).collect()
}

/// Where an event is.
fn at(reading: &Reading<'_>, item: &Item) -> Va {
    let code = reading.side.code;
    let found = match reading.place(item) {
        Place::Site(site) => code.sites.get(site as usize).map(|site| site.at),
        Place::Called(function) => code.functions.get(function as usize).map(|of| of.entry),
        Place::Rounds(of) => code.loops.get(of as usize).map(|of| of.header),
        Place::Start | Place::End => None,
    };
    found.unwrap_or(Va(u64::from(NONE)))
}
