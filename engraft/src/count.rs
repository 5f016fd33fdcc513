//! `engraft count`: how often each block ran, exactly.

mod callees;
mod follow;
mod points;
pub mod prepare;
mod repeat;
pub mod view;

use crate::input;
use crate::output::{self, Answer, Hinted, Output};
use anyhow::Context as _;
use live::launch::{Ready, Started, Swap};
use live::{Arena, Target};
use measure::Placement;
use points::point_view;
use prepare::{Counted, Start};
pub use prepare::{How, Loader, Store};
use program::Program;
use rayon::prelude::*;
use repeat::Repeats;
use session::{Modules, is_system_file};
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::info_span;
use views::count::CountView;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft count -o old.engraft -- ./old
  $ engraft count -q --modules exe -o again.engraft -- ./old";

/// Run a program and count how often each of its blocks runs, exactly
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where to write the recording [default: PROGRAM.engraft, or PROGRAM.1.engraft and so on if that is
    /// there]
    #[arg(short, value_name = "REC")]
    o: Option<PathBuf>,
    /// What to count in: `all` (without libc and ld.so), `exe`, or file names of modules, `*` standing for
    /// anything
    #[arg(long, value_name = "WHICH", num_args = 1.., default_value = "all")]
    modules: Vec<String>,
    /// Count programs that it becomes or starts by `exec`, too
    #[arg(long)]
    follow: bool,
    /// Keep the counts of each thread apart, too; `convert --thread N` takes one
    #[arg(long)]
    per_thread: bool,
    /// Run it N times, and say what was not the same in each; the recording has the last run
    #[arg(long, value_name = "N", default_value = "1", value_parser = crate::input::from_one)]
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
    output: Output,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM ARGS")]
    command: Vec<OsString>,
}

/// The program that is called `name`, which can be counted on this machine.
///
/// # Errors
/// If it is not there, or nothing can be counted here.
pub fn find(name: &OsString) -> anyhow::Result<Target> {
    needs_proc()?;
    let search = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let target = Target::find(name, &search).map_err(|err| {
        let hint = err.hint().unwrap_or_default();
        Hinted::new(format!("{:#}", anyhow::Error::from(err)), hint)
    })?;
    if !live::can_set_bases() {
        let hint = "it needs a processor with FSGSBASE (2012 or later) and Linux 5.9 or later, started without `nofsgsbase`";
        let what = "programs cannot be counted on this machine: they may not set the base of gs";
        return Err(Hinted::new(what, hint).into());
    }
    Ok(target)
}

/// Refuses where nothing can be said of processes: what they may do is known by it, and they are prepared by
/// it.
///
/// # Errors
/// If /proc is not mounted.
pub fn needs_proc() -> Result<(), Hinted> {
    if Path::new("/proc/self").exists() {
        return Ok(());
    }
    Err(Hinted::new("/proc is not mounted", "mount it: `mount -t proc proc /proc`"))
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let (name, _) = args.command.split_first().expect("clap asks for one at least");
    let target = find(name)?;
    let rec = recording_path(args, &target.command)?;
    output::can_be_written(&rec)?;
    if let Some(n) = live::Limits::ours().addresses.filter(|n| *n < OWN_ADDRESSES) {
        let what = format!(
            "the limit of addresses (`ulimit -v`) is {} kB, of which count itself needs more",
            n >> 10
        );
        let hint = "set it for the program alone: `engraft count --follow -- prlimit --as=BYTES PROGRAM`";
        return Err(Hinted::new(what, hint).into());
    }
    let kept = Store::open(args.no_cache)?;
    let mut repeats = Repeats::default();
    let mut failed = 0;
    for left in (0..args.repeat.get()).rev() {
        let of_several = (args.repeat.get() > 1).then_some(&mut repeats);
        let (code, is_last) = once(args, &target, &kept, &rec, of_several, left == 0)?;
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
    kept: &Store,
    rec: &Path,
    mut repeats: Option<&mut Repeats>,
    is_last: bool,
) -> anyhow::Result<(u8, bool)> {
    let (name, rest) = args.command.split_first().expect("clap asks for one at least");
    let placement = if args.all_blocks { Placement::Blocks } else { Placement::Edges };
    let Start { image, libraries: paths, sites, interposed } =
        info_span!("prepare").in_scope(|| Start::of(kept, target))?;
    let (callees, follows, interposed) = (args.callees, args.follow, interposed.as_slice());
    let how = How { callees, follows, interposed, ..How::of(placement) };
    let wanted = Modules::new(&args.modules);
    let is_exe_counted = wanted.has_executable(&target.executable);
    let of_exe = How { placement: if is_exe_counted { placement } else { Placement::Nowhere }, ..how };
    let (segments, exe) =
        info_span!("prepare").in_scope(|| prepare::executable(kept, &target.executable, image, of_exe))?;
    if !args.follow {
        wanted.refuse_none(&target.executable, &paths)?;
    }
    let (paths, others): (Vec<PathBuf>, Vec<_>) =
        paths.into_iter().partition(|path| wanted.has_library(path));
    // What is named by its place from here is given when it is asked for: the program may ask from elsewhere.
    // But whether it can be counted is known now.
    let (paths, from_here): (Vec<PathBuf>, Vec<_>) = paths.into_iter().partition(|path| path.is_absolute());
    let (libraries, refused) = info_span!("prepare").in_scope(|| {
        prepare::libraries(kept, None, from_here, how)?;
        prepare::libraries(kept, None, paths, how)
    })?;

    let mut counted: Vec<Counted> = if is_exe_counted { vec![exe] } else { Vec::new() };
    let mut swaps = Vec::new();
    for (library, given) in libraries {
        swaps.push(Swap { asked: library.path.clone(), given });
        counted.push(library);
    }
    for asked in others.into_iter().filter(|path| args.follow && is_system_file(path)) {
        swaps.extend(prepare::asking(kept, &asked)?.map(|given| Swap { asked, given }));
    }
    let keys: Vec<(u128, usize)> = counted.iter().map(|c| (c.key, c.notes.n_words())).collect();
    let arena =
        Arena::create(&keys, args.follow || args.callees).map_err(|err| no_memory("counters", &err))?;
    let mut command = Command::new(&target.start);
    std::os::unix::process::CommandExt::arg0(&mut command, target.arg0.as_ref().unwrap_or(name));
    command.args(&target.before).args(rest);
    live::pass_signals_on();
    let loader = Loader::new(kept, &arena, &wanted, how, counted, refused, swaps.clone());
    let (is_over, is_gone) = (AtomicBool::new(false), AtomicBool::new(false));
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (status, became, pid, maps) = std::thread::scope(|scope| {
        let thread = || std::thread::Builder::new();
        let spawned = thread().spawn_scoped(scope, || loader.serve(ready, &is_over));
        spawned.context("cannot start a thread")?;
        // Before the program can ask; an error if it will be told that nobody answers.
        let _who_answers = is_ready.recv();
        if args.follow {
            let spawned = thread().spawn_scoped(scope, || follow::serve(scope, &loader, &arena, &is_over));
            spawned
                .context("cannot start a thread")
                .inspect_err(|_| is_over.store(true, Ordering::Relaxed))?;
        }
        let execs = args.follow.then_some(&sites.1[..]);
        let ready =
            Ready { segments: &segments, file: None, swaps: &swaps, opens: &sites.0, execs, watches: false };
        let started = live::launch::launch(command, &ready, &arena).map_err(|err| {
            let err = anyhow::Error::from(err);
            if is_traced() { Hinted::new(format!("{err:#}"), TRACED).into() } else { err }
        });
        let status = started.and_then(|Started { mut child, .. }| {
            let pid = child.id();
            let (started, is_gone) = (&target.executable, &is_gone);
            let watch = (!args.follow)
                .then(|| thread().spawn_scoped(scope, move || what_it_becomes(pid, started, is_gone)));
            // What is followed has other addresses.
            let maps = (args.callees && !args.follow)
                .then(|| thread().spawn_scoped(scope, move || callees::Maps::watch(pid, is_gone)));
            let status =
                live::wait(&mut child).with_context(|| format!("cannot wait for {}", name.display()));
            is_gone.store(true, Ordering::Relaxed);
            let became = watch.and_then(seen_by).flatten();
            let maps = maps.and_then(seen_by);
            Ok((status?, became, pid, maps.unwrap_or_default()))
        });
        is_over.store(true, Ordering::Relaxed);
        arena.wake();
        arena.ring();
        status
    })?;
    let (counted, refused, _) = loader.finish();
    let seen: Vec<&Path> =
        counted.iter().map(|c| c.path.as_path()).chain(refused.iter().map(|r| r.0.as_path())).collect();
    for name in wanted.unmatched(&seen) {
        let hint = "file names are meant, as `ldd` shows them; * stands for anything";
        output::warn(&format!("no module is called {name}"), Some(hint));
    }

    let _span = info_span!("write").entered();
    let n_areas = arena.n_areas()?;
    let stops = arena.stops()?;
    let ends_are_taken = counted.iter().any(|module| module.notes.ends_are_taken);
    let stopped = arena.stopped(pid, status, ends_are_taken)?;
    let mut profiles = Vec::new();
    let mut threads = vec![Vec::new(); if args.per_thread { usize::try_from(n_areas)? } else { 0 }];
    for module in &counted {
        let n = module.notes.n_counters();
        let profile = |counts: &[u64], stops: &[(u64, i64)], n_stopped: u64| {
            let mut profile = module.notes.profile(counts, stops, n_stopped);
            profile.image.name = input::written_path(&module.path);
            profile
        };
        let mut all = vec![0; n];
        let mut calls = callees::Calls::of(module, &counted, &arena, &maps);
        for k in 0..n_areas {
            // One area at a time: of large modules, many together do not fit into memory.
            let area = arena.area(module.key, n, k)?;
            all.iter_mut().zip(&area).for_each(|(sum, n): (&mut u64, _)| *sum = sum.wrapping_add(*n));
            let mut thread = threads.get_mut(usize::try_from(k)?);
            let n_stopped = stopped.in_areas.get(usize::try_from(k)?).map_or(0, |n| stopped.n.min(*n));
            let mut own = thread.as_ref().map(|_| profile(&area, &[], n_stopped));
            calls.add(k, own.as_mut())?;
            if let (Some(thread), Some(own)) = (thread.as_mut(), own) {
                thread.push(own);
            }
        }
        let mine = arena.rows(module.key).into_iter().flat_map(|row| measure::recording::stops(&stops, row));
        let mut profile = profile(&all, &mine.collect::<Vec<_>>(), stopped.n);
        calls.tell(&mut profile);
        if placement == Placement::Edges {
            let n_increments = all.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
            let is_long = n_increments > 0 && n_increments / LONG_RUN >= all.len() as u64;
            kept.keep_run(module, is_long, &profile);
        }
        profiles.push(profile);
    }
    kept.trim();
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    let code = u8::try_from(code & 0xff).expect("eight bits");
    if let Some(repeats) = repeats.as_mut() {
        repeats.add(&profiles);
    }
    // SIGHUP, SIGINT, SIGQUIT, SIGTERM.
    let is_last = is_last || matches!(status.signal(), Some(1 | 2 | 3 | 15));
    if !is_last {
        return Ok((code, false));
    }
    let bytes = profile::recording::write_with_threads(&profiles, &threads);
    keep(rec, &bytes)?;
    if arena.n_shared()? > 0 {
        output::warn(input::SHARED, None);
    }
    if arena.n_unknown()? > 0 {
        output::warn(input::UNKNOWN, None);
    }
    warn_of_left(arena.running()?, "counted");
    if let Some(program) = became {
        warn_of_another(&program, "counted");
    }
    for (path, why) in &refused {
        output::warn(&format!("{} was not counted: {why}", path.display()), None);
    }
    for module in counted.iter().filter(|module| module.notes.n_counters() == 0) {
        let hint = "`engraft instrument --null` lists why each function stays";
        let what =
            format!("nothing of {} was counted: no function of it can be moved", module.path.display());
        output::warn(&what, Some(hint));
    }
    if output::manner().quiet {
        // All memory goes with the process, at once.
        std::mem::forget((counted, profiles, threads));
    } else {
        let programs: Vec<Program> = counted.into_par_iter().filter_map(Counted::into_program).collect();
        let mut view = view::view(rec, &profiles, &threads, &programs, Some(n_areas));
        view.repeated = repeats.map(|repeats| repeats.view(&programs));
        output::report(|w| args.output.write(&view, w));
    }
    Ok((code, true))
}

/// Writes the recording; elsewhere, if it cannot be written where it was to be: the run cannot be had again.
///
/// # Errors
/// If it is not where it was to be. That says where it is.
fn keep(rec: &Path, bytes: &[u8]) -> anyhow::Result<()> {
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

/// Why there is no memory for the `what` of a program.
pub fn no_memory(what: &str, err: &std::io::Error) -> Hinted {
    let hint = output::hint_of(err).unwrap_or(
        "they are in memory that is shared: raise the limits of the length of files and of addresses (`ulimit -f`, `ulimit -v`)",
    );
    Hinted::new(format!("cannot get memory for the {what}: {err}"), hint)
}

/// Counts `true`, which every system has: whether counting works on this one. Says what was counted.
///
/// # Errors
/// Whatever hinders it.
pub fn try_out() -> anyhow::Result<String> {
    needs_proc()?;
    let search = std::env::var_os("PATH").unwrap_or_default();
    let target = Target::find("true".as_ref(), &search)?;
    let kept = Store::open(true)?;
    let how = How::of(Placement::Edges);
    let image = prepare::load(&target.executable)?;
    let (segments, exe) = prepare::executable(&kept, &target.executable, image, how)?;
    let arena = Arena::create(&[(exe.key, exe.notes.n_counters())], false)?;
    let ready =
        Ready { segments: &segments, file: None, swaps: &[], opens: &[], execs: None, watches: false };
    let Started { mut child, .. } = live::launch::launch(Command::new(&target.command), &ready, &arena)?;
    let status = child.wait()?;
    let area = arena.area(exe.key, exe.notes.n_counters(), 0)?;
    let n_run = area.iter().filter(|n| **n > 0).count();
    anyhow::ensure!(
        status.success() && n_run > 0,
        "{} ended with {status}, and {n_run} blocks were counted",
        exe.path.display()
    );
    Ok(format!("{n_run} blocks of {} ran and were counted", exe.path.display()))
}

/// Where rewritten modules are kept.
///
/// # Errors
/// If they are kept for one run only.
pub fn cache_folder() -> anyhow::Result<String> {
    needs_proc()?;
    let kept = Store::open(false)?;
    anyhow::ensure!(
        !kept.is_temporary(),
        "no folder could be made in $XDG_CACHE_HOME or $HOME/.cache: every run rewrites its modules anew"
    );
    Ok(format!("in {}, {} MB at most", kept.cache.folder().display(), prepare::CACHE_LIMIT >> 20))
}

/// What the recording `rec` holds, as it is said after the run.
///
/// # Errors
/// If it is none, or its images are gone.
pub fn recorded(rec: &Path) -> anyhow::Result<CountView> {
    let source = input::Source::read(rec)?;
    let profiles = source.needed_recording()?;
    let programs = profiles.iter().map(input::counted_program).collect::<Result<Vec<_>, _>>()?;
    let threads = source.threads()?;
    let mut view = view::view(rec, &profiles, &threads, &programs, None);
    view.points = source.seen()?.into_iter().map(point_view).collect();
    Ok(view)
}

/// How often the counters of a module are incremented on average in a run that is long: rewriting it takes
/// about as long as a thousand increments a counter.
const LONG_RUN: u64 = 1000;

/// Where programs are looked for where the environment does not say: as the C library does it.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// What can be done where somebody traces us, and all that we start.
const TRACED: &str = "another process traces all that we start, such as `strace -f`: start that one by `count`, `engraft count -- strace …`";

/// Addresses that we need ourselves, for a small program.
const OWN_ADDRESSES: u64 = 96 << 20;

/// Whether somebody traces us.
fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|n| n.trim() != "0"))
}

/// Says that the program became another one, of which nothing was counted, or whatever was to be `done`.
pub fn warn_of_another(program: &Path, done: &str) {
    let what = format!("it became another program, {}, which was not {done}", program.display());
    output::warn(&what, Some("name that program after `--` if it can be started by itself"));
}

/// Says that so many processes go on, of which nothing is `done` any more.
pub fn warn_of_left(n_left: usize, done: &str) {
    let what = match n_left {
        0 => return,
        1 => format!("1 process that it started still runs: what it does from now on is not {done}"),
        n => format!("{n} processes that it started still run: what they do from now on is not {done}"),
    };
    output::warn(&what, None);
}

/// What a thread has seen that watches until something is over, which is over.
pub fn seen_by<T>(watch: std::io::Result<std::thread::ScopedJoinHandle<'_, T>>) -> Option<T> {
    let watch = watch.ok()?;
    watch.thread().unpark();
    watch.join().ok()
}

/// The file that process `pid` runs in place of `started` after an exec, if it is seen with one before it
/// ends, as `is_gone` says: looking does not hold it up.
pub fn what_it_becomes(pid: u32, started: &Path, is_gone: &AtomicBool) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let first = identity(started)?;
    let mut pause = Duration::from_millis(1);
    loop {
        // A process that has ended has no such link.
        let now = identity(&link)?;
        // Its number may be another's then.
        if is_gone.load(Ordering::Relaxed) {
            return None;
        }
        if now != first {
            return std::fs::read_link(&link).ok();
        }
        std::thread::park_timeout(pause);
        pause = (2 * pause).min(Duration::from_millis(100));
    }
}

/// Where the recording goes: as asked, else beside where we are, under a name that nothing has.
fn recording_path(args: &Args, command: &Path) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.o {
        output::spares(path, &[command])?;
        return Ok(path.clone());
    }
    let stem = command.file_name().unwrap_or_default();
    let named = |end: String| {
        let mut name = stem.to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let mut candidates =
        std::iter::once(named(".engraft".to_owned())).chain((1..).map(|n| named(format!(".{n}.engraft"))));
    Ok(candidates.find(|path| !path.exists()).expect("numbers do not end"))
}
