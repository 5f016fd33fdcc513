//! The program that is meant, if it can be counted on this machine.

use live::{Target, TargetError};
use std::ffi::OsStr;
use std::path::Path;

/// Why there is no program to count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// Nothing can be said of processes.
    #[error(transparent)]
    NoProc(#[from] NoProc),
    /// There is none of that name.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Programs may not have counters of each thread's own.
    #[error("programs can be neither counted nor traced on this machine: they may not set the base of gs")]
    NoBases,
}

/// What processes may do is known by /proc, and they are prepared by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("/proc is not mounted")]
pub struct NoProc;

impl NoProc {
    /// What can be done about it.
    pub fn hint(&self) -> &'static str {
        "mount it: `mount -t proc proc /proc`"
    }
}

impl FindError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            FindError::NoProc(err) => Some(err.hint()),
            FindError::Target(err) => err.hint(),
            FindError::NoBases => Some(
                "it needs a processor with FSGSBASE (2012 or later) and Linux 5.9 or later, started without \
                 `nofsgsbase`",
            ),
        }
    }
}

/// Refuses where nothing can be said of processes.
///
/// # Errors
/// If /proc is not mounted.
pub fn needs_proc() -> Result<(), NoProc> {
    if Path::new("/proc/self").exists() { Ok(()) } else { Err(NoProc) }
}

/// The program that is called `name`, looked for in the folders of `search`, which can be counted on this
/// machine.
///
/// # Errors
/// If it is not there, or nothing can be counted here.
pub fn find(name: &OsStr, search: &OsStr) -> Result<Target, FindError> {
    needs_proc()?;
    let target = Target::find(name, search)?;
    if live::can_set_bases() { Ok(target) } else { Err(FindError::NoBases) }
}
