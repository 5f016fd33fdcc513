//! `engraft query --hottest`: the paths that were executed most often, of a function or of the run.

use super::Args;
use super::functions::Functions;
use crate::input::unreadable;
use crate::output::{Answer, Hinted};
use std::cmp::Reverse;
use trace::{BlockId, FuncId, Trace};
use tracing::info_span;
use views::query::hottest::{HottestView, PathView};

/// Blocks of a path, if nothing else is said.
pub const LENGTH: usize = 2;

/// Prints the `n` hottest.
pub fn print(args: &Args, trace: &Trace, functions: &Functions<'_>, n: usize) -> anyhow::Result<Answer> {
    let func = function(&args.path.join(" "), functions)?;
    let length = args.length.unwrap_or(LENGTH);
    let all = info_span!("count").in_scope(|| trace.paths(length, func));
    let all = all.map_err(|err| unreadable(&args.trace, err))?;
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
    let paths: Vec<_> = paths.into_iter().map(view).collect();
    let is_any = !paths.is_empty();
    args.output.print(&HottestView { schema: HottestView::SCHEMA, length, paths })?;
    Ok(if is_any { Answer::Yes } else { Answer::No })
}

/// The function that is named, if one is.
pub fn function(text: &str, functions: &Functions<'_>) -> anyhow::Result<Option<FuncId>> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    Ok(Some(functions.find(text).map_err(|err| Hinted::new(err.what, err.hint))?))
}
