//! `engraft view`: recordings in the browser.

mod browser;
mod opened;
mod reports;

use crate::output::{self, Answer, Hinted};
use live::AskedToEnd;
use opened::Opened;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::info_span;
use viewer::{ServeError, Server};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft view --no-open old.engraft
  $ engraft view --no-open
  $ engraft view old.engraft --html old.html";

/// Look at recordings in the browser: what ran, function by function
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// What `engraft count`, `trace`, `sample` or `values` recorded, a comparison that `engraft compare -o`
    /// kept, or what `match`, `carry` or `compare --matrix` wrote with --json [default: those in this folder]
    #[arg(value_name = "REC")]
    recordings: Vec<PathBuf>,
    /// The port of the address [default: one that is free]
    #[arg(long, value_name = "N")]
    port: Option<NonZeroU16>,
    /// Show lines of sources below this folder [default: below the one that we are in]: a program from
    /// elsewhere may name any file as its source
    #[arg(long, value_name = "DIR")]
    source: Vec<PathBuf>,
    /// Print the address, and do not open it
    #[arg(long)]
    no_open: bool,
    /// Write the pages to one file in place of that, which a browser shows by itself
    #[arg(long, value_name = "FILE", conflicts_with_all = ["port", "no_open"])]
    html: Option<PathBuf>,
    /// With --html: pages of so many functions, and of half as many intervals
    #[arg(short = 'n', value_name = "N", requires = "html", default_value_t = 200)]
    most: usize,
    /// With --html: put lines of sources into the file
    #[arg(long, requires = "html")]
    with_source: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let opened = match args.recordings.as_slice() {
        [] => Opened::here(),
        named => Opened::named(named)?,
    };
    if args.html.is_some() && !args.source.is_empty() && !args.with_source {
        let hint = "--with-source puts lines of sources into the file";
        return Err(
            Hinted::new("--source says where sources are, and none is shown in the file", hint).into()
        );
    }
    let folders = match args.source.as_slice() {
        // Who is given the file is not to see sources that nobody meant to give.
        _ if args.html.is_some() && !args.with_source => Vec::new(),
        [] => vec![PathBuf::from(".")],
        named => named.to_vec(),
    };
    let opened = opened.with_sources(folders);
    if let Some(to) = &args.html {
        return write(to, args, opened);
    }
    let server = Server::bind(args.port.map(NonZeroU16::get)).map_err(refused)?;
    let (address, port) = (server.address(), server.port());
    let asked_to_end = AskedToEnd::keep()?;
    // What pages take is not what somebody waits for here.
    output::pause_progress();
    server.start(Arc::new(opened))?;
    output::data(None, |w| writeln!(w, "{address}"))?;
    let _while_it_is_open = match args.no_open {
        true => None,
        false => browser::open(&address, port),
    };
    asked_to_end.asked()?;
    Ok(Answer::Yes)
}

/// Writes the pages to a file.
fn write(to: &Path, args: &Args, opened: Opened) -> anyhow::Result<Answer> {
    let inputs: Vec<&Path> = args.recordings.iter().map(PathBuf::as_path).collect();
    output::refuse_overwriting(to, &inputs)?;
    output::can_be_written(to)?;
    let saved = info_span!("write pages").in_scope(|| viewer::saved(Arc::new(opened), args.most));
    let saved = saved.map_err(|failed| match failed.hint {
        Some(hint) => Hinted::new(failed.what, hint).into(),
        None => anyhow::anyhow!(failed.what),
    })?;
    output::data(Some(to), |w| w.write_all(saved.text.as_bytes()))?;
    if !output::talk_mode().quiet {
        let more = match saved.n_left_out {
            0 => String::new(),
            n => format!("; {n} more functions or intervals have none in it (-n N)"),
        };
        let line = format!("{} pages in {}{more}", saved.n_pages, to.display());
        match output::is_standard_output(to) {
            true => output::say(line),
            false => output::data(None, |w| writeln!(w, "{line}"))?,
        }
    }
    Ok(Answer::Yes)
}

/// Why there is no server, and what to do.
fn refused(err: ServeError) -> anyhow::Error {
    match err {
        ServeError::Taken { .. } => {
            Hinted::new(err.to_string(), "another one with --port, or any that is free without it").into()
        }
        err => err.into(),
    }
}
