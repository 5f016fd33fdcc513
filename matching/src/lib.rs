//! Two builds of a program: which function and block became which, and what follows for profiles.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod blocks;
mod bolt;
mod branches;
mod call_sites;
mod carry;
mod compute;
mod data;
mod evidence;
mod flow;
mod functions;
pub mod hash;
mod infer;
mod inlined;
mod map;
mod measured;
mod merge;
pub mod names;
mod options;
mod relation;
mod report;
mod score;
#[cfg(test)]
mod testing;
mod twins;

pub use carry::{
    CarriedProfile, CarryLoss, CarryOptions, CarryReport, Doubt, Expected, LossReason, Prediction, Range,
    carry,
};
pub use evidence::{Consistency, Inconsistency};
pub use map::{Map, MapError};
pub use measured::Measured;
pub use merge::{MergeOptions, merge};
pub use options::{Options, Pass, UnknownPass};
pub use relation::{
    BlockMatch, BlockMethod, DataMatch, DataMethod, FunctionMatch, FunctionMethod, Level, Matching, OneToOne,
};
pub use report::{LeftOver, Rates, Report, Why};
pub use score::{FunctionLoss, Score, Uncertainty, score, uncertainty};
