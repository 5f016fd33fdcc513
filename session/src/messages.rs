//! What a session says beside its results: warnings as values, and what its errors have in common.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// What is done to a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// Its blocks are counted.
    Counted,
    /// Its events are recorded.
    Recorded,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Done::Counted => "counted",
            Done::Recorded => "recorded",
        })
    }
}

/// What whoever started the session is to know of it, though it goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Warning {
    /// A program may write its own code while it runs, which is not seen where the code was moved to.
    ChangesCode {
        /// The file.
        image: String,
    },
    /// A file ends before its table of sections does, and is read by its program headers alone.
    CutOff {
        /// The file.
        image: String,
    },
    /// No module has a name that was wanted.
    NoneNamed {
        /// The name.
        name: String,
    },
    /// A module is left as it is.
    Left {
        /// The module.
        path: PathBuf,
        /// Why.
        why: String,
        /// What would have been done to it.
        done: Done,
    },
    /// No function of a module can be moved.
    NothingMoved {
        /// The module.
        path: PathBuf,
    },
    /// Events of a program cannot be taken any more.
    NotTaken {
        /// What the program was called.
        name: String,
        /// Why.
        why: String,
    },
    /// Events of a program were lost.
    LostEvents,
    /// All events of a program came outside of what was to be kept.
    NothingKept {
        /// What the program was called.
        name: String,
    },
    /// Threads had to append to the streams of others.
    SharedStream,
    /// Threads had to count together.
    Shared,
    /// Not all was written down of what signal handlers left.
    Unknown,
    /// The process became another program.
    BecameAnother {
        /// The program.
        program: PathBuf,
        /// What was not done to it.
        done: Done,
    },
    /// Processes that came were not observed.
    Missed {
        /// How many.
        n: usize,
        /// What was not done to them.
        done: Done,
    },
    /// Processes run on.
    StillRun {
        /// How many.
        n: usize,
        /// What is not done any more to what they do.
        done: Done,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::ChangesCode { image } => {
                write!(f, "{image} may change its own code while it runs: moved code does not change with it")
            }
            Warning::CutOff { image } => {
                write!(f, "{image} is cut off: it ends before its section headers do, and is read without them")
            }
            Warning::NoneNamed { name } => write!(f, "no module is called {name}"),
            Warning::Left { path, why, done } => write!(f, "{} was not {done}: {why}", path.display()),
            Warning::NothingMoved { path } => {
                write!(f, "nothing of {} was counted: no function of it can be moved", path.display())
            }
            Warning::NotTaken { name, why } => write!(f, "cannot take the events of {name}: {why}"),
            Warning::LostEvents => f.write_str("not all was recorded: events were not taken"),
            Warning::NothingKept { name } => {
                write!(f, "nothing was kept: {name} ended outside of what was asked for")
            }
            Warning::SharedStream => f.write_str(
                "more threads than there is room for ran at once: some share a stream, in which what they did \
                 cannot be told apart",
            ),
            Warning::Shared => {
                f.write_str("more threads than there is room for counted together: some counts may be lost")
            }
            Warning::Unknown => f.write_str(
                "signal handlers did not return to more places than there is room for: counts around them may be off",
            ),
            Warning::BecameAnother { program, done } => {
                write!(f, "it became another program, {}, which was not {done}", program.display())
            }
            Warning::Missed { n: 1, done } => {
                write!(f, "1 process that came was not {done}: it ended too soon, or cannot be attached to")
            }
            Warning::Missed { n, done } => {
                write!(f, "{n} processes that came were not {done}: they ended too soon, or cannot be attached to")
            }
            Warning::StillRun { n: 1, done } => {
                write!(f, "1 process that it started still runs: what it does from now on is not {done}")
            }
            Warning::StillRun { n, done } => {
                write!(f, "{n} processes that it started still run: what they do from now on is not {done}")
            }
        }
    }
}

/// An error and its causes, in one line.
pub(crate) fn with_causes(err: &dyn Error) -> String {
    let (mut text, mut cause) = (err.to_string(), err.source());
    while let Some(err) = cause {
        text = format!("{text}: {err}");
        cause = err.source();
    }
    text
}

/// Too many open files, for a process. Source: Linux, include/uapi/asm-generic/errno-base.h.
const EMFILE: i32 = 24;

/// The remedy of what the kernel says, where there is one whatever was tried.
pub fn kernel_hint(err: &io::Error) -> Option<&'static str> {
    (err.raw_os_error() == Some(EMFILE)).then_some("raise the limit of open files (`ulimit -n`)")
}
