//! `engraft query`: paths of blocks found in a recorded run, without unpacking it.

use crate::out::{self, Answer, Hinted};
use crate::view::{Format, Output, Table, View};
use anyhow::Context as _;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use trace::{Automaton, Found, Names, Position, Scheme, SearchError, Trace, Want};
use tracing::info_span;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft query run.trace 'main: 1 2' --count
  $ engraft query run.trace --stats";

/// Find a path of blocks of one function in a trace, however many calls interrupt it
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A trace: what `engraft convert` wrote
    trace: PathBuf,
    /// 'FUNCTION: BLOCK BLOCK …'; FUNCTION is a name, #ID or an address, BLOCK a number or an address; `1|2`: one of
    /// them, `3+`: once or more, `..`: anything between
    #[arg(required_unless_present = "stats")]
    path: Vec<String>,
    /// Print how often it occurs, and nothing else
    #[arg(long, group = "what")]
    count: bool,
    /// Print where it occurs first, and nothing else: the index of its last block, behind the thread if there are several
    #[arg(long, group = "what")]
    first: bool,
    /// Print where it occurs, each time
    #[arg(long, group = "what")]
    all: bool,
    /// Print what the trace holds
    #[arg(long, group = "what", conflicts_with = "path")]
    stats: bool,
    /// How to search: 1 unpacked, 2 in the grammar, 3 in the chunks, 4 in segments of the grammar, 5 in the columns
    /// [default: what is fastest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    scheme: Option<u8>,
    #[command(flatten)]
    output: Output,
}

/// Opens a trace.
pub fn open(path: &Path) -> anyhow::Result<Trace> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let trace = Trace::open(file).map_err(|err| unreadable(path, err))?;
    if let Some(at) = trace.cut() {
        let what = format!("{} is cut off at byte {at:#x}", path.display());
        out::warn(&what, Some("what was complete before that is used"));
    }
    Ok(trace)
}

/// Says which file it was, and what a trace is.
pub fn unreadable(path: &Path, err: trace::ReadError) -> anyhow::Error {
    let cause = std::error::Error::source(&err).map_or_else(String::new, |cause| format!(": {cause}"));
    let hint = match err {
        trace::ReadError::Version { .. } => "use the engraft that wrote it, or record again",
        trace::ReadError::Damaged { .. } | trace::ReadError::Cut { .. } => "record it or convert it again",
        _ => "a trace is what `engraft convert` wrote",
    };
    Hinted::new(format!("{}: {err}{cause}", path.display()), hint).into()
}

fn failed(path: &Path, err: SearchError) -> anyhow::Error {
    match err {
        SearchError::Read(err) => unreadable(path, err),
        err => {
            let hint =
                "leave --scheme out, or convert the trace to a file that has it (`engraft help convert`)";
            Hinted::new(format!("{}: {err}", path.display()), hint).into()
        }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let trace = info_span!("open").in_scope(|| open(&args.trace))?;
    let names = info_span!("names").in_scope(|| trace.names()).map_err(|err| unreadable(&args.trace, err))?;
    if args.stats {
        return print_stats(args, &trace);
    }
    let path =
        trace::Path::parse(&args.path.join(" "), &names).map_err(|err| Hinted::new(err.what, err.hint))?;
    let automaton = Automaton::new(&path)?;
    let want = match (args.first, args.count) {
        (true, _) => Want::First,
        _ if args.all => Want::All,
        (_, true) => Want::Count,
        _ => Want::CountAndFirst,
    };
    let scheme = args.scheme.and_then(Scheme::numbered);
    let searched = info_span!("search").in_scope(|| trace.search(&automaton, want, scheme));
    let (found, scheme) = searched.map_err(|err| failed(&args.trace, err))?;
    let is_bare = args.output.format() == Format::Table;
    if is_bare && args.count {
        out::data(None, |w| writeln!(w, "{}", found.count))?;
        return Ok(Answer::Yes);
    }
    if is_bare && (args.first || args.all) {
        // Counts alone do not need the grammar, which this reads.
        let n_threads = trace.threads().map_err(|err| unreadable(&args.trace, err))?.len();
        let positions = if args.first { found.first.as_slice() } else { found.all.as_slice() };
        out::data(None, |w| positions.iter().try_for_each(|p| position(w, n_threads, *p)))?;
    } else {
        args.output.print(&QueryView::new(&path, &names, scheme, want, &found))?;
    }
    Ok(if found.count > 0 { Answer::Yes } else { Answer::No })
}

/// The index, behind the thread if there are several.
fn position(w: &mut dyn Write, n_threads: usize, p: Position) -> io::Result<()> {
    if n_threads > 1 { writeln!(w, "{} {}", p.thread, p.index) } else { writeln!(w, "{}", p.index) }
}

fn print_stats(args: &Args, trace: &Trace) -> anyhow::Result<Answer> {
    let stats = info_span!("stats").in_scope(|| trace.stats()).map_err(|err| unreadable(&args.trace, err))?;
    let file_bytes = std::fs::metadata(&args.trace).map_or(0, |m| m.len());
    args.output.print(&StatsView {
        schema: "engraft.query/1",
        file_bytes,
        trace_bytes: 4 * stats.n_symbols,
        n_threads: stats.n_threads,
        n_symbols: stats.n_symbols,
        n_entries: stats.n_entries,
        n_blocks: stats.n_blocks,
        n_exits: stats.n_exits,
        n_functions: stats.n_functions,
        deepest: stats.deepest,
        n_open: stats.n_open,
    })?;
    Ok(Answer::Yes)
}

/// What was asked, and what was found.
#[derive(Serialize)]
pub struct QueryView {
    schema: &'static str,
    function: String,
    function_id: u32,
    steps: Vec<StepView>,
    scheme: u8,
    /// Not counted where the first alone is asked for.
    count: Option<u64>,
    first: Option<PositionView>,
    positions: Option<Vec<PositionView>>,
}

#[derive(Serialize)]
struct StepView {
    blocks: Vec<u32>,
    repeats: bool,
    after_gap: bool,
}

#[derive(Serialize)]
struct PositionView {
    thread: u32,
    index: u64,
}

impl QueryView {
    fn new(path: &trace::Path, names: &Names, scheme: Scheme, want: Want, found: &Found) -> QueryView {
        let view = |p: &Position| PositionView { thread: p.thread, index: p.index };
        let step = |s: &trace::path::PathStep| StepView {
            blocks: s.blocks.clone(),
            repeats: s.repeats,
            after_gap: s.after_gap,
        };
        QueryView {
            schema: "engraft.query/1",
            function: names.function(path.func),
            function_id: path.func,
            steps: path.steps.iter().map(step).collect(),
            scheme: scheme as u8,
            count: (want != Want::First).then_some(found.count),
            first: found.first.as_ref().map(view),
            positions: (want == Want::All).then(|| found.all.iter().map(view).collect()),
        }
    }
}

impl View for QueryView {
    /// A row a position that is asked for.
    fn table(&self) -> Table {
        let mut t = Table::new(&["function", "thread>", "index>"]);
        let all = self.positions.as_deref().unwrap_or(self.first.as_slice());
        for p in all {
            t.row([self.function.clone(), p.thread.to_string(), p.index.to_string()]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        match (&self.first, self.count) {
            (Some(p), Some(1)) => writeln!(w, "once, at symbol {} of thread {}", p.index, p.thread),
            (Some(p), Some(n)) => {
                writeln!(w, "{n} times, first at symbol {} of thread {}", p.index, p.thread)
            }
            _ => writeln!(w, "it does not occur"),
        }
    }
}

/// What a trace holds.
#[derive(Serialize)]
struct StatsView {
    schema: &'static str,
    file_bytes: u64,
    trace_bytes: u64,
    n_threads: u64,
    n_symbols: u64,
    n_entries: u64,
    n_blocks: u64,
    n_exits: u64,
    n_functions: u64,
    deepest: u64,
    n_open: u64,
}

impl View for StatsView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["what", "number>"]);
        let mut row = |what: &str, n: u64| t.row([what.to_owned(), n.to_string()]);
        row("bytes of the file", self.file_bytes);
        row("bytes of the trace, four a symbol", self.trace_bytes);
        row("threads", self.n_threads);
        row("symbols", self.n_symbols);
        row("functions entered", self.n_entries);
        row("blocks executed", self.n_blocks);
        row("functions left", self.n_exits);
        row("functions that ran", self.n_functions);
        row("functions open at once, at most", self.deepest);
        row("functions not left, because the recording ends", self.n_open);
        t
    }
}
