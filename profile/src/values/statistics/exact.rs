//! Sums that lose nothing, and quotients rounded once.

use num_bigint::{BigInt, BigUint};

/// So many numbers are added before carries are passed on: then no limb can have overflowed.
const MOST_ADDED: u32 = 1 << 28;

/// A sum of whole numbers, in limbs of 32 bits whose carries wait.
#[derive(Default)]
pub(super) struct Sum {
    limbs: Vec<i64>,
    n_added: u32,
}

impl Sum {
    /// Adds `digits`, times two to the power `at`, `count` times.
    pub(super) fn add(&mut self, digits: u128, is_negative: bool, at: u32, count: u64) {
        let (first, shift) = ((at / 32) as usize, at % 32);
        if self.limbs.len() < first + 8 {
            self.limbs.resize(first + 8, 0);
        }
        for n in 0..4 {
            let digit = digits >> (32 * n) & 0xffff_ffff;
            let mut left = (digit * u128::from(count)) << shift;
            let mut at = first + n;
            while left > 0 {
                let low = i64::try_from(left & 0xffff_ffff).unwrap_or(0);
                if let Some(limb) = self.limbs.get_mut(at) {
                    *limb += if is_negative { -low } else { low };
                }
                left >>= 32;
                at += 1;
            }
        }
        self.n_added += 1;
        if self.n_added == MOST_ADDED {
            self.pass_on();
        }
    }

    fn pass_on(&mut self) {
        self.n_added = 0;
        let mut carry = 0;
        let last = self.limbs.len().saturating_sub(1);
        for (n, limb) in self.limbs.iter_mut().enumerate() {
            let whole = *limb + carry;
            carry = if n < last { whole >> 32 } else { 0 };
            *limb = whole - (carry << 32);
        }
        if self.limbs.last().is_some_and(|last| last.unsigned_abs() >> 32 > 0) {
            self.limbs.push(0);
            self.pass_on();
        }
    }

    /// What it came to.
    pub(super) fn value(&self) -> BigInt {
        self.limbs.iter().rev().fold(BigInt::default(), |sum, limb| (sum << 32) + *limb)
    }
}

/// `over / under`, times two to the `power`, rounded to the nearest, of two to the even one.
pub(super) fn ratio(over: &BigInt, under: &BigUint, power: i64) -> f64 {
    let shift = enough(over.magnitude().bits(), under.bits());
    let whole = over.magnitude() << shift;
    let quotient = &whole / under;
    let is_more = &quotient * under != whole;
    let rounded = rounded(&quotient, is_more, power - i64::try_from(shift).unwrap_or(0));
    if over.sign() == num_bigint::Sign::Minus { -rounded } else { rounded }
}

/// The square root of `over`, divided by `under`, times two to the `power`, rounded as [`ratio`] does.
pub(super) fn root_ratio(over: &BigUint, under: &BigUint, power: i64) -> f64 {
    let shift = enough(over.bits() / 2, under.bits());
    let whole = over << (2 * shift);
    let root = whole.sqrt();
    let quotient = &root / under;
    let is_more = &quotient * under != root || &root * &root != whole;
    rounded(&quotient, is_more, power - i64::try_from(shift).unwrap_or(0))
}

/// By how much a number of so many bits is to be shifted for a quotient of 66 at least.
fn enough(over: u64, under: u64) -> u64 {
    (under + 67).saturating_sub(over)
}

/// `whole` and perhaps something less than 1 `more`, times two to the `power`.
fn rounded(whole: &BigUint, is_more: bool, power: i64) -> f64 {
    let bits = i64::try_from(whole.bits()).unwrap_or(i64::MAX);
    if bits == 0 {
        return 0.0;
    }
    // The place of its last digit: 53 of them, fewer of the smallest.
    let last = (bits - 53 + power).max(-1074);
    let dropped = u64::try_from(last - power).unwrap_or(0);
    let mut digits = whole >> dropped;
    let is_half = dropped > 0 && whole.bit(dropped - 1);
    let is_above = is_more || dropped > 1 && whole.trailing_zeros().is_some_and(|zeros| zeros + 1 < dropped);
    if is_half && (is_above || digits.bit(0)) {
        digits += 1u32;
    }
    let digits = u64::try_from(digits).unwrap_or(u64::MAX);
    #[expect(clippy::cast_precision_loss, reason = "it has 53 bits, or is the next power of two")]
    let number = digits as f64;
    let power = i32::try_from(last).unwrap_or(i32::MAX);
    // In two steps that lose nothing: powers below 2^-1022 have few digits.
    number * 2f64.powi(power / 2) * 2f64.powi(power - power / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A `double` is itself, whatever it is divided and multiplied by.
        #[test]
        fn what_is_exact_is_not_rounded(bits in any::<u64>(), by in 1..u64::MAX) {
            let float = f64::from_bits(bits);
            prop_assume!(float.is_finite());
            let power = (bits >> 52 & 0x7ff).max(1);
            let digits = bits & ((1 << 52) - 1) | if bits >> 52 & 0x7ff == 0 { 0 } else { 1 << 52 };
            let over = BigInt::from(digits) << (power - 1);
            let over = if float.is_sign_negative() { -over } else { over };
            let read = ratio(&(over.clone() * by), &BigUint::from(by), -1074);
            prop_assert_eq!(read.to_bits() << 1, bits << 1);
            let root = root_ratio(&(over.magnitude() * over.magnitude() * by * by), &BigUint::from(by), -1074);
            prop_assert_eq!(root.to_bits(), bits & !(1 << 63));
        }

        /// As the processor divides.
        #[test]
        fn quotients_are_rounded_as_the_processor_does(a in any::<u32>(), b in 1..u32::MAX) {
            let want = f64::from(a) / f64::from(b);
            prop_assert_eq!(ratio(&BigInt::from(a), &BigUint::from(b), 0), want);
            prop_assert_eq!(root_ratio(&BigUint::from(a), &BigUint::from(1u32), 0), f64::from(a).sqrt());
        }

        #[test]
        fn sums_are_those_of_whole_numbers(
            all in proptest::collection::vec((any::<u128>(), any::<bool>(), 0..300u32, any::<u64>()), 0..40),
        ) {
            let (mut sum, mut want) = (Sum::default(), BigInt::default());
            for (n, (digits, is_negative, at, count)) in all.into_iter().enumerate() {
                sum.add(digits, is_negative, at, count);
                let one = (BigInt::from(digits) << at) * count;
                want += if is_negative { -one } else { one };
                if n % 7 == 0 {
                    sum.pass_on();
                }
            }
            prop_assert_eq!(sum.value(), want);
        }
    }
}
