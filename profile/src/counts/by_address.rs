//! Counts by address, most of them zero: [`ByAddress`], what a map of them is, in a fraction of its memory
//! and time.
//!
//! Of a large program, few blocks run. Those that never did are a sorted list; the rest, a map.
#![warn(clippy::indexing_slicing)]

use program::Va;
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::iter::Peekable;
use std::slice;

/// Counts by address, in the order of addresses.
///
/// Invariant: which of them are in the list, and which in the map, says nothing: what was counted as zero is
/// a count, wherever it is.
#[derive(Clone, Default)]
pub struct ByAddress {
    /// Addresses whose count is zero unless the map has another; sorted, each once.
    zeros: Vec<Va>,
    others: BTreeMap<Va, u64>,
    /// How many are in both.
    n_both: usize,
}

/// What counts of zero refer to.
static ZERO: u64 = 0;

impl ByAddress {
    /// Counts `others`, and zero at each of `zeros` that is not among them.
    pub fn with_zeros(mut zeros: Vec<Va>, others: BTreeMap<Va, u64>) -> ByAddress {
        // Mostly it is sorted.
        zeros.sort();
        zeros.dedup();
        let mut counts = ByAddress { zeros, others, n_both: 0 };
        counts.n_both = counts.others.keys().filter(|at| counts.is_in_zeros(**at)).count();
        counts
    }

    fn is_in_zeros(&self, at: Va) -> bool {
        self.zeros.last().is_some_and(|last| at <= *last) && self.zeros.binary_search(&at).is_ok()
    }

    /// How many there are, zeros too.
    pub fn len(&self) -> usize {
        self.zeros.len() + self.others.len() - self.n_both
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.zeros.is_empty() && self.others.is_empty()
    }

    /// The count at `at`, if there is one.
    pub fn get(&self, at: &Va) -> Option<&u64> {
        self.others.get(at).or_else(|| self.is_in_zeros(*at).then_some(&ZERO))
    }

    /// Whether there is a count at `at`.
    pub fn contains_key(&self, at: &Va) -> bool {
        self.get(at).is_some()
    }

    /// Sets the count at `at`; what it was.
    pub fn insert(&mut self, at: Va, n: u64) -> Option<u64> {
        if n == 0 && self.zeros.last().is_none_or(|last| *last < at) {
            let before = self.others.remove(&at);
            self.zeros.push(at);
            return before;
        }
        let before = self.others.insert(at, n);
        if before.is_none() && self.is_in_zeros(at) {
            self.n_both += 1;
            return Some(0);
        }
        before
    }

    /// The count at `at`, to be changed: zero, if there was none.
    pub fn count_mut(&mut self, at: Va) -> &mut u64 {
        let is_zero = !self.others.contains_key(&at) && self.is_in_zeros(at);
        self.n_both += usize::from(is_zero);
        self.others.entry(at).or_default()
    }

    /// Takes the count at `at` away; what it was.
    pub fn remove(&mut self, at: &Va) -> Option<u64> {
        let before = self.others.remove(at);
        let Ok(place) = self.zeros.binary_search(at) else { return before };
        self.zeros.remove(place);
        self.n_both -= usize::from(before.is_some());
        before.or(Some(0))
    }

    /// Takes those away of which `keeps` says no.
    pub fn retain(&mut self, mut keeps: impl FnMut(&Va, &u64) -> bool) {
        *self = self.iter().filter(|(at, n)| keeps(at, n)).map(|(at, n)| (*at, *n)).collect();
    }

    /// All of them, in order.
    pub fn iter(&self) -> Iter<'_> {
        Iter { zeros: self.zeros.iter().peekable(), others: self.others.iter().peekable() }
    }

    /// Those that are not zero, in order.
    pub fn that_ran(&self) -> impl Iterator<Item = (Va, u64)> + Clone {
        self.others.iter().map(|(at, n)| (*at, *n)).filter(|(_, n)| *n > 0)
    }

    /// Those that are not zero, to be changed, in order.
    pub fn that_ran_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.others.values_mut().filter(|n| **n > 0)
    }

    /// The addresses, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Va> + Clone {
        self.iter().map(|(at, _)| at)
    }

    /// The counts, in the order of their addresses.
    pub fn values(&self) -> impl Iterator<Item = &u64> + Clone {
        self.iter().map(|(_, n)| n)
    }

    /// The sum of all, or the largest number.
    pub fn sum(&self) -> u64 {
        self.others.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Adds `n` to the count at `at`.
    pub fn add(&mut self, at: Va, n: u64) {
        let sum = self.count_mut(at);
        *sum = sum.saturating_add(n);
    }

    /// Adds the counts of `other`.
    pub fn add_all(&mut self, other: &ByAddress) {
        other.others.iter().for_each(|(at, n)| self.add(*at, *n));
        let mut zeros = std::mem::take(&mut self.zeros);
        zeros.extend(&other.zeros);
        *self = ByAddress::with_zeros(zeros, std::mem::take(&mut self.others));
    }
}

/// Counts in the order of their addresses.
#[derive(Clone)]
pub struct Iter<'a> {
    zeros: Peekable<slice::Iter<'a, Va>>,
    others: Peekable<btree_map::Iter<'a, Va, u64>>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a Va, &'a u64);

    fn next(&mut self) -> Option<(&'a Va, &'a u64)> {
        let Some((at, _)) = self.others.peek() else { return Some((self.zeros.next()?, &ZERO)) };
        match self.zeros.next_if(|zero| *zero <= *at) {
            Some(zero) if zero < *at => Some((zero, &ZERO)),
            _ => self.others.next(),
        }
    }
}

impl<'a> IntoIterator for &'a ByAddress {
    type Item = (&'a Va, &'a u64);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl IntoIterator for ByAddress {
    type Item = (Va, u64);
    type IntoIter = std::vec::IntoIter<(Va, u64)>;

    fn into_iter(self) -> std::vec::IntoIter<(Va, u64)> {
        self.iter().map(|(at, n)| (*at, *n)).collect::<Vec<_>>().into_iter()
    }
}

impl Extend<(Va, u64)> for ByAddress {
    fn extend<T: IntoIterator<Item = (Va, u64)>>(&mut self, counts: T) {
        for (at, n) in counts {
            self.insert(at, n);
        }
    }
}

impl FromIterator<(Va, u64)> for ByAddress {
    /// Of several at one address, the last counts.
    fn from_iter<T: IntoIterator<Item = (Va, u64)>>(counts: T) -> ByAddress {
        let mut all = ByAddress::default();
        all.extend(counts);
        all
    }
}

impl<const N: usize> From<[(Va, u64); N]> for ByAddress {
    fn from(counts: [(Va, u64); N]) -> ByAddress {
        counts.into_iter().collect()
    }
}

impl std::ops::Index<&Va> for ByAddress {
    type Output = u64;

    fn index(&self, at: &Va) -> &u64 {
        self.get(at).expect("there is a count at this address")
    }
}

impl PartialEq for ByAddress {
    fn eq(&self, other: &ByAddress) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl Eq for ByAddress {}

impl fmt::Debug for ByAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All that is asked of the counts is what the map says.
    fn check(counts: &ByAddress, map: &BTreeMap<Va, u64>) {
        assert_eq!(counts.iter().collect::<Vec<_>>(), map.iter().collect::<Vec<_>>());
        assert_eq!((counts.len(), counts.is_empty()), (map.len(), map.is_empty()));
        for at in (0..40).map(Va) {
            assert_eq!(counts.get(&at), map.get(&at), "{at}");
        }
        let ran: Vec<(Va, u64)> = map.iter().map(|(at, n)| (*at, *n)).filter(|(_, n)| *n > 0).collect();
        assert_eq!(counts.that_ran().collect::<Vec<_>>(), ran);
        assert_eq!(counts.sum(), map.values().fold(0u64, |sum, n| sum.saturating_add(*n)));
        // However it came about.
        assert_eq!(counts, &map.iter().map(|(at, n)| (*at, *n)).collect::<ByAddress>());
        assert_eq!(counts, &map.iter().rev().map(|(at, n)| (*at, *n)).collect::<ByAddress>());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Va, u64),
        Increment(Va),
        Remove(Va),
        Retain(u64),
        Add(BTreeMap<Va, u64>),
        Multiply(u64),
    }

    fn count() -> impl Strategy<Value = u64> {
        prop_oneof![4 => Just(0), 1 => 1u64..5, 1 => Just(u64::MAX)]
    }

    fn counts() -> impl Strategy<Value = BTreeMap<Va, u64>> {
        proptest::collection::btree_map((0u64..40).prop_map(Va), count(), 0..30)
    }

    fn step() -> impl Strategy<Value = Step> {
        let at = || (0u64..40).prop_map(Va);
        prop_oneof![
            6 => (at(), count()).prop_map(|(at, n)| Step::Insert(at, n)),
            2 => at().prop_map(Step::Increment),
            2 => at().prop_map(Step::Remove),
            1 => (2u64..5).prop_map(Step::Retain),
            1 => counts().prop_map(Step::Add),
            1 => (0u64..3).prop_map(Step::Multiply),
        ]
    }

    proptest! {
        #[test]
        fn they_are_what_a_map_of_them_is(
            zeros in proptest::collection::vec((0u64..40).prop_map(Va), 0..30),
            others in counts(),
            steps in proptest::collection::vec(step(), 0..30),
        ) {
            let mut map = others.clone();
            map.extend(zeros.iter().filter(|at| !others.contains_key(at)).map(|at| (*at, 0)));
            let mut counts = ByAddress::with_zeros(zeros, others);
            check(&counts, &map);
            for step in steps {
                match step {
                    Step::Insert(at, n) => prop_assert_eq!(counts.insert(at, n), map.insert(at, n)),
                    Step::Increment(at) => {
                        *counts.count_mut(at) |= 1;
                        *map.entry(at).or_default() |= 1;
                    }
                    Step::Remove(at) => prop_assert_eq!(counts.remove(&at), map.remove(&at)),
                    Step::Retain(n) => {
                        counts.retain(|at, count| at.0 % n != 0 || *count > 3);
                        map.retain(|at, count| at.0 % n != 0 || *count > 3);
                    }
                    Step::Add(other) => {
                        counts.add_all(&other.iter().map(|(at, n)| (*at, *n)).collect());
                        for (at, n) in other {
                            let sum = map.entry(at).or_default();
                            *sum = sum.saturating_add(n);
                        }
                    }
                    Step::Multiply(by) => {
                        counts.that_ran_mut().for_each(|n| *n = n.saturating_mul(by));
                        map.values_mut().for_each(|n| *n = n.saturating_mul(by));
                    }
                }
                check(&counts, &map);
            }
        }
    }
}
