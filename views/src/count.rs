//! What `engraft count` says: where a run's executions went, and what was not counted.

mod coverage;
mod loops;
pub mod points;
pub mod repeat;
mod run;

pub use coverage::{LeftOutView, OthersView, PADDING, UncountedView, UnknownView};
pub use loops::LoopView;
pub use run::{MachineView, RunView};

use crate::attach::AttachedView;
use crate::{Between, DeathView, Table, View, known, many, share};
use points::PointView;
use repeat::RepeatView;
use serde::Serialize;
use std::io::{self, Write};

/// Where a run's executions went.
#[derive(Debug, Serialize)]
pub struct CountView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// What was seen at the points of a plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<PointView>,
    /// Which run it is of, where the recording says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunView>,
    /// The recording that was written.
    pub recording: String,
    /// How many threads ran, where that is known.
    pub threads: Option<u64>,
    /// How many threads may have been stopped in the middle of a block.
    pub stopped: u64,
    /// How it died, if a signal has ended it.
    pub died: Option<DeathView>,
    /// How many instructions ran.
    pub instructions: u64,
    /// Of all instructions that are known to have run in the counted modules: more may have run uncounted, so
    /// this is an upper bound.
    pub counted_share: f64,
    /// What was counted.
    pub modules: Vec<ModuleView>,
    /// Functions that ran, most instructions first.
    pub functions: Vec<FunctionView>,
    /// Loops that ran, most instructions first.
    pub loops: Vec<LoopView>,
    /// What ran, and has no counts.
    pub uncounted: Vec<UncountedView>,
    /// Functions without counts that no counted code calls: whether they ran, by indirect calls, is not
    /// known.
    pub unknown: Vec<UnknownView>,
    /// Libraries that were there at the start, and not looked at.
    pub left_out: Vec<LeftOutView>,
    /// Other programs that it started, and that were not counted.
    pub others: Option<OthersView>,
    /// Of each thread, where they were kept apart.
    pub per_thread: Vec<ThreadView>,
    /// What was done to processes that ran before.
    #[serde(skip_serializing_if = "AttachedView::is_none")]
    pub attach: AttachedView,
    /// What was not the same in each of several runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<RepeatView>,
}

impl CountView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.count/1";
}

/// What a thread ran.
#[derive(Debug, Serialize)]
pub struct ThreadView {
    /// Which one, from 1.
    pub thread: usize,
    /// How many instructions ran.
    pub instructions: u64,
    /// Of all instructions, `0.0..=1.0`.
    pub share: f64,
}

/// A file that was counted.
#[derive(Debug, Serialize)]
pub struct ModuleView {
    /// Where it is.
    pub path: String,
    /// How many instructions ran.
    pub instructions: u64,
    /// Blocks that ran.
    pub blocks_run: usize,
    /// Blocks with counts.
    pub blocks: usize,
}

/// A function that ran.
#[derive(Debug, Serialize)]
pub struct FunctionView {
    /// The file it is in.
    pub module: String,
    /// What people call it.
    pub name: String,
    /// Its address.
    pub at: u64,
    /// How often it was entered, where that is known.
    pub entries: Option<u64>,
    /// The least and the most of its entries, where they may be off.
    #[serde(flatten)]
    pub between: Between,
    /// How many instructions ran.
    pub instructions: u64,
    /// Of all instructions, `0.0..=1.0`.
    pub share: f64,
    /// How many ran in it and in all that it called, where that is known: in traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusive: Option<u64>,
}

impl FunctionView {
    fn entries(&self) -> String {
        known(self.entries.map(|n| self.between.count(n)))
    }
}

/// How many rows people want to see.
const TOP: usize = 12;

impl View for CountView {
    /// A row a function.
    fn table(&self) -> Table {
        self.hottest()
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        if let Some(run) = &self.run {
            run.text(w)?;
        }
        if !self.points.is_empty() {
            points::table(&self.points).text(w)?;
            if self.modules.iter().all(|m| m.blocks == 0) {
                return Ok(());
            }
        }
        writeln!(w)?;
        self.hottest().top(TOP, w)?;
        self.loops(w)?;
        self.threads(w)?;
        writeln!(w)?;
        self.what_was_counted(w)
    }
}

impl CountView {
    /// What was not counted and not looked at, how it died, and how much was counted: a line each.
    ///
    /// # Errors
    /// If `w` cannot be written.
    pub fn what_was_counted(&self, w: &mut dyn Write) -> io::Result<()> {
        self.uncounted(w)?;
        self.unknown(w)?;
        if let Some(died) = &self.died {
            writeln!(w, "it died of {died}")?;
        }
        if self.stopped > 0 {
            let were = many(usize::try_from(self.stopped).unwrap_or(usize::MAX), "thread");
            writeln!(
                w,
                "{were} may have been stopped in the middle of a block: counts that follow from others are between n and m where it says n..m, and exact elsewhere; instructions are those of whole blocks"
            )?;
        }
        if let Some(repeated) = &self.repeated {
            repeated.text(w)?;
        }
        self.attach.text(w)?;
        self.counted(w)?;
        self.not_looked_at(w)
    }

    fn hottest(&self) -> Table {
        if self.functions.iter().any(|f| f.inclusive.is_some()) {
            return self.hottest_with_inclusive();
        }
        let mut t = Table::new(&["share>", "instructions>", "entries>", "function", "module"]);
        for f in &self.functions {
            let entries = f.entries();
            t.row([share(f.share), f.instructions.to_string(), entries, f.name.clone(), f.module.clone()]);
        }
        t
    }

    fn hottest_with_inclusive(&self) -> Table {
        let mut t = Table::new(&["share>", "instructions>", "inclusive>", "entries>", "function", "module"]);
        for f in &self.functions {
            let (entries, inclusive) = (f.entries(), known(f.inclusive));
            let instructions = f.instructions.to_string();
            t.row([share(f.share), instructions, inclusive, entries, f.name.clone(), f.module.clone()]);
        }
        t
    }

    fn loops(&self, w: &mut dyn Write) -> io::Result<()> {
        if self.loops.is_empty() {
            return Ok(());
        }
        let mut top = Table::with_first("share>", LoopView::HEADINGS).with_spare(&LoopView::SPARE);
        for l in &self.loops {
            top.row_with_first(share(l.share.unwrap_or_default()), l.cells(l.function.clone()));
        }
        writeln!(w)?;
        top.top(TOP, w)
    }

    fn threads(&self, w: &mut dyn Write) -> io::Result<()> {
        if self.per_thread.is_empty() {
            return Ok(());
        }
        let mut top = Table::new(&["thread>", "instructions>", "share>"]);
        for t in &self.per_thread {
            top.row([t.thread.to_string(), t.instructions.to_string(), share(t.share)]);
        }
        writeln!(w)?;
        top.top(TOP, w)
    }
}
