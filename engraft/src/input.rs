//! What verbs are given: binaries, counts, traces, and the names of things in them.

mod binaries;
mod command;
mod comparisons;
mod fit;
mod functions;
mod instructions;
pub mod names;
mod read;
mod recordings;
mod source;
mod sources;
mod traces;

pub use binaries::{
    counted_program, kept_program, map, pair, points, program, recorded_image, whole_program,
};
pub use command::CommandLine;
pub use comparisons::{comparison, is_comparison, write_comparison};
pub use fit::Fit;
pub use functions::{address, death, file_name, function, module_name, source_names, spelt};
pub use instructions::Instructions;
pub use read::{file, text};
pub use recordings::{Ending, Place, newest, the_newest, the_newest_two};
pub use source::{Source, is_recording, is_trace, profile};
pub use sources::Sources;
pub use traces::{nth, open, unreadable, warn_of_faults};

use std::num::NonZeroUsize;

/// Reads a number from 1 on from the command line.
///
/// # Errors
/// If it is none.
pub fn from_one(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "it is a number from 1 on")
}
