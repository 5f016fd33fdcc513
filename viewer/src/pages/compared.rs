//! Pages of two builds: what differs, function by function and between the same two points.

use super::frame::{Frame, word};
use super::grid::{Bar, Cell, Column, Grid, Rows, Value};
use super::{Answer, NoPage, Place, list, trees};
use crate::address::{Asked, Form, Query};
use askama::Template;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use views::compare::kept::KeptComparison;
use views::compare::parts::{IntervalRow, IntervalsView, OutlierView, RanBlock};
use views::compare::tables::{FunctionsView, OfOneBuild, Outliers};
use views::compare::{Amount, Both, FunctionRow, FunctionView, MetricRow, OutlierRow, UnmatchedRow};
use views::{address, grouped};

/// Pages that lead to each other.
const TABS: [(&str, &str); 7] = [
    ("functions", "functions"),
    ("in one build alone", "alone"),
    ("differences", "outliers"),
    ("intervals", "intervals"),
    ("flame graph", "flame"),
    ("calls", "tree"),
    ("time", "time"),
];

/// How many places where a function differs its page names, before it leads to all.
const MOST_PLACES: usize = 8;

/// What is asked for of a comparison.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    let kept = place.recordings.compared(place.n)?;
    match asked.page {
        "" => Ok(Answer::elsewhere("functions")),
        "functions" => Ok(functions(place, asked, &kept)),
        "function" => function(place, asked, &kept),
        "alone" => Ok(alone(place, asked, &kept)),
        "outliers" => Ok(outliers(place, asked, &kept)),
        "outlier" => outlier(place, asked, &kept),
        "intervals" => Ok(intervals(place, asked, &kept)),
        "time" => trees::time::of_both(place, asked, kept.times.as_ref(), &TABS),
        "flame" | "tree" => trees::both::answer(place, asked, kept.trees.as_ref(), &TABS),
        _ => Err(NoPage::Unknown),
    }
}

pub fn of(all: &BTreeMap<String, Amount>, metric: &str) -> f64 {
    all.get(metric).copied().unwrap_or_default().0
}

/// By how much two numbers differ, with a bar from the middle: to the left what is less, to the right what is
/// more, as long as `largest` is half of it.
pub fn difference(old: f64, new: f64, largest: f64) -> Cell {
    let by = new - old;
    let length = if largest > 0.0 { (50.0 * by.abs() / largest).min(50.0) } else { 0.0 };
    let bar = match by < 0.0 {
        true => Bar { x: 50.0 - length, width: length, kind: "less" },
        false => Bar { x: 50.0, width: length, kind: "more" },
    };
    let text = if by.fract() == 0.0 { format!("{by:+.0}") } else { format!("{by:+.2}") };
    Cell { title: format!("{by:+}"), bar: Some(bar), ..Cell::of(&grouped(&text)) }
}

/// New over old; not known, if there was nothing.
pub fn ratio(old: f64, new: f64) -> Value<'static> {
    if old > 0.0 { Value::Number(new / old) } else { Value::Unknown }
}

pub fn ratio_cell(old: f64, new: f64) -> Cell {
    match ratio(old, new) {
        Value::Number(n) => Cell { title: n.to_string(), ..Cell::of(&format!("{n:.2}")) },
        _ if new > 0.0 => Cell { title: "the old build has none".to_owned(), ..Cell::of("new") },
        _ => Cell { title: "neither build has any".to_owned(), ..Cell::of("–") },
    }
}

/// A number of each build in percent of the larger one.
pub fn normalised(n: f64, other: f64) -> f64 {
    MetricRow::new("", n, other).normalised.old / 100.0
}

fn sure(confidence: f64) -> Cell {
    Cell { title: confidence.to_string(), ..Cell::of(&format!("{confidence:.2}")) }
}

/// The same place of both builds.
fn both(places: &Both<String>) -> String {
    match places.old == places.new {
        true => places.old.clone(),
        false => format!("{} (new: {})", places.old, places.new),
    }
}

/// Where an interval ends; of rounds that are compared together, how many there are in each build.
fn end(places: &Both<String>) -> String {
    match (places.old.strip_suffix(" rounds"), places.new.strip_suffix(" rounds")) {
        (Some(old), Some(new)) if old == new => format!("its end, after {} rounds in all", grouped(old)),
        (Some(old), Some(new)) => {
            format!("its end, after {} rounds in all (new: {})", grouped(old), grouped(new))
        }
        _ => both(places),
    }
}

fn function_link(name: &str) -> String {
    Query::default().with("name", Some(name)).link("function")
}

/// The first page: what was compared, and the functions of both.
fn functions(place: &Place<'_>, asked: &Asked<'_>, kept: &Arc<KeptComparison>) -> Answer {
    let view = &kept.comparison;
    let metric = asked.query.get("metric").unwrap_or(&view.metric);
    if matches!(asked.form, Form::Json | Form::Csv) {
        let (functions, unmatched) = (view.functions.as_slice(), &view.unmatched);
        let twin = FunctionsView { schema: FunctionsView::SCHEMA, functions, unmatched, metric };
        return Answer::twin(&twin, asked.form, &asked.query);
    }
    // In the order that the comparison has, if it is by this metric.
    let query = match asked.query.get("sort") {
        None if metric != view.metric => asked.query.with("sort", Some("difference")),
        _ => asked.query.clone(),
    };
    let grid = function_rows(&view.functions, metric).grid(&query, place.orders, place.n);
    if asked.form == Form::Rows {
        return Answer::page(&grid);
    }
    let names: BTreeSet<&str> = view
        .functions
        .iter()
        .flat_map(|row| row.old.keys().chain(row.new.keys()))
        .map(String::as_str)
        .collect();
    let frame = Frame::new(place, "functions", "")
        .with_tabs("functions", &TABS)
        .with_twins("functions", &asked.query);
    let (old, new) = (of(&view.totals.old, metric), of(&view.totals.new, metric));
    Answer::page(&Overview {
        frame,
        facts: facts(kept, metric),
        total: difference(old, new, old.max(new)),
        metric,
        metrics: names.into_iter().collect(),
        kept: ["sort", "order", "q"]
            .into_iter()
            .filter_map(|name| Some((name, asked.query.get(name)?)))
            .collect(),
        grid,
    })
}

/// What was compared.
fn facts(kept: &KeptComparison, metric: &str) -> Vec<(&'static str, String)> {
    let view = &kept.comparison;
    let number = |n: f64| grouped(&if n.fract() == 0.0 { format!("{n:.0}") } else { format!("{n:.2}") });
    let (old, new) = (of(&view.totals.old, metric), of(&view.totals.new, metric));
    let mut facts = vec![("old", view.traces.old.clone()), ("new", view.traces.new.clone())];
    if let Some(runs) = &view.runs {
        facts.push((
            "runs",
            if runs.are_alike() {
                "ended alike, and printed the same"
            } else {
                "did not end, or print, the same"
            }
            .to_owned(),
        ));
    }
    let times = if old > 0.0 { format!(", {:.2} times", new / old) } else { String::new() };
    facts.push(("in all", format!("{}, then {}{times}", number(old), number(new))));
    let events = |of: &views::compare::MatchedEvents| {
        let share = if of.smaller == 0 {
            "none".to_owned()
        } else {
            views::share(views::ratio(of.matched, of.smaller))
        };
        format!("{} of {} ({share})", grouped(&of.matched.to_string()), grouped(&of.smaller.to_string()))
    };
    facts.push((
        "paired",
        format!("{} calls, returns and rounds of outer loops", events(&view.matched.light)),
    ));
    facts.push(("", format!("{} with rounds of inner loops", events(&view.matched.heavy))));
    if view.unsteady > 0 {
        facts.push(("left out", format!("{} that differ between runs of one build", view.unsteady)));
    }
    facts
}

fn function_rows<'a>(functions: &'a [FunctionRow], metric: &'a str) -> Rows<'a, FunctionRow> {
    fn name(row: &FunctionRow) -> &str {
        &row.name
    }
    let pair = move |row: &FunctionRow| (of(&row.old, metric), of(&row.new, metric));
    let largest =
        functions.iter().map(|row| pair(row).1 - pair(row).0).fold(0.0, |most: f64, by| most.max(by.abs()));
    let columns = vec![
        Column::new("difference", "new less old", move |row| Value::Difference(pair(row).1 - pair(row).0))
            .shown(move |row| difference(pair(row).0, pair(row).1, largest)),
        Column::new("times", "new over old", move |row| ratio(pair(row).0, pair(row).1))
            .shown(move |row| ratio_cell(pair(row).0, pair(row).1)),
        Column::new("old", "of the old build", move |row| Value::Number(pair(row).0)),
        Column::new("new", "of the new build", move |row| Value::Number(pair(row).1)),
        Column::new("old %", "of the larger one", move |row| {
            Value::Share(normalised(pair(row).0, pair(row).1))
        }),
        Column::new("new %", "of the larger one", move |row| {
            Value::Share(normalised(pair(row).1, pair(row).0))
        }),
        Column::new("max", "the larger one", move |row| Value::Number(pair(row).0.max(pair(row).1))),
        Column::new("old calls", "of the old build", |row: &FunctionRow| {
            Value::Number(of(&row.old, "calls"))
        }),
        Column::new("new calls", "of the new build", |row: &FunctionRow| {
            Value::Number(of(&row.new, "calls"))
        }),
        Column::new("function", "what people call it", |row: &FunctionRow| Value::Text(&row.name))
            .shown(|row| Cell::of(&row.name).to(function_link(&row.name))),
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

/// A function of both builds: all its metrics.
fn function(place: &Place<'_>, asked: &Asked<'_>, kept: &Arc<KeptComparison>) -> Result<Answer, NoPage> {
    let view = &kept.comparison;
    let name = asked.query.get("name").ok_or(NoPage::Unknown)?;
    let found: FunctionView = view.function(name).ok_or(NoPage::Unknown)?;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&found, asked.form, &asked.query));
    }
    // What changed most says most.
    let query = match asked.query.get("sort") {
        None => asked.query.with("sort", Some("difference")),
        Some(_) => asked.query.clone(),
    };
    let rows = metric_rows(&found.metrics).grid(&query, place.orders, place.n);
    if asked.form == Form::Rows {
        return Ok(Answer::page(&rows));
    }
    // What one build alone has is among no others.
    let at = view.functions.iter().position(|row| row.name == name);
    let link =
        |at: Option<usize>| at.and_then(|at| view.functions.get(at)).map(|row| function_link(&row.name));
    let here: Vec<(usize, &OutlierRow)> =
        (1..).zip(&view.outliers).filter(|(_, row)| row.function == name).collect();
    let frame = Frame::new(place, name, &format!("function {}", word(name)));
    let confidence = at.and_then(|at| view.functions.get(at)).map(|row| format!("{:.2}", row.confidence));
    Ok(Answer::page(&OfBoth {
        frame: frame.with_tabs("functions", &TABS).with_twins("function", &asked.query),
        name,
        confidence: confidence.unwrap_or_default(),
        before: link(at.and_then(|at| at.checked_sub(1))),
        behind: link(at.map(|at| at + 1)),
        outliers: here
            .iter()
            .take(MOST_PLACES)
            .map(|&(n, row)| (n, both(&row.from), end(&row.to), difference(row.old.0, row.new.0, 0.0).text))
            .collect(),
        n_more: here.len().saturating_sub(MOST_PLACES),
        all: Query::default().with("q", Some(name)).link("outliers"),
        intervals: Query::default().with("q", Some(name)).link("intervals"),
        grid: rows,
    }))
}

fn metric_rows(metrics: &[MetricRow]) -> Rows<'_, MetricRow> {
    fn name(row: &MetricRow) -> &str {
        &row.metric
    }
    let share = |percent: f64| {
        let cell = Value::Share(percent / 100.0).cell().with_share(percent / 100.0);
        Cell { title: format!("{percent:.3} %"), ..cell }
    };
    let columns = vec![
        Column::new("metric", "what is counted", |row: &MetricRow| Value::Text(&row.metric)),
        Column::new("difference", "new less old", |row: &MetricRow| Value::Difference(row.new.0 - row.old.0))
            .shown(|row| difference(row.old.0, row.new.0, row.old.0.max(row.new.0))),
        Column::new("old", "of the old build", |row: &MetricRow| Value::Number(row.old.0)),
        Column::new("new", "of the new build", |row: &MetricRow| Value::Number(row.new.0)),
        Column::new("old %", "of the larger one", |row: &MetricRow| Value::Share(row.normalised.old / 100.0))
            .shown(move |row| share(row.normalised.old)),
        Column::new("new %", "of the larger one", |row: &MetricRow| Value::Share(row.normalised.new / 100.0))
            .shown(move |row| share(row.normalised.new)),
    ];
    Rows { page: "function", noun: "metrics", rows: metrics, by: "difference", name, columns }
}

/// Functions that ran in one of both alone.
fn alone(place: &Place<'_>, asked: &Asked<'_>, kept: &Arc<KeptComparison>) -> Answer {
    type Row<'a> = (&'static str, &'a UnmatchedRow);
    fn name<'a>(row: &'a Row<'_>) -> &'a str {
        &row.1.name
    }
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Answer::twin(&OfOneBuild(&kept.comparison), asked.form, &asked.query);
    }
    let Both { old, new } = &kept.comparison.unmatched;
    let rows: Vec<Row<'_>> =
        old.iter().map(|row| ("old", row)).chain(new.iter().map(|row| ("new", row))).collect();
    let columns = vec![
        Column::new("share", "of all of that run", |row: &Row<'_>| Value::Share(row.1.share))
            .shown(|row| Value::Share(row.1.share).cell().with_share(row.1.share)),
        Column::new("instructions", "that ran in it", |row: &Row<'_>| Value::Count(row.1.instructions)),
        Column::new("build", "which has it", |row: &Row<'_>| Value::Text(row.0)),
        Column::new("function", "what people call it", |row: &Row<'_>| Value::Text(&row.1.name))
            .shown(|row| Cell::of(&row.1.name).to(function_link(&row.1.name))),
    ];
    let table =
        Rows { page: "alone", noun: "functions of one build alone", rows: &rows, by: "", name, columns };
    let grid = table.grid(&asked.query, place.orders, place.n);
    let frame = Frame::new(place, "in one build alone", "functions")
        .with_tabs("alone", &TABS)
        .with_twins("alone", &asked.query);
    list(asked, frame, "In one build alone", grid)
}

/// Intervals in which one did more than the other.
fn outliers(place: &Place<'_>, asked: &Asked<'_>, kept: &Arc<KeptComparison>) -> Answer {
    type Row<'a> = (usize, &'a OutlierRow, String);
    fn name<'a>(row: &'a Row<'_>) -> &'a str {
        &row.1.function
    }
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Answer::twin(&Outliers(&kept.comparison), asked.form, &asked.query);
    }
    let all = &kept.comparison.outliers;
    let place_of = |row: &OutlierRow| format!("{} to {}", both(&row.from), end(&row.to));
    let rows: Vec<Row<'_>> = (1..).zip(all).map(|(n, row)| (n, row, place_of(row))).collect();
    let largest = all.iter().map(|row| (row.new.0 - row.old.0).abs()).fold(0.0, f64::max);
    let link = |n: usize| Query::default().with("n", Some(&n.to_string())).link("outlier");
    let columns = vec![
        Column::new("difference", "new less old", |row: &Row<'_>| {
            Value::Difference(row.1.new.0 - row.1.old.0)
        })
        .shown(move |row| difference(row.1.old.0, row.1.new.0, largest)),
        Column::new("times", "new over old", |row: &Row<'_>| ratio(row.1.old.0, row.1.new.0))
            .shown(|row| ratio_cell(row.1.old.0, row.1.new.0)),
        Column::new("old", "of the old build", |row: &Row<'_>| Value::Number(row.1.old.0)),
        Column::new("new", "of the new build", |row: &Row<'_>| Value::Number(row.1.new.0)),
        Column::new("often", "how many intervals", |row: &Row<'_>| Value::Count(row.1.times)),
        Column::new("sure", "that both did the same there, 0 to 1", |row: &Row<'_>| {
            Value::Number(row.1.confidence)
        })
        .shown(|row| sure(row.1.confidence)),
        Column::new("function", "what people call it", |row: &Row<'_>| Value::Text(&row.1.function))
            .shown(move |row| Cell::of(&row.1.function).to(link(row.0))),
        Column::new("place", "where they begin and end", |row: &Row<'_>| Value::Text(&row.2)),
    ];
    let table = Rows {
        page: "outliers",
        noun: "intervals that differ",
        rows: &rows,
        by: "difference",
        name,
        columns,
    };
    let grid = table.grid(&asked.query, place.orders, place.n);
    let frame = Frame::new(place, "differences", "")
        .with_tabs("outliers", &TABS)
        .with_twins("outliers", &asked.query);
    list(asked, frame, "Between the same two points", grid)
}

/// All intervals.
fn intervals(place: &Place<'_>, asked: &Asked<'_>, kept: &Arc<KeptComparison>) -> Answer {
    type Row<'a> = (&'a IntervalRow, String);
    fn name<'a>(row: &'a Row<'_>) -> &'a str {
        &row.0.function
    }
    if matches!(asked.form, Form::Json | Form::Csv) {
        let twin = IntervalsView { schema: IntervalsView::SCHEMA, intervals: kept.intervals.clone() };
        return Answer::twin(&twin, asked.form, &asked.query);
    }
    let place_of = |row: &IntervalRow| format!("{} to {}", both(&row.from), end(&row.to));
    let rows: Vec<Row<'_>> = kept.intervals.iter().map(|row| (row, place_of(row))).collect();
    let columns = vec![
        Column::new("old", "instructions of the old build", |row: &Row<'_>| {
            Value::Number(row.0.instructions.old.0)
        }),
        Column::new("new", "of the new build", |row: &Row<'_>| Value::Number(row.0.instructions.new.0)),
        Column::new("times", "new over old", |row: &Row<'_>| {
            ratio(row.0.instructions.old.0, row.0.instructions.new.0)
        })
        .shown(|row| ratio_cell(row.0.instructions.old.0, row.0.instructions.new.0)),
        Column::new("often", "how many intervals", |row: &Row<'_>| Value::Count(row.0.times)),
        Column::new("length", "of one, on average, in the old build", |row: &Row<'_>| {
            Value::Number(row.0.length.old)
        }),
        Column::new("then", "in the new build", |row: &Row<'_>| Value::Number(row.0.length.new)),
        Column::new("sure", "that both did the same there, 0 to 1", |row: &Row<'_>| {
            Value::Number(row.0.confidence)
        })
        .shown(|row| sure(row.0.confidence)),
        Column::new("function", "what people call it", |row: &Row<'_>| Value::Text(&row.0.function))
            .shown(|row| Cell::of(&row.0.function).to(function_link(&row.0.function))),
        Column::new("place", "where they begin and end", |row: &Row<'_>| Value::Text(&row.1)),
    ];
    let table = Rows { page: "intervals", noun: "places", rows: &rows, by: "", name, columns };
    let grid = table.grid(&asked.query, place.orders, place.n);
    let frame = Frame::new(place, "intervals", "intervals")
        .with_tabs("intervals", &TABS)
        .with_twins("intervals", &asked.query);
    list(asked, frame, "Intervals", grid)
}

/// An interval in which one did more, with the code of both.
fn outlier(place: &Place<'_>, asked: &Asked<'_>, kept: &Arc<KeptComparison>) -> Result<Answer, NoPage> {
    let n = asked.query.number("n").ok_or(NoPage::Unknown)?;
    let view = kept.outlier(n).ok_or(NoPage::Unknown)?;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&view, asked.form, &asked.query));
    }
    let is_swapped = asked.query.get("swap").is_some();
    let at = |n: usize| asked.query.with("n", Some(&n.to_string())).link("outlier");
    let row = &view.interval;
    let reason = |of: &views::compare::Reason| Changed {
        what: of.metric.clone(),
        old: Value::Number(of.old.0).cell(),
        new: Value::Number(of.new.0).cell(),
        by: difference(of.old.0, of.new.0, of.old.0.max(of.new.0)),
    };
    let whole = views::compare::Reason { metric: row.metric.clone(), old: row.old, new: row.new };
    let mut sides = [side("old build", &view.blocks.old), side("new build", &view.blocks.new)];
    if is_swapped {
        sides.reverse();
    }
    Ok(Answer::page(&Interval {
        frame: Frame::new(place, &row.function, &format!("outlier {n}"))
            .with_tabs("outliers", &TABS)
            .with_twins("outlier", &asked.query),
        page: function_link(&row.function),
        place: format!("{n} of {}", kept.comparison.outliers.len()),
        before: (n > 1).then(|| at(n - 1)),
        behind: (n < kept.comparison.outliers.len()).then(|| at(n + 1)),
        swapped: asked.query.with("swap", Some("1").filter(|_| !is_swapped)).link("outlier"),
        changed: [&whole].into_iter().chain(&row.because).map(reason).collect(),
        from: both(&row.from),
        to: end(&row.to),
        sure: format!("{:.2}", row.confidence),
        sides,
        view: &view,
    }))
}

fn side(name: &'static str, blocks: &[RanBlock]) -> Side {
    let block = |of: &RanBlock| Ran {
        at: address(of.at),
        function: of.function.clone(),
        line: of.line.clone().unwrap_or_default(),
        runs: grouped(&format!("{:.0}", of.runs.0)),
        insns: of
            .instructions
            .iter()
            .map(|insn| {
                let (mnemonic, rest) = insn.split_once(' ').unwrap_or((insn, ""));
                (mnemonic.to_owned(), rest.to_owned())
            })
            .collect(),
    };
    Side { name, blocks: blocks.iter().map(block).collect() }
}

/// The code of a build.
struct Side {
    name: &'static str,
    blocks: Vec<Ran>,
}

/// A block that ran.
struct Ran {
    at: String,
    function: String,
    line: String,
    runs: String,
    insns: Vec<(String, String)>,
}

/// A number of both builds.
struct Changed {
    what: String,
    old: Cell,
    new: Cell,
    by: Cell,
}

#[derive(Template)]
#[template(path = "compared.html")]
struct Overview<'a> {
    frame: Frame,
    facts: Vec<(&'static str, String)>,
    total: Cell,
    metric: &'a str,
    metrics: Vec<&'a str>,
    kept: Vec<(&'static str, &'a str)>,
    grid: Grid,
}

#[derive(Template)]
#[template(path = "of_both.html")]
struct OfBoth<'a> {
    frame: Frame,
    name: &'a str,
    confidence: String,
    before: Option<String>,
    behind: Option<String>,
    outliers: Vec<(usize, String, String, String)>,
    n_more: usize,
    all: String,
    intervals: String,
    grid: Grid,
}

#[derive(Template)]
#[template(path = "interval.html")]
struct Interval<'a> {
    frame: Frame,
    view: &'a OutlierView,
    /// The page of its function.
    page: String,
    /// Which it is of all that differ.
    place: String,
    from: String,
    to: String,
    sure: String,
    before: Option<String>,
    behind: Option<String>,
    swapped: String,
    changed: Vec<Changed>,
    sides: [Side; 2],
}
