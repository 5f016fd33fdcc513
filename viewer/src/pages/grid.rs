//! Rows under headings, some of many: sorted, filtered and cut to what is looked at.
//!
//! The state is in the address: `sort` is the key of a column, `order=reversed` has the least first, `q` is
//! what names hold (`*` stands for anything), `from` is the first row, `rows` how many there are.

mod order;

use crate::address::Query;
use crate::escape;
use askama::Template;
use std::sync::{Arc, Mutex, PoisonError};
use views::{Like, grouped, share};

/// How many rows a page has, and a piece of it at most.
const PIECE: usize = 200;
const LONGEST_PIECE: usize = 1000;
/// How many rows a page in a file has at most, since all of them are in it.
pub const LONGEST_IN_FILE: usize = 1000;
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

    /// That leads to `href`.
    pub fn to(self, href: String) -> Cell {
        Cell { href, ..self }
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
    /// The places of those rows that `query` asks for, in its order: the largest number first, names by
    /// letter, what is not known last.
    fn order(&self, query: &Query) -> Vec<u32> {
        let wanted = query.get("q").map(pattern);
        let wanted = wanted.as_deref().map(Like::new);
        let is_wanted = |row: &R| wanted.as_ref().is_none_or(|wanted| wanted.fits((self.name)(row)));
        let places = (0..).zip(self.rows).filter(|(_, row)| is_wanted(row)).map(|(place, _)| place);
        let column = query.get("sort").and_then(|key| self.columns.iter().find(|column| column.key == key));
        let row = |place: u32| usize::try_from(place).ok().and_then(|place| self.rows.get(place));
        let Some(column) = column else { return places.collect() };
        let value = |place: u32| row(place).map_or(Value::Unknown, |row| (column.value)(row));
        let text = |place: u32| match value(place) {
            Value::Text(text) => text,
            _ => "",
        };
        match self.rows.first().map(|row| (column.value)(row)) {
            Some(Value::Text(_)) => order::by_text(places, text),
            _ => order::by_number(places, value),
        }
    }

    /// What `query` asks for; orders are kept in `orders`, of recording `n`.
    pub fn grid(&self, query: &Query, orders: &Orders, n: usize) -> Grid {
        let state = query.only(&STATE);
        let is_reversed = query.get("order").is_some();
        let order = Order { places: self.places(query, &state, orders, n), n: self.rows.len(), is_reversed };
        let is_in_file = query.get("file").is_some();
        let n_wanted = match query.number("rows") {
            None if is_in_file => LONGEST_IN_FILE,
            n => n.unwrap_or(PIECE).clamp(1, LONGEST_PIECE),
        };
        let from = query.number("from").unwrap_or(0).min(order.len().saturating_sub(1));
        let rows = (from..order.len()).take(n_wanted).filter_map(|place| {
            let row = self.rows.get(order.at(place)?)?;
            Some(Row {
                place: place + 1,
                name: if is_in_file { (self.name)(row).to_owned() } else { String::new() },
                cells: self.columns.iter().map(|column| cell(column, row, is_in_file)).collect(),
            })
        });
        let rows: Vec<Row> = rows.collect();
        let at = |from: usize| {
            state.with("from", Some(&from.to_string()).filter(|_| from > 0).map(String::as_str))
        };
        let end = from + rows.len();
        Grid {
            page: self.page,
            noun: self.noun,
            headings: self.headings(&state),
            from,
            n_found: order.len(),
            n_all: self.rows.len(),
            is_in_file,
            q: query.get("q").unwrap_or_default().to_owned(),
            kept: STATE
                .into_iter()
                .filter(|name| *name != "q")
                .flat_map(|name| query.all(name).map(move |value| (name, value.to_owned())))
                .collect(),
            pieces: state.link(&format!("{}.rows", self.page)),
            before: (from > 0).then(|| at(from.saturating_sub(n_wanted)).link(self.page)),
            behind: (end < order.len()).then(|| at(end).link(self.page)),
            rows,
        }
    }

    /// Places of rows in an order that is kept, or that of the view.
    fn places(&self, query: &Query, state: &Query, orders: &Orders, n: usize) -> Option<Arc<Vec<u32>>> {
        let as_it_is = query.get("q").is_none()
            && query.get("sort").is_none_or(|key| !self.columns.iter().any(|column| column.key == key));
        let key = || format!("{n}/{}", state.with("order", None).link(self.page));
        (!as_it_is).then(|| orders.get(&key(), || self.order(query)))
    }

    fn headings(&self, state: &Query) -> Vec<Heading> {
        let by = state.get("sort").unwrap_or(self.by);
        let is_reversed = state.get("order").is_some();
        let heading = |column: &Column<'a, R>| {
            let is_by = column.key == by;
            let first = self.rows.first().map(|row| (column.value)(row));
            let ascends = matches!(first, Some(Value::Text(_) | Value::Address(_)));
            let turned = state.with("sort", Some(column.key)).with("order", None);
            let turned = if is_by && !is_reversed { turned.with("order", Some("reversed")) } else { turned };
            Heading {
                name: column.key,
                kind: self.kind(column),
                note: column.note,
                is_right: self.is_right(column),
                href: turned.link(self.page),
                sorted: match (is_by, ascends != is_reversed) {
                    (false, _) => "",
                    (true, true) => "ascending",
                    (true, false) => "descending",
                },
            }
        };
        self.columns.iter().map(heading).collect()
    }

    /// What stands in it, where that is known of any row.
    fn kind(&self, column: &Column<'a, R>) -> &'static str {
        let known = self.rows.iter().map(|row| (column.value)(row)).find(|value| *value != Value::Unknown);
        known.map_or("number", |value| value.kind())
    }

    /// Whether numbers stand in it.
    fn is_right(&self, column: &Column<'a, R>) -> bool {
        self.rows.first().is_some_and(|row| (column.value)(row).is_right())
    }
}

/// The cell of `row` in a column.
fn cell<'a, R>(column: &Column<'a, R>, row: &'a R, is_in_file: bool) -> Cell {
    let value = (column.value)(row);
    let shown = column.cell.as_ref().map(|cell| cell(row));
    let is_unknown = value == Value::Unknown;
    let shown = shown.unwrap_or_else(|| value.cell());
    let shown = Cell { is_right: value.is_right(), is_unknown, ..shown };
    if is_in_file { shown.in_file(value) } else { shown }
}

/// In which order rows stand.
struct Order {
    /// Their places in the view; without it, all as they stand there.
    places: Option<Arc<Vec<u32>>>,
    /// How many rows the view has.
    n: usize,
    is_reversed: bool,
}

impl Order {
    fn len(&self) -> usize {
        self.places.as_ref().map_or(self.n, |places| places.len())
    }

    /// Where the row at `place` stands in the view.
    fn at(&self, place: usize) -> Option<usize> {
        let place = if self.is_reversed { self.len().checked_sub(place + 1)? } else { place };
        match &self.places {
            Some(places) => usize::try_from(*places.get(place)?).ok(),
            None => Some(place),
        }
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
