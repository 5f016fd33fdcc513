//! `engraft query --diff`: where two runs first differ, and the paths that one takes alone.

use super::Args;
use super::functions::Functions;
use super::hottest::{LENGTH, function};
use super::symbols;
use crate::input::warn_of_faults;
use crate::input::{open, unreadable};
use crate::output::{self, Answer, Hinted};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trace::diff::{self, Alone, Pairing};
use trace::{FuncId, Names, ThreadId, Trace};
use tracing::info_span;
use views::query::compare::{DiffView, DivergenceView, PathView};
use views::query::symbols::SymbolView;

/// Symbols that are shown before and behind a difference, if nothing else is said.
const CONTEXT: u64 = 5;

/// One of the two traces.
struct Side<'a> {
    path: &'a Path,
    trace: Trace,
    names: Names,
}

impl Side<'_> {
    fn open(path: &Path) -> anyhow::Result<Side<'_>> {
        let trace = open(path)?;
        needs_order(path, &trace)?;
        let names = trace.names().map_err(|err| unreadable(path, err))?;
        Ok(Side { path, trace, names })
    }

    fn functions(&self) -> Functions<'_> {
        Functions::new(&self.names)
    }

    fn label(&self) -> String {
        self.path.display().to_string()
    }

    /// Symbols from `start` on, before `end` or the end of the stream.
    fn symbols(&self, thread: ThreadId, start: u64, end: u64) -> anyhow::Result<Vec<SymbolView>> {
        symbols::expanded(self.path, &self.trace, &self.functions(), thread, start..end)
    }
}

/// Refuses a recording as it was taken, which can be read from its start only.
fn needs_order(path: &Path, trace: &Trace) -> anyhow::Result<()> {
    if !trace.is_recording() {
        return Ok(());
    }
    let what = format!("{} is as it was recorded: it can only be read from its start", path.display());
    let hint = format!("pack it first: `engraft trace pack {}`", path.display());
    Err(Hinted::new(what, hint).into())
}

/// Compares the two traces that the arguments name.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let Some((second, named)) = args.path.split_first() else {
        return Err(Hinted::new("--diff compares two traces", "say `query --diff A B [FUNCTION]`").into());
    };
    let (a, b) = (Side::open(&args.trace)?, Side::open(Path::new(second))?);
    let pairing = Pairing::new(&a.names, &b.names);
    if !pairing.is_by_number() {
        let what = "the traces are not of the same build: functions are paired by name, blocks by number";
        output::warn(what, Some("where code was changed, the same block may have another number"));
    }
    let length = args.length.unwrap_or(LENGTH);
    let paths = info_span!("paths").in_scope(|| paths(&a, &b, &pairing, &named.join(" "), length))?;
    let context = args.context.unwrap_or(CONTEXT);
    let divergences = info_span!("compare").in_scope(|| divergences(&a, &b, &pairing, context))?;
    [&a, &b].into_iter().for_each(|side| warn_of_faults(side.path, &side.trace));
    let (first, second) = (a.label(), b.label());
    let view = DiffView { schema: DiffView::SCHEMA, first, second, length, divergences, paths };
    args.output.print(&view)?;
    Ok(if view.divergences.is_empty() && view.paths.is_empty() { Answer::Yes } else { Answer::No })
}

fn divergences(a: &Side, b: &Side, pairing: &Pairing, context: u64) -> anyhow::Result<Vec<DivergenceView>> {
    let mut threads = BTreeSet::new();
    for side in [a, b] {
        let of = side.trace.threads().map_err(|err| unreadable(side.path, err))?;
        threads.extend(of.iter().map(|t| t.thread));
    }
    let mut found = Vec::new();
    for thread in threads {
        let index = diff::first(&a.trace, &b.trace, thread, pairing);
        let index =
            index.map_err(|failed| unreadable(if failed.is_second { b.path } else { a.path }, failed.err))?;
        let Some(index) = index else { continue };
        let end = index.saturating_add(context).saturating_add(1);
        found.push(DivergenceView {
            thread: thread.0,
            index,
            before: a.symbols(thread, index.saturating_sub(context), index)?,
            first: a.symbols(thread, index, end)?,
            second: b.symbols(thread, index, end)?,
        });
    }
    Ok(found)
}

/// Paths that one of the two takes alone, the most frequent first; of the function that is named, if one is.
fn paths(a: &Side, b: &Side, pairing: &Pairing, named: &str, length: usize) -> anyhow::Result<Vec<PathView>> {
    let (in_a, in_b) = functions(a, b, pairing, named)?;
    let all = |side: &Side, func: Option<Option<FuncId>>| match func {
        Some(func) => side.trace.paths(length, func).map_err(|err| unreadable(side.path, err)),
        None => Ok(BTreeMap::new()),
    };
    let view = |alone: Alone| {
        let side = if alone.is_second { b } else { a };
        PathView {
            only_in: side.label(),
            function: side.functions().view(Some(alone.func)),
            blocks: alone.blocks.iter().map(|block| block.0).collect(),
            count: alone.count,
        }
    };
    let alone = diff::alone(&all(a, in_a)?, &all(b, in_b)?, pairing);
    Ok(alone.into_iter().map(view).collect())
}

/// The function whose paths are compared in each of the two: `Some(None)` stands for all of them, `None` for
/// none.
type InBoth = (Option<Option<FuncId>>, Option<Option<FuncId>>);

fn functions(a: &Side, b: &Side, pairing: &Pairing, named: &str) -> anyhow::Result<InBoth> {
    Ok(match (function(named, &a.functions()), function(named, &b.functions())) {
        (Ok(None), _) => (Some(None), Some(None)),
        (Ok(func), _) | (Err(_), Ok(func)) if pairing.is_by_number() => (Some(func), Some(func)),
        (Ok(Some(func)), _) => {
            let same = |of: &FuncId| pairing.of_second(*of) == Some(func);
            (Some(Some(func)), b.names.functions.keys().copied().find(same).map(Some))
        }
        // One that the first does not have.
        (Err(_), Ok(Some(func))) if pairing.of_second(func).is_none() => (None, Some(Some(func))),
        (Err(err), _) => return Err(err),
    })
}
