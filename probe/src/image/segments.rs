//! A rewritten module as a process is given it, and what its file is known by.
//!
//! Invariant: files with different bytes have different keys, also if their code is the same.
//!
//! Not here: how the segments are made (`module`), how they are mapped (crate `live`).
#![warn(clippy::indexing_slicing)]

use crate::arch::ExecSite;
use crate::patch::Patch;
use program::{Image, Program, Va};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_128;

/// Identity of a whole file, data and tables included: files with the same code are not interchangeable. What
/// is made of a file, and its place in a recording, are known by it.
pub fn file_key(image: &Image) -> u128 {
    xxh3_128(image.file_bytes())
}

/// The file of `image`, but for asking at `sites` before it becomes another program.
pub fn asking(image: &Image, sites: &[ExecSite]) -> Vec<u8> {
    let mut bytes = image.file_bytes().to_vec();
    for site in sites {
        let Some(segment) = image.segment_at(Va(site.at)) else { continue };
        let from = usize::try_from(segment.offset.0 + (site.at - segment.range.start.0)).ok();
        let place = from.and_then(|from| bytes.get_mut(from..from + site.new.len()));
        if let Some(place) = place.filter(|place| **place == site.old) {
            place.copy_from_slice(&site.new);
        }
    }
    bytes
}

/// Puts the call that asks at each of `sites`: in old code that stays, and in new code, `text` from `text_at`
/// on, where their blocks have `moved`.
pub(crate) fn ask_at(
    sites: &[ExecSite],
    moved: &[(Va, Va)],
    patches: &mut Vec<Patch>,
    text_at: Va,
    text: &mut [u8],
) {
    let offset = |at: Va| usize::try_from(at.since(text_at)).expect("within the text");
    for site in sites {
        let range = site.at..site.at + site.old.len() as u64;
        let is_apart = |p: &Patch| p.at.0 >= range.end || p.at.0 + p.new.len() as u64 <= range.start;
        if patches.iter().all(is_apart) {
            patches.push(Patch { at: Va(site.at), old: site.old.clone(), new: site.new.clone() });
        }
        let n = moved.partition_point(|m| m.0.0 <= site.at);
        let Some(&(_, from)) = n.checked_sub(1).and_then(|n| moved.get(n)) else { continue };
        // Up to whatever block follows there.
        let end = moved.iter().map(|m| m.1).filter(|at| *at > from).min().map_or(text.len(), offset);
        let Some(code) = text.get_mut(offset(from)..end) else { continue };
        if let Some(at) = code.windows(site.old.len()).position(|w| w == site.old)
            && let Some(place) = code.get_mut(at..at + site.new.len())
        {
            place.copy_from_slice(&site.new);
        }
    }
    patches.sort_by_key(|p| p.at);
}

/// What a process is given in which a module is to run moved: the new segments and what changes in the old
/// ones.
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
    /// Where its old segments are.
    pub old: Range<u64>,
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
    /// Changes of the old segments, by address.
    pub patches: Vec<Patch>,
}

/// From the first of the old segments to the end of the last.
pub(crate) fn old_segments(program: &Program) -> Range<Va> {
    let segments = &program.image.segments;
    let end = segments.iter().map(|s| s.range.end).max();
    segments.first().map_or(Va(0), |s| s.range.start)..end.unwrap_or(Va(0))
}
