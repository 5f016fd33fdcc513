//! What the kernel tells of processes, without their noticing.

mod deaths;

pub use deaths::{Death, Deaths, Mapped, Told};
