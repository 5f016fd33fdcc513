//! A program while it runs: started, served with the modules it asks for, waited for.
//!
//! Whoever waits may have started the program or found it running: [`serve`] does not know.

mod follow;
mod watch;

pub(crate) use watch::{Bell, Maps};

use crate::loader::Loader;
use crate::messages::with_causes;
use crate::prepare::Prepared;
use live::launch::{LaunchError, Ready, Started};
use live::{Arena, Deaths, Target};
use program::LiveVa;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a program was not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There is no room for a thread of ours.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// It cannot be started.
    #[error(transparent)]
    Launch(LaunchError),
    /// It cannot be started, and somebody traces us.
    #[error("{}", with_causes(.0))]
    Traced(LaunchError),
    /// It was started, but cannot be waited for.
    #[error("cannot wait for {name}")]
    Wait {
        /// What it was called.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The thread that takes events has panicked.
    #[error("the thread that takes events has panicked")]
    Taker,
}

impl RunError {
    /// The same, if it may be because somebody traces us.
    pub(crate) fn explained(self) -> RunError {
        match self {
            RunError::Launch(err) if is_traced() => RunError::Traced(err),
            err => err,
        }
    }
}

/// A program that ran, and is over.
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: u32,
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// The same, and what it took.
    pub(crate) ended: live::Ended,
    /// The program that it became, which was not followed.
    pub(crate) became: Option<PathBuf>,
    /// Where files were mapped in it, if somebody looked.
    pub(crate) maps: Maps,
    /// Where the moved code of its executable was.
    pub(crate) text: Range<LiveVa>,
    /// What tells where signals ended its threads, if the kernel could.
    pub(crate) deaths: Option<Deaths>,
}

/// What is to be seen of a process while it runs.
#[derive(Clone, Copy)]
pub(crate) struct Watched<'a> {
    /// Which program it becomes.
    pub(crate) execs: bool,
    /// Where files are mapped; this rings when one is about to be.
    pub(crate) maps: Option<&'a Bell>,
    /// Where signals end its threads.
    pub(crate) deaths: bool,
}

/// Has whoever is `during` run a program do so while the modules that it asks for are made ready; the
/// programs, too, if they are followed.
///
/// # Errors
/// If there is no room for threads, or whatever `during` fails with.
pub(crate) fn serve<T>(
    loader: &Loader<'_>,
    arena: &Arena,
    follows: bool,
    during: impl FnOnce() -> Result<T, RunError>,
) -> Result<T, RunError> {
    let is_over = &AtomicBool::new(false);
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let _ends = EndsServing { is_over, arena };
        let thread = std::thread::Builder::new;
        let spawned = thread().spawn_scoped(scope, move || loader.serve(ready, is_over));
        spawned.map_err(RunError::Thread)?;
        // Before the program can ask; an error if it will be told that nobody answers.
        let _who_answers = is_ready.recv();
        if follows {
            let spawned = thread().spawn_scoped(scope, move || follow::serve(scope, loader, arena, is_over));
            spawned.map_err(RunError::Thread)?;
        }
        during()
    })
}

/// Ends serving when it goes, also if that is because we panic.
struct EndsServing<'a> {
    is_over: &'a AtomicBool,
    arena: &'a Arena,
}

impl Drop for EndsServing<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.arena.wake();
        self.arena.wake_for_exec();
    }
}

/// The command that starts `target`, which is called `name`, with `args`.
pub fn command(target: &Target, name: &OsStr, args: &[OsString]) -> Command {
    let mut command = Command::new(&target.start);
    std::os::unix::process::CommandExt::arg0(&mut command, target.arg0.as_deref().unwrap_or(name));
    command.args(&target.before).args(args);
    command
}

/// Starts `command` with what is `prepared`.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn start(
    command: Command,
    prepared: &Prepared<'_>,
    arena: &Arena,
    watched: Watched<'_>,
) -> Result<Started, RunError> {
    let executable = &prepared.executable;
    let ready = Ready {
        segments: &executable.segments,
        file: executable.file.as_ref(),
        swaps: &prepared.swaps,
        opens: &executable.linker.opens,
        execs: prepared.asked.follows.then_some(&executable.linker.execs[..]),
        watches: watched.deaths,
    };
    live::launch::launch(command, &ready, arena).map_err(RunError::Launch)
}

/// Waits until what was `started`, which is called `name`, is over.
///
/// # Errors
/// The kernel's.
pub(crate) fn wait(
    started: Started,
    name: &OsStr,
    prepared: &Prepared<'_>,
    watched: Watched<'_>,
) -> Result<Process, RunError> {
    let Started { mut child, text, deaths } = started;
    let (pid, is_gone) = (child.id(), &AtomicBool::new(false));
    let told = deaths.as_ref();
    let (status, became, maps) = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new;
        let becomes = watched
            .execs
            .then(|| thread().spawn_scoped(scope, move || watch::becomes(pid, &prepared.path, is_gone)));
        let watch = |bell| thread().spawn_scoped(scope, move || Maps::watch(pid, is_gone, bell));
        let maps = watched.maps.map(watch);
        let takes = told.map(|told| thread().spawn_scoped(scope, move || watch::take(told, is_gone)));
        let status = live::wait(&mut child);
        is_gone.store(true, Ordering::Relaxed);
        takes.map(watch::seen_by);
        let became = becomes.and_then(watch::seen_by).flatten();
        (status, became, maps.and_then(watch::seen_by).unwrap_or_default())
    });
    let name = || Path::new(name).display().to_string();
    let ended = status.map_err(|source| RunError::Wait { name: name(), source })?;
    Ok(Process { pid, status: ended.status, ended, became, maps, text, deaths })
}

/// Whether somebody traces us.
fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|n| n.trim() != "0"))
}
