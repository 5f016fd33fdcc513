//! Liveness: which registers and flags may still be read before they are written.
//!
//! What is *not* live may be overwritten at will: the program cannot tell. So everything here errs on the
//! side of live.
//!
//! **Where code meets other code.** Compilers keep to the ABI at calls they cannot see through, and only
//! there: gcc's `-fipa-ra` keeps values in caller-saved registers across a call to a local function that does
//! not touch them, hand-written code has conventions of its own. So direct calls and tail calls within the
//! image are analysed across ([`Conventions`]): a call reads what is live where the callee starts, a return
//! provides what is live after the calls that may have led there. The ABI speaks where the other side is not
//! seen:
//! - A call through the PLT, a slot or a pointer reads the argument registers and destroys the caller-saved
//!   ones and the arithmetic flags. Whether it really takes six arguments is not known; where such a register
//!   would have to survive an earlier call within the image to get there, it counts only if that callee never
//!   writes it.
//! - Any function may be called from outside: at its returns, the callee-saved and the result registers are
//!   live.
//! - A call may throw: what a landing pad reads is live before the call, the frame pointer at every call, and
//!   so is every callee-saved register that this function never writes (it is in no frame, so only the
//!   register holds it).
//! - System calls may look at every general register. An unresolved jump, a jump to unknown code, a return to
//!   an address the function made up (`push; ret`), or one after it loaded another stack pointer: everything
//!   is live.
//! - In files with Go code the ABI is not System V's: everything is live at calls and returns.
//!
//! The stack pointer, segment and control registers and the x87 stack are always live.
//!
//! Invariant: the result is the least fixed point, so the same whatever the number of threads. Nothing
//! recurses.
//!
//! Source: any textbook for the equations; System V ABI, AMD64 supplement, 3.2 for calls (the sets are in
//! `arch::abi`).

mod body;
mod flags;

use crate::addr::Va;
use crate::analyses::flow_graph::{FlowGraph, count};
use crate::arch::{Decoder, EffectsOf, RegSet, abi};
use crate::ids::{BlockId, FuncId};
use crate::model::{Call, CallKind, Callee, EdgeKind, Program};
use body::{Body, Scratch, Solution, Starts};
pub use flags::FlagLiveness;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// What callers and callees within the image expect of each other, per function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conventions {
    functions: Vec<Convention>,
    /// Nothing is known of callers and callees.
    system_v: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Convention {
    /// Live at its entries.
    at_entry: RegSet,
    /// Of that, what some instruction reads, not only a call that may or may not take that argument.
    read_at_entry: RegSet,
    /// Live where it returns.
    at_return: RegSet,
    /// Written by it or by what it calls.
    clobbers: RegSet,
}

impl Convention {
    const UNKNOWN: Convention =
        Convention { at_entry: abi::ALL, read_at_entry: abi::ALL, at_return: abi::ALL, clobbers: abi::ALL };
}

/// What is live in one function.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// The function.
    pub func: FuncId,
    first: u32,
    starts: Starts,
    /// Live where control leaves the function, for the blocks where it can, by position.
    exits: Box<[(u32, RegSet)]>,
    /// Callee-saved registers that the function never writes, once somebody has asked.
    callee_saved: OnceLock<RegSet>,
}

impl Conventions {
    /// Finds the conventions of all functions, and what is live in each.
    pub fn compute(program: &Program) -> (Conventions, Vec<Liveness>) {
        let system_v = is_system_v(program);
        let (mut bodies, mut callees) = (Vec::new(), Vec::new());
        (0..program.functions.len())
            .into_par_iter()
            .map_init(Scratch::new, |scratch, i| Body::of(program, system_v, FuncId::at(i), scratch))
            .unzip_into_vecs(&mut bodies, &mut callees);
        let calls = CallGraph::of(callees);
        let mut conventions = Conventions::start(system_v, &bodies, &calls);
        let mut solved: Vec<Option<Starts>> = bodies.iter().map(|_| None).collect();
        // Callees first, so that most functions are solved once; what recursion and callers ask for comes
        // later. Those of one level are solved from the same conventions, then tell what they ask of others.
        // Sets only grow, so each function is solved at most as often as its callers, callees and itself have
        // registers.
        let mut pending = Pending::all(&calls);
        while let Some(level) = pending.take() {
            let before: Vec<_> = level.iter().map(|&i| (i, solved[i as usize].take())).collect();
            let solve = |scratch: &mut Scratch, (i, before): (u32, Option<Starts>)| {
                (i, bodies[i as usize].solve(program, &conventions, before, scratch))
            };
            let fresh: Vec<(u32, Solution)> =
                before.into_par_iter().with_min_len(16).map_init(Scratch::new, solve).collect();
            for (i, solution) in fresh {
                let me = &mut conventions.functions[i as usize];
                let entry =
                    (me.at_entry.union(solution.at_entry), me.read_at_entry.union(solution.read_at_entry));
                if entry != (me.at_entry, me.read_at_entry) {
                    (me.at_entry, me.read_at_entry) = entry;
                    calls.callers(i).iter().for_each(|&c| pending.add(&calls, c));
                }
                for &(callee, wanted) in &solution.wanted {
                    let at_return = &mut conventions.functions[callee.index()].at_return;
                    if !at_return.holds(wanted) {
                        at_return.add(wanted);
                        pending.add(&calls, callee.0);
                    }
                }
                solved[i as usize] = Some(solution.starts);
            }
        }
        let all = bodies.into_par_iter().zip(solved).map(|(body, starts)| {
            let starts = starts.expect("every function was pending once");
            body.liveness(&conventions, starts)
        });
        let all = all.collect();
        (conventions, all)
    }

    /// For one function alone: of the others nothing is assumed, so more is live than need be.
    pub fn unknown(program: &Program) -> Conventions {
        Conventions { functions: Vec::new(), system_v: is_system_v(program) }
    }

    /// What `func`, or what it calls, writes: all else is after a call of it as it was.
    pub fn clobbers(&self, func: FuncId) -> RegSet {
        self.of(func).clobbers
    }

    /// What callers of `func` may read when it has returned, as it left it or as they did: the ABI's, and
    /// what they know it not to write (`-fipa-ra` of gcc).
    pub fn at_return(&self, func: FuncId) -> RegSet {
        self.of(func).at_return
    }

    fn of(&self, func: FuncId) -> Convention {
        self.functions.get(func.index()).copied().unwrap_or(Convention::UNKNOWN)
    }

    /// Before the first round: the ABI, and what is written.
    fn start(system_v: bool, bodies: &[Body], calls: &CallGraph) -> Conventions {
        let mut clobbers: Vec<RegSet> = bodies.iter().map(|b| b.writes).collect();
        let mut work: Vec<u32> = (0..count(bodies.len())).collect();
        while let Some(i) = work.pop() {
            for &caller in calls.callers(i) {
                let more = clobbers[i as usize];
                if !clobbers[caller as usize].holds(more) {
                    clobbers[caller as usize].add(more);
                    work.push(caller);
                }
            }
        }
        let functions = bodies
            .iter()
            .zip(clobbers)
            .map(|(body, clobbers)| match !body.entries().is_empty() && system_v {
                true => {
                    // What solving would find soon for most: a caller may pass an argument on to its next
                    // call.
                    let is_called = !calls.callers(body.func.0).is_empty();
                    let passed = if is_called { abi::ARGUMENTS.minus(clobbers) } else { RegSet::EMPTY };
                    Convention {
                        at_entry: abi::ARGUMENTS.union(abi::CALLEE_SAVED).union(abi::ALWAYS_LIVE),
                        read_at_entry: RegSet::EMPTY,
                        at_return: abi::RETURNED
                            .union(abi::CALLEE_SAVED)
                            .union(abi::ALWAYS_LIVE)
                            .union(passed),
                        clobbers,
                    }
                }
                false => Convention::UNKNOWN,
            })
            .collect();
        Conventions { functions, system_v }
    }
}

impl PartialEq for Liveness {
    fn eq(&self, other: &Liveness) -> bool {
        let n = self.starts.len();
        (self.func, self.first, n, &self.exits) == (other.func, other.first, other.starts.len(), &other.exits)
            && (0..count(n)).all(|node| self.starts.live(node) == other.starts.live(node))
    }
}

impl Eq for Liveness {}

impl Liveness {
    /// What is live in `func`, nothing being known of the other functions. [`Conventions::compute`] finds
    /// more dead.
    pub fn compute(program: &Program, func: FuncId) -> Liveness {
        Liveness::compute_with(program, &Conventions::unknown(program), func)
    }

    /// What is live in `func`, given what other functions expect.
    pub fn compute_with(program: &Program, conventions: &Conventions, func: FuncId) -> Liveness {
        let mut scratch = Scratch::new();
        let (body, _) = Body::of(program, conventions.system_v, func, &mut scratch);
        let starts = body.solve(program, conventions, None, &mut scratch).starts;
        body.liveness(conventions, starts)
    }

    /// Live before the first instruction of `block`.
    pub fn live_in(&self, block: BlockId) -> RegSet {
        self.starts.live(block.0 - self.first)
    }

    /// Live after the last instruction of `block`.
    pub fn live_out(&self, program: &Program, block: BlockId) -> RegSet {
        let node = block.0 - self.first;
        let exit = self.exits.binary_search_by_key(&node, |e| e.0).map(|i| self.exits[i].1);
        let mut out = exit.unwrap_or_default().union(abi::ALWAYS_LIVE);
        program.successors(block).iter().for_each(|e| out.add(self.live_in(e.to)));
        out
    }

    /// Live before each instruction of `block`.
    pub fn before(&self, program: &Program, conventions: &Conventions, block: BlockId) -> Vec<(Va, RegSet)> {
        let always = abi::ALWAYS_LIVE.union(self.pads(program, block));
        let out = self.live_out(program, block);
        let at_entry = |f| conventions.of(f).at_entry;
        walk_back(program, conventions.system_v, block, out, always, self.callee_saved(program), at_entry)
    }

    /// Live at the landing pads of `block`.
    fn pads(&self, program: &Program, block: BlockId) -> RegSet {
        let mut set = RegSet::EMPTY;
        for e in program.successors(block).iter().filter(|e| e.kind == EdgeKind::LandingPad) {
            set.add(self.live_in(e.to));
        }
        set
    }

    /// Callee-saved registers that the function never writes.
    fn callee_saved(&self, program: &Program) -> RegSet {
        *self.callee_saved.get_or_init(|| {
            let mut of = EffectsOf::new();
            let mut writes = RegSet::EMPTY;
            for b in program.function(self.func).block_ids() {
                program.insns(b).for_each(|insn| writes.add(of.effects(&insn).writes));
            }
            abi::CALLEE_SAVED.minus(writes).union(abi::FRAME_POINTER)
        })
    }
}

/// Live before each instruction of `block`, given what is live after it, what always is, what is at all
/// calls, and what is where functions of the image start.
fn walk_back(
    program: &Program,
    system_v: bool,
    block: BlockId,
    out: RegSet,
    always: RegSet,
    callee_saved: RegSet,
    at_entry: impl Fn(FuncId) -> RegSet,
) -> Vec<(Va, RegSet)> {
    let mut of = EffectsOf::new();
    let calls = program.calls_in(block);
    let block = program.block(block);
    let mut decoder = Decoder::new(program.image.bytes_from(block.start).unwrap_or_default(), block.start);
    let mut insns = Vec::with_capacity(block.n_insns as usize);
    let mut last = None;
    while decoder.at() < block.end_va() {
        let at = decoder.at();
        let call = calls.iter().find(|c| c.at == at && c.kind == CallKind::Call);
        match decoder.quick() {
            Some(quick) => {
                decoder.pass(&quick);
                insns.push((at, quick.effects(), call.map(|c| (c, false))));
            }
            None => {
                let Some(insn) = decoder.next() else { break };
                let before = || last.and_then(|at| body::insn_at(program, at));
                let keeps_all = call.is_some() && insn.is_descriptor_call(before().as_ref());
                insns.push((at, of.effects(&insn), call.map(|c| (c, keeps_all))));
            }
        }
        last = Some(at);
    }
    let mut live = out;
    let mut found: Vec<(Va, RegSet)> = Vec::with_capacity(insns.len());
    for (at, effects, call) in insns.into_iter().rev() {
        if let Some((call, keeps_all)) = call {
            let mut crossing = Crossing::of(program, system_v, call);
            if keeps_all {
                crossing.kills = RegSet::EMPTY;
            }
            let mut reads = crossing.reads.union(crossing.maybe_reads).union(callee_saved);
            if let Some(callee) = crossing.callee {
                reads.add(at_entry(callee));
            }
            live = live.minus(crossing.kills).union(reads);
        }
        live = live.minus(effects.kills).union(effects.reads).union(always);
        found.push((at, live));
    }
    found.reverse();
    found
}

/// Whether functions call each other by the System V ABI: Go's do not.
fn is_system_v(program: &Program) -> bool {
    !program.image.sections.iter().any(|s| s.name == ".gopclntab" || s.name == ".go.buildinfo")
}

/// What a call does to registers, beside its own instruction.
struct Crossing {
    /// Read for certain, or possibly in ways we cannot see.
    reads: RegSet,
    /// Read if the callee takes that many arguments.
    maybe_reads: RegSet,
    /// Not the caller's any more when it returns.
    kills: RegSet,
    /// The function of this image that is called, and tells the rest.
    callee: Option<FuncId>,
}

impl Crossing {
    fn of(program: &Program, system_v: bool, call: &Call) -> Crossing {
        let external = |name: Option<&str>| {
            if !system_v || name.is_some_and(abi::keeps_all) {
                Crossing {
                    reads: abi::ALL.minus(abi::FLAGS),
                    maybe_reads: RegSet::EMPTY,
                    kills: RegSet::EMPTY,
                    callee: None,
                }
            } else {
                Crossing {
                    reads: abi::FRAME_POINTER,
                    maybe_reads: abi::ARGUMENTS,
                    kills: abi::CALLER_SAVED,
                    callee: None,
                }
            }
        };
        let mut crossing = match call.callee {
            Callee::Function(f) => match &program.function(f).import {
                Some(name) => external(Some(name)),
                None => Crossing {
                    reads: abi::FRAME_POINTER,
                    maybe_reads: RegSet::EMPTY,
                    kills: abi::ALL,
                    callee: Some(f),
                },
            },
            Callee::Import(i) => external(program.imports.get(i as usize).map(|n| &**n)),
            Callee::Indirect => external(None),
            Callee::Unknown(_) => {
                Crossing { reads: abi::ALL, maybe_reads: RegSet::EMPTY, kills: RegSet::EMPTY, callee: None }
            }
        };
        if !call.returns {
            crossing.kills = abi::ALL;
            crossing.reads.add(abi::CALLEE_SAVED);
        }
        crossing
    }
}

/// Who calls whom, by position of the functions.
struct CallGraph {
    graph: FlowGraph,
    /// How far each function is above those that call nobody; calls that close a cycle do not count.
    level: Vec<u32>,
}

impl CallGraph {
    /// From the callees of all functions.
    fn of(callees: Vec<Vec<FuncId>>) -> CallGraph {
        let mut first_out = Vec::with_capacity(callees.len() + 1);
        let mut to = Vec::with_capacity(callees.iter().map(Vec::len).sum());
        first_out.push(0);
        for callees in callees {
            to.extend(callees.iter().map(|c| c.0));
            first_out.push(count(to.len()));
        }
        let graph = FlowGraph::with_entries(first_out, to, Vec::new());
        const NONE: u32 = u32::MAX;
        let mut level = vec![NONE; graph.len()];
        for i in graph.postorder() {
            let below = graph.successors(i).iter().map(|&c| level[c as usize]).filter(|&l| l != NONE).max();
            level[i as usize] = below.map_or(0, |l| l + 1);
        }
        CallGraph { graph, level }
    }

    fn callers(&self, i: u32) -> &[u32] {
        self.graph.predecessors(i)
    }
}

/// Functions to be solved, by level.
struct Pending {
    levels: BTreeMap<u32, Vec<u32>>,
    is_pending: Vec<bool>,
    /// The level last taken, and whether the next is one above: callees ask callers for more and callers
    /// callees, so the way goes up and down in turn, and a chain of calls takes one way whatever its
    /// direction.
    at: u32,
    up: bool,
}

impl Pending {
    /// All functions, from the lowest level on.
    fn all(calls: &CallGraph) -> Pending {
        let n = calls.level.len();
        let mut pending = Pending { levels: BTreeMap::new(), is_pending: vec![false; n], at: 0, up: true };
        (0..count(n)).for_each(|i| pending.add(calls, i));
        pending
    }

    fn add(&mut self, calls: &CallGraph, i: u32) {
        if !std::mem::replace(&mut self.is_pending[i as usize], true) {
            self.levels.entry(calls.level[i as usize]).or_default().push(i);
        }
    }

    /// All of the next level, in order.
    fn take(&mut self) -> Option<Vec<u32>> {
        let above = self.levels.range(self.at..).next();
        let below = self.levels.range(..=self.at).next_back();
        let (next, up) = match (self.up, above, below) {
            (true, Some(next), _) | (false, Some(next), None) => (*next.0, true),
            (_, _, Some(next)) => (*next.0, false),
            (_, None, None) => return None,
        };
        (self.at, self.up) = (next, up);
        let mut level = self.levels.remove(&next)?;
        level.sort_unstable();
        level.iter().for_each(|&i| self.is_pending[i as usize] = false);
        Some(level)
    }
}

#[cfg(test)]
mod tests;
