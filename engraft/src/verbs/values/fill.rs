//! From values to what is said of them.

use profile::values::{Address, Calls, Column, Counted, Place, Values, bits};
use views::values::{AddressView, CallsView, ColumnView, PlaceView, ValueView, ValuesView};

/// How many values of a column are said for programs.
const MOST: usize = 1000;

/// What is said of `values`.
pub fn view(values: &Values) -> ValuesView {
    // What a glob means is listed if it was called.
    let is_listed = |one: &&Calls| one.n_calls > 0 || !one.is_of_glob;
    ValuesView {
        schema: ValuesView::SCHEMA,
        calls: values.calls.iter().filter(is_listed).map(calls).collect(),
        not_called: values.calls.iter().filter(|one| !is_listed(one)).count() as u64,
        places: values.places.iter().map(place).collect(),
        unread_bytes: values.n_unread_bytes,
        threads_with_losses: values.n_lost,
    }
}

fn calls(calls: &Calls) -> CallsView {
    CallsView {
        function: calls.function.clone(),
        calls: calls.n_calls,
        results: calls.n_results,
        left: calls.n_left,
        open: calls.n_open,
        addresses: calls.addresses.iter().map(address).collect(),
        arguments: calls.arguments.iter().map(column).collect(),
        result: calls.result.as_ref().map(column),
    }
}

fn place(place: &Place) -> PlaceView {
    PlaceView {
        place: place.place.clone(),
        executions: place.n,
        addresses: place.addresses.iter().map(address).collect(),
        values: place.columns.iter().map(column).collect(),
    }
}

fn address(address: &Address) -> AddressView {
    AddressView { module: address.module.clone(), address: address.at, name: address.name.clone() }
}

fn column(column: &Column) -> ColumnView {
    let value = |one: &Counted| ValueView {
        value: column.kind.text(&one.bytes),
        bits: bits(&one.bytes),
        count: one.count,
    };
    ColumnView {
        name: column.name.clone(),
        type_name: column.type_name.clone(),
        distinct: column.values.n_distinct(),
        exact: column.values.is_exact(),
        error: column.values.error(),
        total: column.values.n(),
        top: column.values.counted().iter().take(MOST).map(value).collect(),
    }
}
