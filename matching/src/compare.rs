//! Two runs of one program, built in two ways: what was done between the same two points in both, and where
//! one did more.
//!
//! ```text
//! trace ─Builder→ Log ┐
//!                     ├─Keys→ Reading ─align→ Aligned ─Intervals→ Comparison
//! trace ─Builder→ Log ┘
//! ```
//! Source: T. Moseley, D. Grunwald, R. Peri, "Chainsaw: using binary matching for relative instruction mix
//! comparison" (2009). Alignment of call trees instead of signatures of their order is ours; the paper's own
//! scheme is there to be held against it.

mod anchors;
mod base;
mod code;
mod explain;
pub mod expression;
mod functions;
mod intervals;
mod items;
mod keys;
mod log;
mod loops;
mod nests;
mod outliers;
mod pairs;
mod sequence;
mod signatures;
mod threads;
mod unnamed;
mod wasted;

pub use anchors::{Anchor, Point};
pub use code::{Code, Function, NONE, TracedModule};
pub use explain::Explained;
pub use functions::{FunctionMix, FunctionPair};
pub use intervals::{At, Events, Interval, Key, Lengths};
pub use keys::How;
pub use log::{Builder, Counted, Log, Place, Side};
pub use loops::LoopPair;
pub use outliers::{By, Outlier, Weights, weighed};
pub use signatures::SignaturesError;
pub use wasted::Wasted;

use crate::relation::Matching;
use crate::relation::map::Map;
use anchors::Anchors;
use explain::Explaining;
use intervals::Intervals;
use items::Reading;
use keys::{CallKey, Keys};
use outliers::Differing;
use pairs::AT_A_TIME;
use program::{BlockId, FuncId, Mix, Program, Va};
use std::collections::{BTreeSet, HashMap};

/// What came of it. Two numbers in a field are those of the old and of the new build.
pub struct Comparison {
    /// Functions, by name.
    pub functions: Vec<FunctionPair>,
    /// Loops, the largest difference first.
    pub loops: Vec<LoopPair>,
    /// All that ran.
    pub totals: [Mix; 2],
    /// Events.
    pub events: [Events; 2],
    /// Those that are paired.
    pub paired: [Events; 2],
    /// Of those, rounds of loops that are compared as a whole: they did not go round as often in both.
    pub whole_rounds: [f64; 2],
    /// How long intervals are.
    pub lengths: [Lengths; 2],
    /// All that there are, those with most instructions first.
    pub intervals: Vec<(Key, Interval)>,
    /// Where one build does more than the other, the largest difference first.
    pub outliers: Vec<Outlier>,
    /// How many would be, if they did not differ between runs of one build.
    pub n_unsteady: usize,
    /// What ran in each interval that does not, metric by metric; nothing, unless it is asked for.
    pub mixes: Vec<(Key, [Vec<f64>; 2])>,
    /// Instructions in hot code that need not be there.
    pub wasted: [Vec<Wasted>; 2],
}

/// A place in a build: the number of a module, and an address in it.
pub type InModule = (u32, Va);

/// What is known of the new build where neither lines nor names say it: what it was in the old build. And
/// what a person says, whatever these say.
#[derive(Clone, Debug, Default)]
pub struct Was {
    /// Of blocks, by where they start.
    pub blocks: HashMap<InModule, InModule>,
    /// Of functions, by where they are entered; and how sure that is, from 0 to 1.
    pub functions: HashMap<InModule, (InModule, f64)>,
    /// Functions and blocks of the new build that are pinned to some of the old one.
    pub pins: HashMap<InModule, InModule>,
    /// Functions and blocks of the old and the new build that are not the same.
    pub forbids: BTreeSet<(InModule, InModule)>,
}

impl Was {
    /// Adds what a matching says of two modules, numbered as the old and the new build have them.
    pub fn add(&mut self, [n_old, n_new]: [u32; 2], matching: &Matching, old: &Program, new: &Program) {
        let block =
            |of: &crate::BlockMatch| ((n_new, new.block(of.new).start), (n_old, old.block(of.old).start));
        let function = |of: &crate::FunctionMatch| {
            let was = (n_old, old.function(of.old).entry);
            ((n_new, new.function(of.new).entry), (was, f64::from(of.confidence)))
        };
        self.blocks.extend(matching.blocks.iter().map(block));
        self.functions.extend(matching.functions.iter().map(function));
    }

    /// Adds what a person says of two modules, numbered as both builds have them.
    pub fn add_map(&mut self, [n_old, n_new]: [u32; 2], map: &Map, old: &Program, new: &Program) {
        let functions =
            |&(a, b): &(FuncId, FuncId)| ((n_old, old.function(a).entry), (n_new, new.function(b).entry));
        let blocks =
            |&(a, b): &(BlockId, BlockId)| ((n_old, old.block(a).start), (n_new, new.block(b).start));
        let pins = map.pins.iter().map(functions).chain(map.block_pins.iter().map(blocks));
        self.pins.extend(pins.map(|(old, new)| (new, old)));
        let forbids = map.forbids.iter().map(functions).chain(map.block_forbids.iter().map(blocks));
        self.forbids.extend(forbids);
    }

    /// Adds a module that both builds have.
    pub fn add_itself(&mut self, [n_old, n_new]: [u32; 2], program: &Program) {
        let itself = |at: Va| ((n_new, at), (n_old, at));
        self.blocks.extend(program.blocks.iter().map(|block| itself(block.start)));
        let function = |of: &program::Function| {
            let (new, old) = itself(of.entry);
            (new, (old, 1.0))
        };
        self.functions.extend(program.functions.iter().map(function));
    }
}

/// Where intervals differ between two runs of one build, which is by chance.
#[derive(Default, Debug)]
pub struct Unsteady {
    /// Where they begin, by function.
    from: BTreeSet<(u32, At)>,
    /// Where they end.
    to: BTreeSet<(u32, At)>,
    /// Functions of the first run that did something else in the second.
    functions: BTreeSet<u32>,
    /// What the second run came to; nothing, if there was none.
    total: Option<Mix>,
}

impl Unsteady {
    /// Of two runs of one build, with the same modules; what is what is known by [`Was::add_itself`].
    pub fn of(runs: &[Side<'_>; 2], was: &Was) -> Unsteady {
        align(runs, was, |intervals| {
            let mut found = Unsteady::default();
            for (key, _) in intervals.found.iter().filter(|(_, of)| outliers::differs(of)) {
                found.from.insert((key.functions[0], key.from[0]));
                found.to.insert((key.functions[0], key.to[0]));
            }
            let ran = |of: &Option<FunctionMix>| of.as_ref().map(|of| (of.dynamic.clone(), of.calls));
            for pair in functions::pairs(runs, intervals.keys()) {
                if ran(&pair.sides[0]) != ran(&pair.sides[1]) {
                    found.functions.extend(pair.sides[0].iter().flat_map(|of| of.functions.iter().copied()));
                }
            }
            found.total = Some(functions::total(&runs[1]));
            found
        })
    }

    /// Whether what a function of the first run did is by chance; nothing, if there was no second one.
    pub fn has_function(&self, of: &FunctionMix) -> Option<bool> {
        self.total.as_ref()?;
        Some(of.functions.iter().any(|function| self.functions.contains(function)))
    }

    /// All that ran in the second run.
    pub fn total(&self) -> Option<&Mix> {
        self.total.as_ref()
    }

    /// Whether what side `n` does there is by chance.
    fn has(&self, n: usize, key: &Key) -> bool {
        let function = key.functions[n];
        self.from.contains(&(function, key.from[n])) || self.to.contains(&(function, key.to[n]))
    }
}

/// What is asked for of a comparison.
pub struct Asked<'a> {
    /// What is no outlier, by build.
    pub unsteady: &'a [Unsteady; 2],
    /// What outliers are told by.
    pub by: By,
    /// Whether what ran is wanted of each interval.
    pub wants_mixes: bool,
}

impl Comparison {
    /// Of two runs. Where neither lines nor names say what is what, `was` does.
    pub fn compute(sides: &[Side<'_>; 2], was: &Was, asked: &Asked<'_>) -> Comparison {
        align(sides, was, |intervals| Comparison::of(sides, intervals, asked))
    }

    /// The same, matched by the order of events in all of both logs, whoever has called what: the scheme of
    /// Chainsaw (2009), to be held against [`Comparison::compute`].
    ///
    /// # Errors
    /// [`SignaturesError::TooLong`], if there are too many events.
    pub fn by_signatures(
        sides: &[Side<'_>; 2],
        was: &Was,
        asked: &Asked<'_>,
    ) -> Result<Comparison, SignaturesError> {
        let keys = Keys::of(sides, was);
        let none = BTreeSet::new();
        let readings = [0, 1].map(|n: usize| Reading::new(n, &sides[n], &keys, &none));
        let mut intervals = Intervals::new(&readings);
        signatures::align(&readings, &threads::pairs(&readings), |aligned| intervals.add(&aligned))?;
        intervals.finish();
        Ok(Comparison::of(sides, &intervals, asked))
    }

    /// The same as [`Comparison::compute`], by way of a run of another build, `base`: each is aligned with
    /// that, which `was` is of. `direct` is of both.
    pub fn through(
        base: Side<'_>,
        sides: &[Side<'_>; 2],
        [was_old, was_new, direct]: [&Was; 3],
        asked: &Asked<'_>,
    ) -> Comparison {
        let all = [[base, sides[0]], [base, sides[1]]];
        let keys_by = [Keys::of(&all[0], was_old), Keys::of(&all[1], was_new)];
        // What is not called in all three stands in its caller in all three.
        let mut alone = [0, 1].map(|n: usize| alone(&all[n], &keys_by[n]));
        for (function, site, callee) in keys::calls(&base) {
            let both = [0, 1].map(|n: usize| keys_by[n].call(0, function, site, callee));
            if (0..2).any(|n: usize| alone[n][0].contains(&both[n])) {
                for n in [0, 1] {
                    alone[n].iter_mut().for_each(|of| _ = of.insert(both[n]));
                }
            }
        }
        let reading = |n: usize, of: usize| Reading::new(of, &all[n][of], &keys_by[n], &alone[n][of]);
        let by = [[reading(0, 0), reading(0, 1)], [reading(1, 0), reading(1, 1)]];
        let of_both = by.each_ref().map(threads::pairs);
        let roots = of_both[0].iter().filter_map(|[root, old]| {
            let new = of_both[1].iter().find(|[other, _]| other == root)?;
            Some([*root, *old, new[1]])
        });
        let roots: Vec<[u32; 3]> = roots.collect();
        let mut keys = Keys::of(sides, direct);
        let [with_old, with_new] = keys_by.each_ref().map(|of| of.loops[1].clone());
        keys.loops = [with_old, with_new];
        // What the base does not have is of one build alone.
        let known: BTreeSet<u32> = keys_by[0].loops[0].iter().copied().collect();
        let unknown = keys.loops[1].iter_mut().filter(|key| !known.contains(key));
        unknown.for_each(|key| *key |= 1 << 31);
        let none = BTreeSet::new();
        let readings = [0, 1].map(|n: usize| Reading::new(n, &sides[n], &keys, &none));
        let mut intervals = Intervals::new(&readings);
        base::align(by.each_ref(), &roots, |aligned| intervals.add(&aligned));
        intervals.finish();
        Comparison::of(sides, &intervals, asked)
    }

    fn of(sides: &[Side<'_>; 2], intervals: &Intervals<'_>, asked: &Asked<'_>) -> Comparison {
        let is_unsteady = |key: &Key| (0..2).any(|n| asked.unsteady[n].has(n, key));
        let Differing { outliers, n_unsteady, mixes } =
            outliers::of(sides, intervals, (&asked.by, asked.wants_mixes), is_unsteady);
        Comparison {
            functions: functions::pairs(sides, intervals.keys()),
            loops: loops::pairs(sides, intervals.keys()),
            totals: [0, 1].map(|n: usize| functions::total(&sides[n])),
            events: [0, 1].map(|n: usize| intervals::events(&sides[n])),
            paired: intervals.paired,
            whole_rounds: intervals.whole,
            lengths: intervals.lengths,
            intervals: intervals.by_size(),
            outliers,
            n_unsteady,
            mixes,
            wasted: [0, 1].map(|n: usize| wasted::wasted(&sides[n])),
        }
    }
}

/// Points of both runs that are the same, of each pair of threads in the order in which they came. Logs must
/// have been made with [`Builder::with_positions`]; `was` as of [`Comparison::compute`].
pub fn anchors(sides: &[Side<'_>; 2], was: &Was) -> Vec<Anchor> {
    read(sides, was, |readings, roots| {
        let mut anchors = Anchors::new(readings);
        pairs::align(readings, roots, usize::MAX, |aligned| anchors.add(&aligned));
        anchors.all(roots)
    })
}

/// How it was found out what in the function with this bare name is what; `was` as of
/// [`Comparison::compute`].
pub fn explained(sides: &[Side<'_>; 2], was: &Was, name: &str) -> Vec<Explained> {
    read(sides, was, |readings, roots| {
        let mut explaining = Explaining::new(readings, name);
        pairs::align(readings, roots, AT_A_TIME, |aligned| explaining.add(&aligned));
        explaining.finish()
    })
}

/// Aligns two runs; what comes `of` their intervals.
fn align<T>(sides: &[Side<'_>; 2], was: &Was, of: impl FnOnce(&Intervals<'_>) -> T) -> T {
    read(sides, was, |readings, roots| {
        let mut intervals = Intervals::new(readings);
        pairs::align(readings, roots, AT_A_TIME, |aligned| intervals.add(&aligned));
        intervals.finish();
        of(&intervals)
    })
}

/// What comes `of` two runs, once it is known what is what in them, and which threads are which.
fn read<T>(sides: &[Side<'_>; 2], was: &Was, of: impl FnOnce(&[Reading<'_>; 2], &[[u32; 2]]) -> T) -> T {
    let keys = Keys::of(sides, was);
    let transparent = alone(sides, &keys);
    let reading = |n: usize| Reading::new(n, &sides[n], &keys, &transparent[n]);
    let readings = [reading(0), reading(1)];
    let roots = threads::pairs(&readings);
    of(&readings, &roots)
}

/// Calls that one side alone makes, by side.
fn alone(sides: &[Side<'_>; 2], keys: &Keys) -> [BTreeSet<CallKey>; 2] {
    let calls = [0, 1].map(|n: usize| {
        let of = keys::calls(&sides[n]).into_iter();
        of.map(|(function, site, callee)| keys.call(n, function, site, callee)).collect::<BTreeSet<_>>()
    });
    let alone = |a: &BTreeSet<_>, b: &BTreeSet<_>| a.difference(b).copied().collect::<BTreeSet<_>>();
    [alone(&calls[0], &calls[1]), alone(&calls[1], &calls[0])]
}
