//! PLT stubs that must be moved to be counted.
//!
//! A stub mostly stays where it is: it runs as often as the blocks that call it, and these have counters.
//! Where one of its callers stays, too, or jumps to it under a condition, or its address is a function's for
//! someone, it is moved like other code.
//!
//! Invariant: only the jump through the slot is moved. What a slot leads to until it is bound, the push
//! behind that jump, stays, and so does the rule that unwinds by an address's last four bits: at the moved
//! jump, too, they say that nothing was pushed.

use crate::not_moved::NotMoved;
use crate::select::movable::Movable;
use program::{BlockEnd, BlockId, CallKind, Callee, FuncId, Function, Program, Va};
use std::collections::BTreeSet;
use std::ops::Range;

/// Has those stubs moved that are not as often run as their callers say; `addresses`, sorted, are those that
/// data hold or code computes. Whether there are any. Those in `unwind_refused` cannot be moved.
pub fn release(
    program: &Program,
    addresses: &[Va],
    unwind_refused: &BTreeSet<FuncId>,
    movable: &mut Movable,
) -> bool {
    let mut found = BTreeSet::new();
    let not_moved = |movable: &Movable, id: FuncId| movable.not_moved.get(id.index()).copied().flatten();
    for call in &program.calls {
        let Callee::Function(id) = call.callee else { continue };
        let is_counted = matches!(call.kind, CallKind::Call | CallKind::TailCall)
            && not_moved(movable, program.block(call.block).func).is_none();
        if !is_counted && not_moved(movable, id) == Some(NotMoved::PltStub) {
            found.insert(id);
        }
    }
    let is_taken = |id: &FuncId| addresses.binary_search(&program.function(*id).entry).is_ok();
    found.extend(
        program
            .func_ids()
            .filter(|&id| not_moved(movable, id) == Some(NotMoved::PltStub))
            .filter(|id| is_taken(id)),
    );
    found.retain(|id| !unwind_refused.contains(id) && jumps_at_once(program, program.function(*id)));
    for id in &found {
        if let Some(why) = movable.not_moved.get_mut(id.index()) {
            *why = None;
        }
    }
    !found.is_empty()
}

/// Whether the first block of the stub is the jump through its slot.
fn jumps_at_once(program: &Program, stub: &Function) -> bool {
    let is_jump = |b: BlockId| {
        let block = program.block(b);
        block.start == stub.entry && block.end == BlockEnd::IndirectTailCall && block.n_insns <= 2
    };
    is_stub(program, stub) && stub.block_ids().next().is_some_and(is_jump)
}

/// Whether `function` is a stub, of those that code calls.
fn is_stub(program: &Program, function: &Function) -> bool {
    let plt = &program.image.plt;
    let i = plt.partition_point(|p| p.range.start < function.entry);
    plt.get(i).is_some_and(|p| p.range.start == function.entry && !p.is_linkers())
}

/// The blocks of `id` that are moved, if it is.
pub fn blocks(program: &Program, id: FuncId) -> impl Iterator<Item = BlockId> + use<'_> {
    let function = program.function(id);
    let n = if is_stub(program, function) { 1 } else { usize::MAX };
    function.block_ids().take(n)
}

/// The code of `id` that is moved, if it is.
pub fn ranges(program: &Program, id: FuncId) -> Vec<Range<Va>> {
    let function = program.function(id);
    if is_stub(program, function) {
        return blocks(program, id).map(|b| program.block(b).range()).collect();
    }
    function.ranges.to_vec()
}
