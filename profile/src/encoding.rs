//! How our own files are encoded: numbers, runs of bytes, and the head and checksum that all of them have.
//!
//! ```text
//! file     = magic version kind content checksum
//! magic    = "ENGRAFT\0"
//! version  = u8: 1, of a recording 2
//! kind     = u8: what the content is
//! checksum = u64, little-endian: XXH3 of all bytes before it
//! bytes    = length: varint, that many bytes
//! varint   = LEB128, unsigned; signed numbers zigzagged (0, -1, 1, -2 …)
//! ```
#![warn(clippy::indexing_slicing)]

use crate::vocabulary::{Format, ReadError};
use xxhash_rust::xxh3::xxh3_64;

/// The first bytes of each file of ours.
pub const MAGIC: &[u8; 8] = b"ENGRAFT\0";
/// The version of profiles that is written and read.
pub const VERSION: u8 = 1;

/// Appends an unsigned number.
pub fn varint(out: &mut Vec<u8>, mut n: u64) {
    loop {
        let low = u8::try_from(n & 0x7f).expect("seven bits");
        n >>= 7;
        if n == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

/// Appends a run of bytes, its length first.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

/// A file of this `kind`: head, content, checksum.
pub fn sealed(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend([VERSION, kind]);
    file.extend(content);
    let sum = xxh3_64(&file);
    file.extend(sum.to_le_bytes());
    file
}

/// A signed number as an unsigned one: 0, -1, 1, -2 … are 0, 1, 2, 3 …
pub fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)).cast_unsigned()
}

/// The signed number that [`zigzag`] made so.
pub fn unzigzag(n: u64) -> i64 {
    ((n >> 1) ^ (n & 1).wrapping_neg()).cast_signed()
}

/// A position in a file of ours.
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The content of a file of this `kind`, its checksum verified. `other` is the message for another kind.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if it is cut off, changed, or of another version or kind.
    pub fn open(file: &'a [u8], kind: u8, other: &str) -> Result<Cursor<'a>, ReadError> {
        let mut c = Cursor { bytes: file, at: 0 };
        let magic = c.take(MAGIC.len())?;
        let version = magic.strip_prefix(b"ENGRAFT").and_then(<[u8]>::first);
        if let Some(version @ 1..) = version {
            return Err(c.damaged(&format!("another version of engraft wrote it, in format {version}")));
        }
        if magic != MAGIC {
            return Err(c.damaged("it does not start with ENGRAFT"));
        }
        let version = c.byte()?;
        if version != VERSION {
            return Err(c.damaged(&format!("it is of version {version}, we read version {VERSION}")));
        }
        let body = file.len().checked_sub(8).ok_or_else(|| c.damaged("it is cut off"))?;
        let (content, sum) = file.split_at(body);
        if sum != xxh3_64(content).to_le_bytes() {
            return Err(c.damaged("its checksum is wrong: it was cut off or changed"));
        }
        c.bytes = content;
        if c.byte()? != kind {
            return Err(c.damaged(other));
        }
        Ok(c)
    }

    /// The content of a file that starts with `head`, its checksum verified.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if it is cut off, changed, or starts otherwise.
    pub(crate) fn behind(file: &'a [u8], head: &[u8]) -> Result<Cursor<'a>, ReadError> {
        let mut c = Cursor::behind_damaged(file, head)
            .ok_or_else(|| Cursor { bytes: file, at: 0 }.damaged("it starts otherwise"))?;
        let body = file.len().checked_sub(8).filter(|len| *len >= head.len());
        let (content, sum) = file.split_at(body.ok_or_else(|| c.damaged("it is cut off"))?);
        if sum != xxh3_64(content).to_le_bytes() {
            return Err(c.damaged("its checksum is wrong: it was cut off or changed"));
        }
        c.bytes = content;
        Ok(c)
    }

    /// The same without a look at the checksum.
    pub(crate) fn behind_damaged(file: &'a [u8], head: &[u8]) -> Option<Cursor<'a>> {
        file.starts_with(head).then_some(Cursor { bytes: file, at: head.len() })
    }

    /// From here, `len` bytes on before it: what was read since.
    pub(crate) fn since(&self, from: usize) -> &'a [u8] {
        self.bytes.get(from..self.at).unwrap_or_default()
    }

    /// Over `bytes` of a file that has been checked.
    pub fn within(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    /// How many bytes were read.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The error that says `what` is wrong here.
    pub fn damaged(&self, what: &str) -> ReadError {
        ReadError::Damaged { format: Format::Engraft, at: self.at, what: what.to_owned() }
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], ReadError> {
        let end = self.at.checked_add(len).ok_or_else(|| self.damaged("it is cut off"))?;
        let taken = self.bytes.get(self.at..end).ok_or_else(|| self.damaged("it is cut off"))?;
        self.at = end;
        Ok(taken)
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> Result<u8, ReadError> {
        Ok(*self.take(1)?.first().expect("one byte was taken"))
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        rest
    }

    /// Whether all was read.
    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The next number.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if the bytes end, or it has more than 64 bits.
    pub fn varint(&mut self) -> Result<u64, ReadError> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(self.damaged("a number is too large"));
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(self.damaged("a number is too long"))
    }

    /// The next length.
    pub(crate) fn len(&mut self) -> Result<usize, ReadError> {
        let n = self.varint()?;
        usize::try_from(n).map_err(|_| self.damaged("a length is too large"))
    }

    /// The next run of bytes, its length first.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if the bytes end.
    pub fn bytes(&mut self) -> Result<&'a [u8], ReadError> {
        let len = self.len()?;
        self.take(len)
    }

    /// The next `n` numbers.
    pub(crate) fn column(&mut self, n: usize) -> Result<Vec<u64>, ReadError> {
        // A number takes a byte at least: a hostile count cannot make us allocate more than the file is long.
        if n > self.bytes.len().saturating_sub(self.at) {
            return Err(self.damaged("a table is cut off"));
        }
        (0..n).map(|_| self.varint()).collect()
    }
}
