//! Checks everything that a [`Program`] promises, with its bytes decoded anew.
//!
//! The promises, one [`Rule`] each, are the specification of `model`; the analysis keeps them for every file
//! that loads.
//!
//! Invariant: linear in the size of the program; one function is one unit of work; violations come out in one
//! order whatever the number of threads. Nothing here panics, however wrong the tables are.
//!
//! Not here: whether the analysis is *good* (that takes a truth from outside).

mod entries;

use crate::addr::Va;
use crate::arch::PositionDependence;
use crate::arch::{ControlFlow, Decoder, Insn};
use crate::ids::{BlockId, FuncId};
use crate::model::{
    Block, BlockEnd, Call, CallKind, Callee, Edge, EdgeKind, Function, GapReason, JumpTable, Program,
};
use rayon::prelude::*;
use std::fmt;
use std::ops::Range;

/// A promise that a [`Program`] keeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// Functions are sorted by entry, no two have the same; `cut_from` names another function.
    Functions,
    /// A function's ranges are not empty and lie in code; the one with the entry comes first, the others by
    /// address; no byte is in two ranges, of one function or of two.
    Ranges,
    /// Blocks are grouped by function without holes, sorted within it, know their function, lie inside one
    /// range of it, and no byte is in two blocks.
    Blocks,
    /// A block's bytes decode to `n_insns` instructions that end exactly where it ends; `last` is the last of
    /// them; none but the last ends a block, and none is invalid.
    Decode,
    /// Padding is in no block: none ends in a no-operation, unless it is nothing else and something enters it
    /// there.
    Padding,
    /// `end` says what the last instruction does: the table in `end_agrees`.
    End,
    /// Edges are grouped by block without holes, sorted by target and kind, not repeated; kinds and number
    /// follow from the block's end; targets are blocks of the same function; a landing pad is reached from a
    /// block with a call. A fall-through leads to the next instruction that is not padding.
    Edges,
    /// A direct jump or branch to an address in a block of its own function is an edge; into the middle of a
    /// block, a gap.
    Targets,
    /// Calls are sorted by address; each is the call instruction of its block, its last jump out of the
    /// function, or the last instruction before it runs on into the next function; every such instruction has
    /// exactly one, a branch out of the function that runs on as well two, the running on last; kind, callee
    /// and target agree.
    Calls,
    /// A call that does not return ends its block as `NoReturn`, and only such a call does;
    /// nobody returns from a function that does not.
    Returns,
    /// Tables are sorted by address; each jump of a table ends a `Switch` block of the table's function;
    /// its entries within the function and that block's table edges are the same set.
    Tables,
    /// Gaps are sorted by address, not empty, and those of one reason do not overlap; bytes without a
    /// function or undecodable are in no block; `UnresolvedJump` is exactly the last instruction of an
    /// `Unresolved` block, `OpenEnd` that of a `Broken` one or of a branch past which nothing is known, and
    /// every such block has one.
    Gaps,
    /// Every byte of code is in a block, in a gap of bytes without a function or that do not decode, or
    /// padding.
    Covered,
    /// Data objects are sorted by address, not empty, do not overlap, and lie in a segment.
    Data,
    /// `by_address` holds every block once, by start.
    ByAddress,
    /// The main entry starts a block of the function, unless nothing decodes there; further entries are
    /// blocks of the function, by address, without the main one. Each of these is reached from another
    /// function, by a call, or by its address, or the file names it: a function's own jumps make no entry,
    /// wherever they stand.
    Entries,
    /// A `complete` function has blocks, none of which ends `Unresolved`, `Broken`, as an open branch, or
    /// with a jump into the middle of an instruction of the function; any other function has such a block, or
    /// none at all.
    Complete,
    /// `fixed` holds the instructions of blocks that cannot be moved and no other of theirs, `named` every
    /// start of a block whose address one of them takes.
    Moving,
}

/// A broken promise. Prints as one line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Violation {
    /// Where.
    pub at: Va,
    /// Which promise.
    pub rule: Rule,
    /// What was found, with ids and addresses.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.at, self.rule, self.text)
    }
}

/// Collects violations: `check(condition, at, rule, || text)`.
#[derive(Default)]
struct Report(Vec<Violation>);

impl Report {
    fn check(&mut self, holds: bool, at: Va, rule: Rule, text: impl FnOnce() -> String) -> bool {
        if !holds {
            self.0.push(Violation { at, rule, text: text() });
        }
        holds
    }
}

impl Program {
    /// The promises that this program breaks: none, unless we made a mistake. Sorted by address.
    pub fn verify(&self) -> Vec<Violation> {
        let mut report = Report::default();
        // Ids first: what follows indexes by them.
        if self.check_ids(&mut report) {
            self.check_order(&mut report);
            let jumps = self.jumps_of_tables();
            let parts: Vec<Vec<Violation>> = (0..self.functions.len())
                .into_par_iter()
                .map(|i| {
                    let mut report = Report::default();
                    self.check_function(FuncId::at(i), &jumps, &mut report);
                    report.0
                })
                .collect();
            report.0.extend(parts.into_iter().flatten());
            self.check_entries(&mut report);
            self.check_tables(&mut report);
            self.check_gaps(&mut report);
            self.check_covered(&mut report);
            self.check_data(&mut report);
        }
        report.0.sort();
        report.0
    }

    /// Whether all ids are in range, so that looking them up cannot panic.
    fn check_ids(&self, report: &mut Report) -> bool {
        let (n_funcs, n_blocks, n_edges) = (self.functions.len(), self.blocks.len(), self.edges.len());
        let before = report.0.len();
        let mut next = 0;
        for (i, f) in self.functions.iter().enumerate() {
            let dense = f.blocks.start == next && f.blocks.end >= next && f.blocks.end as usize <= n_blocks;
            report.check(dense, f.entry, Rule::Blocks, || {
                format!("fn{i} has blocks {:?}, the one before ended at bb{next}", f.blocks)
            });
            next = f.blocks.end.max(next);
            report.check(
                f.cut_from.is_none_or(|c| c.index() < n_funcs && c.index() != i),
                f.entry,
                Rule::Functions,
                || format!("fn{i} is cut from {:?} of {n_funcs}", f.cut_from),
            );
            for e in &f.entries {
                report.check(f.blocks.contains(&e.0), f.entry, Rule::Entries, || {
                    format!("fn{i} has entry {e}, which is none of its blocks {:?}", f.blocks)
                });
            }
        }
        report.check(next as usize == n_blocks, Va(0), Rule::Blocks, || {
            format!("the last function ends at bb{next} of {n_blocks}")
        });
        let mut edge = 0;
        for (i, b) in self.blocks.iter().enumerate() {
            let dense =
                b.first_edge.0 >= edge && b.first_edge.index() <= n_edges && (i > 0 || b.first_edge.0 == 0);
            report.check(dense, b.start, Rule::Edges, || {
                format!("bb{i} starts at {} of {n_edges}, the one before at e{edge}", b.first_edge)
            });
            edge = edge.max(b.first_edge.0);
            let owned =
                b.func.index() < n_funcs && self.functions[b.func.index()].blocks.contains(&BlockId::at(i).0);
            report.check(owned, b.start, Rule::Blocks, || format!("bb{i} says it is of {}", b.func));
        }
        report.check(n_blocks > 0 || n_edges == 0, Va(0), Rule::Edges, || {
            format!("{n_edges} edges without a block")
        });
        for (i, e) in self.edges.iter().enumerate() {
            let known = e.from.index() < n_blocks && e.to.index() < n_blocks;
            report.check(known, Va(0), Rule::Edges, || {
                format!("e{i} from {} to {} of {n_blocks}", e.from, e.to)
            });
        }
        for c in &self.calls {
            let callee = match c.callee {
                Callee::Function(f) => f.index() < n_funcs,
                Callee::Import(i) => (i as usize) < self.imports.len(),
                Callee::Unknown(_) | Callee::Indirect => true,
            };
            report.check(callee && c.block.index() < n_blocks, c.at, Rule::Calls, || {
                format!("the call is in {} of {n_blocks} and its callee is {:?}", c.block, c.callee)
            });
        }
        for t in &self.tables {
            report.check(t.func.index() < n_funcs, t.at, Rule::Tables, || {
                format!("the table is of {}", t.func)
            });
        }
        let mut seen = vec![false; n_blocks];
        for b in &self.by_address {
            let fresh = seen.get_mut(b.index()).is_some_and(|s| !std::mem::replace(s, true));
            report
                .check(fresh, Va(0), Rule::ByAddress, || format!("{b} of {n_blocks} is unknown or repeated"));
        }
        report.check(self.by_address.len() == n_blocks, Va(0), Rule::ByAddress, || {
            format!("{} of {n_blocks} blocks", self.by_address.len())
        });
        report.0.len() == before
    }

    /// Global orders and overlaps.
    fn check_order(&self, report: &mut Report) {
        for (i, pair) in self.functions.windows(2).enumerate() {
            report.check(pair[0].entry < pair[1].entry, pair[1].entry, Rule::Functions, || {
                format!("fn{} stands after fn{i} at {}", i + 1, pair[0].entry)
            });
        }
        let mut ranges: Vec<_> = self
            .functions
            .iter()
            .enumerate()
            .flat_map(|(i, f)| f.ranges.iter().map(move |r| (r.start, r.end, i)))
            .collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let ((a, a_end, f), (b, _, g)) = (pair[0], pair[1]);
            report.check(a_end <= b, b, Rule::Ranges, || {
                format!("fn{g} starts a range in {a}..{a_end} of fn{f}")
            });
        }
        for pair in self.by_address.windows(2) {
            let (a, b) = (self.block(pair[0]), self.block(pair[1]));
            report.check(a.start < b.start, b.start, Rule::ByAddress, || {
                format!("{} stands after {} at {}", pair[1], pair[0], a.start)
            });
            report.check(a.end_va() <= b.start, b.start, Rule::Blocks, || {
                format!("{} starts in {} at {}..{}", pair[1], pair[0], a.start, a.end_va())
            });
        }
        for pair in self.calls.windows(2) {
            let key = |c: &Call| (c.at, c.kind == CallKind::FallThrough);
            report.check(key(&pair[0]) < key(&pair[1]), pair[1].at, Rule::Calls, || {
                format!("the call stands after the one at {}", pair[0].at)
            });
        }
        for c in &self.calls {
            report.check(self.block(c.block).range().contains(&c.at), c.at, Rule::Calls, || {
                format!("the call is said to be in {} at {}", c.block, self.block(c.block).start)
            });
        }
    }

    /// Jumps with the table they use, sorted.
    fn jumps_of_tables(&self) -> Vec<(Va, usize)> {
        let mut jumps: Vec<_> =
            self.tables.iter().enumerate().flat_map(|(i, t)| t.jumps.iter().map(move |&j| (j, i))).collect();
        jumps.sort_unstable();
        jumps
    }

    fn check_function(&self, id: FuncId, jumps: &[(Va, usize)], report: &mut Report) {
        let f = self.function(id);
        let at = f.entry;
        for r in &f.ranges {
            let code = r.start < r.end && self.image.bytes_in(r).is_some() && self.image.is_code(r.start);
            report.check(code, r.start, Rule::Ranges, || {
                format!("{id} has {}..{}, which is no code", r.start, r.end)
            });
        }
        let first = f.ranges.first().is_some_and(|r| r.contains(&f.entry));
        report.check(first, at, Rule::Ranges, || format!("{id}'s first range does not hold its entry"));
        let sorted = f.ranges.get(1..).unwrap_or_default().is_sorted_by_key(|r| r.start);
        report.check(sorted, at, Rule::Ranges, || format!("{id}'s further ranges are not sorted"));

        let blocks = &self.blocks[f.blocks.start as usize..f.blocks.end as usize];
        let entry = blocks.binary_search_by_key(&at, |b| b.start).is_ok();
        let decodes = || {
            // An instruction that the range cuts off is none of the function's.
            let end = f.ranges.first().map_or(at, |r| r.end);
            let first = self.image.bytes_in(&(at..end)).and_then(|bytes| Decoder::new(bytes, at).next());
            first.is_some_and(|insn| insn.flow() != ControlFlow::Invalid)
        };
        report.check(entry || !decodes(), at, Rule::Entries, || format!("{id} has no block at its entry"));
        let sorted =
            f.entries.is_sorted_by(|a, b| a < b) && f.entries.iter().all(|&e| self.block(e).start != at);
        report.check(sorted, at, Rule::Entries, || format!("{id}'s further entries are {:?}", f.entries));

        // Blocks that something enters other than by falling into them.
        let mut entered = vec![false; blocks.len()];
        for b in f.block_ids() {
            for e in self.successors(b) {
                if e.kind != EdgeKind::FallThrough && f.blocks.contains(&e.to.0) {
                    entered[(e.to.0 - f.blocks.start) as usize] = true;
                }
            }
        }
        for &e in &f.entries {
            entered[(e.0 - f.blocks.start) as usize] = true;
        }
        let mut complete = true;
        for (i, b) in f.block_ids().enumerate() {
            let block = self.block(b);
            if let Some(next) = blocks.get(i + 1) {
                report.check(block.start < next.start, next.start, Rule::Blocks, || {
                    format!("the block after {b} at {} is not after it", block.start)
                });
            }
            let inside = f.ranges.iter().any(|r| r.start <= block.start && block.end_va() <= r.end);
            report.check(inside && block.len_bytes > 0, block.start, Rule::Blocks, || {
                format!("{b} of {} bytes is in no range of {id}", block.len_bytes)
            });
            let missed = || {
                let to = self
                    .insns(b)
                    .last()
                    .and_then(|insn| insn.flow().target())
                    .map(|to| self.led_to(to))
                    .and_then(|to| self.block_at(to).map(|t| (t, to)));
                to.is_some_and(|(t, to)| self.block(t).func == id && self.block(t).start != to)
            };
            let stuck = block.end == BlockEnd::Unresolved
                || self.is_open(b)
                || matches!(block.end, BlockEnd::Jump | BlockEnd::Branch) && missed();
            complete &= !stuck;
            report.check(!f.complete || !stuck, block.start, Rule::Complete, || {
                format!("{b} ends {:?}, but {id} is called complete", block.end)
            });
            self.check_block(b, entered[i] || block.landing_pad || block.start == at, jumps, report);
        }
        report.check(f.complete || !complete || blocks.is_empty(), at, Rule::Complete, || {
            format!("{id} is called incomplete, but all its blocks end well")
        });
        report.check(!f.complete || !blocks.is_empty(), at, Rule::Complete, || {
            format!("{id} is called complete, but has no blocks")
        });
    }

    fn check_block(&self, id: BlockId, entered: bool, jumps: &[(Va, usize)], report: &mut Report) {
        let block = self.block(id);
        let func = self.function(block.func);
        let calls = self.calls_in(id);
        let Some(bytes) = self.image.bytes_in(&block.range()) else {
            report.check(false, block.start, Rule::Decode, || format!("{id} has no bytes in the file"));
            return;
        };
        let (mut n, mut last, mut only_nops, mut next_call) = (0u32, None::<Insn>, true, 0);
        let mut decoder = Decoder::new(bytes, block.start);
        while let Some(insn) = decoder.next() {
            let own = usize::try_from(insn.at().since(block.start)).ok().and_then(|from| bytes.get(from..));
            let position =
                decoder.position_of(&insn, own.and_then(|b| b.get(..insn.len_bytes())).unwrap_or_default());
            self.check_moving(&insn, position, report);
            if let Some(before) = &last {
                report.check(!before.flow().ends_block(), before.at(), Rule::Decode, || {
                    format!("{before} does not end {id}")
                });
            }
            report.check(insn.flow() != ControlFlow::Invalid, insn.at(), Rule::Decode, || {
                format!("{id} holds no instruction here")
            });
            let here = calls.get(next_call).filter(|c| c.at == insn.at());
            next_call += usize::from(here.is_some());
            self.check_call(id, &insn, here, report);
            if let Some(second) = calls.get(next_call).filter(|c| c.at == insn.at()) {
                next_call += 1;
                self.check_call(id, &insn, Some(second), report);
            }
            only_nops &= insn.is_nop();
            n += 1;
            last = Some(insn);
        }
        report.check(next_call == calls.len(), block.start, Rule::Calls, || {
            format!("{} of {} calls in {id} are at its instructions", next_call, calls.len())
        });
        let Some(last) = last else { return };
        let exact = last.end() == block.end_va() && last.at() == block.last_insn() && n == block.n_insns;
        report.check(exact, block.start, Rule::Decode, || {
            format!(
                "{id} says {} instructions, the last at {}, end at {}; got {n}, {}, {}",
                block.n_insns,
                block.last_insn(),
                block.end_va(),
                last.at(),
                last.end()
            )
        });
        let padding = last.is_nop() && !(only_nops && entered);
        report.check(!padding, block.start, Rule::Padding, || format!("{id} ends in {last}"));
        let agrees = end_agrees(block.end, last.flow());
        report.check(agrees, last.at(), Rule::End, || format!("{id} ends {:?} with {last}", block.end));
        let mut at_last = calls.iter().rev().filter(|c| c.at == last.at()).peekable();
        let on = at_last.next_if(|c| c.kind == CallKind::FallThrough).is_some();
        let left = at_last.next();
        let silent = left.is_some_and(|c| c.kind == CallKind::Call && !c.returns);
        report.check(silent == (block.end == BlockEnd::NoReturn), last.at(), Rule::Returns, || {
            format!("{id} ends {:?} with {last}, whose call is {left:?}", block.end)
        });
        for c in calls.iter().filter(|c| c.at != last.at()) {
            report.check(c.returns, c.at, Rule::Returns, || {
                format!("this call does not return, but {id} goes on")
            });
        }
        self.check_edges(id, block, func, &last, (left, on), report);
        if block.end == BlockEnd::Switch {
            let from = jumps.partition_point(|j| j.0 < last.at());
            let to = jumps.partition_point(|j| j.0 <= last.at());
            self.check_switch(id, &last, &jumps[from..to], report);
        }
    }

    /// Checks what the lists for moving code say of `insn`.
    fn check_moving(&self, insn: &Insn, position: PositionDependence, report: &mut Report) {
        let is_listed = self.fixed.binary_search(&insn.at()).is_ok();
        report.check(is_listed == (position == PositionDependence::Fixed), insn.at(), Rule::Moving, || {
            format!("{insn} is {position:?}; listed: {is_listed}")
        });
        let targets = insn.refers_to(!self.image.kind.is_relocated()).into_iter().flatten();
        for (to, _) in
            targets.filter(|(to, size)| *size == 0 && !insn.is_nop() && self.block_from(*to).is_some())
        {
            report.check(self.named.binary_search(&to).is_ok(), insn.at(), Rule::Moving, || {
                format!("{insn} takes the address {to}, which is not listed")
            });
        }
    }

    /// `call` is what the table says of `insn`.
    fn check_call(&self, id: BlockId, insn: &Insn, call: Option<&Call>, report: &mut Report) {
        let is_call = matches!(insn.flow(), ControlFlow::Call(_) | ControlFlow::CallIndirect);
        let Some(call) = call else {
            report.check(!is_call, insn.at(), Rule::Calls, || format!("{insn} in {id} is in no table"));
            return;
        };
        let kind = match insn.flow() {
            ControlFlow::Call(_) | ControlFlow::CallIndirect => call.kind == CallKind::Call,
            ControlFlow::Jump(_) | ControlFlow::JumpIndirect => call.kind == CallKind::TailCall,
            ControlFlow::Branch(_) => matches!(call.kind, CallKind::BranchTailCall | CallKind::FallThrough),
            ControlFlow::Next => call.kind == CallKind::FallThrough,
            _ => false,
        };
        report.check(kind && call.block == id, insn.at(), Rule::Calls, || {
            format!("{insn} in {id} is said to be a {:?} in {}", call.kind, call.block)
        });
        let callee = match (call.callee, insn.flow().target()) {
            (Callee::Function(f), _) if call.kind == CallKind::FallThrough => {
                let f = self.function(f);
                let others = f.entries.iter().map(|&e| self.block(e).start);
                let mut entries = [f.entry].into_iter().chain(others);
                insn.at() == self.block(id).last_insn() && entries.any(|to| self.falls_to(insn.end(), to))
            }
            _ if call.kind == CallKind::FallThrough => false,
            (Callee::Function(f), Some(to)) => {
                let f = self.function(f);
                f.entry == to || f.entries.iter().any(|&e| self.block(e).start == to)
            }
            (Callee::Unknown(va), Some(to)) => va == to && self.block_from(to).is_none(),
            // A call through a slot may be resolved to an import, or to the function whose address stands
            // there.
            (Callee::Import(_) | Callee::Indirect | Callee::Function(_), None) => true,
            _ => false,
        };
        report.check(callee, insn.at(), Rule::Calls, || {
            format!("{insn} in {id} is said to call {:?}", call.callee)
        });
        if let Callee::Function(f) = call.callee {
            report.check(self.function(f).returns || !call.returns, insn.at(), Rule::Returns, || {
                format!("{insn} in {id} is said to return from {f}, which does not")
            });
        }
    }

    fn check_edges(
        &self,
        id: BlockId,
        block: &Block,
        func: &Function,
        last: &Insn,
        (left, on): (Option<&Call>, bool),
        report: &mut Report,
    ) {
        let edges = self.successors(id);
        let at = last.at();
        let sorted = edges.is_sorted_by(|a, b| (a.to, a.kind) < (b.to, b.kind));
        report.check(sorted, at, Rule::Edges, || format!("the edges of {id} are not sorted: {edges:?}"));
        let mut by_kind = [0usize; 5];
        for e in edges {
            by_kind[e.kind as usize] += 1;
            report.check(e.from == id && func.blocks.contains(&e.to.0), at, Rule::Edges, || {
                format!("{e:?} is listed with {id} of {}", block.func)
            });
            let to = self.block(e.to);
            let right = match e.kind {
                EdgeKind::FallThrough => self.falls_to(block.end_va(), to.start),
                EdgeKind::Jump | EdgeKind::Taken => {
                    last.flow().target().map(|to| self.led_to(to)) == Some(to.start)
                }
                EdgeKind::Table => true,
                EdgeKind::LandingPad => {
                    to.landing_pad && self.calls_in(id).iter().any(|c| c.kind == CallKind::Call)
                }
            };
            report.check(right, at, Rule::Edges, || {
                format!("{last} at the end of {id} does not lead to {} at {} by {:?}", e.to, to.start, e.kind)
            });
        }
        let [falls, jumps, taken, table, _pads] = by_kind;
        let (on, out) = (usize::from(on), usize::from(left.is_some()));
        let number = match block.end {
            BlockEnd::FallThrough => (falls + on, jumps, taken, table) == (1, 0, 0, 0),
            // Where a target is in the middle of an instruction, no edge and no call: a gap, and
            // `check_target` asks for it.
            BlockEnd::Jump => (falls, taken, table) == (0, 0, 0) && jumps + out <= 1,
            BlockEnd::Branch => (jumps, table) == (0, 0) && taken + out <= 1 && falls + on <= 1,
            BlockEnd::Switch => falls + jumps + taken == 0 && table > 0 && out == 0,
            BlockEnd::IndirectTailCall => falls + jumps + taken + table == 0 && out == 1,
            BlockEnd::Unresolved | BlockEnd::Return | BlockEnd::Stop => {
                falls + jumps + taken + table == 0 && out == 0
            }
            BlockEnd::NoReturn => falls + jumps + taken + table == 0 && out == 1,
            BlockEnd::Broken => jumps + taken + table == 0,
        } && (on == 0 || matches!(block.end, BlockEnd::FallThrough | BlockEnd::Branch));
        report.check(number, at, Rule::Edges, || {
            format!("{id} ends {:?} with {last}, {out} calls there and {edges:?}", block.end)
        });
        if block.end == BlockEnd::Branch && falls + on == 0 {
            // The code ends here, or goes on with bytes that are none.
            let broken = self.next_block_after(block, func).is_none();
            report.check(broken, at, Rule::Edges, || format!("{id} does not fall through after {last}"));
        }
        if let (BlockEnd::Jump | BlockEnd::Branch, Some(to)) = (block.end, last.flow().target()) {
            let kind = if block.end == BlockEnd::Jump { EdgeKind::Jump } else { EdgeKind::Taken };
            self.check_target(id, last, to, edges, kind, left, report);
        }
    }

    /// Whether control can run off the end of the block into what is not known.
    fn is_open(&self, id: BlockId) -> bool {
        let block = self.block(id);
        let on = || {
            let falls = self.successors(id).iter().any(|e| e.kind == EdgeKind::FallThrough);
            falls || self.calls_in(id).last().is_some_and(|c| c.kind == CallKind::FallThrough)
        };
        block.end == BlockEnd::Broken || block.end == BlockEnd::Branch && !on()
    }

    /// The block of `func` that starts where control falls after `block`.
    fn next_block_after(&self, block: &Block, func: &Function) -> Option<BlockId> {
        let i = self.by_address.partition_point(|&b| self.block(b).start < block.end_va());
        let next = *self.by_address.get(i)?;
        let same = func.blocks.contains(&next.0) && self.falls_to(block.end_va(), self.block(next).start);
        same.then_some(next)
    }

    #[expect(clippy::too_many_arguments, reason = "one block's parts, taken apart once by the caller")]
    fn check_target(
        &self,
        id: BlockId,
        last: &Insn,
        to: Va,
        edges: &[Edge],
        kind: EdgeKind,
        left: Option<&Call>,
        report: &mut Report,
    ) {
        let func = self.block(id).func;
        let to = self.led_to(to);
        let has_edge = edges.iter().any(|e| e.kind == kind && self.block(e.to).start == to);
        let holds = match self.block_at(to) {
            Some(b) if self.block(b).start == to && self.block(b).func == func => has_edge && left.is_none(),
            Some(b) if self.block(b).func == func => left.is_none() && self.gap_holds(to, GapReason::Overlap),
            _ => left.is_some() || self.gaps_at(to),
        };
        report.check(holds, last.at(), Rule::Targets, || {
            format!("{last} at the end of {id} of {func} is neither edge, call nor gap")
        });
    }

    /// Whether nothing but padding lies between.
    fn falls_to(&self, end: Va, start: Va) -> bool {
        if end >= start {
            return end == start;
        }
        let bytes = self.image.bytes_in(&(end..start)).unwrap_or_default();
        !bytes.is_empty() && Decoder::new(bytes, end).all(|insn| insn.is_nop())
    }

    fn gaps_at(&self, at: Va) -> bool {
        // Gaps of different reasons may overlap, but only a few do: look back over those that start just
        // before.
        let to = self.gaps.partition_point(|g| g.range.start <= at);
        self.gaps[..to].iter().rev().take(8).any(|g| g.range.contains(&at))
    }

    fn gap_holds(&self, at: Va, reason: GapReason) -> bool {
        let to = self.gaps.partition_point(|g| g.range.start <= at);
        self.gaps[..to].iter().rev().take(8).any(|g| g.reason == reason && g.range.contains(&at))
    }

    fn check_switch(&self, id: BlockId, last: &Insn, jumps: &[(Va, usize)], report: &mut Report) {
        report.check(!jumps.is_empty(), last.at(), Rule::Tables, || {
            format!("{id} is a switch without a table")
        });
        let mut want: Vec<Va> =
            jumps.iter().flat_map(|&(_, i)| self.tables[i].targets.iter().copied()).collect();
        want.sort_unstable();
        want.dedup();
        // Entries for what cannot happen may lead out of the function, one past its end for one.
        want.retain(|&to| self.block_at(to).is_some_and(|b| self.block(b).func == self.block(id).func));
        let edges = self.successors(id).iter().filter(|e| e.kind == EdgeKind::Table);
        let mut got: Vec<Va> = edges.map(|e| self.block(e.to).start).collect();
        got.sort_unstable();
        report.check(got == want, last.at(), Rule::Tables, || {
            format!("{id} has table edges to {got:?}, its tables lead to {want:?}")
        });
    }

    fn check_tables(&self, report: &mut Report) {
        for pair in self.tables.windows(2) {
            let key = |t: &JumpTable| (t.at, t.func, t.anchor);
            let sorted = key(&pair[0]) < key(&pair[1]);
            report.check(sorted, pair[1].at, Rule::Tables, || {
                format!("it stands after the table at {}", pair[0].at)
            });
        }
        for t in &self.tables {
            let JumpTable { at, func, entry_len, .. } = *t;
            report.check(
                matches!(entry_len, 1 | 2 | 4 | 8) && !t.targets.is_empty(),
                at,
                Rule::Tables,
                || format!("{} entries of {entry_len} bytes", t.targets.len()),
            );
            report.check(!t.jumps.is_empty(), at, Rule::Tables, || "no jump uses it".to_string());
            for &jump in &t.jumps {
                let ends_switch = self
                    .block_at(jump)
                    .map(|b| self.block(b))
                    .is_some_and(|b| b.func == func && b.last_insn() == jump && b.end == BlockEnd::Switch);
                report.check(ends_switch, at, Rule::Tables, || {
                    format!("the jump at {jump} does not end a switch block of {func}")
                });
            }
        }
    }

    fn check_gaps(&self, report: &mut Report) {
        const REASONS: usize = GapReason::Overlap as usize + 1;
        let mut end_of = [Va(0); REASONS];
        let mut start = Va(0);
        let mut stuck = Vec::new();
        for g in &self.gaps {
            let (a, b) = (g.range.start, g.range.end);
            report.check(a < b && start <= a, a, Rule::Gaps, || format!("{a}..{b} after a gap at {start}"));
            start = start.max(a);
            let end = &mut end_of[g.reason as usize];
            report.check(*end <= a, a, Rule::Gaps, || {
                format!("{:?} {a}..{b} overlaps one that ends at {end}", g.reason)
            });
            *end = b.max(*end);
            match g.reason {
                GapReason::NoFunction | GapReason::NotCode => {
                    let i = self.by_address.partition_point(|&x| self.block(x).end_va() <= a);
                    let inside = self.by_address.get(i).filter(|&&x| self.block(x).start < b);
                    report.check(inside.is_none(), a, Rule::Gaps, || {
                        format!("{:?} {a}..{b} overlaps {}", g.reason, inside.copied().unwrap_or(BlockId(0)))
                    });
                }
                GapReason::UnresolvedJump | GapReason::OpenEnd => {
                    let right = self.block_at(a).is_some_and(|id| {
                        let x = self.block(id);
                        let stuck = match g.reason {
                            GapReason::OpenEnd => self.is_open(id),
                            _ => x.end == BlockEnd::Unresolved,
                        };
                        stuck && x.last_insn() == a && x.end_va() == b
                    });
                    report.check(right, a, Rule::Gaps, || {
                        format!("{a}..{b} is not the end of a block that ends so: {:?}", g.reason)
                    });
                    stuck.push(a);
                }
                GapReason::Overlap => {}
            }
        }
        for (i, b) in self.blocks.iter().enumerate() {
            let listed = || stuck.binary_search(&b.last_insn()).is_ok();
            let ends_well = b.end != BlockEnd::Unresolved && !self.is_open(BlockId::at(i));
            report.check(ends_well || listed(), b.last_insn(), Rule::Gaps, || {
                format!("bb{i} ends {:?} here, which is in no gap", b.end)
            });
        }
    }

    fn check_covered(&self, report: &mut Report) {
        let gaps =
            self.gaps.iter().filter(|g| matches!(g.reason, GapReason::NoFunction | GapReason::NotCode));
        let blocks = self.by_address.iter().map(|&b| self.block(b).range());
        let stubs = self.image.plt.iter().filter(|s| s.is_linkers()).map(|s| s.range.clone());
        let mut held: Vec<Range<Va>> = blocks.chain(gaps.map(|g| g.range.clone())).chain(stubs).collect();
        held.sort_unstable_by_key(|r| (r.start, r.end));
        let mut next = 0;
        let mut at = Va(0);
        for run in self.image.code_ranges() {
            at = at.max(run.start);
            while at < run.end {
                let holds = held.get(next).filter(|r| r.start < run.end);
                let end = holds.map_or(run.end, |r| r.start);
                report.check(at >= end || self.is_padding(&(at..end)), at, Rule::Covered, || {
                    format!("{at}..{end} is in no block and no gap, and is no padding")
                });
                match holds {
                    Some(r) => (at, next) = (at.max(r.end), next + 1),
                    None => break,
                }
            }
        }
    }

    fn is_padding(&self, range: &Range<Va>) -> bool {
        let Some(bytes) = self.image.bytes_in(range) else { return false };
        bytes.iter().all(|&b| b == 0) || Decoder::new(bytes, range.start).all(|insn| insn.is_padding())
    }

    fn check_data(&self, report: &mut Report) {
        let mut end = Va(0);
        for d in &self.data {
            let (a, b) = (d.range.start, d.range.end);
            report.check(a < b && end <= a, a, Rule::Data, || {
                format!("{a}..{b} after an object that ends at {end}")
            });
            end = end.max(b);
            let loaded = self.image.segment_at(a).is_some_and(|s| b <= s.range.end);
            report.check(loaded, a, Rule::Data, || format!("{a}..{b} is in no segment"));
        }
    }
}

/// What each end means for the last instruction.
fn end_agrees(end: BlockEnd, flow: ControlFlow) -> bool {
    match end {
        BlockEnd::FallThrough => {
            matches!(flow, ControlFlow::Next | ControlFlow::Call(_) | ControlFlow::CallIndirect)
        }
        BlockEnd::Jump => matches!(flow, ControlFlow::Jump(_)),
        BlockEnd::Branch => matches!(flow, ControlFlow::Branch(_)),
        BlockEnd::Switch | BlockEnd::IndirectTailCall | BlockEnd::Unresolved => {
            flow == ControlFlow::JumpIndirect
        }
        BlockEnd::Return => flow == ControlFlow::Return,
        BlockEnd::NoReturn => matches!(flow, ControlFlow::Call(_) | ControlFlow::CallIndirect),
        BlockEnd::Stop => flow == ControlFlow::Stop,
        // Bytes that do not decode follow, or none at all.
        BlockEnd::Broken => flow.falls_through(),
    }
}

#[cfg(test)]
mod tests;
