//! Liveness: which registers and flags may still be read before they are written.
//!
//! What is *not* live may be overwritten at will: the program cannot tell. So everything here errs on the side of live.
//!
//! **Where code meets other code.** Compilers keep to the ABI at calls they cannot see through, and only there: gcc's
//! `-fipa-ra` keeps values in caller-saved registers across a call to a local function that does not touch them, hand-written code
//! has conventions of its own. So direct calls and tail calls within the image are analysed across ([`Conventions`]): a call reads
//! what is live where the callee starts, a return provides what is live after the calls that may have led there.
//! The ABI speaks where the other side is not seen:
//! - A call through the PLT, a slot or a pointer reads the argument registers and destroys the caller-saved ones and the arithmetic
//!   flags. Whether it really takes six arguments is not known; where such a register would have to survive an earlier call within
//!   the image to get there, it counts only if that callee never writes it.
//! - Any function may be called from outside: at its returns, the callee-saved and the result registers are live.
//! - A call may throw: what a landing pad reads is live before the call, the frame pointer at every call, and so
//!   is every callee-saved register that this function never writes (it is in no frame, so only the register holds it).
//! - System calls may look at every general register. An unresolved jump, a jump to unknown code, a return to an address the
//!   function made up (`push; ret`), or one after it loaded another stack pointer: everything is live.
//! - In files with Go code the ABI is not System V's: everything is live at calls and returns.
//!
//! The stack pointer, segment and control registers and the x87 stack are always live.
//!
//! Invariant: the result is the least fixed point, so the same whatever the number of threads. Nothing recurses.
//!
//! Source: any textbook for the equations; System V ABI, AMD64 supplement, 3.2 for calls (the sets are in `arch::abi`).

use crate::addr::Va;
use crate::arch::{EffectsOf, Flow, Insn, RegSet, abi};
use crate::graph::{FlowGraph, count};
use crate::ids::{BlockId, FuncId};
use crate::model::{Block, BlockEnd, Call, CallKind, Callee, EdgeKind, Program};
use rayon::prelude::*;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// The function.
    pub func: FuncId,
    first: u32,
    live_in: Vec<RegSet>,
    live_out: Vec<RegSet>,
}

impl Conventions {
    /// Finds the conventions of all functions, and what is live in each.
    pub fn compute(program: &Program) -> (Conventions, Vec<Liveness>) {
        let system_v = is_system_v(program);
        let bodies: Vec<Body> = (0..program.functions.len())
            .into_par_iter()
            .map_init(EffectsOf::new, |of, i| Body::of(program, system_v, FuncId::at(i), of))
            .collect();
        let mut conventions = Conventions::start(system_v, &bodies);
        let mut solved: Vec<Option<Solution>> = bodies.iter().map(|_| None).collect();
        let mut stale: Vec<u32> = (0..count(bodies.len())).collect();
        // Rounds: all that are stale, each from the same conventions, then what they ask of others. Sets only grow.
        while !stale.is_empty() {
            let fresh: Vec<(u32, Solution)> =
                stale.par_iter().map(|&i| (i, bodies[i as usize].solve(program, &conventions))).collect();
            let mut changed = vec![false; bodies.len()];
            for (i, solution) in &fresh {
                let me = &mut conventions.functions[*i as usize];
                let entry =
                    (me.at_entry.union(solution.at_entry), me.read_at_entry.union(solution.read_at_entry));
                if entry != (me.at_entry, me.read_at_entry) {
                    (me.at_entry, me.read_at_entry) = entry;
                    changed[*i as usize] = true;
                }
            }
            let mut next: Vec<u32> = Vec::new();
            for (i, solution) in fresh {
                for &(callee, wanted) in &solution.wanted {
                    let at_return = &mut conventions.functions[callee.index()].at_return;
                    if !at_return.holds(wanted) {
                        at_return.add(wanted);
                        next.push(callee.0);
                    }
                }
                solved[i as usize] = Some(solution);
            }
            if changed.contains(&true) {
                for (i, body) in bodies.iter().enumerate() {
                    if body.callees.iter().any(|c| changed[c.index()]) {
                        next.push(count(i));
                    }
                }
            }
            next.sort_unstable();
            next.dedup();
            stale = next;
        }
        let all = bodies.into_iter().zip(solved).map(|(body, solution)| {
            let s = solution.expect("every function was stale once");
            Liveness { func: body.func, first: body.first, live_in: s.live_in, live_out: s.live_out }
        });
        let all = all.collect();
        (conventions, all)
    }

    /// For one function alone: of the others nothing is assumed, so more is live than need be.
    pub fn unknown(program: &Program) -> Conventions {
        Conventions { functions: Vec::new(), system_v: is_system_v(program) }
    }

    fn of(&self, func: FuncId) -> Convention {
        self.functions.get(func.index()).copied().unwrap_or(Convention::UNKNOWN)
    }

    /// Before the first round: the ABI, and what is written.
    fn start(system_v: bool, bodies: &[Body]) -> Conventions {
        let mut clobbers: Vec<RegSet> = bodies.iter().map(|b| b.writes).collect();
        let mut callers = vec![Vec::new(); bodies.len()];
        for (i, body) in bodies.iter().enumerate() {
            body.callees.iter().for_each(|c| callers[c.index()].push(i));
        }
        let mut work: Vec<usize> = (0..bodies.len()).collect();
        while let Some(i) = work.pop() {
            for &caller in &callers[i] {
                if !clobbers[caller].holds(clobbers[i]) {
                    let more = clobbers[i];
                    clobbers[caller].add(more);
                    work.push(caller);
                }
            }
        }
        let returned = abi::RETURNED.union(abi::CALLEE_SAVED);
        let functions = bodies
            .iter()
            .zip(clobbers)
            .map(|(body, clobbers)| match body.has_entry && system_v {
                true => Convention {
                    at_entry: abi::ARGUMENTS.union(abi::CALLEE_SAVED),
                    read_at_entry: RegSet::EMPTY,
                    at_return: returned,
                    clobbers,
                },
                false => Convention::UNKNOWN,
            })
            .collect();
        Conventions { functions, system_v }
    }
}

impl Liveness {
    /// What is live in `func`, nothing being known of the other functions. [`Conventions::compute`] finds more dead.
    pub fn compute(program: &Program, func: FuncId) -> Liveness {
        Liveness::compute_with(program, &Conventions::unknown(program), func)
    }

    /// What is live in `func`, given what other functions expect.
    pub fn compute_with(program: &Program, conventions: &Conventions, func: FuncId) -> Liveness {
        let body = Body::of(program, conventions.system_v, func, &mut EffectsOf::new());
        let s = body.solve(program, conventions);
        Liveness { func, first: body.first, live_in: s.live_in, live_out: s.live_out }
    }

    /// Live before the first instruction of `block`.
    pub fn live_in(&self, block: BlockId) -> RegSet {
        self.live_in[(block.0 - self.first) as usize]
    }

    /// Live after the last instruction of `block`.
    pub fn live_out(&self, block: BlockId) -> RegSet {
        self.live_out[(block.0 - self.first) as usize]
    }

    /// Live before each instruction of `block`.
    pub fn before(&self, program: &Program, conventions: &Conventions, block: BlockId) -> Vec<(Va, RegSet)> {
        let mut of = EffectsOf::new();
        let calls = program.calls_in(block);
        let mut last = None;
        let insns: Vec<_> = program
            .insns(block)
            .map(|insn| {
                let call = calls.iter().find(|c| c.at == insn.at() && c.kind == CallKind::Call);
                let keeps_all = insn.is_descriptor_call(last.as_ref());
                last = Some(insn);
                (insn.at(), of.effects(&insn), call.map(|c| (c, keeps_all)))
            })
            .collect();
        let always = abi::ALWAYS_LIVE.union(self.pads(program, block));
        let kept = self.kept(program);
        let mut live = self.live_out(block);
        let mut out: Vec<(Va, RegSet)> = Vec::with_capacity(insns.len());
        for (at, effects, call) in insns.into_iter().rev() {
            if let Some((call, keeps_all)) = call {
                let mut crossing = Crossing::of(program, conventions.system_v, call);
                if keeps_all {
                    crossing.kills = RegSet::EMPTY;
                }
                let mut reads = crossing.reads.union(crossing.maybe_reads).union(kept);
                if let Some(callee) = crossing.callee {
                    reads.add(conventions.of(callee).at_entry);
                }
                live = live.minus(crossing.kills).union(reads);
            }
            live = live.minus(effects.kills).union(effects.reads).union(always);
            out.push((at, live));
        }
        out.reverse();
        out
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
    fn kept(&self, program: &Program) -> RegSet {
        let mut of = EffectsOf::new();
        let mut writes = RegSet::EMPTY;
        for b in program.function(self.func).block_ids() {
            program.insns(b).for_each(|insn| writes.add(of.effects(&insn).writes));
        }
        abi::CALLEE_SAVED.minus(writes).union(abi::FRAME_POINTER)
    }
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

/// A run of instructions without a call into the image inside: what it reads first, and what it kills.
#[derive(Clone, Copy, Default)]
struct Segment {
    /// Read by an instruction before it is killed.
    reads: RegSet,
    /// Read before it is killed, also by calls that may take it as an argument.
    all_reads: RegSet,
    kills: RegSet,
}

impl Segment {
    fn then(&mut self, reads: RegSet, maybe_reads: RegSet, kills: RegSet) {
        self.reads.add(reads.minus(self.kills));
        self.all_reads.add(reads.union(maybe_reads).minus(self.kills));
        self.kills.add(kills);
    }
}

/// A function's blocks, decoded once: all that solving needs.
struct Body {
    func: FuncId,
    first: u32,
    graph: FlowGraph,
    postorder: Vec<u32>,
    /// Segments of all blocks, each with the callee at its end; a block's last segment has none.
    segments: Vec<(Segment, Option<FuncId>)>,
    /// Where each block's segments end in `segments`.
    segments_end: Vec<u32>,
    makes_calls: Vec<bool>,
    /// Blocks that may throw to a landing pad.
    pads: Vec<(u32, u32)>,
    /// Functions that are called or jumped to.
    callees: Vec<FuncId>,
    /// Written by its instructions, or by calls that keep to the ABI.
    writes: RegSet,
    /// Whether returns may lead anywhere, with anything live: by block, or all.
    made_up_returns: Vec<u32>,
    switches_stack: bool,
    has_entry: bool,
}

/// What is live in a function, given what others expect; and what it expects of others.
struct Solution {
    live_in: Vec<RegSet>,
    live_out: Vec<RegSet>,
    at_entry: RegSet,
    read_at_entry: RegSet,
    /// What must be live at the returns of functions it calls or jumps to.
    wanted: Vec<(FuncId, RegSet)>,
}

impl Body {
    fn of(program: &Program, system_v: bool, func: FuncId, of: &mut EffectsOf) -> Body {
        let f = program.function(func);
        let graph = FlowGraph::of(program, func);
        let mut body = Body {
            func,
            first: f.blocks.start,
            postorder: graph.postorder(),
            graph,
            segments: Vec::with_capacity(f.n_blocks()),
            segments_end: Vec::with_capacity(f.n_blocks()),
            makes_calls: Vec::with_capacity(f.n_blocks()),
            pads: Vec::new(),
            callees: Vec::new(),
            writes: RegSet::EMPTY,
            made_up_returns: Vec::new(),
            switches_stack: false,
            has_entry: program.entry_block(func).is_some(),
        };
        for b in f.block_ids() {
            let mut calls = program.calls_in(b);
            let mut segment = Segment::default();
            let mut before: Option<Insn> = None;
            let mut makes_calls = false;
            for insn in program.insns(b) {
                let effects = of.effects(&insn);
                let last = before.replace(insn);
                body.writes.add(effects.writes);
                body.switches_stack |= insn.loads_stack_pointer();
                if insn.flow() == Flow::Return && last.is_some_and(|l| l.makes_return_address()) {
                    body.made_up_returns.push(b.0 - body.first);
                }
                segment.then(effects.reads, RegSet::EMPTY, effects.kills);
                let Some(call) = calls.first().filter(|c| c.at == insn.at()) else { continue };
                calls = &calls[1..];
                if let Callee::Function(g) = call.callee {
                    body.callees.push(g);
                }
                if call.kind != CallKind::Call {
                    continue;
                }
                makes_calls = true;
                let mut crossing = Crossing::of(program, system_v, call);
                // A call through a TLS descriptor keeps all registers but the one with the result.
                if insn.is_descriptor_call(last.as_ref()) {
                    crossing.kills = RegSet::EMPTY;
                }
                segment.then(crossing.reads, crossing.maybe_reads, RegSet::EMPTY);
                if let Some(g) = crossing.callee {
                    body.segments.push((std::mem::take(&mut segment), Some(g)));
                    if !call.returns {
                        segment.kills = abi::ALL;
                    }
                } else {
                    segment.then(RegSet::EMPTY, RegSet::EMPTY, crossing.kills);
                    body.writes.add(crossing.kills.both(abi::CALLER_SAVED));
                }
            }
            body.makes_calls.push(makes_calls);
            body.segments.push((segment, None));
            body.segments_end.push(count(body.segments.len()));
            for e in program.successors(b).iter().filter(|e| e.kind == EdgeKind::LandingPad) {
                body.pads.push((b.0 - body.first, e.to.0 - body.first));
            }
        }
        body.callees.sort_unstable();
        body.callees.dedup();
        body
    }

    fn segments_of(&self, node: u32) -> &[(Segment, Option<FuncId>)] {
        let from = (node as usize).checked_sub(1).map_or(0, |i| self.segments_end[i]);
        &self.segments[from as usize..self.segments_end[node as usize] as usize]
    }

    fn solve(&self, program: &Program, conventions: &Conventions) -> Solution {
        let n = self.graph.len();
        let kept = abi::CALLEE_SAVED.minus(self.writes);
        let exits: Vec<RegSet> = (0..count(n)).map(|node| self.exit(program, conventions, node)).collect();
        // What is read for certain, and all of it.
        let (mut reads, mut live) = (vec![RegSet::EMPTY; n], vec![RegSet::EMPTY; n]);
        let mut is_stale = vec![true; n];
        let mut any = true;
        while any {
            any = false;
            for &node in &self.postorder {
                if !std::mem::replace(&mut is_stale[node as usize], false) {
                    continue;
                }
                let (out_reads, out) = self.out(node, &exits, &reads, &live);
                let segments = self.segments_of(node);
                let (first, callee) = segments[0];
                let (after_reads, after) = match callee {
                    Some(g) => (conventions.of(g).read_at_entry, conventions.of(g).at_entry.union(kept)),
                    None => (out_reads, out),
                };
                let mut new_reads = first.reads.union(after_reads.minus(first.kills));
                let mut new = first.all_reads.union(after.minus(first.kills)).union(abi::ALWAYS_LIVE);
                for &(_, pad) in self.pads_of(node) {
                    new_reads.add(reads[pad as usize]);
                    new.add(live[pad as usize]);
                }
                if self.makes_calls[node as usize] {
                    new.add(kept);
                }
                if (new_reads, new) != (reads[node as usize], live[node as usize]) {
                    (reads[node as usize], live[node as usize]) = (new_reads, new);
                    for &p in self.graph.predecessors(node) {
                        is_stale[p as usize] = true;
                        any = true;
                    }
                }
            }
        }
        let mut wanted = Vec::new();
        let mut live_out = Vec::with_capacity(n);
        for node in 0..count(n) {
            let (mut out_reads, mut out) = self.out(node, &exits, &reads, &live);
            for &(_, pad) in self.pads_of(node) {
                out_reads.add(reads[pad as usize]);
                out.add(live[pad as usize]);
            }
            live_out.push(out.union(abi::ALWAYS_LIVE));
            let segments = self.segments_of(node);
            for pair in segments.windows(2) {
                let &[(_, Some(callee)), (next, then)] = pair else { continue };
                let (after_reads, after) = match then {
                    Some(g) => (conventions.of(g).read_at_entry, conventions.of(g).at_entry),
                    None => (out_reads, out),
                };
                let certain = next.reads.union(after_reads.minus(next.kills));
                let all = next.all_reads.union(after.minus(next.kills));
                wanted.push((callee, certain.union(all.minus(conventions.of(callee).clobbers))));
            }
            self.tail_calls(program, node, |g| wanted.push((g, conventions.of(self.func).at_return)));
        }
        let (mut at_entry, mut read_at_entry) = (RegSet::EMPTY, RegSet::EMPTY);
        let f = program.function(self.func);
        for b in program.entry_block(self.func).iter().chain(&f.entries).filter(|b| f.blocks.contains(&b.0)) {
            at_entry.add(live[(b.0 - self.first) as usize]);
            read_at_entry.add(reads[(b.0 - self.first) as usize]);
        }
        Solution { live_in: live, live_out, at_entry, read_at_entry, wanted }
    }

    /// Read for certain, and live, at the end of a block.
    fn out(&self, node: u32, exits: &[RegSet], reads: &[RegSet], live: &[RegSet]) -> (RegSet, RegSet) {
        let mut out = (exits[node as usize], exits[node as usize]);
        for &s in self.graph.successors(node) {
            out.0.add(reads[s as usize]);
            out.1.add(live[s as usize]);
        }
        out
    }

    fn pads_of(&self, node: u32) -> &[(u32, u32)] {
        let from = self.pads.partition_point(|p| p.0 < node);
        let to = self.pads.partition_point(|p| p.0 <= node);
        &self.pads[from..to]
    }

    /// Functions of the image that the block jumps to.
    fn tail_calls(&self, program: &Program, node: u32, mut each: impl FnMut(FuncId)) {
        let block = program.block(BlockId(self.first + node));
        if let Some(call) = leaving(program, BlockId(self.first + node), block)
            && let Callee::Function(g) = call.callee
        {
            each(g);
        }
    }

    /// What is live where a block leaves the function.
    fn exit(&self, program: &Program, conventions: &Conventions, node: u32) -> RegSet {
        let id = BlockId(self.first + node);
        let block = program.block(id);
        let me = conventions.of(self.func);
        let n_edges = program.successors(id).iter().filter(|e| e.kind != EdgeKind::LandingPad).count();
        let outside = abi::ARGUMENTS.union(abi::CALLEE_SAVED).union(me.at_return.minus(abi::CALLER_SAVED));
        let left = |call: &Call| match call.callee {
            Callee::Function(g) if program.function(g).import.is_none() => conventions.of(g).at_entry,
            Callee::Function(_) | Callee::Import(_) if conventions.system_v => outside,
            // Any register may hold what the target needs, but no compiler passes flags to code it cannot see.
            Callee::Indirect => abi::ALL.minus(abi::FLAGS),
            _ => abi::ALL,
        };
        let call = leaving(program, id, block);
        match block.end {
            BlockEnd::Return if self.switches_stack || self.made_up_returns.binary_search(&node).is_ok() => {
                abi::ALL
            }
            BlockEnd::Return => me.at_return,
            BlockEnd::NoReturn => RegSet::EMPTY,
            BlockEnd::Stop => abi::CALLEE_SAVED,
            BlockEnd::Switch | BlockEnd::FallThrough if n_edges > 0 => RegSet::EMPTY,
            BlockEnd::Jump if n_edges == 1 => RegSet::EMPTY,
            BlockEnd::Branch if n_edges == 2 => RegSet::EMPTY,
            BlockEnd::Jump | BlockEnd::IndirectTailCall if call.is_some() => call.map_or(abi::ALL, left),
            BlockEnd::Branch if n_edges == 1 && call.is_some() => call.map_or(abi::ALL, left),
            _ => abi::ALL,
        }
    }
}

/// The jump out of the function at the end of a block.
fn leaving<'a>(program: &'a Program, id: BlockId, block: &Block) -> Option<&'a Call> {
    if !matches!(block.end, BlockEnd::Jump | BlockEnd::Branch | BlockEnd::IndirectTailCall) {
        return None;
    }
    program.calls_in(id).last().filter(|c| c.at == block.last_insn() && c.kind != CallKind::Call)
}

#[cfg(test)]
mod tests;
