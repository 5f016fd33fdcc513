//! `engraft ipc`: instructions and cycles of calls of a function of a process that runs, or of instances of a
//! loop.

use crate::input::names::spellings;
use crate::output::{self, Answer, Hinted, Output};
use crate::verbs::attached;
use crate::verbs::count::open_store;
use anyhow::Context as _;
use live::{AskedToEnd, End, Over};
use measure::reports::ipc::{Cost, Ipc};
use profile::recording;
use program::Va;
use session::{CallsMeasured, CallsWanted, measure_calls};
use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::Duration;
use views::ipc::{CallView, ClockView, IpcView, SpreadView, UncountedView};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft ipc hot -p $(pidof worker)
  $ engraft ipc hot -p $(pidof worker) --calls 3 --json
  $ engraft ipc hot -p $(pidof worker) --loop";

/// Instructions, cycles and their quotient of calls of a function of a process that runs
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The function: a symbol, a name in the source, or an address in the process's executable
    function: String,
    /// The process
    #[arg(short, long = "pid", value_name = "PID")]
    pid: i32,
    /// Of a loop in place of calls: the Nth of the function, by address, the innermost around an ADDRESS, or
    /// those at FILE:LINE [default: 1]
    #[arg(long = "loop", value_name = "WHICH", num_args = 0..=1, default_missing_value = "1")]
    in_loop: Option<String>,
    /// How many calls, or instances of the loop
    #[arg(long, value_name = "N", default_value = "10", value_parser = crate::input::from_one)]
    calls: std::num::NonZeroUsize,
    /// How long to wait for them at most: 5s, 500ms, 2min
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    how_long: Duration,
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let store = open_store(false)?;
    // Until the process is attached to, what asks us to end ends us.
    let (asked_to_end, ends) = (OnceCell::new(), [End::of(args.pid)]);
    let over = |long| match asked_to_end.get_or_init(AskedToEnd::keep) {
        Ok(asked_to_end) => asked_to_end.wait(&ends, Some(long)),
        Err(_) => Over::Asked,
    };
    let waits = |long| over(long) == Over::Time;
    let (pid, function, n) = (args.pid, args.function.as_str(), args.calls.get());
    let text = args.in_loop.as_ref().map(|which| loop_text(function, which)).transpose()?;
    let wanted =
        CallsWanted { pid, function, in_loop: text.as_deref(), spellings, n, at_most: args.how_long };
    let measured = measure_calls(&store, &wanted, &waits).map_err(|err| match err.hint() {
        Some(hint) => Hinted::new(format!("{:#}", anyhow::Error::from(err)), hint).into(),
        None => anyhow::Error::from(err),
    })?;
    let over = over(Duration::ZERO);
    if let Some(Err(err)) = asked_to_end.into_inner() {
        return Err(err).context("cannot wait for signals");
    }
    let Some(found) = &measured.ipc else { return Err(nothing(args, &measured, over)) };
    args.output.print(&view(args, found, &measured))?;
    // Where nothing is told, nothing is off.
    if found.unsteady_share > UNSTEADY && found.ipc.is_some() {
        let what =
            format!("the machine was not steady: cycles may be {:.0} % off", 100.0 * found.unsteady_share);
        output::warn(
            &what,
            Some("other programs that run meanwhile, or power management, make its cores faster or slower"),
        );
    }
    if found.calls.len() < n {
        let (calls, ended) = args.words();
        let (when, hint) = args.until(over);
        let what = format!("{} of {n} {calls} {ended} {when}", found.calls.len());
        output::warn(&what, hint);
        return Ok(Answer::No);
    }
    Ok(Answer::Yes)
}

/// By more than this share, cycles may be wrong because the machine was not steady: then it is said.
const UNSTEADY: f64 = 0.04;

impl Args {
    /// Until when it was measured; what can be done about it.
    fn until(&self, over: Over) -> (String, Option<&'static str>) {
        match over {
            Over::Ended => (format!("before process {} ended", self.pid), None),
            Over::Asked => ("before engraft was asked to end".to_owned(), None),
            Over::Time => {
                (format!("in {}", humantime::format_duration(self.how_long)), Some("--for TIME waits longer"))
            }
        }
    }

    /// What is measured, and how it ends.
    fn words(&self) -> (&'static str, &'static str) {
        if self.in_loop.is_some() { ("instances", "were left") } else { ("calls", "came back") }
    }
}

/// How a loop of `function` is written for `values --loops`, which is `which` of them.
fn loop_text(function: &str, which: &str) -> anyhow::Result<String> {
    if let Ok(n) = which.parse::<usize>() {
        if n == 0 {
            return Err(Hinted::new("--loop 0 is none", "loops of a function are numbered from 1").into());
        }
        return Ok(format!("{function}#{n}"));
    }
    if which.starts_with("0x") || which.contains(['!', ':']) {
        return Ok(which.to_owned());
    }
    let hint = "give a number, an address, or FILE:LINE; `engraft show BIN loops` lists loops";
    Err(Hinted::new(format!("--loop {which} names no loop"), hint).into())
}

/// The error where no call can be told of.
fn nothing(args: &Args, measured: &CallsMeasured, over: Over) -> anyhow::Error {
    let (pid, function) = (args.pid, &args.function);
    if let Some(unseen) = measured.unseen.first() {
        let hint = "`engraft count -p` lists what stays where it is";
        return Hinted::new(format!("calls of {} are not seen: {}", unseen.function, unseen.why), hint)
            .into();
    }
    if let (false, Some(which)) = (measured.is_there, &args.in_loop) {
        let hint = "`engraft show BIN loops` lists loops";
        return Hinted::new(format!("{function} of process {pid} has no loop {which}"), hint).into();
    }
    if !measured.is_there {
        let hint = format!(
            "`engraft show -p {pid} functions MODULE` lists those of a module; clones have names of their own"
        );
        return Hinted::new(format!("no function of process {pid} is called {function}"), hint).into();
    }
    let (when, hint) = args.until(over);
    let hint = hint.map(str::to_owned);
    let what = match (measured.n_plain, &args.in_loop) {
        (0, None) => format!("no call of {function} in process {pid} came back {when}"),
        (0, Some(_)) => format!("no instance of the loop of {function} in process {pid} was left {when}"),
        (n, _) => format!("{n} calls of {function} in process {pid} were timed, and none was counted {when}"),
    };
    match hint {
        Some(hint) => Hinted::new(what, hint).into(),
        None => anyhow::anyhow!(what),
    }
}

fn view(args: &Args, found: &Ipc, measured: &CallsMeasured) -> IpcView {
    let call = |cost: &Cost| CallView {
        thread: cost.thread,
        instructions: cost.instructions,
        cycles: cost.cycles,
        cycles_are: "estimated",
        error: cost.error,
        ipc: cost.ipc(),
        header: cost.of_loop.map(|of| Va(of.header).to_string()),
        iterations: cost.of_loop.map(|of| of.iterations),
    };
    let uncounted = |(path, why): &(PathBuf, String)| UncountedView {
        module: path.display().to_string(),
        why: why.clone(),
    };
    let done: Vec<recording::Attached> =
        measured.attached.iter().map(|(attached, back)| attached::recorded(attached, back)).collect();
    IpcView {
        schema: IpcView::SCHEMA,
        pid: args.pid,
        function: args.function.clone(),
        of: if args.in_loop.is_some() { "loop" } else { "call" },
        calls: found.calls.iter().map(call).collect(),
        ipc: found.ipc.map(|spread| SpreadView {
            mean: spread.mean,
            deviation: spread.deviation,
            interval: [(spread.mean - spread.half_interval).max(0.0), spread.mean + spread.half_interval],
        }),
        slowdown: found.slowdown,
        unsteady_share: found.unsteady_share,
        clock: ClockView {
            calibrations: found.clock.n,
            ticks_per_cycle: found.clock.per_cycle,
            error: found.clock.per_cycle_error,
            range: found.clock.range,
        },
        plain_calls: measured.n_plain,
        uncounted: measured.uncounted.len(),
        uncounted_modules: measured.uncounted_modules.iter().map(uncounted).collect(),
        attach: attached::view(&done),
    }
}
