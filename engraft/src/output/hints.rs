//! The remedy of an error, where one is known.

use session::{CountError, InstrumentError, RunError, Warning};
use std::fmt;
use std::io;

/// A failure of the command itself, with its remedy.
#[derive(Debug)]
pub struct Hinted {
    message: String,
    hint: String,
}

impl Hinted {
    /// Says `message`, and each line of `hint` on a line of its own.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Hinted {
        Hinted { message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Hinted {}

/// The remedy that an error in the chain knows.
pub fn hint(err: &anyhow::Error) -> Option<String> {
    err.chain().find_map(|cause| {
        if let Some(hinted) = cause.downcast_ref::<Hinted>() {
            return Some(hinted.hint.clone());
        }
        if let Some(hint) = cause.downcast_ref::<io::Error>().and_then(session::kernel_hint) {
            return Some(hint.to_owned());
        }
        let of_session = [
            cause.downcast_ref::<session::PrepareError>().and_then(session::PrepareError::hint),
            cause.downcast_ref::<CountError>().and_then(of_count),
        ];
        if let Some(hint) = of_session.into_iter().flatten().next() {
            return Some(hint);
        }
        let known = [
            cause.downcast_ref::<RunError>().and_then(of_run),
            cause.downcast_ref::<InstrumentError>().and_then(of_instrument),
            cause.downcast_ref::<session::ModuleError>().and_then(session::ModuleError::hint),
            cause.downcast_ref::<session::Hindrance>().map(session::Hindrance::hint),
            cause.downcast_ref::<program::LoadError>().and_then(program::LoadError::hint),
            cause.downcast_ref::<profile::ReadError>().and_then(profile::ReadError::hint),
            cause.downcast_ref::<profile::WriteError>().and_then(profile::WriteError::hint),
        ];
        known.into_iter().flatten().next().map(str::to_owned)
    })
}

/// The remedy of what a program is not counted for, but for what helps whatever was tried.
fn of_count(err: &CountError) -> Option<String> {
    match err {
        CountError::Prepare(err) => err.hint(),
        CountError::Run(err) => of_run(err).map(str::to_owned),
        CountError::Arena(err) => session::kernel_hint(err).map(str::to_owned),
        _ => None,
    }
}

/// The remedy of what a program was not run for.
fn of_run(err: &RunError) -> Option<&'static str> {
    match err {
        RunError::Traced(_) => Some(
            "another process traces all that we start, such as `strace -f`: start that one by `count`, \
             `engraft count strace …`",
        ),
        _ => None,
    }
}

/// The remedy of what a file is not instrumented for.
pub fn of_instrument(err: &InstrumentError) -> Option<&'static str> {
    match err {
        InstrumentError::Plan { .. } => {
            Some("`engraft show BINARY function NAME` lists instructions, blocks and edges")
        }
        InstrumentError::NoInit { .. } => Some("`--null` moves its code without counting"),
        InstrumentError::Module(err) => err.hint(),
        _ => None,
    }
}

/// Why a module of which nothing is counted is as it is.
pub const WHY_NOT_MOVED: &str = "`engraft instrument --null` lists why each function stays";

/// The remedy of what a session warns of.
pub fn of_warning(warning: &Warning) -> Option<&'static str> {
    match warning {
        Warning::ChangesCode { .. } => {
            Some("if it behaves otherwise than alone, leave it out with --modules")
        }
        Warning::CutOff { .. } => {
            Some("copy or build the file again: names and lines may be in what is lost")
        }
        Warning::NoneNamed { .. } => Some("file names are meant, as `ldd` shows them; * stands for anything"),
        Warning::NothingMoved { .. } => Some(WHY_NOT_MOVED),
        Warning::BecameAnother { .. } => Some("name that program if it can be started by itself"),
        Warning::Missed { .. } => Some(
            "`engraft count --follow PROGRAM` counts all that a program starts from its first instruction on",
        ),
        Warning::NothingKept { .. } => Some("--from, --after, --for, --switch and --paused say what is kept"),
        _ => None,
    }
}
