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
            cause.downcast_ref::<session::CountError>().and_then(session::CountError::hint),
        ];
        if let Some(hint) = of_session.into_iter().flatten().next() {
            return Some(hint);
        }
        let known = [
            cause.downcast_ref::<session::RunError>().and_then(session::RunError::hint),
            cause.downcast_ref::<session::InstrumentError>().and_then(session::InstrumentError::hint),
            cause.downcast_ref::<session::ModuleError>().and_then(session::ModuleError::hint),
            cause.downcast_ref::<session::Hindrance>().map(session::Hindrance::hint),
            cause.downcast_ref::<program::LoadError>().and_then(program::LoadError::hint),
            cause.downcast_ref::<profile::ReadError>().and_then(profile::ReadError::hint),
            cause.downcast_ref::<profile::WriteError>().and_then(profile::WriteError::hint),
        ];
        known.into_iter().flatten().next().map(str::to_owned)
    })
}
