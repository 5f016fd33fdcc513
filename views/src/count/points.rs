//! What was seen at the points of a plan.

use crate::Table;
use serde::Serialize;
use std::fmt::Write as _;

/// How many values of a ring are printed.
const TOP: usize = 8;

/// What was seen at a point.
#[derive(Debug, Serialize)]
pub struct PointView {
    /// The file it is in.
    pub image: String,
    /// The line of the plan.
    pub point: String,
    /// How often, where it was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executions: Option<u64>,
    /// The last value of each thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Vec<u64>>,
    /// How many values had 0, 1, 2 … 64 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Vec<u64>>,
    /// The last values of each thread, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<Vec<u64>>>,
}

impl PointView {
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
