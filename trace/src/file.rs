//! The trace file: sections one after the other, each with its length and checksums.
//!
//! ```text
//! file    = magic version kind zero×6 section*
//! magic   = "ENGRAFT\0"
//! version = u8, 2
//! kind    = u8, 'T' for a trace
//! section = tag: 4 bytes · u32: low half of XXH3 of what follows in this head · length: u64
//!           · XXH3 of the payload: u64 · payload
//! ```
//! All numbers are little-endian. Tags: `CHK2` a chunk of symbols, and `PRS2` the index of the one before it
//! (`chunks`); `EVNT` events as they were recorded, `CODE` what a module's events mean, `ENDS` how streams
//! ended (`recording/sections`); `NAME` names (`names`); `GRAM` the grammar (`grammar/coder`), `SEGM` its
//! segments (`grammar/segments`), `COLS` the columns (`search/columns`); `TIME` when symbols were executed
//! (`times`); `FLOW` which blocks may follow each other (`flow`); `END ` nothing: the file is whole. What has
//! another tag is passed over.
//!
//! Invariant: a section is whole or not there. A file that is cut, or was not finished, has all sections that
//! were complete.
#![warn(clippy::indexing_slicing)]

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::unix::fs::FileExt as _;
use xxhash_rust::xxh3::xxh3_64;

pub mod flow;
pub mod import;
pub mod names;
pub mod plain;
pub mod times;
pub(crate) mod varint;

/// What the file opens with.
const MAGIC: &[u8; 8] = b"ENGRAFT\0";
/// The version that is written, and the only one that is read.
const VERSION: u8 = 2;
const HEADER: usize = 16;
const HEAD: usize = 24;

/// What a section is.
pub type Tag = [u8; 4];

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file is something else.
    #[error("it is no trace of engraft")]
    NotATrace,
    /// It was written by another version of ours.
    #[error("it is a trace of version {got}; this engraft reads version {VERSION}")]
    Version {
        /// What it says.
        got: u8,
    },
    /// Its bytes are not those that were written.
    #[error("it is damaged: {what} at byte {at:#x}")]
    Damaged {
        /// Of what.
        what: &'static str,
        /// Where in the file.
        at: u64,
    },
    /// It was cut off, and what is asked for is not in what is left.
    #[error("it is cut off at byte {at:#x}, before {what}")]
    Cut {
        /// What is missing.
        what: &'static str,
        /// Where the last whole section ends.
        at: u64,
    },
    /// Bytes stand there that are no section, and what is asked for is not before them.
    #[error("it is damaged at byte {at:#x}, before {what}")]
    Broken {
        /// What is missing.
        what: &'static str,
        /// Where the last whole section ends.
        at: u64,
    },
    /// The system does not give it to us.
    #[error("cannot read it at byte {at:#x}")]
    Io {
        /// Where in the file.
        at: u64,
        /// Why.
        #[source]
        err: io::Error,
    },
}

/// Whether a file that starts with `bytes` is a trace of ours, of whatever version.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC) && bytes.get(9) == Some(&b'T')
}

/// Where a section is.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// What it is.
    pub tag: Tag,
    at: u64,
    len: u64,
    sum: u64,
}

impl Section {
    /// How many bytes it holds.
    pub fn n_bytes(&self) -> u64 {
        self.len
    }
}

/// Writes sections.
pub struct Sections<W> {
    to: W,
    n_bytes: u64,
}

/// A section's head and payload, ready to be written.
pub fn section(tag: Tag, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 24);
    out.extend(tag);
    let mut rest = (payload.len() as u64).to_le_bytes().to_vec();
    rest.extend(xxh3_64(payload).to_le_bytes());
    out.extend(check(tag, &rest).to_le_bytes());
    out.extend(rest);
    out.extend(payload);
    out
}

/// A file with checksums that fit, as far as its sections can be told apart: for tests of what is behind the
/// checksums.
#[doc(hidden)]
pub fn resealed(file: &[u8]) -> Option<Vec<u8>> {
    let (start, mut rest) = file.split_at_checked(HEADER)?;
    let mut out = start.to_vec();
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD>() {
        let [t, a, g, s, _, _, _, _, len @ .., _, _, _, _, _, _, _, _] = *head;
        let len = usize::try_from(u64::from_le_bytes(len)).ok()?;
        let (payload, behind) = behind.split_at_checked(len)?;
        out.extend(section([t, a, g, s], payload));
        rest = behind;
    }
    Some(out)
}

/// What zstd packed, if it is no longer than `most`: a few bytes may stand for any number.
pub(crate) fn unpacked(packed: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    // One more, so that what is too long is seen.
    zstd::Decoder::new(packed).ok()?.take(most as u64 + 1).read_to_end(&mut out).ok()?;
    (out.len() <= most).then_some(out)
}

/// What zstd packed of words and numbers that are not all the same: they do not become a 256th, unless they
/// are few.
pub(crate) fn unpacked_words(packed: &[u8]) -> Option<Vec<u8>> {
    unpacked(packed, packed.len().saturating_mul(256).saturating_add(16 << 20))
}

/// The checksum of a head.
fn check(tag: Tag, rest: &[u8]) -> u32 {
    let mut head = tag.to_vec();
    head.extend(rest);
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what is meant")]
    let low = xxh3_64(&head) as u32;
    low
}

impl<W: Write> Sections<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(mut to: W) -> io::Result<Self> {
        to.write_all(MAGIC)?;
        to.write_all(&[VERSION, b'T', 0, 0, 0, 0, 0, 0])?;
        Ok(Self { to, n_bytes: HEADER as u64 })
    }

    /// Writes a section that [`section`] made.
    ///
    /// # Errors
    /// If it cannot be written; what was written before stays readable.
    pub fn write(&mut self, section: &[u8]) -> io::Result<()> {
        self.n_bytes += section.len() as u64;
        self.to.write_all(section)
    }

    /// Says that the file is whole, and how many bytes it has.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<u64> {
        self.write(&section(*b"END ", &[]))?;
        self.to.flush()?;
        Ok(self.n_bytes)
    }
}

/// A file's sections, found but not read.
pub struct Source {
    file: File,
    /// In the order of the file; `END ` is not among them.
    pub sections: Vec<Section>,
    /// Where the last whole section ends, if the file is cut behind it.
    pub cut: Option<u64>,
    /// Whether it is cut there since what comes next is damaged, and not since the file ends.
    pub is_damaged: bool,
    /// How many bytes stand behind the end, of whatever.
    pub n_behind: u64,
}

impl Source {
    /// Finds the sections.
    ///
    /// # Errors
    /// If it is no trace, or of another version, or cannot be read. A cut file is no error.
    pub fn open(file: File) -> Result<Self, ReadError> {
        let mut header = [0; HEADER];
        let n = read_at(&file, &mut header, 0)?;
        if !header.starts_with(MAGIC) || n < 10 || header[9] != b'T' {
            return Err(ReadError::NotATrace);
        }
        if header[8] != VERSION {
            return Err(ReadError::Version { got: header[8] });
        }
        let n_bytes = file.metadata().map_err(|err| ReadError::Io { at: 0, err })?.len();
        let (mut sections, mut at) = (Vec::new(), HEADER as u64);
        loop {
            let mut head = [0; HEAD];
            let whole = read_at(&file, &mut head, at)? == head.len();
            let section = head_of(&head, at).filter(|_| whole);
            let end = section.and_then(|s| s.at.checked_add(s.len)).filter(|&end| end <= n_bytes);
            match (section, end) {
                (Some(Section { tag: [b'E', b'N', b'D', b' '], .. }), Some(end)) => {
                    let n_behind = n_bytes - end;
                    return Ok(Self { file, sections, cut: None, is_damaged: false, n_behind });
                }
                (Some(section), Some(end)) => {
                    sections.push(section);
                    at = end;
                }
                _ => {
                    let is_damaged = whole && section.is_none();
                    return Ok(Self { file, sections, cut: Some(at), is_damaged, n_behind: 0 });
                }
            }
        }
    }

    /// The payload of a section.
    ///
    /// # Errors
    /// If it cannot be read, or is not what was written.
    pub fn read(&self, section: &Section) -> Result<Vec<u8>, ReadError> {
        let damaged = ReadError::Damaged { what: "a section's length", at: section.at };
        let Ok(n) = usize::try_from(section.len) else { return Err(damaged) };
        let mut payload = vec![0; n];
        if read_at(&self.file, &mut payload, section.at)? < n || xxh3_64(&payload) != section.sum {
            return Err(ReadError::Damaged { what: "a section's content", at: section.at });
        }
        Ok(payload)
    }

    /// The first bytes of a section, unchecked: enough to find out whether the rest is wanted.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn peek(&self, section: &Section, n: usize) -> Result<Vec<u8>, ReadError> {
        let mut start = vec![0; usize::try_from(section.len).map_or(n, |len| len.min(n))];
        let got = read_at(&self.file, &mut start, section.at)?;
        start.truncate(got);
        Ok(start)
    }

    /// The only section of this kind, read.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_tagged(&self, tag: Tag) -> Result<Option<Vec<u8>>, ReadError> {
        self.sections.iter().find(|s| s.tag == tag).map(|s| self.read(s)).transpose()
    }

    /// The error for something that is not there; `None` if the file is whole.
    pub fn ends_before(&self, what: &'static str) -> Option<ReadError> {
        let is_damaged = self.is_damaged;
        self.cut
            .map(|at| if is_damaged { ReadError::Broken { what, at } } else { ReadError::Cut { what, at } })
    }

    /// The error for something that a section holds, whose checksum is right but whose content makes no
    /// sense.
    pub fn senseless(&self, tag: Tag, what: &'static str) -> ReadError {
        ReadError::Damaged { what, at: self.sections.iter().find(|s| s.tag == tag).map_or(0, |s| s.at) }
    }
}

fn head_of(head: &[u8; HEAD], at: u64) -> Option<Section> {
    let tag: Tag = head.get(..4)?.try_into().ok()?;
    let word = |i: usize| head.get(i..i + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let sum = head.get(4..8).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)?;
    let section = Section { tag, at: at + HEAD as u64, len: word(8)?, sum: word(16)? };
    (sum == check(tag, head.get(8..)?)).then_some(section)
}

/// Fills `buffer` from `at`, as far as the file goes.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> Result<usize, ReadError> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(ReadError::Io { at, err }),
        }
    }
    Ok(done)
}
