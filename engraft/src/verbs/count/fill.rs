//! Where a run's executions went: functions, loops, and what was not counted.

use crate::input;
use crate::verbs::attached;
use measure::loops::LoopRun;
use measure::reports::count::{self, WhyUncounted};
use profile::recording::{Died, End, LeftOut, Machine, Others, Recording, Run};
use profile::{Count, Profile};
use program::Program;
use std::path::Path;
use std::time::{Duration, SystemTime};
use views::count::{
    CountView, FunctionView, LeftOutView, LoopView, MachineView, ModuleView, OthersView, PADDING, RunView,
    ThreadView, UncountedView, UnknownView,
};
use views::{Between, DeathView, ratio};

/// All that `recording`, which is `rec`, says of what is among `programs`.
pub fn recorded(rec: &Path, recording: Recording, programs: &[Program]) -> CountView {
    let Recording { run, modules, threads, .. } = recording;
    let profiles: Vec<Profile> = modules.into_iter().map(|module| module.profile).collect();
    let n_threads = run.as_ref().and_then(|run| run.n_threads);
    let mut view = view(rec, &profiles, &threads, programs, n_threads);
    view.died = run.as_ref().and_then(|run| run.died.as_ref()).map(death_view);
    let own =
        |LeftOut { module, option }: &LeftOut| LeftOutView { module: module.clone(), option: option.clone() };
    view.left_out = run.iter().flat_map(|run| &run.left_out).map(own).collect();
    let others = run.as_ref().and_then(|run| run.others);
    view.others = others.map(|Others { n, is_least, share }| OthersView { n, is_least, share });
    view.attach = attached::view(run.iter().flat_map(|run| &run.attached));
    view.run = run.as_ref().map(run_view);
    view
}

/// Where a run died, for its recording.
pub fn died(view: &DeathView) -> Died {
    let DeathView { signal, name, module, at, function, offset, file, line } = view.clone();
    Died { signal, name, module, at, function, offset, file, line }
}

fn death_view(died: &Died) -> DeathView {
    let Died { signal, name, module, at, function, offset, file, line } = died.clone();
    DeathView { signal, name, module, at, function, offset, file, line }
}

/// Of `profiles`, those whose image is among `programs`.
fn view(
    rec: &Path,
    profiles: &[Profile],
    per_thread: &[Vec<Profile>],
    programs: &[Program],
    threads: Option<u64>,
) -> CountView {
    let mut view = CountView {
        schema: CountView::SCHEMA,
        run: None,
        recording: rec.display().to_string(),
        threads,
        stopped: profiles.iter().map(|p| p.intervals.n_stopped).max().unwrap_or(0),
        died: None,
        instructions: 0,
        counted_share: 1.0,
        modules: Vec::new(),
        functions: Vec::new(),
        loops: Vec::new(),
        uncounted: Vec::new(),
        unknown: Vec::new(),
        left_out: Vec::new(),
        others: None,
        per_thread: Vec::new(),
        repeated: None,
        attach: attached::view([]),
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
            program.map_or(0, |program| count::instructions(p, program))
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

/// Which run a recording is of.
pub fn run_view(run: &Run) -> RunView {
    // The format has no more digits for years: such a time is of no honest file.
    let latest = Duration::from_secs(253_402_300_799);
    let start = SystemTime::UNIX_EPOCH + Duration::from_nanos(run.start_ns).min(latest);
    let Machine { host, kernel, cpu, n_cpus } = run.machine.clone();
    RunView {
        command: run.command.clone(),
        environment: run.environment.clone(),
        start: humantime::format_rfc3339_seconds(start).to_string(),
        seconds: run.duration().as_secs_f64(),
        exit_status: run.end.and_then(|end| if let End::Exit(n) = end { Some(n) } else { None }),
        signal: run.end.and_then(|end| if let End::Signal(n) = end { Some(n) } else { None }),
        machine: MachineView { host, kernel, cpu, n_cpus },
        version: run.version.clone(),
    }
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

/// Adds what `profile` says of `program`.
fn add(view: &mut CountView, profile: &Profile, program: &Program) {
    let path = profile.image.name.clone();
    let file = input::file_name(&path);
    let run = count::run(profile, program);
    view.functions.extend(run.functions.iter().map(|ran| {
        let entry = program.function(ran.func).entry;
        FunctionView {
            module: file.clone(),
            name: input::spelt(program, ran.func),
            at: entry.0,
            entries: profile.entries.get(&entry).copied(),
            between: Between::of(profile.intervals.entries.get(&entry)),
            instructions: ran.instructions,
            share: 0.0,
            inclusive: None,
        }
    }));
    view.loops.extend(run.loops.iter().map(|ran| loop_view(ran, file.clone(), program)));
    view.unknown.extend(run.unknown.iter().map(|&(id, why)| UnknownView {
        module: file.clone(),
        name: input::spelt(program, id),
        at: program.function(id).entry.0,
        why: why.to_string(),
    }));
    view.uncounted.extend(run.uncounted.iter().map(|missed| UncountedView {
        module: file.clone(),
        name: input::spelt(program, missed.func),
        at: program.function(missed.func).entry.0,
        why: match missed.why {
            WhyUncounted::Padding => PADDING.to_owned(),
            WhyUncounted::NotMoved(why) => why.to_string(),
            WhyUncounted::NoBlock => "no block of it".to_owned(),
        },
        calls: missed.calls,
        instructions: missed.instructions,
    }));
    view.instructions = view.instructions.saturating_add(run.instructions);
    view.modules.push(ModuleView {
        path,
        instructions: run.instructions,
        blocks_run: run.blocks_run,
        blocks: profile.blocks.len(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_has_a_text() {
        let start = |start_ns| run_view(&Run { start_ns, ..Run::default() }).start;
        assert_eq!(start(0), "1970-01-01T00:00:00Z");
        // As GNU date prints the second 1764040423.
        assert_eq!(start(1_764_040_423_999_999_999), "2025-11-25T03:13:43Z");
        assert!(start(u64::MAX).starts_with("2554-"));
    }
}
