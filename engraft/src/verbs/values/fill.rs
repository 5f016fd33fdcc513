//! From values to what is said of them.

use crate::input::names::source_name;
use profile::ReadError;
use profile::values::advice::{self, Advice};
use profile::values::log::{Log, Part};
use profile::values::{
    Address, Buckets, Calls, Column, Counted, Loop, Number, PARTS_OF_TICK, Place, Stamps, Statistics,
    Summary, Values, Watched,
};
use program::signature::text;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;
use views::attach::AttachedView;
use views::values::{
    AddressView, AdviceView, BinView, CallsView, ColumnView, InstructionView, LoopView, NumberView,
    PlaceView, StampsView, StatisticsView, SummaryView, TargetView, TripsView, ValueView, ValuesView,
};

/// How many values of a column are said for programs.
const MOST: usize = 1000;
/// How many instances are named of each bin.
const N_EXAMPLES: usize = 3;

/// What is said of `values`, and of their log, if there is one, of a run that `took` that long.
///
/// # Errors
/// If the log is damaged.
pub fn view(values: &Values, log: Option<&Log>, took: Duration) -> Result<ValuesView, ReadError> {
    // What a glob means is listed if it was called.
    let is_listed = |one: &&Calls| one.n_calls + one.n_left_out > 0 || !one.is_of_glob;
    let calls = values.calls.iter().filter(is_listed).map(|of| calls(of, log));
    let asked = values.places.iter().filter(|place| place.watched.is_none());
    Ok(ValuesView {
        schema: ValuesView::SCHEMA,
        calls: calls.collect::<Result<_, _>>()?,
        not_called: values.calls.iter().filter(|one| !is_listed(one)).count() as u64,
        places: asked.map(|of| place(of, log)).collect::<Result<_, _>>()?,
        instructions: instructions(values),
        loops: loops(values),
        advice: advice::advice(values, log, took.as_secs_f64())?.into_iter().map(advised).collect(),
        stamps: values.stamps.as_ref().map(stamps),
        unread_bytes: values.n_unread_bytes,
        threads_with_losses: values.n_lost,
        attach: AttachedView::default(),
    })
}

/// What is said of the calls in a log by what they have in common, those with most calls first.
///
/// # Errors
/// If the log is damaged.
pub fn grouped(log: &Log, by: Part) -> Result<ValuesView, ReadError> {
    let mut all = Vec::new();
    for (n, _) in (0..).zip(&log.tables).filter(|(_, table)| !table.is_place) {
        let mut rows: Vec<(u64, Calls)> = log.groups(n, Some(by))?.into_iter().collect();
        rows.sort_by_key(|(key, of)| (Reverse(of.n_calls), *key));
        for (key, of) in rows {
            let at = log.callers.get(&key).map(address);
            let unknown = || AddressView { module: "live".to_owned(), address: key, name: None };
            let mut view = calls(&of, None)?;
            match by {
                Part::Thread => view.thread = Some(key),
                _ => view.caller = Some(at.unwrap_or_else(unknown)),
            }
            all.push(view);
        }
    }
    Ok(ValuesView {
        schema: ValuesView::SCHEMA,
        calls: all,
        not_called: 0,
        places: Vec::new(),
        instructions: Vec::new(),
        loops: Vec::new(),
        advice: Vec::new(),
        stamps: None,
        unread_bytes: 0,
        threads_with_losses: 0,
        attach: AttachedView::default(),
    })
}

fn calls(calls: &Calls, log: Option<&Log>) -> Result<CallsView, ReadError> {
    let log = log.and_then(|log| Some((log, log.table(&calls.function, calls.asked, false)?)));
    // Of some calls, nothing is said of all.
    let whole = log.filter(|(log, n)| log.n_rows(*n) == calls.n_calls);
    let has_times = log.is_some_and(|(log, n)| log.tables.get(n).is_some_and(|table| table.has_times));
    let timed = |part| match log.filter(|_| has_times) {
        Some((log, n)) => Ok(Statistics::of_log(log, n, part)?.as_ref().map(statistics)),
        None => Ok(None),
    };
    let ended = |n: u64| (!calls.is_without_ends).then_some(n);
    // What was asked for is called so; what a glob means, as the source calls it.
    let of_glob = if calls.is_of_glob { source_name(&calls.function) } else { None };
    Ok(CallsView {
        function: of_glob.unwrap_or_else(|| calls.function.clone()),
        caller: None,
        thread: None,
        calls: calls.n_calls,
        left_out: calls.n_left_out,
        results: ended(calls.n_results),
        left: ended(calls.n_left),
        open: ended(calls.n_open),
        addresses: calls.addresses.iter().map(address).collect(),
        arguments: columns(&calls.arguments, whole)?,
        result: calls.result.as_ref().map(|of| column(of, whole, Part::Result)).transpose()?,
        ticks: timed(Part::Ticks)?,
        own_ticks: timed(Part::OwnTicks)?,
    })
}

fn place(place: &Place, log: Option<&Log>) -> Result<PlaceView, ReadError> {
    let log = log.and_then(|log| Some((log, log.table(&place.place, 0, true)?)));
    let log = log.filter(|(log, n)| log.n_rows(*n) == place.n);
    Ok(PlaceView {
        place: place.place.clone(),
        executions: place.n,
        addresses: place.addresses.iter().map(address).collect(),
        values: columns(&place.columns, log)?,
    })
}

fn advised(one: Advice) -> AdviceView {
    AdviceView {
        kind: one.kind.name(),
        function: source_name(&one.function).unwrap_or(one.function),
        at: one.at.as_ref().map(address),
        line: one.line,
        gain_s: one.gain_s,
        executions: one.executions,
        because: one.because,
    }
}

/// Those that were recorded for what they are, and ran.
fn instructions(values: &Values) -> Vec<InstructionView> {
    let targets: HashMap<u64, &Address> = values.targets.iter().map(|(at, address)| (*at, address)).collect();
    let view = |place: &Place| {
        let (watched, column) = (place.watched.filter(|_| place.n > 0)?, place.columns.first()?);
        let counted = column.values.counted();
        let (element, width) = match watched {
            Watched::Size { element } => (Some(element), None),
            Watched::Access { width } => (None, Some(width)),
            _ => (None, None),
        };
        let sum = |is_it: &dyn Fn(u64) -> bool| {
            let at = |one: &&Counted| is_it(one.bytes.first().copied().unwrap_or_default().into());
            counted.iter().filter(at).map(|one| one.count).sum()
        };
        let mut top: Vec<TargetView> = Vec::new();
        for one in counted.iter().filter(|_| width.is_none()) {
            let name = match watched {
                Watched::Target => {
                    one.bytes.first_chunk().and_then(|at| targets.get(&u64::from_le_bytes(*at)))
                }
                _ => None,
            };
            let value = name.and_then(|address| address.name.clone());
            let value = value.unwrap_or_else(|| text::text(&column.kind, &one.bytes));
            // Of several runs, a target may have several addresses.
            match top.iter_mut().find(|known| known.value == value) {
                Some(known) => known.count += one.count,
                None => top.push(TargetView { value, at: name.map(|at| address(at)), count: one.count }),
            }
        }
        top.sort_by_key(|one| Reverse(one.count));
        let distinct = if width.is_some() { column.values.n_distinct() } else { top.len() as u64 };
        top.truncate(MOST);
        let address = place.addresses.first().map(address)?;
        Some(InstructionView {
            kind: watched.name(),
            place: place.place.clone(),
            module: address.module,
            address: address.address,
            executions: place.n,
            distinct,
            top,
            element,
            width,
            misaligned: width.map(|width| sum(&|at| at % u64::from(width) != 0)),
            split: width.map(|width| sum(&|at| at + u64::from(width) > 64)),
        })
    };
    let mut all: Vec<InstructionView> = values.places.iter().filter_map(view).collect();
    all.sort_by_key(|one| Reverse(one.executions));
    all
}

/// Those that ran; if none did, all. What took most ticks comes first.
fn loops(values: &Values) -> Vec<LoopView> {
    let has_run = |one: &&Loop| one.n_instances + one.n_left + one.n_open > 0;
    let mut all: Vec<&Loop> = values.loops.iter().filter(has_run).collect();
    if all.is_empty() {
        all = values.loops.iter().collect();
    }
    let ticks = |one: &Loop| one.ticks.as_ref().map_or(0, |ticks| ticks.instances.total());
    all.sort_by_key(|one| Reverse((ticks(one), one.iterations.total())));
    all.into_iter().map(one_loop).collect()
}

fn one_loop(one: &Loop) -> LoopView {
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let part = 1.0 / PARTS_OF_TICK as f64;
    let trips = |counted: Counted| TripsView {
        iterations: counted.bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)),
        instances: counted.count,
    };
    let ticks = one.ticks.as_ref().filter(|_| one.n_instances > 0);
    LoopView {
        function: source_name(&one.function).unwrap_or_else(|| one.function.clone()),
        module: one.module.clone(),
        header: one.header,
        file: one.line.as_ref().map(|line| line.0.clone()),
        line: one.line.as_ref().map(|line| line.1),
        depth: one.depth,
        instances: one.n_instances,
        left: one.n_left,
        open: one.n_open,
        uncertain: one.n_uncertain,
        iterations: summary(one.iterations.summary(1.0)),
        trip_counts: one.trip_counts.counted().into_iter().take(MOST).map(trips).collect(),
        ticks: ticks.map(|ticks| summary(ticks.instances.summary(1.0))),
        ticks_per_iteration: ticks.map(|ticks| summary(ticks.iterations.summary(part))),
        bins: ticks.map(|ticks| bins(&ticks.iterations, part)).unwrap_or_default(),
    }
}

/// By doublings.
fn bins(buckets: &Buckets, unit: f64) -> Vec<BinView> {
    let mut all: Vec<(u32, BinView)> = Vec::new();
    for (from, _, bucket) in buckets.buckets() {
        let doubling = u64::BITS - from.leading_zeros();
        if all.last().is_none_or(|last| last.0 != doubling) {
            let start = if doubling == 0 { 0.0 } else { 2f64.powi(doubling.cast_signed() - 1) };
            let (from, to) = (start * unit, (start * 2.0).max(1.0) * unit);
            all.push((doubling, BinView { from, to, instances: 0, examples: Vec::new() }));
        }
        let Some((_, bin)) = all.last_mut() else { continue };
        bin.instances += bucket.n;
        if bin.examples.len() < N_EXAMPLES {
            bin.examples.push(bucket.first);
        }
    }
    all.into_iter().map(|one| one.1).collect()
}

fn summary(of: Summary) -> SummaryView {
    let Summary { total, min, max, mean, deviation, median, q1, q3, d1, d9, .. } = of;
    SummaryView { total, min, max, mean, deviation, median, q1, q3, d1, d9 }
}

fn stamps(stamps: &Stamps) -> StampsView {
    StampsView {
        offset_ticks: stamps.offset,
        cost_ticks: stamps.cost,
        step_ticks: stamps.step,
        ticks_per_second: stamps.per_second,
        ticks_per_cycle: stamps.per_cycle,
        ticks_per_cycle_error: stamps.per_cycle_error,
        serialised: stamps.are_serialised,
    }
}

fn address(address: &Address) -> AddressView {
    AddressView { module: address.module.clone(), address: address.at, name: address.name.clone() }
}

fn columns(all: &[Column], log: Option<(&Log, usize)>) -> Result<Vec<ColumnView>, ReadError> {
    all.iter().enumerate().map(|(n, one)| column(one, log, Part::Argument(n))).collect()
}

/// A column, which is this part of the rows of a table of the log.
fn column(column: &Column, log: Option<(&Log, usize)>, part: Part) -> Result<ColumnView, ReadError> {
    let value = |one: &Counted| ValueView {
        value: text::text(&column.kind, &one.bytes),
        bits: text::bits(&column.kind, &one.bytes),
        count: one.count,
    };
    let counted = column.values.counted();
    let known = match log {
        _ if column.values.is_exact() => Statistics::of_counted(&column.kind, &counted),
        Some((log, n)) => Statistics::of_log(log, n, part)?,
        None => None,
    };
    Ok(ColumnView {
        name: column.name.clone(),
        type_name: column.type_name.clone(),
        distinct: column.values.n_distinct(),
        exact: column.values.is_exact(),
        error: column.values.error(),
        total: column.values.n(),
        statistics: known.as_ref().map(statistics),
        top: counted.iter().take(MOST).map(value).collect(),
    })
}

fn statistics(all: &Statistics) -> StatisticsView {
    let number = |number: Number| match number {
        Number::Unsigned(n) => NumberView::Unsigned(n),
        Number::Signed(n) => NumberView::Signed(n),
        Number::Float(n) => NumberView::Float(n),
    };
    let of = all.of_finite;
    StatisticsView {
        n: all.n,
        min: of.map(|of| number(of.min)),
        max: of.map(|of| number(of.max)),
        mean: of.map(|of| of.mean),
        deviation: of.map(|of| of.deviation),
        median: of.map(|of| of.median),
        q1: of.map(|of| of.q1),
        q3: of.map(|of| of.q3),
        d1: of.map(|of| of.d1),
        d9: of.map(|of| of.d9),
        nan: all.n_nan,
        infinite: all.n_infinite,
        denormal: all.n_denormal,
    }
}
