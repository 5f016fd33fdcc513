//! Pages of `engraft compare --matrix`: many builds on many inputs. Which of the comparisons are looked at is
//! chosen by check boxes; of these, one metric as bars, and the functions of all by their differences.
//!
//! Source: Chainsaw's viewer (its table of inputs and builds with check boxes, its chart of gobmk, its column
//! Max).

use crate::address::{Asked, Form};
use crate::pages::compared::{difference, normalised, of, ratio, ratio_cell};
use crate::pages::frame::Frame;
use crate::pages::grid::{Bar, Cell, Column, Grid, Rows, Value};
use crate::pages::{Answer, NoPage, Place};
use askama::Template;
use std::collections::BTreeSet;
use views::compare::Both;
use views::compare::matrix::{FunctionOfMatrix, FunctionsOfMatrix, MatrixRow, MatrixView};
use views::ratio as share_of;

/// Pages that lead to each other.
const TABS: [(&str, &str); 1] = [("builds × inputs", "functions")];

/// What is asked for of many comparisons.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    let view = place.recordings.matrix(place.n)?;
    match asked.page {
        "" => Ok(Answer::elsewhere("functions")),
        "functions" => Ok(functions(place, asked, &view)),
        _ => Err(NoPage::Unknown),
    }
}

/// The page: the comparisons, one metric of them, and their functions.
fn functions(place: &Place<'_>, asked: &Asked<'_>, view: &MatrixView) -> Answer {
    let metric = asked.query.get("metric").unwrap_or(&view.metric);
    let chosen: BTreeSet<usize> = asked.query.all("of").filter_map(|n| n.parse().ok()).collect();
    // Without a choice, all.
    let is_chosen = |n: usize| chosen.is_empty() || chosen.contains(&n);
    let all = FunctionsOfMatrix::of(view, metric, is_chosen);
    if asked.form == Form::Json {
        return Answer::twin(view, asked.form, &asked.query);
    }
    if asked.form == Form::Csv {
        return Answer::twin(&all, asked.form, &asked.query);
    }
    let grid = rows(&all.functions).grid(&asked.query, place.orders, place.n);
    if asked.form == Form::Rows {
        return Answer::page(&grid);
    }
    let metrics: BTreeSet<&str> = view
        .rows
        .iter()
        .flat_map(|row| row.totals.old.keys().chain(row.totals.new.keys()))
        .map(String::as_str)
        .chain([view.metric.as_str()])
        .collect();
    let frame = Frame::new(place, "builds × inputs", "")
        .with_command("engraft compare --matrix FILE.toml --json".to_owned())
        .with_tabs("functions", &TABS)
        .with_twins("functions", &asked.query);
    Answer::page(&Page {
        frame,
        metric,
        metrics: metrics.into_iter().collect(),
        builds: builds(view),
        boxes: boxes(view, metric, is_chosen),
        bars: bars(view, metric, is_chosen),
        kept: ["sort", "order", "q"]
            .into_iter()
            .filter_map(|name| Some((name, asked.query.get(name)?)))
            .collect(),
        is_all: chosen.is_empty(),
        grid,
    })
}

/// How much of the metric the two builds of a row had.
fn amount(row: &MatrixRow, view: &MatrixView, metric: &str) -> Both<f64> {
    match metric == view.metric {
        true => row.amount.clone(),
        false => Both { old: of(&row.totals.old, metric), new: of(&row.totals.new, metric) },
    }
}

/// The builds that others are compared with, in the order of the report.
fn builds(view: &MatrixView) -> Vec<&str> {
    let mut builds: Vec<&str> = Vec::new();
    for row in &view.rows {
        if !builds.contains(&row.new.as_str()) {
            builds.push(&row.new);
        }
    }
    builds
}

/// The inputs, in the order of the report.
fn inputs(view: &MatrixView) -> Vec<&str> {
    let mut inputs: Vec<&str> = Vec::new();
    for row in &view.rows {
        if !inputs.contains(&row.input.as_str()) {
            inputs.push(&row.input);
        }
    }
    inputs
}

/// A row of check boxes: of an input, a build each.
struct Boxes<'a> {
    input: &'a str,
    against: &'a str,
    cells: Vec<Option<Choice<'a>>>,
}

/// A comparison that can be looked at, or left out.
struct Choice<'a> {
    n: usize,
    build: &'a str,
    is_chosen: bool,
    times: Cell,
}

fn boxes<'a>(view: &'a MatrixView, metric: &str, is_chosen: impl Fn(usize) -> bool) -> Vec<Boxes<'a>> {
    let cell = |input: &str, build: &str| {
        let (n, row) =
            view.rows.iter().enumerate().find(|(_, row)| row.input == input && row.new == build)?;
        let Both { old, new } = amount(row, view, metric);
        Some(Choice { n, build: &row.new, is_chosen: is_chosen(n), times: ratio_cell(old, new) })
    };
    let of_input = |input: &'a str| Boxes {
        input,
        against: view.rows.iter().find(|row| row.input == input).map_or("", |row| &row.old),
        cells: builds(view).into_iter().map(|build| cell(input, build)).collect(),
    };
    inputs(view).into_iter().map(of_input).collect()
}

/// A bar: a build on an input.
struct OfBuild<'a> {
    input: &'a str,
    build: &'a str,
    is_base: bool,
    value: Cell,
    times: Cell,
    paired: String,
    alike: &'static str,
    most: &'a str,
}

/// One metric of all that are chosen, by input: the build that others are compared with first.
fn bars<'a>(view: &'a MatrixView, metric: &str, is_chosen: impl Fn(usize) -> bool) -> Vec<OfBuild<'a>> {
    let mut bars = Vec::new();
    for input in inputs(view) {
        let rows: Vec<&MatrixRow> = view
            .rows
            .iter()
            .enumerate()
            .filter(|(n, row)| row.input == input && is_chosen(*n))
            .map(|(_, row)| row)
            .collect();
        let amounts: Vec<Both<f64>> = rows.iter().map(|row| amount(row, view, metric)).collect();
        let largest = amounts.iter().fold(0.0, |most: f64, both| most.max(both.old).max(both.new));
        let value = |n: f64| {
            let length = if largest > 0.0 { 100.0 * n / largest } else { 0.0 };
            Cell { bar: Some(Bar { x: 0.0, width: length, kind: "share" }), ..Value::Number(n).cell() }
        };
        if let (Some(row), Some(both)) = (rows.first(), amounts.first()) {
            let base = OfBuild {
                input,
                build: &row.old,
                is_base: true,
                value: value(both.old),
                times: Cell::of("1.00"),
                paired: String::new(),
                alike: "",
                most: "",
            };
            bars.push(base);
        }
        for (row, both) in rows.iter().zip(&amounts) {
            let heavy = &row.matched.heavy;
            bars.push(OfBuild {
                input,
                build: &row.new,
                is_base: false,
                value: value(both.new),
                times: ratio_cell(both.old, both.new),
                paired: share_text(heavy.matched, heavy.smaller),
                alike: if row.runs.are_alike() { "alike" } else { "not alike" },
                most: row.largest.as_ref().map_or("", |of| &of.function),
            });
        }
    }
    bars
}

fn share_text(n: u64, of: u64) -> String {
    if of == 0 { "none".to_owned() } else { views::share(share_of(n, of)) }
}

fn rows<'a>(functions: &'a [FunctionOfMatrix<'a>]) -> Rows<'a, FunctionOfMatrix<'a>> {
    type Row<'a> = FunctionOfMatrix<'a>;
    fn name<'a>(row: &'a Row<'_>) -> &'a str {
        row.name
    }
    let largest = functions.iter().fold(0.0, |most: f64, row| most.max((row.new - row.old).abs()));
    let columns = vec![
        Column::new("difference", "of this build less that of the other", |row: &Row<'_>| {
            Value::Difference(row.new - row.old)
        })
        .shown(move |row| difference(row.old, row.new, largest)),
        Column::new("times", "this build over the other", |row: &Row<'_>| ratio(row.old, row.new))
            .shown(|row| ratio_cell(row.old, row.new)),
        Column::new("max", "the larger one", |row: &Row<'_>| Value::Number(row.max)),
        Column::new("old", "of the build that it is compared with", |row: &Row<'_>| Value::Number(row.old)),
        Column::new("new", "of this build", |row: &Row<'_>| Value::Number(row.new)),
        Column::new("old %", "of the larger one", |row: &Row<'_>| Value::Share(normalised(row.old, row.new))),
        Column::new("new %", "of the larger one", |row: &Row<'_>| Value::Share(normalised(row.new, row.old))),
        Column::new("input", "what it ran on", |row: &Row<'_>| Value::Text(row.input)),
        Column::new("build", "which did", |row: &Row<'_>| Value::Text(row.build)),
        Column::new("function", "what people call it", |row: &Row<'_>| Value::Text(row.name)),
    ];
    Rows {
        page: "functions",
        noun: "functions of both builds",
        rows: functions,
        by: "difference",
        name,
        columns,
    }
}

#[derive(Template)]
#[template(path = "matrix.html")]
struct Page<'a> {
    frame: Frame,
    metric: &'a str,
    metrics: Vec<&'a str>,
    builds: Vec<&'a str>,
    boxes: Vec<Boxes<'a>>,
    bars: Vec<OfBuild<'a>>,
    kept: Vec<(&'static str, &'a str)>,
    is_all: bool,
    grid: Grid,
}
