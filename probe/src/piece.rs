//! One range of a function, laid out anew: its blocks in their old order, probes in front of them.
//!
//! ```text
//!  old  401130: cmp; jne 401150     new  inc gs:[rip+c0]; cmp; jne L1
//!       401136: ...                      inc gs:[rip+c1]; ...
//! ```
//! A piece is laid out without knowing where it will stand: branches within it are as short as they can be, all others
//! have four bytes of offset, filled in when every piece has its place (`Fixup`).
//!
//! Invariant: blocks keep their order; after the last instruction of a block control goes where it went; padding between blocks is
//! left out, but a block that was aligned stays so.

use crate::counters::Probe;
use program::arch::Decoder;
use program::arch::emit::{self, Branch, Position};
use program::{BlockEnd, BlockId, CallKind, Callee, EdgeKind, Program, Va};
use std::ops::Range;

/// Four bytes that hold a distance, to be filled in.
#[derive(Clone, Copy, Debug)]
pub struct Fixup {
    /// Their offset in the piece.
    pub at: u32,
    /// Offset of the end of the instruction: distances count from there.
    pub end: u32,
    /// Where to.
    pub to: Target,
}

/// What a distance leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Code at this old address: its moved copy, if it was moved.
    Code(Va),
    /// This address, whatever is there.
    Place(Va),
    /// This counter.
    Counter(u32),
    /// The word that names the owner of the counters.
    Owner,
    /// Where a thread goes that is not their owner.
    Slow,
}

/// A range of a function, laid out.
pub struct Piece {
    /// The old code.
    pub range: Range<Va>,
    /// The new code.
    pub bytes: Vec<u8>,
    /// What depends on its place.
    pub fixups: Vec<Fixup>,
    /// Old offset from the range's start, new offset: where runs of unchanged distance start. Ascending in both.
    pub runs: Vec<(u32, u32)>,
    /// New offset of each block, in order, with its old start.
    pub blocks: Vec<(Va, u32)>,
    /// What its place must be a multiple of.
    pub align: u32,
}

impl Piece {
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

/// Something to be laid out.
enum Item {
    /// Bytes `from..to` of the scratch buffer.
    Bytes(Range<usize>),
    /// A branch, to a block of this piece (by position) or elsewhere.
    Branch(Branch, Aim),
    /// The start of a block, by position; aligned to so much.
    Block(usize, u32),
    /// From here on, old offsets run in step with new ones: this old offset stands so many bytes further on.
    Run(u32, u32),
}

#[derive(Clone, Copy)]
enum Aim {
    Here(usize),
    There(Va),
}

/// Lays out `range` of a function; `probe` says what stands before a block.
pub fn lay_out(
    program: &Program,
    range: &Range<Va>,
    mut probe: impl FnMut(BlockId) -> Option<Probe>,
) -> Piece {
    let blocks = program.blocks_in(range);
    let position = |at: Va| blocks.binary_search_by_key(&at, |&b| program.block(b).start).ok();
    let mut scratch: Vec<u8> =
        Vec::with_capacity(usize::try_from(range.end.since(range.start)).unwrap_or(0) * 3 / 2);
    let mut scratch_fixups: Vec<(usize, usize, Target)> = Vec::new();
    let mut items: Vec<Item> = Vec::with_capacity(blocks.len() * 4);
    let mut piece_align = 16;
    let mut last_end = range.start;
    for (i, &id) in blocks.iter().enumerate() {
        let block = program.block(id);
        let natural = 1u32 << block.start.0.trailing_zeros().min(6);
        let padded = block.start != last_end || i == 0;
        let align = if padded && natural >= 16 { natural } else { 1 };
        piece_align = piece_align.max(align);
        items.push(Item::Block(i, align));
        let old = |at: Va| u32::try_from(at.since(range.start)).expect("ranges are below 2 GiB");
        let mut run = scratch.len();
        items.push(Item::Run(old(block.start), 0));
        let probe = probe(id);
        let forks = if probe.is_some() { forks(program, id) } else { Vec::new() };
        let bytes = program.image.bytes_in(&block.range()).unwrap_or_default();
        let mut decoder = Decoder::new(bytes, block.start);
        let mut from = 0;
        while let Some(insn) = decoder.next() {
            let own = bytes.get(from..from + insn.len_bytes()).unwrap_or_default();
            from += insn.len_bytes();
            if let Some(probe) = &probe
                && probe.at == insn.at()
            {
                let base = scratch.len();
                for (at, end) in probe.how.emit(&mut scratch) {
                    scratch_fixups.push((at, end, Target::Counter(probe.counter)));
                }
                debug_assert!(scratch.len() > base);
                items.push(Item::Bytes(run..scratch.len()));
                run = scratch.len();
                // The instruction's own address stays in front of its probe, for unwinding and for who jumps there.
                items.push(Item::Run(old(insn.at()) + 1, 1));
            }
            match decoder.position_of(&insn, own) {
                Position::Branch(branch, to) => {
                    items.push(Item::Bytes(run..scratch.len()));
                    let aim = match branch {
                        Branch::Call => Aim::There(to),
                        _ => position(to).map_or(Aim::There(to), Aim::Here),
                    };
                    items.push(Item::Branch(branch, aim));
                    items.push(Item::Run(old(insn.end()), 0));
                    run = scratch.len();
                }
                Position::Place(at, to) => {
                    let base = scratch.len();
                    scratch.extend(own);
                    scratch_fixups.push((base + usize::from(at), scratch.len(), Target::Place(to)));
                }
                Position::Anywhere | Position::Fixed => scratch.extend(own),
            }
            if forks.contains(&insn.at()) {
                let base = scratch.len();
                let (check, [owner, slow]) = emit::check_owner_here(program.image.kind.is_static());
                scratch.extend(check);
                scratch_fixups.push((base + owner, base + owner + 4, Target::Owner));
                scratch_fixups.push((base + slow, base + slow + 4, Target::Slow));
                items.push(Item::Bytes(run..scratch.len()));
                run = scratch.len();
                if insn.end() < block.end_va() {
                    items.push(Item::Run(old(insn.end()) + 1, 1));
                }
            }
        }
        items.push(Item::Bytes(run..scratch.len()));
        last_end = block.end_va();
        if let Some(to) = falls_to(program, id)
            && position(to) != Some(i + 1)
        {
            items.push(Item::Branch(Branch::Jump, position(to).map_or(Aim::There(to), Aim::Here)));
        }
    }
    place(range, blocks.len(), program, blocks, &items, &scratch, &scratch_fixups, piece_align)
}

/// Functions of the C library that return in a new process, too.
const FORKS: [&str; 7] = ["fork", "_Fork", "__fork", "__libc_fork", "forkpty", "daemon", "_IO_fork"];

/// The calls in `block` that may return in a new process.
fn forks(program: &Program, id: BlockId) -> Vec<Va> {
    let is_fork = |callee: Callee| match callee {
        Callee::Function(f) => {
            let f = program.function(f);
            f.import.as_deref().is_some_and(|name| FORKS.contains(&name))
                || f.names.iter().any(|name| FORKS.contains(&&**name))
        }
        Callee::Import(n) => program.imports.get(n as usize).is_some_and(|name| FORKS.contains(&&**name)),
        _ => false,
    };
    let calls = program.calls_in(id).iter();
    calls.filter(|c| c.kind == CallKind::Call && c.returns && is_fork(c.callee)).map(|c| c.at).collect()
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

#[expect(clippy::too_many_arguments, reason = "the second half of `lay_out`, with all it has made")]
fn place(
    range: &Range<Va>,
    n_blocks: usize,
    program: &Program,
    blocks: &[BlockId],
    items: &[Item],
    scratch: &[u8],
    scratch_fixups: &[(usize, usize, Target)],
    align: u32,
) -> Piece {
    let n_branches = items.iter().filter(|i| matches!(i, Item::Branch(..))).count();
    let mut is_long = vec![false; n_branches];
    let mut at_block = vec![0u32; n_blocks];
    let len32 = |n: usize| u32::try_from(n).expect("pieces are below 2 GiB");
    // Branches only grow, so this ends; most functions need two or three rounds.
    loop {
        let mut starts = Vec::with_capacity(n_branches);
        let mut at = 0u32;
        let mut k = 0;
        for item in items {
            match item {
                Item::Bytes(r) => at += len32(r.len()),
                Item::Block(i, align) => {
                    at = at.next_multiple_of(*align);
                    at_block[*i] = at;
                }
                Item::Branch(branch, aim) => {
                    starts.push(at);
                    let short = match aim {
                        Aim::Here(_) if !is_long[k] => branch.short(),
                        _ => None,
                    };
                    at += short.map_or_else(|| len32(branch.long().len()), |(_, n)| len32(n));
                    k += 1;
                }
                Item::Run(..) => {}
            }
        }
        let mut changed = false;
        let mut k = 0;
        for item in items {
            let Item::Branch(branch, aim) = item else { continue };
            if let (Aim::Here(to), false, Some((_, n))) = (aim, is_long[k], branch.short()) {
                let distance = i64::from(at_block[*to]) - i64::from(starts[k]) - n as i64;
                if i8::try_from(distance).is_err() {
                    is_long[k] = true;
                    changed = true;
                }
            }
            k += 1;
        }
        if !changed {
            break;
        }
    }
    let mut out = Vec::with_capacity(scratch.len() + n_branches * 6);
    let mut fixups = Vec::new();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    let mut next_fixup = 0;
    let mut k = 0;
    for item in items {
        match item {
            Item::Bytes(r) => {
                while let Some(&(at, end, to)) = scratch_fixups.get(next_fixup)
                    && at < r.end
                {
                    let moved = |x: usize| len32(out.len() + x - r.start);
                    fixups.push(Fixup { at: moved(at), end: moved(end), to });
                    next_fixup += 1;
                }
                out.extend(&scratch[r.clone()]);
            }
            Item::Block(_, align) => {
                let gap = out.len().next_multiple_of(*align as usize) - out.len();
                emit::pad(&mut out, gap);
            }
            Item::Branch(branch, aim) => {
                let short = match aim {
                    Aim::Here(_) if !is_long[k] => branch.short(),
                    _ => None,
                };
                k += 1;
                match (short, aim) {
                    (Some((bytes, n)), Aim::Here(to)) => {
                        out.extend(&bytes[..n]);
                        let distance = i64::from(at_block[*to]) - out.len() as i64;
                        let distance = i8::try_from(distance).expect("checked above");
                        *out.last_mut().expect("just written") = distance.cast_unsigned();
                    }
                    (_, Aim::Here(to)) => {
                        out.extend(branch.long());
                        let distance = i64::from(at_block[*to]) - out.len() as i64;
                        let distance = i32::try_from(distance).expect("pieces are below 2 GiB");
                        let at = out.len() - 4;
                        out[at..].copy_from_slice(&distance.to_le_bytes());
                    }
                    (_, Aim::There(to)) => {
                        out.extend(branch.long());
                        let end = len32(out.len());
                        fixups.push(Fixup { at: end - 4, end, to: Target::Code(*to) });
                    }
                }
            }
            // Of two for one address, the first is in front of what was put between them.
            Item::Run(old, further) => {
                if runs.last().is_none_or(|last| last.0 != *old) {
                    runs.push((*old, len32(out.len()) + further));
                }
            }
        }
    }
    let starts = blocks.iter().zip(&at_block).map(|(&b, &at)| (program.block(b).start, at)).collect();
    Piece { range: range.clone(), bytes: out, fixups, runs, blocks: starts, align }
}
