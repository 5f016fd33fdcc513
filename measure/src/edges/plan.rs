//! Every block's and every edge's count from as few counters as can be: those of the edges off a spanning
//! tree of the flow.
//!
//! The flow of a function is a graph of two nodes a block, its head and its end, and one for all that is
//! outside. Its edges are the blocks themselves, from head to end; the edges between blocks; and what comes
//! from outside, or leaves. The counts of edges off a spanning tree determine the others. A tree that is as
//! heavy as can be leaves the cheap ones to be counted.
//!
//! Who enters need not leave: calls may end in exceptions, `longjmp` or `exit`, or come back twice. A block
//! with a call that is not sure to come back has therefore an edge of its own to the outside, which cannot be
//! counted, and so is in the tree. Thus what such a call does spoils no count. Where a signal's handler
//! leaves a block for good is written down at run time (`positions`). Where threads may have
//! been stopped in the middle of a block, what follows from others is an interval
//! (`notes::FunctionFlow::solve`).
//!
//! Invariant: the tree holds all edges that cannot be counted. Where those of jump tables make a cycle, they
//! count as ways outside.
//!
//! Source: Knuth and Stevenson, "Optimal Measurement Points for Program Frequency Counts", BIT 13, 1973; Ball
//! and Larus, "Optimally Profiling and Tracing Programs", TOPLAS 1994, sections 3 and 4 (the heuristic for
//! weights).

use super::nesting::Nesting;
use super::returns::{Doubtful, Returns};
use probe::{CountedCall, Counting, Plan, Sparse};
use profile::Profile;
use program::{Block, BlockEnd, BlockId, Edge, EdgeId, EdgeKind, FuncId, Program, Sure, Va};
use rayon::prelude::*;
use std::ops::Range;

/// What is to be put into the code of `program`, if it runs again as it ran `earlier`.
pub(crate) fn plan(program: &Program, earlier: Option<&Profile>) -> Plan {
    let returns = Returns::of(program);
    let ids: Vec<FuncId> = program.func_ids().collect();
    let all = ids
        .par_iter()
        .map_init(Room::default, |room, &id| choose(program, &returns, id, earlier, room))
        .collect();
    Plan { counting: Counting::Sparse(all), calls: counted_calls(program, &returns), ..Plan::NULL }
}

/// The calls that are counted by themselves: how often control came past those before them is not said by
/// their blocks, and if the blocks end in the function's end, not by the flow.
pub(crate) fn counted_calls(program: &Program, returns: &Returns<'_>) -> Vec<CountedCall> {
    let follows = |d: &Doubtful| {
        let end = program.block(d.block).end;
        d.is_last && goes_on(end) && end != BlockEnd::Switch && returns.may_all_be(d.block)
    };
    returns.doubtful().iter().map(|d| CountedCall { at: d.at, follows: follows(d) }).collect()
}

/// Whether all of the function's flow is known, as far as there is flow.
fn is_known(program: &Program, id: FuncId) -> bool {
    let function = program.function(id);
    let ends_well = |b: &Block| !matches!(b.end, BlockEnd::Broken | BlockEnd::Unresolved);
    function.complete && function.sure != Sure::Guessed && program.blocks_of(id).iter().all(ends_well)
}

/// The blocks of the function whose addresses its program's code computes.
fn named_blocks(program: &Program, id: FuncId) -> impl Iterator<Item = BlockId> {
    let named = move |range: &Range<Va>| {
        let from = program.named.partition_point(|at| *at < range.start);
        let to = program.named.partition_point(|at| *at < range.end);
        &program.named[from..to]
    };
    program.function(id).ranges.iter().flat_map(named).filter_map(|at| program.block_from(*at))
}

/// Whether control goes on in the function behind a block that ends so.
pub(crate) fn goes_on(end: BlockEnd) -> bool {
    matches!(end, BlockEnd::FallThrough | BlockEnd::Branch | BlockEnd::Jump | BlockEnd::Switch)
}

/// The flow of a function as it is counted: what belongs to it, and what comes from outside or goes there.
pub(crate) struct Shape {
    /// Whether control comes out of jump tables from outside, and goes outside where it goes through one: of
    /// several jumps to the same places, who went where cannot be told.
    tables_are_outside: bool,
    /// Per block: whether control may come to it from outside. Of one that nothing leads to, who knows.
    entered: Vec<bool>,
    /// Per block: whether control may leave the function in it. A system call may end the process, or make
    /// another program of it.
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
        let mut shape = Shape { tables_are_outside, entered: Vec::new(), left: Vec::new(), first };
        // Whether anything of the function leads to a block, and whether it leads anywhere.
        let mut is_led_to = vec![false; function.n_blocks()];
        let mut leads = vec![false; function.n_blocks()];
        // Whether more entries of its jump table may be used than those that were found.
        let mut leads_on = vec![false; function.n_blocks()];
        let blocks = program.blocks_of(id);
        shape.entered = blocks.iter().map(|b| b.landing_pad).collect();
        for edge in program.edges_of(id) {
            leads_on[shape.place(edge.from)] |= edge.kind == EdgeKind::Table && edge.sure != Sure::Proved;
            if shape.is_way(edge) {
                is_led_to[shape.place(edge.to)] = true;
                leads[shape.place(edge.from)] = true;
            } else if edge.kind == EdgeKind::Table {
                let place = shape.place(edge.to);
                shape.entered[place] = true;
            }
        }
        for (entered, is_led_to) in shape.entered.iter_mut().zip(is_led_to) {
            *entered |= !is_led_to;
        }
        for b in program.entry_block(id).iter().chain(&function.entries) {
            let place = shape.place(*b);
            shape.entered[place] = true;
        }
        for b in named_blocks(program, id) {
            let place = shape.place(b);
            shape.entered[place] = true;
        }
        let calls = returns.calls_system(id);
        let is_left = |(b, (leads, leads_on)): (BlockId, (bool, bool))| {
            !leads
                || leads_on
                || !goes_on(program.block(b).end)
                || !returns.are_all_sure(b)
                || calls && returns.block_calls_system(b)
        };
        shape.left = function.block_ids().zip(leads.into_iter().zip(leads_on)).map(is_left).collect();
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

    /// Whether `edge` is a way inside: at landing pads, control comes from outside.
    pub(crate) fn is_way(&self, edge: &Edge) -> bool {
        match edge.kind {
            EdgeKind::LandingPad => false,
            EdgeKind::Table => !self.tables_are_outside,
            EdgeKind::FallThrough | EdgeKind::Taken | EdgeKind::Jump => true,
        }
    }

    /// A tree of all that cannot be counted; `None` if there is a cycle in it.
    fn tree(&self, program: &Program, id: FuncId) -> Option<Tree> {
        let outside = 2 * self.entered.len();
        let mut tree = Tree::new(outside + 1);
        for (n, (&enters, &leaves)) in self.entered.iter().zip(&self.left).enumerate() {
            if enters {
                tree.join(outside, 2 * n);
            }
            if leaves {
                tree.join(outside, 2 * n + 1);
            }
        }
        if self.tables_are_outside {
            return Some(tree);
        }
        let mut tables = program.edges_of(id).iter().filter(|e| e.kind == EdgeKind::Table);
        tables.all(|e| tree.join(self.end(e.from), self.head(e.to))).then_some(tree)
    }

    fn head(&self, block: BlockId) -> usize {
        2 * self.place(block)
    }

    fn end(&self, block: BlockId) -> usize {
        2 * self.place(block) + 1
    }
}

/// What counting an edge that is taken costs beyond what a block costs: a jump. And what those pay that run
/// past it.
const TAKEN: f32 = 0.7;
const PAST: f32 = 0.5;

/// Room for the work on one function.
#[derive(Default)]
struct Room {
    /// What may be counted: what is not worth it in the upper half, which one in the lower.
    rest: Vec<u64>,
    /// Per edge, then per block of the function: whether it is counted.
    is_counted: Vec<bool>,
    often: Often,
}

/// What is counted of the function.
fn choose(
    program: &Program,
    returns: &Returns<'_>,
    id: FuncId,
    earlier: Option<&Profile>,
    room: &mut Room,
) -> Option<Sparse> {
    // Of a stub, part is moved.
    if !is_known(program, id) || program.function(id).import.is_some() {
        return None;
    }
    let (shape, mut tree) = Shape::of(program, returns, id);
    let entry = program.entry_block(id);
    let edges = program.edges_of(id);
    let is_table = |e: &Edge| e.kind == EdgeKind::Table && Some(e.to) == entry;
    if shape.tables_are_outside && edges.iter().any(is_table) {
        // Nobody could tell how often it was called.
        return None;
    }
    let Room { rest, is_counted, often } = room;
    often.estimate(program, returns, id, &shape);
    if let Some(earlier) = earlier {
        often.take(program, id, earlier);
    }
    // Heaviest first; of equals, edges into the tree: a block is counted where it stands.
    let key = |cost: f32, which: usize| u64::from(!cost.to_bits()) << 32 | which as u64;
    let (n_edges, n_blocks) = (edges.len(), shape.entered.len());
    rest.clear();
    for (n, edge) in edges.iter().enumerate() {
        if edge.kind == EdgeKind::Table || !shape.is_way(edge) {
            continue;
        }
        let mine = often.edges[n];
        let cost = match edge.kind {
            EdgeKind::Taken => mine * (1.0 + TAKEN) + (often.blocks[shape.place(edge.from)] - mine) * PAST,
            _ => mine,
        };
        rest.push(key(cost, n_edges - 1 - n));
    }
    rest.extend((0..n_blocks).map(|n| key(often.blocks[n], n_edges + n_blocks - 1 - n)));
    rest.sort_unstable();
    is_counted.clear();
    is_counted.resize(n_edges + n_blocks, false);
    for which in rest.iter().map(|key| usize::try_from(key & u64::from(u32::MAX)).expect("32 bits")) {
        match which.checked_sub(n_edges) {
            None => {
                let n = n_edges - 1 - which;
                let edge = &edges[n];
                is_counted[n] = !tree.join(shape.end(edge.from), shape.head(edge.to));
            }
            Some(which) => {
                let n = n_blocks - 1 - which;
                is_counted[n_edges + n] = !tree.join(2 * n, 2 * n + 1);
            }
        }
    }
    let first_edge = program.blocks_of(id).first().map_or(0, |b| b.first_edge.0);
    let (of_edges, of_blocks) = is_counted.split_at(n_edges);
    let blocks = (shape.first..).zip(of_blocks).filter(|b| *b.1).map(|b| BlockId(b.0));
    let edges = (first_edge..).zip(of_edges).filter(|e| *e.1).map(|e| EdgeId(e.0));
    let open = named_blocks(program, id).collect();
    Some(Sparse { blocks: blocks.collect(), edges: edges.collect(), open })
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

/// How often a loop goes round.
const ROUNDS: f32 = 8.0;
/// How likely ways are where flow parts, the others being 1: that out of a loop; a branch ahead, also over
/// more than `FAR` blocks (compilers put first what they think likely); one to a block that returns, or calls
/// something (Ball and Larus).
const LEAVES: f32 = 0.15;
const AHEAD: f32 = 0.6;
const AHEAD_FAR: f32 = 0.4;
const FAR: usize = 20;
const RETURNS: f32 = 0.5;
const CALLS: f32 = 0.4;

/// How often blocks and edges run: as they ran, or estimated: eight times for each loop around them, and
/// shared out where flow parts.
#[derive(Default)]
pub(crate) struct Often {
    /// By block of the function, from its first.
    pub(crate) blocks: Vec<f32>,
    /// By edge of the function, from its first.
    pub(crate) edges: Vec<f32>,
    nesting: Nesting,
    /// Per block: how many edges lead to it but those back, less those from blocks that are done.
    n_open: Vec<u32>,
    ready: Vec<usize>,
}

impl Often {
    /// Estimates those of a function.
    pub(crate) fn estimate(&mut self, program: &Program, returns: &Returns<'_>, id: FuncId, shape: &Shape) {
        let function = program.function(id);
        let first = function.blocks.start;
        let (own, edges) = (program.blocks_of(id), program.edges_of(id));
        let first_edge = own.first().map_or(0, |b| b.first_edge.0);
        let place = |b: BlockId| (b.0 - first) as usize;
        self.nesting.find(program, id, &shape.entered);
        let (depths, is_back) = (&self.nesting.depths, &self.nesting.is_back);
        let is_cold = |b: &Block| b.landing_pad || matches!(b.end, BlockEnd::NoReturn | BlockEnd::Stop);
        self.blocks.clear();
        self.blocks.extend(own.iter().zip(&shape.entered).map(|(b, entered)| match (entered, is_cold(b)) {
            (false, _) => 0.0,
            (true, true) => 0.001,
            (true, false) => 1.0,
        }));
        self.n_open.clear();
        self.n_open.resize(own.len(), 0);
        for (edge, _) in edges.iter().zip(is_back).filter(|(_, is_back)| !**is_back) {
            self.n_open[place(edge.to)] += 1;
        }
        self.ready.clear();
        self.ready.extend((0..).zip(&self.n_open).filter(|(_, n)| **n == 0).map(|(b, _)| b));
        self.edges.clear();
        self.edges.resize(edges.len(), 0.0);
        // Forward, each block once: when all before it are done, back edges left out.
        while let Some(b) = self.ready.pop() {
            let from = (own[b].first_edge.0 - first_edge) as usize;
            let to = own.get(b + 1).map_or(edges.len(), |b| (b.first_edge.0 - first_edge) as usize);
            let depth = depths[b];
            let parts = own[b].end == BlockEnd::Branch;
            let mut sum = 0.0;
            for (n, edge) in (from..).zip(&edges[from..to]) {
                let to = place(edge.to);
                let mut weight: f32 = match () {
                    () if edge.kind == EdgeKind::LandingPad => 0.0,
                    () if is_cold(&own[to]) => 0.02,
                    () if depths[to] < depth => LEAVES,
                    () => 1.0,
                };
                if parts {
                    let is_ahead = edge.kind == EdgeKind::Taken && to > b && !is_back[n];
                    weight *= if is_ahead { AHEAD } else { 1.0 };
                    weight *= if is_ahead && to > b + FAR { AHEAD_FAR } else { 1.0 };
                    weight *= if own[to].end == BlockEnd::Return { RETURNS } else { 1.0 };
                    weight *= if returns.calls(edge.to) { CALLS } else { 1.0 };
                }
                self.edges[n] = weight;
                sum += weight;
            }
            let mine = self.blocks[b];
            let often = mine * ROUNDS.powi(i32::try_from(depth.min(8)).unwrap_or(8));
            for (n, edge) in (from..).zip(&edges[from..to]) {
                let share = if sum > 0.0 { self.edges[n] / sum } else { 0.0 };
                self.edges[n] = often * share;
                if !is_back[n] {
                    let to = place(edge.to);
                    self.blocks[to] += mine * share;
                    self.n_open[to] -= 1;
                    if self.n_open[to] == 0 {
                        self.ready.push(to);
                    }
                }
            }
            self.blocks[b] = often;
        }
    }

    /// Takes what ran from `earlier`; what is estimated says only which is more likely of what did not.
    pub(crate) fn take(&mut self, program: &Program, id: FuncId, earlier: &Profile) {
        let below_one = |n: f32| n / (1.0 + n);
        let start = |b: BlockId| program.block(b).start;
        for (often, b) in self.blocks.iter_mut().zip(program.function(id).block_ids()) {
            *often = below_one(*often) + earlier.blocks.get(&start(b)).map_or(0.0, |n| *n as f32);
        }
        for (often, e) in self.edges.iter_mut().zip(program.edges_of(id)) {
            let edge = profile::Edge { from: start(e.from), to: start(e.to) };
            *often = below_one(*often) + earlier.edges.get(&edge).map_or(0.0, |n| *n as f32);
        }
    }
}

#[cfg(test)]
mod tests;
