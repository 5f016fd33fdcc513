//! Processes: launched with counted code, stopped for a moment, left alone again.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod arch;
mod arena;
mod cache;
pub mod launch;
mod process;
#[expect(unsafe_code, reason = "pre_exec has no safe form")]
mod sys;
mod target;

pub use arena::{Arena, Request};
pub use cache::Cache;
pub use process::{Mapping, ProcessError, Stopped, Syscall};
pub use sys::{fail_beyond_limits, is_output_closed, pass_signals_on, wait};
pub use target::{Target, TargetError, can_set_bases};
