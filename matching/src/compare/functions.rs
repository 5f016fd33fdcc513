//! What each function did in both runs.

use super::code::NONE;
use super::keys::{How, Keys};
use super::log::{Counted, Gap, Side};
use program::{Metric, Mix};
use std::collections::{BTreeMap, BTreeSet};

/// What a function did in one run: all versions of it that a compiler has made.
#[derive(Clone, Debug, Default)]
pub struct FunctionMix {
    /// What ran.
    pub dynamic: Mix,
    /// Its code, as far as it ran, once.
    pub fixed: Mix,
    /// How often it was called.
    pub calls: u64,
    /// The functions of the name that ran, by their numbers: versions that compilers have made, or others of
    /// other files.
    pub functions: Vec<u32>,
}

/// A function of both builds, or of one.
#[derive(Clone, Debug)]
pub struct FunctionPair {
    /// Its name, without what compilers add to it.
    pub name: String,
    /// What it did in each run, if it did anything.
    pub sides: [Option<FunctionMix>; 2],
    /// How it was found out that both are one.
    pub how: How,
    /// How sure that is, from 0 to 1.
    pub sure: f64,
}

impl FunctionPair {
    /// How sure it is that both sides are the same, from 0 to 1: less sure than how they were found where not
    /// as many functions have the name in both builds.
    pub fn confidence(&self) -> f64 {
        let [old, new] = self.sides.each_ref().map(|of| of.as_ref().map_or(0, |of| of.functions.len()));
        #[expect(clippy::cast_precision_loss, reason = "few")]
        let share = old.min(new) as f64 / old.max(new).max(1) as f64;
        share * self.sure
    }
}

/// Adds what ran in a gap.
fn add_gap(side: &Side<'_>, gap: &Gap, mix: &mut Mix) {
    add_counts(side, gap.counts(), mix);
}

/// Adds what is counted of blocks.
pub fn add_counts(side: &Side<'_>, counts: impl Iterator<Item = (u32, Counted, u64)>, mix: &mut Mix) {
    for (block, what, n) in counts {
        let Some([own, padding]) = side.code.mixes.get(block as usize) else { continue };
        match what {
            Counted::Run => {
                mix.add_times(own, n);
                if side.code.blocks.get(block as usize).is_some_and(|of| of.has_padding) {
                    mix.add_times(padding, n);
                }
            }
            Counted::Taken => mix.add(Metric::Taken, n),
            Counted::Padding => mix.add_times(padding, n),
        }
    }
}

/// All that ran.
pub fn total(side: &Side<'_>) -> Mix {
    let mut mix = Mix::default();
    side.log.gaps.iter().for_each(|(_, gap)| add_gap(side, gap, &mut mix));
    mix
}

/// By number, as keys have it: what each function did, and what it is called.
fn of<'a>(side: &Side<'a>, numbers: &[u32]) -> BTreeMap<u32, (&'a str, FunctionMix)> {
    let mut found: BTreeMap<u32, (&'a str, FunctionMix)> = BTreeMap::new();
    let (mut ran, mut counted) = (BTreeSet::new(), BTreeSet::new());
    let at = |function: u32| {
        let number = numbers.get(function as usize)?;
        Some((*number, side.code.functions.get(function as usize)?))
    };
    for (key, gap) in &side.log.gaps {
        let Some((number, function)) = at(key.function) else { continue };
        let (_, mix) = found.entry(number).or_insert_with(|| (&*function.bare, FunctionMix::default()));
        mix.functions.extend(counted.insert(key.function).then_some(key.function));
        add_gap(side, gap, &mut mix.dynamic);
        for (block, what, _) in gap.counts() {
            if what == Counted::Run && ran.insert(block) {
                let own = side.code.mixes.get(block as usize);
                own.into_iter().for_each(|[own, _]| mix.fixed.add_times(own, 1));
            }
        }
    }
    for activity in side.log.activities.iter().filter(|activity| activity.function != NONE) {
        let Some((number, function)) = at(activity.function) else { continue };
        let (_, mix) = found.entry(number).or_insert_with(|| (&*function.bare, FunctionMix::default()));
        mix.calls += activity.times;
    }
    found
}

/// The functions of both runs, the largest difference of instructions first.
pub fn pairs(sides: &[Side<'_>; 2], keys: &Keys) -> Vec<FunctionPair> {
    let [mut old, mut new] = [0, 1].map(|n: usize| of(&sides[n], &keys.functions[n]));
    let numbers: BTreeSet<u32> = old.keys().chain(new.keys()).copied().collect();
    let pair = |number: u32| {
        let both = [old.remove(&number), new.remove(&number)];
        let name = both.iter().flatten().next().map_or("", |(name, _)| *name);
        let sides = both.map(|of| of.map(|(_, mix)| mix));
        let hows = sides[1].iter().flat_map(|of| &of.functions).map(|of| keys.how_function(*of));
        let least_sure = hows.min_by(|a, b| a.1.total_cmp(&b.1));
        let (how, sure) = least_sure.filter(|_| sides[0].is_some()).unwrap_or((How::Alone, 1.0));
        FunctionPair { name: name.to_owned(), sides, how, sure }
    };
    let mut all: Vec<FunctionPair> = numbers.into_iter().map(pair).collect();
    let insns = |of: &Option<FunctionMix>| of.as_ref().map_or(0, |of| of.dynamic.get(Metric::Total));
    all.sort_by(|x, y| {
        let difference = |pair: &FunctionPair| {
            let [a, b] = pair.sides.each_ref().map(insns);
            a.abs_diff(b)
        };
        difference(y).cmp(&difference(x)).then_with(|| x.name.cmp(&y.name))
    });
    all
}
