//! What is said of loops: tables 1 and 2 of the paper, and its figure 1 as a table.
//!
//! Source: VPROF, section 2.1.

use super::grouped;
use crate::chart::{Axis, Chart, Marks, Scale};
use crate::table::cells::{ratio, share};
use crate::{Table, address};
use serde::Serialize;
use std::io::{self, Write};

/// A loop.
#[derive(Debug, Serialize)]
pub struct LoopView {
    /// Its function.
    pub function: String,
    /// The file it is in.
    pub module: String,
    /// The address of its header.
    pub header: u64,
    /// The source file of that, where it is known.
    pub file: Option<String>,
    /// The line there.
    pub line: Option<u32>,
    /// How many loops hold it, itself too.
    pub depth: u32,
    /// How often it was entered and left.
    pub instances: u64,
    /// How often it was left otherwise than along an edge.
    pub left: u64,
    /// How often it was being run when its process ended.
    pub open: u64,
    /// Instances that may have fewer iterations than is said.
    pub uncertain: u64,
    /// Iterations an instance.
    pub iterations: SummaryView,
    /// How often each number of iterations came, those that came most first.
    pub trip_counts: Vec<TripsView>,
    /// Ticks an instance.
    pub ticks: Option<SummaryView>,
    /// Ticks an iteration, by instance.
    pub ticks_per_iteration: Option<SummaryView>,
    /// Instances by ticks an iteration.
    pub bins: Vec<BinView>,
}

/// A number of iterations.
#[derive(Debug, Serialize)]
pub struct TripsView {
    /// The number.
    pub iterations: u64,
    /// How many instances had it.
    pub instances: u64,
}

/// What is said of some numbers.
#[derive(Debug, Serialize)]
pub struct SummaryView {
    /// Their sum.
    pub total: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// What half of them do not exceed; it and those below are right to 1/128.
    pub median: f64,
    /// A quarter.
    pub q1: f64,
    /// Three quarters.
    pub q3: f64,
    /// A tenth.
    pub d1: f64,
    /// Nine tenths.
    pub d9: f64,
}

/// Instances whose iterations took about as long.
#[derive(Debug, Serialize)]
pub struct BinView {
    /// Ticks an iteration, at least.
    pub from: f64,
    /// Less than these.
    pub to: f64,
    /// How many instances.
    pub instances: u64,
    /// Some of them, by their numbers, from 1.
    pub examples: Vec<u64>,
}

/// What times rest on.
#[derive(Debug, Serialize)]
pub struct StampsView {
    /// What an instance that takes no time would be said to take; it is subtracted.
    pub offset_ticks: u64,
    /// What an instance costs the loops around it; it is subtracted from these.
    pub cost_ticks: u64,
    /// The least step of the time stamp counter.
    pub step_ticks: u64,
    /// Ticks a second.
    pub ticks_per_second: f64,
    /// Ticks a cycle of the core, estimated.
    pub ticks_per_cycle: f64,
    /// By how much that may be wrong.
    pub ticks_per_cycle_error: f64,
    /// Whether nothing else ran while the counter was read.
    pub serialised: bool,
}

/// How a number is printed that may have a fraction.
fn number(n: f64) -> String {
    if n.fract() == 0.0 || n.abs() >= 1e6 { format!("{n:.0}") } else { format!("{n:.2}") }
}

/// Nanoseconds for people.
fn time(ns: f64) -> String {
    match ns {
        1e9.. => format!("{:.2} s", ns / 1e9),
        1e6.. => format!("{:.2} ms", ns / 1e6),
        1e3.. => format!("{:.2} µs", ns / 1e3),
        _ => format!("{ns:.1} ns"),
    }
}

/// What a row of the statistics is called, and its number.
type Row = (&'static str, fn(&SummaryView) -> f64);

/// The most bars that a picture has.
const MOST_BARS: usize = 40;

impl LoopView {
    /// Its pictures: instances by ticks an iteration (figure 1 of the paper), and by iterations.
    pub fn charts(&self) -> Vec<Chart> {
        let of = match (&self.file, self.line) {
            (Some(file), Some(line)) => {
                let file = file.rsplit('/').next().unwrap_or_default();
                format!("the loop of {} at {file}:{line}", self.function)
            }
            _ => format!("the loop of {} at {}", self.function, address(self.header)),
        };
        let mut all = Vec::new();
        let by_ticks = self.bins.iter().map(|bin| (number(bin.from), bin.instances));
        if self.ticks_per_iteration.is_some() {
            let title = format!("how long an iteration of {of} takes");
            all.push(self.bars(title, "ticks an iteration, from here to the next", by_ticks.collect()));
        }
        let mut trips: Vec<&TripsView> = self.trip_counts.iter().take(MOST_BARS).collect();
        trips.sort_by_key(|one| one.iterations);
        let by_trips = trips.into_iter().map(|one| (one.iterations.to_string(), one.instances));
        let title = format!("how often {of} goes round");
        let label = match self.trip_counts.len() > MOST_BARS {
            true => format!("iterations, the {MOST_BARS} most frequent numbers"),
            false => "iterations".to_owned(),
        };
        all.push(self.bars(title, &label, by_trips.collect()));
        all
    }

    /// Shares of the instances.
    fn bars(&self, title: String, label: &str, bars: Vec<(String, u64)>) -> Chart {
        let part = |n: u64| 100.0 * ratio(n, self.instances);
        let heights = (0..).zip(&bars).map(|(n, bar)| (f64::from(n), part(bar.1)));
        let heights: Vec<(f64, f64)> = heights.collect();
        let most = heights.iter().map(|bar| bar.1).fold(1.0, f64::max);
        let last = heights.last().map_or(0.0, |bar| bar.0);
        let x = Axis {
            label: label.to_owned(),
            scale: Scale::Names(bars.into_iter().map(|bar| bar.0).collect()),
            range: (-0.5, last + 0.5),
        };
        let y = Axis {
            label: "share of the instances (%)".to_owned(),
            scale: Scale::Linear,
            range: (0.0, (most * 1.05).min(100.0)),
        };
        Chart { title, x, y, marks: Marks::Bars(heights) }
    }

    /// Says it as text.
    pub(super) fn text(&self, stamps: Option<&StampsView>, w: &mut dyn Write) -> io::Result<()> {
        let file = self.module.rsplit('/').next().unwrap_or_default();
        let line = match (&self.file, self.line) {
            (Some(file), Some(line)) => format!(", {file}:{line}"),
            _ => String::new(),
        };
        write!(w, "{}, loop at {} in {file}{line}: ", self.function, address(self.header))?;
        write!(w, "{} instances", grouped(self.instances))?;
        for (n, what) in [(self.left, "were left otherwise"), (self.open, "were open at the end")] {
            if n > 0 {
                write!(w, ", {} {what}", grouped(n))?;
            }
        }
        writeln!(w)?;
        if self.instances == 0 {
            return Ok(());
        }
        self.statistics(stamps, w)?;
        self.trips(w)?;
        self.bins(w)?;
        if self.uncertain > 0 {
            let n = grouped(self.uncertain);
            writeln!(
                w,
                "  {n} of them may have had fewer iterations: inner instances of the same loop were left"
            )?;
        }
        Ok(())
    }

    fn statistics(&self, stamps: Option<&StampsView>, w: &mut dyn Write) -> io::Result<()> {
        writeln!(w)?;
        let rows: [Row; 10] = [
            ("total", |s| s.total),
            ("min", |s| s.min),
            ("max", |s| s.max),
            ("mean", |s| s.mean),
            ("deviation", |s| s.deviation),
            ("median", |s| s.median),
            ("Q1", |s| s.q1),
            ("Q3", |s| s.q3),
            ("D1", |s| s.d1),
            ("D9", |s| s.d9),
        ];
        let (Some(ticks), Some(each)) = (&self.ticks, &self.ticks_per_iteration) else {
            let mut t = Table::new(&["", "iterations>"]);
            rows.iter().for_each(|(name, of)| t.row([(*name).to_owned(), number(of(&self.iterations))]));
            return t.text(w);
        };
        let rate = stamps.map_or(0.0, |stamps| stamps.ticks_per_second);
        let in_time = |ticks: f64| if rate > 0.0 { time(ticks / rate * 1e9) } else { String::new() };
        let mut t = Table::new(&["", "iterations>", "ticks>", "time>", "ticks/iteration>"]);
        for (name, of) in rows {
            // A sum of quotients says nothing: that of the sums is meant.
            let per = if name == "total" { ratio_of(ticks.total, self.iterations.total) } else { of(each) };
            t.row([
                name.to_owned(),
                number(of(&self.iterations)),
                number(of(ticks)),
                in_time(of(ticks)),
                number(per),
            ]);
        }
        t.text(w)
    }

    /// Table 3 of the paper, for iterations.
    fn trips(&self, w: &mut dyn Write) -> io::Result<()> {
        writeln!(w)?;
        let mut t = Table::new(&["instances>", "share>", "iterations>"]);
        for one in self.trip_counts.iter().take(super::TOP / 2) {
            let part = share(ratio(one.instances, self.instances));
            t.row([one.instances.to_string(), part, one.iterations.to_string()]);
        }
        t.text(w)?;
        let n_shown = self.trip_counts.len().min(super::TOP / 2);
        if self.trip_counts.len() > n_shown {
            writeln!(w, "… {} more", grouped((self.trip_counts.len() - n_shown) as u64))?;
        }
        Ok(())
    }

    /// Figure 1 of the paper.
    fn bins(&self, w: &mut dyn Write) -> io::Result<()> {
        if self.bins.is_empty() {
            return Ok(());
        }
        writeln!(w)?;
        let mut t = Table::new(&["ticks/iteration>", "instances>", "share>", "such as number"]);
        for bin in &self.bins {
            let examples: Vec<String> = bin.examples.iter().map(u64::to_string).collect();
            t.row([
                if bin.from > 0.0 {
                    format!("{}..{}", number(bin.from), number(bin.to))
                } else {
                    "0".to_owned()
                },
                bin.instances.to_string(),
                share(ratio(bin.instances, self.instances)),
                examples.join(", "),
            ]);
        }
        t.text(w)
    }
}

fn ratio_of(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

impl StampsView {
    /// Says it as text.
    pub(super) fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let ns = |ticks: u64| {
            #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
            let ticks = ticks as f64;
            if self.ticks_per_second > 0.0 { ticks / self.ticks_per_second * 1e9 } else { 0.0 }
        };
        let how = if self.serialised { ", serialised" } else { "" };
        writeln!(
            w,
            "ticks of the time stamp counter{how}: {:.3} a nanosecond, in steps of {}; an instance of no length takes \
             {} ({:.1} ns), and costs loops around it {} ({:.1} ns): both are taken off",
            self.ticks_per_second / 1e9,
            self.step_ticks,
            self.offset_ticks,
            ns(self.offset_ticks),
            self.cost_ticks,
            ns(self.cost_ticks),
        )?;
        if self.ticks_per_cycle > 0.0 {
            let (per, error) = (self.ticks_per_cycle, self.ticks_per_cycle_error);
            writeln!(
                w,
                "a cycle of the core is about {per:.3} ticks (± {error:.3}), as it was before the run"
            )?;
        }
        Ok(())
    }
}
