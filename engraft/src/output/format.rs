//! The form in which a verb's data are printed: what `--format` and `--json` say.

use super::hints::Hinted;
use super::look::{StandardStream, look};
use super::{files, talk};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use views::{Look, View};

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

impl Format {
    /// Writes `view` in this form to what `write` opens, in `look`.
    ///
    /// # Errors
    /// If it cannot be written, or is to be sorted by what it has no column of.
    fn write(
        self,
        view: &impl View,
        look: &Look,
        open: impl FnOnce(&mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        // What is refused is refused before anything of it is there.
        if look.sort.is_some() && self != Format::Json {
            let mut nowhere = io::sink();
            look.write(&mut nowhere, |w| self.rows(view, w))?.map_err(|none| {
                let sort = look.sort.as_deref().unwrap_or_default();
                let hint = format!("there are {}", none.headings.join(", "));
                Hinted::new(format!("no column is called {sort}"), hint)
            })?;
        }
        open(&mut |w| match self {
            Format::Json => view.json(w),
            _ => look.write(w, |w| self.rows(view, w)).map(drop),
        })
    }

    /// The rows of `view`, with what else is to be said of them.
    fn rows(self, view: &impl View, w: &mut dyn Write) -> io::Result<()> {
        match self {
            Format::Table => view.text(w),
            Format::Json => view.json(w),
            Format::Csv => view.csv(w),
        }
    }
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
            let look = look(Some(StandardStream::Error));
            return self.format().write(view, &look, |write| {
                talk::report(write);
                Ok(())
            });
        }
        self.print(view)
    }

    /// Writes `view` to `to`, or prints it.
    pub fn print_to(&self, to: Option<&PathBuf>, view: &impl View) -> anyhow::Result<()> {
        let to = to.map(PathBuf::as_path);
        let stream = to.map_or(Some(StandardStream::Output), files::standard_stream);
        self.format().write(view, &look(stream), |write| files::data(to, write))
    }
}

/// How a verb reports that starts a program: standard output is the program's.
#[derive(clap::Args, Debug)]
pub struct Report {
    /// Form of the report, which goes to standard error
    #[arg(long, value_enum, value_name = "FORM", default_value = "table")]
    format: Format,
    /// The report as JSON: in FILE, if that stands behind a `=`, else the last line of standard error
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with = "format"
    )]
    json: Option<OsString>,
}

impl Report {
    /// The file that JSON goes to.
    fn file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|name| !name.is_empty()).map(Path::new)
    }

    /// The form of what goes to standard error.
    fn talk_format(&self) -> Format {
        match &self.json {
            Some(name) if name.is_empty() => Format::Json,
            _ => self.format,
        }
    }

    /// Refuses what cannot be written, or is not to be, before the program is started.
    ///
    /// # Errors
    /// If the file is the program's standard output, one of those that are `used`, or cannot be written.
    pub fn refuse_unfit(&self, used: &[&Path]) -> anyhow::Result<()> {
        let Some(file) = self.file() else { return Ok(()) };
        if let Some(of) = files::standard_stream(file) {
            let hint =
                "`--json` alone makes the report the last line of standard error; `--json=FILE` names a file";
            return Err(
                Hinted::new(format!("{of} is the program's: no report is written to it"), hint).into()
            );
        }
        if used.contains(&file) {
            let what = format!("{} cannot be both the recording and the report", file.display());
            return Err(Hinted::new(what, "name another file behind --json=").into());
        }
        files::refuse_replacing(file, used)?;
        files::can_be_written(file)
    }

    /// Whether nothing is to be said.
    pub fn is_silent(&self) -> bool {
        talk::talk_mode().quiet && self.file().is_none() && self.talk_format() == Format::Table
    }

    /// Writes the report to where it is to go.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn print(&self, view: &impl View) -> anyhow::Result<()> {
        let format = self.talk_format();
        if !talk::talk_mode().quiet || format != Format::Table {
            format.write(view, &look(Some(StandardStream::Error)), |write| {
                talk::report(write);
                Ok(())
            })?;
        }
        self.file().map_or(Ok(()), |file| files::data(Some(file), |w| view.json(w)))
    }
}
