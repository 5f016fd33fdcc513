//! A further thread of ours in another process, which puts many mappings in place in one go, while all
//! threads of the program stand still, and ends: one start and one end in place of two stops for each.
//!
//! ```text
//! the hand: for each row of a table: do we live? ─► the ledger's length := 0 ─► mremap    in the end: exit
//! ```
//! Invariant: when we die, it ends by itself, before the program's threads go on: they stand still because we
//! trace them, and the kernel says first that the lock's owner is no more, then lets go whom he traced. So
//! nothing is exchanged under who runs, but for the one `mremap` that it is in when we die: known, and open
//! (BENCHMARKS.md, issue 30). What was exchanged by then can be told by its bytes; what was not is
//! in the ledger still.
//!
//! Source: Linux, kernel/exit.c, `do_exit`: `exit_robust_list` (in `exit_mm`), then `exit_ptrace` (in
//! `exit_notify`); mremap(2).

use super::AttachError;
use super::helper::{Helper, end_thread, start_thread};
use super::threads;
use crate::arch;
use crate::process::{Stopped, Syscall, put_in_place};
use crate::sys::{self, SharedWord};
use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;
use probe::arch::shared::PAGE;
use program::LiveVa;
use std::io;

/// What is put in place: where it is mapped, where it is to be, how many bytes.
pub(super) type Move = (LiveVa, LiveVa, u64);

/// Where the lock is in the page, and a word that nobody reads.
const LOCK: u64 = 0;
const NOWHERE: u64 = 1024;

/// A thread that stands still until it is told what to put in place. When this goes, which is after the
/// program's threads have gone on, all that it needed goes.
pub(super) struct Hand<'a> {
    helper: &'a Helper,
    stopped: Stopped,
    /// A page that we share with it: the lock that is held as long as we live.
    alive: SharedWord,
    alive_at: LiveVa,
    /// Where its table is.
    table_at: LiveVa,
    table_len: u64,
    /// What it was told to put in place.
    told: Vec<LiveVa>,
    /// What was put in place; then it is no more.
    done: Option<Vec<LiveVa>>,
}

impl<'a> Hand<'a> {
    /// One that can put so many in place. Nothing stands still for it.
    ///
    /// # Errors
    /// If there is no room for what it needs, or no further thread.
    pub(super) fn new(helper: &'a Helper, n_moves: usize) -> Result<Hand<'a>, AttachError> {
        let (file, fd) = helper.share_memory(super::journal::CODE_NAME)?;
        let refused =
            |call| move |err: io::Error| AttachError::refused(Pid::from_raw(helper.process()), call, err);
        file.set_len(PAGE).map_err(refused("sizing memory of its own"))?;
        let alive = SharedWord::map(&file, 0).map_err(refused("mapping memory of its own"))?;
        alive.hold(0).map_err(refused("holding a lock"))?;
        let made = (|| {
            let alive_at = helper.share_file_anywhere(PAGE, fd)?;
            let row_len = (arch::CALL_ROW_LEN * 8) as u64;
            let table_len = (n_moves.max(1) as u64 * row_len).next_multiple_of(PAGE);
            let table_at = helper.map_anywhere(table_len, libc::PROT_READ | libc::PROT_WRITE)?;
            Ok::<_, AttachError>((
                alive_at,
                table_at,
                table_len,
                start_thread(helper, threads::working(Pid::from_raw(helper.process())))?,
            ))
        })();
        let (alive_at, table_at, table_len, stopped) = match made {
            Ok(made) => made,
            Err(err) => {
                alive.let_go(0);
                return Err(err);
            }
        };
        let hand =
            Hand { helper, stopped, alive, alive_at, table_at, table_len, told: Vec::new(), done: None };
        // So that its end is short.
        let args = [0, u64::from(u32::MAX), 0, 0, 0, 0];
        hand.stopped.call(&Syscall { name: "close_range", number: libc::SYS_close_range, args })?;
        sys::hurry_on(hand.thread());
        Ok(hand)
    }

    /// Its number.
    pub(super) fn thread(&self) -> Pid {
        Pid::from_raw(self.stopped.pid())
    }

    /// Tells it what to put in place, in order, when it goes.
    ///
    /// # Errors
    /// If it is no more.
    pub(super) fn is_told(&mut self, moves: &[Move]) -> Result<(), AttachError> {
        let nowhere = LiveVa(self.alive_at.0 + NOWHERE);
        let rows = moves.iter().flat_map(|&(from, to, len)| {
            let Syscall { number, args, .. } = put_in_place(from, to, len);
            arch::call_row(number, args, self.helper.place_in_ledger(from).unwrap_or(nowhere).0)
        });
        let table: Vec<u8> = rows.flat_map(u64::to_le_bytes).collect();
        let len = table.len() as u64;
        assert!(len <= self.table_len, "room for {} bytes of calls, not for {len}", self.table_len);
        self.helper.write(self.table_at, &table)?;
        let table = self.table_at.0..self.table_at.0 + len;
        let regs = arch::at_calls(self.stopped.registers()?, table, self.alive_at.0 + LOCK);
        self.stopped.set_registers(regs)?;
        self.told = moves.iter().map(|one| one.0).collect();
        Ok(())
    }

    /// Has it put in place what it was told to; then it is no more.
    ///
    /// # Errors
    /// If one of them cannot be: those before it are.
    pub(super) fn go(&mut self) -> Result<(), AttachError> {
        let process = Pid::from_raw(self.helper.process());
        let refused = |err| AttachError::refused(process, "exchanging its code", err);
        ptrace::cont(self.thread(), None).map_err(|err| refused(err.into()))?;
        self.done = Some(std::mem::take(&mut self.told));
        match sys::end_of(self.thread()).map_err(refused)? {
            Some(0) => {}
            Some(errno) => return Err(refused(io::Error::from_raw_os_error(errno))),
            None => return Err(AttachError::Ended { pid: process.as_raw() }),
        }
        Ok(())
    }
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        // Of a process that is gone, nothing is left.
        match self.done.take() {
            Some(from) => drop(self.helper.forget_all_mapped(&from)),
            None => end_thread(&self.stopped, self.helper.process()),
        }
        self.alive.let_go(0);
        let _gone = self.helper.unmap(self.table_at, self.table_len);
        let _gone = self.helper.unmap(self.alive_at, PAGE);
    }
}
