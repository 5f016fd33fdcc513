//! One range of a function, laid out anew: its blocks in their old order, probes in front of them.
//!
//! ```text
//!  old  401130: cmp; jne 401150     new  inc gs:[rip+c0]; cmp; jne L1
//!       401136: ...                      inc gs:[rip+c1]; ...
//! ```
//! A piece is laid out without knowing where it will stand: branches within it are as short as they can be,
//! all others have four bytes of offset, filled in when every piece has its place (`Fixup`).
//!
//! Invariant: blocks keep their order; after the last instruction of a block control goes where it went;
//! padding between blocks is left out, but a block that was aligned stays so.

mod draft;

use crate::arch::emit::{self, Stack};
use crate::code::{Fixup, Insert, Side};
use crate::inserts::Spot;
use crate::layout::relax::{Aim, len32};
use crate::lower::Lowered;
use crate::select::{Selection, plt};
use draft::Draft;
use program::arch::{Branch, PositionDependence};
use program::arch::{ControlFlow, Decoder, LOCK, Quick};
use program::{Block, BlockEnd, BlockId, EdgeKind, FuncId, Program, Va};
use rayon::prelude::*;
use std::ops::Range;

/// A range of a function, laid out.
pub struct Piece {
    /// The old code.
    pub range: Range<Va>,
    /// The new code.
    pub bytes: Vec<u8>,
    /// What depends on its place.
    pub fixups: Vec<Fixup>,
    /// Old offset from the range's start, new offset: where runs of unchanged distance start. Ascending in
    /// both.
    pub runs: Vec<(u32, u32)>,
    /// New offsets of instructions that code of ours stands in front of. Ascending.
    pub behind_ours: Vec<u32>,
    /// New offset of each block, in order, with its old start.
    pub blocks: Vec<(Va, u32)>,
    /// New offset of what stands behind the code of an edge that is taken, with the old start of its block.
    /// Ascending.
    pub behind_taken: Vec<(Va, u32)>,
    /// New offset of what stands behind a call that comes as from inside, with the old start of its block.
    /// Ascending.
    pub behind_calls: Vec<(Va, u32)>,
    /// Code in front of blocks, for some who go there: old start, whom it is for, new offset.
    pub sides: Vec<(Va, Side, u32)>,
    /// Where code of ours moves the stack pointer: new offset of the next instruction, and where the stack is
    /// from there on.
    pub stack: Vec<(u32, Stack)>,
    /// What its place must be a multiple of.
    pub align: u32,
}

impl Piece {
    /// Offset in the piece of the block that was at `at`; without the code in front of it.
    pub fn block_at(&self, at: Va) -> Option<u32> {
        self.blocks.binary_search_by_key(&at, |b| b.0).ok().and_then(|i| self.blocks.get(i)).map(|b| b.1)
    }

    /// The old start of the block that has `at`, or is the last one before it.
    pub fn block_with(&self, at: Va) -> Option<Va> {
        let i = self.blocks.partition_point(|b| b.0 <= at);
        self.blocks.get(i.checked_sub(1)?).map(|b| b.0)
    }

    /// Offset in the piece of what was at `at`, which lies in its range or at its end.
    pub fn offset_of(&self, at: Va) -> u32 {
        if at >= self.range.end {
            return u32::try_from(self.bytes.len()).expect("pieces are below 2 GiB");
        }
        let old = u32::try_from(at.since(self.range.start)).expect("ranges are below 2 GiB");
        let i = self.runs.partition_point(|r| r.0 <= old);
        let Some(&(from, to)) = self.runs.get(i.wrapping_sub(1)) else { return 0 };
        let next = self.runs.get(i).map_or(u32::MAX, |r| r.1);
        (to + (old - from)).min(next)
    }
}

/// The pieces of all functions that are moved, by old address, with what is put into them.
pub fn pieces(program: &Program, selection: &Selection, lowered: &Lowered) -> Vec<Piece> {
    let is_moved = |id: &FuncId| selection.not_moved.get(id.index()).is_some_and(Option::is_none);
    let moved = program.func_ids().filter(is_moved);
    let mut ranges: Vec<Range<Va>> = moved.flat_map(|id| plt::ranges(program, id)).collect();
    ranges.sort_by_key(|r| r.start);
    let one = |room: &mut Draft, range: &Range<Va>| lay_out(program, range, lowered, room);
    ranges.par_iter().map_init(Draft::default, one).collect()
}

/// Lays out `range` of a function; `draft` is room.
fn lay_out(program: &Program, range: &Range<Va>, lowered: &Lowered, draft: &mut Draft) -> Piece {
    let blocks = program.blocks_in(range);
    draft.clear(blocks.iter().map(|&b| program.block(b).start));
    let code = program.image.bytes_from(range.start).unwrap_or_default();
    let decoder = Decoder::new(code, range.start);
    let mut walk = Walk { program, lowered, range, code, decoder, draft };
    let mut piece_align = 16;
    let mut last_end = range.start;
    let mut runs_on = false;
    for (i, &id) in blocks.iter().enumerate() {
        let block = program.block(id);
        let natural = 1u32 << block.start.0.trailing_zeros().min(6);
        let is_padded = block.start != last_end || i == 0;
        let align = if is_padded && natural >= 16 { natural } else { 1 };
        piece_align = piece_align.max(align);
        runs_on = walk.block(i, id, align, runs_on);
        last_end = block.end_va();
    }
    draft.finish(program, range, blocks, code, piece_align)
}

/// A range, while its blocks are laid out one after another.
struct Walk<'a> {
    program: &'a Program,
    lowered: &'a Lowered,
    range: &'a Range<Va>,
    /// The old bytes, from the start of the range on.
    code: &'a [u8],
    decoder: Decoder<'a>,
    draft: &'a mut Draft,
}

/// What is put at `spot`, among `inserts` of the block.
fn code_at(inserts: &[(Spot, Insert)], spot: Spot) -> Option<&Insert> {
    inserts.iter().find(|m| m.0 == spot).map(|m| &m.1)
}

impl Walk<'_> {
    /// Lays out block `i`, with what is put into it; whether control `runs_on` to it from the block before,
    /// and from it to the next one.
    fn block(&mut self, i: usize, id: BlockId, align: u32, runs_on: bool) -> bool {
        let (program, lowered) = (self.program, self.lowered);
        let all = lowered.inserts.in_block(id);
        let (fronts, inner) = all.split_at(all.partition_point(|m| m.0.is_in_front()));
        let block = program.block(id);
        self.fronts(i, block.start, fronts, align, runs_on);
        self.draft.block(i, align);
        self.draft.run(self.offset32(block.start));
        self.instructions(id, inner);
        if let Some(code) = code_at(inner, Spot::Through) {
            self.draft.run(self.offset32(block.end_va()));
            self.draft.insert_from(block.start, code);
        }
        let falls_to = falls_to(program, id);
        let runs_on = falls_to.is_some_and(|to| self.draft.block_from(to) == Some(i + 1));
        if let Some(to) = falls_to.filter(|_| !runs_on) {
            self.draft.branch(Branch::Jump, self.aim(to));
        }
        for (spot, code) in inner {
            if let Spot::Table(to) = *spot {
                self.draft.side(to, Side::Table(block.last_insn()));
                self.draft.insert(code);
                self.draft.branch(Branch::Jump, self.aim(to));
            }
        }
        runs_on
    }

    /// What stands in front of block `i`, which was at `start`, for some who go there.
    fn fronts(&mut self, i: usize, start: Va, fronts: &[(Spot, Insert)], align: u32, mut runs_on: bool) {
        if i == 0 {
            // So that nobody runs through padding between them and the block.
            let len: usize = fronts.iter().map(|(_, code)| code.len()).sum();
            self.draft.pad(len.next_multiple_of(align as usize) - len);
        }
        for (spot, code) in fronts {
            if runs_on {
                self.draft.branch(Branch::Jump, Aim::Here(i));
            }
            self.draft.run(self.offset32(start));
            match spot {
                Spot::Pad(from) => self.draft.side(start, Side::Pad(*from)),
                Spot::Checked => self.draft.side(start, Side::Checked),
                Spot::Outside => self.draft.side(start, Side::Outside),
                _ => {}
            }
            self.draft.insert(code);
            // What was checked goes on into what is put there for all from outside.
            runs_on = matches!(spot, Spot::Pad(_) | Spot::Outside);
        }
    }

    /// The instructions of a block, with what is put at them: those of `inserts` that are not in front of it,
    /// and the increment of its counter.
    fn instructions(&mut self, id: BlockId, inserts: &[(Spot, Insert)]) {
        let block = self.program.block(id);
        let probe = self.lowered.block_counters.probe(self.program, id);
        let probe_at = probe.as_ref().map(|p| p.at);
        // At calls alone there may be something to do.
        let is_plain = inserts.iter().all(|m| matches!(m.0, Spot::FromInside(_)));
        self.decoder.seek(block.start).expect("a block of the range");
        // Old code from here on is not laid out yet.
        let mut plain = self.offset(block.start);
        while self.decoder.at() < block.end_va() {
            let at = self.decoder.at();
            let quick = self.decoder.quick();
            if let Some(quick) = &quick
                && quick.flow == ControlFlow::Next
                && !quick.is_relative
                && is_plain
                && probe_at != Some(at)
            {
                self.decoder.pass(quick);
                continue;
            }
            let from = self.offset(at);
            self.draft.old(plain..from);
            let Some((position, is_call)) = self.decode(at, quick) else { break };
            plain = self.offset(self.decoder.at());
            if let Some(probe) = probe.as_ref().filter(|probe| probe.at == at) {
                self.draft.increment(probe.how, probe.counter);
                self.draft.run_behind_ours(self.offset32(at));
            }
            if let Some(code) = code_at(inserts, Spot::Before(at)) {
                self.draft.insert_from(block.start, code);
                self.draft.run_behind_ours(self.offset32(at));
            }
            self.instruction(block, at, position, inserts);
            self.behind(block, at, is_call, inserts);
        }
        self.draft.old(plain..self.offset(self.decoder.at()));
    }

    /// Decodes the instruction at `at`, which is passed: what of it depends on its place, and whether it
    /// calls.
    fn decode(&mut self, at: Va, quick: Option<Quick>) -> Option<(PositionDependence, bool)> {
        let from = self.offset(at);
        let (position, is_call) = match quick {
            Some(quick) => {
                self.decoder.pass(&quick);
                let own = self.code.get(from..self.offset(self.decoder.at())).unwrap_or_default();
                (quick.position(at, own), matches!(quick.flow, ControlFlow::Call(_)))
            }
            None => {
                let insn = self.decoder.next()?;
                let own = self.code.get(from..self.offset(self.decoder.at())).unwrap_or_default();
                let is_call = matches!(insn.flow(), ControlFlow::Call(_) | ControlFlow::CallIndirect);
                (self.decoder.position_of(&insn, own), is_call)
            }
        };
        // Past the `lock` of an instruction: with it, it does the same.
        let is_lock = |at: Va| self.offset(at).checked_sub(1).and_then(|n| self.code.get(n)) == Some(&LOCK);
        let position = match position {
            PositionDependence::Branch(branch, to) if self.range.contains(&to) && is_lock(to) => {
                PositionDependence::Branch(branch, self.program.led_to(to))
            }
            other => other,
        };
        Some((position, is_call))
    }

    /// The instruction of `block` at `at`, which was decoded last.
    fn instruction(
        &mut self,
        block: &Block,
        at: Va,
        position: PositionDependence,
        inserts: &[(Spot, Insert)],
    ) {
        let (from, to) = (self.offset(at), self.offset(self.decoder.at()));
        match position {
            PositionDependence::Branch(branch, target)
                if branch != Branch::Call
                    && self.decoder.at() == block.end_va()
                    && let Some(code) = code_at(inserts, Spot::Taken) =>
            {
                self.taken(block, branch, target, code);
            }
            PositionDependence::Branch(branch, target) => {
                let is_inside = branch == Branch::Call && code_at(inserts, Spot::FromInside(at)).is_some();
                let aim = match branch {
                    Branch::Call if is_inside => Aim::Inside(target),
                    Branch::Call => Aim::There(target),
                    _ => self.aim(target),
                };
                self.draft.branch(branch, aim);
                if is_inside {
                    self.draft.behind_call(block.start);
                }
                self.draft.run(self.offset32(self.decoder.at()));
            }
            PositionDependence::Displacement(offset, place) => {
                self.draft.old_with_distance(from..to, from + usize::from(offset), place);
            }
            PositionDependence::Independent | PositionDependence::Fixed => self.draft.old(from..to),
        }
    }

    /// The last branch of `block`, with `code` on its edge that is taken: around the code if it is not, to
    /// what stands behind the block.
    fn taken(&mut self, block: &Block, branch: Branch, target: Va, code: &Insert) {
        let (taken, on) = (self.draft.new_label(), self.draft.new_label());
        match emit::inverted(branch) {
            Some(inverted) => self.draft.branch(inverted, Aim::Here(on)),
            None => {
                self.draft.branch(branch, Aim::Here(taken));
                self.draft.branch(Branch::Jump, Aim::Here(on));
            }
        }
        self.draft.label(taken);
        self.draft.insert_from(block.start, code);
        self.draft.branch(Branch::Jump, self.aim(target));
        self.draft.label(on);
        self.draft.behind_taken(block.start, on);
    }

    /// What stands behind the instruction at `at`, which was laid out last.
    fn behind(&mut self, block: &Block, at: Va, is_call: bool, inserts: &[(Spot, Insert)]) {
        let next = self.decoder.at();
        let after = code_at(inserts, Spot::After(at));
        if after.is_some() {
            // What the instruction did to the stack is done.
            self.draft.run(self.offset32(next));
        }
        let may_be_child = is_call && self.lowered.fork_calls.binary_search(&at).is_ok();
        if may_be_child {
            self.draft.owner_check(self.lowered.entries.by_base);
        }
        if let Some(code) = after {
            self.draft.insert(code);
        }
        if (may_be_child || after.is_some()) && next < block.end_va() {
            self.draft.run_behind_ours(self.offset32(next));
        }
    }

    /// The offset in the range of what was at `at`.
    fn offset(&self, at: Va) -> usize {
        usize::try_from(at.since(self.range.start)).expect("ranges are below 2 GiB")
    }

    fn offset32(&self, at: Va) -> u32 {
        len32(self.offset(at))
    }

    fn aim(&self, to: Va) -> Aim {
        self.draft.block_from(to).map_or(Aim::There(to), Aim::Here)
    }
}

/// Where control goes at the end of `block` without a branch.
fn falls_to(program: &Program, id: BlockId) -> Option<Va> {
    let block = program.block(id);
    match block.end {
        BlockEnd::FallThrough | BlockEnd::Branch => {
            let next = program.successors(id).iter().find(|e| e.kind == EdgeKind::FallThrough);
            Some(next.map_or(block.end_va(), |e| program.block(e.to).start))
        }
        // Should it return after all, it finds what it found before.
        BlockEnd::NoReturn => Some(block.end_va()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
