//! `engraft query --stats`: what a trace holds.

use super::{Args, unreadable};
use crate::output::Answer;
use serde::Serialize;
use trace::Trace;
use tracing::info_span;
use views::{Table, View};

/// Prints it.
pub fn print(args: &Args, trace: &Trace) -> anyhow::Result<Answer> {
    let stats = info_span!("stats").in_scope(|| trace.stats()).map_err(|err| unreadable(&args.trace, err))?;
    let file_bytes = std::fs::metadata(&args.trace).map_or(0, |m| m.len());
    args.output.print(&StatsView {
        schema: "engraft.query/1",
        file_bytes,
        trace_bytes: 4 * stats.n_symbols,
        n_threads: stats.n_threads,
        n_symbols: stats.n_symbols,
        n_entries: stats.n_entries,
        n_blocks: stats.n_blocks,
        n_exits: stats.n_exits,
        n_functions: stats.n_functions,
        deepest: stats.deepest,
        n_open: stats.n_open,
        n_unbalanced: stats.n_unbalanced,
        n_astray: stats.faults.n_astray,
        n_lost: stats.faults.n_lost,
    })?;
    Ok(Answer::Yes)
}

/// What a trace holds.
#[derive(Serialize)]
struct StatsView {
    schema: &'static str,
    file_bytes: u64,
    trace_bytes: u64,
    n_threads: u64,
    n_symbols: u64,
    n_entries: u64,
    n_blocks: u64,
    n_exits: u64,
    n_functions: u64,
    deepest: u64,
    n_open: u64,
    /// Symbols that cannot stand where they are, as the verifier finds them: 0 if the trace is balanced.
    n_unbalanced: u64,
    /// How often events say that control was elsewhere than those before say.
    n_astray: u64,
    /// Events that say nothing.
    n_lost: u64,
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
