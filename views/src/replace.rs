//! What `engraft replace` says.

use crate::{Table, View};
use serde::Serialize;
use std::io::{self, Write};

/// What stands in for functions of a process, or was taken back.
#[derive(Debug, Serialize)]
pub struct ReplaceView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The process.
    pub pid: i32,
    /// What stands in for its functions, if that was asked, or has just been put there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Vec<ReplacedView>>,
    /// What was taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undone: Option<UndoneView>,
    /// What was tried, and what came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<TrialView>,
    /// The innermost loops of the function, and what came of each, if they were to be vectorised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loops: Option<Vec<LoopView>>,
    /// How long all its threads stood still, microseconds, if they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_us: Option<u64>,
}

impl ReplaceView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.replace/1";

    /// Nothing yet of process `pid`.
    pub fn of(pid: i32) -> ReplaceView {
        let schema = ReplaceView::SCHEMA;
        ReplaceView { schema, pid, replaced: None, undone: None, trial: None, loops: None, pause_us: None }
    }
}

/// A function that another stands in for.
#[derive(Debug, Serialize)]
pub struct ReplacedView {
    /// The function.
    pub function: String,
    /// Its module.
    pub module: String,
    /// Where it is in the module's file.
    pub at: String,
    /// What stands in for it.
    pub with: String,
    /// Where that is in the process.
    pub to: String,
    /// Where the function itself is in the process now.
    pub original: String,
    /// Since when: seconds since 1970.
    pub since_s: u64,
    /// Whether the function runs again as it did, though somebody needs the new code still.
    pub is_taken_back: bool,
}

/// A loop that was to be vectorised.
#[derive(Debug, Serialize)]
pub struct LoopView {
    /// Where it starts in the module's file.
    pub address: String,
    /// The source file and line of that, if they are known.
    pub line: Option<String>,
    /// Whether it was.
    pub done: bool,
    /// Why not.
    pub because: Option<String>,
}

impl LoopView {
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let LoopView { address, line, because, .. } = self;
        let line = line.as_ref().map_or_else(String::new, |line| format!(" ({line})"));
        match because {
            Some(because) => writeln!(w, "the loop at {address}{line} stays as it is: {because}"),
            None => writeln!(w, "the loop at {address}{line} is vectorised"),
        }
    }
}

/// New code that was tried.
#[derive(Debug, Serialize)]
pub struct TrialView {
    /// The function.
    pub function: String,
    /// What was tried in its place.
    pub with: String,
    /// Ticks a call of the function, if calls of both came back.
    pub old_ticks: Option<f64>,
    /// The same of the new code.
    pub new_ticks: Option<f64>,
    /// How many times longer calls of the function take.
    pub gain: Option<f64>,
    /// Where that is with 95 % confidence.
    pub interval: Option<[f64; 2]>,
    /// Whether the new code stays.
    pub kept: bool,
    /// `faster`, `slower`, `even`, `too-few`, `wrong` or `interrupted`.
    pub verdict: &'static str,
    /// Why it does not stay.
    pub why: Option<String>,
    /// How many calls were made of both in a copy of the process.
    pub verified: u64,
    /// How many calls of the function, and of the new code, were timed.
    pub calls: [u64; 2],
}

impl TrialView {
    fn text(&self, pid: i32, w: &mut dyn Write) -> io::Result<()> {
        let TrialView { function, with, verified, calls: [old, new], .. } = self;
        if *verified > 0 {
            writeln!(w, "{verified} calls of {function} and of {with} were made in a copy of process {pid}")?;
        }
        if let (Some(old_ticks), Some(new_ticks)) = (self.old_ticks, self.new_ticks) {
            writeln!(w, "{function}: {old_ticks:.0} ticks a call, of {old} calls")?;
            writeln!(w, "{with}: {new_ticks:.0} ticks a call, of {new} calls")?;
        }
        if let (Some(gain), Some([low, high])) = (self.gain, self.interval) {
            writeln!(w, "gain: {gain:.3} × [{low:.3}, {high:.3}]")?;
        }
        match &self.why {
            Some(why) => writeln!(w, "{function} was taken back: {why}"),
            None => writeln!(w, "it stays"),
        }
    }
}

/// A function that was taken back.
#[derive(Debug, Serialize)]
pub struct UndoneView {
    /// The function.
    pub function: String,
    /// Why something of ours is in the process still.
    pub left: Option<String>,
    /// What stays of what stood in for it, for good, and why: the process may have kept where that is.
    pub stays: Option<String>,
}

impl View for ReplaceView {
    fn table(&self) -> Table {
        let mut table = Table::new(&["function", "module", "at>", "with", "new code>", "original>"]);
        for one in self.replaced.iter().flatten() {
            let ReplacedView { function, module, at, with, to, original, is_taken_back, .. } = one;
            let function = if *is_taken_back { format!("{function} (taken back)") } else { function.clone() };
            table.row([&function, module, at, with, to, original].map(Clone::clone));
        }
        table
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let stopped = self.pause_us.map(|us| format!("; its threads stood still for {us} µs"));
        let stopped = stopped.unwrap_or_default();
        let pid = self.pid;
        if let Some(UndoneView { function, left, stays }) = &self.undone {
            writeln!(w, "{function} of process {pid} is as it was{stopped}")?;
            if let Some(stays) = stays {
                writeln!(w, "what stood in for it stays in the process: {stays}")?;
            }
            return match left {
                Some(left) => {
                    writeln!(
                        w,
                        "what stood in for it is in the process still: {left}; `engraft rescue {pid}` tries again"
                    )
                }
                None => Ok(()),
            };
        }
        if let Some(trial) = &self.trial {
            trial.text(pid, w)?;
            if self.replaced.is_none() {
                return Ok(());
            }
        }
        match self.replaced.as_deref().unwrap_or_default() {
            [] => writeln!(w, "nothing is replaced in process {pid}"),
            [one] if let Some(loops) = &self.loops => {
                let n_done = loops.iter().filter(|one| one.done).count();
                let ReplacedView { function, to, .. } = one;
                writeln!(
                    w,
                    "{n_done} of {} innermost loops of {function} are vectorised in process {pid}, which has it at {to}{stopped}",
                    loops.len()
                )?;
                loops.iter().try_for_each(|one| one.text(w))
            }
            [one] if self.pause_us.is_some() => {
                writeln!(
                    w,
                    "{} of {} stands in for {} in process {pid}{stopped}",
                    one.with, one.to, one.function
                )
            }
            _ => self.table().text(w),
        }
    }
}
