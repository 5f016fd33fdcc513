//! Positions in a trace, as users give them.

use crate::input::unreadable;
use crate::output::Hinted;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use trace::{Position, Thread, ThreadId, Trace};

/// `INDEX`, or `THREAD:INDEX`.
#[derive(Clone, Copy, Debug)]
pub struct PositionArg {
    thread: Option<ThreadId>,
    index: u64,
}

impl FromStr for PositionArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<PositionArg, Self::Err> {
        // As it is printed, too.
        let (thread, index) = match text.split_once([':', ' ']) {
            Some((thread, index)) => (Some(thread.parse().map(ThreadId)), index),
            None => (None, text),
        };
        let at = index.parse().ok().zip(thread.transpose().ok());
        at.map(|(index, thread)| PositionArg { thread, index })
            .ok_or("a position is INDEX or THREAD:INDEX, as --first prints it")
    }
}

impl PositionArg {
    /// The position, which must be in the trace.
    pub fn of(self, path: &Path, trace: &Trace) -> anyhow::Result<Position> {
        let of = thread(path, trace, self.thread)?;
        if self.index < of.n_symbols {
            return Ok(Position { thread: of.thread, index: self.index });
        }
        let last = of.n_symbols.saturating_sub(1);
        let what = format!("thread {} has no symbol {}", of.thread.0, self.index);
        Err(Hinted::new(what, format!("its symbols are numbered from 0 to {last}")).into())
    }
}

/// `I..J`: symbols from I on, before J; `I..`, to the end; `..J`, from the start.
#[derive(Clone, Copy, Debug)]
pub struct RangeArg {
    start: Start,
    /// None: the end of the stream.
    end: Option<u64>,
}

/// Where a range of symbols starts.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// At this one.
    At(u64),
    /// So many before its end, or at the first.
    Before(u64),
}

impl FromStr for RangeArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<RangeArg, Self::Err> {
        let index = |text: &str, left_out: Option<u64>| match text {
            "" => Some(left_out),
            text => text.parse().ok().map(Some),
        };
        let ends = text.split_once("..").and_then(|(i, j)| index(i, Some(0))?.zip(Some(index(j, None)?)));
        let span = ends.filter(|(start, end)| end.is_none_or(|end| *start < end));
        span.map(|(start, end)| RangeArg { start: Start::At(start), end })
            .ok_or("a range is I..J: the symbols from I on, before J, as in 0..20; I.. and ..J are open")
    }
}

impl RangeArg {
    /// The last `n` symbols.
    pub fn last(n: u64) -> RangeArg {
        RangeArg { start: Start::Before(n), end: None }
    }

    /// The range, which must be in the stream of the thread.
    pub fn of(
        self,
        path: &Path,
        trace: &Trace,
        asked: Option<ThreadId>,
    ) -> anyhow::Result<(Thread, Range<u64>)> {
        let of = thread(path, trace, asked)?;
        let end = self.end.unwrap_or(of.n_symbols);
        let start = match self.start {
            Start::At(start) => start,
            Start::Before(n) => end.saturating_sub(n),
        };
        if end <= of.n_symbols && start <= end {
            return Ok((of, start..end));
        }
        let asked = self.end.map_or_else(String::new, |end| end.to_string());
        let verb = if end > of.n_symbols { "ends" } else { "starts" };
        let what = format!("{start}..{asked} {verb} behind thread {}", of.thread.0);
        let nearest = start.min(of.n_symbols.saturating_sub(1));
        Err(Hinted::new(what, format!("it has {} symbols: say {nearest}..{}", of.n_symbols, of.n_symbols))
            .into())
    }
}

/// The thread of this number; the only one if none is named.
pub fn thread(path: &Path, trace: &Trace, asked: Option<ThreadId>) -> anyhow::Result<Thread> {
    let threads = trace.threads().map_err(|err| unreadable(path, err))?;
    let numbers: Vec<_> = threads.iter().take(8).map(|t| t.thread.0.to_string()).collect();
    let numbers = numbers.join(", ") + if threads.len() > 8 { ", …" } else { "" };
    match (asked, threads.as_slice()) {
        (None, [only]) => Ok(*only),
        (None, _) => {
            let what = format!("{} has {} threads: which is meant", path.display(), threads.len());
            Err(Hinted::new(
                what,
                format!(
                    "say THREAD:INDEX, or --thread with --at; the threads are {numbers}, numbered from 0"
                ),
            )
            .into())
        }
        (Some(asked), _) => match threads.iter().find(|t| t.thread == asked) {
            Some(found) => Ok(*found),
            None => {
                let nearest = threads.iter().min_by_key(|t| t.thread.0.abs_diff(asked.0));
                let nearest =
                    nearest.map_or_else(String::new, |t| format!("; the nearest is {}", t.thread.0));
                let what = format!("{} has no thread {}", path.display(), asked.0);
                Err(Hinted::new(what, format!("the threads are {numbers}{nearest}")).into())
            }
        },
    }
}
