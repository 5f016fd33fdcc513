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

mod copied;
mod hand;
mod handlers;
mod helper;
mod journal;
mod linker;
mod lock;
mod look;
mod moved;
mod own_data;
mod pointers;
mod put_in;
mod remains;
mod stacks;
mod take_out;
mod texts;
mod threads;

pub use moved::{CodeOf, MovedFunctions, OurCode, our_code};

use crate::process::{LookError, Mapping, ProcessError, Stopped};
use crate::shared::Arena;
pub use copied::{CallRegisters, CameTo, Copied};
use helper::Helper;
use journal::Journal;
use lock::Lock;
use nix::libc;
use nix::unistd::Pid;
pub use own_data::OwnData;
use probe::arch::shared::ARENA;
use probe::graft::Grafted;
use probe::{Running, Segments};
use program::{Bias, LiveVa};
use put_in::Beside;
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
    /// Somebody is attached to it.
    #[error("somebody is attached to process {pid} already")]
    Attached {
        /// Its number.
        pid: i32,
    },
    /// Somebody was attached to it, and is no more.
    #[error("process {pid} has what somebody has put into it who was killed while he was attached")]
    Abandoned {
        /// Its number.
        pid: i32,
    },
    /// It was not attached to, and is not as it was either.
    #[error("process {pid} was not attached to ({why}), and not given back as it was: {left}")]
    NotGivenBack {
        /// Its number.
        pid: i32,
        /// Why it was not attached to.
        why: Box<AttachError>,
        /// Why not all was undone.
        left: String,
    },
    /// Its code is not that of its file.
    #[error("process {pid}: at {at} is not what {} has there: a breakpoint of a debugger, or a uprobe", path.display())]
    Changed {
        /// Its number.
        pid: i32,
        /// Where.
        at: LiveVa,
        /// The file.
        path: PathBuf,
    },
    /// Functions of it are replaced.
    #[error("process {pid} has functions that were replaced")]
    Replaced {
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
            AttachError::Attached { .. } => "wait until whoever is attached has ended",
            AttachError::Abandoned { pid } => {
                return Some(format!("`engraft rescue {pid}` gives it back as it was"));
            }
            AttachError::NotGivenBack { pid, .. } => {
                return Some(format!("`engraft rescue {pid}` tries once more"));
            }
            AttachError::Changed { .. } => "take it away first: moved code knows nothing of it",
            AttachError::Replaced { pid } => {
                return Some(format!(
                    "`engraft replace --list -p {pid}` says which; `engraft replace FUNCTION --undo -p {pid}` takes one back, \
                     and `engraft rescue {pid}` what was in use still then"
                ));
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
            AttachError::Refused { source, .. }
            | AttachError::Process(ProcessError::Refused { source, .. })
                if matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES)) =>
            {
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
    _lock: Lock,
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
    /// What stays of what was put in from other files, and why: the process may have kept where it is.
    pub stays: Option<String>,
}

/// A process in which a thread of ours works, which makes it ready. If nothing comes of it, the process is as
/// it was when this goes.
pub struct Entered {
    mappings: Vec<Mapping>,
    helper: Option<Helper>,
    lock: Option<Lock>,
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
        let lock = Lock::take(pid)?.ok_or(AttachError::Attached { pid: pid.as_raw() })?;
        let mappings = look::look_locked(pid)?;
        let helper = Some(Helper::start(pid, max_pause)?);
        let entered = Entered { mappings, helper, lock: Some(lock), shared: 0 };
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
        let (helper, lock) = self.taken();
        let beside = Beside { arena: Some((arena, self.shared)), grafts: &[], what: &[] };
        put_in::put_in((helper, lock), &self.mappings, parts, &beside)
    }

    /// Puts `parts` into it, which count nothing and lead to `grafts`, to stay until [`rescue`]; `what` says
    /// what for, and is kept in the process for [`replaced`].
    ///
    /// # Errors
    /// If that cannot be done: then it is as it was.
    ///
    /// # Panics
    /// Never, as above.
    pub fn replace(
        mut self,
        parts: &[Part<'_>],
        grafts: &[Grafted],
        what: &[u8],
    ) -> Result<Stop, AttachError> {
        let (helper, lock) = self.taken();
        let beside = Beside { arena: None, grafts, what };
        Ok(put_in::put_in((helper, lock), &self.mappings, parts, &beside)?.stopped)
    }
}

impl Entered {
    fn taken(&mut self) -> (Helper, Lock) {
        let both = self.helper.take().zip(self.lock.take());
        both.expect("they are there until something is put in")
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
        // Who has its number now, if that is another, has nothing of this one.
        let mut given = match self.shares(self.pid.as_raw()) || !is_attached(self.pid.as_raw()) {
            true => take_out::take_out(self.pid, Some(&self.journal), self.max_pause),
            false => Ok(GivenBack::default()),
        };
        // Those that it has forked meanwhile have all that it had.
        let mut done = vec![self.pid.as_raw()];
        while let Some(pid) = attached().into_iter().find(|pid| !done.contains(pid) && self.shares(*pid)) {
            done.push(pid);
            let child = Journal::read(Pid::from_raw(pid))
                .and_then(|journal| take_out::take_out(Pid::from_raw(pid), journal.as_ref(), self.max_pause));
            let left = match child {
                Ok(child) => child.left,
                Err(err) if err.is_over() => None,
                Err(err) => Some(err.to_string()),
            };
            if let (Ok(given), Some(left)) = (&mut given, left) {
                given.left.get_or_insert(format!("process {pid}, which it has forked: {left}"));
            }
        }
        given
    }

    /// Whether process `pid` counts where this one does.
    fn shares(&self, pid: i32) -> bool {
        let mappings = Stopped::looked_at(Pid::from_raw(pid)).and_then(|stopped| stopped.mappings());
        mappings.is_ok_and(|all| all.iter().any(|m| m.range.start == LiveVa(ARENA) && m.inode == self.inode))
    }
}

/// Gives process `pid` back as it was before somebody attached to it who is no more.
///
/// # Errors
/// If nobody did, or it cannot be stopped.
pub fn rescue(pid: i32) -> Result<GivenBack, AttachError> {
    let pid = Pid::from_raw(pid);
    // Whoever is attached gives it back himself, and would not know of this.
    let _lock = Lock::take(pid)?.ok_or(AttachError::Attached { pid: pid.as_raw() })?;
    take_out::take_out(pid, Journal::read(pid)?.as_ref(), None)
}

/// What process `pid` was given by [`Entered::replace`]: its `what`, and whether its old code is back;
/// nothing, if it was not.
///
/// # Errors
/// If nothing of it can be looked at, or what stands there is damaged.
pub fn replaced(pid: i32) -> Result<Option<(Vec<u8>, bool)>, AttachError> {
    let pid = Pid::from_raw(pid);
    match Journal::read(pid) {
        Ok(journal) => {
            let what = journal.map(|journal| journal.what).filter(|what| !what.is_empty());
            Ok(what.map(|what| (what, journal::is_text_back(pid))))
        }
        Err(AttachError::NothingToUndo { .. }) => Ok(None),
        Err(err) => Err(err),
    }
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

/// How many processes we may not look at: of these, it is not known whether somebody has.
pub fn n_hidden() -> usize {
    let all = procfs::process::all_processes().into_iter().flatten().filter_map(Result::ok);
    all.filter(|process| matches!(process.maps(), Err(procfs::ProcError::PermissionDenied(_)))).count()
}

/// A module's file, as a journal keeps it.
type ModulePath = PathBuf;
