//! `engraft sample`: where threads are, again and again, and by whom that was called.

pub mod fill;
pub mod recorded;
mod totals;
mod watch;

use super::count::{described, described_by, find, keep, passed_on};
use crate::input::{self, CommandLine, Ending, Place};
use crate::output::{self, Answer, Hinted};
use crate::verbs::attached::{Processes, command_of};
use live::{AskedToEnd, Chains, End, Event, EventError, OpenError, Over, Rate, Wanted};
use profile::recording::{Recording, Run};
use profile::samples;
use program::Program;
use session::{Glimpse, SampleError, Sampled, Sampler, Sizes};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};
use tracing::info_span;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft sample -o old.sample.engraft ./old
  $ engraft sample -q -F 1000 --no-chains -o flat.sample.engraft ./old

While it runs, on the terminal: engraft sample --live -p PID";

/// Where a program spends its time: samples of it, started here or running already
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
#[command(mut_arg("words", |words| words.required(false).required_unless_present_any(["pids", "process_name"])))]
pub struct Args {
    #[command(flatten)]
    processes: Processes,
    /// How long to sample such processes: 5s, 500ms, 2min
    #[arg(long = "for", value_name = "TIME", conflicts_with = "words", value_parser = humantime::parse_duration)]
    how_long: Option<Duration>,
    /// Where to write the recording [default: PROGRAM.sample.engraft, the one before being kept as
    /// PROGRAM.sample.old.engraft]
    #[arg(short, value_name = "REC")]
    o: Option<PathBuf>,
    /// How often in a second of each thread's time; `auto`: as often as takes less than 1 % of it, as
    /// measured here
    #[arg(short = 'F', long, value_name = "N|auto", default_value = "auto", value_parser = frequency)]
    frequency: Frequency,
    /// Events in place of the processor's cycles, or of the kernel's clock where there are no counters:
    /// page-faults, cache-misses, sched:sched_switch …, several with commas between them
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    event: Vec<String>,
    /// A sample each time that an event came N times, in place of so many a second
    #[arg(long, value_name = "N", conflicts_with = "frequency", value_parser = clap::value_parser!(u64).range(1..))]
    period: Option<u64>,
    /// Only count the events, by thread: no samples are taken, and no recording is written
    #[arg(long, conflicts_with_all = ["frequency", "period", "no_chains", "stack", "o"], requires = "event")]
    total: bool,
    /// Show where threads are while they are sampled, on the terminal; what a program writes that is started
    /// is to be redirected
    #[arg(long, conflicts_with = "total")]
    live: bool,
    /// Where threads are alone, not by whom that was called
    #[arg(long)]
    no_chains: bool,
    /// How many bytes of the stack are copied with each sample, to find callers in; `auto`: 8,192 or more, up
    /// to 65,528, as callers are that deep
    #[arg(
        long,
        value_name = "BYTES|auto",
        default_value = "auto",
        conflicts_with = "no_chains",
        hide_short_help = true
    )]
    #[arg(value_parser = stack)]
    stack: Stack,
    #[command(flatten)]
    output: output::Report,
    #[command(flatten)]
    rows: output::Rows,
    #[command(flatten)]
    command: CommandLine,
}

/// How often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frequency {
    Auto,
    Hertz(u64),
}

/// How much of stacks is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stack {
    Auto,
    Bytes(u32),
}

fn stack(text: &str) -> Result<Stack, String> {
    match text.parse() {
        _ if text == "auto" => Ok(Stack::Auto),
        Ok(n @ 256..=65_528) => Ok(Stack::Bytes(n & !7)),
        _ => Err("a number from 256 to 65528, or auto".to_owned()),
    }
}

fn frequency(text: &str) -> Result<Frequency, String> {
    match text.parse() {
        _ if text == "auto" => Ok(Frequency::Auto),
        Ok(n @ 1..) => Ok(Frequency::Hertz(n)),
        _ => Err("a number from 1 on, or auto".to_owned()),
    }
}

/// How much of a thread's time samples may take: less than one part in so many; a tenth of it is left for
/// what is not measured.
const AUTO_SHARE: u64 = 125;
/// As often at least, and at most: more is of little use.
const AUTO: std::ops::RangeInclusive<u64> = 10..=1999;

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if args.total {
        return totals::run(args);
    }
    if args.live {
        watch::refuse_unfit(!args.processes.are_meant())?;
    }
    let wanted = wanted(args)?;
    if args.processes.are_meant() { attached(args, wanted) } else { launched(args, wanted) }
}

/// The events that are asked for by name.
fn events(args: &Args) -> anyhow::Result<Vec<Event>> {
    let named = |name: &String| {
        Event::named(name).map_err(|err: EventError| {
            let hint = err.hint();
            anyhow::Error::from(Hinted::new(format!("{:#}", anyhow::Error::from(err)), hint))
        })
    };
    args.event.iter().map(named).collect()
}

/// What is asked for; how much of stacks is copied, how often, and what a sample of that costs.
fn wanted(args: &Args) -> anyhow::Result<(Wanted, Sizes)> {
    let mut events = events(args)?;
    let is_default = events.is_empty();
    if is_default {
        events.push(Event::cycles());
    }
    let stack = match args.stack {
        Stack::Auto => 0,
        Stack::Bytes(n) => n,
    };
    let chains = (!args.no_chains).then_some(Chains { stack });
    let wanted = Wanted { events, rate: Rate::Hertz(1), chains };
    let _span = info_span!("measure cost").entered();
    match sizes(args, &wanted) {
        Err(OpenError::NoSuchEvent { .. }) if is_default => {
            let wanted = Wanted { events: vec![Event::clock()], ..wanted };
            let sizes = sizes(args, &wanted).map_err(refused)?;
            Ok((wanted, sizes))
        }
        sizes => sizes.map(|sizes| (wanted, sizes)).map_err(refused),
    }
}

fn sizes(args: &Args, wanted: &Wanted) -> Result<Sizes, OpenError> {
    let auto = |cost: Option<u64>| {
        let often = |ns: u64| (1_000_000_000 / AUTO_SHARE / ns.max(1)).clamp(*AUTO.start(), *AUTO.end());
        Rate::Hertz(cost.map_or(99, often))
    };
    let rate = |cost: Option<u64>| match (args.period, args.frequency) {
        (Some(n), _) => Rate::Every(n),
        (None, Frequency::Hertz(n)) => Rate::Hertz(n),
        (None, Frequency::Auto) => auto(cost),
    };
    // What costs are measured with.
    let wanted = Wanted { rate: args.period.map_or(Rate::Hertz(1), Rate::Every), ..wanted.clone() };
    if wanted.chains.is_some() && args.stack == Stack::Auto {
        return Sizes::as_needed(&wanted, rate);
    }
    let cost = session::cost_of_a_sample(&wanted)?;
    Ok(Sizes::fixed(&Wanted { rate: rate(cost), ..wanted }, cost))
}

fn refused(err: OpenError) -> anyhow::Error {
    match err.hint() {
        Some(hint) => Hinted::new(format!("{:#}", anyhow::Error::from(err)), hint).into(),
        None => err.into(),
    }
}

/// Samples processes that run already.
fn attached(args: &Args, (wanted, sizes): (Wanted, Sizes)) -> anyhow::Result<Answer> {
    let pids = args.processes.looked_at()?;
    let first = pids.first().copied().unwrap_or(0);
    let path = std::fs::read_link(format!("/proc/{first}/exe")).unwrap_or_default();
    let rec = Place::new(args.o.as_deref(), Ending::Samples, &path)?;
    output::can_be_written(rec.path())?;
    args.output.refuse_unfit(&[rec.path()])?;
    let command = command_of(first);
    let asked_to_end = AskedToEnd::keep()?;
    let ends: Vec<End> = pids.iter().copied().map(End::of).collect();
    let mut sampler = Sampler::start(&pids, wanted, sizes).map_err(refused)?;
    let (started, clock) = (SystemTime::now(), Instant::now());
    output::pause_progress();
    let is_over = &AtomicBool::new(false);
    if args.live {
        let terminal = watch::terminal()?;
        let what = command.first().map_or_else(|| first.to_string(), |name| input::file_name(name));
        let mut is_ended = || {
            let is_late = args.how_long.is_some_and(|long| clock.elapsed() >= long);
            is_late || asked_to_end.wait(&ends, Some(Duration::ZERO)) != Over::Time
        };
        watched(&mut sampler, is_over, |glimpses| {
            watch::show(terminal, what, glimpses, &mut is_ended);
        });
    } else {
        super::attached::say_attached(&pids, args.how_long);
        std::thread::scope(|scope| {
            scope.spawn(|| sampler.run(is_over));
            let _why = asked_to_end.wait(&ends, args.how_long);
            is_over.store(true, Ordering::Relaxed);
        });
    }
    output::resume_progress();
    let took = clock.elapsed();
    let sampled = info_span!("analyze").in_scope(|| sampler.finish(took));
    let run = described_by(command, BTreeMap::new(), (started, took));
    finish(args, &rec, run, sampled)?;
    Ok(Answer::Yes)
}

/// Starts a program, and samples it to its end.
fn launched(args: &Args, wanted: (Wanted, Sizes)) -> anyhow::Result<Answer> {
    let target = find(&args.command)?;
    let rec = Place::new(args.o.as_deref(), Ending::Samples, &target.command)?;
    output::can_be_written(rec.path())?;
    args.output.refuse_unfit(&[rec.path(), &target.command])?;
    let (name, rest) = args.command.split();
    let terminal = args.live.then(watch::terminal).transpose()?;
    let (started, clock) = (SystemTime::now(), Instant::now());
    output::pause_progress();
    let launched = Sampler::launch(&target, name, rest, wanted).map_err(|err| match err {
        SampleError::Open(err) => refused(err),
        err => err.into(),
    });
    let (mut child, mut sampler) = launched?;
    let is_over = &AtomicBool::new(false);
    let wait = |child: &mut Child| {
        let ended = live::wait(child);
        is_over.store(true, Ordering::Relaxed);
        ended
    };
    let ended = match terminal {
        None => std::thread::scope(|scope| {
            scope.spawn(|| sampler.run(is_over));
            wait(&mut child)
        }),
        // Whoever has seen enough lets it go on to its end.
        Some(terminal) => watched(&mut sampler, is_over, |glimpses| {
            let what = name.to_string_lossy().into_owned();
            std::thread::scope(|scope| {
                let ended = scope.spawn(|| wait(&mut child));
                watch::show(terminal, what, glimpses, &mut || is_over.load(Ordering::Relaxed));
                ended.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        }),
    }?;
    output::resume_progress();
    let took = clock.elapsed();
    let sampled = info_span!("analyze").in_scope(|| sampler.finish(took));
    let run = described(&args.command, (started, took), ended.status);
    finish(args, &rec, run, sampled)?;
    Ok(Answer::Status(passed_on(ended.status)))
}

/// Has `sampler` run until it `is_over`, while `shown` has what is told of it.
fn watched<T>(sampler: &mut Sampler, is_over: &AtomicBool, shown: impl FnOnce(&Receiver<Glimpse>) -> T) -> T {
    std::thread::scope(|scope| {
        let (tells, told) = channel();
        scope.spawn(move || {
            sampler.run_watched(is_over, watch::PARTS, &mut |glimpse| drop(tells.send(glimpse)));
        });
        let _whatever_happens = OverOnDrop(is_over);
        shown(&told)
    })
}

/// Says that it is over when it goes, be that for a panic.
struct OverOnDrop<'o>(&'o AtomicBool);

impl Drop for OverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes the recording, and says what is in it.
fn finish(args: &Args, rec: &Place, run: Run, sampled: Sampled) -> anyhow::Result<()> {
    let modules = info_span!("keep code").in_scope(|| sampled.recorded());
    let sections = vec![(samples::SECTION, sampled.samples.write())];
    let recording = Recording { run: Some(run), modules, sections, ..Recording::default() };
    keep(rec, &recording.write())?;
    output::tidy_before_signals_end_us();
    if args.output.is_silent() {
        return Ok(());
    }
    let programs: Vec<Option<Program>> =
        sampled.modules.into_iter().map(|module| Some(module.program)).collect();
    let view = fill::view(rec.path(), None, &sampled.samples, &programs);
    args.output.print(&view)
}
