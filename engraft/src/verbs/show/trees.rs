//! The tree of calls of a recording, whichever it is: of all calls, of those of one function, upside down.

use super::Args;
use super::costs::{self, Costly, ordered};
use crate::output::Hinted;
use crate::verbs::sample::fill::called;
use crate::verbs::sample::recorded::Recorded;
use measure::reports::sampled::tree::{Node, Tree, tree};
use std::collections::BTreeMap;
use std::path::Path;
use views::ratio;
use views::show::costs::{CallTree, TreeRow, Ways};
use views::show::counts::{CountsView, SCHEMA};

/// Which tree is asked for on the command line.
pub(super) fn ways<'a>(args: &Args, is_of_callers: bool, name: Option<&'a str>) -> Ways<'a> {
    match name {
        Some(name) if is_of_callers => Ways::Callers(name),
        Some(name) => Ways::Below(name),
        None if args.inverted => Ways::Inverted,
        None => Ways::All,
    }
}

/// The tree of the recording `rec`.
///
/// # Errors
/// If it cannot be read, or does not have such a tree.
pub fn of(rec: &Path, ways: Ways<'_>) -> anyhow::Result<CountsView<CallTree>> {
    match Recorded::open(rec)? {
        Some(recorded) => of_samples(&recorded, ways),
        None => of_costs(rec, ways),
    }
}

/// That of a trace, or the estimate that counts allow.
///
/// # Errors
/// As [`of`].
pub fn of_costs(rec: &Path, ways: Ways<'_>) -> anyhow::Result<CountsView<CallTree>> {
    let tree = match (Costly::open(rec)?, ways) {
        (Costly::Traced(traced), ways) => traced.tree(rec, ways)?,
        (Costly::Counted(_), Ways::Below(name) | Ways::Callers(name)) => {
            let what = format!("counts do not say along which way {name} was called");
            let hint = "`show REC calls` has its callers; a recording of `engraft trace` knows";
            return Err(Hinted::new(what, hint).into());
        }
        (Costly::Counted(images), _) => costs::estimated_tree(&images),
    };
    Ok(if ways == Ways::Inverted { inverted(&tree) } else { tree })
}

/// That of samples.
///
/// # Errors
/// If no function of that name has samples.
pub fn of_samples(recorded: &Recorded, ways: Ways<'_>) -> anyhow::Result<CountsView<CallTree>> {
    let found = |name: &str| match recorded.called(name) {
        none if none.is_empty() => {
            let hint = "`show REC functions` lists those that have";
            Err(Hinted::new(format!("no function that is called {name} has samples"), hint))
        }
        found => Ok(found),
    };
    Ok(match ways {
        Ways::All => sampled(recorded, Tree::All),
        Ways::Inverted => inverted(&sampled(recorded, Tree::All)),
        Ways::Below(name) => sampled(recorded, Tree::Below(&found(name)?)),
        Ways::Callers(name) => sampled(recorded, Tree::Callers(&found(name)?)),
    })
}

fn sampled(recorded: &Recorded, which: Tree<'_>) -> CountsView<CallTree> {
    let nodes = tree(&recorded.samples, 0, &recorded.programs, which);
    let total = recorded.samples.iter().filter(|sample| sample.event == 0).count() as u64;
    let row = |node: &Node| {
        let (function, module, _) = called(&node.who, &recorded.programs);
        TreeRow {
            id: 0,
            under: None,
            depth: 0,
            module,
            function,
            inclusive: node.inclusive,
            inclusive_share: ratio(node.inclusive, total),
            own: node.own,
            entries: None,
        }
    };
    let rows = nodes.iter().map(row).enumerate().collect();
    let tree = ordered(nodes.iter().map(|node| node.under).enumerate(), rows);
    CountsView {
        schema: SCHEMA,
        rows: CallTree { estimated: false, unit: "samples", total, tree, n_left_out: 0 },
    }
}

/// A way of less than this part of all is left out of an inverted tree: its ways are many more than those of
/// the tree, for each end of one has them all.
const LEAST: u64 = 10_000;

/// What is to stand below a row: of each way, the row of the tree that it has come to, and the row that it
/// ends in.
type Open = (Option<usize>, Vec<(usize, usize)>);

/// The tree upside down: each function that did something itself, with its callers below it. What a row costs
/// is what the function did itself when it was called along that way.
pub fn inverted(view: &CountsView<CallTree>) -> CountsView<CallTree> {
    let CallTree { estimated, unit, total, tree, .. } = &view.rows;
    let least = total.div_ceil(LEAST);
    let mut rows: BTreeMap<usize, TreeRow> = BTreeMap::new();
    let mut parents: Vec<(usize, Option<usize>)> = Vec::new();
    let mut n_left_out = 0;
    // Each way is gone from where it ends to where it begins.
    let all: Vec<(usize, usize)> = (0..tree.len()).map(|n| (n, n)).collect();
    let mut open: Vec<Open> = vec![(None, all)];
    while let Some((under, ways)) = open.pop() {
        let mut groups: BTreeMap<(&str, &str), Vec<(usize, usize)>> = BTreeMap::new();
        for (at, of) in ways {
            if let Some(row) = tree.get(at) {
                groups.entry((&row.module, &row.function)).or_default().push((at, of));
            }
        }
        for ((module, function), ways) in groups {
            let costs = ways.iter().filter_map(|(_, of)| tree.get(*of));
            let inclusive = costs.clone().fold(0, |sum: u64, row| sum.saturating_add(row.own));
            if inclusive < least.max(1) {
                n_left_out += usize::from(inclusive > 0);
                continue;
            }
            let entries = costs.map(|row| row.entries).sum();
            // The way begins here where nothing called it.
            let (ends, more): (Vec<_>, Vec<_>) =
                ways.into_iter().partition(|(at, _)| tree.get(*at).is_none_or(|row| row.under.is_none()));
            let own = ends
                .iter()
                .filter_map(|(_, of)| tree.get(*of))
                .fold(0, |sum: u64, row| sum.saturating_add(row.own));
            let id = parents.len();
            parents.push((id, under));
            let row = TreeRow {
                id: 0,
                under: None,
                depth: 0,
                module: module.to_owned(),
                function: function.to_owned(),
                inclusive,
                inclusive_share: ratio(inclusive, *total),
                own,
                entries,
            };
            rows.insert(id, row);
            let above = more.into_iter().filter_map(|(at, of)| Some((tree.get(at)?.under?, of)));
            let above: Vec<_> = above.collect();
            if !above.is_empty() {
                open.push((Some(id), above));
            }
        }
    }
    let tree = ordered(parents.into_iter(), rows);
    let rows = CallTree { estimated: *estimated, unit, total: *total, tree, n_left_out };
    CountsView { schema: view.schema, rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: usize, under: Option<usize>, function: &str, own: u64) -> TreeRow {
        TreeRow {
            id,
            under,
            depth: 0,
            module: "m".to_owned(),
            function: function.to_owned(),
            inclusive: 0,
            inclusive_share: 0.0,
            own,
            entries: Some(1),
        }
    }

    fn lines(tree: Vec<TreeRow>) -> (Vec<String>, usize) {
        let total = tree.iter().map(|row| row.own).sum();
        let rows = CallTree { estimated: false, unit: "blocks", total, tree, n_left_out: 0 };
        let got = inverted(&CountsView { schema: SCHEMA, rows });
        let line = |row: &TreeRow| {
            let entries = row.entries.unwrap_or_default();
            format!("{}{} {} of {}, {entries}x", "-".repeat(row.depth), row.function, row.own, row.inclusive)
        };
        (got.rows.tree.iter().map(line).collect(), got.rows.n_left_out)
    }

    #[test]
    fn each_function_stands_above_its_callers_with_what_it_did_itself() {
        let tree = vec![
            row(0, None, "main", 1),
            row(1, Some(0), "a", 10),
            row(2, Some(1), "leaf", 100),
            row(3, Some(0), "leaf", 50),
            row(4, Some(3), "leaf", 7),
        ];
        let want = [
            "leaf 0 of 157, 3x",
            "-a 0 of 100, 1x",
            "--main 100 of 100, 1x",
            "-main 50 of 50, 1x",
            "-leaf 0 of 7, 1x",
            "--main 7 of 7, 1x",
            "a 0 of 10, 1x",
            "-main 10 of 10, 1x",
            "main 1 of 1, 1x",
        ];
        assert_eq!(lines(tree), (want.map(str::to_owned).to_vec(), 0));
    }

    #[test]
    fn what_is_too_little_is_left_out_and_counted() {
        let tree = vec![row(0, None, "main", 30_000), row(1, Some(0), "a", 2), row(2, Some(0), "b", 4)];
        let want = ["main 30000 of 30000, 1x", "b 0 of 4, 1x", "-main 4 of 4, 1x"];
        assert_eq!(lines(tree), (want.map(str::to_owned).to_vec(), 1));
    }
}
