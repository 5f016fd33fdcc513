//! `engraft show REC --plot NAME`: pictures of what a function was called with, and of how its loops ran.

use super::reuse::{float, logged, reused, tables};
use crate::input::Source;
use crate::verbs::values;
use anyhow::Context as _;
use profile::values::log::{Log, Part};
use profile::values::{Number, Reuse, Statistics, finite};
use program::signature::Type;
use std::collections::BTreeSet;
use std::path::Path;
use views::chart::{Axis, CELLS, Chart, Marks, Scale, svg};
use views::values::LoopView;
use views::values::reuse::{DistanceView, MemoView, ReusedView};

/// The pictures of the function `name` in `rec`: of its loops how long iterations take and how many there
/// are; each argument and the result that is a number against the number of the call, distances of the most
/// frequent arguments, and how often tables would have had results.
///
/// # Errors
/// If it has no such loops, and no log, or no such calls.
pub fn plot(rec: &Path, name: &str) -> anyhow::Result<String> {
    let loops = values::recorded(rec)?.map(|view| view.loops).unwrap_or_default();
    let loops = loops.iter().filter(|one| one.function == name && one.instances > 0);
    let mut charts: Vec<Chart> = loops.flat_map(LoopView::charts).collect();
    let source = Source::read(rec)?;
    let has_rows = source.log().is_some_and(|log| log.tables.iter().any(|table| table.name == name));
    if charts.is_empty() || has_rows {
        charts.extend(calls(rec, name)?);
    }
    Ok(svg(&charts))
}

/// Those of its calls.
fn calls(rec: &Path, name: &str) -> anyhow::Result<Vec<Chart>> {
    let source = logged(rec)?;
    let log = source.log().context("it was looked at")?;
    let mut charts = Vec::new();
    for n in tables(log, rec, Some(name))? {
        let table = log.tables.get(n).context("it was found")?;
        for (part, field) in table.fields() {
            let title = format!("{} of {} at each call", field.name, table.name);
            charts.extend(at_each_call(
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
    Ok(charts)
}

/// Values against the number of the call; none, if they are no numbers.
fn at_each_call(
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
