//! A binary range coder with adaptive bits: the same model code writes and reads.
//!
//! Source: Martin, Range encoding, 1979; in the binary form of LZMA (12-bit probabilities, carry by a cached byte).
#![warn(clippy::indexing_slicing)]

/// The probability that a bit is 0, in 4096ths.
#[derive(Clone, Copy)]
pub struct Bit(u16);

impl Default for Bit {
    fn default() -> Self {
        Self(1 << 11)
    }
}

impl Bit {
    #[inline]
    fn learn(&mut self, bit: bool) {
        let (fewer, more) = (self.0 - (self.0 >> 4), self.0 + ((4096 - self.0) >> 4));
        self.0 = if bit { fewer } else { more };
        self.0 = self.0.clamp(31, 4096 - 31);
    }
}

/// Writes or reads; what is read is given back, and what is given to a reader is of no account.
pub trait Coder {
    /// Whether it writes: what is given counts.
    const WRITES: bool;
    /// A bit under a probability, which learns from it.
    fn bit(&mut self, probability: &mut Bit, bit: bool) -> bool;
    /// `n` bits, at most 32, that are as likely one way as the other.
    fn raw(&mut self, n: u32, value: u32) -> u32;
}

/// Writes.
pub struct Encoder {
    low: u64,
    range: u32,
    cached: u8,
    n_cached: u64,
    out: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { low: 0, range: u32::MAX, cached: 0, n_cached: 1, out: Vec::new() }
    }
}

impl Encoder {
    fn shift(&mut self) {
        if self.low < 0xff00_0000 || self.low > 0xffff_ffff {
            let carry = u8::from(self.low > 0xffff_ffff);
            self.out.push(self.cached.wrapping_add(carry));
            self.out.extend((1..self.n_cached).map(|_| 0xff_u8.wrapping_add(carry)));
            self.n_cached = 0;
            self.cached = (self.low >> 24 & 0xff) as u8;
        }
        self.n_cached += 1;
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    /// The bytes.
    pub fn finish(mut self) -> Vec<u8> {
        (0..5).for_each(|_| self.shift());
        self.out
    }
}

impl Coder for Encoder {
    const WRITES: bool = true;

    #[inline]
    fn bit(&mut self, probability: &mut Bit, bit: bool) -> bool {
        let bound = (self.range >> 12) * u32::from(probability.0);
        if bit {
            self.low += u64::from(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        probability.learn(bit);
        while self.range < 1 << 24 {
            self.range <<= 8;
            self.shift();
        }
        bit
    }

    #[inline]
    fn raw(&mut self, n: u32, value: u32) -> u32 {
        // At most 16 at once: the range has 24 bits at least.
        if n > 16 {
            self.raw(n - 16, value >> 16);
            self.raw(16, value & 0xffff);
            return value;
        }
        self.range >>= n;
        self.low += u64::from(value) * u64::from(self.range);
        while self.range < 1 << 24 {
            self.range <<= 8;
            self.shift();
        }
        value
    }
}

/// Reads. Past the end, zeros: who reads must know when to stop.
pub struct Decoder<'a> {
    code: u32,
    range: u32,
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Reads what [`Encoder::finish`] gave.
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut this = Self { code: 0, range: u32::MAX, rest: bytes };
        (0..5).for_each(|_| this.code = this.code << 8 | u32::from(this.byte()));
        this
    }

    #[inline]
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        byte
    }

    #[inline]
    fn fill(&mut self) {
        while self.range < 1 << 24 {
            self.range <<= 8;
            self.code = self.code << 8 | u32::from(self.byte());
        }
    }
}

impl Coder for Decoder<'_> {
    const WRITES: bool = false;

    #[inline]
    fn bit(&mut self, probability: &mut Bit, _: bool) -> bool {
        let bound = (self.range >> 12) * u32::from(probability.0);
        let bit = self.code >= bound;
        // Without branches: what comes cannot be foretold.
        let mask = u32::from(bit).wrapping_neg();
        self.code -= bound & mask;
        self.range = bound ^ (bound ^ (self.range - bound)) & mask;
        probability.learn(bit);
        self.fill();
        bit
    }

    #[inline]
    fn raw(&mut self, n: u32, _: u32) -> u32 {
        if n > 16 {
            let high = self.raw(n - 16, 0);
            return high << 16 | self.raw(16, 0);
        }
        self.range >>= n;
        let value = (self.code / self.range).min((1 << n) - 1);
        self.code = self.code.wrapping_sub(value * self.range);
        self.fill();
        value
    }
}

/// Numbers of 31 bits: how many bits, under probabilities of their own; the two highest too; the rest raw.
#[derive(Clone, Default)]
pub struct Number {
    lengths: [Bit; 32],
    high: [[Bit; 4]; 32],
}

impl Number {
    /// Codes `value`.
    #[inline]
    pub fn code(&mut self, coder: &mut impl Coder, value: u32) -> u32 {
        let wanted = value + 1;
        let wanted_len = 31 - wanted.leading_zeros();
        let mut node = 1_usize;
        for i in (0..5).rev() {
            let Some(probability) = self.lengths.get_mut(node) else { return 0 };
            node = node << 1 | usize::from(coder.bit(probability, wanted_len >> i & 1 == 1));
        }
        let len = u32::try_from(node & 31).unwrap_or(0);
        let (mut got, mut prefix) = (1_u32, 1_usize);
        let n_high = len.min(2);
        for i in 0..n_high {
            let bit = wanted >> (len - 1 - i).min(31) & 1 == 1;
            let probability = self.high.get_mut(node & 31).and_then(|high| high.get_mut(prefix));
            let Some(probability) = probability else { return 0 };
            let bit = coder.bit(probability, bit);
            got = got << 1 | u32::from(bit);
            prefix = prefix << 1 | usize::from(bit);
        }
        let n_raw = len - n_high;
        let low = coder.raw(n_raw, wanted & ((1 << n_raw) - 1));
        (got << n_raw | low).wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(numbers in prop::collection::vec(prop_oneof![0..5_u32, 0..1_000_000_u32, 0..i32::MAX.cast_unsigned()], 0..300)) {
            let (mut encoder, mut model) = (Encoder::default(), Number::default());
            for &n in &numbers {
                model.code(&mut encoder, n);
            }
            let bytes = encoder.finish();
            let (mut decoder, mut model) = (Decoder::new(&bytes), Number::default());
            for &n in &numbers {
                prop_assert_eq!(model.code(&mut decoder, 0), n);
            }
        }
    }
}
