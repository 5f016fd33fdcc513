//! How often loops were entered, and how many times they went round, from the counts of blocks alone.
//!
//! Source: VPROF, section 3.4 for what is asked of loops.

use profile::Profile;
use program::{BlockId, FuncId, LoopId, Loops, Program};
use rayon::prelude::*;

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
        let edges = profile::flow::edges(program, func, profile);
        let run = |id: LoopId| {
            let iterations: u64 = loops.entries(id).filter_map(count).sum();
            let again: Option<u64> = loops.back_edges(id).iter().map(|e| edges.get(e).copied()).sum();
            let n = |b: BlockId| count(b).unwrap_or(0).saturating_mul(program.n_insns_run(b));
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
