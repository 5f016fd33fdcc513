//! When calls come again with the same arguments, and how often a table that remembers results would have had
//! them: by its size, and by how many places a result may have in it.
//!
//! A call's stack distance is how many different arguments there were since the same ones came last. A table
//! of n entries that drops what was not used for longest has the result if that is below n. With `w` ways,
//! the entries are sets of `w`, each of which does the same with the arguments that a hash leads to it.
//!
//! *Source*: VPROF, section 2.2 and figure 4 (distances in calls); stack distances: R. L. Mattson et al.,
//! "Evaluation Techniques for Storage Hierarchies", IBM Systems Journal 9(2), 1970; counted by a Fenwick
//! tree: P. M. Fenwick, "A New Data Structure for Cumulative Frequency Tables", Software: Practice and
//! Experience 24(3), 1994; all numbers of ways at once: M. D. Hill, A. J. Smith, "Evaluating Associativity in
//! CPU Caches", IEEE Transactions on Computers 38(12), 1989.
#![warn(clippy::indexing_slicing)]

use super::distribution::Mixed;
use super::log::{Log, Part};
use crate::vocabulary::ReadError;
use hashbrown::HashMap;
use std::hash::BuildHasherDefault;
use xxhash_rust::xxh3::xxh3_64;

/// Tables have up to two to the power of this entries.
pub const LARGEST: usize = 16;
/// In how many ways, to the power of two: 1, 2, 4, 8.
pub const WAYS: [usize; 4] = [1, 2, 4, 8];
/// More different arguments are not told apart: calls behind them are not looked at.
const MOST_DISTINCT: usize = 1 << 22;
/// Of so many of the most frequent arguments, distances are kept.
const N_FREQUENT: usize = 20;

/// How calls of a function come again.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reuse {
    /// How many calls were looked at.
    pub n_calls: u64,
    /// How many different arguments these had.
    pub n_distinct: u64,
    /// Of tables of 1, 2, 4 … entries: how often the result would have been there.
    pub hits: Vec<Hits>,
    /// The most frequent arguments, those that came most first.
    pub frequent: Vec<Frequent>,
}

/// How often a table would have had the result.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hits {
    /// With each of 1, 2, 4 and 8 ways; `None` if it has fewer entries than ways.
    pub by_ways: [Option<u64>; WAYS.len()],
    /// With one set of all entries.
    pub full: u64,
}

/// Arguments that come often.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frequent {
    /// The words of all arguments.
    pub words: Vec<u64>,
    /// How often they came.
    pub count: u64,
    /// After how many calls they came again: distances, ascending, and how often each was.
    pub distances: Vec<(u64, u64)>,
}

impl Reuse {
    /// Of the calls in a table of `log`.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn of_log(log: &Log, table: usize) -> Result<Reuse, ReadError> {
        let n_arguments = log.tables.get(table).map_or(0, |table| table.arguments.len());
        let parts: Vec<Part> = (0..n_arguments).map(Part::Argument).collect();
        let mut known = Known::default();
        for block in log.blocks(table, &parts) {
            let block = block?;
            let mut words = Vec::new();
            for row in 0..block.n_rows() {
                block.row(row, &mut words);
                known.add(&words);
            }
        }
        known.most_frequent();
        let mut calls = Calls::new(&known);
        'all: for block in log.blocks(table, &parts) {
            let block = block?;
            let mut words = Vec::new();
            for row in 0..block.n_rows() {
                block.row(row, &mut words);
                let Some(id) = known.ids.get(words.as_slice()) else { break 'all };
                calls.add(*id);
            }
        }
        Ok(calls.finish())
    }

    /// Of calls with these arguments, one behind the other.
    #[cfg(test)]
    #[expect(clippy::indexing_slicing, reason = "a test may panic")]
    fn of_calls(all: &[Vec<u64>]) -> Reuse {
        let mut known = Known::default();
        all.iter().for_each(|words| known.add(words));
        known.most_frequent();
        let mut calls = Calls::new(&known);
        all.iter().for_each(|words| calls.add(known.ids[words.as_slice()]));
        calls.finish()
    }
}

/// All arguments that there were.
#[derive(Default)]
struct Known {
    ids: HashMap<Box<[u64]>, u32, BuildHasherDefault<Mixed>>,
    /// By id: how often they came, and their hash.
    counts: Vec<u64>,
    hashes: Vec<u64>,
    /// The ids that came most, and their arguments.
    frequent: Vec<(u32, Vec<u64>)>,
}

impl Known {
    fn add(&mut self, words: &[u64]) {
        if let Some(id) = self.ids.get(words) {
            self.counts.get_mut(*id as usize).into_iter().for_each(|count| *count += 1);
            return;
        }
        if self.ids.len() == MOST_DISTINCT {
            return;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.ids.insert(words.into(), u32::try_from(self.counts.len()).unwrap_or(u32::MAX));
        self.counts.push(1);
        self.hashes.push(xxh3_64(&bytes));
    }

    fn most_frequent(&mut self) {
        let count = |id: u32| self.counts.get(id as usize).copied().unwrap_or(0);
        let mut ids: Vec<u32> = (0..u32::try_from(self.counts.len()).unwrap_or(u32::MAX)).collect();
        let n = N_FREQUENT.min(ids.len());
        if n < ids.len() {
            ids.select_nth_unstable_by_key(n, |id| (u64::MAX - count(*id), *id));
        }
        ids.truncate(n);
        ids.sort_by_key(|id| (u64::MAX - count(*id), *id));
        let mut words: HashMap<u32, Vec<u64>, BuildHasherDefault<Mixed>> = HashMap::default();
        for (of, id) in &self.ids {
            if ids.contains(id) {
                words.insert(*id, of.to_vec());
            }
        }
        self.frequent = ids.into_iter().map(|id| (id, words.remove(&id).unwrap_or_default())).collect();
    }
}

/// Calls, as they come.
struct Calls<'a> {
    known: &'a Known,
    n: u64,
    /// By id: the number of the last call with it, from 1, and its place in the tree.
    last: Vec<(u64, u32)>,
    tree: Fenwick,
    /// By how many bits a stack distance has: how many calls have such a one.
    by_bits: [u64; LARGEST + 2],
    /// By the number of sets, to the power of two: the ids in each, the last used first, eight of them.
    sets: Vec<Vec<[u32; 8]>>,
    /// How often the place in a set was this one.
    found: Vec<[u64; 8]>,
    /// Of the frequent ones: distances.
    distances: Vec<HashMap<u64, u64, BuildHasherDefault<Mixed>>>,
    /// By id: which of these.
    frequent: HashMap<u32, usize, BuildHasherDefault<Mixed>>,
    n_seen: u64,
}

/// The id of nothing.
const NONE: u32 = u32::MAX;

impl<'a> Calls<'a> {
    fn new(known: &'a Known) -> Calls<'a> {
        let frequent = known.frequent.iter().enumerate().map(|(n, (id, _))| (*id, n)).collect();
        Calls {
            known,
            n: 0,
            last: vec![(0, 0); known.counts.len()],
            tree: Fenwick::new(2 * known.counts.len().max(1 << 12)),
            by_bits: [0; LARGEST + 2],
            sets: (0..=LARGEST).map(|n| vec![[NONE; 8]; 1 << n]).collect(),
            found: vec![[0; 8]; LARGEST + 1],
            distances: vec![HashMap::default(); known.frequent.len()],
            frequent,
            n_seen: 0,
        }
    }

    fn add(&mut self, id: u32) {
        self.n += 1;
        if self.tree.is_full() {
            self.make_room();
        }
        let now = self.n;
        let Some(last) = self.last.get_mut(id as usize) else { return };
        let (before, place) = std::mem::replace(last, (now, self.tree.next()));
        if before == 0 {
            self.n_seen += 1;
            self.tree.append();
        } else {
            let distance = self.tree.n_behind(place);
            self.tree.take(place);
            self.tree.append();
            let bits = (64 - distance.leading_zeros()) as usize;
            self.by_bits.get_mut(bits.min(LARGEST + 1)).into_iter().for_each(|n| *n += 1);
            if let Some(of) = self.frequent.get(&id).and_then(|n| self.distances.get_mut(*n)) {
                *of.entry(now - before).or_default() += 1;
            }
        }
        self.look_up(id);
    }

    /// In all tables.
    fn look_up(&mut self, id: u32) {
        let hash = self.known.hashes.get(id as usize).copied().unwrap_or(0);
        for (n, (sets, found)) in self.sets.iter_mut().zip(&mut self.found).enumerate() {
            let set = hash.checked_shr(64 - u32::try_from(n).unwrap_or(0)).unwrap_or(0);
            let Some(set) = usize::try_from(set).ok().and_then(|set| sets.get_mut(set)) else { continue };
            let at = set.iter().position(|known| *known == id);
            at.and_then(|at| found.get_mut(at)).into_iter().for_each(|n| *n += 1);
            if let Some(moved) = set.get_mut(..=at.unwrap_or(7)) {
                moved.rotate_right(1);
            }
            set.first_mut().into_iter().for_each(|first| *first = id);
        }
    }

    /// Puts what is in the tree to its start.
    fn make_room(&mut self) {
        let mut order: Vec<(u32, usize)> = Vec::new();
        for (id, (last, place)) in self.last.iter().enumerate() {
            if *last > 0 {
                order.push((*place, id));
            }
        }
        order.sort_unstable();
        self.tree.clear();
        for (_, id) in order {
            let place = self.tree.next();
            self.last.get_mut(id).into_iter().for_each(|last| last.1 = place);
            self.tree.append();
        }
    }

    fn finish(self) -> Reuse {
        let hits = |n: usize| Hits {
            by_ways: WAYS.map(|ways| {
                let sets = n.checked_sub(ways.trailing_zeros() as usize)?;
                Some(self.found.get(sets)?.iter().take(ways).sum())
            }),
            full: self.by_bits.iter().take(n + 1).sum(),
        };
        let frequent = self.known.frequent.iter().zip(self.distances).map(|((id, words), distances)| {
            let mut distances: Vec<(u64, u64)> = distances.into_iter().collect();
            distances.sort_unstable();
            let count = self.known.counts.get(*id as usize).copied().unwrap_or(0);
            Frequent { words: words.clone(), count, distances }
        });
        Reuse {
            n_calls: self.n,
            n_distinct: self.n_seen,
            hits: (0..=LARGEST).map(hits).collect(),
            frequent: frequent.collect(),
        }
    }
}

/// How many there are behind a place, of what is appended and taken away.
struct Fenwick {
    sums: Vec<u32>,
    /// How many places were used, and how many of them hold something.
    n_used: u32,
    n_held: u32,
}

impl Fenwick {
    fn new(len: usize) -> Fenwick {
        Fenwick { sums: vec![0; len + 1], n_used: 0, n_held: 0 }
    }

    fn is_full(&self) -> bool {
        self.n_used as usize + 1 == self.sums.len()
    }

    /// The place where the next goes.
    fn next(&self) -> u32 {
        self.n_used + 1
    }

    fn append(&mut self) {
        self.n_used += 1;
        self.n_held += 1;
        self.change(self.n_used, |sum| sum + 1);
    }

    fn take(&mut self, place: u32) {
        self.n_held -= 1;
        self.change(place, |sum| sum - 1);
    }

    fn change(&mut self, place: u32, how: impl Fn(u32) -> u32) {
        let mut at = place;
        while let Some(sum) = self.sums.get_mut(at as usize) {
            *sum = how(*sum);
            at += at & at.wrapping_neg();
        }
    }

    fn n_behind(&self, place: u32) -> u64 {
        let (mut at, mut n) = (place, 0);
        while at > 0 {
            n += u64::from(self.sums.get(at as usize).copied().unwrap_or(0));
            at &= at - 1;
        }
        u64::from(self.n_held) - n
    }

    fn clear(&mut self) {
        self.sums.fill(0);
        (self.n_used, self.n_held) = (0, 0);
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, VecDeque};

    /// What a table of so many sets of so many entries has, which drops what was not used for longest.
    fn simulated(all: &[u64], n_sets: usize, ways: usize, hash: impl Fn(u64) -> usize) -> u64 {
        let mut sets = vec![VecDeque::new(); n_sets];
        let mut n_hits = 0;
        for value in all {
            let set = &mut sets[hash(*value)];
            if let Some(at) = set.iter().position(|known| known == value) {
                n_hits += 1;
                set.remove(at);
            }
            set.push_front(*value);
            set.truncate(ways);
        }
        n_hits
    }

    proptest! {
        #[test]
        fn tables_have_what_a_simulation_of_each_has(
            all in proptest::collection::vec(prop_oneof![0..4u64, 0..60u64, 0..3000u64], 0..900),
        ) {
            let reuse = Reuse::of_calls(&all.iter().map(|value| vec![*value]).collect::<Vec<_>>());
            prop_assert_eq!(reuse.n_calls, all.len() as u64);
            for (n, hits) in reuse.hits.iter().enumerate().take(12) {
                prop_assert_eq!(hits.full, simulated(&all, 1, 1 << n, |_| 0), "full, {}", n);
                for (ways, got) in WAYS.iter().zip(hits.by_ways) {
                    let want = (*ways <= 1 << n).then(|| {
                        let n_sets = (1 << n) / ways;
                        let set = |value: u64| {
                            let bits = n_sets.trailing_zeros();
                            let hash = xxh3_64(&value.to_le_bytes());
                            usize::try_from(hash.checked_shr(64 - bits).unwrap_or(0)).expect("small")
                        };
                        simulated(&all, n_sets, *ways, set)
                    });
                    prop_assert_eq!(got, want, "{} ways, {}", ways, n);
                }
            }
            let mut counts = BTreeMap::<u64, u64>::new();
            all.iter().for_each(|value| *counts.entry(*value).or_default() += 1);
            prop_assert_eq!(reuse.n_distinct, counts.len() as u64);
            let mut most: Vec<u64> = counts.values().copied().collect();
            most.sort_by_key(|n| u64::MAX - n);
            most.truncate(20);
            prop_assert_eq!(reuse.frequent.iter().map(|one| one.count).collect::<Vec<_>>(), most);
            for one in &reuse.frequent {
                let places: Vec<usize> = (0..all.len()).filter(|n| all[*n] == one.words[0]).collect();
                let mut want = BTreeMap::<u64, u64>::new();
                places.windows(2).for_each(|two| *want.entry((two[1] - two[0]) as u64).or_default() += 1);
                prop_assert_eq!(&one.distances, &want.into_iter().collect::<Vec<_>>());
            }
        }
    }

    /// The tree has fewer places than there are calls.
    #[test]
    fn places_are_used_again() {
        let all: Vec<Vec<u64>> = (0..100_000u64).map(|n| vec![n * n % 37, n % 5]).collect();
        let reuse = Reuse::of_calls(&all);
        let flat: Vec<u64> = all.iter().map(|words| words[0] * 5 + words[1]).collect();
        for (n, hits) in reuse.hits.iter().enumerate().take(9) {
            assert_eq!(hits.full, simulated(&flat, 1, 1 << n, |_| 0), "{n}");
        }
        assert_eq!(reuse.hits[16].full, 100_000 - reuse.n_distinct);
    }
}
