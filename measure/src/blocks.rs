//! How often each block ran: a counter a block, nothing inferred.
//!
//! Invariant: a block has a count only if it was counted; a counted block that never ran has the count zero.
//!
//! Source: the oracle for cleverer placements (Knuth, TAOCP vol. 1, 2.3.4.1, exercise 5 on what a spanning tree saves).

use probe::{Module, Plan};
use profile::{Exactness, ImageRef, Profile};
use program::EdgeKind;

/// What is to be put into the code.
pub const PLAN: Plan = Plan::Blocks;

/// The profile of `module` from its counters, one a counted block.
///
/// A function's entries are known where no edge of its own leads to its first block, and nothing else counts there.
pub fn complete(module: &Module<'_>, counters: &[u64]) -> Profile {
    let program = module.program;
    let mut profile =
        Profile { image: ImageRef::of(&program.image), exactness: Exactness::Exact, ..Profile::default() };
    let mut counts = vec![None; program.blocks.len()];
    for (&block, &count) in module.counted.iter().zip(counters) {
        counts[block.index()] = Some(count);
        profile.blocks.insert(program.block(block).start, count);
    }
    for id in program.func_ids() {
        let function = program.function(id);
        let Some(entry) = program.entry_block(id) else { continue };
        let Some(count) = counts[entry.index()] else { continue };
        let again: Option<u64> = function
            .block_ids()
            .flat_map(|b| program.successors(b).iter().filter(|e| e.to == entry).map(move |e| (b, e)))
            .map(|(from, edge)| {
                match program.successors(from).iter().filter(|e| e.kind != EdgeKind::LandingPad).count() {
                    // The only way on: all that ran there came back here.
                    1 if edge.kind != EdgeKind::LandingPad => counts[from.index()],
                    _ => None,
                }
            })
            .sum();
        if let Some(again) = again {
            profile.entries.insert(function.entry, count.saturating_sub(again));
        }
    }
    profile
}
