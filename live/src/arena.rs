//! The recording that a launcher shares with what it starts, and the mailbox in it.
//!
//! Invariant: a module's row is written before the number of rows is raised; an answer goes to who asked for it.
//!
//! Source: memfd_create(2), futex(2).

use crate::sys::SharedWord;
use probe::arch::{self as runtime, Capacity};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

const PAGE: u64 = 0x1000;
/// What the kernel sets in the lock of a thread that died while it held it.
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;

/// Counters of several modules, for every thread that counts: memory that outlives the program.
///
/// The layout is that of `probe::arch`.
#[derive(Debug)]
pub struct Arena {
    file: File,
    state: Mutex<State>,
    word: SharedWord,
    mailbox: u64,
}

#[derive(Debug)]
struct State {
    rows: Vec<Row>,
    len: u64,
}

/// A module's place: where the first area's counters are, and their length; the next areas follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    key: u128,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// A library that a counted program is about to load, and waits for our answer.
#[derive(Debug)]
pub struct Request {
    /// The process.
    pub pid: u32,
    /// The path it opened, as it gave it.
    pub path: PathBuf,
    number: u32,
}

impl Request {
    /// The file, seen from here.
    pub fn file(&self) -> PathBuf {
        let side = if self.path.is_absolute() { "root" } else { "cwd" };
        let path = self.path.strip_prefix("/").unwrap_or(&self.path);
        PathBuf::from(format!("/proc/{}/{side}", self.pid)).join(path)
    }
}

/// Addresses that are kept free for modules that come later. Nothing is there until they do.
const LATER: u64 = 1 << 36;

pub(crate) const ROOM: Capacity = Capacity::LAUNCH;

impl Arena {
    /// Makes room for `modules`: their keys, and how many counters each has.
    ///
    /// # Errors
    /// The kernel's, if it has no memory for us.
    pub fn create(modules: &[(u128, usize)]) -> io::Result<Arena> {
        let fd = nix::sys::memfd::memfd_create("engraft", nix::sys::memfd::MFdFlags::empty())?;
        let file = File::from(fd);
        let mailbox = ROOM.head_len();
        let len = mailbox + runtime::MAILBOX_LEN;
        file.set_len(len)?;
        file.write_all_at(&ROOM.header(), 0)?;
        file.write_all_at(&mailbox.to_le_bytes(), runtime::MAILBOX_AT)?;
        file.write_all_at(&FUTEX_OWNER_DIED.to_le_bytes(), mailbox + runtime::MAILBOX_OWNER)?;
        let word = SharedWord::map(&file, mailbox)?;
        let arena = Arena { file, state: Mutex::new(State { rows: Vec::new(), len }), word, mailbox };
        modules.iter().try_for_each(|&(key, n)| arena.add(key, n))?;
        Ok(arena)
    }

    /// Makes room for one more module; also for a second copy of one that is there.
    ///
    /// # Errors
    /// The kernel's; or if there are too many.
    pub fn add(&self, key: u128, n_counters: usize) -> io::Result<()> {
        let mut state = self.state();
        let n = state.rows.len() as u64;
        if n >= ROOM.n_rows {
            return Err(io::Error::other("there are too many modules"));
        }
        let row = Row { key, at: state.len, len: (8 * n_counters as u64).next_multiple_of(PAGE) };
        state.len += row.len * ROOM.n_areas;
        self.file.set_len(state.len)?;
        let extents: Vec<u8> =
            (0..ROOM.n_areas).flat_map(|area| (row.at + area * row.len).to_le_bytes()).collect();
        self.file.write_all_at(&extents, ROOM.extents_at() + 8 * n * ROOM.n_areas)?;
        let mut bytes = key.to_le_bytes().to_vec();
        bytes.extend(row.len.to_le_bytes());
        self.file.write_all_at(&bytes, runtime::ROWS_AT + runtime::ROW_LEN * n)?;
        self.file.write_all_at(&state.len.to_le_bytes(), runtime::END)?;
        state.rows.push(row);
        let n_rows = u32::try_from(state.rows.len()).expect("there is room for fewer");
        self.file.write_all_at(&n_rows.to_le_bytes(), runtime::N_ROWS)
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

    /// How many bytes a process maps.
    pub(crate) fn mapped_len(&self) -> u64 {
        self.state().len + LATER
    }

    /// Where the mailbox is in a process.
    pub(crate) fn mailbox_at(&self) -> u64 {
        runtime::ARENA + self.mailbox
    }

    /// The next library that a program asks for; `None` if it asks for none for so long.
    ///
    /// # Errors
    /// The kernel's.
    pub fn request(&self, at_most: Duration) -> io::Result<Option<Request>> {
        let mut page = vec![0; usize::try_from(runtime::MAILBOX_LEN).expect("small")];
        for is_last in [false, true] {
            self.file.read_exact_at(&mut page, self.mailbox)?;
            let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
            if word(0) == 1 {
                let path = page[usize::try_from(runtime::MAILBOX_PATH).expect("small")..].split(|b| *b == 0);
                let path = PathBuf::from(OsStr::from_bytes(path.into_iter().next().unwrap_or_default()));
                return Ok(Some(Request { pid: word(4), number: word(12), path }));
            }
            if !is_last {
                self.word.sleep(word(0), at_most);
            }
        }
        Ok(None)
    }

    /// Has who sleeps in [`Arena::request`] look again.
    pub fn wake(&self) {
        self.word.wake();
    }

    /// Makes this thread the one that answers. When it ends, however it does, nobody waits for answers any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hold_mailbox(&self) -> io::Result<()> {
        self.word.hold(usize::try_from(runtime::MAILBOX_OWNER).expect("small"))
    }

    /// Has whoever asks for a library from now on, or waits for an answer, take the plain one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn close_mailbox(&self) -> io::Result<()> {
        self.file.write_all_at(&FUTEX_OWNER_DIED.to_le_bytes(), self.mailbox + runtime::MAILBOX_OWNER)?;
        self.word.wake();
        Ok(())
    }

    /// Answers `request`: the file to open in its place, if another one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn answer(&self, request: &Request, given: Option<&Path>) -> io::Result<()> {
        // Who asked may be gone, and another one may ask now.
        let mut number = [0; 4];
        self.file.read_exact_at(&mut number, self.mailbox + 12)?;
        if u32::from_le_bytes(number) != request.number {
            return Ok(());
        }
        let mut path = given.map_or_else(Vec::new, |p| p.as_os_str().as_bytes().to_vec());
        if path.len() as u64 + runtime::MAILBOX_PATH >= runtime::MAILBOX_OWNER {
            path.clear();
        }
        path.push(0);
        self.file.write_all_at(&path, self.mailbox + runtime::MAILBOX_PATH)?;
        self.file.write_all_at(&2u32.to_le_bytes(), self.mailbox)?;
        self.word.wake();
        Ok(())
    }

    fn word(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// How many areas were used: one a thread pointer that was ever seen, in each process.
    pub fn n_areas(&self) -> io::Result<u64> {
        Ok(self.word(runtime::N_AREAS)?.min(ROOM.n_areas))
    }

    /// How often a thread had to count together with another, so that counts may be lost.
    pub fn n_shared(&self) -> io::Result<u64> {
        self.word(runtime::N_SHARED)
    }

    /// The counters of the module with this key, as they are now, one list an area and loaded copy.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counts(&self, key: u128, n: usize) -> io::Result<Vec<Vec<u64>>> {
        let n_areas = self.n_areas()?;
        let rows: Vec<Row> = self.state().rows.iter().copied().filter(|r| r.key == key).collect();
        let areas = rows.iter().flat_map(|row| (0..n_areas).map(|area| row.at + area * row.len));
        areas
            .map(|at| {
                let mut bytes = vec![0; 8 * n];
                self.file.read_exact_at(&mut bytes, at)?;
                let words = bytes.chunks_exact(8);
                Ok(words.map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes"))).collect())
            })
            .collect()
    }
}
