//! What `engraft count` says.

mod loops;

pub use loops::LoopView;
