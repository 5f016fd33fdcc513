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
mod callees;
mod checks;
mod code;
mod counters;
mod dynamic;
mod ends;
mod events;
mod forks;
mod inserts;
mod lsda;
mod module;
mod movable;
mod names;
mod not_moved;
mod own_stubs;
mod patch;
mod piece;
mod place;
mod places;
mod plan;
mod points;
pub mod runtimes;
mod segments;
mod springboard;
mod stubs;
mod switches;
mod taken;
mod unwind;

pub use callees::Callees;
pub use counters::Counted;
pub use ends::are_taken as ends_are_taken;
pub use events::WORDS as EVENT_WORDS;
pub use forks::calls as calls_of_forks;
pub use module::{Module, Old, RewriteError, Room};
pub use not_moved::Stay;
pub use patch::Patch;
pub use places::Place;
pub use plan::{
    Action, CountedCall, Counting, Event, EventAt, Plan, PlanError, Point, Probe, Routine, Sparse,
};
pub use segments::{Segments, asking, file_key};
pub use springboard::Tactic;
