//! `engraft show`: what a binary is, as far as it was understood.

mod cfg;
mod function;
mod lists;
mod loops;
mod summary;
mod verify;

use crate::input;
use crate::out::{self, Answer, Hinted};
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
    /// For `function`: which registers and flags are alive at each block's start
    #[arg(long)]
    liveness: bool,
    /// For `function`: draw it, as an SVG picture
    #[arg(long, conflicts_with_all = ["dot", "verify", "json", "format"])]
    svg: bool,
    /// For `function`: draw it, as a graph for Graphviz
    #[arg(long, conflicts_with_all = ["verify", "json", "format"])]
    dot: bool,
    /// For `function`: with the counts of a profile of this binary
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    profile: Option<PathBuf>,
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
    /// Every loop: header, depth, back edges, exits
    Loops,
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
    if args.what != Some(What::Function) && (args.svg || args.dot || args.liveness || args.profile.is_some())
    {
        let hint = "say `show BINARY function NAME` with it";
        return Err(Hinted::new("--svg, --dot, --liveness and --profile show one function", hint).into());
    }
    if let Some(to) = &args.o {
        let read = [&args.binary].into_iter().chain(&args.profile);
        out::spares(to, &read.map(PathBuf::as_path).collect::<Vec<_>>())?;
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
        Some(What::Loops) => args.output.print_to(to, &loops::view(&program))?,
        Some(What::Tables) => args.output.print_to(to, &lists::tables(&program))?,
        Some(What::Gaps) => args.output.print_to(to, &lists::gaps(&program))?,
        Some(What::Data) => args.output.print_to(to, &lists::data(&program))?,
        Some(What::Cfg) => args.output.print_to(to, &cfg::view(&program, args.instructions))?,
        Some(What::Function) => {
            let name = args.name.as_deref().unwrap_or_default();
            let id = input::function(&program, name)?;
            let counts = match &args.profile {
                Some(path) => Some(input::profile(path, Some(&program))?.profile),
                None => None,
            };
            if args.svg || args.dot {
                let picture = function::picture(&program, id, args.svg, counts.as_ref());
                out::data(to.map(PathBuf::as_path), |w| w.write_all(picture.as_bytes()))?;
            } else {
                let view = function::view(&program, id, args.liveness, counts.as_ref());
                args.output.print_to(to, &view)?;
            }
        }
    }
    Ok(Answer::Yes)
}
