//! What was seen at the points of a plan, as it is printed.

use measure::recording::{Kept, Seen};
use serde::Serialize;
use std::fmt::Write as _;
use views::Table;

/// How many values of a ring are printed.
const TOP: usize = 8;

/// What was seen at a point.
#[derive(Serialize)]
pub struct PointView {
    image: String,
    /// The line of the plan.
    point: String,
    /// How often, where it was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    executions: Option<u64>,
    /// The last value of each thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<Vec<u64>>,
    /// How many values had 0, 1, 2 … 64 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    histogram: Option<Vec<u64>>,
    /// The last values of each thread, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Vec<u64>>>,
}

impl PointView {
    /// Of what was seen.
    pub fn of(seen: Seen) -> PointView {
        let (image, point) = (seen.image.name, seen.what);
        let mut view =
            PointView { image, point, executions: None, last: None, histogram: None, values: None };
        match seen.kept {
            Kept::Count(n) => view.executions = Some(n),
            Kept::Last(all) => view.last = Some(all),
            Kept::Histogram(all) => {
                view.executions = Some(all.iter().fold(0, |sum, n| sum.saturating_add(*n)));
                view.histogram = Some(all);
            }
            Kept::Ring(threads) => {
                view.executions = Some(threads.iter().fold(0, |sum, t| sum.saturating_add(t.0)));
                view.values = Some(threads.into_iter().map(|t| t.1).collect());
            }
        }
        view
    }

    fn shown(&self) -> String {
        let mut out = String::new();
        for (n, count) in (0u32..).zip(self.histogram.iter().flatten()).filter(|(_, count)| **count > 0) {
            let from = if n == 0 { 0 } else { 1u64 << (n - 1) };
            let _infallible = match n {
                0 | 1 => write!(out, "{from}: {count}  "),
                _ => write!(out, "{from}–{}: {count}  ", from + (from - 1)),
            };
        }
        for values in self.values.iter().flatten().chain(&self.last) {
            let from = values.len().saturating_sub(TOP);
            let all: Vec<String> = values.iter().skip(from).map(|v| format!("{v:#x}")).collect();
            let _infallible = write!(out, "{}{}  ", if from > 0 { "… " } else { "" }, all.join(" "));
        }
        out.trim_end().to_owned()
    }
}

/// A row a point.
pub fn table(points: &[PointView]) -> Table {
    let mut t = Table::new(&["executions>", "point", "values"]);
    for p in points {
        let n = p.executions.map_or_else(|| "-".to_owned(), |n| n.to_string());
        t.row([n, p.point.clone(), p.shown()]);
    }
    t
}
