//! Where paths of blocks occur in a trace, with what ran around them; and which run most.
//!
//! Source: X. Zhang, R. Gupta, "Path matching in compressed control flow traces", 2002.

use super::frame::{Frame, word};
use super::grid::{Cell, Column, Grid, Rows, Value};
use super::{Answer, NoPage, Place};
use crate::address::{Asked, Form, Query};
use askama::Template;
use views::grouped;
use views::query::QueryView;
use views::query::hottest::PathView;
use views::query::symbols::SymbolView;

/// What is looked for, or what could be.
pub fn answer(
    place: &Place<'_>,
    asked: &Asked<'_>,
    tabs: &[(&'static str, &'static str)],
) -> Result<Answer, NoPage> {
    let path = asked.query.get("path").unwrap_or_default();
    let nth = asked.query.number("nth").map_or(1, |n| n.max(1) as u64);
    let most = place.recordings.hottest(place.n)?;
    if path.is_empty() && matches!(asked.form, Form::Json | Form::Csv) {
        return Ok(Answer::twin(&*most, asked.form, &asked.query));
    }
    let found = match path {
        "" => None,
        path => Some(place.recordings.found(place.n, path, nth)),
    };
    if let (Form::Json | Form::Csv, Some(found)) = (asked.form, &found) {
        let found = found.as_ref().map_err(|failed| NoPage::Failed(failed.clone()))?;
        return Ok(Answer::twin(found, asked.form, &asked.query));
    }
    let grid = paths(&most.paths).grid(&asked.query, place.orders, place.n);
    if asked.form == Form::Rows {
        return Ok(Answer::page(&grid));
    }
    let (command, query) = match path {
        "" => (format!("--hottest {} --length {}", most.paths.len().max(1), most.length), Query::default()),
        path => {
            let which = if nth > 1 { format!("--nth {nth}") } else { "--first".to_owned() };
            (format!("{} {which} --context=12", word(path)), asked.query.only(&["path", "nth"]))
        }
    };
    let mut frame = Frame::new(place, "search", "").with_tabs("search", tabs).with_twins("search", &query);
    frame.command = format!("engraft query {} {command}", word(place.recording));
    let at = |nth: u64| asked.query.only(&["path"]).with("nth", Some(&nth.to_string())).link("search");
    let count = found.iter().flatten().find_map(|view| view.count).unwrap_or(0);
    Ok(Answer::page(&Page {
        frame,
        path,
        refused: found.iter().filter_map(|found| found.as_ref().err()).map(|err| err.what.clone()).collect(),
        hints: found.iter().filter_map(|found| found.as_ref().err()?.hint.clone()).collect(),
        said: found.iter().flatten().map(|view| said(view, nth)).collect(),
        before: (nth > 1 && count > 0).then(|| at((nth - 1).min(count))),
        behind: (nth < count).then(|| at(nth + 1)),
        symbols: found.iter().flatten().flat_map(around).collect(),
        grid,
    }))
}

/// How often it occurs, and where.
fn said(view: &QueryView, nth: u64) -> String {
    let function = view.path.function.called().unwrap_or("?");
    match (view.count, &view.first) {
        (Some(n), Some(at)) => format!(
            "{function}: {} time{} in the run; time {} is at symbol {} of thread {}",
            grouped(&n.to_string()),
            if n == 1 { "" } else { "s" },
            grouped(&nth.to_string()),
            grouped(&at.index.to_string()),
            at.thread
        ),
        (Some(n), None) if n > 0 => format!("{function}: {} times in the run", grouped(&n.to_string())),
        _ => format!("{function}: never in the run"),
    }
}

/// The symbols around what was found; that itself is marked.
fn around(view: &QueryView) -> Vec<Symbol> {
    let here = view.first.as_ref().map(|at| at.index);
    view.context.iter().flatten().map(|symbol| shown(symbol, here)).collect()
}

fn shown(symbol: &SymbolView, here: Option<u64>) -> Symbol {
    let name = symbol.function.called().unwrap_or("?").to_owned();
    let file = symbol.file.as_deref().unwrap_or_default();
    let file = file.rsplit('/').next().unwrap_or(file);
    Symbol {
        index: grouped(&symbol.index.to_string()),
        step: match symbol.step {
            'F' => "enters",
            'E' => "leaves",
            _ => "runs",
        },
        mark: symbol.mark.unwrap_or_default(),
        function: name.clone(),
        page: Query::default().with("name", Some(&name)).link("function"),
        block: symbol.block.map_or_else(String::new, |block| block.to_string()),
        at: symbol.at.map_or_else(String::new, views::address),
        line: symbol.line.map_or_else(String::new, |line| format!("{file}:{line}")),
        is_here: Some(symbol.index) == here,
    }
}

fn paths(rows: &[PathView]) -> Rows<'_, PathView> {
    fn name(path: &PathView) -> &str {
        path.function.called().unwrap_or("?")
    }
    let text = |path: &PathView| {
        let blocks: Vec<String> = path.blocks.iter().map(u32::to_string).collect();
        format!("{}: {}", name(path), blocks.join(" "))
    };
    let columns = vec![
        Column::new("count", "how often it occurs", |path: &PathView| Value::Count(path.count)),
        Column::new("function", "whose blocks they are", |path: &PathView| Value::Text(name(path))),
        Column::new("path", "its blocks, by number", |path: &PathView| Value::Text(name(path))).shown(
            move |path| {
                let text = text(path);
                Cell::of(&text).to(Query::default().with("path", Some(&text)).link("search"))
            },
        ),
    ];
    Rows { page: "search", noun: "paths that ran most", rows, by: "count", name, columns }
}

/// A step of the run.
struct Symbol {
    index: String,
    step: &'static str,
    mark: &'static str,
    function: String,
    page: String,
    block: String,
    at: String,
    line: String,
    is_here: bool,
}

#[derive(Template)]
#[template(path = "searched.html")]
struct Page<'a> {
    frame: Frame,
    path: &'a str,
    refused: Vec<String>,
    hints: Vec<String>,
    said: Vec<String>,
    before: Option<String>,
    behind: Option<String>,
    symbols: Vec<Symbol>,
    grid: Grid,
}
