//! What to count, and what the counts mean: each measurement is one file with its plan and its completion.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod blocks;
pub mod loops;
pub mod points;
