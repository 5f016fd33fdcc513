//! Several profiles of one image as one: counts add up.
//!
//! Invariant: unknown is not zero. What only some of the profiles know is the sum of what those say.

use crate::counts::{Exactness, Profile};
use std::collections::BTreeMap;

impl Profile {
    /// Adds the counts of `other`, a profile of the same image, to this one. Counts stop at the largest number.
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
        add_all(&mut self.entries, &other.entries);
        add_all(&mut self.blocks, &other.blocks);
        add_all(&mut self.edges, &other.edges);
        add_all(&mut self.mispredicts, &other.mispredicts);
        add_all(&mut self.calls, &other.calls);
        add_all(&mut self.calls_out, &other.calls_out);
    }
}

fn add_all<K: Ord + Copy>(to: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (&key, &n) in from {
        let sum = to.entry(key).or_insert(0);
        *sum = sum.saturating_add(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::Va;

    #[test]
    fn known_counts_add_up_and_unknown_ones_stay_unknown() {
        let with = |blocks: &[(u64, u64)], exactness| Profile {
            blocks: blocks.iter().map(|&(at, n)| (Va(at), n)).collect(),
            exactness,
            ..Profile::default()
        };
        let mut sum = with(&[(1, 5), (2, 0)], Exactness::Exact);
        sum.add(&with(&[(1, 7), (3, u64::MAX)], Exactness::Sampled));
        sum.add(&with(&[(3, 1)], Exactness::Exact));
        assert_eq!(sum, with(&[(1, 12), (2, 0), (3, u64::MAX)], Exactness::Sampled));
    }
}
