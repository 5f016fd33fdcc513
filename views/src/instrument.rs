//! What `engraft instrument` says: what was moved, and what was not.

use crate::{Table, View};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// What was moved, and what was not.
#[derive(Debug, Serialize)]
pub struct InstrumentView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file that was written.
    pub file: String,
    /// Its length.
    pub len_bytes: usize,
    /// The length of the file that it was made of.
    pub old_len_bytes: usize,
    /// How many functions the program has.
    pub n_functions: usize,
    /// Those that were moved.
    pub n_moved: usize,
    /// Those that were not, by reason.
    pub stays: Vec<NotMovedView>,
    /// How many jumps over old code there are, by their form.
    pub springboards: BTreeMap<&'static str, usize>,
}

impl InstrumentView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.instrument/1";
}

/// Functions that were not moved for the same reason.
#[derive(Debug, Serialize)]
pub struct NotMovedView {
    /// The reason.
    pub why: String,
    /// How many they are.
    pub n_functions: usize,
    /// Some of their names.
    pub examples: Vec<String>,
    /// Where all of them start.
    pub at: Vec<u64>,
}

impl View for InstrumentView {
    /// A row a reason to stay.
    fn table(&self) -> Table {
        let mut t = Table::new(&["functions>", "stay where they are", "such as"]);
        for s in &self.stays {
            t.row([s.n_functions.to_string(), s.why.clone(), s.examples.join(", ")]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        writeln!(w, "moved {} of {} functions", self.n_moved, self.n_functions)?;
        if !self.stays.is_empty() {
            writeln!(w)?;
            self.table().text(w)?;
        }
        let boards: Vec<String> =
            self.springboards.iter().map(|(tactic, n)| format!("{n} {tactic}")).collect();
        writeln!(w, "\nspringboards: {}", boards.join(", "))?;
        writeln!(w, "wrote {}: {} bytes, was {}", self.file, self.len_bytes, self.old_len_bytes)
    }
}
