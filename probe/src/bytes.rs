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
        let value = raw.iter().enumerate().fold(0i128, |sum, (i, b)| sum | i128::from(b & 0x7f) << (7 * i));
        let shift = 128 - 7 * raw.len();
        i64::try_from(value << shift >> shift).ok()
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

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::testing::{assembled, compiled};
    use gimli::{EndianSlice, LittleEndian, leb128};
    use program::Program;
    use program::arch::decode;
    use proptest::prelude::*;

    fn reader(bytes: &[u8]) -> Reader<'_> {
        Reader::new(bytes, Va(0x1000), 0)
    }

    proptest! {
        /// gimli reads what is written.
        #[test]
        fn a_number_is_written_as_others_read_it(value in any::<u64>(), n_bits in 0..64u32) {
            let value = value >> n_bits;
            let mut bytes = vec![0xff; 3];
            put_uleb(&mut bytes, value);
            bytes.push(0xff);
            let mut theirs = EndianSlice::new(&bytes[3..], LittleEndian);
            prop_assert_eq!(leb128::read::unsigned(&mut theirs), Ok(value));
            prop_assert_eq!(theirs.len(), 1);
        }

        /// Whatever stands there, we read as gimli does, and as far.
        #[test]
        fn numbers_are_read_as_others_read_them(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..13),
            n_more in 0..12usize,
        ) {
            bytes.iter_mut().take(n_more).for_each(|b| *b |= 0x80);
            let (mut ours, mut theirs) = (reader(&bytes), EndianSlice::new(&bytes, LittleEndian));
            let want = leb128::read::unsigned(&mut theirs).ok();
            prop_assert_eq!(ours.uleb(), want);
            if want.is_some() {
                prop_assert_eq!(ours.rest(), theirs.slice());
            }
            let (mut ours, mut theirs) = (reader(&bytes), EndianSlice::new(&bytes, LittleEndian));
            let want = leb128::read::signed(&mut theirs).ok();
            prop_assert_eq!(ours.sleb(), want);
            if want.is_some() {
                prop_assert_eq!(ours.rest(), theirs.slice());
            }
        }

        /// A jump whose distance is written leads there.
        #[test]
        fn a_distance_is_what_the_processor_adds(to in any::<i32>()) {
            let (at, to) = (Va(0x1_0000_0000), Va(0x1_0000_0000).plus(i64::from(to).cast_unsigned()));
            let mut appended = vec![0xe9];
            put_distance(&mut appended, to.since(at.plus(5)));
            let mut set = vec![0xe9, 1, 2, 3, 4, 0x90];
            set_distance(&mut set, 1, to.since(at.plus(5)));
            prop_assert_eq!(&set[..5], &appended[..]);
            prop_assert_eq!(set[5], 0x90);
            let jump = decode(&appended, at).expect("a jump");
            // A distance is one of 32 bits: further off, it would be another.
            let is_near = i32::try_from(to.since(at.plus(5)).cast_signed()).is_ok();
            prop_assert!(!is_near || jump.flow().target() == Some(to), "{jump} {to}");
        }
    }

    /// The pointers behind the label `here`, in these encodings, as the assembler has written them.
    fn pointers(program: &Program, encodings: &[u8]) -> Vec<Option<u64>> {
        let here = program.image.symbols.iter().find(|s| &*s.name == "here").expect("there is one").at;
        let segment = program.image.segment_at(here).expect("it is in one").range.clone();
        let bytes = program.image.bytes_from(segment.start).expect("in the file");
        let mut reader =
            Reader::new(bytes, segment.start, usize::try_from(here.since(segment.start)).expect("small"));
        encodings.iter().map(|e| reader.pointer(&program.image, *e).map(|at| at.0)).collect()
    }

    #[test]
    fn pointers_lead_where_the_assembler_says() {
        let text = "ret\n.pushsection .rodata\nhere: .quad f\n.uleb128 0x401010\n.2byte 0x4010\n.4byte f\n\
            .sleb128 -0x401010\n.2byte -0x4010\n.4byte -0x401010\n.4byte f-.\n.8byte f-.\n.4byte 0\n.byte 1\n.popsection";
        let program = assembled(&[("_start", "call f\nhlt"), ("f", text)]);
        let f = Some(0x401010);
        let minus = |n: i64| Some((-n).cast_unsigned());
        assert_eq!(
            pointers(&program, &[0x00, 0x01, 0x02, 0x03, 0x09, 0x0a, 0x0b, 0x1b, 0x1c, 0x1b, 0x3b]),
            [f, f, Some(0x4010), f, minus(0x401010), minus(0x4010), minus(0x401010), f, f, Some(0), None]
        );
    }

    #[test]
    fn an_absolute_pointer_is_what_the_dynamic_linker_makes_of_it() {
        let text = ".text\n.globl main\n.type main,@function\nmain: ret\n.section .data.rel.ro,\"aw\"\nhere: .quad main\n\
            .section .note.GNU-stack\n";
        let program = compiled(text, "s", "-pie");
        let main = program.function(crate::testing::function(&program, "main")).entry;
        assert_eq!(pointers(&program, &[0x00]), [Some(main.0)]);
    }

    #[test]
    fn what_is_cut_off_is_not_read() {
        let mut cut = reader(&[1, 2, 3]);
        assert_eq!((cut.take(4), cut.until_zero(), cut.seek(4)), (None, None, None));
        assert_eq!((cut.seek(3), cut.byte(), cut.uleb(), cut.va()), (Some(()), None, None, Va(0x1003)));
        let mut text = reader(b"zPLR\0\x01");
        assert_eq!((text.until_zero(), text.position(), text.byte()), (Some(&b"zPLR"[..]), 5, Some(1)));
    }
}
