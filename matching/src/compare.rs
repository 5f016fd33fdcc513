//! Two runs of one program, built in two ways: what was done between the same two points in both, and where
//! one did more.
//!
//! ```text
//! trace ─Builder→ Log ┐
//!                     ├─Keys→ Reading ─align→ Aligned ─Intervals→ Comparison
//! trace ─Builder→ Log ┘
//! ```
//! Source: T. Moseley, D. Grunwald, R. Peri, "Chainsaw: using binary matching for relative instruction mix
//! comparison" (2009). Alignment of call trees instead of signatures of their order is ours.

mod code;
pub mod expression;
mod functions;
mod intervals;
mod items;
mod keys;
mod log;
mod outliers;
mod pairs;
mod sequence;

pub use code::{Code, NONE, TracedModule};
pub use functions::{FunctionMix, FunctionPair};
pub use intervals::{At, Events, Interval, Key, Lengths};
pub use log::{Builder, Log, Place, Side};
pub use outliers::Outlier;

use crate::relation::Matching;
use intervals::Intervals;
use items::Reading;
use keys::Keys;
use program::{Mix, Program, Va};
use std::collections::{BTreeSet, HashMap};

/// What came of it. Two numbers in a field are those of the old and of the new build.
pub struct Comparison {
    /// Functions, by name.
    pub functions: Vec<FunctionPair>,
    /// All that ran.
    pub totals: [Mix; 2],
    /// Events.
    pub events: [Events; 2],
    /// Those that are paired.
    pub paired: [Events; 2],
    /// Of those, rounds of loops that did not go round as often in both.
    pub whole_rounds: [f64; 2],
    /// How long intervals are.
    pub lengths: [Lengths; 2],
    /// Where one build does more than the other, the largest difference of instructions first.
    pub outliers: Vec<Outlier>,
    /// How many would be, if they did not differ between runs of one build.
    pub n_unsteady: usize,
}

/// What blocks of `new` were in `old`, by where they start.
pub fn block_starts(matching: &Matching, old: &Program, new: &Program) -> HashMap<Va, Va> {
    let start = |of: &crate::BlockMatch| (new.block(of.new).start, old.block(of.old).start);
    matching.blocks.iter().map(start).collect()
}

/// Where intervals differ between two runs of one build, which is by chance.
#[derive(Default, Debug)]
pub struct Unsteady {
    /// Where they begin, by function.
    from: BTreeSet<(u32, At)>,
    /// Where they end.
    to: BTreeSet<(u32, At)>,
}

impl Unsteady {
    /// Of two runs of one build, with the same modules. `was` as of [`Comparison::compute`]: each block is
    /// itself.
    pub fn of(runs: &[Side<'_>; 2], was: &HashMap<Va, Va>) -> Unsteady {
        align(runs, was, |intervals| {
            let mut found = Unsteady::default();
            for (key, _) in intervals.found.iter().filter(|(_, of)| outliers::differs(of)) {
                found.from.insert((key.functions[0], key.from[0]));
                found.to.insert((key.functions[0], key.to[0]));
            }
            found
        })
    }

    /// Whether what side `n` does there is by chance.
    fn has(&self, n: usize, key: &Key) -> bool {
        let function = key.functions[n];
        self.from.contains(&(function, key.from[n])) || self.to.contains(&(function, key.to[n]))
    }
}

impl Comparison {
    /// Of two runs. Where lines do not say what is what, `was` does, of blocks of the first modules: see
    /// [`block_starts`]. What is `unsteady` in one of the builds is no outlier.
    pub fn compute(sides: &[Side<'_>; 2], was: &HashMap<Va, Va>, unsteady: &[Unsteady; 2]) -> Comparison {
        align(sides, was, |intervals| {
            let is_unsteady = |key: &Key| (0..2).any(|n| unsteady[n].has(n, key));
            let (outliers, n_unsteady) = outliers::of(sides, intervals, is_unsteady);
            Comparison {
                functions: functions::pairs(sides),
                totals: [0, 1].map(|n: usize| functions::total(&sides[n])),
                events: [0, 1].map(|n: usize| intervals::events(&sides[n])),
                paired: intervals.paired,
                whole_rounds: intervals.whole,
                lengths: intervals.lengths,
                outliers,
                n_unsteady,
            }
        })
    }
}

/// Aligns two runs; what comes `of` their intervals.
fn align<T>(sides: &[Side<'_>; 2], was: &HashMap<Va, Va>, of: impl FnOnce(&Intervals<'_>) -> T) -> T {
    let keys = Keys::of(sides, was);
    let calls = [0, 1].map(|n: usize| keys::calls_of(&keys, n, &sides[n]));
    let alone = |a: &BTreeSet<_>, b: &BTreeSet<_>| a.difference(b).copied().collect::<BTreeSet<_>>();
    let transparent = [alone(&calls[0], &calls[1]), alone(&calls[1], &calls[0])];
    let reading = |n: usize| Reading::new(n, &sides[n], &keys, &transparent[n]);
    let readings = [reading(0), reading(1)];
    let mut intervals = Intervals::new(&readings);
    pairs::align(&readings, &threads(sides), |aligned| intervals.add(&aligned));
    of(&intervals)
}

/// Which threads are which: in the order in which they began.
fn threads(sides: &[Side<'_>; 2]) -> Vec<[u32; 2]> {
    let all = sides[0].log.threads.iter().zip(&sides[1].log.threads);
    all.map(|((_, old), (_, new))| [*old, *new]).collect()
}
