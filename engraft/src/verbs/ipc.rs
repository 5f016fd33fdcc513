//! `engraft ipc`: instructions and cycles of calls of a function of a process that runs.

use crate::input::names::spellings;
use crate::output::{self, Answer, Hinted, Output};
use crate::verbs::attached;
use crate::verbs::count::open_store;
use live::{AskedToEnd, End, Over};
use measure::reports::ipc::{Cost, Ipc};
use profile::recording;
use session::{CallsMeasured, CallsWanted, measure_calls};
use std::time::Duration;
use views::ipc::{CallView, IpcView, SpreadView};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft ipc hot -p $(pidof worker)
  $ engraft ipc hot -p $(pidof worker) --calls 3 --json";

/// Instructions, cycles and their quotient of calls of a function of a process that runs
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The function: a symbol, a name in the source, or an address in the process's executable
    function: String,
    /// The process
    #[arg(short, long = "pid", value_name = "PID")]
    pid: i32,
    /// How many calls
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
    let asked_to_end = AskedToEnd::keep()?;
    let ends = [End::of(args.pid)];
    let waits = |long| asked_to_end.wait(&ends, Some(long)) == Over::Time;
    let (pid, function, n) = (args.pid, args.function.as_str(), args.calls.get());
    let wanted = CallsWanted { pid, function, spellings, n, at_most: args.how_long };
    let measured = measure_calls(&store, &wanted, &waits).map_err(|err| match err.hint() {
        Some(hint) => Hinted::new(format!("{:#}", anyhow::Error::from(err)), hint).into(),
        None => anyhow::Error::from(err),
    })?;
    let Some(found) = &measured.ipc else { return Err(nothing(args, &measured)) };
    args.output.print(&view(args, found, &measured))?;
    if found.calls.len() < n {
        let waited = humantime::format_duration(args.how_long);
        let what = format!("{} of {n} calls came back in {waited}", found.calls.len());
        output::warn(&what, Some("--for TIME waits longer"));
        return Ok(Answer::No);
    }
    Ok(Answer::Yes)
}

/// The error where no call can be told of.
fn nothing(args: &Args, measured: &CallsMeasured) -> anyhow::Error {
    let (pid, function) = (args.pid, &args.function);
    if let Some(unseen) = measured.unseen.first() {
        let hint = "`engraft count -p` lists what stays where it is";
        return Hinted::new(format!("calls of {} are not seen: {}", unseen.function, unseen.why), hint)
            .into();
    }
    if !measured.is_there {
        let hint = format!(
            "`engraft show -p {pid} functions MODULE` lists those of a module; clones have names of their own"
        );
        return Hinted::new(format!("no function of process {pid} is called {function}"), hint).into();
    }
    let waited = humantime::format_duration(args.how_long);
    let hint = format!("`engraft show -p {pid} functions MODULE` lists functions; --for TIME waits longer");
    Hinted::new(format!("no call of {function} in process {pid} came back in {waited}"), hint).into()
}

fn view(args: &Args, found: &Ipc, measured: &CallsMeasured) -> IpcView {
    let call = |cost: &Cost| CallView {
        thread: cost.thread,
        instructions: cost.instructions,
        cycles: cost.cycles,
        cycles_are: "estimated",
        error: cost.error,
        ipc: cost.ipc(),
    };
    let spread = found.ipc;
    let done: Vec<recording::Attached> =
        measured.attached.iter().map(|(attached, back)| attached::recorded(attached, back)).collect();
    IpcView {
        schema: IpcView::SCHEMA,
        pid: args.pid,
        function: args.function.clone(),
        calls: found.calls.iter().map(call).collect(),
        ipc: SpreadView {
            mean: spread.mean,
            deviation: spread.deviation,
            interval: [spread.mean - spread.half_interval, spread.mean + spread.half_interval],
        },
        slowdown: found.slowdown,
        plain_calls: measured.n_plain,
        uncounted: measured.uncounted.len(),
        attach: attached::view(&done),
    }
}
