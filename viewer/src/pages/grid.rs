//! Rows under headings, some of many: sorted, filtered and cut to what is looked at.
//!
//! The state is in the address: `sort` is the key of a column, `order=reversed` has the least first, `q` is
//! what names hold (`*` stands for anything), `from` is the first row, `rows` how many there are.

mod order;
mod table;

use crate::address::Query;
use crate::escape;
use askama::Template;
use std::sync::{Arc, Mutex, PoisonError};
use table::Table;
use views::{grouped, share};

/// How many rows a page has, and a piece of it at most.
const PIECE: usize = 200;
const LONGEST_PIECE: usize = 1000;
/// How many rows a page in a file has at most, since all of them are in it.
pub const LONGEST_IN_FILE: usize = 1000;
/// Bytes of the longest address that a page leads to: of what a request may have, some is for headers.
const LONGEST_HREF: usize = 6000;
/// How many places the orders have together that are kept: some megabytes of them.
const KEPT: usize = 6_000_000;

/// What else an address says of a table.
const STATE: [&str; 9] = ["q", "sort", "order", "metric", "name", "swap", "of", "inverted", "flat"];

/// What stands in a cell, as it is sorted by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// Nothing is known.
    Unknown,
    /// A number of things.
    Count(u64),
    /// A share, `0.0..=1.0`.
    Share(f64),
    /// Any number.
    Number(f64),
    /// By how much something differs.
    Difference(f64),
    /// An address.
    Address(u64),
    /// A name.
    Text(&'a str),
}

impl Value<'_> {
    fn is_right(&self) -> bool {
        !matches!(self, Value::Text(_))
    }

    /// How it is sorted by, as pages in files name it.
    fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "text",
            Value::Address(_) => "address",
            Value::Difference(_) => "difference",
            Value::Unknown | Value::Count(_) | Value::Share(_) | Value::Number(_) => "number",
        }
    }

    /// What it is sorted by, if that is known.
    fn exact(&self) -> Option<String> {
        match self {
            Value::Unknown => None,
            Value::Count(n) | Value::Address(n) => Some(n.to_string()),
            Value::Share(n) | Value::Number(n) | Value::Difference(n) => Some(n.to_string()),
            Value::Text(text) => Some((*text).to_owned()),
        }
    }

    /// The cell for it.
    pub fn cell(&self) -> Cell {
        let (text, exact) = match self {
            Value::Unknown => return Cell { is_unknown: true, ..Cell::of("unknown") },
            Value::Count(n) => (grouped(&n.to_string()), n.to_string()),
            Value::Share(part) => (share(*part), part.to_string()),
            Value::Number(n) | Value::Difference(n) if n.fract() == 0.0 => {
                (grouped(&format!("{n:.0}")), n.to_string())
            }
            Value::Number(n) | Value::Difference(n) => (grouped(&format!("{n:.2}")), n.to_string()),
            Value::Address(at) => return Cell::of(&views::address(*at)),
            Value::Text(text) => return Cell::of(text),
        };
        Cell { title: exact, ..Cell::of(&text) }
    }
}

/// A column of rows of a kind.
pub struct Column<'a, R> {
    /// Its heading, which addresses name it by.
    pub key: &'static str,
    note: &'static str,
    value: Box<dyn Fn(&'a R) -> Value<'a> + 'a>,
    cell: Option<Box<dyn Fn(&'a R) -> Cell + 'a>>,
}

impl<'a, R> Column<'a, R> {
    /// The column `key`, which is its heading; `note` says what it is.
    pub fn new(
        key: &'static str,
        note: &'static str,
        value: impl Fn(&'a R) -> Value<'a> + 'a,
    ) -> Column<'a, R> {
        Column { key, note, value: Box::new(value), cell: None }
    }

    /// Of these rows, whatever they are.
    fn of<'t>(&'t self, rows: &'a [R]) -> table::Column<'t>
    where
        'a: 't,
    {
        let value = |at: usize| rows.get(at).map_or(Value::Unknown, |row| (self.value)(row));
        let cell = |at: usize| self.cell.as_ref().and_then(|cell| Some(cell(rows.get(at)?)));
        table::Column { key: self.key, note: self.note, value: Box::new(value), cell: Box::new(cell) }
    }

    /// With other cells than those of its values.
    pub fn shown(self, cell: impl Fn(&'a R) -> Cell + 'a) -> Column<'a, R> {
        Column { cell: Some(Box::new(cell)), ..self }
    }
}

/// All rows of a table.
pub struct Rows<'a, R> {
    /// The address of the page that they are on.
    pub page: &'static str,
    /// What they are, several of them.
    pub noun: &'static str,
    /// The rows, in the order that the view has.
    pub rows: &'a [R],
    /// The column by which they are sorted.
    pub by: &'static str,
    /// What is looked for in a row.
    pub name: fn(&R) -> &str,
    /// Their columns.
    pub columns: Vec<Column<'a, R>>,
}

/// Some rows of a table, as a page has them.
#[derive(Template)]
#[template(path = "rows.html")]
pub struct Grid {
    /// The address of the page.
    pub page: &'static str,
    /// What they are.
    pub noun: &'static str,
    /// The heads of the columns.
    pub headings: Vec<Heading>,
    /// The rows.
    pub rows: Vec<Row>,
    /// The place of the first one, from 0.
    pub from: usize,
    /// How many there are that are like what was looked for.
    pub n_found: usize,
    /// How many there are.
    pub n_all: usize,
    /// Whether it is in a file, where what sorts and looks for rows is the page itself.
    pub is_in_file: bool,
    /// What was looked for.
    pub q: String,
    /// What else the address says, for the form that looks for something.
    pub kept: Vec<(&'static str, String)>,
    /// The address of pieces of it, without which.
    pub pieces: String,
    /// The addresses of the pages before and behind, if there are any.
    pub before: Option<String>,
    /// The same.
    pub behind: Option<String>,
}

/// The head of a column.
pub struct Heading {
    /// What it is called.
    pub name: &'static str,
    /// What stands below it: `number`, `difference`, `address`, `text`.
    pub kind: &'static str,
    /// What it is.
    pub note: &'static str,
    /// Whether numbers stand below it.
    pub is_right: bool,
    /// The address that has rows sorted by it.
    pub href: String,
    /// `ascending` or `descending`, if they are.
    pub sorted: &'static str,
}

/// A row.
pub struct Row {
    /// Its place, from 1.
    pub place: usize,
    /// What is looked for in it.
    pub name: String,
    /// Its cells.
    pub cells: Vec<Cell>,
}

/// A cell.
#[derive(Clone, Default)]
pub struct Cell {
    /// What stands in it.
    pub text: String,
    /// What is exact, or whole.
    pub title: String,
    /// Where it leads; "": nowhere.
    pub href: String,
    /// Whether numbers stand in it.
    pub is_right: bool,
    /// Whether nothing is known.
    pub is_unknown: bool,
    /// A bar beside it.
    pub bar: Option<Bar>,
    /// Whether the script draws a bar as long as the text says.
    pub has_own_bar: bool,
    /// What it is sorted by, in a file, if that is not what its title says.
    pub value: Option<String>,
}

/// A bar: from where to where, of a hundred.
#[derive(Clone, Copy)]
pub struct Bar {
    /// Where it starts.
    pub x: f64,
    /// How long it is.
    pub width: f64,
    /// What its colour says: `share`, `less`, `more`.
    pub kind: &'static str,
}

impl Bar {
    /// As the picture has it: less than one is less than is seen.
    pub fn x(&self) -> String {
        format!("{:.0}", self.x)
    }

    /// The same.
    pub fn width(&self) -> String {
        format!("{:.0}", self.width.ceil())
    }
}

impl Cell {
    /// With a text.
    pub fn of(text: &str) -> Cell {
        let text = escape::cut(text).into_owned();
        Cell { title: text.clone(), text, ..Cell::default() }
    }

    /// That leads to `href`; nowhere, if no request can be so long.
    pub fn to(self, href: String) -> Cell {
        match href.len() {
            0..=LONGEST_HREF => Cell { href, ..self },
            _ => self,
        }
    }

    /// As a file has it, in which nothing is said twice: its script takes titles from texts, and what rows
    /// are sorted by from both.
    fn in_file(self, value: Value<'_>) -> Cell {
        let plain = self.text.replace(',', "");
        let title = if self.title == plain || self.title == self.text { String::new() } else { self.title };
        let said = if title.is_empty() { &plain } else { &title };
        let number = || said.trim_start_matches('+').trim_end_matches(" %").parse::<f64>();
        let is_said = match value {
            Value::Text(text) => text == self.text,
            Value::Address(_) => false,
            _ => number().is_ok(),
        };
        // A bar that is as long as the text says is drawn from it.
        let percent = self.text.strip_suffix(" %").and_then(|text| text.parse::<f64>().ok());
        let is_drawn =
            |bar: &Bar| bar.kind == "share" && percent.is_some_and(|n| (bar.width - n).abs() < 0.01);
        let has_own_bar = self.bar.as_ref().is_some_and(is_drawn);
        let bar = self.bar.filter(|_| !has_own_bar);
        Cell { value: value.exact().filter(|_| !is_said), title, bar, has_own_bar, ..self }
    }

    /// With a bar beside it that is `part` of the whole.
    pub fn with_share(self, part: f64) -> Cell {
        Cell { bar: Some(Bar { x: 0.0, width: 100.0 * part.clamp(0.0, 1.0), kind: "share" }), ..self }
    }
}

/// What `q` looks for, as the pattern of a name.
pub fn pattern(q: &str) -> String {
    format!("*{q}*")
}

impl Grid {
    /// That stays as it is: no heading sorts it.
    pub fn fixed(mut self) -> Grid {
        for heading in &mut self.headings {
            heading.href = String::new();
            heading.sorted = "";
        }
        self
    }
}

impl<'a, R> Rows<'a, R> {
    /// What `query` asks for; orders are kept in `orders`, of recording `n`.
    pub fn grid(&self, query: &Query, orders: &Orders, n: usize) -> Grid {
        let rows = self.rows;
        let name = |at: usize| rows.get(at).map_or("", |row| (self.name)(row));
        let table = Table {
            page: self.page,
            noun: self.noun,
            by: self.by,
            n_rows: rows.len(),
            name: &name,
            columns: self.columns.iter().map(|column| column.of(rows)).collect(),
        };
        table.grid(query, orders, n)
    }
}

/// Orders that were asked for lately: a table is scrolled in one of them.
#[derive(Default)]
pub struct Orders(Mutex<Vec<(String, Arc<Vec<u32>>)>>);

impl Orders {
    /// That of `key`, made if it is not there.
    fn get(&self, key: &str, make: impl FnOnce() -> Vec<u32>) -> Arc<Vec<u32>> {
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = all().iter().find(|(kept, _)| kept == key) {
            return found.clone();
        }
        let made = Arc::new(make());
        let mut all = all();
        all.push((key.to_owned(), made.clone()));
        let n_kept = |all: &[(String, Arc<Vec<u32>>)]| -> usize {
            // What is looked for may be long, and nothing like it.
            all.iter().map(|(key, places)| places.len() + key.len()).sum()
        };
        while all.len() > 1 && n_kept(&all) > KEPT {
            all.remove(0);
        }
        made
    }
}

#[cfg(test)]
mod tests;
