//! `engraft trace`: the whole control flow of a run, recorded.

mod writer;

use crate::count::prepare::Counted;
use crate::count::{How, Loader, Store, Wanted, prepare};
use crate::out::{self, Answer, Hinted};
use crate::view::{Output, Table, View, many};
use anyhow::Context as _;
use live::Arena;
use live::launch::{Ready, Swap};
use measure::Placement;
use profile::Profile;
use program::Va;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use trace::Cause;
use trace::events;
use trace::sample::Sample;
use writer::Writer;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft trace -q -o old.trace -- ./old
  $ engraft trace --modules exe -o exe.trace -- ./old";

/// Run a program and record every function that it enters, every block that it executes, every exit, in order
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where to write the trace
    #[arg(short, value_name = "T")]
    o: PathBuf,
    /// What to record: `all` (without libc and ld.so), `exe`, or file names of modules, `*` standing for anything
    #[arg(long, value_name = "WHICH", num_args = 1.., default_value = "all")]
    modules: Vec<String>,
    /// Do not keep rewritten modules for the next time
    #[arg(long)]
    no_cache: bool,
    #[command(flatten)]
    output: Output,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM ARGS")]
    command: Vec<OsString>,
}

impl Wanted for Args {
    fn library(&self, path: &Path) -> bool {
        crate::count::is_wanted(&self.modules, path)
    }
    fn executable(&self, path: &Path) -> bool {
        crate::count::is_wanted_executable(&self.modules, path)
    }
    fn is_system(&self, path: &Path) -> bool {
        crate::count::is_system_file(path)
    }
}

/// What ends a process anywhere; others end it where it faults, or calls something.
const SIGKILL: i32 = 9;
/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let (name, rest) = args.command.split_first().expect("clap asks for one at least");
    let target = crate::count::find(name)?;
    out::spares(&args.o, &[&target.command])?;
    out::can_be_written(&args.o)?;
    live::keep_memory();
    let kept = Store::open(args.no_cache)?;
    let libc = args.library(Path::new("libc.so.6"));
    let how = How { placement: Placement::Events, callees: false, follows: false, turn: 0, libc };
    let is_exe_wanted = args.executable(&target.executable);
    let of_exe = How { placement: if is_exe_wanted { how.placement } else { Placement::Nowhere }, ..how };
    let (segments, exe, linker) = prepare::executable(&kept, &target.executable, of_exe)?;
    let (paths, sites) = match &linker {
        Some(linker) => (
            target.libraries(linker).with_context(|| format!("cannot run {}", linker.display()))?,
            prepare::sites(&kept, linker)?,
        ),
        None => Default::default(),
    };
    crate::count::refuse_none(args, &args.modules, false, &target, &paths)?;
    let paths: Vec<PathBuf> =
        paths.into_iter().filter(|path| args.library(path) && path.is_absolute()).collect();
    let (libraries, refused) = prepare::libraries(&kept, is_exe_wanted.then_some(&exe), paths, how)?;
    let mut recorded = if is_exe_wanted { vec![exe] } else { Vec::new() };
    let mut swaps = Vec::new();
    for (library, given) in libraries {
        swaps.push(Swap { asked: library.path.clone(), given });
        recorded.push(library);
    }
    let keys: Vec<u128> = recorded.iter().map(|c| c.key).collect();
    let arena = Arena::for_events(&keys).map_err(|err| {
        let hint = "they are in memory that is shared: raise the limits of the length of files and of addresses (`ulimit -f`, `ulimit -v`)";
        Hinted::new(format!("cannot get memory for the events: {err}"), hint)
    })?;
    let file = File::create(&args.o).with_context(|| format!("cannot write {}", args.o.display()))?;
    let first = recorded.iter().filter_map(code).collect::<Vec<_>>();
    let mut writer =
        Writer::new(file, &first).with_context(|| format!("cannot write {}", args.o.display()))?;
    let mut command = Command::new(&target.start);
    std::os::unix::process::CommandExt::arg0(&mut command, target.arg0.as_ref().unwrap_or(name));
    command.args(&target.before).args(rest);
    live::pass_signals_on();
    let loader = Loader::new(&kept, &arena, args, how, recorded, refused, swaps.clone());
    let (is_over, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (status, taken) = std::thread::scope(|scope| {
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
        let ready = Ready { segments: &segments, file: None, swaps: &swaps, opens: &sites.0, execs: None };
        let started = live::launch::launch(command, &ready, &arena).map_err(anyhow::Error::from);
        let status = started.and_then(|mut child| {
            live::wait(&mut child).with_context(|| format!("cannot wait for {}", name.display()))
        });
        is_done.store(true, Ordering::SeqCst);
        let taken = taker.join();
        is_over.store(true, Ordering::Relaxed);
        arena.wake();
        anyhow::Ok((status?, taken))
    })?;
    let taken = taken.map_err(|_| anyhow::anyhow!("the thread that takes events has panicked"))?;
    let (recorded, refused) = loader.finish();
    for (path, why) in &refused {
        out::warn(&format!("{} was not recorded: {why}", path.display()), None);
    }
    let codes: Vec<events::Code> = recorded.iter().filter_map(code).collect();
    let later = codes.get(first.len()..).unwrap_or_default();
    let taken = taken.with_context(|| format!("cannot take the events of {}", name.display()))?;
    // Others than the first end when their thread does, or in a call.
    let is_killed = status.signal() == Some(SIGKILL);
    let end = |k: u32| match k {
        0 if is_killed => Cause::RecordingEnd,
        0 => Cause::ProcessEnd,
        _ if is_killed => Cause::RecordingEnd,
        _ => Cause::ThreadEnd,
    };
    let n_streams = u32::try_from(taken.n_streams).expect("few");
    let ends: Vec<(u32, Cause)> = (0..n_streams).map(|k| (k, end(k))).collect();
    let sample = std::mem::take(&mut writer.sample);
    let written = writer.finish(later, &ends);
    tracing::info_span!("learn").in_scope(|| learn(&kept, &recorded, &sample));
    kept.trim();
    if taken.n_lost > 0 {
        out::warn("not all was recorded: events were not taken", None);
    }
    let n_bytes = written.map_err(|err| {
        let what = format!("cannot write {}: {err}", args.o.display());
        out::warn(&what, Some("what was recorded before can be read; make room for the rest"));
    });
    if !out::manner().quiet {
        let view = TraceView {
            schema: "engraft.trace/1",
            file: args.o.display().to_string(),
            n_bytes: n_bytes.ok(),
            n_bytes_of_events: taken.n_bytes,
            n_streams: taken.n_streams,
            n_stalls: taken.n_stalls,
            modules: codes.iter().map(|code| code.path.clone()).collect(),
        };
        out::report(|w| args.output.write(&view, w));
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Answer::Status(u8::try_from(code & 0xff).expect("eight bits")))
}

/// Keeps how modules ran, for the places of their events when they are recorded again.
fn learn(kept: &Store, recorded: &[Counted], sample: &Sample) {
    let modules: Vec<&Counted> = recorded.iter().filter(|module| module.code.is_some()).collect();
    if modules.iter().all(|module| kept.knows_run(module)) {
        return;
    }
    let codes = modules.iter().filter_map(|module| code(module)).collect();
    for (module, weights) in modules.iter().zip(sample.weights(codes)) {
        let n_points = module.code.as_ref().map_or(0, |code| code.points.len());
        let mut profile = Profile::default();
        profile.image.name = module.path.display().to_string();
        profile.blocks = weights.blocks.into_iter().map(|(at, n)| (Va(at), n)).collect();
        let edge = |(from, to)| profile::Edge { from: Va(from), to: Va(to) };
        profile.edges = weights.edges.into_iter().map(|(ends, n)| (edge(ends), n)).collect();
        let is_long = weights.n_events > 0 && weights.n_events / LONG_RUN >= n_points as u64;
        kept.keep_run(module, is_long, &profile);
    }
}

/// How many events a point has on average in a run that is long: to rewrite its code takes about as long as a few hundred
/// events a point, each time, and saves a third of them.
const LONG_RUN: u64 = 500;

/// What the events of a module mean, if they are recorded.
fn code(module: &Counted) -> Option<events::Code> {
    let path = module.path.display().to_string();
    module.code.clone().map(|code| events::Code { path, ..code })
}

/// What was recorded.
#[derive(Serialize)]
struct TraceView {
    schema: &'static str,
    file: String,
    /// Of the whole file; `None` if not all could be written.
    n_bytes: Option<u64>,
    n_bytes_of_events: usize,
    n_streams: usize,
    /// How often a thread waited until there was room for its events.
    n_stalls: usize,
    modules: Vec<String>,
}

impl View for TraceView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["file", "bytes>", "events, bytes>", "threads>", "stalls>", "module"]);
        for module in &self.modules {
            let n_bytes = self.n_bytes.map_or_else(String::new, |n| n.to_string());
            let [events, threads, stalls] =
                [self.n_bytes_of_events, self.n_streams, self.n_stalls].map(|n| n.to_string());
            t.row([self.file.clone(), n_bytes, events, threads, stalls, module.clone()]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let events = many(self.n_bytes_of_events, "byte");
        let (threads, modules) = (many(self.n_streams, "thread"), many(self.modules.len(), "module"));
        let trace = match self.n_bytes {
            Some(n) => format!("trace: {}: {n} bytes", self.file),
            None => format!("a part of it is in {}", self.file),
        };
        writeln!(w, "recorded {events} of events of {threads} in {modules}; {trace}")?;
        if self.n_stalls > 0 {
            writeln!(w, "the program waited {} for room", many(self.n_stalls, "time"))?;
        }
        Ok(())
    }
}
