//! Minimum-cost flow: routes what nodes have too much of to those that have too little, at the least total
//! cost.
//!
//! Invariant: costs are not negative, so the reduced costs of all residual arcs stay so; what can be routed
//! is routed, even when the work limit is reached: the rest then goes along paths with the fewest arcs, and
//! `optimal` says no.
//!
//! Source: the primal-dual form of successive shortest paths with potentials (Ahuja, Magnanti, Orlin, Network
//! Flows, 1993, section 9.8); the maximum flow over arcs of zero reduced cost is Dinic's. Not here: what the
//! nodes and costs mean (`infer`).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// More than any flow; arcs of this capacity are never full.
pub(crate) const UNLIMITED: i64 = i64::MAX / 4;

/// A residual arc; its partner of the other direction is `id ^ 1`.
#[derive(Clone, Copy)]
struct Arc {
    to: u32,
    residual: i64,
    cost: i64,
}

/// An arc as it was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ArcId(u32);

/// A network to be solved.
#[derive(Default)]
pub(crate) struct Network {
    arcs: Vec<Arc>,
    from: Vec<u32>,
    excess: Vec<i64>,
    /// Arc numbers by the node that they leave; `first[v]..first[v + 1]`. Filled by `solve`.
    leaving: Vec<u32>,
    first: Vec<u32>,
}

/// The outcome of routing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Solved {
    /// Whether the cost is the least possible; not if the work limit was reached.
    pub optimal: bool,
    /// What could not be routed at all.
    pub unrouted: i64,
}

fn index(i: usize) -> u32 {
    u32::try_from(i).expect("functions have fewer than 2^31 blocks and edges")
}

impl Network {
    /// A network of `n_nodes` without arcs, of which there will be `n_arcs`.
    pub fn new(n_nodes: usize, n_arcs: usize) -> Network {
        Network {
            excess: vec![0; n_nodes],
            arcs: Vec::with_capacity(2 * n_arcs),
            from: Vec::with_capacity(2 * n_arcs),
            ..Network::default()
        }
    }

    /// Adds an arc; `cost` a unit, at least 0.
    pub fn arc(&mut self, from: usize, to: usize, capacity: i64, cost: i64) -> ArcId {
        debug_assert!(cost >= 0 && capacity >= 0);
        let id = ArcId(index(self.arcs.len()));
        self.arcs.push(Arc { to: index(to), residual: capacity, cost });
        self.arcs.push(Arc { to: index(from), residual: 0, cost: -cost });
        self.from.extend([index(from), index(to)]);
        id
    }

    /// Lets `node` have `amount` more that must leave it (less, if negative).
    pub fn supply(&mut self, node: usize, amount: i64) {
        self.excess[node] += amount;
    }

    /// The flow routed along an arc.
    pub fn flow(&self, arc: ArcId) -> i64 {
        self.arcs[arc.0 as usize ^ 1].residual
    }

    /// Routes as much as it can. `limit` bounds the arcs that the exact method looks at.
    pub fn solve(&mut self, limit: u64) -> Solved {
        let n = self.excess.len();
        self.first = vec![0; n + 1];
        for &f in &self.from {
            self.first[f as usize + 1] += 1;
        }
        for v in 0..n {
            self.first[v + 1] += self.first[v];
        }
        let mut next = self.first.clone();
        self.leaving = vec![0; self.arcs.len()];
        for (i, &f) in self.from.iter().enumerate() {
            self.leaving[next[f as usize] as usize] = index(i);
            next[f as usize] += 1;
        }
        let mut potential = vec![0_i64; n];
        let mut work = 0_u64;
        let mut optimal = true;
        while self.excess.iter().any(|&e| e > 0) {
            if work > limit {
                optimal = false;
                break;
            }
            if !self.raise_potentials(&mut potential, &mut work) {
                break;
            }
            while self.block(Some(&potential), &mut work) {}
        }
        if !optimal {
            while self.block(None, &mut work) {}
        }
        Solved { optimal, unrouted: self.excess.iter().filter(|&&e| e > 0).sum() }
    }

    fn arcs_of(&self, v: usize) -> std::ops::Range<usize> {
        self.first[v] as usize..self.first[v + 1] as usize
    }

    /// Dijkstra from all nodes with too much to the nearest one with too little; false if there is none.
    fn raise_potentials(&self, potential: &mut [i64], work: &mut u64) -> bool {
        let mut distance = vec![i64::MAX; potential.len()];
        let mut heap = BinaryHeap::new();
        for (v, &e) in self.excess.iter().enumerate() {
            if e > 0 {
                distance[v] = 0;
                heap.push(Reverse((0_i64, index(v))));
            }
        }
        let mut nearest = None;
        while let Some(Reverse((d, v))) = heap.pop() {
            let v = v as usize;
            if d > distance[v] {
                continue;
            }
            if self.excess[v] < 0 {
                nearest = Some(d);
                break;
            }
            for k in self.arcs_of(v) {
                *work += 1;
                let arc = self.arcs[self.leaving[k] as usize];
                if arc.residual == 0 {
                    continue;
                }
                let to = arc.to as usize;
                let new = d + arc.cost + potential[v] - potential[to];
                if new < distance[to] {
                    distance[to] = new;
                    heap.push(Reverse((new, arc.to)));
                }
            }
        }
        let Some(nearest) = nearest else { return false };
        for (p, &d) in potential.iter_mut().zip(&distance) {
            *p += d.min(nearest);
        }
        true
    }

    /// Whether `arc`, which leaves `from`, has room; where there are potentials, only if it is on a cheapest
    /// way.
    #[inline]
    fn is_usable(&self, from: usize, arc: usize, potential: Option<&[i64]>) -> bool {
        let arc = self.arcs[arc];
        arc.residual > 0 && potential.is_none_or(|p| arc.cost + p[from] - p[arc.to as usize] == 0)
    }

    /// By node: along how many usable arcs it is reached from those that have too much; `None` if none that
    /// has too little is reached.
    fn levels(&self, potential: Option<&[i64]>, work: &mut u64) -> Option<Vec<u32>> {
        let mut level = vec![u32::MAX; self.excess.len()];
        let mut queue: VecDeque<usize> = VecDeque::new();
        for (v, &e) in self.excess.iter().enumerate() {
            if e > 0 {
                level[v] = 0;
                queue.push_back(v);
            }
        }
        let mut reached = false;
        while let Some(v) = queue.pop_front() {
            reached |= self.excess[v] < 0;
            for k in self.arcs_of(v) {
                *work += 1;
                let a = self.leaving[k] as usize;
                let to = self.arcs[a].to as usize;
                if level[to] == u32::MAX && self.is_usable(v, a, potential) {
                    level[to] = level[v] + 1;
                    queue.push_back(to);
                }
            }
        }
        reached.then_some(level)
    }

    /// One blocking flow along arcs of zero reduced cost (along any, without potentials); false if nothing
    /// moved.
    fn block(&mut self, potential: Option<&[i64]>, work: &mut u64) -> bool {
        let Some(level) = self.levels(potential, work) else { return false };
        let sources = (0..self.excess.len()).filter(|&v| self.excess[v] > 0).collect::<Vec<usize>>();
        let mut current = self.first.clone();
        let mut moved = false;
        let mut path: Vec<usize> = Vec::new();
        for s in sources {
            path.clear();
            let mut v = s;
            while self.excess[s] > 0 {
                if self.excess[v] < 0 {
                    let room = path.iter().map(|&a| self.arcs[a].residual).min().unwrap_or(i64::MAX);
                    let amount = room.min(self.excess[s]).min(-self.excess[v]);
                    for &a in &path {
                        self.arcs[a].residual -= amount;
                        self.arcs[a ^ 1].residual += amount;
                    }
                    self.excess[s] -= amount;
                    self.excess[v] += amount;
                    moved = true;
                    path.clear();
                    v = s;
                    continue;
                }
                let end = self.first[v + 1];
                let mut step = None;
                while current[v] < end {
                    *work += 1;
                    let a = self.leaving[current[v] as usize] as usize;
                    let to = self.arcs[a].to as usize;
                    if level[to] == level[v].saturating_add(1) && self.is_usable(v, a, potential) {
                        step = Some(a);
                        break;
                    }
                    current[v] += 1;
                }
                match step {
                    Some(a) => {
                        path.push(a);
                        v = self.arcs[a].to as usize;
                    }
                    None => match path.pop() {
                        Some(a) => {
                            v = self.from[a] as usize;
                            current[v] += 1;
                        }
                        None => break,
                    },
                }
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The least cost by trying every flow on every arc.
    fn brute(n: usize, arcs: &[(usize, usize, i64, i64)], supply: &[i64]) -> Option<i64> {
        fn go(arcs: &[(usize, usize, i64, i64)], left: &mut Vec<i64>, cost: i64, best: &mut Option<i64>) {
            let Some((&(from, to, capacity, unit), rest)) = arcs.split_first() else {
                if left.iter().all(|&x| x == 0) && best.is_none_or(|b| cost < b) {
                    *best = Some(cost);
                }
                return;
            };
            for f in 0..=capacity {
                left[from] -= f;
                left[to] += f;
                go(rest, left, cost + f * unit, best);
                left[from] += f;
                left[to] -= f;
            }
        }
        let mut best = None;
        go(arcs, &mut supply[..n].to_vec(), 0, &mut best);
        best
    }

    proptest! {
        #[test]
        fn the_cost_is_the_least_there_is(
            arcs in prop::collection::vec((0_usize..4, 0_usize..4, 0_i64..3, 0_i64..5), 1..8),
            moved in prop::collection::vec((0_usize..4, 0_usize..4), 1..4),
        ) {
            let mut supply = vec![0; 4];
            for (a, b) in moved {
                supply[a] += 1;
                supply[b] -= 1;
            }
            let mut net = Network::new(4, arcs.len());
            let ids: Vec<ArcId> = arcs.iter().map(|&(f, t, c, u)| net.arc(f, t, c, u)).collect();
            for (v, &s) in supply.iter().enumerate() {
                net.supply(v, s);
            }
            let solved = net.solve(u64::MAX);
            prop_assert!(solved.optimal);
            let got: i64 = ids.iter().zip(&arcs).map(|(&id, a)| net.flow(id) * a.3).sum();
            match brute(4, &arcs, &supply) {
                Some(want) => {
                    prop_assert_eq!(solved.unrouted, 0);
                    prop_assert_eq!(got, want);
                }
                None => prop_assert!(solved.unrouted > 0),
            }
        }

        #[test]
        fn without_time_for_the_best_all_is_routed_all_the_same(
            chain in 2_usize..30, amount in 1_i64..1000,
        ) {
            let mut net = Network::new(chain, 2 * chain);
            for v in 1..chain {
                net.arc(v - 1, v, amount / 2, 7);
                net.arc(v - 1, v, UNLIMITED, 9);
            }
            net.supply(0, amount);
            net.supply(chain - 1, -amount);
            let solved = net.solve(0);
            prop_assert_eq!(solved.unrouted, 0);
            // The first round is over before time is looked at: it is enough for what one arc of each pair
            // takes.
            prop_assert_eq!(solved.optimal, amount < 2);
        }
    }
}
