//! What ran between two events that both builds have, by where these are; and how much of the runs such
//! intervals make up.

use super::code::NONE;
use super::items::{Item, JOINED, Reading};
use super::log::{Gap, GapKey, Kind, Place, Side};
use super::pairs::Aligned;
use std::collections::{BTreeMap, HashMap};

/// An end of an interval: where in which function.
pub type At = (u32, Place);

/// Where intervals are, in the old and in the new build.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The functions whose activations were paired.
    pub functions: [u32; 2],
    /// Where they begin.
    pub from: [At; 2],
    /// Where they end.
    pub to: [At; 2],
    /// Whether it is what runs in rounds of a loop.
    pub is_inside: bool,
}

/// What ran in all intervals of one place.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// How often.
    pub times: f64,
    /// The share of the events that were paired in the activations that they are of, that often.
    pub confidence: f64,
    /// Instructions.
    pub insns: [f64; 2],
    /// Rounds of loops that are compared as a whole.
    pub rounds: [f64; 2],
    /// By number: how often each gap.
    pub gaps: [BTreeMap<u32, f64>; 2],
    /// By number: how often each activity that the other build has none for.
    pub alone: [BTreeMap<u32, f64>; 2],
}

/// How many events there are, and how many are paired.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Events {
    /// Calls, returns, rounds of loops that have loops in them.
    pub light: f64,
    /// Calls, returns, rounds of all loops.
    pub heavy: f64,
}

/// What a side's intervals add up to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Lengths {
    /// Instructions in intervals.
    pub all: f64,
    /// In those of at most 64.
    pub short: f64,
    /// In those of at most 1,000.
    pub medium: f64,
}

/// What was found so far.
pub struct Intervals<'a> {
    readings: &'a [Reading<'a>; 2],
    /// By side and activity: instructions of one activation with all that it called.
    pub inclusive: [Vec<f64>; 2],
    gaps: [HashMap<GapKey, u32>; 2],
    /// All of them.
    pub found: HashMap<Key, Interval>,
    /// Events that are paired.
    pub paired: [Events; 2],
    /// Of these, rounds of loops that did not go round as often in both.
    pub whole: [f64; 2],
    /// How long they are.
    pub lengths: [Lengths; 2],
}

/// A part of a side's run: which gaps, which activities.
#[derive(Default)]
struct Part {
    insns: f64,
    rounds: f64,
    light: f64,
    gaps: Vec<u32>,
    alone: Vec<u32>,
}

/// The most instructions of a short, and of a medium interval.
const SHORT: f64 = 64.0;
const MEDIUM: f64 = 1000.0;

#[expect(clippy::cast_precision_loss, reason = "counts up to 2⁵³ are exact")]
fn mean(sum: u64, times: u64) -> f64 {
    sum as f64 / times.max(1) as f64
}

impl<'a> Intervals<'a> {
    /// Of two sides, read like this.
    pub fn new(readings: &'a [Reading<'a>; 2]) -> Intervals<'a> {
        let gaps = [0, 1].map(|n: usize| {
            let all = readings[n].side.log.gaps.iter();
            (0..).zip(all).map(|(at, (key, _))| (*key, at)).collect()
        });
        Intervals {
            readings,
            inclusive: [0, 1].map(|n: usize| inclusive(readings[n].side)),
            gaps,
            found: HashMap::new(),
            paired: Default::default(),
            whole: Default::default(),
            lengths: Default::default(),
        }
    }

    /// Adds what is between the events of two activities.
    pub fn add(&mut self, aligned: &Aligned) {
        let functions = [0, 1].map(|n: usize| self.function(n, aligned.activities[n]));
        let share = paired_share(aligned);
        let mut from = functions.map(|function| (function, Place::Start));
        let mut at = [0; 2];
        let ends = aligned.items.each_ref().map(Vec::len);
        let anchors = aligned.pairs.iter().map(|&(x, y)| Some([x, y])).chain([None]);
        for anchor in anchors {
            let to = anchor.unwrap_or(ends);
            let parts = [0, 1].map(|n: usize| self.between(n, &aligned.items[n], at[n], to[n]));
            let place = |n: usize| match anchor.and_then(|_| aligned.items[n].get(to[n])) {
                Some(item) => (self.function(n, item.activity), self.readings[n].place(item)),
                None => (functions[n], Place::End),
            };
            let places = [place(0), place(1)];
            let key = Key { functions, from, to: places, is_inside: false };
            self.put(key, parts, (aligned.times, share));
            let Some(anchor) = anchor else { break };
            at = anchor.map(|n| n + 1);
            if matches!(places[0].1, Place::Rounds(_)) {
                at = self.add_rounds(aligned, anchor, (functions, places), share);
            } else {
                for events in &mut self.paired {
                    events.light += 2.0 * aligned.times;
                    events.heavy += 2.0 * aligned.times;
                }
            }
            from = places;
        }
    }

    /// Adds what ran in rounds that are paired; where the next interval begins.
    fn add_rounds(
        &mut self,
        aligned: &Aligned,
        anchor: [usize; 2],
        (functions, places): ([u32; 2], [At; 2]),
        share: f64,
    ) -> [usize; 2] {
        let ends = [0, 1].map(|n: usize| {
            let rest = aligned.items[n].get(anchor[n] + 1..).unwrap_or_default();
            anchor[n] + 1 + rest.iter().take_while(|item| item.key == JOINED).count()
        });
        let parts = [0, 1]
            .map(|n: usize| self.rounds(n, aligned.items[n].get(anchor[n]..ends[n]).unwrap_or_default()));
        let times = aligned.times;
        let is_equal = (parts[0].rounds - parts[1].rounds).abs() < 1e-9;
        for n in [0, 1] {
            self.paired[n].heavy += parts[n].rounds * times;
            self.paired[n].light += parts[n].light * times;
            if !is_equal {
                self.whole[n] += parts[n].rounds * times;
            }
        }
        let key = Key { functions, from: places, to: places, is_inside: true };
        self.put(key, parts, (times, share));
        ends
    }

    fn function(&self, n: usize, activity: u32) -> u32 {
        self.readings[n].side.log.activities.get(activity as usize).map_or(NONE, |of| of.function)
    }

    /// What runs from item `from` on, up to item `to`: what is in front of that, too, but not itself.
    fn between(&self, n: usize, items: &[Item], from: usize, to: usize) -> Part {
        let mut part = Part::default();
        for (at, item) in items.iter().enumerate().take(to.saturating_add(1)).skip(from) {
            self.add_gap(n, item, false, &mut part);
            if at < to {
                self.add_item(n, item, &mut part);
            }
        }
        part
    }

    /// What runs in rounds, and what belongs to them.
    fn rounds(&self, n: usize, items: &[Item]) -> Part {
        let mut part = Part::default();
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.add_gap(n, item, false, &mut part);
            }
            self.add_item(n, item, &mut part);
        }
        part
    }

    /// Adds what is at an item itself: rounds, or what a call that is none of both builds came to.
    fn add_item(&self, n: usize, item: &Item, part: &mut Part) {
        let log = self.readings[n].side.log;
        let Some(activity) = log.activities.get(item.activity as usize) else { return };
        match activity.tokens.get(item.token as usize).map(|token| token.kind()) {
            Some(Kind::Rounds(_)) => {
                self.add_gap(n, item, true, part);
                if let Some(sums) = activity.sums.get(item.token as usize) {
                    part.rounds += mean(sums.heavy, activity.times);
                    part.light += mean(sums.light, activity.times);
                }
            }
            Some(Kind::Call(_)) if item.is_event() => {
                let Some(called) = self.readings[n].called(item) else { return };
                part.insns += self.inclusive[n].get(called as usize).copied().unwrap_or_default();
                part.alone.push(called);
            }
            // What a transparent call came to stands behind it.
            _ => {}
        }
    }

    fn add_gap(&self, n: usize, item: &Item, is_inside: bool, part: &mut Part) {
        let reading = &self.readings[n];
        let Some(activity) = reading.side.log.activities.get(item.activity as usize) else { return };
        let Some(sums) = activity.sums.get(item.token as usize) else { return };
        part.insns += mean(if is_inside { sums.inside } else { sums.gap }, activity.times);
        let to = reading.place(item);
        let before = item.token.checked_sub(1).and_then(|n| activity.tokens.get(n as usize));
        let from = match before {
            _ if is_inside => to,
            None => Place::Start,
            Some(token) => reading.place_of(Some(*token)),
        };
        let key = GapKey { function: activity.function, from, to, is_inside };
        part.gaps.extend(self.gaps[n].get(&key));
    }

    fn put(&mut self, key: Key, parts: [Part; 2], (times, share): (f64, f64)) {
        let is_even = parts.iter().all(|part| part.rounds > 0.0)
            && (parts[0].rounds - parts[1].rounds).abs() < 1e-9
            && key.is_inside;
        let interval = self.found.entry(key).or_default();
        interval.times += times;
        interval.confidence += times * share;
        for (n, part) in parts.into_iter().enumerate() {
            interval.insns[n] += part.insns * times;
            interval.rounds[n] += part.rounds * times;
            part.gaps.into_iter().for_each(|gap| *interval.gaps[n].entry(gap).or_default() += times);
            part.alone.into_iter().for_each(|of| *interval.alone[n].entry(of).or_default() += times);
            let length = if is_even { part.insns / part.rounds } else { part.insns };
            let all = part.insns * times;
            let lengths = &mut self.lengths[n];
            lengths.all += all;
            lengths.short += if length <= SHORT { all } else { 0.0 };
            lengths.medium += if length <= MEDIUM { all } else { 0.0 };
        }
    }

    /// The gaps of an activity of a side, each as often as it is gone through.
    pub fn gaps_of(&self, n: usize, activity: u32) -> Vec<u32> {
        let mut part = Part::default();
        let n_tokens =
            self.readings[n].side.log.activities.get(activity as usize).map_or(0, |of| of.tokens.len());
        for token in 0..=super::code::count(n_tokens) {
            let item = Item { key: NONE, name: NONE, activity, token };
            self.add_gap(n, &item, false, &mut part);
            if (token as usize) < n_tokens && matches!(self.readings[n].place(&item), Place::Rounds(_)) {
                self.add_gap(n, &item, true, &mut part);
            }
        }
        part.gaps
    }

    /// Gap `at` of a side.
    pub fn gap(&self, n: usize, at: u32) -> Option<&'a Gap> {
        self.readings[n].side.log.gaps.get(at as usize).map(|(_, gap)| gap)
    }
}

/// The share of the events of two activities that are paired.
fn paired_share(aligned: &Aligned) -> f64 {
    let n = |n: usize| aligned.items[n].iter().filter(|item| item.is_event()).count();
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = aligned.pairs.len() as f64 / n(0).max(n(1)).max(1) as f64;
    if n(0).max(n(1)) == 0 { 1.0 } else { share }
}

/// By activity: instructions of one activation with all that it called.
fn inclusive(side: &Side<'_>) -> Vec<f64> {
    let mut all: Vec<f64> = Vec::with_capacity(side.log.activities.len());
    for activity in &side.log.activities {
        let own: u64 = activity.sums.iter().map(|sums| sums.gap + sums.inside).sum();
        let mut insns = mean(own, activity.times);
        for token in &activity.tokens {
            let Kind::Call(call) = token.kind() else { continue };
            let called = side.log.calls.get(call as usize);
            insns += called.and_then(|called| all.get(called.activity as usize)).copied().unwrap_or_default();
        }
        all.push(insns);
    }
    all
}

/// How many events a side has.
pub fn events(side: &Side<'_>) -> Events {
    let mut events = Events::default();
    for activity in &side.log.activities {
        if activity.function != NONE {
            let calls = 2.0 * mean(activity.times, 1);
            events.light += calls;
            events.heavy += calls;
        }
        for sums in &activity.sums {
            events.light += mean(sums.light, 1);
            events.heavy += mean(sums.heavy, 1);
        }
    }
    events
}
