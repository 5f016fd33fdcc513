//! The loop nesting forest, with loops that are entered at several blocks.
//!
//! **Which forest.** A *loop* is a strongly connected component that holds an edge. Its *entries* are its
//! blocks that an edge from outside leads to, or where control enters the function. Its *back edges* are its
//! edges to its entries. Take the entries away: the loops of what is left of the component are the loops
//! directly inside it. A loop of one entry is reducible, and that entry its header in the usual sense; one of
//! several is irreducible, and all its entries are headers alike.
//!
//! This is Steensgaard's forest. It is a property of the graph: no order of visiting is in it, so that two
//! analyses, or a brute force by components, find the same. (Havlak's, and that of Wei and others, 2007,
//! agree on reducible graphs; on others they make the entry first visited the header, so theirs depends on
//! the search.)
//!
//! Blocks that the entries do not reach count as entered as `Dominators` says; so loops of unreached code are
//! found too.
//!
//! **How.** One depth-first search finds the nesting by collapsing inner loops bottom-up (Tarjan; Havlak),
//! with an edge between two branches of the search considered at their nearest common ancestor (G.
//! Ramalingam, "Identifying Loops in Almost Linear Time", TOPLAS 1999, section 3), which makes it almost
//! linear. In a loop with one entry that is Steensgaard's nesting. The outermost loops with several are
//! searched again inside, without their entries: one more pass for each level of irreducible nesting.
//!
//! Invariant: nothing recurses; a block is an entry of at most one loop, its innermost; `blocks` of a loop
//! are contiguous.

use crate::analyses::flow_graph::{FlowGraph, count};
use crate::ids::{BlockId, EdgeId, FuncId};
use crate::model::Program;
use std::fmt;
use std::ops::Range;

/// A loop of one function; prints as `loop2`. Outer loops come before inner ones, loops side by side in the
/// order of their first entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopId(pub u32);

impl LoopId {
    /// Position in the function's loops.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for LoopId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loop{}", self.0)
    }
}

impl fmt::Debug for LoopId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The loops of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loops {
    /// The function.
    pub func: FuncId,
    first: u32,
    nest: Nest,
    back_edges: Vec<EdgeId>,
    /// Where each loop's back edges end in `back_edges`.
    back_edges_end: Vec<u32>,
}

/// The forest by position.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Nest {
    parent: Vec<u32>,
    depth: Vec<u32>,
    /// Innermost loop of each node.
    innermost: Vec<u32>,
    /// All nodes in loops, so that each loop's are contiguous: its own first, then those of the loops inside.
    order: Vec<u32>,
    /// Where each loop's nodes stand in `order`.
    members: Vec<Range<u32>>,
    /// Where each node stands in `order`.
    position: Vec<u32>,
    entries: Vec<u32>,
    entries_of: Vec<Range<u32>>,
    is_entry: Vec<bool>,
}

const NONE: u32 = u32::MAX;

impl Loops {
    /// The loops of `func`.
    pub fn compute(program: &Program, func: FuncId) -> Loops {
        let f = program.function(func);
        if !has_cycle(program, func) {
            let nest = Nest::none(f.n_blocks());
            let (back_edges, back_edges_end) = (Vec::new(), Vec::new());
            return Loops { func, first: f.blocks.start, nest, back_edges, back_edges_end };
        }
        let graph = FlowGraph::of(program, func);
        let nest = Nest::of(&graph);
        let first_edge = program.blocks.get(f.blocks.start as usize).map_or(0, |b| b.first_edge.0);
        // By loop, then by edge: counting sort over the edges.
        let mut by_loop: Vec<(u32, EdgeId)> = Vec::new();
        if !nest.parent.is_empty() {
            for node in 0..count(graph.len()) {
                for (k, &to) in graph.edges(node).zip(graph.successors(node)) {
                    if nest.is_entry[to as usize] && nest.contains(nest.innermost[to as usize], node) {
                        by_loop.push((nest.innermost[to as usize], EdgeId(first_edge + count(k))));
                    }
                }
            }
        }
        by_loop.sort_unstable();
        let mut back_edges_end = vec![0; nest.parent.len()];
        for &(l, _) in &by_loop {
            back_edges_end[l as usize] += 1;
        }
        let mut sum = 0;
        for end in &mut back_edges_end {
            sum += *end;
            *end = sum;
        }
        let back_edges = by_loop.into_iter().map(|(_, e)| e).collect();
        Loops { func, first: f.blocks.start, nest, back_edges, back_edges_end }
    }

    /// How many loops there are.
    pub fn len(&self) -> usize {
        self.nest.parent.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nest.parent.is_empty()
    }
    /// All loops, outer before inner.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = LoopId> + DoubleEndedIterator + use<> {
        (0..count(self.len())).map(LoopId)
    }
    /// The loop directly around it.
    pub fn parent(&self, id: LoopId) -> Option<LoopId> {
        some_loop(self.nest.parent[id.index()])
    }
    /// How many loops hold its blocks, itself included: 1 for an outermost loop.
    pub fn depth(&self, id: LoopId) -> u32 {
        self.nest.depth[id.index()]
    }
    /// The innermost loop that holds `block`.
    pub fn innermost(&self, block: BlockId) -> Option<LoopId> {
        some_loop(self.nest.innermost[(block.0 - self.first) as usize])
    }
    /// How many loops hold `block`.
    pub fn block_depth(&self, block: BlockId) -> u32 {
        self.innermost(block).map_or(0, |l| self.depth(l))
    }
    /// Where it is entered, by address: its header, or headers. Never empty.
    pub fn entries(&self, id: LoopId) -> impl ExactSizeIterator<Item = BlockId> + '_ {
        let range = self.nest.entries_of[id.index()].clone();
        self.nest.entries[range.start as usize..range.end as usize].iter().map(|&n| self.block(n))
    }
    /// Its first entry by address: the header of a reducible loop.
    pub fn header(&self, id: LoopId) -> BlockId {
        self.block(self.nest.entries[self.nest.entries_of[id.index()].start as usize])
    }
    /// Whether it is entered at several blocks.
    pub fn is_irreducible(&self, id: LoopId) -> bool {
        self.nest.entries_of[id.index()].len() > 1
    }
    /// Whether `block` is an entry of a loop, which is then its innermost.
    pub fn is_header(&self, block: BlockId) -> bool {
        self.nest.is_entry[(block.0 - self.first) as usize]
    }
    /// Its blocks: those in no loop inside it by address, then loop by loop.
    pub fn blocks(&self, id: LoopId) -> impl ExactSizeIterator<Item = BlockId> + '_ {
        let range = self.nest.members[id.index()].clone();
        self.nest.order[range.start as usize..range.end as usize].iter().map(|&n| self.block(n))
    }
    /// Whether `block` is in it, or in a loop inside it.
    pub fn contains(&self, id: LoopId, block: BlockId) -> bool {
        self.nest.contains(id.0, block.0 - self.first)
    }
    /// Its edges to its entries, in order. An edge is a back edge of one loop at most.
    pub fn back_edges(&self, id: LoopId) -> &[EdgeId] {
        let from = id.index().checked_sub(1).map_or(0, |i| self.back_edges_end[i]);
        &self.back_edges[from as usize..self.back_edges_end[id.index()] as usize]
    }
    /// The loop that `edge` is a back edge of.
    pub fn back_edge_of(&self, program: &Program, edge: EdgeId) -> Option<LoopId> {
        let e = program.edge(edge);
        let l = self.innermost(e.to).filter(|_| self.is_header(e.to))?;
        self.contains(l, e.from).then_some(l)
    }
    /// The edges that leave it, in order. Linear in its blocks.
    pub fn exits(&self, program: &Program, id: LoopId) -> Vec<EdgeId> {
        let mut exits: Vec<EdgeId> = self
            .blocks(id)
            .flat_map(|b| program.edge_ids(b))
            .filter(|&e| !self.contains(id, program.edge(e).to))
            .collect();
        exits.sort_unstable();
        exits
    }

    fn block(&self, node: u32) -> BlockId {
        BlockId(self.first + node)
    }
}

/// Whether there is any loop, by a search that is much cheaper than finding them: most functions have none.
fn has_cycle(program: &Program, func: FuncId) -> bool {
    const OPEN: u8 = 1;
    const DONE: u8 = 2;
    let f = program.function(func);
    let (mut state, mut open) = (Vec::new(), Vec::new());
    // A cycle goes back at least once in any order of the blocks, so it is reached from where such an edge
    // leads.
    for b in f.block_ids() {
        for e in program.successors(b).iter().filter(|e| e.to <= e.from) {
            state.resize(f.n_blocks(), 0u8);
            let root = (e.to.0 - f.blocks.start) as usize;
            if state[root] != 0 {
                continue;
            }
            state[root] = OPEN;
            open.push((root, program.successors(e.to)));
            while let Some((node, rest)) = open.last_mut() {
                let Some((e, after)) = rest.split_first() else {
                    state[*node] = DONE;
                    open.pop();
                    continue;
                };
                *rest = after;
                let to = (e.to.0 - f.blocks.start) as usize;
                match state[to] {
                    0 => {
                        state[to] = OPEN;
                        open.push((to, program.successors(e.to)));
                    }
                    OPEN => return true,
                    _ => {}
                }
            }
        }
    }
    false
}

fn some_loop(index: u32) -> Option<LoopId> {
    (index != NONE).then_some(LoopId(index))
}

impl Nest {
    /// Of `n` nodes in no loop.
    fn none(n: usize) -> Nest {
        Nest {
            innermost: vec![NONE; n],
            position: vec![NONE; n],
            is_entry: vec![false; n],
            ..Nest::default()
        }
    }

    fn of(graph: &FlowGraph) -> Nest {
        let mut search = Search::new(graph);
        search.run();
        search.into_nest()
    }

    fn contains(&self, id: u32, node: u32) -> bool {
        self.members[id as usize].contains(&self.position[node as usize])
    }
}

/// A part of the graph whose loops are to be found: all of it at first, then an irreducible loop without its
/// entries.
struct Part {
    nodes: Vec<u32>,
    /// Where the part is entered from outside it.
    roots: Vec<u32>,
    /// The loop around it.
    parent: u32,
}

/// The state of the searches. Vectors are by node, and reused from part to part.
struct Search<'a> {
    graph: &'a FlowGraph,
    is_root: Vec<bool>,
    parts: Vec<Part>,
    /// Loops found: parent, and entries.
    loops: Vec<(u32, Vec<u32>)>,
    innermost: Vec<u32>,
    /// Which part a node was last seen in; 0 is none.
    part_of: Vec<u32>,
    n_parts: u32,
    /// Number in the search of this part.
    number: Vec<u32>,
    /// Leads to the nearest ancestor that the search has not left: itself, while the search is in it.
    left_to: Vec<u32>,
    is_left_root: Vec<bool>,
    /// Leads to the header of the outermost loop found so far that holds the node.
    header: Vec<u32>,
    /// Header of the innermost loop around the node (for a header: around its loop).
    around: Vec<u32>,
    is_header: Vec<bool>,
    is_irreducible: Vec<bool>,
    /// Edges into a node from the same branch of the search, and those put off until their common ancestor,
    /// as linked lists.
    inside: Lists,
    put_off: Lists,
    back: Lists,
}

/// A list of pairs for each node, without a vector for each.
struct Lists {
    head: Vec<u32>,
    cells: Vec<(u32, u32, u32)>,
}

impl Lists {
    fn new(n: usize) -> Lists {
        Lists { head: vec![NONE; n], cells: Vec::new() }
    }
    fn push(&mut self, at: u32, a: u32, b: u32) {
        let cell = count(self.cells.len());
        self.cells.push((a, b, std::mem::replace(&mut self.head[at as usize], cell)));
    }
    fn next(&self, cell: &mut u32) -> Option<(u32, u32)> {
        let &(a, b, next) = self.cells.get(*cell as usize)?;
        *cell = next;
        Some((a, b))
    }
}

/// The representative of `node`, with the way to it halved.
fn find(up: &mut [u32], mut node: u32) -> u32 {
    while up[node as usize] != node {
        let next = up[node as usize];
        up[node as usize] = up[next as usize];
        node = next;
    }
    node
}

impl<'a> Search<'a> {
    fn new(graph: &'a FlowGraph) -> Search<'a> {
        let n = graph.len();
        let mut is_root = vec![false; n];
        graph.roots.iter().for_each(|&r| is_root[r as usize] = true);
        let mut inside = Lists::new(n);
        inside.cells.reserve(n);
        let all = Part { nodes: (0..count(n)).collect(), roots: graph.roots.clone(), parent: NONE };
        Search {
            graph,
            is_root,
            parts: vec![all],
            loops: Vec::new(),
            innermost: vec![NONE; n],
            part_of: vec![0; n],
            n_parts: 0,
            number: vec![NONE; n],
            left_to: vec![NONE; n],
            is_left_root: vec![false; n],
            header: (0..count(n)).collect(),
            around: vec![NONE; n],
            is_header: vec![false; n],
            is_irreducible: vec![false; n],
            inside,
            put_off: Lists::new(n),
            back: Lists::new(n),
        }
    }

    fn run(&mut self) {
        while let Some(part) = self.parts.pop() {
            self.n_parts += 1;
            for &v in &part.nodes {
                let i = v as usize;
                self.part_of[i] = self.n_parts;
                (self.number[i], self.left_to[i], self.header[i], self.around[i]) = (NONE, v, v, NONE);
                (self.is_header[i], self.is_irreducible[i], self.is_left_root[i]) = (false, false, false);
                (self.inside.head[i], self.put_off.head[i], self.back.head[i]) = (NONE, NONE, NONE);
            }
            for lists in [&mut self.inside, &mut self.put_off, &mut self.back] {
                lists.cells.clear();
            }
            let (order, across) = self.walk(&part);
            for &header in order.iter().rev() {
                self.collapse(header);
            }
            // Entered past the header from another tree of the search, or from outside the part.
            for to in across {
                self.enter(to);
            }
            self.record(&part, &order);
        }
    }

    /// Depth-first search of a part: its nodes in preorder, and the targets of what has no common ancestor.
    /// Sorts the edges: back, within a branch, between branches.
    fn walk(&mut self, part: &Part) -> (Vec<u32>, Vec<u32>) {
        let (mut order, mut across) = (Vec::with_capacity(part.nodes.len()), Vec::new());
        let mut open: Vec<(u32, usize)> = Vec::with_capacity(part.nodes.len().min(64));
        for &root in &part.roots {
            if self.number[root as usize] != NONE {
                across.push(root);
                continue;
            }
            self.number[root as usize] = count(order.len());
            order.push(root);
            open.push((root, 0));
            while let Some(&mut (node, ref mut next)) = open.last_mut() {
                let Some(&to) = self.graph.successors(node).get(*next) else {
                    open.pop();
                    match open.last() {
                        Some(&(above, _)) => self.left_to[node as usize] = above,
                        None => self.is_left_root[node as usize] = true,
                    }
                    continue;
                };
                *next += 1;
                if self.part_of[to as usize] != self.n_parts {
                    continue;
                }
                if self.number[to as usize] == NONE {
                    self.number[to as usize] = count(order.len());
                    order.push(to);
                    self.inside.push(to, node, NONE);
                    open.push((to, 0));
                    continue;
                }
                let common = find(&mut self.left_to, to);
                if self.is_left_root[common as usize] {
                    across.push(to);
                } else if common == to {
                    self.back.push(to, node, NONE);
                } else {
                    self.put_off.push(common, node, to);
                }
            }
        }
        (order, across)
    }

    /// Makes the loop whose header is `x`, if it is one, of the nodes below it that reach it; inner loops are
    /// one node already.
    fn collapse(&mut self, x: u32) {
        let mut cell = self.put_off.head[x as usize];
        while let Some((from, to)) = self.put_off.next(&mut cell) {
            self.enter(to);
            let at = find(&mut self.header, to);
            self.inside.push(at, from, NONE);
        }
        let mut body = Vec::new();
        let mut cell = self.back.head[x as usize];
        while let Some((from, _)) = self.back.next(&mut cell) {
            self.is_header[x as usize] = true;
            self.add(x, from, &mut body);
        }
        let mut done = 0;
        while let Some(&node) = body.get(done) {
            done += 1;
            let mut cell = self.inside.head[node as usize];
            while let Some((from, _)) = self.inside.next(&mut cell) {
                self.add(x, from, &mut body);
            }
        }
        for node in body {
            self.header[node as usize] = x;
        }
    }

    /// Adds what stands for `node` to the body of the loop of `x`, once.
    fn add(&mut self, x: u32, node: u32, body: &mut Vec<u32>) {
        let node = find(&mut self.header, node);
        if node != x && self.around[node as usize] == NONE {
            self.around[node as usize] = x;
            body.push(node);
        }
    }

    /// An edge from outside leads to `to`: if it is in a loop but not its header, the outermost such loop has
    /// several entries.
    fn enter(&mut self, to: u32) {
        let outermost = find(&mut self.header, to);
        if outermost != to {
            self.is_irreducible[outermost as usize] = true;
        }
    }

    /// Takes over what was found in `part`: reducible loops as they are, of irreducible ones the outermost,
    /// whose inside is a new part.
    fn record(&mut self, part: &Part, order: &[u32]) {
        // For a header its loop, and which irreducible loop's region a node is in, by its header.
        let mut loop_of: Vec<(u32, u32)> = Vec::new();
        let mut index = vec![NONE; order.len()];
        let mut regions: Vec<(u32, Vec<u32>)> = Vec::new();
        for &v in order {
            let (mut parent, mut region) = (part.parent, NONE);
            if self.around[v as usize] != NONE {
                let k = index[self.number[self.around[v as usize] as usize] as usize];
                (parent, region) = loop_of[k as usize];
            }
            if region != NONE {
                regions[region as usize].1.push(v);
                if self.is_header[v as usize] {
                    index[self.number[v as usize] as usize] = count(loop_of.len());
                    loop_of.push((parent, region));
                }
                continue;
            }
            self.innermost[v as usize] = parent;
            if !self.is_header[v as usize] {
                continue;
            }
            let id = count(self.loops.len());
            self.loops.push((parent, vec![v]));
            self.innermost[v as usize] = id;
            index[self.number[v as usize] as usize] = count(loop_of.len());
            if self.is_irreducible[v as usize] {
                loop_of.push((id, count(regions.len())));
                regions.push((id, vec![v]));
            } else {
                loop_of.push((id, NONE));
            }
        }
        for (id, nodes) in regions {
            self.split(id, nodes);
        }
    }

    /// The entries of an irreducible loop, and what is left of it as a new part.
    fn split(&mut self, id: u32, nodes: Vec<u32>) {
        self.n_parts += 1;
        for &v in &nodes {
            self.part_of[v as usize] = self.n_parts;
            self.innermost[v as usize] = id;
        }
        let inside = self.n_parts;
        let is_entry = |v: u32| {
            self.is_root[v as usize]
                || self.graph.predecessors(v).iter().any(|&p| self.part_of[p as usize] != inside)
        };
        let (entries, rest): (Vec<u32>, Vec<u32>) = nodes.into_iter().partition(|&v| is_entry(v));
        for &v in &entries {
            self.part_of[v as usize] = 0;
        }
        let entered =
            |v: &u32| self.graph.predecessors(*v).iter().any(|&p| self.part_of[p as usize] != inside);
        let roots = rest.iter().copied().filter(entered).collect();
        self.loops[id as usize].1 = entries;
        self.parts.push(Part { nodes: rest, roots, parent: id });
    }

    /// The forest in its order: outer before inner, side by side by first entry.
    fn into_nest(mut self) -> Nest {
        let n_loops = self.loops.len();
        for (_, entries) in &mut self.loops {
            entries.sort_unstable();
        }
        let mut children = vec![Vec::new(); n_loops + 1];
        for (i, (parent, entries)) in self.loops.iter().enumerate() {
            let above = if *parent == NONE { n_loops } else { *parent as usize };
            children[above].push((entries[0], count(i)));
        }
        let mut own: Vec<(u32, u32)> = Vec::new();
        own.extend(self.innermost.iter().enumerate().filter(|x| *x.1 != NONE).map(|(v, &l)| (l, count(v))));
        own.sort_unstable();
        let n = self.graph.len();
        let mut nest = Nest::none(n);
        let mut stack: Vec<(u32, u32, bool)> = Vec::new();
        let push = |stack: &mut Vec<(u32, u32, bool)>, list: &mut Vec<(u32, u32)>, parent: u32| {
            list.sort_unstable();
            stack.extend(list.iter().rev().map(|&(_, l)| (l, parent, false)));
        };
        push(&mut stack, &mut children[n_loops], NONE);
        while let Some((old, new, done)) = stack.pop() {
            if done {
                nest.members[new as usize].end = count(nest.order.len());
                continue;
            }
            let (parent, id) = (new, count(nest.parent.len()));
            nest.parent.push(parent);
            nest.depth.push(if parent == NONE { 1 } else { nest.depth[parent as usize] + 1 });
            let start = count(nest.order.len());
            nest.members.push(start..start);
            let of_old = own.partition_point(|x| x.0 < old);
            for &(_, v) in own[of_old..].iter().take_while(|x| x.0 == old) {
                nest.position[v as usize] = count(nest.order.len());
                nest.innermost[v as usize] = id;
                nest.order.push(v);
            }
            let from = count(nest.entries.len());
            for &v in &self.loops[old as usize].1 {
                nest.entries.push(v);
                nest.is_entry[v as usize] = true;
            }
            nest.entries_of.push(from..count(nest.entries.len()));
            stack.push((old, id, true));
            push(&mut stack, &mut children[old as usize], id);
        }
        nest
    }
}

#[cfg(test)]
mod tests;
