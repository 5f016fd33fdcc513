//! Processes: launched with counted code, stopped for a moment, left alone again.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod arch;
mod arena;
mod cache;
mod deaths;
mod follow;
pub mod launch;
mod process;
#[expect(unsafe_code, reason = "pre_exec has no safe form")]
mod sys;
mod target;

pub use arena::{Arena, Asking, Owner, Request, StoppedThreads, Stream};
pub use cache::Cache;
pub use deaths::{Death, Deaths, Mapped, Told};
pub use follow::Caught;
pub use process::{Mapping, ProcessError, Stopped, Syscall};
pub use sys::{
    fail_beyond_limits, has_capabilities, is_output_closed, keep_memory, keep_signal, n_kept_signals,
    pass_signals_on, signal_named, wait,
};
pub use target::{Limits, Target, TargetError, can_set_bases};
