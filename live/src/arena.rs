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
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
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
    room: Capacity,
    knows_namespace: bool,
}

#[derive(Debug)]
struct State {
    rows: Vec<Row>,
    len: u64,
    /// How much of it processes map.
    mapped: u64,
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

/// How many areas there are, and how many addresses are kept free, for counters of `len` bytes a thread: where a process may have few
/// addresses (`ulimit -v`), a quarter of them.
fn room(len: u64, limit: Option<u64>) -> (Capacity, u64) {
    let Some(limit) = limit else { return (Capacity::LAUNCH, LATER) };
    let n_areas = (limit / 16 / len.max(1 << 20)).clamp(1, Capacity::LAUNCH.n_areas);
    (Capacity { n_areas, ..Capacity::LAUNCH }, (limit / 8).next_multiple_of(PAGE).min(LATER))
}

/// How many addresses a process may have, if that is limited.
fn address_limit() -> Option<u64> {
    match procfs::process::Process::myself().and_then(|us| us.limits()).ok()?.max_address_space.soft_limit {
        procfs::process::LimitValue::Value(n) => Some(n),
        procfs::process::LimitValue::Unlimited => None,
    }
}

fn row_len(n_counters: usize) -> u64 {
    (8 * n_counters as u64).next_multiple_of(PAGE)
}

impl Arena {
    /// Whether it says in which namespace processes are called what they are.
    pub fn knows_namespace(&self) -> bool {
        self.knows_namespace
    }

    /// Makes room for `modules`: their keys, and how many counters each has.
    ///
    /// # Errors
    /// The kernel's, if it has no memory for us.
    pub fn create(modules: &[(u128, usize)]) -> io::Result<Arena> {
        let fd = nix::sys::memfd::memfd_create("engraft", nix::sys::memfd::MFdFlags::empty())?;
        let file = File::from(fd);
        let (room, later) = room(modules.iter().map(|m| row_len(m.1)).sum(), address_limit());
        let mailbox = room.head_len();
        let len = mailbox + runtime::MAILBOX_LEN;
        file.set_len(len)?;
        file.write_all_at(&room.header(), 0)?;
        file.write_all_at(&mailbox.to_le_bytes(), runtime::MAILBOX_AT)?;
        // Children in other namespaces of processes cannot tell who is gone; where ours is not known, the first one who counts says so.
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino());
        file.write_all_at(&namespace.to_le_bytes(), runtime::NAMESPACE)?;
        file.write_all_at(&FUTEX_OWNER_DIED.to_le_bytes(), mailbox + runtime::MAILBOX_OWNER)?;
        let word = SharedWord::map(&file, mailbox)?;
        let state = State { rows: Vec::new(), len, mapped: u64::MAX };
        let arena =
            Arena { file, state: Mutex::new(state), word, mailbox, room, knows_namespace: namespace != 0 };
        modules.iter().try_for_each(|&(key, n)| arena.add(key, n))?;
        let mut state = arena.state();
        state.mapped = state.len + later;
        drop(state);
        Ok(arena)
    }

    /// Makes room for one more module; also for a second copy of one that is there.
    ///
    /// # Errors
    /// The kernel's; or if there are too many.
    pub fn add(&self, key: u128, n_counters: usize) -> io::Result<()> {
        let mut state = self.state();
        let n = state.rows.len() as u64;
        if n >= self.room.n_rows {
            return Err(io::Error::other("there are too many modules"));
        }
        let row = Row { key, at: state.len, len: row_len(n_counters) };
        let end = state.len + row.len * self.room.n_areas;
        if end > state.mapped {
            return Err(io::Error::other("there are no addresses left for its counters (see `ulimit -v`)"));
        }
        state.len = end;
        self.file.set_len(state.len)?;
        let extents: Vec<u8> =
            (0..self.room.n_areas).flat_map(|area| (row.at + area * row.len).to_le_bytes()).collect();
        self.file.write_all_at(&extents, self.room.extents_at() + 8 * n * self.room.n_areas)?;
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
        self.state().mapped
    }

    /// Where the owners of areas are in a process.
    pub(crate) fn owners_at(&self) -> u64 {
        runtime::ARENA + self.room.owners_at()
    }

    /// How many processes count still.
    ///
    /// # Errors
    /// The kernel's.
    pub fn running(&self) -> io::Result<usize> {
        let mut bytes = vec![0; 4 * usize::try_from(self.n_areas()?).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, self.room.owners_at())?;
        let pids = bytes.chunks_exact(4).map(|w| i32::from_le_bytes(w.try_into().expect("four bytes")));
        let pids: std::collections::BTreeSet<i32> = pids.filter(|pid| *pid > 0).collect();
        let runs = |pid: i32| {
            let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
            stat.is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
        };
        Ok(pids.into_iter().filter(|&pid| runs(pid)).count())
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
        Ok(self.word(runtime::N_AREAS)?.min(self.room.n_areas))
    }

    /// How often a thread had to count together with another, so that counts may be lost.
    pub fn n_shared(&self) -> io::Result<u64> {
        self.word(runtime::N_SHARED)
    }

    /// The counters of the module with this key in area `k`, as they are now, all loaded copies together.
    ///
    /// # Errors
    /// The kernel's.
    pub fn area(&self, key: u128, n: usize, k: u64) -> io::Result<Vec<u64>> {
        let rows: Vec<Row> = self.state().rows.iter().copied().filter(|r| r.key == key).collect();
        let mut sum = vec![0u64; n];
        let mut bytes = vec![0; 8 * n];
        for row in rows {
            self.file.read_exact_at(&mut bytes, row.at + k * row.len)?;
            let words = bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
            sum.iter_mut().zip(words).for_each(|(sum, n)| *sum = sum.wrapping_add(n));
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_addresses_are_shared_out() {
        let rows = [(None, 1 << 20, 2048), (Some(8 << 30), 1 << 20, 512), (Some(8 << 30), 1 << 40, 1)];
        for (limit, len, want) in rows {
            let (room, later) = room(len, limit);
            assert_eq!(room.n_areas, want, "{limit:?} {len}");
            let taken = later + len * if want > 1 { room.n_areas } else { 0 };
            assert!(limit.is_none_or(|limit| taken <= limit / 4), "{limit:?} {len}");
        }
    }

    /// What is not mapped in the program must not be told to it.
    #[test]
    fn nothing_is_added_beyond_what_is_mapped() {
        let arena = Arena::create(&[(1, 10)]).expect("memory");
        let too_many = usize::try_from(LATER / Capacity::LAUNCH.n_areas / 8 + 1).expect("fits");
        assert!(arena.add(2, too_many).is_err());
        assert!(arena.add(2, 10).is_ok());
    }
}
