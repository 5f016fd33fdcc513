//! What a recording of samples shows: functions, loops, the tree of calls, who called, a flame graph.

use super::{Args, Request, Subject, by, trees};
use crate::output::{self, Hinted};
use crate::verbs::sample::recorded::Recorded;
use anyhow::Context as _;
use profile::samples::folded;
use views::sample::{Part, PartView};

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
        (Some(what @ (Subject::Tree | Subject::Callers)), name) => {
            let ways = trees::ways(args, what == Subject::Callers, name);
            args.output.print_to(to, &trees::of_samples(recorded, ways)?)?;
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
