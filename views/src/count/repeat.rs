//! What was not the same in each of several runs: functions, blocks, edges.
//!
//! Two numbers in a field are the least and the largest of all runs.

use crate::{Table, address, many};
use serde::Serialize;
use std::io::{self, Write};

/// What was not the same in each run: least and largest counts.
#[derive(Debug, Serialize)]
pub struct RepeatView {
    /// How many runs.
    pub runs: usize,
    /// Functions that were not the same, the largest spread first.
    pub functions: Vec<FunctionSpread>,
    /// Blocks that were not.
    pub blocks: Vec<BlockSpread>,
    /// Edges that were not.
    pub edges: Vec<EdgeSpread>,
    /// Of how many entries, blocks and edges the numbers are not the same, but may be: threads may have been
    /// stopped in the middle of one.
    #[serde(skip_serializing_if = "is_none")]
    pub n_within: usize,
}

fn is_none(n: &usize) -> bool {
    *n == 0
}

/// A function that was not the same in each run.
#[derive(Debug, Serialize)]
pub struct FunctionSpread {
    /// The file it is in.
    pub module: String,
    /// What people call it.
    pub name: String,
    /// Its address.
    pub at: u64,
    /// How many instructions ran.
    pub instructions: (u64, u64),
    /// How often it was entered, where that is known.
    pub entries: Option<(u64, u64)>,
}

/// A block that did not run as often in each run.
#[derive(Debug, Serialize)]
pub struct BlockSpread {
    /// The file it is in.
    pub module: String,
    /// The function it is in.
    pub function: String,
    /// Its address.
    pub at: u64,
    /// How often it ran.
    pub count: (u64, u64),
}

/// An edge that was not taken as often in each run.
#[derive(Debug, Serialize)]
pub struct EdgeSpread {
    /// The file it is in.
    pub module: String,
    /// The function it is in.
    pub function: String,
    /// The block that it leaves.
    pub from: u64,
    /// The block that it enters.
    pub to: u64,
    /// How often it ran.
    pub count: (u64, u64),
}

/// How many rows people want to see.
const TOP: usize = 12;

fn range((least, most): (u64, u64)) -> String {
    format!("{least}..{most}")
}

impl RepeatView {
    /// For people, behind what is said of the last run.
    ///
    /// # Errors
    /// If `w` cannot be written.
    pub fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let runs = self.runs;
        if self.n_within > 0 {
            writeln!(
                w,
                "{} of {runs} runs may be the same in each, or not: threads may have been stopped in the middle of a block",
                many(self.n_within, "count")
            )?;
        }
        if self.functions.is_empty() && self.blocks.is_empty() && self.edges.is_empty() {
            let sure = if self.n_within > 0 { ", as far as is known" } else { "" };
            return writeln!(w, "all {runs} runs were the same, block by block and edge by edge{sure}");
        }
        writeln!(
            w,
            "\nnot the same in each of {runs} runs: {}, {}, {}; the recording has the last run",
            many(self.functions.len(), "function"),
            many(self.blocks.len(), "block"),
            many(self.edges.len(), "edge")
        )?;
        let mut t = Table::new(&["instructions>", "entries>", "function", "module"]);
        for f in &self.functions {
            let entries = f.entries.map_or_else(|| "-".to_owned(), range);
            t.row([range(f.instructions), entries, f.name.clone(), f.module.clone()]);
        }
        t.top(TOP, w)?;
        let mut t = Table::new(&["count>", "block>", "to>", "function", "module"]);
        for b in &self.blocks {
            t.row([range(b.count), address(b.at), String::new(), b.function.clone(), b.module.clone()]);
        }
        for e in &self.edges {
            let (from, to) = (address(e.from), address(e.to));
            t.row([range(e.count), from, to, e.function.clone(), e.module.clone()]);
        }
        t.top(TOP, w)
    }
}
