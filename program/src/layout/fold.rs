//! Which blocks of a function are drawn as one, so that what ran can be seen: chains of blocks that ran
//! equally often, and what never ran.
//!
//! Blocks that never ran are one node where edges join them, and where the same blocks that ran lead to them
//! and follow them. A block goes on in the node of the one before if no other way from that, or to it, ran,
//! and both ran equally often.
//!
//! Invariant: each block is in exactly one node. An edge lies within a node only if that never ran, if the
//! edge joins two blocks of a chain, or if it was never taken from one of its blocks to another.
//!
//! Not here: what a node looks like (`layout::svg`).

use super::counts::{Counts, RunCount, is_idle};
use crate::analyses::flow_graph::count;
use crate::ids::{BlockId, EdgeId, FuncId};
use crate::model::Program;
use std::collections::{BTreeMap, BTreeSet};

/// Blocks of a function as nodes of a drawing. All are numbered by their places in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folding {
    /// The node of each block.
    pub node_of: Vec<u32>,
    /// The blocks of each node; nodes stand as their first blocks do.
    pub(super) nodes: Vec<Vec<u32>>,
    /// Whether an edge is not drawn, for it lies within a node.
    pub(super) is_within: Vec<bool>,
}

impl Folding {
    /// Of `func`, by what `counts` says of it.
    pub fn compute(program: &Program, func: FuncId, counts: Option<&Counts<'_>>) -> Folding {
        let f = program.function(func);
        let first = f.blocks.start;
        let ids: Vec<EdgeId> = f.block_ids().flat_map(|b| program.edge_ids(b)).collect();
        let nth = |b: BlockId| b.0 - first;
        let edges: Vec<(u32, u32)> =
            ids.iter().map(|&e| (nth(program.edge(e).from), nth(program.edge(e).to))).collect();
        let is_idle: Vec<bool> = ids.iter().map(|&e| is_idle(program, counts, e)).collect();
        let blocks: Vec<Option<RunCount>> =
            f.block_ids().map(|b| counts.and_then(|c| (c.block)(b))).collect();
        let entries: Vec<u32> =
            program.entry_block(func).into_iter().chain(f.entries.iter().copied()).map(nth).collect();
        Folding::of_graph(&blocks, &edges, &is_idle, &entries)
    }

    /// Each block as a node of its own.
    pub(super) fn none(n_blocks: usize, n_edges: usize) -> Folding {
        Folding {
            node_of: (0..count(n_blocks)).collect(),
            nodes: (0..count(n_blocks)).map(|b| vec![b]).collect(),
            is_within: vec![false; n_edges],
        }
    }

    /// Of any graph: how often its blocks ran, its edges and whether they were never taken, and where control
    /// comes from outside.
    fn of_graph(
        blocks: &[Option<RunCount>],
        edges: &[(u32, u32)],
        is_idle: &[bool],
        entries: &[u32],
    ) -> Folding {
        let never: Vec<bool> = blocks.iter().map(|n| n.is_some_and(RunCount::is_never)).collect();
        let mut joined = Joined((0..count(blocks.len())).collect());
        join_idle(&mut joined, edges, &never);
        let links = join_chains(&mut joined, blocks, edges, is_idle, &never, entries);
        let mut nodes: Vec<Vec<u32>> = Vec::new();
        let mut of_root: BTreeMap<u32, u32> = BTreeMap::new();
        let mut node_of = Vec::with_capacity(blocks.len());
        for block in 0..count(blocks.len()) {
            let node = *of_root.entry(joined.root(block)).or_insert_with(|| {
                nodes.push(Vec::new());
                count(nodes.len() - 1)
            });
            nodes[node as usize].push(block);
            node_of.push(node);
        }
        let is_within = edges.iter().zip(is_idle).map(|(edge, idle)| {
            let is_own = nodes[node_of[edge.0 as usize] as usize].len() == 1;
            node_of[edge.0 as usize] == node_of[edge.1 as usize] && !is_own && (*idle || links.contains(edge))
        });
        let is_within = is_within.collect();
        Folding { node_of, nodes, is_within }
    }
}

/// Joins blocks that never ran, where edges do, or where what ran around them is the same.
fn join_idle(joined: &mut Joined, edges: &[(u32, u32)], never: &[bool]) {
    for &(from, to) in edges.iter().filter(|e| never[e.0 as usize] && never[e.1 as usize]) {
        joined.join(from, to);
    }
    // What ran and leads to each, and what ran and follows.
    let mut around: BTreeMap<u32, [BTreeSet<u32>; 2]> = BTreeMap::new();
    for block in (0..count(never.len())).filter(|&b| never[b as usize]) {
        around.entry(joined.root(block)).or_default();
    }
    for &(from, to) in edges {
        match (never[from as usize], never[to as usize]) {
            (false, true) => around.entry(joined.root(to)).or_default()[0].insert(from),
            (true, false) => around.entry(joined.root(from)).or_default()[1].insert(to),
            _ => false,
        };
    }
    let mut alike: BTreeMap<[BTreeSet<u32>; 2], u32> = BTreeMap::new();
    for (root, around) in around {
        let first = *alike.entry(around).or_insert(root);
        joined.join(first, root);
    }
}

/// Joins blocks to chains; the edges that do so.
fn join_chains(
    joined: &mut Joined,
    blocks: &[Option<RunCount>],
    edges: &[(u32, u32)],
    is_idle: &[bool],
    never: &[bool],
    entries: &[u32],
) -> BTreeSet<(u32, u32)> {
    // The only block that follows, or leads to, each: none yet, one, or several.
    let mut behind = vec![Ways::None; blocks.len()];
    let mut before = vec![Ways::None; blocks.len()];
    for &entry in entries {
        if let Some(ways) = before.get_mut(entry as usize) {
            *ways = Ways::Several;
        }
    }
    for (&(from, to), _) in edges.iter().zip(is_idle).filter(|(_, idle)| !**idle) {
        behind[from as usize].add(to);
        before[to as usize].add(from);
    }
    let mut links = BTreeSet::new();
    for from in (0..count(blocks.len())).filter(|&b| !never[b as usize]) {
        let Ways::One(to) = behind[from as usize] else { continue };
        let is_one = before[to as usize] == Ways::One(from);
        let is_alike = blocks[from as usize] == blocks[to as usize];
        // A chain that comes back to its start stays open there.
        if is_one && is_alike && joined.root(from) != joined.root(to) {
            joined.join(from, to);
            links.insert((from, to));
        }
    }
    links
}

/// Which blocks lie at the other ends of edges.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ways {
    None,
    One(u32),
    Several,
}

impl Ways {
    fn add(&mut self, block: u32) {
        *self = match *self {
            Ways::None => Ways::One(block),
            Ways::One(other) if other == block => *self,
            _ => Ways::Several,
        };
    }
}

/// Sets of blocks: the first of each stands for it.
struct Joined(Vec<u32>);

impl Joined {
    fn root(&mut self, block: u32) -> u32 {
        let mut at = block;
        while self.0[at as usize] != at {
            let above = self.0[at as usize];
            self.0[at as usize] = self.0[above as usize];
            at = above;
        }
        at
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ran(n: u64) -> Option<RunCount> {
        Some(RunCount { n, between: None })
    }

    /// The nodes of a graph, by its blocks, whose first is the entry; edges with how often they were taken.
    fn nodes(blocks: &[u64], edges: &[(u32, u32, u64)]) -> (Vec<Vec<u32>>, Vec<bool>) {
        let blocks: Vec<_> = blocks.iter().map(|&n| ran(n)).collect();
        let ends: Vec<_> = edges.iter().map(|e| (e.0, e.1)).collect();
        let idle: Vec<_> = edges.iter().map(|e| e.2 == 0).collect();
        let folding = Folding::of_graph(&blocks, &ends, &idle, &[0]);
        (folding.nodes, folding.is_within)
    }

    #[test]
    fn a_chain_that_ran_equally_often_is_one_node() {
        let (nodes, within) =
            nodes(&[1, 7, 7, 7, 1], &[(0, 1, 1), (1, 2, 7), (2, 3, 7), (3, 1, 6), (3, 4, 1)]);
        assert_eq!(nodes, [vec![0], vec![1, 2, 3], vec![4]]);
        // The way back to its start is still drawn.
        assert_eq!(within, [false, true, true, false, false]);
    }

    #[test]
    fn what_never_ran_does_not_break_a_chain_and_is_one_node() {
        // 1 checks something: 3 and 4, where it fails, never ran.
        let edges = [(0, 1, 5), (1, 2, 5), (1, 3, 0), (3, 4, 0), (4, 2, 0), (2, 5, 5)];
        let (nodes, within) = nodes(&[5, 5, 5, 0, 0, 5], &edges);
        assert_eq!(nodes, [vec![0, 1, 2, 5], vec![3, 4]]);
        assert_eq!(within, [true, true, false, true, false, true]);
    }

    #[test]
    fn what_never_ran_between_the_same_blocks_is_one_node() {
        // 1 to 3 lie between 0 and 4; 5 does not come back.
        let edges = [(0, 1, 0), (0, 2, 0), (0, 3, 0), (1, 4, 0), (2, 4, 0), (3, 4, 0), (0, 4, 9), (0, 5, 0)];
        let (nodes, _) = nodes(&[9, 0, 0, 0, 9, 0], &edges);
        assert_eq!(nodes, [vec![0, 4], vec![1, 2, 3], vec![5]]);
    }

    #[test]
    fn the_entry_begins_a_node_and_a_block_leads_to_itself() {
        let two = nodes(&[4, 4], &[(0, 1, 4), (1, 0, 3), (1, 1, 0)]);
        assert_eq!(two, (vec![vec![0, 1]], vec![true, false, true]));
        let alone = nodes(&[4], &[(0, 0, 3)]);
        assert_eq!(alone, (vec![vec![0]], vec![false]));
    }

    #[test]
    fn without_counts_only_what_follows_anyway_is_joined() {
        let edges = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4)];
        let folding = Folding::of_graph(&[None; 5], &edges, &[false; 5], &[0]);
        assert_eq!(folding.nodes, [vec![0, 1], vec![2], vec![3], vec![4]]);
    }

    proptest! {
        #[test]
        fn each_block_is_in_one_node_and_no_edge_between_nodes_is_lost(
            blocks in prop::collection::vec(0u64..3, 1..30),
            edges in prop::collection::vec((0u32..30, 0u32..30, 0u64..2), 0..60),
        ) {
            let n = count(blocks.len());
            let edges: Vec<_> = edges.into_iter().map(|(a, b, taken)| {
                let (a, b) = (a % n, b % n);
                let ran = blocks[a as usize] > 0 && blocks[b as usize] > 0;
                (a, b, if ran { taken } else { 0 })
            }).collect();
            let (nodes, within) = nodes(&blocks, &edges);
            let mut all: Vec<u32> = nodes.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..n).collect::<Vec<_>>());
            let node = |b: u32| nodes.iter().position(|of| of.contains(&b));
            for (&(a, b, taken), &within) in edges.iter().zip(&within) {
                prop_assert!(!within || node(a) == node(b), "{a} to {b}");
                // What is not drawn never ran, or is the one way on.
                let others = edges.iter().filter(|e| e.2 > 0 && (e.0 == a) != (e.1 == b)).count();
                prop_assert!(!within || taken == 0 || others == 0, "{a} to {b}: {others}");
            }
            for of in &nodes {
                let all_alike = of.iter().all(|&b| blocks[b as usize] == blocks[of[0] as usize]);
                prop_assert!(all_alike, "{:?}", of);
            }
        }
    }
}
