//! The log of a run: a row for each call, and for each time that control came to a place, by column. It is
//! written while the program runs, and read a block of rows at a time.
//!
//! ```text
//! section `K` = version: u8, 1                       in front: this recording has a log
//! section `D` = number: varint, the table, as postcard writes it      before its first block
//! section `L` = table: varint, rows: varint, (length: varint, column)*     a block: `log/column.rs`
//! section `C` = return addresses and where their calls are, as postcard writes them, by zstd
//! ```
//! The columns of a block: thread, index, and of calls caller, how it ended, arguments, result, ticks, ticks
//! without those of calls within it; of places what was there. A value of more than 8 bytes is several
//! columns. Rows of a block are in order of their index; those of calls that took longer may be in a later
//! block.
//!
//! Invariant: memory does not grow with the run: when rows of all tables take 64 MiB, or a
//! second is over, they are written.
#![warn(clippy::indexing_slicing)]

mod column;
pub mod csv;
mod read;

pub use column::MOST_ROWS;
pub use read::{Block, Log};

use super::{Address, len_bytes};
use crate::encoding::{put_bytes, varint};
use crate::recording::SectionWriter;
use column::Coder;
use program::signature::Type;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// The section that says that there is a log.
pub(super) const HEAD: u8 = b'K';
/// A table of it.
const TABLE: u8 = b'D';
/// A block of rows.
const BLOCK: u8 = b'L';
/// Where calls were made.
const CALLERS: u8 = b'C';
/// The version of all of these.
const VERSION: u8 = 1;

/// So many bytes of rows are kept at most before they are written.
const MOST_PENDING_BYTES: usize = 64 << 20;
/// So long rows are kept at most, while others come.
const LONGEST: Duration = Duration::from_secs(1);

/// What rows are of: the calls of a function, or a place.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// The function's name, or the place, as in [`super::Values`].
    pub name: String,
    /// Which of what was asked for it is.
    pub asked: u32,
    /// Whether it was asked for by a glob that means others, too.
    pub is_of_glob: bool,
    /// Whether it is a place.
    pub is_place: bool,
    /// Where it is.
    pub addresses: Vec<Address>,
    /// Arguments, or what was at the place.
    pub arguments: Vec<Field>,
    /// What it returned, if that was asked for and is something.
    pub result: Option<Field>,
    /// Whether it is known how long calls took.
    pub has_times: bool,
    /// Of how many there is one row: 1, if there is one of each, from the first or to the last on.
    pub every: u64,
}

/// Which calls, and times that control came by, have a row.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Chosen {
    /// All.
    #[default]
    All,
    /// So many of each function and place, the first ones.
    First(u64),
    /// The last ones to end: they are kept in memory until the run is over.
    Last(usize),
    /// One of so many: the first, and so on.
    Every(NonZeroU64),
}

impl Chosen {
    /// Whether the one with this number, from 1, has a row when it comes.
    pub fn has(self, index: u64) -> bool {
        match self {
            Chosen::All | Chosen::Last(_) => true,
            Chosen::First(n) => index <= n,
            Chosen::Every(n) => (index - 1).is_multiple_of(n.get()),
        }
    }

    /// Of how many there is one row.
    pub fn every(self) -> u64 {
        match self {
            Chosen::Every(n) => n.get(),
            _ => 1,
        }
    }
}

/// What a value of a row is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Field {
    /// What it is called.
    pub name: String,
    /// Its type, as it was asked for.
    pub type_name: String,
    /// What its bytes mean.
    pub kind: Type,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It came back, its result being known.
    Result = 0,
    /// It was left otherwise.
    Left = 1,
    /// It had not come back at the end.
    Open = 2,
}

/// A row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    /// Which thread, from 1.
    pub thread: u32,
    /// The number of the call within its function, or of the time that control came by, from 1, in order of
    /// entry: within a thread as they were, between threads as they were taken.
    pub index: u64,
    /// The return address in the process.
    pub caller: u64,
    /// How it ended.
    pub ended: Ended,
    /// How many ticks of the time stamp counter it took, 0 if that is not known.
    pub ticks: u64,
    /// The same without those of calls within it that have a row.
    pub own_ticks: u64,
    /// The arguments, each in [`Field::n_words`] words, one behind the other.
    pub arguments: &'a [u64],
    /// The result, of which there is none if it did not come back.
    pub result: &'a [u64],
}

/// A part of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// [`Row::thread`].
    Thread,
    /// [`Row::index`].
    Index,
    /// [`Row::caller`].
    Caller,
    /// [`Row::ended`].
    Ended,
    /// One of [`Row::arguments`].
    Argument(usize),
    /// [`Row::result`].
    Result,
    /// [`Row::ticks`].
    Ticks,
    /// [`Row::own_ticks`].
    OwnTicks,
}

impl Field {
    /// How many words of 8 bytes hold its value.
    pub fn n_words(&self) -> usize {
        len_bytes(&self.kind).max(1).div_ceil(8)
    }
}

impl Table {
    /// Its columns, in order: what each is of, and its first word.
    fn layout(&self) -> Vec<(Part, usize)> {
        let mut all = vec![(Part::Thread, 0), (Part::Index, 0)];
        if !self.is_place {
            all.extend([(Part::Caller, 0), (Part::Ended, 0)]);
        }
        for (n, field) in self.arguments.iter().enumerate() {
            all.extend((0..field.n_words()).map(|word| (Part::Argument(n), word)));
        }
        all.extend(
            self.result.iter().flat_map(|field| (0..field.n_words()).map(|word| (Part::Result, word))),
        );
        if self.has_times {
            all.extend([(Part::Ticks, 0), (Part::OwnTicks, 0)]);
        }
        all
    }

    /// The fields that have values: each argument, the result.
    pub fn fields(&self) -> impl Iterator<Item = (Part, &Field)> {
        let arguments = self.arguments.iter().enumerate().map(|(n, field)| (Part::Argument(n), field));
        arguments.chain(self.result.iter().map(|field| (Part::Result, field)))
    }
}

/// The bytes of a value as words, the last filled up with zeros.
pub fn words(bytes: &[u8], out: &mut Vec<u64>) {
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, byte)| *to = *byte);
        out.push(u64::from_le_bytes(word));
    }
}

/// Writes a log.
pub struct LogWriter {
    to: SectionWriter<File>,
    coder: Coder,
    tables: Vec<Pending>,
    n_pending_bytes: usize,
    /// When rows were last written.
    written: Instant,
    n_rows: u64,
    /// How many rows of each table are kept until the end, if only these are wanted.
    last: Option<usize>,
    failed: Option<io::Error>,
}

/// Rows that are not written yet.
struct Pending {
    table: Table,
    is_declared: bool,
    n_rows: usize,
    /// By column.
    columns: Vec<Vec<u64>>,
    n_arguments: usize,
    n_result: usize,
}

impl LogWriter {
    /// Starts a recording in `file`, with rows of those that are `chosen`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(file: File, chosen: Chosen) -> io::Result<LogWriter> {
        let mut to = SectionWriter::new(file)?;
        to.section(HEAD, &[VERSION])?;
        let (tables, written) = (Vec::new(), Instant::now());
        let last = if let Chosen::Last(n) = chosen { Some(n) } else { None };
        Ok(LogWriter {
            to,
            coder: Coder::new()?,
            tables,
            n_pending_bytes: 0,
            written,
            n_rows: 0,
            last,
            failed: None,
        })
    }

    /// Adds a table; its number.
    pub fn add(&mut self, table: Table) -> usize {
        let n_arguments = table.arguments.iter().map(Field::n_words).sum();
        let n_result = table.result.as_ref().map_or(0, Field::n_words);
        let columns = vec![Vec::new(); table.layout().len()];
        self.tables.push(Pending { table, is_declared: false, n_rows: 0, columns, n_arguments, n_result });
        self.tables.len() - 1
    }

    /// Adds a row to a table. What cannot be written is said at the end.
    pub fn row(&mut self, table: usize, row: &Row<'_>) {
        let Some(pending) = self.tables.get_mut(table).filter(|_| self.failed.is_none()) else { return };
        pending.push(row);
        if let Some(last) = self.last {
            // Half of them at once, so that each is moved once.
            if pending.n_rows > MOST_ROWS && pending.n_rows > 2 * last {
                pending.drop_first(pending.n_rows - last);
            }
            return;
        }
        self.n_pending_bytes += 8 * pending.columns.len();
        self.n_rows += 1;
        if pending.n_rows == MOST_ROWS {
            self.write_or_fail(table);
        } else if self.n_pending_bytes >= MOST_PENDING_BYTES {
            self.flush();
        }
    }

    /// Writes what is there, if it has waited long enough.
    pub fn flush_at_times(&mut self) {
        if self.last.is_none() && self.written.elapsed() >= LONGEST {
            self.flush();
        }
    }

    /// Writes what is there.
    pub fn flush(&mut self) {
        (0..self.tables.len()).for_each(|n| self.write_or_fail(n));
        self.written = Instant::now();
    }

    fn write_or_fail(&mut self, table: usize) {
        let is_failed = self.failed.is_some();
        let Some(pending) = self.tables.get_mut(table).filter(|of| of.n_rows > 0 && !is_failed) else {
            return;
        };
        self.n_pending_bytes =
            self.n_pending_bytes.saturating_sub(8 * pending.columns.len() * pending.n_rows);
        let n_rows = pending.n_rows as u64;
        if let Err(err) = pending.write(table, &mut self.to, &mut self.coder) {
            self.n_rows -= n_rows;
            self.failed = Some(err);
        }
    }

    /// How many rows there are.
    pub fn n_rows(&self) -> u64 {
        self.n_rows
    }

    /// Writes all that is there, and where calls were made that return to these addresses: then the recording
    /// goes on. If something failed before, so is the error: the log ends earlier, and what is behind its
    /// last whole block is taken away.
    ///
    /// # Errors
    /// The kernel's, if that fails.
    pub fn finish(
        mut self,
        callers: &[(u64, Address)],
    ) -> io::Result<(SectionWriter<File>, Option<io::Error>)> {
        if let Some(last) = self.last {
            for pending in &mut self.tables {
                pending.drop_first(pending.n_rows.saturating_sub(last));
                self.n_rows += pending.n_rows as u64;
            }
        }
        self.flush();
        if self.failed.is_some() {
            let (file, end) = (self.to.get_ref(), self.to.n_bytes());
            file.set_len(end)?;
            io::Seek::seek(&mut &*file, io::SeekFrom::Start(end))?;
        }
        let bytes = postcard::to_stdvec(callers).expect("all of it has a form");
        self.to.section(CALLERS, &zstd::encode_all(bytes.as_slice(), 3)?)?;
        Ok((self.to, self.failed))
    }
}

impl Pending {
    fn push(&mut self, row: &Row<'_>) {
        self.n_rows += 1;
        let mut columns = self.columns.iter_mut();
        let mut put = |value: u64| columns.next().into_iter().for_each(|column| column.push(value));
        put(u64::from(row.thread));
        put(row.index);
        if !self.table.is_place {
            put(row.caller);
            put(row.ended as u64);
        }
        (0..self.n_arguments).for_each(|n| put(row.arguments.get(n).copied().unwrap_or(0)));
        (0..self.n_result).for_each(|n| put(row.result.get(n).copied().unwrap_or(0)));
        if self.table.has_times {
            put(row.ticks);
            put(row.own_ticks);
        }
    }

    fn write(&mut self, n: usize, to: &mut SectionWriter<File>, coder: &mut Coder) -> io::Result<()> {
        let mut body = Vec::new();
        varint(&mut body, n as u64);
        if !std::mem::replace(&mut self.is_declared, true) {
            let mut declared = body.clone();
            declared.extend(postcard::to_stdvec(&self.table).expect("all of it has a form"));
            to.section(TABLE, &declared)?;
        }
        self.sort();
        let start = body.len();
        let mut coded = Vec::new();
        for from in (0..self.n_rows).step_by(MOST_ROWS) {
            let to_row = self.n_rows.min(from + MOST_ROWS);
            body.truncate(start);
            varint(&mut body, (to_row - from) as u64);
            for column in &self.columns {
                coded.clear();
                coder.encode(column.get(from..to_row).unwrap_or_default(), &mut coded);
                put_bytes(&mut body, &coded);
            }
            to.section(BLOCK, &body)?;
        }
        // Their room goes to those that come next, which may be of others.
        self.columns.iter_mut().for_each(|column| *column = Vec::new());
        self.n_rows = 0;
        Ok(())
    }

    fn drop_first(&mut self, n: usize) {
        self.columns.iter_mut().for_each(|column| drop(column.drain(..n.min(column.len()))));
        self.n_rows -= n.min(self.n_rows);
    }

    /// Puts rows into the order of their index.
    fn sort(&mut self) {
        let Some(index) = self.columns.get(1).filter(|index| !index.is_sorted()) else { return };
        let mut order: Vec<usize> = (0..index.len()).collect();
        order.sort_by_key(|n| index.get(*n));
        for column in &mut self.columns {
            *column = order.iter().filter_map(|n| column.get(*n).copied()).collect();
        }
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
