//! What a trace holds.

use crate::{Table, View};
use serde::Serialize;

/// What a trace holds.
#[derive(Debug, Serialize)]
pub struct StatsView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the trace, four a symbol.
    pub trace_bytes: u64,
    /// How many threads.
    pub n_threads: u64,
    /// How many symbols.
    pub n_symbols: u64,
    /// Functions entered.
    pub n_entries: u64,
    /// Blocks executed.
    pub n_blocks: u64,
    /// Functions left.
    pub n_exits: u64,
    /// Functions that ran.
    pub n_functions: u64,
    /// Functions open at once, at most.
    pub deepest: u64,
    /// Functions that were not left, because the recording ends.
    pub n_open: u64,
    /// Symbols that cannot stand where they are, as the verifier finds them: 0 if the trace is balanced.
    pub n_unbalanced: u64,
    /// How often events say that control was elsewhere than those before say.
    pub n_astray: u64,
    /// Events that say nothing.
    pub n_lost: u64,
}

impl StatsView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.query/1";
}

impl View for StatsView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["what", "number>"]);
        let mut row = |what: &str, n: u64| t.row([what.to_owned(), n.to_string()]);
        row("bytes of the file", self.file_bytes);
        row("bytes of the trace, four a symbol", self.trace_bytes);
        row("threads", self.n_threads);
        row("symbols", self.n_symbols);
        row("functions entered", self.n_entries);
        row("blocks executed", self.n_blocks);
        row("functions left", self.n_exits);
        row("functions that ran", self.n_functions);
        row("functions open at once, at most", self.deepest);
        row("functions not left, because the recording ends", self.n_open);
        row("symbols out of balance", self.n_unbalanced);
        row("times control was not where events led", self.n_astray);
        row("events without a meaning", self.n_lost);
        t
    }
}
