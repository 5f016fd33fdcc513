//! The recording that a launcher shares with what it starts: counters of areas ([`areas`]), streams of events
//! ([`streams`]), and where processes ask for libraries ([`mailbox`]) and before they `exec`
//! ([`exec_requests`]).
//!
//! Invariant: a module's row is written before the number of rows is raised.
//!
//! Source: memfd_create(2).

mod areas;
mod exec_requests;
mod mailbox;
mod streams;

pub use areas::StoppedThreads;
pub use exec_requests::Asking;
pub use mailbox::Request;
pub use streams::{Owner, Stream};

use crate::process::{Limits, own_number};
use crate::sys::SharedWord;
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use probe::arch::shared::{self, Capacity, ExecRequests, Header, Interrupted, Mailbox};
use probe::offset;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::{Mutex, MutexGuard, OnceLock};

const PAGE: u64 = 0x1000;
/// What a recording's file is called, among what processes have mapped.
pub(crate) const NAME: &str = "engraft";
/// What the kernel sets in the lock of a thread that died while it held it.
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;

/// Counters of several modules, for every thread that counts: memory that outlives the program.
///
/// The layout is that of `probe::arch::shared`.
#[derive(Debug)]
pub struct Arena {
    file: File,
    state: Mutex<State>,
    head: SharedWord,
    word: SharedWord,
    exec_requests: SharedWord,
    mailbox: u64,
    room: Capacity,
    knows_namespace: bool,
    /// The namespace in which its processes have their numbers, if it is another than ours.
    namespace: OnceLock<u64>,
    /// Where the pages of streams are, and their chunks, if events are recorded.
    streams: Option<StreamsAt>,
}

/// Where the streams of events are: a page each, and behind all of these the chunks of each.
#[derive(Clone, Copy, Debug)]
struct StreamsAt {
    pages: u64,
    chunks: u64,
}

#[derive(Debug)]
struct State {
    rows: Vec<Row>,
    len: u64,
    /// How long it may become.
    max_len: u64,
    /// How much of it processes map at first; they map more when they need it.
    mapped: u64,
}

/// A module's place: where the first area's counters are, how far apart areas are, and the length of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    key: u128,
    at: u64,
    apart: u64,
    pub(crate) len: u64,
}

impl Row {
    /// Where its counters in area `k` are.
    pub(crate) fn of(self, k: u64) -> u64 {
        self.at + k * self.apart
    }
}

/// Addresses that are kept free for modules that come later. Nothing is there until they do.
const LATER: u64 = 1 << 36;
/// The same where they need more: those of other programs, too, or with tables of where calls lead.
const LATER_OF_MANY: u64 = 1 << 43;

/// How many streams of events there may be at once.
const MOST_STREAMS: u64 = 1024;

/// How many areas processes map at first.
const FIRST_AREAS: u64 = 4;

impl Limits {
    /// How many areas there are, and how long their file may become beyond them (`later`), for counters of
    /// `len` bytes a thread. Where a process may have few addresses, a quarter of them.
    fn room(self, len: u64, later: u64) -> (Capacity, u64) {
        // Of each area: its places in the table, and what it has at home, too, with the page before.
        let table = 8 * Capacity::LAUNCH.n_rows + PAGE;
        let most = Capacity::LAUNCH.n_areas;
        let by_addresses = self.addresses.map_or(most, |n| n / 8 / (table + 2 * len + PAGE));
        // Half of what is left beside the tables that are there for all, so that modules can come later.
        let by_file = self.file_len.map_or(most, |n| n.saturating_sub(TABLES_LEN) / 2 / (table + len));
        let n_areas = by_addresses.min(by_file).clamp(1, most);
        let later = later.min(self.addresses.map_or(later, |n| (n / 8).next_multiple_of(PAGE)));
        (Capacity { n_areas, ..Capacity::LAUNCH }, later)
    }
}

/// Length of what every recording has, however few areas.
const TABLES_LEN: u64 =
    Capacity { n_areas: 0, ..Capacity::LAUNCH }.head_len() + Mailbox::LEN + ExecRequests::LEN + PAGE;

/// Gives `file` this length; says how much that is, where the user's limit has none of it.
fn set_len(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len).map_err(|err| match Limits::ours().file_len {
        Some(limit) if limit < len => {
            let (needed, limit) = (len.div_ceil(1 << 10), limit >> 10);
            io::Error::other(format!(
                "{needed} kB are needed, and no file may have more than {limit} kB (`ulimit -f`)"
            ))
        }
        _ => err,
    })
}

fn row_len(n_counters: usize) -> u64 {
    (8 * n_counters as u64).next_multiple_of(PAGE)
}

impl Arena {
    /// Whether it says in which namespace processes are called what they are.
    pub fn knows_namespace(&self) -> bool {
        self.knows_namespace
    }

    /// What process `pid`, which runs already, is called in the recording: its number where it is. By that,
    /// all that it forks there can tell who is gone.
    ///
    /// # Errors
    /// The kernel's, if it is gone.
    pub(crate) fn name_of(&self, pid: i32) -> io::Result<i32> {
        let (namespace, number) = own_number(pid)?;
        if std::fs::metadata("/proc/self/ns/pid").is_ok_and(|ours| ours.ino() != namespace) {
            self.file.write_all_at(&namespace.to_le_bytes(), offset!(Header, namespace))?;
            self.namespace.get_or_init(|| namespace);
        }
        Ok(number)
    }

    /// Makes room for `modules`: their keys, and how many counters each has; and for those that come later,
    /// which may need much.
    ///
    /// # Errors
    /// The kernel's, if it has no memory for us.
    pub fn create(modules: &[(u128, usize)], needs_much: bool) -> io::Result<Arena> {
        let later = if needs_much { LATER_OF_MANY } else { LATER };
        let area: u64 = modules.iter().map(|m| row_len(m.1)).sum();
        let (room, later) = Limits::ours().room(area, later);
        Arena::with(modules, room, later)
    }

    /// The same in `file`, which is empty memory of another process, whose modules these are.
    ///
    /// # Errors
    /// The kernel's, if it has no memory for us.
    pub fn create_in(file: File, modules: &[(u128, usize)]) -> io::Result<Arena> {
        let area: u64 = modules.iter().map(|m| row_len(m.1)).sum();
        let (room, later) = Limits::ours().room(area, LATER);
        Arena::within(file, modules, room, later)
    }

    fn with(modules: &[(u128, usize)], room: Capacity, later: u64) -> io::Result<Arena> {
        let fd = nix::sys::memfd::memfd_create(NAME, nix::sys::memfd::MFdFlags::empty())?;
        Arena::within(File::from(fd), modules, room, later)
    }

    fn within(file: File, modules: &[(u128, usize)], room: Capacity, later: u64) -> io::Result<Arena> {
        let area: u64 = modules.iter().map(|m| row_len(m.1)).sum();
        let mailbox = room.head_len();
        let exec_requests = mailbox + Mailbox::LEN;
        let len = exec_requests + ExecRequests::LEN;
        set_len(&file, len + area * room.n_areas)?;
        set_len(&file, len)?;
        file.write_all_at(&room.header(), 0)?;
        file.write_all_at(&mailbox.to_le_bytes(), offset!(Header, mailbox_at))?;
        // Children in other namespaces of processes cannot tell who is gone; where ours is not known, the
        // first one who counts says so.
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino());
        file.write_all_at(&namespace.to_le_bytes(), offset!(Header, namespace))?;
        file.write_all_at(&FUTEX_OWNER_DIED.to_le_bytes(), mailbox + offset!(Mailbox, owner))?;
        let (head, word, exec_requests) = (
            SharedWord::map(&file, 0)?,
            SharedWord::map(&file, mailbox)?,
            SharedWord::map(&file, exec_requests)?,
        );
        let state = Mutex::new(State { rows: Vec::new(), len, max_len: u64::MAX, mapped: len });
        let knows_namespace = namespace != 0;
        let (streams, namespace) = (None, OnceLock::new());
        let arena = Arena {
            file,
            state,
            head,
            word,
            exec_requests,
            mailbox,
            room,
            knows_namespace,
            namespace,
            streams,
        };
        // All of an area together: a process that has few maps little.
        let mut at = len;
        for &(key, n) in modules {
            let row = Row { key, at, apart: area, len: row_len(n) };
            arena.add_row(&mut arena.state(), row, len + area * room.n_areas)?;
            at += row.len;
        }
        let mut state = arena.state();
        state.max_len = state.len + later;
        state.mapped = len + area * room.n_areas.min(FIRST_AREAS);
        drop(state);
        Ok(arena)
    }

    /// Makes room for one more module; also for a second copy of one that is there.
    ///
    /// # Errors
    /// The kernel's; or if there are too many.
    pub fn add(&self, key: u128, n_counters: usize) -> io::Result<()> {
        let mut state = self.state();
        if let Some(at) = self.streams {
            let end = state.len;
            return self.add_row(&mut state, Row { key, at: at.pages, apart: PAGE, len: PAGE }, end);
        }
        let row = Row { key, at: state.len, apart: row_len(n_counters), len: row_len(n_counters) };
        let end = state.len + row.len * self.room.n_areas;
        self.add_row(&mut state, row, end)
    }

    fn add_row(&self, state: &mut State, row: Row, end: u64) -> io::Result<()> {
        let n = state.rows.len() as u64;
        if n >= self.room.n_rows {
            return Err(io::Error::other("there are too many modules"));
        }
        if end > state.max_len {
            return Err(io::Error::other(
                "there are no addresses left for its counters: a limit (`ulimit -v`), or large modules loaded often",
            ));
        }
        set_len(&self.file, end)?;
        state.len = end;
        let extents: Vec<u8> = (0..self.room.n_areas).flat_map(|area| row.of(area).to_le_bytes()).collect();
        self.file.write_all_at(&extents, self.room.extents_at() + 8 * n * self.room.n_areas)?;
        let mut bytes = row.key.to_le_bytes().to_vec();
        bytes.extend(row.len.to_le_bytes());
        self.file.write_all_at(&bytes, Header::LEN + shared::Row::LEN * n)?;
        self.file.write_all_at(&state.len.to_le_bytes(), offset!(Header, len_bytes))?;
        state.rows.push(row);
        let n_rows = u32::try_from(state.rows.len()).expect("there is room for fewer");
        self.file.write_all_at(&n_rows.to_le_bytes(), offset!(Header, n_rows))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The module with this key, and its number.
    pub(crate) fn row(&self, key: u128) -> Option<(usize, Row)> {
        self.state().rows.iter().copied().enumerate().find(|(_, r)| r.key == key)
    }

    /// How many bytes a process maps at first.
    pub(crate) fn mapped_len(&self) -> u64 {
        self.state().mapped
    }

    fn word(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Where code was interrupted for good, as it is in recordings.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stops(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(Interrupted::LEN * shared::N_INTERRUPTED).expect("small")];
        self.file.read_exact_at(&mut bytes, self.room.interrupted_at())?;
        Ok(bytes)
    }

    /// How often code was interrupted and there was no room to write down where.
    ///
    /// # Errors
    /// The kernel's.
    pub fn n_unknown(&self) -> io::Result<u64> {
        self.word(offset!(Header, n_unknown))
    }

    /// The rows of the module with this key.
    pub fn rows(&self, key: u128) -> Vec<u64> {
        (0..).zip(&self.state().rows).filter(|(_, r)| r.key == key).map(|(n, _)| n).collect()
    }

    /// The counters of the module with this key in area `k`, as they are now, all loaded copies together.
    ///
    /// # Errors
    /// The kernel's.
    pub fn area(&self, key: u128, n: usize, k: u64) -> io::Result<Vec<u64>> {
        let mut sum = vec![0u64; n];
        self.add_area(key, k, &mut sum)?;
        Ok(sum)
    }

    /// Adds the counters of the module with this key in area `k`, as they are now, of all loaded copies, to
    /// `sums`, which stay at the largest number. Of a large module, a thread wrote to few pages: no others
    /// are read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_area(&self, key: u128, k: u64, sums: &mut [u64]) -> io::Result<()> {
        let rows: Vec<Row> = self.state().rows.iter().copied().filter(|r| r.key == key).collect();
        let mut bytes = Vec::new();
        for row in rows {
            let at = row.of(k);
            for part in written_parts(&self.file, at..at + 8 * sums.len() as u64) {
                bytes.resize(usize::try_from(part.end - part.start).map_err(io::Error::other)?, 0);
                self.file.read_exact_at(&mut bytes, part.start)?;
                let first = usize::try_from((part.start - at) / 8).map_err(io::Error::other)?;
                let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
                let own = sums.get_mut(first..).unwrap_or_default();
                own.iter_mut().zip(words).for_each(|(sum, n)| *sum = sum.saturating_add(n));
            }
        }
        Ok(())
    }

    /// The words `words` of the module with this key in area `k`, as they are now, of each loaded copy.
    ///
    /// # Errors
    /// The kernel's.
    pub fn words(&self, key: u128, words: &Range<u64>, k: u64) -> io::Result<Vec<Vec<u64>>> {
        let rows: Vec<Row> = self.state().rows.iter().copied().filter(|r| r.key == key).collect();
        let len = usize::try_from(8 * (words.end - words.start)).map_err(io::Error::other)?;
        let read = |row: Row| {
            let mut bytes = vec![0; len];
            self.file.read_exact_at(&mut bytes, row.of(k) + 8 * words.start)?;
            let words = bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
            Ok(words.collect())
        };
        rows.into_iter().map(read).collect()
    }

    /// The key of the module that has this row.
    pub fn key(&self, row: u32) -> Option<u128> {
        self.state().rows.get(row as usize).map(|row| row.key)
    }
}

/// What of the words in `range` of `file`, which is in memory, may be other than zero: the parts that were
/// written, by whole words.
///
/// Source: lseek(2), "Seeking file data and holes".
fn written_parts(file: &File, range: Range<u64>) -> Vec<Range<u64>> {
    let seek = |at: u64, how| {
        let at = i64::try_from(at).map_err(|_| Errno::EOVERFLOW)?;
        lseek(file, at, how).map(|at| u64::try_from(at).unwrap_or(0))
    };
    let mut parts = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let from = match seek(at, Whence::SeekData) {
            // To the end, there is none.
            Err(Errno::ENXIO) => break,
            Err(_) => at,
            Ok(from) => from.max(at),
        };
        let to = seek(from, Whence::SeekHole).map_or(range.end, |to| to.max(from + 1));
        let word = |at: u64| range.start + (at - range.start) / 8 * 8;
        let part = word(from)..range.end.min(word(to.saturating_add(7)));
        at = to;
        if part.start < part.end {
            parts.push(part);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};

    #[test]
    fn what_was_written_is_in_the_parts_that_are_read() {
        for pages in [vec![], vec![0], vec![3, 4, 9], vec![63], (0..64).collect::<Vec<u64>>()] {
            let file = File::from(memfd_create("test", MFdFlags::MFD_CLOEXEC).expect("made"));
            file.set_len(64 * PAGE).expect("it has a length");
            pages.iter().for_each(|n| file.write_all_at(b"word", n * PAGE + 16).expect("written"));
            for range in [0..64 * PAGE, 0..8, 16..3 * PAGE + 24, 4 * PAGE + 16..10 * PAGE, 5 * PAGE..6 * PAGE]
            {
                let parts = written_parts(&file, range.clone());
                let is_in = |at: u64| parts.iter().any(|part| part.contains(&at));
                for part in &parts {
                    assert!(range.start <= part.start && part.end <= range.end, "{part:?} of {range:?}");
                    assert_eq!((part.start - range.start) % 8, 0, "{part:?} of {range:?}");
                }
                for at in range.clone().step_by(8) {
                    let mut word = [0; 8];
                    file.read_exact_at(&mut word, at).expect("read");
                    assert!(word == [0; 8] || is_in(at), "{at} of {range:?}, {pages:?}");
                }
                // Not the pages in between.
                let n = parts.iter().map(|part| part.end - part.start).sum::<u64>();
                assert!(n <= PAGE * pages.len() as u64, "{n} of {range:?}, {pages:?}");
            }
        }
    }

    #[test]
    fn few_addresses_are_shared_out() {
        let addresses = |n| Limits { addresses: Some(n), ..Limits::default() };
        let file_len = |n| Limits { file_len: Some(n), ..Limits::default() };
        for (limits, len, want) in [
            (Limits::default(), 1 << 20, 2048),
            (addresses(8 << 30), 1 << 20, 508),
            (addresses(60 << 20), 1 << 12, 320),
            (addresses(8 << 30), 1 << 40, 1),
            (file_len(100 << 20), 1 << 12, 2048),
            (file_len(10 << 20), 1 << 12, 317),
            (file_len(128 << 10), 1 << 12, 1),
        ] {
            let (room, later) = limits.room(len, LATER);
            assert_eq!(room.n_areas, want, "{limits:?} {len}");
            let first = room.head_len() + FIRST_AREAS * len;
            // What the first area has at home is in the process, too.
            let taken = first + later + (len + PAGE) * room.n_areas;
            assert!(limits.addresses.is_none_or(|n| want == 1 || taken <= n / 4), "{limits:?} {len}");
            let file = room.head_len() + room.n_areas * len;
            assert!(limits.file_len.is_none_or(|n| file <= n), "{limits:?} {len}");
        }
    }

    #[test]
    fn nothing_is_added_beyond_what_may_be_mapped() {
        let arena = Arena::create(&[(1, 10)], false).expect("memory");
        let too_many = usize::try_from(LATER / Capacity::LAUNCH.n_areas / 8 + 1).expect("fits");
        assert!(arena.add(2, too_many).is_err());
        assert!(arena.add(2, 10).is_ok());
    }
}
