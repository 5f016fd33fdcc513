//! How often loops were entered, went round, and were left, from the counts of edges; where they are not
//! known, from those of blocks.
//!
//! Source: VPROF, section 3.4 for what is asked of loops.

use profile::calls::Cuts;
use profile::{Count, Edge, Profile};
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
    pub iterations: Count,
    /// How often it was entered from outside, where that follows from the counts.
    pub entries: Option<Count>,
    /// How often an edge led out of it, where that is known: who returns in it, or is thrown out, takes none.
    pub exits: Option<Count>,
    /// Instructions that ran in its blocks and in the padding that these run through, those of inner loops
    /// too.
    pub instructions: u64,
}

/// All loops of `program` that ran, or may have, by function and nesting.
///
/// How often a loop was entered is bounded twice: by its iterations less those that went round, and by the
/// ways that lead into it. `cuts` are those of the profile.
pub fn runs(program: &Program, profile: &Profile, cuts: &Cuts) -> Vec<LoopRun> {
    let count = |b: BlockId| profile.block(program.block(b).start);
    let ids: Vec<FuncId> = program.func_ids().collect();
    let per_function = ids.par_iter().map(|&func| {
        let function = program.function(func);
        if function.block_ids().all(|b| count(b).is_none_or(|n| n.most == 0)) {
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
            let known = profile.edge(ends).or_else(|| count(from).filter(|n| n.most == 0));
            let follows = || {
                let all = derived.get_or_init(|| profile::flow::edges(program, func, profile));
                all.get(&e).copied().map(Count::exact)
            };
            known.or_else(follows)
        };
        // Two edges between the same blocks are one in a profile.
        let sum = |edges: &mut dyn Iterator<Item = EdgeId>| {
            let mut seen = BTreeSet::new();
            edges
                .filter(|&e| seen.insert((program.edge(e).from, program.edge(e).to)))
                .map(edge)
                .try_fold(Count::default(), |sum, n| Some(sum.plus(n?)))
        };
        // From other functions, or by an exception.
        let enters = |b: BlockId| match program.entry_block(func) == Some(b) {
            true => profile.entered(function.entry),
            false if function.entries.contains(&b) || program.block(b).landing_pad => None,
            false => Some(Count::default()),
        };
        let run = |id: LoopId| {
            let headers = || loops.entries(id);
            let iterations = headers().filter_map(count).fold(Count::default(), Count::plus);
            let back = loops.back_edges(id);
            let again = sum(&mut back.iter().copied());
            let from_outside = |edge: &EdgeId| {
                let edge = program.edge(*edge);
                !loops.contains(id, edge.from) && headers().any(|b| b == edge.to)
            };
            let first = program.blocks_of(func).first().map_or(0, |b| b.first_edge.0);
            let all = (first..).zip(program.edges_of(func)).map(|(e, _)| EdgeId(e));
            let is_off = !profile.intervals.is_empty();
            let ways_in = is_off.then(|| sum(&mut all.filter(from_outside))).flatten();
            let others = headers().map(enters).try_fold(Count::default(), |sum, n| Some(sum.plus(n?)));
            let entries = again.map(|again| {
                let n = iterations.n.saturating_sub(again.n);
                let least = iterations.least.saturating_sub(again.most);
                let most = iterations.most.saturating_sub(again.least);
                let led_in = ways_in.zip(others).map(|(ways, others)| ways.plus(others));
                let (a, b) = led_in.map_or((least, most), |n| (n.least.max(least), n.most.min(most)));
                // Where signal handlers left code, the two need not agree.
                let (least, most) = if a <= b { (a, b) } else { (least, most) };
                Count { n: n.clamp(least, most), least, most }
            });
            let n = |b: BlockId| count(b).map_or(0, |n| cuts.instructions(program, b, n.n));
            LoopRun {
                func,
                header: loops.header(id),
                depth: loops.depth(id),
                iterations,
                entries,
                exits: sum(&mut loops.exits(program, id).into_iter()),
                instructions: loops.blocks(id).map(n).fold(0, u64::saturating_add),
            }
        };
        loops.ids().map(run).filter(|run| run.iterations.most > 0).collect()
    });
    per_function.collect::<Vec<_>>().into_iter().flatten().collect()
}
