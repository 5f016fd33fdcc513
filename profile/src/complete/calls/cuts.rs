//! How far control came in blocks whose calls did not come back: of such an execution, what stands behind the
//! call did not run. What stands behind one that came back twice (`setjmp`, `fork`) ran more often.
//!
//! A call came back as often as the next one of its block was made, or its block was left. Where a block is
//! left for good, by a return, its own counts do not say that; then those of others do: all calls of a
//! function came back as often together as it ended in its returns. Each of these numbers has bounds, which
//! narrow each other until nothing changes. Where they leave a choice, a call came back.
//!
//! Not here: how often calls were made (`bounds`).

use super::bounds::{self, KnownCounts};
use crate::counts::{Count, Exactness, Profile};
use program::{BlockEnd, BlockId, Call, CallKind, Callee, FuncId, Program, Va};
use std::collections::BTreeMap;
use std::ops::Range;

/// Where executions of blocks ended before the blocks did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Cuts(BTreeMap<BlockId, Vec<Cut>>);

/// A call that control came past less often than it came to it, or more often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The calling instruction.
    pub at: Va,
    /// How often what is behind it did not run, that came to it; less than never, if it came back twice.
    pub n: i64,
}

impl Cuts {
    /// Those that `profile` tells of, if it counts executions.
    pub fn of(profile: &Profile, program: &Program) -> Cuts {
        let is_ours = profile.exactness == Exactness::Exact && !profile.entries.is_empty();
        if !is_ours || !may_be_any(profile, program) {
            return Cuts::default();
        }
        let mut flows = Flows::of(profile, program);
        flows.narrow();
        flows.cuts()
    }

    /// Those of `block`, by address.
    pub fn of_block(&self, block: BlockId) -> &[Cut] {
        self.0.get(&block).map_or(&[], Vec::as_slice)
    }

    /// How many instructions ran in `n` executions of `block`, those of the padding that it always runs
    /// through among them.
    pub fn instructions(&self, program: &Program, block: BlockId, n: u64) -> u64 {
        self.of_these(program, block, n, program.n_insns_run(block))
    }

    /// The same without padding.
    pub fn own_instructions(&self, program: &Program, block: BlockId, n: u64) -> u64 {
        self.of_these(program, block, n, u64::from(program.block(block).n_insns))
    }

    fn of_these(&self, program: &Program, block: BlockId, n: u64, n_insns: u64) -> u64 {
        let less = self.of_block(block).iter().fold(0i64, |sum, cut| {
            let behind = n_insns.saturating_sub(n_insns_up_to(program, block, cut.at));
            sum.saturating_add(cut.n.saturating_mul(i64::try_from(behind).unwrap_or(i64::MAX)))
        });
        n.saturating_mul(n_insns).saturating_add_signed(less.saturating_neg())
    }

    /// How often the instruction at `at` of `block` ran, in `n` executions of that.
    pub fn count(&self, block: BlockId, at: Va, n: u64) -> u64 {
        let before = self.of_block(block).iter().filter(|cut| cut.at < at);
        n.saturating_add_signed(before.fold(0i64, |sum, cut| sum.saturating_add(cut.n)).saturating_neg())
    }
}

/// How many instructions of `block` stand before the one behind `at`.
fn n_insns_up_to(program: &Program, block: BlockId, at: Va) -> u64 {
    program.insns(block).take_while(|insn| insn.at() <= at).count() as u64
}

/// Whether there is any sign of calls that did not come back as often as they were made: most programs have
/// none, and are large.
fn may_be_any(profile: &Profile, program: &Program) -> bool {
    program.blocks.iter().enumerate().any(|(i, block)| {
        let id = BlockId::at(i);
        let calls = || program.calls_in(id);
        let ends = block.landing_pad || matches!(block.end, BlockEnd::NoReturn | BlockEnd::Stop);
        if !ends && calls().is_empty() {
            return false;
        }
        let Some(n) = profile.blocks.get(&block.start).copied().filter(|n| *n > 0) else { return false };
        ends || left(profile, program, id).is_some_and(|left| left != n)
    })
}

/// How often `block` was left along its ways, if it has any and that is known.
fn left(profile: &Profile, program: &Program, block: BlockId) -> Option<u64> {
    let ways = program.successors(block).iter().filter(|e| e.kind != program::EdgeKind::LandingPad);
    let mut to: Vec<Va> = ways.map(|e| program.block(e.to).start).collect();
    to.dedup();
    let from = program.block(block).start;
    let count = |to| profile.edges.get(&crate::counts::Edge { from, to }).copied();
    let sum = to.iter().map(|&to| count(to)).sum::<Option<u64>>();
    sum.filter(|_| !to.is_empty())
}

/// Bounds of how often calls were made, and blocks ended.
struct Flows<'a> {
    program: &'a Program,
    known: KnownCounts<'a>,
    /// Per call of the program: how often control came to it.
    reached: Vec<Option<Count>>,
    /// By block with calls that ran: its calls, and how often control came behind the last of them.
    ended: BTreeMap<BlockId, (Range<usize>, Count)>,
    /// Functions that were called, or returned from: what their returns add up to.
    functions: BTreeMap<FuncId, Returns>,
}

/// How a function is returned from.
#[derive(Default)]
struct Returns {
    /// Blocks that end in a return, and call something before.
    blocks: Vec<BlockId>,
    /// How often those ran that call nothing.
    sure: u64,
    /// How often it ended otherwise, by a jump to another function: who knows whether that returned.
    elsewhere: u64,
    /// Calls of it, by number; and how often it was jumped to.
    calls: Vec<usize>,
    jumps: u64,
    /// Whether it was called by nothing else.
    are_all: bool,
}

impl<'a> Flows<'a> {
    fn of(profile: &'a Profile, program: &'a Program) -> Flows<'a> {
        let (known, mut reached) = bounds::with_known(profile, program);
        let mut ended = BTreeMap::new();
        let mut first = 0;
        for calls in program.calls.chunk_by(|a, b| a.block == b.block) {
            let range = first..first + calls.len();
            first = range.end;
            let Some((block, n)) = calls.first().and_then(|c| Some((c.block, known.count(c.block)?))) else {
                continue;
            };
            if n.n == 0 {
                continue;
            }
            let n = Count::exact(n.n);
            let own = reached.get_mut(range.clone()).unwrap_or_default();
            let count = end(&known, program, calls, n, own);
            ended.insert(block, (range, count));
        }
        let mut flows = Flows { program, known, reached, ended, functions: BTreeMap::new() };
        flows.find_returns();
        flows
    }

    fn find_returns(&mut self) {
        let program = self.program;
        for (i, block) in program.blocks.iter().enumerate().filter(|(_, b)| b.end == BlockEnd::Return) {
            let id = BlockId::at(i);
            let n = self.known.count(id).map_or(0, |n| n.n);
            let of = self.functions.entry(block.func).or_default();
            match self.ended.contains_key(&id) {
                true => of.blocks.push(id),
                false => of.sure = of.sure.saturating_add(n),
            }
        }
        for (i, call) in program.calls.iter().enumerate() {
            let n = self.reached.get(i).copied().flatten().unwrap_or_default();
            if n.most == 0 {
                continue;
            }
            if call.kind != CallKind::Call {
                let of = self.functions.entry(program.block(call.block).func).or_default();
                of.elsewhere = of.elsewhere.saturating_add(n.most);
            }
            let Callee::Function(callee) = call.callee else { continue };
            let of = self.functions.entry(callee).or_default();
            match call.kind {
                CallKind::Call => of.calls.push(i),
                _ => of.jumps = of.jumps.saturating_add(n.most),
            }
        }
        for (id, of) in &mut self.functions {
            let mut calls = of.calls.iter().map(|&i| self.reached.get(i).copied().flatten());
            let sum = calls.try_fold(Count::exact(of.jumps), |sum, n| Some(sum.plus(n?)));
            let entered = self.known.entered(*id);
            of.are_all = sum.zip(entered).is_some_and(|(sum, n)| sum.between().is_none() && sum.n == n.n);
        }
    }

    /// Narrows bounds by each other.
    fn narrow(&mut self) {
        let ids: Vec<FuncId> = self.functions.keys().copied().collect();
        for _ in 0..ROUNDS {
            let mut is_other = false;
            for id in &ids {
                is_other |= self.narrow_returns(*id);
            }
            if !is_other {
                return;
            }
        }
    }

    /// All calls of a function came back as often together as it returned.
    fn narrow_returns(&mut self, id: FuncId) -> bool {
        let Some(of) = self.functions.get(&id) else { return false };
        let ended = |b: &BlockId| self.ended.get(b).map_or(Count::default(), |(_, n)| *n);
        let of_blocks = of.blocks.iter().map(ended).fold(Count::exact(of.sure), Count::plus);
        let returned = Count { most: of_blocks.most.saturating_add(of.elsewhere), ..of_blocks };
        let of_calls = of.calls.iter().map(|&i| self.came_back(i)).fold(Count::default(), Count::plus);
        let came_back = Count { most: of_calls.most.saturating_add(of.jumps), ..of_calls };
        let (blocks, calls, are_all) = (of.blocks.clone(), of.calls.clone(), of.are_all);
        let mut is_other = false;
        for i in calls {
            let own = self.came_back(i);
            let most = returned.most.saturating_sub(came_back.least.saturating_sub(own.least));
            let least = returned.least.saturating_sub(came_back.most.saturating_sub(own.most));
            is_other |= self.set_came_back(i, if are_all { least } else { 0 }, most);
        }
        for block in blocks {
            let own = self.ended.get(&block).map_or(Count::default(), |(_, n)| *n);
            let least = came_back.least.saturating_sub(returned.most.saturating_sub(own.most));
            let most = came_back.most.saturating_sub(returned.least.saturating_sub(own.least));
            is_other |= self.set_end(block, least, if are_all { most } else { u64::MAX });
        }
        is_other
    }

    /// How often call `i` came back: as often as the next one was made, or its block ended.
    fn came_back(&self, i: usize) -> Count {
        let Some(call) = self.program.calls.get(i) else { return Count::default() };
        match self.ended.get(&call.block) {
            Some((calls, n)) if i + 1 == calls.end => *n,
            Some(_) => self.reached.get(i + 1).copied().flatten().unwrap_or_default(),
            None => Count::default(),
        }
    }

    fn set_came_back(&mut self, i: usize, least: u64, most: u64) -> bool {
        let Some(call) = self.program.calls.get(i) else { return false };
        let Some((calls, _)) = self.ended.get(&call.block) else { return false };
        match i + 1 == calls.end {
            true => self.set_end(call.block, least, most),
            false => {
                let is_other = self
                    .reached
                    .get_mut(i + 1)
                    .and_then(Option::as_mut)
                    .is_some_and(|n| clamp(n, least, most));
                is_other && {
                    self.order(call.block);
                    true
                }
            }
        }
    }

    fn set_end(&mut self, block: BlockId, least: u64, most: u64) -> bool {
        let is_other = self.ended.get_mut(&block).is_some_and(|(_, n)| clamp(n, least, most));
        if is_other {
            self.order(block);
        }
        is_other
    }

    /// What stands behind a call of `block` ran at most as often as the call.
    fn order(&mut self, block: BlockId) {
        let Some((calls, ended)) = self.ended.get_mut(&block) else { return };
        let own = self.program.calls.get(calls.clone()).unwrap_or_default();
        if own.iter().any(|c| self.known.may_come_back_twice(c)) {
            return;
        }
        let reached = self.reached.get_mut(calls.clone()).unwrap_or_default();
        let mut most = u64::MAX;
        for n in reached.iter_mut().flatten().chain([&mut *ended]) {
            clamp(n, 0, most);
            most = n.most;
        }
        let mut least = 0;
        for n in reached.iter_mut().flatten().chain([ended]).collect::<Vec<_>>().into_iter().rev() {
            clamp(n, least, u64::MAX);
            least = n.least;
        }
    }

    fn cuts(&self) -> Cuts {
        let mut all = BTreeMap::new();
        for (&block, (calls, _)) in &self.ended {
            let mut own = Vec::new();
            for i in calls.clone() {
                let Some(call) = self.program.calls.get(i).filter(|c| c.kind == CallKind::Call && c.returns)
                else {
                    continue;
                };
                let Some(reached) = self.reached.get(i).copied().flatten() else { continue };
                let n = i128::from(reached.most) - i128::from(self.came_back(i).most);
                let n = i64::try_from(n).unwrap_or(0);
                own.extend((n != 0).then_some(Cut { at: call.at, n }));
            }
            if !own.is_empty() {
                all.insert(block, own);
            }
        }
        Cuts(all)
    }
}

/// How often control came behind all `calls` of a block that ran `n` times, which are `reached` so often.
/// What is behind one that came back twice was reached as often as the block was left.
fn end(
    known: &KnownCounts<'_>,
    program: &Program,
    calls: &[Call],
    n: Count,
    reached: &mut [Option<Count>],
) -> Count {
    let Some(block) = calls.first().map(|c| c.block) else { return n };
    // A branch may leave the function, or a call that never comes back; nothing is behind it.
    let last = calls.last().filter(|c| c.kind != CallKind::Call || !c.returns);
    let left = known.left(block).filter(|_| last.is_none()).map(|left| Count::exact(left.n));
    if let Some(twice) = calls.iter().position(|c| known.may_come_back_twice(c)) {
        for (i, place) in reached.iter_mut().enumerate() {
            *place = if i <= twice { Some(n) } else { left.or(Some(n)) };
        }
        return left.unwrap_or(n);
    }
    let before = reached.last().copied().flatten().unwrap_or(n);
    match left {
        _ if last.is_some() => before,
        Some(left) => left,
        None if known.is_past(block) => n,
        None => {
            let is_back = calls.last().is_some_and(|c| known.came_back(c) || is_sure(program, c));
            if is_back { before } else { Count { least: 0, ..before } }
        }
    }
}

/// Whether `call` is of a function of the C library that comes back.
fn is_sure(program: &Program, call: &Call) -> bool {
    let name = match call.callee {
        Callee::Function(f) => program.function(f).import.as_deref(),
        Callee::Import(i) => program.imports.get(i as usize).map(|name| &**name),
        Callee::Unknown(_) | Callee::Indirect => None,
    };
    name.is_some_and(|name| {
        program::libc::does(name, program::libc::COMES_BACK) && program.image.is_libc_import(name)
    })
}

/// Narrows `n` to what lies between `least` and `most`, if any of it does; whether it is another then.
fn clamp(n: &mut Count, least: u64, most: u64) -> bool {
    let (least, most) = (n.least.max(least), n.most.min(most));
    if least > most || (least, most) == (n.least, n.most) {
        return false;
    }
    *n = Count { n: n.n.clamp(least, most), least, most };
    true
}

/// How often what is known is handed on at most: from function to function, as deep as calls are nested.
const ROUNDS: usize = 64;
