//! Many builds on many inputs, each against one.

use super::{Amount, Both, FunctionRow, Matched, OutlierRow, RunsView, percent_of, times, whole};
use crate::{Table, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All comparisons.
#[derive(Debug, Serialize, Deserialize)]
pub struct MatrixView {
    /// What this object is, and which version of it.
    #[serde(skip_deserializing, default = "schema")]
    pub schema: &'static str,
    /// What the builds are compared by.
    pub metric: String,
    /// A row an input and build.
    pub rows: Vec<MatrixRow>,
}

fn schema() -> &'static str {
    MatrixView::SCHEMA
}

impl MatrixView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.compare-matrix/1";
}

/// A build on an input, against another.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// What each did in all, by metric.
    #[serde(default)]
    pub totals: Both<BTreeMap<String, Amount>>,
    /// Functions that ran in both, the largest difference first.
    #[serde(default)]
    pub functions: Vec<FunctionRow>,
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

/// Functions of all inputs and builds, the largest difference of a metric first.
#[derive(Debug, Serialize)]
pub struct FunctionsOfMatrix<'a> {
    /// What this object is, and which version of it.
    schema: &'static str,
    /// The metric.
    metric: &'a str,
    /// The functions.
    pub functions: Vec<FunctionOfMatrix<'a>>,
}

/// A function of both builds of a row.
#[derive(Debug, Serialize)]
pub struct FunctionOfMatrix<'a> {
    /// The input.
    pub input: &'a str,
    /// The build.
    pub build: &'a str,
    /// What people call it.
    pub name: &'a str,
    /// How much of the metric in the build that it is compared with.
    pub old: f64,
    /// How much in this one.
    pub new: f64,
    /// The larger of both.
    pub max: f64,
}

impl<'a> FunctionsOfMatrix<'a> {
    /// Those of the rows that are wanted, by their places; the report's JSON has them, too.
    pub fn of(
        view: &'a MatrixView,
        metric: &'a str,
        is_wanted: impl Fn(usize) -> bool,
    ) -> FunctionsOfMatrix<'a> {
        let amount = |all: &BTreeMap<String, Amount>| all.get(metric).copied().unwrap_or_default().0;
        let rows = view.rows.iter().enumerate().filter(|(n, _)| is_wanted(*n)).map(|(_, row)| row);
        let function = |row: &'a MatrixRow, of: &'a FunctionRow| {
            let (old, new) = (amount(&of.old), amount(&of.new));
            FunctionOfMatrix {
                input: &row.input,
                build: &row.new,
                name: &of.name,
                old,
                new,
                max: old.max(new),
            }
        };
        let mut functions: Vec<FunctionOfMatrix<'_>> =
            rows.flat_map(|row| row.functions.iter().map(move |of| function(row, of))).collect();
        functions.sort_by(|a, b| (b.new - b.old).abs().total_cmp(&(a.new - a.old).abs()));
        FunctionsOfMatrix { schema: view.schema, metric, functions }
    }
}

impl View for FunctionsOfMatrix<'_> {
    fn table(&self) -> Table {
        let mut t =
            Table::new(&["difference>", "times>", "max>", "old>", "new>", "input", "build", "function"]);
        for row in &self.functions {
            t.row([
                whole(row.new - row.old),
                times(row.old, row.new),
                whole(row.max),
                whole(row.old),
                whole(row.new),
                row.input.to_owned(),
                row.build.to_owned(),
                row.name.to_owned(),
            ]);
        }
        t
    }
}
