//! `engraft values`: arguments and results of calls, what registers hold at places, how loops run.

mod attach;
mod fill;
mod hot;

use crate::input::names::spellings;
use crate::input::{self, CommandLine, Ending, Place, Source};
use crate::output::{self, Answer, Hinted};
use crate::verbs::attached::{self, Processes};
use crate::verbs::count;
use anyhow::Context as _;
use measure::prototypes::{PrototypeError, Prototypes};
use measure::values::{Asked, AskedCall, AskedPlace, Code, Condition, Logged, Rows, Stamping};
use profile::Profile;
use profile::recording::{Module, Recording, Run};
use profile::values::advice::COPIES;
use profile::values::log::{Chosen, Log, LogWriter, Part};
use profile::values::{SECTION, Values};
use session::{
    FinishedLog, Instrumentation, Measurable, Measured, MeasuredRun, ModuleFilter, Modules, Placement,
    Prepared, RunError,
};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use views::values::ValuesView;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft values -q -o old.engraft --calls 'int main(int argc, char **argv);' ./old
  $ engraft values -q -o old.engraft --at main edi ./old
  $ engraft values -q -o old.engraft --loop main ./old";

/// Run a program and record values: of arguments, results, registers; how loops run
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
#[command(mut_arg("words", |words| words.required(false).required_unless_present_any(["pids", "process_name"])))]
pub struct Args {
    #[command(flatten)]
    processes: Processes,
    /// How long to observe such processes: 5s, 500ms, 2min
    #[arg(long = "for", value_name = "TIME", conflicts_with = "words", value_parser = humantime::parse_duration)]
    how_long: Option<Duration>,
    /// Observe processes that these start, and those that come under the `--name`, too, as soon as they have
    /// loaded their libraries
    #[arg(long, conflicts_with_all = ["words", "full"])]
    follow: bool,
    /// Where to write the recording [default: PROGRAM.values.engraft, the one before being kept as
    /// PROGRAM.values.old.engraft]
    #[arg(short, value_name = "REC")]
    o: Option<PathBuf>,
    /// Record arguments and results of the functions that this prototype declares, such as `double exp(double
    /// x);`, or of those with this name, `*` standing for anything: as debug information describes them, or
    /// the C library declares them; of others, how often they are called
    #[arg(long, value_name = "PROTOTYPE")]
    calls: Vec<String>,
    /// Record of calls only their beginnings: arguments, but neither results nor how calls end
    #[arg(long, conflicts_with = "full")]
    no_results: bool,
    /// Record only calls of which this holds, such as `n > 64 && x != 0`, if they have all arguments that it
    /// names; of others, how many there were
    #[arg(long = "if", value_name = "CONDITION")]
    condition: Option<String>,
    /// Where types and functions are declared that --calls names
    #[arg(long, value_name = "FILE")]
    header: Vec<PathBuf>,
    /// Record what is in registers each time that control comes to a place (an address of the executable,
    /// MODULE!ADDRESS, FUNCTION, FUNCTION+OFFSET): several with commas between them, each with its kind
    /// behind a colon (`engraft help values`)
    #[arg(long, num_args = 2, value_names = ["PLACE", "VALUES"], action = clap::ArgAction::Append)]
    at: Vec<String>,
    /// Record how often loops go round each time that they are entered, and how long that takes: all loops of
    /// FUNCTION, those at FUNCTION:LINE or FILE:LINE, the innermost one around an address, or `hot[:N]`, the
    /// N (else 10) loops with most instructions of their own in a recording of `engraft count`
    #[arg(long = "loop", value_name = "LOOP")]
    loops: Vec<String>,
    /// Record what instructions do because of what they are, in functions with this name, `*` standing for
    /// anything [default: all of the executable]: what integers are divided by, where indirect calls and
    /// jumps lead, how much string instructions and memcpy and its like take, which accesses of memory are
    /// not aligned
    #[arg(long, value_name = "FUNCTION", num_args = 0..=1)]
    #[arg(require_equals = true, default_missing_value = "*")]
    auto: Vec<String>,
    /// Which recording says what is hot [default: the newest one here of this build]
    #[arg(long, value_name = "REC")]
    from: Option<PathBuf>,
    /// Do not measure how long loops take
    #[arg(long, conflicts_with = "serialise")]
    no_ticks: bool,
    /// Let nothing else run while the time is read where a loop is entered: dearer, and right for short loops
    #[arg(long)]
    serialise: bool,
    /// Where to look for functions: `all` (without libc and ld.so), `exe`, or file names of modules, `*`
    /// standing for anything; several with commas between them [default: all, and libc]
    #[arg(long, value_name = "WHICH", value_delimiter = ',', hide_default_value = true,
        default_values = ["all", "libc.so*", "libc-*", "libpthread*"])]
    modules: Vec<String>,
    /// Keep a log, too: for each call, and each time that control comes to a place, who called, the values,
    /// and how many ticks of the time stamp counter it took; `engraft convert REC -o X.csv` makes a table of
    /// it
    #[arg(long)]
    full: bool,
    /// With --full: leave out how long calls took, which costs some 30 ns a call
    #[arg(long, requires = "full")]
    no_times: bool,
    /// With --full: keep the first N calls of each function, and times at each place
    #[arg(long, value_name = "N", requires = "full", conflicts_with_all = ["last", "every"])]
    first: Option<u64>,
    /// With --full: keep the last N to end, in memory until the run is over
    #[arg(long, value_name = "N", requires = "full", conflicts_with = "every")]
    last: Option<usize>,
    /// With --full: keep one in N
    #[arg(long, value_name = "N", requires = "full")]
    every: Option<NonZeroU64>,
    /// Do not keep rewritten modules for the next time
    #[arg(long)]
    no_cache: bool,
    #[command(flatten)]
    output: output::Report,
    #[command(flatten)]
    rows: output::Rows,
    #[command(flatten)]
    command: CommandLine,
}

/// What a `--calls` says: prototypes, a name that a header declares, or a name alone.
fn calls(text: &str, headers: &[Prototypes]) -> anyhow::Result<Vec<AskedCall>> {
    // Prototypes are C's: what has a path has a name as the source has it, with parameters or without.
    if !text.contains('(') || text.contains("::") {
        let name = text.trim().trim_end_matches(';');
        // A type before the name is none of it; templates and operators have blanks in theirs.
        let before = name.split('(').next().unwrap_or_default();
        let has_blanks = before.contains(['<', '[']) || before.contains("operator");
        let start = before.rfind(' ').filter(|_| !has_blanks).map_or(0, |at| at + 1);
        let bare = name.get(start..).unwrap_or(name);
        // `*` in front of a name alone stands for anything.
        let name = if start > 0 { bare.trim_start_matches(['*', '&']) } else { bare };
        if name.is_empty() {
            let hint = "a prototype looks like this: double exp(double x);";
            return Err(Hinted::new("--calls names no function", hint).into());
        }
        let declared = headers.iter().rev().find_map(|header| header.function(name));
        return Ok(vec![declared.map_or_else(|| AskedCall::named(name), AskedCall::of)]);
    }
    let read = match headers.last() {
        Some(header) => header.parse_with(text),
        None => Prototypes::parse(text),
    };
    let declared = read.map_err(|err| bad_prototype(&format!("--calls {text}"), &err))?;
    Ok(declared.functions.iter().map(|declared| AskedCall::of(&declared.signature)).collect())
}

fn bad_prototype(what: &str, err: &PrototypeError) -> anyhow::Error {
    let what = format!("{what}: {err}");
    match err.hint() {
        Some(hint) => Hinted::new(what, hint).into(),
        None => anyhow::Error::msg(what),
    }
}

/// What the command line asks for, of the program `executable`.
fn asked(args: &Args, executable: &Path) -> anyhow::Result<Asked> {
    let header = |path: &PathBuf| {
        Prototypes::load_header(path)
            .map_err(|err| bad_prototype(&format!("--header {}", path.display()), &err))
    };
    let headers = args.header.iter().map(header).collect::<anyhow::Result<Vec<_>>>()?;
    let asked = args.calls.iter().map(|text| calls(text, &headers)).collect::<anyhow::Result<Vec<_>>>()?;
    let place = |pair: &[String]| {
        let [place, values] = pair else { anyhow::bail!("--at has a place and values") };
        AskedPlace::parse(place, values).map_err(|err| {
            let hint = "`engraft help values` says how places and values are written";
            Hinted::new(format!("--at {place}: {err}"), hint).into()
        })
    };
    let places = args.at.chunks(2).map(place).collect::<anyhow::Result<_>>()?;
    let of = |text: &String| match hot::number(text)? {
        Some(n) => hot::loops_of(n, executable, args.from.as_deref()),
        None => Ok(vec![text.clone()]),
    };
    let loops = args.loops.iter().map(of).collect::<anyhow::Result<Vec<_>>>()?.concat();
    let stamping = match (args.no_ticks, args.serialise) {
        (true, _) => Stamping::None,
        (_, true) => Stamping::Serialised,
        _ => Stamping::Plain,
    };
    let log = args.full.then_some(Logged { has_times: !args.no_times });
    let is_without_results = args.no_results;
    let mut calls = asked.concat();
    if !args.auto.is_empty() {
        calls.extend(COPIES.map(AskedCall::implied));
    }
    let watched = args.auto.clone();
    let asked =
        Asked { calls, places, watched, log, loops, stamping, is_without_results, ..Asked::default() };
    Ok(asked)
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if args.processes.are_meant() {
        return attach::run(args);
    }
    let target = count::find(&args.command)?;
    let (asked, condition) = all_asked(args, &target.executable)?;
    let rec = place(args, &target.command)?;
    let store = count::open_store(args.no_cache)?;
    let wanted = ModuleFilter::new(&args.modules);
    let modules = Modules::of(&store, &target)?;
    modules.warnings.iter().for_each(output::warned);
    let prepared = Prepared::new(&store, &wanted, modules, instrumentation(&asked))?;
    let measurable = Measurable::new(prepared)?.with_condition(condition.clone());
    let (name, rest) = args.command.split();
    let log = log(args, &asked, &rec)?;
    let (started, clock) = (SystemTime::now(), Instant::now());
    output::pause_progress();
    let run = MeasuredRun::new(measurable, &target, (name, rest), log).inspect_err(|err| {
        if args.full && matches!(err, RunError::Launch(_)) {
            rec.give_up();
        }
    })?;
    output::resume_progress();
    let duration = clock.elapsed();
    let status = run.status();
    let died = run.died().map(input::death);
    let modules = run.modules();
    let measured = run.finish(name);
    let run = Run {
        died: died.as_ref().map(count::fill::died),
        ..count::described(&args.command, (started, duration), status)
    };
    report(args, &rec, (&asked, condition.as_ref()), (run, modules, duration), measured)?;
    Ok(Answer::Status(count::passed_on(status)))
}

/// What the command line asks for, of the program `executable`, and of which calls.
fn all_asked(args: &Args, executable: &Path) -> anyhow::Result<(Asked, Option<Condition>)> {
    let asked = asked(args, executable)?;
    if asked.calls.is_empty() && asked.places.is_empty() && asked.loops.is_empty() && args.auto.is_empty() {
        let hint =
            "say of what: `--calls 'double exp(double x);'`, `--at main edi`, `--loop main`, `--loop hot`";
        return Err(Hinted::new("no value is asked for", hint).into());
    }
    Ok((asked, args.condition.as_deref().map(condition).transpose()?))
}

/// What is put into modules for what is `asked`.
fn instrumentation(asked: &Asked) -> Instrumentation {
    Instrumentation { values: Arc::new(asked.clone()), spellings, ..Instrumentation::new(Placement::Values) }
}

/// Where the recording of the program at `command` goes.
fn place(args: &Args, command: &Path) -> anyhow::Result<Place> {
    let rec = Place::new(args.o.as_deref(), Ending::Values, command)?;
    output::can_be_written(rec.path())?;
    if args.full && !output::is_own_file(rec.path()) {
        let what = format!("{} is no file that a log can be kept in", rec.path().display());
        return Err(Hinted::new(what, "name a file after -o, or leave out --full").into());
    }
    args.output.refuse_unfit(&[rec.path(), command])?;
    Ok(rec)
}

/// The log, begun, if one is `asked` for.
fn log(args: &Args, asked: &Asked, rec: &Place) -> anyhow::Result<Option<Rows>> {
    let log = asked.log.map(|log| {
        rec.make_room();
        let chosen = chosen(args);
        let writer = output::create(rec.path(), |file| LogWriter::new(file, chosen));
        writer.map(|writer| Rows::new(writer, log.has_times, chosen))
    });
    log.transpose()
}

/// Keeps what was `measured` of a run of these modules, which lasted so long, in `rec`, and says it.
fn report(
    args: &Args,
    rec: &Place,
    (asked, condition): (&Asked, Option<&Condition>),
    (run, modules, duration): (Run, Vec<PathBuf>, Duration),
    measured: Measured,
) -> anyhow::Result<()> {
    let Measured { values, codes, warnings, log, .. } = measured;
    let attach = attached::view(&run.attached);
    let recording = Recording {
        run: Some(run),
        modules: modules.iter().map(|path| unread(path)).collect(),
        sections: vec![(SECTION, values.write())],
        ..Recording::default()
    };
    match log {
        Some(log) => finish(rec.path(), log, &recording)?,
        None => count::keep(rec, &recording.write())?,
    }
    output::tidy_before_signals_end_us();
    warnings.iter().for_each(output::warned);
    say_unseen(asked, &codes, &values);
    condition.into_iter().for_each(|condition| say_unfit(condition, &codes));
    if !args.output.is_silent() {
        let log = args.full.then(|| logged(rec.path())).transpose()?.flatten();
        args.output.print(&ValuesView { attach, ..fill::view(&values, log.as_ref(), duration)? })?;
    }
    Ok(())
}

fn condition(text: &str) -> anyhow::Result<Condition> {
    let hint = "a condition looks like this: n > 64 && x != 0";
    Condition::parse(text).map_err(|err| Hinted::new(format!("--if {text}: {err}"), hint).into())
}

/// Warns if no call could be left out: it has not the arguments that are named.
fn say_unfit(condition: &Condition, codes: &[Code]) {
    let mut calls = codes.iter().flat_map(|code| &code.records).filter(|record| record.what.is_of_call());
    if !calls.any(|record| condition.fits(&record.columns)) {
        let what =
            format!("--if: no call that was asked for has numbers called {}", condition.names().join(", "));
        output::warn(&what, Some("arguments are called as the prototype, or debug information, calls them"));
    }
}

/// Which calls have a row in the log.
fn chosen(args: &Args) -> Chosen {
    let first = args.first.map(Chosen::First);
    first.or(args.last.map(Chosen::Last)).or(args.every.map(Chosen::Every)).unwrap_or_default()
}

/// Writes the rest of a recording behind its log.
fn finish(rec: &Path, log: FinishedLog, recording: &Recording) -> anyhow::Result<()> {
    let written = log.and_then(|(to, failed)| recording.write_behind(to).map(|_| failed));
    let hint = "what was recorded before can be read; make room for the rest";
    match written {
        Ok(None) => Ok(()),
        Ok(Some(err)) => {
            output::warn(&format!("the log in {} ends early: {err}", rec.display()), Some(hint));
            Ok(())
        }
        Err(err) => Err(Hinted::new(format!("cannot write {}: {err}", rec.display()), hint).into()),
    }
}

/// The log in the recording `rec`.
fn logged(rec: &Path) -> anyhow::Result<Option<Log>> {
    let opened = std::fs::File::open(rec).map_err(anyhow::Error::from);
    opened.and_then(|file| Ok(Log::open(file)?)).with_context(|| format!("cannot read {}", rec.display()))
}

/// A module of which nothing was counted.
pub(super) fn unread(path: &Path) -> Module {
    let mut profile = Profile::default();
    profile.image.name = path.display().to_string();
    Module::new(profile, None)
}

/// How many functions are said not to be seen, if a glob means them.
const MOST_UNSEEN: usize = 5;

/// Warns of what was asked for and not seen, and why.
fn say_unseen(asked: &Asked, codes: &[Code], values: &Values) {
    let all: Vec<_> = codes.iter().flat_map(|code| &code.unseen).collect();
    // Of globs that may be hundreds.
    let n_said = if asked.calls.iter().any(|call| call.name.contains('*')) { MOST_UNSEEN } else { all.len() };
    for unseen in all.iter().take(n_said) {
        let what = match unseen.is_result_only {
            true => format!("what {} returns is not seen: {}", unseen.function, unseen.why),
            false => format!("{} at {:#x} is not seen: {}", unseen.function, unseen.at, unseen.why),
        };
        output::warn(&what, None);
    }
    if all.len() > n_said {
        output::warn(
            &format!("{} more functions are not seen, or what they return", all.len() - n_said),
            None,
        );
    }
    let is_known = |name: &str| codes.iter().any(|code| code.records.iter().any(|r| r.name == name));
    for (n, call) in (0..).zip(&asked.calls).filter(|(_, call)| !call.is_implied) {
        let is_there =
            codes.iter().flat_map(|code| &code.records).any(|r| r.what.is_of_call() && r.asked == n);
        let n_calls: u64 = values.calls.iter().filter(|row| row.asked == n).map(|row| row.n_calls).sum();
        let hint = "`engraft show BINARY functions` lists those of a file; --modules says where they are looked for\nfunctions of C++ and Rust have their path before the name: `*::NAME`";
        let is_said = all.iter().any(|unseen| unseen.function == call.name);
        if !is_there && !is_said {
            output::warn(&format!("no function that is called {} was loaded", call.name), Some(hint));
        } else if n_calls == 0 && is_there {
            output::warn(&format!("{} was not called", call.name), None);
        }
    }
    for (n, text) in (0..).zip(&asked.loops) {
        let is_unseen = |code: &Code| code.unseen.iter().any(|one| one.function.starts_with("the loop"));
        let is_there = |code: &Code| code.loops.iter().any(|one| one.asked == n);
        if !codes.iter().any(|code| is_there(code) || is_unseen(code)) {
            let hint = "`engraft show BINARY loops` lists those of a file; lines are known where there is debug information";
            output::warn(&format!("there is no loop {text} in what was loaded"), Some(hint));
        }
    }
    let is_run = |one: &&profile::values::Loop| one.n_instances + one.n_left + one.n_open > 0;
    if !values.loops.is_empty() && !values.loops.iter().any(|one| is_run(&one)) {
        output::warn("no loop that was asked for was entered", None);
    }
    for place in &asked.places {
        let n = values.places.iter().find(|known| known.place == place.place).map_or(0, |place| place.n);
        if !is_known(&place.place) {
            let hint = "`engraft show BINARY functions` lists those of a file; addresses are as in the file";
            output::warn(&format!("there is no {} in what was loaded", place.place), Some(hint));
        } else if n == 0 {
            output::warn(&format!("nothing came by at {}", place.place), None);
        }
    }
}

/// The values that the recording `rec` holds; `None` if it is another, or none.
///
/// # Errors
/// If they are damaged.
pub fn recorded(rec: &Path) -> anyhow::Result<Option<ValuesView>> {
    if input::is_trace(rec) || !input::is_recording(rec) {
        return Ok(None);
    }
    let source = Source::read(rec)?;
    let took = source.ran_for()?;
    let view = source.values()?.map(|values| fill::view(&values, source.log(), took));
    view.transpose().with_context(|| format!("cannot use {}", rec.display()))
}

/// The calls in the log of `rec`, by what they have in common.
///
/// # Errors
/// If it has no log, or that is damaged.
pub fn groups(rec: &Path, by: Part) -> anyhow::Result<ValuesView> {
    let source = Source::read(rec)?;
    let Some(log) = source.log() else {
        let hint = "record one: `engraft values --full --calls …`";
        let what = format!("{} has no log of calls, which says who made them", rec.display());
        return Err(Hinted::new(what, hint).into());
    };
    fill::grouped(log, by).with_context(|| format!("cannot use {}", rec.display()))
}
