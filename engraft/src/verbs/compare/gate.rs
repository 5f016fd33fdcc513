//! `--fail-if`: what an expression is about.

use super::fill::{Sums, amount, metrics, name, place, repeats};
use matching::compare::expression::{EVENTS, Metrics, Of, Which};
use matching::compare::{At, Comparison, FunctionPair, Key, Side, Unsteady};
use program::Metric;
use std::collections::BTreeMap;
use views::compare::{Amount, Both, CompareView};

/// Metrics of two runs, and of their parts.
pub struct Looked {
    totals: [BTreeMap<String, Amount>; 2],
    functions: Vec<Part>,
    intervals: Vec<Part>,
}

/// Metrics of a part.
struct Part {
    name: String,
    metrics: [BTreeMap<String, Amount>; 2],
    /// Whether it is a function, of whose code and calls something is known.
    is_function: bool,
}

impl Part {
    /// With the share of all instructions of the run.
    fn new(
        name: String,
        mut metrics: [BTreeMap<String, Amount>; 2],
        totals: [f64; 2],
        is_function: bool,
    ) -> Part {
        for (of, total) in metrics.iter_mut().zip(totals) {
            let share = if total > 0.0 { amount(of, TOTAL) / total } else { 0.0 };
            of.insert("share".to_owned(), Amount(share));
        }
        Part { name, metrics, is_function }
    }
}

/// Instructions that ran.
const TOTAL: &str = "dyn.agg.total";

impl Looked {
    /// Those of a comparison, which was asked for what ran in intervals.
    pub fn new(
        view: &CompareView,
        (sides, unsteady): (&[Side<'_>; 2], &[Unsteady; 2]),
        found: &Comparison,
        events: &Sums,
    ) -> Looked {
        let totals = [amount(&view.totals.old, TOTAL), amount(&view.totals.new, TOTAL)];
        let function = |pair: &FunctionPair| {
            let of = |n: usize| pair.sides[n].as_ref().map(|of| metrics(of, n, events)).unwrap_or_default();
            Part::new(crate::input::names::whole(&pair.name), [of(0), of(1)], totals, true)
        };
        let interval = |(key, mixes): &(Key, [Vec<f64>; 2])| {
            let of = |n: usize| {
                let all = Metric::ALL.iter().zip(&mixes[n]);
                all.map(|(metric, n)| (format!("dyn.{}", metric.name()), Amount(*n))).collect()
            };
            let at = |at: [At; 2]| place(&sides[0], at[0]);
            let name =
                format!("{}, from {} to {}", name(&sides[0], key.functions[0]), at(key.from), at(key.to));
            Part::new(name, [of(0), of(1)], totals, false)
        };
        // What a build does by chance is no difference of the builds.
        let is_steady = |pair: &&FunctionPair| repeats(pair, unsteady) != Some(false);
        let functions = found.functions.iter().filter(is_steady).map(function).collect();
        let intervals = found.mixes.iter().map(interval).collect();
        Looked { totals: [view.totals.old.clone(), view.totals.new.clone()], functions, intervals }
    }

    /// The same, with what ran in the second run of each build; nothing, if there was none.
    pub fn of_second_runs(mut self, view: &CompareView) -> Option<Looked> {
        let Both { old, new } = view.runs.as_ref()?.again.as_ref()?;
        for (of, again) in self.totals.iter_mut().zip([old, new]) {
            // What is not known of second runs is as in the first.
            of.retain(|name, _| !name.starts_with("dyn.") || name.starts_with(EVENTS));
            of.extend(again.totals.clone());
        }
        Some(self)
    }
}

/// A metric of which there is nothing is 0; but shares and means are not known then, nor are events that
/// were not recorded.
fn looked_up(all: &BTreeMap<String, Amount>, name: &str) -> Option<f64> {
    let is_share = name.ends_with("vec.width") || name.ends_with("vec.packed_share");
    all.get(name).map(|n| n.0).or((!is_share && !name.starts_with(EVENTS)).then_some(0.0))
}

impl Metrics for Looked {
    fn name(&self) -> String {
        "the whole program".to_owned()
    }

    fn metric(&self, which: Which, name: &str) -> Option<f64> {
        let [old, new] = &self.totals;
        looked_up(if which == Which::Old { old } else { new }, name)
    }

    fn parts(&self, of: Of) -> Vec<&dyn Metrics> {
        let parts = if of == Of::Function { &self.functions } else { &self.intervals };
        parts.iter().map(|part| part as &dyn Metrics).collect()
    }
}

impl Metrics for Part {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn metric(&self, which: Which, name: &str) -> Option<f64> {
        let is_of_functions = name == "calls" || name.starts_with("stat.");
        if is_of_functions && !self.is_function {
            return None;
        }
        looked_up(if which == Which::Old { &self.metrics[0] } else { &self.metrics[1] }, name)
    }

    fn parts(&self, _: Of) -> Vec<&dyn Metrics> {
        Vec::new()
    }
}
