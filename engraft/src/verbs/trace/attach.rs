//! `engraft trace -p`: a process that runs already, recorded for a while.

use super::{Recording, instrumentation, place, refuse_none, report, say_forecast, window};
use crate::output::{self, Answer, Hinted};
use crate::verbs::attached::{self, Observed};
use crate::verbs::count::open_store;
use session::{Instrumented, ModuleFilter, RecordedWhile, RunningError};
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use trace::recording::module_code::ModuleCode;
use trace::recording::recorder::Recorder;
use trace::recording::tail::Tail;

/// Records the process that is meant until the time is over, it ends, or somebody asks us to end.
pub(super) fn record(args: &Recording) -> anyhow::Result<Answer> {
    let programs = args.processes.programs()?;
    if programs.len() > 1 {
        let what = format!("a trace is of one process, not of {}", programs.len());
        return Err(Hinted::new(what, "give one: -p PID; `engraft count` takes several").into());
    }
    let path = programs.first().map_or(Path::new(""), |program| program.path()).to_owned();
    let place = place(args, &path)?;
    let to = place.path();
    let store = open_store(args.no_cache)?;
    let wanted = ModuleFilter::new(&args.modules);
    let asked = instrumentation(args, &wanted);
    let ready = attached::made_ready(&store, &wanted, programs, &asked)?;
    let codes: Vec<ModuleCode> =
        ready.iter().flat_map(|one| one.modules()).filter_map(Instrumented::meaning).collect();
    refuse_none(args, &codes)?;
    // When it ends, it is taken out: from when that counts, the window does not know.
    let how_long = args.lasts.map(|lasts| lasts + args.after.unwrap_or(Duration::ZERO));
    let window = window(args, &codes, None)?;
    if let Some(which) = args.switch {
        live::keep_signal(which);
    }
    place.make_room();
    let recorder = output::create(to, |file| Recorder::new(file, &codes, window, args.last.map(Tail::new)))?;
    let recorder = Mutex::new(Some(recorder));
    let observed = attached::observe(ready, (&args.processes, how_long), None, |process, during| {
        let recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner).take();
        let recorder: Recorder<File> = recorder.ok_or(RunningError::Busy)?;
        RecordedWhile::new(process, recorder, say_forecast, during)
    });
    let Observed { all, .. } = observed.inspect_err(|_| place.give_up())?;
    let mut answer = Answer::Yes;
    for one in all {
        let name = path.file_name().unwrap_or(OsStr::new("the process"));
        let attached = one.attached.clone();
        let (recorded, given) = one.finish(name);
        let (back, failed) = attached::back(attached.pid, given);
        let done = attached::recorded(&attached, &back);
        let is_whole = recorded.warnings.is_empty() && done.left.is_none();
        let is_written = report(args, to, recorded, None, None, attached::view([&done]))?;
        if let Some(failed) = failed {
            return Err(attached::not_given_back(failed, to));
        }
        if !(is_whole && is_written) {
            answer = Answer::No;
        }
    }
    Ok(answer)
}
