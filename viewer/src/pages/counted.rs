//! Pages of what a run counted: where its executions went.

use super::frame::{Frame, word};
use super::grid::{Cell, Column, Grid, Rows, Value};
use super::{Answer, NoPage, Place, function, list, searched, trees};
use crate::address::{Asked, Form, Query};
use askama::Template;
use views::count::{CountView, FunctionView, LoopView};
use views::known;
use views::recordings::What;
use views::show::counts::{CountsView, LoopRuns, SCHEMA};

/// How many loops the first page has.
const TOP: &str = "6";

/// Their columns.
const TOP_COLUMNS: [&str; 4] = ["instructions", "iterations", "per entry", "function"];

/// What is asked for of a recording.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    match asked.page {
        "" => Ok(Answer::elsewhere("functions")),
        "functions" => functions(place, asked),
        "loops" => loops(place, asked),
        "function" => function::answer(place, asked, trees::tabs(place.what)),
        "flame" | "tree" | "callers" => trees::answer(place, asked),
        "time" if place.what == What::Trace => trees::time::answer(place, asked),
        "search" if place.what == What::Trace => searched::answer(place, asked, trees::tabs(place.what)),
        "graph" => function::graph(place, asked, trees::tabs(place.what)),
        _ => Err(NoPage::Unknown),
    }
}

/// The first page: which run it was, and its functions.
fn functions(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    let view = place.recordings.counted(place.n)?;
    let query = &asked.query;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&*view, asked.form, query));
    }
    let row = place.recordings.all().recordings.get(place.n);
    let is_trace = row.is_some_and(|row| row.what == What::Trace);
    let grid = function_rows(&view, is_trace).grid(query, place.orders, place.n);
    if asked.form == Form::Rows {
        return Ok(Answer::page(&grid));
    }
    let top = Query::default().with("rows", Some(TOP));
    let mut loops = loop_rows(&view.loops);
    loops.columns.retain(|column| TOP_COLUMNS.contains(&column.key));
    let loops = loops.grid(&top, place.orders, place.n);
    let frame = Frame::new(place, "functions", "")
        .with_tabs("functions", trees::tabs(place.what))
        .with_twins("functions", query);
    Ok(Answer::page(&Overview { frame, facts: facts(&view), said: said(&view), loops, grid }))
}

/// All loops.
fn loops(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    let view = place.recordings.counted(place.n)?;
    let query = &asked.query;
    if matches!(asked.form, Form::Json | Form::Csv) {
        let twin = CountsView { schema: SCHEMA, rows: LoopRuns { loops: view.loops.clone() } };
        return Ok(Answer::twin(&twin, asked.form, query));
    }
    let grid = loop_rows(&view.loops).grid(query, place.orders, place.n);
    let frame = Frame::new(place, "loops", "loops")
        .with_tabs("loops", trees::tabs(place.what))
        .with_twins("loops", query);
    Ok(list(asked, frame, "Loops", grid))
}

/// The address of the page of a function.
fn function_page(module: &str, at: u64) -> String {
    let name = format!("{module}!{}", views::address(at));
    Query::default().with("name", Some(&name)).link("function")
}

fn count(n: Option<u64>) -> Value<'static> {
    n.map_or(Value::Unknown, Value::Count)
}

/// A number that may be off, as the view says it.
fn text(said: String) -> Cell {
    Cell { title: said.clone(), ..Cell::of(&views::grouped(&said)) }
}

fn function_rows(view: &CountView, is_trace: bool) -> Rows<'_, FunctionView> {
    // There may be a million: who ran most is the first, and only traces have what is inclusive.
    let has_inclusive = is_trace && view.functions.iter().any(|f| f.inclusive.is_some());
    let largest = view.functions.first().map_or(0.0, |f| f.share);
    let link = |f: &FunctionView| Cell::of(&f.name).to(function_page(&f.module, f.at));
    let share = move |f: &FunctionView| {
        let part = if largest > 0.0 { f.share / largest } else { 0.0 };
        Value::Share(f.share).cell().with_share(part)
    };
    let mut columns = vec![
        Column::new("share", "of all instructions that ran", |f: &FunctionView| Value::Share(f.share))
            .shown(share),
        Column::new("instructions", "that ran in it", |f: &FunctionView| Value::Count(f.instructions)),
    ];
    if has_inclusive {
        let note = "instructions that ran in it and in all that it called";
        columns.push(Column::new("inclusive", note, |f: &FunctionView| count(f.inclusive)));
    }
    columns.extend([
        Column::new("entries", "how often it was entered", |f: &FunctionView| count(f.entries))
            .shown(|f| text(known(f.entries.map(|n| f.between.count(n))))),
        Column::new("function", "what people call it", |f: &FunctionView| Value::Text(&f.name)).shown(link),
        Column::new("module", "the file that it is in", |f: &FunctionView| Value::Text(&f.module)),
    ]);
    fn name(f: &FunctionView) -> &str {
        &f.name
    }
    let rows = &view.functions;
    Rows { page: "functions", noun: "functions", rows, by: "instructions", name, columns }
}

fn loop_rows(loops: &[LoopView]) -> Rows<'_, LoopView> {
    fn cell(l: &LoopView, at: usize) -> Cell {
        text(l.cells(String::new()).get(at).cloned().unwrap_or_default())
    }
    let link = |l: &LoopView| Cell::of(&l.function).to(function_page(&l.module, l.at));
    let number = |n: Option<f64>| n.map_or(Value::Unknown, Value::Number);
    let columns = vec![
        Column::new("instructions", "that ran in it", |l: &LoopView| Value::Count(l.instructions)),
        Column::new("iterations", "how often it went round", |l: &LoopView| Value::Count(l.iterations))
            .shown(|l| cell(l, 0)),
        Column::new("entries", "how often it was entered", |l: &LoopView| count(l.entries))
            .shown(|l| cell(l, 1)),
        Column::new("per entry", "iterations an entry", move |l: &LoopView| number(l.trips))
            .shown(|l| cell(l, 2)),
        Column::new("exits", "how often it was left", |l: &LoopView| count(l.exits)).shown(|l| cell(l, 3)),
        Column::new("depth", "how many loops hold it", |l: &LoopView| Value::Count(l.depth.into())),
        Column::new("loop", "where it begins", |l: &LoopView| Value::Address(l.at)),
        Column::new("function", "what it is in", |l: &LoopView| Value::Text(&l.function)).shown(link),
        Column::new("module", "the file that it is in", |l: &LoopView| Value::Text(&l.module)),
    ];
    fn name(l: &LoopView) -> &str {
        &l.function
    }
    Rows { page: "loops", noun: "loops", rows: loops, by: "instructions", name, columns }
}

/// Which run it was.
fn facts(view: &CountView) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(run) = &view.run {
        facts.push(("command", run.command_line()));
        facts.extend(run.environment.iter().map(|(name, value)| ("with", format!("{name}={}", word(value)))));
        facts.push(("ended", format!("{}, after {:.3} s", run.end(), run.seconds)));
        facts.push(("started", run.start.clone()));
        let machine = &run.machine;
        facts.push((
            "machine",
            format!("{}: {} × {}, {}", machine.host, machine.n_cpus, machine.cpu, machine.kernel),
        ));
    }
    facts.extend(view.threads.map(|n| ("threads", n.to_string())));
    facts.push(("instructions", views::grouped(&view.instructions.to_string())));
    facts
}

/// What was not counted, and how much was, as the command line says it.
fn said(view: &CountView) -> Vec<String> {
    let mut text = Vec::new();
    let _memory = view.what_was_counted(&mut text);
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}

/// The first page.
#[derive(Template)]
#[template(path = "counted.html")]
struct Overview {
    frame: Frame,
    facts: Vec<(&'static str, String)>,
    said: Vec<String>,
    loops: Grid,
    grid: Grid,
}
