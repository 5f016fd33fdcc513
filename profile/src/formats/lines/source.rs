//! Counts by source line: what the formats that speak of lines have in common.
//!
//! A line runs as often as the block of it that ran most. Back from lines to blocks, a block runs as often as
//! the line of it that ran least: what is written, read and written again is the same.

use crate::counts::Profile;
use crate::losses::Losses;
use program::{BlockId, Frame, Lines, Program};

/// Where the instructions of a block came from.
pub(crate) struct BlockSource {
    /// For each instruction its frames, the innermost first; empty where nothing is known.
    pub insns: Vec<Vec<Frame>>,
}

impl BlockSource {
    pub fn of(program: &Program, lines: Option<&Lines>, block: BlockId) -> BlockSource {
        let frames = |at| lines.map(|l| l.frames(at)).unwrap_or_default();
        BlockSource { insns: program.insns(block).map(|i| frames(i.at())).collect() }
    }
}

/// The blocks that have counts, by address. Counts of what is none of the program's blocks are lost.
pub(crate) fn counted_blocks(profile: &Profile, program: &Program, lost: &mut Losses) -> Vec<(BlockId, u64)> {
    let mut found = Vec::with_capacity(profile.blocks.len());
    for (&at, &n) in &profile.blocks {
        match program.block_from(at) {
            Some(id) => found.push((id, n)),
            None => lost.add(&at.to_string(), "the program has no such block", n),
        }
    }
    found
}
