//! What `engraft view` lists: recordings, and what can be looked at of each.

use crate::{Table, View};
use serde::Serialize;

/// Recordings, in the order in which they were named.
#[derive(Debug, Serialize)]
pub struct RecordingsView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The recordings.
    pub recordings: Vec<RecordingRow>,
}

impl RecordingsView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.recordings/1";
}

/// A recording.
#[derive(Clone, Debug, Serialize)]
pub struct RecordingRow {
    /// Its file, as it was named.
    pub recording: String,
    /// What it is.
    pub what: What,
    /// What was run, where that is known.
    pub command: Option<String>,
    /// When it was written (UTC), as RFC 3339 has it, where that is known.
    pub written: Option<String>,
}

/// What a recording is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// How often what ran.
    Counts,
    /// All that ran, in order.
    Trace,
    /// Values of calls, loops, places.
    Values,
    /// Where it was, time and again.
    Samples,
    /// What two builds did.
    Comparison,
    /// Which function and block of one build became which of the next.
    Match,
    /// What became of a profile, carried to later builds.
    Carry,
    /// Many builds on many inputs.
    Matrix,
}

impl What {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            What::Counts => "counts",
            What::Trace => "trace",
            What::Values => "values",
            What::Samples => "samples",
            What::Comparison => "comparison",
            What::Match => "matching",
            What::Carry => "carried profile",
            What::Matrix => "builds × inputs",
        }
    }
}

impl View for RecordingsView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["recording", "what", "command", "written"]);
        for row in &self.recordings {
            let text = |of: &Option<String>| of.clone().unwrap_or_else(|| "-".to_owned());
            t.row([
                row.recording.clone(),
                row.what.words().to_owned(),
                text(&row.command),
                text(&row.written),
            ]);
        }
        t
    }
}
