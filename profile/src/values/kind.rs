//! What the bytes of a value mean.

use serde::{Deserialize, Serialize};

/// What bytes mean, little-endian.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// An unsigned number of so many bytes: 1, 2, 4, 8 or 16.
    Unsigned(u8),
    /// A signed one.
    Signed(u8),
    /// A floating-point number: IEEE 754's of 2, 4, 8 or 16 bytes; 10: what the x87 has, in 16 bytes.
    Float(u8),
    /// An address.
    Pointer,
    /// So many of a kind, one behind the other.
    Many(Box<Kind>, u8),
    /// A struct or union.
    Record(Vec<Part>, u8),
    /// So many bytes of which no more is known.
    Bytes(u8),
}

/// A field of a struct.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Its name; of a part without one, nothing.
    pub name: String,
    /// Where it starts, in bytes.
    pub at: u8,
    /// What it is.
    pub kind: Kind,
    /// If it is a bit-field, which bits: the lowest, from the lowest of the byte where it starts, and how
    /// many.
    pub bits: Option<(u8, u8)>,
}

impl Kind {
    /// How many bytes a value has.
    pub fn len_bytes(&self) -> usize {
        match self {
            Kind::Float(10) => 16,
            Kind::Unsigned(len) | Kind::Signed(len) | Kind::Float(len) => usize::from(*len),
            Kind::Pointer => 8,
            Kind::Many(of, n) => of.len_bytes() * usize::from(*n),
            Kind::Record(_, len) | Kind::Bytes(len) => usize::from(*len),
        }
    }

    /// The value as text: decimal, the shortest that reads back, `nan`, `inf`, `-0`; of several in braces.
    pub fn text(&self, bytes: &[u8]) -> String {
        match self {
            Kind::Many(of, _) => {
                let all: Vec<String> = bytes.chunks(of.len_bytes().max(1)).map(|one| of.text(one)).collect();
                format!("{{{}}}", all.join(", "))
            }
            Kind::Record(parts, _) => {
                let all: Vec<String> = parts.iter().map(|part| part.text(bytes)).collect();
                format!("{{{}}}", all.join(", "))
            }
            Kind::Bytes(_) => bits(bytes),
            Kind::Pointer => format!("{:#x}", unsigned(bytes)),
            Kind::Unsigned(_) => unsigned(bytes).to_string(),
            Kind::Signed(_) => signed(bytes).to_string(),
            Kind::Float(2) => {
                bytes.first_chunk().map_or_else(String::new, |c| spelt(half(u16::from_le_bytes(*c))))
            }
            Kind::Float(4) => bytes.first_chunk().map_or_else(String::new, |c| spelt(f32::from_le_bytes(*c))),
            Kind::Float(8) => bytes.first_chunk().map_or_else(String::new, |c| spelt(f64::from_le_bytes(*c))),
            Kind::Float(16) => quad(bytes),
            Kind::Float(_) => extended(bytes),
        }
    }
}

impl Part {
    fn text(&self, bytes: &[u8]) -> String {
        let all = bytes.get(usize::from(self.at)..).unwrap_or_default();
        let value = match self.bits {
            None => self.kind.text(all.get(..self.kind.len_bytes()).unwrap_or_default()),
            Some((from, len)) => {
                let whole = unsigned(all.get(..all.len().min(16)).unwrap_or_default());
                let low = whole >> from & (u128::MAX >> 128u32.saturating_sub(u32::from(len)).min(127));
                match self.kind {
                    Kind::Signed(_) if len > 0 => {
                        let unused = 128 - u32::from(len);
                        ((low << unused).cast_signed() >> unused).to_string()
                    }
                    _ => low.to_string(),
                }
            }
        };
        if self.name.is_empty() { value } else { format!("{}={value}", self.name) }
    }
}

/// The value's bytes as one hexadecimal number.
pub fn bits(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

fn unsigned(bytes: &[u8]) -> u128 {
    bytes.iter().take(16).rev().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

fn signed(bytes: &[u8]) -> i128 {
    let unused = 128 - 8 * u32::try_from(bytes.len().min(16)).unwrap_or(16);
    if unused == 128 {
        return 0;
    }
    (unsigned(bytes) << unused).cast_signed() >> unused
}

/// IEEE 754 binary16 as a `float`, which has all its values.
fn half(bits: u16) -> f32 {
    let (sign, power, digits) =
        (u32::from(bits >> 15) << 31, u32::from(bits >> 10 & 31), u32::from(bits & 0x3ff));
    match (power, digits) {
        (31, _) => f32::from_bits(sign | 0x7f80_0000 | digits << 13),
        (0, _) => {
            let small = f32::from(u16::try_from(digits).unwrap_or(0)) * 2f32.powi(-24);
            if sign == 0 { small } else { -small }
        }
        _ => f32::from_bits(sign | (power + 112) << 23 | digits << 13),
    }
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
    let digits = unsigned(bytes.get(..8).unwrap_or_default());
    let top = unsigned(bytes.get(8..10).unwrap_or_default());
    let is_infinite = digits & (u128::MAX >> 65) == 0;
    hexadecimal(digits, 63, u32::try_from(top & 0x7fff).unwrap_or(0), top >> 15 == 1, is_infinite)
}

/// IEEE 754 binary128: 112 bits of its digits behind the point.
fn quad(bytes: &[u8]) -> String {
    let whole = unsigned(bytes);
    let power = u32::try_from(whole >> 112 & 0x7fff).unwrap_or(0);
    let behind = whole & ((1 << 112) - 1);
    let digits = if power == 0 { behind } else { behind | 1 << 112 };
    hexadecimal(digits, 112, power, whole >> 127 == 1, behind == 0)
}

/// As C prints them by `%La`, exact and read back: `digits` with the point so many bits from their end, times
/// two to the `power`, which is 16383 too large.
fn hexadecimal(digits: u128, point: i32, power: u32, is_negative: bool, is_infinite: bool) -> String {
    let sign = if is_negative { "-" } else { "" };
    if power == 0x7fff {
        return if is_infinite { format!("{sign}inf") } else { "nan".to_owned() };
    }
    if digits == 0 {
        return format!("{sign}0");
    }
    let power = power.max(1).cast_signed() - 16383 - point;
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
        assert_eq!(bits(&1.0f64.to_le_bytes()), "0x3ff0000000000000");
    }

    /// What `printf("%La")` of glibc and `quadmath_snprintf("%Qa")` say of these, written in another way.
    #[test]
    fn long_numbers_are_spelt_exactly() {
        let of = |digits: u64, power: u16| {
            Kind::Float(10).text(&[&digits.to_le_bytes()[..], &power.to_le_bytes(), &[0; 6]].concat())
        };
        assert_eq!(of(0xcccc_cccc_cccc_cccd, 0x3ffb), "0xcccccccccccccccdp-67");
        assert_eq!((of(1 << 63, 0x3fff), of(0xc << 60, 0xc000)), ("0x8p-3".into(), "-0xcp-2".into()));
        assert_eq!(
            (of(0, 0), of(1 << 63, 0xffff), of(3 << 62, 0x7fff)),
            ("0".into(), "-inf".into(), "nan".into())
        );
        let quad = |bits: u128| Kind::Float(16).text(&bits.to_le_bytes());
        assert_eq!((quad(0x3fff << 112), quad(0x000c_0008 << 108)), ("0x1p+0".into(), "-0x18p-3".into()));
        let halves =
            [0x3c00u16, 0xc100, 0x7c00, 0x0001, 0x8000].map(|h| Kind::Float(2).text(&h.to_le_bytes()));
        assert_eq!(halves, ["1", "-2.5", "inf", "5.9604645e-8", "-0"]);
    }

    #[test]
    fn structs_are_spelt_by_their_fields() {
        let part = |name: &str, at, kind, bits| Part { name: name.to_owned(), at, kind, bits };
        let parts = vec![
            part("a", 0, Kind::Signed(4), None),
            part("b", 4, Kind::Unsigned(4), Some((3, 5))),
            part("c", 5, Kind::Signed(4), Some((0, 4))),
            part("d", 8, Kind::Float(8), None),
        ];
        let bytes =
            [&(-7i32).to_le_bytes()[..], &[0b1010_1111, 0b0000_1110, 0, 0], &2.5f64.to_le_bytes()].concat();
        assert_eq!(Kind::Record(parts, 16).text(&bytes), "{a=-7, b=21, c=-2, d=2.5}");
    }
}
