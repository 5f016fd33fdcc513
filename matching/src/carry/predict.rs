//! How good a carried profile will turn out, said without a fresh one; or why nothing can be said.
//!
//! Four things make a carried profile wrong, and each has its price in B.P. and C.C.: a match is wrong or the
//! code behaves otherwise (by how sure the match is), the old profile is made of samples (by how few there
//! are), functions ran of which it does not know the inside (by what they are expected to run), and its
//! counts contradict each other. The last one has no price: then nothing is said. Nor is anything said if a
//! price is so high that it is itself a guess, or if the builds have so little in common that the prices,
//! which were measured on releases of one program, say nothing of them.
//!
//! Invariant: surer matches, more samples and more functions known never make the prediction worse.
//!
//! Source: ours; BMAT has no such prediction. What samples have not seen: Good, "The population frequencies
//! of species", Biometrika 1953. The measures themselves: `score`; `examples/calibrate.rs` measures the
//! table.

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

/// Up to this confidence; of a branch's executions there, the share that goes wrong beyond what a fresh
/// profile gets wrong; of blocks of functions that ran, the share whose "was executed" differs.
///
/// Pooled over the eight pairs of releases of lua, sqlite, ripgrep, qjs and zstd, few classes so that each
/// has thousands of blocks of several programs, neighbours that were out of order joined.
const CLASSES: [(f32, f64, f64); 4] =
    [(0.05, 0.45, 0.36), (0.5, 0.18, 0.26), (0.95, 0.022, 0.10), (1.0, 0.002, 0.004)];
/// Blocks of functions that did not run, or that only the new build has: the share that runs after all.
const WAKES: f64 = 0.003;
/// The more of a program changed, the more often what stayed behaves otherwise: so much for all of it.
const DRIFT: f64 = 0.04;
/// Executions of a branch of which nothing is known, and that is predicted taken.
const BLIND: f64 = 0.5;
/// A price above this is too rough to be subtracted.
const TOO_DEAR: f64 = 0.01;
/// Samples may have to double so often until every block is seen: from a thousandth of the executions to all.
const DOUBLINGS: f64 = 10.0;

/// Of two releases of one program, no less than 94, 67 and 70 of a hundred were ever matched; of one source
/// built with `-O2` and `-Os`, or by gcc and clang, at most 92, 59 and 61. The table above is of the former.
const CARRIED: f64 = 0.9;
/// Likewise, of blocks of functions that ran.
const RAN: f64 = 0.63;
/// Likewise, of all blocks.
const MATCHED: f64 = 0.5;

/// How much two builds have in common; a share of nothing is all of it.
struct Likeness {
    carried_share: f64,
    ran_share: f64,
    matched_share: f64,
}

impl Likeness {
    fn of(old: &OldBuild<'_>, new: &Program, matching: &Matching, profile: &Profile) -> Likeness {
        let [sure, rather] = [CLASSES[2].0, CLASSES[1].0];
        let mut carries = vec![false; old.program.blocks.len()];
        let mut is_sure = vec![false; new.blocks.len()];
        for m in &matching.blocks {
            carries[m.old.index()] |= m.confidence > rather;
            is_sure[m.new.index()] |= m.confidence > sure;
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

fn class(confidence: f32) -> (f64, f64) {
    let of = CLASSES.iter().find(|c| confidence <= c.0).or(CLASSES.last());
    of.map_or((0.0, 0.0), |c| (c.1, c.2))
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
    if !likeness.is_enough() {
        let Likeness { carried_share, ran_share, matched_share } = likeness;
        let none = Expected { share: None, at_most: 1.0 };
        let doubts = vec![Doubt::Unlike { carried_share, ran_share, matched_share }];
        return Prediction { bp: none, cc: none, doubts };
    }
    let evidence = Consistency::of(old.program, old.measured);
    let per_sample = (!evidence.is_exact()).then_some(evidence.executions_per_sample);
    let (bp, cc, mass, n) = by_confidence(new, profile, confidence, per_sample);
    let mut doubts = Vec::new();
    let (mut bp_price, mut cc_price) = (bp.sparse, 0.0);
    let (mut bp_known, mut cc_known) = (mass > 0.0, true);
    let mut unseen = 0.0;
    let mut of_seen = 0.0;
    if mass == 0.0 {
        doubts.push(Doubt::NoBranches);
    }
    if evidence.is_torn() {
        doubts.push(Doubt::Inconsistent { n_checked: evidence.n_heavy, n_torn: evidence.n_torn });
        (bp_known, cc_known) = (false, false);
    } else if let Some(per_sample) = per_sample {
        (unseen, of_seen) = halving(old, per_sample);
        bp_known &= bp.sparse <= TOO_DEAR;
        cc_price += unseen * DOUBLINGS / 2.0;
        doubts.push(Doubt::Sampled { unseen_share: unseen, bp_share: bp.sparse });
    }
    let silence = silence(old, per_sample.is_some());
    let missing = missing(old, &silence, mass);
    if missing.n_functions > 0 {
        let branch_share = missing.branches / (mass + missing.branches).max(1.0);
        let block_share = missing.blocks / n.max(1.0);
        // A few that the tool left alone have a price; many are records that are missing.
        bp_price += BLIND * branch_share;
        cc_price += block_share;
        let notable = silence.is_notable(per_sample);
        bp_known &= !notable;
        cc_known &= !notable;
        doubts.push(Doubt::NotInside { n_functions: missing.n_functions, branch_share, block_share });
    }
    cc_known &= cc_price <= TOO_DEAR && of_seen * DOUBLINGS / 2.0 <= TOO_DEAR;
    let expected = |wrong: f64, price: f64, known: bool, sure_price: f64| Expected {
        share: known.then_some((1.0 - wrong - price).max(0.0)),
        at_most: (1.0 - wrong - sure_price).max(0.0),
    };
    Prediction {
        bp: expected(bp.wrong, bp_price, bp_known, 0.0),
        cc: expected(cc, cc_price, cc_known, unseen),
        doubts,
    }
}

/// Shares of branch executions.
#[derive(Default)]
struct Branches {
    /// Wrong because the match is, or the code behaves otherwise.
    wrong: f64,
    /// Wrong because there are few samples.
    sparse: f64,
}

/// Prices of matches and of samples in B.P., of matches in C.C.; executions of branches, and blocks.
fn by_confidence(
    new: &Program,
    profile: &Profile,
    confidence: &BTreeMap<Va, f32>,
    per_sample: Option<f64>,
) -> (Branches, f64, f64, f64) {
    let sure = |b: BlockId| confidence.get(&new.block(b).start).copied().unwrap_or(0.0);
    let count = |b: BlockId| profile.blocks.get(&new.block(b).start).copied().unwrap_or(0);
    let (mut mass, mut wrong, mut regrets) = (0.0_f64, 0.0_f64, 0.0_f64);
    let (mut n, mut differ, mut n_ran, mut changed) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
    let (mut samples, mut once) = (0.0_f64, 0.0_f64);
    for f in new.func_ids().filter(|&f| new.function(f).origin != Origin::Plt) {
        let ran = new.function(f).block_ids().any(|b| count(b) > 0);
        for b in new.function(f).block_ids() {
            n += 1.0;
            if ran {
                let (_, differs) = class(sure(b));
                differ += differs;
                n_ran += 1.0;
                changed += f64::from(u8::from(sure(b) <= CLASSES[2].0));
            } else {
                differ += WAKES;
            }
            let Some(sides) = branch_sides(new, b) else { continue };
            let mut counts = [0.0_f64; 2];
            let mut least_sure = sure(b);
            for (count, e) in counts.iter_mut().zip(sides) {
                let to = new.edges[e].to;
                let at = profile::Edge { from: new.block(b).start, to: new.block(to).start };
                *count = profile.edges.get(&at).copied().unwrap_or(0) as f64;
                least_sure = least_sure.min(sure(to));
            }
            let most = counts[0].max(counts[1]);
            mass += most;
            wrong += most * class(least_sure).0;
            if let Some(per_sample) = per_sample {
                let [x, y] = counts.map(|c| c / per_sample);
                regrets += regret(x.min(y), x.max(y)) * per_sample;
                samples += x + y;
                once += f64::from(u8::from(x + y > 0.0 && x + y <= 1.5));
            }
        }
    }
    let drift = if n_ran > 0.0 { DRIFT * changed / n_ran } else { 0.0 };
    let of_mass = |x: f64| if mass > 0.0 { x / mass } else { 0.0 };
    let unseen = if samples > 0.0 { once / samples } else { 0.0 };
    // Who knows nothing at all loses no more.
    let sparse = (of_mass(regrets) + BLIND * unseen).min(BLIND);
    let branches = Branches { wrong: of_mass(wrong), sparse };
    let cc = if n > 0.0 { (differ + drift * (n - changed)) / n } else { 0.0 };
    (branches, cc, mass, n)
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
    fn surer_matches_are_never_worse() {
        let mut last = (1.0, 1.0);
        for i in 0..=100_u8 {
            let now = class(f32::from(i) / 100.0);
            assert!(now.0 <= last.0 && now.1 <= last.1, "{i}: {now:?} after {last:?}");
            last = now;
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
