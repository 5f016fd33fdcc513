//! Block counts from edge counts.
//!
//! Invariant: a count that a source gave is not changed; a block's count is at least that of each way in or
//! out of it that was counted.

use crate::counts::{Edge, Profile};
use program::{BlockId, FuncId, Program, Va};
use std::collections::{BTreeMap, BTreeSet};

/// Sums of a profile's counts by block.
struct Flows {
    into: BTreeMap<Va, u64>,
    out_of: BTreeMap<Va, u64>,
    /// Per calling instruction.
    calls: BTreeMap<Va, u64>,
}

impl Flows {
    fn of(profile: &Profile) -> Flows {
        let mut flows = Flows { into: BTreeMap::new(), out_of: BTreeMap::new(), calls: BTreeMap::new() };
        for (edge, &n) in &profile.edges {
            add(&mut flows.into, edge.to, n);
            add(&mut flows.out_of, edge.from, n);
        }
        for (&at, &n) in &profile.entries {
            add(&mut flows.into, at, n);
        }
        let calls = profile.calls.iter().map(|((at, _), n)| (*at, *n));
        for (at, n) in calls.chain(profile.calls_out.iter().map(|(at, n)| (*at, *n))) {
            add(&mut flows.calls, at, n);
        }
        flows
    }

    fn count(&self, program: &Program, block: BlockId) -> u64 {
        let block = program.block(block);
        let sum = |map: &BTreeMap<Va, u64>| map.get(&block.start).copied().unwrap_or(0);
        let calls = self.calls.range(block.range()).map(|(_, &n)| n).max().unwrap_or(0);
        sum(&self.into).max(sum(&self.out_of)).max(calls)
    }
}

/// Adds to a count.
pub(crate) fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, n: u64) {
    let count = counts.entry(key).or_insert(0);
    *count = count.saturating_add(n);
}

/// How many functions a profile speaks of; without its program only those that it has entries of, and none is unknown.
pub fn n_functions(profile: &Profile, program: Option<&Program>) -> Option<usize> {
    match program {
        Some(program) => Some(functions_of(profile, program).len()),
        None => Some(profile.entries.len()).filter(|&n| n > 0 || profile.total() == 0),
    }
}

/// The functions that a profile speaks of.
pub(crate) fn functions_of(profile: &Profile, program: &Program) -> BTreeSet<FuncId> {
    let entries = profile.entries.keys().copied();
    let edges = profile.edges.keys().map(|e| e.from);
    let calls = profile.calls.keys().map(|(at, _)| *at);
    let out = profile.calls_out.keys().copied();
    let blocks = profile.blocks.keys().copied();
    entries
        .chain(edges)
        .chain(calls)
        .chain(out)
        .chain(blocks)
        .filter_map(|at| program.function_at(at))
        .collect()
}

/// Fills in the counts of blocks that have none, from entries, edges and calls; and before that those edges that a
/// source does not count because it sees one block where we see two. `joined` says of a block's start that the
/// source does not tell it from the block before it.
///
/// Source: the count of a block is the larger of what comes in and what goes out, as llvm-bolt and the paper's C.C. have it.
pub(crate) fn derive_blocks(profile: &mut Profile, program: &Program, joined: &dyn Fn(Va) -> bool) {
    let mut flows = Flows::of(profile);
    for func in functions_of(profile, program) {
        let ids: Vec<BlockId> = program.function(func).block_ids().collect();
        // Backwards, so that a chain of joined blocks hands its count up; then forwards, for what comes in at its head.
        let pairs: Vec<(BlockId, BlockId)> = ids
            .windows(2)
            .map(|w| (w[0], w[1]))
            .filter(|&(a, b)| {
                joined(program.block(b).start) && program.successors(a).iter().any(|e| e.to == b)
            })
            .collect();
        for (a, b) in pairs.iter().rev().chain(&pairs).copied() {
            let edge = Edge { from: program.block(a).start, to: program.block(b).start };
            let known = profile.edges.get(&edge).copied().unwrap_or(0);
            let only = program.successors(a).len() == 1;
            let want = if only {
                flows.count(program, a).max(flows.count(program, b))
            } else {
                flows.count(program, b)
            };
            if want > known {
                profile.edges.insert(edge, want);
                add(&mut flows.into, edge.to, want - known);
                add(&mut flows.out_of, edge.from, want - known);
            }
        }
        for id in ids {
            let n = flows.count(program, id);
            if n > 0 {
                profile.blocks.entry(program.block(id).start).or_insert(n);
            }
        }
    }
}

/// Counts of blocks that do not follow from the entries, edges and calls of a profile: what a format of transfers cannot hold.
pub(crate) fn blocks_alone(profile: &Profile, program: &Program) -> Vec<(Va, u64)> {
    let mut rest = Profile { blocks: BTreeMap::new(), ..profile.clone() };
    derive_blocks(&mut rest, program, &|_| false);
    let alone = profile.blocks.iter().filter(|(at, n)| **n > 0 && !rest.blocks.contains_key(at));
    alone.map(|(&at, &n)| (at, n)).collect()
}
