//! How often each block ran: a counter a block, nothing inferred.
//!
//! Source: the oracle for cleverer placements (Knuth, TAOCP vol. 1, 2.3.4.1, exercise 5 on what a spanning tree saves).

use probe::{Module, Plan, Stay};
use profile::ImageRef;
use profile::counters::{self, Entry, Notes};
use program::{CallKind, Callee, EdgeKind, FuncId};
use std::collections::BTreeMap;

// The runtime writes what `profile` reads.
const _: () = assert!(
    probe::arch::ARENA_MAGIC == counters::RAW_MAGIC
        && probe::arch::N_ROWS == counters::N_ROWS
        && probe::arch::N_AREAS == counters::N_AREAS
        && probe::arch::MAX_AREAS == counters::MAX_AREAS
        && probe::arch::EXTENTS_AT == counters::EXTENTS_AT
        && probe::arch::ROWS_AT == counters::ROWS_AT
        && probe::arch::ROW_LEN == counters::ROW_LEN
);

/// What is to be put into the code.
pub const PLAN: Plan = Plan::BLOCKS;

/// What the counters of `module` mean.
///
/// A function's entries are known where no edge of its own leads to its first block, or only from blocks with no other way on. A stub of
/// the linkage table that stays runs as often as the blocks that call it: exact, unless an earlier call of such a block did not return.
pub fn notes(module: &Module<'_>) -> Notes {
    let program = module.program;
    let mut counters = vec![None; program.blocks.len()];
    for (n, &block) in (0..).zip(&module.counted) {
        counters[block.index()] = Some(n);
    }
    let entry = |id| {
        let function = program.function(id);
        let entry = program.entry_block(id)?;
        let again: Option<Vec<u32>> = function
            .block_ids()
            .flat_map(|b| program.successors(b).iter().filter(|e| e.to == entry).map(move |e| (b, e)))
            .map(|(from, edge)| {
                match program.successors(from).iter().filter(|e| e.kind != EdgeKind::LandingPad).count() {
                    // The only way on: all that ran there came back here.
                    1 if edge.kind != EdgeKind::LandingPad => counters[from.index()],
                    _ => None,
                }
            })
            .collect();
        Some(Entry { at: function.entry, first: counters[entry.index()]?, again: again? })
    };
    // Who calls a stub is counted.
    let mut callers: BTreeMap<FuncId, Option<Vec<u32>>> = BTreeMap::new();
    for call in &program.calls {
        let Callee::Function(callee) = call.callee else { continue };
        if module.stays.get(callee.index()) == Some(&Some(Stay::PltStub)) {
            let all = callers.entry(callee).or_insert_with(|| Some(Vec::new()));
            match (all.as_mut(), counters[call.block.index()], call.kind) {
                (Some(all), Some(n), CallKind::Call | CallKind::TailCall) => all.push(n),
                _ => *all = None,
            }
        }
    }
    let first = |id| program.entry_block(id).map(|b| (b, program.block(b).start));
    let sums = callers.into_iter().filter_map(|(id, all)| {
        let (block, start) = first(id)?;
        counters[block.index()].is_none().then_some((start, all?))
    });
    Notes {
        watches: Vec::new(),
        sums: sums.collect(),
        image: ImageRef::of(&program.image),
        blocks: module.counted.iter().map(|&b| program.block(b).start).collect(),
        entries: program.func_ids().filter_map(entry).collect(),
    }
}
