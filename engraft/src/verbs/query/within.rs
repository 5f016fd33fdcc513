//! `engraft query --between` and `--thread`: what occurs in a window of time, or in one thread.

use super::{Args, failed, positions};
use crate::input::unreadable;
use crate::output::Hinted;
use std::str::FromStr;
use trace::{Found, Scheme, Thread, ThreadId, Times, Trace, Want};

/// `A..B`: seconds from the start of the recording, from A on, before B.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Window {
    start_ns: u64,
    end_ns: u64,
}

impl FromStr for Window {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Window, Self::Err> {
        const FORM: &str = "a window is A..B: seconds from the start of the recording, as in 0.5..1.2";
        let ns = |text: &str| {
            let seconds: f64 = text.parse().ok()?;
            let is_one = seconds.is_finite() && (0.0..1e9).contains(&seconds);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was checked")]
            is_one.then(|| (seconds * 1e9).round() as u64)
        };
        let (start, end) = text.split_once("..").ok_or(FORM)?;
        let window = ns(start).zip(ns(end)).map(|(start_ns, end_ns)| Window { start_ns, end_ns });
        window.filter(|w| w.start_ns < w.end_ns).ok_or(FORM)
    }
}

/// The symbols of each thread that are meant, in the window: from an index on, before another.
fn ranges(args: &Args, trace: &Trace) -> anyhow::Result<Vec<(Thread, u64, u64)>> {
    let read = |err| unreadable(&args.trace, err);
    let threads = match args.thread {
        Some(_) => vec![positions::thread(&args.trace, trace, args.thread.map(ThreadId))?],
        None => trace.threads().map_err(read)?,
    };
    let Some(window) = args.between else {
        return Ok(threads.into_iter().map(|of| (of, 0, of.n_symbols)).collect());
    };
    let Some(times) = trace.times().map_err(read)? else {
        let what = format!("{} has no times", args.trace.display());
        return Err(Hinted::new(what, "recordings of `engraft trace` have times, plain traces do not").into());
    };
    if times.end_ns() < window.start_ns {
        #[expect(clippy::cast_precision_loss, reason = "for reading")]
        let end = times.end_ns() as f64 / 1e9;
        let what = format!("{} ends before that", args.trace.display());
        return Err(Hinted::new(what, format!("it has {end:.6} seconds")).into());
    }
    let range = |times: &Times, of: Thread| {
        let start = times.index_at(of.thread, window.start_ns)?.min(of.n_symbols);
        let end = times.index_at(of.thread, window.end_ns)?.min(of.n_symbols);
        (start < end).then_some((of, start, end))
    };
    Ok(threads.into_iter().filter_map(|of| range(&times, of)).collect())
}

/// Searches the thread and the window that are asked for; an occurrence is in them if its last block is.
pub fn search(
    args: &Args,
    trace: &Trace,
    path: &trace::Path,
    want: Want,
    scheme: Option<Scheme>,
) -> anyhow::Result<(Found, Scheme)> {
    let ranges = ranges(args, trace)?;
    let of = |(of, start, end): &(Thread, u64, u64)| (of.thread, *start..*end);
    let ranges = ranges.iter().map(of).collect();
    let found = trace.search_within(path, want, scheme, &ranges);
    found.map_err(|err| failed(&args.trace, err))
}
