//! The instructions of one region, as little of each as blocks and slices need.

use crate::addr::Va;
use crate::arch::{ControlFlow, Insn};
use crate::discovery::sweep::raw::{Context, NOWHERE, Rel};
use std::ops::Range;

/// What an instruction does to the flow of control, in a byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowKind {
    Next,
    Nop,
    Jump,
    Branch,
    JumpIndirect,
    Call,
    CallIndirect,
    Return,
    /// `ud2`, `hlt`.
    Stop,
    /// `int3`: stops, and fills space.
    Trap,
    Invalid,
}

impl FlowKind {
    pub fn falls_through(self) -> bool {
        matches!(
            self,
            FlowKind::Next | FlowKind::Nop | FlowKind::Branch | FlowKind::Call | FlowKind::CallIndirect
        )
    }
    pub fn ends_block(self) -> bool {
        !matches!(self, FlowKind::Next | FlowKind::Nop | FlowKind::Call | FlowKind::CallIndirect)
    }
    /// The kind of `insn`, and where it leads, if it is a direct jump, branch or call.
    pub fn of(insn: &Insn) -> (FlowKind, Option<Va>) {
        match insn.flow() {
            ControlFlow::Next if insn.is_nop() => (FlowKind::Nop, None),
            ControlFlow::Next => (FlowKind::Next, None),
            ControlFlow::Jump(to) => (FlowKind::Jump, Some(to)),
            ControlFlow::Branch(to) => (FlowKind::Branch, Some(to)),
            ControlFlow::JumpIndirect => (FlowKind::JumpIndirect, None),
            ControlFlow::Call(to) => (FlowKind::Call, Some(to)),
            ControlFlow::CallIndirect => (FlowKind::CallIndirect, None),
            ControlFlow::Return => (FlowKind::Return, None),
            ControlFlow::Stop if insn.is_padding() => (FlowKind::Trap, None),
            ControlFlow::Stop => (FlowKind::Stop, None),
            ControlFlow::Invalid => (FlowKind::Invalid, None),
        }
    }
}

/// An instruction, as little of it as blocks need.
#[derive(Clone, Copy, Debug)]
pub struct ListedInsn {
    pub at: Rel,
    /// The target of a direct jump, branch or call.
    pub target: Rel,
    pub len: u8,
    pub kind: FlowKind,
}

impl ListedInsn {
    pub fn end(&self) -> Rel {
        self.at + Rel::from(self.len)
    }
}

/// Bits for the bytes of a region.
#[derive(Default)]
pub struct Bits {
    from: Rel,
    words: Vec<u64>,
}

impl Bits {
    /// No bit set, for the bytes of `range`.
    pub fn reset(&mut self, range: &Range<Rel>) {
        self.from = range.start;
        self.words.clear();
        self.words.resize((range.end - range.start) as usize / 64 + 1, 0);
    }
    pub fn set(&mut self, at: Rel) {
        let i = (at - self.from) as usize;
        self.words[i / 64] |= 1 << (i % 64);
    }
    pub fn get(&self, at: Rel) -> bool {
        let i = at.wrapping_sub(self.from) as usize;
        self.words.get(i / 64).is_some_and(|w| w >> (i % 64) & 1 == 1)
    }
}

/// The addresses `all`, sorted and without repeats. Those in `span`, where most lie, are not compared with
/// each other.
pub fn sorted(all: &[Rel], span: &Range<Rel>) -> Vec<Rel> {
    let mut found = Vec::new();
    let is_worth_it = all.len() >= (span.end.saturating_sub(span.start) / 256) as usize;
    if !is_worth_it {
        found.extend_from_slice(all);
        found.sort_unstable();
        found.dedup();
        return found;
    }
    let mut bits = Bits::default();
    bits.reset(span);
    let mut above: Vec<Rel> = Vec::new();
    for &at in all {
        match at {
            _ if span.contains(&at) => bits.set(at),
            _ if at < span.start => found.push(at),
            _ => above.push(at),
        }
    }
    for rest in [&mut found, &mut above] {
        rest.sort_unstable();
        rest.dedup();
    }
    for (i, &word) in (0..).zip(&bits.words) {
        let mut word = word;
        while word != 0 {
            found.push(span.start + 64 * i + word.trailing_zeros());
            word &= word - 1;
        }
    }
    found.append(&mut above);
    found
}

/// The instructions of one region and what leads where among them. Its room is used again for the next
/// region.
#[derive(Default)]
pub struct Listing {
    pub insns: Vec<ListedInsn>,
    pub starts: Bits,
    pub leaders: Bits,
    /// Constant addresses that are put into registers: instruction's index.
    pub bases: Vec<u32>,
    /// Jumps and branches of the region by target: (target, index), made when a slice needs it.
    sources: Vec<(Rel, u32)>,
    sources_made: bool,
    /// Data that the region names, sorted, made when a table needs it.
    refs: Vec<Rel>,
    refs_made: bool,
}

impl Listing {
    /// A listing without instructions, for those of `range`.
    pub fn clear(&mut self, range: &Range<Rel>) {
        self.insns.clear();
        self.bases.clear();
        self.starts.reset(range);
    }

    /// Adds the instruction at `insn.at`.
    pub fn push(&mut self, insn: ListedInsn) {
        self.starts.set(insn.at);
        self.insns.push(insn);
    }

    /// Forgets what was made of instructions that have changed since.
    pub fn forget_derived(&mut self) {
        self.sources_made = false;
        self.refs_made = false;
    }

    /// The first address above `at` that is in `named` or that the whole image is known to name.
    pub fn next_ref(&mut self, cx: &Context<'_>, at: Rel, named: &[Rel]) -> Rel {
        if !self.refs_made {
            self.refs.clear();
            self.refs.extend_from_slice(named);
            self.refs.sort_unstable();
            self.refs_made = true;
        }
        let next = |all: &[Rel]| all.get(all.partition_point(|&r| r <= at)).copied().unwrap_or(NOWHERE);
        next(&self.refs).min(next(cx.data_refs))
    }

    /// Makes what [`Self::sources_of`] looks up.
    pub fn make_sources(&mut self) {
        if !self.sources_made {
            self.sources.clear();
            for (i, insn) in self.insns.iter().enumerate() {
                if matches!(insn.kind, FlowKind::Jump | FlowKind::Branch) && self.leaders.get(insn.target) {
                    self.sources.push((insn.target, u32::try_from(i).unwrap_or(u32::MAX)));
                }
            }
            self.sources.sort_unstable();
            self.sources_made = true;
        }
    }

    /// Indices of the direct jumps and branches to `at`.
    pub fn sources_of(&self, at: Rel) -> &[(Rel, u32)] {
        let from = self.sources.partition_point(|s| s.0 < at);
        let len = self.sources[from..].iter().take_while(|s| s.0 == at).count();
        &self.sources[from..from + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Bits for the addresses of the span, comparisons for the others: one order all the same.
        #[test]
        fn sorted_is_what_a_plain_sort_gives(all in prop::collection::vec(0_u32..600, 0..80), from in 0_u32..300) {
            let mut plain = all.clone();
            plain.sort_unstable();
            plain.dedup();
            prop_assert_eq!(sorted(&all, &(from..from + 300)), plain);
        }
    }

    #[test]
    fn a_jump_is_a_source_of_what_it_leads_to_once_that_is_a_leader() {
        let mut listing = Listing::default();
        listing.clear(&(0..16));
        listing.leaders.reset(&(0..16));
        for (at, target) in [(0, 8), (2, 4), (4, 8)] {
            listing.push(ListedInsn { at, target, len: 2, kind: FlowKind::Branch });
        }
        listing.leaders.set(8);
        listing.make_sources();
        assert_eq!(listing.sources_of(8), [(8, 0), (8, 2)]);
        assert!(listing.sources_of(4).is_empty());
        assert!(listing.starts.get(2) && !listing.starts.get(3));
    }
}
