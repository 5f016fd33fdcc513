//! Reading and writing the variable-length numbers and encoded pointers of unwind tables.
//!
//! Source: DWARF 5, 7.6 (LEB128); LSB 5.0, 10.5.1 (pointer encodings).
#![warn(clippy::indexing_slicing)]

use program::Va;
use program::image::Image;

/// A position in bytes that lie at an address.
pub struct Reader<'a> {
    bytes: &'a [u8],
    base: Va,
    at: usize,
}

impl<'a> Reader<'a> {
    /// At offset `at` of `bytes`, which lie at `base`.
    pub fn new(bytes: &'a [u8], base: Va, at: usize) -> Reader<'a> {
        Reader { bytes, base, at }
    }
    /// Offset from the start of the bytes.
    pub fn position(&self) -> usize {
        self.at
    }
    /// Address of the next byte.
    pub fn va(&self) -> Va {
        self.base.plus(self.at as u64)
    }
    /// Goes to offset `at`, which is not behind the end.
    pub fn seek(&mut self, at: usize) -> Option<()> {
        (at <= self.bytes.len()).then(|| self.at = at)
    }
    /// The bytes to the end.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(taken)
    }
    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }
    /// Bytes before the next zero, which is passed over.
    pub fn until_zero(&mut self) -> Option<&'a [u8]> {
        let n = self.rest().iter().position(|&b| b == 0)?;
        let taken = self.take(n)?;
        self.at += 1;
        Some(taken)
    }
    /// An LEB128 number as it stands.
    pub fn raw_leb(&mut self) -> Option<&'a [u8]> {
        let n = self.rest().iter().take(10).position(|b| b & 0x80 == 0)?;
        self.take(n + 1)
    }
    /// An unsigned LEB128 number.
    pub fn uleb(&mut self) -> Option<u64> {
        let raw = self.raw_leb()?;
        raw.iter().enumerate().try_fold(0u64, |sum, (i, b)| {
            let part = u64::from(b & 0x7f);
            let shift = u32::try_from(7 * i).ok()?;
            (shift < 64 && part.leading_zeros() >= shift).then(|| sum | part << shift)
        })
    }
    /// A signed LEB128 number.
    pub fn sleb(&mut self) -> Option<i64> {
        let raw = self.raw_leb()?;
        let mut value = 0i64;
        for (i, b) in raw.iter().enumerate().take(9) {
            value |= i64::from(b & 0x7f) << (7 * i);
        }
        let bits = 7 * raw.len().min(9);
        let shift = 64 - u32::try_from(bits).ok()?;
        Some(value << shift >> shift)
    }
    /// A pointer in `encoding`; `None` also for encodings relative to what we do not know. Null stays null.
    pub fn pointer(&mut self, image: &Image, encoding: u8) -> Option<Va> {
        let here = self.va();
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => u64::from_le_bytes(*self.take(8)?.first_chunk()?),
            0x01 => self.uleb()?,
            0x02 => u64::from(u16::from_le_bytes(*self.take(2)?.first_chunk()?)),
            0x03 => u64::from(u32::from_le_bytes(*self.take(4)?.first_chunk()?)),
            0x09 => self.sleb()?.cast_unsigned(),
            0x0a => i64::from(i16::from_le_bytes(*self.take(2)?.first_chunk()?)).cast_unsigned(),
            0x0b => i64::from(i32::from_le_bytes(*self.take(4)?.first_chunk()?)).cast_unsigned(),
            _ => return None,
        };
        if encoding & 0x7f == 0 {
            // An absolute pointer is what the dynamic linker writes there.
            return image.address_at(here).or(Some(Va(value)));
        }
        match encoding & 0x70 {
            _ if value == 0 => Some(Va(0)),
            0x00 => Some(Va(value)),
            0x10 => Some(here.plus(value)),
            _ => None,
        }
    }
}

/// Appends an unsigned LEB128 number.
pub fn put_uleb(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = u8::try_from(value & 0x7f).expect("seven bits");
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Appends the low four bytes of a distance within a module, in two's complement.
#[expect(
    clippy::cast_possible_truncation,
    reason = "modules are below 2 GiB, which the module's layout checks"
)]
pub fn put_distance(out: &mut Vec<u8>, value: u64) {
    out.extend((value as u32).to_le_bytes());
}

/// Writes the low four bytes of a distance at offset `at` of `out`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "modules are below 2 GiB, which the module's layout checks"
)]
pub fn set_distance(out: &mut [u8], at: usize, value: u64) {
    let field = out.get_mut(at..at + 4).expect("the field was written before");
    field.copy_from_slice(&(value as u32).to_le_bytes());
}
