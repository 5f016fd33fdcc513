//! What `perf record` writes and `perf script` prints.

pub mod perf_branches;
pub mod perf_data;
pub mod perf_script;
mod samples;
