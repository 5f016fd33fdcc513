//! `engraft show REC reuse`, and `--plot`: when calls come again with the same arguments, and pictures of
//! that and of values.

use crate::input::Source;
use crate::output::Hinted;
use anyhow::Context as _;
use profile::values::log::{Log, Part, Table};
use profile::values::{Number, Reuse, Statistics, finite, len_bytes};
use program::signature::{Type, text};
use std::collections::BTreeSet;
use std::path::Path;
use views::chart::{Axis, CELLS, Chart, Marks, Scale, svg};
use views::values::reuse::{DistanceView, FrequentView, MemoView, ReuseView, ReusedView};

/// The recording `rec`, which has a log.
fn logged(rec: &Path) -> anyhow::Result<Source> {
    let source = Source::read(rec)?;
    if source.log().is_none() {
        let what = format!("{} has no log of calls", rec.display());
        return Err(Hinted::new(what, "record one: `engraft values --full`").into());
    }
    Ok(source)
}

/// The tables of `log` that have calls with arguments: of the function `name`, or of all.
fn tables(log: &Log, rec: &Path, name: Option<&str>) -> anyhow::Result<Vec<usize>> {
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

fn reused(reuse: &Reuse, table: &Table, calls: u64) -> ReusedView {
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
fn float(number: Number) -> f64 {
    match number {
        Number::Unsigned(n) => n as f64,
        Number::Signed(n) => n as f64,
        Number::Float(n) => n,
    }
}

/// The pictures of the function `name` in `rec`: each argument and the result that is a number against the
/// number of the call, distances of the most frequent arguments, and how often tables would have had results.
///
/// # Errors
/// If it has no log, or no such calls.
pub fn plot(rec: &Path, name: &str) -> anyhow::Result<String> {
    let source = logged(rec)?;
    let log = source.log().context("it was looked at")?;
    let mut charts = Vec::new();
    for n in tables(log, rec, Some(name))? {
        let table = log.tables.get(n).context("it was found")?;
        for (part, field) in table.fields() {
            let title = format!("{} of {} at each call", field.name, table.name);
            charts.extend(values(
                log,
                n,
                (part, &field.kind),
                title,
                &format!("{} ({})", field.name, field.type_name),
            )?);
        }
        let view = reused(&Reuse::of_log(log, n)?, table, log.n_rows(n));
        charts.push(distances(&view));
        charts.push(hits(&view));
    }
    Ok(svg(&charts))
}

/// Values against the number of the call; none, if they are no numbers.
fn values(
    log: &Log,
    n: usize,
    (part, kind): (Part, &Type),
    title: String,
    label: &str,
) -> anyhow::Result<Option<Chart>> {
    let Some(of) = Statistics::of_log(log, n, part)?.and_then(|all| all.of_finite) else { return Ok(None) };
    let y = Axis::fitting(label, float(of.min), float(of.max));
    let last = log.n_rows(n).max(2);
    let x = Axis {
        label: "call, by its number in order of entry".to_owned(),
        scale: Scale::Linear,
        range: (1.0, float(Number::Unsigned(last))),
    };
    let mut cells = BTreeSet::new();
    for block in log.blocks(n, &[Part::Index, part]) {
        let block = block?;
        for (index, word) in block.words(Part::Index).iter().zip(block.words(part)) {
            if let Some(value) = finite(kind, *word) {
                let at = (x.place(float(Number::Unsigned(*index))), y.place(value));
                cells.insert((cell(at.0, CELLS.0), cell(at.1, CELLS.1)));
            }
        }
    }
    Ok(Some(Chart { title, x, y, marks: Marks::Cells(cells) }))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is between 0 and 1 of so many"
)]
fn cell(share: f64, n: u16) -> u16 {
    ((share * f64::from(n)) as u16).min(n - 1)
}

fn distances(of: &ReusedView) -> Chart {
    let again = of.frequent.iter().filter_map(|one| Some((one.arguments.join(", "), one.distance?)));
    let again: Vec<(String, DistanceView)> = again.collect();
    let most = again.iter().map(|(_, of)| of.max).fold(10.0, f64::max);
    let boxes =
        (0..).zip(&again).map(|(n, (_, of))| (f64::from(n), [of.min, of.q1, of.median, of.q3, of.max]));
    let n = f64::from(u32::try_from(again.len()).unwrap_or(0));
    Chart {
        title: format!("calls of {} until the most frequent arguments come again", of.function),
        marks: Marks::Boxes(boxes.collect()),
        x: Axis {
            label: "arguments, the most frequent first".to_owned(),
            scale: Scale::Names(again.into_iter().map(|(name, _)| name).collect()),
            range: (-0.5, n.max(1.0) - 0.5),
        },
        y: Axis { label: "distance (calls)".to_owned(), scale: Scale::Log(10), range: (1.0, most) },
    }
}

fn hits(of: &ReusedView) -> Chart {
    type Way = fn(&MemoView) -> Option<f64>;
    let ways: [(&str, Way); 5] = [
        ("1 way", |one| one.ways_1),
        ("2 ways", |one| one.ways_2),
        ("4 ways", |one| one.ways_4),
        ("8 ways", |one| one.ways_8),
        ("full", |one| Some(one.full)),
    ];
    let line = |(name, of_way): &(&str, Way)| {
        let entries = |one: &MemoView| float(Number::Unsigned(one.entries));
        let points = of.tables.iter().filter_map(|one| Some((entries(one), 100.0 * of_way(one)?)));
        ((*name).to_owned(), points.collect())
    };
    let most = of.tables.last().map_or(2.0, |one| float(Number::Unsigned(one.entries)));
    Chart {
        title: format!("results of {} that a table would have had", of.function),
        x: Axis { label: "entries of the table".to_owned(), scale: Scale::Log(2), range: (1.0, most) },
        y: Axis { label: "share of the calls (%)".to_owned(), scale: Scale::Linear, range: (0.0, 100.0) },
        marks: Marks::Lines(ways.iter().map(line).collect()),
    }
}
