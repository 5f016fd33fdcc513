//! `engraft compare`: what two builds of a program did on one input, between the same points.

mod events;
mod fill;
mod gate;
mod matrix;
pub mod parts;
mod record;
mod remarks;
mod times;
mod trees;

use crate::input::names::near;
use crate::input::{self, file_name, open, recorded_image, unreadable};
use crate::output::{self, Answer, Hinted, Output, Rows};
use matching::compare::expression::{Expression, Value};
use matching::compare::{Asked, Builder, By, Code, Comparison, Log, Side, TracedModule, Unsteady, Was};
use matching::{Matching, Options};
use program::{Lines, Metric, Program};
use rayon::prelude::*;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use trace::Trace;
use tracing::info_span;
use views::compare::kept::KeptComparison;
use views::compare::parts::AnchorsView;
use views::compare::tables::{FunctionsView, LoopsView, ModulesView};
use views::compare::{Both, CompareView, EVENTS, FunctionView, RunsView};

/// `--matrix` stands for both programs.
const USAGE: &str = "\
engraft compare [OPTIONS] <OLD> <NEW> [-- <ARGS>...]
       engraft compare [OPTIONS] --matrix <FILE.toml>";

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft compare old.trace new.trace
  $ engraft compare --runs 2 ./old ./faster -- ARGS
  $ engraft compare old.trace new.trace --metric dyn.agg.mem_reads
  $ engraft compare old.trace new.trace --intervals
  $ engraft compare old.trace new.trace --explain main
  $ engraft compare old.trace new.trace -o both.engraft
  $ engraft compare old.trace new.trace --fail-if 'dyn.agg.total > 1.01'";

/// Compare what two builds of a program did on one input: function by function, and between the same points
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, override_usage = USAGE)]
pub struct Args {
    /// The old build: a program, which is run and recorded, or a trace of it that `engraft trace` wrote
    #[arg(required_unless_present = "matrix")]
    old: Option<PathBuf>,
    /// The new build, or a trace of it with the same input
    #[arg(required_unless_present = "matrix")]
    new: Option<PathBuf>,
    /// The arguments of both programs; their output is compared, not shown, and standard input is read once,
    /// for both
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
    /// Compare many builds on many inputs, which this file names
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["old", "new", "args", "setup", "runs", "base"])]
    #[arg(conflicts_with_all = ["old_remarks", "new_remarks", "old_values", "old_samples"])]
    #[arg(conflicts_with = "Shown")]
    matrix: Option<PathBuf>,
    /// What the shell runs before each run of a program: makes its files what they were
    #[arg(long, value_name = "COMMAND")]
    setup: Option<OsString>,
    /// Run each build so often, by turns: what differs between two runs of one build is no difference of the
    /// builds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    runs: u8,
    /// Compare both by way of this build, which is less optimised (a program, or a trace, as they are): what
    /// is the same as the same in it is the same
    #[arg(long, value_name = "BASE", conflicts_with_all = ["anchors", "explain"])]
    base: Option<PathBuf>,
    /// Obey the `pin` and `forbid` lines of a map of both programs that `engraft match -o` wrote
    #[arg(long, value_name = "MAP", hide_short_help = true, conflicts_with_all = ["base", "matrix"])]
    with: Option<PathBuf>,
    /// How events of both runs are paired
    #[arg(long, value_name = "SCHEME", default_value = "alignment", hide_short_help = true)]
    #[arg(conflicts_with_all = ["base", "anchors", "explain"])]
    scheme: Scheme,
    /// What the compiler said when it made the old build, to be put where the builds differ: what gcc
    /// -fopt-info, or -fsave-optimization-record of gcc and clang, wrote
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    old_remarks: Vec<PathBuf>,
    /// The same of the new build
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    new_remarks: Vec<PathBuf>,
    /// What `engraft values --auto` recorded of the old build on the same input: then
    /// `dyn.pmu.MISALIGN_MEM_REF` is how often memory was touched that was not aligned
    #[arg(long, value_name = "REC", hide_short_help = true, requires = "new_values")]
    old_values: Option<PathBuf>,
    /// The same of the new build
    #[arg(long, value_name = "REC", hide_short_help = true, requires = "old_values")]
    new_values: Option<PathBuf>,
    /// What `engraft sample --event` recorded of the old build on the same input: then dyn.pmu. and the name
    /// of each event is a metric
    #[arg(long, value_name = "REC", hide_short_help = true, requires = "new_samples")]
    old_samples: Option<PathBuf>,
    /// The same of the new build
    #[arg(long, value_name = "REC", hide_short_help = true, requires = "old_samples")]
    new_samples: Option<PathBuf>,
    /// What functions are sorted by: `dyn.agg.total` are instructions that ran, `stat.` those of the code
    /// that ran, once; `calls`
    #[arg(long, value_name = "METRIC", default_value = "dyn.agg.total", value_parser = metric)]
    metric: String,
    #[command(flatten)]
    shown: Shown,
    /// Answer no (exit code 1) if this holds, or is not known; NAME is the new build's metric over the old
    /// one's, old.NAME and new.NAME are those of one build, any(function, …) and any(interval, …) ask for
    /// one of them
    #[arg(long, value_name = "EXPR", value_parser = Expression::condition)]
    #[arg(conflicts_with_all = ["explain", "anchors"])]
    fail_if: Option<Expression>,
    /// Keep the comparison in a file, which `engraft show` and `convert` take
    #[arg(short, value_name = "FILE", conflicts_with_all = ["anchors", "explain", "matrix"])]
    o: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    rows: Rows,
}

/// How events of two runs are paired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Scheme {
    /// Activation by activation, from the threads down, the events of each aligned
    Alignment,
    /// By the order in which events come in all of both runs, whoever called what, as Chainsaw has it (2009):
    /// for short runs
    Signatures,
}

/// What is printed, in place of a summary.
#[derive(clap::Args, Debug)]
#[group(multiple = false)]
struct Shown {
    /// Print all functions
    #[arg(long)]
    functions: bool,
    /// Print all loops, of both builds and of one alone
    #[arg(long, hide_short_help = true)]
    loops: bool,
    /// Print what ran of the program and of each library
    #[arg(long, hide_short_help = true)]
    modules: bool,
    /// Print all metrics of this function
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Print all intervals, those with most instructions first
    #[arg(long)]
    intervals: bool,
    /// Print one of the intervals in which the builds differ, with the code of both; 1 differs most
    #[arg(long, value_name = "N")]
    outlier: Option<usize>,
    /// Print all points that are the same, as `engraft query` numbers them
    #[arg(long, hide_short_help = true)]
    anchors: bool,
    /// Print how it was found out what in this function is what
    #[arg(long, value_name = "NAME")]
    explain: Option<String>,
}

fn metric(text: &str) -> Result<String, String> {
    match text.starts_with(EVENTS) || matching::compare::expression::is_known(text) {
        true => Ok(text.to_owned()),
        false => {
            Err("there is no such metric; dyn.agg.total, dyn.agg.mem_reads, dyn.cat.DIV are some".to_owned())
        }
    }
}

/// A trace with its programs.
struct Recorded {
    trace: Trace,
    /// By module: where its functions begin, what it is called, and itself.
    programs: Vec<(trace::FuncId, String, Program)>,
    names: trace::Names,
}

impl Recorded {
    fn read(path: &Path) -> anyhow::Result<Recorded> {
        let trace = open(path)?;
        let names = trace.names().map_err(|err| unreadable(path, err))?;
        let flow = trace.flow().map_err(|err| unreadable(path, err))?;
        if flow.modules.is_empty() {
            let what = format!("{} does not say which program it is of", path.display());
            return Err(Hinted::new(what, "compare what `engraft trace` recorded").into());
        }
        let program = |module: &trace::flow::Module| {
            let image = recorded_image(&module.path, module.key)?;
            let name = file_name(&module.path);
            let program = info_span!("analyze").in_scope(|| Program::analyze(image));
            anyhow::Ok((module.first, name, program))
        };
        let programs = flow.modules.iter().map(program).collect::<Result<_, _>>()?;
        Ok(Recorded { trace, programs, names })
    }

    fn modules(&self) -> Vec<TracedModule<'_>> {
        self.programs
            .iter()
            .map(|(first, name, program)| TracedModule {
                first: *first,
                name: name.clone(),
                program,
                lines: Lines::load(&program.image),
            })
            .collect()
    }

    fn log(&self, path: &Path, code: &Code, has_positions: bool) -> anyhow::Result<Log> {
        let mut builder = Builder::new(code);
        if has_positions {
            builder = builder.with_positions();
        }
        let read = self.trace.read(|thread, symbols| {
            builder.push(thread, symbols);
            ControlFlow::<()>::Continue(())
        });
        read.map_err(|err| unreadable(path, err))?;
        input::warn_of_faults(path, &self.trace);
        Ok(builder.finish())
    }
}

/// The metrics of a function, side by side.
///
/// # Errors
/// If none of this name ran; it says which ones are called alike.
pub fn function(name: &str, view: &CompareView) -> anyhow::Result<FunctionView> {
    if let Some(function) = view.function(name) {
        return Ok(function);
    }
    let alone = view.unmatched.old.iter().chain(&view.unmatched.new).map(|row| row.name.as_str());
    let alike = near(view.functions.iter().map(|row| row.name.as_str()).chain(alone), name);
    let hint = match alike.is_empty() {
        true => "`engraft compare` without --function lists them".to_owned(),
        false => format!("perhaps {}", alike.join(", ")),
    };
    Err(Hinted::new(format!("no function {name} ran in either build"), hint).into())
}

/// Both runs of a build, read.
struct Read<'a> {
    code: Code,
    log: Log,
    modules: Vec<TracedModule<'a>>,
}

impl Read<'_> {
    fn side(&self) -> Side<'_> {
        Side { code: &self.code, log: &self.log, modules: &self.modules }
    }
}

/// Reads recordings, each from its file; with the position of each event, if they are asked for.
fn read<'a>(recorded: &[(&Path, &'a Recorded)], has_positions: bool) -> anyhow::Result<Vec<Read<'a>>> {
    let _span = info_span!("read").entered();
    let read = |(path, of): &(&Path, &'a Recorded)| {
        let modules = of.modules();
        let code = Code::of(&of.names, &modules);
        let log = of.log(path, &code, has_positions)?;
        if log.n_unknown > 0 {
            let what =
                format!("{}: {} blocks are of no function, and left out", path.display(), log.n_unknown);
            output::warn(&what, Some("record the run again: what was read may be damaged"));
        }
        anyhow::Ok(Read { code, log, modules })
    };
    recorded.par_iter().map(read).collect()
}

/// What the new build's code was in the old one, if lines do not say it: the first module's, and that of
/// libraries that are called alike.
fn was(old: &Read<'_>, new: &Read<'_>) -> Was {
    let mut was = Was::default();
    for (n_new, module) in (0..).zip(&new.modules) {
        let is_it = |(n, old): &(u32, &TracedModule<'_>)| {
            (*n == 0) == (n_new == 0) && (n_new == 0 || old.name == module.name)
        };
        let Some((n_old, old)) = (0..).zip(&old.modules).find(is_it) else { continue };
        if old.lines.is_some() && module.lines.is_some() {
            continue;
        }
        if old.program.image.id == module.program.image.id {
            was.add_itself([n_old, n_new], module.program);
            continue;
        }
        let options = Options::default();
        let matching =
            info_span!("match").in_scope(|| Matching::compute(old.program, module.program, &options));
        was.add([n_old, n_new], &matching, old.program, module.program);
    }
    was
}

/// What differs between the runs of a build.
fn unsteady(runs: &[Read<'_>]) -> Unsteady {
    let [first, second, ..] = runs else { return Unsteady::default() };
    let mut was = Was::default();
    (0..).zip(&first.modules).for_each(|(n, module)| was.add_itself([n, n], module.program));
    Unsteady::of(&[first.side(), second.side()], &was)
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if let Some(path) = &args.matrix {
        return matrix::run(args, path);
    }
    let named = [&args.old, &args.new, &args.base];
    let named: Vec<&Path> = named.into_iter().flatten().map(PathBuf::as_path).collect();
    if let Some(to) = &args.o {
        output::refuse_replacing(to, &named)?;
        output::can_be_written(to)?;
    }
    let (programs, others): (Vec<&Path>, Vec<&Path>) =
        named.iter().partition(|path| record::is_program(path));
    if let [program, ..] = programs[..]
        && let Some(other) = others.iter().find(|path| path.exists())
        && program.exists()
    {
        let what = format!("{} is a program, and {} is none", program.display(), other.display());
        return Err(Hinted::new(what, "name programs alone, which are run, or recordings of such").into());
    }
    if args.args.is_empty() && programs.is_empty() {
        if args.setup.is_some() || args.runs > 1 {
            let what = "--setup and --runs are for programs that are run, and these are recordings";
            return Err(Hinted::new(what, "name both programs, and their arguments behind `--`").into());
        }
        let traces: Vec<Vec<PathBuf>> = named.iter().map(|path| vec![path.to_path_buf()]).collect();
        return compare(args, &traces, None);
    }
    output::pause_progress();
    let programs = record::Alike::new(named, &args.args, record::Input::Ours, args.setup.as_deref())?;
    let runs = programs.all(usize::from(args.runs))?;
    output::resume_progress();
    let [[old, ..], [new, ..], ..] = runs.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] else {
        return Ok(Answer::Yes);
    };
    let mut view = record::differences(&[old, new], usize::from(args.runs))?;
    if let [[first, second, ..], [of_new, again, ..], ..] =
        runs.iter().map(Vec::as_slice).collect::<Vec<_>>()[..]
    {
        let of = |a, b| anyhow::Ok(record::again(&record::differences(&[a, b], 2)?));
        view.again = Some(Both { old: of(first, second)?, new: of(of_new, again)? });
    }
    let traces = runs.iter().map(|of| of.iter().map(|run| run.trace.clone()).collect());
    compare(args, &traces.collect::<Vec<Vec<PathBuf>>>(), Some(&view))
}

/// Compares the runs that were recorded of both builds.
fn compare(args: &Args, traces: &[Vec<PathBuf>], runs: Option<&RunsView>) -> anyhow::Result<Answer> {
    let recorded = |paths: &Vec<PathBuf>| paths.iter().map(|path| Recorded::read(path)).collect();
    let recorded: Vec<Vec<Recorded>> = traces.iter().map(recorded).collect::<anyhow::Result<_>>()?;
    let all: Vec<(&Path, &Recorded)> =
        traces.iter().flatten().map(PathBuf::as_path).zip(recorded.iter().flatten()).collect();
    let mut all = read(&all, args.shown.anchors)?;
    let mut next = |n: usize| all.drain(..traces.get(n).map_or(0, Vec::len)).collect::<Vec<Read<'_>>>();
    let [old, new, base] = [0, 1, 2].map(&mut next);
    let [Some(first), Some(second)] = [old.first(), new.first()] else { return Ok(Answer::Yes) };
    let mut was_direct = was(first, second);
    if let (Some(path), [Some(old), Some(new)]) =
        (&args.with, [first, second].map(|of| of.modules.first().map(|module| module.program)))
    {
        was_direct.add_map([0, 0], &input::map(path, old, new)?, old, new);
    }
    let sides = [first.side(), second.side()];
    if let Some(name) = &args.shown.explain {
        let found = info_span!("compare")
            .in_scope(|| matching::compare::explained(&sides, &was_direct, parts::bare_name(&sides, name)));
        args.output.print(&parts::explained(&sides, name, &found)?)?;
        return Ok(answer(runs));
    }
    let events = events::read(args, &sides)?;
    let unsteady = info_span!("compare").in_scope(|| [unsteady(&old), unsteady(&new)]);
    let found = info_span!("compare").in_scope(|| -> anyhow::Result<Comparison> {
        let by = match events.get(&args.metric) {
            Some(weights) => By::Weights(weights.clone()),
            None => By::Metric(told_by(args)),
        };
        let asked = Asked { unsteady: &unsteady, by, wants_mixes: args.fail_if.is_some() };
        match base.first() {
            None => by_scheme(args.scheme, &sides, &was_direct, &asked),
            Some(base) => {
                let by = [was(base, first), was(base, second)];
                Ok(Comparison::through(base.side(), &sides, [&by[0], &by[1], &was_direct], &asked))
            }
        }
    })?;
    let events = events::sums(&sides, &events);
    let runs = runs.map(|runs| with_totals(runs, &unsteady));
    let runs = runs.as_ref();
    let mut view = fill::view(args, runs, (&sides, &unsteady), &found, &events);
    warn_of_strangers(&view);
    let said = remarks(args)?;
    for (row, of) in view.outliers.iter_mut().zip(&found.outliers) {
        row.remarks = remarks::of_outlier(&sides, of, &said);
    }
    if args.shown.anchors {
        let found = info_span!("anchors").in_scope(|| matching::compare::anchors(&sides, &was_direct));
        view.anchors = Some(parts::anchors(&found));
    }
    print(args, (&sides, &events), &found, &view)?;
    // By chance is not because of the builds: it fails in both runs of these, if there are two.
    let looked = || gate::Looked::new(&view, (&sides, &unsteady), &found, &events);
    let holds_again = || looked().of_second_runs(&view).is_none_or(|second| holds(args, &second));
    let fails = args.fail_if.is_some() && holds_again() && fails(args, &looked());
    let answer = if fails { Answer::No } else { answer(runs) };
    if let Some(to) = &args.o {
        let kept = parts::kept(&sides, &found, &events, view);
        let runs =
            [0, 1].map(|n: usize| Some((traces.get(n)?.first()?.as_path(), recorded.get(n)?.first()?)));
        let (mut trees, mut times) = (None, None);
        if let [Some(old), Some(new)] = runs {
            trees = trees::trees([old, new], &sides, &found)?;
            times = Some(times::times([old, new], &sides, &found)?);
        }
        input::write_comparison(to, &KeptComparison { trees, times, ..kept })?;
    }
    Ok(answer)
}

/// With what ran in second runs, if there were any.
fn with_totals(runs: &RunsView, unsteady: &[Unsteady; 2]) -> RunsView {
    let mut runs = runs.clone();
    if let (Some(again), [Some(old), Some(new)]) = (&mut runs.again, unsteady.each_ref().map(Unsteady::total))
    {
        (again.old.totals, again.new.totals) = (fill::of_run(old), fill::of_run(new));
    }
    runs
}

/// Two runs compared in the way that is asked for.
fn by_scheme(
    scheme: Scheme,
    sides: &[Side<'_>; 2],
    was: &Was,
    asked: &Asked<'_>,
) -> anyhow::Result<Comparison> {
    match scheme {
        Scheme::Alignment => Ok(Comparison::compute(sides, was, asked)),
        Scheme::Signatures => Comparison::by_signatures(sides, was, asked)
            .map_err(|err| Hinted::new(err.to_string(), err.hint()).into()),
    }
}

/// The metric that outliers are told by: instructions, unless another one of what ran is asked for.
fn told_by(args: &Args) -> Metric {
    let name = args.metric.strip_prefix("dyn.").unwrap_or_default();
    Metric::ALL.iter().copied().find(|metric| metric.name() == name).unwrap_or(Metric::Total)
}

/// What compilers said of both builds.
fn remarks(args: &Args) -> anyhow::Result<[Vec<remarks::Remark>; 2]> {
    let read = |paths: &[PathBuf]| -> anyhow::Result<Vec<remarks::Remark>> {
        let all: Vec<_> = paths.iter().map(|path| remarks::read(path)).collect::<anyhow::Result<_>>()?;
        Ok(all.into_iter().flatten().collect())
    };
    Ok([read(&args.old_remarks)?, read(&args.new_remarks)?])
}

/// Whether `--fail-if` holds, or is not known.
fn holds(args: &Args, metrics: &gate::Looked) -> bool {
    args.fail_if.as_ref().is_some_and(|of| of.value(metrics) != Value::Truth(false))
}

/// Whether `--fail-if` holds, or is not known; it is said why.
fn fails(args: &Args, metrics: &gate::Looked) -> bool {
    let Some(expression) = &args.fail_if else { return false };
    let (how, hint) = match expression.value(metrics) {
        Value::Truth(false) => return false,
        Value::Truth(true) | Value::Number(_) => ("holds", None),
        Value::Unknown => (
            "is not known",
            Some(
                "something was divided by 0, did not run, or was not recorded: `old.NAME` and `new.NAME` are those of one build",
            ),
        ),
    };
    let because = expression.because(metrics).join("; ");
    output::warn(&format!("--fail-if {:?} {how}: {because}", expression.text()), hint);
    true
}

/// Says so if next to nothing of two runs is the same.
fn warn_of_strangers(view: &CompareView) {
    /// The share of events that any two builds of a program have in common.
    const FEW: f64 = 0.1;
    let light = &view.matched.light;
    if light.smaller > 0 && views::ratio(light.matched, light.smaller) < FEW {
        let Both { old, new } = &view.traces;
        let what = format!("hardly anything that {old} and {new} did is the same");
        output::warn(&what, Some("compare builds of one program, on the same input; symbols or lines help"));
    }
}

/// Whether both programs did the same, as far as others can see.
fn answer(runs: Option<&RunsView>) -> Answer {
    if runs.is_none_or(RunsView::are_alike) { Answer::Yes } else { Answer::No }
}

/// All functions of a comparison.
pub fn functions(view: &CompareView) -> FunctionsView<'_> {
    FunctionsView {
        schema: FunctionsView::SCHEMA,
        functions: &view.functions,
        unmatched: &view.unmatched,
        metric: &view.metric,
    }
}

/// Prints what is asked for of a comparison.
fn print(
    args: &Args,
    (sides, events): (&[Side<'_>; 2], &fill::Sums),
    found: &Comparison,
    view: &CompareView,
) -> anyhow::Result<()> {
    let shown = &args.shown;
    if let Some(anchors) = view.anchors.as_ref().filter(|_| args.output.format() != output::Format::Json) {
        return args.output.print(&AnchorsView { anchors });
    }
    if shown.intervals {
        return args.output.print(&parts::intervals(sides, found));
    }
    if let Some(n) = shown.outlier {
        return args.output.print(&parts::one(sides, found, view, n)?);
    }
    if shown.functions {
        return args.output.print(&functions(view));
    }
    let metric = args.metric.clone();
    if shown.loops {
        let loops = fill::loops(sides, found);
        return args.output.print(&LoopsView { schema: LoopsView::SCHEMA, loops, metric });
    }
    if shown.modules {
        let modules = fill::modules(sides, found, events);
        return args.output.print(&ModulesView { schema: ModulesView::SCHEMA, modules, metric });
    }
    match &shown.function {
        None => args.output.print(view),
        Some(name) => args.output.print(&function(name, view)?),
    }
}
