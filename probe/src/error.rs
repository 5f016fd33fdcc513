//! Why a module cannot be rewritten.

use crate::patch::PatchError;
use crate::plan::PlanError;
use program::Va;

/// Why a module cannot be rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// Its addresses leave no room for new segments.
    #[error("{name} leaves no room for new segments: with them it would end at {end}")]
    NoSpace {
        /// The file.
        name: String,
        /// Where it would end.
        end: Va,
    },
    /// It needs `gs`, by which its counters would be found.
    #[error("{name} uses gs itself, at {at}, so its code cannot be moved")]
    UsesGs {
        /// The file.
        name: String,
        /// The first instruction that does.
        at: Va,
    },
    /// Its program headers cannot be read again, or there are too many of them.
    #[error("the program headers of {name} cannot be extended: {why}")]
    Headers {
        /// The file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Probes cannot be put where they are wanted.
    #[error("{} of the probes cannot be put into {name}", why.len())]
    Probes {
        /// The file.
        name: String,
        /// Which of the plan's, from 0, and why.
        why: Vec<(usize, PlanError)>,
    },
    /// The plan both counts and appends events: these words would be the same ones.
    #[error("{name} cannot have its events recorded and its blocks or edges counted at once")]
    CountsAndEvents {
        /// The file.
        name: String,
    },
    /// A call cannot be led elsewhere.
    #[error(
        "{name} has no call at {at} that can lead elsewhere: a direct one, or one through a slot of the linker's"
    )]
    NotLed {
        /// The file.
        name: String,
        /// Where.
        at: Va,
    },
    /// What changes in it is not in its file as it should be.
    #[error("the file {name} cannot be written anew")]
    Patch {
        /// The file.
        name: String,
        /// What was to change.
        #[source]
        why: PatchError<NotInFile>,
    },
}

/// Nothing of a file is loaded at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("nothing of the file is at {at}")]
pub struct NotInFile {
    /// The address.
    pub at: Va,
}

impl RewriteError {
    /// The remedy, if we know it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            RewriteError::CountsAndEvents { .. } => Some("make two modules of it, a plan each"),
            _ => None,
        }
    }

    /// The program headers of `image` cannot be extended.
    pub(crate) fn headers(image: &program::Image, why: &str) -> RewriteError {
        RewriteError::Headers { name: image.name.clone(), why: why.to_owned() }
    }
}
