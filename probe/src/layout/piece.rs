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

use crate::code::{Code, Fixup, Side, Target};
use crate::inserts::Spot;
use crate::lower::Lowered;
use crate::select::{Selection, plt};
use program::arch::emit::{self, Branch, Increment, Position, Stack};
use program::arch::{Decoder, Flow, LOCK};
use program::{BlockEnd, BlockId, EdgeKind, FuncId, Program, Va};
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

/// Something to be laid out.
enum Item {
    /// Old bytes, by their offsets in the range.
    Old(Range<usize>),
    /// Bytes `from..to` of what was made.
    Made(Range<usize>),
    /// The next branch.
    Branch,
    /// The start of a block, aligned to so much.
    Block(u32),
    /// What goes to the old address, for some, goes here.
    Side(Va, Side),
    /// From here on, old offsets run in step with new ones: this old offset stands so many bytes further on.
    Run(u32, u32),
}

#[derive(Clone, Copy)]
enum Aim {
    Here(usize),
    There(Va),
    /// The same, as who is in the function already.
    Inside(Va),
}

/// What decides how long branches are.
enum Step {
    /// The start of a block, by position; aligned to so much. Behind the positions of the blocks come other
    /// labels.
    Block(usize, u32),
    /// A branch.
    Branch(Branch, Aim),
}

/// All that is to be laid out of a range, in order; its room is used again for the next.
#[derive(Default)]
pub struct Layout {
    /// Where the blocks start.
    starts: Vec<Va>,
    items: Vec<Item>,
    /// Blocks and branches, each with the bytes before it, from the one before.
    steps: Vec<(u32, Step)>,
    /// Bytes since the last step.
    n_bytes: u32,
    /// Bytes that are not the old ones.
    made: Vec<u8>,
    /// Distances in old bytes, by their offsets in the range, and in `made`: where they are, where their
    /// instruction ends, where to.
    in_old: Vec<(usize, usize, Target)>,
    in_made: Vec<(usize, usize, Target)>,
    /// Where in `made` the stack pointer moves.
    stack: Vec<(usize, Stack)>,
    /// Old starts of blocks, and the label behind the code of their edge that is taken.
    behind_taken: Vec<(Va, usize)>,
    /// The same behind a call that comes as from inside.
    behind_calls: Vec<(Va, usize)>,
}

impl Layout {
    fn clear(&mut self) {
        self.starts.clear();
        self.items.clear();
        self.steps.clear();
        self.n_bytes = 0;
        self.made.clear();
        self.in_old.clear();
        self.in_made.clear();
        self.stack.clear();
        self.behind_taken.clear();
        self.behind_calls.clear();
    }

    fn old(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.n_bytes += len32(range.len());
        match self.items.last_mut() {
            Some(Item::Old(last)) if last.end == range.start => last.end = range.end,
            _ => self.items.push(Item::Old(range)),
        }
    }

    /// What was made since it was `from` bytes long.
    fn made(&mut self, from: usize) {
        self.n_bytes += len32(self.made.len() - from);
        self.items.push(Item::Made(from..self.made.len()));
    }

    /// Code of a probe.
    fn insert(&mut self, code: &Code) {
        let base = self.made.len();
        if let Some(text) = &code.text {
            self.made.extend(&text.bytes);
            self.in_made.extend(text.places.iter().map(|&(at, end, to)| (base + at, base + end, to)));
            self.stack.extend(text.stack.iter().map(|&(at, stack)| (base + at, stack)));
        }
        if let Some((how, counter)) = code.increment {
            self.increment(how, counter);
        }
        self.made(base);
    }

    /// Appends to what was made.
    fn increment(&mut self, how: Increment, counter: u32) {
        let base = self.made.len();
        for (at, end) in how.emit(&mut self.made) {
            self.in_made.push((at, end, Target::Counter(counter)));
        }
        self.stack.extend(how.stack().iter().map(|&(at, stack)| (base + at, stack)));
    }

    fn step(&mut self, step: Step) {
        self.steps.push((std::mem::take(&mut self.n_bytes), step));
    }

    fn branch(&mut self, branch: Branch, aim: Aim) {
        self.step(Step::Branch(branch, aim));
        self.items.push(Item::Branch);
    }
}

fn len32(n: usize) -> u32 {
    u32::try_from(n).expect("pieces are below 2 GiB")
}

/// The pieces of all functions that are moved, by old address, with what is put into them.
pub fn pieces(program: &Program, selection: &Selection, lowered: &Lowered) -> Vec<Piece> {
    let is_moved = |id: &FuncId| selection.not_moved.get(id.index()).is_some_and(Option::is_none);
    let moved = program.func_ids().filter(is_moved);
    let mut ranges: Vec<Range<Va>> = moved.flat_map(|id| plt::ranges(program, id)).collect();
    ranges.sort_by_key(|r| r.start);
    let one = |room: &mut Layout, range: &Range<Va>| lay_out(program, range, lowered, room);
    ranges.par_iter().map_init(Layout::default, one).collect()
}

/// Lays out `range` of a function; `all` is room.
fn lay_out(program: &Program, range: &Range<Va>, lowered: &Lowered, all: &mut Layout) -> Piece {
    let blocks = program.blocks_in(range);
    all.clear();
    let mut starts = std::mem::take(&mut all.starts);
    starts.extend(blocks.iter().map(|&b| program.block(b).start));
    let position = |at: Va| starts.binary_search(&at).ok();
    let mut piece_align = 16;
    let mut last_end = range.start;
    let code = program.image.bytes_from(range.start).unwrap_or_default();
    let mut decoder = Decoder::new(code, range.start);
    let mut n_labels = blocks.len();
    // Where control runs on to from the block before.
    let mut runs_on_to = None;
    for (i, &id) in blocks.iter().enumerate() {
        let mine = lowered.inserts.in_block(id);
        let (fronts, mine) = mine.split_at(mine.partition_point(|m| m.0.is_in_front()));
        let code_at = |spot| mine.iter().find(|m| m.0 == spot).map(|m| &m.1);
        // At calls alone there may be something to do.
        let is_plain = mine.iter().all(|m| matches!(m.0, Spot::FromInside(_)));
        let block = program.block(id);
        let natural = 1u32 << block.start.0.trailing_zeros().min(6);
        let padded = block.start != last_end || i == 0;
        let align = if padded && natural >= 16 { natural } else { 1 };
        piece_align = piece_align.max(align);
        let into = |at: Va| usize::try_from(at.since(range.start)).expect("ranges are below 2 GiB");
        let old = |at: Va| len32(into(at));
        if i == 0 {
            // So that nobody runs through padding between them and the block.
            let len: usize = fronts.iter().map(|(_, code)| code.len()).sum();
            let base = all.made.len();
            emit::pad(&mut all.made, len.next_multiple_of(align as usize) - len);
            all.made(base);
        }
        let mut runs_on = runs_on_to == Some(i);
        for (spot, code) in fronts {
            if runs_on {
                all.branch(Branch::Jump, Aim::Here(i));
            }
            all.items.push(Item::Run(old(block.start), 0));
            let side = match spot {
                Spot::Pad(from) => Some(Side::Pad(*from)),
                Spot::Checked => Some(Side::Checked),
                Spot::Outside => Some(Side::Outside),
                _ => None,
            };
            all.items.extend(side.map(|side| Item::Side(block.start, side)));
            all.insert(code);
            // What was checked goes on into what is put there for all from outside.
            runs_on = matches!(spot, Spot::Pad(_) | Spot::Outside);
        }
        all.step(Step::Block(i, align));
        if align > 1 {
            all.items.push(Item::Block(align));
        }
        all.items.push(Item::Run(old(block.start), 0));
        let probe = lowered.block_counters.probe(program, id);
        let probe_at = probe.as_ref().map(|p| p.at);
        decoder.seek(block.start).expect("a block of the range");
        // Old code from here on is not laid out yet.
        let mut plain = into(block.start);
        while decoder.at() < block.end_va() {
            let at = decoder.at();
            let quick = decoder.quick();
            if let Some(quick) = &quick
                && quick.flow == Flow::Next
                && !quick.is_relative
                && is_plain
                && probe_at != Some(at)
            {
                decoder.pass(quick);
                continue;
            }
            let from = into(at);
            all.old(plain..from);
            let (what, is_call) = match quick {
                Some(quick) => {
                    decoder.pass(&quick);
                    let own = code.get(from..into(decoder.at())).unwrap_or_default();
                    (quick.position(at, own), matches!(quick.flow, Flow::Call(_)))
                }
                None => {
                    let Some(insn) = decoder.next() else { break };
                    let own = code.get(from..into(decoder.at())).unwrap_or_default();
                    let is_call = matches!(insn.flow(), Flow::Call(_) | Flow::CallIndirect);
                    (decoder.position_of(&insn, own), is_call)
                }
            };
            // Past the `lock` of an instruction: with it, it does the same.
            let what = match what {
                Position::Branch(branch, to)
                    if range.contains(&to)
                        && into(to).checked_sub(1).and_then(|n| code.get(n)) == Some(&LOCK) =>
                {
                    Position::Branch(branch, program.led_to(to))
                }
                other => other,
            };
            let to = into(decoder.at());
            plain = to;
            if let Some(probe) = &probe
                && probe.at == at
            {
                let base = all.made.len();
                all.increment(probe.how, probe.counter);
                all.made(base);
                // The instruction's own address stays in front of its probe, for unwinding and for who jumps
                // there.
                all.items.push(Item::Run(old(at) + 1, 1));
            }
            if let Some(code) = code_at(Spot::Before(at)) {
                all.insert(code);
                all.items.push(Item::Run(old(at) + 1, 1));
            }
            match what {
                Position::Branch(branch, to)
                    if branch != Branch::Call
                        && decoder.at() == block.end_va()
                        && let Some(code) = code_at(Spot::Taken) =>
                {
                    // Around the code if the branch is not taken: to what stands behind the block.
                    let (taken, on) = (n_labels, n_labels + 1);
                    n_labels += 2;
                    match branch.inverted() {
                        Some(inverted) => all.branch(inverted, Aim::Here(on)),
                        None => {
                            all.branch(branch, Aim::Here(taken));
                            all.branch(Branch::Jump, Aim::Here(on));
                        }
                    }
                    all.step(Step::Block(taken, 1));
                    all.insert(code);
                    all.branch(Branch::Jump, position(to).map_or(Aim::There(to), Aim::Here));
                    all.step(Step::Block(on, 1));
                    all.behind_taken.push((block.start, on));
                }
                Position::Branch(branch, to) => {
                    let is_inside = branch == Branch::Call && code_at(Spot::FromInside(at)).is_some();
                    let aim = match branch {
                        Branch::Call if is_inside => Aim::Inside(to),
                        Branch::Call => Aim::There(to),
                        _ => position(to).map_or(Aim::There(to), Aim::Here),
                    };
                    all.branch(branch, aim);
                    if is_inside {
                        all.step(Step::Block(n_labels, 1));
                        all.behind_calls.push((block.start, n_labels));
                        n_labels += 1;
                    }
                    all.items.push(Item::Run(old(decoder.at()), 0));
                }
                Position::Place(offset, place) => {
                    all.in_old.push((from + usize::from(offset), to, Target::Address(place)));
                    all.old(from..to);
                }
                Position::Anywhere | Position::Fixed => all.old(from..to),
            }
            let after = code_at(Spot::After(at));
            if after.is_some() {
                // What the instruction did to the stack is done.
                all.items.push(Item::Run(old(decoder.at()), 0));
            }
            let may_be_child = is_call && lowered.fork_calls.binary_search(&at).is_ok();
            if may_be_child {
                let base = all.made.len();
                let (check, [owner, slow]) = emit::check_owner_here(program.image.kind.is_static());
                all.made.extend(check);
                all.in_made.push((base + owner, base + owner + 4, Target::Owner));
                all.in_made.push((base + slow, base + slow + 4, Target::Slow));
                all.made(base);
            }
            if let Some(code) = after {
                all.insert(code);
            }
            if (may_be_child || after.is_some()) && decoder.at() < block.end_va() {
                all.items.push(Item::Run(old(decoder.at()) + 1, 1));
            }
        }
        all.old(plain..into(decoder.at()));
        last_end = block.end_va();
        if let Some(code) = code_at(Spot::Through) {
            all.items.push(Item::Run(old(block.end_va()), 0));
            all.insert(code);
        }
        let falls_to = falls_to(program, id);
        if let Some(to) = falls_to
            && position(to) != Some(i + 1)
        {
            all.branch(Branch::Jump, position(to).map_or(Aim::There(to), Aim::Here));
        }
        runs_on_to = falls_to.and_then(position).filter(|&to| to == i + 1);
        for (spot, code) in mine {
            if let Spot::Table(to) = *spot {
                all.items.push(Item::Side(to, Side::Table(block.last_insn())));
                all.insert(code);
                all.branch(Branch::Jump, position(to).map_or(Aim::There(to), Aim::Here));
            }
        }
    }
    let piece = place(range, program, blocks, all, n_labels, code, piece_align);
    all.starts = starts;
    piece
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

/// Decides how long each branch is: whether it is long, in order; and the new offset of each block.
fn relax(steps: &[(u32, Step)], n_labels: usize) -> (Vec<bool>, Vec<u32>) {
    let mut at_block = vec![0u32; n_labels];
    // Where each branch starts, and whether it is long.
    let mut branches: Vec<(u32, bool)> = Vec::with_capacity(n_labels);
    for (_, step) in steps {
        if let Step::Branch(branch, aim) = step {
            branches.push((0, !matches!(aim, Aim::Here(_)) || branch.short().is_none()));
        }
    }
    // Branches only grow, so this ends; most functions need two or three rounds.
    loop {
        let mut at = 0u32;
        let mut next = branches.iter_mut();
        for (bytes, step) in steps {
            at += bytes;
            match step {
                Step::Block(i, align) => {
                    if *align > 1 {
                        at = at.next_multiple_of(*align);
                    }
                    at_block[*i] = at;
                }
                Step::Branch(branch, _) => {
                    let (start, is_long) = next.next().expect("one for each");
                    *start = at;
                    at += match branch.short() {
                        Some((_, n)) if !*is_long => len32(n),
                        _ => len32(branch.long_len()),
                    };
                }
            }
        }
        let mut changed = false;
        let mut next = branches.iter_mut();
        for (_, step) in steps {
            let Step::Branch(branch, aim) = step else { continue };
            let (start, is_long) = next.next().expect("one for each");
            if let (Aim::Here(to), false, Some((_, n))) = (aim, *is_long, branch.short()) {
                let distance = i64::from(at_block[*to]) - i64::from(*start) - n as i64;
                if i8::try_from(distance).is_err() {
                    *is_long = true;
                    changed = true;
                }
            }
        }
        if !changed {
            return (branches.into_iter().map(|b| b.1).collect(), at_block);
        }
    }
}

fn place(
    range: &Range<Va>,
    program: &Program,
    blocks: &[BlockId],
    all: &Layout,
    n_labels: usize,
    code: &[u8],
    align: u32,
) -> Piece {
    let (is_long, at_block) = relax(&all.steps, n_labels);
    let mut branches = all.steps.iter().filter_map(|(_, step)| match step {
        Step::Branch(branch, aim) => Some((branch, aim)),
        Step::Block(..) => None,
    });
    let mut is_long = is_long.into_iter();
    let (mut sides, mut stack) = (Vec::new(), Vec::new());
    let mut in_stack = all.stack.iter().peekable();
    let func = blocks.first().map(|&b| program.block(b).func);
    let old_len = usize::try_from(range.end.since(range.start)).unwrap_or(0);
    let mut out = Vec::with_capacity(old_len + all.made.len() + is_long.len() * 6);
    let mut fixups = Vec::with_capacity(all.in_old.len() + all.in_made.len() + is_long.len());
    let mut behind_ours = Vec::new();
    let mut runs: Vec<(u32, u32)> = Vec::with_capacity(all.items.len() / 2);
    let (mut in_old, mut in_made) = (all.in_old.iter().peekable(), all.in_made.iter().peekable());
    for item in &all.items {
        match item {
            Item::Old(r) | Item::Made(r) => {
                let (from, fields) = match item {
                    Item::Old(_) => (code, &mut in_old),
                    _ => (&all.made[..], &mut in_made),
                };
                while let Some(&(at, end, to)) = fields.next_if(|f| f.0 < r.end) {
                    let moved = |x: usize| len32(out.len() + x - r.start);
                    fixups.push(Fixup { at: moved(at), end: moved(end), to });
                }
                if let Item::Made(_) = item {
                    while let Some(&(at, where_to)) = in_stack.next_if(|s| s.0 <= r.end) {
                        stack.push((len32(out.len() + at - r.start), where_to));
                    }
                }
                out.extend_from_slice(&from[r.clone()]);
            }
            Item::Block(align) => {
                let gap = out.len().next_multiple_of(*align as usize) - out.len();
                emit::pad(&mut out, gap);
            }
            Item::Branch => {
                let (branch, aim) = branches.next().expect("one for each");
                let is_long = is_long.next().expect("one for each");
                match (branch.short(), aim) {
                    (Some((bytes, n)), Aim::Here(to)) if !is_long => {
                        out.extend_from_slice(&bytes[..n]);
                        let distance = i64::from(at_block[*to]) - out.len() as i64;
                        let distance = i8::try_from(distance).expect("checked above");
                        *out.last_mut().expect("just written") = distance.cast_unsigned();
                    }
                    (_, Aim::Here(to)) => {
                        branch.emit_long(&mut out);
                        let distance = i64::from(at_block[*to]) - out.len() as i64;
                        let distance = i32::try_from(distance).expect("pieces are below 2 GiB");
                        let at = out.len() - 4;
                        out[at..].copy_from_slice(&distance.to_le_bytes());
                    }
                    (_, Aim::There(to) | Aim::Inside(to)) => {
                        branch.emit_long(&mut out);
                        let end = len32(out.len());
                        let is_own = || program.block_from(*to).map(|b| program.block(b).func) == func;
                        let is_inside = matches!(aim, Aim::Inside(_))
                            || *branch != Branch::Call && func.is_some() && is_own();
                        let to = if is_inside { Target::Inside(*to) } else { Target::Code(*to) };
                        fixups.push(Fixup { at: end - 4, end, to });
                    }
                }
            }
            Item::Side(to, side) => sides.push((*to, *side, len32(out.len()))),
            // Of two for one address, the first is in front of what was put between them, and what follows
            // the address is behind it; of two behind something, the last counts.
            Item::Run(old, further) => match runs.last_mut() {
                Some(last) if last.0 == *old && *further > 0 => {
                    last.1 = len32(out.len()) + further;
                    behind_ours.pop();
                    behind_ours.push(len32(out.len()));
                }
                Some(last) if last.0 == *old && last.1 < len32(out.len()) => {
                    runs.push((old + 1, len32(out.len()) + 1));
                    behind_ours.push(len32(out.len()));
                }
                Some(last) if last.0 == *old => {}
                Some(last) if last.0 == old + 1 => {
                    last.1 = len32(out.len()) + 1;
                    behind_ours.pop();
                    behind_ours.push(len32(out.len()));
                }
                _ => {
                    runs.push((*old, len32(out.len()) + further));
                    behind_ours.extend((*further > 0).then(|| len32(out.len())));
                }
            },
        }
    }
    let starts = blocks.iter().zip(&at_block).map(|(&b, &at)| (program.block(b).start, at)).collect();
    let [behind_taken, behind_calls] = [&all.behind_taken, &all.behind_calls]
        .map(|labels| labels.iter().filter_map(|&(b, on)| Some((b, *at_block.get(on)?))).collect());
    Piece {
        range: range.clone(),
        bytes: out,
        fixups,
        runs,
        behind_ours,
        blocks: starts,
        behind_taken,
        behind_calls,
        sides,
        stack,
        align,
    }
}
