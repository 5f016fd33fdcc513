//! `engraft help`: an example session a verb, what `--json` prints, man pages, shell completions.

mod page;

pub use page::with_short_help;

use crate::output::{self, Answer, Hinted};
use page::{Style, rendered};
use std::path::PathBuf;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft help carry
  $ engraft help json";

/// Explain a verb, with an example session, or describe the JSON output
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// A verb, or one of json, formats, passes
    topic: Option<String>,
    /// Write man pages into a folder
    #[arg(long, value_name = "DIR", conflicts_with = "topic")]
    man: Option<PathBuf>,
    /// Print the completions for a shell
    #[arg(long, value_name = "SHELL", conflicts_with_all = ["topic", "man"])]
    completions: Option<clap_complete::Shell>,
}

/// What can be asked for, with its text.
const TOPICS: &[(&str, &str)] = &[
    ("show", include_str!("../../../docs/show.md")),
    ("match", include_str!("../../../docs/match.md")),
    ("carry", include_str!("../../../docs/carry.md")),
    ("score", include_str!("../../../docs/score.md")),
    ("convert", include_str!("../../../docs/convert.md")),
    ("count", include_str!("../../../docs/count.md")),
    ("trace", include_str!("../../../docs/trace.md")),
    ("values", include_str!("../../../docs/values.md")),
    ("diff", include_str!("../../../docs/diff.md")),
    ("compare", include_str!("../../../docs/compare.md")),
    ("instrument", include_str!("../../../docs/instrument.md")),
    ("ipc", include_str!("../../../docs/ipc.md")),
    ("query", include_str!("../../../docs/query.md")),
    ("replace", include_str!("../../../docs/replace.md")),
    ("rescue", include_str!("../../../docs/rescue.md")),
    ("sample", include_str!("../../../docs/sample.md")),
    ("view", include_str!("../../../docs/view.md")),
    ("cache", include_str!("../../../docs/cache.md")),
    ("doctor", include_str!("../../../docs/doctor.md")),
    ("json", include_str!("../../../docs/json.md")),
    ("formats", ""),
    ("passes", ""),
];

/// The text on a topic. Lists come from the libraries, so that they cannot be out of date.
fn text(topic: &str, written: &str) -> String {
    match topic {
        "formats" => formats(),
        "passes" => passes(),
        _ => written.to_owned(),
    }
}

fn formats() -> String {
    let mut text = String::from(
        "# Profile formats\n\nRead: recognised by content. Written: by extension, or by name with --to.\n\n",
    );
    for format in profile::Format::all() {
        let how = match (format.is_read(), format.is_written()) {
            (true, true) => "read and written",
            (true, false) => "read",
            _ => "written",
        };
        text.push_str(&format!("{:<12}.{:<12}{how}\n", format.name(), format.extension()));
    }
    text
}

fn passes() -> String {
    let mut text =
        String::from("# Passes of the matching\n\nIn the order in which they run; each can be left out.\n\n");
    for pass in matching::Pass::ALL {
        text.push_str(&format!("{:<20}{}\n", pass.name(), pass.what()));
    }
    text
}

/// Columns of a text that goes into a pipe, a file or a man page, or to a terminal that is wider.
const WIDEST: usize = 100;

/// A topic's text as it is read.
fn readable(topic: &str, text: &str) -> String {
    let style = Style {
        width: output::width().unwrap_or(WIDEST).min(WIDEST),
        is_coloured: output::has_colors(),
        has_own_lines: matches!(topic, "json" | "formats" | "passes"),
    };
    rendered(text, style)
}

/// The command line with the whole text of each verb: what its man page has.
fn with_manuals(mut command: clap::Command) -> clap::Command {
    let style = Style { width: WIDEST, is_coloured: false, has_own_lines: false };
    for (verb, written) in TOPICS {
        if command.find_subcommand(verb).is_none() {
            continue;
        }
        // The title is what the page is called already.
        let text = written.split_once('\n').map_or("", |(_, text)| text.trim_start());
        command = command.mut_subcommand(verb, |verb| verb.long_about(rendered(text, style)));
    }
    command
}

/// Runs the verb; `command` is the whole command line, which help is about.
pub fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<Answer> {
    if let Some(folder) = &args.man {
        clap_mangen::generate_to(with_manuals(command), folder).map_err(|err| {
            Hinted::new(
                format!("cannot write man pages to {}: {err}", folder.display()),
                "name a folder that exists",
            )
        })?;
    } else if let Some(shell) = args.completions {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, "engraft", &mut script);
        output::data(None, |w| w.write_all(&script))?;
    } else if let Some(topic) = &args.topic {
        let names = || TOPICS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let found = TOPICS.iter().find(|(name, _)| name == topic).ok_or_else(|| {
            Hinted::new(format!("there is no help on {topic}"), format!("there is help on {}", names()))
        })?;
        let text = readable(found.0, &text(found.0, found.1));
        output::data(None, |w| w.write_all(text.as_bytes()))?;
    } else {
        let text = command.render_long_help();
        output::data(None, |w| write!(w, "{text}"))?;
    }
    Ok(Answer::Yes)
}
