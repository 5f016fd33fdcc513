//! What follows from the counters of a function, by conservation of flow; and between which bounds, where
//! threads were stopped in it.
//!
//! What enters a block, from other blocks or from outside, is its count; what leaves it, to other blocks or
//! to outside, too. Calls that may not come back, or come back twice, leave to outside: so the rest holds
//! whatever they do.
//!
//! A thread that is stopped for good in the middle of a block came there, and did not leave. A count without
//! a counter follows from the balance of all nodes that are cut off from outside if its edge is taken out of
//! the tree: if k threads may have been stopped there, then what leads in ran up to k times more often than
//! follows, and what leads out up to k times less often. Nobody is stopped where nobody can have come.
//!
//! Source: Knuth, TAOCP vol. 1, 2.3.4.1; Ball and Larus, "Optimally Profiling and Tracing Programs", TOPLAS
//! 1994, section 3.
#![warn(clippy::indexing_slicing)]

use super::notes::{FunctionFlow, Way};
use profile::conservation::Conservation;

/// What follows from a function's counters: nothing where they leave a choice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Solved {
    /// Per block: how often it ran.
    pub blocks: Vec<Option<u64>>,
    /// Per block: how often it was entered from outside.
    pub enters: Vec<Option<u64>>,
    /// Per way, block by block.
    pub ways: Vec<Option<u64>>,
    /// The least and the most that each of these may be; all empty if all are exact.
    pub between: Between,
}

/// The least and the most of counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Between {
    /// Of blocks.
    pub blocks: Vec<(u64, u64)>,
    /// Of entries from outside.
    pub enters: Vec<(u64, u64)>,
    /// Of ways.
    pub ways: Vec<(u64, u64)>,
}

impl FunctionFlow {
    fn never_ran(&self) -> Solved {
        let none = vec![Some(0); self.blocks.len()];
        let n_ways = self.blocks.iter().map(|b| b.ways.len()).sum();
        let between = Between::default();
        Solved { enters: none.clone(), blocks: none, ways: vec![Some(0); n_ways], between }
    }

    /// Per node: whether a thread may have been stopped there. `known` are the counters of blocks and ways,
    /// as far as they have one.
    fn may_stop(&self, known: &[Option<u64>]) -> Vec<bool> {
        let may_run = |n: Option<&Option<u64>>| n.is_some_and(|n| *n != Some(0));
        let mut first_way = self.blocks.len();
        let mut first_ways = Vec::with_capacity(self.blocks.len());
        let mut is_counted_in = vec![false; self.blocks.len()];
        for block in &self.blocks {
            first_ways.push(first_way);
            first_way += block.ways.len();
            for way in block.ways.iter().filter(|w| w.is_counted) {
                if let Some(place) = is_counted_in.get_mut(way.to as usize) {
                    *place = true;
                }
            }
        }
        let mut came = vec![false; self.blocks.len()];
        let mut waiting: Vec<usize> =
            (0..).zip(&self.blocks).filter(|(_, b)| b.enters).map(|b| b.0).collect();
        let mut stops = vec![false; 2 * self.blocks.len()];
        while let Some(i) = waiting.pop() {
            let (Some(came), Some(block)) = (came.get_mut(i), self.blocks.get(i)) else { continue };
            if std::mem::replace(came, true) {
                continue;
            }
            if let Some(head) = stops.get_mut(2 * i) {
                *head = block.is_counted && is_counted_in.get(i) == Some(&true);
            }
            if !may_run(known.get(i)) {
                continue;
            }
            if let Some(end) = stops.get_mut(2 * i + 1) {
                *end = true;
            }
            let first = first_ways.get(i).copied().unwrap_or(usize::MAX);
            let goes = |(n, _): &(usize, &Way)| may_run(known.get(*n));
            waiting.extend((first..).zip(&block.ways).filter(goes).map(|(_, w)| w.to as usize));
        }
        stops
    }

    /// What follows from its counters. Sums wrap, so that what is known of a part of the flow does not spoil
    /// the rest.
    ///
    /// `left` are nodes, and how often control left the flow there otherwise than along a way, or came from
    /// outside, if less than never: 2 i is where block i starts, 2 i + 1 where it ends. `n_stopped` threads
    /// may have been stopped in it besides.
    pub fn solve(&self, counters: &[u64], left: &[(u32, i64)], n_stopped: u64) -> Solved {
        if self.is_whole && left.is_empty() && n_stopped == 0 && counters.iter().all(|n| *n == 0) {
            return self.never_ran();
        }
        let counted = self.counted(counters);
        let mut system = self.system(&counted, left);
        let is_given: Vec<bool> = system.counts().map(|n| n.is_some()).collect();
        let mut stops = match (n_stopped, left) {
            (0, _) => Vec::new(),
            (_, []) => self.may_stop(&counted),
            _ => vec![true; 2 * self.blocks.len()],
        };
        // Flows that may be off: whether they lead to where threads may have been stopped, or from there.
        let mut off: Vec<Option<bool>> = vec![None; if n_stopped > 0 { is_given.len() } else { 0 }];
        system.settle(|settled| {
            if stops.get(settled.node) != Some(&true) {
                return;
            }
            if let Some(place) = off.get_mut(settled.flow) {
                *place = Some(settled.is_in);
            }
            if let Some(place) = settled.other.and_then(|other| stops.get_mut(other)) {
                *place = true;
            }
        });
        let between = system.counts().zip(off).map(|(n, is_in)| interval(n.unwrap_or(0), is_in, n_stopped));
        let between: Vec<(u64, u64)> = between.collect();
        // A running program may be read: then a count may be one behind what follows from others.
        let least = |(n, given): (Option<u64>, bool)| n.map(|n| if given || n < 1 << 63 { n } else { 0 });
        let mut known = system.counts().zip(is_given).map(least);
        let (n_blocks, n_ways) = (self.blocks.len(), counted.len() - self.blocks.len());
        let blocks = known.by_ref().take(n_blocks).collect();
        let ways = known.by_ref().take(n_ways).collect();
        let mut between = between.into_iter();
        let between = Between {
            blocks: between.by_ref().take(n_blocks).collect(),
            ways: between.by_ref().take(n_ways).collect(),
            enters: between.step_by(2).collect(),
        };
        Solved { blocks, ways, enters: known.step_by(2).collect(), between }
    }

    /// The counters of blocks, then of ways, as far as they have one.
    fn counted(&self, counters: &[u64]) -> Vec<Option<u64>> {
        let ways = self.blocks.iter().flat_map(|block| &block.ways).map(|way| way.is_counted);
        let mut counters = counters.iter().copied();
        let all = self.blocks.iter().map(|block| block.is_counted).chain(ways);
        all.map(|is_counted| is_counted.then(|| counters.next().unwrap_or(0))).collect()
    }

    /// The flows of blocks and of ways, of which those in `counted` are known; then, block by block, what
    /// comes from outside and what goes there. Node 2 i is the head of block i, 2 i + 1 its end.
    fn system(&self, counted: &[Option<u64>], left: &[(u32, i64)]) -> Conservation {
        let mut system = Conservation::new(2 * self.blocks.len());
        let mut known = counted.iter().copied();
        let mut next = || known.next().flatten();
        for i in 0..self.blocks.len() {
            system.flow(Some(2 * i), Some(2 * i + 1), next());
        }
        for (i, block) in self.blocks.iter().enumerate() {
            for way in &block.ways {
                system.flow(Some(2 * i + 1), Some(2 * way.to as usize), next());
            }
        }
        for (i, block) in self.blocks.iter().enumerate() {
            system.flow(None, Some(2 * i), (!block.enters).then_some(0));
            system.flow(Some(2 * i + 1), None, (!block.leaves).then_some(0));
        }
        for &(node, n) in left {
            // What came from outside is less than none that left: sums wrap.
            system.leaves(node as usize, n.cast_unsigned());
        }
        system
    }
}

/// Between which bounds a count is that came to `n`, if it is off by up to `n_stopped` threads: they were
/// stopped where it leads to (`is_in`), or where it comes from; nowhere near, if that is `None`.
fn interval(n: u64, is_in: Option<bool>, n_stopped: u64) -> (u64, u64) {
    let more = i64::try_from(n_stopped).unwrap_or(i64::MAX);
    let n = n.cast_signed();
    let (least, most) = match is_in {
        None => (n, n),
        Some(true) => (n, n.saturating_add(more)),
        Some(false) => (n.saturating_sub(more), n),
    };
    // Counters end at 2⁶³, long after everything else.
    (least.max(0).cast_unsigned(), most.max(0).cast_unsigned())
}

#[cfg(test)]
mod tests;
