//! What `engraft sample --total` says: how often events came.

use crate::{Table, View};
use serde::Serialize;
use std::io::{self, Write};

/// How often events came.
#[derive(Debug, Serialize)]
pub struct TotalsView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// How long they were counted.
    pub seconds: f64,
    /// By event.
    pub totals: Vec<TotalView>,
}

impl TotalsView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.sample-total/1";
}

/// How often an event came.
#[derive(Debug, Serialize)]
pub struct TotalView {
    /// What it is called.
    pub event: String,
    /// What it is counted in: `ns` or `times`.
    pub unit: &'static str,
    /// In all threads.
    pub total: u64,
    /// By thread that there was at the start, most first.
    pub threads: Vec<ThreadTotalView>,
    /// In threads and processes that were made meanwhile.
    pub meanwhile: u64,
}

/// How often it came in a thread.
#[derive(Debug, Serialize)]
pub struct ThreadTotalView {
    /// Its process.
    pub process: u32,
    /// Its number.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// How often.
    pub total: u64,
}

impl View for TotalsView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["event", "total>", "process>", "thread>", "name"]);
        for total in &self.totals {
            for one in &total.threads {
                let (n, process, thread) =
                    (one.total.to_string(), one.process.to_string(), one.thread.to_string());
                t.row([total.event.clone(), n, process, thread, one.name.clone()]);
            }
            if total.meanwhile > 0 {
                let what = "[made meanwhile]".to_owned();
                t.row([total.event.clone(), total.meanwhile.to_string(), String::new(), String::new(), what]);
            }
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        self.table().text(w)?;
        for total in &self.totals {
            let unit = if total.unit == "ns" { " ns" } else { "" };
            writeln!(
                w,
                "{}: {}{unit} in {:.1} s",
                total.event,
                crate::grouped(&total.total.to_string()),
                self.seconds
            )?;
        }
        Ok(())
    }
}
