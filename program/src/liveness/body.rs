//! One function for liveness: its instructions summed up once, then solved as often as others ask for more.
//!
//! Invariant: `Body` is small (some 25 bytes a block), since all functions are held at once; what solving needs besides is
//! [`Scratch`], used again for the next function.

use super::{Conventions, Crossing, Liveness};
use crate::addr::Va;
use crate::arch::{Decoder, EffectsOf, Insn, RegSet, Sum, abi};
use crate::graph::count;
use crate::ids::{BlockId, FuncId};
use crate::model::{Block, BlockEnd, Call, CallKind, Callee, Edge, EdgeKind, Program};
use std::collections::VecDeque;

/// A run of instructions without a call into the image inside: what it reads first, and what it kills.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Read by an instruction before it is killed.
    reads: RegSet,
    /// Read before it is killed, also by calls that may take it as an argument.
    all_reads: RegSet,
    kills: RegSet,
}

impl Run {
    fn then(&mut self, reads: RegSet, maybe_reads: RegSet, kills: RegSet) {
        self.reads.add(reads.minus(self.kills));
        self.all_reads.add(reads.union(maybe_reads).minus(self.kills));
        self.kills.add(kills);
    }

    /// Takes what several instructions do, and notes what they write.
    fn add(&mut self, sum: &mut Sum, writes: &mut RegSet) {
        let effects = std::mem::take(sum).effects();
        writes.add(effects.writes);
        self.then(effects.reads, RegSet::EMPTY, effects.kills);
    }
}

/// A [`Run`] in less room: general registers and flags here, the others, which few runs touch, in a list.
/// What is always live is left out.
#[derive(Clone, Copy)]
struct Segment {
    reads: u32,
    all_reads: u32,
    kills: u32,
    /// Position in the list of the body; 0 is nothing.
    rest: u32,
    /// The function called at its end: its number, or [`NONE`] at the end of the block.
    callee: u32,
}

const NONE: u32 = u32::MAX;
/// Entries of the list that are looked through for an equal one.
const RECENT: usize = 8;
/// Passes over a function before its blocks are followed one by one.
const PASSES: u32 = 6;

/// Bits under a position in `Body::segments`: the block makes calls; it is one of `Body::exits`.
const CALLS: u32 = 1;
const EXITS: u32 = 2;

/// A function's blocks, decoded once: all that solving needs.
pub struct Body {
    pub func: FuncId,
    pub first: u32,
    /// A depth-first postorder of its blocks, by position.
    order: Box<[u32]>,
    /// Whether an edge leads to a block that does not come before in `order`.
    is_cyclic: bool,
    has_pads: bool,
    /// Segments of all blocks.
    segments: Box<[Segment]>,
    /// What `segments` do to vector and mask registers.
    rest: Box<[Run]>,
    /// Where each block's segments end in `segments`, above [`CALLS`] and [`EXITS`].
    segments_end: Box<[u32]>,
    /// Functions that are called or jumped to.
    pub callees: Vec<FuncId>,
    /// Written by its instructions, or by calls that keep to the ABI.
    pub writes: RegSet,
    /// Blocks that leave the function, and how; by position.
    exits: Box<[(u32, Exit)]>,
    /// The blocks at its entries.
    pub entries: Box<[u32]>,
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

/// Read for certain, and live, at the start of each block.
#[derive(Default)]
pub struct Starts {
    reads: Box<[RegSet]>,
    live: Box<[RegSet]>,
}

/// What is live in a function, given what others expect; and what it expects of others.
pub struct Solution {
    pub starts: Starts,
    pub at_entry: RegSet,
    pub read_at_entry: RegSet,
    /// What must be live at the returns of functions it calls or jumps to.
    pub wanted: Vec<(FuncId, RegSet)>,
}

/// Room for the work on one function, used again for the next.
pub struct Scratch {
    of: EffectsOf,
    seen: Vec<bool>,
    order: Vec<u32>,
    stack: Vec<(u32, u32)>,
    segments: Vec<Segment>,
    rest: Vec<Run>,
    ends: Vec<u32>,
    exits: Vec<(u32, Exit)>,
    /// When each block last grew, and when it was last computed.
    grown_at: Vec<u32>,
    computed_at: Vec<u32>,
    first_in: Vec<u32>,
    from: Vec<u32>,
    queue: VecDeque<u32>,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch {
            of: EffectsOf::new(),
            seen: Vec::new(),
            order: Vec::new(),
            stack: Vec::new(),
            segments: Vec::new(),
            rest: Vec::new(),
            ends: Vec::new(),
            exits: Vec::new(),
            grown_at: Vec::new(),
            computed_at: Vec::new(),
            first_in: Vec::new(),
            from: Vec::new(),
            queue: VecDeque::new(),
        }
    }

    fn push(&mut self, run: Run, callee: u32) {
        let known = abi::ALL.minus(abi::ALWAYS_LIVE);
        let wide = |set: RegSet| set.both(known).minus(RegSet::from_narrow(set.narrow()));
        let rest = Run { reads: wide(run.reads), all_reads: wide(run.all_reads), kills: wide(run.kills) };
        let same = |r: &Run| (r.reads, r.all_reads, r.kills) == (rest.reads, rest.all_reads, rest.kills);
        let at = if rest.all_reads.is_empty() && rest.kills.is_empty() {
            0
        } else if let Some(back) = self.rest.iter().rev().take(RECENT).position(same) {
            self.rest.len() - 1 - back
        } else {
            self.rest.push(rest);
            self.rest.len() - 1
        };
        self.segments.push(Segment {
            reads: run.reads.narrow(),
            all_reads: run.all_reads.narrow(),
            kills: run.kills.narrow(),
            rest: count(at),
            callee,
        });
    }
}

impl Body {
    pub fn of(program: &Program, system_v: bool, func: FuncId, scratch: &mut Scratch) -> Body {
        let f = program.function(func);
        let first = f.blocks.start;
        let main = program.blocks_of(func).binary_search_by_key(&f.entry, |b| b.start).ok();
        let entries: Box<[u32]> =
            main.map(count).into_iter().chain(f.entries.iter().map(|b| b.0 - first)).collect();
        let is_cyclic = postorder(program, func, &entries, scratch);
        scratch.segments.clear();
        scratch.rest.clear();
        scratch.rest.push(Run::default());
        scratch.ends.clear();
        scratch.exits.clear();
        let (mut callees, mut writes) = (Vec::new(), RegSet::EMPTY);
        let (mut switches_stack, mut has_pads) = (false, false);
        let mut decoder = Decoder::new(&[], Va(0));
        let start = program.blocks_of(func).first().map_or(Va(0), |b| b.start);
        let mut at = program.calls.partition_point(|c| c.at < start);
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
            if decoder.seek(block.start).is_none() {
                decoder =
                    Decoder::new(program.image.bytes_from(block.start).unwrap_or_default(), block.start);
            }
            let end = block.end_va();
            let mut next_call = program.calls.get(at);
            let mut exit_call = None;
            // The last two instructions.
            let (mut before, mut last) = (None, None);
            let mut run = Run::default();
            // What was not added to the run yet.
            let mut common = Sum::default();
            let mut makes_calls = false;
            while decoder.at() < end {
                (before, last) = (last, Some(decoder.at()));
                let insn = match decoder.quick() {
                    Some(quick) => {
                        decoder.pass(&quick);
                        common.then(&quick);
                        None
                    }
                    None => {
                        let Some(insn) = decoder.next() else { break };
                        let effects = scratch.of.effects(&insn);
                        switches_stack |=
                            effects.writes.holds(abi::STACK_POINTER) && insn.loads_stack_pointer();
                        run.add(&mut common, &mut writes);
                        writes.add(effects.writes);
                        run.then(effects.reads, RegSet::EMPTY, effects.kills);
                        Some(insn)
                    }
                };
                let Some(call) = next_call.filter(|c| Some(c.at) == last) else { continue };
                at += 1;
                next_call = program.calls.get(at);
                if let Callee::Function(g) = call.callee {
                    callees.push(g);
                }
                if call.kind != CallKind::Call {
                    exit_call = Some(call);
                    continue;
                }
                makes_calls = true;
                run.add(&mut common, &mut writes);
                let mut crossing = Crossing::of(program, system_v, call);
                // A call through a TLS descriptor keeps all registers but the one with the result.
                if insn.is_some_and(|i| {
                    i.is_descriptor_call(before.and_then(|at| insn_at(program, at)).as_ref())
                }) {
                    crossing.kills = RegSet::EMPTY;
                }
                run.then(crossing.reads, crossing.maybe_reads, RegSet::EMPTY);
                if let Some(g) = crossing.callee {
                    scratch.push(std::mem::take(&mut run), g.0);
                    if !call.returns {
                        run.kills = abi::ALL;
                    }
                } else {
                    run.then(RegSet::EMPTY, RegSet::EMPTY, crossing.kills);
                    writes.add(crossing.kills.both(abi::CALLER_SAVED));
                }
            }
            run.add(&mut common, &mut writes);
            let made_up = block.end == BlockEnd::Return
                && before.and_then(|at| insn_at(program, at)).is_some_and(|insn| insn.makes_return_address());
            let exit = if made_up { Exit::Unknown } else { exit(program, b, block, exit_call) };
            if exit != Exit::None {
                scratch.exits.push((b.0 - first, exit));
            }
            scratch.push(run, NONE);
            let calls = if makes_calls { CALLS } else { 0 };
            let exits = if exit == Exit::None { 0 } else { EXITS };
            scratch.ends.push(count(scratch.segments.len()) << 2 | calls | exits);
            has_pads |= program.successors(b).iter().any(|e| e.kind == EdgeKind::LandingPad);
        }
        if switches_stack {
            let returns = scratch.exits.iter_mut().filter(|e| e.1 == Exit::Return);
            returns.for_each(|e| e.1 = Exit::Unknown);
        }
        callees.sort_unstable();
        callees.dedup();
        Body {
            func,
            first,
            order: scratch.order.as_slice().into(),
            is_cyclic,
            has_pads,
            segments: scratch.segments.as_slice().into(),
            rest: scratch.rest.as_slice().into(),
            segments_end: scratch.ends.as_slice().into(),
            callees,
            writes,
            exits: scratch.exits.as_slice().into(),
            entries,
        }
    }

    fn segments_of(&self, node: u32) -> &[Segment] {
        let from = (node as usize).checked_sub(1).map_or(0, |i| self.segments_end[i] >> 2);
        &self.segments[from as usize..(self.segments_end[node as usize] >> 2) as usize]
    }

    fn makes_calls(&self, node: u32) -> bool {
        self.segments_end[node as usize] & CALLS != 0
    }

    fn exit_of(&self, node: u32) -> Exit {
        if self.segments_end[node as usize] & EXITS == 0 {
            return Exit::None;
        }
        let found = self.exits.binary_search_by_key(&node, |e| e.0);
        found.map_or(Exit::None, |i| self.exits[i].1)
    }

    /// Read for certain, and live, before `segment`, given the same after it.
    fn before(&self, segment: &Segment, after: (RegSet, RegSet)) -> (RegSet, RegSet) {
        let narrow = RegSet::from_narrow;
        let (mut reads, mut all_reads, mut kills) =
            (narrow(segment.reads), narrow(segment.all_reads), narrow(segment.kills));
        if segment.rest != 0 {
            let rest = &self.rest[segment.rest as usize];
            reads.add(rest.reads);
            all_reads.add(rest.all_reads);
            kills.add(rest.kills);
        }
        (reads.union(after.0.minus(kills)), all_reads.union(after.1.minus(kills)))
    }

    /// The least solution. `before` is one for conventions that asked for less, which is where to go on from.
    ///
    /// A block is computed again only when something grew at one of its successors, which can happen once a register. Most
    /// functions are done after three passes over their blocks in postorder; what is not by the sixth goes on block by block,
    /// so that the work is at most edges times registers.
    pub fn solve(
        &self,
        program: &Program,
        conventions: &Conventions,
        before: Option<Starts>,
        s: &mut Scratch,
    ) -> Solution {
        let n = self.order.len();
        let is_first = before.is_none();
        let mut at = before.unwrap_or_else(|| {
            let empty: Box<[RegSet]> = vec![RegSet::EMPTY; n].into();
            Starts { reads: empty.clone(), live: empty }
        });
        for times in [&mut s.grown_at, &mut s.computed_at] {
            times.clear();
            times.resize(n, 0);
        }
        let (mut now, mut last_grown) = (0, 0);
        let (mut n_passes, mut is_done) = (0, false);
        while !is_done && n_passes < PASSES {
            is_done = true;
            for &node in &self.order {
                let computed = s.computed_at[node as usize];
                let is_stale = match computed {
                    0 => is_first || self.hears_of_others(node),
                    _ => false,
                };
                let has_grown = |e: &Edge| s.grown_at[(e.to.0 - self.first) as usize] > computed;
                let successors = || program.successors(BlockId(self.first + node));
                if !is_stale && (last_grown <= computed || !successors().iter().any(has_grown)) {
                    continue;
                }
                now += 1;
                s.computed_at[node as usize] = now;
                if self.step(program, conventions, node, &mut at) {
                    s.grown_at[node as usize] = now;
                    last_grown = now;
                    is_done &= !self.is_cyclic;
                }
            }
            n_passes += 1;
        }
        if !is_done {
            self.solve_by_block(program, conventions, &mut at, s);
        }
        self.solution(program, conventions, at)
    }

    /// Goes on until nothing grows, whatever the order of the blocks.
    fn solve_by_block(&self, program: &Program, conventions: &Conventions, at: &mut Starts, s: &mut Scratch) {
        self.make_predecessors(program, s);
        s.seen.clear();
        s.seen.resize(self.order.len(), true);
        s.queue.clear();
        s.queue.extend(self.order.iter());
        while let Some(node) = s.queue.pop_front() {
            s.seen[node as usize] = false;
            if self.step(program, conventions, node, at) {
                for k in s.first_in[node as usize]..s.first_in[node as usize + 1] {
                    let p = s.from[k as usize];
                    if !std::mem::replace(&mut s.seen[p as usize], true) {
                        s.queue.push_back(p);
                    }
                }
            }
        }
    }

    /// Whether what is live at the start of a block follows from conventions, not only from its successors.
    fn hears_of_others(&self, node: u32) -> bool {
        self.segments_end[node as usize] & EXITS != 0 || self.segments_of(node)[0].callee != NONE
    }

    /// Computes one block; whether anything grew.
    fn step(&self, program: &Program, conventions: &Conventions, node: u32, at: &mut Starts) -> bool {
        let kept = abi::CALLEE_SAVED.minus(self.writes);
        let segment = &self.segments_of(node)[0];
        let after = match segment.callee {
            NONE => self.out(program, conventions, node, at),
            g => {
                let callee = conventions.of(FuncId(g));
                (callee.read_at_entry, callee.at_entry.union(kept))
            }
        };
        let (mut reads, mut live) = self.before(segment, after);
        live.add(abi::ALWAYS_LIVE);
        if self.has_pads {
            for pad in self.pads_of(program, node) {
                reads.add(at.reads[pad as usize]);
                live.add(at.live[pad as usize]);
            }
        }
        if self.makes_calls(node) {
            live.add(kept);
        }
        let grew = (reads, live) != (at.reads[node as usize], at.live[node as usize]);
        (at.reads[node as usize], at.live[node as usize]) = (reads, live);
        grew
    }

    /// What follows from the sets at the blocks' starts.
    fn solution(&self, program: &Program, conventions: &Conventions, at: Starts) -> Solution {
        let mut wanted = Vec::new();
        for node in (0..count(self.order.len())).filter(|&n| self.makes_calls(n)) {
            let segments = self.segments_of(node);
            if segments.len() < 2 {
                continue;
            }
            let mut out = self.out(program, conventions, node, &at);
            for pad in self.pads_of(program, node) {
                out.0.add(at.reads[pad as usize]);
                out.1.add(at.live[pad as usize]);
            }
            for pair in segments.windows(2) {
                let [called, next] = pair else { continue };
                let after = match next.callee {
                    NONE => out,
                    g => (conventions.of(FuncId(g)).read_at_entry, conventions.of(FuncId(g)).at_entry),
                };
                let (certain, all) = self.before(next, after);
                let callee = FuncId(called.callee);
                wanted.push((callee, certain.union(all.minus(conventions.of(callee).clobbers))));
            }
        }
        for &(_, exit) in &self.exits {
            if let Exit::To(g) = exit {
                wanted.push((g, conventions.of(self.func).at_return));
            }
        }
        let (mut at_entry, mut read_at_entry) = (RegSet::EMPTY, RegSet::EMPTY);
        for &node in &self.entries {
            at_entry.add(at.live[node as usize]);
            read_at_entry.add(at.reads[node as usize]);
        }
        Solution { starts: at, at_entry, read_at_entry, wanted }
    }

    /// The result, from a solution for the final conventions.
    pub fn liveness(&self, conventions: &Conventions, at: Starts) -> Liveness {
        let exits =
            self.exits.iter().map(|&(node, exit)| (node, self.at_exit(conventions, exit).1)).collect();
        Liveness { func: self.func, first: self.first, live_in: at.live, exits }
    }

    /// Read for certain, and live, at the end of a block.
    fn out(&self, program: &Program, conventions: &Conventions, node: u32, at: &Starts) -> (RegSet, RegSet) {
        let mut out = self.at_exit(conventions, self.exit_of(node));
        for e in program.successors(BlockId(self.first + node)) {
            let to = (e.to.0 - self.first) as usize;
            out.0.add(at.reads[to]);
            out.1.add(at.live[to]);
        }
        out
    }

    fn pads_of(&self, program: &Program, node: u32) -> impl Iterator<Item = u32> {
        let edges = program.successors(BlockId(self.first + node)).iter();
        edges.filter(|e| e.kind == EdgeKind::LandingPad).map(|e| e.to.0 - self.first)
    }

    fn make_predecessors(&self, program: &Program, s: &mut Scratch) {
        let n = count(self.order.len());
        let successors = |node: u32| program.successors(BlockId(self.first + node)).iter();
        s.first_in.clear();
        s.first_in.resize(n as usize + 1, 0);
        for node in 0..n {
            successors(node).for_each(|e| s.first_in[(e.to.0 - self.first) as usize] += 1);
        }
        let mut sum = 0;
        for first in &mut s.first_in {
            sum += *first;
            *first = sum;
        }
        s.from.clear();
        s.from.resize(sum as usize, 0);
        // From the end of each list to its start, which is where the sums then stand.
        for node in (0..n).rev() {
            for e in successors(node) {
                let at = &mut s.first_in[(e.to.0 - self.first) as usize];
                *at -= 1;
                s.from[*at as usize] = node;
            }
        }
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

fn insn_at(program: &Program, at: Va) -> Option<Insn> {
    Decoder::new(program.image.bytes_from(at)?, at).next()
}

/// Puts a depth-first postorder of the blocks of `func` into `scratch.order`; whether an edge leads back in it.
fn postorder(program: &Program, func: FuncId, entries: &[u32], scratch: &mut Scratch) -> bool {
    let blocks = &program.function(func).blocks;
    let n = blocks.len();
    let Scratch { seen, order, stack, first_in: place, .. } = scratch;
    seen.clear();
    seen.resize(n, false);
    place.clear();
    place.resize(n, NONE);
    order.clear();
    stack.clear();
    let mut is_cyclic = false;
    // What no entry reaches is taken from the last one on, as code mostly runs forward.
    for root in entries.iter().copied().chain((0..count(n)).rev()) {
        if std::mem::replace(&mut seen[root as usize], true) {
            continue;
        }
        stack.push((root, 0));
        while let Some((node, next)) = stack.last_mut() {
            match program.successors(BlockId(blocks.start + *node)).get(*next as usize) {
                Some(e) => {
                    *next += 1;
                    let to = e.to.0 - blocks.start;
                    if !std::mem::replace(&mut seen[to as usize], true) {
                        stack.push((to, 0));
                    } else {
                        is_cyclic |= place[to as usize] == NONE;
                    }
                }
                None => {
                    place[*node as usize] = count(order.len());
                    order.push(*node);
                    stack.pop();
                }
            }
        }
    }
    is_cyclic
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
