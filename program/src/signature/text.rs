//! Values as text: decimal where people read it, hexadecimal bits where nothing may be lost.
//!
//! Source: ISO C17, 6.4.4 and 7.22.1.3 (what `strtod` reads); Intel SDM vol. 1, 4.2.2 and 4.8 (formats of the
//! x87).
#![warn(clippy::indexing_slicing)]

mod decimal;

use super::{Bits, Field, Float, Type};

/// The value of that type which these bytes are, least significant first.
///
/// Integers are decimal. Floating-point numbers are the shortest that read back, `nan`, `inf`, `-0`; complex
/// ones `1.5-2i`. Characters are as C has them, `'a'`; pointers `0x7ffe…`; enumerations by their names.
/// Records are `{a=1, b=2.5}`, arrays and vectors `[1, 2]`, arrays of characters `"text"`. `?` stands for
/// bytes that are missing.
pub fn text(kind: &Type, bytes: &[u8]) -> String {
    Form::Text.write(kind, bytes)
}

/// The same with the bits of each number, `0x3ff8000000000000`, as many digits as it has bytes.
pub fn bits(kind: &Type, bytes: &[u8]) -> String {
    Form::Bits.write(kind, bytes)
}

/// Text that was read of memory, as C has it: in quotation marks, with escapes.
pub fn quoted(text: &[u8]) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for part in text.utf8_chunks() {
        part.valid().chars().for_each(|c| escape(c, '"', &mut quoted));
        part.invalid().iter().for_each(|byte| quoted.push_str(&format!("\\x{byte:02x}")));
    }
    quoted.push('"');
    quoted
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Bits,
}

impl Form {
    fn write(self, kind: &Type, bytes: &[u8]) -> String {
        match kind {
            Type::Void | Type::Named(_) | Type::Function { .. } => String::new(),
            Type::Complex(of) => {
                let (real, imaginary) = bytes.split_at_checked(len(of)).unwrap_or((bytes, &[]));
                let (real, imaginary) = (self.write(of, real), self.write(of, imaginary));
                let plus = if imaginary.starts_with('-') { "" } else { "+" };
                format!("{real}{plus}{imaginary}i")
            }
            Type::Array { of, .. } if self == Form::Text && matches!(**of, Type::Char { bytes: 1, .. }) => {
                let all = bytes.get(..len(kind)).unwrap_or(bytes);
                quoted(
                    all.iter().rposition(|b| *b != 0).and_then(|last| all.get(..=last)).unwrap_or_default(),
                )
            }
            Type::Vector { of, n } | Type::Array { of, n } => {
                let all = bytes.get(..len(kind)).unwrap_or(bytes);
                // Elements without bytes would be as many as one likes.
                let elements = if len(of) == 0 { Vec::new() } else { all.chunks(len(of)).collect() };
                let n = usize::try_from(*n).unwrap_or(usize::MAX);
                let elements: Vec<String> = elements.iter().take(n).map(|e| self.write(of, e)).collect();
                format!("[{}]", elements.join(", "))
            }
            Type::Record(record) => {
                let fields = record.fields.iter().filter(|f| !(f.name.is_empty() && f.bits.is_some()));
                let fields: Vec<String> = fields.map(|f| self.field(f, bytes)).collect();
                format!("{{{}}}", fields.join(", "))
            }
            scalar => {
                let n = if *scalar == Type::Float(Float::Extended) { 10 } else { len(scalar) };
                bytes.get(..n).map_or_else(|| "?".to_owned(), |bytes| self.scalar(scalar, bytes))
            }
        }
    }

    fn field(self, field: &Field, record: &[u8]) -> String {
        let at = usize::try_from(field.at).unwrap_or(usize::MAX);
        let bytes = record.get(at..).unwrap_or_default();
        let value = match field.bits {
            None => self.write(&field.kind, bytes),
            Some(bits) => self.bit_field(&field.kind, bits, bytes),
        };
        if field.name.is_empty() { value } else { format!("{}={value}", field.name) }
    }

    fn bit_field(self, kind: &Type, bits: Bits, bytes: &[u8]) -> String {
        let end = bits.at.saturating_add(bits.len).div_ceil(8);
        let Some(bytes) = bytes.get(..usize::try_from(end).unwrap_or(usize::MAX)) else {
            return "?".to_owned();
        };
        // Up to 17 bytes: the last one holds what a shift by up to 7 brings in.
        let low = number(bytes) >> bits.at.min(127);
        let high = bytes.get(16).map_or(0, |byte| u128::from(*byte) << (128 - bits.at.clamp(1, 127)));
        let unused = 128 - bits.len.clamp(1, 128);
        let value = (low | high) << unused;
        if self == Form::Bits {
            return format!("{:#x}", value >> unused);
        }
        let value =
            if is_signed(kind) { (value.cast_signed() >> unused).cast_unsigned() } else { value >> unused };
        self.write(kind, &value.to_le_bytes())
    }

    fn scalar(self, kind: &Type, bytes: &[u8]) -> String {
        let value = number(bytes);
        if self == Form::Bits {
            return format!("{value:#0width$x}", width = bytes.len() * 2 + 2);
        }
        let signed = || {
            let unused = 128 - u32::try_from(bytes.len().min(16)).unwrap_or(16) * 8;
            (value << unused.min(127)).cast_signed() >> unused.min(127)
        };
        match kind {
            Type::Bool if value <= 1 => (value == 1).to_string(),
            Type::Char { .. } => {
                let mut quoted = "'".to_owned();
                let c = u32::try_from(value)
                    .ok()
                    .filter(|c| bytes.len() > 1 || *c < 0x80)
                    .and_then(char::from_u32);
                match c {
                    Some(c) => escape(c, '\'', &mut quoted),
                    None => quoted.push_str(&format!("\\x{value:02x}")),
                }
                quoted + "'"
            }
            Type::Integer { is_signed: true, .. } => signed().to_string(),
            Type::Enum(e) => {
                let value = if e.is_signed { signed() } else { value.cast_signed() };
                let name = e.values.iter().find(|v| v.1 == value).map(|v| v.0.clone());
                name.unwrap_or_else(|| value.to_string())
            }
            Type::Pointer(_) => format!("{value:#x}"),
            Type::Float(float) => decimal::decimal(*float, value),
            _ => value.to_string(),
        }
    }
}

fn is_signed(kind: &Type) -> bool {
    match kind {
        Type::Char { is_signed, .. } | Type::Integer { is_signed, .. } => *is_signed,
        Type::Enum(e) => e.is_signed,
        _ => false,
    }
}

fn len(kind: &Type) -> usize {
    usize::try_from(kind.size()).unwrap_or(usize::MAX)
}

/// The first 16 bytes as a number.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().take(16).rev().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

fn escape(c: char, quote: char, to: &mut String) {
    match c {
        '\0' => to.push_str("\\0"),
        '\n' => to.push_str("\\n"),
        '\t' => to.push_str("\\t"),
        '\r' => to.push_str("\\r"),
        '\\' => to.push_str("\\\\"),
        c if c == quote => to.extend(['\\', c]),
        c if u32::from(c) < 0x20 || c == '\x7f' => to.push_str(&format!("\\x{:02x}", u32::from(c))),
        c => to.push(c),
    }
}

#[cfg(test)]
mod tests;
