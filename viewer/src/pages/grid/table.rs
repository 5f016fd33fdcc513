//! Rows of any kind, by their places: which of them a page has, in which order, under which headings.
//!
//! What the rows are is not known here: all of this is in the program once, and not for each kind.

use super::{
    Cell, Grid, Heading, LONGEST_IN_FILE, LONGEST_PIECE, Orders, PIECE, Row, STATE, Value, order, pattern,
};
use crate::address::Query;
use std::sync::Arc;
use views::Like;

/// All rows of a table.
pub struct Table<'t> {
    /// The address of the page that they are on.
    pub page: &'static str,
    /// What they are, several of them.
    pub noun: &'static str,
    /// The column by which they are sorted.
    pub by: &'static str,
    /// How many there are.
    pub n_rows: usize,
    /// What is looked for in the row at a place.
    pub name: &'t dyn Fn(usize) -> &'t str,
    /// Their columns.
    pub columns: Vec<Column<'t>>,
}

/// A column.
pub struct Column<'t> {
    /// Its heading, which addresses name it by.
    pub key: &'static str,
    /// What it is.
    pub note: &'static str,
    /// What stands in it in the row at a place.
    pub value: Box<dyn Fn(usize) -> Value<'t> + 't>,
    /// How that is shown, if not as values are.
    pub cell: Box<dyn Fn(usize) -> Option<Cell> + 't>,
}

impl<'t> Table<'t> {
    /// What `query` asks for; orders are kept in `orders`, of recording `n`.
    pub fn grid(&self, query: &Query, orders: &Orders, n: usize) -> Grid {
        let state = query.only(&STATE);
        let is_reversed = query.get("order").is_some();
        let order = Order { places: self.places(query, &state, orders, n), n: self.n_rows, is_reversed };
        let is_in_file = query.get("file").is_some();
        let n_wanted = match query.number("rows") {
            None if is_in_file => LONGEST_IN_FILE,
            n => n.unwrap_or(PIECE).clamp(1, LONGEST_PIECE),
        };
        let from = query.number("from").unwrap_or(0).min(order.len().saturating_sub(1));
        let rows = (from..order.len()).take(n_wanted).filter_map(|place| {
            let row = order.at(place)?;
            Some(Row {
                place: place + 1,
                name: if is_in_file { (self.name)(row).to_owned() } else { String::new() },
                cells: self.columns.iter().map(|column| column.shown(row, is_in_file)).collect(),
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
            n_all: self.n_rows,
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

    /// The places of those rows that `query` asks for, in its order: the largest number first, names by
    /// letter, what is not known last.
    fn order(&self, query: &Query) -> Vec<u32> {
        let wanted = query.get("q").map(pattern);
        let wanted = wanted.as_deref().map(Like::new);
        let at = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
        let is_wanted =
            |place: &u32| wanted.as_ref().is_none_or(|wanted| wanted.fits((self.name)(at(*place))));
        let places = (0..u32::try_from(self.n_rows).unwrap_or(u32::MAX)).filter(is_wanted);
        let Some(column) = self.sorted_by(query) else { return places.collect() };
        let value = |place: u32| (column.value)(at(place));
        let text = |place: u32| match value(place) {
            Value::Text(text) => text,
            _ => "",
        };
        match self.first(column) {
            Some(Value::Text(_)) => order::by_text(places, text),
            _ => order::by_number(places, value),
        }
    }

    fn sorted_by(&self, query: &Query) -> Option<&Column<'t>> {
        let key = query.get("sort")?;
        self.columns.iter().find(|column| column.key == key)
    }

    /// Places of rows in an order that is kept, or that of the view.
    fn places(&self, query: &Query, state: &Query, orders: &Orders, n: usize) -> Option<Arc<Vec<u32>>> {
        let as_it_is = query.get("q").is_none() && self.sorted_by(query).is_none();
        let key = || format!("{n}/{}", state.with("order", None).link(self.page));
        (!as_it_is).then(|| orders.get(&key(), || self.order(query)))
    }

    fn headings(&self, state: &Query) -> Vec<Heading> {
        let by = state.get("sort").unwrap_or(self.by);
        let is_reversed = state.get("order").is_some();
        let heading = |column: &Column<'t>| {
            let is_by = column.key == by;
            let first = self.first(column);
            let ascends = matches!(first, Some(Value::Text(_) | Value::Address(_)));
            let turned = state.with("sort", Some(column.key)).with("order", None);
            let turned = if is_by && !is_reversed { turned.with("order", Some("reversed")) } else { turned };
            // What stands in it, where that is known of any row.
            let mut all = (0..self.n_rows).map(|row| (column.value)(row));
            Heading {
                name: column.key,
                kind: all.find(|value| *value != Value::Unknown).map_or("number", |value| value.kind()),
                note: column.note,
                is_right: first.is_some_and(|value| value.is_right()),
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

    /// What stands in the first row.
    fn first(&self, column: &Column<'t>) -> Option<Value<'t>> {
        (self.n_rows > 0).then(|| (column.value)(0))
    }
}

impl Column<'_> {
    /// The cell of the row at a place.
    fn shown(&self, row: usize, is_in_file: bool) -> Cell {
        let value = (self.value)(row);
        let shown = (self.cell)(row).unwrap_or_else(|| value.cell());
        let shown = Cell { is_right: value.is_right(), ..shown };
        if is_in_file { shown.in_file(value) } else { shown }
    }
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
