//! Numbers as keys that are in their order, and as whole numbers, of which sums are exact.

use program::signature::{Float, Type};

/// A number as it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A whole one without sign.
    Unsigned(u64),
    /// A whole one.
    Signed(i64),
    /// A floating-point number.
    Float(f64),
}

/// What words of values are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NumberKind {
    /// Whole numbers without sign.
    Unsigned,
    /// Whole numbers of so many bits.
    Signed(u32),
    /// IEEE 754's binary16.
    Half,
    /// `float`.
    Single,
    /// `double`.
    Double,
}

/// A word, read.
pub(super) enum Read {
    /// Its key: of two numbers, the larger one has the larger key.
    Finite(u64),
    Nan,
    Infinite,
}

/// A whole number: `digits` times two to the power `at`; all of a kind are divided by the same power of two
/// ([`NumberKind::scale`]).
pub(super) struct Whole {
    pub(super) digits: u64,
    pub(super) at: u32,
    pub(super) is_negative: bool,
}

const SIGN: u64 = 1 << 63;
/// How many bits of a `double` stand behind the first.
const DIGITS: u32 = 52;

impl NumberKind {
    /// What values of `kind` are; `None` if they are no numbers, or longer than 8 bytes.
    pub(super) fn of(kind: &Type) -> Option<NumberKind> {
        match kind {
            Type::Bool => Some(NumberKind::Unsigned),
            Type::Char { bytes: n @ 1..=8, is_signed } | Type::Integer { bytes: n @ 1..=8, is_signed } => {
                Some(if *is_signed { NumberKind::Signed(8 * u32::from(*n)) } else { NumberKind::Unsigned })
            }
            Type::Float(Float::Half) => Some(NumberKind::Half),
            Type::Float(Float::Single) => Some(NumberKind::Single),
            Type::Float(Float::Double) => Some(NumberKind::Double),
            _ => None,
        }
    }

    /// The number in the low bytes of a word, the others being zero.
    pub(super) fn read(self, word: u64) -> Read {
        let float = match self {
            NumberKind::Unsigned => return Read::Finite(word),
            NumberKind::Signed(bits) => {
                let unused = 64 - bits;
                return Read::Finite(
                    (word << unused).cast_signed().wrapping_shr(unused).cast_unsigned() ^ SIGN,
                );
            }
            NumberKind::Half => half(word),
            NumberKind::Single => f64::from(f32::from_bits(u32::try_from(word & 0xffff_ffff).unwrap_or(0))),
            NumberKind::Double => f64::from_bits(word),
        };
        if float.is_nan() {
            return Read::Nan;
        }
        if float.is_infinite() {
            return Read::Infinite;
        }
        let bits = float.to_bits();
        Read::Finite(if bits & SIGN == 0 { bits | SIGN } else { !bits })
    }

    /// Whether the number has fewer digits than others, and is not zero.
    pub(super) fn is_denormal(self, word: u64) -> bool {
        let (power, rest) = match self {
            NumberKind::Unsigned | NumberKind::Signed(_) => return false,
            NumberKind::Half => (0x7c00, 0x3ff),
            NumberKind::Single => (0x7f80_0000, 0x7f_ffff),
            NumberKind::Double => (0x7ff << DIGITS, (1 << DIGITS) - 1),
        };
        word & power == 0 && word & rest != 0
    }

    /// All numbers are whole ones divided by two to this power.
    pub(super) fn scale(self) -> u32 {
        match self {
            NumberKind::Unsigned | NumberKind::Signed(_) => 0,
            _ => 1074,
        }
    }

    /// The number that has this key, times two to the power of the scale.
    pub(super) fn whole(self, key: u64) -> Whole {
        match self.number(key) {
            Number::Unsigned(digits) => Whole { digits, at: 0, is_negative: false },
            Number::Signed(number) => Whole { digits: number.unsigned_abs(), at: 0, is_negative: number < 0 },
            Number::Float(number) => {
                let bits = number.to_bits();
                let power = u32::try_from(bits >> DIGITS & 0x7ff).unwrap_or(0);
                let behind = bits & ((1 << DIGITS) - 1);
                let digits = if power == 0 { behind } else { behind | 1 << DIGITS };
                Whole { digits, at: power.saturating_sub(1), is_negative: bits & SIGN != 0 }
            }
        }
    }

    /// The number that has this key.
    pub(super) fn number(self, key: u64) -> Number {
        match self {
            NumberKind::Unsigned => Number::Unsigned(key),
            NumberKind::Signed(_) => Number::Signed((key ^ SIGN).cast_signed()),
            _ => Number::Float(f64::from_bits(if key & SIGN == 0 { !key } else { key ^ SIGN })),
        }
    }
}

/// IEEE 754 binary16 as a `double`, which has all its values.
fn half(word: u64) -> f64 {
    let (power, digits) = (word >> 10 & 31, word & 0x3ff);
    let sign = word >> 15 & 1;
    let float = match power {
        0 => f64::from(u16::try_from(digits).unwrap_or(0)) * 2f64.powi(-24),
        31 if digits == 0 => f64::INFINITY,
        31 => f64::NAN,
        _ => f64::from_bits((power + 1008) << DIGITS | digits << (DIGITS - 10)),
    };
    if sign == 0 { float } else { -float }
}
