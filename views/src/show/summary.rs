//! `show BINARY`: identity, compiler, how much there is, how much was understood.

use crate::{Table, View, percent};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The whole binary on one page.
#[derive(Debug, Serialize)]
pub struct SummaryView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file, as it was named.
    pub binary: String,
    /// What sort of file it is.
    pub kind: &'static str,
    /// What identifies its code and data.
    pub image_id: String,
    /// Its build-id in hexadecimal, if it has one.
    pub build_id: Option<String>,
    /// What its compilers say of themselves.
    pub compilers: Vec<String>,
    /// What was left out of the analysis, and why.
    pub notes: Vec<String>,
    /// Bytes of code.
    pub code_bytes: u64,
    /// Those in functions.
    pub code_bytes_in_functions: u64,
    /// Between functions, and of no known use.
    pub code_bytes_padding: u64,
    /// How many functions.
    pub n_functions: usize,
    /// Those with a symbol.
    pub n_functions_named: usize,
    /// Those whose control flow is understood to the end.
    pub n_functions_complete: usize,
    /// How many were found in each way.
    pub functions_by_origin: BTreeMap<&'static str, usize>,
    /// How many are as sure as that.
    pub functions_by_sure: BTreeMap<&'static str, usize>,
    /// How many blocks.
    pub n_blocks: usize,
    /// How many edges.
    pub n_edges: usize,
    /// How many calls.
    pub n_calls: usize,
    /// How many loops.
    pub n_loops: usize,
    /// Those with several headers.
    pub n_loops_irreducible: usize,
    /// How many jump tables.
    pub n_tables: usize,
    /// Entries of all of them.
    pub n_table_entries: usize,
    /// How many data objects.
    pub data_objects: usize,
    /// Bytes of all of them.
    pub data_bytes: u64,
    /// Code that was not understood, by reason.
    pub gaps: Vec<GapSum>,
}

impl SummaryView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.show/1";
}

/// Gaps with the same reason.
#[derive(Debug, Serialize)]
pub struct GapSum {
    /// Why they were not understood.
    pub reason: &'static str,
    /// How many.
    pub n: usize,
    /// Bytes of all of them.
    pub len_bytes: u64,
}

impl View for SummaryView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["what", "value"]);
        for (what, value) in self.lines() {
            t.row([what.into(), value]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        for (what, value) in self.lines() {
            writeln!(w, "{what:<12}{value}")?;
        }
        Ok(())
    }
}

impl SummaryView {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let counts = |of: &BTreeMap<&'static str, usize>| {
            of.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
        };
        let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let mut lines = vec![
            ("binary", self.binary.clone()),
            ("kind", self.kind.to_owned()),
            ("image", self.image_id.clone()),
            ("build-id", self.build_id.clone().unwrap_or_else(|| "none".into())),
        ];
        if self.compilers.is_empty() {
            lines.push(("compiler", "not said".into()));
        }
        lines.extend(self.compilers.iter().map(|c| ("compiler", c.clone())));
        lines.extend(self.notes.iter().map(|n| ("left out", n.clone())));
        lines.push((
            "code",
            format!(
                "{} bytes, {} of them padding; {} of the rest in functions",
                self.code_bytes,
                self.code_bytes_padding,
                percent(
                    bytes(self.code_bytes_in_functions),
                    bytes(self.code_bytes - self.code_bytes_padding)
                )
            ),
        ));
        lines.push((
            "functions",
            format!(
                "{}: {} named, {} fully understood",
                self.n_functions, self.n_functions_named, self.n_functions_complete
            ),
        ));
        lines.push(("  found by", counts(&self.functions_by_origin)));
        if self.functions_by_sure.keys().any(|&s| s != "proved") {
            lines.push(("  sure", counts(&self.functions_by_sure)));
        }
        lines.push(("blocks", format!("{}, {} edges, {} calls", self.n_blocks, self.n_edges, self.n_calls)));
        lines.push(("loops", format!("{}, {} of them irreducible", self.n_loops, self.n_loops_irreducible)));
        lines.push(("tables", format!("{}, {} entries", self.n_tables, self.n_table_entries)));
        lines.push(("data", format!("{} objects, {} bytes", self.data_objects, self.data_bytes)));
        if self.gaps.is_empty() {
            lines.push(("gaps", "none".into()));
        }
        for g in &self.gaps {
            lines.push(("gaps", format!("{} {}, {} bytes", g.n, g.reason, g.len_bytes)));
        }
        lines
    }
}
