//! What `show REC reuse` says: when calls come again with the same arguments, and what a table would save.

use crate::table::cells::grouped;
use crate::{Table, View};
use serde::Serialize;
use std::io::{self, Write};

/// How calls of functions come again.
#[derive(Debug, Serialize)]
pub struct ReuseView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// By function.
    pub functions: Vec<ReusedView>,
}

/// How calls of a function come again.
#[derive(Debug, Serialize)]
pub struct ReusedView {
    /// Its name.
    pub function: String,
    /// How often it was called.
    pub calls: u64,
    /// How many of these were looked at: those before the first that would have been one different too many.
    pub looked_at: u64,
    /// How many different arguments these had.
    pub distinct: u64,
    /// What tables that remember results would have had, by their size.
    pub tables: Vec<MemoView>,
    /// The arguments that came most.
    pub frequent: Vec<FrequentView>,
}

/// A table that remembers results, and drops what was not used for longest: which share of the calls would
/// have found theirs there, by how many places a result may have.
#[derive(Debug, Serialize)]
pub struct MemoView {
    /// How many results it holds.
    pub entries: u64,
    /// With one place.
    pub ways_1: Option<f64>,
    /// With two; `None` if it has fewer.
    pub ways_2: Option<f64>,
    /// With four.
    pub ways_4: Option<f64>,
    /// With eight.
    pub ways_8: Option<f64>,
    /// With all of them.
    pub full: f64,
}

/// Arguments that come often.
#[derive(Debug, Serialize)]
pub struct FrequentView {
    /// As text that reads back.
    pub arguments: Vec<String>,
    /// How often they came.
    pub count: u64,
    /// How many calls there were until they came again; `None`: they came once.
    pub distance: Option<DistanceView>,
}

/// How many calls there were until the same arguments came again.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DistanceView {
    /// The least.
    pub min: f64,
    /// The first quartile.
    pub q1: f64,
    /// The median.
    pub median: f64,
    /// The third quartile.
    pub q3: f64,
    /// The most.
    pub max: f64,
}

impl ReuseView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.values-reuse/1";
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{:.2} %", 100.0 * share))
}

impl View for ReuseView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["function", "entries>", "1 way>", "2 ways>", "4 ways>", "8 ways>", "full>"]);
        for function in &self.functions {
            for one in &function.tables {
                let [a, b, c, d] = [one.ways_1, one.ways_2, one.ways_4, one.ways_8].map(percent);
                t.row([
                    function.function.clone(),
                    one.entries.to_string(),
                    a,
                    b,
                    c,
                    d,
                    percent(Some(one.full)),
                ]);
            }
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        for (n, function) in self.functions.iter().enumerate() {
            if n > 0 {
                writeln!(w)?;
            }
            let grouped = |n: u64| grouped(&n.to_string());
            let ReusedView { function: name, calls, looked_at, distinct, .. } = function;
            let of = match looked_at < calls {
                true => format!(", the first {} of which had", grouped(*looked_at)),
                false => " with".to_owned(),
            };
            writeln!(w, "{name}: {} calls{of} {} different arguments", grouped(*calls), grouped(*distinct))?;
            writeln!(w, "\n  results that a table of so many entries would have had:")?;
            let mut t = Table::new(&["entries>", "1 way>", "2 ways>", "4 ways>", "8 ways>", "full>"]);
            for one in &function.tables {
                let [a, b, c, d] = [one.ways_1, one.ways_2, one.ways_4, one.ways_8].map(percent);
                t.row([one.entries.to_string(), a, b, c, d, percent(Some(one.full))]);
            }
            t.text(w)?;
            writeln!(w, "\n  calls until the same arguments came again:")?;
            let mut t = Table::new(&["count>", "min>", "Q1>", "median>", "Q3>", "max>", "arguments"]);
            for one in &function.frequent {
                let of = one.distance.map(|of| [of.min, of.q1, of.median, of.q3, of.max]);
                let [min, q1, median, q3, max] =
                    of.map_or_else(Default::default, |of| of.map(|distance| distance.to_string()));
                t.row([one.count.to_string(), min, q1, median, q3, max, one.arguments.join(", ")]);
            }
            t.text(w)?;
        }
        Ok(())
    }
}
