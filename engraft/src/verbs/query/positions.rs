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

/// `I..J`: symbols from I on, before J.
#[derive(Clone, Copy, Debug)]
pub struct RangeArg {
    start: u64,
    end: u64,
}

impl FromStr for RangeArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<RangeArg, Self::Err> {
        let ends = text.split_once("..").and_then(|(start, end)| start.parse().ok().zip(end.parse().ok()));
        let span = ends.map(|(start, end)| RangeArg { start, end }).filter(|span| span.start < span.end);
        span.ok_or("a range is I..J: the symbols from I on, before J, as in 0..20")
    }
}

impl RangeArg {
    /// The range, which must be in the stream of the thread.
    pub fn of(
        self,
        path: &Path,
        trace: &Trace,
        asked: Option<ThreadId>,
    ) -> anyhow::Result<(Thread, Range<u64>)> {
        let of = thread(path, trace, asked)?;
        if self.end <= of.n_symbols {
            return Ok((of, self.start..self.end));
        }
        let what = format!("{}..{} ends behind thread {}", self.start, self.end, of.thread.0);
        let nearest = self.start.min(of.n_symbols.saturating_sub(1));
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
