//! Many builds on many inputs, each against one.

use super::{Both, Matched, OutlierRow, RunsView, percent_of, times, whole};
use crate::{Table, View};
use serde::Serialize;

/// All comparisons.
#[derive(Debug, Serialize)]
pub struct MatrixView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// What the builds are compared by.
    pub metric: String,
    /// A row an input and build.
    pub rows: Vec<MatrixRow>,
}

impl MatrixView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.compare-matrix/1";
}

/// A build on an input, against another.
#[derive(Clone, Debug, Serialize)]
pub struct MatrixRow {
    /// The input.
    pub input: String,
    /// The name of the build that it is compared with.
    pub old: String,
    /// The name of the build.
    pub new: String,
    /// How much of the metric each had.
    pub amount: Both<f64>,
    /// How much of the two runs was found in the other.
    pub matched: Matched,
    /// Where they differ most.
    pub largest: Option<OutlierRow>,
    /// Whether `--fail-if` holds, or is not known.
    pub fails: bool,
    /// How both ran.
    pub runs: RunsView,
}

impl View for MatrixView {
    fn table(&self) -> Table {
        let mut t = Table::new(&[
            "input",
            "against",
            "build",
            "old>",
            "new>",
            "times>",
            "paired>",
            "alike",
            "differs most in",
        ]);
        for row in &self.rows {
            let Both { old, new } = row.amount;
            let heavy = &row.matched.heavy;
            let alike = if row.runs.are_alike() { "yes" } else { "no" };
            let most = row.largest.as_ref().map_or_else(|| "-".to_owned(), |row| row.function.clone());
            t.row([
                row.input.clone(),
                row.old.clone(),
                row.new.clone(),
                whole(old),
                whole(new),
                times(old, new),
                percent_of(heavy.matched, heavy.smaller),
                alike.to_owned(),
                most,
            ]);
        }
        t
    }
}
