//! Paths that go through calls, by scanning (schemes 1 and 3).
//!
//! A path whose steps have calls before them is a tree of paths: each is followed in every activation of its
//! function, as a set of positions (bit i: its first i steps have been matched). When an activation is left,
//! those of its paths that occurred in it count for the activation below, which called it: of the calls that
//! a step wants before it, in this order, the next is made. A block takes a step only if its calls were made
//! since the last block, and forgets them. Calls in between that are not wanted are of no account.
//!
//! The paper has no such paths; the vector of states is its (section 4.1).

use crate::balance::Levels;
use crate::ids::{BlockId, FuncId};
use crate::search::path::Path;
use crate::symbol::{Step, Symbol};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// A path of the tree.
struct Followed {
    func: FuncId,
    /// Which steps a block fits.
    fits: BTreeMap<BlockId, u128>,
    /// Steps that may be taken again, that come behind a gap, that want no call.
    repeats: u128,
    after_gap: u128,
    free: u128,
    end: u128,
    /// Steps that want calls, and how many.
    wanting: Vec<(u128, u16)>,
    /// The path that wants this one as a call, at which of its steps that want calls, as the how-manieth.
    wanted_by: Option<(usize, usize, u16)>,
}

impl Followed {
    /// The positions behind a block.
    fn next(&self, set: u128, block: BlockId, made: &[u16]) -> u128 {
        let fits = self.fits.get(&block).copied().unwrap_or(0);
        let with_calls = self.wanting.iter().zip(made).filter(|((_, n), made)| n == *made);
        let ready = with_calls.fold(self.free, |ready, ((step, _), _)| ready | step);
        1 | (set & ready & fits) << 1 | set & (self.repeats & fits) << 1 | set & self.after_gap
    }
}

/// An activation.
#[derive(Clone, Copy)]
struct Activation {
    func: Option<FuncId>,
    /// Where its sets begin in `sets`, and its calls in `made`; it has none if no path is of its function.
    sets: usize,
    made: usize,
}

/// A search through one stream.
pub struct Scan {
    /// The tree; the path that is searched is the first.
    tree: Vec<Followed>,
    /// By function, its paths: of those that one step wants, the last first, so that a call is not taken for
    /// two.
    of: BTreeMap<FuncId, Vec<usize>>,
    open: Vec<Activation>,
    /// For each path of an open activation, its positions, and whether it has occurred.
    sets: Vec<(u128, bool)>,
    /// For each step that wants calls, how many of them were made since the last block.
    made: Vec<u16>,
    index: u64,
}

impl Scan {
    /// Searches `path`.
    pub fn new(path: &Path) -> Self {
        let mut tree = Vec::new();
        grow(path, None, &mut tree);
        let mut of: BTreeMap<FuncId, Vec<usize>> = BTreeMap::new();
        (0..tree.len()).rev().for_each(|i| of.entry(tree[i].func).or_default().push(i));
        Self { tree, of, open: Vec::new(), sets: Vec::new(), made: Vec::new(), index: 0 }
    }

    /// The functions that matter: what has none of them can be passed.
    pub fn functions(&self) -> BTreeSet<FuncId> {
        self.of.keys().copied().collect()
    }

    /// Goes to the beginning of a stream.
    pub fn start(&mut self) {
        self.open.clear();
        self.sets.clear();
        self.made.clear();
        self.index = 0;
    }

    /// Takes the next symbols; `found` is told the index of the last block of each occurrence and who called
    /// the function, and says whether to go on. Returns whether it did.
    pub fn feed(&mut self, symbols: &[u32], mut found: impl FnMut(u64, Option<FuncId>) -> bool) -> bool {
        for &code in symbols {
            match Symbol(code).step() {
                Step::Enter(func) => self.enter(Some(func)),
                Step::Exit => self.leave(),
                Step::Block(block) => {
                    if self.block(block) {
                        let below = self.open.len().checked_sub(2).and_then(|i| self.open.get(i));
                        if !found(self.index, below.and_then(|below| below.func)) {
                            return false;
                        }
                    }
                }
            }
            self.index += 1;
        }
        true
    }

    /// Passes over symbols that enter none of the functions, and execute no block of them.
    pub fn pass(&mut self, n_symbols: u64, levels: Levels) {
        (0..self.open.len().min(levels.pops as usize)).for_each(|_| self.leave());
        (0..levels.pushes).for_each(|_| self.enter(None));
        self.index += n_symbols;
    }

    fn enter(&mut self, func: Option<FuncId>) {
        self.open.push(Activation { func, sets: self.sets.len(), made: self.made.len() });
        for &path in func.and_then(|func| self.of.get(&func)).into_iter().flatten() {
            self.sets.push((1, false));
            self.made.extend(self.tree[path].wanting.iter().map(|_| 0));
        }
    }

    fn leave(&mut self) {
        let Some(left) = self.open.pop() else { return };
        if left.sets == self.sets.len() {
            return;
        }
        let occurred: Vec<bool> = self.sets.drain(left.sets..).map(|(_, occurred)| occurred).collect();
        self.made.truncate(left.made);
        let Some(below) = self.open.last() else { return };
        let paths = left.func.and_then(|func| self.of.get(&func)).into_iter().flatten();
        for (&path, _) in paths.zip(occurred).filter(|(_, occurred)| *occurred) {
            let Some((by, step, nth)) = self.tree[path].wanted_by else { continue };
            if below.func != Some(self.tree[by].func) {
                continue;
            }
            let mut at = below.made + step;
            for &other in self.of[&self.tree[by].func].iter().take_while(|&&other| other != by) {
                at += self.tree[other].wanting.len();
            }
            if self.made[at] == nth {
                self.made[at] += 1;
            }
        }
    }

    /// Whether an occurrence of the path that is searched ends with this block.
    fn block(&mut self, block: BlockId) -> bool {
        let Some(top) = self.open.last().filter(|top| top.sets < self.sets.len()) else { return false };
        let (mut at, mut is_found) = (top.made, false);
        let paths = top.func.and_then(|func| self.of.get(&func)).into_iter().flatten();
        for (&i, (set, occurred)) in paths.zip(&mut self.sets[top.sets..]) {
            let path = &self.tree[i];
            let made = &mut self.made[at..at + path.wanting.len()];
            *set = path.next(*set, block, made);
            made.fill(0);
            at += made.len();
            let is_end = *set & path.end != 0;
            *occurred |= is_end;
            is_found |= is_end && i == 0;
        }
        is_found
    }
}

/// Adds a path and all that its steps want, each behind what wants it, the calls of a step in order.
fn grow(path: &Path, wanted_by: Option<(usize, usize, u16)>, tree: &mut Vec<Followed>) {
    let this = tree.len();
    let mut followed = Followed {
        func: path.func,
        fits: BTreeMap::new(),
        repeats: 0,
        after_gap: 0,
        free: 0,
        end: 1 << path.steps.len(),
        wanting: Vec::new(),
        wanted_by,
    };
    let mut calls = Vec::new();
    for (i, step) in path.steps.iter().enumerate() {
        let bit = 1_u128 << i;
        step.blocks.iter().for_each(|&block| *followed.fits.entry(block).or_insert(0) |= bit);
        followed.repeats |= if step.repeats { bit } else { 0 };
        followed.after_gap |= if step.after_gap { bit } else { 0 };
        if step.calls.is_empty() {
            followed.free |= bit;
            continue;
        }
        let wanting = followed.wanting.len();
        followed.wanting.push((bit, u16::try_from(step.calls.len()).expect("the parser bounds them")));
        calls.extend((0..).zip(&step.calls).map(|(nth, call)| (call, (this, wanting, nth))));
    }
    tree.push(followed);
    calls.into_iter().for_each(|(call, wanted_by)| grow(call, Some(wanted_by), tree));
}
