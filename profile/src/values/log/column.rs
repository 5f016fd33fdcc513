//! How the values of a column are coded, a block of rows at a time: in the way that takes the least room.
//!
//! ```text
//! column     = coding: u8, body
//! constant   = value: varint
//! steps      = first: varint, step: zigzag varint              each is so much more than the one before
//! plain      = planes of the values
//! difference = planes of what each is more than the one before, zigzagged
//! xor        = planes of each XOR the one before
//! dictionary = length: varint, zstd of (values, the lowest byte of each number in these, then its other
//!              bits, as many as the largest needs, from the lowest bit of each byte on)
//! pairs      = length: varint, zstd of (values, each number in these in 2 bytes)
//! values     = how many: varint, the lowest byte of each, the next of each, 8 in all
//! planes     = n: u8, length: varint, zstd of (the lowest byte of each value, the next of each, n in all)
//! ```
//! The dictionary has the value first that comes most. Which coding takes the least is tried on some rows in
//! the middle where there are many.
//!
//! Source: XOR with the one before: T. Pelkonen et al., "Gorilla: A Fast, Scalable, In-Memory Time Series
//! Database", VLDB 2015, section 4.1.2; bytes by their place: F. Alted, "Why Modern CPUs Are Starving and
//! What Can Be Done about It", Computing in Science & Engineering 12(2), 2010 (shuffle of Blosc).
#![warn(clippy::indexing_slicing)]

use crate::encoding::{Cursor, unzigzag, varint, zigzag};
use crate::values::distribution::Mixed;
use crate::vocabulary::ReadError;
use hashbrown::HashMap;
use std::hash::BuildHasherDefault;

/// The most rows of a block.
pub const MOST_ROWS: usize = 1 << 16;
/// So many of them are tried.
const N_TRIED: usize = 1 << 12;
/// Quick, and for bytes by their place not much larger than what the others make.
const LEVEL: i32 = 1;

const CONSTANT: u8 = 0;
const STEPS: u8 = 1;
const PLAIN: u8 = 2;
const DIFFERENCE: u8 = 3;
const XOR: u8 = 4;
const DICTIONARY: u8 = 5;
const PAIRS: u8 = 6;

/// Codes columns; what it needs for that is kept from one to the next.
pub(super) struct Coder {
    zstd: zstd::bulk::Compressor<'static>,
    changed: Vec<u64>,
    planes: Vec<u8>,
    packed: Vec<u8>,
    numbers: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
}

impl Coder {
    /// With nothing in it.
    pub(super) fn new() -> std::io::Result<Coder> {
        let zstd = zstd::bulk::Compressor::new(LEVEL)?;
        let (changed, planes, packed, numbers) = (Vec::new(), Vec::new(), Vec::new(), HashMap::default());
        Ok(Coder { zstd, changed, planes, packed, numbers })
    }

    /// Appends `values` to `out`, of which there are [`MOST_ROWS`] at most.
    pub(super) fn encode(&mut self, values: &[u64], out: &mut Vec<u8>) {
        if let Some((first, step)) = steps(values) {
            out.push(if step == 0 { CONSTANT } else { STEPS });
            varint(out, first);
            if step != 0 {
                varint(out, zigzag(step));
            }
            return;
        }
        let from = (values.len() / 2).saturating_sub(N_TRIED / 2);
        let tried = values.get(from..from + N_TRIED).unwrap_or(values);
        let all = [PLAIN, DIFFERENCE, XOR];
        let sizes = all.map(|coding| (self.pack(coding, tried, &[]) * values.len() / tried.len(), coding));
        let (size, mut best) = sizes.into_iter().min().unwrap_or((usize::MAX, PLAIN));
        let dictionary =
            self.dictionary(tried, tried.len() / 2).and_then(|_| self.dictionary(values, MOST_ROWS));
        if let Some(dictionary) = &dictionary {
            // With as many different ones among those that are tried as there are in all, at most.
            let numbers = self.pack(DICTIONARY, tried, &[]) * values.len() / tried.len();
            self.pack(DICTIONARY, &[], dictionary);
            if numbers + self.packed.len() < size {
                best = DICTIONARY;
            }
        }
        let dictionary = dictionary.filter(|_| best == DICTIONARY).unwrap_or_default();
        let n = self.pack(best, values, &dictionary);
        // What repeats in part is shorter with both bytes of a number beside each other.
        if best == DICTIONARY && self.numbers.len() > 256 {
            if self.pack(PAIRS, values, &dictionary) < n {
                best = PAIRS;
            } else {
                self.pack(best, values, &dictionary);
            }
        }
        out.push(best);
        if !matches!(best, DICTIONARY | PAIRS) {
            out.push(u8::try_from(self.n_planes()).unwrap_or(8));
        }
        varint(out, self.packed.len() as u64);
        out.extend(&self.packed);
    }

    /// The dictionary of `values` as it is written, whose numbers are then known, if they are not more than
    /// `most`.
    fn dictionary(&mut self, values: &[u64], most: usize) -> Option<Vec<u8>> {
        self.numbers.clear();
        for value in values {
            *self.numbers.entry(*value).or_default() += 1;
            if self.numbers.len() > most {
                return None;
            }
        }
        let mut all: Vec<(u32, u64)> = self.numbers.iter().map(|(value, n)| (*n, *value)).collect();
        all.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut out = Vec::new();
        varint(&mut out, all.len() as u64);
        for plane in 0..8 {
            out.extend(all.iter().map(|(_, value)| byte(*value, plane)));
        }
        for (number, (_, value)) in (0..).zip(all) {
            self.numbers.insert(value, number);
        }
        Some(out)
    }

    /// Packs `values` in this way, behind `dictionary`; how many bytes that makes.
    fn pack(&mut self, coding: u8, values: &[u64], dictionary: &[u8]) -> usize {
        self.changed.clear();
        let mut last = 0u64;
        let numbers = &self.numbers;
        let changed = values.iter().map(|&value| {
            let before = std::mem::replace(&mut last, value);
            match coding {
                DIFFERENCE => zigzag(value.wrapping_sub(before).cast_signed()),
                XOR => value ^ before,
                DICTIONARY | PAIRS => numbers.get(&value).map_or(0, |n| u64::from(*n)),
                _ => value,
            }
        });
        self.changed.extend(changed);
        self.planes.clear();
        self.planes.extend(dictionary);
        match coding {
            DICTIONARY => {
                self.planes.extend(self.changed.iter().map(|number| byte(*number, 0)));
                pack_bits(&self.changed, n_more_bits(self.numbers.len()), &mut self.planes);
            }
            PAIRS => self
                .planes
                .extend(self.changed.iter().flat_map(|number| [byte(*number, 0), byte(*number, 1)])),
            _ => {
                for plane in 0..self.n_planes() {
                    self.planes.extend(self.changed.iter().map(|value| byte(*value, plane)));
                }
            }
        }
        self.packed.resize(zstd::zstd_safe::compress_bound(self.planes.len()), 0);
        let n = self.zstd.compress_to_buffer(&self.planes, &mut self.packed[..]).unwrap_or(0);
        self.packed.truncate(n);
        n
    }

    /// How many bytes each of what is coded has, at most.
    fn n_planes(&self) -> usize {
        let all = self.changed.iter().fold(0, |all, value| all | value);
        (64 - all.leading_zeros()).div_ceil(8) as usize
    }
}

/// A byte of a value, the lowest being the first.
fn byte(value: u64, n: usize) -> u8 {
    value.to_le_bytes().get(n).copied().unwrap_or(0)
}

/// How many bits the numbers below `n` have behind the lowest byte.
fn n_more_bits(n: usize) -> u32 {
    (usize::BITS - n.saturating_sub(1).leading_zeros()).saturating_sub(8)
}

/// Appends the `n_bits` bits behind the lowest byte of each number, one behind the other.
fn pack_bits(numbers: &[u64], n_bits: u32, out: &mut Vec<u8>) {
    let (mut bits, mut n) = (0u64, 0);
    for number in numbers {
        bits |= (number >> 8) << n;
        n += n_bits;
        while n >= 8 {
            out.push(byte(bits, 0));
            bits >>= 8;
            n -= 8;
        }
    }
    if n > 0 {
        out.push(byte(bits, 0));
    }
}

/// Reads numbers of which `low` are the lowest bytes, and `more` what [`pack_bits`] made.
fn unpack_bits(low: &[u8], more: &[u8], n_bits: u32) -> Vec<u64> {
    let (mut more, mut bits, mut n) = (more.iter(), 0u64, 0);
    let number = |low: &u8| {
        while n < n_bits {
            bits |= u64::from(more.next().copied().unwrap_or(0)) << n;
            n += 8;
        }
        let high = bits & ((1 << n_bits) - 1);
        bits >>= n_bits;
        n -= n_bits;
        u64::from(*low) | high << 8
    };
    low.iter().map(number).collect()
}

/// The first of `values`, and by how much each is more than the one before, if that is the same for all.
fn steps(values: &[u64]) -> Option<(u64, i64)> {
    let (first, second) = match values {
        [] => return Some((0, 0)),
        [first] => (*first, *first),
        [first, second, ..] => (*first, *second),
    };
    let step = second.wrapping_sub(first);
    let is_so = values.windows(2).all(|pair| matches!(pair, [a, b] if b.wrapping_sub(*a) == step));
    is_so.then_some((first, step.cast_signed()))
}

/// Reads `n` values.
///
/// # Errors
/// [`ReadError::Damaged`] if that is no column of so many.
pub(super) fn decode(c: &mut Cursor<'_>, n: usize) -> Result<Vec<u64>, ReadError> {
    if n > MOST_ROWS {
        return Err(c.damaged("a block of the log has too many rows"));
    }
    let coding = c.byte()?;
    if coding == CONSTANT {
        return Ok(vec![c.varint()?; n]);
    }
    if coding == STEPS {
        let (mut value, step) = (c.varint()?, unzigzag(c.varint()?).cast_unsigned());
        let next = || {
            let next = value.wrapping_add(step);
            Some(std::mem::replace(&mut value, next))
        };
        return Ok(std::iter::from_fn(next).take(n).collect());
    }
    let has_dictionary = matches!(coding, DICTIONARY | PAIRS);
    let n_planes = if has_dictionary { 2 } else { usize::from(c.byte()?).min(8) };
    let packed = c.bytes()?;
    let most = n_planes * n + if has_dictionary { 8 * MOST_ROWS + 10 } else { 0 };
    let unpacked = zstd::bulk::decompress(packed, most);
    let unpacked = unpacked.map_err(|_| c.damaged("a column of the log cannot be unpacked"))?;
    let mut inner = Cursor::within(&unpacked);
    if has_dictionary {
        let n_known = inner.len()?;
        if n_known > MOST_ROWS {
            return Err(c.damaged("a dictionary of the log is too long"));
        }
        let known = planes(&mut inner, n_known, 8)?;
        let numbers = match coding {
            PAIRS => inner
                .take(2 * n)?
                .chunks(2)
                .map(|two| two.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
                .collect(),
            _ => {
                let n_bits = n_more_bits(n_known);
                let low = inner.take(n)?;
                unpack_bits(low, inner.take((n * n_bits as usize).div_ceil(8))?, n_bits)
            }
        };
        let value = |number: u64| usize::try_from(number).ok().and_then(|n| known.get(n)).copied();
        let values: Option<Vec<u64>> = numbers.into_iter().map(value).collect();
        return values.ok_or_else(|| c.damaged("a value of the log is not in its dictionary"));
    }
    let mut values = planes(&mut inner, n, n_planes)?;
    let mut last = 0u64;
    for value in &mut values {
        last = match coding {
            PLAIN => *value,
            DIFFERENCE => last.wrapping_add(unzigzag(*value).cast_unsigned()),
            XOR => last ^ *value,
            _ => return Err(c.damaged("another version of engraft kept the log")),
        };
        *value = last;
    }
    Ok(values)
}

/// Values of so many bytes, the lowest of each first.
fn planes(c: &mut Cursor<'_>, n: usize, n_planes: usize) -> Result<Vec<u64>, ReadError> {
    let mut values = vec![0u64; n];
    for plane in 0..n_planes {
        let bytes = c.take(n)?;
        values.iter_mut().zip(bytes).for_each(|(value, byte)| *value |= u64::from(*byte) << (8 * plane));
    }
    Ok(values)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn coded(values: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        Coder::new().expect("there is memory").encode(values, &mut out);
        out
    }

    /// Values like those of programs: few, in steps, near each other, any.
    fn columns() -> impl Strategy<Value = Vec<u64>> {
        let doubles = proptest::collection::vec(-1e3..1e3f64, 0..300);
        prop_oneof![
            proptest::collection::vec(any::<u64>(), 0..300),
            proptest::collection::vec(0..5u64, 0..300),
            proptest::collection::vec((0..700u64).prop_map(|n| (n * n) << 40), 0..9000),
            (proptest::collection::vec((0..700u64).prop_map(|n| (n * n) << 40), 1..900), 1..9usize)
                .prop_map(|(some, n)| some.repeat(n)),
            proptest::collection::vec(prop_oneof![Just(u64::MAX), Just(7), Just(1 << 40)], 0..9000),
            doubles.prop_map(|all| all.into_iter().map(f64::to_bits).collect()),
            (any::<u64>(), any::<u64>(), 0..300u64).prop_map(|(first, step, n)| (0..n)
                .map(|k| first.wrapping_add(k.wrapping_mul(step)))
                .collect()),
            (any::<u64>(), proptest::collection::vec(-9..9i64, 0..9000)).prop_map(|(mut at, steps)| {
                let mut step = |step: &i64| {
                    at = at.wrapping_add_signed(*step);
                    at
                };
                steps.iter().map(&mut step).collect()
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_coded_is_read(values in columns()) {
            let out = coded(&values);
            let mut c = Cursor::within(&out);
            prop_assert_eq!(decode(&mut c, values.len()).expect("it is one"), values);
            prop_assert!(c.is_at_end());
        }

        #[test]
        fn what_is_damaged_is_no_reason_to_panic(values in columns(), at in any::<usize>(), to in any::<u8>()) {
            let mut out = coded(&values);
            let cut = at % out.len();
            let _read = decode(&mut Cursor::within(&out[..cut]), values.len());
            out[cut] = to;
            let _read = decode(&mut Cursor::within(&out), values.len());
        }
    }

    /// What issue 29 asks of the log, row 7.
    #[test]
    fn each_kind_of_column_takes_as_little_room_as_it_should() {
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 11
        };
        let n = MOST_ROWS;
        let len = |values: &[u64]| coded(values).len();
        assert!(len(&vec![f64::to_bits(1.5); n]) <= 10);
        assert!(len(&(0..n as u64).collect::<Vec<_>>()) <= 4);
        #[expect(clippy::cast_precision_loss, reason = "53 bits are left")]
        let doubles: Vec<u64> = (0..n).map(|_| (next() as f64 / (1u64 << 53) as f64).to_bits()).collect();
        assert!(10 * len(&doubles) <= 82 * n, "{}", len(&doubles));
        let any: Vec<u64> = (0..n).map(|_| next() << 32 ^ next()).collect();
        assert!(10 * len(&any) <= 82 * n, "{}", len(&any));
        // Of 403, any: 8.66 bits are the least.
        let some: Vec<u64> =
            (0..n).map(|_| f64::from(u32::try_from(next() % 403).expect("small")).sqrt().to_bits()).collect();
        assert!(100 * len(&some) <= 120 * n, "{}", len(&some));
        // Each half as often as the next is: some two bits.
        let few: Vec<u64> =
            (0..n).map(|_| f64::from(next().trailing_ones().min(400)).exp().to_bits()).collect();
        assert!(len(&few) <= n / 2, "{}", len(&few));
    }
}
