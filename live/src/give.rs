//! What a process is given that is observed, while a thread of it stands still: memory, files of ours, a
//! rewritten module, and what it knows of itself.

mod calls;
mod known;
mod module;
mod patches;

pub(crate) use calls::{PAGE, PRIVATE, READ_WRITE, close, fill, open, wipe_on_fork};
pub(crate) use known::process_of;
pub use module::SegmentsFile;
pub(crate) use module::{CountersAt, map_counters, map_module};
pub(crate) use patches::{ModuleMemory, is_of, unmade};
