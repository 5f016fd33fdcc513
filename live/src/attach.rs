//! Attaching: rewritten modules put into a process that runs, and taken out again.
//!
//! ```text
//!  prepared, while it runs   a thread of ours in it maps counters, code, tables, and copies of its text in
//!                            which springboards stand; a journal says how all is undone
//!  stopped, all threads      who is in moved functions is taken to moved code; one mremap a module puts the
//!                            copy in place; jump tables change ──► all go on
//! undone                    the same backwards: old text in place, moved code leads back; then nothing of it
//! is left, once no thread, stack or kept context leads there
//! ```
//! When it is put in, no stack is rewritten. Nothing that the program runs needs us to be alive.
//!
//! Invariant: whenever we are killed, the process goes on: each step leaves it able to run, and `rescue` can
//! undo what was done, by the journal.
//!
//! Source: E. Riou et al., "PADRONE: a platform for online profiling, analysis, and optimization" (2014);
//! ptrace(2), mremap(2).

mod hand;
mod handlers;
mod helper;
mod journal;
mod linker;
mod look;
mod pointers;
mod put_in;
mod remains;
mod take_out;
mod texts;
mod threads;

use crate::process::{LookError, Mapping, ProcessError, Stopped};
use crate::shared::Arena;
use helper::Helper;
use journal::Journal;
use nix::libc;
use nix::unistd::Pid;
use probe::arch::shared::ARENA;
use probe::{Running, Segments};
use program::{Bias, LiveVa};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a process is not attached to, or not given back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Nothing of it can be looked at.
    #[error(transparent)]
    Look(#[from] LookError),
    /// It has ended, or an exec has ended all threads of it that we had to do with.
    #[error("process {pid} has ended, or become another program, meanwhile")]
    Ended {
        /// Its number.
        pid: i32,
    },
    /// It is us.
    #[error("that is this very process")]
    Ourselves,
    /// Somebody traces it.
    #[error("process {pid} is traced already, by process {tracer}")]
    Traced {
        /// Its number.
        pid: i32,
        /// Who traces it.
        tracer: i32,
    },
    /// It has filters that might end it for a system call of ours.
    #[error("process {pid} filters its system calls (seccomp), and might be ended for one of ours")]
    Filtered {
        /// Its number.
        pid: i32,
    },
    /// Its return addresses are kept twice.
    #[error("process {pid} has a shadow stack, which knows no way back to moved code")]
    ShadowStack {
        /// Its number.
        pid: i32,
    },
    /// Somebody is attached to it, or was.
    #[error("process {pid} is attached to already, or somebody was killed while he was")]
    Attached {
        /// Its number.
        pid: i32,
    },
    /// It is observed in another way, or has something of its own where ours would be.
    #[error("process {pid} is observed already, or has something of its own at {at}")]
    Observed {
        /// Its number.
        pid: i32,
        /// Where.
        at: LiveVa,
    },
    /// It sleeps where it cannot be stopped.
    #[error(
        "thread {thread} of process {pid} sleeps where nothing wakes it: on a disk, or for a child of vfork"
    )]
    Asleep {
        /// Its number.
        pid: i32,
        /// The thread.
        thread: i32,
    },
    /// Its threads stood still for too long.
    #[error("process {pid} was not attached to: its threads stood still for {took:?}, and may for {most:?}")]
    Slow {
        /// Its number.
        pid: i32,
        /// How long they did.
        took: Duration,
        /// How long they may.
        most: Duration,
    },
    /// It uses the register by which threads find their counters.
    #[error("a thread of process {pid} uses the base of gs")]
    UsesGs {
        /// Its number.
        pid: i32,
    },
    /// The kernel refused a request.
    #[error("process {pid}: {call} failed")]
    Refused {
        /// Its number.
        pid: i32,
        /// The request.
        call: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It cannot be prepared.
    #[error(transparent)]
    Process(ProcessError),
    /// There is nothing to be undone in it.
    #[error("nobody is attached to process {pid}, nor was")]
    NothingToUndo {
        /// Its number.
        pid: i32,
    },
    /// The journal in it is damaged.
    #[error("process {pid}: what says how it is given back is damaged")]
    Journal {
        /// Its number.
        pid: i32,
    },
}

impl AttachError {
    fn refused(pid: Pid, call: &'static str, source: io::Error) -> AttachError {
        match source.raw_os_error() {
            Some(libc::ESRCH) => AttachError::Ended { pid: pid.as_raw() },
            _ => AttachError::Refused { pid: pid.as_raw(), call, source },
        }
    }

    fn slow(pid: Pid, took: Duration, most: Option<Duration>) -> AttachError {
        let round =
            |time: Duration| Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        AttachError::Slow { pid: pid.as_raw(), took: round(took), most: most.unwrap_or_default() }
    }

    /// Whether what it was about is no more.
    pub fn is_over(&self) -> bool {
        matches!(
            self,
            AttachError::Look(LookError::Gone { .. } | LookError::Over { .. }) | AttachError::Ended { .. }
        )
    }

    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<String> {
        let remedy = match self {
            AttachError::Look(err) => return err.hint(),
            AttachError::Ended { .. } => "if it is there still, attach to it again",
            AttachError::Attached { pid } => {
                let rescue = format!("`engraft rescue {pid}` gives it back as it was");
                return Some(format!("if whoever attached is no more, {rescue}"));
            }
            AttachError::Traced { .. } => "detach the debugger first: Linux allows one tracer at a time",
            AttachError::Filtered { .. } => "start it under `engraft count`, which makes all calls before",
            AttachError::ShadowStack { .. } => "start it without: `GLIBC_TUNABLES=glibc.cpu.x86_shstk=off`",
            AttachError::Observed { .. } => {
                "a program that engraft started, or that is instrumented, counts already"
            }
            AttachError::Slow { .. } => "allow more by --max-pause, or try when it does less",
            AttachError::Asleep { .. } => "try again when it has gone on",
            AttachError::UsesGs { .. } => "there is none: each thread finds its counters by the base of gs",
            AttachError::Refused { source, .. } if source.raw_os_error() == Some(libc::EPERM) => {
                "only root, or the process's owner where kernel.yama.ptrace_scope is 0, may attach to it"
            }
            _ => return None,
        };
        Some(remedy.to_owned())
    }
}

/// What is mapped in process `pid`, if it can be attached to.
///
/// # Errors
/// Why it cannot be.
pub fn look(pid: i32) -> Result<Vec<Mapping>, AttachError> {
    look::look(Pid::from_raw(pid))
}

/// What is mapped in process `pid` now.
///
/// # Errors
/// If it is gone.
pub fn mappings(pid: i32) -> Result<Vec<Mapping>, AttachError> {
    Ok(Stopped::traced(Pid::from_raw(pid))?.mappings()?)
}

/// A module of a process, rewritten for it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its file, as the process names it.
    pub path: &'a std::path::Path,
    /// Its moved code.
    pub segments: &'a Segments,
    /// How threads get there and back.
    pub running: &'a Running,
    /// Where it is in the process.
    pub bias: Bias,
}

/// A process that has rewritten modules in it.
pub struct Attachment {
    pid: Pid,
    journal: Journal,
    /// The number of the file of the memory that it shares with us.
    inode: u64,
    /// What its new code is mapped from: kept, so that its memory is given back after the stop in which
    /// nothing of it is mapped any more.
    _code: Option<File>,
    max_pause: Option<Duration>,
    /// What it took.
    pub stopped: Stop,
}

/// What a stop of all threads was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stop {
    /// How long it took.
    pub pause: Duration,
    /// How many threads there were.
    pub n_threads: usize,
    /// How many of them were in moved functions' code, old or new.
    pub n_inside: usize,
}

/// How a process was given back.
#[derive(Clone, Debug, Default)]
pub struct GivenBack {
    /// The stop in which its old code came back.
    pub stopped: Stop,
    /// The longest of those in which it was looked whether anybody still needs moved code.
    pub longest_look: Duration,
    /// Why moved code is still mapped; `None` if nothing of ours is.
    pub left: Option<String>,
}

/// A process in which a thread of ours works, which makes it ready. If nothing comes of it, the process is as
/// it was when this goes.
pub struct Entered {
    mappings: Vec<Mapping>,
    helper: Option<Helper>,
    /// What memory that it shares with us is called in it.
    shared: u64,
}

impl Entered {
    /// Enters process `pid`, of which all threads may stand still at once for no longer than `max_pause`, if
    /// that is given.
    ///
    /// # Errors
    /// If that cannot be done: then it is as it was.
    pub fn new(pid: i32, max_pause: Option<Duration>) -> Result<Entered, AttachError> {
        let pid = Pid::from_raw(pid);
        let mappings = look::look(pid)?;
        let entered = Entered { mappings, helper: Some(Helper::start(pid, max_pause)?), shared: 0 };
        entered.helper.iter().try_for_each(|helper| journal::open(helper))?;
        Ok(entered)
    }

    /// Memory that it shares with us, still empty: for [`Arena::create_in`].
    ///
    /// # Errors
    /// If there is none.
    ///
    /// # Panics
    /// Never: our thread in it is there until something is put in.
    pub fn share_memory(&mut self) -> Result<File, AttachError> {
        let helper = self.helper.as_ref().expect("it is there until something is put in");
        let (file, number) = helper.share_memory(crate::shared::NAME)?;
        self.shared = number;
        Ok(file)
    }

    /// Puts `parts` into it, to count into `arena`.
    ///
    /// # Errors
    /// If that cannot be done: then it is as it was.
    ///
    /// # Panics
    /// Never, as above.
    pub fn put_in(mut self, parts: &[Part<'_>], arena: &Arena) -> Result<Attachment, AttachError> {
        let helper = self.helper.take().expect("it is there until something is put in");
        put_in::put_in(helper, &self.mappings, parts, arena, self.shared)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(helper) = self.helper.take() {
            put_in::leave(helper);
        }
    }
}

impl Attachment {
    /// Takes them out again.
    ///
    /// # Errors
    /// If the process is gone, or cannot be stopped.
    pub fn detach(self) -> Result<GivenBack, AttachError> {
        let given = take_out::take_out(self.pid, Some(&self.journal), self.max_pause);
        // Those that it has forked meanwhile have all that it had.
        let mut done = vec![self.pid.as_raw()];
        while let Some(pid) = attached().into_iter().find(|pid| !done.contains(pid) && self.shares(*pid)) {
            done.push(pid);
            if let Ok(journal) = Journal::read(Pid::from_raw(pid)) {
                let _gone = take_out::take_out(Pid::from_raw(pid), journal.as_ref(), self.max_pause);
            }
        }
        given
    }

    /// Whether process `pid` counts where this one does.
    fn shares(&self, pid: i32) -> bool {
        let mappings = Stopped::traced(Pid::from_raw(pid)).and_then(|stopped| stopped.mappings());
        mappings.is_ok_and(|all| all.iter().any(|m| m.range.start == LiveVa(ARENA) && m.inode == self.inode))
    }
}

/// Gives process `pid` back as it was before somebody attached to it who is no more.
///
/// # Errors
/// If nobody did, or it cannot be stopped.
pub fn rescue(pid: i32) -> Result<GivenBack, AttachError> {
    let pid = Pid::from_raw(pid);
    take_out::take_out(pid, Journal::read(pid)?.as_ref(), None)
}

/// Whether somebody has attached to process `pid`.
pub fn is_attached(pid: i32) -> bool {
    journal::is_there(Pid::from_raw(pid))
}

/// Processes that somebody has attached to.
pub fn attached() -> Vec<i32> {
    let all = procfs::process::all_processes().into_iter().flatten().filter_map(Result::ok);
    all.map(|process| process.pid()).filter(|pid| is_attached(*pid)).collect()
}

/// A module's file, as a journal keeps it.
type ModulePath = PathBuf;
