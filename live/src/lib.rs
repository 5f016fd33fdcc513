//! Processes: launched with counted code, stopped for a moment, left alone again.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod arch;
pub mod attach;
mod cache;
mod exec;
mod give;
mod kernel;

pub mod launch;
mod process;
mod shared;
#[expect(unsafe_code, reason = "pre_exec has no safe form")]
mod sys;

pub use cache::{Cache, Entry};
pub use exec::Caught;
pub use kernel::{Death, Deaths, KernelReport, Mapped};
pub use launch::{Target, TargetError};
pub use process::{
    Limits, LookError, Mapping, ProcessError, Resident, Root, RunningMemory, Stopped, Syscall, can_set_bases,
    children_of, processes_named,
};
pub use shared::{Arena, Asking, Owner, Request, StoppedThreads, Stream};
pub use sys::{
    AskedToEnd, End, Ended, Over, fail_beyond_limits, has_capabilities, is_output_closed, keep_memory,
    keep_signal, n_kept_signals, pass_signals_on, signal_name, signal_named, tidy_before_signals_end_us,
    time_stamp, wait,
};
