//! Block counts from edge counts.
//!
//! Invariant: a count that a source gave is not changed; a block's count is at least that of each way in or
//! out of it that was counted.

use crate::counts::{Edge, Profile};
use program::{BlockId, FuncId, Program, Va};
use std::collections::{BTreeMap, BTreeSet};

/// Sums of a profile's counts by block.
struct Flows {
    /// By block: what comes in where it starts, and goes out of it.
    into: Vec<u64>,
    out_of: Vec<u64>,
    /// Per calling instruction, by address.
    calls: Vec<(Va, u64)>,
}

impl Flows {
    fn of(profile: &Profile, program: &Program) -> Flows {
        let n = program.blocks.len();
        let mut flows = Flows { into: vec![0; n], out_of: vec![0; n], calls: Vec::new() };
        let add_to = |sums: &mut [u64], block: Option<BlockId>, n: u64| {
            if let Some(sum) = block.and_then(|b| sums.get_mut(b.index())) {
                *sum = sum.saturating_add(n);
            }
        };
        // Edges are by where they come from.
        let mut last = (Va(0), program.block_from(Va(0)));
        for (edge, &n) in &profile.edges {
            if edge.from != last.0 {
                last = (edge.from, program.block_from(edge.from));
            }
            add_to(&mut flows.into, program.block_from(edge.to), n);
            add_to(&mut flows.out_of, last.1, n);
        }
        for (&at, &n) in &profile.entries {
            add_to(&mut flows.into, program.block_from(at), n);
        }
        let mut calls: Vec<(Va, u64)> = profile.calls.iter().map(|((at, _), n)| (*at, *n)).collect();
        calls.extend(profile.calls_out.iter().map(|(at, n)| (*at, *n)));
        calls.sort_unstable();
        let sum = |same: &[(Va, u64)]| same.iter().fold(0, |sum: u64, c| sum.saturating_add(c.1));
        flows.calls = calls.chunk_by(|a, b| a.0 == b.0).map(|same| (same[0].0, sum(same))).collect();
        flows
    }

    fn count(&self, program: &Program, id: BlockId) -> u64 {
        let block = program.block(id);
        let inside = &self.calls[self.calls.partition_point(|c| c.0 < block.start)..];
        let inside = inside.iter().take_while(|c| c.0 < block.end_va());
        let calls = inside.map(|c| c.1).max().unwrap_or(0);
        self.into[id.index()].max(self.out_of[id.index()]).max(calls)
    }
}

/// Adds to a count.
pub(crate) fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, n: u64) {
    let count = counts.entry(key).or_insert(0);
    *count = count.saturating_add(n);
}

/// How many functions a profile speaks of; without its program only those that it has entries of, and none is
/// unknown.
pub fn n_functions(profile: &Profile, program: Option<&Program>) -> Option<usize> {
    match program {
        Some(program) => Some(functions_of(profile, program).len()),
        None => Some(profile.entries.len()).filter(|&n| n > 0 || profile.total() == 0),
    }
}

/// The functions that a profile speaks of.
pub(crate) fn functions_of(profile: &Profile, program: &Program) -> BTreeSet<FuncId> {
    let mut functions = functions_passed(profile, program);
    add_functions(&mut functions, profile.blocks.keys().copied(), program);
    functions
}

/// The functions that a profile has entries, edges or calls of.
fn functions_passed(profile: &Profile, program: &Program) -> BTreeSet<FuncId> {
    let mut functions = BTreeSet::new();
    add_functions(&mut functions, profile.entries.keys().copied(), program);
    add_functions(&mut functions, profile.edges.keys().map(|e| e.from), program);
    add_functions(&mut functions, profile.calls.keys().map(|(at, _)| *at), program);
    add_functions(&mut functions, profile.calls_out.keys().copied(), program);
    functions
}

/// Adds the functions that hold the addresses, many of which are in one function.
fn add_functions(functions: &mut BTreeSet<FuncId>, all: impl Iterator<Item = Va>, program: &Program) {
    let mut last = None;
    for func in all.filter_map(|at| program.function_at(at)) {
        if last != Some(func) {
            functions.insert(func);
            last = Some(func);
        }
    }
}

/// Fills in the counts of blocks that have none, from entries, edges and calls; and before that those edges
/// that a source does not count because it sees one block where we see two. `joined` says of a block's start
/// that the source does not tell it from the block before it.
///
/// Source: the count of a block is the larger of what comes in and what goes out, as llvm-bolt and the
/// paper's C.C. have it.
pub(crate) fn derive_blocks(profile: &mut Profile, program: &Program, joined: &dyn Fn(Va) -> bool) {
    let mut flows = Flows::of(profile, program);
    for func in functions_of(profile, program) {
        let ids: Vec<BlockId> = program.function(func).block_ids().collect();
        // Backwards, so that a chain of joined blocks hands its count up; then forwards, for what comes in at
        // its head.
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
                for sum in [&mut flows.into[b.index()], &mut flows.out_of[a.index()]] {
                    *sum = sum.saturating_add(want - known);
                }
            }
        }
        for id in ids {
            let n = flows.count(program, id);
            let start = program.block(id).start;
            if n > 0 && !profile.blocks.contains_key(&start) {
                profile.blocks.insert(start, n);
            }
        }
    }
}

/// Counts of blocks that do not follow from the entries, edges and calls of a profile: what a format of
/// transfers cannot hold.
pub(crate) fn blocks_alone(profile: &Profile, program: &Program) -> Vec<(Va, u64)> {
    let flows = Flows::of(profile, program);
    let functions = functions_passed(profile, program);
    let follows = |at: Va| {
        let block = program.block_from(at).filter(|&b| functions.contains(&program.block(b).func));
        block.is_some_and(|b| flows.count(program, b) > 0)
    };
    let alone = profile.blocks.iter().filter(|(at, n)| **n > 0 && !follows(**at));
    alone.map(|(&at, &n)| (at, n)).collect()
}
