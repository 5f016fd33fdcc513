//! What `engraft diff` says: what two runs executed otherwise.
//!
//! Two numbers in a field are those of the first and the second run.

use crate::{Table, View, address, counted, known, many, ratio};
use serde::Serialize;
use std::io::{self, Write};

/// What two runs executed otherwise.
#[derive(Debug, Serialize)]
pub struct DiffView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// What the first run left.
    pub first: String,
    /// What the second run left.
    pub second: String,
    /// Instructions that ran in each.
    pub instructions: (u64, u64),
    /// The change of that, as [`relative`] has it.
    pub change_share: Option<f64>,
    /// Functions that differ, the largest change of instructions first.
    pub functions: Vec<FunctionRow>,
    /// Loops that differ, the largest change of iterations first.
    pub loops: Vec<LoopRow>,
    /// Edges that differ, the largest change of executions first.
    pub edges: Vec<EdgeRow>,
    /// Blocks that ran another number of times.
    pub n_blocks: usize,
    /// Blocks that the first run alone came to.
    pub n_blocks_first_alone: usize,
    /// Blocks that the second run alone came to.
    pub n_blocks_second_alone: usize,
    /// Blocks of which the two have other numbers, but may have run as often: threads may have been stopped
    /// in the middle of one.
    #[serde(skip_serializing_if = "is_none")]
    pub n_blocks_within: usize,
    /// The same of edges.
    #[serde(skip_serializing_if = "is_none")]
    pub n_edges_within: usize,
}

impl DiffView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.diff/1";
}

fn is_none(n: &usize) -> bool {
    *n == 0
}

/// A function that differs.
#[derive(Debug, Serialize)]
pub struct FunctionRow {
    /// The file it is in.
    pub module: String,
    /// What people call it.
    pub name: String,
    /// Its address.
    pub at: u64,
    /// Instructions that ran.
    pub instructions: (u64, u64),
    /// The change of that, as [`relative`] has it.
    pub change_share: Option<f64>,
    /// The least and the most of each, where they may be off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_between: Option<Intervals>,
    /// How often it was entered, where that is known.
    pub entries: (Option<u64>, Option<u64>),
    /// The least and the most of each, where they may be off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries_between: Option<Intervals>,
}

/// A loop that differs.
#[derive(Debug, Serialize)]
pub struct LoopRow {
    /// The file it is in.
    pub module: String,
    /// The function it is in.
    pub function: String,
    /// Its first header.
    pub at: u64,
    /// How often it went round.
    pub iterations: (u64, u64),
    /// The change of that, as [`relative`] has it.
    pub change_share: Option<f64>,
    /// The least and the most of each, where they may be off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations_between: Option<Intervals>,
    /// How often it was entered, where that is known.
    pub entries: (Option<u64>, Option<u64>),
    /// The least and the most of each, where they may be off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries_between: Option<Intervals>,
}

/// An edge that differs.
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
    /// How often it ran.
    pub count: (u64, u64),
    /// The change of that, as [`relative`] has it.
    pub change_share: Option<f64>,
    /// The least and the most of each, where they may be off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between: Option<Intervals>,
}

/// The intervals of two counts, if one of them may be off: of what is not known, nothing.
pub type Intervals = [Option<(u64, u64)>; 2];

/// Both, as they are shown.
fn both(counts: (Option<u64>, Option<u64>), between: Option<Intervals>) -> (String, String) {
    let [a, b] = between.unwrap_or_default();
    let shown = |n: Option<u64>, between: Option<(u64, u64)>| known(n.map(|n| counted(n, between)));
    (shown(counts.0, a), shown(counts.1, b))
}

fn of_both((a, b): (u64, u64)) -> (Option<u64>, Option<u64>) {
    (Some(a), Some(b))
}

/// How many rows people want to see.
const TOP: usize = 12;

/// The change from the first to the second, of the first: 0.5 is half as much again, -1 all; `None` if there
/// was none.
pub fn relative((a, b): (u64, u64)) -> Option<f64> {
    let share = |n| ratio(n, a);
    (a > 0).then(|| if b < a { -share(a - b) } else { share(b - a) })
}

/// The same for people.
fn by((a, b): (u64, u64)) -> String {
    relative((a, b)).map_or_else(|| "-".to_owned(), |share| format!("{:+.2} %", 100.0 * share))
}

fn signed(counts: (u64, u64)) -> String {
    format!("{:+}", change(counts))
}

impl View for DiffView {
    /// A row a function.
    fn table(&self) -> Table {
        self.functions()
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        if !self.functions.is_empty() {
            writeln!(w, "functions, by instructions:")?;
            self.functions().top(TOP, w)?;
        }
        if !self.loops.is_empty() {
            writeln!(w, "\nloops, by iterations:")?;
            let mut t = Table::new(&[
                "change>", "by>", "first>", "second>", "entries>", "then>", "loop>", "function", "module",
            ]);
            for l in &self.loops {
                let (first, second) = both(of_both(l.iterations), l.iterations_between);
                let (entries, then) = both(l.entries, l.entries_between);
                let (at, function) = (address(l.at), l.function.clone());
                let (change, by) = (signed(l.iterations), by(l.iterations));
                t.row([change, by, first, second, entries, then, at, function, l.module.clone()]);
            }
            t.top(TOP, w)?;
        }
        if !self.edges.is_empty() {
            writeln!(w, "\nedges, by executions:")?;
            let mut t =
                Table::new(&["change>", "by>", "first>", "second>", "from>", "to>", "function", "module"]);
            for e in &self.edges {
                let (first, second) = both(of_both(e.count), e.between);
                let (from, to) = (address(e.from), address(e.to));
                let (function, module) = (e.function.clone(), e.module.clone());
                t.row([signed(e.count), by(e.count), first, second, from, to, function, module]);
            }
            t.top(TOP, w)?;
        }
        let within = match (self.n_blocks_within, self.n_edges_within) {
            (0, 0) => String::new(),
            (blocks, edges) => format!(
                "{} and {} may have run as often, or not: threads may have been stopped in the middle of a block\n",
                many(blocks, "block"),
                many(edges, "edge")
            ),
        };
        if self.is_empty() {
            let (a, b) = self.instructions;
            let instructions = if a == b { a.to_string() } else { format!("{a} and {b}") };
            let sure = if within.is_empty() { "" } else { ", as far as is known" };
            return write!(w, "both ran the same{sure}: {instructions} instructions\n{within}");
        }
        write!(
            w,
            "\n{} ran another number of times: {} in the first run alone, {} in the second; \
             {} instructions, then {}: {} ({})\n{within}",
            many(self.n_blocks, "block"),
            self.n_blocks_first_alone,
            self.n_blocks_second_alone,
            self.instructions.0,
            self.instructions.1,
            signed(self.instructions),
            by(self.instructions)
        )
    }
}

fn change((a, b): (u64, u64)) -> i128 {
    i128::from(b) - i128::from(a)
}

impl DiffView {
    /// Whether both ran the same.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.loops.is_empty() && self.edges.is_empty() && self.n_blocks == 0
    }

    fn functions(&self) -> Table {
        let mut t =
            Table::new(&["change>", "by>", "first>", "second>", "entries>", "then>", "function", "module"]);
        for f in &self.functions {
            let (first, second) = both(of_both(f.instructions), f.instructions_between);
            let (entries, then) = both(f.entries, f.entries_between);
            let (name, module) = (f.name.clone(), f.module.clone());
            let (change, by) = (signed(f.instructions), by(f.instructions));
            t.row([change, by, first, second, entries, then, name, module]);
        }
        t
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_share_of_what_was_before() {
        let max = u64::MAX;
        for (counts, share, text) in [
            ((10, 25), Some(1.5), "+150.00 %"),
            ((25, 10), Some(-0.6), "-60.00 %"),
            ((4, 0), Some(-1.0), "-100.00 %"),
            ((3, 3), Some(0.0), "+0.00 %"),
            ((0, 7), None, "-"),
            ((max, 0), Some(-1.0), "-100.00 %"),
        ] {
            assert_eq!((relative(counts), &*by(counts)), (share, text), "{counts:?}");
        }
    }
}
