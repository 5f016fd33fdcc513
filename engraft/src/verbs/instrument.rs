//! `engraft instrument`: the same program with its code moved, as a file.

use crate::input;
use crate::output::{self, Answer, Hinted, Output};
use measure::Placement;
use measure::plan_text::Points;
use probe::{Module, NotMoved, Old, Tactic};
use session::InstrumentError;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tracing::info_span;
use views::instrument::{InstrumentView, NotMovedView};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft instrument old -o counted
  $ engraft instrument old -o poisoned --null --poison
  $ engraft instrument old -o watched --plan points.plan";

/// Write a program that counts its blocks by itself
///
/// It records to the file that `$ENGRAFT_OUT` names, else to PROGRAM.engraft in the folder it is started in,
/// PROGRAM being the name of BINARY. All runs and processes with the same file add up there, also those that
/// run at the same time.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The executable or shared object
    binary: PathBuf,
    /// Where to write it; `-` is standard output
    #[arg(short, value_name = "OUT")]
    o: PathBuf,
    /// Move the code and add nothing
    #[arg(long)]
    null: bool,
    /// Fill the old code with traps: the proof that nothing reaches it
    #[arg(long)]
    poison: bool,
    /// Count every block by itself, in place of as few blocks and edges as the rest follows from
    #[arg(long, conflicts_with_all = ["null", "plan"])]
    all_blocks: bool,
    /// Count where indirect calls lead, too
    #[arg(long, conflicts_with = "null")]
    callees: bool,
    /// Put in what FILE says in place of counters: a line a probe, such as `entry main count`; see `engraft
    /// help instrument`
    #[arg(long, value_name = "FILE", conflicts_with = "null")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let read: Vec<&Path> = args.plan.iter().chain([&args.binary]).map(PathBuf::as_path).collect();
    output::refuse_overwriting(&args.o, &read)?;
    let program = input::program(&args.binary)?;
    session::refuse_known_by_address(&program.image)?;
    if !args.null {
        session::refuse_sanitized(&program.image)?;
    }
    session::changes_code(&program.image).iter().for_each(output::warned);
    let mut points = match &args.plan {
        Some(path) => input::points(path, &program)?,
        None if args.null => Points::default(),
        None => {
            let placement = if args.all_blocks { Placement::Blocks } else { Placement::Edges };
            Points { plan: placement.plan(&program), ..Points::default() }
        }
    };
    for at in &points.unsure {
        let what = format!("the resolver at {at} may return functions besides those that were found");
        output::warn(&what, Some("name others by their addresses"));
    }
    points.plan.indirect_calls = args.callees;
    let built = info_span!("rewrite").in_scope(|| session::instrument(&program, &args.binary, &points));
    let module = built.map_err(|err| match (err, &args.plan) {
        (err @ InstrumentError::Plan { .. }, Some(path)) => {
            let message = format!("cannot use {}: {err}", path.display());
            Hinted::new(message, output::of_instrument(&err).unwrap_or_default()).into()
        }
        (err, _) => anyhow::Error::from(err),
    })?;
    if !points.plan.is_null() && module.words.n == 0 {
        let what = format!("{} will record nothing: no function of it can be moved", args.o.display());
        output::warn(&what, Some(output::WHY_NOT_MOVED));
    }
    let bytes = module.to_file(if args.poison { Old::Poisoned } else { Old::Kept })?;
    if output::is_standard_output(&args.o) {
        output::data(None, |w| w.write_all(&bytes))?;
        args.output.print_beside_file(&args.o, &view(&args.o, &module, bytes.len()))?;
        return Ok(Answer::Yes);
    }
    output::file(&args.o, |w| w.write_all(&bytes))?;
    let mode = std::fs::metadata(&args.binary)?.permissions().mode();
    // Devices are everybody's, and so is where others write, too.
    if output::is_own_file(&args.o) {
        std::fs::set_permissions(&args.o, std::fs::Permissions::from_mode(mode & 0o777))?;
    }
    args.output.print_beside_file(&args.o, &view(&args.o, &module, bytes.len()))?;
    Ok(Answer::Yes)
}

fn view(to: &Path, module: &Module<'_>, len_bytes: usize) -> InstrumentView {
    let program = module.program;
    let mut stays: BTreeMap<NotMoved, NotMovedView> = BTreeMap::new();
    for (function, why) in program.functions.iter().zip(&module.not_moved) {
        let Some(why) = *why else { continue };
        let row = stays.entry(why).or_insert_with(|| NotMovedView {
            why: why.to_string(),
            n_functions: 0,
            examples: Vec::new(),
            at: Vec::new(),
        });
        row.n_functions += 1;
        row.at.push(function.entry.0);
        if row.examples.len() < 3 {
            row.examples.push(function.name());
        }
    }
    let mut springboards = BTreeMap::new();
    for board in &module.springboards {
        let tactic = match board.tactic {
            Tactic::Long => "long jump",
            Tactic::Hop(_) => "short jump to a long one",
            Tactic::Over => "long jump over blocks",
        };
        *springboards.entry(tactic).or_insert(0) += 1;
    }
    InstrumentView {
        schema: InstrumentView::SCHEMA,
        file: to.display().to_string(),
        len_bytes,
        old_len_bytes: program.image.file_bytes().len(),
        n_functions: program.functions.len(),
        n_moved: module.not_moved.iter().filter(|s| s.is_none()).count(),
        stays: stays.into_values().collect(),
        springboards,
    }
}
