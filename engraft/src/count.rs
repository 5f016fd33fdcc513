//! `engraft count`: how often each block ran, exactly.

mod prepare;

use crate::out::{self, Answer, Hinted};
use crate::view::{Output, Table, View};
use anyhow::Context as _;
use live::launch::Swap;
use live::{Arena, Target};
use measure::blocks;
use prepare::{Counted, Kept};
use probe::Plan;
use profile::Profile;
use program::Program;
use rayon::prelude::*;
use serde::Serialize;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Do not keep rewritten libraries for the next time
    #[arg(long)]
    no_cache: bool,
    #[command(flatten)]
    output: Output,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM ARGS")]
    command: Vec<String>,
}

/// Modules that are counted only if they are named: what they do is the system's work.
const SYSTEM: [&str; 8] =
    ["libc.so.", "ld-linux", "libpthread.so.", "libdl.so.", "librt.so.", "libc-", "ld-", "linux-vdso"];

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let (name, rest) = args.command.split_first().expect("clap asks for one at least");
    let search = std::env::var("PATH").unwrap_or_default();
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

    let kept = Kept::open(args.no_cache)?;
    let is_exe_counted =
        args.modules.iter().any(|m| m == "all" || m == "exe" || names(m, &target.executable));
    let plan = if is_exe_counted { blocks::PLAN } else { Plan::Null };
    let (segments, exe, linker) =
        info_span!("prepare").in_scope(|| prepare::executable(&kept, &target.executable, plan))?;
    let (paths, sites) = match &linker {
        Some(linker) => (
            target.libraries(linker).with_context(|| format!("cannot run {}", linker.display()))?,
            prepare::open_sites(&kept, linker)?,
        ),
        None => (Vec::new(), Vec::new()),
    };
    let paths: Vec<PathBuf> = paths.into_iter().filter(|path| is_wanted(&args.modules, path)).collect();
    let (libraries, refused) = info_span!("prepare").in_scope(|| prepare::libraries(&kept, paths));
    kept.cache.trim()?;

    let mut counted: Vec<Counted> = if is_exe_counted { vec![exe] } else { Vec::new() };
    let mut swaps = Vec::new();
    for (library, given) in libraries {
        swaps.push(Swap { asked: library.path.clone(), given });
        counted.push(library);
    }
    let keys: Vec<(u128, usize)> = counted.iter().map(|c| (c.key, c.notes.blocks.len())).collect();
    let arena = Arena::create(&keys).context("cannot get memory for the counters")?;
    let mut command = Command::new(&target.command);
    std::os::unix::process::CommandExt::arg0(&mut command, name);
    command.args(rest);
    let mut child = live::launch::launch(command, &segments, &arena, &swaps, &sites)?;
    drop(segments);
    live::leave_interrupts_to_the_child();
    let asks = |path: &Path| is_wanted(&args.modules, path);
    let loader = prepare::Loader::new(&kept, &arena, &asks, counted, refused);
    let is_over = AtomicBool::new(false);
    let status = std::thread::scope(|scope| {
        scope.spawn(|| loader.serve(&is_over));
        let status = child.wait();
        is_over.store(true, Ordering::Relaxed);
        arena.wake();
        status
    });
    let status = status.with_context(|| format!("cannot wait for {name}"))?;
    let (counted, refused) = loader.finish();

    let _span = info_span!("write").entered();
    let mut profiles = Vec::new();
    for module in &counted {
        let mut sum = vec![0u64; module.notes.blocks.len()];
        for area in arena.counts(module.key, sum.len())? {
            sum.iter_mut().zip(&area).for_each(|(sum, n)| *sum = sum.wrapping_add(*n));
        }
        let mut profile = module.notes.profile(&sum);
        profile.image.name = module.path.display().to_string();
        profiles.push(profile);
    }
    let bytes = profile::recording::write(&profiles);
    out::data(Some(&rec), |w| w.write_all(&bytes))?;
    if arena.n_shared()? > 0 {
        out::warn("more threads than there is room for counted together: some counts may be lost", None);
    }
    for (path, why) in &refused {
        out::warn(&format!("{} was not counted: {why}", path.display()), None);
    }
    if !out::manner().quiet {
        let programs: Vec<Program> = counted.into_par_iter().filter_map(Counted::into_program).collect();
        let view = view(&rec, &profiles, &programs, arena.n_areas()?);
        out::report(|w| args.output.write(&view, w));
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Answer::Status(u8::try_from(code & 0xff).expect("eight bits")))
}

/// Where the recording goes: as asked, else beside where we are, under a name that nothing has.
fn recording_path(args: &Args, command: &Path) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.o {
        out::spares(path, &[command])?;
        return Ok(path.clone());
    }
    let stem = command.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut candidates = std::iter::once(PathBuf::from(format!("{stem}.engraft")))
        .chain((1..).map(|n| PathBuf::from(format!("{stem}.{n}.engraft"))));
    Ok(candidates.find(|path| !path.exists()).expect("numbers do not end"))
}

fn is_wanted(modules: &[String], path: &Path) -> bool {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let is_system = SYSTEM.iter().any(|start| file.starts_with(start));
    modules.iter().any(|m| m == "all" && !is_system || m != "exe" && names(m, path))
}

/// Whether `pattern`, in which `*` stands for anything, is the file name of `path`, or the path itself.
fn names(pattern: &str, path: &Path) -> bool {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    fits(pattern.as_bytes(), file.as_bytes()) || fits(pattern.as_bytes(), path.to_string_lossy().as_bytes())
}

fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|n| fits(rest, &text[n..])),
        Some((c, rest)) => text.split_first().is_some_and(|(t, left)| t == c && fits(rest, left)),
    }
}

/// Where a run's executions went.
#[derive(Serialize)]
pub struct CountView {
    schema: &'static str,
    recording: String,
    threads: u64,
    instructions: u64,
    modules: Vec<ModuleView>,
    functions: Vec<FunctionView>,
}

#[derive(Serialize)]
struct ModuleView {
    path: String,
    instructions: u64,
    blocks_run: usize,
    blocks: usize,
}

#[derive(Serialize)]
struct FunctionView {
    module: String,
    name: String,
    at: u64,
    entries: Option<u64>,
    instructions: u64,
    share: f64,
}

fn view(rec: &Path, profiles: &[Profile], programs: &[Program], threads: u64) -> CountView {
    let mut view = CountView {
        schema: "engraft.count/1",
        recording: rec.display().to_string(),
        threads,
        instructions: 0,
        modules: Vec::new(),
        functions: Vec::new(),
    };
    for profile in profiles {
        let Some(program) = programs.iter().find(|p| Some(p.image.id) == profile.image.id) else { continue };
        let file =
            Path::new(&profile.image.name).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut module = ModuleView {
            path: profile.image.name.clone(),
            instructions: 0,
            blocks_run: 0,
            blocks: profile.blocks.len(),
        };
        for id in program.func_ids() {
            let function = program.function(id);
            let count = |b| profile.blocks.get(&program.block(b).start).copied().unwrap_or(0);
            let instructions: u64 = function
                .block_ids()
                .map(|b| count(b).saturating_mul(u64::from(program.block(b).n_insns)))
                .sum();
            module.blocks_run += function.block_ids().filter(|&b| count(b) > 0).count();
            module.instructions += instructions;
            if instructions > 0 {
                view.functions.push(FunctionView {
                    module: file.clone(),
                    name: crate::input::source_names(program, id).next().unwrap_or_else(|| function.name()),
                    at: function.entry.0,
                    entries: profile.entries.get(&function.entry).copied(),
                    instructions,
                    share: 0.0,
                });
            }
        }
        view.instructions += module.instructions;
        view.modules.push(module);
    }
    #[expect(clippy::cast_precision_loss, reason = "a share is shown with two digits")]
    for f in &mut view.functions {
        f.share = f.instructions as f64 / view.instructions.max(1) as f64;
    }
    view.functions.sort_by(|a, b| {
        b.instructions.cmp(&a.instructions).then_with(|| (&a.module, a.at).cmp(&(&b.module, b.at)))
    });
    view
}

impl View for CountView {
    /// A row a function.
    fn table(&self) -> Table {
        let mut t = Table::new(&["share>", "instructions>", "entries>", "function", "module"]);
        for f in &self.functions {
            t.row([
                format!("{:.2} %", f.share * 100.0),
                f.instructions.to_string(),
                f.entries.map_or("-".to_owned(), |n| n.to_string()),
                f.name.clone(),
                f.module.clone(),
            ]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let mut top = Table::new(&["share>", "instructions>", "entries>", "function", "module"]);
        for f in self.functions.iter().take(12) {
            top.row([
                format!("{:.2} %", f.share * 100.0),
                f.instructions.to_string(),
                f.entries.map_or("-".to_owned(), |n| n.to_string()),
                f.name.clone(),
                f.module.clone(),
            ]);
        }
        writeln!(w)?;
        top.text(w)?;
        let run: usize = self.modules.iter().map(|m| m.blocks_run).sum();
        writeln!(
            w,
            "\ncounted {} instructions in {run} blocks of {} modules; wrote {}",
            self.instructions,
            self.modules.len(),
            self.recording
        )
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
        assert!(!is_wanted(&all, Path::new("/lib/x86_64-linux-gnu/libc.so.6")));
        assert!(is_wanted(&["libc.so*".to_owned()], Path::new("/lib/libc.so.6")));
        assert!(!is_wanted(&["exe".to_owned()], Path::new("/lib/libz.so.1")));
    }
}
