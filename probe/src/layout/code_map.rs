//! Which block's moved code stands where, and what has been counted there: so that it can be said where in
//! its flow a function was left.

use crate::code::Target;
use crate::layout::place::Placed;
use program::{BlockId, Program, Va};

/// What moved code is from some place on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// That of the block, whose counter, if it has one, is not incremented yet.
    Block(BlockId),
    /// That of the block, behind the code of its edge that is taken.
    Behind(BlockId),
    /// That of the block, behind another of the calls of [`crate::Module::stub_calls`].
    Called(BlockId),
    /// What stands behind the increment of this counter.
    Counted(u32),
    /// Nothing of a function.
    Nothing,
}

/// What is where in the moved code, which starts at `text_at`.
pub fn places(program: &Program, placed: &[Placed<'_>], text_at: Va) -> Vec<(u32, Place)> {
    let n_blocks: usize = placed.iter().map(|p| p.piece.blocks.len()).sum();
    let mut all = Vec::with_capacity(2 * n_blocks + placed.len());
    let mut counted: Vec<(u32, u32)> = Vec::new();
    // Per counter: where it is written in this piece.
    let mut written: Vec<u32> = Vec::new();
    for p in placed {
        let base = u32::try_from(p.at.since(text_at)).expect("checked above");
        let ids = program.blocks_in(&p.piece.range);
        counted.clear();
        for fixup in &p.piece.fixups {
            if let Target::Counter(n) = fixup.to {
                counted.push((fixup.end, n));
                if n as usize >= written.len() {
                    written.resize(n as usize + 1, 0);
                }
                written[n as usize] = 0;
            }
        }
        // The last of the places where a counter is named is where it is written.
        for &(end, n) in &counted {
            written[n as usize] = written[n as usize].max(end);
        }
        counted.retain(|&(end, n)| written[n as usize] == end);
        counted.sort_by_key(|c| c.0);
        let block = |old| p.piece.blocks.binary_search_by_key(&old, |b| b.0).ok().and_then(|i| ids.get(i));
        let mut counted = counted.iter().peekable();
        let mut behind = p.piece.behind_taken.iter().peekable();
        let mut called = p.piece.behind_calls.iter().peekable();
        // Of those at one place, what a block or what stands behind an edge's code says comes last, and
        // holds.
        let mut up_to = |at: u32, all: &mut Vec<(u32, Place)>| loop {
            let end = counted.peek().map_or(u32::MAX, |c| c.0);
            if let Some(&(old, at)) = behind.next_if(|b| b.1 <= at && b.1 < end) {
                all.extend(block(old).map(|&b| (base + at, Place::Behind(b))));
            } else if let Some(&(old, at)) = called.next_if(|c| c.1 <= at && c.1 < end) {
                all.extend(block(old).map(|&b| (base + at, Place::Called(b))));
            } else if let Some(&(end, n)) = counted.next_if(|c| c.0 <= at) {
                all.push((base + end, Place::Counted(n)));
            } else {
                break;
            }
        };
        for (&(_, at), &b) in p.piece.blocks.iter().zip(ids) {
            up_to(at, &mut all);
            all.push((base + at, Place::Block(b)));
        }
        up_to(u32::MAX, &mut all);
        let end = u32::try_from(p.piece.bytes.len()).expect("pieces are below 2 GiB");
        all.push((base + end, Place::Nothing));
    }
    all
}
