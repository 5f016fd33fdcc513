//! Counts of one image: the [`Profile`], its arithmetic, and one file per format.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod arithmetic;
mod complete;
mod counts;
pub mod encoding;
mod formats;
mod losses;
pub mod samples;
pub mod values;
mod vocabulary;

pub use arithmetic::{overlap, scaled};
pub use complete::derive::n_functions;
pub use complete::transfers::of_points;
pub use complete::{calls, conservation, flow};
pub use counts::{Beyond, ByAddress, Count, Edge, Exactness, ImageRef, Intervals, Lost, Profile};
pub use formats::bolt::{bat, bolt_yaml, fdata, preagg};
pub use formats::images::Images;
pub use formats::lines::{flame, folded, lcov, llvm_sample, pprof};
pub use formats::ours::{csv, engraft, json, recording};
pub use formats::perf::{perf_branches, perf_data, perf_script};
pub use formats::{callgrind, read, write};
pub use vocabulary::{Context, Format, Imported, ReadError, WriteError, Written};

#[cfg(test)]
mod testing;
