//! A binary range coder with adaptive bits: the same model code writes and reads.
//!
//! A bit is 0 with the mean of two shares of 65,536, the lowest bit of it set: one that moves a 16th of the
//! way with each bit that comes, one that moves a 128th. A number n is n + 1 as how many bits it has behind
//! its first, in a tree of bits, then the two highest of these, each with probabilities of their own, and the
//! rest as they are. The range has 64 bits; 32 are written at once, the highest byte first; zeros at the end
//! are left out.
//!
//! Source: Martin, Range encoding, 1979; binary, as in LZMA.
#![warn(clippy::indexing_slicing)]

/// The probability that a bit is 0, in 65536ths, as the last few bits have it, and as the last hundred: what
/// counts is their mean.
#[derive(Clone, Copy)]
pub struct Bit {
    few: u16,
    many: u16,
}

impl Default for Bit {
    fn default() -> Self {
        Self { few: 1 << 15, many: 1 << 15 }
    }
}

impl Bit {
    /// In 65536ths, neither 0 nor all.
    #[inline(always)]
    fn share(self) -> u64 {
        (u64::from(self.few) + u64::from(self.many)) >> 1 | 1
    }

    #[inline(always)]
    fn learn(&mut self, bit: bool) {
        let step = |p: u16, rate: u32| if bit { p - (p >> rate) } else { p + (!p >> rate) };
        self.few = step(self.few, 4);
        self.many = step(self.many, 7);
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
    range: u64,
    out: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { low: 0, range: u64::MAX, out: Vec::new() }
    }
}

impl Encoder {
    /// Adds to what is written.
    #[inline]
    fn add(&mut self, more: u64) {
        let (low, carries) = self.low.overflowing_add(more);
        self.low = low;
        if carries {
            for byte in self.out.iter_mut().rev() {
                *byte = byte.wrapping_add(1);
                if *byte != 0 {
                    break;
                }
            }
        }
    }

    #[inline]
    fn empty(&mut self) {
        if self.range < 1 << 32 {
            self.out.extend(self.low.to_be_bytes().iter().take(4));
            self.low <<= 32;
            self.range <<= 32;
        }
    }

    /// The bytes.
    pub fn finish(mut self) -> Vec<u8> {
        // Any number of the range will do: one that ends with zeros, which need not be written.
        let below = (1 << self.range.ilog2()) - 1;
        self.add(below);
        self.low &= !below;
        self.out.extend(self.low.to_be_bytes());
        let len = self.out.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        self.out.truncate(len);
        self.out
    }
}

impl Coder for Encoder {
    const WRITES: bool = true;

    #[inline]
    fn bit(&mut self, probability: &mut Bit, bit: bool) -> bool {
        let bound = (self.range >> 16) * probability.share();
        if bit {
            self.add(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        probability.learn(bit);
        self.empty();
        bit
    }

    #[inline]
    fn raw(&mut self, n: u32, value: u32) -> u32 {
        self.range >>= n;
        self.add(u64::from(value) * self.range);
        self.empty();
        value
    }
}

/// Reads. Past the end, zeros: who reads must know when to stop.
pub struct Decoder<'a> {
    code: u64,
    range: u64,
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Reads what [`Encoder::finish`] gave.
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut this = Self { code: 0, range: u64::MAX, rest: bytes };
        this.code = u64::from(this.word()) << 32;
        this.code |= u64::from(this.word());
        this
    }

    #[inline(always)]
    fn word(&mut self) -> u32 {
        match self.rest.split_first_chunk() {
            Some((&word, rest)) => {
                self.rest = rest;
                u32::from_be_bytes(word)
            }
            None => self.last_word(),
        }
    }

    #[cold]
    fn last_word(&mut self) -> u32 {
        let mut bytes = std::mem::take(&mut self.rest).iter().copied();
        (0..4).fold(0, |word, _| word << 8 | u32::from(bytes.next().unwrap_or(0)))
    }

    #[inline(always)]
    fn fill(&mut self) {
        if self.range < 1 << 32 {
            self.range <<= 32;
            self.code = self.code << 32 | u64::from(self.word());
        }
    }
}

impl Coder for Decoder<'_> {
    const WRITES: bool = false;

    #[inline(always)]
    fn bit(&mut self, probability: &mut Bit, _: bool) -> bool {
        let bound = (self.range >> 16) * probability.share();
        let bit = self.code >= bound;
        // Without branches: what comes cannot be foretold.
        let mask = u64::from(bit).wrapping_neg();
        self.code -= bound & mask;
        self.range = bound ^ (bound ^ (self.range - bound)) & mask;
        probability.learn(bit);
        self.fill();
        bit
    }

    #[inline(always)]
    fn raw(&mut self, n: u32, _: u32) -> u32 {
        self.range >>= n;
        let value = (self.code / self.range).min((1 << n) - 1);
        self.code = self.code.wrapping_sub(value * self.range);
        self.fill();
        u32::try_from(value).unwrap_or(0)
    }
}

/// Numbers of 31 bits: how many bits, under probabilities of their own; the two highest too; the rest raw.
#[derive(Clone, Default)]
pub struct Number {
    lengths: [Bit; 32],
    high: [[Bit; 4]; 32],
}

impl Number {
    /// Codes `value`, which is below 2^32 − 1.
    #[inline(always)]
    pub fn code(&mut self, coder: &mut impl Coder, value: u32) -> u32 {
        self.code_below(coder, value, 31)
    }

    /// Codes `value`; `value` + 1 is below 2^(`most_bits` + 1), which is 2^32 at most. A model always has the
    /// same `most_bits`. What is read from damaged bytes may be larger.
    #[inline(always)]
    pub fn code_below(&mut self, coder: &mut impl Coder, value: u32, most_bits: u32) -> u32 {
        let wanted = value + 1;
        let wanted_len = wanted.ilog2();
        let n_levels = 32 - most_bits.leading_zeros();
        let mut node = 1_usize;
        for i in (0..n_levels).rev() {
            let Some(probability) = self.lengths.get_mut(node & 31) else { return 0 };
            node = node << 1 | usize::from(coder.bit(probability, wanted_len >> i & 1 == 1));
        }
        node &= (1 << n_levels) - 1;
        let Some(high) = self.high.get_mut(node & 31) else { return 0 };
        let len = u32::try_from(node & 31).unwrap_or(0);
        let (mut got, mut n_raw) = (1, len);
        while n_raw > 0 && len - n_raw < 2 {
            n_raw -= 1;
            let Some(probability) = high.get_mut(got as usize & 3) else { return 0 };
            got = got << 1 | u32::from(coder.bit(probability, wanted >> n_raw & 1 == 1));
        }
        let low = coder.raw(n_raw, wanted & ((1 << n_raw) - 1));
        (got << n_raw | low).wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is written bit by bit, number by number.
    #[derive(Clone, Copy, Debug)]
    enum Item {
        Bit(bool),
        Raw(u32, u32),
        Number(u32),
        Below(u32, u32),
    }

    fn item() -> impl Strategy<Value = Item> {
        prop_oneof![
            any::<bool>().prop_map(Item::Bit),
            (0..=32_u32, any::<u32>()).prop_map(|(n, value)| {
                Item::Raw(n, u32::try_from(u64::from(value) & ((1 << n) - 1)).expect("32 bits"))
            }),
            prop_oneof![0..5_u32, 0..1_000_000_u32, 0..u32::MAX].prop_map(Item::Number),
            (1..=31_u32, any::<u32>(), 0..3_u32).prop_map(|(most, value, kind)| {
                let end = 1_u64 << (most + 1);
                let value = match kind {
                    0 => 0,
                    1 => end - 2,
                    _ => u64::from(value) % (end - 1),
                };
                Item::Below(most, u32::try_from(value).expect("32 bits"))
            }),
        ]
    }

    fn coded(items: &[Item], coder: &mut impl Coder) -> Vec<u32> {
        let (mut bit, mut number, mut below) =
            (Bit::default(), Number::default(), vec![Number::default(); 32]);
        let one = |item: &Item| match *item {
            Item::Bit(wanted) => u32::from(coder.bit(&mut bit, wanted)),
            Item::Raw(n, wanted) => coder.raw(n, wanted),
            Item::Number(wanted) => number.code(coder, wanted),
            Item::Below(most, wanted) => {
                below.get_mut(most as usize).expect("31 at most").code_below(coder, wanted, most)
            }
        };
        items.iter().map(one).collect()
    }

    /// Both ways.
    fn held(items: &[Item]) {
        let mut encoder = Encoder::default();
        let wanted = coded(items, &mut encoder);
        let bytes = encoder.finish();
        assert_eq!(coded(items, &mut Decoder::new(&bytes)), wanted);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(items in prop::collection::vec(item(), 0..300)) {
            held(&items);
        }

        #[test]
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..300), items in prop::collection::vec(item(), 0..300)) {
            coded(&items, &mut Decoder::new(&bytes));
        }
    }

    /// What is as likely as it becomes, and what is not at all; many ones.
    #[test]
    fn long_runs_are_read() {
        for runs in [[false, true], [true, false]] {
            let bits = runs.iter().flat_map(|bit| vec![Item::Bit(*bit); 100_000]);
            held(&bits.chain([Item::Raw(32, 1)]).collect::<Vec<_>>());
        }
        let ones = vec![Item::Raw(32, u32::MAX); 100];
        held(&ones);
        held(&[&ones[..], &[Item::Bit(true); 40]].concat());
    }
}
