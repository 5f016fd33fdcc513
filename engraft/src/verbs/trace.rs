//! `engraft trace`: the whole control flow of a run, recorded.

mod attach;
mod pack;

use crate::input::names::spellings;
use crate::input::{self, CommandLine, Ending, Place};
use crate::output::{self, Answer, Hinted};
use crate::verbs::attached::{self, Processes};
use session::{
    Forecast, FunctionFilter, Instrumentation, Instrumented, ModuleFilter, Modules, Placement, Prepared,
    Recordable, Recorded, RecordedRun, RunError,
};
use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trace::Maker;
use trace::recording::module_code::ModuleCode;
use trace::recording::recorder::Recorder;
use trace::recording::tail::Tail;
use trace::recording::window::{self, When, Window};
use views::DeathView;
use views::attach::AttachedView;
use views::trace::TraceView;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft trace -q -o old.trace ./old
  $ engraft trace --modules exe -o exe.trace ./old";

/// What is asked for.
#[derive(Debug)]
pub enum Args {
    Record(Box<Recording>),
    Pack(pack::Args),
}

impl clap::Args for Args {
    fn augment_args(cmd: clap::Command) -> clap::Command {
        let pack = pack::Args::augment_args(clap::Command::new("pack"));
        let cmd = Recording::augment_args(cmd).subcommand(pack).subcommand_negates_reqs(true);
        cmd.args_conflicts_with_subcommands(true).after_long_help(EXAMPLES)
    }
    fn augment_args_for_update(cmd: clap::Command) -> clap::Command {
        Args::augment_args(cmd)
    }
}

impl clap::FromArgMatches for Args {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Args, clap::Error> {
        match matches.subcommand_matches("pack") {
            Some(matches) => pack::Args::from_arg_matches(matches).map(Args::Pack),
            None => Recording::from_arg_matches(matches).map(Box::new).map(Args::Record),
        }
    }
    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Args::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Run a program and record every function that it enters, every block that it executes, every exit, in order
#[derive(clap::Args, Debug)]
#[command(mut_arg("words", |words| words.required(false).required_unless_present_any(["pids", "process_name"])))]
pub struct Recording {
    #[command(flatten)]
    processes: Processes,
    /// Where to write the trace [default: PROGRAM.trace, the one before being kept as PROGRAM.old.trace]
    #[arg(short, value_name = "T")]
    o: Option<PathBuf>,
    /// What to record: `all` (without libc and ld.so), `exe`, or file names of modules, `*` standing for
    /// anything; several with commas between them
    #[arg(long, value_name = "WHICH", value_delimiter = ',', default_value = "all")]
    modules: Vec<String>,
    /// Record only functions with this name, `*` standing for anything, or those of each --functions; others
    /// are as if they were not recorded
    #[arg(long, value_name = "NAME")]
    functions: Vec<String>,
    /// Keep what comes from the first time on that this function, or that of another --from, is entered (and,
    /// with --to, from each time behind it)
    #[arg(long, value_name = "FUNCTION")]
    from: Vec<String>,
    /// Keep what comes until this function, or that of another --to, is entered
    #[arg(long, value_name = "FUNCTION")]
    to: Vec<String>,
    /// Keep what comes so many seconds after the start, and later
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    after: Option<Duration>,
    /// Keep what comes in so many seconds, from the start or from --after on
    #[arg(long = "for", value_name = "SECONDS", value_parser = some_seconds, allow_hyphen_values = true)]
    lasts: Option<Duration>,
    /// Keep the last of it, of so many bytes in the file (such as 64M): what led to a crash
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    last: Option<usize>,
    /// Stop, and start again, whenever this signal is sent to `engraft trace`, such as USR1: the program does
    /// not get it
    #[arg(long, value_name = "SIGNAL", value_parser = signal)]
    switch: Option<i32>,
    /// Begin when the signal of --switch comes first
    #[arg(long, requires = "switch")]
    paused: bool,
    /// Pack it when the program has ended, as `engraft trace pack` does
    #[arg(long)]
    pack: bool,
    /// Do not keep rewritten modules for the next time
    #[arg(long)]
    no_cache: bool,
    #[command(flatten)]
    output: output::Report,
    #[command(flatten)]
    command: CommandLine,
}

/// Reads a time from the command line.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.or_else(|| humantime::parse_duration(text).ok()).ok_or_else(|| "say seconds, such as 1.5".into())
}

/// The same, of a time that is not over at once.
fn some_seconds(text: &str) -> Result<Duration, String> {
    let some = seconds(text).ok().filter(|time| !time.is_zero());
    some.ok_or_else(|| "say seconds, more than none, such as 1.5".into())
}

/// Reads a number of bytes from the command line.
fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit.to_ascii_uppercase().as_str() {
        "" => Some(1),
        "K" | "KB" => Some(1 << 10),
        "M" | "MB" => Some(1 << 20),
        "G" | "GB" => Some(1 << 30),
        _ => None,
    };
    let size = digits.parse::<usize>().ok().zip(unit).and_then(|(n, unit)| n.checked_mul(unit));
    let size = size.filter(|n| *n > 0);
    size.ok_or_else(|| "say bytes, such as 65536, 512K, 64M, 1G".into())
}

/// Reads a signal from the command line: a name, with or without `SIG`, or a number.
fn signal(text: &str) -> Result<i32, String> {
    live::signal_named(text).ok_or_else(|| "say one that programs use, such as USR1 or USR2".into())
}

/// What of the run is kept; for so long, if there is an end to it.
fn window(args: &Recording, codes: &[ModuleCode], lasts: Option<Duration>) -> anyhow::Result<Window> {
    let entries = |names: &[String]| {
        let mut all = HashSet::new();
        for name in names {
            let named = FunctionFilter::new(&[name], spellings);
            let found = window::entries(codes, |symbol| named.has(symbol));
            if found.is_empty() {
                let what = format!("no function that is recorded is called {name}");
                let hint = "`engraft show BINARY functions` lists those of a file; --from and --to are for what is loaded when the program starts";
                return Err(Hinted::new(what, hint).into());
            }
            all.extend(found);
        }
        anyhow::Ok(all)
    };
    let (from, to) = (entries(&args.from)?, entries(&args.to)?);
    let after = args.after.unwrap_or_default();
    Ok(Window::new(
        When { after, lasts, is_switched: args.switch.is_some(), is_paused: args.paused },
        from,
        to,
    ))
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    match args {
        Args::Record(args) => record(args),
        Args::Pack(args) => pack::run(args),
    }
}

/// What is put into the modules that are `wanted`.
fn instrumentation(args: &Recording, wanted: &ModuleFilter) -> Instrumentation {
    Instrumentation {
        libc: wanted.has_library(Path::new("libc.so.6")),
        functions: FunctionFilter::new(&args.functions, spellings),
        telling: FunctionFilter::new(&[args.from.as_slice(), &args.to].concat(), spellings),
        ..Instrumentation::new(Placement::Events)
    }
}

/// Says how large the file will be.
fn say_forecast(forecast: Forecast) {
    let mode = output::talk_mode();
    if !mode.quiet && !mode.json {
        let (events, file) = (views::size(forecast.events_bytes), views::size(forecast.file_bytes));
        output::say(format_args!(
            "recording: a minute like what came so far has {events} of events, {file} in the file"
        ));
    }
}

/// Where the trace of the program at `command` goes.
fn place(args: &Recording, command: &Path) -> anyhow::Result<Place> {
    if let Some(of) = args.o.as_deref().and_then(output::standard_stream) {
        let hint = "name a file: `-o FILE`; one of that name is `./-`";
        return Err(Hinted::new(format!("{of} is the program's: a trace is not written to it"), hint).into());
    }
    let place = Place::new(args.o.as_deref(), Ending::Trace, command)?;
    output::can_be_written(place.path())?;
    if args.pack && !output::is_own_file(place.path()) {
        let what = format!("{} cannot be read again, to be packed", place.path().display());
        return Err(Hinted::new(what, "leave out --pack, or name a file").into());
    }
    args.output.refuse_unfit(&[place.path(), command])?;
    Ok(place)
}

fn record(args: &Recording) -> anyhow::Result<Answer> {
    if args.processes.are_meant() {
        return attach::record(args);
    }
    let (name, rest) = args.command.split();
    let target = crate::verbs::count::find(&args.command)?;
    let place = place(args, &target.command)?;
    let to = place.path();
    let store = crate::verbs::count::open_store(args.no_cache)?;
    let wanted = ModuleFilter::new(&args.modules);
    let asked = instrumentation(args, &wanted);
    let modules = Modules::of(&store, &target)?;
    modules.warnings.iter().for_each(output::warned);
    let recordable = Recordable::new(Prepared::new(&store, &wanted, modules, asked)?)?;
    let first = recordable.modules().iter().filter_map(Instrumented::meaning).collect::<Vec<_>>();
    refuse_none(args, &first)?;
    let window = window(args, &first, args.lasts)?;
    if let Some(which) = args.switch {
        live::keep_signal(which);
    }
    let tail = args.last.map(Tail::new);
    place.make_room();
    let recorder = output::create(to, |file| Recorder::new(file, &first, window, tail))?;
    output::pause_progress();
    let run =
        RecordedRun::new(recordable, (session::command(&target, name, rest), name), recorder, say_forecast);
    let run = run.inspect_err(|err| {
        if matches!(err, RunError::Launch(_)) {
            place.give_up();
        }
    })?;
    run.warnings().iter().for_each(output::warned);
    let status = run.status();
    let died = run.died().map(input::death);
    let recorded = run.finish(name);
    output::resume_progress();
    report(args, to, recorded, status.signal(), died, attached::view([]))?;
    Ok(Answer::Status(crate::verbs::count::passed_on(status)))
}

/// Fails if no function of those that are there from the start is to be recorded.
fn refuse_none(args: &Recording, first: &[ModuleCode]) -> anyhow::Result<()> {
    if !args.functions.is_empty() && first.iter().all(|code| code.entries.is_empty()) {
        let what = format!("no function that can be recorded is called {}", args.functions.join(" or "));
        let hint = "`engraft show BINARY functions` lists those of a file; one of a library that the program loads later is recorded if another one, such as `main`, is named beside it";
        return Err(Hinted::new(what, hint).into());
    }
    Ok(())
}

/// Says what was `recorded` in `to`, once it is packed, if it is to be. Whether all could be written.
fn report(
    args: &Recording,
    to: &Path,
    recorded: Recorded,
    ended_by_signal: Option<i32>,
    died: Option<DeathView>,
    attach: AttachedView,
) -> anyhow::Result<bool> {
    if let Some(n_bytes) = recorded.excess_bytes {
        let what = format!(
            "what each thread did last takes {}: more than --last allows",
            views::size(n_bytes as u64)
        );
        output::warn(&what, None);
    }
    recorded.warnings.iter().for_each(output::warned);
    let n_bytes = recorded.written.map_err(|err| {
        let what = format!("cannot write {}: {err}", to.display());
        output::warn(&what, Some("what was recorded before can be read; make room for the rest"));
    });
    // What was recorded is there, and to pack it takes long.
    output::tidy_before_signals_end_us();
    let n_bytes = match args.pack {
        true => n_bytes.and_then(|n| {
            let packed = pack::file(to, to, Maker::Sequitur).map(|wrote| wrote.n_bytes);
            packed.map_err(|err| output::warn(&format!("{err:#}"), output::hint(&err).as_deref())).or(Ok(n))
        }),
        false => n_bytes,
    };
    if !args.output.is_silent() {
        let view = TraceView {
            schema: TraceView::SCHEMA,
            file: to.display().to_string(),
            n_bytes: n_bytes.ok(),
            n_bytes_of_events: recorded.n_bytes_of_events,
            n_streams: recorded.n_threads,
            n_stalls: recorded.n_stalls,
            ended_by_signal,
            died,
            is_cut: recorded.is_cut,
            modules: recorded.codes.iter().map(|code| code.path.clone()).collect(),
            attach,
        };
        args.output.print(&view)?;
    }
    Ok(n_bytes.is_ok())
}
