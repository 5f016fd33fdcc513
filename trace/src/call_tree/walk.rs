//! A trace read call by call.

use crate::file::ReadError;
use crate::ids::{BlockId, FuncId};
use crate::symbol::{Step, Symbol};
use crate::trace::Trace;
use crate::trace::part::Part;
use std::ops::ControlFlow;

/// What is done with each step.
pub trait Visit {
    /// Another stream begins: nothing is open.
    fn stream(&mut self);
    /// This function was open before the part.
    fn was_open(&mut self, func: FuncId);
    /// This function is entered.
    fn enter(&mut self, func: FuncId);
    /// This block of the function on top is executed, after the other one of the same call.
    fn block(&mut self, func: FuncId, before: Option<BlockId>, block: BlockId);
    /// A block is executed where no function is open.
    fn block_of_nothing(&mut self);
    /// The function on top is left.
    fn exit(&mut self);
    /// Whether to read on.
    fn has_enough(&self) -> ControlFlow<()>;
}

/// Reads a part of a trace, until `visit` has enough.
pub fn walk(trace: &Trace, part: &Part, visit: &mut impl Visit) -> Result<Option<()>, ReadError> {
    let mut of = None;
    // The functions that are open, with the block that each was in last.
    let mut open: Vec<(FuncId, Option<BlockId>)> = Vec::new();
    trace.read_part(part, |piece| {
        if of.replace(piece.thread) != Some(piece.thread) {
            open.clear();
            visit.stream();
        }
        for &func in piece.open {
            visit.was_open(func);
            open.push((func, None));
        }
        for &code in piece.symbols {
            match Symbol(code).step() {
                Step::Enter(func) => {
                    visit.enter(func);
                    open.push((func, None));
                }
                Step::Exit => {
                    visit.exit();
                    open.pop();
                }
                Step::Block(block) => match open.last_mut() {
                    Some((func, last)) => visit.block(*func, last.replace(block), block),
                    None => visit.block_of_nothing(),
                },
            }
        }
        visit.has_enough()
    })
}
