//! A carried and a fresh profile of one build, made into one.
//!
//! Whether the fresh profile counted every execution is read off its counts, not off what it claims
//! (`evidence`). If it did, it is right wherever it speaks, and the carried one stands in for functions that
//! it saw called but not inside. If it is made of samples, the carried profile is what is believed before
//! anything was seen: a block's count is a gamma prior around the carried count, updated by its samples; the
//! way out of a block is a Dirichlet prior around the carried one. Where there are few samples the carried
//! profile decides, and where there are many the fresh one does. A function that they say nothing of keeps
//! its carried counts as they are, but for their scale. A block that one of them saw run ran: too few samples
//! say nothing of where control never was. And what contradicts itself, because records are missing, is asked
//! only about functions that the carried profile does not know.
//!
//! Invariant: with nothing fresh the carried profile comes out; every function's counts are a flow; a block
//! that the fresh profile saw has a count.
//!
//! Source: Gelman et al., Bayesian Data Analysis, 2.6 (gamma and Poisson) and 3.4 (Dirichlet and
//! multinomial). Not here: inference (`infer`).

use crate::carry::infer::{Estimate, Inferred, Problem};
use crate::carry::{Calls, Complete, Knowledge, MOST, WORK, complete, write};
use crate::counts::Measured;
use crate::counts::evidence::{Consistency, Silence, calling, inside};
use profile::{Exactness, Profile};
use program::{Callee, FuncId, Program, Va};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// How much the carried profile counts for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MergeOptions {
    /// Age of the carried profile in releases: each halves its weight.
    pub age_releases: f64,
    /// How many samples of a branch weigh as much as a carried profile of age 0.
    pub worth_samples: f64,
}

impl Default for MergeOptions {
    fn default() -> MergeOptions {
        MergeOptions { age_releases: 1.0, worth_samples: 16.0 }
    }
}

/// Both profiles by ids, and what one sample and one carried execution stand for.
struct BothProfiles<'a> {
    new: &'a Program,
    carried: Measured,
    carried_times: Vec<u64>,
    fresh: Measured,
    fresh_times: Vec<u64>,
    /// Samples expected for one carried execution.
    ratio: f64,
    /// Executions of the fresh profile's scale that one sample stands for.
    per_sample: f64,
    /// Counts of the result for one sample.
    scale: f64,
    worth: f64,
    /// The counts of the carried profile alone, made complete.
    carried_whole: Complete,
    /// The counts of the exact fresh profile alone, made complete.
    fresh_whole: Option<Complete>,
    torn: bool,
    /// Functions that `whole` is asked about first.
    exact: bool,
    /// Functions that the fresh profile has calls from.
    calling: BTreeSet<FuncId>,
}

/// Combines two profiles of `new`. The scale of the result is that of the more plentiful one.
pub fn merge(new: &Program, carried: &Profile, fresh: &Profile, options: &MergeOptions) -> Profile {
    let (carried, fresh) = (&*carried.at_most(MOST), &*fresh.at_most(MOST));
    let f = Measured::of(new, fresh);
    let evidence = Consistency::of(new, &f);
    let exact = fresh.exactness == Exactness::Exact && evidence.is_exact();
    let c = Measured::of(new, carried);
    let (carried_times, fresh_times) = (c.times(new), f.times(new));
    // Both sums over the functions that the fresh profile saw: that is where the two can be compared.
    let (mut sum_c, mut sum_f) = (0.0_f64, 0.0_f64);
    for func in new.func_ids() {
        let sum =
            |times: &[u64]| new.function(func).block_ids().map(|b| times[b.index()] as f64).sum::<f64>();
        let seen = sum(&fresh_times);
        if seen > 0.0 && inside(new, &f, func) {
            sum_f += seen;
            sum_c += sum(&carried_times);
        }
    }
    if fresh_times.iter().all(|&n| n == 0) {
        return carried.clone();
    }
    let per_sample = if exact { 1.0 } else { evidence.executions_per_sample };
    let ratio = if sum_c > 0.0 && sum_f > 0.0 { sum_f / per_sample / sum_c } else { 1.0 };
    let torn = evidence.is_torn() && !exact;
    let scale = match (exact, torn) {
        (true, _) => 1.0,
        (_, true) => 1.0 / ratio,
        _ => (1.0 / ratio).max(per_sample),
    };
    let worth = options.worth_samples * 0.5_f64.powf(options.age_releases);
    let carried_whole = complete(new, carried, &c);
    let fresh_whole = exact.then(|| complete(new, fresh, &f));
    let both = BothProfiles {
        new,
        carried: c,
        carried_times,
        fresh: f,
        fresh_times,
        ratio,
        per_sample,
        scale,
        worth,
        carried_whole,
        fresh_whole,
        torn,
        exact,
        calling: calling(new, fresh),
    };
    let called = both.called();
    // Many were called, and nothing is known of their inside: records are missing, so absence says nothing.
    let holes = Silence::of(new, &both.fresh, &both.calling, &both.fresh_times, |f| called[f.index()]);
    let holes = holes.is_notable(None);
    let solved: Vec<(Knowledge, Option<Inferred>)> = (0..new.functions.len())
        .into_par_iter()
        .map(|i| both.function(FuncId::at(i), called[i], holes))
        .collect();
    let mut all = match (&both.fresh_whole, torn) {
        (Some(fresh), _) => fresh.clone(),
        (None, true) => both.carried_whole.clone(),
        (None, false) => Complete::none(new),
    };
    for (i, (known, inferred)) in solved.into_iter().enumerate() {
        all.known[i] = known;
        if let Some(inferred) = inferred {
            all.put(new, FuncId::at(i), &inferred);
        }
    }
    let mut calls = Calls::like(new, carried, fresh);
    calls.count(new, &all);
    let mut merged = write(new, &all, calls);
    if exact {
        both.as_counted(fresh, holes, &mut merged);
    }
    mispredict(&mut merged, [fresh, carried]);
    merged.exactness = if exact { Exactness::Exact } else { Exactness::Inferred };
    merged
}

/// Has branches of `merged` mispredicted as often as the first of `profiles` says that saw them.
fn mispredict(merged: &mut Profile, profiles: [&Profile; 2]) {
    for profile in profiles {
        for (edge, &misses) in &profile.mispredicts {
            let (Some(&was), Some(&is)) = (profile.edges.get(edge), merged.edges.get(edge)) else { continue };
            let rate = misses as f64 / was.max(1) as f64;
            merged.mispredicts.entry(*edge).or_insert(profile::scaled(is, rate.min(1.0)));
        }
    }
}

impl BothProfiles<'_> {
    /// By function: how often the fresh profile saw it called or entered.
    fn called(&self) -> Vec<u64> {
        let mut called = vec![0_u64; self.new.functions.len()];
        for call in self.new.calls.iter().filter(|c| c.kind == program::CallKind::Call) {
            if let Callee::Function(f) = call.callee {
                called[f.index()] = called[f.index()].saturating_add(self.fresh_times[call.block.index()]);
            }
        }
        for (f, called) in self.new.func_ids().zip(&mut called) {
            let entered = self.new.entry_block(f).and_then(|b| self.fresh.entries[b.index()]);
            *called = (*called).max(entered.unwrap_or(0));
        }
        called
    }

    /// Whether the carried profile has counts of its inside, and the fresh one none.
    fn only_carried(&self, func: FuncId) -> bool {
        let ran = self.new.function(func).block_ids().any(|b| self.carried_times[b.index()] > 0);
        ran && inside(self.new, &self.carried, func) && !self.seen_inside(func)
    }

    fn seen_inside(&self, func: FuncId) -> bool {
        let mut blocks = self.new.function(func).block_ids();
        let inside = inside(self.new, &self.fresh, func) || self.calling.contains(&func);
        inside && blocks.any(|b| self.fresh_times[b.index()] > 0)
    }

    /// Puts counts of every execution back as they were counted: inference moves what control leaks, and a
    /// call that was not counted would be one to a function that never ran.
    fn as_counted(&self, fresh: &Profile, holes: bool, merged: &mut Profile) {
        if !fresh.calls.is_empty() || !fresh.calls_out.is_empty() {
            let seen =
                |at: Va| self.new.block_at(at).is_some_and(|b| self.seen_inside(self.new.block(b).func));
            merged.calls.retain(|&(at, _), _| !seen(at));
            merged.calls.extend(fresh.calls.iter().filter(|((at, _), _)| seen(*at)));
            merged.calls_out.retain(|&at, _| !seen(at));
            merged.calls_out.extend(fresh.calls_out.iter().filter(|(at, _)| seen(**at)));
            if !holes {
                self.limit_calls(seen, merged);
            }
        }
        for func in self.new.func_ids().filter(|&f| self.seen_inside(f)) {
            for b in self.new.function(func).block_ids() {
                merged.blocks.insert(self.new.block(b).start, self.fresh_times[b.index()]);
                if let Some(count) = self.fresh.entries[b.index()] {
                    merged.entries.insert(self.new.block(b).start, count);
                }
                for e in self.new.edge_ids(b) {
                    let to = self.new.block(self.new.edge(e).to).start;
                    let edge = profile::Edge { from: self.new.block(b).start, to };
                    if let Some(count) = self.fresh.edges[e.index()] {
                        merged.edges.insert(edge, count);
                    }
                }
            }
        }
    }

    /// Calls from code that was not `seen` add up to no more than how often what they call was counted beyond
    /// other calls.
    fn limit_calls(&self, seen: impl Fn(Va) -> bool, merged: &mut Profile) {
        let mut sums: BTreeMap<Va, (u64, u64)> = BTreeMap::new();
        for (&(at, to), &count) in &merged.calls {
            let (known, other) = sums.entry(to).or_default();
            let sum = if seen(at) { known } else { other };
            *sum = sum.saturating_add(count);
        }
        let left = |to: Va, known: u64| {
            let func = self.new.function_from(to)?;
            let entered = self.new.entry_block(func).map_or(0, |b| self.fresh_times[b.index()]);
            (!self.only_carried(func)).then(|| entered.saturating_sub(known))
        };
        merged.calls.retain(|&(at, to), count| {
            let (known, other) = sums[&to];
            if let Some(left) = left(to, known).filter(|&left| left < other && !seen(at)) {
                *count = profile::scaled(*count, left as f64 / other as f64);
            }
            *count > 0
        });
    }

    /// What is believed of one function. `None`: what `whole` has, or nothing.
    fn function(&self, func: FuncId, called: u64, holes: bool) -> (Knowledge, Option<Inferred>) {
        let blocks = || self.new.function(func).block_ids();
        let carried = blocks().any(|b| self.carried.blocks[b.index()].is_some()) || {
            let mut edges = self.new.edge_range(func);
            edges.any(|e| self.carried.edges[e].is_some())
        };
        let seen_inside = self.seen_inside(func);
        let entered = || {
            let some = |m: &Measured, b: program::BlockId| m.entries[b.index()].is_some_and(|c| c > 0);
            blocks().any(|b| some(&self.carried, b) || some(&self.fresh, b))
        };
        let alone = if self.torn { Some(&self.carried_whole) } else { self.fresh_whole.as_ref() };
        if let Some(whole) = alone {
            let mine = if self.exact {
                !((called > 0 || holes) && self.only_carried(func))
            } else {
                carried || !seen_inside
            };
            if mine {
                let known = whole.known[func.index()];
                // Calls alone have made it known: the calls are kept, and say as much.
                let called = known == Knowledge::Entered && !entered();
                return (if called { Knowledge::Nothing } else { known }, None);
            }
        }
        match (carried, seen_inside) {
            (false, false) if entered() => (Knowledge::Entered, Some(self.entered(func))),
            (false, false) => (Knowledge::Nothing, None),
            (true, false) => (Knowledge::Inside, Some(self.as_carried(func, called))),
            (_, true) => (Knowledge::Inside, Some(self.solve(func))),
        }
    }

    /// Nothing was seen inside: the carried counts, as often as the function was called if that is known.
    fn as_carried(&self, func: FuncId, called: u64) -> Inferred {
        let entered = self.new.entry_block(func).map_or(0, |b| self.carried_times[b.index()]) as f64;
        let seen = called as f64 / self.per_sample;
        let ratio = match () {
            () if entered == 0.0 || called == 0 => self.ratio,
            () if self.exact => seen / entered,
            () => self.updated(entered * self.ratio, seen) / entered,
        };
        let factor = ratio * self.scale;
        // As they are, where they need no scaling: what rounding leaves of one in one is not worth a change.
        let factor = if (factor - 1.0).abs() < 1e-9 { 1.0 } else { factor };
        let blocks =
            self.new.function(func).blocks.start as usize..self.new.function(func).blocks.end as usize;
        let of = |counts: &[u64]| counts.iter().map(|&n| profile::scaled(n, factor)).collect();
        let was = &self.carried_whole;
        Inferred {
            blocks: of(&was.blocks[blocks.clone()]),
            edges: of(&was.edges[self.new.edge_range(func)]),
            enter: of(&was.enter[blocks.clone()]),
            leave: of(&was.leave[blocks]),
            optimal: true,
        }
    }

    /// The mean of a gamma prior of this shape around what is expected, after the samples seen.
    fn updated(&self, expected: f64, seen: f64) -> f64 {
        if expected <= 0.0 { seen } else { expected * (self.worth + seen) / (self.worth + expected) }
    }

    /// Only how often it was entered is known.
    fn entered(&self, func: FuncId) -> Inferred {
        let mut zero = Problem::of(self.new, func, 100).unchanged();
        if let Some(b) = self.new.entry_block(func) {
            let carried = self.carried.entries[b.index()].unwrap_or(0) as f64 * self.ratio;
            let fresh = self.fresh.entries[b.index()].unwrap_or(0) as f64 / self.per_sample;
            let i = b.index() - self.new.function(func).blocks.start as usize;
            zero.enter[i] = self.count(carried.max(fresh));
            zero.blocks[i] = zero.enter[i];
        }
        zero
    }

    /// Samples as a count of the result.
    fn count(&self, samples: f64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of counts")]
        let count = (samples * self.scale).round() as u64;
        count
    }

    fn solve(&self, func: FuncId) -> Inferred {
        let blocks = || self.new.function(func).block_ids();
        let expected = |count: Option<u64>| count.unwrap_or(0) as f64 * self.ratio;
        let samples = |count: Option<u64>| count.unwrap_or(0) as f64 / self.per_sample;
        let mut p = Problem::of(self.new, func, 5);
        let mut block = vec![0.0_f64; p.blocks.len()];
        for (i, b) in blocks().enumerate() {
            let (was, seen) = (self.carried_times[b.index()], samples(Some(self.fresh_times[b.index()])));
            let e = expected(Some(was));
            let ran = seen > 0.0 || was > 0;
            block[i] = self.updated(e, seen);
            let count = self.count(block[i]).max(u64::from(ran));
            p.blocks[i] = match ran {
                true => Estimate { count, raise: 30, lower: 60, keep: true },
                // Neither saw it: what samples leave unbalanced is balanced where control was.
                false => Estimate::unknown(NEVER),
            };
            if let Some(entry) = p.enter[i].as_mut().filter(|e| e.raise == 1) {
                let (e, seen) =
                    (expected(self.carried.entries[b.index()]), samples(self.fresh.entries[b.index()]));
                *entry =
                    Estimate { count: self.count(self.updated(e, seen)), raise: 20, lower: 20, keep: false };
            }
        }
        let first = self.new.function(func).blocks.start as usize;
        let edges = self.new.edge_range(func);
        for (i, b) in blocks().enumerate() {
            let out: Vec<usize> = self.new.edge_ids(b).map(|e| e.index()).collect();
            let carried: f64 = out.iter().map(|&e| expected(self.carried.edges[e])).sum();
            let seen: f64 = out.iter().map(|&e| samples(self.fresh.edges[e])).sum();
            // Samples of what comes behind speak of the way out too, where the source counts blocks alone.
            let worth = if carried > 0.0 { self.worth } else { 0.0 };
            let leaves = block[i];
            for e in out {
                let believed = if carried > 0.0 { expected(self.carried.edges[e]) / carried } else { 0.0 };
                let known = worth + seen;
                let share =
                    if known > 0.0 { (worth * believed + samples(self.fresh.edges[e])) / known } else { 0.0 };
                let to = self.new.edges[e].to.index() - first;
                // What never ran behind it is not run by a rounded share.
                let mean = if block[to] > 0.0 { leaves * share } else { 0.0 };
                // The more samples, the surer the way out.
                let sure = surer(20, seen);
                p.edge[e - edges.start] = Estimate {
                    count: self.count(mean),
                    raise: if mean > 0.0 { sure } else { NEVER.min(4 * sure) },
                    lower: sure,
                    keep: false,
                };
            }
        }
        p.solve(WORK)
    }
}

/// The cost of an execution of what no profile saw run: more than to change what was seen anywhere around it.
const NEVER: u32 = 1000;

/// The cost of changing what this many samples speak for.
fn surer(cost: u32, samples: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let factor = samples.clamp(1.0, 1e6).log10().floor() as u32;
    cost * (1 + factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::score::score;
    use crate::testing::{function, loops_and_calls, thinned, walked};

    fn all(p: &Program, got: &Profile, want: &Profile) -> [f64; 3] {
        let s = score(p, got, want);
        [s.bp_share, s.cc_share, s.overlap_share]
    }

    #[test]
    fn nothing_fresh_leaves_the_carried_and_an_exact_fresh_one_wins() {
        let p = loops_and_calls();
        let (carried, truth) = (walked(&p, 1), walked(&p, 99));
        let options = MergeOptions::default();
        assert_eq!(merge(&p, &carried, &Profile::default(), &options), carried);
        let merged = merge(&p, &carried, &truth, &options);
        let got = all(&p, &merged, &truth);
        assert!(got[0] > 0.999_999 && got[1] == 1.0 && got[2] > 0.97, "{got:?}");
    }

    #[test]
    fn merged_is_not_below_either_input() {
        let p = loops_and_calls();
        let (carried, truth) = (walked(&p, 1), walked(&p, 99));
        for nth in [3, 10, 30] {
            let fresh = thinned(&p, &truth, nth);
            let merged = all(&p, &merge(&p, &carried, &fresh, &MergeOptions::default()), &truth);
            for (input, name) in [(&carried, "carried"), (&fresh, "fresh")] {
                let input = all(&p, input, &truth);
                // B.P. and C.C.; overlap is noise of drawing at this size.
                for (i, noise) in [(0, 0.005), (1, 0.005), (2, 0.04)] {
                    assert!(
                        merged[i] >= input[i] - noise,
                        "1 of {nth}: {merged:?} is below {name} {input:?}"
                    );
                }
            }
        }
    }

    /// The entries of `of` that do not start in `func`.
    fn without(p: &Program, of: &Profile, func: &str) -> Profile {
        let func = function(p, func);
        let inside = |at: Va| p.function_at(at) == Some(func);
        let mut less = of.clone();
        less.blocks.retain(|&at, _| !inside(at));
        less.entries.retain(|&at, _| !inside(at));
        less.edges.retain(|e, _| !inside(e.from));
        less
    }

    /// Executions of blocks in a function.
    fn sum(p: &Program, of: &Profile, func: &str) -> u64 {
        let blocks = p.function(function(p, func)).block_ids();
        blocks.filter_map(|b| of.blocks.get(&p.block(b).start)).sum()
    }

    #[test]
    fn what_an_exact_fresh_profile_never_saw_called_did_not_run() {
        let p = loops_and_calls();
        let (carried, truth) = (walked(&p, 1), walked(&p, 99));
        let fresh = without(&p, &without(&p, &truth, "pick"), "entry");
        let merged = merge(&p, &carried, &fresh, &MergeOptions::default());
        assert_eq!(merged.exactness, Exactness::Exact);
        assert!(sum(&p, &carried, "pick") > 0);
        assert_eq!((sum(&p, &merged, "pick"), sum(&p, &merged, "entry")), (0, 0));
        assert_eq!(sum(&p, &merged, "sum"), sum(&p, &truth, "sum"));
    }

    #[test]
    fn branches_are_mispredicted_as_often_as_the_fresh_profile_says() {
        let p = loops_and_calls();
        let (mut carried, mut truth) = (walked(&p, 1), walked(&p, 99));
        let seldom: Vec<_> = truth.edges.iter().map(|(&e, &n)| (e, n / 8)).filter(|(_, n)| *n > 0).collect();
        carried.mispredicts = carried.edges.iter().map(|(&e, &n)| (e, n / 2)).collect();
        truth.mispredicts = seldom.iter().copied().step_by(2).collect();
        let merged = merge(&p, &carried, &truth, &MergeOptions::default());
        let mut told = seldom.iter().enumerate();
        assert!(told.len() > 4);
        assert!(told.all(|(i, (e, n))| {
            let got = merged.mispredicts[e];
            let from_carried = (merged.edges[e] as f64 / 2.0).round();
            if i % 2 == 0 { got == *n } else { (got as f64 / from_carried - 1.0).abs() < 0.05 }
        }));
    }

    /// A format without zeros says of a function that was called that it ran.
    #[test]
    fn calls_that_an_exact_fresh_profile_does_not_have_are_not_made_up() {
        let p = loops_and_calls();
        let (carried, truth) = (walked(&p, 1), walked(&p, 99));
        let pick = p.function(function(&p, "pick")).entry;
        let (carried, mut fresh) = (without(&p, &carried, "pick"), without(&p, &truth, "pick"));
        for call in &p.calls {
            if let (Callee::Function(f), Some(&n)) =
                (call.callee, truth.blocks.get(&p.block(call.block).start))
            {
                fresh.calls.insert((call.at, p.function(f).entry), n);
            }
        }
        let n_calls = fresh.calls.len();
        fresh.calls.retain(|&(_, to), _| to != pick);
        assert!(fresh.calls.len() < n_calls && !fresh.calls.is_empty());
        let merged = merge(&p, &carried, &fresh, &MergeOptions::default());
        let here = merged.calls.iter().filter(|((_, to), _)| *to == pick);
        assert_eq!(here.map(|(_, &n)| n).sum::<u64>(), 0);
    }

    #[test]
    fn of_what_was_called_but_not_seen_inside_the_carried_profile_speaks() {
        let p = loops_and_calls();
        let (carried, truth) = (walked(&p, 1), walked(&p, 99));
        let merged = merge(&p, &carried, &without(&p, &truth, "pick"), &MergeOptions::default());
        assert_eq!(sum(&p, &merged, "sum"), sum(&p, &truth, "sum"));
        // It is called as often as in the carried one, 400 times, so its counts are that one's.
        let (got, want) = (sum(&p, &merged, "pick") as f64, sum(&p, &carried, "pick") as f64);
        assert!((got / want - 1.0).abs() < 0.01, "{got} for {want}");
    }

    #[test]
    fn what_contradicts_itself_does_not_replace_the_carried_profile() {
        let p = loops_and_calls();
        let (carried, truth) = (walked(&p, 1), walked(&p, 99));
        let mut torn = truth.clone();
        let mut i = 0;
        torn.edges.retain(|_, _| {
            i += 1;
            i % 2 == 0
        });
        assert!(Consistency::of(&p, &Measured::of(&p, &torn)).is_torn());
        let merged = merge(&p, &carried, &torn, &MergeOptions::default());
        let got = all(&p, &merged, &carried);
        assert!(got.iter().all(|&share| share > 0.999), "{got:?}");
    }
}
