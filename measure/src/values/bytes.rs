//! Where the bytes of values are in records, and these as values.

use super::auto::InLine;
use super::plan::ColumnCode;
use profile::values::log::words;
use profile::values::{MOST_BYTES, len_bytes};

/// Where the bytes of a value are in a record.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Bytes {
    /// Where it is, if it is in one part of 8 bytes at most, that many of which count.
    word: Option<(usize, u8)>,
    /// If it is where an address is in its line, what that is made up of.
    line: Option<InLine>,
    len: usize,
    /// Where each part is in the record, in the value, and its length.
    parts: Vec<(usize, usize, usize)>,
}

impl Bytes {
    /// As the code of a column says.
    pub(super) fn of(code: &ColumnCode) -> Bytes {
        let parts =
            code.parts.iter().map(|&(from, at, len)| (from as usize, usize::from(at), usize::from(len)));
        let parts: Vec<(usize, usize, usize)> = parts.collect();
        let len = len_bytes(&code.kind);
        let word = match parts[..] {
            [(from, 0, n)] if n == len && n <= 8 => u8::try_from(n).ok().map(|n| (from, n)),
            _ => None,
        };
        Bytes { word, line: code.line, len, parts }
    }

    /// The value in `record` and its length, if it is in one part of 8 bytes at most.
    #[inline]
    pub(super) fn word(&self, record: &[u8]) -> Option<(u64, u8)> {
        if let Some(line) = self.line {
            let part = |n: usize| number_at(record, self.parts.get(n).map(|part| part.0));
            return Some((line.of([part(0), part(1)]), 1));
        }
        let (from, len) = self.word?;
        Some((word(record.get(from..)?, len), len))
    }

    /// The value in `record` behind `out`, in words of 8 bytes.
    pub(super) fn words(&self, record: &[u8], out: &mut Vec<u64>) {
        match self.word(record) {
            Some((value, _)) => out.push(value),
            None => words(self.value(record, &mut [0; MOST_BYTES]), out),
        }
    }

    /// The value in `record`, in `room`.
    pub(super) fn value<'r>(&self, record: &[u8], room: &'r mut [u8; MOST_BYTES]) -> &'r [u8] {
        room.get_mut(..self.len).unwrap_or_default().fill(0);
        for &(from, at, len) in &self.parts {
            if let (Some(to), Some(bytes)) = (room.get_mut(at..at + len), record.get(from..from + len)) {
                to.copy_from_slice(bytes);
            }
        }
        room.get(..self.len).unwrap_or_default()
    }
}

/// The first `len` of `bytes` as a number, of which there are 4 at least.
#[inline]
fn word(bytes: &[u8], len: u8) -> u64 {
    let value = match (bytes.first_chunk(), bytes.first_chunk()) {
        (Some(all), _) => u64::from_le_bytes(*all),
        (None, Some(half)) => u64::from(u32::from_le_bytes(*half)),
        (None, None) => 0,
    };
    value & u64::MAX >> (64 - 8 * u32::from(len.clamp(1, 8)))
}

/// The 8 bytes of `record` there, as a number; 0 if there are none.
pub(super) fn number_at(record: &[u8], at: Option<usize>) -> u64 {
    let bytes = at.and_then(|at| record.get(at..)?.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::signature::Type;

    #[test]
    fn a_value_in_parts_is_put_together() {
        let code = ColumnCode {
            name: "pair".to_owned(),
            type_name: "pair".to_owned(),
            kind: Type::Integer { bytes: 16, is_signed: false },
            parts: vec![(4, 8, 8), (12, 0, 4)],
            line: None,
        };
        let record: Vec<u8> = (0..20).collect();
        let mut room = [0xff; MOST_BYTES];
        let want = [12, 13, 14, 15, 0, 0, 0, 0, 4, 5, 6, 7, 8, 9, 10, 11];
        assert_eq!(Bytes::of(&code).value(&record, &mut room), want);
    }
}
