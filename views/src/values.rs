//! What `engraft values` says, and `show` of its recordings: values of calls and at places.

mod advice;
mod instructions;
mod loops;
pub mod reuse;

pub use advice::AdviceView;
pub use instructions::{InstructionView, TargetView};
pub use loops::{BinView, LoopView, StampsView, SummaryView, TripsView};

use crate::attach::AttachedView;
use crate::table::cells::{grouped as with_separators, many, ratio, share};
use crate::{Table, View};
use serde::Serialize;
use std::io::{self, Write};

/// How many values of a column are printed: as many as table 3 of the paper has.
pub const TOP: usize = 20;

/// What values a run had.
#[derive(Debug, Serialize)]
pub struct ValuesView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// Calls, by function.
    pub calls: Vec<CallsView>,
    /// How many functions that a glob means were not called.
    pub not_called: u64,
    /// Other places.
    pub places: Vec<PlaceView>,
    /// Instructions that were recorded for what they are.
    pub instructions: Vec<InstructionView>,
    /// Loops.
    pub loops: Vec<LoopView>,
    /// What a programmer could do about all that.
    pub advice: Vec<AdviceView>,
    /// What their times rest on.
    pub stamps: Option<StampsView>,
    /// How many bytes of records could not be read, since their threads were stopped in the middle of one.
    pub unread_bytes: u64,
    /// How many threads lost records.
    pub threads_with_losses: u64,
    /// What was done to processes that ran before.
    #[serde(skip_serializing_if = "AttachedView::is_none")]
    pub attach: AttachedView,
}

/// The calls of a function.
#[derive(Debug, Serialize)]
pub struct CallsView {
    /// Its name.
    pub function: String,
    /// Where it was called, if only those calls are said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<AddressView>,
    /// In which thread, likewise, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<u64>,
    /// How often it was called.
    pub calls: u64,
    /// How often it was called besides, when the condition that was asked for did not hold.
    pub left_out: u64,
    /// How often it came back; not known, if that was not recorded.
    pub results: Option<u64>,
    /// How often it was left otherwise.
    pub left: Option<u64>,
    /// How often it had not come back when its process ended.
    pub open: Option<u64>,
    /// Where it is.
    pub addresses: Vec<AddressView>,
    /// What it was called with.
    pub arguments: Vec<ColumnView>,
    /// What it returned.
    pub result: Option<ColumnView>,
    /// How many ticks of the time stamp counter calls took that came back, with all that was called in them;
    /// `None` if that was not recorded.
    pub ticks: Option<StatisticsView>,
    /// The same without calls in them that are recorded themselves.
    pub own_ticks: Option<StatisticsView>,
}

/// A place where something is.
#[derive(Debug, Serialize)]
pub struct AddressView {
    /// The file.
    pub module: String,
    /// Where in it.
    pub address: u64,
    /// What it is called there, if not what was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Values at a place.
#[derive(Debug, Serialize)]
pub struct PlaceView {
    /// The place.
    pub place: String,
    /// How often control came by.
    pub executions: u64,
    /// Where it is.
    pub addresses: Vec<AddressView>,
    /// What was there.
    pub values: Vec<ColumnView>,
}

/// The values of an argument, a result, a register.
#[derive(Debug, Serialize)]
pub struct ColumnView {
    /// What it is called.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// How many different values there were; at least, if not `exact`.
    pub distinct: u64,
    /// Whether each value's count is what it was.
    pub exact: bool,
    /// By how much each count may be too small.
    pub error: u64,
    /// How many there were.
    pub total: u64,
    /// If they are numbers, and all are known: what these are like.
    pub statistics: Option<StatisticsView>,
    /// Those that came most.
    pub top: Vec<ValueView>,
}

/// What numbers are like: the finite ones, exact but for one rounding. Quantiles are those that are called
/// `inclusive`.
#[derive(Debug, Serialize)]
pub struct StatisticsView {
    /// How many are finite.
    pub n: u64,
    /// The smallest; with the others, `None` if none is finite.
    pub min: Option<NumberView>,
    /// The largest.
    pub max: Option<NumberView>,
    /// The mean.
    pub mean: Option<f64>,
    /// The standard deviation, of all of them.
    pub deviation: Option<f64>,
    /// The median.
    pub median: Option<f64>,
    /// The first quartile.
    pub q1: Option<f64>,
    /// The third quartile.
    pub q3: Option<f64>,
    /// The first decile.
    pub d1: Option<f64>,
    /// The ninth decile.
    pub d9: Option<f64>,
    /// How many are no numbers.
    pub nan: u64,
    /// How many are infinite.
    pub infinite: u64,
    /// How many of the finite ones are denormal.
    pub denormal: u64,
}

/// A number as it is.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum NumberView {
    /// A whole one without sign.
    Unsigned(u64),
    /// A whole one.
    Signed(i64),
    /// A floating-point number.
    Float(f64),
}

/// A value.
#[derive(Debug, Serialize)]
pub struct ValueView {
    /// As text that reads back.
    pub value: String,
    /// Its bits, hexadecimal.
    pub bits: String,
    /// How often it came.
    pub count: u64,
}

impl ValuesView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.values/1";

    fn columns(&self) -> impl Iterator<Item = (&str, &ColumnView)> {
        let of_calls = self.calls.iter().flat_map(|calls| {
            calls.arguments.iter().chain(&calls.result).map(|column| (calls.function.as_str(), column))
        });
        let of_places =
            self.places.iter().flat_map(|p| p.values.iter().map(|column| (p.place.as_str(), column)));
        of_calls.chain(of_places)
    }
}

impl View for ValuesView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["function", "value of", "type", "value", "bits", "count>"]);
        let none = || "-".to_owned();
        // Of what no value is known, how often it was called.
        for calls in self.calls.iter().filter(|calls| calls.arguments.is_empty() && calls.result.is_none()) {
            t.row([calls.function.clone(), none(), none(), none(), none(), calls.calls.to_string()]);
        }
        for (of, column) in self.columns() {
            for one in &column.top {
                t.row([
                    of.to_owned(),
                    column.name.clone(),
                    column.type_name.clone(),
                    one.value.clone(),
                    one.bits.clone(),
                    one.count.to_string(),
                ]);
            }
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        self.attach.text(w)?;
        let mut is_first = self.attach.is_none();
        for calls in &self.calls {
            if !std::mem::take(&mut is_first) {
                writeln!(w)?;
            }
            writeln!(w, "{}{}: {}", calls.function, group(calls), said(calls))?;
            addresses(w, &calls.addresses)?;
            calls.arguments.iter().chain(&calls.result).try_for_each(|column| print(w, column))?;
            if let Some(ticks) = &calls.ticks {
                let of = match calls.results.is_some_and(|results| ticks.n < results) {
                    true => format!("of {} calls, those in the log", grouped(ticks.n)),
                    false => "of a call".to_owned(),
                };
                writeln!(w, "\n  ticks {of}:")?;
                print_statistics(w, ticks)?;
            }
            if let (Some(ticks), true) = (&calls.own_ticks, self.calls.len() > 1) {
                writeln!(w, "\n  ticks of a call without those of recorded calls within it:")?;
                print_statistics(w, ticks)?;
            }
        }
        for place in &self.places {
            if !std::mem::take(&mut is_first) {
                writeln!(w)?;
            }
            writeln!(w, "{}: {}", place.place, several(place.executions, "time"))?;
            addresses(w, &place.addresses)?;
            place.values.iter().try_for_each(|column| print(w, column))?;
        }
        if !self.instructions.is_empty() {
            if !std::mem::take(&mut is_first) {
                writeln!(w)?;
            }
            instructions::text(&self.instructions, w)?;
        }
        for one in &self.loops {
            if !std::mem::take(&mut is_first) {
                writeln!(w)?;
            }
            one.text(self.stamps.as_ref(), w)?;
        }
        if !self.advice.is_empty() {
            if !std::mem::take(&mut is_first) {
                writeln!(w)?;
            }
            advice::text(&self.advice, w)?;
        }
        if let Some(stamps) = &self.stamps {
            writeln!(w)?;
            stamps.text(w)?;
        }
        if self.not_called > 0 {
            let n = usize::try_from(self.not_called).unwrap_or(usize::MAX);
            writeln!(w, "\nnot called: {}", many(n, "other function"))?;
        }
        if self.unread_bytes > 0 {
            let n = many(usize::try_from(self.unread_bytes).unwrap_or(usize::MAX), "byte");
            writeln!(w, "\n{n} of records were not read: their threads were stopped in the middle of one")?;
        }
        if self.threads_with_losses > 0 {
            let n = many(usize::try_from(self.threads_with_losses).unwrap_or(usize::MAX), "thread");
            writeln!(w, "\n{n} lost records, since nobody took them any more")?;
        }
        Ok(())
    }
}

/// Of which calls it is, if not of all.
fn group(calls: &CallsView) -> String {
    let file = |address: &AddressView| address.module.rsplit('/').next().unwrap_or_default().to_owned();
    let place = |at: &AddressView| match &at.name {
        Some(name) => format!(", called at {:#x} in {} ({name})", at.address, file(at)),
        None => format!(", called at {:#x} in {}", at.address, file(at)),
    };
    let caller = calls.caller.as_ref().map(place);
    let thread = calls.thread.map(|thread| format!(", thread {thread}"));
    caller.into_iter().chain(thread).collect()
}

fn said(calls: &CallsView) -> String {
    let mut said = several(calls.calls, "call");
    for (n, one, many) in [
        (calls.results, "came back", "came back"),
        (calls.left, "was left", "were left"),
        (calls.open, "was open at the end", "were open at the end"),
        (Some(calls.left_out), "other was left out", "others were left out"),
    ] {
        if let Some(n) = n.filter(|n| *n > 0) {
            said += &format!(", {} {}", grouped(n), if n == 1 { one } else { many });
        }
    }
    said
}

fn addresses(w: &mut dyn Write, all: &[AddressView]) -> io::Result<()> {
    for address in all {
        let file = address.module.rsplit('/').next().unwrap_or_default();
        match &address.name {
            Some(name) => writeln!(w, "  at {:#x} in {file}: {name}", address.address)?,
            None => writeln!(w, "  at {:#x} in {file}", address.address)?,
        }
    }
    Ok(())
}

fn print(w: &mut dyn Write, column: &ColumnView) -> io::Result<()> {
    let ColumnView { name, type_name, distinct, exact, error, total, statistics, top } = column;
    let said = match exact {
        true if *distinct == 1 => match top.first() {
            Some(only) => return writeln!(w, "\n{name} ({type_name}): always {}", only.value),
            None => "1 value".to_owned(),
        },
        true => format!("{} different", grouped(*distinct)),
        false => format!("{} different or more, counts to within {}", grouped(*distinct), grouped(*error)),
    };
    if *total == 0 {
        return Ok(());
    }
    writeln!(w, "\n{name} ({type_name}): {said}")?;
    if let Some(statistics) = statistics.as_ref().filter(|_| *distinct > 1) {
        print_statistics(w, statistics)?;
    }
    let mut t = Table::new(&["count>", "share>", "value"]);
    for one in top {
        t.row([one.count.to_string(), share(ratio(one.count, *total)), one.value.clone()]);
    }
    // The table says how many of its rows it leaves out.
    t.top(TOP, w)?;
    let without_row = distinct.saturating_sub(top.len() as u64);
    if without_row > 0 {
        writeln!(w, "and {} that came less often, which are not listed", grouped(without_row))?;
    }
    Ok(())
}

fn print_statistics(w: &mut dyn Write, of: &StatisticsView) -> io::Result<()> {
    let number = |number: Option<NumberView>| match number {
        Some(NumberView::Unsigned(n)) => n.to_string(),
        Some(NumberView::Signed(n)) => n.to_string(),
        Some(NumberView::Float(n)) => short(n),
        None => String::new(),
    };
    if of.n > 0 {
        let mut t =
            Table::new(&["min>", "D1>", "Q1>", "median>", "Q3>", "D9>", "max>", "mean>", "deviation>"]);
        let all = [of.d1, of.q1, of.median, of.q3, of.d9, of.mean, of.deviation];
        let [d1, q1, median, q3, d9, mean, deviation] = all.map(|n| n.map_or_else(String::new, short));
        t.row([number(of.min), d1, q1, median, q3, d9, number(of.max), mean, deviation]);
        t.text(w)?;
    }
    let odd = [(of.nan, "no numbers"), (of.infinite, "infinite"), (of.denormal, "denormal")];
    let odd: Vec<String> =
        odd.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", grouped(*n))).collect();
    if !odd.is_empty() {
        writeln!(w, "  {} of them", odd.join(", "))?;
    }
    Ok(())
}

/// A number in six digits.
fn short(n: f64) -> String {
    if n == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e15).contains(&n.abs()) {
        return format!("{n:.5e}");
    }
    let before = format!("{:.0}", n.abs().trunc()).len();
    let text = format!("{n:.*}", 6usize.saturating_sub(before).min(9));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `1 call`, `2,000 calls`.
fn several(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

fn grouped(n: u64) -> String {
    with_separators(&n.to_string())
}
