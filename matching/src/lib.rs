//! Two builds of a program: which function and block became which, and what follows for profiles.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod hash;
mod relation;
#[cfg(test)]
mod testing;

pub use relation::{
    BlockMatch, BlockMethod, DataMatch, DataMethod, FunctionMatch, FunctionMethod, Level, Matching,
};
