//! `engraft count -p`: processes that run already, counted for a while.

use super::{Args, described_by, fill, keep, left_out, open_store};
use crate::input::{self, Ending, Place};
use crate::output::{self, Answer};
use crate::verbs::attached::{self, Observed, Readies};
use profile::recording::{Recording, Run};
use program::Program;
use session::{
    AttachedRun, Collected, CountedWhile, Done, Instrumentation, ModuleFilter, Placement, Warning,
};
use std::collections::BTreeMap;
use std::path::Path;
use tracing::info_span;

/// Counts the processes that are meant until the time is over, they end, or somebody asks us to end.
pub(super) fn run(args: &Args) -> anyhow::Result<Answer> {
    let programs = args.processes.programs()?;
    let first = programs.first().map_or(0, |program| program.pid());
    let path = programs.first().map_or(Path::new(""), |program| program.path()).to_owned();
    let rec = Place::new(args.o.as_deref(), Ending::Counts, &path)?;
    output::can_be_written(rec.path())?;
    args.output.refuse_unfit(&[rec.path()])?;
    let store = open_store(args.no_cache)?;
    let wanted = ModuleFilter::new(&args.modules);
    let command = attached::command_of(first);
    let asked = Instrumentation { callees: args.callees, ..Instrumentation::new(Placement::Blocks) };
    let ready = attached::made_ready(&store, &wanted, programs, &asked)?;
    let readies = |pid| attached::one_made_ready(&store, &wanted, args.processes.program(pid)?, &asked);
    let follows: Option<Readies<'_, '_>> = if args.follow { Some(&readies) } else { None };
    let Observed { started, took, all, n_missed } =
        attached::observe(ready, (&args.processes, args.how_long), follows, |process, during| {
            let run = AttachedRun::new(process)?;
            during(run.stopped());
            Ok(run.end())
        })?;

    let (mut counted, mut done, mut not_given_back) = (Vec::<CountedWhile<'_>>::new(), Vec::new(), None);
    let (mut profiles, mut threads, mut n_threads, mut warnings) = (Vec::new(), Vec::new(), 0, Vec::new());
    for (one, given) in all {
        let (back, failed) = attached::back(one.attached.pid, given);
        not_given_back = not_given_back.or(failed);
        let n_open = attached::open(&one.attached, &back).iter().sum();
        let collected: Collected = one.collect(args.per_thread, n_open)?;
        profiles.push(collected.profiles);
        threads.extend(collected.threads);
        n_threads += collected.n_threads;
        warnings.extend(
            collected.warnings.into_iter().filter(|warning| !warnings.contains(warning)).collect::<Vec<_>>(),
        );
        done.push(attached::recorded(&one.attached, &back));
        counted.push(one);
    }
    warnings.extend((n_missed > 0).then_some(Warning::Missed { n: n_missed, done: Done::Counted }));
    let is_whole = warnings.is_empty() && done.iter().all(|one| one.left.is_none());
    let recording = Recording {
        run: Some(Run {
            left_out: left_out(&args.modules, counted.first().map_or(&[], CountedWhile::left_out)),
            n_threads: Some(n_threads),
            attached: done,
            ..described_by(command, BTreeMap::new(), (started, took))
        }),
        modules: info_span!("keep code").in_scope(|| CountedWhile::added_up(&counted, profiles)),
        threads,
        ..Recording::default()
    };
    keep(&rec, &recording.write())?;
    warnings.iter().for_each(output::warned);
    if !args.output.is_silent() {
        let kept = recording.modules.iter().filter_map(|module| input::kept_program(&[module]).ok());
        let kept: Vec<Program> = kept.collect();
        let mut view = fill::recorded(rec.path(), recording, &kept);
        view.run = None;
        args.output.print(&view)?;
    }
    match not_given_back {
        Some(failed) => Err(attached::not_given_back(failed, rec.path())),
        None if is_whole => Ok(Answer::Yes),
        None => Ok(Answer::No),
    }
}
