//! Numbers counted in log-linear buckets: 64 for each doubling, so that what is said of one number is wrong
//! by 1/64 of it at most; below 128, each has its own.
//!
//! Source: the buckets are those of HDR histograms (G. Tene); VPROF, section 2.1, for what is said of them.
#![warn(clippy::indexing_slicing)]

use serde::{Deserialize, Serialize};

/// Buckets of each doubling.
const PER_DOUBLING: u64 = 64;

/// How often numbers came.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Buckets {
    /// By number of the bucket, up to the last that has some.
    buckets: Vec<Bucket>,
    n: u64,
    least: u64,
    most: u64,
    total: u128,
    /// The sum of squares.
    squares: f64,
}

/// What fell into a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Bucket {
    /// How much.
    pub n: u64,
    /// Which was the first of it: its number among all, from 1.
    pub first: u64,
}

/// What is said of some numbers; without any, all is 0.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Summary {
    /// How many there are.
    pub n: u64,
    /// Their sum.
    pub total: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, of them as a whole.
    pub deviation: f64,
    /// What half of them do not exceed.
    pub median: f64,
    /// What a quarter of them does not exceed.
    pub q1: f64,
    /// What three quarters of them do not exceed.
    pub q3: f64,
    /// What a tenth of them does not exceed.
    pub d1: f64,
    /// What nine tenths of them do not exceed.
    pub d9: f64,
}

/// The number of the bucket of `value`.
fn number(value: u64) -> usize {
    let doublings = (u64::BITS - (value / PER_DOUBLING).leading_zeros()).saturating_sub(1);
    usize::try_from((value >> doublings) + u64::from(doublings) * PER_DOUBLING).unwrap_or(usize::MAX)
}

/// The least number of a bucket, and how many it has.
fn bounds(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    let doublings = (bucket / PER_DOUBLING).saturating_sub(1);
    ((bucket - doublings * PER_DOUBLING) << doublings, 1 << doublings)
}

impl Buckets {
    /// There was this one.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.least = if self.n == 0 { value } else { self.least.min(value) };
        self.most = self.most.max(value);
        self.n += 1;
        self.total += u128::from(value);
        #[expect(clippy::cast_precision_loss, reason = "a deviation needs no more")]
        let wide = value as f64;
        self.squares += wide * wide;
        let number = number(value);
        if number >= self.buckets.len() {
            self.buckets.resize(number + 1, Bucket::default());
        }
        let Some(bucket) = self.buckets.get_mut(number) else { return };
        if bucket.n == 0 {
            bucket.first = self.n;
        }
        bucket.n += 1;
    }

    /// There were those of `other`, behind these.
    pub fn merge(&mut self, other: &Buckets) {
        if other.n == 0 {
            return;
        }
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), Bucket::default());
        }
        for (ours, theirs) in self.buckets.iter_mut().zip(&other.buckets).filter(|pair| pair.1.n > 0) {
            if ours.n == 0 {
                ours.first = self.n + theirs.first;
            }
            ours.n += theirs.n;
        }
        self.least = if self.n == 0 { other.least } else { self.least.min(other.least) };
        self.most = self.most.max(other.most);
        self.n += other.n;
        self.total += other.total;
        self.squares += other.squares;
    }

    /// How many there were.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Their sum.
    pub fn total(&self) -> u128 {
        self.total
    }

    /// What is in each bucket that has some, ascending: the least number that goes there, the least that goes
    /// above it, what is there.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, Bucket)> + '_ {
        self.buckets.iter().enumerate().filter(|(_, bucket)| bucket.n > 0).map(|(number, bucket)| {
            let (from, len) = bounds(number);
            (from, from.saturating_add(len), *bucket)
        })
    }

    /// The number that stands at this place when all are sorted, from 0; the middle of its bucket.
    fn at(&self, place: u64) -> f64 {
        let mut before = 0;
        for (from, to, bucket) in self.buckets() {
            before += bucket.n;
            if before > place {
                #[expect(clippy::cast_precision_loss, reason = "it is rounded to a bucket")]
                let middle = (from as f64 + (to - 1) as f64) / 2.0;
                #[expect(clippy::cast_precision_loss, reason = "likewise")]
                return middle.clamp(self.least as f64, self.most as f64);
            }
        }
        0.0
    }

    /// What is said of them, each being `unit`. Total, least, greatest and mean are exact, but for rounding;
    /// what depends on their order is right to 1/128 of it: of even many, between the two in the middle.
    #[expect(clippy::cast_precision_loss, reason = "what is said of many numbers is rounded")]
    pub fn summary(&self, unit: f64) -> Summary {
        if self.n == 0 {
            return Summary::default();
        }
        let n = self.n as f64;
        let mean = self.total as f64 / n;
        // Of numbers that are all the same, rounding must not make a deviation.
        let variance = if self.least == self.most { 0.0 } else { (self.squares / n - mean * mean).max(0.0) };
        let quantile = |tenths: u64| {
            // As Python's statistics.quantiles(method="inclusive") places them.
            let scaled = u128::from(self.n - 1) * u128::from(tenths);
            let place = u64::try_from(scaled / 20).unwrap_or(u64::MAX);
            let part = (scaled % 20) as f64 / 20.0;
            let low = self.at(place);
            let value = if part == 0.0 { low } else { low + part * (self.at(place + 1) - low) };
            value * unit
        };
        Summary {
            n: self.n,
            total: self.total as f64 * unit,
            min: self.least as f64 * unit,
            max: self.most as f64 * unit,
            mean: mean * unit,
            deviation: variance.sqrt() * unit,
            median: quantile(10),
            q1: quantile(5),
            q3: quantile(15),
            d1: quantile(2),
            d9: quantile(18),
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a test may panic, and its numbers are small"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_number_is_in_its_bucket() {
        let near = |n: u64| n.saturating_sub(2)..=n.saturating_add(2);
        for value in (0..64).flat_map(|k| near(1 << k)).chain(0..1000).chain([u64::MAX, 12_345_678_901]) {
            let (from, len) = bounds(number(value));
            assert!((from..=from + (len - 1)).contains(&value), "{value}: {from} {len}");
            assert!(len == 1 || from >= 64 * len, "{value}");
        }
        // No bucket is left out.
        for bucket in 0..3000 {
            let (from, len) = bounds(bucket);
            assert_eq!((number(from), number(from + (len - 1))), (bucket, bucket));
        }
    }

    proptest! {
        #[test]
        fn what_is_said_is_right_to_a_bucket(
            mut values in proptest::collection::vec(prop_oneof![0..200u64, 0..1_000_000u64, any::<u32>().prop_map(u64::from)], 1..200),
        ) {
            let mut buckets = Buckets::default();
            values.iter().for_each(|value| buckets.add(*value));
            let said = buckets.summary(1.0);
            let wide: Vec<f64> = { values.sort_unstable(); values.iter().map(|v| *v as f64).collect() };
            let n = wide.len() as f64;
            let mean = wide.iter().sum::<f64>() / n;
            let deviation = (wide.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n).sqrt();
            let is_near = |got: f64, want: f64, by: f64| (got - want).abs() <= by * want.abs() + 1e-6;
            prop_assert_eq!((said.n, said.min, said.max), (values.len() as u64, wide[0], wide[wide.len() - 1]));
            prop_assert!(is_near(said.mean, mean, 1e-12) && is_near(said.total, mean * n, 1e-12));
            prop_assert!((said.deviation - deviation).abs() <= 1e-4 * mean + 1e-6, "{} {deviation}", said.deviation);
            let quantile = |of: f64| {
                let place = (n - 1.0) * of;
                let (low, part) = (place.floor(), place - place.floor());
                let at = |k: f64| wide[(k as usize).min(wide.len() - 1)];
                at(low) + part * (at(low + 1.0) - at(low))
            };
            for (got, of) in [(said.median, 0.5), (said.q1, 0.25), (said.q3, 0.75), (said.d1, 0.1), (said.d9, 0.9)] {
                prop_assert!(is_near(got, quantile(of), 1.0 / 127.0), "{got} {} {of}", quantile(of));
            }
            prop_assert_eq!(buckets.buckets().map(|b| b.2.n).sum::<u64>(), said.n);
        }
    }
}
