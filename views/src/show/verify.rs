//! `show BINARY --verify`: which promises of the analysis are broken.

use crate::{Table, View, address, many};
use serde::Serialize;
use std::io::{self, Write};

/// Every broken promise.
#[derive(Debug, Serialize)]
pub struct VerifyView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file, as it was named.
    pub binary: String,
    /// How many functions.
    pub n_functions: usize,
    /// How many blocks.
    pub n_blocks: usize,
    /// How many edges.
    pub n_edges: usize,
    /// What is broken; nothing, if all is well.
    pub violations: Vec<ViolationRow>,
}

impl VerifyView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.verify/1";
}

/// A broken promise.
#[derive(Debug, Serialize)]
pub struct ViolationRow {
    /// Where.
    pub at: u64,
    /// Which promise.
    pub rule: String,
    /// What is wrong.
    pub text: String,
}

impl View for VerifyView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["at>", "promise", "what is wrong"]);
        for v in &self.violations {
            t.row([address(v.at), v.rule.clone(), v.text.clone()]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let size = [(self.n_functions, "function"), (self.n_blocks, "block"), (self.n_edges, "edge")]
            .map(|(n, what)| many(n, what))
            .join(", ");
        if self.violations.is_empty() {
            return writeln!(w, "{}: verified: {size}", self.binary);
        }
        self.table().text(w)?;
        writeln!(w, "{}: {} promises broken: {size}", self.binary, self.violations.len())
    }
}
