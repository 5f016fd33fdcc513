//! Two functions while their blocks are being matched.
//!
//! Invariant: `of_old` and `of_new` are each other's inverse; what several new blocks share with one old one
//! is in `more`.

use super::body::{Body, NONE, count};
use crate::options::Options;
use crate::relation::BlockMethod;
use program::{BlockId, EdgeKind};

/// A match of a new block to an old one that may have others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedMatch {
    pub old: u32,
    pub new: u32,
    pub method: BlockMethod,
    pub confidence: f32,
    pub share: f32,
    pub partial: bool,
}

/// Two functions and what is matched so far.
pub(crate) struct Pair<'a> {
    pub old: &'a Body,
    pub new: &'a Body,
    /// For each old block its new one, or `NONE`.
    pub of_old: Vec<u32>,
    /// For each new block its old one, or `NONE`.
    pub of_new: Vec<u32>,
    /// Per new block, how it was found and how sure that is.
    pub how: Vec<(BlockMethod, f32)>,
    /// Per new block, whether it is the second part of an old one, whose first is matched.
    pub second: Vec<bool>,
    /// Per new block, whether some of its old block's flow goes past it.
    pub bypassed: Vec<bool>,
    /// Matches beyond one to one.
    pub more: Vec<SharedMatch>,
    /// Blocks, old and new, that a person says are not each other.
    forbidden: Vec<(u32, u32)>,
}

impl<'a> Pair<'a> {
    pub fn new(old: &'a Body, new: &'a Body) -> Pair<'a> {
        Pair {
            old,
            new,
            of_old: vec![NONE; old.hash.len()],
            of_new: vec![NONE; new.hash.len()],
            how: vec![(BlockMethod::ControlFlow, 0.0); new.hash.len()],
            second: vec![false; new.hash.len()],
            bypassed: vec![false; new.hash.len()],
            more: Vec::new(),
            forbidden: Vec::new(),
        }
    }

    /// Matches what a person pinned and keeps apart what they forbade; answers whether there was any such
    /// thing.
    pub fn obey(&mut self, options: &Options) -> bool {
        let inside = |&(o, n): &(BlockId, BlockId)| Some((self.old.position(o)?, self.new.position(n)?));
        self.forbidden = options.block_forbids().iter().filter_map(inside).collect();
        let pins: Vec<(u32, u32)> = options.block_pins().iter().filter_map(inside).collect();
        for &(old, new) in &pins {
            self.set(old, new, BlockMethod::Pinned, 1.0);
        }
        !pins.is_empty() || !self.forbidden.is_empty()
    }

    /// Matches two blocks that are free and may be each other.
    pub fn set(&mut self, old: u32, new: u32, method: BlockMethod, confidence: f32) {
        debug_assert!(self.of_old[old as usize] == NONE && self.of_new[new as usize] == NONE);
        self.of_old[old as usize] = new;
        self.of_new[new as usize] = old;
        self.how[new as usize] = (method, confidence);
    }

    /// Whether one side has no free block left.
    pub fn is_done(&self) -> bool {
        self.of_new.iter().all(|&old| old != NONE) || self.of_old.iter().all(|&new| new != NONE)
    }

    /// Whether neither is matched, and they may be each other.
    pub fn is_free(&self, old: u32, new: u32) -> bool {
        self.of_old[old as usize] == NONE && self.of_new[new as usize] == NONE && self.allows(old, new)
    }

    /// Whether nobody forbade the two.
    pub fn allows(&self, old: u32, new: u32) -> bool {
        self.forbidden.is_empty() || !self.forbidden.contains(&(old, new))
    }

    /// Matched pairs, by new.
    pub fn matched(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.of_new.iter().zip(0..).filter(|(old, _)| **old != NONE).map(|(&old, new)| (old, new))
    }

    /// Whether two edges leave `old` and `new` by the same cause; a negated branch swaps its two.
    pub fn same_edge(&self, old: u32, left: EdgeKind, new: u32, right: EdgeKind) -> bool {
        let (x, y) = (self.old.hash(old).condition, self.new.hash(new).condition);
        let negated = x != y && x.div_ceil(2) == y.div_ceil(2);
        if negated { branch_side(left) != branch_side(right) } else { left == right }
    }
}

fn branch_side(kind: EdgeKind) -> bool {
    kind == EdgeKind::Taken
}

/// Tells whether a match would cross one that exists (BMAT, figure 5), in logarithmic time.
pub(crate) struct Crossing {
    highest: Vec<u32>,
    lowest: Vec<u32>,
}

impl Crossing {
    pub fn new(pair: &Pair<'_>) -> Crossing {
        let n = pair.old.hash.len() + 1;
        let mut out = Crossing { highest: vec![0; n], lowest: vec![NONE; n] };
        for (old, new) in pair.matched() {
            out.add(old, new);
        }
        out
    }

    /// Records a match.
    pub fn add(&mut self, old: u32, new: u32) {
        let n = self.highest.len();
        let mut i = old as usize + 1;
        while i < n {
            self.highest[i] = self.highest[i].max(new + 1);
            i += i & i.wrapping_neg();
        }
        let mut i = n - 1 - old as usize;
        while i < n {
            self.lowest[i] = self.lowest[i].min(new);
            i += i & i.wrapping_neg();
        }
    }

    /// Whether an earlier old block has a later new one, or a later an earlier.
    pub fn would_cross(&self, old: u32, new: u32) -> bool {
        let n = self.highest.len();
        let mut i = old as usize;
        while i > 0 {
            if self.highest[i] > new + 1 {
                return true;
            }
            i &= i - 1;
        }
        let mut i = (n - 1 - old as usize).saturating_sub(1);
        while i > 0 {
            if self.lowest[i] < new {
                return true;
            }
            i &= i - 1;
        }
        false
    }
}

/// Positions in the order of addresses, as `u32`.
pub(crate) fn positions(n: usize) -> std::ops::Range<u32> {
    0..count(n)
}
