//! A function's instructions, summed up from call to call.

use super::{CALLS, EXITS, Exit, Run, Scratch, exit, insn_at, makes_return_address, seek};
use crate::addr::Va;
use crate::analyses::flow_graph::count;
use crate::analyses::liveness::Crossing;
use crate::arch::{Decoder, Insn, RegSet, Sum, abi};
use crate::ids::{BlockId, FuncId};
use crate::model::{Block, Call, CallKind, Callee, EdgeKind, Program};

/// What was read of a function so far, beside what is in its [`Scratch`].
pub(super) struct Reading<'p, 's> {
    program: &'p Program,
    system_v: bool,
    scratch: &'s mut Scratch,
    decoder: Decoder<'p>,
    /// Index of the next call.
    next_call: usize,
    /// Functions that it calls or jumps to; with repeats.
    pub callees: Vec<FuncId>,
    /// Written by its instructions, or by calls that keep to the ABI.
    pub writes: RegSet,
    /// Whether it puts something else into the stack pointer.
    pub switches_stack: bool,
    /// Whether exceptions land in it.
    pub has_pads: bool,
}

impl<'p, 's> Reading<'p, 's> {
    /// Of `func`, before its first block.
    pub fn of(
        program: &'p Program,
        system_v: bool,
        func: FuncId,
        scratch: &'s mut Scratch,
    ) -> Reading<'p, 's> {
        scratch.segments.clear();
        scratch.rest.clear();
        scratch.ends.clear();
        scratch.called.clear();
        scratch.exits.clear();
        let start = program.blocks_of(func).first().map_or(Va(0), |b| b.start);
        Reading {
            program,
            system_v,
            scratch,
            decoder: Decoder::new(&[], Va(0)),
            next_call: program.calls.partition_point(|c| c.at < start),
            callees: Vec::new(),
            writes: RegSet::EMPTY,
            switches_stack: false,
            has_pads: false,
        }
    }

    /// Goes to the start of `block`, which comes behind those that were read.
    fn seek(&mut self, block: &Block) {
        // Blocks are by address, so the calls of one stand soon after those of the one before.
        let program = self.program;
        let mut n_skipped = 0;
        while program.calls.get(self.next_call).is_some_and(|c| c.at < block.start) {
            self.next_call += 1;
            n_skipped += 1;
            if n_skipped == 16 {
                self.next_call = program.calls.partition_point(|c| c.at < block.start);
            }
        }
        seek(program, &mut self.decoder, block.start);
    }

    /// Reads the next block of the function whose first one is `first`.
    pub fn block(&mut self, b: BlockId, first: u32) {
        let program = self.program;
        let block = program.block(b);
        self.seek(block);
        let end = block.end_va();
        let mut next_call = program.calls.get(self.next_call);
        let mut exit_call = None;
        // The last two instructions.
        let (mut before, mut last) = (None, None);
        let mut run = Run::default();
        // What was not added to the run yet.
        let mut common = Sum::default();
        let mut makes_calls = false;
        while self.decoder.at() < end {
            (before, last) = (last, Some(self.decoder.at()));
            let insn = match self.decoder.quick() {
                Some(quick) => {
                    self.decoder.pass(&quick);
                    common.then(&quick);
                    None
                }
                None => {
                    let Some(insn) = self.decoder.next() else { break };
                    let effects = self.scratch.of.effects(&insn);
                    self.switches_stack |=
                        effects.writes.holds(abi::STACK_POINTER) && insn.loads_stack_pointer();
                    run.add(&mut common, &mut self.writes);
                    self.writes.add(effects.writes);
                    run.then(effects.reads, RegSet::EMPTY, effects.kills);
                    Some(insn)
                }
            };
            let Some(call) = next_call.filter(|c| Some(c.at) == last) else { continue };
            self.next_call += 1;
            next_call = program.calls.get(self.next_call);
            if let Callee::Function(g) = call.callee {
                self.callees.push(g);
            }
            if call.kind != CallKind::Call {
                exit_call = Some(call);
                continue;
            }
            makes_calls = true;
            run.add(&mut common, &mut self.writes);
            self.call(call, insn.as_ref(), before, &mut run);
        }
        run.add(&mut common, &mut self.writes);
        let made_up = makes_return_address(program, block, before);
        let exit = if made_up { Exit::Unknown } else { exit(program, b, block, exit_call) };
        if exit != Exit::None {
            self.scratch.exits.push((b.0 - first, exit));
        }
        self.scratch.push(run);
        let calls = if makes_calls { CALLS } else { 0 };
        let exits = if exit == Exit::None { 0 } else { EXITS };
        self.scratch.ends.push(count(self.scratch.segments.len()) << 2 | calls | exits);
        self.has_pads |= program.successors(b).iter().any(|e| e.kind == EdgeKind::LandingPad);
    }

    /// What a call adds to `run`, or ends it with. `insn` is the calling instruction, if it is of no common
    /// form, `before` the address of the one before it.
    #[inline]
    fn call(&mut self, call: &Call, insn: Option<&Insn>, before: Option<Va>, run: &mut Run) {
        let program = self.program;
        let mut crossing = Crossing::of(program, self.system_v, call);
        // A call through a TLS descriptor keeps all registers but the one with the result.
        if insn.is_some_and(|i| i.is_descriptor_call(before.and_then(|at| insn_at(program, at)).as_ref())) {
            crossing.kills = RegSet::EMPTY;
        }
        run.then(crossing.reads, crossing.maybe_reads, RegSet::EMPTY);
        if let Some(g) = crossing.callee {
            self.scratch.push(std::mem::take(run));
            self.scratch.called.push(g.0);
            if !call.returns {
                run.kills = abi::ALL;
            }
        } else {
            run.then(RegSet::EMPTY, RegSet::EMPTY, crossing.kills);
            self.writes.add(crossing.kills.both(abi::CALLER_SAVED));
        }
    }
}
