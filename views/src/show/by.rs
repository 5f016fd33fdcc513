//! Where a recording's instructions went, by line, file or module.

use super::counts::CountsView;
use crate::table::Table;
use crate::{View, share};
use serde::Serialize;
use std::io::{self, Write};

/// Where instructions went.
#[derive(Debug, Serialize)]
pub struct By {
    /// All of them.
    pub instructions: u64,
    /// Where they went, most first.
    #[serde(flatten)]
    pub rows: Rows,
}

/// Rows, under the name of what they are.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// A row a line.
    Lines(Vec<Row>),
    /// A row a source file.
    Files(Vec<Row>),
    /// A row a module.
    Modules(Vec<Row>),
}

/// What ran of one.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The file that the code is in.
    pub module: String,
    /// The source file; `null`: it is not known, or not asked for.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// How many instructions ran.
    pub instructions: u64,
    /// Of all, `0.0..=1.0`.
    pub share: f64,
}

/// What stands where no source is known.
const UNKNOWN: &str = "(no line known)";
/// How many rows people see.
const TOP: usize = 20;

impl View for CountsView<By> {
    fn table(&self) -> Table {
        let (heading, rows) = match &self.rows.rows {
            Rows::Lines(rows) => ("line", rows),
            Rows::Files(rows) => ("file", rows),
            Rows::Modules(rows) => return modules(rows),
        };
        let mut t = Table::new(&["share>", "instructions>", heading, "module"]);
        for r in rows {
            let place = match (&r.file, r.line) {
                (Some(file), Some(line)) => format!("{file}:{line}"),
                (Some(file), None) => file.clone(),
                (None, _) => UNKNOWN.to_owned(),
            };
            t.row([share(r.share), r.instructions.to_string(), place, r.module.clone()]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        self.table().top(TOP, w)?;
        writeln!(w, "{} instructions in all", self.rows.instructions)
    }
}

fn modules(rows: &[Row]) -> Table {
    let mut t = Table::new(&["share>", "instructions>", "module"]);
    for r in rows {
        t.row([share(r.share), r.instructions.to_string(), r.module.clone()]);
    }
    t
}
