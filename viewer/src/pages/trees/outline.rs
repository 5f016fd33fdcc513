//! The tree of calls as a table: rows that are opened and closed, or a list of those that are like a name.
//!
//! What costs a twentieth of all is open, unless it was closed: `open` and `shut` in the address are the
//! numbers of rows that were.

use super::{Calls, Way, around, asked_by, directions, notes, number};
use crate::address::{Asked, Form, Query};
use crate::pages::frame::Frame;
use crate::pages::grid::{Cell, Column, Grid, Rows, Value};
use crate::pages::{Answer, NoPage, Place};
use askama::Template;
use std::collections::BTreeSet;
use views::show::costs::{TreeRow, Ways};
use views::{grouped, share};

/// What is open by itself, of all.
const OPEN: f64 = 0.05;
/// How many rows are shown below one, unless more are asked for.
const BELOW: usize = 40;
/// How many lines the page has at most.
const MOST: usize = 600;
/// How far lines are indented at most.
const DEEPEST: usize = 30;

/// The page.
pub fn answer(place: &Place<'_>, asked: &Asked<'_>, calls: &Calls<'_>) -> Result<Answer, NoPage> {
    let query = &asked.query;
    let is_list = ["q", "sort", "flat"].into_iter().any(|name| query.get(name).is_some());
    let (mut grid, mut lines, mut is_cut) = (None, Vec::new(), false);
    if is_list || asked.form == Form::Rows {
        let rows = list(calls, asked).grid(query, place.orders, place.n);
        if asked.form == Form::Rows {
            return Ok(Answer::page(&rows));
        }
        grid = Some(rows);
    } else {
        let mut outline = Outline::of(asked, calls);
        outline.fill();
        (lines, is_cut) = (outline.lines, outline.is_cut);
    }
    let title = match calls.ways {
        Ways::All | Ways::Inverted => "Call tree".to_owned(),
        Ways::Below(name) => format!("What {name} calls"),
        Ways::Callers(name) => format!("Who calls {name}"),
    };
    let mut notes = notes(calls);
    if is_cut {
        notes.push(format!("There is room for {MOST} lines: show one alone, or close some."));
    }
    let page = Page {
        frame: around(place, asked, calls, &title),
        title,
        directions: directions(asked, calls.ways),
        others: others(asked, is_list),
        kept: ["inverted", "name"]
            .into_iter()
            .filter_map(|name| Some((name, query.get(name)?.to_owned())))
            .collect(),
        total: total(calls),
        page: page_name(asked),
        notes,
        lines,
        grid,
    };
    Ok(Answer::page(&page))
}

fn page_name(asked: &Asked<'_>) -> &'static str {
    if asked.page == "callers" { "callers" } else { "tree" }
}

fn total(calls: &Calls<'_>) -> String {
    format!("{}{} {}", calls.mark(), grouped(&format!("{:.0}", calls.total())), calls.tree().unit)
}

/// The same, otherwise.
fn others(asked: &Asked<'_>, is_list: bool) -> Vec<Way> {
    let query = asked.query.only(&["inverted", "name"]);
    let way = |text: &str, href: String, is_here| Way { text: text.to_owned(), href, is_here };
    let flame = match asked.page {
        "callers" => query.with("inverted", Some("1")),
        _ => query.with("at", asked.query.get("at")),
    };
    vec![
        way("as a tree", query.link(page_name(asked)), !is_list),
        way("as a list", query.with("flat", Some("1")).link(page_name(asked)), is_list),
        way("as a flame graph", flame.link("flame"), false),
    ]
}

/// All rows.
fn list<'a>(calls: &'a Calls<'_>, asked: &Asked<'_>) -> Rows<'a, TreeRow> {
    let page = page_name(asked);
    let state = asked.query.only(&["inverted", "name"]);
    let link = move |row: &TreeRow| state.with("at", Some(&row.id.to_string())).link(page);
    let mark = calls.mark();
    let text = move |n: u64| Cell {
        title: n.to_string(),
        ..Cell::of(&format!("{mark}{}", grouped(&n.to_string())))
    };
    let columns = vec![
        Column::new("share", "of all", |row: &TreeRow| Value::Share(row.inclusive_share))
            .shown(|row| Value::Share(row.inclusive_share).cell().with_share(row.inclusive_share)),
        Column::new("inclusive", "with all that it called", |row: &TreeRow| Value::Count(row.inclusive))
            .shown(move |row| text(row.inclusive)),
        Column::new("own", "without what it called", |row: &TreeRow| Value::Count(row.own))
            .shown(move |row| text(row.own)),
        Column::new("calls", "along this way", |row: &TreeRow| {
            row.entries.map_or(Value::Unknown, Value::Count)
        }),
        Column::new("depth", "how many rows are above it", |row: &TreeRow| Value::Count(row.depth as u64)),
        Column::new("function", "what people call it", |row: &TreeRow| Value::Text(&row.function))
            .shown(move |row| Cell::of(&row.function).to(link(row))),
        Column::new("module", "the file that it is in", |row: &TreeRow| Value::Text(&row.module)),
    ];
    fn name(row: &TreeRow) -> &str {
        &row.function
    }
    let rows = &calls.tree().tree;
    Rows { page, noun: "ways", rows, by: "", name, columns }
}

/// A line of the table.
struct Line {
    place: usize,
    /// How far it is indented.
    steps: Vec<()>,
    share: Cell,
    inclusive: Cell,
    own: Cell,
    calls: Cell,
    name: Cell,
    module: String,
    /// `true` or `false` where it is opened and closed; else "".
    expanded: &'static str,
    /// Where else it leads.
    more: Vec<Way>,
    class: &'static str,
}

/// Lines in the making.
struct Outline<'a> {
    asked: &'a Asked<'a>,
    calls: &'a Calls<'a>,
    at: Option<usize>,
    open: BTreeSet<usize>,
    shut: BTreeSet<usize>,
    n_below: usize,
    lines: Vec<Line>,
    is_cut: bool,
}

impl<'a> Outline<'a> {
    fn of(asked: &'a Asked<'a>, calls: &'a Calls<'a>) -> Outline<'a> {
        let numbers = |name: &str| {
            asked.query.get(name).unwrap_or_default().split('.').filter_map(|n| n.parse().ok()).collect()
        };
        Outline {
            asked,
            calls,
            at: calls.at(&asked.query),
            open: numbers("open"),
            shut: numbers("shut"),
            n_below: asked.query.number("rows").unwrap_or(BELOW).clamp(1, MOST),
            lines: Vec::new(),
            is_cut: false,
        }
    }

    fn fill(&mut self) {
        let Some(at) = self.at else { return self.below(None, 0) };
        let above = self.calls.nodes.above(at);
        for (steps, n) in above.iter().enumerate() {
            self.line(*n, steps, "above");
        }
        self.line(at, above.len(), "at");
        self.below(Some(at), above.len() + 1);
    }

    fn is_open(&self, n: usize) -> bool {
        let costs = self.calls.nodes.weight(n) >= OPEN * self.calls.total();
        self.open.contains(&n) || costs && !self.shut.contains(&n)
    }

    /// What is below a row, so far as it is open.
    fn below(&mut self, of: Option<usize>, steps: usize) {
        // Calls may be deeper than a stack of ours.
        let mut rest: Vec<(Option<usize>, usize, usize)> = vec![(of, steps, 0)];
        while let Some((of, steps, next)) = rest.pop() {
            let below = self.calls.nodes.below(of);
            let Some(n) = below.get(next).copied() else { continue };
            if self.lines.len() >= MOST {
                self.is_cut = true;
                return;
            }
            if next >= self.n_below {
                let left: Vec<usize> = below.get(next..).unwrap_or_default().to_vec();
                self.left(of, &left, steps);
                continue;
            }
            rest.push((of, steps, next + 1));
            self.line(n, steps, "");
            if self.is_open(n) {
                rest.push((Some(n), steps + 1, 0));
            }
        }
    }

    fn state(&self) -> Query {
        self.asked.query.only(&["inverted", "name", "at", "open", "shut", "rows"])
    }

    fn link(&self, query: &Query) -> String {
        query.link(page_name(self.asked))
    }

    /// The address that has a row opened, or closed.
    fn toggled(&self, n: usize) -> String {
        let costs = self.calls.nodes.weight(n) >= OPEN * self.calls.total();
        let (mut open, mut shut) = (self.open.clone(), self.shut.clone());
        match self.is_open(n) {
            true => {
                open.remove(&n);
                shut.extend(Some(n).filter(|_| costs));
            }
            false => {
                shut.remove(&n);
                open.extend(Some(n).filter(|_| !costs));
            }
        }
        let text = |all: BTreeSet<usize>| all.iter().map(usize::to_string).collect::<Vec<_>>().join(".");
        let (open, shut) = (text(open), text(shut));
        let some = |text: &'_ str| Some(text.to_owned()).filter(|text| !text.is_empty());
        self.link(&self.state().with("open", some(&open).as_deref()).with("shut", some(&shut).as_deref()))
    }

    fn line(&mut self, n: usize, steps: usize, class: &'static str) {
        let Some(row) = self.calls.row(n) else { return };
        let tree = self.calls.tree();
        let mark = self.calls.mark();
        let count =
            |n: u64| Cell { title: n.to_string(), ..Cell::of(&format!("{mark}{}", grouped(&n.to_string()))) };
        let has_more = !self.calls.nodes.below(Some(n)).is_empty();
        let code = asked_by(row, tree.estimated);
        let page =
            |page: &str| code.as_ref().map(|name| Query::default().with("name", Some(name)).link(page));
        let alone = self.link(&self.asked.query.only(&["inverted", "name"]).with("at", Some(&n.to_string())));
        let (name, expanded) = match (class, has_more) {
            ("above", _) => (Cell::of(&row.function).to(alone.clone()), ""),
            ("at", _) | (_, false) => (Cell::of(&row.function).to(page("function").unwrap_or_default()), ""),
            (_, true) => {
                let is_open = self.is_open(n);
                (Cell::of(&row.function).to(self.toggled(n)), if is_open { "true" } else { "false" })
            }
        };
        let mut more = Vec::new();
        let mut add = |text: &str, href: Option<String>| {
            more.extend(href.map(|href| Way { text: text.to_owned(), href, is_here: false }));
        };
        add("alone", Some(alone).filter(|_| class.is_empty() && has_more));
        add("code", page("function"));
        add("callers", page("callers"));
        self.lines.push(Line {
            place: self.lines.len() + 1,
            steps: vec![(); steps.min(DEEPEST)],
            share: Value::Share(row.inclusive_share).cell().with_share(row.inclusive_share),
            inclusive: count(row.inclusive),
            own: count(row.own),
            calls: row.entries.map_or_else(|| Value::Unknown.cell(), count),
            name,
            module: row.module.clone(),
            expanded,
            more,
            class,
        });
    }

    /// A line for rows that there is no room for.
    fn left(&mut self, of: Option<usize>, left: &[usize], steps: usize) {
        let rows = || left.iter().filter_map(|n| self.calls.row(*n));
        let sum = |own: fn(&TreeRow) -> u64| rows().fold(0, |sum: u64, row| sum.saturating_add(own(row)));
        let (inclusive, own) = (sum(|row| row.inclusive), sum(|row| row.own));
        let part = number(inclusive) / number(self.calls.tree().total).max(1.0);
        let count = |n: u64| Cell { title: n.to_string(), ..Cell::of(&grouped(&n.to_string())) };
        let query = self.asked.query.only(&["inverted", "name"]);
        let query = query.with("at", of.map(|of| of.to_string()).as_deref());
        let text = format!("{} more, {}", grouped(&left.len().to_string()), share(part));
        let link = self.link(&query.with("rows", Some(&MOST.to_string())));
        let link = if self.n_below < MOST {
            link
        } else {
            self.link(&query.only(&["inverted", "name"]).with("flat", Some("1")))
        };
        self.lines.push(Line {
            place: self.lines.len() + 1,
            steps: vec![(); steps.min(DEEPEST)],
            share: Value::Share(part).cell(),
            inclusive: count(inclusive),
            own: count(own),
            calls: Cell::default(),
            name: Cell::of(&text).to(link),
            module: String::new(),
            expanded: "",
            more: Vec::new(),
            class: "left",
        });
    }
}

#[derive(Template)]
#[template(path = "tree.html")]
struct Page {
    frame: Frame,
    title: String,
    page: &'static str,
    directions: [Way; 2],
    others: Vec<Way>,
    kept: Vec<(&'static str, String)>,
    total: String,
    notes: Vec<String>,
    lines: Vec<Line>,
    grid: Option<Grid>,
}
