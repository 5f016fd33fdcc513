//! What `engraft query` answers: how often, where, in which thread, under which caller.

pub mod compare;
pub mod functions;
pub mod hottest;
pub mod stats;
pub mod symbols;

pub use functions::FunctionView;

use crate::{Table, View};
use serde::Serialize;
use std::io::{self, Write};
use symbols::SymbolView;

/// The schema that the JSON of all answers names.
pub const SCHEMA: &str = "engraft.query/1";

/// What was asked.
#[derive(Debug, Serialize)]
pub struct PathView {
    /// The function whose blocks they are.
    #[serde(flatten)]
    pub function: FunctionView,
    /// What must run, in order.
    pub steps: Vec<StepView>,
}

/// A step of a path.
#[derive(Debug, Serialize)]
pub struct StepView {
    /// One of these blocks.
    pub blocks: Vec<u32>,
    /// Once or more.
    pub repeats: bool,
    /// Whether anything may run before it.
    pub after_gap: bool,
    /// Paths of calls that are made before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<PathView>,
}

/// What was asked, and what was found.
#[derive(Debug, Serialize)]
pub struct QueryView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// What was asked.
    #[serde(flatten)]
    pub path: PathView,
    /// How it was searched.
    pub scheme: u8,
    /// Not counted where one occurrence alone is asked for.
    pub count: Option<u64>,
    /// Where it occurs first.
    pub first: Option<PositionView>,
    /// Where it occurs, each time, or the occurrence that was asked for.
    pub positions: Option<Vec<PositionView>>,
    /// What is around the occurrence, if that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<SymbolView>>,
}

/// Where it occurs: its last block.
#[derive(Debug, Serialize)]
pub struct PositionView {
    /// The thread, numbered from 0.
    pub thread: u32,
    /// Which symbol of the thread, from 0.
    pub index: u64,
}

impl QueryView {
    /// The same, with what is around the occurrence.
    pub fn with(self, context: Option<Vec<SymbolView>>) -> QueryView {
        QueryView { context, ..self }
    }

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
#[derive(Debug, Serialize)]
pub struct ThreadsView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// What was asked.
    #[serde(flatten)]
    pub path: PathView,
    /// In all of them.
    pub count: u64,
    /// In each.
    pub threads: Vec<ThreadView>,
}

/// How often in a thread.
#[derive(Debug, Serialize)]
pub struct ThreadView {
    /// The thread, numbered from 0.
    pub thread: u32,
    /// How often.
    pub count: u64,
}

impl ThreadsView {
    /// A line a thread: it, and how often.
    ///
    /// # Errors
    /// If `w` cannot be written.
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
#[derive(Debug, Serialize)]
pub struct CallersView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// What was asked.
    #[serde(flatten)]
    pub path: PathView,
    /// Under all of them.
    pub count: u64,
    /// Under each.
    pub callers: Vec<CallerView>,
}

/// A caller; none where a thread starts in the function.
#[derive(Debug, Serialize)]
pub struct CallerView {
    /// The caller.
    #[serde(flatten)]
    pub function: FunctionView,
    /// How often.
    pub count: u64,
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

/// What is found of each path.
#[derive(Debug, Serialize)]
pub struct PathsView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// Each path, as if it was asked for alone.
    pub paths: Vec<QueryView>,
}

impl View for PathsView {
    /// A row a path; where all positions are asked for, a row each.
    fn table(&self) -> Table {
        let mut t = Table::new(&["path>", "function", "count>", "thread>", "index>"]);
        for (n, path) in (1..).zip(&self.paths) {
            for row in path.rows() {
                let [function, count, thread, index] = row;
                let n: usize = n;
                t.row([n.to_string(), function, count, thread, index]);
            }
        }
        t
    }
}
