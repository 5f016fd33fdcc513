//! `engraft show TRACE time`: what ran when, window by window of a thread's run.

use super::costs::Traced;
use crate::input;
use crate::output::Hinted;
use crate::verbs::query::functions::Functions;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;
use trace::{FuncId, Window, Windows};
use tracing::info_span;
use views::ratio;
use views::show::time::{TimeFunction, TimeView, TimeWindow};

/// So many windows there are at least, if so much ran.
const WINDOWS: usize = 60;
/// So many functions are told apart.
const FUNCTIONS: usize = 8;

/// `A..B`: from A on, before B, in what a thread ran before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Between {
    /// Where it begins.
    pub from: u64,
    /// Where it ends.
    pub to: u64,
}

impl FromStr for Between {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Between, Self::Err> {
        let (from, to) = text.split_once("..").unwrap_or((text, ""));
        let parsed = from.parse().ok().zip(to.parse().ok()).map(|(from, to)| Between { from, to });
        parsed
            .filter(|between| between.from < between.to)
            .ok_or("it is A..B: of what ran, from the Ath on, before the Bth, as in 1000..2000")
    }
}

/// What is asked for.
#[derive(Clone, Copy, Default, Debug)]
pub struct Asked {
    /// Which thread, from 1 on; the one that did most, if that is not said.
    pub thread: Option<NonZeroUsize>,
    /// Which part of it.
    pub between: Option<Between>,
}

/// What a thread of the trace `rec` ran when.
///
/// # Errors
/// If it is no trace, cannot be read, or has no such thread or part.
pub fn view(rec: &Path, asked: Asked) -> anyhow::Result<TimeView> {
    if !input::is_trace(rec) {
        let what = format!("{} does not say what ran when", rec.display());
        return Err(Hinted::new(what, "a recording of `engraft trace` does").into());
    }
    let traced = Traced::open(rec)?;
    let part = asked.between.map_or(0..u64::MAX, |between| between.from..between.to);
    let all = {
        let _span = info_span!("windows").entered();
        let weight = |func, before, block| traced.weight(func, before, block);
        let all = Windows::of(&traced.trace, &part, WINDOWS, weight);
        all.map_err(|err| input::unreadable(rec, err))?
    };
    traced.finish()?;
    let most = || (0..all.len()).max_by_key(|n| all.get(*n).map(|of| (of.total, std::cmp::Reverse(*n))));
    let n = asked.thread.map(|n| n.get() - 1).or_else(most).unwrap_or_default();
    let Some(of) = all.get(n) else {
        let what = format!("{} has {}", rec.display(), views::many(all.len(), "thread"));
        return Err(Hinted::new(what, "they are counted from 1 here").into());
    };
    if of.windows.is_empty() && asked.between.is_some() {
        let what = format!("{} of the thread ran, and nothing from {} on", of.total, part.start);
        return Err(Hinted::new(what, format!("say --between A..B below {}", of.total)).into());
    }
    let totals = all.iter().map(|of| of.total).collect();
    filled(rec, &traced, of, part.end.min(of.total), (n + 1, totals))
}

fn filled(
    rec: &Path,
    traced: &Traced,
    of: &Windows,
    end: u64,
    (thread, threads): (usize, Vec<u64>),
) -> anyhow::Result<TimeView> {
    let mut sums: BTreeMap<FuncId, u64> = BTreeMap::new();
    for (func, own) in of.windows.iter().flat_map(|window| &window.own) {
        let sum = sums.entry(*func).or_default();
        *sum = sum.saturating_add(*own);
    }
    let all = sums.values().fold(0, |sum: u64, own| sum.saturating_add(*own));
    let mut sorted: Vec<(FuncId, u64)> = sums.into_iter().collect();
    sorted.sort_by_key(|(func, own)| (std::cmp::Reverse(*own), *func));
    let others = sorted.split_off(sorted.len().min(FUNCTIONS));
    let places: BTreeMap<FuncId, usize> = sorted.iter().map(|(func, _)| *func).zip(0..).collect();
    let called = Functions::new(&traced.names);
    let mut functions: Vec<TimeFunction> = sorted
        .iter()
        .map(|(func, own)| TimeFunction {
            function: Some(called.called(*func)),
            module: traced.module(*func),
            own: *own,
            share: ratio(*own, all),
        })
        .collect();
    if !others.is_empty() {
        let own = others.iter().map(|(_, own)| own).sum();
        functions.push(TimeFunction { function: None, module: String::new(), own, share: ratio(own, all) });
    }
    let times = traced.trace.times().map_err(|err| input::unreadable(rec, err))?;
    let mut clock = times.as_ref().and_then(|times| times.of(of.thread));
    let window = |(n, window): (u64, &Window)| {
        let mut own = vec![0_u64; functions.len()];
        for (func, n) in &window.own {
            let place = places.get(func).copied().unwrap_or(places.len());
            own.get_mut(place).into_iter().for_each(|own| *own = own.saturating_add(*n));
        }
        let from = of.start.saturating_add(n.saturating_mul(of.size));
        TimeWindow {
            from,
            to: from.saturating_add(of.size).min(end),
            seconds: window
                .first
                .zip(clock.as_mut())
                .map(|(first, clock)| Duration::from_nanos(clock.at(first)).as_secs_f64()),
            own,
        }
    };
    let windows: Vec<TimeWindow> = (0..).zip(&of.windows).map(window).collect();
    Ok(TimeView {
        schema: TimeView::SCHEMA,
        unit: traced.unit(),
        threads,
        thread,
        from: of.start.min(end),
        to: end,
        functions,
        windows,
    })
}
