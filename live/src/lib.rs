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
pub use kernel::{
    Chains, Death, Deaths, Event, EventError, Heard, KernelReport, Mapped, OpenError, Rate, Sample, Sampling,
    Total, Totals, Unit, UserStack, Wanted,
};
pub use launch::{Target, TargetError};
pub use process::{
    Limits, LookError, Mapping, OnProcessor, ProcessError, Resident, Root, RunningMemory, Stopped, Syscall,
    can_set_bases, children_of, own_file, processes_named, processor_of,
};
pub use shared::{Arena, Asking, Owner, Request, StoppedThreads, Stream};
pub use sys::{
    AskedToEnd, End, Ended, Over, asked_to_end_by, at_same_addresses, end_by, fail_beyond_limits,
    has_capabilities, is_output_closed, keep_memory, keep_signal, n_kept_signals, pass_signals_on,
    signal_name, signal_named, thread_times, tidy_before_signals_end_us, time_stamp, wait,
};
