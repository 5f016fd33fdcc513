//! What each loop did in both runs.

use super::code::NONE;
use super::functions::add_counts;
use super::intervals::At;
use super::keys::Keys;
use super::log::{Counted, Place, Side};
use program::{Metric, Mix};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// A loop of both builds, or of one: all that compilers have made of it.
#[derive(Clone, Debug)]
pub struct LoopPair {
    /// Where it is, in each build that has it.
    pub at: [Option<At>; 2],
    /// What ran in it, and in loops in it; not what it called.
    pub mixes: [Mix; 2],
    /// How often its headers ran.
    pub rounds: [u64; 2],
}

/// What is gathered of a loop of one run.
#[derive(Default)]
struct Sum {
    at: Option<At>,
    mix: Mix,
    rounds: u64,
}

/// By key: what each loop of a side did.
fn of(side: &Side<'_>, keys: &[u32]) -> BTreeMap<u32, Sum> {
    // Blocks run in many gaps.
    let mut counts: FxHashMap<(u32, Counted), u64> = FxHashMap::default();
    for (block, what, n) in side.log.gaps.iter().flat_map(|(_, gap)| gap.counts()) {
        *counts.entry((block, what)).or_default() += n;
    }
    let mut found: BTreeMap<u32, Sum> = BTreeMap::new();
    for ((block, what), n) in counts {
        let Some(ran) = side.code.blocks.get(block as usize) else { continue };
        let mut at = ran.innermost;
        // Versions of one loop may be in each other: what ran is in it once.
        let mut around = BTreeSet::new();
        while let Some(of) = side.code.loops.get(at as usize) {
            let key = keys.get(at as usize).copied().unwrap_or(NONE);
            if around.insert(key) {
                let sum = found.entry(key).or_default();
                let here = (of.function, Place::Rounds(at));
                sum.at = Some(sum.at.map_or(here, |at| at.min(here)));
                add_counts(side, std::iter::once((block, what, n)), &mut sum.mix);
                let is_round = what == Counted::Run && ran.is_header && at == ran.innermost;
                sum.rounds += if is_round { n } else { 0 };
            }
            at = of.parent;
        }
    }
    found
}

/// The loops of both runs, the largest difference of instructions first.
pub fn pairs(sides: &[Side<'_>; 2], keys: &Keys) -> Vec<LoopPair> {
    let [mut old, mut new] = [0, 1].map(|n: usize| of(&sides[n], &keys.loops[n]));
    let numbers: BTreeSet<u32> = old.keys().chain(new.keys()).copied().collect();
    let pair = |number: u32| {
        let both = [old.remove(&number), new.remove(&number)].map(Option::unwrap_or_default);
        LoopPair {
            at: both.each_ref().map(|of| of.at),
            rounds: both.each_ref().map(|of| of.rounds),
            mixes: both.map(|of| of.mix),
        }
    };
    let mut all: Vec<LoopPair> = numbers.into_iter().map(pair).collect();
    let difference = |of: &LoopPair| {
        let [old, new] = of.mixes.each_ref().map(|mix| mix.get(Metric::Total));
        old.abs_diff(new)
    };
    all.sort_by(|a, b| difference(b).cmp(&difference(a)).then_with(|| a.at.cmp(&b.at)));
    all
}
