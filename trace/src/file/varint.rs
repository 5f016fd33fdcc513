//! Numbers as few bytes: seven bits each, lowest first, the top bit says that more follow.
#![warn(clippy::indexing_slicing)]

/// Appends `n`.
pub fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 0x80 by now")]
    out.push(n as u8);
}

/// Appends numbers that rise, by their differences.
pub fn put_rising(out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u32>) {
    put(out, numbers.len() as u64);
    let mut last = 0;
    for n in numbers {
        put(out, u64::from(n - last));
        last = n;
    }
}

/// Maps numbers of both signs to small ones without.
pub fn zigzag(n: i64) -> u64 {
    (n.cast_unsigned() << 1) ^ (n >> 63).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub fn unzigzag(n: u64) -> i64 {
    (n >> 1).cast_signed() ^ -((n & 1).cast_signed())
}

/// Reads what was put. `None` where the bytes end or are none of ours.
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next number.
    pub fn get(&mut self) -> Option<u64> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    /// The next number, of 32 bits.
    pub fn get_u32(&mut self) -> Option<u32> {
        u32::try_from(self.get()?).ok()
    }

    /// The next number, as a length of things that take a byte each at least.
    pub fn get_len(&mut self) -> Option<usize> {
        usize::try_from(self.get()?).ok().filter(|&n| n <= self.rest.len())
    }

    /// What [`put_rising`] put.
    pub fn get_rising(&mut self) -> Option<Vec<u32>> {
        let n = self.get_len()?;
        let mut last = 0_u32;
        (0..n).map(|_| self.get_u32().and_then(|d| last.checked_add(d)).inspect(|&n| last = n)).collect()
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    /// All that is left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_read(numbers: Vec<u64>, signed: i64) {
            let mut out = Vec::new();
            numbers.iter().for_each(|&n| put(&mut out, n));
            let mut cursor = Cursor::new(&out);
            for n in numbers {
                prop_assert_eq!(cursor.get(), Some(n));
            }
            prop_assert_eq!(cursor.get(), None);
            prop_assert_eq!(unzigzag(zigzag(signed)), signed);
        }
    }
}
