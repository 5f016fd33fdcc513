//! What a recording says of edges, calls, paths and loops: a row each.

use crate::count::LoopView;
use crate::{Between, Table, View, address, counted, share};
use serde::Serialize;

/// The schema that the JSON of these lists names.
pub const SCHEMA: &str = "engraft.show/1";

/// What is written for a callee that is not known.
pub const POINTER: &str = "(indirect call)";

/// Rows under the name of what they are.
#[derive(Debug, Serialize)]
pub struct CountsView<T> {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The rows, under the name of what they are.
    #[serde(flatten)]
    pub rows: T,
}

/// Edges that ran, or that did not.
#[derive(Debug, Serialize)]
pub struct Edges {
    /// The edges.
    pub edges: Vec<EdgeRow>,
}

/// An edge of a block that ran.
#[derive(Debug, Serialize)]
pub struct EdgeRow {
    /// The file it is in.
    pub module: String,
    /// The function it is in.
    pub function: String,
    /// The block that it leaves.
    pub from: u64,
    /// The block that it enters.
    pub to: u64,
    /// Of which kind it is.
    pub kind: &'static str,
    /// How often it ran.
    pub count: u64,
    /// The least and the most, where it may be off.
    #[serde(flatten)]
    pub between: Between,
    /// Executions of the block that it leaves.
    pub block_count: u64,
    /// The share of them.
    pub share: f64,
    /// Of the last instruction before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

impl View for CountsView<Edges> {
    fn table(&self) -> Table {
        let mut t =
            Table::new(&["count>", "of>", "share>", "from>", "to>", "kind", "function", "module", "line"]);
        for e in &self.rows.edges {
            let line = e.line.as_deref().unwrap_or_default();
            t.row([
                e.between.count(e.count),
                e.block_count.to_string(),
                share(e.share),
                address(e.from),
                address(e.to),
                e.kind.into(),
                e.function.clone(),
                e.module.clone(),
                line.rsplit('/').next().unwrap_or(line).to_owned(),
            ]);
        }
        t
    }
}

/// Who called whom.
#[derive(Debug, Serialize)]
pub struct CallGraph {
    /// The calls.
    pub calls: Vec<CallRow>,
}

/// A pair of functions of which one called the other.
#[derive(Debug, Serialize)]
pub struct CallRow {
    /// The file it is in.
    pub module: String,
    /// Who called.
    pub caller: String,
    /// `null` where the caller is in another module, or the call is indirect.
    pub callee: Option<String>,
    /// Of indirect calls whose targets were counted: the module that they led to, if it is another
    /// one and known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callee_module: Option<String>,
    /// How often.
    pub count: u64,
    /// Where an earlier call may not have come back.
    #[serde(flatten)]
    pub between: Between,
    /// Of the callee's entries, where they are known.
    pub share_of_entries: Option<f64>,
    /// The calling instructions.
    pub at: Vec<u64>,
}

impl View for CountsView<CallGraph> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["count>", "of entries>", "caller", "callee", "places>", "module"]);
        for c in &self.rows.calls {
            t.row([
                c.between.count(c.count),
                c.share_of_entries.map_or_else(|| "-".to_owned(), share),
                c.caller.clone(),
                match &c.callee_module {
                    Some(module) => format!("{} ({module})", c.callee.as_deref().unwrap_or(POINTER)),
                    None => c.callee.as_deref().unwrap_or(POINTER).to_owned(),
                },
                c.at.len().to_string(),
                c.module.clone(),
            ]);
        }
        t
    }
}

/// Where most of a loop's, or a function's, executions went along.
#[derive(Debug, Serialize)]
pub struct Paths {
    /// The paths.
    pub paths: Vec<PathRow>,
}

/// The hottest path of a loop or a function.
#[derive(Debug, Serialize)]
pub struct PathRow {
    /// The file it is in.
    pub module: String,
    /// The function it is in.
    pub function: String,
    /// A loop's header, or the function's entry.
    pub at: u64,
    /// Whether it is one of a loop.
    pub is_loop: bool,
    /// How often it was run along, at least.
    pub at_least: u64,
    /// The same, at most.
    pub at_most: u64,
    /// How often its first block ran.
    pub of: u64,
    /// The least and the most of that, where it may be off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_between: Option<(u64, u64)>,
    /// Instructions of its blocks, times `at_least`.
    pub instructions: u64,
    /// Where its blocks start.
    pub blocks: Vec<u64>,
}

impl View for CountsView<Paths> {
    fn table(&self) -> Table {
        let mut t =
            Table::new(&["at least>", "at most>", "of>", "instructions>", "path of", "function", "blocks"]);
        for p in &self.rows.paths {
            let blocks: Vec<String> = p.blocks.iter().map(|&b| address(b)).collect();
            t.row([
                p.at_least.to_string(),
                p.at_most.to_string(),
                counted(p.of, p.of_between),
                p.instructions.to_string(),
                if p.is_loop { "loop" } else { "function" }.to_owned(),
                p.function.clone(),
                blocks.join(" "),
            ]);
        }
        t
    }
}

/// Loops that ran.
#[derive(Debug, Serialize)]
pub struct LoopRuns {
    /// The loops.
    pub loops: Vec<LoopView>,
}

impl View for CountsView<LoopRuns> {
    fn table(&self) -> Table {
        let mut t = Table::with_first("instructions>", LoopView::HEADINGS);
        for l in &self.rows.loops {
            t.row_with_first(l.instructions.to_string(), l.cells(l.function.clone()));
        }
        t
    }
}
