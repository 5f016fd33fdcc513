//! `engraft replace`: a function of a process that runs, replaced by another, and taken back.

use crate::input;
use crate::output::{Answer, Hinted, Output};
use anyhow::Context as _;
use live::attach::{self, AttachError};
use probe::graft::Graft;
use session::{LoadedModule, ReplaceError, Replacement, RunningProgram, Standing, standing};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use views::replace::{ReplaceView, ReplacedView, UndoneView};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft replace of_main --with ./fast.so:of_main -p $(pidof server)
  $ engraft replace --list -p $(pidof server)";

/// Replace a function of a process that runs by code of yours; it stays so when this command has ended
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The function: by name, by address, also MODULE!NAME
    #[arg(required_unless_present = "list")]
    function: Option<String>,
    /// The process
    #[arg(short, long, value_name = "PID")]
    pid: i32,
    /// By this function of a shared object
    #[arg(long, value_name = "LIB.so:SYMBOL", group = "what", value_parser = with_symbol)]
    with: Option<(PathBuf, Option<String>)>,
    /// By the function of the same name, or SYMBOL, of an object file, which `ld` links
    #[arg(long, value_name = "FILE.o[:SYMBOL]", group = "what", value_parser = with_symbol)]
    object: Option<(PathBuf, Option<String>)>,
    /// By position-independent machine code, entered at its first byte
    #[arg(long, value_name = "FILE", group = "what")]
    bytes: Option<PathBuf>,
    /// Take it back: the function runs again as it did
    #[arg(long, group = "what")]
    undo: bool,
    /// List what is replaced in the process
    #[arg(long, group = "what", conflicts_with = "function")]
    list: bool,
    /// Do not, where all threads would stand still at once for longer than this: 5ms
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    #[arg(hide_short_help = true)]
    max_pause: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

fn with_symbol(text: &str) -> Result<(PathBuf, Option<String>), String> {
    match text.rsplit_once(':') {
        Some((file, symbol)) if !file.is_empty() && !symbol.is_empty() => {
            Ok((file.into(), Some(symbol.to_owned())))
        }
        Some(_) => Err("what stands before and behind the colon is a file and a function".to_owned()),
        None => Ok((text.into(), None)),
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    session::needs_proc()?;
    let (function, pid) = (args.function.as_deref().unwrap_or_default(), args.pid);
    if args.list {
        let replaced = standing(pid).map_err(hinted)?.iter().map(view).collect();
        args.output.print(&ReplaceView { replaced: Some(replaced), ..ReplaceView::of(pid) })?;
        return Ok(Answer::Yes);
    }
    if args.undo {
        return undo(args, pid, function);
    }
    let (graft, symbol) = graft(args, function)?;
    let process = RunningProgram::of(pid).map_err(super::attached::hinted)?.pausing_at_most(args.max_pause);
    let (module, func) = found(&process, function)?;
    let made = Replacement::new(&process, &module, func, &graft, symbol.as_deref()).map_err(refused)?;
    let standing = Standing {
        function: input::spelt(&module.program, func),
        module: module.path().display().to_string(),
        at: module.program.function(func).entry.0,
        with: graft.name().to_owned(),
        symbol,
        to: made.to.0,
        original: made.original.0,
        since_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    };
    let stopped = made.put_in(std::slice::from_ref(&standing)).map_err(refused)?;
    let view = ReplaceView {
        replaced: Some(vec![view(&standing)]),
        pause_us: Some(micros(stopped.pause)),
        ..ReplaceView::of(pid)
    };
    args.output.print(&view)?;
    Ok(Answer::Yes)
}

/// Takes `function` of process `pid` back.
fn undo(args: &Args, pid: i32, function: &str) -> anyhow::Result<Answer> {
    let all = standing(pid).map_err(hinted)?;
    let name = function.split_once('!').map_or(function, |(_, name)| name);
    let address = input::address(name).map(|at| at.0);
    let is_it = |one: &&Standing| {
        one.function == name || one.function.split('(').next() == Some(name) || Some(one.at) == address
    };
    let Some(one) = all.iter().find(is_it) else {
        let names: Vec<&str> = all.iter().map(|one| &*one.function).collect();
        let hint = match names[..] {
            [] => "nothing is replaced in it".to_owned(),
            _ => format!("replaced are: {}", names.join(", ")),
        };
        return Err(Hinted::new(format!("{function} of process {pid} is not replaced"), hint).into());
    };
    let given = attach::rescue(pid).map_err(hinted)?;
    let is_whole = given.left.is_none();
    let view = ReplaceView {
        undone: Some(UndoneView { function: one.function.clone(), left: given.left, stays: given.stays }),
        pause_us: Some(micros(given.stopped.pause)),
        ..ReplaceView::of(pid)
    };
    args.output.print(&view)?;
    Ok(if is_whole { Answer::Yes } else { Answer::No })
}

/// What is to stand in for `function`, and which function of that.
fn graft(args: &Args, function: &str) -> anyhow::Result<(Graft, Option<String>)> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let own = || function.rsplit_once('!').map_or(function, |(_, name)| name).to_owned();
    if let Some(path) = &args.bytes {
        return Ok((Graft::of_code(&path.display().to_string(), &read(path)?), None));
    }
    let library = |name: &Path, bytes: &[u8]| {
        Graft::of_library(&name.display().to_string(), bytes).map_err(|err| refused(err.into()))
    };
    if let Some((path, symbol)) = &args.object {
        // Linking is not ours.
        read(path)?;
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let linked = folder.path().join("linked.so");
        let mut ld = Command::new("ld");
        ld.args(["-shared", "--eh-frame-hdr", "-z", "noexecstack", "-z", "separate-code", "-o"]);
        let done = ld.arg(&linked).arg(path).output();
        let done = done.map_err(|err| {
            let hint = "install binutils, or link it yourself, and give it by --with";
            Hinted::new(format!("cannot run ld, which links {}: {err}", path.display()), hint)
        })?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let said = said.lines().next().unwrap_or_default().to_owned();
            return Err(Hinted::new(
                format!("ld cannot link {}: {said}", path.display()),
                "compile it with -fPIC",
            )
            .into());
        }
        return Ok((library(path, &read(&linked)?)?, Some(symbol.clone().unwrap_or_else(own))));
    }
    match &args.with {
        Some((path, symbol)) => Ok((library(path, &read(path)?)?, Some(symbol.clone().unwrap_or_else(own)))),
        None => {
            let hint = "--with LIB.so:SYMBOL, --object FILE.o, --bytes FILE; --undo takes it back";
            Err(Hinted::new(format!("what is to stand in for {function}?"), hint).into())
        }
    }
}

/// The function that `asked` names, and its module: of the executable, or the first module that has it. An
/// address without a module is one of the executable.
fn found(process: &RunningProgram, asked: &str) -> anyhow::Result<(LoadedModule, program::FuncId)> {
    let module = asked.split_once('!').map(|(module, _)| module);
    let mut first = None;
    for (n, path) in process.module_paths().enumerate() {
        let name = input::file_name(&path.to_string_lossy());
        if module.is_some_and(|module| module != name && !name.starts_with(&format!("{module}.so"))) {
            continue;
        }
        let name = asked.split_once('!').map_or(asked, |(_, name)| name);
        let is_address = input::address(name).is_some();
        if is_address && module.is_none() && n > 0 {
            break;
        }
        let loaded = process.module(n).map_err(refused);
        let func = loaded.and_then(|module| {
            let func = input::function(&module.program, name)?;
            Ok((module, func))
        });
        match func {
            // Stubs have the names of what they call.
            Ok((module, func)) if module.program.function(func).import.is_some() => {
                let called = input::spelt(&module.program, func);
                if is_address {
                    let what =
                        format!("{name} of {} is a stub, which calls {called}", module.path().display());
                    let hint = "name the function itself: it is found in its library";
                    return Err(Hinted::new(what, hint).into());
                }
            }
            Ok(found) => return Ok(found),
            Err(err) => first = first.or(Some(err)),
        }
    }
    Err(first.unwrap_or_else(|| {
        let names = process.module_paths().map(|path| input::file_name(&path.to_string_lossy()));
        let hint = format!("its modules are: {}", names.collect::<Vec<_>>().join(", "));
        Hinted::new(format!("process {} has no module of {asked}", process.pid()), hint).into()
    }))
}

fn refused(err: ReplaceError) -> anyhow::Error {
    match err.hint() {
        Some(hint) => Hinted::new(format!("{:#}", anyhow::Error::from(err)), hint).into(),
        None => err.into(),
    }
}

fn hinted(err: AttachError) -> anyhow::Error {
    match err.hint() {
        Some(hint) => Hinted::new(format!("{:#}", anyhow::Error::from(err)), hint).into(),
        None => err.into(),
    }
}

fn view(one: &Standing) -> ReplacedView {
    ReplacedView {
        function: one.function.clone(),
        module: input::file_name(&one.module),
        at: format!("{:#x}", one.at),
        with: one.symbol.as_ref().map_or_else(|| one.with.clone(), |symbol| format!("{}:{symbol}", one.with)),
        to: format!("live:{:#x}", one.to),
        original: format!("live:{:#x}", one.original),
        since_s: one.since_s,
    }
}

fn micros(pause: Duration) -> u64 {
    u64::try_from(pause.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}
