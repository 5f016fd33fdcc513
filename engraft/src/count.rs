//! `engraft count`: how often each block ran, exactly.

use crate::out::{self, Answer, Hinted};
use crate::view::{Output, Table, View};
use anyhow::Context as _;
use live::launch::{Arena, Swap};
use live::{Cache, Target};
use measure::blocks;
use probe::{Module, Room, arch};
use profile::Profile;
use program::{Image, Program};
use rayon::prelude::*;
use serde::Serialize;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// Rewritten libraries that are kept, in bytes.
const CACHE_LIMIT: u64 = 2 << 30;
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

    let program = load(&target.executable)?;
    if !program.image.go_functions.is_empty() {
        let hint = "Go's runtime checks its own addresses, so its code cannot be moved";
        return Err(Hinted::new(
            format!("{} is a Go program, which cannot be counted", program.image.name),
            hint,
        )
        .into());
    }
    let is_exe_counted =
        args.modules.iter().any(|m| m == "all" || m == "exe" || names(m, &target.executable));
    let paths = match &program.image.interpreter {
        Some(linker) => {
            target.libraries(linker).with_context(|| format!("cannot run {}", linker.display()))?
        }
        None => Vec::new(),
    };
    let paths: Vec<PathBuf> = paths.into_iter().filter(|path| is_wanted(&args.modules, path)).collect();
    let libraries: Vec<(PathBuf, Program)> = info_span!("analyze").in_scope(|| {
        paths.into_par_iter().map(|path| Ok((path.clone(), load(&path)?))).collect::<anyhow::Result<_>>()
    })?;

    let plan = if is_exe_counted { blocks::PLAN } else { probe::Plan::Null };
    let rewrite = info_span!("rewrite").entered();
    let module = Module::build(&program, plan, Room::Apart)?;
    let modules = libraries
        .par_iter()
        .map(|(_, library)| Module::build(library, blocks::PLAN, Room::Behind))
        .collect::<Result<Vec<_>, _>>()?;
    let kept = Kept::open(args.no_cache)?;
    let swaps = libraries
        .par_iter()
        .zip(&modules)
        .map(|((path, library), module)| {
            let make = || module.to_file(probe::Old::Kept).map_err(anyhow::Error::from);
            let given = kept.cache.get(&format!("{}-{}", library.image.id, kept.maker), make)?;
            Ok(Swap { asked: path.clone(), given })
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    kept.cache.trim()?;
    let sites = match (&program.image.interpreter, swaps.is_empty()) {
        (Some(linker), false) => arch::open_sites(&load(linker)?),
        _ => Vec::new(),
    };
    drop(rewrite);

    let keys: Vec<(u128, usize)> =
        [&module].into_iter().chain(&modules).map(|m| (m.program.image.id.0, m.counted.len())).collect();
    let arena = Arena::create(&keys).context("cannot get memory for the counters")?;
    let mut command = Command::new(&target.command);
    std::os::unix::process::CommandExt::arg0(&mut command, name);
    command.args(rest);
    let mut child = live::launch::launch(command, &module, &arena, &swaps, &sites)?;
    live::leave_interrupts_to_the_child();
    let status = child.wait().with_context(|| format!("cannot wait for {name}"))?;

    let _span = info_span!("write").entered();
    let mut profiles = Vec::new();
    for (m, path) in [&module]
        .into_iter()
        .chain(&modules)
        .zip([&target.executable].into_iter().chain(libraries.iter().map(|(path, _)| path)))
    {
        let areas = arena.counts(m.program.image.id.0, m.counted.len())?;
        let mut sum = vec![0u64; m.counted.len()];
        for area in &areas {
            sum.iter_mut().zip(area).for_each(|(sum, n)| *sum = sum.wrapping_add(*n));
        }
        let mut profile = blocks::notes(m).profile(&sum);
        profile.image.name = path.display().to_string();
        if !m.counted.is_empty() {
            profiles.push(profile);
        }
    }
    let bytes = profile::recording::write(&profiles);
    out::data(Some(&rec), |w| w.write_all(&bytes))?;
    if arena.n_shared()? > 0 {
        out::warn("more threads than there is room for counted together: some counts may be lost", None);
    }
    if !out::manner().quiet {
        let programs: Vec<&Program> =
            [&program].into_iter().chain(libraries.iter().map(|(_, p)| p)).collect();
        let view = view(&rec, &profiles, &programs, arena.n_areas()?);
        out::report(|w| args.output.write(&view, w));
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Answer::Status(u8::try_from(code & 0xff).expect("eight bits")))
}

fn load(path: &Path) -> anyhow::Result<Program> {
    Ok(Program::analyze(Image::load(path)?))
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

/// Where rewritten libraries are kept: the user's cache, or a folder that goes with us.
struct Kept {
    cache: Cache,
    /// Which version of us made them.
    maker: String,
    _temporary: Option<tempfile::TempDir>,
}

impl Kept {
    fn open(is_temporary: bool) -> anyhow::Result<Kept> {
        let home = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
            .filter(|path| path.is_absolute() && !is_temporary);
        let opened = home.and_then(|home| Cache::open(&home.join("engraft"), CACHE_LIMIT).ok());
        let (cache, temporary) = match opened {
            Some(cache) => (cache, None),
            None => {
                let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
                (Cache::open(folder.path(), CACHE_LIMIT)?, Some(folder))
            }
        };
        // Another build of us may lay code out differently.
        let us = std::fs::metadata("/proc/self/exe").context("cannot look at our own file")?;
        let made = us.modified()?.duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        Ok(Kept { cache, maker: format!("{:x}-{made:x}", us.len()), _temporary: temporary })
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

fn view(rec: &Path, profiles: &[Profile], programs: &[&Program], threads: u64) -> CountView {
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
