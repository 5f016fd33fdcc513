//! Two builds of a program: which function and block became which, and what follows for profiles.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod blocks;
mod carry;
pub mod compare;
mod compute;
mod counts;
mod data;
mod functions;
mod hash;
pub mod names;
mod options;
mod relation;
#[cfg(test)]
mod testing;

pub use carry::merge::{MergeOptions, merge};
pub use carry::{
    CarriedProfile, CarryLoss, CarryOptions, CarryReport, CountRange, Doubt, Expected, LossReason, Parts,
    Prediction, carry,
};
pub use counts::Measured;
pub use counts::evidence::{Consistency, Inconsistency};
pub use counts::score::{FunctionLoss, Score, Uncertainty, score, uncertainty};
pub use options::{Options, Pass, UnknownPass};
pub use relation::map::{Map, MapError};
pub use relation::report::{LeftOver, LeftOverReason, Rates, Report};
pub use relation::{
    BlockMatch, BlockMethod, DataMatch, DataMethod, FunctionMatch, FunctionMethod, Level, Matching, OneToOne,
};
