//! What ran when: which functions, window by window of a thread's run.

use crate::{Table, View, known, look, ratio, share};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// What a thread did, over its run.
#[derive(Clone, Debug, Serialize)]
pub struct TimeView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// What is counted: instructions; of a plain trace, blocks.
    pub unit: &'static str,
    /// What each thread did in all, in the order of the trace.
    pub threads: Vec<u64>,
    /// Which thread it is, from 1 on.
    pub thread: usize,
    /// Where it begins, in what ran before.
    pub from: u64,
    /// Where it ends.
    pub to: u64,
    /// The functions that did most there; the last one stands for all others, if there are more.
    pub functions: Vec<TimeFunction>,
    /// One behind the other.
    pub windows: Vec<TimeWindow>,
}

/// A function, over a thread's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimeFunction {
    /// What people call it; `null`: all others.
    pub function: Option<String>,
    /// The file that it is in.
    pub module: String,
    /// What it did itself.
    pub own: u64,
    /// Of all, `0.0..=1.0`.
    pub share: f64,
}

/// A part of a thread's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimeWindow {
    /// Where it begins, in what ran before.
    pub from: u64,
    /// Where it ends.
    pub to: u64,
    /// When it began, in seconds from the start of the recording, where that is known.
    pub seconds: Option<f64>,
    /// What each of the functions did in it, in their order.
    pub own: Vec<u64>,
}

impl TimeFunction {
    /// What it is called.
    pub fn name(&self) -> &str {
        self.function.as_deref().unwrap_or("(others)")
    }
}

impl TimeWindow {
    /// What all did in it.
    pub fn total(&self) -> u64 {
        self.own.iter().fold(0, |sum: u64, own| sum.saturating_add(*own))
    }
}

/// How many functions of a window people see.
const MOST: usize = 3;
/// What did less is not told.
const LEAST: f64 = 0.005;

impl TimeView {
    /// The schema that its JSON names.
    pub const SCHEMA: &'static str = "engraft.time/1";

    fn seconds(of: &TimeWindow) -> String {
        known(of.seconds.map(|seconds| format!("{seconds:.6}")))
    }
}

impl View for TimeView {
    /// A row for each function of a window.
    fn table(&self) -> Table {
        let mut t = Table::new(&["from>", "to>", "seconds>", "share>", "own>", "function", "module"]);
        for window in &self.windows {
            let all = window.total();
            for (f, own) in self.functions.iter().zip(&window.own).filter(|(_, own)| **own > 0) {
                t.row([
                    window.from.to_string(),
                    window.to.to_string(),
                    TimeView::seconds(window),
                    share(ratio(*own, all)),
                    own.to_string(),
                    f.name().to_owned(),
                    f.module.clone(),
                ]);
            }
        }
        t
    }

    /// A row a window, with what did most in it.
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let look = look::look();
        if look.sort.is_some() || look.filter.is_some() {
            return self.table().text(w);
        }
        let mut t = Table::new(&["from>", "seconds>", "ran>", "mostly"]);
        for window in &self.windows {
            let all = window.total();
            // All others together say little.
            let named = self.functions.iter().zip(window.own.iter().copied());
            let mut most: Vec<(&TimeFunction, u64)> = named.filter(|(f, _)| f.function.is_some()).collect();
            most.sort_by_key(|(_, own)| std::cmp::Reverse(*own));
            let most = most.iter().take(MOST).filter(|(_, own)| ratio(*own, all) >= LEAST);
            let most: Vec<String> =
                most.map(|(f, own)| format!("{} {}", f.name(), share(ratio(*own, all)))).collect();
            t.row([window.from.to_string(), TimeView::seconds(window), all.to_string(), most.join(", ")]);
        }
        t.text(w)?;
        let thread = match self.threads.len() {
            1 => String::new(),
            n => format!(" of thread {} of {n}", self.thread),
        };
        writeln!(w, "{} {}{thread}, from {} on", self.to - self.from, self.unit, self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_says_what_did_most_in_it() {
        let function = |name: Option<&str>, own| TimeFunction {
            function: name.map(str::to_owned),
            module: "m".to_owned(),
            own,
            share: 0.0,
        };
        let window = |from, to, own: [u64; 3]| TimeWindow { from, to, seconds: Some(0.5), own: own.to_vec() };
        let view = TimeView {
            schema: TimeView::SCHEMA,
            unit: "instructions",
            threads: vec![300],
            thread: 1,
            from: 0,
            to: 300,
            functions: vec![function(Some("f"), 150), function(Some("g"), 100), function(None, 50)],
            windows: vec![window(0, 200, [150, 0, 50]), window(200, 300, [0, 100, 0])],
        };
        let mut text = Vec::new();
        view.text(&mut text).expect("memory");
        let want = "from   seconds  ran  mostly
   0  0.500000  200  f 75.00 %
 200  0.500000  100  g 100.00 %
300 instructions, from 0 on
";
        assert_eq!(String::from_utf8_lossy(&text), want);
        let mut csv = Vec::new();
        view.csv(&mut csv).expect("memory");
        assert!(String::from_utf8_lossy(&csv).contains("\n0,200,0.500000,25.00,50,(others),m\n"));
    }
}
