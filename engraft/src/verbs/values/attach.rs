//! `engraft values -p`: processes that run already, whose values are recorded for a while.

use super::{Args, all_asked, instrumentation, log, place, report};
use crate::output::{Answer, Hinted};
use crate::verbs::attached::{self, Observed, Readies};
use crate::verbs::count::{described_by, open_store};
use profile::recording::Run;
use session::{Done, MeasuredWhile, ModuleFilter, RunningError, Taking, Warning};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Records values of the processes that are meant until the time is over, they end, or somebody asks us to
/// end.
pub(super) fn run(args: &Args) -> anyhow::Result<Answer> {
    let programs = args.processes.programs()?;
    if args.full && programs.len() > 1 {
        let what = format!("a log is of one process, not of {}", programs.len());
        return Err(Hinted::new(what, "give one, or leave out --full").into());
    }
    let path = programs.first().map_or(Path::new(""), |program| program.path()).to_owned();
    let command = attached::command_of(programs.first().map_or(0, |program| program.pid()));
    let (asked, condition) = all_asked(args, &path)?;
    let rec = place(args, &path)?;
    let store = open_store(args.no_cache)?;
    let wanted = ModuleFilter::new(&args.modules);
    let ready = attached::made_ready(&store, &wanted, programs, &instrumentation(&asked))?;
    let taking = Taking::new(&store, &asked)?.with_condition(condition.clone());
    let rows = Mutex::new(log(args, &asked, &rec)?);
    let to_observe = instrumentation(&asked);
    let readies = |pid| attached::one_made_ready(&store, &wanted, args.processes.program(pid)?, &to_observe);
    let follows: Option<Readies<'_, '_>> = if args.follow { Some(&readies) } else { None };
    let observed = attached::observe(ready, (&args.processes, args.how_long), follows, |process, during| {
        let rows = rows.lock().unwrap_or_else(PoisonError::into_inner).take();
        MeasuredWhile::new(process, taking.clone(), rows, during)
    });
    let Observed { started, took, all, n_missed } = observed.inspect_err(|_| {
        if args.full {
            rec.give_up();
        }
    })?;

    let name = path.file_name().unwrap_or(OsStr::new("the process"));
    let (mut done, mut not_given_back, mut modules) = (Vec::new(), None, Vec::new());
    let mut sum = None;
    for one in all {
        let attached = one.attached.clone();
        modules.extend(one.modules().into_iter().filter(|path| !modules.contains(path)).collect::<Vec<_>>());
        let (measured, given) = one.finish(name);
        let (back, failed) = attached::back(attached.pid, given);
        not_given_back = not_given_back.or(failed);
        done.push(attached::recorded(&attached, &back));
        match &mut sum {
            None => sum = Some(measured),
            Some(sum) => sum.add(measured)?,
        }
    }
    let Some(mut measured) = sum else { return Err(RunningError::Busy.into()) };
    measured.warnings.extend((n_missed > 0).then_some(Warning::Missed { n: n_missed, done: Done::Recorded }));
    let is_whole = measured.warnings.is_empty() && done.iter().all(|one| one.left.is_none());
    let run = Run { attached: done, ..described_by(command, BTreeMap::new(), (started, took)) };
    report(args, &rec, (&asked, condition.as_ref()), (run, modules, took), measured)?;
    match not_given_back {
        Some(failed) => Err(attached::not_given_back(failed, rec.path())),
        None if is_whole => Ok(Answer::Yes),
        None => Ok(Answer::No),
    }
}
