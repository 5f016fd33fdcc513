//! A function's flow graph by position: what dominators, loops, liveness and the layout walk over.
//!
//! Invariant: every node is reached from a root. Edges keep their order, so that the edge at `k` of the list
//! is the `k`-th of the function; two edges between the same nodes stay two.
//!
//! Not here: what edges mean (`model`).

use crate::ids::FuncId;
use crate::model::Program;
use std::ops::Range;

/// A flow graph over the nodes `0..n`, its edges grouped by source, and by target.
#[derive(Clone, Debug)]
pub(crate) struct FlowGraph {
    first_out: Vec<u32>,
    to: Vec<u32>,
    first_in: Vec<u32>,
    from: Vec<u32>,
    /// Where control enters: the entries that were given, in that order; then, for each strongly connected
    /// component that nothing outside leads into and that holds no entry, its lowest node.
    pub roots: Vec<u32>,
}

impl FlowGraph {
    /// The graph of `func`: node `i` is its `i`-th block by address, edge `k` its `k`-th edge.
    pub fn of(program: &Program, func: FuncId) -> FlowGraph {
        let f = program.function(func);
        let first = f.blocks.start;
        let mut first_out = Vec::with_capacity(f.n_blocks() + 1);
        let mut to = Vec::with_capacity(f.n_blocks() * 3 / 2);
        for b in f.block_ids() {
            first_out.push(count(to.len()));
            to.extend(program.successors(b).iter().map(|e| e.to.0 - first));
        }
        first_out.push(count(to.len()));
        let main = program.blocks_of(func).binary_search_by_key(&f.entry, |b| b.start).ok().map(count);
        let entries = main.into_iter().chain(f.entries.iter().map(|b| b.0 - first)).collect();
        FlowGraph::with_entries(first_out, to, entries)
    }

    /// The graph over `0..n` with these edges, grouped by source.
    #[cfg(test)]
    pub fn new(n: usize, edges: &[(u32, u32)], entries: &[u32]) -> FlowGraph {
        let mut first_out = vec![0; n + 1];
        for &(from, _) in edges {
            first_out[from as usize + 1] += 1;
        }
        for i in 0..n {
            first_out[i + 1] += first_out[i];
        }
        assert!(edges.is_sorted_by_key(|e| e.0), "edges are grouped by source");
        FlowGraph::with_entries(first_out, edges.iter().map(|e| e.1).collect(), entries.to_vec())
    }

    /// The graph whose edges leave node `i` at `first_out[i]..first_out[i + 1]` of `to`.
    pub fn with_entries(first_out: Vec<u32>, to: Vec<u32>, entries: Vec<u32>) -> FlowGraph {
        let n = first_out.len() - 1;
        let mut first_in = vec![0; n + 1];
        for &t in &to {
            first_in[t as usize + 1] += 1;
        }
        for i in 0..n {
            first_in[i + 1] += first_in[i];
        }
        let mut next = first_in.clone();
        let mut from = vec![0; to.len()];
        for node in 0..n {
            for &t in &to[first_out[node] as usize..first_out[node + 1] as usize] {
                from[next[t as usize] as usize] = count(node);
                next[t as usize] += 1;
            }
        }
        let mut graph = FlowGraph { first_out, to, first_in, from, roots: entries };
        graph.add_roots();
        graph
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.first_out.len() - 1
    }
    /// Targets of the edges that leave `node`.
    pub fn successors(&self, node: u32) -> &[u32] {
        &self.to[self.edges(node)]
    }
    /// Positions of the edges that leave `node`.
    pub fn edges(&self, node: u32) -> Range<usize> {
        self.first_out[node as usize] as usize..self.first_out[node as usize + 1] as usize
    }
    /// Sources of the edges that reach `node`.
    pub fn predecessors(&self, node: u32) -> &[u32] {
        &self.from[self.first_in[node as usize] as usize..self.first_in[node as usize + 1] as usize]
    }

    /// Nodes in an order in which a node follows its successors, but for those it is reached from: a
    /// depth-first postorder.
    pub fn postorder(&self) -> Vec<u32> {
        let mut seen = vec![false; self.len()];
        let mut order = Vec::with_capacity(self.len());
        for &root in &self.roots {
            self.visit(root, &mut seen, &mut order);
        }
        order
    }

    /// Appends the nodes reached from `root` that were not `seen`, in postorder.
    fn visit(&self, root: u32, seen: &mut [bool], order: &mut Vec<u32>) {
        if std::mem::replace(&mut seen[root as usize], true) {
            return;
        }
        let mut stack = vec![(root, 0)];
        while let Some((node, next)) = stack.last_mut() {
            match self.successors(*node).get(*next) {
                Some(&to) => {
                    *next += 1;
                    if !std::mem::replace(&mut seen[to as usize], true) {
                        stack.push((to, 0));
                    }
                }
                None => {
                    order.push(*node);
                    stack.pop();
                }
            }
        }
    }

    /// Finds roots for what the entries do not reach.
    fn add_roots(&mut self) {
        let n = self.len();
        let (mut seen, mut order) = (vec![false; n], Vec::with_capacity(n));
        for &root in &self.roots {
            self.visit(root, &mut seen, &mut order);
        }
        if order.len() == n {
            return;
        }
        // In the reverse of a postorder, the first node not reached yet is in a component that nothing else
        // leads into (Kosaraju); what it reaches is done with, and the lowest node that reaches it back is
        // the root.
        let reached = seen.clone();
        let mut rest = Vec::new();
        for node in 0..count(n) {
            self.visit(node, &mut seen, &mut rest);
        }
        let mut done = reached.clone();
        let mut component = vec![false; n];
        for &source in rest.iter().rev() {
            if done[source as usize] {
                continue;
            }
            let (mut lowest, mut stack) = (source, vec![source]);
            component[source as usize] = true;
            while let Some(node) = stack.pop() {
                lowest = lowest.min(node);
                for &p in self.predecessors(node) {
                    if !std::mem::replace(&mut component[p as usize], true) {
                        stack.push(p);
                    }
                }
            }
            self.roots.push(lowest);
            self.visit(lowest, &mut done, &mut order);
        }
    }
}

/// Positions fit `u32` because ids do.
pub(crate) fn count(n: usize) -> u32 {
    u32::try_from(n).expect("ids are u32, and there are no more nodes or edges than ids")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Graphs of up to `n` nodes with any edges: reducible or not, with self-loops, several entries, parts
    /// that nothing reaches.
    pub fn any_graph(n: usize) -> impl Strategy<Value = FlowGraph> {
        (1..=n).prop_flat_map(move |n| {
            let node = 0..count(n);
            let edges = proptest::collection::vec((node.clone(), node.clone()), 0..3 * n);
            (edges, proptest::collection::vec(node, 1..3)).prop_map(move |(mut edges, entries)| {
                edges.sort_unstable();
                FlowGraph::new(n, &edges, &entries)
            })
        })
    }

    /// Who reaches whom by one edge or more, by closure.
    pub fn reach(graph: &FlowGraph, without: &[bool]) -> Vec<Vec<bool>> {
        let n = graph.len();
        let mut reach = vec![vec![false; n]; n];
        for a in 0..count(n) {
            for &b in graph.successors(a) {
                reach[a as usize][b as usize] = !without[a as usize] && !without[b as usize];
            }
        }
        for k in 0..n {
            for i in 0..n {
                if reach[i][k] {
                    let row = reach[k].clone();
                    reach[i].iter_mut().zip(row).for_each(|(to, from)| *to |= from);
                }
            }
        }
        reach
    }

    proptest! {
        #[test]
        fn roots_reach_everything_and_none_is_needless(graph in any_graph(14), n_entries in 1..3usize) {
            let reach = reach(&graph, &vec![false; graph.len()]);
            let from = |roots: &[u32], v: usize| roots.iter().any(|&r| r as usize == v || reach[r as usize][v]);
            for v in 0..graph.len() {
                prop_assert!(from(&graph.roots, v));
            }
            // What was added is reached by no other root, and is the lowest of those that could stand for it.
            for (i, &r) in graph.roots.iter().enumerate().skip(n_entries.max(2)) {
                let others: Vec<u32> = graph.roots.iter().copied().enumerate().filter(|&(k, _)| k != i).map(|x| x.1).collect();
                prop_assert!(!from(&others, r as usize));
                let twin = (0..r).find(|&v| reach[v as usize][r as usize] && reach[r as usize][v as usize]);
                prop_assert_eq!(twin, None);
            }
        }

        #[test]
        fn a_postorder_holds_every_node_once(graph in any_graph(40)) {
            let mut order = graph.postorder();
            order.sort_unstable();
            prop_assert_eq!(order, (0..count(graph.len())).collect::<Vec<_>>());
        }
    }
}
