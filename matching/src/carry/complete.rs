//! The old build's counts, made complete: every block and edge of a function that was measured gets a count.
//!
//! Invariant: exact consistent counts come out as they are; where control leaks (a call that did not come
//! back, or came back twice), the leak is known by block, so that the new build may leak there too. Not here:
//! how the gaps are filled (`infer`).

use crate::carry::infer::{Estimate, Inferred, Problem};
use crate::carry::static_prediction;
use crate::counts::Measured;
use profile::{Exactness, Profile};
use program::{BlockId, EdgeKind, FuncId, Program, Va};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// How much is known of a function's counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Knowledge {
    /// Its blocks were measured.
    Inside,
    /// It was entered, but nothing is known of its inside.
    Entered,
    /// Nothing of it is in the profile.
    Nothing,
}

/// Counts of a whole program, complete where anything is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Complete {
    /// By function.
    pub known: Vec<Knowledge>,
    /// By block.
    pub blocks: Vec<u64>,
    /// By edge.
    pub edges: Vec<u64>,
    /// Control that came into a block from outside its function, by block.
    pub enter: Vec<u64>,
    /// Control that left the function at the end of a block, by block.
    pub leave: Vec<u64>,
    /// Functions that were too large for the exact method.
    pub n_inexact: usize,
}

/// Work that one function may cost before a cheaper method takes over: a second or so.
pub(crate) const WORK: u64 = 100_000_000;

/// Completes the counts of `profile`.
pub(crate) fn complete(program: &Program, profile: &Profile, measured: &Measured) -> Complete {
    let mut called: BTreeMap<u64, u64> = BTreeMap::new();
    for (&(_, to), &count) in &profile.calls {
        let times = called.entry(to.0).or_default();
        *times = times.saturating_add(count);
    }
    let solved: Vec<(Knowledge, Inferred)> = (0..program.functions.len())
        .into_par_iter()
        .map(|f| function(program, FuncId::at(f), profile, measured, &called))
        .collect();
    let mut all = Complete {
        blocks: vec![0; program.blocks.len()],
        edges: vec![0; program.edges.len()],
        enter: vec![0; program.blocks.len()],
        leave: vec![0; program.blocks.len()],
        ..Complete::default()
    };
    for (f, (known, inferred)) in solved.into_iter().enumerate() {
        all.known.push(known);
        all.n_inexact += usize::from(!inferred.optimal);
        all.put(program, FuncId::at(f), &inferred);
    }
    all
}

impl Complete {
    /// Nothing known of `program`.
    pub fn none(program: &Program) -> Complete {
        Complete {
            known: vec![Knowledge::Nothing; program.functions.len()],
            blocks: vec![0; program.blocks.len()],
            edges: vec![0; program.edges.len()],
            enter: vec![0; program.blocks.len()],
            leave: vec![0; program.blocks.len()],
            n_inexact: 0,
        }
    }

    /// Takes over what was inferred for one function.
    pub fn put(&mut self, program: &Program, func: FuncId, inferred: &Inferred) {
        let blocks = program.function(func).blocks.start as usize;
        let edges = program.edge_range(func).start;
        for (to, from) in [
            (&mut self.blocks[blocks..], &inferred.blocks),
            (&mut self.edges[edges..], &inferred.edges),
            (&mut self.enter[blocks..], &inferred.enter),
            (&mut self.leave[blocks..], &inferred.leave),
        ] {
            if let Some(to) = to.get_mut(..from.len()) {
                to.copy_from_slice(from);
            }
        }
    }
}

/// Whether more is known of `func`, of whose edges none was counted, than that its entry ran.
///
/// Instrumentation counts the calls of functions that it leaves alone: what is entered, and then goes
/// nowhere, is not known. Formats that list branches leave out what only falls through.
fn goes_on(program: &Program, func: FuncId, profile: &Profile, measured: &Measured) -> bool {
    let Some(entry) = program.entry_block(func) else { return true };
    let mut at = entry;
    let leaves = |c: &program::Call| {
        c.kind != program::CallKind::Call
            && profile.calls.range((c.at, Va(0))..=(c.at, Va(u64::MAX))).any(|(_, &count)| count > 0)
    };
    loop {
        if program.calls_in(at).iter().any(leaves) {
            return true;
        }
        match program.successors(at) {
            [] => return true,
            // Blocks of a function are by address: falling through only leads on.
            [e] if e.kind == EdgeKind::FallThrough && e.to > at => at = e.to,
            _ => break,
        }
    }
    let beyond =
        |b: BlockId| (b > at || b < entry) && measured.blocks[b.index()].is_some_and(|count| count > 0);
    program.function(func).block_ids().any(beyond)
}

/// The cost of changing a count that was measured.
const MEASURED: u32 = 100;

/// The cost of control that comes from nowhere or goes nowhere in an exact profile: more than to change one
/// count.
const LOST: u32 = MEASURED + MEASURED / 2;

/// Counts that are zero, but for how often the entry block was entered.
fn only_entered(n_blocks: usize, n_edges: usize, entered: Option<(usize, u64)>) -> Inferred {
    let mut zero = Inferred {
        blocks: vec![0; n_blocks],
        edges: vec![0; n_edges],
        enter: vec![0; n_blocks],
        leave: vec![0; n_blocks],
        optimal: true,
    };
    if let Some((b, count)) = entered {
        zero.enter[b] = count;
        zero.blocks[b] = count;
    }
    zero
}

fn function(
    program: &Program,
    func: FuncId,
    profile: &Profile,
    measured: &Measured,
    called: &BTreeMap<u64, u64>,
) -> (Knowledge, Inferred) {
    let function = program.function(func);
    let blocks = function.blocks.start as usize..function.blocks.end as usize;
    let edges = program.edge_range(func);
    let any = |table: &[Option<u64>]| table.iter().any(|c| c.is_some_and(|c| c > 0));
    let calls = called.get(&function.entry.0).copied().unwrap_or(0);
    let exactness = profile.exactness;
    let inside = any(&measured.edges[edges.clone()])
        || any(&measured.blocks[blocks.clone()])
            && (exactness != Exactness::Exact || goes_on(program, func, profile, measured));
    let entered = calls > 0 || any(&measured.entries[blocks.clone()]);
    let said = |table: &[Option<u64>]| table.iter().any(Option::is_some);
    let measured_zero = said(&measured.blocks[blocks.clone()]) || said(&measured.edges[edges.clone()]);
    let known = match (inside, entered) {
        (true, _) => Knowledge::Inside,
        (false, true) if edges.is_empty() => Knowledge::Inside,
        (false, true) => Knowledge::Entered,
        (false, false) if measured_zero => Knowledge::Inside,
        (false, false) => Knowledge::Nothing,
    };
    let n = function.n_blocks();
    if known != Knowledge::Inside || !inside && !entered || n == 0 {
        // Entered, and no more known: its inside stays unknown, static prediction would only invent it.
        let entry = program.entry_block(func).filter(|_| known == Knowledge::Entered);
        let entered =
            entry.map(|b| (b.index() - blocks.start, measured.entries[b.index()].unwrap_or(0).max(calls)));
        return (known, only_entered(n, edges.len(), entered));
    }
    let mut p = Problem::of(program, func, 5);
    if exactness == Exactness::Exact {
        // A jump out by `longjmp` leaves counts that no flow has: where they differ, control was lost, not
        // made up elsewhere.
        for ends in [&mut p.enter, &mut p.leave] {
            for e in ends.iter_mut().filter(|e| e.is_none()) {
                *e = Some(Estimate::unknown(LOST));
            }
        }
    }
    let known_as = |count: u64| Estimate { count, raise: MEASURED, lower: 2 * MEASURED, keep: count > 0 };
    for (i, e) in edges.clone().enumerate() {
        match measured.edges[e] {
            Some(count) => p.edge[i] = Estimate { keep: false, ..known_as(count) },
            // Exact profiles leave out what is zero.
            None if inside && exactness == Exactness::Exact && any(&measured.edges[edges.clone()]) => {
                p.edge[i] = Estimate { count: 0, raise: MEASURED, lower: 0, keep: false };
            }
            None => {}
        }
    }
    for (i, b) in blocks.clone().enumerate() {
        if let Some(count) = measured.blocks[b] {
            p.blocks[i] = known_as(count);
        }
        let mut entries = measured.entries[b];
        if program.block(BlockId::at(b)).start == function.entry && calls > entries.unwrap_or(0) {
            entries = Some(calls);
        }
        if let Some(count) = entries {
            p.enter[i] = Some(Estimate { keep: false, ..known_as(count) });
        }
    }
    if exactness != Exactness::Exact {
        static_prediction::fill(program, func, &mut p);
    }
    (known, p.solve(WORK))
}
