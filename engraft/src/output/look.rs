//! How output looks where it goes: what the command line asks for, and what the terminal has.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use views::Look;

/// Where others write, too: what was written there stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StandardStream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

impl fmt::Display for StandardStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StandardStream::Output => "standard output",
            StandardStream::Error => "standard error",
        })
    }
}

/// Which rows of tables are shown, in which order.
#[derive(clap::Args, Clone, Default, Debug)]
pub struct Rows {
    /// Show so many rows of each table [default: of reports 12, of lists all]
    #[arg(short = 'n', value_name = "N", help_heading = "Tables")]
    n_rows: Option<usize>,
    /// Sort by the column with this heading, or one that starts so: numbers from the largest on
    #[arg(long, value_name = "KEY", help_heading = "Tables")]
    sort: Option<String>,
    /// Show functions with such names alone, `*` standing for anything
    #[arg(long, value_name = "GLOB", help_heading = "Tables")]
    filter: Option<String>,
    /// Show symbols as they are in the file, not what the source calls them
    #[arg(long, help_heading = "Tables")]
    mangled: bool,
}

/// When there are colours.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What the command line asks for.
#[derive(Clone, Default, Debug)]
pub struct Looks {
    /// When there are colours.
    pub color: Color,
    /// Which rows there are.
    pub rows: Rows,
}

static LOOKS: OnceLock<Looks> = OnceLock::new();

fn looks() -> &'static Looks {
    LOOKS.get_or_init(Looks::default)
}

/// Sets how output looks; the first call counts.
pub fn set_looks(looks: Looks) {
    let _set_before = LOOKS.set(looks);
}

impl Rows {
    /// Those of a command line that was understood, where its verb has such options.
    pub fn of(matches: &clap::ArgMatches) -> Rows {
        let text = |name| matches.try_get_one::<String>(name).ok().flatten().cloned();
        Rows {
            n_rows: matches.try_get_one::<usize>("n_rows").ok().flatten().copied(),
            sort: text("sort"),
            filter: text("filter"),
            mangled: matches.try_get_one::<bool>("mangled").ok().flatten() == Some(&true),
        }
    }
}

/// Whether names are those of symbols, as they are.
pub fn are_names_mangled() -> bool {
    looks().rows.mangled
}

/// Columns of the terminal that `stream` goes to, if it is one.
pub fn width(stream: StandardStream) -> Option<usize> {
    let (is_terminal, fd) = match stream {
        StandardStream::Output => (io::stdout().is_terminal(), io::stdout().as_fd().try_clone_to_owned()),
        StandardStream::Error => (io::stderr().is_terminal(), io::stderr().as_fd().try_clone_to_owned()),
    };
    let (terminal_size::Width(width), _) = terminal_size::terminal_size_of(fd.ok().filter(|_| is_terminal)?)?;
    // One that does not know its width, as on a serial line, says none.
    Some(usize::from(width)).filter(|width| *width > 0)
}

/// Whether what goes to `stream` has colours; a file has none unless it is to.
pub fn has_colors(stream: Option<StandardStream>) -> bool {
    let is_terminal = || match stream {
        Some(StandardStream::Output) => io::stdout().is_terminal(),
        Some(StandardStream::Error) => io::stderr().is_terminal(),
        None => false,
    };
    match looks().color {
        Color::Always => stream.is_some(),
        Color::Never => false,
        Color::Auto => is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

/// How what goes to `stream` looks; `None` is a file.
pub fn look(stream: Option<StandardStream>) -> Look {
    let Rows { n_rows, sort, filter, .. } = looks().rows.clone();
    let (width, is_coloured) = (stream.and_then(width), has_colors(stream));
    Look { width, is_coloured, n_rows, sort, is_reversed: false, filter }
}
