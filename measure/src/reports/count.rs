//! How much of a program ran, function by function, and what of it has no counts.

use super::loops::{self, LoopRun};
use probe::NotMoved;
use profile::calls::Cuts;
use profile::flow::{self, Padding};
use profile::{Profile, calls};
use program::{Callee, FuncId, Program, Va};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// What ran of a program.
#[derive(Clone, Debug)]
pub struct ProgramRun {
    /// How many instructions ran.
    pub instructions: u64,
    /// Blocks that ran.
    pub blocks_run: usize,
    /// Functions that ran, in order.
    pub functions: Vec<FunctionRun>,
    /// Loops that ran, by function and nesting.
    pub loops: Vec<LoopRun>,
    /// What ran, and has no counts: padding first, then functions, each in order.
    pub uncounted: Vec<Uncounted>,
    /// Functions without counts that no counted code calls: whether they ran, by indirect calls, is not
    /// known. With why they were not moved.
    pub unknown: Vec<(FuncId, NotMoved)>,
}

/// A function that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionRun {
    /// Which one.
    pub func: FuncId,
    /// How many of its instructions ran, those of padding too where that is sure.
    pub instructions: u64,
}

/// What ran of a function, and has no counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uncounted {
    /// Of which function.
    pub func: FuncId,
    /// Why it has none.
    pub why: WhyUncounted,
    /// Calls from counted code: it may have run more often.
    pub calls: u64,
    /// At least so many.
    pub instructions: u64,
}

/// Why something that ran has no counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyUncounted {
    /// It is padding behind branches that were not taken. The function around it has counts.
    Padding,
    /// The function was not moved.
    NotMoved(NotMoved),
    /// The function could be moved, but none of its blocks has a count.
    NoBlock,
}

/// What `profile`, which is of `program`, says of it.
pub fn run(profile: &Profile, program: &Program) -> ProgramRun {
    let count = |b| profile.blocks.get(&program.block(b).start).copied();
    let mut found = ProgramRun {
        instructions: 0,
        blocks_run: 0,
        functions: Vec::new(),
        loops: Vec::new(),
        uncounted: Vec::new(),
        unknown: Vec::new(),
    };
    let cuts = Cuts::of(profile, program);
    let ids: Vec<FuncId> = program.func_ids().collect();
    let padding: Vec<_> = ids.into_par_iter().map(|id| padding(profile, program, id)).collect();
    for (func, (padding, missed)) in program.func_ids().zip(padding) {
        let function = program.function(func);
        if missed > 0 {
            found.uncounted.push(Uncounted {
                func,
                why: WhyUncounted::Padding,
                calls: 0,
                instructions: missed,
            });
        }
        let ran = |b| match count(b) {
            None | Some(0) => 0,
            Some(n) => cuts.instructions(program, b, n),
        };
        let instructions = function.block_ids().map(ran).fold(padding, u64::saturating_add);
        found.blocks_run += function.block_ids().filter(|&b| count(b).is_some_and(|n| n > 0)).count();
        found.instructions = found.instructions.saturating_add(instructions);
        if instructions > 0 {
            found.functions.push(FunctionRun { func, instructions });
        }
    }
    found.loops = loops::runs(program, profile, &cuts);
    add_uncounted(&mut found, profile, program);
    found
}

/// How many instructions ran.
pub fn instructions(profile: &Profile, program: &Program) -> u64 {
    let cuts = Cuts::of(profile, program);
    let ran = |at: Va, n| program.block_from(at).map_or(0, |b| cuts.instructions(program, b, n));
    let own = profile.blocks.that_ran().fold(0u64, |sum, (at, n)| sum.saturating_add(ran(at, n)));
    program.func_ids().fold(own, |sum, id| sum.saturating_add(padding(profile, program, id).0))
}

/// How many instructions of padding ran in `id` behind branches that were not taken: where that is sure, and
/// where it is not.
pub(super) fn padding(profile: &Profile, program: &Program, id: FuncId) -> (u64, u64) {
    let (mut sure, mut other) = (0u64, 0u64);
    for (block, padding) in flow::padding(program, id, profile) {
        let (sum, n) = match padding {
            Padding::Sure(n) => (&mut sure, n),
            Padding::Follows(n) => (&mut other, n),
        };
        let len = program.n_insns_in(&program.padding_behind(block));
        *sum = sum.saturating_add(n.saturating_mul(len));
    }
    (sure, other)
}

/// Functions without counts: those that counted code calls, and those that only pointers can have led to.
fn add_uncounted(found: &mut ProgramRun, profile: &Profile, program: &Program) {
    let mut calls: BTreeMap<FuncId, u64> = BTreeMap::new();
    for call in &program.calls {
        if let (Callee::Function(callee), Some(n)) =
            (call.callee, profile.blocks.get(&program.block(call.block).start))
            && *n > 0
        {
            let sum = calls.entry(callee).or_default();
            *sum = sum.saturating_add(*n);
        }
    }
    let is_counted = |id| is_counted(profile, program, id);
    calls.retain(|id, _| !is_counted(*id));
    for id in sure_to_have_run(profile, program) {
        calls.entry(id).or_insert(0);
    }
    if profile.blocks.is_empty() {
        calls.extend(program.func_ids().map(|id| (id, 0)));
    }
    let not_moved = probe::Module::not_moved(program);
    let others = program.func_ids().zip(&not_moved).filter_map(|(id, why)| Some((id, (*why)?)));
    let is_left = |(id, why): &(FuncId, NotMoved)| {
        *why != NotMoved::PltStub && !calls.contains_key(id) && !is_counted(*id)
    };
    found.unknown.extend(others.filter(is_left));
    for (func, calls) in calls {
        let first = program.entry_block(func).map_or(1, |b| program.block(b).n_insns);
        let why = not_moved.get(func.index()).copied().flatten();
        found.uncounted.push(Uncounted {
            func,
            why: why.map_or(WhyUncounted::NoBlock, WhyUncounted::NotMoved),
            calls,
            instructions: calls.max(1).saturating_mul(u64::from(first)),
        });
    }
}

fn is_counted(profile: &Profile, program: &Program, id: FuncId) -> bool {
    program.function(id).block_ids().any(|b| profile.blocks.contains_key(&program.block(b).start))
}

/// Functions without counts that are sure to have run, though no counted code calls them: they alone call a
/// function that was entered more often than counted code called it. So it is of `main`, which the C library
/// calls.
pub fn sure_to_have_run(profile: &Profile, program: &Program) -> BTreeSet<FuncId> {
    // By function that was entered: how often counted code called it at most, and who else does.
    let mut callers: BTreeMap<FuncId, (u64, BTreeSet<FuncId>)> = BTreeMap::new();
    for call in &program.calls {
        let Callee::Function(callee) = call.callee else { continue };
        let was_entered = profile.entered(program.function(callee).entry).is_some_and(|n| n.least > 0);
        if !was_entered || !program.function(callee).entries.is_empty() {
            continue;
        }
        let block = program.block(call.block);
        let (counted, others) = callers.entry(callee).or_default();
        match profile.block(block.start) {
            Some(n) => *counted = counted.saturating_add(n.most),
            None => {
                others.insert(block.func);
            }
        }
    }
    callers.retain(|callee, (counted, others)| {
        let entered = profile.entered(program.function(*callee).entry);
        let is_uncounted = |id: &FuncId| !is_counted(profile, program, *id);
        others.len() == 1 && others.iter().all(is_uncounted) && entered.is_some_and(|n| n.least > *counted)
    });
    let entry = |id: FuncId| program.function(id).entry;
    let referred = calls::referred(program, &callers.keys().map(|id| entry(*id)).collect());
    callers.retain(|callee, _| !referred.contains(&entry(*callee)));
    callers.into_values().flat_map(|(_, others)| others).collect()
}
