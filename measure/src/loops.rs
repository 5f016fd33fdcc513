//! How often loops were entered, went round, and were left, from the counts of edges; where they are not known, from those of blocks.
//!
//! Source: VPROF, section 3.4 for what is asked of loops.

use profile::{Edge, Profile};
use program::{BlockId, EdgeId, FuncId, LoopId, Loops, Program};
use rayon::prelude::*;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

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
    /// How often an edge led out of it, where that is known: who returns in it, or is thrown out, takes none.
    pub exits: Option<u64>,
    /// Instructions that ran in its blocks and in the padding that these run through, those of inner loops too.
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
        let derived: OnceCell<BTreeMap<EdgeId, u64>> = OnceCell::new();
        let edge = |e: EdgeId| {
            let (from, to) = (program.edge(e).from, program.edge(e).to);
            let ends = Edge { from: program.block(from).start, to: program.block(to).start };
            let known = profile.edges.get(&ends).copied().or_else(|| count(from).filter(|n| *n == 0));
            let follows =
                || derived.get_or_init(|| profile::flow::edges(program, func, profile)).get(&e).copied();
            known.or_else(follows)
        };
        // Two edges between the same blocks are one in a profile.
        let sum = |edges: &mut dyn Iterator<Item = EdgeId>| {
            let mut seen = BTreeSet::new();
            edges
                .filter(|&e| seen.insert((program.edge(e).from, program.edge(e).to)))
                .map(edge)
                .sum::<Option<u64>>()
        };
        let run = |id: LoopId| {
            let iterations: u64 = loops.entries(id).filter_map(count).sum();
            let again = sum(&mut loops.back_edges(id).iter().copied());
            let n = |b: BlockId| count(b).unwrap_or(0).saturating_mul(program.n_insns_run(b));
            LoopRun {
                func,
                header: loops.header(id),
                depth: loops.depth(id),
                iterations,
                entries: again.map(|again| iterations.saturating_sub(again)),
                exits: sum(&mut loops.exits(program, id).into_iter()),
                instructions: loops.blocks(id).map(n).fold(0, u64::saturating_add),
            }
        };
        loops.ids().map(run).filter(|run| run.iterations > 0).collect()
    });
    per_function.collect::<Vec<_>>().into_iter().flatten().collect()
}
