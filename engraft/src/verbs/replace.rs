//! `engraft replace`: a function of a process that runs, replaced by another, and taken back.

mod code;
mod found;
mod trial;
mod vectorised;

use crate::input;
use crate::output::{Answer, Hinted, Output};
use code::graft;
use found::{found, found_call};
use live::attach::{self, AttachError, Stop};
use measure::prototypes::Prototypes;
use probe::graft::Graft;
use program::signature::Signature;
use program::{FuncId, Va};
use session::{
    LoadedModule, PureFunction, ReplaceError, Replacement, RunningProgram, Standing, Word, standing,
};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use views::replace::{ReplaceView, ReplacedView, UndoneView};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft replace of_main --with ./fast.so:of_main -p $(pidof server)
  $ engraft replace --list -p $(pidof server)
  $ engraft replace hot --memo --prototype 'long hot(long n);' --trial 1s -p $(pidof worker)
  $ engraft replace scale --vectorise -p $(pidof mixer)";

/// Replace a function of a process that runs by code of yours; it stays so when this command has ended
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The function: by name, by address, also MODULE!NAME; a call: its address, or FUNCTION+0xN
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
    /// By a table of N results (1024), if they depend on its arguments alone
    #[arg(long, value_name = "N", group = "what", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1024", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    memo: Option<u32>,
    /// A call by its result, where its arguments are these (with commas between them): 2.0
    #[arg(long, value_name = "V", group = "what", allow_hyphen_values = true)]
    constant: Option<String>,
    /// Its own packed SSE loops, by AVX2: those that give the same bit for bit
    #[arg(long, group = "what")]
    vectorise: bool,
    /// Have both run by turns for so long, and keep what is faster, unless it does something else
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    #[arg(conflicts_with_all = ["undo", "list", "constant", "vectorise"])]
    trial: Option<Duration>,
    /// Make so many calls of both in a copy of the process first; 100 of what is known to be pure
    #[arg(long, value_name = "N", requires = "trial", hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=4096))]
    verify: Option<u64>,
    /// It depends on its arguments alone and changes nothing, though its code does not show that
    #[arg(long, hide_short_help = true)]
    pure: bool,
    /// What it takes and returns, where that is not known: 'double f(double x);'
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    prototype: Option<String>,
    /// Take it back: the function runs again as it did
    #[arg(long, group = "what")]
    undo: bool,
    /// List what is replaced in the process
    #[arg(long, group = "what", conflicts_with = "function")]
    list: bool,
    /// Do not, where all threads would stand still at once for longer than this: 5ms
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    #[arg(hide_short_help = true, conflicts_with_all = ["undo", "list"])]
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
    let process = RunningProgram::of(pid).map_err(super::attached::hinted)?.pausing_at_most(args.max_pause);
    let signature = args.prototype.as_deref().map(signature).transpose()?;
    let word = Word { signature: signature.as_ref(), is_pure: args.pure };
    if let Some(values) = &args.constant {
        return constant(args, &process, &word, (function, values));
    }
    if args.vectorise {
        return vectorised::run(args, &process, function);
    }
    // What is wrong with a file is said before the process is looked at.
    let given = match args.memo {
        Some(_) => None,
        None => Some(graft(args, function)?),
    };
    let (module, func) = found(&process, function)?;
    let pure = || module.pure_function(func, &word).map_err(refused);
    let (graft, symbol) = match (given, args.memo) {
        (Some(given), _) => given,
        (None, n) => {
            let n = n.unwrap_or(1).next_power_of_two();
            (module.memo(&process, &pure()?, n).map_err(refused)?, None)
        }
    };
    let new = New { asked: function, module: &module, func, graft: &graft, symbol: symbol.as_deref() };
    if let Some(long) = args.trial {
        return trial::run(args, &process, &new, long, &word);
    }
    let made = Replacement::new(&process, &module, func, &graft, new.symbol).map_err(refused)?;
    let standing = new.standing(&made);
    let stopped = made.put_in(std::slice::from_ref(&standing)).map_err(refused)?;
    said(args, &standing, &stopped)
}

/// New code for a function.
struct New<'a> {
    asked: &'a str,
    module: &'a LoadedModule,
    func: FuncId,
    graft: &'a Graft,
    symbol: Option<&'a str>,
}

impl New<'_> {
    /// What is kept in the process of it.
    fn standing(&self, made: &Replacement) -> Standing {
        let New { asked, module, func, graft, symbol } = *self;
        Standing {
            function: input::spelt(&module.program, func),
            asked: asked.to_owned(),
            module: module.path().display().to_string(),
            at: module.program.function(func).entry.0,
            with: graft.name().to_owned(),
            symbol: symbol.map(str::to_owned),
            to: made.to.0,
            original: made.original.0,
            since_s: now_s(),
        }
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Says what stands in for what from now on.
fn said(args: &Args, standing: &Standing, stopped: &Stop) -> anyhow::Result<Answer> {
    let view = ReplaceView {
        replaced: Some(vec![view(standing, false)]),
        pause_us: Some(micros(stopped.pause)),
        ..ReplaceView::of(args.pid)
    };
    args.output.print(&view)?;
    Ok(Answer::Yes)
}

/// What the prototype `text` declares.
fn signature(text: &str) -> anyhow::Result<Signature> {
    let parsed = Prototypes::parse(text).map_err(|err| match err.hint() {
        Some(hint) => Hinted::new(err.to_string(), hint).into(),
        None => anyhow::Error::from(err),
    })?;
    let first = parsed.functions.into_iter().next_back();
    Ok(first.ok_or_else(|| anyhow::anyhow!("no function is declared in `{text}`"))?.signature)
}

/// Has a known result stand in for the call `asked` with these `values`.
fn constant(
    args: &Args,
    process: &RunningProgram,
    word: &Word<'_>,
    (asked, values): (&str, &str),
) -> anyhow::Result<Answer> {
    let (module, at) = found_call(process, asked)?;
    let (other, func, callee) = module.called(process, at).map_err(refused)?;
    let owner = other.as_ref().unwrap_or(&module);
    let pure: PureFunction = owner.pure_function(func, word).map_err(refused)?;
    let arguments = pure.arguments(values).map_err(refused)?;
    let graft = session::constant(process, &pure, callee, &arguments).map_err(refused)?;
    let made = Replacement::of_call(process, &module, (at, callee), &graft).map_err(refused)?;
    let standing = Standing {
        function: call_name(&module, at),
        asked: asked.to_owned(),
        module: module.path().display().to_string(),
        at: at.0,
        with: format!("{} of ({values})", graft.name()),
        symbol: None,
        to: made.to.0,
        original: made.original.0,
        since_s: now_s(),
    };
    let stopped = made.put_in(std::slice::from_ref(&standing)).map_err(refused)?;
    said(args, &standing, &stopped)
}

/// How a call is called.
fn call_name(module: &LoadedModule, at: Va) -> String {
    let calls = &module.program.calls;
    let call = calls.binary_search_by_key(&at, |call| call.at).ok().and_then(|n| calls.get(n));
    let callee = call.and_then(|call| found::callee(module, call)).unwrap_or_default();
    match module.program.function_at(at) {
        Some(func) => {
            let from = at.since(module.program.function(func).entry);
            format!("{callee} at {}+{from:#x}", input::spelt(&module.program, func))
        }
        None => format!("{callee} at {at}"),
    }
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
