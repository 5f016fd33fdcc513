//! Instrumentation: functions moved, with probes inline, into new segments of the same module.
//!
//! ```no_run
//! let program = program::Program::analyze(program::Image::load("/usr/bin/gzip".as_ref())?);
//! let module = probe::Module::build(&program, &probe::Plan::NULL, probe::Room::Behind)?;
//! std::fs::write("gzip.moved", module.to_file(probe::Old::Kept)?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod arch;
mod bytes;
mod code;
mod encoding;
mod error;
pub mod graft;
mod image;
mod inserts;
mod layout;
mod lower;
mod module;
mod not_moved;
mod patch;
mod plan;
mod select;
#[cfg(test)]
mod testing;

pub use arch::emit::can_be_kept;
pub use arch::snippet::{
    Field, HISTOGRAM_WORDS, LONGEST_RECORD, NoValue, Sink, Value, general_register, record_len,
};
pub use arch::stand_in;
pub use arch::vectorise::{NotVectorised, has_avx2};
pub use arch::{NamedRegister, NoRegister};
pub use error::{NotInFile, RewriteError};
pub use image::file::Old;
pub use image::running::{MovedInsn, MovedWord, Running, Stayed};
pub use image::segments::{Segments, asking, file_key};
pub use layout::code_map::{CodeMap, Reached};
pub use layout::place::Room;
pub use lower::Words;
pub use lower::counters::Counted;
pub use lower::events::WORDS as EVENT_WORDS;
pub use lower::exit_calls::are_taken as ends_are_taken;
pub use lower::fork_calls::calls as calls_of_forks;
pub use lower::indirect_calls::IndirectCalls;
pub use lower::vectorised::{InnermostLoop, innermost_loops};
pub use module::Module;
pub use not_moved::NotMoved;
pub use patch::{Memory, Patch, PatchError};
pub use plan::{
    Action, CountedCall, Counting, Event, EventAt, Led, Plan, PlanError, Point, Probe, Record, Replaced,
    Routine, Sparse,
};
pub use select::{runtimes, springboard::Tactic};
