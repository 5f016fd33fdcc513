//! `engraft match`: which function, block and data object of one build became which of the next.

mod explain;
mod report;

use crate::input;
use crate::out::Answer;
use crate::view::{Format, Output};
use matching::{Matching, Options, Pass};
use std::path::PathBuf;
use tracing::info_span;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft match old new
  $ engraft match old new --explain add";

/// Find which function and block of OLD became which of NEW
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
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
    /// List every function that has no counterpart, not only the first ones
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let (old, new) = input::pair(&args.old, &args.new)?;
    let options = args.without.iter().fold(Options::all(), |options, &pass| options.without(pass));
    let matching = info_span!("match").in_scope(|| Matching::compute(&old, &new, &options));
    if let Some(what) = &args.explain {
        let view = explain::view(&old, &new, &matching, what)?;
        args.output.print(&view)?;
        return Ok(Answer::Yes);
    }
    let full = args.all || args.output.format() != Format::Table;
    args.output.print(&report::view(&old, &new, &matching, full))?;
    Ok(if matching.functions.is_empty() { Answer::No } else { Answer::Yes })
}
