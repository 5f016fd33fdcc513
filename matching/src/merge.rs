//! A carried and a fresh profile of one build, made into one.
//!
//! The carried profile is what is believed before anything was seen, the fresh one what was seen. How much of the belief is
//! left at a block falls with the samples that the fresh profile has there, and with the age of the
//! carried one. What the belief says must have been seen many times, and was not, is given up.
//!
//! Invariant: with nothing fresh the carried profile comes out, with an exact fresh one the fresh profile; every function's
//! counts are a flow.
//!
//! Source: the estimate is the mean of a gamma prior with a Poisson likelihood (Gelman et al., Bayesian Data Analysis, 2.6).
//! Not here: inference (`infer`).

use crate::carry::{Calls, Complete, Known, WORK, edges_of, graph, write};
use crate::infer::Estimate;
use crate::measured::Measured;
use profile::{Exactness, Profile};
use program::{FuncId, Program};
use rayon::prelude::*;

/// How much the carried profile counts for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MergeOptions {
    /// Age of the carried profile in releases: each halves its weight.
    pub age_releases: f64,
    /// As many samples of a block in the fresh profile weigh as much as a carried profile of age 0.
    pub worth_samples: f64,
}

impl Default for MergeOptions {
    fn default() -> MergeOptions {
        MergeOptions { age_releases: 1.0, worth_samples: 64.0 }
    }
}

/// Expected so often and never seen: it does not happen.
const SURELY_SEEN: f64 = 6.0;

/// Combines two profiles of `new`. The scale of the result is that of the more plentiful one.
pub fn merge(new: &Program, carried: &Profile, fresh: &Profile, options: &MergeOptions) -> Profile {
    let (c, f) = (Measured::of(new, carried), Measured::of(new, fresh));
    let (ct, ft) = (c.times(new), f.times(new));
    let exact = fresh.exactness == Exactness::Exact;
    // Both sums over the functions that the fresh profile saw: that is where the two can be compared.
    let (mut sum_c, mut sum_f) = (0.0_f64, 0.0_f64);
    for func in new.func_ids() {
        let seen: f64 = new.function(func).block_ids().map(|b| ft[b.index()] as f64).sum();
        if seen > 0.0 {
            sum_f += seen;
            sum_c += new.function(func).block_ids().map(|b| ct[b.index()] as f64).sum::<f64>();
        }
    }
    if sum_f == 0.0 {
        return carried.clone();
    }
    let ratio = if sum_c > 0.0 { sum_f / sum_c } else { 1.0 };
    let scale = ratio.max(1.0) / ratio;
    let worth = options.worth_samples * 0.5_f64.powf(options.age_releases);
    let believed = &|func: FuncId| {
        let blocks = || new.function(func).block_ids();
        let seen: f64 = blocks().map(|b| ft[b.index()] as f64).sum();
        let expected: f64 = blocks().map(|b| ct[b.index()] as f64).sum::<f64>() * ratio;
        // A function that must have been seen, and was not, was not entered.
        let absent = seen == 0.0 && (exact || expected > 4.0 * SURELY_SEEN);
        let estimate = |c: Option<u64>, f: Option<u64>, seen_around: u64| {
            let e = c.unwrap_or(0) as f64 * ratio;
            let seen_here = f.unwrap_or(0) as f64;
            let contradicted = absent || seen_here == 0.0 && seen > 0.0 && (exact || e > SURELY_SEEN);
            let belief = if exact { 0.0 } else { worth / (worth + seen_around as f64) };
            let mean = if contradicted { 0.0 } else { belief * e + (1.0 - belief) * seen_here };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of counts")]
            let count = (mean * scale).round() as u64;
            let ran = seen_here > 0.0 || (!contradicted && !exact && c.is_some_and(|c| c > 0));
            count.max(u64::from(ran))
        };
        let any = blocks().any(|b| c.blocks[b.index()].is_some()) || seen > 0.0;
        if !any {
            return (Known::Nothing, None);
        }
        let mut p = graph(new, func, 100);
        for (i, b) in blocks().enumerate() {
            let b = b.index();
            let count = estimate(Some(ct[b]), Some(ft[b]), ft[b]);
            p.blocks[i] = Estimate { count, raise: 30, lower: 60, keep: ft[b] > 0 };
            if let Some(e) = p.enter[i].as_mut().filter(|e| e.raise == 1) {
                let count = estimate(c.entries[b], f.entries[b], ft[b]);
                *e = Estimate { count, raise: 20, lower: 20, keep: false };
            }
        }
        for (i, e) in edges_of(new, func).enumerate() {
            let count = estimate(c.edges[e], f.edges[e], ft[new.edges[e].from.index()]);
            p.edge[i] = Estimate { count, raise: 20, lower: 20, keep: false };
        }
        (Known::Inside, Some(p.solve(WORK)))
    };
    let funcs: Vec<FuncId> = new.func_ids().collect();
    let solved: Vec<_> = funcs.into_par_iter().map(believed).collect();
    let mut all = Complete::none(new);
    for (i, (known, inferred)) in solved.into_iter().enumerate() {
        if let Some(inferred) = inferred {
            all.known[i] = known;
            all.put(new, FuncId::at(i), &inferred);
        }
    }
    let mut calls = Calls::like(new, carried, fresh);
    calls.count(new, &all);
    let mut merged = write(new, &all, calls.counts);
    merged.exactness = if exact { Exactness::Exact } else { Exactness::Inferred };
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::score;
    use crate::testing::{compile, walked};

    fn program() -> Program {
        let text = r#"
            extern int puts(const char *);
            __attribute__((noinline)) int sum(const int *p, int n) {
                int s = 0;
                for (int i = 0; i < n; i++) { if (p[i] > 7) s += 3 * p[i]; else if (p[i] == 3) puts("three"); }
                return s;
            }
            __attribute__((noinline)) int pick(int x) {
                while (x > 100) { if (x % 7 == 3) puts("seven"); else if (x & 1) x -= 3; x /= 2; }
                return x == 5 ? puts("five") : x ^ 1;
            }
            int entry(int n) { int a[] = {n, n + 1, 3, 9}; return sum(a, 4) + pick(n); }"#;
        compile(text, "c", &["-O2", "-shared", "-fPIC", "-nostartfiles", "-fvisibility=hidden"])
    }

    /// One of `nth` executions of each edge and entry, drawn, as sampling would leave it.
    fn thinned(program: &Program, profile: &Profile, nth: u32) -> Profile {
        let mut state = 7_u32;
        let mut thin = |c: u64| {
            let mut left = 0;
            for _ in 0..c {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                left += u64::from((state >> 16).is_multiple_of(nth));
            }
            left
        };
        let mut fresh = Profile { exactness: Exactness::Sampled, ..Profile::default() };
        for (&e, &c) in &profile.edges {
            fresh.edges.insert(e, thin(c));
        }
        for (&at, &c) in &profile.entries {
            fresh.entries.insert(at, thin(c));
        }
        fresh.edges.retain(|_, c| *c > 0);
        let times = Measured::of(program, &fresh).times(program);
        for (b, count) in program.blocks.iter().zip(times).filter(|(_, c)| *c > 0) {
            fresh.blocks.insert(b.start, count);
        }
        fresh
    }

    fn all(p: &Program, got: &Profile, want: &Profile) -> [f64; 3] {
        let s = score(p, got, want);
        [s.bp_share, s.cc_share, s.overlap_share]
    }

    #[test]
    fn nothing_fresh_leaves_the_carried_and_an_exact_fresh_one_wins() {
        let p = program();
        let (carried, truth) = (walked(&p, 1), walked(&p, 99));
        let options = MergeOptions::default();
        assert_eq!(merge(&p, &carried, &Profile::default(), &options), carried);
        let merged = merge(&p, &carried, &truth, &options);
        let got = all(&p, &merged, &truth);
        assert!(got[0] > 0.999_999 && got[1] == 1.0 && got[2] > 0.97, "{got:?}");
    }

    #[test]
    fn merged_is_not_below_either_input() {
        let p = program();
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
}
