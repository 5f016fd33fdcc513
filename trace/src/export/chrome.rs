//! The trace event format of Chrome, which Perfetto and speedscope read, too: calls as slices, a track a
//! thread.
//!
//! ```text
//! {"ph":"B","pid":1,"tid":0,"ts":12.345,"name":"main"}   entered, microseconds from the start of the run
//! {"ph":"E","pid":1,"tid":0,"ts":20}                     left
//! ```
//! Where a trace has no times, the index of a symbol in its stream is its time. Every B has its E: what is
//! open at the start of a part is entered there, what is open at its end is left there. `args` say what is
//! not plain: `"from":"outside"`, `"left by":"longjmp"`.
//!
//! Source: "Trace Event Format", Google, 2016 (duration events, metadata events); perfetto.dev, "Other trace
//! formats".

use crate::file::ReadError;
use crate::file::times::{Clock, Times};
use crate::ids::{FuncId, ThreadId};
use crate::symbol::{Cause, Step, Symbol};
use crate::trace::Trace;
use crate::trace::part::{Part, Piece};
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::ControlFlow;

/// Why a trace is not written so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChromeError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file cannot be written.
    #[error("cannot write")]
    Write(#[from] io::Error),
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Slices {
    /// Calls.
    pub n_calls: u64,
    /// Calls that are deeper than was asked for, and left out.
    pub n_deeper: u64,
    /// Symbols read.
    pub n_symbols: u64,
}

/// Writes the calls of a part, down to a depth; `called` says what functions are called.
///
/// # Errors
/// If the trace cannot be read, or the file cannot be written.
pub fn write(
    trace: &Trace,
    part: &Part,
    depth: usize,
    called: &dyn Fn(FuncId) -> String,
    times: Option<&Times>,
    to: &mut dyn Write,
) -> Result<Slices, ChromeError> {
    let unit = if times.is_some() { "times are of the run" } else { "ts is the index of a symbol" };
    write!(to, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"engraft\":\"{unit}\"}},\"traceEvents\":[")?;
    let mut writer =
        Writer { to, depth, called, times, quoted: HashMap::new(), slices: Slices::default(), track: None };
    let failed = trace
        .read_part(part, |piece| writer.take(piece).map_or_else(ControlFlow::Break, ControlFlow::Continue))?;
    if let Some(err) = failed {
        return Err(err.into());
    }
    writer.close()?;
    let slices = writer.slices;
    writeln!(to, "\n]}}")?;
    Ok(slices)
}

/// A thread's track.
struct Track<'a> {
    thread: ThreadId,
    clock: Option<Clock<'a>>,
    n_open: usize,
    index: u64,
}

impl Track<'_> {
    /// The time of the symbol at an index, in nanoseconds; of one without times, thousandfold, so that a
    /// symbol is a microsecond.
    fn time(&mut self, index: u64) -> u64 {
        self.clock.as_mut().map_or_else(|| index.saturating_mul(1000), |clock| clock.at(index))
    }
}

struct Writer<'a> {
    to: &'a mut dyn Write,
    depth: usize,
    called: &'a dyn Fn(FuncId) -> String,
    times: Option<&'a Times>,
    /// Names of functions, as JSON has them.
    quoted: HashMap<FuncId, String>,
    slices: Slices,
    track: Option<Track<'a>>,
}

impl Writer<'_> {
    fn take(&mut self, piece: Piece<'_>) -> io::Result<()> {
        let Piece { thread, first, open, symbols } = piece;
        if self.track.as_ref().is_none_or(|track| track.thread != thread) {
            self.close()?;
            let comma = if self.slices.n_symbols > 0 { "," } else { "" };
            write!(
                self.to,
                "{comma}\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{0},\"name\":\"thread_name\",\"args\":{{\"name\":\"thread {0}\"}}}}",
                thread.0
            )?;
            let clock = self.times.and_then(|times| times.of(thread));
            let mut track = Track { thread, clock, n_open: 0, index: first };
            let time = track.time(first);
            self.track = Some(track);
            open.iter().try_for_each(|&func| self.enter(func, Some("before"), time))?;
        }
        self.slices.n_symbols += symbols.len() as u64;
        for (index, &code) in (first..).zip(symbols) {
            let symbol = Symbol(code);
            let step = symbol.step();
            let Some(track) = &mut self.track else { break };
            if !matches!(step, Step::Block(_)) {
                let time = track.time(index);
                match step {
                    Step::Enter(func) => {
                        self.enter(func, symbol.is_from_outside().then_some("outside"), time)?
                    }
                    _ => self.leave(symbol.cause().and_then(left_by), time)?,
                }
            }
        }
        if let Some(track) = &mut self.track {
            track.index = first + symbols.len() as u64;
        }
        Ok(())
    }

    fn enter(&mut self, func: FuncId, from: Option<&str>, time: u64) -> io::Result<()> {
        let Some(track) = &mut self.track else { return Ok(()) };
        track.n_open += 1;
        if track.n_open > self.depth {
            self.slices.n_deeper += 1;
            return Ok(());
        }
        self.slices.n_calls += 1;
        let quoted = self.quoted.entry(func).or_insert_with(|| {
            serde_json::to_string(&(self.called)(func)).expect("a string can always be quoted")
        });
        let (thread, micros, nanos) = (track.thread.0, time / 1000, time % 1000);
        write!(
            self.to,
            ",\n{{\"ph\":\"B\",\"pid\":1,\"tid\":{thread},\"ts\":{micros}.{nanos:03},\"name\":{quoted}"
        )?;
        match from {
            Some(from) => write!(self.to, ",\"args\":{{\"from\":\"{from}\"}}}}"),
            None => write!(self.to, "}}"),
        }
    }

    fn leave(&mut self, by: Option<&str>, time: u64) -> io::Result<()> {
        let Some(track) = self.track.as_mut().filter(|track| track.n_open > 0) else { return Ok(()) };
        track.n_open -= 1;
        if track.n_open >= self.depth {
            return Ok(());
        }
        let (thread, micros, nanos) = (track.thread.0, time / 1000, time % 1000);
        write!(self.to, ",\n{{\"ph\":\"E\",\"pid\":1,\"tid\":{thread},\"ts\":{micros}.{nanos:03}")?;
        match by {
            Some(by) => write!(self.to, ",\"args\":{{\"left by\":\"{by}\"}}}}"),
            None => write!(self.to, "}}"),
        }
    }

    /// Leaves what is open on the track.
    fn close(&mut self) -> io::Result<()> {
        let Some(track) = &mut self.track else { return Ok(()) };
        let (n_open, index) = (track.n_open, track.index);
        let time = track.time(index);
        (0..n_open).try_for_each(|_| self.leave(Some("end"), time))
    }
}

/// What an exit says that is no return.
fn left_by(cause: Cause) -> Option<&'static str> {
    match cause {
        Cause::Return => None,
        cause => Some(cause.name()),
    }
}
