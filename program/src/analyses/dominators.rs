//! Dominators: which blocks control must have passed to be at a block.
//!
//! A virtual root leads to the function's main entry, to its further entries, and, for blocks that none of
//! them reaches, to the lowest block of each strongly connected component that nothing outside leads into. So
//! every block has its place in one tree, and what is entered in two ways is dominated by neither.
//!
//! Source: L. Georgiadis, "Linear-Time Algorithms for Dominators and Related Problems", 2005, 2.2 (Semi-NCA):
//! semidominators as Lengauer and Tarjan compute them, with path compression, then the nearest common
//! ancestor by walking up. Nothing recurses.

use crate::analyses::flow_graph::{FlowGraph, count};
use crate::ids::{BlockId, FuncId};
use crate::model::Program;

/// The dominator tree of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dominators {
    /// The function.
    pub func: FuncId,
    first: u32,
    tree: Tree,
}

/// A dominator tree by position.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tree {
    /// Immediate dominator, `NONE` for the virtual root.
    idom: Vec<u32>,
    /// Visiting order of the tree: a node dominates those numbered `enter..leave`.
    enter: Vec<u32>,
    leave: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Dominators {
    /// The dominator tree of `func`.
    pub fn compute(program: &Program, func: FuncId) -> Dominators {
        let graph = FlowGraph::of(program, func);
        Dominators { func, first: program.function(func).blocks.start, tree: Tree::of(&graph) }
    }

    /// The block that every way to `block` passes last before it; `None` for an entry, and where several
    /// entries lead to it by ways that have nothing in common.
    pub fn immediate(&self, block: BlockId) -> Option<BlockId> {
        let idom = self.tree.idom[(block.0 - self.first) as usize];
        (idom != NONE).then(|| BlockId(self.first + idom))
    }

    /// Whether every way to `below` passes `above`; a block dominates itself.
    pub fn dominates(&self, above: BlockId, below: BlockId) -> bool {
        self.tree.dominates(above.0 - self.first, below.0 - self.first)
    }
}

impl Tree {
    fn of(graph: &FlowGraph) -> Tree {
        let n = graph.len();
        // Numbers of a depth-first search from the virtual root, which is 0.
        let mut number = vec![NONE; n];
        let mut node_of = vec![NONE];
        let mut parent = vec![0];
        let mut stack: Vec<(u32, u32)> = graph.roots.iter().rev().map(|&r| (r, 0)).collect();
        while let Some((node, from)) = stack.pop() {
            if number[node as usize] != NONE {
                continue;
            }
            let me = count(node_of.len());
            number[node as usize] = me;
            node_of.push(node);
            parent.push(from);
            stack.extend(
                graph
                    .successors(node)
                    .iter()
                    .rev()
                    .filter(|&&s| number[s as usize] == NONE)
                    .map(|&s| (s, me)),
            );
        }
        let is_root = {
            let mut flags = vec![false; n];
            graph.roots.iter().for_each(|&r| flags[r as usize] = true);
            flags
        };

        let mut semi: Vec<u32> = (0..count(node_of.len())).collect();
        let mut label = semi.clone();
        let mut ancestor = parent.clone();
        let mut path = Vec::new();
        for w in (1..node_of.len()).rev() {
            let node = node_of[w];
            let mut best = if is_root[node as usize] { 0 } else { parent[w] };
            for &p in graph.predecessors(node) {
                let v = number[p as usize];
                if v != NONE {
                    let u = eval(v, count(w), &mut ancestor, &mut label, &semi, &mut path);
                    best = best.min(semi[u as usize]);
                }
            }
            semi[w] = best;
        }
        let mut dom = parent;
        for w in 1..node_of.len() {
            while dom[w] > semi[w] {
                dom[w] = dom[dom[w] as usize];
            }
        }
        let idom: Vec<u32> = (0..n).map(|v| node_of[dom[number[v] as usize] as usize]).collect();

        // A dominator has the lower number, so sizes add up backwards, and places are given out forwards.
        let mut size = vec![1u32; node_of.len()];
        for w in (1..node_of.len()).rev() {
            size[dom[w] as usize] += size[w];
        }
        let (mut enter, mut leave) = (vec![0; n], vec![0; n]);
        let mut next = vec![0u32; node_of.len()];
        for w in 1..node_of.len() {
            let at = next[dom[w] as usize];
            next[dom[w] as usize] += size[w];
            next[w] = at + 1;
            enter[node_of[w] as usize] = at;
            leave[node_of[w] as usize] = at + size[w];
        }
        Tree { idom, enter, leave }
    }

    fn dominates(&self, above: u32, below: u32) -> bool {
        let at = self.enter[below as usize];
        self.enter[above as usize] <= at && at < self.leave[above as usize]
    }
}

/// The node of least semidominator on the way from `v` up to where numbers are below `linked`; compresses
/// that way.
fn eval(
    v: u32,
    linked: u32,
    ancestor: &mut [u32],
    label: &mut [u32],
    semi: &[u32],
    path: &mut Vec<u32>,
) -> u32 {
    if v <= linked {
        return v;
    }
    path.clear();
    let mut x = v;
    while ancestor[x as usize] > linked {
        path.push(x);
        x = ancestor[x as usize];
    }
    // `x` hangs right below the linked part; pull the rest up to it, from the top.
    while let Some(y) = path.pop() {
        if semi[label[x as usize] as usize] < semi[label[y as usize] as usize] {
            label[y as usize] = label[x as usize];
        }
        ancestor[y as usize] = ancestor[x as usize];
        x = y;
    }
    label[v as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyses::flow_graph::tests::{any_graph, reach};
    use proptest::prelude::*;

    /// By definition: a dominates b if b cannot be reached once a is taken away.
    fn dominates(graph: &FlowGraph, a: usize, b: usize) -> bool {
        let mut without = vec![false; graph.len()];
        without[a] = true;
        let reach = reach(graph, &without);
        !graph.roots.iter().any(|&r| r as usize != a && (r as usize == b || reach[r as usize][b]))
    }

    proptest! {
        #[test]
        fn dominators_are_what_cannot_be_taken_away(graph in any_graph(12)) {
            let tree = Tree::of(&graph);
            for b in 0..count(graph.len()) {
                let all: Vec<u32> = (0..count(graph.len())).filter(|&a| dominates(&graph, a as usize, b as usize)).collect();
                let got: Vec<u32> = (0..count(graph.len())).filter(|&a| tree.dominates(a, b)).collect();
                prop_assert_eq!(&got, &all);
                // The immediate one is dominated by all the others.
                let strict: Vec<u32> = all.into_iter().filter(|&a| a != b).collect();
                let immediate = strict.iter().copied().find(|&a| strict.iter().all(|&c| dominates(&graph, c as usize, a as usize)));
                prop_assert_eq!(tree.idom[b as usize], immediate.unwrap_or(NONE));
            }
        }
    }

    #[test]
    fn a_chain_of_a_million_blocks_is_no_deep_recursion() {
        let n = 1_000_000;
        let edges: Vec<(u32, u32)> = (0..n - 1).map(|i| (i, i + 1)).collect();
        let tree = Tree::of(&FlowGraph::new(n as usize, &edges, &[0]));
        assert!(tree.dominates(0, n - 1) && !tree.dominates(n - 1, 0));
    }
}
