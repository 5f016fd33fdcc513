//! What a recording of samples shows: functions, loops, the tree of calls, who called, a flame graph.

use super::costs::ordered;
use super::{Args, Request, Subject, by};
use crate::output::{self, Hinted};
use crate::verbs::sample::fill::called;
use crate::verbs::sample::recorded::Recorded;
use anyhow::Context as _;
use measure::reports::sampled::tree::{Node, Tree, tree};
use profile::samples::folded;
use views::ratio;
use views::sample::{Part, PartView};
use views::show::costs::{self, TreeRow};
use views::show::counts::{CountsView, SCHEMA};

/// Shows what is asked for, if samples tell it; else it is of counts.
///
/// # Errors
/// If samples do not tell it.
pub(super) fn show(args: &Args, wanted: &Request<'_>, recorded: &Recorded) -> anyhow::Result<bool> {
    let to = args.o.as_ref();
    if args.flame {
        let picture =
            folded::draw(&recorded.named(), 0).context("there is nothing to draw: there are no samples")?;
        output::data(to.map(std::path::PathBuf::as_path), |w| w.write_all(&picture))?;
        return Ok(true);
    }
    match (wanted.what, wanted.name) {
        (None, _) => match args.by {
            Some(by::Key::Line) => print(args, recorded, Part::Lines)?,
            _ => args.output.print_to(to, &recorded.view())?,
        },
        (Some(Subject::Functions), _) => print(args, recorded, Part::Functions)?,
        (Some(Subject::Loops), _) => print(args, recorded, Part::Loops)?,
        (Some(Subject::Tree), None) => args.output.print_to(to, &tree_view(recorded, Tree::All))?,
        (Some(what @ (Subject::Tree | Subject::Callers)), Some(name)) => {
            let found = recorded.called(name);
            if found.is_empty() {
                let hint = "`show REC functions` lists those that have";
                return Err(
                    Hinted::new(format!("no function that is called {name} has samples"), hint).into()
                );
            }
            let which = if what == Subject::Callers { Tree::Callers(&found) } else { Tree::Below(&found) };
            args.output.print_to(to, &tree_view(recorded, which))?;
        }
        (Some(what), _) if what.is_of_counts() => {
            let hint = "`engraft count` counts them; `show REC tree` has what samples tell of calls";
            return Err(Hinted::new("samples do not tell how often edges and calls ran", hint).into());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn print(args: &Args, recorded: &Recorded, part: Part) -> anyhow::Result<()> {
    args.output.print_to(args.o.as_ref(), &PartView { view: recorded.view(), part })
}

fn tree_view(recorded: &Recorded, which: Tree<'_>) -> CountsView<costs::CallTree> {
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
        rows: costs::CallTree { estimated: false, unit: "samples", total, tree, n_left_out: 0 },
    }
}
