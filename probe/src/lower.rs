//! From a plan to code: what is put where in what is moved.

pub mod counters;
pub mod entry_checks;
pub mod events;
pub mod exit_calls;
pub mod fork_calls;
pub mod indirect_calls;
pub mod points;
