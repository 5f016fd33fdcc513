//! Parts of a comparison, one by one: intervals, an interval with its code, points that are the same, and how
//! that was found out.

use super::{Amount, Both, difference, times, whole};
use crate::{Table, View, address};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

fn both(both: &Both<String>) -> String {
    if both.old == both.new { both.old.clone() } else { format!("{} | {}", both.old, both.new) }
}

/// All intervals.
#[derive(Debug, Serialize)]
pub struct IntervalsView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// Those with most instructions first.
    pub intervals: Vec<IntervalRow>,
}

impl IntervalsView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.compare-intervals/1";
}

/// Intervals of one place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IntervalRow {
    /// The function.
    pub function: String,
    /// Where they begin: a place in its code as people say it.
    pub from: Both<String>,
    /// Where they end.
    pub to: Both<String>,
    /// How many.
    pub times: u64,
    /// Instructions in all of them.
    pub instructions: Both<Amount>,
    /// The mean of instructions of one.
    pub length: Both<f64>,
    /// How sure it is that both did the same there, from 0 to 1.
    pub confidence: f64,
}

impl View for IntervalsView {
    fn table(&self) -> Table {
        let mut t = Table::new(&[
            "old>", "new>", "times>", "often>", "length>", "then>", "sure>", "function", "from", "to",
        ])
        .with_spare(&["sure"]);
        for row in &self.intervals {
            let Both { old, new } = &row.instructions;
            t.row([
                whole(old.0),
                whole(new.0),
                times(old.0, new.0),
                row.times.to_string(),
                format!("{:.1}", row.length.old),
                format!("{:.1}", row.length.new),
                format!("{:.2}", row.confidence),
                row.function.clone(),
                both(&row.from),
                both(&row.to),
            ]);
        }
        t
    }
}

/// An interval in which the builds differ, with its code.
#[derive(Debug, Serialize)]
pub struct OutlierView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// Its number among the outliers, from 1 on.
    pub n: usize,
    /// The interval.
    #[serde(flatten)]
    pub interval: super::OutlierRow,
    /// Blocks that ran in it, by address.
    pub blocks: Both<Vec<RanBlock>>,
}

impl OutlierView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.compare-outlier/1";
}

/// A block that ran in an interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RanBlock {
    /// The function that it is in.
    pub function: String,
    /// Where it starts.
    pub at: u64,
    /// Where it was written, if that is known.
    pub line: Option<String>,
    /// How often it ran.
    pub runs: Amount,
    /// Its disassembly, a line each.
    pub instructions: Vec<String>,
}

impl View for OutlierView {
    /// A row an instruction, those of the old build first.
    fn table(&self) -> Table {
        let mut t = Table::new(&["build", "function", "at>", "line", "runs>", "instruction"]);
        for (build, blocks) in [("old", &self.blocks.old), ("new", &self.blocks.new)] {
            for block in blocks {
                for insn in &block.instructions {
                    let line = block.line.clone().unwrap_or_default();
                    let (at, runs) = (address(block.at), whole(block.runs.0));
                    t.row([build.to_owned(), block.function.clone(), at, line, runs, insn.clone()]);
                }
            }
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let row = &self.interval;
        writeln!(
            w,
            "{}: from {} to {}, {} times: {} instructions, then {} ({})",
            row.function,
            both(&row.from),
            both(&row.to),
            row.times,
            whole(row.old.0),
            whole(row.new.0),
            times(row.old.0, row.new.0),
        )?;
        for reason in &row.because {
            let (old, new) = (whole(reason.old.0), whole(reason.new.0));
            writeln!(
                w,
                "  {}: {old}, then {new} ({})",
                reason.metric,
                difference(reason.old.0, reason.new.0)
            )?;
        }
        for remark in &row.remarks {
            writeln!(w, "  {remark}")?;
        }
        for (build, blocks) in [("old", &self.blocks.old), ("new", &self.blocks.new)] {
            writeln!(w, "\n{build} build:")?;
            let mut t = Table::new(&["runs>", "at>", "instruction", "line"]);
            for block in blocks {
                for (n, insn) in block.instructions.iter().enumerate() {
                    let first = |text: String| if n == 0 { text } else { String::new() };
                    let line = first(block.line.clone().unwrap_or_default());
                    t.row([first(whole(block.runs.0)), first(address(block.at)), insn.clone(), line]);
                }
            }
            t.text(w)?;
        }
        Ok(())
    }
}

/// Points of both runs that are the same, as a table: as JSON, they are in the comparison.
#[derive(Debug, Serialize)]
pub struct AnchorsView<'a> {
    /// Thread by thread, in the order in which they came.
    pub anchors: &'a [AnchorRow],
}

/// A point of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PointRow {
    /// The thread, as `engraft query` numbers it.
    pub thread: u32,
    /// The number of the symbol in it, as `engraft query` counts: where what was called is entered, or a
    /// loop.
    pub index: u64,
    /// The address of the call, or of the loop's header.
    pub at: u64,
}

/// A point of both.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AnchorRow {
    /// In the run of the old build.
    pub old: PointRow,
    /// In the run of the new build.
    pub new: PointRow,
    /// How sure it is that both are the same, from 0 to 1.
    pub confidence: f64,
}

impl View for AnchorsView<'_> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["thread>", "index>", "at>", "thread>", "index>", "at>", "sure>"]);
        for AnchorRow { old, new, confidence } in self.anchors {
            t.row([
                old.thread.to_string(),
                old.index.to_string(),
                address(old.at),
                new.thread.to_string(),
                new.index.to_string(),
                address(new.at),
                format!("{confidence:.2}"),
            ]);
        }
        t
    }
}

/// How it was found out what in a function of both builds is what.
#[derive(Debug, Serialize)]
pub struct ExplainedView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The function.
    pub name: String,
    /// Calls and loops, by where they are in the old build.
    pub events: Vec<ExplainedRow>,
}

impl ExplainedView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.compare-explain/1";
}

/// A call or a loop.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedRow {
    /// Where it is, as people say it, in the builds that have it.
    pub at: Both<Option<String>>,
    /// How it is known: line, near-line, names, block, alone.
    pub how: &'static str,
    /// How often it was come to.
    pub times: Both<u64>,
    /// How often one was paired with the other.
    pub paired: u64,
}

impl View for ExplainedView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["old>", "new>", "paired>", "by", "in the old build", "in the new build"]);
        for row in &self.events {
            let at = |at: &Option<String>| at.clone().unwrap_or_else(|| "-".to_owned());
            t.row([
                row.times.old.to_string(),
                row.times.new.to_string(),
                row.paired.to_string(),
                row.how.to_owned(),
                at(&row.at.old),
                at(&row.at.new),
            ]);
        }
        t
    }
}
