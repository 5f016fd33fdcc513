//! Rows under headings, some of many: sorted, filtered and cut to what is looked at.
//!
//! The state is in the address: `sort` is the key of a column, `order=reversed` has the least first, `q` is
//! what names hold (`*` stands for anything), `from` is the first row, `rows` how many there are.

use super::is_like;
use crate::address::Query;
use askama::Template;
use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use views::{grouped, share};

/// How many rows a page has, and a piece of it at most.
const PIECE: usize = 200;
const LONGEST_PIECE: usize = 1000;
/// How many orders of rows are kept.
const KEPT: usize = 16;

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
    /// In which order rows stand that have these: the largest number first, names by letter, what is not
    /// known last.
    fn order(&self, other: &Value<'_>) -> Ordering {
        match (self, other) {
            (Value::Count(a), Value::Count(b)) => b.cmp(a),
            (Value::Share(a), Value::Share(b)) | (Value::Number(a), Value::Number(b)) => b.total_cmp(a),
            (Value::Difference(a), Value::Difference(b)) => b.abs().total_cmp(&a.abs()),
            (Value::Address(a), Value::Address(b)) => a.cmp(b),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            (Value::Unknown, Value::Unknown) => Ordering::Equal,
            (Value::Unknown, _) => Ordering::Greater,
            (_, Value::Unknown) => Ordering::Less,
            _ => Ordering::Equal,
        }
    }

    fn is_right(&self) -> bool {
        !matches!(self, Value::Text(_))
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

impl Cell {
    /// With a text.
    pub fn of(text: &str) -> Cell {
        Cell { text: text.to_owned(), title: text.to_owned(), ..Cell::default() }
    }

    /// That leads to `href`.
    pub fn to(self, href: String) -> Cell {
        Cell { href, ..self }
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

impl<'a, R> Rows<'a, R> {
    /// The places of those rows that `query` asks for, in its order.
    fn order(&self, query: &Query) -> Vec<u32> {
        let wanted = query.get("q").map(pattern);
        let is_wanted = |row: &R| wanted.as_ref().is_none_or(|wanted| is_like((self.name)(row), wanted));
        let places = (0..).zip(self.rows).filter(|(_, row)| is_wanted(row));
        let column = query.get("sort").and_then(|key| self.columns.iter().find(|column| column.key == key));
        let mut order: Vec<u32> = match column {
            None => places.map(|(place, _)| place).collect(),
            Some(column) => {
                let mut keyed: Vec<(Value<'_>, u32)> =
                    places.map(|(place, row)| ((column.value)(row), place)).collect();
                keyed.sort_unstable_by(|a, b| a.0.order(&b.0).then(a.1.cmp(&b.1)));
                keyed.into_iter().map(|(_, place)| place).collect()
            }
        };
        if query.get("order").is_some() {
            order.reverse();
        }
        order
    }

    /// What `query` asks for; orders are kept in `orders`, of recording `n`.
    pub fn grid(&self, query: &Query, orders: &Orders, n: usize) -> Grid {
        let state = query.only(&["q", "sort", "order", "metric", "name", "swap", "inverted", "flat"]);
        let key = format!("{n}/{}", state.link(self.page));
        let order = orders.get(&key, || self.order(query));
        let n_wanted = query.number("rows").unwrap_or(PIECE).clamp(1, LONGEST_PIECE);
        let from = query.number("from").unwrap_or(0).min(order.len().saturating_sub(1));
        let places = order.iter().enumerate().skip(from).take(n_wanted);
        let rows = places.filter_map(|(place, at)| {
            let row = self.rows.get(usize::try_from(*at).ok()?)?;
            Some(Row {
                place: place + 1,
                cells: self.columns.iter().map(|column| cell(column, row)).collect(),
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
            q: query.get("q").unwrap_or_default().to_owned(),
            kept: ["sort", "order", "metric", "name", "swap", "inverted", "flat"]
                .into_iter()
                .filter_map(|name| Some((name, query.get(name)?.to_owned())))
                .collect(),
            pieces: state.link(&format!("{}.rows", self.page)),
            before: (from > 0).then(|| at(from.saturating_sub(n_wanted)).link(self.page)),
            behind: (end < order.len()).then(|| at(end).link(self.page)),
            rows,
        }
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

    /// Whether numbers stand in it.
    fn is_right(&self, column: &Column<'a, R>) -> bool {
        self.rows.first().is_some_and(|row| (column.value)(row).is_right())
    }
}

/// The cell of `row` in a column.
fn cell<'a, R>(column: &Column<'a, R>, row: &'a R) -> Cell {
    let value = (column.value)(row);
    let shown = column.cell.as_ref().map(|cell| cell(row));
    let is_unknown = value == Value::Unknown;
    Cell { is_right: value.is_right(), is_unknown, ..shown.unwrap_or_else(|| value.cell()) }
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
        if all.len() >= KEPT {
            all.remove(0);
        }
        all.push((key.to_owned(), made.clone()));
        made
    }
}

#[cfg(test)]
mod tests;
