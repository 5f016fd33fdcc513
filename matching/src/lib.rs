//! Two builds of a program: which function and block became which, and what follows for profiles.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod relation;

pub use relation::{
    BlockMatch, BlockMethod, DataMatch, DataMethod, FunctionMatch, FunctionMethod, Level, Matching,
};
