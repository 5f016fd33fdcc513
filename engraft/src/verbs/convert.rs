//! `engraft convert`: profiles from one format to another; several of one build become their sum. Traces:
//! `traces`. Comparisons: `comparisons`.

mod branches;
mod calls;
mod comparisons;
pub mod exports;
mod recordings;
mod samples;
mod stores;
pub mod traces;
mod values;

use crate::input::{self, Source};
use crate::output::{self, Answer, Hinted, Output};
use crate::verbs::carry::written_view;
use crate::verbs::query;
use anyhow::Context as _;
use profile::Profile;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use traces::Target;
use tracing::info_span;
use views::convert::{ConvertView, InputView, LostView};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft convert old.callgrind -o old.fdata --binary old
  $ engraft convert old.callgrind old.callgrind -o twice.engraft --binary old
  $ engraft convert run.trc -o run.trace --meta run.meta
  $ engraft convert run.trace -o run.folded
  $ engraft convert run.trace -o run.svg
  $ engraft convert run.trace -o run.trace.json --depth 20
  $ engraft convert both.engraft -o both.csv";

/// Convert profiles to another format; several inputs are added up. Pack a plain trace, or unpack it again;
/// draw one with other tools
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Profiles of one build, in any format that can be read; or a trace: plain (`.trc`, `-` for standard
    /// input), ours, or branches that perf prints; or a comparison
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// Where to write; the extension says the format
    #[arg(short, value_name = "FILE")]
    o: PathBuf,
    /// The build that was profiled; formats that speak of names or lines need it
    #[arg(long, value_name = "BIN")]
    binary: Option<PathBuf>,
    /// The profiles are of this program, which llvm-bolt made of BIN with --enable-bat: translate them back
    #[arg(long, value_name = "BOLTED", requires = "binary")]
    bolted: Option<PathBuf>,
    /// Write in this format, whatever the extension; `chrome` is for traces, and `trace`, which makes of one
    /// of ours a plain one
    #[arg(long, value_name = "FORMAT", value_parser = traces::target_named)]
    to: Option<Target>,
    /// Of a trace, or a recording that keeps threads apart (`count --per-thread`), take only this thread,
    /// counted from 1
    #[arg(long, value_name = "N", value_parser = input::from_one)]
    thread: Option<NonZeroUsize>,
    /// Of a plain trace: names of its functions and blocks, lines `FUNCTION BLOCK 0xADDRESS NAME FILE:LINE`
    #[arg(long, value_name = "FILE")]
    meta: Option<PathBuf>,
    /// How to keep a trace, in several ways if need be [default of X.trace: packed]
    #[arg(long, value_enum, value_name = "STORE", value_delimiter = ',')]
    store: Vec<stores::Store>,
    /// Of what perf prints of branches: the files whose code is traced, `all` (without libc and ld.so) or
    /// file names, `*` standing for anything [default: all, with --binary that alone]
    #[arg(long, value_name = "WHICH", num_args = 1.., value_delimiter = ',')]
    modules: Vec<String>,
    /// Of a trace, as folded stacks, flame graph or slices: the symbols from I on, before J
    #[arg(long, value_name = "I..J")]
    at: Option<query::positions::RangeArg>,
    /// Of a trace, as folded stacks, flame graph or slices: so many calls deep; deeper ones count for the
    /// function at that depth, or are left out
    #[arg(long, value_name = "N", value_parser = input::from_one)]
    depth: Option<NonZeroUsize>,
    /// Of a trace, as folded stacks or flame graph: what they count [default: blocks; of a flame graph
    /// instructions, where the trace knows its programs]
    #[arg(long, value_enum, value_name = "WHAT")]
    weight: Option<exports::Weight>,
    /// Of a recording of `values --full`: the functions whose calls are rows [default: all]
    #[arg(long, value_name = "NAME")]
    function: Vec<String>,
    /// The same: write floating-point numbers as their bits, hexadecimal
    #[arg(long)]
    bits: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if let Some(answer) = comparisons::convert(args)? {
        return Ok(answer);
    }
    if let Some(answer) = calls::convert(args)? {
        return Ok(answer);
    }
    if let Some(answer) = values::convert(args)? {
        return Ok(answer);
    }
    if let Some(what) = traces::conversion(args)? {
        return traces::run(args, what);
    }
    let format = match traces::target(args) {
        Some(Target::Profile(format)) => format,
        Some(Target::Chrome | Target::Trace) => return Err(traces::not_a_trace(args)),
        None => return Err(traces::without_format(args)),
    };
    let read = args.inputs.iter().chain(&args.binary).map(PathBuf::as_path);
    output::refuse_replacing(&args.o, &read.collect::<Vec<_>>())?;
    let mut sources = args.inputs.iter().map(|path| Source::read(path)).collect::<Result<Vec<_>, _>>()?;
    if args.binary.is_none()
        && let Some(answer) = samples::convert(args, &sources, format)?
    {
        return Ok(answer);
    }
    if args.binary.is_none()
        && let Some(answer) = recordings::convert(args, &sources, format)?
    {
        return Ok(answer);
    }
    let program = match &args.binary {
        Some(binary) => Some(input::program(binary)?),
        None => recordings::only_program(&sources, format)?,
    };
    sources.reverse();
    let bolted = args.bolted.as_deref().map(input::program).transpose()?;
    let mut inputs = Vec::new();
    let mut sum: Option<Profile> = None;
    for path in &args.inputs {
        let span = info_span!("read").entered();
        let Some(source) = sources.pop() else { break };
        let mut read = match (&bolted, &program) {
            (Some(bolted), Some(original)) => source.bolted_profile(bolted, original)?,
            _ => source.profile(program.as_ref())?,
        };
        drop(span);
        if let Some(n) = args.thread {
            let of_thread = source.thread(n)?;
            let same = of_thread.into_iter().find(|p| p.image.id == read.profile.image.id);
            read.profile = same.with_context(|| format!("{} has no such image", path.display()))?;
        }
        let n_functions = profile::n_functions(&read.profile, program.as_ref());
        let lost =
            read.lost.iter().map(|l| LostView { what: l.what.clone(), why: l.why.clone(), count: l.count });
        let view = input_view(&path.display().to_string(), read.format, n_functions, &read.profile);
        inputs.push(InputView { lost: lost.collect(), ..read_from(view, &source) });
        match &mut sum {
            None => sum = Some(read.profile),
            Some(sum) => {
                same_build(sum, &read.profile, &args.inputs)?;
                sum.add(&read.profile);
            }
        }
    }
    let written = output::write_profile(&args.o, Some(format), &sum.unwrap_or_default(), program.as_ref())?;
    let view = ConvertView { schema: ConvertView::SCHEMA, inputs, written: written_view(&args.o, &written) };
    args.output.print_beside_file(&args.o, &view)?;
    Ok(Answer::Yes)
}

/// Counts of two builds cannot be added up.
fn same_build(sum: &Profile, next: &Profile, inputs: &[PathBuf]) -> anyhow::Result<()> {
    let (a, b) = (&sum.image, &next.image);
    let differ = |x: bool, y: bool, equal: bool| x && y && !equal;
    if differ(a.id.is_some(), b.id.is_some(), a.id == b.id)
        || differ(a.build_id.is_some(), b.build_id.is_some(), a.build_id == b.build_id)
    {
        let name = |image: &profile::ImageRef| match image.id {
            Some(id) => format!("{} ({id})", image.name),
            None => image.name.clone(),
        };
        let first = inputs.first().map_or_else(String::new, |path| path.display().to_string());
        return Err(Hinted::new(
            format!("the profiles are of two builds: {} and {}", name(a), name(b)),
            format!("carry the older one to the newer build first, then add them up; {first} sets the build"),
        )
        .into());
    }
    Ok(())
}

/// What `profile`, read from `file`, holds.
fn input_view(
    file: &str,
    format: profile::Format,
    n_functions: Option<usize>,
    profile: &Profile,
) -> InputView {
    InputView {
        file: file.to_owned(),
        format: format.name(),
        n_functions,
        n_blocks: profile.blocks.len(),
        n_edges: Some(profile.edges.len()),
        n_calls: Some(profile.calls.len()),
        lost: Vec::new(),
    }
}

/// The same of what is in `input`: a trace says nothing of edges and calls by themselves.
fn read_from(view: InputView, input: &Source) -> InputView {
    if !input.is_trace() {
        return view;
    }
    InputView { format: "trace", n_edges: None, n_calls: None, ..view }
}
