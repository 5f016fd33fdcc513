//! The remedy of an error, where one is known.

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

/// Too many open files, for a process. Source: Linux, include/uapi/asm-generic/errno-base.h.
const EMFILE: i32 = 24;

/// The remedy of what the kernel says, where there is one whatever was tried.
pub fn hint_of(err: &io::Error) -> Option<&'static str> {
    (err.raw_os_error() == Some(EMFILE)).then_some("raise the limit of open files (`ulimit -n`)")
}

/// The remedy that an error in the chain knows.
pub fn hint(err: &anyhow::Error) -> Option<String> {
    err.chain().find_map(|cause| {
        if let Some(hinted) = cause.downcast_ref::<Hinted>() {
            return Some(hinted.hint.clone());
        }
        if let Some(none) = cause.downcast_ref::<session::NoneWanted>() {
            return Some(none.hint());
        }
        if let Some(hint) = cause.downcast_ref::<io::Error>().and_then(hint_of) {
            return Some(hint.to_owned());
        }
        let known = [
            cause.downcast_ref::<program::LoadError>().and_then(program::LoadError::hint),
            cause.downcast_ref::<profile::ReadError>().and_then(profile::ReadError::hint),
            cause.downcast_ref::<profile::WriteError>().and_then(profile::WriteError::hint),
        ];
        known.into_iter().flatten().next().map(str::to_owned)
    })
}
