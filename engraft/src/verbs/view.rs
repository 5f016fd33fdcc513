//! `engraft view`: recordings in the browser.

mod browser;
mod opened;
mod reports;

use crate::output::{self, Answer, Hinted};
use live::AskedToEnd;
use opened::Opened;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;
use viewer::{ServeError, Server};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft view --no-open old.engraft
  $ engraft view --no-open";

/// Look at recordings in the browser: what ran, function by function
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// What `engraft count` or `trace` recorded, a comparison that `engraft compare -o` kept, or what
    /// `match`, `carry` or `compare --matrix` wrote with --json [default: those in this folder]
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
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let opened = match args.recordings.as_slice() {
        [] => Opened::here(),
        named => Opened::named(named)?,
    };
    let folders = match args.source.as_slice() {
        [] => vec![PathBuf::from(".")],
        named => named.to_vec(),
    };
    let opened = opened.with_sources(folders);
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

/// Why there is no server, and what to do.
fn refused(err: ServeError) -> anyhow::Error {
    match err {
        ServeError::Taken { .. } => {
            Hinted::new(err.to_string(), "another one with --port, or any that is free without it").into()
        }
        err => err.into(),
    }
}
