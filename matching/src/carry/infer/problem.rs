//! The problem that inference solves: one function's flow graph, and what is known of its counts.

use program::{BlockEnd, CallKind, FuncId, Program};

/// A count as far as it is known, and what it costs to change it by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Estimate {
    /// Executions.
    pub count: u64,
    /// Cost of one more.
    pub raise: u32,
    /// Cost of one less.
    pub lower: u32,
    /// Known to have run: only the impossible makes it zero.
    pub keep: bool,
}

impl Estimate {
    /// Nothing known; every execution costs `raise`.
    pub fn unknown(raise: u32) -> Estimate {
        Estimate { count: 0, raise, lower: 0, keep: false }
    }
}

/// One function: blocks are numbered from 0, edges by their place in `edges`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    /// From and to.
    pub edges: Vec<(u32, u32)>,
    /// A block's executions.
    pub blocks: Vec<Estimate>,
    /// An edge's executions.
    pub edge: Vec<Estimate>,
    /// Control that comes into a block from outside; `None`: it cannot.
    pub enter: Vec<Option<Estimate>>,
    /// Control that leaves the function at the end of a block; `None`: it cannot.
    pub leave: Vec<Option<Estimate>>,
}

impl Problem {
    /// The graph of `func` with nothing known: where control enters, where it leaves, and where it might
    /// leak, at what cost.
    ///
    /// Shape: `leak` is the cost of one execution that a call does not bring back, or brings back twice.
    pub fn of(program: &Program, func: FuncId, leak: u32) -> Problem {
        let function = program.function(func);
        let first = function.blocks.start;
        let edges = program.edges_of(func);
        let n = function.n_blocks();
        let entry = program.entry_block(func);
        let mut p = Problem {
            edges: edges.iter().map(|e| (e.from.0 - first, e.to.0 - first)).collect(),
            blocks: vec![Estimate::unknown(0); n],
            edge: vec![Estimate::unknown(1); edges.len()],
            enter: vec![None; n],
            leave: vec![None; n],
        };
        let mut may_end = false;
        for (i, b) in function.block_ids().enumerate() {
            let block = program.block(b);
            let calls = program.calls_in(b);
            let exit = matches!(
                block.end,
                BlockEnd::Return
                    | BlockEnd::NoReturn
                    | BlockEnd::Stop
                    | BlockEnd::Broken
                    | BlockEnd::Unresolved
                    | BlockEnd::IndirectTailCall
            ) || program.successors(b).is_empty()
                || calls.iter().any(|c| c.kind != CallKind::Call);
            if exit {
                may_end = true;
                p.leave[i] = Some(Estimate::unknown(0));
            } else if !calls.is_empty() {
                p.leave[i] = Some(Estimate::unknown(leak));
            }
            if !calls.is_empty() || block.landing_pad {
                p.enter[i] = Some(Estimate::unknown(leak));
            }
            if entry == Some(b) {
                p.enter[i] = Some(Estimate::unknown(1));
            } else if function.entries.contains(&b) || block.end == BlockEnd::Unresolved {
                p.enter[i] = Some(Estimate::unknown(20));
            }
            if !function.complete && p.enter[i].is_none() {
                // Jumps that are not understood may lead anywhere in the function.
                p.enter[i] = Some(Estimate::unknown(30));
            }
        }
        if !may_end {
            for leave in p.leave.iter_mut().filter(|l| l.is_none()) {
                *leave = Some(Estimate::unknown(2 * leak));
            }
        }
        p
    }
}
