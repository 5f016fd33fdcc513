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
use crate::arch::{EffectsOf, Insn, RegSet, abi};
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
        let calls = CallGraph::of(&bodies);
        let mut is_stale = vec![true; bodies.len()];
        // Callees first, so that most functions are solved once; what recursion and callers ask for comes in further sweeps.
        // Those of one level are solved from the same conventions, then tell what they ask of others. Sets only grow.
        while is_stale.contains(&true) {
            for level in &calls.levels {
                let stale: Vec<u32> = level.iter().copied().filter(|&i| is_stale[i as usize]).collect();
                let before: Vec<_> = stale.iter().map(|&i| (i, solved[i as usize].take())).collect();
                let fresh: Vec<(u32, Solution)> = before
                    .into_par_iter()
                    .map(|(i, before)| (i, bodies[i as usize].solve(&conventions, before)))
                    .collect();
                stale.iter().for_each(|&i| is_stale[i as usize] = false);
                for (i, solution) in fresh {
                    let me = &mut conventions.functions[i as usize];
                    let entry = (
                        me.at_entry.union(solution.at_entry),
                        me.read_at_entry.union(solution.read_at_entry),
                    );
                    if entry != (me.at_entry, me.read_at_entry) {
                        (me.at_entry, me.read_at_entry) = entry;
                        calls.callers[i as usize].iter().for_each(|&c| is_stale[c as usize] = true);
                    }
                    for &(callee, wanted) in &solution.wanted {
                        let at_return = &mut conventions.functions[callee.index()].at_return;
                        if !at_return.holds(wanted) {
                            at_return.add(wanted);
                            is_stale[callee.index()] = true;
                        }
                    }
                    solved[i as usize] = Some(Solution { wanted: Vec::new(), ..solution });
                }
            }
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
        let functions = bodies
            .iter()
            .zip(clobbers)
            .zip(&callers)
            .map(|((body, clobbers), callers)| match !body.entries.is_empty() && system_v {
                true => {
                    // What solving would find soon for most: a caller may pass an argument on to its next call.
                    let passed =
                        if callers.is_empty() { RegSet::EMPTY } else { abi::ARGUMENTS.minus(clobbers) };
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

impl Liveness {
    /// What is live in `func`, nothing being known of the other functions. [`Conventions::compute`] finds more dead.
    pub fn compute(program: &Program, func: FuncId) -> Liveness {
        Liveness::compute_with(program, &Conventions::unknown(program), func)
    }

    /// What is live in `func`, given what other functions expect.
    pub fn compute_with(program: &Program, conventions: &Conventions, func: FuncId) -> Liveness {
        let body = Body::of(program, conventions.system_v, func, &mut EffectsOf::new());
        let s = body.solve(conventions, None);
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
    /// How each block leaves the function.
    exits: Vec<Exit>,
    /// The blocks at its entries.
    entries: Vec<u32>,
}

/// Who calls whom.
struct CallGraph {
    callers: Vec<Vec<u32>>,
    /// Functions by how far they are above those that call nobody; calls that close a cycle do not count.
    levels: Vec<Vec<u32>>,
}

impl CallGraph {
    fn of(bodies: &[Body]) -> CallGraph {
        let mut callers = vec![Vec::new(); bodies.len()];
        let (mut first_out, mut to) = (vec![0], Vec::new());
        for (i, body) in bodies.iter().enumerate() {
            body.callees.iter().for_each(|c| callers[c.index()].push(count(i)));
            to.extend(body.callees.iter().map(|c| c.0));
            first_out.push(count(to.len()));
        }
        let graph = FlowGraph::with_entries(first_out, to, Vec::new());
        let mut level = vec![None; bodies.len()];
        let mut levels: Vec<Vec<u32>> = Vec::new();
        for i in graph.postorder() {
            let below = graph.successors(i).iter().filter_map(|&c| level[c as usize]).max();
            let me = below.map_or(0, |l: usize| l + 1);
            level[i as usize] = Some(me);
            if levels.len() == me {
                levels.push(Vec::new());
            }
            levels[me].push(i);
        }
        levels.iter_mut().for_each(|l| l.sort_unstable());
        CallGraph { callers, levels }
    }
}

/// How a block leaves its function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exit {
    /// Not at all, or never to come back: what is live there is at its last call.
    None,
    /// By a return.
    Return,
    /// Into a trap: a handler may look at the frame.
    Trap,
    /// By a jump to a function of this image.
    To(FuncId),
    /// By a jump to an import.
    Outside,
    /// By a jump through a pointer.
    Pointer,
    /// In a way that is not understood.
    Unknown,
}

/// What is live in a function, given what others expect; and what it expects of others.
struct Solution {
    /// Read for certain at the start of each block, and all that is live there.
    reads: Vec<RegSet>,
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
            exits: Vec::with_capacity(f.n_blocks()),
            entries: Vec::new(),
        };
        let main = program.blocks_of(func).binary_search_by_key(&f.entry, |b| b.start).ok();
        body.entries.extend(main.map(count));
        body.entries.extend(f.entries.iter().map(|b| b.0 - body.first));
        let mut switches_stack = false;
        let mut at = program
            .calls
            .partition_point(|c| program.blocks_of(func).first().is_some_and(|b| c.at < b.start));
        for b in f.block_ids() {
            // Blocks are by address, so the calls of one stand soon after those of the one before.
            let block = program.block(b);
            let mut n_skipped = 0;
            while program.calls.get(at).is_some_and(|c| c.at < block.start) {
                at += 1;
                n_skipped += 1;
                if n_skipped == 16 {
                    at = program.calls.partition_point(|c| c.at < block.start);
                }
            }
            let mut made_up = false;
            let mut exit_call = None;
            let mut segment = Segment::default();
            let mut before: Option<Insn> = None;
            let mut makes_calls = false;
            for insn in program.insns(b) {
                let effects = of.effects(&insn);
                let last = before.replace(insn);
                body.writes.add(effects.writes);
                switches_stack |= effects.writes.holds(abi::STACK_POINTER) && insn.loads_stack_pointer();
                made_up = block.end == BlockEnd::Return && last.is_some_and(|l| l.makes_return_address());
                segment.then(effects.reads, RegSet::EMPTY, effects.kills);
                let Some(call) = program.calls.get(at).filter(|c| c.at == insn.at()) else { continue };
                at += 1;
                if let Callee::Function(g) = call.callee {
                    body.callees.push(g);
                }
                if call.kind != CallKind::Call {
                    exit_call = Some(call);
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
            body.exits.push(if made_up { Exit::Unknown } else { exit(program, b, block, exit_call) });
            body.segments.push((segment, None));
            body.segments_end.push(count(body.segments.len()));
            for e in program.successors(b).iter().filter(|e| e.kind == EdgeKind::LandingPad) {
                body.pads.push((b.0 - body.first, e.to.0 - body.first));
            }
        }
        if switches_stack {
            body.exits.iter_mut().filter(|e| **e == Exit::Return).for_each(|e| *e = Exit::Unknown);
        }
        body.callees.sort_unstable();
        body.callees.dedup();
        body
    }

    fn segments_of(&self, node: u32) -> &[(Segment, Option<FuncId>)] {
        let from = (node as usize).checked_sub(1).map_or(0, |i| self.segments_end[i]);
        &self.segments[from as usize..self.segments_end[node as usize] as usize]
    }

    /// The least solution. `before` is one for conventions that asked for less, which is where to go on from.
    fn solve(&self, conventions: &Conventions, before: Option<Solution>) -> Solution {
        let n = self.graph.len();
        let kept = abi::CALLEE_SAVED.minus(self.writes);
        let exits: Vec<(RegSet, RegSet)> = self.exits.iter().map(|&e| self.at_exit(conventions, e)).collect();
        // What is read for certain, and all of it.
        let (mut reads, mut live, mut live_out) = match before {
            Some(before) => (before.reads, before.live_in, before.live_out),
            None => (vec![RegSet::EMPTY; n], vec![RegSet::EMPTY; n], vec![RegSet::EMPTY; n]),
        };
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
        for node in 0..count(n) {
            let (mut out_reads, mut out) = self.out(node, &exits, &reads, &live);
            for &(_, pad) in self.pads_of(node) {
                out_reads.add(reads[pad as usize]);
                out.add(live[pad as usize]);
            }
            live_out[node as usize] = out.union(abi::ALWAYS_LIVE);
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
            if let Exit::To(g) = self.exits[node as usize] {
                wanted.push((g, conventions.of(self.func).at_return));
            }
        }
        let (mut at_entry, mut read_at_entry) = (RegSet::EMPTY, RegSet::EMPTY);
        for &node in &self.entries {
            at_entry.add(live[node as usize]);
            read_at_entry.add(reads[node as usize]);
        }
        Solution { reads, live_in: live, live_out, at_entry, read_at_entry, wanted }
    }

    /// Read for certain, and live, at the end of a block.
    fn out(
        &self,
        node: u32,
        exits: &[(RegSet, RegSet)],
        reads: &[RegSet],
        live: &[RegSet],
    ) -> (RegSet, RegSet) {
        let mut out = exits[node as usize];
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

    /// Read for certain, and live, where a block leaves the function.
    fn at_exit(&self, conventions: &Conventions, exit: Exit) -> (RegSet, RegSet) {
        let me = conventions.of(self.func);
        let both = |set| (set, set);
        match exit {
            Exit::None => both(RegSet::EMPTY),
            Exit::Return => both(me.at_return),
            Exit::Trap => both(abi::CALLEE_SAVED),
            Exit::To(g) => (conventions.of(g).read_at_entry, conventions.of(g).at_entry),
            Exit::Outside if conventions.system_v => {
                let kept = abi::CALLEE_SAVED.union(me.at_return.minus(abi::CALLER_SAVED));
                (kept, kept.union(abi::ARGUMENTS))
            }
            // Any register may hold what the target needs, but no compiler passes flags to code it cannot see.
            Exit::Pointer if conventions.system_v => (abi::CALLEE_SAVED, abi::ALL.minus(abi::FLAGS)),
            Exit::Outside | Exit::Pointer | Exit::Unknown => both(abi::ALL),
        }
    }
}

/// How `block` leaves its function, `call` being its jump out of it.
fn exit(program: &Program, id: BlockId, block: &Block, call: Option<&Call>) -> Exit {
    let n_edges = || program.successors(id).iter().filter(|e| e.kind != EdgeKind::LandingPad).count();
    let out = call.map_or(Exit::Unknown, |call| match call.callee {
        Callee::Function(g) if program.function(g).import.is_none() => Exit::To(g),
        Callee::Function(_) | Callee::Import(_) => Exit::Outside,
        Callee::Indirect => Exit::Pointer,
        Callee::Unknown(_) => Exit::Unknown,
    });
    match block.end {
        BlockEnd::Return => Exit::Return,
        BlockEnd::NoReturn => Exit::None,
        BlockEnd::Stop => Exit::Trap,
        BlockEnd::Switch | BlockEnd::FallThrough if n_edges() > 0 => Exit::None,
        BlockEnd::Jump if n_edges() == 1 => Exit::None,
        BlockEnd::Branch if n_edges() == 2 => Exit::None,
        // On into the next function.
        BlockEnd::FallThrough => out,
        BlockEnd::Jump | BlockEnd::IndirectTailCall => out,
        BlockEnd::Branch if n_edges() == 1 => out,
        _ => Exit::Unknown,
    }
}

#[cfg(test)]
mod tests;
