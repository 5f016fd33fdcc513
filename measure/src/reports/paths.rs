//! Where most executions of a loop or a function went along: hot paths, from the counts of edges.
//!
//! A path follows the edge that ran most, from the loop's header or the function's entry, to where it was
//! before, or leaves. How often it was run along as a whole, edges tell within bounds: at most as often as
//! its edge that ran least; at least as often as its first block, less what left it on the way. Counts that
//! are intervals are taken by their least for the one, by their most for the other.
//!
//! Source: T. Ball, P. Mataga and M. Sagiv, "Edge Profiling versus Path Profiling: The Showdown", POPL 1998,
//! section 3 (definite flow).

use profile::{Count, Edge, Profile};
use program::{BlockId, EdgeKind, FuncId, Loops, Program};
use std::collections::HashSet;

/// A path that many executions took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotPath {
    /// Its blocks, in order.
    pub blocks: Vec<BlockId>,
    /// Whether it is a round of a loop; else it starts at the function's entry.
    pub is_loop: bool,
    /// How often its first block ran.
    pub n: Count,
    /// How often it was run along, at least.
    pub at_least: u64,
    /// The same, at most.
    pub at_most: u64,
}

/// The hottest path of function `id`, and of each of its loops; of what ran.
pub fn hottest(program: &Program, profile: &Profile, id: FuncId) -> Vec<HotPath> {
    let count = |b: BlockId| profile.block(program.block(b).start);
    let function = program.function(id);
    if function.block_ids().all(|b| count(b).is_none_or(|n| n.n == 0)) {
        return Vec::new();
    }
    let loops = Loops::compute(program, id);
    let follow = |first: BlockId, stays_in: Option<program::LoopId>| {
        let n = count(first).filter(|n| n.n > 0)?;
        let is_loop = stays_in.is_some();
        let mut path = HotPath { blocks: vec![first], is_loop, n, at_least: n.least, at_most: n.most };
        let mut seen = HashSet::from([first]);
        let mut at = first;
        loop {
            let ways = program.successors(at).iter().filter(|e| e.kind != EdgeKind::LandingPad);
            let ran = |to: BlockId| {
                profile.edge(Edge { from: program.block(at).start, to: program.block(to).start })
            };
            // Of those that ran as often, the first by address.
            let best = ways
                .filter_map(|e| Some((ran(e.to)?, e.to)))
                .max_by_key(|&(n, to)| (n.n, std::cmp::Reverse(to)));
            let Some((n, to)) = best.filter(|(n, _)| n.n > 0) else { return Some(path) };
            let came = count(at).map_or(0, |n| n.most);
            path.at_least = path.at_least.saturating_sub(came.saturating_sub(n.least));
            path.at_most = path.at_most.min(n.most);
            if !seen.insert(to) || stays_in.is_some_and(|l| !loops.contains(l, to)) {
                return Some(path);
            }
            path.blocks.push(to);
            at = to;
        }
    };
    let of_function = program.entry_block(id).and_then(|entry| follow(entry, None));
    let of_loops = loops.ids().filter_map(|l| follow(loops.header(l), Some(l)));
    of_function.into_iter().chain(of_loops).collect()
}
