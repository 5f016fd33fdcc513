//! `engraft query`: paths of blocks found in a recorded run, without unpacking it; two runs compared.

mod answer;
mod compare;
pub mod functions;
mod hottest;
pub mod positions;
mod several;
mod source;
mod stats;
mod symbols;
mod within;

use crate::input::{from_one, open, unreadable, warn_of_faults};
use crate::output::{self, Answer, Format, Hinted, Output};
use answer::{callers_view, query_view, threads_view};
use functions::Functions;
use positions::{PositionArg, RangeArg};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use trace::path::Words;
use trace::{Position, Scheme, SearchError, Trace, Want, ngrams};
use tracing::info_span;
use views::many;
use views::query::QueryView;
use views::query::hottest::HottestView;
use views::query::symbols::{SymbolView, marked};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft query run.trace 'main: 1 2' --count
  $ engraft query run.trace 'main: 1 {hash: 1 1} 2' --nth 2 --context
  $ engraft query run.trace 'main: words.c:1..2+ 3'
  $ engraft query run.trace main --hottest 3 --length 4
  $ engraft query run.trace --stats";

/// Find a path of blocks of one function in a trace, however many calls interrupt it
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// A trace: what `engraft trace` or `engraft convert` wrote
    trace: PathBuf,
    /// 'FUNCTION: BLOCK BLOCK …'; FUNCTION is a name (a symbol, or as the source has it), MODULE!NAME, what
    /// fits with `*` for anything, #ID or an address, BLOCK a number (0 is the entry, then by address),
    /// `entry`, `exit` (any that control leaves in), an address, or FILE:LINE or FILE:LINE..LINE for all
    /// blocks of these lines; `1|2`: one of them, `3+`: once or more, `..`: anything between, `{FUNCTION:
    /// BLOCK …}`: a call with that path in it; `;` between several paths
    #[arg(required_unless_present_any = ["stats", "at", "tail", "hottest", "diff"])]
    path: Vec<String>,
    /// Print how often it occurs, and nothing else
    #[arg(long, group = "what")]
    count: bool,
    /// Print where it occurs first, and nothing else: the index of its last block, behind the thread, from 0,
    /// if there are several
    #[arg(long, group = "what")]
    first: bool,
    /// Print where it occurs, each time
    #[arg(long, group = "what")]
    all: bool,
    /// Print where it occurs for the K-th time, from 1, and nothing else
    #[arg(long, group = "what", value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    nth: Option<u64>,
    /// Print where it occurs first behind POS, and nothing else; POS is an index, or THREAD:INDEX if there
    /// are several threads, numbered from 0
    #[arg(long, group = "what", value_name = "POS")]
    next: Option<PositionArg>,
    /// Print where it occurs last before POS, and nothing else
    #[arg(long, group = "what", value_name = "POS")]
    previous: Option<PositionArg>,
    /// Print how often it occurs in each thread; with --count, a line each without a heading
    #[arg(long, conflicts_with_all = ["first", "all", "nth", "next", "previous", "per_caller", "at", "tail", "hottest", "diff", "stats"])]
    per_thread: bool,
    /// Print how often it occurs by which function called this one
    #[arg(long, group = "what", conflicts_with = "scheme")]
    per_caller: bool,
    /// Print the symbols from I on, before J: functions entered (F) and left (E), blocks executed (B); `I..`
    /// are all from I on, `..J` all before J
    #[arg(long, group = "what", value_name = "I..J", conflicts_with_all = ["path", "scheme"])]
    at: Option<RangeArg>,
    /// Print the last N symbols
    #[arg(long, group = "what", value_name = "N", conflicts_with_all = ["path", "scheme"],
        value_parser = clap::value_parser!(u64).range(1..))]
    tail: Option<u64>,
    /// Only what occurs in this thread, numbered from 0 as answers have it; with --at and --tail, the thread
    /// whose symbols are printed
    #[arg(long, value_name = "N", conflicts_with_all = ["next", "previous", "per_caller", "hottest", "diff", "stats"])]
    thread: Option<u32>,
    /// Print the N symbols before and behind the occurrence, too: the first, or the one that is asked for;
    /// with --diff, the first difference
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "5",
        conflicts_with_all = ["count", "all", "per_thread", "per_caller", "at", "tail", "hottest", "stats"])]
    context: Option<u64>,
    /// With --context, --at or --tail: print each block's code, too
    #[arg(long, value_enum, value_name = "WHAT")]
    code: Option<source::Code>,
    /// Only what occurs in this window of time: seconds from the start of the recording, from A on, before B
    #[arg(long, value_name = "A..B", conflicts_with_all = ["at", "tail", "next", "previous", "per_caller", "hottest", "diff", "stats"])]
    between: Option<within::Window>,
    /// Print the N paths of blocks that the function executed most often, calls left out; without a function,
    /// those of the run
    #[arg(long, groups = ["what", "of_paths"], value_name = "N", value_parser = from_one, conflicts_with = "scheme")]
    hottest: Option<NonZeroUsize>,
    /// Compare two runs, `--diff A B [FUNCTION]`, of packed traces: where they first differ, and the paths of
    /// blocks that one takes alone
    #[arg(long, groups = ["what", "of_paths"], conflicts_with = "scheme")]
    diff: bool,
    /// Blocks that paths of --hottest and --diff have [default: 2]
    #[arg(long, value_name = "L", requires = "of_paths", value_parser = length)]
    length: Option<usize>,
    /// Print what the trace holds
    #[arg(long, group = "what", conflicts_with = "path")]
    stats: bool,
    /// How to search: 1 unpacked, 2 in the grammar, 3 in the chunks, 4 in segments of the grammar, 5 in the
    /// columns [default: what is fastest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    scheme: Option<u8>,
    #[command(flatten)]
    output: Output,
}

fn length(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=ngrams::LONGEST).contains(n));
    n.ok_or_else(|| format!("paths have 1 to {} blocks", ngrams::LONGEST))
}

/// The words of the command line that say what is asked for, as one text.
fn one_text(words: &[String]) -> anyhow::Result<String> {
    let mut text = String::new();
    for word in words {
        let names_function = |text: &str| text.contains(": ") || text.ends_with(':');
        let is_closed = text.matches('{').count() == text.matches('}').count();
        let is_other = names_function(&text) && is_closed && !text.trim_end().ends_with(';');
        let starts_other = !word.starts_with([';', '{']) && names_function(word);
        if is_other && starts_other {
            let what = format!("another path begins behind `{text}`: `{word}`");
            return Err(Hinted::new(what, "put `;` between several paths: 'f: 0 1; g: 2'").into());
        }
        text = if text.is_empty() { word.clone() } else { format!("{text} {word}") };
    }
    Ok(text)
}

fn failed(path: &Path, err: SearchError) -> anyhow::Error {
    match err {
        SearchError::Read(err) => unreadable(path, err),
        SearchError::Calls { .. } => Hinted::new(err.to_string(), "leave --scheme out, or say 1 or 3").into(),
        SearchError::Wide(_) => Hinted::new(err.to_string(), "ask for parts of it").into(),
        err => {
            let hint = "leave --scheme out, or pack the trace: `engraft trace pack T`";
            Hinted::new(format!("{}: {err}", path.display()), hint).into()
        }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if args.diff {
        return compare::run(args);
    }
    let trace = info_span!("open").in_scope(|| open(&args.trace))?;
    let answer = answered(args, &trace)?;
    if !args.stats {
        warn_of_faults(&args.trace, &trace);
    }
    Ok(answer)
}

/// Where the path of blocks that `text` describes occurs in the trace `from` for the `nth` time, from 1, how
/// often it does, and the `around` symbols on both sides of it.
///
/// # Errors
/// If the trace cannot be read, or `text` is no path of it.
pub fn found(from: &Path, text: &str, nth: u64, around: u64) -> anyhow::Result<QueryView> {
    let trace = open(from)?;
    let names = trace.names().map_err(|err| unreadable(from, err))?;
    let flow = trace.flow().map_err(|err| unreadable(from, err))?;
    let functions = Functions::new(&names).of(&flow.modules);
    let binaries = source::Binaries::new(&names, &flow);
    let path = parsed(text, &functions, &binaries)?;
    let search = |want| trace.search_path(&path, want, None).map_err(|err| failed(from, err));
    let (mut found, scheme) = search(Want::CountAndFirst)?;
    if found.count == 0 && !flow.modules.is_empty() {
        let called = |func| functions.called(func);
        flow.check(&path, &called).map_err(|err| Hinted::new(err.what, err.hint))?;
    }
    if nth > 1 {
        found.first = search(Want::Nth(nth))?.0.first;
    }
    let context =
        found.first.map(|at| symbols::around(from, None, &trace, &functions, &binaries, at, around));
    let view = query_view(&path, &functions, scheme, Want::CountAndFirst, &found);
    Ok(view.with(context.transpose()?))
}

/// The `n` paths of so many blocks that the trace `from` has most often.
///
/// # Errors
/// If it cannot be read.
pub fn hottest(from: &Path, length: usize, n: usize) -> anyhow::Result<HottestView> {
    let trace = open(from)?;
    let names = trace.names().map_err(|err| unreadable(from, err))?;
    let flow = trace.flow().map_err(|err| unreadable(from, err))?;
    hottest::view(from, &trace, &Functions::new(&names).of(&flow.modules), None, length, n)
}

fn answered(args: &Args, trace: &Trace) -> anyhow::Result<Answer> {
    let names = info_span!("names").in_scope(|| trace.names()).map_err(|err| unreadable(&args.trace, err))?;
    if args.stats {
        return stats::print(args, trace);
    }
    let flow = trace.flow().map_err(|err| unreadable(&args.trace, err))?;
    let functions = Functions::new(&names).of(&flow.modules);
    let range = args.at.or(args.tail.map(RangeArg::last));
    if args.code.is_some() && range.is_none() && args.context.is_none() {
        let hint = "say --context, or --at I..J, too";
        return Err(Hinted::new("--code is for symbols that are printed", hint).into());
    }
    if let Some(span) = range {
        return symbols::print(args, trace, &functions, source::Binaries::new(&names, &flow), span);
    }
    if let Some(n) = args.hottest {
        return hottest::print(args, trace, &functions, n.get());
    }
    let binaries = source::Binaries::new(&names, &flow);
    let text = one_text(&args.path)?;
    let texts = several::parts(&text);
    let paths = match texts.as_slice() {
        [] => vec![parsed(&text, &functions, &binaries)?],
        texts => several::parsed(texts, &functions, &binaries)?,
    };
    let Ok([path]) = <[trace::Path; 1]>::try_from(paths.clone()) else {
        return several::run(args, trace, &functions, &flow, &paths);
    };
    if args.per_caller {
        let counts = info_span!("search").in_scope(|| trace.count_by_caller(&path));
        let counts = counts.map_err(|err| failed(&args.trace, err))?;
        args.output.print(&callers_view(&path, &functions, &counts))?;
        return Ok(if counts.is_empty() { Answer::No } else { Answer::Yes });
    }
    let want = want(args, trace)?;
    let scheme = args.scheme.and_then(Scheme::numbered);
    let (found, scheme) = info_span!("search").in_scope(|| searched(args, trace, &path, want, scheme))?;
    if found.count == 0 {
        may_follow(args, trace, &functions, &flow, &path)?;
    }
    if want == Want::PerThread {
        return print_per_thread(args, trace, &path, &functions, &found);
    }
    let context = match (args.context, found.first) {
        (Some(n), Some(at)) => {
            let binaries = source::Binaries::new(&names, &flow);
            let around = symbols::around(&args.trace, args.code, trace, &functions, &binaries, at, n)?;
            binaries.warn_of(args.code);
            Some(around)
        }
        _ => None,
    };
    print_found(args, trace, want, &found, context, || query_view(&path, &functions, scheme, want, &found))
}

/// Prints how often in each thread that is asked for.
fn print_per_thread(
    args: &Args,
    trace: &Trace,
    path: &trace::Path,
    functions: &Functions<'_>,
    found: &trace::Found,
) -> anyhow::Result<Answer> {
    let mut threads = trace.threads().map_err(|err| unreadable(&args.trace, err))?;
    threads.retain(|of| args.thread.is_none_or(|asked| of.thread.0 == asked));
    let view = threads_view(path, functions, &threads, found);
    match args.count && args.output.format() == Format::Table {
        true => output::data(None, |w| view.bare(w))?,
        false => args.output.print(&view)?,
    }
    Ok(if found.count > 0 || args.count { Answer::Yes } else { Answer::No })
}

/// Prints what was found: as a view, or, where one thing is asked for and no form, that alone.
fn print_found(
    args: &Args,
    trace: &Trace,
    want: Want,
    found: &trace::Found,
    context: Option<Vec<SymbolView>>,
    view: impl FnOnce() -> QueryView,
) -> anyhow::Result<Answer> {
    let is_bare = args.output.format() == Format::Table;
    if is_bare && want == Want::Count {
        output::data(None, |w| writeln!(w, "{}", found.count))?;
        return Ok(Answer::Yes);
    }
    let is_alone = is_bare && want != Want::CountAndFirst;
    if let (true, Some(context), Some(at)) = (is_alone, &context, found.first) {
        output::data(None, |w| marked(w, context, Some(at.index)))?;
    } else if is_alone {
        // Counts alone do not need the grammar, which this reads.
        let n_threads = trace.threads().map_err(|err| unreadable(&args.trace, err))?.len();
        let positions = if args.all { found.all.as_slice() } else { found.first.as_slice() };
        output::data(None, |w| positions.iter().try_for_each(|p| position(w, n_threads, *p)))?;
    } else {
        args.output.print(&view().with(context))?;
    }
    let is_found = found.first.is_some() || found.count > 0 && matches!(want, Want::Count | Want::All);
    if let (Some(n), false) = (args.nth, is_found) {
        let has = many(usize::try_from(found.count).unwrap_or(usize::MAX), "occurrence");
        output::warn(&format!("there is no occurrence {n}: the trace has {has}"), None);
    }
    // A count of nothing is an answer, too.
    Ok(if is_found || want == Want::Count { Answer::Yes } else { Answer::No })
}

/// Reads a path, and the binaries whose lines it names.
fn parsed(
    text: &str,
    functions: &Functions<'_>,
    binaries: &source::Binaries<'_>,
) -> anyhow::Result<trace::Path> {
    let (find, called) = (|text: &str| functions.find(text), |func| functions.called(func));
    let lines = |func, block| binaries.lines(func, block);
    let (exits, stays) = (|func| binaries.exits(func), |func| binaries.stays(func));
    let words = Words {
        names: functions.names,
        find: &find,
        called: &called,
        exits: &exits,
        stays: &stays,
        lines: &lines,
    };
    let parsed = trace::Path::parse_with(text, &words);
    // Of a binary that could not be read, nothing is known: that is why.
    binaries.check()?;
    parsed.map_err(|err| Hinted::new(err.what, err.hint).into())
}

/// Searches all of the trace, or the thread and the window that are asked for.
fn searched(
    args: &Args,
    trace: &Trace,
    path: &trace::Path,
    want: Want,
    scheme: Option<Scheme>,
) -> anyhow::Result<(trace::Found, Scheme)> {
    match (args.between, args.thread) {
        (None, None) => trace.search_path(path, want, scheme).map_err(|err| failed(&args.trace, err)),
        _ => within::search(args, trace, path, want, scheme),
    }
}

/// Refuses a path that does not occur, and cannot: two of its blocks cannot follow each other. Of a trace
/// that knows no program, says so of this run.
fn may_follow(
    args: &Args,
    trace: &Trace,
    functions: &Functions<'_>,
    flow: &trace::FlowGraphs,
    path: &trace::Path,
) -> anyhow::Result<()> {
    let called = |func| functions.called(func);
    if !flow.modules.is_empty() {
        return flow.check(path, &called).map_err(|err| Hinted::new(err.what, err.hint).into());
    }
    let observed = trace.observed_flow(path.func).map_err(|err| unreadable(&args.trace, err))?;
    if let Err(err) = observed.check(path, &called) {
        output::warn(&format!("in this run, {}", err.what.replace("cannot", "does not")), Some(&err.hint));
    }
    Ok(())
}

/// What is asked of the search.
fn want(args: &Args, trace: &Trace) -> anyhow::Result<Want> {
    Ok(match (args.nth, args.next, args.previous) {
        (Some(n), ..) => Want::Nth(n),
        (_, Some(at), _) => Want::Next(at.of(&args.trace, trace)?),
        (.., Some(at)) => Want::Previous(at.of(&args.trace, trace)?),
        _ if args.first => Want::First,
        _ if args.all => Want::All,
        _ if args.per_thread => Want::PerThread,
        _ if args.count => Want::Count,
        _ => Want::CountAndFirst,
    })
}

/// The index, behind the thread if there are several.
fn position(w: &mut dyn Write, n_threads: usize, p: Position) -> io::Result<()> {
    if n_threads > 1 { writeln!(w, "{} {}", p.thread.0, p.index) } else { writeln!(w, "{}", p.index) }
}
