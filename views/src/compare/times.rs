//! What ran when in both builds: window by window of each run.

use super::Both;
use crate::show::time::TimeWindow;
use crate::{Table, View, ratio, share};
use serde::{Deserialize, Serialize};

/// What both builds did, over their runs: in each, of the thread that did most.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BothTimes {
    /// The functions that did most in either; the last one stands for all others, if there are more.
    pub functions: Vec<BothFunction>,
    /// Windows of each run, in instructions.
    pub windows: Both<Vec<TimeWindow>>,
}

/// A function of both builds, over their runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BothFunction {
    /// What people call it; `null`: all others.
    pub function: Option<String>,
    /// What it did itself in the old build.
    pub old: u64,
    /// And in the new one.
    pub new: u64,
}

impl BothFunction {
    /// What it is called.
    pub fn name(&self) -> &str {
        self.function.as_deref().unwrap_or("(others)")
    }
}

/// What ran when in both builds.
#[derive(Debug, Serialize)]
pub struct BothTimesView<'a> {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// All that is said.
    #[serde(flatten)]
    pub times: &'a BothTimes,
}

impl<'a> BothTimesView<'a> {
    /// The schema that its JSON names.
    pub const SCHEMA: &'static str = "engraft.compare-time/1";

    /// Of these.
    pub fn of(times: &'a BothTimes) -> BothTimesView<'a> {
        BothTimesView { schema: BothTimesView::SCHEMA, times }
    }
}

impl View for BothTimesView<'_> {
    /// A row for each function of a window.
    fn table(&self) -> Table {
        let mut t = Table::new(&["build", "from>", "to>", "share>", "own>", "function"]);
        let windows = &self.times.windows;
        for (build, windows) in [("old", &windows.old), ("new", &windows.new)] {
            for window in windows {
                let of = self.times.functions.iter().zip(&window.own).filter(|(_, own)| **own > 0);
                for (f, own) in of {
                    t.row([
                        build.to_owned(),
                        window.from.to_string(),
                        window.to.to_string(),
                        share(ratio(*own, window.total())),
                        own.to_string(),
                        f.name().to_owned(),
                    ]);
                }
            }
        }
        t
    }
}
