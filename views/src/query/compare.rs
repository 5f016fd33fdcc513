//! Where two traces first differ, and the paths of blocks that one takes alone.

use super::functions::FunctionView;
use super::hottest::blocks;
use super::symbols::{SymbolView, marked};
use crate::{Table, View};
use serde::Serialize;
use std::io::{self, Write};

/// What `--diff` prints.
#[derive(Debug, Serialize)]
pub struct DiffView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The first trace.
    pub first: String,
    /// The second trace.
    pub second: String,
    /// How many blocks a path has.
    pub length: usize,
    /// Where each thread first differs; nothing of those that do not.
    pub divergences: Vec<DivergenceView>,
    /// Paths that one of them takes alone, the most frequent first.
    pub paths: Vec<PathView>,
}

impl DiffView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.query/1";
}

/// Where a thread first differs.
#[derive(Debug, Serialize)]
pub struct DivergenceView {
    /// The thread, numbered from 0.
    pub thread: u32,
    /// The first symbol that is another, from 0.
    pub index: u64,
    /// What both did before.
    pub before: Vec<SymbolView>,
    /// What each did then; nothing, if its stream ends there.
    pub first: Vec<SymbolView>,
    /// The same of the second.
    pub second: Vec<SymbolView>,
}

/// A path that one run takes alone.
#[derive(Debug, Serialize)]
pub struct PathView {
    /// The trace of that run.
    pub only_in: String,
    /// As that trace numbers it.
    #[serde(flatten)]
    pub function: FunctionView,
    /// Its blocks, as that trace numbers them.
    pub blocks: Vec<u32>,
    /// How often it ran.
    pub count: u64,
}

impl View for DiffView {
    /// A row a path that one run takes alone.
    fn table(&self) -> Table {
        let mut t = Table::new(&["only in", "count>", "function", "path"]);
        for p in &self.paths {
            t.row([p.only_in.clone(), p.count.to_string(), p.function.cell(), blocks(&p.blocks)]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        if self.divergences.is_empty() && self.paths.is_empty() {
            return writeln!(w, "the runs are the same");
        }
        for d in &self.divergences {
            writeln!(w, "thread {} differs from symbol {} on", d.thread, d.index)?;
            marked(w, &d.before, None)?;
            for (of, symbols) in [(&self.first, &d.first), (&self.second, &d.second)] {
                writeln!(w, "{of}:")?;
                match symbols.is_empty() {
                    true => writeln!(w, "> the end")?,
                    false => marked(w, symbols, Some(d.index))?,
                }
            }
        }
        if self.divergences.is_empty() {
            writeln!(w, "the threads are the same")?;
        }
        match self.paths.is_empty() {
            true => writeln!(w, "no path of {} blocks is taken by one alone", self.length),
            false => self.table().text(w),
        }
    }
}
