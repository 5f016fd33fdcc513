//! Instructions in hot code that need not be there: what compilers do all the same.
//!
//! Source: Chainsaw (2009), "Conclusions": "Compilers still do silly things".

use super::log::{Counted, Side};
use program::{Va, Waste};
use std::collections::BTreeMap;

/// From this share of a run's instructions on, they are told.
const HOT: f64 = 0.001;

/// Instructions of a function that need not be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wasted {
    /// The function.
    pub function: u32,
    /// Where they begin.
    pub at: Va,
    /// What they are.
    pub what: Waste,
    /// How often they ran.
    pub runs: u64,
    /// How many instructions that is.
    pub insns: u64,
}

/// Those of a side, the ones that ran most first.
pub fn wasted(side: &Side<'_>) -> Vec<Wasted> {
    let mut runs: BTreeMap<u32, u64> = BTreeMap::new();
    for (block, what, n) in side.log.gaps.iter().flat_map(|(_, gap)| gap.counts()) {
        if what == Counted::Run {
            *runs.entry(block).or_default() += n;
        }
    }
    let weight = |block: &u32| side.code.blocks.get(*block as usize).map_or(0, |of| u64::from(of.weight));
    let all: u64 = runs.iter().map(|(block, n)| weight(block) * n).sum();
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let is_hot = |insns: u64| insns as f64 >= HOT * all as f64;
    let mut found = Vec::new();
    for (function, of) in (0..).zip(&side.code.functions) {
        for (block, &runs) in runs.range(of.blocks.clone()) {
            // No block has more of it than instructions.
            if !is_hot(weight(block) * runs) {
                continue;
            }
            let Some((module, id)) = side.code.blocks.get(*block as usize).map(|of| of.id) else { continue };
            let Some(module) = side.modules.get(module as usize) else { continue };
            for (at, what) in module.program.waste(id) {
                let insns = runs * what.n_insns() as u64;
                if is_hot(insns) {
                    found.push(Wasted { function, at, what, runs, insns });
                }
            }
        }
    }
    found.sort_by(|a, b| b.insns.cmp(&a.insns).then((a.function, a.at).cmp(&(b.function, b.at))));
    found
}
