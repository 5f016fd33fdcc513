//! The recording that a launcher shares with what it starts, and the mailbox in it.
//!
//! Invariant: a module's row is written before the number of rows is raised; an answer goes to who asked for
//! it.
//!
//! Source: memfd_create(2), futex(2).

mod streams;

pub use streams::{Owner, Stream};

use crate::launch::target::Limits;
use crate::sys::{self, SharedWord};
use probe::arch::shared::{self, Capacity, ExecRequest, ExecRequests, Header, Interrupted, Mailbox};
use probe::offset;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const PAGE: u64 = 0x1000;
/// What a recording's file is called, among what processes have mapped.
const NAME: &str = "engraft";
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
    bells: SharedWord,
    mailbox: u64,
    room: Capacity,
    knows_namespace: bool,
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

/// Threads that may have been stopped in the middle of a block.
#[derive(Clone, Debug)]
pub struct StoppedThreads {
    /// How many.
    pub n: u64,
    /// How many of them may have counted in each area.
    pub in_areas: Vec<u64>,
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

/// A thread that is about to `exec`, and waits for our answer.
#[derive(Debug)]
pub struct Asking {
    /// The thread.
    pub thread: u32,
    /// The number of the system call.
    pub number: u64,
    /// Its first, second and fifth argument.
    pub args: [u64; 3],
    slot: usize,
    /// It may ask again as soon as it is.
    is_answered: AtomicBool,
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

    fn with(modules: &[(u128, usize)], room: Capacity, later: u64) -> io::Result<Arena> {
        let fd = nix::sys::memfd::memfd_create(NAME, nix::sys::memfd::MFdFlags::empty())?;
        let file = File::from(fd);
        let area: u64 = modules.iter().map(|m| row_len(m.1)).sum();
        let mailbox = room.head_len();
        let bells = mailbox + Mailbox::LEN;
        let len = bells + ExecRequests::LEN;
        set_len(&file, len + area * room.n_areas)?;
        set_len(&file, len)?;
        file.write_all_at(&room.header(), 0)?;
        file.write_all_at(&mailbox.to_le_bytes(), offset!(Header, mailbox_at))?;
        // Children in other namespaces of processes cannot tell who is gone; where ours is not known, the
        // first one who counts says so.
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino());
        file.write_all_at(&namespace.to_le_bytes(), offset!(Header, namespace))?;
        file.write_all_at(&FUTEX_OWNER_DIED.to_le_bytes(), mailbox + offset!(Mailbox, owner))?;
        let (head, word, bells) =
            (SharedWord::map(&file, 0)?, SharedWord::map(&file, mailbox)?, SharedWord::map(&file, bells)?);
        let state = Mutex::new(State { rows: Vec::new(), len, max_len: u64::MAX, mapped: len });
        let knows_namespace = namespace != 0;
        let streams = None;
        let arena = Arena { file, state, head, word, bells, mailbox, room, knows_namespace, streams };
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

    /// Where the owners of areas are in a process.
    pub(crate) fn owners_at(&self) -> u64 {
        shared::ARENA + self.room.owners_at()
    }

    /// How many threads may have been stopped in the middle of a block, in whatever process, each in one.
    /// `main` is the process that was started, and `status` how it ended: who ends it by `exit`, or aborts,
    /// is at a call. If `ends_are_taken`, a handler of signals may have been `exit` or `_exit`, which is
    /// called with the signal's number.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stopped(&self, main: u32, status: ExitStatus, ends_are_taken: bool) -> io::Result<StoppedThreads> {
        let areas = self.areas()?;
        let is_main = |area: &&(i32, u8)| u32::try_from(area.0) == Ok(main);
        let n = |is: u8, of_main: bool| {
            areas.iter().filter(|a| a.1 == is && is_main(a) == of_main).count() as u64
        };
        let states = [shared::MAY_RUN, shared::HAS_ENDED, shared::ABORTS, shared::IN_EXIT];
        let [runs, calls_end, aborts, in_exit] = states.map(|state| n(state, true));
        let ended = calls_end + in_exit;
        let others = n(shared::MAY_RUN, false) + n(shared::ABORTS, false);
        let is_by_handler = ends_are_taken && status.code().is_some_and(|n| (1..=64).contains(&n));
        let of_main = match status.signal() {
            None if calls_end > 0 => runs + aborts,
            // It has returned from `main` or called `exit`, unless that was a handler.
            None if in_exit > 0 => runs + aborts + u64::from(is_by_handler),
            None if is_by_handler => runs + aborts,
            None => (runs + aborts).saturating_sub(1),
            Some(nix::libc::SIGABRT) if aborts > 0 => runs + ended + aborts - 1,
            // It may have said that it would end, but was ended.
            Some(_) => (runs + ended + aborts).max(1),
        };
        let lost = self.word(offset!(Header, n_stopped))?.saturating_add(self.n_shared()?);
        Ok(StoppedThreads {
            n: lost.saturating_add(others).saturating_add(of_main),
            in_areas: areas.iter().map(|a| lost.saturating_add(u64::from(may_run(a.1)))).collect(),
        })
    }

    /// Of each area that was ever in use: whose it is or was, and what is known of its thread.
    fn areas(&self) -> io::Result<Vec<(i32, u8)>> {
        let n = usize::try_from(self.n_areas()?).map_err(io::Error::other)?;
        let (mut owners, mut states) = (vec![0; 4 * n], vec![0; n]);
        self.file.read_exact_at(&mut owners, self.room.owners_at())?;
        self.file.read_exact_at(&mut states, self.room.states_at())?;
        let owners = owners.chunks_exact(4).map(|w| i32::from_le_bytes(w.try_into().expect("four bytes")));
        Ok(owners.zip(states).collect())
    }

    /// Where what is known of the thread of area `k` is in a process.
    pub(crate) fn state_at(&self, k: u64) -> u64 {
        shared::ARENA + self.room.states_at() + k
    }

    /// How many processes count still.
    ///
    /// # Errors
    /// The kernel's.
    pub fn running(&self) -> io::Result<usize> {
        let pids = self.areas()?.into_iter().map(|area| area.0);
        let pids: std::collections::BTreeSet<i32> = pids.filter(|pid| *pid > 0).collect();
        Ok(pids.into_iter().filter(|&pid| runs(pid)).count())
    }

    /// Where the mailbox is in a process.
    pub(crate) fn mailbox_at(&self) -> u64 {
        shared::ARENA + self.mailbox
    }

    /// Where threads that are about to `exec` say so, in a process; and where they see that nobody answers.
    pub(crate) fn bells_at(&self) -> (u64, u64) {
        (self.mailbox_at() + Mailbox::LEN, self.mailbox_at() + offset!(Mailbox, owner))
    }

    /// Threads that are about to `exec`, those that are known to be asking left out; waits `at_most` for one.
    /// Slots of threads that are gone are cleared.
    ///
    /// # Errors
    /// The kernel's.
    pub fn asking(&self, is_known: impl Fn(u32) -> bool, at_most: Duration) -> io::Result<Vec<Asking>> {
        for is_last in [false, true] {
            let rung = self.bells.word(offset_of!(ExecRequests, n_raised)).load(Ordering::SeqCst);
            let mut found = Vec::new();
            for slot in 0..N_SLOTS {
                let thread = self.slot(slot, offset_of!(ExecRequest, thread)).load(Ordering::SeqCst);
                if thread == 0 {
                    continue;
                }
                // In this order, here and below: who asked may have gone on, and the slot be another's
                // meanwhile.
                if is_last && is_dead(thread) {
                    if self.slot(slot, offset_of!(ExecRequest, thread)).load(Ordering::SeqCst) == thread {
                        self.slot(slot, offset_of!(ExecRequest, state)).store(0, Ordering::SeqCst);
                        self.slot(slot, offset_of!(ExecRequest, thread)).store(0, Ordering::SeqCst);
                    }
                    continue;
                }
                if is_known(thread)
                    || self.slot(slot, offset_of!(ExecRequest, state)).load(Ordering::SeqCst) != 1
                {
                    continue;
                }
                let at = self.mailbox + Mailbox::LEN + slot_at(slot) as u64;
                let args = at + offset!(ExecRequest, args);
                let asking = Asking {
                    thread,
                    number: self.word(at + offset!(ExecRequest, number))?,
                    args: [self.word(args)?, self.word(args + 8)?, self.word(args + 16)?],
                    slot,
                    is_answered: AtomicBool::new(false),
                };
                if self.is_asking(&asking) {
                    found.push(asking);
                }
            }
            if !found.is_empty() {
                return Ok(found);
            }
            if !is_last {
                self.bells.sleep(rung, at_most);
            }
        }
        Ok(Vec::new())
    }

    fn slot(&self, slot: usize, at: usize) -> &AtomicU32 {
        self.bells.word(slot_at(slot) + at)
    }

    /// Whether the thread that is called so here is the one that waits, in processes that have the recording
    /// mapped.
    pub fn is_here(&self, asking: &Asking) -> bool {
        let at = self.bells_at().0 + slot_at(asking.slot) as u64 + offset!(ExecRequest, state);
        // The number of the call that it sleeps in, and its arguments; or `running`.
        let wanted = format!("{} {at:#x} ", nix::libc::SYS_futex);
        let path = format!("/proc/{}/syscall", asking.thread);
        // It may have to wait for a processor before it sleeps; one of another namespace does not sleep
        // there.
        let until = Instant::now() + Duration::from_secs(10);
        let mut others = 0;
        while let Ok(text) = std::fs::read_to_string(&path) {
            if text.starts_with(&wanted) {
                return true;
            }
            let is_running = text.starts_with("running");
            others += u32::from(!is_running);
            if others > 100 || !self.is_asking(asking) || Instant::now() > until {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        false
    }

    /// Whether it waits still.
    pub fn is_asking(&self, asking: &Asking) -> bool {
        self.slot(asking.slot, offset_of!(ExecRequest, thread)).load(Ordering::SeqCst) == asking.thread
            && self.slot(asking.slot, offset_of!(ExecRequest, state)).load(Ordering::SeqCst) == 1
    }

    /// Has it go on, once.
    pub fn let_go(&self, asking: &Asking) {
        if !asking.is_answered.swap(true, Ordering::SeqCst) && self.is_asking(asking) {
            self.slot(asking.slot, offset_of!(ExecRequest, state)).store(2, Ordering::SeqCst);
            self.bells.wake_at(slot_at(asking.slot) + offset_of!(ExecRequest, state));
        }
    }

    /// Has who sleeps in [`Arena::asking`] look again.
    pub fn ring(&self) {
        self.bells.word(offset_of!(ExecRequests, n_raised)).fetch_add(1, Ordering::SeqCst);
        self.bells.wake();
    }

    /// The number of an area for process `pid`, which has just become another program: what it had before is
    /// free.
    ///
    /// # Errors
    /// The kernel's; or if there is none.
    pub(crate) fn take_area(&self, pid: i32) -> io::Result<u64> {
        let _held = self.lock()?;
        let n = self.n_areas()?;
        let mut areas = self.areas()?;
        // Of its threads, the one that became another program was at a call; the others were stopped wherever
        // they were.
        let mine = |is: u8| areas.iter().filter(|area| **area == (pid, is)).count() as u64;
        let at_call = if mine(shared::HAS_ENDED) + mine(shared::IN_EXIT) > 0 { 0 } else { 1 };
        let mut n_stopped = (mine(shared::MAY_RUN) + mine(shared::ABORTS)).saturating_sub(at_call);
        for (k, area) in (0..).zip(&mut areas).filter(|(_, area)| area.0 == pid) {
            *area = (0, 0);
            self.set_owner(k, 0)?;
            self.file.write_all_at(&[0], self.room.states_at() + k)?;
        }
        let is_apart = i32::try_from(shared::IS_APART).expect("a bit of 31");
        let free = areas.iter().position(|area| area.0 == 0);
        let free =
            free.or_else(|| areas.iter().position(|&(own, _)| own & is_apart == 0 && sys::is_gone(own)));
        // Nobody knows how who had it ended.
        let was_running = free.and_then(|k| areas.get(k)).is_some_and(|area| may_run(area.1));
        n_stopped += u64::from(was_running);
        if n_stopped > 0 {
            // Programs add to it without the lock.
            let at = offset_of!(Header, n_stopped);
            let more = u32::try_from(n_stopped).unwrap_or(u32::MAX);
            self.head.word(at).fetch_add(more, Ordering::SeqCst);
        }
        let k = match free {
            Some(k) => k as u64,
            None if n < self.room.n_areas => {
                self.file.write_all_at(&(n + 1).to_le_bytes(), offset!(Header, n_areas))?;
                n
            }
            None => return Err(io::Error::other("there is no room for more threads")),
        };
        self.set_owner(k, pid)?;
        Ok(k)
    }

    /// Says who counts in area `k`; 0: nobody.
    pub(crate) fn set_owner(&self, k: u64, pid: i32) -> io::Result<()> {
        self.file.write_all_at(&pid.to_le_bytes(), self.room.owners_at() + 4 * k)
    }

    /// Takes the lock of the recording, which processes take to share out areas, as they do.
    fn lock(&self) -> io::Result<Held<'_>> {
        let word = self.head.word(offset_of!(Header, lock));
        let us = std::process::id();
        for n in 0..10_000 {
            match word.compare_exchange(0, us, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Ok(Held(word)),
                Err(holder) if n % 100 == 99 && holder & shared::IS_APART == 0 && is_dead(holder) => {
                    if word.compare_exchange(holder, us, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                        return Ok(Held(word));
                    }
                }
                Err(_) => std::thread::park_timeout(Duration::from_micros(50)),
            }
        }
        Err(io::Error::other("a process holds the lock of the counters, and does not go on"))
    }

    /// The next library that a program asks for; `None` if it asks for none for so long.
    ///
    /// # Errors
    /// The kernel's.
    pub fn request(&self, at_most: Duration) -> io::Result<Option<Request>> {
        let mut page = vec![0; size_of::<Mailbox>()];
        for is_last in [false, true] {
            self.file.read_exact_at(&mut page, self.mailbox)?;
            let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
            if word(0) == 1 {
                let path = page[offset_of!(Mailbox, path)..].split(|b| *b == 0);
                let path = PathBuf::from(OsStr::from_bytes(path.into_iter().next().unwrap_or_default()));
                return Ok(Some(Request {
                    pid: word(offset_of!(Mailbox, lock)),
                    number: word(offset_of!(Mailbox, n_requests)),
                    path,
                }));
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

    /// Makes this thread the one that answers. When it ends, however it does, nobody waits for answers any
    /// more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hold_mailbox(&self) -> io::Result<()> {
        self.word.hold(offset_of!(Mailbox, owner))
    }

    /// Has whoever asks for a library from now on, or waits for an answer, take the plain one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn close_mailbox(&self) -> io::Result<()> {
        self.file.write_all_at(&FUTEX_OWNER_DIED.to_le_bytes(), self.mailbox + offset!(Mailbox, owner))?;
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
        self.file.read_exact_at(&mut number, self.mailbox + offset!(Mailbox, n_requests))?;
        if u32::from_le_bytes(number) != request.number {
            return Ok(());
        }
        let mut path = given.map_or_else(Vec::new, |p| p.as_os_str().as_bytes().to_vec());
        if path.len() as u64 + offset!(Mailbox, path) >= offset!(Mailbox, owner) {
            path.clear();
        }
        path.push(0);
        self.file.write_all_at(&path, self.mailbox + offset!(Mailbox, path))?;
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
        Ok(self.word(offset!(Header, n_areas))?.min(self.room.n_areas))
    }

    /// Whether what some threads count in is so near to that of others that a library which is loaded now may
    /// find no room beside it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn has_near(&self) -> io::Result<bool> {
        Ok(self.word(offset!(Header, n_near))? > 0)
    }

    /// How often a thread had to count together with another, so that counts may be lost.
    pub fn n_shared(&self) -> io::Result<u64> {
        self.word(offset!(Header, n_shared))
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
        let rows: Vec<Row> = self.state().rows.iter().copied().filter(|r| r.key == key).collect();
        let mut sum = vec![0u64; n];
        let mut bytes = vec![0; 8 * n];
        for row in rows {
            self.file.read_exact_at(&mut bytes, row.of(k))?;
            let words = bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
            sum.iter_mut().zip(words).for_each(|(sum, n)| *sum = sum.wrapping_add(n));
        }
        Ok(sum)
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

/// The lock, until it goes.
struct Held<'a>(&'a AtomicU32);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

/// How many threads can say at once that they are about to `exec`.
const N_SLOTS: usize =
    (size_of::<ExecRequests>() - offset_of!(ExecRequests, slots)) / size_of::<ExecRequest>();

/// Where a slot is among the [`ExecRequests`].
fn slot_at(slot: usize) -> usize {
    offset_of!(ExecRequests, slots) + slot * size_of::<ExecRequest>()
}

/// Whether a thread of which this is known may have been stopped in the middle of a block.
fn may_run(state: u8) -> bool {
    matches!(state, shared::MAY_RUN | shared::ABORTS)
}

/// Whether the process of this number runs.
fn runs(pid: i32) -> bool {
    let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Whether the thread or process of this number runs no more, buried or not.
fn is_dead(number: u32) -> bool {
    let Ok(number) = i32::try_from(number) else { return true };
    let stat = procfs::process::Process::new(number).and_then(|process| process.stat());
    sys::is_gone(number) || stat.is_ok_and(|stat| matches!(stat.state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

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
