//! `engraft show`: what a binary is, as far as it was understood.

mod cfg;
mod function;
mod lists;
mod summary;
mod verify;

use crate::input;
use crate::out::{Answer, Hinted};
use crate::view::Output;
use std::path::PathBuf;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft show old
  $ engraft show old function main";

/// Show what a binary is: functions, blocks, loops, tables, data, gaps
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// x86-64 executable or shared object
    binary: PathBuf,
    /// What to show of it [default: a summary]
    #[arg(value_enum)]
    what: Option<What>,
    /// For `function`: its name, an address in it, or its number (fn3)
    #[arg(required_if_eq("what", "function"))]
    name: Option<String>,
    /// Check everything that the analysis promises, in place of showing it
    #[arg(long, conflicts_with = "what")]
    verify: bool,
    /// For `cfg`: list the instructions too
    #[arg(long)]
    instructions: bool,
    #[command(flatten)]
    output: Output,
    /// Write to a file
    #[arg(short, value_name = "FILE")]
    o: Option<PathBuf>,
}

/// What can be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum What {
    /// Every function: address, size, blocks, how it was found
    Functions,
    /// Every jump table with its targets
    Tables,
    /// Every piece of code that was not understood, and why
    Gaps,
    /// Every data object
    Data,
    /// One function: its blocks with instructions and edges
    Function,
    /// Starts of functions and blocks, and tables, for other tools
    Cfg,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if args.name.is_some() && args.what != Some(What::Function) {
        return Err(Hinted::new(
            "a name was given, but no function asked for",
            "say `show BINARY function NAME`",
        )
        .into());
    }
    let program = input::program(&args.binary)?;
    let to = args.o.as_ref();
    if args.verify {
        let view = verify::view(&program);
        args.output.print_to(to, &view)?;
        return Ok(view.answer());
    }
    match args.what {
        None => args.output.print_to(to, &summary::view(&program))?,
        Some(What::Functions) => args.output.print_to(to, &lists::functions(&program))?,
        Some(What::Tables) => args.output.print_to(to, &lists::tables(&program))?,
        Some(What::Gaps) => args.output.print_to(to, &lists::gaps(&program))?,
        Some(What::Data) => args.output.print_to(to, &lists::data(&program))?,
        Some(What::Cfg) => args.output.print_to(to, &cfg::view(&program, args.instructions))?,
        Some(What::Function) => {
            let name = args.name.as_deref().unwrap_or_default();
            let id = input::function(&program, name)?;
            args.output.print_to(to, &function::view(&program, id))?;
        }
    }
    Ok(Answer::Yes)
}
