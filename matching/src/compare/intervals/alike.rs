//! Intervals that are alike: those of one place in which the same gaps ran, which is nearly all of one place.
//! They are counted as they come, and what ran in them is added up once, at the end.

use super::{GapPart, Interval, Key};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash as _, Hasher as _};

/// So many are told apart; more are added up as they come.
const MOST: usize = 1 << 20;

/// What ran in intervals, in the old and in the new build.
#[derive(Clone, Copy, Default)]
pub struct Ran<'a> {
    /// Instructions.
    pub insns: [f64; 2],
    /// Rounds of loops that are compared as a whole.
    pub rounds: [f64; 2],
    /// Gaps, each with how often.
    pub gaps: [&'a [(GapPart, f64)]; 2],
    /// Activities that the other build has none for, each with how often.
    pub alone: [&'a [(u32, f64)]; 2],
}

impl Ran<'_> {
    /// A number that is the same of those that are alike.
    pub fn print(&self, key: &impl std::hash::Hash) -> u64 {
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        for n in [0, 1] {
            (self.gaps[n].len(), self.alone[n].len()).hash(&mut hasher);
            self.gaps[n].iter().for_each(|(gap, times)| (gap, times.to_bits()).hash(&mut hasher));
            self.alone[n].iter().for_each(|(of, times)| (of, times.to_bits()).hash(&mut hasher));
        }
        hasher.finish()
    }
}

/// Lists of gaps, of the old and of the new build.
pub type Gaps = [Box<[(GapPart, f64)]>; 2];

/// Those that are alike, together.
struct Together {
    key: Key,
    gaps: Gaps,
    alone: [Box<[(u32, f64)]>; 2],
    /// How often all of that ran.
    times: f64,
    /// What differs between them, added up.
    sum: Sum,
}

/// What is added up of intervals, one by one.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    /// As [`Interval`] has them.
    pub times: f64,
    /// The same.
    pub weight: f64,
    /// The same.
    pub confidence: f64,
    /// The same.
    pub insns: [f64; 2],
    /// The same.
    pub rounds: [f64; 2],
}

/// All of them.
#[derive(Default)]
pub struct AllAlike {
    known: FxHashMap<u64, u32>,
    all: Vec<Together>,
}

impl AllAlike {
    /// Adds what ran `times` to those that are alike, or to `found`.
    pub fn put(
        &mut self,
        key: Key,
        ran: &Ran<'_>,
        sum: &Sum,
        times: f64,
        found: &mut FxHashMap<Key, Interval>,
    ) {
        let print = ran.print(&key);
        let known = self.known.get(&print).and_then(|at| self.all.get_mut(*at as usize));
        if let Some(one) = known {
            let is_alike =
                |n: usize| *one.gaps[n] == *ran.gaps[n] && *one.alone[n] == *ran.alone[n] && one.key == key;
            if is_alike(0) && is_alike(1) {
                one.sum.add(sum);
                one.times += times;
                return;
            }
        } else if self.all.len() < MOST {
            self.known.insert(print, crate::compare::code::count(self.all.len()));
            let (gaps, alone) = (ran.gaps.map(Into::into), ran.alone.map(Into::into));
            self.all.push(Together { key, gaps, alone, times, sum: *sum });
            return;
        }
        add(found.entry(key).or_default(), ran, sum, times);
    }

    /// Adds all of them to `found`.
    pub fn finish(&mut self, found: &mut FxHashMap<Key, Interval>) {
        self.known.clear();
        for one in self.all.drain(..) {
            let ran = Ran {
                gaps: [&one.gaps[0], &one.gaps[1]],
                alone: [&one.alone[0], &one.alone[1]],
                ..Ran::default()
            };
            add(found.entry(one.key).or_default(), &ran, &one.sum, one.times);
        }
    }
}

impl Sum {
    fn add(&mut self, more: &Sum) {
        self.times += more.times;
        self.weight += more.weight;
        self.confidence += more.confidence;
        for n in [0, 1] {
            self.insns[n] += more.insns[n];
            self.rounds[n] += more.rounds[n];
        }
    }
}

/// Adds what ran `times`.
fn add(interval: &mut Interval, ran: &Ran<'_>, sum: &Sum, times: f64) {
    interval.times += sum.times;
    interval.weight += sum.weight;
    interval.confidence += sum.confidence;
    for n in [0, 1] {
        interval.insns[n] += sum.insns[n];
        interval.rounds[n] += sum.rounds[n];
        for (gap, n_of) in ran.gaps[n] {
            *interval.gaps[n].entry(*gap).or_default() += times * n_of;
        }
        for (of, n_of) in ran.alone[n] {
            *interval.alone[n].entry(*of).or_default() += times * n_of;
        }
    }
}
