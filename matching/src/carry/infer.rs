//! Counts of one function made consistent: what enters a block leaves it, at the least change to what was
//! known.
//!
//! Every block is an arc from its head to its tail, every edge an arc from a tail to a head, the outside is
//! one node. What was known of an arc is its flow at first; the imbalances that this leaves are routed at
//! minimum cost, where to raise or lower a known count costs what it is trusted, and what is unknown is
//! almost free.
//!
//! Invariant: the result is a flow: for every block, what comes in by edges and from outside = its count =
//! what leaves. A count known to be above zero stays above zero if any path permits it, and every block that
//! runs is reached from where the function is entered, and reaches a way out.
//!
//! Source: He, Mestre, Pupyrev, Wang, Yu, "Profile inference revisited", POPL 2022, sections 3 and 4. We
//! differ in that the costs follow the confidence of each count, control may leak (calls that do not return,
//! or return twice), and blocks of unknown count get weak estimates beforehand instead of being balanced
//! afterwards. Not here: where estimates come from (`carry`), how flow is routed (`min_cost_flow`).

mod min_cost_flow;
mod problem;

use min_cost_flow::{ArcId, Network, UNLIMITED};
pub(crate) use problem::{Estimate, Problem};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A consistent flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Inferred {
    /// Executions by block.
    pub blocks: Vec<u64>,
    /// Executions by edge.
    pub edges: Vec<u64>,
    /// Control that comes from outside the function, by block.
    pub enter: Vec<u64>,
    /// Control that leaves the function, by block.
    pub leave: Vec<u64>,
    /// Whether it is the cheapest: not if the function is too large to find that.
    pub optimal: bool,
}

/// The cost of erasing what is known to have run: more than any path can cost.
const ERASE: i64 = 1 << 40;
/// Where a count is above this, all of the function are scaled down: sums of all arcs must fit.
const MOST: u64 = 1 << 44;

struct Pair {
    up: ArcId,
    down: ArcId,
    erase: ArcId,
    count: i64,
}

impl Pair {
    fn add(net: &mut Network, from: usize, to: usize, e: Estimate) -> Pair {
        let count = e.count.cast_signed();
        net.supply(from, -count);
        net.supply(to, count);
        let last = i64::from(e.keep && count > 0);
        Pair {
            up: net.arc(from, to, UNLIMITED, i64::from(e.raise)),
            down: net.arc(to, from, count - last, i64::from(e.lower)),
            erase: net.arc(to, from, last, ERASE),
            count,
        }
    }
    fn flow(&self, net: &Network) -> u64 {
        let flow = self.count + net.flow(self.up) - net.flow(self.down) - net.flow(self.erase);
        u64::try_from(flow).unwrap_or(0)
    }
}

impl Problem {
    /// The consistent flow nearest to what is known. `limit` bounds the work (arcs looked at).
    pub fn solve(&self, limit: u64) -> Inferred {
        let all = self.blocks.iter().chain(&self.edge);
        let outside = self.enter.iter().chain(&self.leave).flatten();
        let most = all.chain(outside).map(|e| e.count).max().unwrap_or(0);
        if most <= MOST {
            return self.solve_small(limit);
        }
        let shift = MOST.leading_zeros() - most.leading_zeros() + 1;
        let mut f = self.scaled_down(shift).solve_small(limit);
        for counts in [&mut f.blocks, &mut f.edges, &mut f.enter, &mut f.leave] {
            counts.iter_mut().for_each(|c| *c = c.saturating_mul(1 << shift));
        }
        f
    }

    /// Counts by so many bits smaller; what ran still runs.
    fn scaled_down(&self, shift: u32) -> Problem {
        let small = |e: &Estimate| Estimate { count: (e.count >> shift).max(u64::from(e.count > 0)), ..*e };
        let maybe = |e: &Option<Estimate>| e.as_ref().map(small);
        Problem {
            edges: self.edges.clone(),
            blocks: self.blocks.iter().map(small).collect(),
            edge: self.edge.iter().map(small).collect(),
            enter: self.enter.iter().map(maybe).collect(),
            leave: self.leave.iter().map(maybe).collect(),
        }
    }

    /// Solves for counts that are small enough to be summed.
    fn solve_small(&self, limit: u64) -> Inferred {
        let n = self.blocks.len();
        let outside = 2 * n;
        let n_outside = self.enter.iter().chain(&self.leave).flatten().count();
        let mut net = Network::new(2 * n + 1, 3 * (n + self.edges.len() + n_outside));
        let blocks: Vec<Pair> =
            (0..n).map(|b| Pair::add(&mut net, 2 * b, 2 * b + 1, self.blocks[b])).collect();
        let known = self.edges.iter().zip(&self.edge);
        let edges: Vec<Pair> =
            known.map(|(&(a, b), &e)| Pair::add(&mut net, 2 * a as usize + 1, 2 * b as usize, e)).collect();
        let enter: Vec<Option<Pair>> =
            (0..n).map(|b| Some(Pair::add(&mut net, outside, 2 * b, self.enter[b]?))).collect();
        let leave: Vec<Option<Pair>> =
            (0..n).map(|b| Some(Pair::add(&mut net, 2 * b + 1, outside, self.leave[b]?))).collect();
        let solved = net.solve(limit);
        let of = |pairs: &[Pair]| pairs.iter().map(|p| p.flow(&net)).collect::<Vec<u64>>();
        let maybe = |pairs: &[Option<Pair>]| {
            let flows = pairs.iter().map(|p| p.as_ref().map_or(0, |p| p.flow(&net)));
            flows.collect::<Vec<u64>>()
        };
        let mut inferred = Inferred {
            blocks: of(&blocks),
            edges: of(&edges),
            enter: maybe(&enter),
            leave: maybe(&leave),
            optimal: solved.optimal,
        };
        self.connect(&mut inferred);
        inferred
    }

    /// What is known, as it is: no flow, in general.
    pub fn unchanged(&self) -> Inferred {
        let maybe = |all: &[Option<Estimate>]| all.iter().map(|e| e.map_or(0, |e| e.count)).collect();
        Inferred {
            blocks: self.blocks.iter().map(|e| e.count).collect(),
            edges: self.edge.iter().map(|e| e.count).collect(),
            enter: maybe(&self.enter),
            leave: maybe(&self.leave),
            optimal: true,
        }
    }

    /// Joins what runs, but is not reached from outside or does not lead there: one execution more along the
    /// cheapest path.
    fn connect(&self, f: &mut Inferred) {
        let n = self.blocks.len();
        let outside = n;
        // All ways of control, the outside being a node like a block: (from, to, which count).
        let mut ways: Vec<(usize, usize, Way)> = Vec::new();
        for (i, &(a, b)) in self.edges.iter().enumerate() {
            ways.push((a as usize, b as usize, Way::Edge(i)));
        }
        for b in 0..n {
            if self.enter[b].is_some() {
                ways.push((outside, b, Way::Enter(b)));
            }
            if self.leave[b].is_some() {
                ways.push((b, outside, Way::Leave(b)));
            }
        }
        let mut forward = vec![Vec::new(); n + 1];
        let mut backward = vec![Vec::new(); n + 1];
        for (i, &(a, b, _)) in ways.iter().enumerate() {
            forward[a].push(i);
            backward[b].push(i);
        }
        // A circulation: what is joined to the outside at all is reached from it and leads back to it.
        let mut reached = vec![false; n + 1];
        flood(f, &ways, &forward, vec![outside], &mut reached);
        let mut settled = false;
        for stray in 0..n {
            let erased = f.blocks[stray] == 0 && self.blocks[stray].keep && self.blocks[stray].count > 0;
            if !erased && (f.blocks[stray] == 0 || reached[stray]) {
                continue;
            }
            let there = self.cheapest(f, &ways, &backward, stray, true);
            let back = self.cheapest(f, &ways, &forward, stray, false);
            if let Some((there, back)) = there.zip(back) {
                if !settled {
                    self.settle(f);
                    settled = true;
                }
                let mut joined = Vec::new();
                for i in there.into_iter().chain(back) {
                    let (_, to, way) = ways[i];
                    *way.slot(f) += 1;
                    if to < n {
                        f.blocks[to] += 1;
                        if !reached[to] {
                            joined.push(to);
                        }
                    }
                }
                flood(f, &ways, &forward, joined, &mut reached);
            } else if !erased {
                // Nothing that is reached is joined to it: what is reached stays so.
                erase(f, &ways, &forward, &backward, stray);
            }
        }
    }

    /// Block counts from the edges that lead into them.
    fn settle(&self, f: &mut Inferred) {
        f.blocks.clone_from(&f.enter);
        for (&(_, b), &count) in self.edges.iter().zip(&f.edges) {
            f.blocks[b as usize] += count;
        }
    }

    /// The cheapest path between the outside and `block`: what runs already is cheap, the rest as its
    /// estimate says.
    fn cheapest(
        &self,
        f: &Inferred,
        ways: &[(usize, usize, Way)],
        next: &[Vec<usize>],
        block: usize,
        backwards: bool,
    ) -> Option<Vec<usize>> {
        let n = self.blocks.len();
        let mut best = vec![(u64::MAX, usize::MAX); n + 1];
        let mut heap = BinaryHeap::from([Reverse((0_u64, block))]);
        best[block].0 = 0;
        while let Some(Reverse((d, v))) = heap.pop() {
            if d > best[v].0 {
                continue;
            }
            if v == n {
                let mut path = Vec::new();
                let mut at = n;
                while at != block {
                    let i = best[at].1;
                    path.push(i);
                    let (a, b, _) = ways[i];
                    at = if backwards { b } else { a };
                }
                return Some(path);
            }
            for &i in &next[v] {
                let (a, b, way) = ways[i];
                let to = if backwards { a } else { b };
                let node = if to < n && f.blocks[to] == 0 { u64::from(self.blocks[to].raise) } else { 0 };
                let cost = 1 + if way.count(f) > 0 { 0 } else { 4 * (u64::from(way.raise(self)) + node) };
                if d + cost < best[to].0 {
                    best[to] = (d + cost, i);
                    heap.push(Reverse((d + cost, to)));
                }
            }
        }
        None
    }
}

/// Adds to `reached` what is reached from `stack` along ways that run.
fn flood(
    f: &Inferred,
    ways: &[(usize, usize, Way)],
    forward: &[Vec<usize>],
    mut stack: Vec<usize>,
    reached: &mut [bool],
) {
    for &v in &stack {
        reached[v] = true;
    }
    while let Some(v) = stack.pop() {
        for &i in &forward[v] {
            let (_, to, way) = ways[i];
            if !reached[to] && way.count(f) > 0 {
                reached[to] = true;
                stack.push(to);
            }
        }
    }
}

/// Takes away a circulation that no path joins to the outside.
fn erase(
    f: &mut Inferred,
    ways: &[(usize, usize, Way)],
    forward: &[Vec<usize>],
    backward: &[Vec<usize>],
    stray: usize,
) {
    let n = f.blocks.len();
    // What is zero is left behind: nothing is visited twice.
    let mut stack = vec![stray];
    while let Some(v) = stack.pop() {
        f.blocks[v] = 0;
        for &i in forward[v].iter().chain(&backward[v]) {
            let (a, b, way) = ways[i];
            if way.count(f) > 0 {
                *way.slot(f) = 0;
                stack.extend([a, b].into_iter().filter(|&end| end < n && end != v));
            }
        }
    }
}

/// A way that control can go.
#[derive(Clone, Copy)]
enum Way {
    Edge(usize),
    Enter(usize),
    Leave(usize),
}

impl Way {
    fn slot(self, f: &mut Inferred) -> &mut u64 {
        match self {
            Way::Edge(i) => &mut f.edges[i],
            Way::Enter(b) => &mut f.enter[b],
            Way::Leave(b) => &mut f.leave[b],
        }
    }
    fn count(self, f: &Inferred) -> u64 {
        match self {
            Way::Edge(i) => f.edges[i],
            Way::Enter(b) => f.enter[b],
            Way::Leave(b) => f.leave[b],
        }
    }
    fn raise(self, p: &Problem) -> u32 {
        let estimate = match self {
            Way::Edge(i) => Some(p.edge[i]),
            Way::Enter(b) => p.enter[b],
            Way::Leave(b) => p.leave[b],
        };
        estimate.map_or(0, |e| e.raise)
    }
}

#[cfg(test)]
mod tests;
