//! What each function did in both runs.

use super::code::NONE;
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
    /// How many functions of the name ran: versions that compilers have made, or others of other files.
    pub n_functions: usize,
}

/// A function of both builds, or of one.
#[derive(Clone, Debug)]
pub struct FunctionPair {
    /// Its name, without what compilers add to it.
    pub name: String,
    /// What it did in each run, if it did anything.
    pub sides: [Option<FunctionMix>; 2],
}

impl FunctionPair {
    /// How sure it is that both sides are the same, from 0 to 1: names alone say so, and are less sure where
    /// not as many functions have the name in both builds.
    pub fn confidence(&self) -> f64 {
        let [old, new] = self.sides.each_ref().map(|of| of.as_ref().map_or(0, |of| of.n_functions));
        #[expect(clippy::cast_precision_loss, reason = "few")]
        let share = old.min(new) as f64 / old.max(new).max(1) as f64;
        share
    }
}

/// Adds what ran in a gap.
pub fn add_gap(side: &Side<'_>, gap: &Gap, mix: &mut Mix) {
    for (block, what, n) in gap.counts() {
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

/// By name: what each function did.
fn of<'a>(side: &Side<'a>) -> BTreeMap<&'a str, FunctionMix> {
    let mut found: BTreeMap<&'a str, FunctionMix> = BTreeMap::new();
    let (mut ran, mut counted) = (BTreeSet::new(), BTreeSet::new());
    for (key, gap) in &side.log.gaps {
        let Some(function) = side.code.functions.get(key.function as usize) else { continue };
        let mix = found.entry(&*function.bare).or_default();
        mix.n_functions += usize::from(counted.insert(key.function));
        add_gap(side, gap, &mut mix.dynamic);
        for (block, what, _) in gap.counts() {
            if what == Counted::Run && ran.insert(block) {
                let own = side.code.mixes.get(block as usize);
                own.into_iter().for_each(|[own, _]| mix.fixed.add_times(own, 1));
            }
        }
    }
    for activity in side.log.activities.iter().filter(|activity| activity.function != NONE) {
        let Some(function) = side.code.functions.get(activity.function as usize) else { continue };
        found.entry(&*function.bare).or_default().calls += activity.times;
    }
    found
}

/// The functions of both runs, the largest difference of instructions first.
pub fn pairs(sides: &[Side<'_>; 2]) -> Vec<FunctionPair> {
    let [mut old, mut new] = [of(&sides[0]), of(&sides[1])];
    let names: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    let pair =
        |name: &str| FunctionPair { name: name.to_owned(), sides: [old.remove(name), new.remove(name)] };
    let mut all: Vec<FunctionPair> = names.into_iter().map(pair).collect();
    let insns = |of: &Option<FunctionMix>| of.as_ref().map_or(0, |of| of.dynamic.get(Metric::Total));
    all.sort_by_key(|pair| {
        let [a, b] = pair.sides.each_ref().map(insns);
        std::cmp::Reverse(a.abs_diff(b))
    });
    all
}
