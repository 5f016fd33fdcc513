//! What `engraft convert` says: what was read, and what was written.

use crate::carry::WrittenView;
use crate::{Table, View, many};
use serde::Serialize;
use std::io::{self, Write};

/// What was read, and what was written.
#[derive(Debug, Serialize)]
pub struct ConvertView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// What was read.
    pub inputs: Vec<InputView>,
    /// What was written.
    pub written: WrittenView,
}

impl ConvertView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.convert/1";
}

/// A file that was read, or an image in it.
#[derive(Debug, Serialize)]
pub struct InputView {
    /// The file, or the image.
    pub file: String,
    /// Its format.
    pub format: &'static str,
    /// Functions with counts; `None` if the file does not say, and no binary was given.
    pub n_functions: Option<usize>,
    /// Blocks with counts.
    pub n_blocks: usize,
    /// Edges with counts; `None` of a trace: its counts are those of blocks, and the rest follows from them
    /// where it is asked for.
    pub n_edges: Option<usize>,
    /// The same of calls.
    pub n_calls: Option<usize>,
    /// What of it was not understood.
    pub lost: Vec<LostView>,
}

/// Counts that were not understood.
#[derive(Debug, Serialize)]
pub struct LostView {
    /// What it is.
    pub what: String,
    /// Why.
    pub why: String,
    /// How many.
    pub count: u64,
}

impl View for ConvertView {
    /// A row an input.
    fn table(&self) -> Table {
        let mut t = Table::new(&["file", "format", "functions>", "blocks>", "edges>", "calls>"]);
        let cell = |n: Option<usize>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
        for i in &self.inputs {
            t.row([
                i.file.clone(),
                i.format.into(),
                cell(i.n_functions),
                i.n_blocks.to_string(),
                cell(i.n_edges),
                cell(i.n_calls),
            ]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        self.table().text(w)?;
        let lost: Vec<_> = self.inputs.iter().flat_map(|i| &i.lost).collect();
        if !lost.is_empty() {
            writeln!(w, "\nread, but not understood:")?;
            let mut t = Table::new(&["count>", "what", "why"]);
            for l in lost.iter().take(10) {
                t.row([l.count.to_string(), l.what.clone(), l.why.clone()]);
            }
            t.text(w)?;
        }
        writeln!(w)?;
        self.written.text(w)
    }
}

/// A trace that was written.
#[derive(Debug, Serialize)]
pub struct TraceView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file that was written.
    pub file: String,
    /// How many symbols it has.
    pub n_symbols: u64,
    /// Bytes of the file.
    pub n_bytes: u64,
}

impl TraceView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.convert-trace/1";
}

impl View for TraceView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["file", "symbols>", "bytes>"]);
        t.row([self.file.clone(), self.n_symbols.to_string(), self.n_bytes.to_string()]);
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        writeln!(w, "wrote {}: {} symbols in {} bytes", self.file, self.n_symbols, self.n_bytes)
    }
}

/// Rows of calls, or of functions, that were written.
#[derive(Debug, Serialize)]
pub struct RowsView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file that was written.
    pub file: String,
    /// How many rows it has.
    pub n_rows: u64,
    /// What the rows are of; nothing, of a comparison.
    pub functions: Vec<LoggedView>,
}

/// The calls of a function, or times that control came to a place, in a log.
#[derive(Debug, Serialize)]
pub struct LoggedView {
    /// Which.
    pub function: String,
    /// How many the log has.
    pub n_rows: u64,
    /// Bytes that these have in the recording.
    pub n_bytes: u64,
}

impl RowsView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.convert-rows/1";
}

impl View for RowsView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["function", "rows>", "bytes in the recording>"]);
        for one in &self.functions {
            t.row([one.function.clone(), one.n_rows.to_string(), one.n_bytes.to_string()]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        if !self.functions.is_empty() {
            self.table().text(w)?;
            writeln!(w)?;
        }
        let rows = many(usize::try_from(self.n_rows).unwrap_or(usize::MAX), "row");
        writeln!(w, "wrote {}: {rows}", self.file)
    }
}

/// A trace that was made of branches.
#[derive(Debug, Serialize)]
pub struct BranchesView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file that was written.
    pub file: String,
    /// How many symbols it has.
    pub n_symbols: u64,
    /// Bytes of the file.
    pub n_bytes: u64,
    /// How many branches it was made of.
    pub n_branches: u64,
    /// How many threads.
    pub n_threads: usize,
    /// How often it is not known what a thread did until its next branch.
    pub n_gaps: u64,
    /// How often a branch does not leave from where control was.
    pub n_astray: u64,
    /// Lines that say what cannot be.
    pub n_senseless: u64,
    /// The files that it is of.
    pub modules: Vec<String>,
}

impl BranchesView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.convert-branches/1";
}

impl View for BranchesView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["file", "symbols>", "bytes>", "branches>", "threads>", "gaps>", "astray>"]);
        t.row([
            self.file.clone(),
            self.n_symbols.to_string(),
            self.n_bytes.to_string(),
            self.n_branches.to_string(),
            self.n_threads.to_string(),
            self.n_gaps.to_string(),
            self.n_astray.to_string(),
        ]);
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let n = |n: u64, what: &str| many(usize::try_from(n).unwrap_or(usize::MAX), what);
        writeln!(
            w,
            "wrote {}: {} symbols in {} bytes, of {} of {}, with {}",
            self.file,
            self.n_symbols,
            self.n_bytes,
            if self.n_branches == 1 {
                "1 branch".to_owned()
            } else {
                format!("{} branches", self.n_branches)
            },
            many(self.n_threads, "thread"),
            n(self.n_gaps, "gap")
        )
    }
}

/// Folded stacks that were written.
#[derive(Debug, Serialize)]
pub struct StacksView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file that was written.
    pub file: String,
    /// How many stacks.
    pub n_stacks: usize,
    /// What the numbers of all stacks add up to.
    pub total: u64,
    /// Of what: blocks or instructions executed.
    pub unit: &'static str,
}

impl StacksView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.convert-stacks/1";
}

impl View for StacksView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["file", "stacks>", "total>", "unit"]);
        t.row([self.file.clone(), self.n_stacks.to_string(), self.total.to_string(), self.unit.into()]);
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let stacks = many(self.n_stacks, "stack");
        writeln!(w, "wrote {}: {stacks}, {} {} executed", self.file, self.total, self.unit)
    }
}

/// Slices that were written.
#[derive(Debug, Serialize)]
pub struct SlicesView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file that was written.
    pub file: String,
    /// How many calls.
    pub n_calls: u64,
    /// Calls that are deeper than was asked for.
    pub n_deeper: u64,
    /// What a microsecond is: one of time, or a symbol.
    pub unit: &'static str,
}

impl SlicesView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.convert-slices/1";
}

impl View for SlicesView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["file", "calls>", "deeper>", "unit"]);
        t.row([self.file.clone(), self.n_calls.to_string(), self.n_deeper.to_string(), self.unit.into()]);
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        write!(
            w,
            "wrote {}: {}",
            self.file,
            many(usize::try_from(self.n_calls).unwrap_or(usize::MAX), "call")
        )?;
        match self.n_deeper {
            0 => writeln!(w),
            n => writeln!(w, ", {n} that are deeper left out"),
        }
    }
}
