//! A rewritten module as a process is given it, and what its file is known by.
//!
//! Invariant: files with different bytes have different keys, also if their code is the same.
//!
//! Not here: how the segments are made (`module`), how they are mapped (crate `live`).
#![warn(clippy::indexing_slicing)]

use crate::module::Patch;
use program::Image;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// Identity of a whole file, data and tables included: files with the same code are not interchangeable. What is made of a file, and
/// its place in a recording, are known by it.
pub fn file_key(image: &Image) -> u128 {
    xxh3_128(image.file_bytes())
}

/// What a process is given in which a module is to run moved: the new segments and what changes in the old ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Segments {
    /// Identity of the module's file ([`file_key`]).
    pub key: u128,
    /// Its entry point.
    pub entry: Option<u64>,
    /// How many counters it has.
    pub n_counters: usize,
    /// Where they are, with the page in front of them.
    pub counters_at: u64,
    /// Where the runtime is, if anything is counted.
    pub runtime_at: Option<u64>,
    /// Address of the moved code.
    pub text_at: u64,
    /// The moved code.
    pub text: Vec<u8>,
    /// Address of the tables, which start with the program headers.
    pub tables_at: u64,
    /// The tables.
    pub tables: Vec<u8>,
    /// How many program headers there are.
    pub n_headers: u16,
    /// Changes of the old segments: where, what was there, what is there now.
    pub patches: Vec<(u64, Vec<u8>, Vec<u8>)>,
}

/// `patches`, those that follow one another without a gap as one.
pub(crate) fn joined(patches: &[Patch]) -> Vec<(u64, Vec<u8>, Vec<u8>)> {
    let mut out: Vec<(u64, Vec<u8>, Vec<u8>)> = Vec::new();
    for p in patches {
        match out.last_mut() {
            Some((at, old, new)) if *at + old.len() as u64 == p.at.0 => {
                old.extend(&p.old);
                new.extend(&p.new);
            }
            _ => out.push((p.at.0, p.old.clone(), p.new.clone())),
        }
    }
    out
}
