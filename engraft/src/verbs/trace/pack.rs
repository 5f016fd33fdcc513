//! `engraft trace pack`: of what was recorded, one file that is smaller, and searched without being unpacked.

use crate::input;
use crate::output::{self, Answer, Hinted, Output};
use crate::verbs::convert::traces::repack;
use std::path::{Path, PathBuf};
use trace::{Maker, Stores};
use views::convert::TraceView;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft trace pack -q run.trace -o packed.trace
  $ engraft trace pack --archive run.trace -o archive.trace";

/// Make of a trace one file that is smaller, and searched without being unpacked
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// A trace: what `engraft trace` or `engraft convert` wrote
    trace: PathBuf,
    /// Where to write it; without, in the trace's place
    #[arg(short, value_name = "FILE")]
    o: Option<PathBuf>,
    /// Make the grammar by RePair, not SEQUITUR: the smallest file, but slow, and in memory
    #[arg(long)]
    archive: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let to = args.o.as_ref().unwrap_or(&args.trace);
    if args.o.is_none() && args.trace == Path::new("-") {
        let what = "standard input has no place that the packed trace could take";
        return Err(Hinted::new(what, "say where to write it, with -o").into());
    }
    if args.o.is_some() {
        output::refuse_replacing(to, &[&args.trace])?;
    }
    if args.o.is_none() {
        let trace = input::open(&args.trace)?;
        let how = match trace.cut() {
            Some(_) if trace.is_damaged() => "is damaged",
            Some(_) => "is not whole: it is being recorded, or was cut off",
            None if trace.n_behind() > 0 => "has bytes behind its end",
            None => "",
        };
        if !how.is_empty() {
            let what = format!("{} {how}", args.trace.display());
            return Err(
                Hinted::new(what, "name another file with -o: what can be read is packed into that").into()
            );
        }
    }
    let maker = if args.archive { Maker::Repair } else { Maker::Sequitur };
    let wrote = file(&args.trace, to, maker)?;
    args.output.print_beside_file(to, &wrote)?;
    Ok(Answer::Yes)
}

/// Packs the trace at `from`; `to` may be the same.
pub fn file(from: &Path, to: &Path, maker: Maker) -> anyhow::Result<TraceView> {
    let _span = tracing::info_span!("pack").entered();
    let trace = input::open(from)?;
    repack(from, to, &trace, Stores { grammar: Some(maker), chunks: None })
}
