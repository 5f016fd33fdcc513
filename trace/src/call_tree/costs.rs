//! What each function cost, with all that it called: recursion counts once.
//!
//! What runs while a function is open, however often, counts for it: that it was entered twice makes no
//! difference. So it takes no tree, and no more memory than there are functions.

use super::walk::{Visit, walk};
use crate::file::ReadError;
use crate::ids::{BlockId, FuncId};
use crate::trace::Trace;
use crate::trace::part::Part;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// What a function cost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cost {
    /// Without what it called.
    pub own: u64,
    /// With it.
    pub inclusive: u64,
    /// How often it was entered.
    pub entries: u64,
}

/// What a trace, or a part of one, cost.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Costs {
    /// Of the functions that were open in it.
    pub functions: BTreeMap<FuncId, Cost>,
    /// All of it.
    pub total: u64,
}

impl Costs {
    /// Reads the part; blocks weigh as in [`super::CallTree::of`].
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn of(
        trace: &Trace,
        part: &Part,
        weight: impl FnMut(FuncId, Option<BlockId>, BlockId) -> u64,
    ) -> Result<Costs, ReadError> {
        let mut running = Running { functions: Vec::new(), open: Vec::new(), total: 0, weight };
        walk(trace, part, &mut running)?;
        running.stream();
        let all = (0..).map(FuncId).zip(running.functions);
        let functions = all.filter(|(_, of)| of.was_open).map(|(func, of)| (func, of.cost)).collect();
        Ok(Costs { functions, total: running.total })
    }
}

/// A function, so far.
#[derive(Clone, Default)]
struct Function {
    cost: Cost,
    was_open: bool,
    /// How often it is open.
    n_open: u64,
    /// What had run when it was opened first.
    since: u64,
}

struct Running<W> {
    functions: Vec<Function>,
    open: Vec<FuncId>,
    total: u64,
    weight: W,
}

impl<W> Running<W> {
    fn push(&mut self, func: FuncId, entries: u64) {
        if self.functions.len() <= func.index() {
            self.functions.resize(func.index() + 1, Function::default());
        }
        if let Some(of) = self.functions.get_mut(func.index()) {
            if of.n_open == 0 {
                of.since = self.total;
            }
            of.n_open += 1;
            of.was_open = true;
            of.cost.entries += entries;
        }
        self.open.push(func);
    }

    fn pop(&mut self) -> Option<()> {
        let func = self.open.pop()?;
        let of = self.functions.get_mut(func.index())?;
        of.n_open -= 1;
        if of.n_open == 0 {
            of.cost.inclusive = of.cost.inclusive.saturating_add(self.total - of.since);
        }
        Some(())
    }
}

impl<W: FnMut(FuncId, Option<BlockId>, BlockId) -> u64> Visit for Running<W> {
    fn stream(&mut self) {
        while self.pop().is_some() {}
    }

    fn was_open(&mut self, func: FuncId) {
        self.push(func, 0);
    }

    fn enter(&mut self, func: FuncId) {
        self.push(func, 1);
    }

    fn block(&mut self, func: FuncId, before: Option<BlockId>, block: BlockId) {
        let n = (self.weight)(func, before, block);
        self.total = self.total.saturating_add(n);
        let own = self.functions.get_mut(func.index()).map(|of| &mut of.cost.own);
        own.into_iter().for_each(|own| *own = own.saturating_add(n));
    }

    fn block_of_nothing(&mut self) {
        self.total = self.total.saturating_add(1);
    }

    fn exit(&mut self) {
        self.pop();
    }

    fn has_enough(&self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
