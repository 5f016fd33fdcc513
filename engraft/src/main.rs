//! The command: `engraft VERB …`. One file a verb; each asks the libraries and shows what they say.
#![forbid(unsafe_code)]

mod input;
mod output;
mod timing;
mod verbs;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use output::Answer;
use std::ffi::OsString;
use std::process::ExitCode;
use verbs::{
    cache, carry, compare, convert, count, diff, doctor, help, instrument, ipc, matches, query, replace,
    rescue, sample, score, show, trace, values, view,
};

/// Profiles, compares and re-optimises x86-64 Linux programs from their binaries alone
#[derive(Parser)]
#[command(name = "engraft", version = VERSION, disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    /// Threads to use, at most 8 for each core [default: as many as there are cores]
    #[arg(long, global = true, hide_short_help = true, value_name = "N", value_parser = input::from_one, help_heading = "Everywhere")]
    threads: Option<std::num::NonZeroUsize>,
    /// Say how long each step took, on standard error
    #[arg(long, global = true, hide_short_help = true, help_heading = "Everywhere")]
    time: bool,
    /// Print errors and what was asked for alone: no warnings, no report beside a file that was written
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    quiet: bool,
    /// Whether there are colours; `auto`: on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        hide_short_help = true,
        value_enum,
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true,
        help_heading = "Everywhere"
    )]
    color: output::Color,
}

/// The release, and of which commit it is a build, if that is known.
const VERSION: &str = match env!("ENGRAFT_COMMIT").is_empty() {
    true => env!("CARGO_PKG_VERSION"),
    false => concat!(env!("CARGO_PKG_VERSION"), " (", env!("ENGRAFT_COMMIT"), ")"),
};

#[derive(Subcommand)]
enum Verb {
    Show(show::Args),
    Match(matches::Args),
    Carry(carry::Args),
    Score(score::Args),
    Convert(convert::Args),
    Count(count::Args),
    Trace(trace::Args),
    Values(values::Args),
    Diff(diff::Args),
    Compare(compare::Args),
    Instrument(instrument::Args),
    Ipc(ipc::Args),
    Query(query::Args),
    Replace(replace::Args),
    Rescue(rescue::Args),
    Sample(sample::Args),
    View(view::Args),
    Cache(cache::Args),
    Doctor(doctor::Args),
    Help(help::Args),
}

/// Bytes of stack that we need, however few the user's limit gives the first thread (`ulimit -s`).
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    if live::Limits::ours().stack.is_none_or(|n| n >= STACK as u64) {
        return work();
    }
    let work = std::thread::Builder::new().name("main".to_owned()).stack_size(STACK).spawn(work);
    match work {
        Ok(work) => work.join().unwrap_or(ExitCode::from(101)),
        // Where there may be one thread alone.
        Err(_) => self::work(),
    }
}

fn work() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let parsed = help::with_short_help(Cli::command()).try_get_matches_from(&words);
    // Mistakes are talk, too: where the line was not understood, its words say how to talk.
    output::set_talk_mode(parsed.as_ref().map_or_else(|_| talk_mode_of_words(&words), talk_mode));
    if let Ok(matches) = &parsed {
        let of_verb = deepest(matches);
        let color = of_verb.try_get_one("color").ok().flatten().copied().unwrap_or_default();
        output::set_looks(output::Looks { color, rows: output::Rows::of(of_verb) });
    }
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        // clap prints help and version as data, mistakes as talk, and knows which exit code each has.
        Err(err) if err.use_stderr() && !shows_help(&err) => {
            misused(&err);
            return ExitCode::from(2);
        }
        Err(err) => {
            let _gone = err.print();
            return if err.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    output::finish(run(cli))
}

/// Whether the command line is so short that the whole help is the answer.
fn shows_help(err: &clap::Error) -> bool {
    err.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// Says what is wrong with the command line as other errors are said: what, and what to do, a line each.
fn misused(err: &clap::Error) {
    let text = err.render().to_string();
    let (error, rest) = text.trim().split_once("\n\n").unwrap_or((text.trim(), ""));
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let hints = rest.split("\n\n").map(|part| {
        // What clap says of values that look like options is no remedy here.
        let lines: Vec<_> =
            part.lines().map(words).filter(|line| !line.starts_with("tip: to pass")).collect();
        let joined = lines.join(if part.trim_start().starts_with("Usage:") { " | " } else { "\n" });
        joined.replace("tip: ", "").replace("Usage: | ", "Usage: ")
    });
    let hints: Vec<_> = hints.filter(|hint| !hint.is_empty()).collect();
    let hints = hints.join("\n").replace("For more information, try '--help'.", "--help says more");
    output::failed(
        words(error).trim_start_matches("error: "),
        Some(&*hints).filter(|hints| !hints.is_empty()),
    );
}

/// What was said behind the verb, and its own verb.
fn deepest(matches: &clap::ArgMatches) -> &clap::ArgMatches {
    matches.subcommand().map_or(matches, |(_, deeper)| deepest(deeper))
}

/// How to talk, as the command line says. Words of a program that is run say nothing of it.
fn talk_mode(matches: &clap::ArgMatches) -> output::TalkMode {
    let of_verb = deepest(matches);
    let is_set = |name| of_verb.try_get_one::<bool>(name).ok().flatten() == Some(&true);
    // Of a verb that starts a program, it may have a file.
    let is_alone = of_verb.try_get_one::<OsString>("json").ok().flatten().is_some_and(|name| name.is_empty());
    let format = of_verb.try_get_one::<output::Format>("format").ok().flatten();
    output::TalkMode {
        json: is_set("json") || is_alone || format == Some(&output::Format::Json),
        quiet: is_set("quiet"),
    }
}

/// The same of a command line that was not understood.
fn talk_mode_of_words(words: &[OsString]) -> output::TalkMode {
    let words: Vec<_> = words.iter().take_while(|word| *word != "--").collect();
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.iter().any(|wanted| *word == wanted));
    let json = has(&["--json", "--format=json"])
        || words.windows(2).any(|two| two[0] == "--format" && two[1] == "json");
    output::TalkMode { json, quiet: has(&["-q", "--quiet"]) }
}

/// Threads for each core, at most: more only cost memory.
const PER_CORE: usize = 8;

/// Uses `wanted` threads, or as many as make sense.
fn threads(wanted: usize) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let n = wanted.min(cores.saturating_mul(PER_CORE));
    if n < wanted {
        let what = format!("{wanted} threads are asked for, {n} are used: {PER_CORE} for each core");
        output::warn(
            &what,
            Some("the result is the same with any number; without --threads it is one a core"),
        );
    }
    let built = rayon::ThreadPoolBuilder::new().num_threads(n).build_global();
    built.map_err(|err| {
        let hint = "ask for fewer with --threads, or raise the limit of addresses, data or processes (`ulimit -v`, `ulimit -d`, `ulimit -u`)";
        output::Hinted::new(format!("cannot start {n} threads: {err}"), hint).into()
    })
}

fn run(cli: Cli) -> anyhow::Result<Answer> {
    live::fail_beyond_limits();
    output::tidy_before_signals_end_us();
    // A program that is counted must not start where we cannot go on.
    let is_count = matches!(cli.verb, Verb::Count(_) | Verb::Trace(_) | Verb::Values(_));
    if is_count {
        live::keep_memory();
    }
    let cores = || std::thread::available_parallelism().ok().filter(|_| is_count);
    if let Some(n) = cli.threads.or_else(cores) {
        threads(n.get())?;
    }
    let watch = timing::watch(cli.time, cli.quiet);
    let answer = match cli.verb {
        Verb::Show(args) => show::run(args),
        Verb::Match(args) => matches::run(&args),
        Verb::Carry(args) => carry::run(&args),
        Verb::Score(args) => score::run(&args),
        Verb::Convert(args) => convert::run(&args),
        Verb::Count(args) => count::run(&args),
        Verb::Trace(args) => trace::run(&args),
        Verb::Values(args) => values::run(&args),
        Verb::Diff(args) => diff::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Instrument(args) => instrument::run(&args),
        Verb::Ipc(args) => ipc::run(&args),
        Verb::Query(args) => query::run(&args),
        Verb::Replace(args) => replace::run(&args),
        Verb::Rescue(args) => rescue::run(&args),
        Verb::Sample(args) => sample::run(&args),
        Verb::View(args) => view::run(&args),
        Verb::Cache(args) => cache::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Help(args) => help::run(&args, help::with_short_help(Cli::command())),
    };
    watch.finish();
    answer
}
