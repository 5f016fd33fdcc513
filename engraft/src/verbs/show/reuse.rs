//! `engraft show REC reuse`: when calls come again with the same arguments.

use crate::input::Source;
use crate::output::Hinted;
use anyhow::Context as _;
use profile::values::log::{Log, Table};
use profile::values::{Number, Reuse, Statistics, len_bytes};
use program::signature::text;
use std::path::Path;
use views::values::reuse::{DistanceView, FrequentView, MemoView, ReuseView, ReusedView};

/// The recording `rec`, which has a log.
pub(super) fn logged(rec: &Path) -> anyhow::Result<Source> {
    let source = Source::read(rec)?;
    if source.log().is_none() {
        let what = format!("{} has no log of calls", rec.display());
        return Err(Hinted::new(what, "record one: `engraft values --full`").into());
    }
    Ok(source)
}

/// The tables of `log` that have calls with arguments: of the function `name`, or of all.
pub(super) fn tables(log: &Log, rec: &Path, name: Option<&str>) -> anyhow::Result<Vec<usize>> {
    if let Some(table) = log.tables.iter().find(|table| table.every > 1) {
        let what = format!(
            "the log in {} has one call in {}: it does not say which come again",
            rec.display(),
            table.every
        );
        return Err(
            Hinted::new(what, "record all, or the first ones: `engraft values --full --first N`").into()
        );
    }
    let has_arguments = |table: &Table| !table.is_place && !table.arguments.is_empty();
    let is_it = |table: &Table| has_arguments(table) && name.is_none_or(|name| table.name == name);
    let found: Vec<usize> = (0..).zip(&log.tables).filter(|(_, table)| is_it(table)).map(|at| at.0).collect();
    if found.is_empty() {
        let of = name.map_or_else(|| "a function".to_owned(), str::to_owned);
        let known: Vec<&str> = log.tables.iter().take(10).map(|table| table.name.as_str()).collect();
        let what = format!("the log in {} has no call of {of} with its arguments", rec.display());
        return Err(Hinted::new(what, format!("it has rows of {}", known.join(", "))).into());
    }
    Ok(found)
}

/// How calls in `rec` come again: of the function `name`, or of all.
///
/// # Errors
/// If it has no log, or no such calls.
pub fn view(rec: &Path, name: Option<&str>) -> anyhow::Result<ReuseView> {
    let source = logged(rec)?;
    let log = source.log().context("it was looked at")?;
    let of = |n: usize| -> anyhow::Result<ReusedView> {
        let (reuse, table) = (Reuse::of_log(log, n)?, log.tables.get(n).context("it was found")?);
        Ok(reused(&reuse, table, log.n_rows(n)))
    };
    let functions = tables(log, rec, name)?.into_iter().map(of).collect::<Result<_, _>>()?;
    Ok(ReuseView { schema: ReuseView::SCHEMA, functions })
}

#[expect(clippy::cast_precision_loss, reason = "it is a share")]
fn share(n: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { n as f64 / of as f64 }
}

/// What is said of calls of a function, of which the log has so many.
pub(super) fn reused(reuse: &Reuse, table: &Table, calls: u64) -> ReusedView {
    let memo = |(n, hits): (u32, &profile::values::Hits)| {
        let [a, b, c, d] = hits.by_ways.map(|hits| hits.map(|hits| share(hits, reuse.n_calls)));
        let full = share(hits.full, reuse.n_calls);
        MemoView { entries: 1 << n, ways_1: a, ways_2: b, ways_4: c, ways_8: d, full }
    };
    let frequent = |one: &profile::values::Frequent| FrequentView {
        arguments: spelt(table, &one.words),
        count: one.count,
        distance: distance(&one.distances),
    };
    ReusedView {
        function: table.name.clone(),
        calls,
        looked_at: reuse.n_calls,
        distinct: reuse.n_distinct,
        tables: (0..).zip(&reuse.hits).map(memo).collect(),
        frequent: reuse.frequent.iter().map(frequent).collect(),
    }
}

/// The arguments that these words are.
fn spelt(table: &Table, words: &[u64]) -> Vec<String> {
    let mut words = words.iter();
    let mut all = Vec::new();
    for field in &table.arguments {
        let bytes = words.by_ref().take(field.n_words()).flat_map(|word| word.to_le_bytes());
        let bytes: Vec<u8> = bytes.collect();
        all.push(text::text(&field.kind, bytes.get(..len_bytes(&field.kind)).unwrap_or(&bytes)));
    }
    all
}

fn distance(all: &[(u64, u64)]) -> Option<DistanceView> {
    let of = Statistics::of_counts(all).of_finite?;
    Some(DistanceView { min: float(of.min), q1: of.q1, median: of.median, q3: of.q3, max: float(of.max) })
}

#[expect(clippy::cast_precision_loss, reason = "it is drawn")]
/// For a picture, or a number that is printed.
pub(super) fn float(number: Number) -> f64 {
    match number {
        Number::Unsigned(n) => n as f64,
        Number::Signed(n) => n as f64,
        Number::Float(n) => n,
    }
}
