//! Arithmetic of profiles of one image: add, scale, overlap.
//!
//! Invariant: unknown is not zero, and what ran a little still ran. What only some of the profiles know is
//! the sum of what those say.

use crate::counts::{Exactness, Intervals, Profile};
use std::borrow::Cow;
use std::collections::BTreeMap;

impl Profile {
    /// Adds the counts of `other`, a profile of the same image, to this one. Counts stop at the largest
    /// number.
    ///
    /// Samples and executions do not make executions: the result is as inexact as the less exact of the two.
    pub fn add(&mut self, other: &Profile) {
        if self.image.id.is_none() && self.image.build_id.is_none() {
            self.image = other.image.clone();
        }
        self.exactness = match (self.exactness, other.exactness) {
            (Exactness::Inferred, _) | (_, Exactness::Inferred) => Exactness::Inferred,
            (Exactness::Sampled, _) | (_, Exactness::Sampled) => Exactness::Sampled,
            (Exactness::Exact, Exactness::Exact) => Exactness::Exact,
        };
        let (mine, theirs) = (&self.intervals, &other.intervals);
        self.intervals = Intervals {
            n_stopped: mine.n_stopped.saturating_add(theirs.n_stopped),
            entries: sums(
                (|at| self.entries.get(at).copied(), &mine.entries),
                (|at| other.entries.get(at).copied(), &theirs.entries),
            ),
            blocks: sums(
                (|at| self.blocks.get(at).copied(), &mine.blocks),
                (|at| other.blocks.get(at).copied(), &theirs.blocks),
            ),
            edges: sums(
                (|edge| self.edges.get(edge).copied(), &mine.edges),
                (|edge| other.edges.get(edge).copied(), &theirs.edges),
            ),
            calls: sums(
                (|call| self.calls.get(call).copied(), &mine.calls),
                (|call| other.calls.get(call).copied(), &theirs.calls),
            ),
        };
        self.entries.add_all(&other.entries);
        self.blocks.add_all(&other.blocks);
        add_all(&mut self.edges, &other.edges);
        add_all(&mut self.mispredicts, &other.mispredicts);
        add_all(&mut self.calls, &other.calls);
        add_all(&mut self.calls_out, &other.calls_out);
        add_all(&mut self.calls_beyond, &other.calls_beyond);
    }

    /// Multiplies every count by `factor`, which is not negative: see [`scaled`]. Counts are no executions
    /// any more.
    pub fn scale(&mut self, factor: f64) {
        if factor == 1.0 {
            return;
        }
        if self.exactness == Exactness::Exact {
            self.exactness = Exactness::Sampled;
        }
        // Zero stays zero.
        let by_address = self.entries.that_ran_mut().chain(self.blocks.that_ran_mut());
        let edges = [&mut self.edges, &mut self.mispredicts].into_iter().flat_map(BTreeMap::values_mut);
        let calls = self.calls.values_mut().chain(self.calls_beyond.values_mut());
        let calls = calls.chain(self.calls_out.values_mut());
        by_address.chain(edges).chain(calls).for_each(|n| *n = scaled(*n, factor));
        let by_address = [&mut self.intervals.entries, &mut self.intervals.blocks].into_iter();
        let ways = self.intervals.edges.values_mut().chain(self.intervals.calls.values_mut());
        let all = by_address.flat_map(BTreeMap::values_mut).chain(ways);
        all.for_each(|n| *n = (scaled(n.0, factor), scaled(n.1, factor)));
    }

    /// The same, scaled down if the sum of all counts is above `most`: then sums of any of them fit.
    pub fn at_most(&self, most: u64) -> Cow<'_, Profile> {
        let by_address = self.entries.that_ran().chain(self.blocks.that_ran()).map(|(_, n)| n);
        let edges = self.edges.values().chain(self.mispredicts.values());
        let others = edges.chain(self.calls_out.values()).chain(self.calls.values()).copied();
        let sum: u128 = by_address.chain(others).map(u128::from).sum();
        if sum <= u128::from(most) {
            return Cow::Borrowed(self);
        }
        let (exactness, mut small) = (self.exactness, self.clone());
        #[expect(clippy::cast_precision_loss, reason = "a factor")]
        small.scale(most as f64 / sum as f64);
        // How it was taken decides what may be made of it, and rounding is all that changed.
        small.exactness = exactness;
        Cow::Owned(small)
    }

    /// How alike the blocks' counts of two profiles of one image are: see [`overlap`]. A block that is known
    /// to one alone counts as not run in the other.
    pub fn overlap(&self, other: &Profile) -> f64 {
        let count = |p: &Profile, at| p.blocks.get(at).copied().unwrap_or(0);
        let mine = self.blocks.iter().map(|(at, &n)| (n, count(other, at)));
        let theirs =
            other.blocks.iter().filter(|(at, _)| !self.blocks.contains_key(at)).map(|(_, &n)| (0, n));
        overlap(mine.chain(theirs))
    }
}

/// A count multiplied, rounded; what ran a little still ran, unless the factor is 0.
pub fn scaled(count: u64, factor: f64) -> u64 {
    if factor == 1.0 {
        return count;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a count is a count; more than the largest is the largest"
    )]
    let part = (count as f64 * factor).round() as u64;
    if count > 0 && factor > 0.0 { part.max(1) } else { part }
}

/// The sum of the smaller of two normalised counts, 0.0..=1.0: 1 where one is a multiple of the other, 0
/// where either side has nothing.
///
/// Source: the overlap of BMAT's table 7, which llvm-profdata calls similarity.
#[expect(clippy::cast_precision_loss, reason = "shares are for comparing")]
pub fn overlap(counts: impl Iterator<Item = (u64, u64)> + Clone) -> f64 {
    let (mut mine, mut theirs) = (0.0_f64, 0.0_f64);
    for (a, b) in counts.clone() {
        (mine, theirs) = (mine + a as f64, theirs + b as f64);
    }
    counts.map(|(a, b)| (a as f64 / mine.max(1.0)).min(b as f64 / theirs.max(1.0))).sum()
}

fn add_all<K: Ord + Clone>(to: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, &n) in from {
        let sum = to.entry(key.clone()).or_insert(0);
        *sum = sum.saturating_add(n);
    }
}

/// The intervals of sums: of either side the counts, and the intervals of those that are not exact.
fn sums<K: Ord + Copy>(
    a: (impl Fn(&K) -> Option<u64>, &BTreeMap<K, (u64, u64)>),
    b: (impl Fn(&K) -> Option<u64>, &BTreeMap<K, (u64, u64)>),
) -> BTreeMap<K, (u64, u64)> {
    fn of<K: Ord>(exact: Option<u64>, intervals: &BTreeMap<K, (u64, u64)>, key: &K) -> (u64, u64) {
        let exact = exact.unwrap_or(0);
        intervals.get(key).copied().unwrap_or((exact, exact))
    }
    let sum = |key: &K| {
        let (a, b) = (of(a.0(key), a.1, key), of(b.0(key), b.1, key));
        (*key, (a.0.saturating_add(b.0), a.1.saturating_add(b.1)))
    };
    a.1.keys().chain(b.1.keys()).map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::Va;

    fn with(blocks: &[(u64, u64)], exactness: Exactness) -> Profile {
        let blocks = blocks.iter().map(|&(at, n)| (Va(at), n)).collect();
        Profile { blocks, exactness, ..Profile::default() }
    }

    #[test]
    fn known_counts_add_up_and_unknown_ones_stay_unknown() {
        let mut sum = with(&[(1, 5), (2, 0)], Exactness::Exact);
        sum.add(&with(&[(1, 7), (3, u64::MAX)], Exactness::Sampled));
        sum.add(&with(&[(3, 1)], Exactness::Exact));
        assert_eq!(sum, with(&[(1, 12), (2, 0), (3, u64::MAX)], Exactness::Sampled));
    }

    #[test]
    fn counts_are_multiplied_and_what_ran_still_runs() {
        for (count, factor, want) in [
            (10, 0.5, 5),
            (10, 0.25, 3),
            (1, 0.001, 1),
            (0, 100.0, 0),
            (7, 0.0, 0),
            (3, 2.5, 8),
            (u64::MAX, 1.0, u64::MAX),
            (u64::MAX, 2.0, u64::MAX),
            // More digits than a floating-point number has.
            ((1 << 60) + 1, 1.0, (1 << 60) + 1),
        ] {
            assert_eq!(scaled(count, factor), want, "{count} by {factor}");
        }
    }

    #[test]
    fn every_table_is_scaled() {
        let mut profile = crate::testing::sample();
        profile.blocks.retain(|_, n| *n < u64::MAX);
        let was = profile.clone();
        profile.scale(3.0);
        assert_eq!(profile.total(), 3 * was.total());
        assert_eq!(profile.mispredicts.values().sum::<u64>(), 3 * was.mispredicts.values().sum::<u64>());
        assert_eq!((was.exactness, profile.exactness), (Exactness::Exact, Exactness::Sampled));
        let mut same = was.clone();
        same.scale(1.0);
        assert_eq!(same, was);
    }

    #[test]
    fn what_would_not_fit_is_scaled_down() {
        let large = with(&[(1, u64::MAX), (2, u64::MAX / 4), (3, 1), (4, 0)], Exactness::Exact);
        let small = large.at_most(1000);
        assert_eq!(*small, with(&[(1, 800), (2, 200), (3, 1), (4, 0)], Exactness::Exact));
        assert!(matches!(small.at_most(1001), Cow::Borrowed(_)));
    }

    #[test]
    fn overlap_is_of_shares_and_the_same_both_ways() {
        #[track_caller]
        fn check(a: &[(u64, u64)], b: &[(u64, u64)], want: f64) {
            let (a, b) = (with(a, Exactness::Exact), with(b, Exactness::Sampled));
            for got in [a.overlap(&b), b.overlap(&a)] {
                assert!((got - want).abs() < 1e-12, "{got}, not {want}");
            }
        }
        // `llvm-profdata overlap --sample` of 19.1.7 says: whole program profile similarity 60.000 %.
        check(&[(1, 40), (2, 60)], &[(1, 80), (2, 20)], 0.6);
        check(&[(1, 4), (2, 6)], &[(1, 40), (2, 60)], 1.0);
        check(&[(1, 10)], &[(2, 10)], 0.0);
        check(&[(1, 10), (2, 10)], &[(2, 10), (3, 30)], 0.25);
        check(&[(1, 10)], &[], 0.0);
        check(&[(1, u64::MAX), (2, u64::MAX)], &[(1, 1), (2, 1)], 1.0);
    }
}
