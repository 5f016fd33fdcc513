//! Counts of one image: the [`Profile`], its arithmetic, and one file per format.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod counts;
mod format;
mod formats;

pub mod bat;
pub mod bolt_yaml;
pub mod callgrind;
pub mod calls;
pub mod conservation;
pub mod csv;
pub mod encoding;
pub mod engraft;
pub mod fdata;
pub mod folded;
pub mod json;
pub mod lcov;
pub mod llvm_sample;
pub mod perf_branches;
pub mod perf_data;
pub mod perf_script;
pub mod pprof;
pub mod preagg;
pub mod recording;

mod arithmetic;
mod bolt;
mod derive;
pub mod flow;
mod images;
mod labels;
mod line_counts;
mod losses;
mod samples;
mod source;

mod transfers;

pub use arithmetic::{overlap, scaled};
pub use counts::{Beyond, Count, Edge, Exactness, ImageRef, Intervals, Lost, Profile};
pub use derive::n_functions;
pub use format::{Context, Format, Imported, ReadError, WriteError, Written};
pub use formats::{read, write};
pub use images::Images;

#[cfg(test)]
mod testing;
