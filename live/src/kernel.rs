//! What the kernel tells of processes, without their noticing.

mod deaths;
mod event;
mod perf;
mod sampling;
mod totals;

pub use deaths::{Death, Deaths, KernelReport, Mapped};
pub use event::{Event, EventError, Unit};
pub use sampling::{Chains, Heard, OpenError, Rate, Sample, Sampling, UserStack, Wanted};
pub use totals::{Total, Totals};
