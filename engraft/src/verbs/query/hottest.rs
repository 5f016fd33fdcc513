//! `engraft query --hottest`: the paths that were executed most often, of a function or of the run.

use super::Args;
use super::functions::Functions;
use crate::input::unreadable;
use crate::output::{Answer, Hinted};
use std::cmp::Reverse;
use std::path::Path;
use trace::{BlockId, FuncId, Trace};
use tracing::info_span;
use views::query::hottest::{HottestView, PathView};

/// Blocks of a path, if nothing else is said.
pub const LENGTH: usize = 2;

/// Prints the `n` hottest.
pub fn print(args: &Args, trace: &Trace, functions: &Functions<'_>, n: usize) -> anyhow::Result<Answer> {
    let func = function(&args.path.join(" "), functions)?;
    let view = view(&args.trace, trace, functions, func, args.length.unwrap_or(LENGTH), n)?;
    args.output.print(&view)?;
    Ok(if view.paths.is_empty() { Answer::No } else { Answer::Yes })
}

/// The `n` hottest of so many blocks, of a function or of the run.
///
/// # Errors
/// If the trace `from` cannot be read.
pub fn view(
    from: &Path,
    trace: &Trace,
    functions: &Functions<'_>,
    func: Option<FuncId>,
    length: usize,
    n: usize,
) -> anyhow::Result<HottestView> {
    let all = info_span!("count").in_scope(|| trace.paths(length, func));
    let all = all.map_err(|err| unreadable(from, err))?;
    let mut paths: Vec<(FuncId, &Vec<BlockId>, u64)> = Vec::new();
    for (&func, of) in &all {
        paths.extend(of.iter().map(|(blocks, &count)| (func, blocks, count)));
        // Those that are not hot in their function are not hot in the run.
        paths.sort_by_key(|&(func, blocks, count)| (Reverse(count), func, blocks));
        paths.truncate(n);
    }
    let view = |(id, blocks, count): (FuncId, &Vec<BlockId>, u64)| PathView {
        function: functions.view(Some(id)),
        blocks: blocks.iter().map(|block| block.0).collect(),
        count,
    };
    let paths = paths.into_iter().map(view).collect();
    Ok(HottestView { schema: HottestView::SCHEMA, length, paths })
}

/// The function that is named, if one is.
pub fn function(text: &str, functions: &Functions<'_>) -> anyhow::Result<Option<FuncId>> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    Ok(Some(functions.find(text).map_err(|err| Hinted::new(err.what, err.hint))?))
}
