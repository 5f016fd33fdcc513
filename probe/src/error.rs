//! Why a module cannot be rewritten.

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
    #[error("{name} uses gs itself, at {at}, so it cannot be counted")]
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
}

impl RewriteError {
    /// The program headers of `image` cannot be extended.
    pub(crate) fn headers(image: &program::Image, why: &str) -> RewriteError {
        RewriteError::Headers { name: image.name.clone(), why: why.to_owned() }
    }
}
