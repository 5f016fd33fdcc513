//! What all formats have in common: errors, and what writing yields.

use crate::counts::Lost;

/// Why a profile cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A line of a text format that cannot be understood.
    #[error("line {line} is no {format} record: {what}")]
    BadLine {
        /// The format's name.
        format: &'static str,
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

/// A profile in some format, and what of it the format or its reader cannot hold.
#[derive(Debug, Default)]
pub struct Written {
    /// The file.
    pub bytes: Vec<u8>,
    /// Functions of which something was written.
    pub n_functions: usize,
    /// Sum of the counts written.
    pub count: u64,
    /// What was left out.
    pub lost: Vec<Lost>,
}
