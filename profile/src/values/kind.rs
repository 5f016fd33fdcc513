//! What the bytes of a value mean.

use serde::{Deserialize, Serialize};

/// What bytes mean, little-endian.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// An unsigned number of so many bytes: 1, 2, 4, 8 or 16.
    Unsigned(u8),
    /// A signed one.
    Signed(u8),
    /// A floating-point number: of 4 or 8 bytes, or 10, as the x87 has them.
    Float(u8),
    /// An address.
    Pointer,
    /// So many of a kind, one behind the other.
    Many(Box<Kind>, u8),
}

/// A value that can be reckoned with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A whole one.
    Whole(i128),
    /// Any, as near as a `double` comes to it.
    Float(f64),
}

impl Kind {
    /// How many bytes a value has.
    pub fn len_bytes(&self) -> usize {
        match self {
            Kind::Unsigned(len) | Kind::Signed(len) | Kind::Float(len) => usize::from(*len),
            Kind::Pointer => 8,
            Kind::Many(of, n) => of.len_bytes() * usize::from(*n),
        }
    }

    /// The value as text: decimal, the shortest that reads back, `nan`, `inf`, `-0`; of several in braces.
    pub fn text(&self, bytes: &[u8]) -> String {
        match self {
            Kind::Many(of, _) => {
                let all: Vec<String> = bytes.chunks(of.len_bytes()).map(|one| of.text(one)).collect();
                format!("{{{}}}", all.join(", "))
            }
            Kind::Pointer => format!("{:#x}", unsigned(bytes)),
            Kind::Unsigned(_) => unsigned(bytes).to_string(),
            Kind::Signed(_) => signed(bytes).to_string(),
            Kind::Float(4) => match bytes.first_chunk() {
                Some(chunk) => spelt(f32::from_le_bytes(*chunk)),
                None => String::new(),
            },
            Kind::Float(8) => match bytes.first_chunk() {
                Some(chunk) => spelt(f64::from_le_bytes(*chunk)),
                None => String::new(),
            },
            Kind::Float(_) => extended(bytes),
        }
    }

    /// The value as a number, if it is one.
    pub fn number(&self, bytes: &[u8]) -> Option<Number> {
        match self {
            Kind::Unsigned(_) => i128::try_from(unsigned(bytes)).ok().map(Number::Whole),
            Kind::Signed(_) => Some(Number::Whole(signed(bytes))),
            Kind::Float(4) => bytes.first_chunk().map(|c| Number::Float(f64::from(f32::from_le_bytes(*c)))),
            Kind::Float(8) => bytes.first_chunk().map(|c| Number::Float(f64::from_le_bytes(*c))),
            Kind::Float(_) | Kind::Pointer | Kind::Many(..) => None,
        }
    }
}

/// The value's bytes as one hexadecimal number.
pub fn bits(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

fn unsigned(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

fn signed(bytes: &[u8]) -> i128 {
    let unused = 128 - 8 * u32::try_from(bytes.len().min(16)).unwrap_or(16);
    if unused == 128 {
        return 0;
    }
    (unsigned(bytes) << unused).cast_signed() >> unused
}

/// A number as it is read back, but for the bits of what is none.
fn spelt(value: impl Into<f64> + std::fmt::Display + std::fmt::LowerExp + Copy) -> String {
    let wide: f64 = value.into();
    if wide.is_nan() {
        return "nan".to_owned();
    }
    if wide.is_infinite() {
        return if wide > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let magnitude = wide.abs();
    if magnitude != 0.0 && !(1e-5..1e16).contains(&magnitude) {
        return format!("{value:e}");
    }
    value.to_string()
}

/// A number of the x87: 64 bits of its digits, the first of them before the point, 15 of its power of two,
/// the sign.
fn extended(bytes: &[u8]) -> String {
    let (Some(digits), Some(power)) = (bytes.first_chunk::<8>(), bytes.get(8..10)) else {
        return String::new();
    };
    let digits = u64::from_le_bytes(*digits);
    let power = u16::from_le_bytes([power.first().copied().unwrap_or(0), power.get(1).copied().unwrap_or(0)]);
    let sign = if power >> 15 == 1 { "-" } else { "" };
    let power = i32::from(power & 0x7fff);
    if power == 0x7fff {
        let is_infinite = digits << 1 == 0;
        return if is_infinite { format!("{sign}inf") } else { "nan".to_owned() };
    }
    if digits == 0 {
        return format!("{sign}0");
    }
    // As C prints them by `%La`: exact, and read back.
    let power = power.max(1) - 16383 - 63;
    let zeros = digits.trailing_zeros() / 4 * 4;
    format!("{sign}0x{:x}p{:+}", digits >> zeros, power + zeros.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_spelt_so_that_they_can_be_read_back() {
        let float = |value: f64| Kind::Float(8).text(&value.to_le_bytes());
        let all = [0.0, -0.0, 1.5, 0.1, 1e300, 5e-324, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 123_456.0];
        let want = ["0", "-0", "1.5", "0.1", "1e300", "5e-324", "nan", "inf", "-inf", "123456"];
        assert_eq!(all.map(float), want);
        assert_eq!(Kind::Float(4).text(&0.1f32.to_le_bytes()), "0.1");
        assert_eq!(Kind::Signed(4).text(&(-5i32).to_le_bytes()), "-5");
        assert_eq!(Kind::Signed(16).text(&i128::MIN.to_le_bytes()), i128::MIN.to_string());
        assert_eq!(Kind::Unsigned(8).text(&u64::MAX.to_le_bytes()), u64::MAX.to_string());
        assert_eq!(Kind::Pointer.text(&0x7f00u64.to_le_bytes()), "0x7f00");
        let many = Kind::Many(Box::new(Kind::Float(4)), 2);
        assert_eq!(many.text(&[1.0f32.to_le_bytes(), (-2.5f32).to_le_bytes()].concat()), "{1, -2.5}");
        // What `printf("%La")` of glibc says of 0.1L, 1.0L and -3.0L, written in another way.
        let of =
            |digits: u64, power: u16| extended(&[&digits.to_le_bytes()[..], &power.to_le_bytes()].concat());
        assert_eq!(of(0xcccc_cccc_cccc_cccd, 0x3ffb), "0xcccccccccccccccdp-67");
        assert_eq!((of(1 << 63, 0x3fff), of(0xc << 60, 0xc000)), ("0x8p-3".into(), "-0xcp-2".into()));
        assert_eq!(bits(&1.0f64.to_le_bytes()), "0x3ff0000000000000");
    }
}
