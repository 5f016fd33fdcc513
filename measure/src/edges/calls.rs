//! Calls whose counts say how often a function was entered, so that it needs one counter less.
//!
//! Control comes to the first call of a block whenever it comes to the block, but where a signal's handler leaves the block before it, which
//! is written down. If the block has a counter, such calls of a function need not be counted again when it is entered: they come past a
//! counter that stands in front of its entry for all who come otherwise. Then the edge from outside to its entry can be counted, and be off the tree.
//! Only blocks that have a counter themselves count: a thread that was stopped between the two is one in all, however many calls there are.
//!
//! Source: Ball and Larus, "Optimally Profiling and Tracing Programs", TOPLAS 1994, section 3.3 (a program's functions as one graph).

use super::{below_one, is_known};
use crate::returns::Returns;
use probe::Sparse;
use profile::Profile;
use program::{BlockId, Call, CallKind, Callee, FuncId, Program, Va};

/// The calls that may say how often functions were entered.
pub(super) struct Calls {
    all: Vec<First>,
    /// Per block: whether it has one of them.
    blocks: Vec<bool>,
    /// Per function: how often it is entered otherwise, if it may be counted who enters it.
    entered: Vec<Option<f32>>,
}

/// A direct call that is the first one of its block.
struct First {
    at: Va,
    block: BlockId,
    callee: FuncId,
    /// How often it runs, in the measure of its callee's blocks.
    often: f32,
}

impl Calls {
    /// Those of `program`, if it runs again as it ran `earlier`.
    pub(super) fn of(program: &Program, returns: &Returns<'_>, earlier: Option<&Profile>) -> Calls {
        let n_functions = program.functions.len();
        let mut may_be: Vec<bool> = program.func_ids().map(|id| may_count_entry(program, id)).collect();
        // Entries of jump tables lead past what stands in front of blocks; others may read them, too.
        for id in program.tables.iter().flat_map(|t| &t.targets).filter_map(|at| program.function_from(*at)) {
            may_be[id.index()] = false;
        }
        // Of each function: the places that lead to it, code that takes its address being one; and how many of them are such calls.
        let is_named = |id| program.named.binary_search(&program.function(id).entry).is_ok();
        let mut n_ways: Vec<f32> = program.func_ids().map(|id| f32::from(u8::from(is_named(id)))).collect();
        let mut n_calls = vec![0f32; n_functions];
        let (mut all, mut blocks) = (Vec::new(), vec![false; program.blocks.len()]);
        let mut before = None;
        for call in &program.calls {
            let is_first = before.replace(call.block) != Some(call.block);
            let Callee::Function(callee) = call.callee else { continue };
            n_ways[callee.index()] += 1.0;
            if is_first && may_be[callee.index()] && may_say(program, returns, call) {
                n_calls[callee.index()] += 1.0;
                blocks[call.block.index()] = true;
                all.push(First { at: call.at, block: call.block, callee, often: 0.0 });
            }
        }
        let of = |id: FuncId, earlier: &Profile| {
            earlier.entries.get(&program.function(id).entry).map_or(0.0, |n| *n as f32)
        };
        let mut entered: Vec<Option<f32>> = n_calls.iter().map(|n| (*n > 0.0).then_some(0.0)).collect();
        for call in &mut all {
            call.often = match earlier {
                None => 1.0 / n_ways[call.callee.index()],
                Some(earlier) => {
                    earlier.blocks.get(&program.block(call.block).start).map_or(0.0, |n| *n as f32)
                }
            };
            if let Some(n) = &mut entered[call.callee.index()] {
                *n -= call.often;
            }
        }
        for (id, n) in program.func_ids().zip(&mut entered) {
            let (calls, ways) = (n_calls[id.index()], n_ways[id.index()]);
            let others = (ways - calls) / ways;
            *n = n.map(|less| match earlier {
                None => others,
                Some(earlier) => below_one(others) + (of(id, earlier) + less).max(0.0),
            });
        }
        Calls { all, blocks, entered }
    }

    /// Their addresses, ascending.
    pub(super) fn all(&self) -> Vec<Va> {
        self.all.iter().map(|c| c.at).collect()
    }

    /// Whether `block` has one of them.
    pub(super) fn is_calling(&self, block: BlockId) -> bool {
        self.blocks[block.index()]
    }

    /// How often function `id` is entered otherwise than along one of them; nothing if it is not to be counted who enters.
    pub(super) fn entered(&self, id: FuncId) -> Option<f32> {
        self.entered[id.index()]
    }

    /// Takes into account that calls whose blocks are not counted by what was `chosen` say nothing. Gives the functions that are entered
    /// otherwise more often than was thought: theirs is to be chosen again.
    pub(super) fn settle(&mut self, program: &Program, chosen: &[Option<Sparse>]) -> Vec<FuncId> {
        let mut is_counted = vec![false; self.blocks.len()];
        for (id, sparse) in program.func_ids().zip(chosen) {
            match sparse {
                Some(sparse) => sparse.blocks.iter().for_each(|b| is_counted[b.index()] = true),
                None => program.function(id).block_ids().for_each(|b| is_counted[b.index()] = true),
            }
        }
        let mut more = vec![0f32; chosen.len()];
        for call in self.all.iter().filter(|c| !is_counted[c.block.index()]) {
            more[call.callee.index()] += call.often;
        }
        let mut again = Vec::new();
        for (id, (n, more)) in program.func_ids().zip(self.entered.iter_mut().zip(more)) {
            let Some(n) = n.as_mut().filter(|n| more > **n * 0.1) else { continue };
            *n += more;
            again.extend(chosen[id.index()].as_ref().is_some_and(|s| s.entry).then_some(id));
        }
        again
    }
}

/// Whether it can be counted who comes to the entry of `id` from outside: by code in front of it, where nobody falls into it.
fn may_count_entry(program: &Program, id: FuncId) -> bool {
    let function = program.function(id);
    is_known(program, id)
        && function.import.is_none()
        && program.entry_block(id).is_some()
        && function.ranges.iter().any(|range| range.start == function.entry)
}

/// Whether `call` is made whenever its block's counter is incremented, but for signals: it may be that a system call before it ends the process.
fn may_say(program: &Program, returns: &Returns<'_>, call: &Call) -> bool {
    call.kind == CallKind::Call
        && program.is_direct_call(call.at)
        && !(returns.calls_system(program.block(call.block).func) && returns.block_calls_system(call.block))
}
