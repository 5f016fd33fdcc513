//! What `engraft query` answers: how often, where, in which thread, under which caller.

use super::functions::Functions;
use std::collections::BTreeMap;
use trace::{Found, FuncId, Position, Scheme, Thread, ThreadId, Want};
use views::query::{
    CallerView, CallersView, PathView, PositionView, QueryView, SCHEMA, StepView, ThreadView, ThreadsView,
};

/// What was asked.
fn path_view(path: &trace::Path, functions: &Functions<'_>) -> PathView {
    let step = |s: &trace::path::PathStep| StepView {
        blocks: s.blocks.iter().map(|block| block.0).collect(),
        repeats: s.repeats,
        after_gap: s.after_gap,
        calls: s.calls.iter().map(|call| path_view(call, functions)).collect(),
    };
    PathView { function: functions.view(Some(path.func)), steps: path.steps.iter().map(step).collect() }
}

/// What was asked, and what was found.
pub fn query_view(
    path: &trace::Path,
    functions: &Functions<'_>,
    scheme: Scheme,
    want: Want,
    found: &Found,
) -> QueryView {
    let view = |p: &Position| PositionView { thread: p.thread.0, index: p.index };
    let first = found.first.as_ref().map(view);
    let is_counted = matches!(want, Want::Count | Want::CountAndFirst | Want::All);
    let (first, positions) = match want {
        Want::All => (first, Some(found.all.iter().map(view).collect())),
        _ if is_counted || want == Want::First => (first, None),
        _ => (None, Some(first.into_iter().collect())),
    };
    QueryView {
        schema: SCHEMA,
        path: path_view(path, functions),
        scheme: scheme as u8,
        count: is_counted.then_some(found.count),
        first,
        positions,
        context: None,
    }
}

/// How often in each thread.
pub fn threads_view(
    path: &trace::Path,
    functions: &Functions<'_>,
    threads: &[Thread],
    found: &Found,
) -> ThreadsView {
    let n = |thread: ThreadId| found.threads.iter().find(|(t, _)| *t == thread).map_or(0, |(_, n)| *n);
    let threads = threads.iter().map(|t| ThreadView { thread: t.thread.0, count: n(t.thread) });
    let path = path_view(path, functions);
    ThreadsView { schema: SCHEMA, path, count: found.count, threads: threads.collect() }
}

/// How often under each caller.
pub fn callers_view(
    path: &trace::Path,
    functions: &Functions<'_>,
    counts: &BTreeMap<Option<FuncId>, u64>,
) -> CallersView {
    let view =
        |(id, count): (&Option<FuncId>, &u64)| CallerView { function: functions.view(*id), count: *count };
    let mut callers: Vec<_> = counts.iter().map(view).collect();
    callers.sort_by_key(|c| std::cmp::Reverse(c.count));
    let count = counts.values().fold(0_u64, |sum, n| sum.saturating_add(*n));
    CallersView { schema: SCHEMA, path: path_view(path, functions), count, callers }
}
