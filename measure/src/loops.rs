//! How often loops were entered, and how many times they went round, from the counts of blocks alone.
//!
//! Counts of edges follow where the flow leaves no choice: of the edges into a block, or out of it, all but one known. A call that did
//! not return makes the flow out of its block less than its count; then an edge out of it may be taken for more than it was.
//!
//! Source: Knuth, TAOCP vol. 1, 2.3.4.1 (Kirchhoff's law); VPROF, section 3.4 for what is asked of loops.

use profile::Profile;
use program::{BlockEnd, BlockId, CallKind, EdgeId, FuncId, LoopId, Loops, Program};
use rayon::prelude::*;
use std::collections::HashMap;

/// A loop that ran.
#[derive(Clone, Debug)]
pub struct LoopRun {
    /// Its function.
    pub func: FuncId,
    /// Its first header.
    pub header: BlockId,
    /// How deep it lies in others, 1 for the outermost.
    pub depth: u32,
    /// How often its headers ran.
    pub iterations: u64,
    /// How often it was entered from outside, where that follows from the counts.
    pub entries: Option<u64>,
    /// Instructions that ran in its blocks, those of inner loops too.
    pub instructions: u64,
}

/// All loops of `program` that ran, by function and nesting.
pub fn runs(program: &Program, profile: &Profile) -> Vec<LoopRun> {
    let count = |b: BlockId| profile.blocks.get(&program.block(b).start).copied();
    let ids: Vec<FuncId> = program.func_ids().collect();
    let per_function = ids.par_iter().map(|&func| {
        let function = program.function(func);
        if function.block_ids().all(|b| count(b).unwrap_or(0) == 0) {
            return Vec::new();
        }
        let loops = Loops::compute(program, func);
        if loops.is_empty() {
            return Vec::new();
        }
        let edges = Edges::complete(program, func, &count, profile.entries.get(&function.entry).copied());
        let run = |id: LoopId| {
            let iterations: u64 = loops.entries(id).filter_map(count).sum();
            let again: Option<u64> = loops.back_edges(id).iter().map(|&e| edges.get(e)).sum();
            let n = |b: BlockId| count(b).unwrap_or(0).saturating_mul(u64::from(program.block(b).n_insns));
            LoopRun {
                func,
                header: loops.header(id),
                depth: loops.depth(id),
                iterations,
                entries: again.map(|again| iterations.saturating_sub(again)),
                instructions: loops.blocks(id).map(n).fold(0, u64::saturating_add),
            }
        };
        loops.ids().map(run).filter(|run| run.iterations > 0).collect()
    });
    per_function.collect::<Vec<_>>().into_iter().flatten().collect()
}

/// Counts of a function's edges, as far as they follow.
struct Edges {
    known: HashMap<EdgeId, u64>,
}

impl Edges {
    fn get(&self, edge: EdgeId) -> Option<u64> {
        self.known.get(&edge).copied()
    }

    fn complete(
        program: &Program,
        func: FuncId,
        count: &impl Fn(BlockId) -> Option<u64>,
        entered: Option<u64>,
    ) -> Edges {
        let function = program.function(func);
        // Each row: edges whose counts add up to a number.
        let mut sums: Vec<(Vec<EdgeId>, u64)> = Vec::new();
        let mut into: HashMap<BlockId, Vec<EdgeId>> = HashMap::new();
        for b in function.block_ids() {
            let out: Vec<EdgeId> = program.edge_ids(b).collect();
            for &e in &out {
                into.entry(program.edge(e).to).or_default().push(e);
            }
            let leaves_only_here =
                matches!(
                    program.block(b).end,
                    BlockEnd::FallThrough | BlockEnd::Branch | BlockEnd::Jump | BlockEnd::Switch
                ) && program.calls_in(b).iter().all(|c| c.returns && c.kind == CallKind::Call);
            if let (Some(n), true) = (count(b), leaves_only_here && !out.is_empty()) {
                sums.push((out, n));
            }
        }
        for b in function.block_ids() {
            let from_outside = match function.entries.contains(&b) {
                true if program.entry_block(func) == Some(b) => entered,
                true => None,
                false => Some(0),
            };
            if let (Some(n), Some(outside), Some(edges)) = (count(b), from_outside, into.get(&b)) {
                sums.push((edges.clone(), n.saturating_sub(outside)));
            }
        }
        let mut known = HashMap::new();
        let mut changed = true;
        while changed {
            changed = false;
            sums.retain(|(edges, n)| {
                let sum: u64 = edges.iter().filter_map(|e| known.get(e)).fold(0, |a, b| a.saturating_add(*b));
                let mut open = edges.iter().filter(|e| !known.contains_key(*e));
                match (open.next(), open.next()) {
                    (None, _) => false,
                    (Some(&only), None) => {
                        known.insert(only, n.saturating_sub(sum));
                        changed = true;
                        false
                    }
                    // A block that never ran sends nothing on.
                    _ if *n == 0 => {
                        for &e in edges {
                            known.entry(e).or_insert(0);
                        }
                        changed = true;
                        false
                    }
                    _ => true,
                }
            });
        }
        Edges { known }
    }
}
