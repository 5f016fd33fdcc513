//! What llvm-bolt 19 makes a control-flow graph of, and which blocks that has.

use program::{BlockEnd, BlockId, Edge, EdgeKind, FuncId, Program, Va};

/// Whether llvm-bolt 19 makes a graph of the function: it refuses what has cold parts, and indirect jumps
/// that it cannot resolve (tail calls through registers among them).
pub(crate) fn understands(p: &Program, f: FuncId) -> bool {
    let function = p.function(f);
    let stays = |b: BlockId| !matches!(p.block(b).end, BlockEnd::Unresolved | BlockEnd::IndirectTailCall);
    function.complete && function.ranges.len() == 1 && function.block_ids().all(stays)
}

/// Whether llvm-bolt makes this block part of the one before: a lone jump that only a conditional branch
/// falls into.
pub(crate) fn joins_branch_before(p: &Program, b: BlockId) -> bool {
    let block = p.block(b);
    if block.n_insns != 1 || block.end != BlockEnd::Jump || block.start == Va(0) {
        return false;
    }
    let Some(before) = p.block_at(Va(block.start.0 - 1)) else { return false };
    let falls = |e: &Edge| e.to == b && e.kind == EdgeKind::FallThrough;
    if p.block(before).end != BlockEnd::Branch || !p.successors(before).iter().any(falls) {
        return false;
    }
    let func = p.function(block.func);
    let into = func.block_ids().flat_map(|x| p.successors(x)).filter(|e| e.to == b).count();
    into == 1
}
