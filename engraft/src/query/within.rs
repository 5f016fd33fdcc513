//! `engraft query --between`: what occurs in a window of time.

use super::{Args, failed, unreadable};
use crate::out::Hinted;
use std::str::FromStr;
use trace::{Found, Position, Scheme, Thread, Times, Trace, Want};

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

/// The symbols of each thread in the window: from an index on, before another.
fn ranges(args: &Args, trace: &Trace, window: Window) -> anyhow::Result<Vec<(Thread, u64, u64)>> {
    let read = |err| unreadable(&args.trace, err);
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
    let threads = trace.threads().map_err(read)?;
    Ok(threads.into_iter().filter_map(|of| range(&times, of)).collect())
}

/// Searches a window; an occurrence is in it if its last block is.
pub fn search(
    args: &Args,
    trace: &Trace,
    path: &trace::Path,
    want: Want,
    scheme: Option<Scheme>,
    window: Window,
) -> anyhow::Result<(Found, Scheme)> {
    let ranges = ranges(args, trace, window)?;
    let ask = |want| trace.search_path(path, want, scheme).map_err(|err| failed(&args.trace, err));
    // Of a recording, each question is a pass over all of it.
    if trace.is_recording()
        || !matches!(want, Want::Count | Want::First | Want::CountAndFirst | Want::PerThread)
    {
        let (all, used) = ask(Want::All)?;
        let is_in = |p: &Position| {
            ranges.iter().any(|(of, start, end)| of.thread == p.thread && (*start..*end).contains(&p.index))
        };
        return Ok((wanted(all.all.into_iter().filter(is_in).collect(), want), used));
    }
    let mut found = Found::default();
    let mut used = None;
    for (of, start, end) in ranges {
        let at = |index| Position { thread: of.thread, index };
        let mut before = |index| {
            let (found, scheme) = ask(Want::CountBefore(at(index)))?;
            used = Some(scheme);
            anyhow::Ok(found.count)
        };
        let n = before(end)?.saturating_sub(before(start)?);
        found.count = found.count.saturating_add(n);
        if n > 0 && want == Want::PerThread {
            found.threads.push((of.thread, n));
        }
        if n > 0 && found.first.is_none() && matches!(want, Want::First | Want::CountAndFirst) {
            // A stream starts with an entry, so an occurrence is never its first symbol.
            found.first = ask(Want::Next(at(start.saturating_sub(1))))?.0.first;
            if want == Want::First {
                break;
            }
        }
    }
    let used = used.or(scheme).unwrap_or(Scheme::Segments);
    Ok((found, used))
}

/// What is wanted of all occurrences.
fn wanted(all: Vec<Position>, want: Want) -> Found {
    let mut found = Found { count: all.len() as u64, first: all.first().copied(), ..Found::default() };
    match want {
        Want::All => found.all = all,
        Want::Nth(n) => {
            let nth = usize::try_from(n - 1).ok().and_then(|n| all.get(n)).copied();
            found.first = nth;
            found.count = nth.map_or(found.count, |_| n);
        }
        Want::PerThread => {
            for p in all {
                match found.threads.last_mut().filter(|(last, _)| *last == p.thread) {
                    Some((_, n)) => *n += 1,
                    None => found.threads.push((p.thread, 1)),
                }
            }
        }
        _ => {}
    }
    found
}
