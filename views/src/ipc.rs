//! What `engraft ipc` says: instructions and cycles of calls, or of instances of a loop.

use crate::attach::AttachedView;
use crate::{Table, View, many};
use serde::Serialize;
use std::io::{self, Write};

/// Instructions and cycles of calls of a function, or of instances of a loop.
#[derive(Debug, Serialize)]
pub struct IpcView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The process.
    pub pid: i32,
    /// The function.
    pub function: String,
    /// What follows is of: `call`, or `loop`.
    pub of: &'static str,
    /// Call by call, or instance by instance.
    pub calls: Vec<CallView>,
    /// Instructions a cycle, of the calls that it is known of, if it is of any.
    pub ipc: Option<SpreadView>,
    /// How much longer calls took while their instructions were counted, which is taken off: a factor.
    pub slowdown: f64,
    /// How much of cycles may be wrong, with 95 %, because the clock or the calls were faster at one time
    /// than at another: in their errors.
    pub unsteady_share: f64,
    /// What the core's clock was meanwhile.
    pub clock: ClockView,
    /// How many calls say how long they take when nothing is counted.
    pub plain_calls: usize,
    /// How many functions could not be counted: their instructions are not in it.
    pub uncounted: usize,
    /// Modules of which nothing could be counted.
    pub uncounted_modules: Vec<UncountedView>,
    /// What was done to the process.
    pub attach: AttachedView,
}

impl IpcView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.ipc/1";
}

/// The core's clock, by a chain of instructions of known latency.
#[derive(Debug, Serialize)]
pub struct ClockView {
    /// How often it was timed.
    pub calibrations: usize,
    /// Ticks of the time stamp counter in a cycle.
    pub ticks_per_cycle: f64,
    /// By how much that may be wrong at a time, with 95 %; it is in the errors of calls.
    pub error: f64,
    /// The least and the most that was found.
    pub range: [f64; 2],
}

/// A module whose instructions are not in what is said.
#[derive(Debug, Serialize)]
pub struct UncountedView {
    /// Its path.
    pub module: String,
    /// Why.
    pub why: String,
}

/// A call, or an instance of a loop.
#[derive(Debug, Serialize)]
pub struct CallView {
    /// Its thread, from 1.
    pub thread: u32,
    /// Instructions that it ran, with all that it called.
    pub instructions: u64,
    /// Cycles that it took.
    pub cycles: f64,
    /// `measured` by the processor's counters, or `estimated`.
    pub cycles_are: &'static str,
    /// By how many cycles that may be wrong, with 95 %.
    pub error: f64,
    /// The quotient; nothing, where the cycles may be none for all that is known.
    pub ipc: Option<f64>,
    /// Of an instance: the address of the loop's header in its module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// How often it went through that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
}

/// A mean and how far from it numbers are.
#[derive(Debug, Serialize)]
pub struct SpreadView {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
    /// Where the mean of all calls is with 95 %.
    pub interval: [f64; 2],
}

impl View for IpcView {
    fn table(&self) -> Table {
        let is_loop = self.of == "loop";
        let mut t = match is_loop {
            true => Table::new(&[
                "instance>",
                "thread>",
                "loop",
                "iterations>",
                "instructions>",
                "cycles>",
                "±>",
                "ipc>",
            ]),
            false => Table::new(&["call>", "thread>", "instructions>", "cycles>", "±>", "ipc>"]),
        };
        for (n, call) in (1..).zip(&self.calls) {
            let mark = if call.cycles_are == "estimated" { "~" } else { "" };
            let (n, thread, instructions) =
                (n.to_string(), call.thread.to_string(), call.instructions.to_string());
            let (cycles, error) = (format!("{mark}{:.0}", call.cycles), format!("{:.0}", call.error));
            let ipc = call.ipc.map_or_else(|| "-".to_owned(), |ipc| format!("{ipc:.2}"));
            if is_loop {
                let (header, iterations) =
                    (call.header.clone().unwrap_or_default(), call.iterations.unwrap_or_default());
                t.row([n, thread, header, iterations.to_string(), instructions, cycles, error, ipc]);
            } else {
                t.row([n, thread, instructions, cycles, error, ipc]);
            }
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let (what, one) = if self.of == "loop" { ("a loop of ", "instance") } else { ("", "call") };
        writeln!(w, "{what}{} in process {}", self.function, self.pid)?;
        self.table().text(w)?;
        match &self.ipc {
            Some(SpreadView { mean, deviation, interval: [least, most] }) => writeln!(
                w,
                "{mean:.2} instructions a cycle, standard deviation {deviation:.2}, 95 %: {least:.2} to {most:.2}"
            )?,
            None => writeln!(w, "too short to tell: by the error, they may have taken no cycle")?,
        }
        if self.calls.iter().any(|call| call.cycles_are == "estimated") {
            let ClockView { calibrations, ticks_per_cycle, error, .. } = &self.clock;
            writeln!(
                w,
                "~: cycles follow from ticks of the clock, {ticks_per_cycle:.4} ± {error:.4} a cycle by {calibrations} timings of a chain, and {one}s took {:.2} times as long while they were counted: {} that were not say so",
                self.slowdown,
                many(self.plain_calls, one)
            )?;
        }
        writeln!(
            w,
            "instructions are exact, those of callees are in them; of the kernel and of JIT code there are none"
        )?;
        if self.uncounted > 0 {
            writeln!(
                w,
                "nor of {} that could not be moved, which `engraft count -p` names",
                many(self.uncounted, "function")
            )?;
        }
        for UncountedView { module, why } in &self.uncounted_modules {
            writeln!(w, "nor of {module}: {why}")?;
        }
        Ok(())
    }
}
