//! `engraft show C.engraft`: what a comparison of two builds holds.

use super::Args;
use crate::input;
use crate::output::{self, Hinted};
use crate::verbs::compare::{function, functions, parts::no_outlier};
use std::path::Path;
use views::compare::times::BothTimesView;
use views::compare::trees::CallTreesView;

/// What there is to be shown, as it is told.
const WHAT: &str = "say `show FILE` alone, or with functions, loops, modules, function NAME, intervals, outlier N, tree, time";

/// Shows what is asked for of the comparison at `path`.
///
/// # Errors
/// If it cannot be read, or does not have that.
pub fn show(args: &Args, path: &Path) -> anyhow::Result<()> {
    let is_of_others =
        args.verify || args.liveness || args.svg || args.dot || args.flame || args.instructions;
    let others = [&args.profile, &args.counts];
    if is_of_others || args.plot.is_some() || args.by.is_some() || others.into_iter().any(Option::is_some) {
        let what = format!("{} is a comparison, which none of these options is for", path.display());
        return Err(Hinted::new(what, WHAT).into());
    }
    if let Some(to) = &args.o {
        output::refuse_replacing(to, &[path])?;
    }
    let to = args.o.as_ref();
    let kept = input::comparison(path)?;
    match (args.what.as_deref(), args.name.as_deref()) {
        (None, None) => args.output.print_to(to, &kept.into_view()),
        (Some("functions"), None) => args.output.print_to(to, &functions(&kept.into_view())),
        (Some("loops"), None) => args.output.print_to(to, &kept.into_loops()),
        (Some("modules"), None) => args.output.print_to(to, &kept.into_modules()),
        (Some("function"), Some(name)) => args.output.print_to(to, &function(name, &kept.into_view())?),
        (Some("intervals"), None) => args.output.print_to(to, &kept.into_intervals()),
        (Some("tree"), None) => {
            let trees = kept.trees.as_ref().ok_or_else(|| not_kept(path))?;
            args.output.print_to(to, &CallTreesView::of(trees))
        }
        (Some("time"), None) => {
            let times = kept.times.as_ref().ok_or_else(|| not_kept(path))?;
            args.output.print_to(to, &BothTimesView::of(times))
        }
        (Some("outlier"), Some(number)) => {
            let n = number.parse().map_err(|_| {
                Hinted::new(format!("{number:?} is no number of an outlier"), "1 differs most")
            })?;
            let outlier = kept.outlier(n).ok_or_else(|| no_outlier(n, kept.comparison.outliers.len()))?;
            args.output.print_to(to, &outlier)
        }
        (what, name) => {
            let words: Vec<&str> = what.into_iter().chain(name).collect();
            Err(Hinted::new(format!("a comparison has no {:?} to show", words.join(" ")), WHAT).into())
        }
    }
}

/// Older files do not have it.
fn not_kept(path: &Path) -> Hinted {
    let what = format!("{} was kept without the calls of both builds", path.display());
    Hinted::new(what, "compare the builds again, with `engraft compare -o`")
}
