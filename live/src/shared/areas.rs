//! Areas: whose counters are which, what is known of their threads, and the lock under which they are shared
//! out.

use super::Arena;
use crate::process::numbered_in;
use crate::sys;
use probe::arch::shared::{self, Header};
use probe::offset;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Threads that may have been stopped in the middle of a block.
#[derive(Clone, Debug)]
pub struct StoppedThreads {
    /// How many.
    pub n: u64,
    /// How many there would be if the kernel had told nothing: whose counts a thread's are that it told of,
    /// is not known.
    pub n_untold: u64,
    /// How many of these may have counted in each area.
    pub in_areas: Vec<u64>,
}

impl Arena {
    /// The processes of which a thread may have been stopped in the middle of a block.
    ///
    /// # Errors
    /// The kernel's.
    pub fn that_may_be_stopped(&self) -> io::Result<BTreeSet<u32>> {
        let areas = self.areas()?.into_iter().filter(|area| may_run(area.1));
        Ok(areas.filter_map(|area| u32::try_from(area.0).ok()).collect())
    }

    /// Where the owners of areas are in a process.
    pub(crate) fn owners_at(&self) -> u64 {
        shared::ARENA + self.room.owners_at()
    }

    /// How many threads may have been stopped in the middle of a block, in whatever process, each in one.
    /// `main` is the process that was started, and `status` how it ended: who ends it by `exit`, or aborts,
    /// is at a call. If `ends_are_taken`, a signal handler may have been `exit` or `_exit`, which is
    /// called with the signal's number. `told` are the threads that signals ended, by process, of which it is
    /// not known where they were, if it is known of all whom signals ended.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stopped(
        &self,
        main: u32,
        status: ExitStatus,
        ends_are_taken: bool,
        told: Option<&BTreeMap<u32, u64>>,
    ) -> io::Result<StoppedThreads> {
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
        let n_untold = lost.saturating_add(others).saturating_add(of_main);
        let n = told.map_or(n_untold, |told| {
            let anywhere = |pid: u32| told.get(&pid).copied().unwrap_or(0);
            let by_handler = u64::from(is_by_handler && calls_end == 0);
            let of_main = of_main.min(anywhere(main).saturating_add(by_handler));
            let mut of_others: BTreeMap<i32, u64> = BTreeMap::new();
            for (pid, _) in areas.iter().filter(|area| may_run(area.1) && !is_main(area)) {
                *of_others.entry(*pid).or_default() += 1;
            }
            // Who runs still, or may have ended in a handler that is `exit`, no signal has ended.
            let is_told = |pid: i32| !ends_are_taken && !self::runs(pid);
            let others = of_others.into_iter().map(|(pid, n)| match u32::try_from(pid) {
                Ok(number) if is_told(pid) => n.min(anywhere(number)),
                _ => n,
            });
            others.fold(lost, u64::saturating_add).saturating_add(of_main)
        });
        Ok(StoppedThreads {
            n,
            n_untold,
            in_areas: areas.iter().map(|a| lost.saturating_add(u64::from(may_run(a.1)))).collect(),
        })
    }

    /// Of each area that was ever in use: whose it is or was, and what is known of its thread.
    pub(super) fn areas(&self) -> io::Result<Vec<(i32, u8)>> {
        let n = usize::try_from(self.n_areas()?).map_err(io::Error::other)?;
        let (mut owners, mut states) = (vec![0; 4 * n], vec![0; n]);
        self.file.read_exact_at(&mut owners, self.room.owners_at())?;
        self.file.read_exact_at(&mut states, self.room.states_at())?;
        let owners = owners.chunks_exact(4).map(|w| i32::from_le_bytes(w.try_into().expect("four bytes")));
        let Some(namespace) = self.namespace.get() else { return Ok(owners.zip(states).collect()) };
        let numbers = numbered_in(*namespace);
        // Who is gone is nobody here.
        let apart = shared::IS_APART.cast_signed();
        let ours = |own: i32| if own == 0 { 0 } else { numbers.get(&own).copied().unwrap_or(own | apart) };
        Ok(owners.map(ours).zip(states).collect())
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
        let pids: BTreeSet<i32> = pids.filter(|pid| *pid > 0).collect();
        Ok(pids.into_iter().filter(|&pid| runs(pid)).count())
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
}

/// The lock, until it goes.
struct Held<'a>(&'a AtomicU32);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

/// Whether a thread of which this is known may have been stopped in the middle of a block.
fn may_run(state: u8) -> bool {
    matches!(state, shared::MAY_RUN | shared::ABORTS)
}

/// Whether the process of this number runs.
pub(super) fn runs(pid: i32) -> bool {
    let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Whether the thread or process of this number runs no more, buried or not.
pub(super) fn is_dead(number: u32) -> bool {
    let Ok(number) = i32::try_from(number) else { return true };
    let stat = procfs::process::Process::new(number).and_then(|process| process.stat());
    sys::is_gone(number) || stat.is_ok_and(|stat| matches!(stat.state, 'Z' | 'X'))
}
