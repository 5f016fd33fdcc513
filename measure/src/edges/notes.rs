//! What the counters of one image mean.
//!
//! ```text
//! notes    = magic version kind profile ends_are_taken: byte, functions (`Flows`), n: varint, sum*, n:
//!            varint, watch*, positions: bytes (`positions`), callees (`indirect_calls`; of kind 'V' only),
//!            checksum
//! profile  = bytes: a `.engraft` file of kind 'P' without counts, for the image
//! sum      = address: signed varint from the one before, n: varint, (position of a block, calls before:
//!            varint)*, twice n: varint, varint* (positions of blocks whose ways out count;
//!            counters)
//! watch    = what words behind the counters keep (`kept`)
//! ```
//! Counters are numbered as they come: a function's blocks, then its ways. What has none follows by
//! conservation of flow.
//!
//! Not here: what follows from the counters (`solve`, `complete`).
#![warn(clippy::indexing_slicing)]

mod flows;

pub use flows::{Flow, Flows};

use super::indirect_calls::Callees;
use crate::kept::Watch;
use profile::encoding::{Cursor, MAGIC, VERSION, put_bytes, unzigzag, varint, zigzag};
use profile::{ImageRef, Profile, ReadError, engraft};
use program::Va;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

/// What the counters of one image mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notes {
    /// The image.
    pub image: ImageRef,
    /// Whether a signal handler may end the process, and nothing say so.
    pub ends_are_taken: bool,
    /// The functions that are counted. Their counters come one after the other.
    pub functions: Flows,
    /// Functions of one block that have no counter, and what their calls are.
    pub sums: Vec<Sum>,
    /// Words behind the counters, which keep other things.
    pub watches: Vec<Watch>,
    /// Where moved code belongs to in the flow (`positions`).
    pub positions: Vec<u8>,
    /// Indirect calls whose targets are counted.
    pub callees: Option<Callees>,
}

/// A function of one block that has no counter: it ran as often as all of these together. Blocks go by their
/// position among all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// The function.
    pub at: Va,
    /// Blocks that call it: control comes to the call whenever it comes to the block, but where a handler
    /// leaves that before. And how many calls whose places are known are made in the block before.
    pub blocks: Vec<(u32, u32)>,
    /// Blocks that call it behind a call that may not come back: whoever comes to it leaves the block along a
    /// way.
    pub left: Vec<u32>,
    /// Counters of calls.
    pub counters: Vec<u32>,
}

/// The flow of a function: which of its counts are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionFlow {
    /// Its entry.
    pub entry: Va,
    /// Whether all edges are here, so that their counts follow, too. Else only those of blocks hold, and what
    /// entered them.
    pub is_whole: bool,
    /// Its blocks, by address; those of cold parts may come first.
    pub blocks: Vec<Node>,
}

/// A block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its start.
    pub start: Va,
    /// Whether it has a counter.
    pub is_counted: bool,
    /// Whether control may come to it from outside: calls, jumps of other functions, exceptions.
    pub enters: bool,
    /// Whether control may leave the function in it: returns, jumps out of it, calls that do not come back.
    pub leaves: bool,
    /// Where control goes from it.
    pub ways: SmallVec<[Way; 2]>,
}

/// An edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The block that it leads to, by position.
    pub to: u32,
    /// Whether it has a counter.
    pub is_counted: bool,
}

impl FunctionFlow {
    /// How many counters it has.
    pub fn n_counters(&self) -> usize {
        let ways = self.blocks.iter().map(|b| b.ways.iter().filter(|w| w.is_counted).count());
        self.blocks.iter().filter(|b| b.is_counted).count() + ways.sum::<usize>()
    }

    /// The block that it starts with, by position.
    pub(super) fn entry_block(&self) -> Option<usize> {
        self.blocks.iter().position(|node| node.start == self.entry)
    }
}

impl Notes {
    /// How many counters there are.
    pub fn n_counters(&self) -> usize {
        let of_calls = self.sums.iter().map(|sum| sum.counters.len()).sum::<usize>();
        self.functions.n_counters() + of_calls
    }

    /// How many words an area has of what is counted: all counters, and those of indirect calls.
    pub fn n_words(&self) -> usize {
        let end = |c: &Callees| {
            usize::try_from(u64::from(c.first).saturating_add(c.n_words())).unwrap_or(usize::MAX)
        };
        self.callees.as_ref().map_or(0, end).max(self.n_counters())
    }

    /// Writes them.
    pub fn write(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([VERSION, if self.callees.is_some() { KIND_WITH_CALLEES } else { KIND }]);
        let empty = Profile { image: self.image.clone(), ..Profile::default() };
        put_bytes(&mut out, &engraft::write(&empty).bytes);
        out.push(u8::from(self.ends_are_taken));
        let mut before = Va(0);
        let mut address = |out: &mut Vec<u8>, at: Va| {
            varint(out, zigzag(at.since(before).cast_signed()));
            before = at;
        };
        self.functions.write(&mut out);
        varint(&mut out, self.sums.len() as u64);
        for sum in &self.sums {
            address(&mut out, sum.at);
            varint(&mut out, sum.blocks.len() as u64);
            sum.blocks.iter().flat_map(|&(n, k)| [n, k]).for_each(|n| varint(&mut out, u64::from(n)));
            for all in [&sum.left, &sum.counters] {
                varint(&mut out, all.len() as u64);
                all.iter().for_each(|&n| varint(&mut out, u64::from(n)));
            }
        }
        varint(&mut out, self.watches.len() as u64);
        self.watches.iter().for_each(|watch| watch.write(&mut out));
        put_bytes(&mut out, &self.positions);
        if let Some(callees) = &self.callees {
            callees.write(&mut out);
        }
        let sum = xxh3_64(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if they are cut off, changed, or of a version that we do not know.
    pub fn parse(file: &[u8]) -> Result<Notes, ReadError> {
        let kind = file.get(MAGIC.len() + 1).copied().unwrap_or(KIND);
        let (is_old, has_callees) = match kind {
            OLD_KIND => (true, false),
            OLD_KIND_WITH_CALLEES => (true, true),
            _ => (false, kind == KIND_WITH_CALLEES),
        };
        let is_known = is_old || has_callees || kind == KIND;
        let kind = if is_known { kind } else { KIND };
        let mut c = Cursor::open(file, kind, "these are no notes that we know")?;
        let image = engraft::parse(c.bytes()?)?.image;
        let ends_are_taken = c.varint()? == 1;
        let mut before = Va(0);
        let address = |c: &mut Cursor<'_>, before: &mut Va| -> Result<Va, ReadError> {
            *before = before.plus(unzigzag(c.varint()?).cast_unsigned());
            Ok(*before)
        };
        let word = |c: &mut Cursor<'_>| Ok(u32::try_from(c.varint()?).unwrap_or(u32::MAX));
        let functions = match is_old {
            true => Flows::parse_old(&mut c, &mut before)?,
            false => Flows::parse(&mut c)?,
        };
        let mut sums = Vec::new();
        for _ in 0..c.varint()? {
            let at = address(&mut c, &mut before)?;
            let n_blocks = c.varint()?;
            let blocks = (0..n_blocks).map(|_| Ok((word(&mut c)?, word(&mut c)?)));
            let blocks = blocks.collect::<Result<_, ReadError>>()?;
            let mut numbers = || -> Result<Vec<u32>, ReadError> {
                let n = c.varint()?;
                (0..n).map(|_| word(&mut c)).collect()
            };
            let (left, counters) = (numbers()?, numbers()?);
            sums.push(Sum { at, blocks, left, counters });
        }
        let n_watches = c.varint()?;
        let watches = (0..n_watches).map(|_| Watch::parse(&mut c)).collect::<Result<_, _>>()?;
        let positions = c.bytes()?.to_vec();
        let callees = has_callees.then(|| Callees::parse(&mut c)).transpose()?;
        Ok(Notes { image, ends_are_taken, functions, sums, watches, positions, callees })
    }
}

/// What kind of `.engraft` file notes are; those of 'F' to 'O' came before, of
/// which the last two are read.
const KIND: u8 = b'U';
/// The kind of those that speak of indirect calls, too.
const KIND_WITH_CALLEES: u8 = b'V';
const OLD_KIND: u8 = b'M';
const OLD_KIND_WITH_CALLEES: u8 = b'O';

#[cfg(test)]
mod tests;
