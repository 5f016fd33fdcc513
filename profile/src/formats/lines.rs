//! Formats that speak of source lines: of clang, pprof, flame graphs and lcov.

pub mod flame;
pub mod folded;
mod labels;
pub mod lcov;
mod line_counts;
pub mod llvm_sample;
pub mod pprof;
mod source;
