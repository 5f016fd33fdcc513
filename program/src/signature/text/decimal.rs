//! Floating-point numbers of all formats as the shortest decimal ones that read back.
//!
//! Source: Burger and Dybvig, "Printing Floating-Point Numbers Quickly and Accurately" (1996), figure 1 (the
//! free-format algorithm, with exact arithmetic); IEEE 754-2019, 3.4 (formats).
#![warn(clippy::indexing_slicing)]

use super::Float;
use std::cmp::Ordering;

/// A number: `mantissa · 2^exponent`.
struct Finite {
    mantissa: u128,
    exponent: i32,
    /// Whether the next smaller number is nearer than the next larger one.
    is_boundary: bool,
}

/// The number whose bits these are.
pub fn decimal(float: Float, bits: u128) -> String {
    // Bits of the exponent, and of the mantissa behind its first one.
    let (exponent_bits, fraction_bits) = match float {
        Float::Half => (5, 10),
        Float::Single => (8, 23),
        Float::Double => (11, 52),
        Float::Extended => (15, 63),
        Float::Quad => (15, 112),
    };
    let is_extended = float == Float::Extended;
    // The x87 keeps the first bit of the mantissa, which the others leave out.
    let kept = fraction_bits + u32::from(is_extended);
    let most = (1u32 << exponent_bits) - 1;
    let exponent = u32::try_from(bits >> kept & u128::from(most)).unwrap_or(most);
    let fraction = bits & ((1 << fraction_bits) - 1);
    let sign = if bits >> (kept + exponent_bits) & 1 == 1 { "-" } else { "" };
    let first = bits >> fraction_bits & 1 == 1;
    if exponent == most {
        let is_infinite = fraction == 0 && (!is_extended || first);
        return if is_infinite { format!("{sign}inf") } else { "nan".to_owned() };
    }
    // The x87 takes no such operand.
    if is_extended && exponent > 0 && !first {
        return "nan".to_owned();
    }
    let has_first = if is_extended { first } else { exponent > 0 };
    let mantissa = fraction | u128::from(has_first) << fraction_bits;
    if mantissa == 0 {
        return format!("{sign}0");
    }
    let bias = i32::try_from(most / 2).unwrap_or(0) + i32::try_from(fraction_bits).unwrap_or(0);
    let finite = Finite {
        mantissa,
        exponent: i32::try_from(exponent.max(1)).unwrap_or(0) - bias,
        is_boundary: fraction == 0 && exponent > 1,
    };
    let (digits, point) = match float {
        Float::Single => {
            quick(&format!("{:e}", f32::from_bits(u32::try_from(bits & 0x7fff_ffff).unwrap_or(0))))
        }
        Float::Double => {
            quick(&format!("{:e}", f64::from_bits(u64::try_from(bits & ((1 << 63) - 1)).unwrap_or(0))))
        }
        _ => shortest(&finite),
    };
    format!("{sign}{}", written(&digits, point))
}

/// The digits of a number that is written like `1.25e-7`, and where its point stands before them.
fn quick(text: &str) -> (String, i32) {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    (digits.replace('.', ""), exponent.parse::<i32>().unwrap_or(0) + 1)
}

/// `0.digits · 10^point` as people write it.
fn written(digits: &str, point: i32) -> String {
    let n = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |n: i32| "0".repeat(usize::try_from(n).unwrap_or(0));
    match point {
        -4..=0 => format!("0.{}{digits}", zeros(-point)),
        1..=16 if point >= n => format!("{digits}{}", zeros(point - n)),
        1..=16 => {
            let (whole, rest) = digits.split_at(usize::try_from(point).unwrap_or(0));
            format!("{whole}.{rest}")
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            format!("{first}{dot}{rest}e{}", point - 1)
        }
    }
}

/// The fewest digits that lie nearer to this number than to its neighbours, and where the point stands.
fn shortest(number: &Finite) -> (String, i32) {
    // The value is rest/scale; half the distances to its neighbours are above/scale and below/scale.
    let extra = 1 + u32::from(number.is_boundary);
    let up = u32::try_from(number.exponent).unwrap_or(0);
    let down = number.exponent.min(0).unsigned_abs();
    let mut rest = Natural::of(number.mantissa).shifted(up + extra);
    let mut scale = Natural::of(1).shifted(down + extra);
    let mut below = Natural::of(1).shifted(up);
    let mut above = Natural::of(1).shifted(up + extra - 1);
    let is_even = number.mantissa.is_multiple_of(2);
    // An estimate that is right or one too small.
    let log = (number.mantissa as f64).log10() + f64::from(number.exponent) * std::f64::consts::LOG10_2;
    #[expect(clippy::cast_possible_truncation, reason = "exponents of 15 bits have logarithms below 5000")]
    let mut point = (log - 1e-9).ceil() as i32;
    if point > 0 {
        scale.scale(point.unsigned_abs());
    } else {
        [&mut rest, &mut below, &mut above].into_iter().for_each(|n| n.scale(point.unsigned_abs()));
    }
    let reaches = |rest: &Natural, above: &Natural, scale: &Natural| match rest.plus(above).compare(scale) {
        Ordering::Greater => true,
        Ordering::Equal => is_even,
        Ordering::Less => false,
    };
    if reaches(&rest, &above, &scale) {
        point += 1;
    } else {
        [&mut rest, &mut below, &mut above].into_iter().for_each(|n| n.times(10));
    }
    let mut digits = String::new();
    loop {
        let mut digit = 0u8;
        while rest.compare(&scale) != Ordering::Less {
            rest.subtract(&scale);
            digit += 1;
        }
        let is_low = match rest.compare(&below) {
            Ordering::Less => true,
            Ordering::Equal => is_even,
            Ordering::Greater => false,
        };
        let is_high = reaches(&rest, &above, &scale);
        if is_low || is_high {
            let rounds_up = match (is_low, is_high) {
                (true, true) => rest.plus(&rest).compare(&scale) != Ordering::Less,
                (_, is_high) => is_high,
            };
            digits.push(char::from(b'0' + digit + u8::from(rounds_up)));
            return (digits, point);
        }
        digits.push(char::from(b'0' + digit));
        [&mut rest, &mut below, &mut above].into_iter().for_each(|n| n.times(10));
    }
}

/// A natural number of any size: 32 bits a word, the least significant first, no zeros at the end.
#[derive(Clone)]
struct Natural(Vec<u32>);

#[expect(clippy::cast_possible_truncation, reason = "words are cut out of larger numbers")]
impl Natural {
    fn of(n: u128) -> Natural {
        Natural((0..4).map(|i| (n >> (32 * i)) as u32).collect()).trimmed()
    }

    fn trimmed(mut self) -> Natural {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn shifted(mut self, bits: u32) -> Natural {
        self.times(1 << (bits % 32));
        let mut words = vec![0; usize::try_from(bits / 32).unwrap_or(0)];
        words.append(&mut self.0);
        Natural(words)
    }

    fn times(&mut self, n: u32) {
        let mut carry = 0;
        for word in &mut self.0 {
            let product = u64::from(*word) * u64::from(n) + carry;
            *word = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Times 10 to the `n`.
    fn scale(&mut self, n: u32) {
        (0..n / 9).for_each(|_| self.times(1_000_000_000));
        (0..n % 9).for_each(|_| self.times(10));
    }

    fn plus(&self, other: &Natural) -> Natural {
        let mut carry = 0;
        let word = |n: &Natural, i: usize| u64::from(n.0.get(i).copied().unwrap_or(0));
        let words = (0..self.0.len().max(other.0.len()) + 1).map(|i| {
            let sum = word(self, i) + word(other, i) + carry;
            carry = sum >> 32;
            sum as u32
        });
        Natural(words.collect()).trimmed()
    }

    /// Minus a number that is not larger.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = 0;
        for (i, word) in self.0.iter_mut().enumerate() {
            let minus = i64::from(other.0.get(i).copied().unwrap_or(0)) + borrow;
            let difference = i64::from(*word) - minus;
            borrow = i64::from(difference < 0);
            *word = difference as u32;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn compare(&self, other: &Natural) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}
