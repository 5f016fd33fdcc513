//! Rows under headings, as aligned columns or comma-separated.

pub mod cells;

use std::io::{self, Write};
use unicode_width::UnicodeWidthStr as _;

/// How many columns of a terminal `text` takes.
fn columns(text: &str) -> usize {
    // Nearly all of it, in a fraction of the time; control characters, which are no columns, are not printed.
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_plain { text.len() } else { text.width() }
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

    /// Adds a row, a cell for each heading.
    ///
    /// # Panics
    /// In debug builds, if there are more or fewer cells than headings.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.headings.len(), "a cell a heading");
        self.rows.push(cells.into());
    }

    /// With the heading `first`, then `headings`.
    pub fn with_first<const N: usize>(first: &'static str, headings: [&'static str; N]) -> Table {
        Table { headings: [first].into_iter().chain(headings).collect(), rows: Vec::new() }
    }

    /// Adds a row to a table of [`Table::with_first`], a cell for each heading.
    ///
    /// # Panics
    /// In debug builds, if there are more or fewer cells than headings.
    pub fn row_with_first<const N: usize>(&mut self, first: String, cells: [String; N]) {
        debug_assert_eq!(N + 1, self.headings.len(), "a cell a heading");
        self.rows.push([first].into_iter().chain(cells).collect());
    }

    /// Aligned columns, two spaces apart; what is wide on a terminal counts for two.
    ///
    /// # Errors
    /// If `w` cannot be written.
    pub fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let headings: Vec<String> =
            self.headings.iter().map(|h| h.trim_end_matches('>').to_owned()).collect();
        let mut widths = vec![0; headings.len()];
        for row in self.rows.iter().chain([&headings]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = columns(cell).max(*width);
            }
        }
        for row in [&headings].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), heading) in row.iter().zip(&widths).zip(&self.headings) {
                let padding = " ".repeat(width - columns(cell));
                let (before, behind) = match heading.ends_with('>') {
                    true => (&*padding, ""),
                    false => ("", &*padding),
                };
                line.extend([before, cell, behind, "  "]);
            }
            writeln!(w, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Comma-separated, quoted where need be.
    ///
    /// # Errors
    /// If `w` cannot be written.
    pub fn csv(&self, w: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(w);
        // As it came: whether somebody still reads is told by its kind.
        let failed = |err: csv::Error| match err.into_kind() {
            csv::ErrorKind::Io(err) => err,
            other => io::Error::other(format!("{other:?}")),
        };
        csv.write_record(self.headings.iter().map(|h| h.trim_end_matches('>'))).map_err(failed)?;
        for row in &self.rows {
            csv.write_record(row).map_err(failed)?;
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn columns_are_aligned_by_what_a_terminal_shows() {
        let mut t = Table::new(&["n>", "name", "why"]);
        t.row(["1".into(), "main".into(), "a, \"b\"".into()]);
        t.row(["12345".into(), "🦀🦀".into(), "wide".into()]);
        t.row(["7".into(), "x…y".into(), "last".into()]);
        let mut text = Vec::new();
        t.text(&mut text).unwrap();
        expect![[r#"
                n  name  why
                1  main  a, "b"
            12345  🦀🦀  wide
                7  x…y   last
        "#]]
        .assert_eq(&String::from_utf8_lossy(&text));
        let mut csv = Vec::new();
        t.csv(&mut csv).unwrap();
        expect![[r#"
            n,name,why
            1,main,"a, ""b"""
            12345,🦀🦀,wide
            7,x…y,last
        "#]]
        .assert_eq(&String::from_utf8_lossy(&csv));
    }
}
