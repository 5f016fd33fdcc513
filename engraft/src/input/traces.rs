//! Traces, opened.

use super::read::{file, spelt};
use crate::output::{self, Hinted};
use std::num::NonZeroUsize;
use std::path::Path;
use trace::{Thread, Trace};
use views::many;

/// Opens a trace.
pub fn open(path: &Path) -> anyhow::Result<Trace> {
    let trace = Trace::open(file(path)?).map_err(|err| unreadable(path, err))?;
    if let (Some(at), Some(err)) = (trace.cut(), trace.ends_before_symbols()) {
        if trace.is_empty().map_err(|err| unreadable(path, err))? {
            return Err(without_events(path, &err));
        }
        let how = if trace.is_damaged() { "damaged" } else { "cut off" };
        let what = format!("{} is {how} at byte {at:#x}", path.display());
        output::warn(&what, Some("what was complete before that is used"));
    }
    if trace.n_behind() > 0 {
        let n = many(usize::try_from(trace.n_behind()).unwrap_or(usize::MAX), "byte");
        let what = format!("{}: {n} behind its end are no part of it, and not read", path.display());
        output::warn(&what, Some("if several traces were put into one file, keep each in a file of its own"));
    }
    Ok(trace)
}

/// Says why nothing is known of a run whose recorder was killed early.
fn without_events(path: &Path, err: &trace::ReadError) -> anyhow::Error {
    let hint = "perhaps `engraft trace` was killed before a thread had filled its first 512 KB of events, which are written then, or when the program ends\n\
        record it again; to end it early, send SIGINT or SIGTERM to `engraft trace`, which passes them on: all is written then";
    Hinted::new(format!("{}: {err}", spelt(path)), hint).into()
}

/// Says which file it was, and what a trace is.
pub fn unreadable(path: &Path, err: trace::ReadError) -> anyhow::Error {
    let cause = std::error::Error::source(&err).map_or_else(String::new, |cause| format!(": {cause}"));
    let hint = match err {
        trace::ReadError::Version { .. } => "use the engraft that wrote it, or record again",
        trace::ReadError::Damaged { .. } | trace::ReadError::Cut { .. } | trace::ReadError::Broken { .. } => {
            "record it or convert it again"
        }
        _ => "a trace is what `engraft trace` or `engraft convert` wrote",
    };
    Hinted::new(format!("{}: {err}{cause}", spelt(path)), hint).into()
}

/// The n-th thread, from 1.
pub fn nth(path: &Path, trace: &Trace, n: NonZeroUsize) -> anyhow::Result<Thread> {
    let threads = trace.threads().map_err(|err| unreadable(path, err))?;
    threads.get(n.get() - 1).copied().ok_or_else(|| {
        let what = format!("{} has {}, no {n}", path.display(), many(threads.len(), "thread"));
        Hinted::new(what, "they are counted from 1 here; `engraft query` numbers them from 0").into()
    })
}

/// Says so if events of the trace at `path` did not fit what is known of the code, as far as they were read.
pub fn warn_of_faults(path: &Path, trace: &Trace) {
    let faults = trace.faults();
    let times = |n| if n == 1 { "once".to_owned() } else { format!("{n} times") };
    let path = path.display();
    if faults.n_astray > 0 {
        let n = times(faults.n_astray);
        let what =
            format!("{path}: {n} control was not where its events led: what is told near there may be wrong");
        output::warn(&what, Some("record all of the run, if this is a part of it"));
    }
    if faults.n_lost > 0 {
        let n = times(faults.n_lost);
        let what = format!("{path}: {n} an event had no meaning: what is told near there may be wrong");
        output::warn(&what, Some("record the run again: what was read may be damaged, or part of a trace"));
    }
}
