//! Counts of edges and calls that follow from those of blocks.
//!
//! An edge's count follows where the flow leaves no choice: of the edges into a block, or out of it, all but
//! one known. A call that did not return makes the flow out of its block less than its count; then an edge
//! out of it may be taken for more than it was. Edges that do not follow stay unknown.
//!
//! Not here: how they follow (`conservation`).

use crate::complete::calls::{self, Cuts};
use crate::complete::conservation::Conservation;
use crate::counts::{Edge, Exactness, Profile};
use program::{BlockEnd, BlockId, CallKind, EdgeId, EdgeKind, FuncId, Program};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashSet};

/// Adds to an exact profile the edges of those functions whose blocks alone it counts, and the direct calls,
/// as far as they follow. One that is to be carried needs this not: there all edges are inferred.
pub fn complete(program: &Program, profile: &mut Profile) {
    if profile.exactness != Exactness::Exact || profile.blocks.is_empty() || !profile.calls.is_empty() {
        return;
    }
    let has_edges: HashSet<FuncId> =
        profile.edges.keys().filter_map(|e| program.function_at(e.from)).collect();
    let ids: Vec<FuncId> = program.func_ids().filter(|id| !has_edges.contains(id)).collect();
    let found: Vec<_> = ids.par_iter().map(|&func| edges(program, func, profile)).collect();
    let at = |b| program.block(b).start;
    for (id, n) in found.into_iter().flatten() {
        let edge = program.edge(id);
        // Two edges between the same blocks are one here.
        let sum = profile.edges.entry(Edge { from: at(edge.from), to: at(edge.to) }).or_insert(0);
        *sum = sum.saturating_add(n);
    }
    for call in calls::all(profile, program) {
        let callee = call.to.and_then(|to| program.function_from(to)).map(|f| program.function(f));
        let is_clear = callee.is_some_and(|callee| callee.import.is_none() && callee.entries.is_empty());
        let block = program.block_at(call.at);
        let mut kinds = block.into_iter().flat_map(|b| program.calls_in(b)).filter(|c| c.at == call.at);
        let is_call = kinds.any(|c| matches!(c.kind, CallKind::Call | CallKind::TailCall));
        if let (true, true, Some(to)) = (is_clear, is_call, call.to) {
            profile.calls.insert((call.at, to), call.n.n);
            profile.intervals.calls.extend(call.n.between().map(|n| ((call.at, to), n)));
        }
    }
}

/// Counts of the edges of `func`, as far as they follow from those of its blocks and of its entry.
pub fn edges(program: &Program, func: FuncId, profile: &Profile) -> BTreeMap<EdgeId, u64> {
    solve(program, func, profile, false)
}

/// Those that follow whatever became of calls: from no way out of a block with one, and from no entry. None,
/// if ways are not known.
pub fn sure_edges(program: &Program, func: FuncId, profile: &Profile) -> BTreeMap<EdgeId, u64> {
    match program.function(func).complete {
        true => solve(program, func, profile, true),
        false => BTreeMap::new(),
    }
}

/// The padding of `func` that ran behind branches that were not taken: the block in front of it, and how
/// often as far as it is sure; else, as far as it follows. What follows blocks that end without a branch runs
/// as often as they do.
pub fn padding(program: &Program, func: FuncId, profile: &Profile) -> Vec<(BlockId, Padding)> {
    let ran = |b: &BlockId| profile.blocks.get(&program.block(*b).start).is_some_and(|n| *n > 0);
    let branches = program.function(func).block_ids().filter(|&b| program.block(b).end == BlockEnd::Branch);
    let padded = branches.filter(|b| ran(b) && !program.padding_behind(*b).is_empty());
    let falls: Vec<(BlockId, EdgeId)> = padded
        .filter_map(|b| {
            let fall = program.edge_ids(b).find(|&e| program.edge(e).kind == EdgeKind::FallThrough);
            Some((b, fall?))
        })
        .collect();
    if falls.is_empty() {
        return Vec::new();
    }
    let sure = sure_edges(program, func, profile);
    let any = match falls.iter().all(|(_, e)| sure.contains_key(e)) {
        true => BTreeMap::new(),
        false => edges(program, func, profile),
    };
    let how = |e: &EdgeId| match (sure.get(e), any.get(e)) {
        (Some(&n), _) => Some(Padding::Sure(n)),
        (None, Some(&n)) => Some(Padding::Follows(n)),
        (None, None) => None,
    };
    falls.iter().filter_map(|(b, e)| Some((*b, how(e)?))).collect()
}

/// The padding of `func` that was run through, by the block in front of it, and how often, as far as that is
/// sure: where a block ends in it, as often as control came past the block's calls, of which `cuts` tells.
///
/// All that says how many instructions ran says it with these.
pub fn padding_run(program: &Program, func: FuncId, profile: &Profile, cuts: &Cuts) -> Vec<(BlockId, u64)> {
    let falls = program.function(func).block_ids().filter(|&b| program.block(b).end == BlockEnd::FallThrough);
    let ran = falls.filter_map(|b| {
        let block = program.block(b);
        let n = *profile.blocks.get(&block.start).filter(|n| **n > 0)?;
        (!program.padding_behind(b).is_empty()).then(|| (b, cuts.count(b, block.end_va(), n)))
    });
    let behind_branches = padding(program, func, profile).into_iter().filter_map(|(b, n)| match n {
        Padding::Sure(n) => Some((b, n)),
        Padding::Follows(_) => None,
    });
    ran.chain(behind_branches).collect()
}

/// How often padding ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Padding {
    /// Exactly so often.
    Sure(u64),
    /// So often, if all calls of the function came back.
    Follows(u64),
}

fn solve(program: &Program, func: FuncId, profile: &Profile, is_strict: bool) -> BTreeMap<EdgeId, u64> {
    let function = program.function(func);
    let count = |b: BlockId| profile.blocks.get(&program.block(b).start).copied();
    let entered = profile.entries.get(&function.entry).copied();
    if function.block_ids().all(|b| count(b).is_none()) {
        return BTreeMap::new();
    }
    // What leaves the blocks at their ends, then what comes to them: both are known of some only.
    let ids: Vec<BlockId> = function.block_ids().collect();
    let n_blocks = ids.len();
    let place = |b: BlockId| b.0.wrapping_sub(function.blocks.start) as usize;
    let is_only_way = |b: BlockId| {
        matches!(
            program.block(b).end,
            BlockEnd::FallThrough | BlockEnd::Branch | BlockEnd::Jump | BlockEnd::Switch
        ) && program.calls_in(b).iter().all(|c| c.returns && c.kind == CallKind::Call && !is_strict)
    };
    let left: Vec<Option<u64>> = ids.iter().map(|&b| count(b).filter(|_| is_only_way(b))).collect();
    let outside = |b: BlockId| match program.entry_block(func) == Some(b) {
        true => entered.filter(|_| !is_strict),
        false if function.entries.contains(&b) => None,
        false => Some(0),
    };
    let come: Vec<Option<(u64, u64)>> = ids.iter().map(|&b| count(b).zip(outside(b))).collect();
    let mut system = Conservation::new(2 * n_blocks);
    for (n, (left, come)) in left.iter().zip(&come).enumerate() {
        if let Some(count) = left {
            system.comes(n, *count);
        }
        if let Some((count, outside)) = come {
            system.leaves(n_blocks + n, *count);
            system.comes(n_blocks + n, *outside);
        }
    }
    let edges: Vec<EdgeId> = ids.iter().flat_map(|&b| program.edge_ids(b)).collect();
    for &e in &edges {
        let (from, to) = (place(program.edge(e).from), place(program.edge(e).to));
        let from = Some(from).filter(|&n| left.get(n).is_some_and(Option::is_some));
        let to = Some(to).filter(|&n| come.get(n).is_some_and(Option::is_some));
        system.flow(from, to.map(|n| n_blocks + n), None);
    }
    system.settle_natural();
    edges.into_iter().zip(system.counts()).filter_map(|(e, n)| Some((e, n?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assemble, function};

    /// `f(n)`: calls itself by a jump to its start until n is 0, which is no other's count.
    #[test]
    fn who_comes_to_the_entry_from_outside_took_no_edge() {
        let text = "
            .globl f
            f:  dec %edi
                jne f
                ret";
        let program = assemble(text);
        let f = function(&program, "f");
        let blocks: Vec<BlockId> = program.function(f).block_ids().collect();
        let mut profile = Profile::default();
        // Called 3 times with 10 in all.
        profile.entries.insert(program.function(f).entry, 3);
        profile.blocks = blocks.iter().zip([10, 3]).map(|(&b, n)| (program.block(b).start, n)).collect();
        let found: Vec<u64> = edges(&program, f, &profile).into_values().collect();
        assert_eq!(found, [7, 3]);
    }

    /// `for (; n > 0; n--) s += n & 1`, once with each of these numbers; what callgrind counts of it was
    /// written down by hand.
    #[test]
    fn edges_follow_from_blocks() {
        let text = "
            .globl f
            f:  test %edi, %edi
                jle 3f
            1:  test $1, %dil
                je 2f
                inc %eax
            2:  dec %edi
                jne 1b
            3:  ret";
        let program = assemble(text);
        let f = function(&program, "f");
        let blocks: Vec<BlockId> = program.function(f).block_ids().collect();
        for (counts, want) in [
            // Whether the loop was left out that one time cannot be told.
            ([1, 10, 5, 10, 1], vec![(1, 2, 5), (1, 3, 5), (2, 3, 5)]),
            (
                [7, 0, 0, 0, 7],
                vec![(0, 1, 0), (0, 4, 7), (1, 2, 0), (1, 3, 0), (2, 3, 0), (3, 1, 0), (3, 4, 0)],
            ),
        ] {
            let mut profile = Profile::default();
            profile.entries.insert(program.function(f).entry, counts[0]);
            profile.blocks = blocks.iter().zip(counts).map(|(&b, n)| (program.block(b).start, n)).collect();
            let number = |b: BlockId| blocks.iter().position(|&x| x == b).expect("a block of it");
            let found = edges(&program, f, &profile);
            let mut found: Vec<(usize, usize, u64)> = found
                .iter()
                .map(|(&e, &n)| (number(program.edge(e).from), number(program.edge(e).to), n))
                .collect();
            found.sort_unstable();
            assert_eq!(found, want);
        }
    }
}
