//! Where a run's executions went: functions, loops, and what was not counted.

use crate::input;
use measure::loops::{self, LoopRun};
use probe::NotMoved;
use profile::flow::{self, Padding};
use profile::{Count, Profile};
use program::{Callee, FuncId, Program, Va};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use views::count::{
    CountView, FunctionView, LoopView, ModuleView, PADDING, ThreadView, UncountedView, UnknownView,
};
use views::{Between, ratio};

/// Of `profiles`, those whose image is among `programs`.
pub fn view(
    rec: &Path,
    profiles: &[Profile],
    per_thread: &[Vec<Profile>],
    programs: &[Program],
    threads: Option<u64>,
) -> CountView {
    let mut view = CountView {
        schema: CountView::SCHEMA,
        recording: rec.display().to_string(),
        threads,
        stopped: profiles.iter().map(|p| p.intervals.n_stopped).max().unwrap_or(0),
        instructions: 0,
        counted_share: 1.0,
        modules: Vec::new(),
        functions: Vec::new(),
        loops: Vec::new(),
        uncounted: Vec::new(),
        unknown: Vec::new(),
        per_thread: Vec::new(),
        repeated: None,
        points: Vec::new(),
    };
    for profile in profiles {
        if let Some(program) = programs.iter().find(|p| Some(p.image.id) == profile.image.id) {
            add(&mut view, profile, program);
        }
    }
    let total = view.instructions;
    for (n, thread) in (1..).zip(per_thread) {
        let of = |p: &Profile| {
            let program = programs.iter().find(|program| Some(program.image.id) == p.image.id);
            program.map_or(0, |program| instructions(p, program))
        };
        let instructions = thread.iter().map(of).fold(0, u64::saturating_add);
        view.per_thread.push(ThreadView { thread: n, instructions, share: ratio(instructions, total) });
    }
    view.functions.iter_mut().for_each(|f| f.share = ratio(f.instructions, total));
    view.loops.iter_mut().for_each(|l| l.share = Some(ratio(l.instructions, total)));
    let missed: u64 = view.uncounted.iter().map(|u| u.instructions).sum();
    view.counted_share = ratio(total, total.saturating_add(missed));
    view.functions.sort_by(|a, b| {
        b.instructions.cmp(&a.instructions).then_with(|| (&a.module, a.at).cmp(&(&b.module, b.at)))
    });
    view.loops.sort_by(|a, b| {
        b.instructions.cmp(&a.instructions).then_with(|| (&a.module, a.at).cmp(&(&b.module, b.at)))
    });
    view.uncounted.sort_by(|a, b| {
        b.instructions.cmp(&a.instructions).then_with(|| (&a.module, a.at).cmp(&(&b.module, b.at)))
    });
    view
}

/// A loop of `program` that ran.
pub fn loop_view(run: &LoopRun, module: String, program: &Program) -> LoopView {
    let between = |n: Option<Count>| n.and_then(Count::between);
    // How often it went round each time is no number if it may not have been entered.
    let entered = run.entries.filter(|n| n.least > 0);
    let rounds = run.iterations;
    let trips = entered.map(|n| (ratio(rounds.least, n.most), ratio(rounds.most, n.least)));
    let is_off = rounds.between().is_some() || between(run.entries).is_some();
    LoopView {
        module,
        function: input::spelt(program, run.func),
        at: program.block(run.header).start.0,
        depth: run.depth,
        iterations: rounds.n,
        entries: run.entries.map(|n| n.n),
        trips: entered.map(|n| ratio(rounds.n, n.n)),
        exits: run.exits.map(|n| n.n),
        iterations_between: rounds.between(),
        entries_between: between(run.entries),
        trips_between: trips.filter(|_| is_off),
        exits_between: between(run.exits),
        instructions: run.instructions,
        share: None,
    }
}

/// How many instructions ran.
fn instructions(profile: &Profile, program: &Program) -> u64 {
    let len = |at: Va| program.block_from(at).map_or(0, |b| program.n_insns_run(b));
    let own = profile.blocks.iter().filter(|(_, n)| **n > 0);
    let own = own.fold(0u64, |sum, (&at, &n)| sum.saturating_add(n.saturating_mul(len(at))));
    program.func_ids().fold(own, |sum, id| sum.saturating_add(padding(profile, program, id).0))
}

/// How many instructions of padding ran in `id` behind branches that were not taken: where that is sure, and
/// where it is not.
fn padding(profile: &Profile, program: &Program, id: FuncId) -> (u64, u64) {
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

/// Adds what `profile` says of `program`.
fn add(view: &mut CountView, profile: &Profile, program: &Program) {
    let path = profile.image.name.clone();
    let file = input::file_name(&path);
    let mut module = ModuleView { path, instructions: 0, blocks_run: 0, blocks: profile.blocks.len() };
    let count = |b| profile.blocks.get(&program.block(b).start).copied();
    let ids: Vec<FuncId> = program.func_ids().collect();
    let padding: Vec<_> = ids.into_par_iter().map(|id| padding(profile, program, id)).collect();
    for (id, (padding, missed)) in program.func_ids().zip(padding) {
        let function = program.function(id);
        if missed > 0 {
            view.uncounted.push(UncountedView {
                module: file.clone(),
                name: input::spelt(program, id),
                at: function.entry.0,
                why: PADDING.to_owned(),
                calls: 0,
                instructions: missed,
            });
        }
        let ran = |b| match count(b) {
            None | Some(0) => 0,
            Some(n) => n.saturating_mul(program.n_insns_run(b)),
        };
        let instructions = function.block_ids().map(ran).fold(padding, u64::saturating_add);
        module.blocks_run += function.block_ids().filter(|&b| count(b).is_some_and(|n| n > 0)).count();
        module.instructions = module.instructions.saturating_add(instructions);
        if instructions > 0 {
            view.functions.push(FunctionView {
                module: file.clone(),
                name: input::spelt(program, id),
                at: function.entry.0,
                entries: profile.entries.get(&function.entry).copied(),
                between: Between::of(profile.intervals.entries.get(&function.entry)),
                instructions,
                share: 0.0,
            });
        }
    }
    for run in loops::runs(program, profile) {
        view.loops.push(loop_view(&run, file.clone(), program));
    }
    add_uncounted(view, &file, profile, program);
    view.instructions = view.instructions.saturating_add(module.instructions);
    view.modules.push(module);
}

/// Functions without counts: those that counted code calls, and those that only pointers can have led to.
fn add_uncounted(view: &mut CountView, file: &str, profile: &Profile, program: &Program) {
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
    let is_counted =
        |id| program.function(id).block_ids().any(|b| profile.blocks.contains_key(&program.block(b).start));
    calls.retain(|id, _| !is_counted(*id));
    if profile.blocks.is_empty() {
        calls.extend(program.func_ids().map(|id| (id, 0)));
    }
    let not_moved = probe::Module::not_moved(program);
    let others = program.func_ids().zip(&not_moved).filter_map(|(id, why)| Some((id, (*why)?)));
    let is_left = |(id, why): &(FuncId, NotMoved)| {
        *why != NotMoved::PltStub && !calls.contains_key(id) && !is_counted(*id)
    };
    view.unknown.extend(others.filter(is_left).map(|(id, why)| UnknownView {
        module: file.to_owned(),
        name: input::spelt(program, id),
        at: program.function(id).entry.0,
        why: why.to_string(),
    }));
    for (id, n) in calls {
        let function = program.function(id);
        let first = program.entry_block(id).map_or(1, |b| program.block(b).n_insns);
        let why = not_moved.get(id.index()).copied().flatten();
        view.uncounted.push(UncountedView {
            module: file.to_owned(),
            name: input::spelt(program, id),
            at: function.entry.0,
            why: why.map_or_else(|| "no block of it".to_owned(), |why| why.to_string()),
            calls: n,
            instructions: n.saturating_mul(u64::from(first)),
        });
    }
}
