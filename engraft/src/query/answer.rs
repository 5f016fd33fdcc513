//! What `engraft query` answers: how often, where, in which thread, under which caller.

use super::functions::{FunctionView, Functions};
use super::symbols::{self, SymbolView};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use trace::{Found, Position, Scheme, Thread, Want};
use views::{Table, View};

const SCHEMA: &str = "engraft.query/1";

/// What was asked.
#[derive(Serialize)]
struct PathView {
    #[serde(flatten)]
    function: FunctionView,
    steps: Vec<StepView>,
}

#[derive(Serialize)]
struct StepView {
    blocks: Vec<u32>,
    repeats: bool,
    after_gap: bool,
    /// Paths of calls that are made before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<PathView>,
}

impl PathView {
    fn new(path: &trace::Path, functions: &Functions<'_>) -> PathView {
        let step = |s: &trace::path::PathStep| StepView {
            blocks: s.blocks.clone(),
            repeats: s.repeats,
            after_gap: s.after_gap,
            calls: s.calls.iter().map(|call| PathView::new(call, functions)).collect(),
        };
        PathView { function: functions.view(Some(path.func)), steps: path.steps.iter().map(step).collect() }
    }
}

/// What was asked, and what was found.
#[derive(Serialize)]
pub struct QueryView {
    schema: &'static str,
    #[serde(flatten)]
    path: PathView,
    scheme: u8,
    /// Not counted where one occurrence alone is asked for.
    count: Option<u64>,
    first: Option<PositionView>,
    positions: Option<Vec<PositionView>>,
    /// What is around the occurrence, if that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Vec<SymbolView>>,
}

#[derive(Serialize)]
struct PositionView {
    thread: u32,
    index: u64,
}

impl QueryView {
    /// Of an answer.
    pub fn new(
        path: &trace::Path,
        functions: &Functions<'_>,
        scheme: Scheme,
        want: Want,
        found: &Found,
    ) -> QueryView {
        let view = |p: &Position| PositionView { thread: p.thread, index: p.index };
        let first = found.first.as_ref().map(view);
        let is_counted = matches!(want, Want::Count | Want::CountAndFirst | Want::All);
        let (first, positions) = match want {
            Want::All => (first, Some(found.all.iter().map(view).collect())),
            _ if is_counted || want == Want::First => (first, None),
            _ => (None, Some(first.into_iter().collect())),
        };
        QueryView {
            schema: SCHEMA,
            path: PathView::new(path, functions),
            scheme: scheme as u8,
            count: is_counted.then_some(found.count),
            first,
            positions,
            context: None,
        }
    }

    /// The same, with what is around the occurrence.
    pub fn with(self, context: Option<Vec<SymbolView>>) -> QueryView {
        QueryView { context, ..self }
    }
}

impl QueryView {
    /// Function, count, thread and index: a row a position that is asked for, else one with the first.
    pub fn rows(&self) -> Vec<[String; 4]> {
        let count = self.count.map_or_else(String::new, |n| n.to_string());
        let row = |p: Option<&PositionView>| {
            let text = |n: Option<String>| n.unwrap_or_else(|| "-".to_owned());
            let (thread, index) = (p.map(|p| p.thread.to_string()), p.map(|p| p.index.to_string()));
            [self.path.function.cell(), count.clone(), text(thread), text(index)]
        };
        match self.positions.as_deref() {
            Some(all @ [_, ..]) => all.iter().map(|p| row(Some(p))).collect(),
            _ => vec![row(self.first.as_ref())],
        }
    }
}

impl View for QueryView {
    /// A row a position that is asked for; or a symbol around it.
    fn table(&self) -> Table {
        if let Some(context) = &self.context {
            return SymbolView::table(context.iter());
        }
        let mut t = Table::new(&["function", "thread>", "index>"]);
        let all = self.positions.as_deref().unwrap_or(self.first.as_slice());
        for p in all {
            t.row([self.path.function.cell(), p.thread.to_string(), p.index.to_string()]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        match (&self.first, self.count) {
            (Some(p), Some(1)) => writeln!(w, "once, at symbol {} of thread {}", p.index, p.thread),
            (Some(p), Some(n)) => {
                writeln!(w, "{n} times, first at symbol {} of thread {}", p.index, p.thread)
            }
            _ => writeln!(w, "it does not occur"),
        }?;
        match (&self.first, &self.context) {
            (Some(p), Some(context)) => symbols::marked(w, context, Some(p.index)),
            _ => Ok(()),
        }
    }
}

/// How often in each thread, those without occurrences too.
#[derive(Serialize)]
pub struct ThreadsView {
    schema: &'static str,
    #[serde(flatten)]
    path: PathView,
    count: u64,
    threads: Vec<ThreadView>,
}

#[derive(Serialize)]
struct ThreadView {
    thread: u32,
    count: u64,
}

impl ThreadsView {
    /// Of an answer.
    pub fn new(
        path: &trace::Path,
        functions: &Functions<'_>,
        threads: &[Thread],
        found: &Found,
    ) -> ThreadsView {
        let n = |thread: u32| found.threads.iter().find(|(t, _)| *t == thread).map_or(0, |(_, n)| *n);
        let threads = threads.iter().map(|t| ThreadView { thread: t.thread, count: n(t.thread) });
        let path = PathView::new(path, functions);
        ThreadsView { schema: SCHEMA, path, count: found.count, threads: threads.collect() }
    }

    /// A line a thread: it, and how often.
    pub fn bare(&self, w: &mut dyn Write) -> io::Result<()> {
        self.threads.iter().try_for_each(|v| writeln!(w, "{} {}", v.thread, v.count))
    }
}

impl View for ThreadsView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["thread>", "count>"]);
        self.threads.iter().for_each(|v| t.row([v.thread.to_string(), v.count.to_string()]));
        t
    }
}

/// How often under each caller, the most frequent first.
#[derive(Serialize)]
pub struct CallersView {
    schema: &'static str,
    #[serde(flatten)]
    path: PathView,
    count: u64,
    callers: Vec<CallerView>,
}

/// A caller; none where a thread starts in the function.
#[derive(Serialize)]
struct CallerView {
    #[serde(flatten)]
    function: FunctionView,
    count: u64,
}

impl CallersView {
    /// Of an answer.
    pub fn new(
        path: &trace::Path,
        functions: &Functions<'_>,
        counts: &BTreeMap<Option<u32>, u64>,
    ) -> CallersView {
        let view =
            |(id, count): (&Option<u32>, &u64)| CallerView { function: functions.view(*id), count: *count };
        let mut callers: Vec<_> = counts.iter().map(view).collect();
        callers.sort_by_key(|c| std::cmp::Reverse(c.count));
        let count = counts.values().fold(0_u64, |sum, n| sum.saturating_add(*n));
        CallersView { schema: SCHEMA, path: PathView::new(path, functions), count, callers }
    }
}

impl View for CallersView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["caller", "count>"]);
        for c in &self.callers {
            t.row([c.function.cell(), c.count.to_string()]);
        }
        t
    }
}
