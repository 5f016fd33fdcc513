//! What `engraft sample` says: where the samples of a run are.

pub mod totals;

use crate::count::RunView;
use crate::{Table, View, address, grouped, many, share};
use serde::Serialize;
use std::io::{self, Write};

/// Where the samples of a run are.
#[derive(Debug, Serialize)]
pub struct SampleView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// Which run it is of, where the recording says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunView>,
    /// The recording that was written.
    pub recording: String,
    /// The processes, as far as samples are of them.
    pub processes: Vec<u32>,
    /// How long it was sampled.
    pub seconds: f64,
    /// How often, in a second of each thread's time; `null`: each so many of the event.
    pub hertz: Option<u64>,
    /// How many samples there are.
    pub samples: u64,
    /// How many more there was no room for.
    pub lost: u64,
    /// What a sample takes of its thread, in microseconds, if that was measured.
    pub cost_us: Option<f64>,
    /// What all of them took of the threads' time, `0.0..=1.0`, where that is known.
    pub cost_share: Option<f64>,
    /// Whether callers were asked for.
    pub chains: Option<ChainsView>,
    /// Whether code of the kernel was sampled, too.
    pub kernel: bool,
    /// By thread, most samples first.
    pub threads: Vec<ThreadView>,
    /// By event.
    pub events: Vec<EventView>,
}

impl SampleView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.sample/1";
}

/// How much is known of callers.
#[derive(Clone, Debug, Serialize)]
pub struct ChainsView {
    /// Samples of which all callers are known, to the first function of the thread.
    pub whole: u64,
    /// Of these, samples of which some were read from the stack a moment later: it was deeper than was
    /// copied.
    pub later: u64,
    /// Samples of which some callers are not known.
    pub cut: u64,
    /// How much of stacks was copied, the least first.
    pub copied: Vec<CopiedView>,
}

/// How much of stacks was copied with samples, for a while.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CopiedView {
    /// At most so many bytes.
    pub bytes: u32,
    /// How often meanwhile, in a second of each thread's time; `null`: each so many of the event.
    pub hertz: Option<u64>,
    /// How many samples there were.
    pub samples: u64,
}

impl ChainsView {
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let samples = |n: u64| many(usize::try_from(n).unwrap_or(usize::MAX), "sample");
        let of_all = |n: u64| share(crate::ratio(n, self.whole + self.cut));
        let sizes = self.copied.iter().map(|one| {
            let often = one.hertz.filter(|_| self.copied.len() > 1);
            let often = often.map_or_else(String::new, |n| format!(", {} a second", grouped(&n.to_string())));
            format!("{} bytes ({}{often})", grouped(&one.bytes.to_string()), samples(one.samples))
        });
        let sizes: Vec<String> = sizes.collect();
        if !sizes.is_empty() {
            writeln!(w, "of stacks, at most so much was copied: {}", sizes.join(", "))?;
        }
        if self.cut > 0 {
            let more = match self.copied.last() {
                Some(last) if last.bytes < MOST => "; --stack 65528 copies more of the stack",
                _ => "",
            };
            let (n, part) = (samples(self.cut), of_all(self.cut));
            writeln!(w, "of {n} ({part}), callers are known in part alone{more}")?;
        }
        if self.later > 0 {
            let what =
                "outer callers were read from the stack a moment later, which is deeper than was copied";
            writeln!(w, "of {} ({}), {what}", samples(self.later), of_all(self.later))?;
        }
        Ok(())
    }
}

/// No more of a stack can be copied.
const MOST: u32 = 65_528;

/// A thread that was sampled.
#[derive(Debug, Serialize)]
pub struct ThreadView {
    /// Its process.
    pub process: u32,
    /// Its number.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Its samples.
    pub samples: u64,
    /// Of all, `0.0..=1.0`.
    pub share: f64,
}

/// Where the samples of an event are.
#[derive(Debug, Serialize)]
pub struct EventView {
    /// What it is called.
    pub event: String,
    /// What it is counted in: `ns` or `times`.
    pub unit: &'static str,
    /// Its samples.
    pub samples: u64,
    /// How many of it they stand for.
    pub period: u64,
    /// Functions, those with most samples in them first.
    pub functions: Vec<FunctionView>,
    /// Loops, likewise; samples of inner ones are in outer ones, too.
    pub loops: Vec<LoopView>,
    /// Source lines, likewise.
    pub lines: Vec<LineView>,
}

/// Samples in something itself, and in all that it called.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SumsView {
    /// Samples in it.
    #[serde(rename = "self")]
    pub own: u64,
    /// Of the event, `0.0..=1.0`.
    pub self_share: f64,
    /// Samples in it and in all that it called.
    pub total: u64,
    /// Of the event, `0.0..=1.0`.
    pub total_share: f64,
}

/// A function with samples.
#[derive(Debug, Serialize)]
pub struct FunctionView {
    /// What people call it.
    pub function: String,
    /// The file it is in; what it is, in brackets, where there is none.
    pub module: String,
    /// Its address there.
    pub at: Option<u64>,
    /// Its samples.
    #[serde(flatten)]
    pub sums: SumsView,
}

/// A loop with samples.
#[derive(Debug, Serialize)]
pub struct LoopView {
    /// Its function.
    pub function: String,
    /// The file it is in.
    pub module: String,
    /// Its first header.
    pub at: u64,
    /// How many loops hold it, itself too.
    pub depth: u32,
    /// The line of its header, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Its samples.
    #[serde(flatten)]
    pub sums: SumsView,
}

/// A source line with samples.
#[derive(Debug, Serialize)]
pub struct LineView {
    /// The file, and the line from 1.
    pub line: String,
    /// Its samples.
    #[serde(flatten)]
    pub sums: SumsView,
}

/// How many rows people want to see, of functions; of others.
const TOP: usize = 20;
const FEW: usize = 8;

/// The columns of samples: without callers, all that is known is what is in it itself.
fn numbers(sums: &SumsView) -> [String; 3] {
    [share(sums.self_share), share(sums.total_share), sums.own.to_string()]
}

impl EventView {
    fn functions(&self) -> Table {
        let mut t = Table::new(&["self>", "total>", "samples>", "function", "module"]);
        for f in &self.functions {
            let [own, total, n] = numbers(&f.sums);
            t.row([own, total, n, f.function.clone(), f.module.clone()]);
        }
        t
    }

    fn loops(&self) -> Table {
        let mut t = Table::new(&["self>", "total>", "samples>", "depth>", "loop>", "function", "module"])
            .with_spare(&["depth"]);
        for l in self.loops.iter().filter(|l| l.sums.own > 0) {
            let [own, total, n] = numbers(&l.sums);
            let (at, function) = (address(l.at), l.function.clone());
            t.row([own, total, n, l.depth.to_string(), at, function, l.module.clone()]);
        }
        t
    }

    fn lines(&self) -> Table {
        let mut t = Table::new(&["self>", "total>", "samples>", "line"]);
        for l in self.lines.iter().filter(|l| l.sums.own > 0) {
            let [own, total, n] = numbers(&l.sums);
            t.row([own, total, n, l.line.clone()]);
        }
        t
    }
}

impl View for SampleView {
    /// A row a function, of the first event.
    fn table(&self) -> Table {
        self.events.first().map_or_else(|| Table::new(&[]), EventView::functions)
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        if let Some(run) = &self.run {
            run.text(w)?;
        }
        for event in &self.events {
            writeln!(w)?;
            if self.events.len() > 1 {
                let unit = if event.unit == "ns" { " ns" } else { "" };
                writeln!(
                    w,
                    "{}: {}{unit}, {} samples",
                    event.event,
                    grouped(&event.period.to_string()),
                    grouped(&event.samples.to_string())
                )?;
            }
            event.functions().top(TOP, w)?;
            if event.loops.iter().any(|l| l.sums.own > 0) {
                writeln!(w)?;
                event.loops().top(FEW, w)?;
            }
            if event.lines.iter().any(|l| l.sums.own > 0) {
                writeln!(w)?;
                event.lines().top(FEW, w)?;
            }
        }
        writeln!(w)?;
        self.threads(w)?;
        self.quality(w)
    }
}

/// One part of a view, with all its rows.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct PartView {
    /// The view.
    pub view: SampleView,
    /// Which part.
    #[serde(skip)]
    pub part: Part,
}

/// A part of a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Its functions.
    Functions,
    /// Its loops.
    Loops,
    /// Its lines.
    Lines,
}

impl View for PartView {
    fn table(&self) -> Table {
        let Some(event) = self.view.events.first() else { return Table::new(&[]) };
        match self.part {
            Part::Functions => event.functions(),
            Part::Loops => event.loops(),
            Part::Lines => event.lines(),
        }
    }
}

impl SampleView {
    fn threads(&self, w: &mut dyn Write) -> io::Result<()> {
        if self.threads.len() < 2 {
            return Ok(());
        }
        let mut t = Table::new(&["share>", "samples>", "process>", "thread>", "name"]);
        for one in &self.threads {
            let numbers = [share(one.share), one.samples.to_string()];
            let [part, n] = numbers;
            t.row([part, n, one.process.to_string(), one.thread.to_string(), one.name.clone()]);
        }
        t.top(FEW, w)?;
        writeln!(w)
    }

    fn quality(&self, w: &mut dyn Write) -> io::Result<()> {
        let names: Vec<&str> = self.events.iter().map(|event| &*event.event).collect();
        let often = match self.hertz {
            Some(hertz) => format!(", {} a second of each thread's time", grouped(&hertz.to_string())),
            None => String::new(),
        };
        write!(
            w,
            "{} samples of {} in {:.1} s{often}; {} lost",
            grouped(&self.samples.to_string()),
            names.join(", "),
            self.seconds,
            grouped(&self.lost.to_string())
        )?;
        if let Some(cost) = self.cost_us {
            let of_all =
                self.cost_share.map_or_else(String::new, |part| format!(", {} of its time", share(part)));
            write!(w, "; one takes {cost:.1} µs{of_all}")?;
        }
        writeln!(w)?;
        if self.samples == 0 {
            writeln!(
                w,
                "there is none: it was shorter on a processor than the time between two; -F N takes more"
            )?;
        }
        if let Some(chains) = &self.chains {
            chains.text(w)?;
        }
        if !self.kernel {
            writeln!(w, "time in the kernel was not sampled: nobody but root may")?;
        }
        writeln!(w, "recording: {}", self.recording)
    }
}
