//! Starting a program with counted code: new segments are mapped while it stands before its first
//! instruction, then we let go.
//!
//! ```text
//!  fork, exec ── stopped ──► recording, counters, text, tables mapped
//!                        ──► old code patched; AT_PHDR, AT_PHNUM and ld.so's openat redirected ──► detached
//! ```
//! ld.so has not run yet: it sees a program whose headers name all segments, so unwinding, `dlsym` and
//! debuggers work. Libraries are counted by handing ld.so the rewritten file in place of the plain one; their
//! paths do not change for the program.
//!
//! Source: proc(5), getauxval(3); glibc 2.36, elf/rtld.c for what ld.so takes from the auxiliary vector.

mod auxiliary;
mod dynamic_linker;
mod set_up;
mod target;

pub use crate::give::SegmentsFile;
pub(crate) use set_up::{Recording, set_up};
pub use target::{Target, TargetError};

use crate::kernel::Deaths;
use crate::process::{ProcessError, Stopped};
use crate::shared::Arena;
use crate::sys;
use nix::unistd::Pid;
use probe::Segments;
use probe::arch::{ExecSite, OpenSite};
use program::{LiveVa, Va};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command};

/// Why a program could not be started with counted code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// It could not be started at all.
    #[error("cannot start {}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It was started, but could not be prepared; it was ended before its first instruction.
    #[error("{} could not be prepared, and was ended before its first instruction", path.display())]
    Prepare {
        /// The program.
        path: PathBuf,
        /// What failed.
        source: ProcessError,
    },
}

/// A library that is handed to ld.so in place of another.
#[derive(Clone, Debug)]
pub struct Swap {
    /// The path that ld.so asks for.
    pub asked: PathBuf,
    /// The file that it gets.
    pub given: PathBuf,
}

/// A program with what it is to be started with.
#[derive(Clone, Copy, Debug)]
pub struct Ready<'a> {
    /// Its executable, rewritten.
    pub segments: &'a Segments,
    /// A file that holds the text and the tables of these.
    pub file: Option<&'a SegmentsFile>,
    /// The libraries that it gets in place of others.
    pub swaps: &'a [Swap],
    /// Where its ld.so opens files.
    pub opens: &'a [OpenSite],
    /// If programs that it becomes, or starts, are followed: where its ld.so does that.
    pub execs: Option<&'a [ExecSite]>,
    /// Whether the kernel is to tell where signals end its threads, if it can.
    pub watches: bool,
}

/// A program that runs.
#[derive(Debug)]
pub struct Started {
    /// Its first process.
    pub child: Child,
    /// Where the moved code of its executable is.
    pub text: Range<LiveVa>,
    /// What tells where signals end its threads, if the kernel can.
    pub deaths: Option<Deaths>,
}

/// Starts `command` with `ready`, counting into `arena`.
///
/// # Errors
/// If it cannot be started or prepared. In both cases no instruction of it has run.
pub fn launch(mut command: Command, ready: &Ready<'_>, arena: &Arena) -> Result<Started, LaunchError> {
    let path = PathBuf::from(command.get_program());
    sys::stop_at_exec(&mut command);
    let mut child = command.spawn().map_err(|source| LaunchError::Start { path: path.clone(), source })?;
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("process numbers fit"));
    let prepared = Stopped::at_exec(pid).and_then(|stopped| {
        // Not everybody may ask for that.
        let deaths = if ready.watches { Deaths::watch(pid).ok() } else { None };
        let bias = set_up(&stopped, ready, arena, Recording::Inherited)?;
        stopped.detach()?;
        Ok((bias, deaths))
    });
    let source = match prepared {
        Ok((bias, deaths)) => {
            let start = ready.segments.text_at;
            let [start, end] = [start, start + ready.segments.text_len].map(|at| bias.to_live(Va(at)));
            return Ok(Started { child, text: start..end, deaths });
        }
        Err(source) => source,
    };
    // It has not run: there is nothing to lose.
    let _gone = child.kill();
    let _status = child.wait();
    Err(LaunchError::Prepare { path, source })
}

/// A program that stands before its first instruction, and has nothing of ours in it. It is ended if it is
/// not let go.
pub struct AtStart {
    path: PathBuf,
    child: Option<Child>,
    stopped: Option<Stopped>,
}

impl AtStart {
    /// Starts `command` so far.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn of(mut command: Command) -> Result<AtStart, LaunchError> {
        let path = PathBuf::from(command.get_program());
        sys::stop_at_exec(&mut command);
        let child = command.spawn().map_err(|source| LaunchError::Start { path: path.clone(), source })?;
        let mut started = AtStart { path, child: Some(child), stopped: None };
        let stopped = Stopped::at_exec(Pid::from_raw(started.pid()));
        started.stopped = Some(stopped.map_err(|source| started.failed(source))?);
        Ok(started)
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.child.as_ref().and_then(|child| i32::try_from(child.id()).ok()).unwrap_or(0)
    }

    /// Lets it run.
    ///
    /// # Errors
    /// If it is gone.
    pub fn let_go(mut self) -> Result<Child, LaunchError> {
        let detached = self.stopped.take().map(Stopped::detach);
        detached.transpose().map_err(|source| self.failed(source))?;
        Ok(self.child.take().expect("it is there until it is let go"))
    }

    fn failed(&self, source: ProcessError) -> LaunchError {
        LaunchError::Prepare { path: self.path.clone(), source }
    }
}

impl Drop for AtStart {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It has not run: there is nothing to lose.
            let _gone = child.kill();
            let _status = child.wait();
        }
    }
}
