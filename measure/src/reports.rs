//! What counts come to: how much ran, loops, paths along which most ran, what runs did otherwise.

pub mod count;
pub mod diff;
pub mod inclusive;
pub mod ipc;
pub mod lines;
pub mod loops;
pub mod paths;
pub mod repeat;
pub mod sampled;
