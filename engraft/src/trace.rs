//! `engraft trace`: the whole control flow of a run, recorded.

mod deaths;
mod pack;
mod writer;

use self::deaths::End;
use crate::count::prepare::{Counted, Start};
use crate::count::{How, Loader, Store, prepare};
use crate::output::{self, Answer, Hinted, Output};
use anyhow::Context as _;
use live::launch::{Ready, Started, Swap};
use live::{Arena, Owner};
use measure::Placement;
use profile::Profile;
use program::Va;
use session::Modules;
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trace::Cause;
use trace::Maker;
use trace::recording::code::Code;
use trace::recording::ring::Ring;
use trace::recording::window::{self, When, Window};
use trace::sample::Sample;
use views::trace::TraceView;
use writer::Writer;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft trace -q -o old.trace -- ./old
  $ engraft trace --modules exe -o exe.trace -- ./old";

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
        cmd.args_conflicts_with_subcommands(true).after_help(EXAMPLES)
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
pub struct Recording {
    /// Where to write the trace
    #[arg(short, value_name = "T")]
    o: PathBuf,
    /// What to record: `all` (without libc and ld.so), `exe`, or file names of modules, `*` standing for
    /// anything
    #[arg(long, value_name = "WHICH", num_args = 1.., default_value = "all")]
    modules: Vec<String>,
    /// Record only functions with these names, `*` standing for anything; others are as if they were not
    /// recorded
    #[arg(long, value_name = "NAME", num_args = 1..)]
    functions: Vec<String>,
    /// Keep what comes from the first time on that one of these functions is entered (and, with --to, from
    /// each time behind it)
    #[arg(long, value_name = "FUNCTION", num_args = 1..)]
    from: Vec<String>,
    /// Keep what comes until one of these functions is entered
    #[arg(long, value_name = "FUNCTION", num_args = 1..)]
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
    output: Output,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM ARGS")]
    command: Vec<OsString>,
}

/// Reads a time from the command line.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.ok_or_else(|| "say seconds, such as 1.5".into())
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

/// What of the run is kept.
fn window(args: &Recording, codes: &[Code]) -> anyhow::Result<Window> {
    let entries = |names: &[String]| {
        let mut all = HashSet::new();
        for name in names {
            let found = window::entries(codes, |symbol| prepare::is_name(name, symbol));
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
    let (after, lasts) = (args.after.unwrap_or_default(), args.lasts);
    Ok(Window::new(
        When { after, lasts, is_switched: args.switch.is_some(), is_paused: args.paused },
        from,
        to,
    ))
}

/// SIGABRT.
const ABORT: i32 = 6;

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    match args {
        Args::Record(args) => record(args),
        Args::Pack(args) => pack::run(args),
    }
}

fn record(args: &Recording) -> anyhow::Result<Answer> {
    let (name, rest) = args.command.split_first().expect("clap asks for one at least");
    if let Some(of) = output::shared(&args.o) {
        let hint = "name a file: `-o FILE`; one of that name is `./-`";
        return Err(Hinted::new(format!("{of} is the program's: a trace is not written to it"), hint).into());
    }
    let target = crate::count::find(name)?;
    output::spares(&args.o, &[&target.command])?;
    output::can_be_written(&args.o)?;
    if args.pack && !output::is_own_file(&args.o) {
        let what = format!("{} cannot be read again, to be packed", args.o.display());
        return Err(Hinted::new(what, "leave out --pack, or name a file").into());
    }
    let kept = Store::open(args.no_cache)?;
    let wanted = Modules::new(&args.modules);
    let libc = wanted.has_library(Path::new("libc.so.6"));
    let telling = [args.from.as_slice(), &args.to].concat();
    let Start { image, libraries: paths, sites, interposed } = Start::of(&kept, &target)?;
    let (functions, telling) = (args.functions.as_slice(), telling.as_slice());
    let how = How { libc, functions, telling, interposed: &interposed, ..How::of(Placement::Events) };
    let is_exe_wanted = wanted.has_executable(&target.executable);
    let of_exe = How { placement: if is_exe_wanted { how.placement } else { Placement::Nowhere }, ..how };
    let (segments, exe) = prepare::executable(&kept, &target.executable, image, of_exe)?;
    wanted.refuse_none(&target.executable, &paths)?;
    let paths: Vec<PathBuf> =
        paths.into_iter().filter(|path| wanted.has_library(path) && path.is_absolute()).collect();
    let (libraries, refused) = prepare::libraries(&kept, is_exe_wanted.then_some(&exe), paths, how)?;
    let mut recorded = if is_exe_wanted { vec![exe] } else { Vec::new() };
    let mut swaps = Vec::new();
    for (library, given) in libraries {
        swaps.push(Swap { asked: library.path.clone(), given });
        recorded.push(library);
    }
    let keys: Vec<u128> = recorded.iter().map(|c| c.key).collect();
    let arena = Arena::for_events(&keys).map_err(|err| crate::count::no_memory("events", &err))?;
    let first = recorded.iter().filter_map(Counted::means).collect::<Vec<_>>();
    if !args.functions.is_empty() && first.iter().all(|code| code.entries.is_empty()) {
        let what = format!("no function that can be recorded is called {}", args.functions.join(" or "));
        let hint = "`engraft show BINARY functions` lists those of a file; one of a library that the program loads later is recorded if another one, such as `main`, is named beside it";
        return Err(Hinted::new(what, hint).into());
    }
    let window = window(args, &first)?;
    if let Some(which) = args.switch {
        live::keep_signal(which);
    }
    let ring = args.last.map(Ring::new);
    let (tells, later) = std::sync::mpsc::channel();
    let mut writer = output::started(&args.o, |file| Writer::new(file, &first, later, window, ring))?;
    let mut command = Command::new(&target.start);
    std::os::unix::process::CommandExt::arg0(&mut command, target.arg0.as_ref().unwrap_or(name));
    command.args(&target.before).args(rest);
    live::pass_signals_on();
    let loader = Loader::new(&kept, &arena, &wanted, how, recorded, refused, swaps.clone()).telling(tells);
    let [is_over, is_gone, is_done] = [(); 3].map(|()| AtomicBool::new(false));
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (status, became, pid, taken, text, deaths) = std::thread::scope(|scope| {
        let thread = || std::thread::Builder::new();
        thread().spawn_scoped(scope, || loader.serve(ready, &is_over)).context("cannot start a thread")?;
        // Before the program can ask; an error if it will be told that nobody answers.
        let _who_answers = is_ready.recv();
        let taker = thread().spawn_scoped(scope, || {
            // However taking ends, nobody waits for room any more.
            let _closes = prepare::Closes(&arena);
            writer.take(&arena, &is_done)
        });
        let taker =
            taker.context("cannot start a thread").inspect_err(|_| is_over.store(true, Ordering::Relaxed))?;
        let ready = Ready {
            segments: &segments,
            file: None,
            swaps: &swaps,
            opens: &sites.0,
            execs: None,
            watches: true,
        };
        let started = live::launch::launch(command, &ready, &arena).map_err(anyhow::Error::from);
        let started = started.inspect_err(|_| output::abandoned(&args.o));
        let status = started.and_then(|Started { mut child, text, deaths }| {
            let (pid, started, is_gone) = (child.id(), &target.executable, &is_gone);
            let watch =
                thread().spawn_scoped(scope, move || crate::count::what_it_becomes(pid, started, is_gone));
            let status =
                live::wait(&mut child).with_context(|| format!("cannot wait for {}", name.display()));
            is_gone.store(true, Ordering::Relaxed);
            let became = crate::count::seen_by(watch).flatten();
            Ok((status?, became, pid, text, deaths))
        });
        is_done.store(true, Ordering::SeqCst);
        let taken = taker.join();
        is_over.store(true, Ordering::Relaxed);
        arena.wake();
        let (status, became, pid, text, deaths) = status?;
        anyhow::Ok((status, became, pid, taken, text, deaths))
    })?;
    let taken = taken.map_err(|_| anyhow::anyhow!("the thread that takes events has panicked"))?;
    let (recorded, refused, given) = loader.finish();
    let has_become = became.is_some();
    if let Some(program) = became {
        crate::count::warn_of_another(&program, "recorded");
    }
    for (path, why) in &refused {
        output::warn(&format!("{} was not recorded: {why}", path.display()), None);
    }
    let codes: Vec<Code> = recorded.iter().filter_map(Counted::means).collect();
    let told = deaths.map(|deaths| deaths.told()).unwrap_or_default();
    let library = |(given, key): (PathBuf, u128)| {
        let library = recorded.iter().find(|c| c.key == key)?;
        Some(deaths::Library { plain: &library.path, given, key: library.code.as_ref()?.key })
    };
    let texts = deaths::Texts {
        executable: text,
        key: recorded.iter().find(|c| c.path == target.executable).and_then(|c| Some(c.code.as_ref()?.key)),
        libraries: given.into_iter().filter_map(library).collect(),
        codes: &codes,
    };
    let last_events = texts.last_events(&taken.owners, &told);
    // Where a thread has said that it ends the process, the others were stopped anywhere.
    let who_left = |process: u32| taken.owners.iter().any(|owner| owner.has_left && owner.process == process);
    let is_open = |owner: &Owner| !(owner.runs || owner.has_ended || owner.has_left || owner.is_another);
    let n_open = taken.owners.iter().filter(|owner| owner.process == pid && is_open(owner)).count();
    // Who knows how far a thread came behind its last event that a signal has ended; but SIGABRT is where one
    // calls something.
    let is_stopped = |owner: &Owner| match deaths::signal_of(owner, &told) {
        Some(signal) => signal != ABORT,
        None if owner.process == pid => status.signal().is_some_and(|signal| signal != ABORT || n_open > 1),
        // What ended another, only the kernel tells, and by a thread's number.
        None => !told.is_whole || owner.thread.is_none(),
    };
    let end = |area: u32, owner: &Owner| match owner {
        Owner { is_another: true, .. } => End::Led(Cause::Exec),
        Owner { runs: true, .. } => End::Runs,
        // Seen when its process ended, or by a thread that came later.
        Owner { has_ended: true, .. } => End::Led(Cause::ThreadEnd),
        _ if has_become && owner.process == pid => End::Led(Cause::Exec),
        Owner { has_left: true, .. } => End::Led(Cause::ProcessEnd),
        _ => match last_events.get(&area) {
            Some(events) => End::At(events),
            None if deaths::ended_before(owner, &told) => End::Led(Cause::ThreadEnd),
            None if is_stopped(owner) || who_left(owner.process) => End::Anywhere,
            None => End::Led(Cause::ProcessEnd),
        },
    };
    let ends: Vec<(u32, End<'_>)> =
        (0..).zip(&taken.owners).map(|(area, owner)| (area, end(area, owner))).collect();
    let is_cut = ends.iter().any(|(_, end)| !end.is_known());
    for (area, end) in &ends {
        end.events().iter().for_each(|events| writer.append(*area, events));
    }
    let ends: Vec<(u32, Cause)> = ends.into_iter().map(|(area, end)| (area, end.cause())).collect();
    let sample = writer.take_sample();
    let (n_bytes_of_events, has_kept) = (writer.n_bytes(), writer.has_kept());
    let written = writer.finish(&ends);
    if !how.is_partial() {
        tracing::info_span!("learn").in_scope(|| learn(&kept, &recorded, &sample));
    }
    kept.trim();
    if let Some(err) = &taken.failed {
        output::warn(&format!("cannot take the events of {}: {err}", name.display()), None);
    }
    if taken.n_lost > 0 {
        output::warn("not all was recorded: events were not taken", None);
    }
    if n_bytes_of_events > 0 && !has_kept {
        let what = format!("nothing was kept: {} ended outside of what was asked for", name.display());
        output::warn(&what, Some("--from, --after, --for, --switch and --paused say what is kept"));
    }
    if taken.n_shared > 0 {
        let what = "more threads than there is room for ran at once: some share a stream, in which what they did cannot be told apart";
        output::warn(what, None);
    }
    crate::count::warn_of_left(taken.n_left, "recorded");
    let n_bytes = written.map_err(|err| {
        let what = format!("cannot write {}: {err}", args.o.display());
        output::warn(&what, Some("what was recorded before can be read; make room for the rest"));
    });
    let n_bytes = match args.pack {
        true => n_bytes.and_then(|n| {
            let packed = pack::file(&args.o, &args.o, Maker::Sequitur).map(|wrote| wrote.n_bytes);
            packed.map_err(|err| output::warn(&format!("{err:#}"), output::hint(&err).as_deref())).or(Ok(n))
        }),
        false => n_bytes,
    };
    if !output::manner().quiet {
        let view = TraceView {
            schema: TraceView::SCHEMA,
            file: args.o.display().to_string(),
            n_bytes: n_bytes.ok(),
            n_bytes_of_events,
            n_streams: taken.n_streams,
            n_stalls: taken.n_stalls,
            ended_by_signal: status.signal(),
            is_cut,
            modules: codes.iter().map(|code| code.path.clone()).collect(),
        };
        output::report(|w| args.output.write(&view, w));
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Answer::Status(u8::try_from(code & 0xff).expect("eight bits")))
}

/// Keeps how modules ran, for the places of their events when they are recorded again.
fn learn(kept: &Store, recorded: &[Counted], sample: &Sample) {
    let modules: Vec<&Counted> = recorded.iter().filter(|module| module.code.is_some()).collect();
    if kept.is_temporary() || modules.iter().all(|module| kept.knows_run(module)) {
        return;
    }
    let codes = modules.iter().filter_map(|module| module.means()).collect();
    let is_long = |module: &Counted, n_events: u64| {
        let n_points = module.code.as_ref().map_or(0, |code| code.points.len());
        n_events > 0 && n_events / LONG_RUN >= n_points as u64
    };
    let is_new =
        |n: usize, n_events| modules.get(n).is_some_and(|m| is_long(m, n_events) && !kept.knows_run(m));
    for (module, weights) in modules.iter().zip(sample.weights(codes, is_new).into_iter().flatten()) {
        let mut profile = Profile::default();
        profile.image.name = module.path.display().to_string();
        profile.blocks = weights.blocks.into_iter().map(|(at, n)| (Va(at), n)).collect();
        let edge = |(from, to)| profile::Edge { from: Va(from), to: Va(to) };
        profile.edges = weights.edges.into_iter().map(|(ends, n)| (edge(ends), n)).collect();
        kept.keep_run(module, is_long(module, weights.n_events), &profile);
    }
}

/// How many events a point has on average in a run that is long: to rewrite its code takes about as long as a
/// few hundred events a point, each time, and saves a third of them.
const LONG_RUN: u64 = 500;
