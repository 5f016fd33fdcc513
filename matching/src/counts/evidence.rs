//! What a profile's own counts say of it: whether every execution was counted, and if not, how many a sample
//! stands for.
//!
//! What enters a block leaves it. Counts of every execution keep that to the last one; samples keep it only
//! on average, and by how much they miss says how many there were. So a file need not be believed when it
//! claims to be exact.
//!
//! Invariant: looks at counts only, never at where they come from; no checks possible is not exact.
//!
//! Source: for samples drawn independently, each standing for T executions, the variance of (in − out) is T
//! (in + out). Not here: making counts consistent (`infer`).

use crate::counts::Measured;
use crate::counts::bolt;
use crate::counts::branches::branch_sides;
use profile::Profile;
use program::{BlockEnd, BlockId, CallKind, Callee, FuncId, Origin, Program, Va};
use std::collections::{BTreeMap, BTreeSet};

/// A block where what enters does not equal what leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inconsistency {
    /// Its start.
    pub at: Va,
    /// Executions that enter it.
    pub into: u64,
    /// Executions that leave it.
    pub out: u64,
}

/// How well a profile's counts keep the flow.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Consistency {
    /// Blocks of which all that enters and leaves is known.
    pub n_checked: usize,
    /// Those that do not keep the flow, by address.
    pub inconsistencies: Vec<Inconsistency>,
    /// Of those checked, the blocks that ran often enough for samples of their flow to agree by a quarter.
    pub n_heavy: usize,
    /// Of those, the blocks that do not.
    pub n_torn: usize,
    /// Executions that one sample stands for, as the imbalances have it; 1 at least.
    pub executions_per_sample: f64,
}

/// In and out together of a block that ran often: samples of 100 and 100 differ by 14 as a rule, and hardly
/// ever by 50.
const HEAVY: u64 = 200;
/// Of a hundred blocks that ran often, so many may be torn.
const TORN_PERCENT: usize = 6;
/// Of a hundred blocks, so many may leak in counts of every execution: calls that end the run or jump out.
const LEAKS_PERCENT: usize = 4;

impl Consistency {
    /// Whether every execution was counted, as far as the counts can tell.
    pub fn is_exact(&self) -> bool {
        self.n_checked > 0 && self.inconsistencies.len() * 100 <= self.n_checked * LEAKS_PERCENT
    }

    /// Whether the counts contradict each other by more than sampling explains: records are missing, or it is
    /// another build's.
    pub fn is_torn(&self) -> bool {
        self.n_torn * 100 > self.n_heavy * TORN_PERCENT && self.n_torn * 100 > self.n_checked
    }

    /// Checks the counts of `measured`.
    pub fn of(program: &Program, measured: &Measured) -> Consistency {
        let mut found = Consistency::default();
        let mut ratios: Vec<f64> = Vec::new();
        let n_into = {
            let mut n = vec![0_u32; program.blocks.len()];
            for e in &program.edges {
                n[e.to.index()] += 1;
            }
            n
        };
        let mut into = vec![0_u64; program.blocks.len()];
        for (e, count) in program.edges.iter().zip(&measured.edges) {
            into[e.to.index()] = into[e.to.index()].saturating_add(count.unwrap_or(0));
        }
        // A source that counts blocks knows few edges, and those in passing.
        let ran = |table: &[Option<u64>]| table.iter().filter(|c| c.is_some_and(|c| c > 0)).count();
        let by_edges = ran(&measured.edges) * 2 > ran(&measured.blocks);
        let inside = |f| program.edge_range(f).any(|e| measured.edges[e].is_some_and(|c| c > 0));
        for f in program.func_ids().filter(|&f| program.function(f).complete && (!by_edges || inside(f))) {
            let function = program.function(f);
            let from_outside = |b: BlockId| {
                let block = program.block(b);
                block.start == function.entry || block.landing_pad || function.entries.contains(&b)
            };
            for b in function.block_ids() {
                let after = program.successors(b);
                let tail = program.calls_in(b).iter().any(|c| c.kind != CallKind::Call);
                if after.is_empty() || tail {
                    continue;
                }
                let (enters, leaves) = if by_edges {
                    if from_outside(b) || n_into[b.index()] == 0 {
                        continue;
                    }
                    let out = sum(program.edge_ids(b).map(|e| measured.edges[e.index()]));
                    (into[b.index()], out)
                } else {
                    // Counts of blocks alone: one that alone leads to those behind it.
                    let alone = |to: BlockId| n_into[to.index()] == 1 && !from_outside(to) && to != b;
                    let (Some(here), true) = (measured.blocks[b.index()], after.iter().all(|e| alone(e.to)))
                    else {
                        continue;
                    };
                    (here, sum(after.iter().map(|e| measured.blocks[e.to.index()])))
                };
                let both: u64 = enters.saturating_add(leaves);
                if both == 0 {
                    continue;
                }
                found.n_checked += 1;
                let off = enters.abs_diff(leaves);
                ratios.push(off as f64 * off as f64 / both as f64);
                if both >= HEAVY {
                    found.n_heavy += 1;
                    found.n_torn += usize::from(off > both / 4);
                }
                // Counts added up from several runs, and scaled, may be off by rounding alone.
                if off > both / 10_000 {
                    found.inconsistencies.push(Inconsistency {
                        at: program.block(b).start,
                        into: enters,
                        out: leaves,
                    });
                }
            }
        }
        found.executions_per_sample = per_sample(&mut ratios);
        found
    }
}

/// Functions that were called, and of whose inside a profile says nothing though it could.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Silence {
    /// They, and how often each was called.
    pub functions: BTreeMap<FuncId, u64>,
    /// Functions that ran, they among them.
    pub n_ran: usize,
    /// Calls of all functions.
    pub n_calls: u64,
}

impl Silence {
    /// Finds them. `times` are executions by block, `entered` is what the profile says of a function's entry.
    pub fn of(
        program: &Program,
        measured: &Measured,
        calling: &BTreeSet<FuncId>,
        times: &[u64],
        entered: impl Fn(FuncId) -> u64,
    ) -> Silence {
        let mut called: BTreeMap<FuncId, u64> = BTreeMap::new();
        for call in &program.calls {
            let Callee::Function(f) = call.callee else { continue };
            // What is reached by a conditional jump is not known from its block.
            if call.kind != CallKind::BranchTailCall && program.block(call.block).func != f {
                let count = called.entry(f).or_default();
                *count = count.saturating_add(times[call.block.index()]);
            }
        }
        let mut silence = Silence::default();
        for f in program.func_ids().filter(|&f| program.function(f).origin != Origin::Plt) {
            let count = called.get(&f).copied().unwrap_or(0).max(entered(f));
            let ran = program.function(f).block_ids().any(|b| times[b.index()] > 0);
            silence.n_ran += usize::from(ran || count > 0);
            silence.n_calls = silence.n_calls.saturating_add(count);
            let known = inside(program, measured, f) || calling.contains(&f);
            if count > 0 && !known && is_countable(program, f) {
                silence.functions.insert(f, count);
            }
        }
        silence
    }

    /// Their share of all calls.
    pub fn call_share(&self) -> f64 {
        self.share_of(self.functions.values())
    }

    /// Whether they are more than the few that any tool leaves alone: records are missing.
    ///
    /// Where counts are samples, each of `per_sample` executions, a function that was seldom called is silent
    /// by chance.
    pub fn is_notable(&self, per_sample: Option<f64>) -> bool {
        let chance = per_sample.map_or(0.0, |t| t * BY_CHANCE);
        let silent = || self.functions.values().filter(|&&c| c as f64 > chance);
        silent().count() * 100 > self.n_ran * SILENT_PERCENT
            || self.share_of(silent()) * 100.0 > SILENT_CALLS_PERCENT
    }

    fn share_of<'a>(&self, calls: impl Iterator<Item = &'a u64>) -> f64 {
        calls.map(|&c| c as f64).sum::<f64>() / (self.n_calls as f64).max(1.0)
    }
}

/// Of a hundred functions that ran, so many may be silent.
const SILENT_PERCENT: usize = 1;
/// Of a hundred calls, so many may be of silent functions.
const SILENT_CALLS_PERCENT: f64 = 1.0;
/// A function of so many samples may have none inside: it branches once a call at least, so that happens to
/// one in a hundred and fifty (e⁻⁵).
const BY_CHANCE: f64 = 5.0;

/// Whether a profile may be expected to know the inside of `func`. What llvm-bolt makes no graph of, tables
/// above all, has no counts in any profile of its making, a fresh one neither; nor has what never returns,
/// but jumps out or ends the run.
fn is_countable(program: &Program, func: FuncId) -> bool {
    let blocks = || program.function(func).block_ids();
    let table = blocks().any(|b| program.block(b).end == BlockEnd::Switch);
    let returns = program.function(func).returns;
    returns
        && !table
        && bolt::understands(program, func)
        && blocks().any(|b| branch_sides(program, b).is_some())
}

/// Whether anything is known of the inside of `func`, not only that it was entered.
pub(crate) fn inside(program: &Program, measured: &Measured, func: FuncId) -> bool {
    let edges = program.edge_range(func);
    let ran = |count: &Option<u64>| count.is_some_and(|c| c > 0);
    let entry = program.entry_block(func);
    let behind = program.function(func).block_ids().filter(|b| Some(*b) != entry);
    edges.is_empty()
        || edges.into_iter().any(|e| ran(&measured.edges[e]))
        || behind.into_iter().any(|b| ran(&measured.blocks[b.index()]))
}

/// The functions that `profile` has calls from: their inside was seen, even if control left it by the first
/// block.
pub(crate) fn calling(program: &Program, profile: &Profile) -> BTreeSet<FuncId> {
    let at = profile.calls.keys().map(|(at, _)| *at).chain(profile.calls_out.keys().copied());
    at.filter_map(|at| program.function_at(at)).collect()
}

/// What is known of counts, added up: those of a damaged file may be anything.
fn sum(counts: impl Iterator<Item = Option<u64>>) -> u64 {
    counts.flatten().fold(0, u64::saturating_add)
}

/// Estimates T from (in − out)² / (in + out), whose mean it is. By the median: a few blocks that leak do not
/// move it.
fn per_sample(ratios: &mut [f64]) -> f64 {
    /// The median of the square of a standard normal number.
    const MEDIAN: f64 = 0.455;
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).map_or(1.0, |median| (median / MEDIAN).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{function, loops_and_calls, thinned, walked};

    #[test]
    fn counts_beyond_all_bounds_add_up_to_the_largest() {
        assert_eq!(sum([Some(u64::MAX), None, Some(1)].into_iter()), u64::MAX);
        assert_eq!(sum([Some(2), None, Some(1)].into_iter()), 3);
    }

    fn consistency(p: &Program, profile: &Profile) -> Consistency {
        Consistency::of(p, &Measured::of(p, profile))
    }

    #[test]
    fn counts_of_walks_are_exact_and_samples_of_them_are_not() {
        let p = loops_and_calls();
        let truth = walked(&p, 1);
        let exact = consistency(&p, &truth);
        assert!(exact.is_exact() && !exact.is_torn() && exact.inconsistencies.is_empty(), "{exact:?}");
        let samples = consistency(&p, &thinned(&p, &truth, 10));
        assert!(!samples.is_exact() && !samples.is_torn(), "{samples:?}");
        assert!(!Consistency::default().is_exact(), "nothing checked");
    }

    #[test]
    fn executions_a_sample_stands_for_are_read_off_the_counts() {
        let p = loops_and_calls();
        for times in [1, 16, 100] {
            let mut samples = thinned(&p, &walked(&p, 1), 4);
            samples.edges.values_mut().for_each(|c| *c *= times);
            let got = consistency(&p, &samples).executions_per_sample;
            let want = times as f64;
            assert!(got >= want / 4.0 && got <= want * 4.0, "{got} for {want}");
        }
    }

    #[test]
    fn missing_records_tear_the_flow() {
        let p = loops_and_calls();
        let mut profile = walked(&p, 1);
        let mut i = 0;
        profile.edges.retain(|_, _| {
            i += 1;
            i % 2 == 0
        });
        let torn = consistency(&p, &profile);
        assert!(torn.is_torn() && !torn.is_exact(), "{torn:?}");
    }

    fn silence(p: &Program, profile: &Profile) -> Silence {
        let measured = Measured::of(p, profile);
        Silence::of(p, &measured, &calling(p, profile), &measured.times(p), |_| 0)
    }

    #[test]
    fn a_function_called_and_without_counts_is_silent() {
        let p = loops_and_calls();
        let mut profile = walked(&p, 1);
        assert!(silence(&p, &profile).functions.is_empty());
        let pick = function(&p, "pick");
        let inside = |at: Va| p.function_at(at) == Some(pick);
        profile.blocks.retain(|&at, _| !inside(at));
        profile.entries.retain(|&at, _| !inside(at));
        profile.edges.retain(|e, _| !inside(e.from));
        let found = silence(&p, &profile);
        assert_eq!(found.functions, BTreeMap::from([(pick, 400)]));
        // It and `sum` are called 400 times each.
        assert!((found.call_share() - 0.5).abs() < 1e-9, "{found:?}");
        assert_eq!(found.n_ran, 3);
    }

    #[test]
    fn few_silent_functions_called_seldom_are_not_notable() {
        let of = |n_silent: u32, calls_of_each: u64, n_ran: usize, n_calls: u64| {
            let functions = (0..n_silent).map(|f| (FuncId(f), calls_of_each)).collect();
            Silence { functions, n_ran, n_calls }
        };
        let check = |n_silent: u32, calls_of_each: u64, n_ran: usize, n_calls: u64, expect: bool| {
            let silence = of(n_silent, calls_of_each, n_ran, n_calls);
            assert_eq!(silence.is_notable(None), expect, "{silence:?}");
        };
        check(0, 0, 0, 0, false);
        check(1, 10, 100, 1000, false);
        check(2, 1, 100, 1000, true);
        check(1, 11, 100, 1000, true);
        check(1, 11, 1000, 1000, true);
        // Samples: many functions of few samples each say nothing, of many samples they do.
        let sampled = |calls_of_each: u64, per_sample: f64, expect: bool| {
            let silence = of(40, calls_of_each, 100, 1000);
            assert_eq!(silence.is_notable(Some(per_sample)), expect, "{silence:?} {per_sample}");
        };
        sampled(5, 1.0, false);
        sampled(6, 1.0, true);
        sampled(500, 100.0, false);
        sampled(501, 100.0, true);
    }
}
