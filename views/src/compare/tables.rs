//! Metrics of parts of both runs, a row each: functions, loops, modules.

use super::{Amount, Both, CompareView, FunctionRow, UnmatchedRow, difference, outliers_table, times, whole};
use crate::{Table, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Metrics by name.
type Amounts = BTreeMap<String, Amount>;

/// A metric of a part of both builds; of one alone, where the other has nothing.
struct Row {
    of: [Option<f64>; 2],
    /// How often it was called, or went round.
    times: [Option<f64>; 2],
    name: String,
}

impl Row {
    fn new(of: [Option<&Amounts>; 2], metric: &str, times: [Option<f64>; 2], name: &str) -> Row {
        let amount = |all: &Amounts| all.get(metric).copied().unwrap_or_default().0;
        Row { of: of.map(|all| all.map(amount)), times, name: name.to_owned() }
    }
}

/// The largest difference first.
fn table(mut rows: Vec<Row>, headings: &[&'static str]) -> Table {
    let both = |row: &Row| row.of.map(Option::unwrap_or_default);
    let size = |row: &Row| {
        let [old, new] = both(row);
        (new - old).abs()
    };
    rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let mut t = Table::new(headings);
    for row in rows {
        let [old, new] = both(&row);
        let [ran, then] = row.of.map(|of| of.map_or_else(|| "-".to_owned(), whole));
        let [often, again] = row.times.map(|of| of.map_or_else(|| "-".to_owned(), whole));
        let more = if row.of.contains(&None) { "-".to_owned() } else { times(old, new) };
        t.row([difference(old, new), more, ran, then, often, again, row.name]);
    }
    t
}

fn of_calls(all: Option<&Amounts>) -> Option<f64> {
    Some(all?.get("calls").copied().unwrap_or_default().0)
}

/// Functions of both builds, and those of one alone.
pub(super) fn functions(rows: &[FunctionRow], alone: &Both<Vec<UnmatchedRow>>, metric: &str) -> Table {
    let row = |of: [Option<&Amounts>; 2], name: &str| Row::new(of, metric, of.map(of_calls), name);
    let both = rows.iter().map(|of| row([Some(&of.old), Some(&of.new)], &of.name));
    let old = alone.old.iter().map(|of| row([Some(&of.metrics), None], &of.name));
    let new = alone.new.iter().map(|of| row([None, Some(&of.metrics)], &of.name));
    let all = both.chain(old).chain(new).collect();
    table(all, &["difference>", "times>", "old>", "new>", "calls>", "then>", "function"])
}

/// All functions, and nothing else.
#[derive(Debug, Serialize)]
pub struct FunctionsView<'a> {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// Of both builds, the largest difference first.
    pub functions: &'a [FunctionRow],
    /// Of one build alone.
    pub unmatched: &'a Both<Vec<UnmatchedRow>>,
    /// The metric that is shown.
    #[serde(skip)]
    pub metric: &'a str,
}

impl FunctionsView<'_> {
    /// The schema that its JSON names.
    pub const SCHEMA: &'static str = "engraft.compare-functions/1";
}

impl View for FunctionsView<'_> {
    fn table(&self) -> Table {
        functions(self.functions, self.unmatched, self.metric)
    }
}

/// A comparison of which a spreadsheet gets the functions of one build alone.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct OfOneBuild<'a>(pub &'a CompareView);

impl View for OfOneBuild<'_> {
    fn table(&self) -> Table {
        functions(&[], &self.0.unmatched, &self.0.metric)
    }
}

/// A comparison of which a spreadsheet gets the intervals that differ.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Outliers<'a>(pub &'a CompareView);

impl View for Outliers<'_> {
    fn table(&self) -> Table {
        outliers_table(&(1..).zip(&self.0.outliers).collect::<Vec<_>>())
    }
}

/// All loops.
#[derive(Debug, Serialize)]
pub struct LoopsView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The largest difference first.
    pub loops: Vec<LoopRow>,
    /// The metric that is shown.
    #[serde(skip)]
    pub metric: String,
}

impl LoopsView {
    /// The schema that its JSON names.
    pub const SCHEMA: &'static str = "engraft.compare-loops/1";
}

/// A loop of both builds, or of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoopRow {
    /// The function that it is in.
    pub function: String,
    /// Where it is, as people say it; nothing where a build does not have it.
    pub at: Both<Option<String>>,
    /// How often its header ran.
    pub rounds: Both<u64>,
    /// What ran in it in the old build, with loops in it, but without what it called: by metric.
    pub old: BTreeMap<String, Amount>,
    /// The same in the new build.
    pub new: BTreeMap<String, Amount>,
}

impl View for LoopsView {
    fn table(&self) -> Table {
        let row = |of: &LoopRow| {
            let has = [of.at.old.is_some(), of.at.new.is_some()];
            let [old, new] = [&of.old, &of.new];
            #[expect(clippy::cast_precision_loss, reason = "counts up to 2⁵³ are exact")]
            let rounds = [of.rounds.old as f64, of.rounds.new as f64];
            let [at, then] = [&of.at.old, &of.at.new].map(|at| at.clone().unwrap_or_else(|| "-".to_owned()));
            let place = if at == then { at } else { format!("{at} | {then}") };
            Row::new(
                [has[0].then_some(old), has[1].then_some(new)],
                &self.metric,
                [has[0].then_some(rounds[0]), has[1].then_some(rounds[1])],
                &format!("{}, {place}", of.function),
            )
        };
        let rows = self.loops.iter().map(row).collect();
        table(rows, &["difference>", "times>", "old>", "new>", "rounds>", "then>", "loop"])
    }
}

/// All modules.
#[derive(Debug, Serialize)]
pub struct ModulesView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The largest difference first.
    pub modules: Vec<ModuleRow>,
    /// The metric that is shown.
    #[serde(skip)]
    pub metric: String,
}

impl ModulesView {
    /// The schema that its JSON names.
    pub const SCHEMA: &'static str = "engraft.compare-modules/1";
}

/// A program or library of both runs, or of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModuleRow {
    /// What the file is called; nothing where a run did not have it.
    pub module: Both<Option<String>>,
    /// What ran of it in the old build: by metric.
    pub old: BTreeMap<String, Amount>,
    /// The same in the new build.
    pub new: BTreeMap<String, Amount>,
}

impl View for ModulesView {
    fn table(&self) -> Table {
        let row = |of: &ModuleRow| {
            let both =
                [of.module.old.is_some().then_some(&of.old), of.module.new.is_some().then_some(&of.new)];
            let names: Vec<&str> =
                [&of.module.old, &of.module.new].into_iter().flatten().map(|x| &**x).collect();
            let name = match names[..] {
                [old, new] if old != new => format!("{old} | {new}"),
                [name, ..] => name.to_owned(),
                [] => String::new(),
            };
            Row::new(both, &self.metric, both.map(of_calls), &name)
        };
        let rows = self.modules.iter().map(row).collect();
        table(rows, &["difference>", "times>", "old>", "new>", "calls>", "then>", "module"])
    }
}
