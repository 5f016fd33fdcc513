//! `engraft help`: an example session a verb, what `--json` prints, man pages, shell completions.

use crate::out::{self, Answer, Hinted};
use clap::CommandFactory as _;
use std::path::PathBuf;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft help carry
  $ engraft help json";

/// Show an example session of a verb, or describe the JSON output
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A verb, or `json`
    topic: Option<String>,
    /// Write man pages into a folder
    #[arg(long, value_name = "DIR", conflicts_with = "topic")]
    man: Option<PathBuf>,
    /// Print the completions for a shell
    #[arg(long, value_name = "SHELL", conflicts_with_all = ["topic", "man"])]
    completions: Option<clap_complete::Shell>,
}

/// What can be asked for, with its text.
const TOPICS: &[(&str, &str)] =
    &[("show", include_str!("../../docs/show.md")), ("json", include_str!("../../docs/json.md"))];

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let mut command = crate::Cli::command();
    if let Some(folder) = &args.man {
        clap_mangen::generate_to(command, folder).map_err(|err| {
            Hinted::new(
                format!("cannot write man pages to {}: {err}", folder.display()),
                "name a folder that exists",
            )
        })?;
    } else if let Some(shell) = args.completions {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, "engraft", &mut script);
        out::data(None, |w| w.write_all(&script))?;
    } else if let Some(topic) = &args.topic {
        let names = || TOPICS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let text = TOPICS.iter().find(|(name, _)| name == topic).ok_or_else(|| {
            Hinted::new(format!("there is no help on {topic}"), format!("there is help on {}", names()))
        })?;
        out::data(None, |w| w.write_all(text.1.as_bytes()))?;
    } else {
        let text = command.render_long_help();
        out::data(None, |w| write!(w, "{text}"))?;
    }
    Ok(Answer::Yes)
}
