//! Pages of samples: where a program spent its time.

use super::frame::{Frame, word};
use super::grid::{Cell, Column, Grid, Rows, Value};
use super::{Answer, NoPage, Place, function, trees};
use crate::address::{Asked, Form, Query};
use askama::Template;
use views::sample::{EventView, FunctionView, SampleView};
use views::{grouped, share};

/// What is asked for of a recording of samples.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    match asked.page {
        "" => Ok(Answer::elsewhere("functions")),
        "functions" => functions(place, asked),
        "function" => function::answer(place, asked, trees::tabs(place.what)),
        "graph" => function::graph(place, asked, trees::tabs(place.what)),
        "flame" | "tree" | "callers" => trees::answer(place, asked),
        _ => Err(NoPage::Unknown),
    }
}

/// The first page: how it was sampled, and its functions.
fn functions(place: &Place<'_>, asked: &Asked<'_>) -> Result<Answer, NoPage> {
    let view = place.recordings.sampled(place.n)?;
    if matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&*view, asked.form, &asked.query));
    }
    let none = EventView {
        event: String::new(),
        unit: "",
        samples: 0,
        period: 0,
        functions: Vec::new(),
        loops: Vec::new(),
        lines: Vec::new(),
    };
    let event = view.events.first().unwrap_or(&none);
    let grid = function_rows(event).grid(&asked.query, place.orders, place.n);
    if asked.form == Form::Rows {
        return Ok(Answer::page(&grid));
    }
    let lines = event.lines.iter().filter(|line| line.sums.own > 0).take(TOP);
    Ok(Answer::page(&Overview {
        frame: Frame::new(place, "functions", "")
            .with_tabs("functions", trees::tabs(place.what))
            .with_twins("functions", &asked.query),
        facts: facts(&view, event),
        said: said(&view),
        lines: lines
            .map(|line| (share(line.sums.self_share), grouped(&line.sums.own.to_string()), line.line.clone()))
            .collect(),
        event: &event.event,
        grid,
    }))
}

/// How many lines the first page has.
const TOP: usize = 8;

fn function_rows(event: &EventView) -> Rows<'_, FunctionView> {
    let largest = event.functions.iter().map(|f| f.sums.self_share).fold(0.0, f64::max);
    let part = move |of: f64| if largest > 0.0 { of / largest } else { 0.0 };
    let link = |f: &FunctionView| match f.at {
        Some(at) => {
            let name = format!("{}!{}", f.module, views::address(at));
            Cell::of(&f.function).to(Query::default().with("name", Some(&name)).link("function"))
        }
        None => Cell::of(&f.function),
    };
    let columns = vec![
        Column::new("self", "samples in it", |f: &FunctionView| Value::Share(f.sums.self_share))
            .shown(move |f| Value::Share(f.sums.self_share).cell().with_share(part(f.sums.self_share))),
        Column::new("total", "samples in it and in all that it called", |f: &FunctionView| {
            Value::Share(f.sums.total_share)
        }),
        Column::new("samples", "in it", |f: &FunctionView| Value::Count(f.sums.own)),
        Column::new("with callees", "samples in it and in all that it called", |f: &FunctionView| {
            Value::Count(f.sums.total)
        }),
        Column::new("function", "what people call it", |f: &FunctionView| Value::Text(&f.function))
            .shown(link),
        Column::new("module", "the file that it is in", |f: &FunctionView| Value::Text(&f.module)),
    ];
    fn name(f: &FunctionView) -> &str {
        &f.function
    }
    Rows { page: "functions", noun: "functions", rows: &event.functions, by: "self", name, columns }
}

/// How it was sampled.
fn facts(view: &SampleView, event: &EventView) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let n = |n: u64| grouped(&n.to_string());
    if let Some(run) = &view.run {
        facts.push(("command", run.command_line()));
        facts.extend(run.environment.iter().map(|(name, value)| ("with", format!("{name}={}", word(value)))));
        facts.push(("started", run.start.clone()));
        let machine = &run.machine;
        facts.push((
            "machine",
            format!("{}: {} × {}, {}", machine.host, machine.n_cpus, machine.cpu, machine.kernel),
        ));
    }
    let often = match view.hertz {
        Some(hertz) => format!("{} a second of each thread's time", n(hertz)),
        None => "each so many of the event".to_owned(),
    };
    facts.push(("event", format!("{}, {often}", event.event)));
    facts.push(("samples", format!("{} in {:.1} s", n(view.samples), view.seconds)));
    facts.push(("lost", n(view.lost)));
    let callers = match &view.chains {
        None => "were not asked for".to_owned(),
        Some(chains) => {
            let part = |cut: u64| share(views::ratio(cut, chains.whole + chains.cut));
            format!(
                "known to the first of {}; cut off of {} ({})",
                n(chains.whole),
                n(chains.cut),
                part(chains.cut)
            )
        }
    };
    facts.push(("callers", callers));
    facts.push(("threads", n(view.threads.len() as u64)));
    facts
}

/// What else is to be known.
fn said(view: &SampleView) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(cost) = view.cost_us {
        let of_all =
            view.cost_share.map_or_else(String::new, |part| format!(", {} of its time", share(part)));
        said.push(format!("A sample takes {cost:.1} µs of its thread{of_all}."));
    }
    if !view.kernel {
        said.push("Time in the kernel was not sampled: nobody but root may.".to_owned());
    }
    if let [first, more @ ..] = view.events.as_slice()
        && !more.is_empty()
    {
        let names: Vec<&str> = more.iter().map(|event| event.event.as_str()).collect();
        said.push(format!("Shown is {}; there are also {}.", first.event, names.join(", ")));
    }
    said
}

#[derive(Template)]
#[template(path = "sampled.html")]
struct Overview<'a> {
    frame: Frame,
    facts: Vec<(&'static str, String)>,
    said: Vec<String>,
    lines: Vec<(String, String, String)>,
    event: &'a str,
    grid: Grid,
}
