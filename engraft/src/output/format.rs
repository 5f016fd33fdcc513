//! The form in which a verb's data are printed: what `--format` and `--json` say.

use super::{files, talk};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use views::View;

/// How to write data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs: one object, described by `engraft help json`.
    Json,
    /// For spreadsheets.
    Csv,
}

/// Where a verb's data go, and how.
#[derive(clap::Args, Debug)]
pub struct Output {
    /// Form of the output
    #[arg(long, value_enum, value_name = "FORM", default_value = "table")]
    format: Format,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl Output {
    /// The form asked for.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    /// Prints `view`.
    pub fn print(&self, view: &impl View) -> anyhow::Result<()> {
        self.print_to(None, view)
    }

    /// Prints what is to be said of the file `o` that was written: with `--quiet` only if a form was asked
    /// for. Where the data went to standard output, it is talk.
    pub fn print_beside_file(&self, o: &Path, view: &impl View) -> anyhow::Result<()> {
        if talk::talk_mode().quiet && self.format() == Format::Table {
            return Ok(());
        }
        self.print_beside(Some(o), view)
    }

    /// Prints `view`: on standard error if the data went to standard output.
    pub fn print_beside(&self, o: Option<&Path>, view: &impl View) -> anyhow::Result<()> {
        if o.is_some_and(files::is_standard_output) {
            talk::report(|w| self.write(view, w));
            return Ok(());
        }
        self.print(view)
    }

    /// Writes `view` to `to`, or prints it.
    pub fn print_to(&self, to: Option<&PathBuf>, view: &impl View) -> anyhow::Result<()> {
        files::data(to.map(PathBuf::as_path), |w| self.write(view, w))
    }

    /// Writes `view` in the form asked for.
    pub fn write(&self, view: &impl View, w: &mut dyn Write) -> io::Result<()> {
        match self.format() {
            Format::Table => view.text(w),
            Format::Json => view.json(w),
            Format::Csv => view.csv(w),
        }
    }
}
