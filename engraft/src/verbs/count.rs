//! `engraft count`: how often each block ran, exactly.

mod attach;
pub mod fill;
mod points;
mod repeat;

use crate::input::{self, CommandLine, Ending, Place};
use crate::output::{self, Answer, Hinted};
use crate::verbs::attached::Processes;
use live::Target;
use measure::reports::repeat::Repeats;
use points::point_view;
use profile::recording::{End, LeftOut, Others, Recording, Run};
use program::Program;
use session::{
    Collected, CountedRun, Instrumentation, ModuleFilter, Modules, OtherPrograms, Placement, Prepared, Store,
    StoreError,
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};
use tracing::info_span;
use views::count::CountView;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft count -o old.engraft ./old
  $ engraft count -q --modules exe -o again.engraft ./old";

/// Run a program and count how often each of its blocks runs, exactly
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
#[command(mut_arg("words", |words| words.required(false).required_unless_present_any(["pids", "process_name"])))]
pub struct Args {
    #[command(flatten)]
    processes: Processes,
    /// How long to count such processes: 5s, 500ms, 2min
    #[arg(long = "for", value_name = "TIME", conflicts_with = "words", value_parser = humantime::parse_duration)]
    how_long: Option<Duration>,
    /// Where to write the recording [default: PROGRAM.count.engraft, the one before being kept as
    /// PROGRAM.count.old.engraft]
    #[arg(short, value_name = "REC")]
    o: Option<PathBuf>,
    /// What to count in: `all` (without libc and ld.so), `exe`, or file names of modules, `*` standing for
    /// anything; several with commas between them
    #[arg(long, value_name = "WHICH", value_delimiter = ',', default_value = "all")]
    modules: Vec<String>,
    /// Count programs that it becomes or starts by `exec`, too; of processes that run already, those that
    /// they start, and those that come under the `--name`, as soon as they have loaded their libraries
    #[arg(long)]
    follow: bool,
    /// Keep the counts of each thread apart, too; `convert --thread N` takes one
    #[arg(long)]
    per_thread: bool,
    /// Run it N times, and say what was not the same in each; the recording has the last run
    #[arg(long, value_name = "N", default_value = "1", value_parser = crate::input::from_one)]
    #[arg(conflicts_with_all = ["pids", "process_name"])]
    repeat: std::num::NonZeroUsize,
    /// Count every block by itself, in place of as few blocks and edges as the rest follows from
    #[arg(long)]
    all_blocks: bool,
    /// Count where indirect calls lead, too, for `show REC calls`
    #[arg(long)]
    callees: bool,
    /// Do not keep rewritten modules, and how they ran, for the next time
    #[arg(long)]
    no_cache: bool,
    #[command(flatten)]
    output: output::Report,
    #[command(flatten)]
    rows: output::Rows,
    #[command(flatten)]
    command: CommandLine,
}

/// The program that `command` runs, which can be counted on this machine.
///
/// # Errors
/// If it is not there, or nothing can be counted here.
pub fn find(command: &CommandLine) -> anyhow::Result<Target> {
    found(command.split().0, || command.hint_on_lists())
}

/// The program of this name.
///
/// # Errors
/// If there is none that can be run and observed.
pub fn find_named(name: &OsStr) -> anyhow::Result<Target> {
    found(name, || None)
}

fn found(name: &OsStr, hint: impl FnOnce() -> Option<String>) -> anyhow::Result<Target> {
    let search = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    session::find(name, &search).map_err(|err| {
        let hints = [err.hint().map(str::to_owned), hint()];
        let hint = hints.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let err = anyhow::Error::from(err);
        if hint.is_empty() { err } else { Hinted::new(format!("{err:#}"), hint).into() }
    })
}

/// The user's folder for rewritten modules, if there can be one.
pub fn cache_folder() -> Option<PathBuf> {
    std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .filter(|path| path.is_absolute())
        .map(|cache| cache.join("engraft"))
}

/// Where rewritten modules are kept: in the user's cache, or only for this run.
///
/// # Errors
/// If no folder can be made.
pub fn open_store(is_temporary: bool) -> Result<Store, StoreError> {
    let store = Store::open(cache_folder().filter(|_| !is_temporary).as_deref(), &std::env::temp_dir())?;
    if store.is_temporary() {
        output::goes_with_us(store.folder());
    }
    Ok(store)
}

/// The exit status that is passed on of a program that ended with `status`.
pub fn passed_on(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code & 0xff).expect("eight bits")
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if args.processes.are_meant() {
        return attach::run(args);
    }
    let target = find(&args.command)?;
    let rec = Place::new(args.o.as_deref(), Ending::Counts, &target.command)?;
    output::can_be_written(rec.path())?;
    args.output.refuse_unfit(&[rec.path(), &target.command])?;
    if let Some(n) = live::Limits::ours().addresses.filter(|n| *n < OWN_ADDRESSES) {
        let what = format!(
            "the limit of addresses (`ulimit -v`) is {} kB, of which count itself needs more",
            n >> 10
        );
        let hint = "set it for the program alone: `engraft count --follow prlimit --as=BYTES PROGRAM`";
        return Err(Hinted::new(what, hint).into());
    }
    let store = open_store(args.no_cache)?;
    let mut repeats = Repeats::default();
    let mut failed = 0;
    for left in (0..args.repeat.get()).rev() {
        let of_several = (args.repeat.get() > 1).then_some(&mut repeats);
        let (code, is_last) = once(args, &target, &store, &rec, of_several, left == 0)?;
        failed = if failed == 0 { code } else { failed };
        if is_last {
            break;
        }
    }
    Ok(Answer::Status(failed))
}

/// Runs the program once, and gives its exit status, and whether this was the last run: also if somebody has
/// ended it. The last one is recorded and reported.
fn once(
    args: &Args,
    target: &Target,
    store: &Store,
    rec: &Place,
    mut repeats: Option<&mut Repeats>,
    is_last: bool,
) -> anyhow::Result<(u8, bool)> {
    let (name, rest) = args.command.split();
    let wanted = ModuleFilter::new(&args.modules);
    let placement = if args.all_blocks { Placement::Blocks } else { Placement::Edges };
    let (callees, follows) = (args.callees, args.follow);
    let asked = Instrumentation { callees, follows, ..Instrumentation::new(placement) };
    let modules = info_span!("prepare").in_scope(|| Modules::of(store, target))?;
    modules.warnings.iter().for_each(output::warned);
    let prepared = info_span!("prepare").in_scope(|| Prepared::new(store, &wanted, modules, asked))?;
    let (started, clock) = (SystemTime::now(), Instant::now());
    output::pause_progress();
    let run = CountedRun::new(prepared, target, name, rest)?;
    output::resume_progress();
    let duration = clock.elapsed();
    run.warnings().iter().for_each(output::warned);

    let _span = info_span!("write").entered();
    let counted = run.collect(args.per_thread)?;
    let status = run.status();
    if let Some(repeats) = repeats.as_mut() {
        repeats.add(&counted.profiles);
    }
    // SIGHUP, SIGINT, SIGQUIT, SIGTERM.
    let is_last = is_last || matches!(status.signal(), Some(1 | 2 | 3 | 15));
    if is_last {
        let Collected { profiles, threads, n_threads, warnings } = counted;
        let recording = Recording {
            run: Some(Run {
                died: run.died().map(input::death).as_ref().map(fill::died),
                left_out: left_out(&args.modules, run.left_out()),
                others: run.others().map(|OtherPrograms { n, is_least, share }| Others {
                    n,
                    is_least,
                    share,
                }),
                n_threads: Some(n_threads),
                ..described(&args.command, (started, duration), status)
            }),
            modules: info_span!("keep code").in_scope(|| run.with_code(profiles)),
            threads,
            ..Recording::default()
        };
        keep(rec, &recording.write())?;
        // What is left to do is for whoever waits for it.
        output::tidy_before_signals_end_us();
        warnings.iter().for_each(output::warned);
        report(args, rec.path(), run, recording, repeats)?;
    }
    Ok((passed_on(status), is_last))
}

/// Which run this was, for its recording: when it started, how long it took, how it ended.
pub fn described(command: &CommandLine, when: (SystemTime, Duration), status: ExitStatus) -> Run {
    let (name, rest) = command.split();
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    let command = std::iter::once(name).chain(rest.iter().map(OsString::as_os_str)).map(text).collect();
    let variables = std::env::vars_os().map(|(name, value)| (text(&name), text(&value))).collect();
    let end = status.code().map(End::Exit).or(status.signal().map(End::Signal));
    Run { end, ..described_by(command, variables, when) }
}

/// The same of a command with these variables in its environment; when it started, and how long it took.
pub fn described_by(
    command: Vec<String>,
    variables: BTreeMap<String, String>,
    (started, took): (SystemTime, Duration),
) -> Run {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Run {
        command,
        environment: variables.into_iter().filter(|(name, _)| Run::keeps(name)).collect(),
        start_ns: started.duration_since(SystemTime::UNIX_EPOCH).map_or(0, nanoseconds),
        duration_ns: nanoseconds(took),
        machine: session::machine(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Run::default()
    }
}

/// Says what was counted, if that is to be said.
fn report(
    args: &Args,
    rec: &Path,
    run: CountedRun<'_>,
    recording: Recording,
    repeats: Option<&mut Repeats>,
) -> anyhow::Result<()> {
    if args.output.is_silent() {
        // All memory goes with the process, at once.
        std::mem::forget((run, recording));
        return Ok(());
    }
    let programs: Vec<Program> = match repeats {
        // What was replaced while it ran cannot be shown.
        None => recording.modules.iter().filter_map(|module| input::kept_program(&[module]).ok()).collect(),
        // Of several runs, code that ran in any of them.
        Some(_) => run.into_programs(),
    };
    let mut view = fill::recorded(rec, recording, &programs);
    view.run = None;
    view.repeated = repeats.map(|repeats| repeat::view(repeats, &programs));
    args.output.print(&view)
}

/// The libraries at `paths`, which are none of the `modules` that were asked for, and the option that counts
/// them, too: all but the dynamic linker, which runs before anything is counted.
fn left_out(modules: &[String], paths: &[PathBuf]) -> Vec<LeftOut> {
    let name = |path: &PathBuf| input::file_name(&path.to_string_lossy());
    let is_linker = |path: &&PathBuf| name(path).starts_with("ld");
    let countable: Vec<String> = paths.iter().filter(|path| !is_linker(path)).map(name).collect();
    let asked = modules.iter().chain(&countable).map(String::as_str).collect::<Vec<_>>().join(",");
    let option = |path| (!is_linker(&path)).then(|| format!("--modules {asked}"));
    paths.iter().map(|path| LeftOut { module: name(path), option: option(path) }).collect()
}

/// Writes the recording; elsewhere, if it cannot be written where it was to be: the run cannot be had again.
///
/// # Errors
/// If it is not where it was to be. That says where it is.
pub fn keep(rec: &Place, bytes: &[u8]) -> anyhow::Result<()> {
    rec.make_room();
    let rec = rec.path();
    let Err(err) = output::data(Some(rec), |w| w.write_all(bytes)) else { return Ok(()) };
    if output::is_standard_output(rec) {
        return Err(err);
    }
    let made = tempfile::Builder::new().prefix("run-").suffix(".engraft").tempfile();
    let saved = made.ok().and_then(|mut file| {
        file.write_all(bytes).and_then(|()| file.as_file().sync_data()).ok()?;
        file.into_temp_path().keep().ok()
    });
    let Some(saved) = saved else { return Err(err) };
    let hint = "move it to where there is room; $TMPDIR says where such files go";
    Err(Hinted::new(format!("{err:#}; the recording is {}", saved.display()), hint).into())
}

/// What the recording `rec` holds, as it is said after the run.
///
/// # Errors
/// If it is none, or its images are gone.
pub fn recorded(rec: &Path) -> anyhow::Result<CountView> {
    let source = input::Source::read(rec)?;
    let mut recording = source.needed_recording()?;
    let programs = recording.modules.iter().map(|module| input::kept_program(&[module]));
    let programs = programs.collect::<Result<Vec<_>, _>>()?;
    source.add_threads(&mut recording)?;
    let mut view = fill::recorded(rec, recording, &programs);
    let seen = source.seen()?;
    points::warn_of_nothing(&seen);
    view.points = seen.into_iter().map(point_view).collect();
    Ok(view)
}

/// Where programs are looked for where the environment does not say: as the C library does it.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Addresses that we need ourselves, for a small program.
const OWN_ADDRESSES: u64 = 96 << 20;
