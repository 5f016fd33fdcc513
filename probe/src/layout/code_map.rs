//! Which code is where: old and new address of every instruction, both ways; and how far control has come in
//! a function that is at some new address.
//!
//! An instruction that code of ours stands in front of has two new addresses: that of our code, where whoever
//! goes to the instruction goes, and its own, where a thread may be.

use crate::code::Target;
use crate::layout::piece::Piece;
use crate::layout::place::Placement;
use program::{BlockId, Program, Va};
use std::ops::Range;

/// Where the old code of a module is now.
#[derive(Clone, Debug, Default)]
pub struct CodeMap {
    /// Old starts of moved blocks, and where they are now. By old address.
    pub blocks: Vec<(Va, Va)>,
    /// How far control has come, from these offsets in the new code on; ascending.
    pub reached: Vec<(u32, Reached)>,
    /// The direct calls, ascending, of stubs that are not moved: it is known of each whether control is
    /// behind it.
    pub stub_calls: Vec<Va>,
    /// Ranges of code, by old address, which is the order of the new ones, too.
    ranges: Vec<Moved>,
}

/// A range of a function, and where it is now.
#[derive(Clone, Debug)]
struct Moved {
    old: Range<Va>,
    new: Range<Va>,
    /// Offsets in both: where runs of unchanged distance start. Ascending in both.
    runs: Vec<(u32, u32)>,
    /// New offsets of instructions that code of ours stands in front of. Ascending.
    behind_ours: Vec<u32>,
}

impl CodeMap {
    /// That of the `pieces` that are `placed`.
    pub fn new(
        moved: Vec<(Va, Va)>,
        reached: Vec<(u32, Reached)>,
        stub_calls: Vec<Va>,
        pieces: Vec<Piece>,
        placed: &[Va],
    ) -> CodeMap {
        let range = |(piece, &at): (Piece, &Va)| Moved {
            new: at..at.plus(piece.bytes.len() as u64),
            old: piece.range,
            runs: piece.runs,
            behind_ours: piece.behind_ours,
        };
        let ranges = pieces.into_iter().zip(placed).map(range).collect();
        CodeMap { blocks: moved, reached, stub_calls, ranges }
    }

    /// The ranges of moved code: old, and new.
    pub fn ranges(&self) -> impl Iterator<Item = (&Range<Va>, &Range<Va>)> {
        self.ranges.iter().map(|m| (&m.old, &m.new))
    }

    /// Where the instruction that was at `old` is now, with the code of ours that stands in front of it;
    /// `None` if it is not moved.
    pub fn new_of(&self, old: Va) -> Option<Va> {
        let i = self.ranges.partition_point(|m| m.old.end <= old);
        let moved = self.ranges.get(i).filter(|m| m.old.contains(&old))?;
        let offset = u32::try_from(old.since(moved.old.start)).ok()?;
        let run = moved.runs.partition_point(|r| r.0 <= offset);
        let &(from, to) = moved.runs.get(run.checked_sub(1)?)?;
        let next = moved.runs.get(run).map_or(u32::MAX, |r| r.1);
        Some(moved.new.start.plus(u64::from((to + (offset - from)).min(next))))
    }

    /// Where the instruction that was at `old` is itself, behind code of ours.
    pub fn own_of(&self, old: Va) -> Option<Va> {
        let way_in = self.new_of(old)?;
        let i = self.ranges.partition_point(|m| m.old.end <= old);
        let moved = self.ranges.get(i)?;
        let offset = |at: Va| u32::try_from(at.since(moved.new.start)).ok();
        // The next run starts one byte further on.
        let next = match old.plus(1) {
            next if moved.old.contains(&next) => self.new_of(next)?,
            _ => moved.new.end,
        };
        let own = Va(next.0.checked_sub(1)?);
        let is_behind_ours = moved.behind_ours.binary_search(&offset(own)?).is_ok();
        Some(if is_behind_ours && own >= way_in { own } else { way_in })
    }

    /// The old address of the instruction of `program` that is at `new`, or that the code of ours which
    /// starts there stands in front of; `None` if no instruction starts there.
    pub fn old_of(&self, program: &Program, new: Va) -> Option<Va> {
        let i = self.ranges.partition_point(|m| m.new.end <= new);
        let moved = self.ranges.get(i).filter(|m| m.new.contains(&new))?;
        let offset = u32::try_from(new.since(moved.new.start)).ok()?;
        let n = moved.runs.partition_point(|r| r.1 <= offset);
        let next = moved.runs.get(n).map(|r| r.0);
        let old = match moved.behind_ours.binary_search(&offset) {
            // The next run starts one byte further on.
            Ok(_) => next?.checked_sub(1)?,
            Err(_) => {
                let &(from, to) = moved.runs.get(n.checked_sub(1)?)?;
                Some(from + (offset - to)).filter(|at| next.is_none_or(|next| *at < next))?
            }
        };
        let old = moved.old.start.plus(u64::from(old));
        let block = program.block_at(old)?;
        program.insns(block).any(|insn| insn.at() == old).then_some(old)
    }

    /// The old address of the instruction of `program` that ends at `new`: of the call that comes back there.
    /// `None` if none does, or it is not moved.
    pub fn insn_before(&self, program: &Program, new: Va) -> Option<Va> {
        let last = Va(new.0.checked_sub(1)?);
        let i = self.ranges.partition_point(|m| m.new.end <= last);
        let moved = self.ranges.get(i).filter(|m| m.new.contains(&last))?;
        let offset = u32::try_from(last.since(moved.new.start)).ok()?;
        let n = moved.runs.partition_point(|r| r.1 <= offset);
        let &(from, to) = moved.runs.get(n.checked_sub(1)?)?;
        // It may be longer than it was.
        let most = moved.runs.get(n).map_or(u32::MAX, |next| next.0.saturating_sub(1));
        let within = moved.old.start.plus(u64::from((from + (offset - to)).min(most)));
        let block = program.block_at(within)?;
        program.insns(block).map(|insn| insn.at()).take_while(|at| *at <= within).last()
    }
}

/// How far control has come in moved code, from some offset on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reached {
    /// That of the block, whose counter, if it has one, is not incremented yet.
    Block(BlockId),
    /// That of the block, behind the code of its edge that is taken.
    Behind(BlockId),
    /// That of the block, behind another of the calls of [`CodeMap::stub_calls`].
    Called(BlockId),
    /// What stands behind the increment of this counter.
    Counted(u32),
    /// Nothing of a function.
    Nothing,
}

/// How far control has come, by offset in the moved code.
pub fn reached(program: &Program, placement: &Placement<'_>) -> Vec<(u32, Reached)> {
    let (placed, text_at) = (&placement.pieces, placement.text.start);
    let n_blocks: usize = placed.iter().map(|p| p.piece.blocks.len()).sum();
    let mut all = Vec::with_capacity(2 * n_blocks + placed.len());
    let mut counted: Vec<(u32, u32)> = Vec::new();
    // Per counter: where it is written in this piece.
    let mut written: Vec<u32> = Vec::new();
    for p in placed {
        let base = u32::try_from(p.at.since(text_at)).expect("a module spans less than 2 GiB");
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
        let mut up_to = |at: u32, all: &mut Vec<(u32, Reached)>| loop {
            let end = counted.peek().map_or(u32::MAX, |c| c.0);
            if let Some(&(old, at)) = behind.next_if(|b| b.1 <= at && b.1 < end) {
                all.extend(block(old).map(|&b| (base + at, Reached::Behind(b))));
            } else if let Some(&(old, at)) = called.next_if(|c| c.1 <= at && c.1 < end) {
                all.extend(block(old).map(|&b| (base + at, Reached::Called(b))));
            } else if let Some(&(end, n)) = counted.next_if(|c| c.0 <= at) {
                all.push((base + end, Reached::Counted(n)));
            } else {
                break;
            }
        };
        for (&(_, at), &b) in p.piece.blocks.iter().zip(ids) {
            up_to(at, &mut all);
            all.push((base + at, Reached::Block(b)));
        }
        up_to(u32::MAX, &mut all);
        let end = u32::try_from(p.piece.bytes.len()).expect("pieces are below 2 GiB");
        all.push((base + end, Reached::Nothing));
    }
    all
}

#[cfg(test)]
mod tests;
