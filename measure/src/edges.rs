//! Counts of blocks and edges: what is counted (`plan`), what the counters of a module mean ([`mod@notes`]),
//! and what a counted program leaves ([`raw_recording`]).

mod complete;
pub mod indirect_calls;
mod module_notes;
mod nesting;
pub mod notes;
pub(crate) mod plan;
pub mod positions;
pub mod raw_recording;
pub(crate) mod returns;
pub mod solve;

pub use module_notes::notes;
pub use returns::SYSTEM_CALL;
