//! `show BINARY --verify`: does the analysis keep what it promises?

use crate::output::Answer;
use program::{Program, Va};
use serde::Serialize;
use std::io::{self, Write};
use tracing::info_span;
use views::{Table, View, many};

/// Every broken promise.
#[derive(Serialize)]
pub struct VerifyView {
    schema: &'static str,
    binary: String,
    n_functions: usize,
    n_blocks: usize,
    n_edges: usize,
    violations: Vec<ViolationRow>,
}

#[derive(Serialize)]
struct ViolationRow {
    at: u64,
    rule: String,
    text: String,
}

/// Checks `program`.
pub fn view(program: &Program) -> VerifyView {
    let violations = info_span!("verify").in_scope(|| program.verify());
    VerifyView {
        schema: "engraft.verify/1",
        binary: program.image.name.clone(),
        n_functions: program.functions.len(),
        n_blocks: program.blocks.len(),
        n_edges: program.edges.len(),
        violations: violations
            .into_iter()
            .map(|v| ViolationRow { at: v.at.0, rule: format!("{:?}", v.rule), text: v.text })
            .collect(),
    }
}

impl VerifyView {
    /// Yes if nothing is broken.
    pub fn answer(&self) -> Answer {
        if self.violations.is_empty() { Answer::Yes } else { Answer::No }
    }
}

impl View for VerifyView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["at>", "promise", "what is wrong"]);
        for v in &self.violations {
            t.row([Va(v.at).to_string(), v.rule.clone(), v.text.clone()]);
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
