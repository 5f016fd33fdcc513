//! What `engraft ipc` says: instructions and cycles of calls.

use crate::attach::AttachedView;
use crate::{Table, View, many};
use serde::Serialize;
use std::io::{self, Write};

/// Instructions and cycles of calls of a function.
#[derive(Debug, Serialize)]
pub struct IpcView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The process.
    pub pid: i32,
    /// The function.
    pub function: String,
    /// Call by call.
    pub calls: Vec<CallView>,
    /// Instructions a cycle, of the calls.
    pub ipc: SpreadView,
    /// How much longer calls took while their instructions were counted, which is taken off: a factor.
    pub slowdown: f64,
    /// How many calls say how long they take when nothing is counted.
    pub plain_calls: usize,
    /// How many functions could not be counted: their instructions are not in it.
    pub uncounted: usize,
    /// What was done to the process.
    pub attach: AttachedView,
}

impl IpcView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.ipc/1";
}

/// A call.
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
    /// The quotient.
    pub ipc: f64,
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
        let mut t = Table::new(&["call>", "thread>", "instructions>", "cycles>", "±>", "ipc>"]);
        for (n, call) in (1..).zip(&self.calls) {
            let mark = if call.cycles_are == "estimated" { "~" } else { "" };
            t.row([
                n.to_string(),
                call.thread.to_string(),
                call.instructions.to_string(),
                format!("{mark}{:.0}", call.cycles),
                format!("{:.0}", call.error),
                format!("{:.2}", call.ipc),
            ]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        writeln!(w, "{} in process {}", self.function, self.pid)?;
        self.table().text(w)?;
        let SpreadView { mean, deviation, interval: [least, most] } = &self.ipc;
        writeln!(
            w,
            "{mean:.2} instructions a cycle, standard deviation {deviation:.2}, 95 %: {least:.2} to {most:.2}"
        )?;
        if self.calls.iter().any(|call| call.cycles_are == "estimated") {
            writeln!(
                w,
                "~: cycles follow from ticks of the clock, and calls took {:.2} times as long while they were counted: {} that were not say so",
                self.slowdown,
                many(self.plain_calls, "call")
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
        Ok(())
    }
}
