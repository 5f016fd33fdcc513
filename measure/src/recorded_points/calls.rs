//! What the calls of a module come to, and what of that is recorded.
#![warn(clippy::indexing_slicing)]

use petgraph::algo::kosaraju_scc;
use petgraph::graph::DiGraph;
use program::arch::ControlFlow;
use program::image::RelocationTo;
use program::{BlockId, Call, CallKind, Callee, EdgeKind, FuncId, Insn, Program, Va, libc};
use rayon::prelude::*;
use std::collections::HashMap;

/// Where a call comes to.
#[derive(Clone, Copy)]
pub(super) struct Comes {
    pub(super) entry: u32,
    pub(super) func: FuncId,
    /// Whether it goes there itself.
    pub(super) is_direct: bool,
}

pub(super) struct Around<'p> {
    pub(super) program: &'p Program,
    /// The calls that may return in another process, too.
    pub(super) forks: Vec<Va>,
    pub(super) is_moved: &'p (dyn Fn(FuncId) -> bool + Sync),
    /// Whether a function is recorded, if it can be.
    pub(super) is_recorded: &'p (dyn Fn(FuncId) -> bool + Sync),
    /// Whether a function has an event each time that it is entered.
    pub(super) tells: &'p (dyn Fn(FuncId) -> bool + Sync),
    /// Whether the C library is recorded, too.
    pub(super) is_libc_recorded: bool,
    /// By call: the entry that it comes to.
    pub(super) targets: HashMap<Va, Comes>,
}

impl Around<'_> {
    /// The blocks of moved functions that are entered from outside, numbered.
    pub(super) fn entries(&self) -> HashMap<BlockId, u32> {
        let program = self.program;
        let mut entries = HashMap::new();
        for func in program.func_ids().filter(|f| (self.is_moved)(*f)) {
            let first = program.entry_block(func);
            for block in first.into_iter().chain(program.function(func).entries.iter().copied()) {
                let n = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                entries.entry(block).or_insert(n);
            }
        }
        entries
    }

    /// Finds the entry that each call or jump comes to, if that is one that is recorded: another module may
    /// take its place only if it defines the same name.
    pub(super) fn find_targets(&mut self, entries: &HashMap<BlockId, u32>) {
        let program = self.program;
        let own = own_stubs(program);
        let target = |call: &Call, insn: Option<&Insn>| {
            let Callee::Function(callee) = call.callee else { return None };
            let stub = own.get(&callee);
            let block = if let Some(stub) = stub {
                *stub
            } else {
                // It may come to another entry of it than the first.
                let to = insn.and_then(|insn| match insn.flow() {
                    ControlFlow::Call(to) | ControlFlow::Jump(to) | ControlFlow::Branch(to) => Some(to),
                    _ => None,
                });
                match to {
                    Some(to) => program.block_from(to).filter(|b| program.block(*b).func == callee)?,
                    None if call.kind == CallKind::FallThrough => program.entry_block(callee)?,
                    None => return None,
                }
            };
            let entry = entries.get(&block).copied()?;
            Some((call.at, Comes { entry, func: program.block(block).func, is_direct: stub.is_none() }))
        };
        // A block may have thousands of calls: its instructions are gone through once.
        let of_block = |calls: &[Call]| {
            let mut insns =
                calls.first().map(|call| program.insns(call.block)).into_iter().flatten().peekable();
            let targets = calls.iter().map(|call| {
                while insns.next_if(|insn| insn.at() < call.at).is_some() {}
                target(call, insns.peek().filter(|insn| insn.at() == call.at))
            });
            targets.collect::<Vec<_>>()
        };
        let blocks: Vec<&[Call]> = program.calls.chunk_by(|a, b| a.block == b.block).collect();
        self.targets = blocks.into_par_iter().flat_map_iter(of_block).flatten().collect();
    }

    /// The entry that a call or jump comes to.
    pub(super) fn target(&self, call: &Call) -> Option<Comes> {
        self.targets.get(&call.at).copied()
    }

    /// Functions that may be left by a jump to something that need not be recorded.
    pub(super) fn leave_somewhere(&self) -> Vec<bool> {
        let program = self.program;
        let mut found = vec![false; program.functions.len()];
        loop {
            let mut changed = false;
            for call in program.calls.iter().filter(|c| c.kind != CallKind::Call) {
                let from = program.block(call.block).func;
                let to = self.target(call);
                let leads = to.is_none_or(|to| found.get(to.func.index()).copied().unwrap_or(true));
                if leads && let Some(place @ false) = found.get_mut(from.index()) {
                    *place = true;
                    changed = true;
                }
            }
            if !changed {
                return found;
            }
        }
    }

    /// Per function: in which circle of calls it is, which come back for sure; what is called has a lower
    /// number than what calls it.
    pub(super) fn recurse(&self, leaves: &[bool]) -> Vec<usize> {
        let program = self.program;
        let mut graph = DiGraph::<(), (), u32>::new();
        let nodes: Vec<_> = program.func_ids().map(|_| graph.add_node(())).collect();
        for call in &program.calls {
            let from = program.block(call.block).func;
            if let Some(to) = self.target(call)
                && !leaves.get(to.func.index()).is_some_and(|l| *l)
                && let (Some(from), Some(to)) = (nodes.get(from.index()), nodes.get(to.func.index()))
            {
                graph.add_edge(*from, *to, ());
            }
        }
        let mut circle = vec![0; nodes.len()];
        for (n, all) in kosaraju_scc(&graph).into_iter().enumerate() {
            for node in all {
                circle.get_mut(node.index()).into_iter().for_each(|place| *place = n);
            }
        }
        circle
    }

    /// Per function: whether a call comes to it directly that comes back for sure, from outside of its circle
    /// of calls.
    pub(super) fn called(&self, leaves: &[bool], recurses: &[usize]) -> Vec<bool> {
        let program = self.program;
        let mut called = vec![false; program.functions.len()];
        for call in program.calls.iter().filter(|c| c.kind == CallKind::Call && c.returns) {
            let Some(to) = self.target(call).filter(|to| to.is_direct) else { continue };
            let from = program.block(call.block).func;
            let is_sure = !leaves.get(to.func.index()).is_some_and(|l| *l)
                && recurses.get(to.func.index()) != recurses.get(from.index());
            called.get_mut(to.func.index()).into_iter().for_each(|place| *place |= is_sure);
        }
        called
    }

    /// The number of a function, from 1, if it is a stub that is recorded; else 0.
    pub(super) fn stub(&self, func: FuncId) -> u32 {
        let is_one = self.program.function(func).import.is_some() && (self.is_recorded)(func);
        if is_one { func.0 + 1 } else { 0 }
    }

    pub(super) fn is_twice(&self, call: &Call) -> bool {
        self.is_named(call, libc::returns_twice)
    }

    /// Whether it is of a function of such a name.
    pub(super) fn is_named(&self, call: &Call, is_one: impl Fn(&str) -> bool) -> bool {
        let program = self.program;
        match call.callee {
            Callee::Import(n) => program.imports.get(n as usize).is_some_and(|name| is_one(name)),
            Callee::Function(f) => {
                let f = program.function(f);
                f.import.as_deref().is_some_and(&is_one) || f.names.iter().any(|n| is_one(n))
            }
            _ => false,
        }
    }

    /// Whether it is of a function of the C library that need not be recorded, which is in another module.
    pub(super) fn is_quiet_import(&self, call: &Call) -> bool {
        let program = self.program;
        let name = match call.callee {
            Callee::Import(n) => program.imports.get(n as usize),
            Callee::Function(f) => program.function(f).import.as_ref(),
            _ => None,
        };
        !self.is_libc_recorded
            && name.is_some_and(|name| {
                libc::does(name, libc::SELF_CONTAINED) && self.program.image.is_libc_import(name)
            })
    }

    /// Whether it may return in another process, too, or when another stack has run.
    pub(super) fn is_far(&self, call: &Call) -> bool {
        self.forks.binary_search(&call.at).is_ok()
            || self.is_named(call, |name| libc::does(name, libc::SWITCHES_STACK))
    }

    /// Whether control may come into the middle of the function's activations from other ones.
    pub(super) fn has_frames(&self, func: FuncId) -> bool {
        let program = self.program;
        program.edges_of(func).iter().any(|e| e.kind == EdgeKind::LandingPad)
            || program
                .function(func)
                .block_ids()
                .flat_map(|b| program.calls_in(b))
                .any(|call| self.is_twice(call) || self.is_far(call))
    }
}

/// Stubs of what the module defines itself, with where that starts.
fn own_stubs(program: &Program) -> HashMap<FuncId, BlockId> {
    let image = &program.image;
    let mut own = HashMap::new();
    for stub in &image.plt {
        let at = stub.slot.and_then(|slot| {
            let n = image.relocations.binary_search_by_key(&slot, |r| r.at).ok()?;
            match image.relocations.get(n)?.to {
                RelocationTo::Symbol(_, at) => at,
                _ => None,
            }
        });
        let block = at.and_then(|at| program.block_from(at));
        let stub = program.block_from(stub.range.start).map(|b| program.block(b).func);
        if let (Some(block), Some(stub)) = (block, stub) {
            own.insert(stub, block);
        }
    }
    own
}
