//! `engraft replace`: a function of a process that runs, replaced by another, and taken back.

use crate::input;
use crate::output::{Answer, Hinted, Output};
use anyhow::Context as _;
use live::attach::{self, AttachError};
use probe::graft::Graft;
use program::LiveVa;
use program::image::{Symbol, SymbolKind};
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
        let (all, is_back) = standing(pid).map_err(hinted)?;
        let replaced = all.iter().map(|one| view(one, is_back)).collect();
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
        asked: function.to_owned(),
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
        replaced: Some(vec![view(&standing, false)]),
        pause_us: Some(micros(stopped.pause)),
        ..ReplaceView::of(pid)
    };
    args.output.print(&view)?;
    Ok(Answer::Yes)
}

/// Takes `function` of process `pid` back.
fn undo(args: &Args, pid: i32, function: &str) -> anyhow::Result<Answer> {
    let (all, _) = standing(pid).map_err(hinted)?;
    let name = function.split_once('!').map_or(function, |(_, name)| name);
    let address = input::address(name).map(|at| at.0);
    let is_it = |one: &&Standing| {
        let asked = one.asked.split_once('!').map_or(&*one.asked, |(_, name)| name);
        [one.function.as_str(), one.function.split('(').next().unwrap_or_default(), asked].contains(&name)
            || Some(one.at) == address
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

/// No larger file is read.
const MOST: u64 = 256 << 20;

/// What a file that somebody named holds.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", path.display());
    let about = std::fs::metadata(path).with_context(cannot)?;
    anyhow::ensure!(about.is_file(), "{} is no regular file", path.display());
    anyhow::ensure!(about.len() > 0, "{} is empty", path.display());
    anyhow::ensure!(about.len() <= MOST, "{} is larger than {} MB", path.display(), MOST >> 20);
    std::fs::read(path).with_context(cannot)
}

/// The path as it means the same elsewhere and later.
fn whole(path: &Path) -> String {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// What is to stand in for `function`, and which function of that.
fn graft(args: &Args, function: &str) -> anyhow::Result<(Graft, Option<String>)> {
    let own = || function.rsplit_once('!').map_or(function, |(_, name)| name).to_owned();
    if let Some(path) = &args.bytes {
        return Ok((Graft::of_code(&whole(path), &read(path)?), None));
    }
    let library =
        |name: &Path, bytes: &[u8]| Graft::of_library(&whole(name), bytes).map_err(|err| refused(err.into()));
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

/// The function that `asked` names, and its module: one of the executable; else what the process uses under
/// that name of its libraries; else the first that has it. An address without a module is one of the
/// executable, or of the process (`live:0x…`).
fn found(process: &RunningProgram, asked: &str) -> anyhow::Result<Found> {
    let (wanted, name) = asked.split_once('!').map_or((None, asked), |(module, name)| (Some(module), name));
    if let Some(at) = name.strip_prefix("live:").and_then(input::address) {
        let at = LiveVa(at.0);
        let n = process.module_at(at).ok_or_else(|| anyhow::anyhow!("no module of the process has {at}"))?;
        let module = process.module(n).map_err(refused)?;
        let func = input::function(&module.program, &module.image(at).to_string())?;
        return meant(asked, module, func);
    }
    let paths: Vec<&Path> = process.module_paths().collect();
    let is_wanted = |path: &Path| {
        let file = input::file_name(&path.to_string_lossy());
        wanted.is_none_or(|wanted| wanted == file || file.starts_with(&format!("{wanted}.so")))
    };
    let of = |n: usize| -> anyhow::Result<Option<Found>> {
        let module = process.module(n).map_err(refused)?;
        let func = input::function(&module.program, name)?;
        // Stubs have the names of what they call.
        Ok(module.program.function(func).import.is_none().then_some((module, func)))
    };
    let mut first = None;
    if paths.first().is_some_and(|path| is_wanted(path)) {
        match of(0) {
            Ok(Some((module, func))) => return meant(asked, module, func),
            Ok(None) if input::address(name).is_some() => {
                let hint = "name the function that it calls: it is found in its library";
                return Err(Hinted::new(format!("{name} is a stub for a function of a library"), hint).into());
            }
            Ok(None) => {}
            Err(err) => first = Some(err),
        }
    }
    if input::address(name).is_some() && wanted.is_none() {
        return Err(first.unwrap_or_else(|| anyhow::anyhow!("no function of the executable has {name}")));
    }
    // Of several versions, and of what a resolver chooses from, the one that it uses.
    let bound = process.bound(name);
    if let Ok(at) = bound
        && let Some(n) = process.module_at(at).filter(|n| paths.get(*n).is_some_and(|path| is_wanted(path)))
    {
        let module = process.module(n).map_err(refused)?;
        if let Some(func) = module.program.function_from(module.image(at)) {
            return meant(asked, module, func);
        }
    }
    for (n, _) in paths.iter().enumerate().skip(1).filter(|(_, path)| is_wanted(path)) {
        match of(n) {
            Ok(Some((module, func))) => return meant(asked, module, func),
            Ok(None) => {}
            // Of one module, it says what looks like it.
            Err(err) if wanted.is_some() => first = first.or(Some(err)),
            Err(_) => {}
        }
    }
    Err(first.unwrap_or_else(|| {
        let names = paths.iter().map(|path| input::file_name(&path.to_string_lossy()));
        let hint = format!("its modules are: {}", names.collect::<Vec<_>>().join(", "));
        Hinted::new(format!("no function of process {} is called {asked}", process.pid()), hint).into()
    }))
}

/// A function and its module.
type Found = (LoadedModule, program::FuncId);

/// `func` of `module`, if it is what somebody means by `asked`: a resolver is not the function that it
/// chooses, and a clone has other arguments than what it is a clone of.
fn meant(asked: &str, module: LoadedModule, func: program::FuncId) -> anyhow::Result<Found> {
    const CLONES: [&str; 3] = [".isra.", ".constprop.", ".part."];
    let function = module.program.function(func);
    let is_resolver =
        |symbol: &Symbol| symbol.at == function.entry && symbol.kind == SymbolKind::IndirectFunction;
    if module.program.image.symbols.iter().any(is_resolver) {
        let what = format!("{asked} is chosen by a resolver, which nobody in the process has asked yet");
        let hint =
            "wait until it was called once, or name what is chosen: `engraft show FILE functions` lists it";
        return Err(Hinted::new(what, hint).into());
    }
    let is_clone = |name: &str| CLONES.iter().any(|clone| name.contains(clone));
    let is_address = asked.split('!').next_back().is_some_and(|name| name.contains("0x"));
    if !function.names.is_empty()
        && function.names.iter().all(|name| is_clone(name))
        && !is_clone(asked)
        && !is_address
    {
        let name = function.name();
        let what =
            format!("{asked} has only a clone there, {name}, whose arguments the compiler has changed");
        return Err(Hinted::new(what, "look at what it takes, and name it in full").into());
    }
    Ok((module, func))
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

fn view(one: &Standing, is_taken_back: bool) -> ReplacedView {
    ReplacedView {
        function: one.function.clone(),
        module: input::file_name(&one.module),
        at: format!("{:#x}", one.at),
        with: one.symbol.as_ref().map_or_else(|| one.with.clone(), |symbol| format!("{}:{symbol}", one.with)),
        to: format!("live:{:#x}", one.to),
        original: format!("live:{:#x}", one.original),
        since_s: one.since_s,
        is_taken_back,
    }
}

fn micros(pause: Duration) -> u64 {
    u64::try_from(pause.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}
