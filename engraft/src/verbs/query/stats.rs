//! `engraft query --stats`: what a trace holds.

use super::Args;
use crate::input::{file, unreadable};
use crate::output::Answer;
use trace::Trace;
use tracing::info_span;
use views::query::stats::StatsView;

/// Prints it.
pub fn print(args: &Args, trace: &Trace) -> anyhow::Result<Answer> {
    let stats = info_span!("stats").in_scope(|| trace.stats()).map_err(|err| unreadable(&args.trace, err))?;
    let file_bytes = file(&args.trace)?.metadata().map_or(0, |m| m.len());
    args.output.print(&StatsView {
        schema: StatsView::SCHEMA,
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
