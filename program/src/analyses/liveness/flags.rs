//! Which arithmetic flags are live where a block starts: much less work than all registers, and nearly all
//! that counting needs.
//!
//! The equations are those of [`Conventions`], with the flags alone. Compiled code keeps no flags across
//! calls and returns, so one look at each function says nearly all; what hand-written code asks of others is
//! followed up until nothing grows.
//!
//! Invariant: a flag that [`Conventions::compute`] finds live is live here.
//!
//! [`Conventions`]: super::Conventions
//! [`Conventions::compute`]: super::Conventions::compute

use super::body::{Exit, exit, insn_at, makes_return_address, seek};
use super::{Crossing, is_system_v, walk_back};
use crate::addr::Va;
use crate::analyses::flow_graph::count;
use crate::arch::{Decoder, Insn, RegSet, abi};
use crate::ids::{BlockId, FuncId};
use crate::model::{Call, CallKind, Callee, EdgeKind, Program};
use rayon::prelude::*;

/// All arithmetic flags, as bits.
const ALL: u8 = 0x3f;
/// All registers, live; of flags nothing is said.
const NO_FLAGS: RegSet = abi::ALL.minus(abi::FLAGS);
/// How many blocks ahead a dead register is looked for, and how many in all.
const AHEAD: u32 = 5;
const LOOKED_AT: u32 = 64;

/// The flags that are live at the start of each block.
#[derive(Clone, Debug)]
pub struct FlagLiveness {
    starts: Vec<u8>,
    conventions: Vec<Convention>,
    system_v: bool,
}

/// What callers and callees expect of a function.
#[derive(Clone, Copy, Default, Debug)]
struct Convention {
    at_entry: u8,
    at_return: u8,
}

/// One function, solved for the conventions of the others as they stood.
struct Solved {
    starts: Vec<u8>,
    at_entry: u8,
    /// What is live after calls, or must be at the returns of functions it jumps to; where it is nothing, it
    /// is left out.
    wanted: Vec<(FuncId, u8)>,
}

/// Room for the work on one function.
#[derive(Default)]
struct Scratch {
    /// Per block: read before it is killed, killed, live at the end whatever follows in the function.
    sums: Vec<(u8, u8, u8)>,
    /// Blocks whose start depends on what follows, last first.
    open: Vec<u32>,
    /// The last call into the image of a block, with what follows it there.
    last_calls: Vec<(u32, FuncId, u8, u8)>,
    returns: Vec<u32>,
}

fn bits(set: RegSet) -> u8 {
    set.flag_bits() & ALL
}

impl FlagLiveness {
    /// Solves all functions of `program`.
    pub fn compute(program: &Program) -> FlagLiveness {
        let system_v = is_system_v(program);
        let mut starts = vec![ALL; program.blocks.len()];
        let unknown = Convention { at_entry: ALL, at_return: ALL };
        if !system_v {
            return FlagLiveness { starts, conventions: vec![unknown; program.functions.len()], system_v };
        }
        let start =
            |f: FuncId| match program.entry_block(f).is_none() && program.function(f).entries.is_empty() {
                true => unknown,
                false => Convention::default(),
            };
        let mut conventions: Vec<Convention> = program.func_ids().map(start).collect();
        let mut all: Vec<Solved> = (0..program.functions.len())
            .into_par_iter()
            .map_init(Scratch::default, |scratch, i| solve(program, &conventions, FuncId::at(i), scratch))
            .collect();
        let mut pending: Vec<FuncId> = Vec::new();
        let mut callers = None;
        for (i, solved) in all.iter().enumerate() {
            settle(program, &mut conventions, FuncId::at(i), solved, &mut callers, &mut pending);
        }
        let mut scratch = Scratch::default();
        // Sets only grow, so a function comes here at most as often as it, its callers and callees have
        // flags.
        while let Some(f) = pending.pop() {
            all[f.index()] = solve(program, &conventions, f, &mut scratch);
            settle(program, &mut conventions, f, &all[f.index()], &mut callers, &mut pending);
        }
        for (f, solved) in program.functions.iter().zip(&all) {
            starts[f.blocks.start as usize..f.blocks.end as usize].copy_from_slice(&solved.starts);
        }
        FlagLiveness { starts, conventions, system_v }
    }

    /// Live at the start of `block`: arithmetic flags alone.
    pub fn live_in(&self, block: BlockId) -> RegSet {
        RegSet::from_flag_bits(self.starts[block.index()])
    }

    /// Live before each instruction of `block`. Of registers, more may be said to be live than are: only some
    /// blocks ahead are looked at, and only if none is found to be dead in the block itself.
    pub fn before(&self, program: &Program, block: BlockId) -> Vec<(Va, RegSet)> {
        let flags = self.out(program, block);
        let found = self.walk_back(program, block, flags.union(NO_FLAGS));
        if !program.successors(block).is_empty() && found.iter().all(|f| f.1.holds(abi::GENERAL)) {
            let mut left = LOOKED_AT;
            let dead = self.dead_after(program, block, abi::GENERAL, AHEAD, &mut left);
            if !dead.is_empty() {
                return self.walk_back(program, block, flags.union(NO_FLAGS.minus(dead)));
            }
        }
        found
    }

    fn walk_back(&self, program: &Program, block: BlockId, out: RegSet) -> Vec<(Va, RegSet)> {
        let mut pads = RegSet::EMPTY;
        for edge in program.successors(block).iter().filter(|e| e.kind == EdgeKind::LandingPad) {
            pads.add(NO_FLAGS.union(self.live_in(edge.to)));
        }
        let always = abi::ALWAYS_LIVE.union(pads);
        let kept = abi::CALLEE_SAVED.union(abi::FRAME_POINTER);
        let at_entry =
            |f: FuncId| NO_FLAGS.union(RegSet::from_flag_bits(self.conventions[f.index()].at_entry));
        walk_back(program, self.system_v, block, out, always, kept, at_entry)
    }

    /// Flags live at the end of a block.
    fn out(&self, program: &Program, id: BlockId) -> RegSet {
        let block = program.block(id);
        let call = program.calls_in(id).iter().rfind(|c| c.kind != CallKind::Call);
        let mut out = RegSet::from_flag_bits(match exit(program, id, block, call) {
            Exit::None | Exit::Trap => 0,
            Exit::To(g) => self.conventions[g.index()].at_entry,
            Exit::Outside | Exit::Pointer if self.system_v => 0,
            // Whether the address was made up is not asked again.
            Exit::Return | Exit::Outside | Exit::Pointer | Exit::Unknown => ALL,
        });
        program.successors(id).iter().for_each(|e| out.add(self.live_in(e.to)));
        out
    }

    /// Those of `candidates` that are found to be dead at the end of a block.
    fn dead_after(
        &self,
        program: &Program,
        id: BlockId,
        candidates: RegSet,
        depth: u32,
        left: &mut u32,
    ) -> RegSet {
        let mut dead = candidates;
        let call = program.calls_in(id).iter().rfind(|c| c.kind != CallKind::Call);
        if exit(program, id, program.block(id), call) != Exit::None {
            return RegSet::EMPTY;
        }
        for edge in program.successors(id) {
            if dead.is_empty() || depth == 0 || *left == 0 {
                return RegSet::EMPTY;
            }
            *left -= 1;
            let first = self.walk_back(program, edge.to, NO_FLAGS);
            let live = first.first().map_or(abi::ALL, |f| f.1);
            let here = dead.minus(live);
            dead = match here.is_empty() {
                true => {
                    let after = self.dead_after(program, edge.to, dead, depth - 1, left);
                    let again = self.walk_back(program, edge.to, NO_FLAGS.minus(after));
                    dead.minus(again.first().map_or(abi::ALL, |f| f.1))
                }
                false => here,
            };
        }
        dead
    }
}

/// Takes what the solution of `f` asks of others into the conventions, and notes who must be solved again.
fn settle(
    program: &Program,
    conventions: &mut [Convention],
    f: FuncId,
    solved: &Solved,
    callers: &mut Option<Vec<(FuncId, FuncId)>>,
    pending: &mut Vec<FuncId>,
) {
    let me = &mut conventions[f.index()];
    if solved.at_entry & !me.at_entry != 0 {
        me.at_entry |= solved.at_entry;
        let callers = callers.get_or_insert_with(|| callers_of(program));
        let from = callers.partition_point(|c| c.0 < f);
        pending.extend(callers[from..].iter().take_while(|c| c.0 == f).map(|c| c.1));
    }
    for &(g, flags) in &solved.wanted {
        let callee = &mut conventions[g.index()];
        if flags & !callee.at_return != 0 {
            callee.at_return |= flags;
            pending.push(g);
        }
    }
}

/// Who calls or jumps to whom: callee and caller, by callee.
fn callers_of(program: &Program) -> Vec<(FuncId, FuncId)> {
    let pair = |call: &Call| match call.callee {
        Callee::Function(g) => Some((g, program.block(call.block).func)),
        _ => None,
    };
    let mut all: Vec<(FuncId, FuncId)> = program.calls.iter().filter_map(pair).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn solve(program: &Program, conventions: &[Convention], func: FuncId, s: &mut Scratch) -> Solved {
    let function = program.function(func);
    let first = function.blocks.start;
    let mut starts = vec![0; function.blocks.len()];
    let mut wanted = Vec::new();
    sum_up(program, conventions, func, s, &mut wanted);
    let out = |node: u32, starts: &[u8], s: &Scratch| {
        let edges = program.successors(BlockId(first + node)).iter();
        edges.fold(s.sums[node as usize].2, |out, e| out | starts[(e.to.0 - first) as usize])
    };
    for (start, sum) in starts.iter_mut().zip(&s.sums) {
        *start = sum.0;
    }
    loop {
        let mut has_grown = false;
        for &node in &s.open {
            let (reads, kills, _) = s.sums[node as usize];
            let mut live = reads | out(node, &starts, s) & !kills;
            let edges = program.successors(BlockId(first + node)).iter();
            for e in edges.filter(|e| e.kind == EdgeKind::LandingPad) {
                live |= starts[(e.to.0 - first) as usize];
            }
            has_grown |= std::mem::replace(&mut starts[node as usize], live) != live;
        }
        if !has_grown {
            break;
        }
    }
    for &(node, callee, reads, kills) in &s.last_calls {
        let mut after = reads | out(node, &starts, s) & !kills;
        let edges = program.successors(BlockId(first + node)).iter();
        for e in edges.filter(|e| e.kind == EdgeKind::LandingPad) {
            after |= starts[(e.to.0 - first) as usize];
        }
        if after != 0 {
            wanted.push((callee, after));
        }
    }
    let entry = program.entry_block(func).filter(|b| program.block(*b).func == func);
    let at = |b: &BlockId| starts.get(b.0.wrapping_sub(first) as usize).copied().unwrap_or(ALL);
    let at_entry = entry.iter().chain(&*function.entries).map(at).fold(0, |a, b| a | b);
    Solved { starts, at_entry, wanted }
}

impl Scratch {
    fn clear(&mut self) {
        self.sums.clear();
        self.open.clear();
        self.last_calls.clear();
        self.returns.clear();
    }
}

/// What is live where a block leaves its function in this way.
fn live_at_exit(exit: Exit, me: Convention, conventions: &[Convention]) -> u8 {
    match exit {
        Exit::Return => me.at_return,
        Exit::To(g) => conventions[g.index()].at_entry,
        Exit::Unknown => ALL,
        Exit::None | Exit::Trap | Exit::Outside | Exit::Pointer => 0,
    }
}

/// What was read of a block since its last call into the image, or its start.
#[derive(Default)]
struct Run {
    reads: u8,
    kills: u8,
    /// That call.
    last_callee: Option<FuncId>,
    /// What was read and killed before the first of these calls.
    head: Option<(u8, u8)>,
}

impl Run {
    #[inline]
    fn then(&mut self, reads: u8, kills: u8) {
        self.reads |= reads & !self.kills;
        self.kills |= kills;
    }

    /// Goes on behind a call. `is_kept` is whether it is one through a TLS descriptor, which kills
    /// nothing; `wanted` is told what must be live where earlier callees return.
    #[inline]
    fn call(
        &mut self,
        program: &Program,
        conventions: &[Convention],
        call: &Call,
        is_kept: impl Fn() -> bool,
        wanted: &mut Vec<(FuncId, u8)>,
    ) {
        let crossing = Crossing::of(program, true, call);
        self.then(bits(crossing.reads.union(crossing.maybe_reads)), 0);
        let Some(g) = crossing.callee else {
            self.kills |= if is_kept() { 0 } else { bits(crossing.kills) };
            return;
        };
        self.then(conventions[g.index()].at_entry, 0);
        match self.last_callee.replace(g) {
            None => self.head = Some((self.reads, ALL)),
            Some(before) => wanted.extend((self.reads != 0).then_some((before, self.reads))),
        }
        (self.reads, self.kills) = (0, if call.returns { 0 } else { ALL });
    }
}

/// The index of the first call from `at` on, which is not before `from`.
///
/// Blocks are by address, so the calls of one mostly stand soon after those of the one before.
#[inline]
fn first_call_from(program: &Program, at: Va, mut from: usize) -> usize {
    if program.calls.get(from + 16).is_some_and(|c| c.at < at) {
        from = program.calls.partition_point(|c| c.at < at);
    }
    while program.calls.get(from).is_some_and(|c| c.at < at) {
        from += 1;
    }
    from
}

/// What each block of `func` does to flags.
fn sum_up(
    program: &Program,
    conventions: &[Convention],
    func: FuncId,
    s: &mut Scratch,
    wanted: &mut Vec<(FuncId, u8)>,
) {
    let function = program.function(func);
    let me = conventions[func.index()];
    let first = function.blocks.start;
    s.clear();
    let mut switches_stack = false;
    let mut decoder = Decoder::new(&[], Va(0));
    let start = program.blocks_of(func).first().map_or(Va(0), |b| b.start);
    let mut next_call = program.calls.partition_point(|c| c.at < start);
    for b in function.block_ids() {
        let block = program.block(b);
        next_call = first_call_from(program, block.start, next_call);
        seek(program, &mut decoder, block.start);
        let end = block.end_va();
        let mut run = Run::default();
        let (mut before, mut last) = (block.start, block.start);
        let mut exit_call = None;
        let call_at = |n: usize| program.calls.get(n).map_or(end, |c| c.at);
        let mut stop = call_at(next_call);
        while decoder.at() < end {
            (before, last) = (last, decoder.at());
            let (insn, (r, k)) = match decoder.quick() {
                Some(quick) => {
                    decoder.pass(&quick);
                    (None, quick.flags())
                }
                None => {
                    let Some(insn) = decoder.next() else { break };
                    switches_stack |= insn.loads_stack_pointer();
                    (Some(insn), insn.flags())
                }
            };
            run.then(r, k);
            while last == stop {
                let call = &program.calls[next_call];
                next_call += 1;
                stop = call_at(next_call);
                if call.kind != CallKind::Call {
                    exit_call = Some(call);
                    continue;
                }
                let is_descriptor_call =
                    |insn: Insn| before < last && insn.is_descriptor_call(insn_at(program, before).as_ref());
                let is_kept = || insn.is_some_and(is_descriptor_call);
                run.call(program, conventions, call, is_kept, wanted);
            }
        }
        let node = b.0 - first;
        let made_up = makes_return_address(program, block, (before < last).then_some(before));
        let exit = if made_up { Exit::Unknown } else { exit(program, b, block, exit_call) };
        match exit {
            Exit::Return => s.returns.push(node),
            Exit::To(g) => wanted.extend((me.at_return != 0).then_some((g, me.at_return))),
            _ => {}
        }
        let live = live_at_exit(exit, me, conventions);
        if let Some(g) = run.last_callee {
            s.last_calls.push((node, g, run.reads, run.kills));
        }
        let (reads, kills) = run.head.unwrap_or((run.reads, run.kills));
        s.sums.push((reads, kills, live));
        let has_pads = || program.successors(b).iter().any(|e| e.kind == EdgeKind::LandingPad);
        if kills != ALL || has_pads() {
            s.open.push(node);
        }
    }
    s.open.reverse();
    if switches_stack {
        for &node in &s.returns {
            s.sums[node as usize].2 = ALL;
        }
    }
    debug_assert_eq!(count(s.sums.len()), count(function.blocks.len()));
}
