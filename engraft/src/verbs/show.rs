//! `engraft show`: what a binary is, as far as it was understood.

mod by;
mod cfg;
mod comparison;
mod costs;
mod counts;
mod function;
mod lists;
mod loops;
pub mod plot;
mod process;
mod reuse;
mod samples;
mod summary;
pub mod time;
pub mod trees;
mod verify;

use crate::input::{self, Source};
use crate::output::{self, Answer, Hinted, Output};
use crate::verbs::convert::exports;
use crate::verbs::sample::recorded::Recorded;
use crate::verbs::{count, values};
use anyhow::Context as _;
use profile::Profile;
use profile::recording::Module;
use program::{FuncId, Program};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use viewer::{Drawing, FlowGraph};
use views::count::CountView;
use views::show::function::FunctionView;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft show old
  $ engraft show old function main
  $ engraft show --counts old.engraft function main
  $ engraft show both.engraft intervals
  $ engraft show -p $(pidof server)";

/// Show what a binary is: functions, blocks, loops, tables, data, gaps
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// x86-64 executable or shared object, a recording, or a comparison [default: the newest recording here;
    /// with --counts, the counted one that has the function]
    binary: Option<PathBuf>,
    /// What to show of it: functions, loops, tables, gaps, data, function, cfg; of a recording: functions,
    /// tree, callers, time, loops, edges, never, calls, paths, reuse, function; of a comparison: functions,
    /// function, intervals, outlier, tree, time [default: a summary]
    #[arg(hide_possible_values = true)]
    what: Option<String>,
    /// For `function`, `tree` and `callers`: its name; for `function` also an address in it, or its number
    /// (fn3); for `outlier`: its number
    name: Option<String>,
    /// Show the modules of a process that runs, with `function ADDRESS` one function of it, with functions,
    /// loops, tables, gaps, data or cfg those of a module; it is not stopped
    #[arg(short, long = "pid", value_name = "PID", allow_negative_numbers = true)]
    #[arg(conflicts_with_all = ["verify", "profile", "counts", "flame", "plot", "by"])]
    pid: Option<i32>,
    /// With -p: as the process has it in memory, also where the file is there
    #[arg(long, requires = "pid")]
    memory: bool,
    /// Check everything that the analysis promises, in place of showing it
    #[arg(long, conflicts_with = "what")]
    verify: bool,
    /// For `function`: which registers and flags are alive at each block's start
    #[arg(long)]
    liveness: bool,
    /// For `function`: draw it, as an SVG picture
    #[arg(long, conflicts_with_all = ["dot", "verify", "json", "format"])]
    svg: bool,
    /// With --svg: draw blocks that ran one after the other, equally often, as one; and those that never ran
    #[arg(long, requires = "svg", hide_short_help = true)]
    folded: bool,
    /// For `function`: draw it, as a graph for Graphviz
    #[arg(long, conflicts_with_all = ["verify", "json", "format"])]
    dot: bool,
    /// Of a recording: draw a flame graph of it, as an SVG picture
    #[arg(long, conflicts_with_all = ["what", "verify", "json", "format", "profile"])]
    flame: bool,
    /// Of a recording of `values --full`: draw the values of a function's arguments and result by call, and
    /// how soon the same arguments come again, as an SVG picture
    #[arg(long, value_name = "FUNCTION")]
    #[arg(conflicts_with_all = ["what", "verify", "json", "format", "profile", "flame", "by"])]
    plot: Option<String>,
    /// Of a recording: by what its instructions are summed up [default: function]; of one of `values --full`:
    /// whose calls are put together
    #[arg(long, value_name = "KEY", conflicts_with_all = ["what", "verify", "flame", "profile"])]
    by: Option<by::Key>,
    /// For `tree`: each function with its callers below it
    #[arg(long, hide_short_help = true)]
    inverted: bool,
    /// For `time`: from A on, before B, in what ran before
    #[arg(long, value_name = "A..B", hide_short_help = true)]
    between: Option<time::Between>,
    /// For `time`: the Nth thread of the trace [default: the one that did most]
    #[arg(long, value_name = "N", hide_short_help = true)]
    thread: Option<NonZeroUsize>,
    /// With the counts of a profile of this binary: of a function, or loops, edges, never, calls, paths
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    profile: Option<PathBuf>,
    /// The same with those of a recording of `engraft count`; alone: what the recording holds
    #[arg(long, value_name = "REC", conflicts_with_all = ["verify", "profile"])]
    counts: Option<PathBuf>,
    /// For `cfg`: list the instructions too
    #[arg(long)]
    instructions: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    rows: output::Rows,
    /// Write to a file
    #[arg(short, value_name = "FILE")]
    o: Option<PathBuf>,
}

/// What can be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Subject {
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
    /// Edges of blocks that ran, with counts
    Edges,
    /// Edges of blocks that ran which were never taken
    Never,
    /// Who called whom, and how often
    Calls,
    /// The hottest path of each loop and function
    Paths,
    /// The tree of calls, with what each cost
    Tree,
    /// Who calls a function, and what these calls cost
    Callers,
    /// When calls come again with the same arguments
    Reuse,
    /// What ran when, window by window
    Time,
}

impl Subject {
    /// Whether it is of counts: of all modules of a recording, unless a binary is named.
    fn is_of_counts(self) -> bool {
        matches!(self, Subject::Edges | Subject::Never | Subject::Calls | Subject::Paths)
    }

    /// Whether nothing but recordings tells of it.
    fn is_of_recordings(self) -> bool {
        matches!(self, Subject::Tree | Subject::Callers | Subject::Reuse | Subject::Time)
    }

    /// Whether it is of what calls cost, in a recording.
    fn is_of_costs(self) -> bool {
        matches!(self, Subject::Functions | Subject::Tree | Subject::Callers | Subject::Time)
    }
}

/// What is asked for: of which binary, what, which function.
struct Request<'a> {
    binary: Option<&'a Path>,
    what: Option<Subject>,
    name: Option<&'a str>,
    counts: Option<&'a Path>,
}

impl Args {
    /// With the newest recording here where nothing is named to look at.
    fn with_newest(mut self) -> anyhow::Result<Args> {
        let is_subject = |path: &PathBuf| {
            let word = path.to_str().unwrap_or_default();
            <Subject as clap::ValueEnum>::from_str(word, false).is_ok() && !path.exists()
        };
        if self.counts.is_some() {
            return Ok(self);
        }
        let first = self.binary.take_if(|path| is_subject(path));
        if self.binary.is_some() {
            return Ok(self);
        }
        if self.verify || self.profile.is_some() {
            return Err(Hinted::new("no binary is named", "say `show BINARY` with it").into());
        }
        if let (Some(word), what) = (first, self.what.take()) {
            if let Some(more) = &self.name {
                let hint = "say `show function NAME`, or `show REC function NAME`";
                return Err(Hinted::new(format!("{more:?} is one word too many"), hint).into());
            }
            (self.what, self.name) = (word.into_os_string().into_string().ok(), what);
        }
        self.binary = Some(input::the_newest()?);
        Ok(self)
    }

    /// Reads the words: with `--counts` the binary may be left out.
    fn request(&self) -> anyhow::Result<Request<'_>> {
        let what = |word: &str| {
            <Subject as clap::ValueEnum>::from_str(word, false).map_err(|_| {
                let hint = "there are functions, loops, tables, gaps, data, function NAME, cfg\nof recordings: functions, tree, loops, edges, never, calls, paths, reuse, function NAME; callers NAME";
                Hinted::new(format!("there is no {word:?} to show"), hint)
            })
        };
        let first = self.binary.as_deref();
        let has_counts = |path: &Path| input::is_recording(path) || input::is_trace(path);
        let is_recording = |path: &&Path| self.counts.is_none() && has_counts(path);
        if let Some(rec) = first.filter(is_recording) {
            if self.verify || self.profile.is_some() {
                let what = format!("{} is a recording, not a binary", rec.display());
                return Err(Hinted::new(what, "name the binary that was counted").into());
            }
            let (word, name) = (self.what.as_deref(), self.name.as_deref());
            let what = word.map(what).transpose()?;
            let is_asked_for = match what {
                None => true,
                Some(Subject::Function | Subject::Callers) => name.is_some(),
                Some(Subject::Tree | Subject::Reuse) => true,
                Some(Subject::Functions | Subject::Time) => name.is_none(),
                Some(what) => name.is_none() && (what.is_of_counts() || what == Subject::Loops),
            };
            if !is_asked_for {
                let hint = "say `show REC`, `show REC function NAME`, or `show REC` with functions, tree, loops, edges, never, calls, paths; of a trace also `show TRACE callers NAME`";
                return Err(Hinted::new("a recording shows what it holds, or one function", hint).into());
            }
            return Ok(Request { binary: None, what, name, counts: Some(rec) });
        }
        let counts = self.counts.as_deref();
        let is_left_out = self.counts.is_some()
            && first.and_then(Path::to_str).is_some_and(|word| what(word).is_ok())
            && first.is_some_and(|path| !path.exists());
        let (binary, word, name) = match is_left_out {
            true => (None, first.and_then(Path::to_str), self.what.as_deref()),
            false => (first, self.what.as_deref(), self.name.as_deref()),
        };
        if is_left_out && let Some(more) = &self.name {
            return Err(Hinted::new(
                format!("{more:?} is one word too many"),
                "say `show --counts REC function NAME`",
            )
            .into());
        }
        let what = word.map(what).transpose()?;
        match (what, name) {
            (Some(Subject::Function), None) => {
                Err(Hinted::new("no function is named", "say `show BINARY function NAME`").into())
            }
            (Some(Subject::Function | Subject::Tree | Subject::Callers | Subject::Reuse), _) | (_, None) => {
                Ok(Request { binary, what, name, counts })
            }
            _ => {
                let hint = "say `show BINARY function NAME`";
                Err(Hinted::new("a name was given, but no function asked for", hint).into())
            }
        }
    }
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<Answer> {
    match args.pid {
        Some(pid) => process::run(&args, pid),
        None => of_file(&args.with_newest()?),
    }
}

/// Shows what is asked for of a binary, or of a recording.
fn of_file(args: &Args) -> anyhow::Result<Answer> {
    if let Some(path) = args.binary.as_deref().filter(|path| input::is_comparison(path)) {
        comparison::show(args, path)?;
        return Ok(Answer::Yes);
    }
    let wanted = args.request()?;
    if let Some(to) = &args.o {
        let read = args.binary.iter().chain(&args.profile).chain(&args.counts);
        output::refuse_replacing(to, &read.map(PathBuf::as_path).collect::<Vec<_>>())?;
    }
    let profile = args.profile.as_deref().or(wanted.counts);
    let is_of_counts =
        wanted.what.is_some_and(|what| what.is_of_counts() || what == Subject::Loops && profile.is_some());
    let is_of_costs = wanted.binary.is_none() && wanted.what.is_some_and(Subject::is_of_costs);
    let is_of_values = wanted.binary.is_none() && wanted.what == Some(Subject::Reuse);
    refuse_unfit(args, wanted.what, profile.is_some(), is_of_counts || is_of_costs || is_of_values)?;
    let to = args.o.as_ref();
    if let (None, Some(rec)) = (wanted.binary, wanted.counts)
        && shown_of_recording(args, &wanted, rec)?
    {
        return Ok(Answer::Yes);
    }
    if let (Some(what), true) = (wanted.what, is_of_counts) {
        print_counts(args, what, &images(&wanted, profile)?)?;
        return Ok(Answer::Yes);
    }
    let (program, counts) = match (wanted.binary, wanted.counts) {
        (None, Some(rec)) => {
            let (program, counts) = counted(rec, wanted.name.unwrap_or_default())?;
            (program, Some(counts))
        }
        (Some(binary), _) => {
            let program = input::program(binary)?;
            let counts = profile.map(|path| input::profile(path, Some(&program))).transpose()?;
            if let (Some(read), Some(_), Some(name)) = (&counts, wanted.counts, wanted.name) {
                say_if_uncounted(&program, &read.profile, input::function(&program, name)?);
            }
            let counts = counts.map(|mut read| {
                profile::flow::complete(&program, &mut read.profile);
                read.profile
            });
            (program, counts)
        }
        (None, None) => unreachable!("the newest recording stands in for nothing"),
    };
    if args.verify {
        let view = verify::view(&program);
        args.output.print_to(to, &view)?;
        return Ok(verify::answer(&view));
    }
    print_program(args, &wanted, &program, counts.as_ref())?;
    Ok(Answer::Yes)
}

/// Shows what recordings alone tell, if that is asked for of the recording `rec`.
fn shown_of_recording(args: &Args, wanted: &Request<'_>, rec: &Path) -> anyhow::Result<bool> {
    let to = args.o.as_ref();
    if let Some(recorded) = Recorded::open(rec)?
        && samples::show(args, wanted, &recorded)?
    {
        return Ok(true);
    }
    match wanted.what {
        Some(Subject::Reuse) => args.output.print_to(to, &reuse::view(rec, wanted.name)?)?,
        Some(what) if what.is_of_costs() => print_costs(args, what, rec, wanted.name)?,
        Some(_) => return Ok(false),
        None if args.flame => {
            let picture = flame_graph(rec)?;
            output::data(to.map(PathBuf::as_path), |w| w.write_all(&picture))?;
        }
        None if args.plot.is_some() => {
            let picture = plot::plot(rec, args.plot.as_deref().unwrap_or_default())?;
            output::data(to.map(PathBuf::as_path), |w| w.write_all(picture.as_bytes()))?;
        }
        None if args.by.is_some_and(|key| key != by::Key::Function) => print_by(args, rec)?,
        None => {
            if let Some(view) = values::recorded(rec)? {
                args.output.print_to(to, &view)?;
                return Ok(true);
            }
            args.output.print_to(to, &report(rec)?)?;
        }
    }
    Ok(true)
}

/// Where the executions of a recording of counts, or of a trace, went.
///
/// # Errors
/// If it cannot be read, or is of something else.
pub fn report(rec: &Path) -> anyhow::Result<CountView> {
    let mut view = count::recorded(rec)?;
    if input::is_trace(rec) {
        costs::Traced::open(rec)?.complete(rec, &mut view)?;
    }
    Ok(view)
}

/// Refuses options that what is asked for has no use for.
fn refuse_unfit(
    args: &Args,
    what: Option<Subject>,
    has_profile: bool,
    is_of_counts: bool,
) -> anyhow::Result<()> {
    if is_of_counts && !has_profile {
        let hint = "say `show REC` with it, or add `--counts REC` or `--profile FILE`";
        return Err(Hinted::new("edges, never, calls and paths are what counts tell", hint).into());
    }
    if (args.flame || args.by.is_some() || args.plot.is_some()) && (!has_profile || what.is_some()) {
        let hint = "say `show REC` or `show TRACE` with it, and nothing else";
        return Err(Hinted::new("--flame, --by and --plot are of what a recording holds", hint).into());
    }
    if args.inverted && what != Some(Subject::Tree) {
        let hint = "say `show REC tree --inverted`; `show REC callers NAME` has the callers of one function";
        return Err(Hinted::new("--inverted is for the tree of calls", hint).into());
    }
    if what == Some(Subject::Reuse) && !is_of_counts {
        let hint = "say `show REC reuse`, of what `engraft values --full` recorded";
        return Err(Hinted::new("reuse is what a log of calls tells", hint).into());
    }
    if (args.between.is_some() || args.thread.is_some()) && what != Some(Subject::Time) {
        let hint = "say `show TRACE time` with it";
        return Err(Hinted::new("--between and --thread are for what ran when", hint).into());
    }
    if let (Some(Subject::Tree | Subject::Callers | Subject::Time), false) = (what, is_of_counts) {
        let hint =
            "say `show TRACE` or `show REC` with it, of what `engraft trace` or `engraft count` recorded";
        return Err(Hinted::new("tree, callers and time are what recordings tell", hint).into());
    }
    if let (Some(rec), Some(binary), None) =
        (args.counts.as_ref().or(args.profile.as_ref()), &args.binary, what)
    {
        let shown = "say what of it is shown: `function NAME`, loops, edges, never, calls or paths";
        let hint = format!("{shown}\n`engraft show {}` says what it holds", rec.display());
        let what = format!("the counts in {} are not shown of {} alone", rec.display(), binary.display());
        return Err(Hinted::new(what, hint).into());
    }
    let has_no_use = has_profile && what.is_some() && !is_of_counts;
    if what != Some(Subject::Function) && (args.svg || args.dot || args.liveness || has_no_use) {
        let hint = "say `show BINARY function NAME` with it";
        let what = "--svg, --dot and --liveness show one function; --profile and --counts that, loops, edges, never, calls or paths";
        return Err(Hinted::new(what, hint).into());
    }
    Ok(())
}

/// Where a recording's instructions went, as a picture: of a trace by calls, of counts by functions.
fn flame_graph(rec: &Path) -> anyhow::Result<Vec<u8>> {
    if input::is_trace(rec) {
        return exports::flame_graph(rec);
    }
    let mut pictures =
        profile::Images::new(profile::Format::Svg).context("it has room for several images")?;
    for module in &Source::read(rec)?.needed_recording()?.modules {
        pictures.add(&module.profile, &input::whole_program(module)?);
    }
    Ok(pictures.finish()?.bytes)
}

/// Prints where a recording's instructions went, or whose values it has, by what is asked for.
fn print_by(args: &Args, rec: &Path) -> anyhow::Result<()> {
    if let Some(part) = args.by.and_then(by::Key::part) {
        return args.output.print_to(args.o.as_ref(), &values::groups(rec, part)?);
    }
    let total = match input::is_trace(rec) {
        true => Some(costs::Traced::open(rec)?.costs(rec)?.total),
        false => None,
    };
    let images = Source::read(rec)?.images()?;
    let view = by::view(&images, args.by.unwrap_or(by::Key::Function), total);
    args.output.print_to(args.o.as_ref(), &view)
}

/// Prints what the calls of a recording cost: all of them, or those that have to do with `name`.
fn print_costs(args: &Args, what: Subject, rec: &Path, name: Option<&str>) -> anyhow::Result<()> {
    let to = args.o.as_ref();
    if what == Subject::Time {
        let asked = time::Asked { thread: args.thread, between: args.between };
        return args.output.print_to(to, &time::view(rec, asked)?);
    }
    if what != Subject::Functions {
        let ways = trees::ways(args, what == Subject::Callers, name);
        return args.output.print_to(to, &trees::of_costs(rec, ways)?);
    }
    match costs::Costly::open(rec)? {
        costs::Costly::Traced(traced) => args.output.print_to(to, &traced.functions(rec)?),
        costs::Costly::Counted(images) => args.output.print_to(to, &costs::estimated_functions(&images)),
    }
}

/// Prints what counts tell of all images.
fn print_counts(args: &Args, what: Subject, images: &[counts::Image]) -> anyhow::Result<()> {
    let to = args.o.as_ref();
    match what {
        Subject::Edges | Subject::Never => {
            args.output.print_to(to, &counts::edges(images, what == Subject::Never))
        }
        Subject::Calls => args.output.print_to(to, &counts::call_graph(images)),
        Subject::Paths => args.output.print_to(to, &counts::hot_paths(images)),
        _ => args.output.print_to(to, &counts::loop_runs(images)),
    }
}

/// Prints what is asked for of a program, with the counts of one function where they are known.
fn print_program(
    args: &Args,
    wanted: &Request<'_>,
    program: &Program,
    counts: Option<&Profile>,
) -> anyhow::Result<()> {
    let to = args.o.as_ref();
    match wanted.what {
        None => args.output.print_to(to, &summary::view(program))?,
        Some(Subject::Functions) => args.output.print_to(to, &lists::functions(program))?,
        Some(Subject::Loops) => args.output.print_to(to, &loops::view(program))?,
        Some(Subject::Tables) => args.output.print_to(to, &lists::tables(program))?,
        Some(Subject::Gaps) => args.output.print_to(to, &lists::gaps(program))?,
        Some(Subject::Data) => args.output.print_to(to, &lists::data(program))?,
        // With counts they were shown above; without, refused.
        Some(Subject::Edges | Subject::Never | Subject::Calls | Subject::Paths) => {}
        Some(Subject::Tree | Subject::Callers | Subject::Reuse | Subject::Time) => {}
        Some(Subject::Cfg) => args.output.print_to(to, &cfg::view(program, args.instructions))?,
        Some(Subject::Function) => {
            let id = input::function(program, wanted.name.unwrap_or_default())?;
            if args.svg || args.dot {
                let picture = drawn(args, program, id, counts);
                output::data(to.map(PathBuf::as_path), |w| w.write_all(picture.as_bytes()))?;
            } else {
                let of = wanted.counts.or(wanted.binary).unwrap_or(Path::new(""));
                let mut sources = input::Sources::of(of);
                let view = function::view(program, id, args.liveness, counts, &mut sources);
                for file in sources.changed() {
                    let what = format!("{file} was changed after {}: its text is not shown", of.display());
                    output::warn(&what, None);
                }
                args.output.print_to(to, &view)?;
            }
        }
    }
    Ok(())
}

/// A function as the picture, or the graph for Graphviz, that is asked for.
fn drawn(args: &Args, program: &Program, id: FuncId, counts: Option<&Profile>) -> String {
    let drawing = Drawing { most: args.folded.then_some(0), links: None };
    match args.svg {
        true => function::picture(program, id, &drawing, counts).svg,
        false => function::dot(program, id, counts),
    }
}

/// What is counted: the binary that is named, or all that the recording holds.
fn images(wanted: &Request<'_>, profile: Option<&Path>) -> anyhow::Result<Vec<counts::Image>> {
    let mut images = match (wanted.binary, wanted.counts, profile) {
        (None, Some(rec), _) => Source::read(rec)?.images()?,
        (Some(binary), _, Some(profile)) => {
            let program = input::program(binary)?;
            let read = input::profile(profile, Some(&program))?;
            vec![(program, read.profile)]
        }
        _ => Vec::new(),
    };
    images.iter_mut().for_each(|(program, profile)| profile::flow::complete(program, profile));
    Ok(images)
}

/// Says so if no block of a function was counted, and why.
fn say_if_uncounted(program: &Program, profile: &Profile, id: FuncId) {
    let function = program.function(id);
    if function.block_ids().any(|b| profile.blocks.contains_key(&program.block(b).start)) {
        return;
    }
    let why = probe::Module::not_moved(program).get(id.index()).copied().flatten();
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let hint = "counts that are shown follow from those of other functions";
    output::warn(&format!("{} was not counted{why}", function.name()), Some(hint));
}

/// Refuses a symbol that functions of several `images` bear, or a pattern that they fit: any may be meant.
fn refuse_ambiguous(name: &str, images: &[(Program, Profile)]) -> anyhow::Result<()> {
    let bearer = |program: &Program| {
        let bears = |f: &FuncId| program.function(*f).names.iter().any(|symbol| **symbol == *name);
        let fits = || name.contains('*').then(|| input::function(program, name).ok()).flatten();
        let id = program.func_ids().find(bears).or_else(fits)?;
        let (file, of) = (input::file_name(&program.image.name), program.function(id));
        Some(format!("'{file}!{}' is at {}", of.name(), of.entry))
    };
    let bearers: Vec<String> = images.iter().filter_map(|(program, _)| bearer(program)).collect();
    if bearers.len() < 2 {
        return Ok(());
    }
    let verb = if name.contains('*') { "fit" } else { "are called" };
    let what = format!("functions of {} modules {verb} {name}", bearers.len());
    Err(Hinted::new(what, format!("say which:\n{}", bearers.join("\n"))).into())
}

/// A function of a recording, with the image that has it and its counts.
pub struct CountedFunction {
    program: Program,
    counts: Profile,
    id: FuncId,
}

impl CountedFunction {
    /// That of `rec` which is called `name`.
    ///
    /// # Errors
    /// If there is none of that name, or its code was not kept and is gone.
    pub fn open(rec: &Path, name: &str) -> anyhow::Result<CountedFunction> {
        let (program, counts) = counted(rec, name)?;
        let id = input::function(&program, name)?;
        Ok(CountedFunction { program, counts, id })
    }

    /// Its code, with the lines of the sources of `rec` below `folders`.
    pub fn view(&self, rec: &Path, folders: &[PathBuf]) -> FunctionView {
        let mut sources = input::Sources::of(rec).within(folders);
        function::view(&self.program, self.id, false, Some(&self.counts), &mut sources)
    }

    /// Its flow graph, as an SVG picture.
    pub fn graph(&self, drawing: &Drawing<'_>) -> FlowGraph {
        function::picture(&self.program, self.id, drawing, Some(&self.counts))
    }
}

/// The counted image that has the function `name`, the executable first, with its counts: as it was kept, if
/// the function ran; else as it is in the file. `MODULE!` before it says which image.
fn counted(rec: &Path, name: &str) -> anyhow::Result<(Program, Profile)> {
    let mut modules = Source::read(rec)?.needed_recording()?.modules;
    let file = |module: &Module| input::file_name(&module.profile.image.name);
    if let Some((of, _)) = name.split_once('!')
        && modules.iter().any(|module| file(module) == of)
    {
        modules.retain(|module| file(module) == of);
    }
    let mut refused = None;
    let mut find = |module: &Module, program: anyhow::Result<Program>| {
        let found = program.and_then(|program| input::function(&program, name).map(|id| (program, id)));
        match found {
            // It is only called, and what it consists of was not kept.
            Ok((program, id)) if program.is_excerpt() && program.function(id).n_blocks() == 0 => None,
            Ok((program, id)) => {
                let mut profile = module.profile.clone();
                say_if_uncounted(&program, &profile, id);
                profile::flow::complete(&program, &mut profile);
                Some((program, profile))
            }
            // What the executable has to say is said.
            Err(err) => {
                refused.get_or_insert(err);
                None
            }
        }
    };
    let kept: Vec<_> =
        modules.iter().filter_map(|module| find(module, input::kept_program(&[module]))).collect();
    refuse_ambiguous(name, &kept)?;
    let in_files = || modules.iter().find_map(|module| find(module, input::counted_program(&module.profile)));
    if let Some(found) = kept.into_iter().next().or_else(in_files) {
        return Ok(found);
    }
    Err(refused.unwrap_or_else(|| anyhow::anyhow!("{} is of no image", rec.display())))
}
