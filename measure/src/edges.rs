//! Every block's and every edge's count from as few counters as can be: those of the edges off a spanning tree of the flow.
//!
//! The flow of a function is a graph of two nodes a block, its head and its end, and one for all that is outside. Its edges are the
//! blocks themselves, from head to end; the edges between blocks; and what comes from outside, or leaves. The counts of edges off a
//! spanning tree determine the others. A tree that is as heavy as can be leaves the cheap ones to be counted.
//!
//! Who enters need not leave: calls may end in exceptions, `longjmp` or `exit`, or come back twice. A block with a call that is not sure to
//! come back has therefore an edge of its own to the outside, which cannot be counted, and so is in the tree. Thus what such a call does
//! spoils no count. A thread that is stopped for good elsewhere, in the middle of a block, leaves what follows from others off by one.
//!
//! Invariant: the tree holds all edges that cannot be counted. Where those of jump tables make a cycle, they count as ways outside.
//!
//! Source: Knuth and Stevenson, "Optimal Measurement Points for Program Frequency Counts", BIT 13, 1973; Ball and Larus, "Optimally
//! Profiling and Tracing Programs", TOPLAS 1994, sections 3 and 4 (the heuristic for weights).

use crate::returns::{Returns, calls_system};
use probe::{Counting, Plan, Sparse};
use program::{BlockEnd, BlockId, CallKind, EdgeId, EdgeKind, FuncId, Loops, Program, Sure};
use rayon::prelude::*;

/// What is to be put into the code of `program`.
pub(crate) fn plan(program: &Program) -> Plan {
    let returns = Returns::of(program);
    let ids: Vec<FuncId> = program.func_ids().collect();
    let all = ids.par_iter().map(|&id| choose(program, &returns, id)).collect();
    Plan { counting: Counting::Sparse(all), probes: Vec::new() }
}

/// Whether all of the function's flow is known, as far as there is flow.
fn is_known(program: &Program, id: FuncId) -> bool {
    let function = program.function(id);
    let ends_well = |b: &program::Block| !matches!(b.end, BlockEnd::Broken | BlockEnd::Unresolved);
    function.complete && function.sure != Sure::Guessed && program.blocks_of(id).iter().all(ends_well)
}

/// The flow of a function as it is counted: what belongs to it, and what comes from outside or goes there.
pub(crate) struct Shape {
    /// Whether control comes out of jump tables from outside, and goes outside where it goes through one: of several jumps to the same
    /// places, who went where cannot be told.
    tables_are_outside: bool,
    /// Per block: whether control may come to it from outside. Of one that nothing leads to, who knows.
    entered: Vec<bool>,
    /// Per block: whether control may leave the function in it. A system call may end the process, or make another program of it.
    left: Vec<bool>,
    first: u32,
}

impl Shape {
    /// Of a function of `program`, with a tree of all that cannot be counted.
    pub(crate) fn of(program: &Program, returns: &Returns<'_>, id: FuncId) -> (Shape, Tree) {
        let whole = Shape::with(program, returns, id, false);
        if let Some(tree) = whole.tree(program, id) {
            return (whole, tree);
        }
        let shape = Shape::with(program, returns, id, true);
        let tree = shape.tree(program, id).expect("without tables there is no cycle");
        (shape, tree)
    }

    /// The same without a tree, and with jump tables as they are asked for.
    pub(crate) fn with(
        program: &Program,
        returns: &Returns<'_>,
        id: FuncId,
        tables_are_outside: bool,
    ) -> Shape {
        let function = program.function(id);
        let first = function.blocks.start;
        let entered: Vec<bool> = program.blocks_of(id).iter().map(|b| b.landing_pad).collect();
        let mut shape = Shape { tables_are_outside, entered, left: Vec::new(), first };
        let mut is_led_to = vec![false; function.n_blocks()];
        for e in function.block_ids().flat_map(|b| shape.ways(program, b)) {
            is_led_to[shape.place(program.edge(e).to)] = true;
        }
        for b in program.entry_block(id).iter().chain(&function.entries) {
            let place = shape.place(*b);
            shape.entered[place] = true;
        }
        for e in
            function.block_ids().flat_map(|b| program.successors(b)).filter(|e| e.kind == EdgeKind::Table)
        {
            let place = shape.place(e.to);
            shape.entered[place] |= tables_are_outside;
        }
        for (entered, is_led_to) in shape.entered.iter_mut().zip(is_led_to) {
            *entered |= !is_led_to;
        }
        let calls = function.ranges.iter().any(|range| calls_system(program, range));
        let is_left = |b: BlockId| {
            let block = program.block(b);
            let goes_on = matches!(
                block.end,
                BlockEnd::FallThrough | BlockEnd::Branch | BlockEnd::Jump | BlockEnd::Switch
            );
            !goes_on
                || shape.ways(program, b).next().is_none()
                || program.calls_in(b).iter().any(|c| c.kind != CallKind::Call || !returns.are_sure(c))
                || calls && calls_system(program, &block.range())
        };
        shape.left = function.block_ids().map(is_left).collect();
        shape
    }

    fn place(&self, block: BlockId) -> usize {
        (block.0 - self.first) as usize
    }

    /// Whether control may come to `block` from outside.
    pub(crate) fn enters(&self, block: BlockId) -> bool {
        self.entered[self.place(block)]
    }

    /// Whether control may leave in `block`.
    pub(crate) fn leaves(&self, block: BlockId) -> bool {
        self.left[self.place(block)]
    }

    /// The edges out of `block` but those to landing pads: there control comes from outside.
    pub(crate) fn ways<'p>(
        &self,
        program: &'p Program,
        block: BlockId,
    ) -> impl Iterator<Item = EdgeId> + use<'p> {
        let outside = self.tables_are_outside;
        program.edge_ids(block).filter(move |&e| match program.edge(e).kind {
            EdgeKind::LandingPad => false,
            EdgeKind::Table => !outside,
            _ => true,
        })
    }

    /// A tree of all that cannot be counted; `None` if there is a cycle in it.
    fn tree(&self, program: &Program, id: FuncId) -> Option<Tree> {
        let blocks = || program.function(id).block_ids();
        let mut tree = Tree::new(2 * blocks().len() + 1);
        let outside = 2 * blocks().len();
        for b in blocks() {
            if self.enters(b) {
                tree.join(outside, self.head(b));
            }
            if self.leaves(b) {
                tree.join(outside, self.end(b));
            }
        }
        for e in blocks().flat_map(|b| self.ways(program, b)) {
            let edge = program.edge(e);
            if edge.kind == EdgeKind::Table && !tree.join(self.end(edge.from), self.head(edge.to)) {
                return None;
            }
        }
        Some(tree)
    }

    fn head(&self, block: BlockId) -> usize {
        2 * self.place(block)
    }

    fn end(&self, block: BlockId) -> usize {
        2 * self.place(block) + 1
    }
}

/// What counting an edge that is taken costs beyond what a block costs: a jump. And what those pay that run past it.
const TAKEN: f64 = 0.7;
const PAST: f64 = 0.5;

/// What is counted of the function.
fn choose(program: &Program, returns: &Returns<'_>, id: FuncId) -> Option<Sparse> {
    // Of a stub, part is moved.
    if !is_known(program, id) || program.function(id).import.is_some() {
        return None;
    }
    let (shape, mut tree) = Shape::of(program, returns, id);
    let entry = program.entry_block(id);
    let is_table = |e: &program::Edge| e.kind == EdgeKind::Table && Some(e.to) == entry;
    if shape.tables_are_outside
        && program.function(id).block_ids().any(|b| program.successors(b).iter().any(is_table))
    {
        // Nobody could tell how often it was called.
        return None;
    }
    let often = Often::of(program, id, &shape);
    let mut rest: Vec<(f64, usize, usize, Which)> = Vec::new();
    for b in program.function(id).block_ids() {
        rest.push((often.blocks[shape.place(b)], shape.head(b), shape.end(b), Which::Block(b)));
        let all: Vec<EdgeId> = shape.ways(program, b).collect();
        for &e in all.iter().filter(|e| program.edge(**e).kind != EdgeKind::Table) {
            let edge = program.edge(e);
            let mine = often.edge(program, e);
            let cost = match edge.kind {
                EdgeKind::Taken => {
                    let past: f64 = all.iter().filter(|o| **o != e).map(|o| often.edge(program, *o)).sum();
                    mine * (1.0 + TAKEN) + past * PAST
                }
                _ => mine,
            };
            rest.push((cost, shape.end(b), shape.head(edge.to), Which::Edge(e)));
        }
    }
    // Heaviest first; of equals, edges into the tree: a block is counted where it stands.
    rest.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| b.3.cmp(&a.3)));
    let mut sparse = Sparse::default();
    for (_, from, to, which) in rest {
        if !tree.join(from, to) {
            match which {
                Which::Block(b) => sparse.blocks.push(b),
                Which::Edge(e) => sparse.edges.push(e),
            }
        }
    }
    sparse.blocks.sort_unstable();
    sparse.edges.sort_unstable();
    Some(sparse)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Which {
    Block(BlockId),
    Edge(EdgeId),
}

/// Components of a graph that grows.
pub(crate) struct Tree {
    up: Vec<usize>,
}

impl Tree {
    fn new(n: usize) -> Tree {
        Tree { up: (0..n).collect() }
    }

    fn root(&mut self, mut node: usize) -> usize {
        while self.up[node] != node {
            self.up[node] = self.up[self.up[node]];
            node = self.up[node];
        }
        node
    }

    /// Whether an edge between them makes no cycle; then it is there.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.up[a] = b;
        a != b
    }
}

/// How often blocks run, estimated: eight times for each loop around them, less where flow parts.
struct Often {
    first: u32,
    blocks: Vec<f64>,
    /// By edge of the function, from its first.
    shares: Vec<f64>,
    first_edge: u32,
}

impl Often {
    fn of(program: &Program, id: FuncId, shape: &Shape) -> Often {
        let function = program.function(id);
        let first = function.blocks.start;
        let goes_back = |e: &program::Edge| e.to <= e.from;
        let has_loops = function.block_ids().any(|b| program.successors(b).iter().any(goes_back));
        let loops = has_loops.then(|| Loops::compute(program, id));
        let depth =
            |b: BlockId| i32::try_from(loops.as_ref().map_or(0, |l| l.block_depth(b)).min(8)).unwrap_or(8);
        let is_back = |e: EdgeId| loops.as_ref().is_some_and(|l| l.back_edge_of(program, e).is_some());
        let is_cold = |b: BlockId| {
            let block = program.block(b);
            block.landing_pad || matches!(block.end, BlockEnd::NoReturn | BlockEnd::Stop)
        };
        let first_edge = program.blocks_of(id).first().map_or(0, |b| b.first_edge.0);
        let n_edges: usize = function.block_ids().map(|b| program.edge_ids(b).len()).sum();
        let mut shares = vec![0.0; n_edges];
        for b in function.block_ids() {
            let weight = |e: EdgeId| {
                let to = program.edge(e).to;
                match () {
                    () if program.edge(e).kind == EdgeKind::LandingPad => 0.0,
                    () if is_cold(to) => 0.02,
                    () if depth(to) < depth(b) => 0.15,
                    () => 1.0,
                }
            };
            let sum: f64 = program.edge_ids(b).map(weight).sum();
            for e in program.edge_ids(b).filter(|_| sum > 0.0) {
                shares[(e.0 - first_edge) as usize] = weight(e) / sum;
            }
        }
        // Forward, each block once: in the order of a walk that comes to a block when all before it are done, back edges left out.
        let mut blocks = vec![0.0; function.n_blocks()];
        for b in function.block_ids().filter(|b| shape.enters(*b)) {
            blocks[(b.0 - first) as usize] = if is_cold(b) { 0.001 } else { 1.0 };
        }
        for b in forward(program, id, shape) {
            let mine: f64 = blocks[(b.0 - first) as usize];
            for e in program.edge_ids(b).filter(|&e| !is_back(e)) {
                let to = (program.edge(e).to.0 - first) as usize;
                blocks[to] += mine * shares[(e.0 - first_edge) as usize];
            }
        }
        for b in function.block_ids() {
            blocks[(b.0 - first) as usize] *= 8f64.powi(depth(b));
        }
        Often { first, blocks, shares, first_edge }
    }

    fn edge(&self, program: &Program, e: EdgeId) -> f64 {
        let from = (program.edge(e).from.0 - self.first) as usize;
        self.blocks[from] * self.shares[(e.0 - self.first_edge) as usize]
    }
}

/// The blocks of the function in reverse postorder, from where it is entered.
fn forward(program: &Program, id: FuncId, shape: &Shape) -> Vec<BlockId> {
    let function = program.function(id);
    let first = function.blocks.start;
    let mut seen = vec![false; function.n_blocks()];
    let mut order = Vec::with_capacity(function.n_blocks());
    let roots = function.block_ids().filter(|b| shape.enters(*b)).chain(function.block_ids());
    for root in roots {
        let mut stack = vec![(root, 0)];
        if std::mem::replace(&mut seen[(root.0 - first) as usize], true) {
            continue;
        }
        while let Some((b, n)) = stack.pop() {
            match program.successors(b).get(n) {
                Some(edge) => {
                    stack.push((b, n + 1));
                    if !std::mem::replace(&mut seen[(edge.to.0 - first) as usize], true) {
                        stack.push((edge.to, 0));
                    }
                }
                None => order.push(b),
            }
        }
    }
    order.reverse();
    order
}
