//! What `engraft replace` says.

use crate::{Table, View};
use serde::Serialize;
use std::io::{self, Write};

/// What stands in for functions of a process, or was taken back.
#[derive(Debug, Serialize)]
pub struct ReplaceView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The process.
    pub pid: i32,
    /// What stands in for its functions, if that was asked, or has just been put there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Vec<ReplacedView>>,
    /// What was taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undone: Option<UndoneView>,
    /// How long all its threads stood still, microseconds, if they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_us: Option<u64>,
}

impl ReplaceView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.replace/1";

    /// Nothing yet of process `pid`.
    pub fn of(pid: i32) -> ReplaceView {
        ReplaceView { schema: ReplaceView::SCHEMA, pid, replaced: None, undone: None, pause_us: None }
    }
}

/// A function that another stands in for.
#[derive(Debug, Serialize)]
pub struct ReplacedView {
    /// The function.
    pub function: String,
    /// Its module.
    pub module: String,
    /// Where it is in the module's file.
    pub at: String,
    /// What stands in for it.
    pub with: String,
    /// Where that is in the process.
    pub to: String,
    /// Where the function itself is in the process now.
    pub original: String,
    /// Since when: seconds since 1970.
    pub since_s: u64,
    /// Whether the function runs again as it did, though somebody needs the new code still.
    pub is_taken_back: bool,
}

/// A function that was taken back.
#[derive(Debug, Serialize)]
pub struct UndoneView {
    /// The function.
    pub function: String,
    /// Why something of ours is in the process still.
    pub left: Option<String>,
    /// What stays of what stood in for it, for good, and why: the process may have kept where that is.
    pub stays: Option<String>,
}

impl View for ReplaceView {
    fn table(&self) -> Table {
        let mut table = Table::new(&["function", "module", "at>", "with", "new code>", "original>"]);
        for one in self.replaced.iter().flatten() {
            let ReplacedView { function, module, at, with, to, original, is_taken_back, .. } = one;
            let function = if *is_taken_back { format!("{function} (taken back)") } else { function.clone() };
            table.row([&function, module, at, with, to, original].map(Clone::clone));
        }
        table
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let stopped = self.pause_us.map(|us| format!("; its threads stood still for {us} µs"));
        let stopped = stopped.unwrap_or_default();
        let pid = self.pid;
        if let Some(UndoneView { function, left, stays }) = &self.undone {
            writeln!(w, "{function} of process {pid} is as it was{stopped}")?;
            if let Some(stays) = stays {
                writeln!(w, "what stood in for it stays in the process: {stays}")?;
            }
            return match left {
                Some(left) => {
                    writeln!(
                        w,
                        "what stood in for it is in the process still: {left}; `engraft rescue {pid}` tries again"
                    )
                }
                None => Ok(()),
            };
        }
        match self.replaced.as_deref().unwrap_or_default() {
            [] => writeln!(w, "nothing is replaced in process {pid}"),
            [one] if self.pause_us.is_some() => {
                writeln!(
                    w,
                    "{} of {} stands in for {} in process {pid}{stopped}",
                    one.with, one.to, one.function
                )
            }
            _ => self.table().text(w),
        }
    }
}
