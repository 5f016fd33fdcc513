//! Laying records of transfers, given by addresses, onto a program: what all formats of branches have in
//! common.
//!
//! Invariant: an edge that is counted is one that the program has, or leaves a jump that it could not
//! resolve.

use crate::complete::derive::add;
use crate::counts::{Edge, Exactness, ImageRef, Profile};
use crate::losses::Losses;
use program::arch::{ControlFlow, decode};
use program::{BlockEnd, BlockId, EdgeKind, Program, Va};

/// The profile of samples of instructions of `program`, each with how many there were: those of each block.
/// What is in none is left out.
pub fn of_points(program: &Program, points: impl IntoIterator<Item = (Va, u64)>) -> Profile {
    let mut layer = Layer::onto(program);
    points.into_iter().for_each(|(at, n)| layer.sample(at, n));
    Profile { exactness: Exactness::Sampled, ..layer.profile }
}

/// A profile in the making.
pub(crate) struct Layer<'a> {
    program: &'a Program,
    pub profile: Profile,
    pub lost: Losses,
}

impl<'a> Layer<'a> {
    pub fn onto(program: &'a Program) -> Layer<'a> {
        let profile = Profile { image: ImageRef::of(&program.image), ..Profile::default() };
        Layer { program, profile, lost: Losses::default() }
    }

    /// The program that records are laid onto.
    pub fn program(&self) -> &'a Program {
        self.program
    }

    /// The function at `at`, and how far into it, for messages.
    fn name(&self, at: Va) -> String {
        let Some(f) = self.program.function_at(at).map(|f| self.program.function(f)) else {
            return "code outside of functions".to_owned();
        };
        match at.0.checked_sub(f.entry.0) {
            Some(0) => f.name(),
            Some(offset) => format!("{}+{offset:#x}", f.name()),
            None => format!("{} at {at}", f.name()),
        }
    }

    /// Samples of an instruction: its block's.
    pub fn sample(&mut self, at: Va, count: u64) {
        match self.program.block_at(at) {
            Some(block) => self.profile.blocks.add(self.program.block(block).start, count),
            None => self.lost.add(&self.name(at), "no block at that address", count),
        }
    }

    /// A transfer between two places, of which one may be unknown or in another image.
    pub fn branch(&mut self, from: Option<Va>, to: Option<Va>, misses: u64, count: u64) {
        match (from, to) {
            (None, None) => self.lost.add("[unknown]", "neither end is known", count),
            (None, Some(to)) => self.enter(to, count),
            (Some(from), None) => match self.flow_at(from) {
                Some(ControlFlow::Return) => {}
                Some(_) => add(&mut self.profile.calls_out, from, count),
                None => self.lost.add(&self.name(from), "no instruction at that offset", count),
            },
            (Some(from), Some(to)) => self.transfer(from, to, misses, count),
        }
    }

    /// Straight execution from `start` to the instruction at `end`: an edge from each block to the next.
    pub fn straight(&mut self, start: Va, end: Va, count: u64) {
        let mut at = self.past_padding(start);
        loop {
            let Some(id) = self.program.block_at(at) else {
                self.lost.add(&self.name(start), "straight execution through what no block holds", count);
                return;
            };
            let block = self.program.block(id);
            if block.range().contains(&end) || end <= at {
                return;
            }
            let falls = |e: &&program::Edge| e.kind == EdgeKind::FallThrough;
            let Some(e) = self.program.successors(id).iter().find(falls) else {
                self.lost.add(
                    &self.name(start),
                    "straight execution past the end of a block that does not fall through",
                    count,
                );
                return;
            };
            let next = self.program.block(e.to).start;
            if next > end {
                // Ends in the padding between the two.
                return;
            }
            add(&mut self.profile.edges, Edge { from: block.start, to: next }, count);
            at = next;
        }
    }

    /// Past padding that no block holds.
    fn past_padding(&self, mut at: Va) -> Va {
        let start = at;
        while self.program.block_at(at).is_none() {
            let bytes = self.program.image.bytes_from(at).unwrap_or_default();
            match decode(bytes, at) {
                Some(insn) if insn.is_nop() => at = insn.end(),
                _ => return start,
            }
        }
        at
    }

    fn flow_at(&self, at: Va) -> Option<ControlFlow> {
        let block = self.program.block_at(at)?;
        self.program.insns(block).find(|i| i.at() == at).map(|i| i.flow())
    }

    fn enter(&mut self, to: Va, count: u64) {
        let entered = self.program.block_from(to).is_some_and(|id| {
            let block = self.program.block(id);
            let function = self.program.function(block.func);
            let cold = function.ranges.iter().any(|r| r.start == to);
            block.landing_pad || cold || function.entry == to || function.entries.contains(&id)
        });
        if entered {
            self.profile.entries.add(to, count);
        } else if !self.is_return_address(to) {
            self.lost.add(&self.name(to), "entered from outside where no entry is", count);
        }
    }

    fn transfer(&mut self, from: Va, to: Va, misses: u64, count: u64) {
        let to = self.past_padding(to);
        if self.program.block_at(from).is_none() && self.past_padding(from) == to {
            // Else it is the second half of falling through padding, which was counted as one with the first.
            if let Some(source) = self.falls_into(from, to)
                && let Some(target) = self.program.block_from(to)
            {
                self.edge(source, target, misses, count);
            }
            return;
        }
        let Some(source) = self.program.block_at(from) else {
            self.lost.add(&self.name(from), "no instruction at that offset", count);
            return;
        };
        let Some(flow) = self.flow_at(from) else {
            self.lost.add(&self.name(from), "no instruction at that offset", count);
            return;
        };
        let func = self.program.block(source).func;
        let target = self.program.block_from(to).filter(|&b| self.program.block(b).func == func);
        match flow {
            // Where a return goes says nothing that the call does not say.
            ControlFlow::Return => {}
            ControlFlow::Call(_) | ControlFlow::CallIndirect => {
                if target.is_some_and(|b| self.program.block(b).landing_pad) {
                    let edge = Edge { from: self.program.block(source).start, to };
                    add(&mut self.profile.edges, edge, count);
                } else if let Some(b) = target
                    && self.falls_to(source, b)
                {
                    // What comes back from a call: no transfer of its own, but the last instruction before a
                    // block.
                    self.edge(source, b, misses, count);
                } else {
                    add(&mut self.profile.calls, (from, to), count);
                    self.enter(to, count);
                }
            }
            _ => match target {
                Some(b) if self.edge(source, b, misses, count) => {}
                _ if self.leaves(source, from, to) => {
                    add(&mut self.profile.calls, (from, to), count);
                    self.enter(to, count);
                }
                _ => self.lost.add(&self.name(from), "the program has no such edge", count),
            },
        }
    }

    /// The block before the padding at `padding` that goes on at `to` without a branch of its own: a record
    /// of its end may have the address of the padding.
    fn falls_into(&self, padding: Va, to: Va) -> Option<BlockId> {
        // Nobody pads to more than a cache line.
        let id = (1..=64).find_map(|n| self.program.block_at(Va(padding.0.checked_sub(n)?)))?;
        let block = self.program.block(id);
        let next = self.past_padding(block.end_va());
        (block.end == BlockEnd::FallThrough && next == to).then_some(id)
    }

    /// Whether a call ends right before `at`: what comes there from outside has come back.
    fn is_return_address(&self, at: Va) -> bool {
        let i = self.program.calls.partition_point(|c| c.at < at);
        let before = i.checked_sub(1).and_then(|i| self.program.calls.get(i));
        before.is_some_and(|c| {
            let bytes = self.program.image.bytes_from(c.at).unwrap_or_default();
            decode(bytes, c.at).is_some_and(|insn| insn.end() == at)
        })
    }

    fn falls_to(&self, from: BlockId, to: BlockId) -> bool {
        self.program.successors(from).iter().any(|e| e.to == to && e.kind == EdgeKind::FallThrough)
    }

    /// Whether the jump at `from` can leave the function for `to`.
    fn leaves(&self, source: BlockId, from: Va, to: Va) -> bool {
        let tail_call = self.program.calls_in(source).iter().any(|c| c.at == from);
        let elsewhere = self.program.function_at(to) != Some(self.program.block(source).func);
        tail_call
            || elsewhere
                && matches!(self.flow_at(from), Some(ControlFlow::Jump(t) | ControlFlow::Branch(t)) if t == to)
            || elsewhere && self.flow_at(from) == Some(ControlFlow::JumpIndirect)
    }

    /// Counts an edge, or the two that lead there over one block that only falls or jumps through.
    fn edge(&mut self, from: BlockId, to: BlockId, misses: u64, count: u64) -> bool {
        let program = self.program;
        let start = |b: BlockId| program.block(b).start;
        let has = |a: BlockId, b: BlockId| program.successors(a).iter().any(|e| e.to == b);
        let resolved = !matches!(program.block(from).end, BlockEnd::Unresolved);
        let route = if has(from, to) || !resolved {
            vec![(from, to)]
        } else {
            let fall = program.successors(from).iter().find(|e| e.kind == EdgeKind::FallThrough);
            match fall {
                Some(e) if program.successors(e.to).len() == 1 && has(e.to, to) => {
                    vec![(from, e.to), (e.to, to)]
                }
                _ => return false,
            }
        };
        for (a, b) in route {
            let edge = Edge { from: start(a), to: start(b) };
            add(&mut self.profile.edges, edge, count);
            if misses > 0 {
                add(&mut self.profile.mispredicts, edge, misses);
            }
        }
        true
    }
}
