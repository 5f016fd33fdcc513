//! What was done to processes that ran before they were observed.

use crate::{many, size};
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// Processes that were attached to: in JSON, one is an object, and several are a list.
#[derive(Debug, Default)]
pub struct AttachedView(pub Vec<AttachView>);

impl AttachedView {
    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The lines of a report.
    pub(crate) fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        self.0.iter().try_for_each(|one| one.text(w))
    }
}

impl Serialize for AttachedView {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(to),
            all => all.serialize(to),
        }
    }
}

/// A process that was attached to.
#[derive(Debug, Serialize)]
pub struct AttachView {
    /// Its number.
    pub pid: i32,
    /// How long all its threads stood still: when it was attached to, and when it was given back.
    pub pause_us: [u64; 2],
    /// How many places of old code led to moved code.
    pub sites: u64,
    /// How many threads there were when it was attached to.
    pub threads: u64,
    /// How many functions were moved.
    pub moved_functions: u64,
    /// Functions that were not.
    pub stayed: Vec<StayedView>,
    /// How many threads were in moved functions' code at first.
    pub open_at_start: u64,
    /// And at last.
    pub open_at_end: u64,
    /// What the process took of memory, in kB; null: not known.
    pub memory_kb: MemoryView,
    /// Why something of ours is in it still.
    pub left: Option<String>,
}

/// What a process took of memory at three times.
#[derive(Debug, Serialize)]
pub struct MemoryView {
    /// Before it was attached to.
    pub before: Option<ResidentView>,
    /// When it was given back.
    pub attached: Option<ResidentView>,
    /// Afterwards.
    pub after: Option<ResidentView>,
}

/// What a process takes of memory, in kB.
#[derive(Debug, Serialize)]
pub struct ResidentView {
    /// What is in memory of what it has mapped.
    pub resident: u64,
    /// What of that was written.
    pub dirty: u64,
}

/// A function that was not moved.
#[derive(Debug, Serialize)]
pub struct StayedView {
    /// The file it is in.
    pub module: String,
    /// Its address.
    pub at: u64,
    /// What it is called.
    pub function: String,
    /// Why.
    pub why: String,
}

impl AttachView {
    /// The lines of a report.
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let [into, out] = self.pause_us.map(|us| us.to_string());
        writeln!(
            w,
            "attached to process {}, {}: stopped for {into} µs at first, {out} µs at last; {}, {}",
            self.pid,
            number(self.threads, "thread"),
            number(self.moved_functions, "moved function"),
            number(self.sites, "site"),
        )?;
        if let MemoryView { before: Some(before), attached: Some(attached), after: Some(after) } =
            &self.memory_kb
        {
            let [before, attached, after] = [before, attached, after]
                .map(|one| format!("{} ({} written)", size(one.resident << 10), size(one.dirty << 10)));
            writeln!(w, "memory: {before} before, {attached} while attached, {after} after")?;
        }
        match &self.left {
            None => Ok(()),
            Some(why) => {
                writeln!(w, "its moved code is still mapped, since {why}: `engraft rescue {}`", self.pid)
            }
        }
    }
}

fn number(n: u64, what: &str) -> String {
    many(usize::try_from(n).unwrap_or(usize::MAX), what)
}
