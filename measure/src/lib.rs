//! What to count, and what the counts mean: each measurement is one file with its plan and its completion.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod branches;
pub mod edges;
pub mod kept;
mod kept_code;
mod placement;
pub mod plan_text;
pub mod prototypes;
pub mod recorded_points;
pub mod reports;
#[cfg(test)]
mod testing;
pub mod values;

pub use edges::{notes, raw_recording};
pub use kept_code::{catalogue, excerpt, excerpt_with, that_may_have_run};
pub use placement::{Placement, plan_like, relies_on};
pub use reports::{loops, paths};
