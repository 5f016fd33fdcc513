//! What the kernel tells of processes, without their noticing.

mod deaths;
mod perf;

pub use deaths::{Death, Deaths, KernelReport, Mapped};
