//! What is to be laid out of a range, in order, before branches have their lengths; and written out once they
//! do.

use super::Piece;
use crate::arch::emit::{self, Increment, Stack};
use crate::code::{Fixup, Insert, Side, Target};
use crate::layout::relax::{Aim, Relaxed, Step, len32, relax};
use program::arch::Branch;
use program::{BlockId, Program, Va};
use std::ops::Range;

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

/// Bytes a line of the cache of instructions: a loop in one line is fetched at once.
const LINE: u32 = 64;

/// A distance: where it is, where its instruction ends, where it leads.
type Distance = (usize, usize, Target);

/// All that is to be laid out of a range, in order; its room is used again for the next.
#[derive(Default)]
pub struct Draft {
    /// Where the blocks started.
    starts: Vec<Va>,
    items: Vec<Item>,
    /// Labels and branches, each with the bytes before it, from the one before. The first labels are the
    /// blocks.
    steps: Vec<(u32, Step)>,
    n_labels: usize,
    /// Bytes since the last step.
    n_bytes: u32,
    /// Bytes that are not the old ones.
    made: Vec<u8>,
    /// Distances in old bytes, by their offsets in the range.
    in_old: Vec<Distance>,
    /// Distances in `made`.
    in_made: Vec<Distance>,
    /// Where in `made` the stack pointer moves.
    stack: Vec<(usize, Stack)>,
    /// What its place must be a multiple of for code in it.
    align: u32,
    /// Old starts of blocks, and the label behind the code of their edge that is taken.
    behind_taken: Vec<(Va, usize)>,
    /// The same behind a call that comes as from inside.
    behind_calls: Vec<(Va, usize)>,
}

impl Draft {
    /// Starts anew, for blocks that start at `starts`, ascending.
    pub fn clear(&mut self, starts: impl Iterator<Item = Va>) {
        self.starts.clear();
        self.starts.extend(starts);
        self.items.clear();
        self.steps.clear();
        self.n_labels = self.starts.len();
        self.n_bytes = 0;
        self.align = 1;
        self.made.clear();
        self.in_old.clear();
        self.in_made.clear();
        self.stack.clear();
        self.behind_taken.clear();
        self.behind_calls.clear();
    }

    /// Which block started at `at`.
    pub fn block_from(&self, at: Va) -> Option<usize> {
        self.starts.binary_search(&at).ok()
    }

    /// Old bytes, by their offsets in the range.
    pub fn old(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.n_bytes += len32(range.len());
        match self.items.last_mut() {
            Some(Item::Old(last)) if last.end == range.start => last.end = range.end,
            _ => self.items.push(Item::Old(range)),
        }
    }

    /// The same, of an instruction with a distance to `to` at this offset in the range.
    pub fn old_with_distance(&mut self, range: Range<usize>, at: usize, to: Va) {
        self.in_old.push((at, range.end, Target::Address(to)));
        self.old(range);
    }

    /// What was made since it was `from` bytes long.
    fn made(&mut self, from: usize) {
        self.n_bytes += len32(self.made.len() - from);
        self.items.push(Item::Made(from..self.made.len()));
    }

    /// So many bytes that do nothing.
    pub fn pad(&mut self, n: usize) {
        let base = self.made.len();
        emit::pad(&mut self.made, n);
        self.made(base);
    }

    /// Code of ours.
    pub fn insert(&mut self, code: &Insert) {
        let base = self.made.len();
        if let Some(text) = &code.text {
            self.made.extend(&text.bytes);
            self.in_made.extend(text.places.iter().map(|&(at, end, to)| (base + at, base + end, to)));
            self.stack.extend(text.stack.iter().map(|&(at, stack)| (base + at, stack)));
        }
        if let Some((how, counter)) = code.increment {
            self.append_increment(how, counter);
        }
        self.made(base);
    }

    /// Code of ours for who comes from the block that was at `from`.
    pub fn insert_from(&mut self, from: Va, code: &Insert) {
        if let Some(text) = &code.text {
            if let Some(aligned) = text.aligned {
                let label = self.new_label();
                self.block(label, LINE);
                self.align = LINE;
                self.pad((LINE as usize).wrapping_sub(aligned) % LINE as usize);
            }
            if let Some(to) = text.instead_of {
                self.side(to, Side::From(from));
            }
        }
        self.insert(code);
    }

    /// The increment of a counter.
    pub fn increment(&mut self, how: Increment, counter: u32) {
        let base = self.made.len();
        self.append_increment(how, counter);
        self.made(base);
    }

    fn append_increment(&mut self, how: Increment, counter: u32) {
        let base = self.made.len();
        for (at, end) in how.emit(&mut self.made) {
            self.in_made.push((at, end, Target::Counter(counter)));
        }
        self.stack.extend(how.stack().iter().map(|&(at, stack)| (base + at, stack)));
    }

    /// A check of whose counters these are, behind a call that may return in another process.
    pub fn owner_check(&mut self, by_base: bool) {
        let base = self.made.len();
        let (check, [owner, slow]) = emit::check_owner_here(by_base);
        self.made.extend(check);
        self.in_made.push((base + owner, base + owner + 4, Target::Owner));
        self.in_made.push((base + slow, base + slow + 4, Target::Slow));
        self.made(base);
    }

    fn step(&mut self, step: Step) {
        self.steps.push((std::mem::take(&mut self.n_bytes), step));
    }

    /// A branch.
    pub fn branch(&mut self, branch: Branch, aim: Aim) {
        self.step(Step::Branch(branch, aim));
        self.items.push(Item::Branch);
    }

    /// The start of block `i`, aligned to so much.
    pub fn block(&mut self, i: usize, align: u32) {
        self.step(Step::Label(i, align));
        if align > 1 {
            self.items.push(Item::Block(align));
        }
    }

    /// A label that is put down later.
    pub fn new_label(&mut self) -> usize {
        self.n_labels += 1;
        self.n_labels - 1
    }

    /// Puts it down here.
    pub fn label(&mut self, label: usize) {
        self.step(Step::Label(label, 1));
    }

    /// At `label` starts what stands behind the code of the edge that is taken of the block that was at
    /// `block`.
    pub fn behind_taken(&mut self, block: Va, label: usize) {
        self.behind_taken.push((block, label));
    }

    /// Here starts what stands behind a call, of the block that was at `block`, that comes as from inside.
    pub fn behind_call(&mut self, block: Va) {
        let label = self.new_label();
        self.label(label);
        self.behind_calls.push((block, label));
    }

    /// What goes to the old address `to`, for whom `side` says, goes here.
    pub fn side(&mut self, to: Va, side: Side) {
        self.items.push(Item::Side(to, side));
    }

    /// From here on, old offsets run in step with new ones, from `old` on, which stands here.
    pub fn run(&mut self, old: u32) {
        self.items.push(Item::Run(old, 0));
    }

    /// The same behind code of ours in front of the instruction at `old`: its own address stays in front of
    /// that code, for unwinding and for who jumps there.
    pub fn run_behind_ours(&mut self, old: u32) {
        self.items.push(Item::Run(old + 1, 1));
    }

    /// The piece of `range`, whose old bytes start `code`; its place must be a multiple of `align`.
    pub fn finish(
        &self,
        program: &Program,
        range: &Range<Va>,
        blocks: &[BlockId],
        code: &[u8],
        align: u32,
    ) -> Piece {
        let Relaxed { is_long, at_label } = relax(&self.steps, self.n_labels);
        let mut branches = self.steps.iter().filter_map(|(_, step)| match step {
            Step::Branch(branch, aim) => Some((*branch, *aim)),
            Step::Label(..) => None,
        });
        let old_len = usize::try_from(range.end.since(range.start)).unwrap_or(0);
        let mut out = Output {
            program,
            func: blocks.first().map(|&b| program.block(b).func),
            at_label: &at_label,
            bytes: Vec::with_capacity(old_len + self.made.len() + is_long.len() * 6),
            fixups: Vec::with_capacity(self.in_old.len() + self.in_made.len() + is_long.len()),
            runs: Vec::with_capacity(self.items.len() / 2),
            behind_ours: Vec::new(),
        };
        let mut is_long = is_long.iter();
        let (mut in_old, mut in_made) = (&self.in_old[..], &self.in_made[..]);
        let (mut sides, mut stack) = (Vec::new(), Vec::new());
        let mut in_stack = self.stack.iter().peekable();
        for item in &self.items {
            match item {
                Item::Old(r) => out.copy(code, r, &mut in_old),
                Item::Made(r) => {
                    let start = out.bytes.len();
                    out.copy(&self.made, r, &mut in_made);
                    while let Some(&(at, moved)) = in_stack.next_if(|s| s.0 <= r.end) {
                        stack.push((len32(start + at - r.start), moved));
                    }
                }
                Item::Block(align) => {
                    let gap = out.bytes.len().next_multiple_of(*align as usize) - out.bytes.len();
                    emit::pad(&mut out.bytes, gap);
                }
                Item::Branch => {
                    let (branch, aim) = branches.next().expect("one for each");
                    out.branch(branch, aim, *is_long.next().expect("one for each"));
                }
                Item::Side(to, side) => sides.push((*to, *side, len32(out.bytes.len()))),
                Item::Run(old, further) => out.run(*old, *further),
            }
        }
        let Output { bytes, fixups, runs, behind_ours, .. } = out;
        let starts = blocks.iter().zip(&at_label).map(|(&b, &at)| (program.block(b).start, at)).collect();
        let [behind_taken, behind_calls] = [&self.behind_taken, &self.behind_calls]
            .map(|labels| labels.iter().filter_map(|&(b, on)| Some((b, *at_label.get(on)?))).collect());
        Piece {
            range: range.clone(),
            bytes,
            fixups,
            runs,
            behind_ours,
            blocks: starts,
            behind_taken,
            behind_calls,
            sides,
            stack,
            align: align.max(self.align),
        }
    }
}

/// A piece while it is written.
struct Output<'a> {
    program: &'a Program,
    func: Option<program::FuncId>,
    at_label: &'a [u32],
    bytes: Vec<u8>,
    fixups: Vec<Fixup>,
    runs: Vec<(u32, u32)>,
    behind_ours: Vec<u32>,
}

impl Output<'_> {
    /// Appends the range `r` of `from`, with the `distances` in it, which are taken off.
    fn copy(&mut self, from: &[u8], r: &Range<usize>, distances: &mut &[Distance]) {
        let n = distances.iter().take_while(|d| d.0 < r.end).count();
        let (here, rest) = distances.split_at(n);
        *distances = rest;
        let start = self.bytes.len();
        let moved = |x: usize| len32(start + x - r.start);
        self.fixups.extend(here.iter().map(|&(at, end, to)| Fixup { at: moved(at), end: moved(end), to }));
        self.bytes.extend_from_slice(&from[r.clone()]);
    }

    fn branch(&mut self, branch: Branch, aim: Aim, is_long: bool) {
        let distance = |label: usize, end: usize| i64::from(self.at_label[label]) - end as i64;
        match (emit::short(branch), aim) {
            (Some((bytes, n)), Aim::Here(to)) if !is_long => {
                self.bytes.extend_from_slice(&bytes[..n]);
                let distance = distance(to, self.bytes.len());
                let distance = i8::try_from(distance).expect("it was made long else");
                *self.bytes.last_mut().expect("just written") = distance.cast_unsigned();
            }
            (_, Aim::Here(to)) => {
                emit::long(branch, &mut self.bytes);
                let distance = distance(to, self.bytes.len());
                let distance = i32::try_from(distance).expect("pieces are below 2 GiB");
                let at = self.bytes.len() - 4;
                self.bytes[at..].copy_from_slice(&distance.to_le_bytes());
            }
            (_, Aim::There(to) | Aim::Inside(to)) => {
                emit::long(branch, &mut self.bytes);
                let end = len32(self.bytes.len());
                let func_from = |at| self.program.block_from(at).map(|b| self.program.block(b).func);
                let is_inside = matches!(aim, Aim::Inside(_))
                    || branch != Branch::Call && self.func.is_some() && func_from(to) == self.func;
                let to = if is_inside { Target::Inside(to) } else { Target::Code(to) };
                self.fixups.push(Fixup { at: end - 4, end, to });
            }
        }
    }

    /// From here on, `old` stands so many bytes further on.
    ///
    /// Of two for one address, the first is in front of what was put between them, and what follows the
    /// address is behind it; of two behind something, the last counts.
    fn run(&mut self, old: u32, further: u32) {
        let here = len32(self.bytes.len());
        match self.runs.last_mut() {
            Some(last) if last.0 == old && further > 0 => {
                last.1 = here + further;
                self.behind_ours.pop();
                self.behind_ours.push(here);
            }
            Some(last) if last.0 == old && last.1 < here => {
                self.runs.push((old + 1, here + 1));
                self.behind_ours.push(here);
            }
            Some(last) if last.0 == old => {}
            Some(last) if last.0 == old + 1 => {
                last.1 = here + 1;
                self.behind_ours.pop();
                self.behind_ours.push(here);
            }
            _ => {
                self.runs.push((old, here + further));
                self.behind_ours.extend((further > 0).then_some(here));
            }
        }
    }
}
