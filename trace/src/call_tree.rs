//! Who called whom, and what it cost: the calls of a trace, alike ones made one.
//!
//! A node is a way from the outermost function to one: all calls along it are one. Functions that a part of a
//! trace begins in are on the ways, and were not entered in it. What is called deeper than a bound counts for
//! the function at the bound.
//!
//! Source: the tree of calling contexts: Ammons, Ball and Larus, "Exploiting Hardware Performance Counters
//! with Flow and Context Sensitive Profiling", PLDI 1997.

pub mod costs;
mod walk;
pub mod windows;

use crate::file::ReadError;
use crate::ids::{BlockId, FuncId};
use crate::trace::Trace;
use crate::trace::part::Part;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use walk::{Visit, walk};

/// The most nodes: more would need gigabytes, and nothing can draw them.
const MOST_NODES: usize = 1 << 26;

/// Why a trace has no tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There are too many ways.
    #[error("it has more than {MOST_NODES} stacks")]
    Many,
}

/// A way from the outermost function to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// The node of the caller, which stands before it; the first node's is itself.
    pub under: u32,
    /// The function that it leads to; of the first node, which stands for no function, the one numbered 0.
    pub func: FuncId,
    /// What the blocks weigh that were executed in it, without what it called.
    pub own: u64,
    /// How often it was entered this way.
    pub entries: u64,
}

/// The calls of a trace, or of a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallTree {
    /// Callers stand before what they call. The first is the empty way: blocks of no function are its own.
    pub nodes: Vec<Node>,
}

impl CallTree {
    /// Reads the part. An execution of a block weighs `weight(function, block before it, block)`, the one
    /// before it being of the same call. Functions deeper than `depth` are not told apart.
    ///
    /// # Errors
    /// If the trace cannot be read, or there are more ways than can be kept.
    pub fn of(
        trace: &Trace,
        part: &Part,
        depth: usize,
        weight: impl FnMut(FuncId, Option<BlockId>, BlockId) -> u64,
    ) -> Result<CallTree, TreeError> {
        let mut growing = Growing {
            tree: CallTree { nodes: vec![Node { under: 0, func: FuncId(0), own: 0, entries: 0 }] },
            known: HashMap::new(),
            open: Vec::new(),
            depth,
            weight,
        };
        match walk(trace, part, &mut growing)? {
            Some(()) => Err(TreeError::Many),
            None => Ok(growing.tree),
        }
    }

    /// What all executions weigh together.
    pub fn total(&self) -> u64 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.own))
    }

    /// What each node weighs with all that it called, in order.
    pub fn inclusive(&self) -> Vec<u64> {
        let mut sums: Vec<u64> = self.nodes.iter().map(|node| node.own).collect();
        for (n, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let own = sums.get(n).copied().unwrap_or(0);
            sums.get_mut(node.under as usize).into_iter().for_each(|sum| *sum = sum.saturating_add(own));
        }
        sums
    }

    /// What is called by `func`, wherever that is called: a tree with one function under the first node. A
    /// call of it within one counts there.
    pub fn below(&self, func: FuncId) -> CallTree {
        let mut merged = Merged::new();
        // By node, where it went: nodes outside of `func` went nowhere.
        let mut places: Vec<Option<u32>> = Vec::with_capacity(self.nodes.len());
        for (n, node) in self.nodes.iter().enumerate() {
            let under = places.get(node.under as usize).copied().flatten();
            let under = under.or_else(|| (n > 0 && node.func == func).then_some(0));
            places.push(under.map(|under| merged.add(under, node.func, node.own, node.entries)));
        }
        merged.tree
    }

    /// Who calls `func`: its callers stand under it, those of theirs under them. Each weighs by itself what
    /// calls of `func` weigh, with all that they called, that came from it and from no one above it; calls
    /// of it within one do not count. So the inclusive weight of a caller is its share of what `func` weighs.
    pub fn callers(&self, func: FuncId) -> CallTree {
        let mut merged = Merged::new();
        let inclusive = self.inclusive();
        let mut is_within: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for (n, node) in self.nodes.iter().enumerate() {
            let under = is_within.get(node.under as usize).copied().unwrap_or(false);
            is_within.push(under || n > 0 && node.func == func);
            if n == 0 || under || node.func != func {
                continue;
            }
            let (mut at, mut place) = (*node, 0);
            loop {
                place = merged.add(place, at.func, 0, node.entries);
                match self.nodes.get(at.under as usize) {
                    Some(caller) if at.under > 0 => at = *caller,
                    _ => break,
                }
            }
            let weight = inclusive.get(n).copied().unwrap_or(0);
            let last = merged.tree.nodes.get_mut(place as usize).map(|node| &mut node.own);
            last.into_iter().for_each(|own| *own = own.saturating_add(weight));
        }
        merged.tree
    }
}

/// A tree that is put together from nodes of another.
struct Merged {
    tree: CallTree,
    known: BTreeMap<(u32, FuncId), u32>,
}

impl Merged {
    fn new() -> Merged {
        let root = Node { under: 0, func: FuncId(0), own: 0, entries: 0 };
        Merged { tree: CallTree { nodes: vec![root] }, known: BTreeMap::new() }
    }

    fn add(&mut self, under: u32, func: FuncId, own: u64, entries: u64) -> u32 {
        let nodes = &mut self.tree.nodes;
        let place = *self.known.entry((under, func)).or_insert_with(|| {
            nodes.push(Node { under, func, own: 0, entries: 0 });
            u32::try_from(nodes.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(node) = nodes.get_mut(place as usize) {
            node.own = node.own.saturating_add(own);
            node.entries = node.entries.saturating_add(entries);
        }
        place
    }
}

/// A tree in the making.
struct Growing<W> {
    tree: CallTree,
    known: HashMap<(u32, FuncId), u32>,
    /// The nodes of the functions that are open.
    open: Vec<u32>,
    depth: usize,
    weight: W,
}

impl<W> Growing<W> {
    fn push(&mut self, func: FuncId, entries: u64) {
        let under = self.open.last().copied().unwrap_or(0);
        let place = match self.open.len() < self.depth {
            false => under,
            true => {
                let nodes = &mut self.tree.nodes;
                let place = *self.known.entry((under, func)).or_insert_with(|| {
                    nodes.push(Node { under, func, own: 0, entries: 0 });
                    u32::try_from(nodes.len() - 1).unwrap_or(u32::MAX)
                });
                nodes.get_mut(place as usize).into_iter().for_each(|node| node.entries += entries);
                place
            }
        };
        self.open.push(place);
    }
}

impl<W: FnMut(FuncId, Option<BlockId>, BlockId) -> u64> Visit for Growing<W> {
    fn stream(&mut self) {
        self.open.clear();
    }

    fn was_open(&mut self, func: FuncId) {
        self.push(func, 0);
    }

    fn enter(&mut self, func: FuncId) {
        self.push(func, 1);
    }

    fn block(&mut self, func: FuncId, before: Option<BlockId>, block: BlockId) {
        let n = (self.weight)(func, before, block);
        let node = self.open.last().copied().unwrap_or(0);
        let own = self.tree.nodes.get_mut(node as usize).map(|node| &mut node.own);
        own.into_iter().for_each(|own| *own = own.saturating_add(n));
    }

    fn block_of_nothing(&mut self) {
        self.tree.nodes.first_mut().into_iter().for_each(|root| root.own = root.own.saturating_add(1));
    }

    fn exit(&mut self) {
        self.open.pop();
    }

    fn has_enough(&self) -> ControlFlow<()> {
        if self.tree.nodes.len() > MOST_NODES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::costs::Costs;
    use super::*;
    use crate::file::import::{Stores, import};
    use crate::file::names::Names;
    use crate::tests::random_stream;
    use std::collections::BTreeSet;

    /// `1(2(3) 2(3 1(2)) 3)`, each with a block of its own number.
    const RUN: &[u32] = &[1, 2, 3, 0, 0, 2, 3, 0, 1, 2, 0, 0, 0, 3, 0, 0];

    fn run() -> Vec<u32> {
        let entered = |&f: &u32| if f == 0 { vec![0x8000_0000] } else { vec![0x4000_0000 + f, f] };
        RUN.iter().flat_map(entered).collect()
    }

    fn text(tree: &CallTree) -> String {
        let inclusive = tree.inclusive();
        let mut lines: Vec<String> = Vec::new();
        for (n, node) in tree.nodes.iter().enumerate().skip(1) {
            let (mut way, mut at) = (node.func.0.to_string(), node.under);
            while at > 0 {
                let above = &tree.nodes[at as usize];
                way = format!("{} {way}", above.func.0);
                at = above.under;
            }
            lines.push(format!("{way}: {} of {}, {}x", node.own, inclusive[n], node.entries));
        }
        lines.sort();
        lines.join("\n")
    }

    fn opened(stream: &[u32]) -> Trace {
        let bytes: Vec<u8> = stream.iter().flat_map(|code| code.to_le_bytes()).collect();
        let mut packed = Vec::new();
        import(bytes.as_slice(), &mut packed, &Names::default(), Stores::PACKED).expect("it is a trace");
        crate::tests::opened(&packed).expect("it is a file")
    }

    fn of(stream: &[u32]) -> CallTree {
        CallTree::of(&opened(stream), &Part::ALL, usize::MAX, |func, _, _| u64::from(func.0)).expect("a tree")
    }

    #[test]
    fn calls_along_one_way_are_one_and_callers_cost_what_they_called() {
        let tree = of(&run());
        let want = "1 2 1 2: 2 of 2, 1x\n1 2 1: 1 of 3, 1x\n1 2 3: 6 of 6, 2x\n1 2: 4 of 13, 2x\n\
                    1 3: 3 of 3, 1x\n1: 1 of 17, 1x";
        assert_eq!(text(&tree), want);
        assert_eq!(tree.total(), 17);
        // What 2 calls within 2 counts there, and not again.
        let want = "2 1 2: 2 of 2, 1x\n2 1: 1 of 3, 1x\n2 3: 6 of 6, 2x\n2: 4 of 13, 2x";
        assert_eq!(text(&tree.below(FuncId(2))), want);
        assert_eq!(text(&tree.callers(FuncId(2))), "2 1: 13 of 13, 2x\n2: 0 of 13, 2x");
        let want = "3 1: 3 of 3, 1x\n3 2 1: 6 of 6, 2x\n3 2: 0 of 6, 2x\n3: 0 of 9, 3x";
        assert_eq!(text(&tree.callers(FuncId(3))), want);
    }

    /// Slow and plainly right: a block counts for each function that is open, once.
    #[test]
    fn functions_cost_what_ran_while_they_were_open_however_often() {
        for seed in 0..40 {
            let stream = random_stream(seed, 3000);
            let (mut open, mut want) = (Vec::new(), BTreeMap::<u32, (u64, u64, u64)>::new());
            for &code in &stream {
                match code {
                    0x8000_0000.. => drop(open.pop()),
                    0x4000_0000.. => {
                        open.push(code & 0x1fff_ffff);
                        want.entry(code & 0x1fff_ffff).or_default().2 += 1;
                    }
                    block => {
                        let n = u64::from(block) + 1;
                        let own = open.last().map(|f| &mut want.get_mut(f).expect("entered").0);
                        own.into_iter().for_each(|own| *own += n);
                        let all: BTreeSet<u32> = open.iter().copied().collect();
                        all.iter().for_each(|f| want.get_mut(f).expect("entered").1 += n);
                    }
                }
            }
            let trace = opened(&stream);
            let weight = |_, _, block: BlockId| u64::from(block.0) + 1;
            let costs = Costs::of(&trace, &Part::ALL, weight).expect("it is whole");
            let got = costs.functions.iter().map(|(func, c)| (func.0, (c.own, c.inclusive, c.entries)));
            assert_eq!(got.collect::<BTreeMap<_, _>>(), want, "seed {seed}");
            let tree = CallTree::of(&trace, &Part::ALL, usize::MAX, weight).expect("a tree");
            assert_eq!(tree.total(), costs.total);
            for (&func, cost) in &costs.functions {
                let whole = |tree: CallTree| tree.inclusive().first().copied();
                assert_eq!(whole(tree.below(func)), Some(cost.inclusive), "seed {seed}");
                assert_eq!(whole(tree.callers(func)), Some(cost.inclusive), "seed {seed}");
            }
        }
    }

    /// A block is told from which one of the same call control came, whatever was called in between.
    #[test]
    fn the_block_before_is_one_of_the_same_call() {
        let (f, e) = (|i: u32| 0x4000_0000 + i, 0x8000_0000);
        let mut seen = Vec::new();
        let stream = [f(1), 0, 5, f(2), 7, f(1), 3, e, 8, e, 6, e];
        let note = |_: FuncId, before: Option<BlockId>, block: BlockId| {
            seen.push((before.map(|b| b.0), block.0));
            1
        };
        Costs::of(&opened(&stream), &Part::ALL, note).expect("it is whole");
        let want = [(None, 0), (Some(0), 5), (None, 7), (None, 3), (Some(7), 8), (Some(5), 6)];
        assert_eq!(seen, want);
    }
}
