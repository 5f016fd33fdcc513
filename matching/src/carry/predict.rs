//! How good a carried profile will turn out, said without a fresh one; or why nothing can be said.
//!
//! Two numbers a measure: what is expected, and a bound that the truth is below in one of twenty. Both are
//! one less what is wrong: the prices of what the matching lost and of what it is not sure of (`BP`, `CC`),
//! of samples (by how few there are), and of functions that ran and of which the profile does not know the
//! inside (by what they are expected to run). Counts that contradict each other have no price: then nothing
//! is said. Nor is anything said if a price is so high that it is itself a guess, or if the builds have
//! less in common than any that the prices were measured on.
//!
//! Invariant: surer matches, more samples and more functions known never make the prediction worse. Of a
//! build carried to itself nothing is wrong.
//!
//! Source: ours; BMAT has no such prediction. What samples have not seen: Good, "The population frequencies
//! of species", Biometrika 1953. The measures themselves: `score`; `checks/gate.sh` holds both numbers
//! against the truth, and fits the prices.

use super::complete::{Complete, Knowledge, WORK};
use super::static_prediction;
use crate::carry::infer::{Estimate, Problem};
use crate::counts::Measured;
use crate::counts::branches::branch_sides;
use crate::counts::evidence::{Consistency, Silence};
use crate::relation::Matching;
use profile::Profile;
use program::{BlockId, FuncId, Origin, Program, Va};
use std::collections::{BTreeMap, BTreeSet};

/// What is expected of one measure.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Expected {
    /// The share expected, 0.0..=1.0; `None` if what is not known weighs too much.
    pub share: Option<f64>,
    /// At least so much, in 19 of 20 cases; `None` where nothing is expected. Never above `share`.
    pub at_least: Option<f64>,
    /// The most that it can be, as far as is known.
    pub at_most: f64,
}

/// What is expected of a carried profile.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Prediction {
    /// B.P.
    pub bp: Expected,
    /// C.C. over our blocks.
    pub cc: Expected,
    /// Both builds have the same code, and everything is matched to itself.
    pub is_same: bool,
    /// What the prices are multiplied with.
    pub parts: Parts,
    /// What the old profile leaves in doubt.
    pub doubts: Vec<Doubt>,
}

/// Why a carried profile may be worse than its matches are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Doubt {
    /// No branch has a count.
    NoBranches,
    /// What enters blocks does not leave them, by far more than samples make it.
    Inconsistent {
        /// Blocks that ran often enough to tell.
        n_checked: usize,
        /// Of those, torn.
        n_torn: usize,
    },
    /// The builds have too little in common.
    Unlike {
        /// Of the old build's executions, the share in blocks that are matched more surely than not.
        carried_share: f64,
        /// Of the blocks of the new build's functions that ran, the share that is matched surely.
        ran_share: f64,
        /// The same of all its blocks.
        matched_share: f64,
    },
    /// Counts are samples.
    Sampled {
        /// Of all blocks, the share that half as many samples would not have seen.
        unseen_share: f64,
        /// What few samples are expected to cost in B.P.
        bp_share: f64,
    },
    /// Functions were called, and nothing is known of their inside.
    NotInside {
        /// How many such functions.
        n_functions: usize,
        /// Of all executions of branches, the share expected in them.
        branch_share: f64,
        /// Of all blocks.
        block_share: f64,
    },
}

/// What of a matching may go wrong, as shares; of a build carried to itself, all are 0.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Parts {
    /// Of the old build's executions, those in blocks that have no match which is likelier than not.
    pub lost_share: f64,
    /// Of the blocks of the new build's functions that ran, those that are not matched surely.
    pub unsure_share: f64,
    /// The square of a function's distrust, on average over executions of branches: one less the mean
    /// confidence of its blocks that have a count.
    pub distrusted_branch_share: f64,
    /// The same on average over blocks, where functions that did not run are trusted.
    pub distrusted_block_share: f64,
}

/// What a part costs: `times · share ^ power` of what the measure counts.
struct Price {
    of: fn(&Parts) -> f64,
    times: f64,
    power: f64,
}

/// The prices of one measure, each a sum. Of several bounds the tightest holds.
struct Prices {
    expected: &'static [Price],
    bounds: &'static [&'static [Price]],
}

/// Measured by `checks/gate.sh` over the pairs of `checks/gate/pairs.txt` that are marked as fitted: builds
/// of eleven programs in C, C++ and Rust, of two releases, at two levels of optimisation, by two compilers.
/// What is expected is the fit with the least absolute error; a bound is the quantile of 95 in 100 and a
/// twentieth more, because programs that were left out of the fit need it.
const BP: Prices = Prices {
    expected: &[
        Price { of: |p| p.lost_share, times: 0.418, power: 1.5 },
        Price { of: |p| p.distrusted_branch_share, times: 4.003, power: 1.5 },
    ],
    bounds: &[
        &[
            Price { of: |p| p.lost_share, times: 0.215, power: 1.5 },
            Price { of: |p| p.distrusted_branch_share, times: 0.756, power: 0.5 },
        ],
        &[
            Price { of: |p| p.lost_share, times: 0.278, power: 1.5 },
            Price { of: |p| p.distrusted_block_share, times: 1.771, power: 0.667 },
        ],
    ],
};
/// Likewise.
const CC: Prices = Prices {
    expected: &[
        Price { of: |p| p.distrusted_branch_share, times: 1.951, power: 2.0 },
        Price { of: |p| p.distrusted_block_share, times: 0.436, power: 0.667 },
    ],
    bounds: &[&[Price { of: |p| p.unsure_share, times: 0.144, power: 0.667 }]],
};

/// Where more is expected to be wrong than so much of the bound, it is the bound that was right: pairs whose
/// matches are few but right.
const WITHIN: f64 = 0.85;

impl Prices {
    /// What is expected to be wrong, and what is wrong at most in 19 of 20 cases.
    fn of(&self, parts: &Parts) -> [f64; 2] {
        let sum = |prices: &[Price]| -> f64 {
            prices.iter().map(|p| p.times * (p.of)(parts).powf(p.power)).sum::<f64>().min(1.0)
        };
        let bound = self.bounds.iter().map(|b| sum(b)).fold(1.0, f64::min);
        [sum(self.expected).min(WITHIN * bound), bound]
    }
}

/// Executions of a branch of which nothing is known, and that is predicted taken.
const BLIND: f64 = 0.5;
/// A price above this is too rough to be subtracted.
const TOO_DEAR: f64 = 0.01;
/// Samples may have to double so often until every block is seen: from a thousandth of the executions to all.
const DOUBLINGS: f64 = 10.0;

/// A match that is surer than this is sure.
const SURE: f32 = 0.95;
/// A match that is surer than this is likelier than not.
const LIKELY: f32 = 0.5;
/// Of the pairs that the prices were measured on, none had less of the old executions in blocks with a likely
/// match: what was lost would weigh more than what is known.
const CARRIED: f64 = 0.35;
/// Likewise, of blocks of functions that ran, matched surely.
const RAN: f64 = 0.3;
/// Likewise, of all blocks.
const MATCHED: f64 = 0.35;

/// How much two builds have in common; a share of nothing is all of it.
struct Likeness {
    carried_share: f64,
    ran_share: f64,
    matched_share: f64,
}

impl Likeness {
    fn of(old: &OldBuild<'_>, new: &Program, matching: &Matching, profile: &Profile) -> Likeness {
        let mut carries = vec![false; old.program.blocks.len()];
        let mut is_sure = vec![false; new.blocks.len()];
        for m in &matching.blocks {
            carries[m.old.index()] |= m.confidence > LIKELY;
            is_sure[m.new.index()] |= m.confidence > SURE;
        }
        let executions = || old.counts.blocks.iter().map(|&c| c as f64);
        let carried: f64 = executions().zip(&carries).filter(|(_, carries)| **carries).map(|(c, _)| c).sum();
        let ran = |f: FuncId| {
            let counts = new.function(f).block_ids().map(|b| profile.blocks.get(&new.block(b).start));
            counts.flatten().any(|&c| c > 0)
        };
        let (mut all, mut of_ran) = ([0_usize; 2], [0_usize; 2]);
        for f in new.func_ids().filter(|&f| new.function(f).origin != Origin::Plt) {
            let n_sure = new.function(f).block_ids().filter(|b| is_sure[b.index()]).count();
            let here = [n_sure, new.function(f).n_blocks()];
            all = [all[0] + here[0], all[1] + here[1]];
            if ran(f) {
                of_ran = [of_ran[0] + here[0], of_ran[1] + here[1]];
            }
        }
        let share = |part: f64, of: f64| if of > 0.0 { part / of } else { 1.0 };
        Likeness {
            carried_share: share(carried, executions().sum()),
            ran_share: share(of_ran[0] as f64, of_ran[1] as f64),
            matched_share: share(all[0] as f64, all[1] as f64),
        }
    }

    fn is_enough(&self) -> bool {
        self.carried_share >= CARRIED && self.ran_share >= RAN && self.matched_share >= MATCHED
    }
}

/// The old build, its profile, and what was made of it.
pub(crate) struct OldBuild<'a> {
    pub program: &'a Program,
    pub measured: &'a Measured,
    pub counts: &'a Complete,
    /// Functions that the profile has calls from.
    pub calling: &'a BTreeSet<FuncId>,
}

/// Expects B.P. and C.C. of `profile`, whose counts are as sure as `confidence` says.
pub(crate) fn predict(
    old: &OldBuild<'_>,
    new: &Program,
    matching: &Matching,
    profile: &Profile,
    confidence: &BTreeMap<Va, f32>,
) -> Prediction {
    let likeness = Likeness::of(old, new, matching, profile);
    let is_same = is_same(old.program, new, matching);
    let evidence = Consistency::of(old.program, old.measured);
    let per_sample = (!evidence.is_exact()).then_some(evidence.executions_per_sample);
    let looked = look(new, profile, confidence, per_sample);
    let parts = if is_same { Parts::default() } else { looked.parts(&likeness) };
    if !is_same && !likeness.is_enough() {
        let Likeness { carried_share, ran_share, matched_share } = likeness;
        let none = Expected { share: None, at_least: None, at_most: 1.0 };
        let doubts = vec![Doubt::Unlike { carried_share, ran_share, matched_share }];
        return Prediction { bp: none, cc: none, is_same, parts, doubts };
    }
    let mut doubts = Vec::new();
    let (mut bp_price, mut cc_price) = (looked.sparse, 0.0);
    let (mut bp_known, mut cc_known) = (looked.mass > 0.0, true);
    let mut unseen = 0.0;
    let mut of_seen = 0.0;
    if looked.mass == 0.0 {
        doubts.push(Doubt::NoBranches);
        cc_known = profile.blocks.values().any(|&c| c > 0);
    }
    if evidence.is_torn() {
        doubts.push(Doubt::Inconsistent { n_checked: evidence.n_heavy, n_torn: evidence.n_torn });
        (bp_known, cc_known) = (false, false);
    } else if let Some(per_sample) = per_sample {
        (unseen, of_seen) = halving(old, per_sample);
        bp_known &= looked.sparse <= TOO_DEAR;
        cc_price += unseen * DOUBLINGS / 2.0;
        doubts.push(Doubt::Sampled { unseen_share: unseen, bp_share: looked.sparse });
    }
    let silence = silence(old, per_sample.is_some());
    let missing = missing(old, &silence, looked.mass);
    let notable = missing.n_functions > 0 && silence.is_notable(per_sample);
    // A few that the tool left alone have a price, unless it leaves them alone in the new build as well; many
    // are records that are missing.
    if missing.n_functions > 0 && (notable || !is_same) {
        let branch_share = missing.branches / (looked.mass + missing.branches).max(1.0);
        let block_share = missing.blocks / looked.n_blocks.max(1.0);
        bp_price += BLIND * branch_share;
        cc_price += block_share;
        bp_known &= !notable;
        cc_known &= !notable;
        doubts.push(Doubt::NotInside { n_functions: missing.n_functions, branch_share, block_share });
    }
    cc_known &= cc_price <= TOO_DEAR && of_seen * DOUBLINGS / 2.0 <= TOO_DEAR;
    // These prices are estimates that no pair was held against: the bound has them twice.
    let expected = |[wrong, most]: [f64; 2], price: f64, known: bool, sure_price: f64| Expected {
        share: known.then_some((1.0 - wrong - price).max(0.0)),
        at_least: known.then_some((1.0 - most - 2.0 * price).max(0.0)),
        at_most: (1.0 - sure_price).max(0.0),
    };
    Prediction {
        bp: expected(BP.of(&parts), bp_price, bp_known, 0.0),
        cc: expected(of_few(CC.of(&parts), looked.n_blocks), cc_price, cc_known, unseen),
        is_same,
        parts,
        doubts,
    }
}

/// The same for `n` blocks: how many of them are wrong varies as counts do, which shows where they are few.
fn of_few([expected, most]: [f64; 2], n: f64) -> [f64; 2] {
    /// So many deviations are exceeded in 5 of 100 cases.
    const DEVIATIONS: f64 = 1.645;
    [expected, (most + DEVIATIONS * (most / n.max(1.0)).sqrt()).min(1.0)]
}

/// Whether both builds have the same code at the same place, and the matching says so of every block.
fn is_same(old: &Program, new: &Program, matching: &Matching) -> bool {
    let code = |p: &'_ Program| -> Vec<_> {
        p.image.code_ranges().into_iter().map(|r| (p.image.bytes_in(&r).map(<[u8]>::to_vec), r)).collect()
    };
    let mut is_itself = vec![false; new.blocks.len()];
    for m in &matching.blocks {
        is_itself[m.new.index()] = true;
    }
    let all = old.blocks.len() == new.blocks.len() && is_itself.into_iter().all(|is| is);
    all && matching.blocks.iter().all(|m| m.old.0 == m.new.0 && !m.partial) && code(old) == code(new)
}

/// What is seen of a carried profile.
#[derive(Default)]
struct Looked {
    /// Executions of branches, each by its more frequent side.
    mass: f64,
    n_blocks: f64,
    /// Of the executions of branches, the share expected wrong because there are few samples.
    sparse: f64,
    /// Executions of branches, each by the square of its function's distrust; blocks likewise.
    distrusted: [f64; 2],
}

impl Looked {
    fn parts(&self, likeness: &Likeness) -> Parts {
        Parts {
            lost_share: 1.0 - likeness.carried_share,
            unsure_share: 1.0 - likeness.ran_share,
            distrusted_branch_share: self.distrusted[0] / self.mass.max(1.0),
            distrusted_block_share: self.distrusted[1] / self.n_blocks.max(1.0),
        }
    }
}

/// Looks through `profile`.
fn look(new: &Program, profile: &Profile, confidence: &BTreeMap<Va, f32>, per_sample: Option<f64>) -> Looked {
    let count = |b: BlockId| profile.blocks.get(&new.block(b).start).copied().unwrap_or(0);
    let mut looked = Looked::default();
    let (mut regrets, mut samples, mut once) = (0.0_f64, 0.0_f64, 0.0_f64);
    for f in new.func_ids().filter(|&f| new.function(f).origin != Origin::Plt) {
        let n_blocks = new.function(f).n_blocks() as f64;
        looked.n_blocks += n_blocks;
        let ran = new.function(f).block_ids().filter(|&b| count(b) > 0);
        let sure: Vec<f64> =
            ran.map(|b| f64::from(confidence.get(&new.block(b).start).copied().unwrap_or(0.0))).collect();
        if sure.is_empty() {
            continue;
        }
        let distrust = (1.0 - sure.iter().sum::<f64>() / sure.len() as f64).max(0.0).powi(2);
        looked.distrusted[1] += n_blocks * distrust;
        for sides in new.function(f).block_ids().filter_map(|b| branch_sides(new, b)) {
            let [x, y] = sides.map(|e| {
                let edge = &new.edges[e];
                let at = profile::Edge { from: new.block(edge.from).start, to: new.block(edge.to).start };
                profile.edges.get(&at).copied().unwrap_or(0) as f64
            });
            looked.mass += x.max(y);
            looked.distrusted[0] += x.max(y) * distrust;
            if let Some(per_sample) = per_sample {
                let [x, y] = [x / per_sample, y / per_sample];
                regrets += regret(x.min(y), x.max(y)) * per_sample;
                samples += x + y;
                once += f64::from(u8::from(x + y > 0.0 && x + y <= 1.5));
            }
        }
    }
    let unseen = if samples > 0.0 { once / samples } else { 0.0 };
    // Who knows nothing at all loses no more.
    looked.sparse = (regrets / looked.mass.max(1.0) + BLIND * unseen).min(BLIND);
    looked
}

/// Samples that a branch is expected to lose, seen `few` times on one side and `many` on the other, because
/// the sides may truly be the other way round: the mean of the difference's negative part.
fn regret(few: f64, many: f64) -> f64 {
    let sd = (few + many + 1.0).sqrt();
    let z = (many - few) / sd;
    // Mean of the negative part of a normal number around z: its density at z less z times its tail; beyond
    // six deviations that is nothing.
    if z > 6.0 {
        return 0.0;
    }
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    // Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.16: the tail to 1e-5.
    let t = 1.0 / (1.0 + 0.332_67 * z);
    let tail = density * t * (0.436_183_6 + t * (-0.120_167_6 + t * 0.937_298));
    (sd * (density - z * tail)).clamp(0.0, many)
}

/// The share that half of the samples would not have seen, of the old build's blocks, and of those that were
/// seen.
fn halving(old: &OldBuild<'_>, per_sample: f64) -> (f64, f64) {
    let times = old.measured.times(old.program);
    let lost: f64 = times.iter().filter(|&&c| c > 0).map(|&c| 0.5_f64.powf(c as f64 / per_sample)).sum();
    let n_seen = times.iter().filter(|&&c| c > 0).count();
    (lost / times.len().max(1) as f64, lost / n_seen.max(1) as f64)
}

/// Functions of the old build that ran, and of whose inside the profile says nothing.
#[derive(Default)]
struct Missing {
    n_functions: usize,
    /// Executions of branches expected in them.
    branches: f64,
    /// Blocks expected to have run in them.
    blocks: f64,
}

/// Where counts are samples, calls are taken from what was seen: inference balances samples through code that
/// never ran.
fn silence(old: &OldBuild<'_>, sampled: bool) -> Silence {
    let seen = if sampled { old.measured.times(old.program) } else { Vec::new() };
    let times = if sampled { &seen } else { &old.counts.blocks };
    let entered = |f: FuncId| {
        let known = old.counts.known[f.index()] == Knowledge::Entered;
        old.program.entry_block(f).filter(|_| known).map_or(0, |b| old.counts.enter[b.index()])
    };
    Silence::of(old.program, old.measured, old.calling, times, entered)
}

/// Prices the silent functions, where branches ran `mass` times in those that are not.
fn missing(old: &OldBuild<'_>, silence: &Silence, mass: f64) -> Missing {
    let p = old.program;
    // How much of a function that ran runs, by those whose inside is known.
    let (mut n, mut n_ran) = (0_usize, 0_usize);
    for f in p.func_ids().filter(|f| old.counts.known[f.index()] == Knowledge::Inside) {
        let ran = p.function(f).block_ids().filter(|b| old.counts.blocks[b.index()] > 0).count();
        if ran > 0 {
            (n, n_ran) = (n + p.function(f).n_blocks(), n_ran + ran);
        }
    }
    let runs = if n > 0 { n_ran as f64 / n as f64 } else { 0.5 };
    let mut missing = Missing::default();
    for (&f, &count) in &silence.functions {
        let function = p.function(f);
        let mut problem = Problem::of(p, f, 50);
        let first = function.blocks.start;
        if let Some(entry) = p.entry_block(f) {
            problem.enter[(entry.0 - first) as usize] =
                Some(Estimate { count, raise: 50, lower: 100, keep: true });
        }
        static_prediction::fill(p, f, &mut problem);
        let inferred = problem.solve(WORK);
        let first_edge = p.edge_range(f).start;
        let sides = function.block_ids().filter_map(|b| branch_sides(p, b));
        let ran = |e: usize| inferred.edges.get(e - first_edge).copied().unwrap_or(0) as f64;
        missing.n_functions += 1;
        missing.branches += sides.map(|[a, b]| ran(a).max(ran(b))).sum::<f64>();
        missing.blocks += runs * function.n_blocks() as f64;
    }
    // Static prediction does not know how often loops run: twice as much a call as in other functions is
    // enough.
    missing.branches = missing.branches.min(2.0 * mass * silence.call_share());
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surer_matches_are_never_worse_and_the_bound_is_no_better_than_what_is_expected() {
        let parts = |i: u8, j: u8| Parts {
            lost_share: f64::from(i) / 20.0,
            unsure_share: f64::from(j) / 20.0,
            distrusted_branch_share: f64::from(i) / 20.0,
            distrusted_block_share: f64::from(j) / 20.0,
        };
        for prices in [BP, CC] {
            assert_eq!(prices.of(&Parts::default()), [0.0, 0.0]);
            for (i, j) in (0..20).flat_map(|i| (0..20).map(move |j| (i, j))) {
                let now = prices.of(&parts(i, j));
                assert!(now[0] <= now[1] && now[1] <= 1.0, "{i} {j}: {now:?}");
                for later in [parts(i + 1, j), parts(i, j + 1)].map(|p| prices.of(&p)) {
                    assert!(later[0] >= now[0] && later[1] >= now[1], "{i} {j}: {now:?}, then {later:?}");
                }
            }
        }
    }

    /// Draws samples of branches whose true share is drawn too, and counts what following the majority loses.
    #[test]
    fn regret_is_what_following_the_majority_of_few_samples_costs() {
        let mut state = 1_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        for n in [8_u32, 30, 100] {
            let (mut lost, mut expected) = (0.0, 0.0);
            for _ in 0..4000 {
                let share = uniform();
                let x = (0..n).filter(|_| uniform() < share).count() as f64;
                let y = f64::from(n) - x;
                let wrong = (x >= y) != (share >= 0.5);
                lost += if wrong { (2.0 * share - 1.0).abs() * f64::from(n) } else { 0.0 };
                expected += regret(x.min(y), x.max(y));
            }
            let ratio = expected / lost;
            assert!((0.5..2.0).contains(&ratio), "{n}: expected {expected}, lost {lost}");
        }
    }
}
