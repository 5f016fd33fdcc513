//! What ran between two events that both builds have, by where these are; and how much of the runs such
//! intervals make up.

mod alike;

use super::code::NONE;
use super::items::{Item, JOINED, Reading};
use super::keys::Keys;
use super::log::{Counted, Gap, GapKey, Kind, Place, Side};
use super::nests::{self, Nest, Piece};
use super::pairs::Aligned;
use alike::{AllAlike, Gaps, Ran, Sum};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

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

/// A gap, or what ran in it in some loops.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GapPart {
    /// Its number.
    pub gap: u32,
    /// The key of the loops; [`NONE`] of none of them. Without one, all of the gap.
    pub inside: Option<u32>,
}

/// What ran in all intervals of one place.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// How many: of rounds, each is one, if they are compared one by one.
    pub times: f64,
    /// In how many activations, or stretches of such, they were found.
    pub weight: f64,
    /// The share of the events that were paired in these, that often.
    pub confidence: f64,
    /// Instructions.
    pub insns: [f64; 2],
    /// Rounds of loops that are compared as a whole.
    pub rounds: [f64; 2],
    /// How often each gap.
    pub gaps: [BTreeMap<GapPart, f64>; 2],
    /// By number: how often each activity that the other build has none for.
    pub alone: [BTreeMap<u32, f64>; 2],
}

impl Interval {
    /// How sure it is that both builds did the same there, from 0 to 1.
    pub fn sureness(&self) -> f64 {
        if self.weight > 0.0 { self.confidence / self.weight } else { 0.0 }
    }
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
    /// Where the piece before has ended.
    from: [At; 2],
    /// By side and activity: instructions of one activation with all that it called.
    pub inclusive: [Vec<f64>; 2],
    gaps: [FxHashMap<GapKey, u32>; 2],
    /// By side, gap, and the key of the loop around all of it.
    nests: [FxHashMap<(u32, u32), Nest>; 2],
    /// By what ran in them: nests, taken apart.
    apart: FxHashMap<u64, Rc<Apart>>,
    /// What ran between two events, in the making.
    parts: [Part; 2],
    /// Those that are not in `found` yet.
    alike: AllAlike,
    /// All of them, once they are [finished](Intervals::finish).
    pub found: FxHashMap<Key, Interval>,
    /// Events that are paired.
    pub paired: [Events; 2],
    /// Of these, rounds of loops that are compared as a whole.
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
    /// Each with how often.
    gaps: Vec<(GapPart, f64)>,
    /// The same.
    alone: Vec<(u32, f64)>,
}

impl Part {
    fn clear(&mut self) {
        (self.insns, self.rounds, self.light) = (0.0, 0.0, 0.0);
        self.gaps.clear();
        self.alone.clear();
    }

    /// What is there several times is there once, that often.
    fn merge(&mut self) {
        merge(&mut self.gaps);
        merge(&mut self.alone);
    }
}

fn merge<K: Copy + Ord>(all: &mut Vec<(K, f64)>) {
    if all.len() > 1 {
        all.sort_unstable_by_key(|of| of.0);
        all.dedup_by(|more, one| {
            let is_one = more.0 == one.0;
            one.1 += if is_one { more.1 } else { 0.0 };
            is_one
        });
    }
}

fn ran(parts: &[Part; 2]) -> Ran<'_> {
    let [old, new] = parts;
    Ran {
        insns: [old.insns, new.insns],
        rounds: [old.rounds, new.rounds],
        gaps: [&old.gaps, &new.gaps],
        alone: [&old.alone, &new.alone],
    }
}

/// A nest of both sides, taken apart.
struct Apart {
    /// What ran in it, by which it is known.
    gaps: Gaps,
    /// The keys of the loops around all of it.
    roots: [u32; 2],
    /// Its pieces, with what of the gaps ran in each.
    pieces: Vec<(Piece, Gaps)>,
    /// Instructions in all of them.
    insns: [f64; 2],
    /// Rounds in those that are compared one by one.
    by_themselves: [f64; 2],
}

/// The most instructions of a short, and of a medium interval.
const SHORT: f64 = 64.0;
const MEDIUM: f64 = 1000.0;
/// So many nests that were taken apart are kept.
const MOST_APART: usize = 1 << 18;

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
            from: [(NONE, Place::Start); 2],
            inclusive: [0, 1].map(|n: usize| inclusive(readings[n].side)),
            gaps,
            nests: Default::default(),
            apart: FxHashMap::default(),
            parts: Default::default(),
            alike: AllAlike::default(),
            found: FxHashMap::default(),
            paired: Default::default(),
            whole: Default::default(),
            lengths: Default::default(),
        }
    }

    /// Adds what is between the events of two activities.
    pub fn add(&mut self, aligned: &Aligned) {
        let of_both = [0, 1].map(|n: usize| self.function(n, aligned.activities[n]));
        // No surer than that the functions are one.
        let share = paired_share(aligned).min(self.keys().how_function(of_both[1]).1);
        let start = of_both.map(|function| (function, Place::Start));
        let mut from = if aligned.is_first { start } else { self.from };
        let mut at = [0; 2];
        let ends = aligned.items.each_ref().map(Vec::len);
        let anchors = aligned.pairs.iter().map(|&(x, y)| Some([x, y])).chain([None]);
        for anchor in anchors {
            self.from = from;
            if anchor.is_none() && !aligned.is_last {
                break;
            }
            let to = anchor.unwrap_or(ends);
            let mut parts = std::mem::take(&mut self.parts);
            (0..2).for_each(|n| self.between(n, aligned, at[n], to[n], &mut parts[n]));
            let place = |n: usize| match anchor.and_then(|_| aligned.items[n].get(to[n])) {
                Some(item) => (self.function(n, item.activity), self.readings[n].place(item)),
                None => (of_both[n], Place::End),
            };
            let places = [place(0), place(1)];
            // A flat log is of all functions: an interval is of the one that it ends in.
            let functions = if aligned.is_flat { places.map(|at| at.0) } else { of_both };
            let key = Key { functions, from, to: places, is_inside: false };
            self.put(key, &ran(&parts), 1.0, (aligned.times, share));
            self.parts = parts;
            let Some(anchor) = anchor else { break };
            at = anchor.map(|n| n + 1);
            if matches!(places[0].1, Place::Rounds(_)) {
                at = self.add_rounds(aligned, anchor, (functions, places), share);
                from = places;
            } else {
                // Whoever is called returns.
                let n_events = if aligned.is_flat { 1.0 } else { 2.0 };
                for events in &mut self.paired {
                    events.light += n_events * aligned.times;
                    events.heavy += n_events * aligned.times;
                }
                from = if aligned.is_flat { self.behind(aligned, at) } else { places };
            }
        }
    }

    /// Where a flat log goes on at these items: where what was called is entered, or behind the call.
    fn behind(&self, aligned: &Aligned, at: [usize; 2]) -> [At; 2] {
        [0, 1].map(|n: usize| match aligned.items[n].get(at[n]) {
            Some(item) => (self.function(n, item.activity), self.place_before(n, item)),
            None => (NONE, Place::End),
        })
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
        let mut parts = std::mem::take(&mut self.parts);
        for n in [0, 1] {
            self.rounds(n, aligned, anchor[n]..ends[n], &mut parts[n]);
        }
        let times = aligned.times;
        let apart = self.apart(&parts, [0, 1].map(|n: usize| self.key_at(n, places[n].1)));
        let rest = [0, 1].map(|n: usize| (parts[n].rounds - apart.by_themselves[n]).max(0.0));
        for n in [0, 1] {
            self.paired[n].heavy += parts[n].rounds * times;
            self.paired[n].light += parts[n].light * times;
            self.whole[n] += rest[n] * times;
        }
        // Gaps say what is usual; the activities themselves how much it is.
        let scale =
            [0, 1].map(|n: usize| if apart.insns[n] > 0.0 { parts[n].insns / apart.insns[n] } else { 0.0 });
        self.parts = parts;
        for (piece, gaps) in &apart.pieces {
            let at = |n: usize| match piece.loops[n] {
                NONE => places[n],
                of => (
                    self.readings[n].side.code.loops.get(of as usize).map_or(NONE, |of| of.function),
                    Place::Rounds(of),
                ),
            };
            let at = [at(0), at(1)];
            let key = Key { functions, from: at, to: at, is_inside: true };
            let ran = Ran {
                insns: [0, 1].map(|n: usize| piece.insns[n] * scale[n]),
                rounds: if piece.n == 0.0 { rest } else { piece.rounds },
                gaps: [&gaps[0], &gaps[1]],
                alone: [&[], &[]],
            };
            self.put(key, &ran, piece.n, (times, share));
        }
        ends
    }

    /// What both sides did in rounds of the loops with the keys `roots`, taken apart.
    fn apart(&mut self, parts: &[Part; 2], roots: [u32; 2]) -> Rc<Apart> {
        let print = ran(parts).print(&roots);
        let is_it = |one: &Apart| one.roots == roots && (0..2).all(|n| *one.gaps[n] == *parts[n].gaps);
        if let Some(known) = self.apart.get(&print).filter(|one| is_it(one)) {
            return Rc::clone(known);
        }
        let nests = [0, 1].map(|n: usize| self.nest(n, &parts[n], roots[n]));
        let pieces = nests::apart(nests.each_ref());
        let sum = |of: &dyn Fn(&Piece) -> f64| pieces.iter().map(of).sum::<f64>();
        let of_itself = |piece: &Piece, n: usize| if piece.n > 0.0 { piece.rounds[n] } else { 0.0 };
        let (insns, by_themselves) = (
            [0, 1].map(|n: usize| sum(&|piece| piece.insns[n])),
            [0, 1].map(|n: usize| sum(&|piece| of_itself(piece, n))),
        );
        let gaps = |piece: &Piece, n: usize| {
            let keys = piece.keys.iter().copied();
            // What is in no loop is in the one around all of it.
            let keys = keys.flat_map(|key| [Some(key), (key == roots[n]).then_some(NONE)]).flatten();
            let keys: Vec<u32> = keys.collect();
            let of = |(of, n): &(GapPart, f64)| {
                let parts = keys.iter().map(|key| (GapPart { inside: Some(*key), ..*of }, *n));
                parts.collect::<Vec<_>>()
            };
            parts[n].gaps.iter().flat_map(of).collect::<Box<[_]>>()
        };
        let pieces = pieces.into_iter().map(|piece| {
            let gaps = [gaps(&piece, 0), gaps(&piece, 1)];
            (piece, gaps)
        });
        let pieces = pieces.collect();
        let gaps = [0, 1].map(|n: usize| parts[n].gaps.as_slice().into());
        let made = Rc::new(Apart { gaps, roots, pieces, insns, by_themselves });
        if self.apart.len() < MOST_APART {
            self.apart.insert(print, Rc::clone(&made));
        }
        made
    }

    /// The key of a loop.
    fn key_at(&self, n: usize, place: Place) -> u32 {
        let Place::Rounds(of) = place else { return NONE };
        self.readings[n].keys.loops[n].get(of as usize).copied().unwrap_or(NONE)
    }

    /// The loops that ran in a part of a side in which rounds of `root` are.
    fn nest(&mut self, n: usize, part: &Part, root: u32) -> Nest {
        let mut all = Nest::default();
        for (part, times) in &part.gaps {
            let Some(gap) = self.gap(n, part.gap) else { continue };
            let reading = &self.readings[n];
            let nest = self.nests[n].entry((part.gap, root));
            all.add(nest.or_insert_with(|| Nest::of(reading, gap, root)), *times);
        }
        all
    }

    fn function(&self, n: usize, activity: u32) -> u32 {
        self.readings[n].side.log.activities.get(activity as usize).map_or(NONE, |of| of.function)
    }

    /// What runs from item `from` on, up to item `to`: what is in front of that, too, but not itself.
    fn between(&self, n: usize, aligned: &Aligned, from: usize, to: usize, part: &mut Part) {
        part.clear();
        for (at, item) in aligned.items[n].iter().enumerate().take(to.saturating_add(1)).skip(from) {
            self.add_gap(n, item, false, part);
            if at < to {
                self.add_item(n, item, aligned.is_flat, part);
            }
        }
        part.merge();
    }

    /// What runs in rounds, and what belongs to them.
    fn rounds(&self, n: usize, aligned: &Aligned, range: Range<usize>, part: &mut Part) {
        part.clear();
        for (at, item) in aligned.items[n].get(range).unwrap_or_default().iter().enumerate() {
            if at > 0 {
                self.add_gap(n, item, false, part);
            }
            self.add_item(n, item, aligned.is_flat, part);
        }
        part.merge();
    }

    /// Adds what is at an item itself: rounds, or what a call that is none of both builds came to.
    fn add_item(&self, n: usize, item: &Item, is_flat: bool, part: &mut Part) {
        let log = self.readings[n].side.log;
        let Some(activity) = log.activities.get(item.activity as usize) else { return };
        match activity.tokens.get(item.token as usize).map(|token| token.kind()) {
            Some(Kind::Rounds(_)) => {
                self.add_gap(n, item, true, part);
                if let Some(sums) = log.sums(activity, item.token as usize) {
                    part.rounds += mean(sums.heavy, activity.times);
                    part.light += mean(sums.light, activity.times);
                }
            }
            Some(Kind::Call(_)) if item.is_event() && !is_flat => {
                let Some(called) = self.readings[n].called(item) else { return };
                part.insns += self.inclusive[n].get(called as usize).copied().unwrap_or_default();
                part.alone.push((called, 1.0));
            }
            // What a transparent call came to stands behind it; in a flat log, what any did.
            _ => {}
        }
    }

    fn add_gap(&self, n: usize, item: &Item, is_inside: bool, part: &mut Part) {
        let reading = &self.readings[n];
        let Some(activity) = reading.side.log.activities.get(item.activity as usize) else { return };
        let Some(sums) = reading.side.log.sums(activity, item.token as usize) else { return };
        part.insns += mean(if is_inside { sums.inside } else { sums.gap }, activity.times);
        let to = reading.place(item);
        let from = if is_inside { to } else { self.place_before(n, item) };
        let key = GapKey { function: activity.function, from, to, is_inside };
        let gap = self.gaps[n].get(&key);
        part.gaps.extend(gap.map(|gap| (GapPart { gap: *gap, inside: None }, 1.0)));
    }

    /// Where what runs in front of an item begins.
    fn place_before(&self, n: usize, item: &Item) -> Place {
        let reading = &self.readings[n];
        let activity = reading.side.log.activities.get(item.activity as usize);
        let before = item.token.checked_sub(1).and_then(|n| activity?.tokens.get(n as usize));
        before.map_or(Place::Start, |token| reading.place_of(Some(*token)))
    }

    /// Adds what ran `times` in `n` intervals at a time; in one, if that is 0.
    fn put(&mut self, key: Key, ran: &Ran<'_>, n_at_a_time: f64, (times, share): (f64, f64)) {
        let sum = Sum {
            times: times * if n_at_a_time > 0.0 { n_at_a_time } else { 1.0 },
            weight: times,
            confidence: times * share,
            insns: ran.insns.map(|insns| insns * times),
            rounds: ran.rounds.map(|rounds| rounds * times),
        };
        self.alike.put(key, ran, &sum, times, &mut self.found);
        for n in [0, 1] {
            let length = if n_at_a_time > 0.0 { ran.insns[n] / n_at_a_time } else { ran.insns[n] };
            let (all, lengths) = (sum.insns[n], &mut self.lengths[n]);
            lengths.all += all;
            lengths.short += if length <= SHORT { all } else { 0.0 };
            lengths.medium += if length <= MEDIUM { all } else { 0.0 };
        }
    }

    /// Has all that was added in `found`.
    pub fn finish(&mut self) {
        self.alike.finish(&mut self.found);
    }

    /// The gaps of an activity of a side, each as often as it is gone through.
    pub fn gaps_of(&self, n: usize, activity: u32) -> Vec<(GapPart, f64)> {
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
        part.merge();
        part.gaps
    }

    /// What is what.
    pub fn keys(&self) -> &'a Keys {
        self.readings[0].keys
    }

    /// All of them, those with most instructions first.
    pub fn by_size(&self) -> Vec<(Key, Interval)> {
        let mut all: Vec<(Key, Interval)> = self.found.iter().map(|(key, of)| (*key, of.clone())).collect();
        let size = |of: &Interval| of.insns[0] + of.insns[1];
        all.sort_by(|a, b| size(&b.1).total_cmp(&size(&a.1)).then(a.0.cmp(&b.0)));
        all
    }

    /// What was counted in a part of a gap.
    pub fn counts(
        &self,
        n: usize,
        part: GapPart,
        gap: &'a Gap,
    ) -> impl Iterator<Item = (u32, Counted, u64)> + 'a {
        let Reading { side, keys, .. } = &self.readings[n];
        let key = move |block: u32| {
            let innermost = side.code.blocks.get(block as usize).map_or(NONE, |of| of.innermost);
            keys.loops[n].get(innermost as usize).copied().unwrap_or(NONE)
        };
        gap.counts().filter(move |(block, ..)| part.inside.is_none_or(|of| of == key(*block)))
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
        let own: u64 = side.log.all_sums(activity).map(|sums| sums.gap + sums.inside).sum();
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
        for sums in side.log.all_sums(activity) {
            events.light += mean(sums.light, 1);
            events.heavy += mean(sums.heavy, 1);
        }
    }
    events
}
