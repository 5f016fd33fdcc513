//! How often calls were made that stand behind others, which may not have come back: bounds from what their
//! blocks, and those whom they call, did.
//!
//! What is known of a run: who leaves a block along its ways came past all its calls. If as many left it as
//! came to it, all came back. A function returned each time if as many executions ended in its returns as
//! entered it, and the calls in the blocks of these came back (the innermost execution that did not end has
//! nobody to wait for); or if all who called it went on behind the call. A call that is behind none that may
//! not have come back ran as often as its block. Another one ran at most so often, and at least as often as
//! its block was left along its ways; just as often, if it and all behind it came back. All calls of a
//! function together are at most its entries; they are all of them if nothing else in the image leads there
//! (`references`).
//!
//! Threads that may have been stopped in a block may not have come to its calls: then less is sure.
//!
//! Invariant: a count is within its bounds, unless calls that came back twice (`fork`, `setjmp`) make up for
//! others that did not, or a signal's handler left a block for good in between.
//!
//! Source: the flow of `counters`, read from the other side.

use super::references;
use crate::counts::{Count, Edge, Profile};
use program::{BlockEnd, BlockId, Call, CallKind, Callee, EdgeKind, FuncId, Program, Va, libc};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Per call of `program`: how often it ran, if its block has a count.
pub(super) fn of(profile: &Profile, program: &Program) -> Vec<Option<Count>> {
    with_known(profile, program).1
}

/// The same, and what is known of the run beside.
pub(super) fn with_known<'a>(
    profile: &'a Profile,
    program: &'a Program,
) -> (KnownCounts<'a>, Vec<Option<Count>>) {
    let mut known = KnownCounts::of(profile, program);
    known.find();
    let mut all = Vec::with_capacity(program.calls.len());
    for calls in program.calls.chunk_by(|a, b| a.block == b.block) {
        all.extend((0..calls.len()).map(|i| known.bound(calls, i)));
    }
    known.fit(&mut all);
    (known, all)
}

/// What is known of a run.
pub(super) struct KnownCounts<'a> {
    profile: &'a Profile,
    program: &'a Program,
    n_stopped: u64,
    /// Per block: how often it ran, and how often it was left along its ways.
    blocks: Vec<Option<Count>>,
    left: Vec<Option<Count>>,
    /// Per function: how often it was entered.
    entered: Vec<Option<Count>>,
    /// Per function: whether it came back whenever it was called.
    returned: Vec<bool>,
    /// The same, since all who called it went on.
    was_left: Vec<bool>,
    /// Per function: whether it came back more often than it was called.
    is_doubled: Vec<bool>,
}

impl<'a> KnownCounts<'a> {
    fn of(profile: &'a Profile, program: &'a Program) -> KnownCounts<'a> {
        let n = program.blocks.len();
        let blocks: Vec<_> = program.blocks.iter().map(|b| profile.block(b.start)).collect();
        let mut left = Vec::with_capacity(n);
        for (i, block) in program.blocks.iter().enumerate() {
            let id = BlockId::at(i);
            let ways = program.successors(id).chunk_by(|a, b| a.to == b.to);
            let ways = ways.filter(|same| same.iter().any(|e| e.kind != EdgeKind::LandingPad));
            let mut ways = ways.filter_map(|same| same.first()).peekable();
            let never = blocks.get(i).copied().flatten().filter(|n| n.most == 0);
            let count = |to| {
                let edge = Edge { from: block.start, to: program.block(to).start };
                profile.edge(edge).or(never)
            };
            left.push(match ways.peek() {
                None => None,
                Some(_) => ways.map(|e| count(e.to)).try_fold(Count::default(), |sum, n| Some(sum.plus(n?))),
            });
        }
        // Blocks that others of the function lead to.
        let mut is_led_to = vec![false; n];
        for edge in &program.edges {
            if let Some(place) = is_led_to.get_mut(edge.to.index()) {
                *place = true;
            }
        }
        let entered = |id: FuncId| {
            let (function, entry) = (program.function(id), program.entry_block(id)?);
            if !function.entries.is_empty() {
                return None;
            }
            match is_led_to.get(entry.index()) {
                Some(false) => profile.block(function.entry),
                _ => profile.entered(function.entry),
            }
        };
        KnownCounts {
            profile,
            program,
            n_stopped: profile.intervals.n_stopped,
            entered: program.func_ids().map(entered).collect(),
            blocks,
            left,
            returned: vec![false; program.functions.len()],
            was_left: vec![false; program.functions.len()],
            is_doubled: vec![false; program.functions.len()],
        }
    }

    /// How often a function was entered.
    pub(super) fn entered(&self, id: FuncId) -> Option<Count> {
        self.entered.get(id.index()).copied().flatten()
    }

    /// How often a block ran.
    pub(super) fn count(&self, block: BlockId) -> Option<Count> {
        self.blocks.get(block.index()).copied().flatten()
    }

    /// How often it was left along its ways.
    pub(super) fn left(&self, block: BlockId) -> Option<Count> {
        self.left.get(block.index()).copied().flatten()
    }

    /// Whether `call` came back each time.
    pub(super) fn came_back(&self, call: &Call) -> bool {
        match call.callee {
            Callee::Function(f) => self.returned.get(f.index()) == Some(&true),
            Callee::Import(_) | Callee::Unknown(_) | Callee::Indirect => false,
        }
    }

    /// Whether control came past all calls of `block`, but the last if the function ends with it, whenever it
    /// came to the block.
    pub(super) fn is_past(&self, block: BlockId) -> bool {
        let Some(n) = self.count(block) else { return false };
        let calls = || self.program.calls_in(block).iter().filter(|c| c.kind == CallKind::Call);
        n.most == 0
            // More left it than came, if a call came back twice.
            || self.left(block).is_some_and(|left| left.least >= n.most && left.most <= n.most)
            || self.n_stopped == 0 && calls().all(|c| self.came_back(c))
            || self.left(block).is_none()
                && calls().all(|c| c.returns)
                && self.was_left.get(self.program.block(block).func.index()) == Some(&true)
                // Else an exception or `longjmp` led from the block to another of the function.
                && self.is_doubled.get(self.program.block(block).func.index()) == Some(&false)
    }

    /// Finds out which functions came back each time.
    fn find(&mut self) {
        loop {
            self.find_returned();
            if !self.find_left() {
                return;
            }
        }
    }

    /// Those whose returns ran as often as they were entered, with calls before them that came back: all but
    /// those of which that is refuted.
    fn find_returned(&mut self) {
        let program = self.program;
        // Per function: what it ends with, if that is known of each execution.
        let last_blocks: Vec<(Ordering, Vec<BlockId>)> =
            program.func_ids().map(|id| self.last_blocks(id)).collect();
        self.is_doubled = last_blocks.iter().map(|(order, _)| *order == Ordering::Greater).collect();
        let last_blocks: Vec<Option<Vec<BlockId>>> = last_blocks
            .into_iter()
            .map(|(order, blocks)| (order == Ordering::Equal).then_some(blocks))
            .collect();
        self.returned =
            last_blocks.iter().zip(&self.was_left).map(|(blocks, left)| blocks.is_some() || *left).collect();
        loop {
            let refuted = |(i, blocks): (usize, &Option<Vec<BlockId>>)| {
                let is_held = self.returned.get(i) == Some(&true) && self.was_left.get(i) == Some(&false);
                let blocks = blocks.as_ref().filter(|_| is_held)?;
                let calls = |b: &BlockId| program.calls_in(*b).iter().all(|call| self.came_back(call));
                (!blocks.iter().all(calls)).then_some(i)
            };
            let refuted: Vec<usize> = last_blocks.iter().enumerate().filter_map(refuted).collect();
            if refuted.is_empty() {
                return;
            }
            for i in refuted {
                if let Some(returned) = self.returned.get_mut(i) {
                    *returned = false;
                }
            }
        }
    }

    /// The blocks in which executions of `id` ended, and whether these are fewer than began, or more. What is
    /// not known is fewer.
    fn last_blocks(&self, id: FuncId) -> (Ordering, Vec<BlockId>) {
        let function = self.program.function(id);
        let unknown = (Ordering::Less, Vec::new());
        let Some(entered) = self.entered.get(id.index()).copied().flatten() else { return unknown };
        if self.n_stopped > 0 || !function.complete || entered.between().is_some() {
            return unknown;
        }
        let mut last_blocks = Vec::new();
        let mut sum = 0u64;
        for b in function.block_ids() {
            let Some(n) = self.count(b).map(|n| n.n) else { return unknown };
            if n == 0 {
                continue;
            }
            let leaves = |kind| self.program.calls_in(b).iter().any(|c| c.kind == kind);
            let ended = match self.program.block(b).end {
                BlockEnd::Return => n,
                BlockEnd::Branch if leaves(CallKind::BranchTailCall) => {
                    n.saturating_sub(self.left(b).map_or(0, |left| left.n))
                }
                BlockEnd::Jump if leaves(CallKind::TailCall) => n,
                BlockEnd::FallThrough if leaves(CallKind::FallThrough) => n,
                _ => 0,
            };
            sum = sum.saturating_add(ended);
            if ended > 0 {
                last_blocks.push(b);
            }
        }
        (sum.cmp(&entered.n), last_blocks)
    }

    /// Finds functions that were called only by those who went on behind it; whether there are more than
    /// before.
    fn find_left(&mut self) -> bool {
        let mut is_any = false;
        loop {
            let mut sums = vec![0u64; self.program.functions.len()];
            for calls in self.program.calls.chunk_by(|a, b| a.block == b.block) {
                let Some(block) = calls.first().map(|c| c.block).filter(|b| self.is_past(*b)) else {
                    continue;
                };
                let n = self.count(block).map_or(0, |n| n.least);
                let returned = self.returned.get(self.program.block(block).func.index()) == Some(&true);
                for call in calls {
                    let Callee::Function(callee) = call.callee else { continue };
                    let n = match call.kind {
                        CallKind::Call => n,
                        CallKind::TailCall if returned => n,
                        CallKind::TailCall | CallKind::BranchTailCall | CallKind::FallThrough => 0,
                    };
                    if let Some(sum) = sums.get_mut(callee.index()) {
                        *sum = sum.saturating_add(n);
                    }
                }
            }
            let mut is_more = false;
            for (i, n) in sums.into_iter().enumerate() {
                let entered = self.entered.get(i).copied().flatten();
                let is_it = n > 0 && entered.is_some_and(|entered| entered.most == n);
                if let Some(was_left) = self.was_left.get_mut(i).filter(|was_left| is_it && !**was_left) {
                    *was_left = true;
                    is_more = true;
                    if let Some(returned) = self.returned.get_mut(i) {
                        *returned = true;
                    }
                }
            }
            is_any |= is_more;
            if !is_more {
                return is_any;
            }
        }
    }

    /// How often call `i` of `calls`, those of a block, ran.
    fn bound(&self, calls: &[Call], i: usize) -> Option<Count> {
        let call = calls.get(i)?;
        let n = self.count(call.block)?;
        let left = self.left(call.block);
        let less = |a: Count, b: Count| Count {
            n: a.n.saturating_sub(b.n),
            least: a.least.saturating_sub(b.most),
            most: a.most.saturating_sub(b.least),
        };
        let base = match call.kind {
            CallKind::Call | CallKind::TailCall => n,
            CallKind::BranchTailCall => less(n, left.unwrap_or_default()),
            // Behind a branch, nobody knows.
            CallKind::FallThrough => {
                let is_alone = calls.iter().all(|c| c.at != call.at || c.kind == call.kind);
                n_if(is_alone && self.program.successors(call.block).is_empty(), n)?
            }
        };
        let before = calls.iter().take(i).filter(|c| c.kind == CallKind::Call);
        let is_first = before.clone().all(|c| self.came_back(c));
        if self.is_past(call.block) || self.n_stopped == 0 && is_first {
            return Some(base);
        }
        let is_call = call.kind != CallKind::BranchTailCall;
        let mut least = left.filter(|_| is_call).map_or(0, |left| left.least.min(n.least));
        let mut most = left.filter(|_| is_call).map_or(base.most, |left| left.most.max(base.most));
        if is_first {
            least = least.max(base.least.saturating_sub(self.n_stopped));
        }
        let behind = calls.iter().skip(i);
        let comes_back = behind.clone().all(|c| c.kind == CallKind::Call && self.came_back(c));
        if let (true, Some(left)) = (comes_back && self.n_stopped == 0, left) {
            (least, most) = (least.max(left.least), most.min(left.most));
        }
        if calls.iter().any(|c| self.may_come_back_twice(c)) {
            (least, most) = (0, u64::MAX);
        }
        Some(Count { n: base.n.clamp(least, most.max(least)), least, most: most.max(least) })
    }

    /// Whether it is one that may.
    pub(super) fn may_come_back_twice(&self, call: &Call) -> bool {
        let name = match call.callee {
            Callee::Function(f) if self.is_doubled.get(f.index()) == Some(&true) => return true,
            Callee::Function(f) => self.program.function(f).import.as_deref(),
            Callee::Import(i) => self.program.imports.get(i as usize).map(|name| &**name),
            Callee::Unknown(_) | Callee::Indirect => None,
        };
        name.is_some_and(|name| libc::does(name, libc::RETURNS_TWICE.with(libc::RETURNS_AGAIN)))
    }

    /// Fits the counts of calls, one a call, to the entries of those that are called, and to each other.
    fn fit(&self, all: &mut [Option<Count>]) {
        let mut of: BTreeMap<FuncId, Vec<usize>> = BTreeMap::new();
        for (i, call) in self.program.calls.iter().enumerate() {
            if let Callee::Function(callee) = call.callee {
                of.entry(callee).or_default().push(i);
            }
        }
        let entered = |f: FuncId| self.entered.get(f.index()).copied().flatten();
        of.retain(|callee, calls| {
            let is_off = |i: &usize| of_call(all, *i).is_some_and(|n| n.between().is_some());
            calls.iter().any(is_off) && entered(*callee).is_some()
        });
        let entry = |f: FuncId| self.program.function(f).entry;
        let referred = references::referred(self.program, &of.keys().map(|f| entry(*f)).collect());
        let callees: Vec<Called> = of
            .into_iter()
            .filter_map(|(callee, calls)| {
                let (at, entered) = (entry(callee), entered(callee)?);
                let is_direct = |site: &Va| calls.iter().any(|i| self.program.calls[*i].at == *site);
                let pointed =
                    self.profile.calls.iter().filter(|((site, to), _)| *to == at && !is_direct(site));
                let pointed = pointed.fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
                let are_known = calls.iter().all(|i| of_call(all, *i).is_some());
                Some(Called {
                    entered,
                    are_all: pointed == 0 && are_known && !referred.contains(&at),
                    pointed,
                    calls,
                })
            })
            .collect();
        // What is sure of one call may make others sure.
        for _ in 0..ROUNDS {
            callees.iter().for_each(|called| self.fit_called(called, all));
            self.fit_behind(all);
        }
        // Of what comes back twice, no more is known than that.
        for (n, call) in all.iter_mut().zip(&self.program.calls) {
            if let Some(n) = n.as_mut().filter(|n| n.most == u64::MAX) {
                n.n = self.count(call.block).map_or(n.least, |block| block.n.max(n.least));
            }
        }
    }

    /// Those of one function together are its entries, or less.
    fn fit_called(&self, called: &Called, all: &mut [Option<Count>]) {
        for &i in &called.calls {
            let Some(own) = of_call(all, i).filter(|n| n.between().is_some()) else { continue };
            let others = called.calls.iter().filter(|other| **other != i);
            let others =
                others.filter_map(|i| of_call(all, *i)).fold(Count::exact(called.pointed), Count::plus);
            let least = match called.are_all {
                true => called.entered.least.saturating_sub(others.most).max(own.least),
                false => own.least,
            };
            // A thread may have made the call, and not have come to the function yet.
            let most = called.entered.most.saturating_add(self.n_stopped).saturating_sub(others.least);
            // More than the block ran, if an earlier call came back twice.
            let most = if least > own.most { most } else { most.min(own.most) };
            if let (true, Some(place)) = (least <= most, all.get_mut(i)) {
                *place = Some(Count { n: own.n.clamp(least, most), least, most });
            }
        }
    }

    /// A call behind one that came back was made as often.
    fn fit_behind(&self, all: &mut [Option<Count>]) {
        let of_block = |a: &Call, b: &Call| a.block == b.block;
        let mut first = 0;
        for calls in self.program.calls.chunk_by(of_block) {
            let own = all.get_mut(first..first + calls.len()).unwrap_or_default();
            first += calls.len();
            if self.n_stopped > 0 || own.iter().flatten().all(|n| n.between().is_none()) {
                continue;
            }
            let is_same = |i: usize| {
                let (Some(one), Some(next)) = (calls.get(i), calls.get(i + 1)) else { return false };
                one.kind == CallKind::Call
                    && matches!(next.kind, CallKind::Call | CallKind::TailCall)
                    && self.came_back(one)
                    && !self.may_come_back_twice(one)
            };
            let n = calls.len().saturating_sub(1);
            for i in (0..n).chain((0..n).rev()).filter(|i| is_same(*i)) {
                let (Some(a), Some(b)) = (of_call(own, i), of_call(own, i + 1)) else { continue };
                let (least, most) = (a.least.max(b.least), a.most.min(b.most));
                if least <= most {
                    for (place, n) in own.iter_mut().skip(i).zip([a, b]) {
                        *place = Some(Count { n: n.n.clamp(least, most), least, most });
                    }
                }
            }
        }
    }
}

/// A function, and what is known of who called it.
struct Called {
    entered: Count,
    /// Its direct calls.
    calls: Vec<usize>,
    /// Indirect calls whose targets are counted.
    pointed: u64,
    /// Whether nothing but the direct calls may lead to it.
    are_all: bool,
}

/// How often what is sure of calls is handed on to others: real chains are short.
const ROUNDS: usize = 4;

fn of_call(all: &[Option<Count>], i: usize) -> Option<Count> {
    all.get(i).copied().flatten()
}

fn n_if(is_it: bool, n: Count) -> Option<Count> {
    is_it.then_some(n)
}
