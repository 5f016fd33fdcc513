//! A process that is about to become another program: taken over before that program's first instruction,
//! then let go.
//!
//! ```text
//!  asks, waits ──► traced, answered ──► execve ──► mapped as at a launch ──► detached
//!                                         └─ fails ──► detached
//! ```
//! Nothing is traced before a thread has asked, and nothing after its new program has started. Whatever goes
//! wrong, the process goes on: the kernel lets go what the tracing thread still traces when that thread ends.
//!
//! Invariant: one process a thread of ours: a stop belongs to whom it waits for.
//!
//! Source: ptrace(2), with PTRACE_SEIZE; execve(2).

use crate::arch;
use crate::launch::{Ready, Recording, set_up};
use crate::process::{ProcessError, Stopped};
use crate::shared::{Arena, Asking};
use crate::sys::{self, Stop};
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A process that has become another program, before the first instruction of that one. Once this goes, it
/// goes on.
pub struct Caught {
    stopped: Stopped,
}

/// How long a signal handler may keep a thread from the `exec` it asked for.
const PATIENCE: Duration = Duration::from_secs(5);

impl Caught {
    /// Answers `asking`, and waits for its `exec`; `None` if that fails, or the thread does something else.
    ///
    /// # Errors
    /// If it cannot be traced. It goes on all the same, uncounted.
    pub fn at_exec(arena: &Arena, asking: &Asking) -> Result<Option<Caught>, ProcessError> {
        let thread = Pid::from_raw(i32::try_from(asking.thread).unwrap_or(i32::MAX));
        let refused = |call, source: io::Error| ProcessError::Refused { pid: thread.as_raw(), call, source };
        let options = Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_TRACESYSGOOD;
        ptrace::seize(thread, options).map_err(|e| refused("tracing it", e.into()))?;
        ptrace::interrupt(thread).map_err(|e| refused("stopping it", e.into()))?;
        let until = Instant::now() + PATIENCE;
        let next = || sys::next_stop(Some(until)).map_err(|e| refused("waiting for it", e));
        let go_on = |pid, signal| sys::to_next_call(pid, signal).map_err(|e| refused("letting it go on", e));
        if next()?.is_none() {
            return Ok(None);
        }
        arena.let_go(asking);
        let (mut signal, mut is_at_exec) = (0, false);
        let pid = loop {
            go_on(thread, std::mem::take(&mut signal))?;
            match next()? {
                None | Some((_, Stop::Ended)) => return Ok(None),
                // The number that threads become another program under is that of their process.
                Some((pid, Stop::Exec)) => break pid,
                Some((_, Stop::Call)) => {
                    let about =
                        ptrace::syscall_info(thread).map_err(|e| refused("asking for its call", e.into()))?;
                    let is_before = about.op == libc::PTRACE_SYSCALL_INFO_ENTRY;
                    if is_at_exec && !is_before {
                        return Ok(None);
                    }
                    is_at_exec = is_before && arch::is_exec(&registers(thread)?);
                }
                // It would not stop as it does by itself.
                Some((_, Stop::Group)) => return Ok(None),
                Some((_, Stop::Signal(which))) => signal = which,
                Some((_, Stop::Interrupt | Stop::Clone)) => {}
            }
        };
        // To the end of the system call, from where its registers are its own.
        go_on(pid, 0)?;
        match next()? {
            Some((_, Stop::Call)) => Stopped::traced(pid).map(|stopped| Some(Caught { stopped })),
            _ => Ok(None),
        }
    }

    /// Its executable, seen from here.
    pub fn executable(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/exe", self.stopped.pid()))
    }

    /// Has it start with `ready`.
    ///
    /// # Errors
    /// If it cannot be prepared. It starts all the same, uncounted.
    pub fn start(self, arena: &Arena, ready: &Ready<'_>) -> Result<(), ProcessError> {
        let prepared = set_up(&self.stopped, ready, arena, Recording::Opened);
        self.stopped.detach()?;
        prepared.map(drop)
    }
}

fn registers(pid: Pid) -> Result<libc::user_regs_struct, ProcessError> {
    ptrace::getregs(pid).map_err(|e| ProcessError::Refused {
        pid: pid.as_raw(),
        call: "reading its registers",
        source: e.into(),
    })
}
