//! What counts come to: loops, paths along which most ran, what runs did otherwise.

pub mod diff;
pub mod loops;
pub mod paths;
pub mod repeat;
