//! What `engraft trace` says: what was recorded.

use crate::attach::AttachedView;
use crate::{DeathView, Table, View, many};
use serde::Serialize;
use std::io::{self, Write};

/// What was recorded.
#[derive(Debug, Serialize)]
pub struct TraceView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// Where it was recorded.
    pub file: String,
    /// Of the whole file; `None` if not all could be written.
    pub n_bytes: Option<u64>,
    /// Bytes of events that came from the program.
    pub n_bytes_of_events: usize,
    /// How many threads it has.
    pub n_streams: usize,
    /// How often a thread waited until there was room for its events.
    pub n_stalls: usize,
    /// The signal that ended the program, if one did.
    pub ended_by_signal: Option<i32>,
    /// How it died then, and where, as far as that is known.
    pub died: Option<DeathView>,
    /// Whether it is not known how far a thread came behind its last event.
    pub is_cut: bool,
    /// The files whose code was recorded.
    pub modules: Vec<String>,
    /// What was done to processes that ran before.
    #[serde(skip_serializing_if = "AttachedView::is_none")]
    pub attach: AttachedView,
}

impl TraceView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.trace/1";
}

impl View for TraceView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["file", "bytes>", "events, bytes>", "threads>", "stalls>", "module"]);
        for module in &self.modules {
            let n_bytes = self.n_bytes.map_or_else(String::new, |n| n.to_string());
            let [events, threads, stalls] =
                [self.n_bytes_of_events, self.n_streams, self.n_stalls].map(|n| n.to_string());
            t.row([self.file.clone(), n_bytes, events, threads, stalls, module.clone()]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        self.attach.text(w)?;
        let events = many(self.n_bytes_of_events, "byte");
        let (threads, modules) = (many(self.n_streams, "thread"), many(self.modules.len(), "module"));
        let trace = match self.n_bytes {
            Some(n) => format!("trace: {}: {n} bytes", self.file),
            None => format!("a part of it is in {}", self.file),
        };
        writeln!(w, "recorded {events} of events of {threads} in {modules}; {trace}")?;
        if self.n_stalls > 0 {
            writeln!(w, "the program waited {} for room", many(self.n_stalls, "time"))?;
        }
        if let Some(died) = &self.died {
            writeln!(w, "it died of {died}")?;
        }
        if self.is_cut {
            writeln!(w, "what some threads ran behind their last events may be missing")?;
        }
        Ok(())
    }
}
