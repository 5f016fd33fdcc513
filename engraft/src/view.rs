//! The three forms of a verb's data: text for people, JSON for programs, CSV for spreadsheets.
//!
//! Invariant: a view is what `--json` prints, field by field, and says its schema; it is stable. Types of the
//! libraries are not serialized: they change, views do not.

mod loops;

pub use loops::LoopView;

use crate::output;
use matching::names;
use profile::Count;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
        if output::manner().quiet && self.format() == Format::Table {
            return Ok(());
        }
        self.print_beside(Some(o), view)
    }

    /// Prints `view`: on standard error if the data went to standard output.
    pub fn print_beside(&self, o: Option<&Path>, view: &impl View) -> anyhow::Result<()> {
        if o.is_some_and(output::is_standard_output) {
            output::report(|w| self.write(view, w));
            return Ok(());
        }
        self.print(view)
    }

    /// Writes `view` to `to`, or prints it.
    pub fn print_to(&self, to: Option<&PathBuf>, view: &impl View) -> anyhow::Result<()> {
        output::data(to.map(PathBuf::as_path), |w| self.write(view, w))
    }

    /// Writes `view` in the form asked for.
    pub fn write(&self, view: &impl View, w: &mut dyn Write) -> io::Result<()> {
        match self.format() {
            Format::Table => view.text(w),
            Format::Json => {
                serde_json::to_writer(&mut *w, view)?;
                writeln!(w)
            }
            Format::Csv => view.table().csv(w),
        }
    }
}

/// Data that can be shown in all forms.
pub trait View: Serialize {
    /// The rows that a spreadsheet gets.
    fn table(&self) -> Table;

    /// What people read: the table, unless there is more to say.
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        self.table().text(w)
    }
}

/// Rows under headings.
#[derive(Debug, Default)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these headings. A heading that ends in `>` has its column aligned to the right.
    pub fn new(headings: &[&'static str]) -> Table {
        Table { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; as many cells as headings.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.headings.len(), "a cell a heading");
        self.rows.push(cells.into());
    }

    /// With a heading, and these behind it.
    pub fn with_first<const N: usize>(first: &'static str, headings: [&'static str; N]) -> Table {
        Table { headings: [first].into_iter().chain(headings).collect(), rows: Vec::new() }
    }

    /// Adds a row to such a table.
    pub fn row_with_first<const N: usize>(&mut self, first: String, cells: [String; N]) {
        debug_assert_eq!(N + 1, self.headings.len(), "a cell a heading");
        self.rows.push([first].into_iter().chain(cells).collect());
    }

    /// Aligned columns, two spaces apart.
    pub fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let headings: Vec<String> =
            self.headings.iter().map(|h| h.trim_end_matches('>').to_owned()).collect();
        let mut widths = vec![0; headings.len()];
        for row in self.rows.iter().chain([&headings]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in [&headings].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), heading) in row.iter().zip(&widths).zip(&self.headings) {
                match heading.ends_with('>') {
                    true => write!(line, "{cell:>width$}  "),
                    false => write!(line, "{cell:<width$}  "),
                }
                .map_err(io::Error::other)?;
            }
            writeln!(w, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Comma-separated, quoted where need be.
    pub fn csv(&self, w: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(w);
        csv.write_record(self.headings.iter().map(|h| h.trim_end_matches('>')))?;
        for row in &self.rows {
            csv.write_record(row)?;
        }
        csv.flush()
    }
}

/// `part` of `whole` in per cent, for people.
pub fn percent(part: usize, whole: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for reading, to a tenth of a per cent")]
    let of = part as f64 / whole.max(1) as f64;
    share(of)
}

/// `a` of `b`, or for each of them.
#[expect(clippy::cast_precision_loss, reason = "shares and means are shown with a few digits")]
pub fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

/// The least and the most that a count may be, where it may be off.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Between {
    /// The least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<u64>,
    /// The most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u64>,
}

impl Between {
    /// Of this interval.
    pub fn of(interval: Option<&(u64, u64)>) -> Between {
        Between { at_least: interval.map(|n| n.0), at_most: interval.map(|n| n.1) }
    }

    /// The count `n`, for people: `5`, or `5..6`.
    pub fn count(self, n: u64) -> String {
        Count::of(n, self.at_least.zip(self.at_most).as_ref()).to_string()
    }
}

/// The intervals of two counts, if one of them may be off: of what is not known, nothing.
pub type Intervals = [Option<(u64, u64)>; 2];

/// Those of `counts`.
pub fn intervals(counts: (Option<Count>, Option<Count>)) -> Option<Intervals> {
    let is_off = |n: Option<Count>| n.is_some_and(|n| n.between().is_some());
    let whole = |n: Option<Count>| n.map(|n| (n.least, n.most));
    (is_off(counts.0) || is_off(counts.1)).then(|| [whole(counts.0), whole(counts.1)])
}

/// A count, or `-` if it is not known.
pub fn known(n: Option<impl ToString>) -> String {
    n.map_or_else(|| "-".to_owned(), |n| n.to_string())
}

/// `1 function`, `2 functions`.
pub fn many(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// A share in per cent, for people; `-` if there is nothing that it is a share of.
pub fn share_if_any(of: Option<f64>) -> String {
    of.map_or_else(|| "-".to_owned(), share)
}

/// Columns that a name gets in a table.
const NAME_WIDTH: usize = 60;

/// A symbol for people: what the source calls it, without parameters if they are too long, cut in the middle
/// if that is.
pub fn readable(symbol: &str) -> String {
    let Some(whole) = names::in_source(symbol) else { return cut(symbol) };
    if whole.chars().count() <= NAME_WIDTH {
        return whole;
    }
    let added = whole.rfind(" [.").and_then(|at| whole.get(at..)).unwrap_or_default();
    let path = names::hierarchical(symbol).unwrap_or_else(|| whole.clone());
    cut(&format!("{path}{added}"))
}

/// At most [`NAME_WIDTH`] characters: a path says most at its end.
pub fn cut(name: &str) -> String {
    let n = name.chars().count();
    if n <= NAME_WIDTH {
        return name.to_owned();
    }
    let start = NAME_WIDTH / 3;
    let end = n - (NAME_WIDTH - start - 1);
    name.chars().take(start).chain(['…']).chain(name.chars().skip(end)).collect()
}

/// A number of bytes, for people.
pub fn size(n_bytes: u64) -> String {
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1000)];
    let unit = units.into_iter().find(|unit| n_bytes >= unit.1);
    unit.map_or_else(
        || format!("{n_bytes} bytes"),
        |(name, unit)| format!("{}.{} {name}", n_bytes / unit, n_bytes % unit * 10 / unit),
    )
}

/// A share in per cent, for people.
pub fn share(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source_and_fit() {
        for (symbol, want) in [
            ("main", "main"),
            ("_ZN3app3runEi", "app::run(int)"),
            ("_ZN3app3runEi.cold", "app::run(int) [.cold]"),
            ("_ZN29_$LT$m..B$u20$as$u20$m..T$GT$1f17h6db4ecde64ecba97E", "<m::B as m::T>::f"),
            (
                "_ZNSt8_Rb_treeINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt4pairIKS5_iESt10_Select1stIS8_ESt4lessIS5_ESaIS8_EE8_M_eraseEPSt13_Rb_tree_nodeIS8_E",
                "std::_Rb_tree<std::_…::allocator<char> > const, int> > >::_M_erase",
            ),
        ] {
            let got = readable(symbol);
            assert!(got.chars().count() <= NAME_WIDTH, "{got}");
            let (start, end) = want.split_once('…').unwrap_or((want, ""));
            assert!(got.starts_with(start) && got.ends_with(&end[end.len().saturating_sub(12)..]), "{got}");
        }
    }
}
