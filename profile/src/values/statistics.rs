//! Statistics of numbers: of a distribution that is exact, or of all rows of a log.
//!
//! All of them are exact, rounded once to the nearest `f64`: sums are kept whole, and quantiles are between
//! two values that there were. Infinities and what is no number are counted, and nothing else is made of
//! them.
//!
//! *Source*: quantiles: R. J. Hyndman, Y. Fan, "Sample Quantiles in Statistical Packages", The American
//! Statistician 50(4), 1996, definition 7 (Python's `inclusive`, numpy's default); selection: D. Knuth, The
//! Art of Computer Programming, volume 3, 5.2.5 (by digits, the highest first).
#![warn(clippy::indexing_slicing)]

mod exact;
mod number;

pub use number::Number;

use super::Counted;
use super::log::{Ended, Log, Part};
use crate::vocabulary::ReadError;
use exact::{Sum, ratio, root_ratio};
use num_bigint::{BigInt, BigUint};
use number::{NumberKind, Read};
use program::signature::Type;

/// Statistics of the numbers of a column.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Statistics {
    /// How many there were that are finite.
    pub n: u64,
    /// Of these, what follows; nothing, if there are none.
    pub of_finite: Option<OfFinite>,
    /// How many were no number.
    pub n_nan: u64,
    /// How many were infinite.
    pub n_infinite: u64,
    /// How many were so small that they have fewer digits, but not zero.
    pub n_denormal: u64,
}

/// Statistics of finite numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OfFinite {
    /// The smallest.
    pub min: Number,
    /// The largest.
    pub max: Number,
    /// The arithmetic mean.
    pub mean: f64,
    /// The standard deviation of all of them, not of a sample.
    pub deviation: f64,
    /// The first decile.
    pub d1: f64,
    /// The first quartile.
    pub q1: f64,
    /// The median.
    pub median: f64,
    /// The third quartile.
    pub q3: f64,
    /// The ninth decile.
    pub d9: f64,
}

/// The number that the first word of a value is, if it is one, and finite.
pub fn finite(kind: &Type, word: u64) -> Option<f64> {
    let kind = NumberKind::of(kind)?;
    let Read::Finite(key) = kind.read(word) else { return None };
    #[expect(clippy::cast_precision_loss, reason = "the nearest is meant")]
    Some(match kind.number(key) {
        Number::Unsigned(n) => n as f64,
        Number::Signed(n) => n as f64,
        Number::Float(n) => n,
    })
}

/// Which quantiles there are: so many of so many parts below them.
const QUANTILES: [(u64, u64); 5] = [(1, 10), (1, 4), (1, 2), (3, 4), (9, 10)];
/// How many bits of a key are looked at in one go.
const DIGIT: u32 = 16;

impl Statistics {
    /// Of all values of a distribution that is exact; `None` if they are no numbers.
    pub fn of_counted(kind: &Type, all: &[Counted]) -> Option<Statistics> {
        let word = |one: &Counted| {
            let mut word = [0; 8];
            word.iter_mut().zip(&*one.bytes).for_each(|(to, byte)| *to = *byte);
            (u64::from_le_bytes(word), one.count)
        };
        Some(Statistics::of_words(NumberKind::of(kind)?, all.iter().map(word)))
    }

    /// Of whole numbers, each with how often it came.
    pub fn of_counts(all: &[(u64, u64)]) -> Statistics {
        Statistics::of_words(NumberKind::Unsigned, all.iter().copied())
    }

    fn of_words(kind: NumberKind, all: impl Iterator<Item = (u64, u64)>) -> Statistics {
        let mut made = Making::new(kind);
        let counted = all.filter_map(|(word, count)| Some((made.add(word, count)?, count)));
        let mut keys: Vec<(u64, u64)> = counted.collect();
        keys.sort_unstable();
        let mut n = 0;
        for (_, count) in &mut keys {
            n += *count;
            *count = n;
        }
        made.finish(|rank| {
            let at = keys.partition_point(|(_, up_to)| *up_to <= rank);
            keys.get(at).map_or(0, |(key, _)| *key)
        })
    }

    /// Of a part of all rows that have it in a table of `log`; `None` if it is no number.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn of_log(log: &Log, table: usize, part: Part) -> Result<Option<Statistics>, ReadError> {
        let of = log.tables.get(table);
        let kind = match part {
            Part::Argument(n) => of.and_then(|of| NumberKind::of(&of.arguments.get(n)?.kind)),
            Part::Result => of.and_then(|of| NumberKind::of(&of.result.as_ref()?.kind)),
            _ => Some(NumberKind::Unsigned),
        };
        let Some(kind) = kind else { return Ok(None) };
        // What did not come back has no result, and took no time that is known.
        let needs_result = matches!(part, Part::Result | Part::Ticks | Part::OwnTicks);
        let replay = |each: &mut dyn FnMut(u64)| -> Result<(), ReadError> {
            let parts = if needs_result { vec![part, Part::Ended] } else { vec![part] };
            for block in log.blocks(table, &parts) {
                let block = block?;
                let words = block.words(part);
                match needs_result {
                    true => {
                        let of = words.iter().enumerate();
                        of.filter(|(row, _)| block.ended(*row) == Ended::Result)
                            .for_each(|(_, word)| each(*word));
                    }
                    false => words.iter().for_each(|word| each(*word)),
                }
            }
            Ok(())
        };
        let mut made = Making::new(kind);
        replay(&mut |word| {
            made.add(word, 1);
        })?;
        let keys = select(&made.ranks(), made.range(), |each| {
            replay(&mut |word| {
                if let Read::Finite(key) = kind.read(word) {
                    each(key);
                }
            })
        })?;
        Ok(Some(made.finish(|rank| {
            let known = keys.binary_search_by_key(&rank, |known| known.0).ok();
            known.and_then(|n| keys.get(n)).map_or(0, |known| known.1)
        })))
    }
}

/// The keys of these ranks, from 0, of all that `replay` gives, which are in `range`. The ranks are
/// ascending.
fn select(
    ranks: &[u64],
    (min, max): (u64, u64),
    replay: impl Fn(&mut dyn FnMut(u64)) -> Result<(), ReadError>,
) -> Result<Vec<(u64, u64)>, ReadError> {
    // What is known of each: its high bits, and its rank among those that have them.
    let n_bits = 64 - (min ^ max).leading_zeros();
    let mut left = n_bits.next_multiple_of(DIGIT);
    let mut known: Vec<(u64, u64)> = ranks.iter().map(|rank| (high(min, left), *rank)).collect();
    while left > 0 && !known.is_empty() {
        let mut starts: Vec<u64> = known.iter().map(|known| known.0).collect();
        starts.dedup();
        let mut counts = vec![0u64; starts.len() << DIGIT];
        left -= DIGIT;
        replay(&mut |key| {
            let start = high(key, left + DIGIT);
            if let Some(n) = starts.iter().position(|known| *known == start) {
                let digit = high(key, left) & ((1 << DIGIT) - 1);
                let at = n << DIGIT | usize::try_from(digit).unwrap_or(0);
                counts.get_mut(at).into_iter().for_each(|count| *count += 1);
            }
        })?;
        for (start, rank) in &mut known {
            let n = starts.iter().position(|known| known == start).unwrap_or(0);
            let digits = counts.get(n << DIGIT..(n + 1) << DIGIT).unwrap_or_default();
            let mut digit = 0;
            for count in digits {
                if *rank < *count {
                    break;
                }
                *rank -= count;
                digit += 1;
            }
            *start = *start << DIGIT | digit;
        }
    }
    Ok(ranks.iter().copied().zip(known.into_iter().map(|known| known.0)).collect())
}

/// All but the lowest `n` bits.
fn high(key: u64, n: u32) -> u64 {
    key.checked_shr(n).unwrap_or(0)
}

/// Statistics in the making.
struct Making {
    kind: NumberKind,
    all: Statistics,
    sum: Sum,
    squares: Sum,
    min: u64,
    max: u64,
}

impl Making {
    fn new(kind: NumberKind) -> Making {
        let (all, sum, squares) = (Statistics::default(), Sum::default(), Sum::default());
        Making { kind, all, sum, squares, min: u64::MAX, max: 0 }
    }

    /// There was this so often; its key, if it is finite.
    fn add(&mut self, word: u64, count: u64) -> Option<u64> {
        let key = match self.kind.read(word) {
            Read::Finite(key) => key,
            Read::Nan => {
                self.all.n_nan += count;
                return None;
            }
            Read::Infinite => {
                self.all.n_infinite += count;
                return None;
            }
        };
        if self.kind.is_denormal(word) {
            self.all.n_denormal += count;
        }
        self.all.n += count;
        (self.min, self.max) = (self.min.min(key), self.max.max(key));
        let whole = self.kind.whole(key);
        self.sum.add(u128::from(whole.digits), whole.is_negative, whole.at, count);
        self.squares.add(u128::from(whole.digits) * u128::from(whole.digits), false, 2 * whole.at, count);
        Some(key)
    }

    /// The smallest and largest key.
    fn range(&self) -> (u64, u64) {
        (self.min.min(self.max), self.max)
    }

    /// Of each quantile: the rank, from 0, of the value below it, and how much of the way to the next.
    fn places(&self) -> [(u64, u64, u64); 5] {
        QUANTILES.map(|(of, parts)| {
            let place = u128::from(self.all.n.saturating_sub(1)) * u128::from(of);
            let below = u64::try_from(place / u128::from(parts)).unwrap_or(u64::MAX);
            (below, u64::try_from(place % u128::from(parts)).unwrap_or(0), parts)
        })
    }

    /// The ranks that quantiles are made of, ascending.
    fn ranks(&self) -> Vec<u64> {
        if self.all.n == 0 {
            return Vec::new();
        }
        let places = self.places();
        let all = places.iter().flat_map(|(below, _, _)| [*below, (below + 1).min(self.all.n - 1)]);
        let mut all: Vec<u64> = all.collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// All of it, with the keys that have these ranks.
    fn finish(&self, key_of: impl Fn(u64) -> u64) -> Statistics {
        let n = self.all.n;
        if n == 0 {
            return self.all;
        }
        let scale = -i64::from(self.kind.scale());
        let (sum, squares) = (self.sum.value(), self.squares.value());
        let whole = |rank: u64| {
            let whole = self.kind.whole(key_of(rank));
            let value = BigInt::from(whole.digits) << whole.at;
            if whole.is_negative { -value } else { value }
        };
        let [d1, q1, median, q3, d9] = self.places().map(|(below, part, parts)| {
            let (a, b) = (whole(below), whole((below + 1).min(n - 1)));
            ratio(&(a * (parts - part) + b * part), &BigUint::from(parts), scale)
        });
        let spread = (squares * n - &sum * &sum).magnitude().clone();
        let of_finite = OfFinite {
            min: self.kind.number(self.min),
            max: self.kind.number(self.max),
            mean: ratio(&sum, &BigUint::from(n), scale),
            deviation: root_ratio(&spread, &BigUint::from(n), scale),
            d1,
            q1,
            median,
            q3,
            d9,
        };
        Statistics { of_finite: Some(of_finite), ..self.all }
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
