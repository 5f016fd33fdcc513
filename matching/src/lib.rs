//! Two builds of a program: which function and block became which, and what follows for profiles.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod blocks;
mod compute;
mod functions;
pub mod hash;
pub mod names;
mod options;
mod relation;
mod report;
#[cfg(test)]
mod testing;

pub use options::{Options, Pass, UnknownPass};
pub use relation::{
    BlockMatch, BlockMethod, DataMatch, DataMethod, FunctionMatch, FunctionMethod, Level, Matching, OneToOne,
};
pub use report::{LeftOver, Rates, Report, Why};
