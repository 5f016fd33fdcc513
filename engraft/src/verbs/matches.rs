//! `engraft match`: which function, block and data object of one build became which of the next.

mod explain;
mod report;

use crate::input;
use crate::output::{self, Answer, Format, Output};
use matching::{Map, Matching, Options, Pass};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tracing::info_span;
use views::matches::explain::ExplainView;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft match old new
  $ engraft match old new --explain add";

/// Find which function and block of OLD became which of NEW
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The earlier build
    old: PathBuf,
    /// The later build
    new: PathBuf,
    /// Leave a pass out; may be given several times [possible: any that `engraft help passes` lists]
    #[arg(long, value_name = "PASS")]
    without: Vec<Pass>,
    /// Show one function of both builds side by side: a name or an address of NEW, else of OLD
    #[arg(long, value_name = "FUNCTION")]
    explain: Option<String>,
    /// Write the matching to a file that a person can read and edit
    #[arg(short, value_name = "MAP")]
    o: Option<PathBuf>,
    /// Obey the `pin` and `forbid` lines of a map
    #[arg(long, value_name = "MAP")]
    with: Option<PathBuf>,
    /// List every function that has no counterpart, not only the first ones
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if let Some(to) = &args.o {
        // A map may be written over: `--with` has read it by then, and its own lines are kept.
        output::refuse_replacing(to, &[&args.old, &args.new])?;
    }
    let (old, new) = input::pair(&args.old, &args.new)?;
    let mut options = args.without.iter().fold(Options::all(), |options, &pass| options.without(pass));
    let mut map = Map::default();
    if let Some(path) = &args.with {
        map = input::map(path, &old, &new)?;
        options = options.with_map(&map);
    }
    let found = info_span!("match").in_scope(|| Matching::compute(&old, &new, &options));
    let mapped = std::mem::replace(&mut map.matching, found);
    warn_of_edits(&mapped, &map);
    if let Some(path) = &args.o {
        let text = map.write(&old, &new);
        output::data(Some(path), |w| w.write_all(text.as_bytes()))?;
    }
    let matching = map.matching;
    if let Some(what) = &args.explain {
        let view = explain::view(&old, &new, &matching, what)?;
        args.output.print_beside(args.o.as_deref(), &view)?;
        return Ok(Answer::Yes);
    }
    let full = args.all || args.output.format() != Format::Table;
    let view = report::view(&old, &new, &matching, full);
    match &args.o {
        Some(o) => args.output.print_beside_file(o, &view)?,
        None => args.output.print(&view)?,
    }
    Ok(if matching.functions.is_empty() { Answer::No } else { Answer::Yes })
}

/// One function of both builds side by side, as `--explain` has it.
///
/// # Errors
/// If neither has one that is called `name`.
pub fn explained(
    old: &program::Program,
    new: &program::Program,
    matching: &Matching,
    name: &str,
) -> anyhow::Result<ExplainView> {
    explain::view(old, new, matching, name)
}

/// Says how many functions a map matched otherwise than they are matched now, though no pin or forbid of it
/// says so.
fn warn_of_edits(mapped: &Matching, now: &Map) {
    let found: BTreeSet<_> = now.matching.functions.iter().map(|f| (f.old, f.new)).collect();
    let (olds, news): (BTreeSet<_>, BTreeSet<_>) = now.pins.iter().copied().unzip();
    let forbidden: BTreeSet<_> = now.forbids.iter().copied().collect();
    let lost = mapped.functions.iter().map(|f| (f.old, f.new)).filter(|pair| {
        !found.contains(pair)
            && !forbidden.contains(pair)
            && !olds.contains(&pair.0)
            && !news.contains(&pair.1)
    });
    let n = lost.count();
    if n > 0 {
        let s = if n == 1 { "" } else { "s" };
        output::warn(
            &format!(
                "{n} `match` line{s} of the map not found anew: only its pins and forbids bear on a new matching"
            ),
            Some(
                "pin what must stay, or hand the map to `carry --map`, which goes along its lines as they stand",
            ),
        );
    }
}
