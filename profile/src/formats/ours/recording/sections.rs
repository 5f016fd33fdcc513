//! The sections of a recording, one by one: written while a run goes on, and found again in a file without
//! reading all of it, be it cut off.
//!
//! Invariant: what [`SectionWriter`] wrote up to a section can be read, whatever comes of those behind it.
#![warn(clippy::indexing_slicing)]

use super::{END, head};
use crate::encoding::{Cursor, put_bytes};
use crate::vocabulary::{Format, ReadError};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Writes sections as they come.
pub struct SectionWriter<W> {
    to: W,
    sum: Xxh3,
    n_bytes: u64,
    buffer: Vec<u8>,
}

impl<W: Write> SectionWriter<W> {
    /// Starts a recording there.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn new(to: W) -> io::Result<SectionWriter<W>> {
        let mut writer = SectionWriter { to, sum: Xxh3::new(), n_bytes: 0, buffer: head() };
        writer.put()?;
        Ok(writer)
    }

    /// Writes one.
    ///
    /// # Errors
    /// Those of whatever is written to: then part of it may be there.
    pub fn section(&mut self, tag: u8, body: &[u8]) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.push(tag);
        put_bytes(&mut self.buffer, body);
        let sum = xxh3_64(&self.buffer);
        self.buffer.extend(sum.to_le_bytes());
        self.put()
    }

    /// How many bytes there are, up to the last section that was written.
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// What is written to.
    pub fn get_ref(&self) -> &W {
        &self.to
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// Those of whatever is written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.buffer.clear();
        self.buffer.push(END);
        self.put()?;
        let sum = self.sum.digest();
        self.to.write_all(&sum.to_le_bytes())?;
        Ok(self.to)
    }

    fn put(&mut self) -> io::Result<()> {
        self.to.write_all(&self.buffer)?;
        self.sum.update(&self.buffer);
        self.n_bytes += self.buffer.len() as u64;
        Ok(())
    }
}

/// A section of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// What it is.
    pub tag: u8,
    /// Where it starts.
    at: u64,
    /// How long its body is.
    len: usize,
    /// How many bytes stand in front of that.
    before: usize,
}

/// Finds the sections of a file.
pub struct SectionReader<'a> {
    file: &'a File,
    at: u64,
    end: u64,
    /// Whether the end of the recording was there.
    pub is_whole: bool,
}

/// The tag of a section and the length of its body take so many bytes at most.
const LONGEST_START: usize = 11;

impl<'a> SectionReader<'a> {
    /// Of the recording in `file`.
    ///
    /// # Errors
    /// The kernel's, or if it is none of the version that has sections.
    pub fn new(file: &'a File) -> Result<SectionReader<'a>, ReadError> {
        let head = head();
        let mut start = vec![0; head.len()];
        let is_one = file.read_exact_at(&mut start, 0).is_ok() && start == head;
        let end = file.metadata().map_err(|err| unreadable(0, &err))?.len();
        match is_one {
            true => Ok(SectionReader { file, at: head.len() as u64, end, is_whole: false }),
            false => Err(damaged(0, "it starts otherwise")),
        }
    }

    /// How many bytes of the file are those of sections that are there, and of the end.
    pub fn n_bytes_whole(&self) -> u64 {
        self.at
    }

    /// The next section, if all of it is there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn next_section(&mut self) -> Result<Option<Section>, ReadError> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let mut start = [0; LONGEST_START];
        let start = start.get_mut(..left.min(LONGEST_START)).unwrap_or_default();
        self.file.read_exact_at(start, self.at).map_err(|err| unreadable(self.at, &err))?;
        let mut c = Cursor::within(start);
        let (Ok(tag), len) = (c.byte(), c.varint()) else { return Ok(None) };
        if tag == END {
            self.is_whole = left >= 9;
            self.at += if self.is_whole { 9 } else { 0 };
            return Ok(None);
        }
        let Ok(len) = len.map(|len| usize::try_from(len).unwrap_or(usize::MAX)) else { return Ok(None) };
        let section = Section { tag, at: self.at, len, before: c.at() };
        match c.at().checked_add(len).and_then(|n| n.checked_add(8)).filter(|n| *n <= left) {
            Some(n) => {
                self.at += n as u64;
                Ok(Some(section))
            }
            None => Ok(None),
        }
    }
}

impl Section {
    /// How many bytes it has in the file.
    pub fn n_bytes(&self) -> u64 {
        (self.before + self.len + 8) as u64
    }

    /// The first `n` bytes of its body, or all, unchecked.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(&self, file: &File, n: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; n.min(self.len)];
        file.read_exact_at(&mut bytes, self.at + self.before as u64)
            .map_err(|err| unreadable(self.at, &err))?;
        Ok(bytes)
    }

    /// Its body.
    ///
    /// # Errors
    /// The kernel's, or if it was changed.
    pub fn body(&self, file: &File) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; self.before + self.len + 8];
        file.read_exact_at(&mut bytes, self.at).map_err(|err| unreadable(self.at, &err))?;
        let (content, sum) = bytes.split_at(self.before + self.len);
        if sum != xxh3_64(content).to_le_bytes() {
            return Err(damaged(self.at, "a section's checksum is wrong"));
        }
        bytes.truncate(self.before + self.len);
        bytes.drain(..self.before);
        Ok(bytes)
    }
}

fn damaged(at: u64, what: &str) -> ReadError {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    ReadError::Damaged { format: Format::Engraft, at, what: what.to_owned() }
}

fn unreadable(at: u64, err: &io::Error) -> ReadError {
    damaged(at, &format!("it cannot be read: {err}"))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::recording::Recording;

    /// What was written up to a byte is found: all sections before it, whole.
    #[test]
    fn sections_are_found_as_far_as_they_are_there() {
        let sections: Vec<(u8, Vec<u8>)> =
            (0..6u8).map(|n| (b'a' + n, vec![n; 40 * usize::from(n)])).collect();
        let mut writer = SectionWriter::new(Vec::new()).expect("memory");
        let mut ends = vec![writer.n_bytes()];
        for (tag, body) in &sections {
            writer.section(*tag, body).expect("memory");
            ends.push(writer.n_bytes());
        }
        let whole = Recording { sections: Vec::new(), ..Recording::default() };
        let bytes = whole.write_behind(writer).expect("memory");
        assert_eq!(Recording::parse(&bytes).expect("it is one").sections, sections);
        for n in 9..=bytes.len() {
            let file = tempfile::tempfile().expect("a file");
            file.write_all_at(&bytes[..n], 0).expect("there is room");
            let mut reader = SectionReader::new(&file).expect("it starts so");
            let mut found = Vec::new();
            while let Some(section) = reader.next_section().expect("it can be read") {
                found.push((section.tag, section.body(&file).expect("it is whole")));
            }
            let want = ends.iter().filter(|end| **end <= n as u64).count() - 1;
            let found: Vec<_> = found.into_iter().filter(|(tag, _)| tag.is_ascii_lowercase()).collect();
            assert_eq!(found, sections[..want], "{n}");
            assert_eq!(reader.is_whole, n == bytes.len());
        }
    }
}
