//! Which values there were, and how often: all of them as long as they are few, then those that came most.
//!
//! Beyond [`MOST_DISTINCT`] different values, the half that came least is dropped, and what is left has come
//! that often less: no count is too large, and none too small by more than is said. What came more often than
//! that is there.
//!
//! Source: J. Misra, D. Gries, "Finding repeated elements", 1982; by halves: D. Anderson et al., "A
//! High-Performance Algorithm for Identifying Frequent Items in Data Streams", IMC 2017, section 2.
#![warn(clippy::indexing_slicing)]

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasherDefault, Hasher};

/// So many different values are kept at most.
pub const MOST_DISTINCT: usize = 1 << 16;

/// The values of a column, by their bytes, little-endian.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(into = "Written", from = "Written")]
pub struct Distribution {
    /// Values of up to 8 bytes, zero-extended.
    short: HashMap<u64, u64, BuildHasherDefault<Mixed>>,
    /// Longer ones.
    long: HashMap<Box<[u8]>, u64, BuildHasherDefault<Mixed>>,
    /// How many bytes a value has; of all the same.
    len: u8,
    n: u64,
    missing: u64,
    /// How many different ones there were at once, before some were dropped.
    most: u64,
    /// The last short one, and how often it came since it was looked up.
    last: (u64, u64),
}

/// A value, and how often it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Its bytes, little-endian.
    pub bytes: Box<[u8]>,
    /// How often; perhaps up to [`Distribution::error`] more.
    pub count: u64,
}

impl Distribution {
    /// There was this one of `len` bytes, 8 at most, as long as the others, zero-extended.
    #[inline]
    pub fn add_word(&mut self, value: u64, len: u8) {
        self.n += 1;
        self.len = len;
        if value == self.last.0 {
            self.last.1 += 1;
            return;
        }
        self.settle();
        self.last = (value, 1);
    }

    /// There was this one, which is as long as the others, at most 255 bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let len = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
        let mut word = [0; 8];
        match word.get_mut(..bytes.len()) {
            Some(low) => {
                low.copy_from_slice(bytes);
                self.add_word(u64::from_le_bytes(word), len);
            }
            None => {
                self.n += 1;
                self.len = len;
                match self.long.get_mut(bytes) {
                    Some(count) => *count += 1,
                    None => drop(self.long.insert(bytes.into(), 1)),
                }
                self.shrink();
            }
        }
    }

    /// Counts the last one.
    fn settle(&mut self) {
        let (value, n) = std::mem::take(&mut self.last);
        if n > 0 {
            *self.short.entry(value).or_default() += n;
            self.shrink();
        }
    }

    /// Drops what came least, if there are too many.
    fn shrink(&mut self) {
        if self.short.len() + self.long.len() <= MOST_DISTINCT {
            return;
        }
        let mut counts: Vec<u64> = self.short.values().chain(self.long.values()).copied().collect();
        let middle = counts.len() / 2;
        let (_, median, _) = counts.select_nth_unstable(middle);
        let median = *median;
        self.missing += median;
        self.most = self.most.max(counts.len() as u64);
        let lessen = |count: &mut u64| {
            *count = count.saturating_sub(median);
            *count > 0
        };
        self.short.retain(|_, count| lessen(count));
        self.long.retain(|_, count| lessen(count));
    }

    /// There were those of `other`, too, which are as long.
    pub fn merge(&mut self, other: &Distribution) {
        self.settle();
        for one in other.counted() {
            let mut word = [0; 8];
            match word.get_mut(..one.bytes.len()) {
                Some(low) => {
                    low.copy_from_slice(&one.bytes);
                    *self.short.entry(u64::from_le_bytes(word)).or_default() += one.count;
                }
                None => *self.long.entry(one.bytes).or_default() += one.count,
            }
        }
        self.len = self.len.max(other.len);
        self.n += other.n;
        self.missing += other.missing;
        self.most = self.most.max(other.most);
        self.shrink();
    }

    /// How many there were.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Whether every value is there, as often as it came.
    pub fn is_exact(&self) -> bool {
        self.missing == 0
    }

    /// By how much each count may be too small.
    pub fn error(&self) -> u64 {
        self.missing
    }

    /// How many different ones there were, at least.
    pub fn n_distinct(&self) -> u64 {
        let last = u64::from(self.last.1 > 0 && !self.short.contains_key(&self.last.0));
        self.most.max((self.short.len() + self.long.len()) as u64 + last)
    }

    /// Those that are kept: what came most first, then by their bytes.
    pub fn counted(&self) -> Vec<Counted> {
        let mut settled;
        let of = match self.last.1 {
            0 => self,
            _ => {
                settled = self.clone();
                settled.settle();
                &settled
            }
        };
        let len = usize::from(of.len).min(8);
        let short = of.short.iter().map(|(value, count)| Counted {
            bytes: value.to_le_bytes().get(..len).unwrap_or_default().into(),
            count: *count,
        });
        let long = of.long.iter().map(|(bytes, count)| Counted { bytes: bytes.clone(), count: *count });
        let mut all: Vec<Counted> = short.chain(long).collect();
        all.sort_unstable_by(|a, b| {
            b.count.cmp(&a.count).then_with(|| a.bytes.iter().rev().cmp(b.bytes.iter().rev()))
        });
        all
    }
}

/// By what is in it.
impl PartialEq for Distribution {
    fn eq(&self, other: &Distribution) -> bool {
        let all = |of: &Distribution| (of.len, of.n, of.missing, of.most, of.counted());
        all(self) == all(other)
    }
}

/// How it is written: values in order.
#[derive(Serialize, Deserialize)]
struct Written {
    len: u8,
    n: u64,
    missing: u64,
    most: u64,
    counted: Vec<(Box<[u8]>, u64)>,
}

impl From<Distribution> for Written {
    fn from(all: Distribution) -> Written {
        let counted = all.counted().into_iter().map(|one| (one.bytes, one.count)).collect();
        Written { len: all.len, n: all.n, missing: all.missing, most: all.most, counted }
    }
}

impl From<Written> for Distribution {
    fn from(written: Written) -> Distribution {
        let Written { len, n, missing, most, counted } = written;
        let mut all = Distribution { len, n, missing, most, ..Distribution::default() };
        for (bytes, count) in counted {
            let mut word = [0; 8];
            match word.get_mut(..bytes.len()) {
                Some(low) => {
                    low.copy_from_slice(&bytes);
                    all.short.insert(u64::from_le_bytes(word), count);
                }
                None => drop(all.long.insert(bytes, count)),
            }
        }
        all
    }
}

/// A quick hash: values are multiplied, so that their high bits depend on all of them.
#[derive(Default)]
pub(super) struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxhash_rust::xxh3::xxh3_64_with_seed(bytes, self.0);
    }
    fn write_u64(&mut self, n: u64) {
        let wide = u128::from(n ^ self.0 ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
        let folded = (wide as u64) ^ ((wide >> 64) as u64);
        self.0 = folded;
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn truth(values: &[u64]) -> BTreeMap<u64, u64> {
        let mut all = BTreeMap::new();
        values.iter().for_each(|value| *all.entry(*value).or_default() += 1);
        all
    }

    proptest! {
        #[test]
        fn few_values_are_counted_exactly(
            values in proptest::collection::vec(0..50u64, 0..400),
        ) {
            let mut all = Distribution::default();
            values.iter().for_each(|value| all.add(&value.to_le_bytes()));
            let got: BTreeMap<u64, u64> = all
                .counted()
                .into_iter()
                .map(|one| (u64::from_le_bytes(one.bytes[..].try_into().expect("eight")), one.count))
                .collect();
            prop_assert_eq!(&got, &truth(&values));
            prop_assert_eq!((all.n(), all.is_exact()), (values.len() as u64, true));
            prop_assert_eq!(all.n_distinct(), got.len() as u64);
            prop_assert!(all.counted().is_sorted_by(|a, b| a.count >= b.count));
        }
    }

    /// A value that comes often is there, whatever else comes; none is said to have come too often, and none
    /// is too small by more than is said.
    #[test]
    fn of_many_values_those_that_come_most_are_there() {
        let mut all = Distribution::default();
        let mut wide = Distribution::default();
        let mut values = Vec::new();
        let mut random = 1u64;
        for n in 0..400_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = match n % 4 {
                0 => 7,
                1 => n % 400,
                _ => random >> 8,
            };
            values.push(value);
            all.add(&value.to_le_bytes());
            wide.add(&u128::from(value).to_le_bytes());
        }
        let truth = truth(&values);
        for all in [&all, &wide] {
            assert!(!all.is_exact() && all.n() == 400_000);
            assert!(all.counted().len() <= MOST_DISTINCT && all.n_distinct() <= truth.len() as u64);
            for one in all.counted() {
                let value = u64::from_le_bytes(one.bytes[..8].try_into().expect("eight"));
                let n = truth[&value];
                assert!((one.count..=one.count + all.error()).contains(&n), "{value}: {} {n}", one.count);
            }
            let kept = all.counted();
            assert_eq!(u64::from_le_bytes(kept[0].bytes[..8].try_into().expect("eight")), 7);
            let often = truth.iter().filter(|(_, n)| **n > all.error());
            assert_eq!(often.count(), 101, "what comes 1,000 times, and what comes 100,000 times");
        }
    }
}
