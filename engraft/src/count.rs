//! `engraft count`: how often each block ran, exactly.

mod points;
mod prepare;
mod view;

use crate::input;
use crate::out::{self, Answer, Hinted};
use crate::view::Output;
use anyhow::Context as _;
use live::launch::Swap;
use live::{Arena, Target};
use measure::Placement;
use points::PointView;
use prepare::{Counted, Store};
use program::Program;
use rayon::prelude::*;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::info_span;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft count -o old.engraft -- ./old
  $ engraft count -q --modules exe -o again.engraft -- ./old";

/// Run a program and count how often each of its blocks runs, exactly
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where to write the recording [default: PROGRAM.engraft, or PROGRAM.1.engraft and so on if that is there]
    #[arg(short, value_name = "REC")]
    o: Option<PathBuf>,
    /// What to count in: `all` (without libc and ld.so), `exe`, or file names of modules, `*` standing for anything
    #[arg(long, value_name = "WHICH", num_args = 1.., default_value = "all")]
    modules: Vec<String>,
    /// Keep the counts of each thread apart, too; `convert --thread N` takes one
    #[arg(long)]
    per_thread: bool,
    /// Count every block by itself, in place of as few blocks and edges as the rest follows from
    #[arg(long)]
    all_blocks: bool,
    /// Do not keep rewritten libraries for the next time
    #[arg(long)]
    no_cache: bool,
    #[command(flatten)]
    output: Output,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM ARGS")]
    command: Vec<OsString>,
}

/// Modules that are counted only if they are named: what they do is the system's work.
const SYSTEM: [&str; 12] = [
    // glibc, also as its files were called until 2.34
    "libc.so.",
    "ld-linux",
    "libpthread.so.",
    "libdl.so.",
    "librt.so.",
    "libc-2.",
    "ld-2.",
    "libpthread-2.",
    "libdl-2.",
    "librt-2.",
    // musl
    "libc.musl-",
    "ld-musl-",
];

/// Whether a file of this name is libc, or goes with it.
fn is_system(file: &str) -> bool {
    file == "libc.so" || SYSTEM.iter().any(|start| file.starts_with(start))
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let (name, rest) = args.command.split_first().expect("clap asks for one at least");
    let search = std::env::var_os("PATH").unwrap_or_default();
    let target =
        Target::find(name, &search).map_err(|e| Hinted::new(e.to_string(), e.hint().unwrap_or_default()))?;
    let rec = recording_path(args, &target.command)?;
    out::can_be_written(&rec)?;
    if !live::can_set_bases() {
        let hint = "it needs a processor with FSGSBASE (2012 or later) and Linux 5.9 or later, started without `nofsgsbase`";
        return Err(Hinted::new(
            "programs cannot be counted on this machine: they may not set the base of gs",
            hint,
        )
        .into());
    }

    live::fail_beyond_limits();
    let kept = Store::open(args.no_cache)?;
    let is_exe_counted =
        args.modules.iter().any(|m| m == "all" || m == "exe" || names(m, &target.executable));
    let placement = if args.all_blocks { Placement::Blocks } else { Placement::Edges };
    let of_exe = if is_exe_counted { placement } else { Placement::Nowhere };
    let (segments, exe, linker) =
        info_span!("prepare").in_scope(|| prepare::executable(&kept, &target.executable, of_exe))?;
    let (paths, sites) = match &linker {
        Some(linker) => (
            target.libraries(linker).with_context(|| format!("cannot run {}", linker.display()))?,
            prepare::open_sites(&kept, linker)?,
        ),
        None => (Vec::new(), Vec::new()),
    };
    let paths: Vec<PathBuf> = paths.into_iter().filter(|path| is_wanted(&args.modules, path)).collect();
    let (libraries, refused) =
        info_span!("prepare").in_scope(|| prepare::libraries(&kept, paths, placement))?;

    let mut counted: Vec<Counted> = if is_exe_counted { vec![exe] } else { Vec::new() };
    let mut swaps = Vec::new();
    for (library, given) in libraries {
        swaps.push(Swap { asked: library.path.clone(), given });
        counted.push(library);
    }
    let keys: Vec<(u128, usize)> = counted.iter().map(|c| (c.key, c.notes.n_counters())).collect();
    let arena = Arena::create(&keys).context("cannot get memory for the counters")?;
    let mut command = Command::new(&target.start);
    std::os::unix::process::CommandExt::arg0(&mut command, target.arg0.as_ref().unwrap_or(name));
    command.args(&target.before).args(rest);
    live::pass_signals_on();
    let asks = |path: &Path| is_wanted(&args.modules, path);
    let loader = prepare::Loader::new(&kept, &arena, &asks, placement, counted, refused);
    let is_over = AtomicBool::new(false);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (status, became) = std::thread::scope(|scope| {
        scope.spawn(|| loader.serve(ready, &is_over));
        // Before the program can ask; an error if it will be told that nobody answers.
        let _who_answers = is_ready.recv();
        let status = live::launch::launch(command, &segments, &arena, &swaps, &sites)
            .map_err(anyhow::Error::from)
            .and_then(|mut child| {
                let pid = child.id();
                let started = &target.executable;
                let watch = scope.spawn(move || what_it_becomes(pid, started));
                let status =
                    live::wait(&mut child).with_context(|| format!("cannot wait for {}", name.display()));
                watch.thread().unpark();
                Ok((status?, watch.join().ok().flatten()))
            });
        is_over.store(true, Ordering::Relaxed);
        arena.wake();
        status
    })?;
    let (counted, refused) = loader.finish();
    let seen: Vec<&Path> =
        counted.iter().map(|c| c.path.as_path()).chain(refused.iter().map(|r| r.0.as_path())).collect();
    for pattern in args.modules.iter().filter(|m| *m != "all" && *m != "exe") {
        if !seen.iter().any(|path| names(pattern, path)) {
            let hint = "file names are meant, as `ldd` shows them; * stands for anything";
            out::warn(&format!("no module is called {pattern}"), Some(hint));
        }
    }
    kept.trim();

    let _span = info_span!("write").entered();
    let n_areas = arena.n_areas()?;
    let mut profiles = Vec::new();
    let mut threads = vec![Vec::new(); if args.per_thread { usize::try_from(n_areas)? } else { 0 }];
    for module in &counted {
        let n = module.notes.n_counters();
        let profile = |counts: &[u64]| {
            let mut profile = module.notes.profile(counts);
            profile.image.name = module.path.display().to_string();
            profile
        };
        let mut all = vec![0; n];
        for k in 0..n_areas {
            // One area at a time: of large modules, many together do not fit into memory.
            let area = arena.area(module.key, n, k)?;
            all.iter_mut().zip(&area).for_each(|(sum, n): (&mut u64, _)| *sum = sum.wrapping_add(*n));
            if let Some(thread) = threads.get_mut(usize::try_from(k)?) {
                thread.push(profile(&area));
            }
        }
        profiles.push(profile(&all));
    }
    let bytes = profile::recording::write_with_threads(&profiles, &threads);
    out::data(Some(&rec), |w| w.write_all(&bytes))?;
    if arena.n_shared()? > 0 {
        out::warn("more threads than there is room for counted together: some counts may be lost", None);
    }
    let n_left = arena.running()?;
    if n_left > 0 {
        let what =
            format!("{n_left} processes that it started still run: what they do from now on is not counted");
        out::warn(&what, None);
    }
    if let Some(program) = became {
        let what = format!("it became another program, {}, which was not counted", program.display());
        out::warn(&what, Some("name that program after `--` if it can be started by itself"));
    }
    for (path, why) in &refused {
        out::warn(&format!("{} was not counted: {why}", path.display()), None);
    }
    if !out::manner().quiet {
        let programs: Vec<Program> = counted.into_par_iter().filter_map(Counted::into_program).collect();
        let view = view::view(&rec, &profiles, &threads, &programs, Some(n_areas));
        out::report(|w| args.output.write(&view, w));
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Answer::Status(u8::try_from(code & 0xff).expect("eight bits")))
}

/// Counts `true`, which every system has: whether counting works on this one. Says what was counted.
///
/// # Errors
/// Whatever hinders it.
pub fn try_out() -> anyhow::Result<String> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let target = Target::find("true".as_ref(), &search)?;
    let kept = Store::open(true)?;
    let (segments, exe, _) = prepare::executable(&kept, &target.executable, Placement::Edges)?;
    let arena = Arena::create(&[(exe.key, exe.notes.n_counters())])?;
    let mut child = live::launch::launch(Command::new(&target.command), &segments, &arena, &[], &[])?;
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
pub fn recorded(rec: &Path) -> anyhow::Result<view::CountView> {
    let profiles = input::needed_recording(rec)?;
    let programs = profiles.iter().map(input::counted_program).collect::<Result<Vec<_>, _>>()?;
    let threads = input::threads(rec)?;
    let mut view = view::view(rec, &profiles, &threads, &programs, None);
    view.points = input::seen(rec)?.into_iter().map(PointView::of).collect();
    Ok(view)
}

/// The file that process `pid` runs in place of `started` after an exec, if it is seen with one before it ends: looking does not hold
/// it up.
fn what_it_becomes(pid: u32, started: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let first = identity(started)?;
    let mut pause = Duration::from_millis(1);
    loop {
        // A process that has ended has no such link.
        if identity(&link)? != first {
            return std::fs::read_link(&link).ok();
        }
        std::thread::park_timeout(pause);
        pause = (2 * pause).min(Duration::from_millis(100));
    }
}

/// Where the recording goes: as asked, else beside where we are, under a name that nothing has.
fn recording_path(args: &Args, command: &Path) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.o {
        out::spares(path, &[command])?;
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

fn is_wanted(modules: &[String], path: &Path) -> bool {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    modules.iter().any(|m| m == "all" && !is_system(&file) || m != "exe" && names(m, path))
}

/// Whether `pattern`, in which `*` stands for anything, is the file name of `path`, or the path itself.
fn names(pattern: &str, path: &Path) -> bool {
    let file = path.file_name().unwrap_or_default();
    fits(pattern.as_bytes(), file.as_bytes()) || fits(pattern.as_bytes(), path.as_os_str().as_bytes())
}

fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|n| fits(rest, &text[n..])),
        Some((c, rest)) => text.split_first().is_some_and(|(t, left)| t == c && fits(rest, left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, path, want) in [
            ("libz*", "/usr/lib/libz.so.1", true),
            ("/usr/lib/*", "/usr/lib/libz.so.1", true),
            ("libz", "/usr/lib/libz.so.1", false),
            ("*", "/x", true),
        ] {
            assert_eq!(names(pattern, Path::new(path)), want, "{pattern} {path}");
        }
    }

    #[test]
    fn all_leaves_the_system_out_unless_it_is_named() {
        let all = ["all".to_owned()];
        assert!(is_wanted(&all, Path::new("/lib/libz.so.1")));
        for (file, want) in [
            ("libc.so.6", false),
            ("libc-2.31.so", false),
            ("ld-linux-x86-64.so.2", false),
            ("ld-musl-x86_64.so.1", false),
            ("libc.so", false),
            ("libc-client.so.2007", true),
            ("ld-decode.so", true),
            ("libcap.so.2", true),
        ] {
            assert_eq!(is_wanted(&all, &Path::new("/lib/x86_64-linux-gnu").join(file)), want, "{file}");
        }
        assert!(is_wanted(&["libc.so*".to_owned()], Path::new("/lib/libc.so.6")));
        assert!(!is_wanted(&["exe".to_owned()], Path::new("/lib/libz.so.1")));
    }
}
