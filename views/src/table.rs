//! Rows under headings, as aligned columns or comma-separated.

pub mod cells;

use crate::columns::columns;
use crate::look::{self, Like, Look};
use cells::{grouped, middle};
use std::io::{self, Write};

/// Rows under headings.
#[derive(Debug, Default)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Columns that are left out of a page too narrow to tell names by, the first one first.
    spare: &'static [&'static str],
    /// Whether its texts are broken into lines, and not cut.
    wraps: bool,
}

impl Table {
    /// With these headings. A heading that ends in `>` has its column aligned to the right.
    pub fn new(headings: &[&'static str]) -> Table {
        Table { headings: headings.to_vec(), ..Table::default() }
    }

    /// With columns that are left out of a page that is too narrow to tell names by, the first one first.
    pub fn with_spare(self, spare: &'static [&'static str]) -> Table {
        Table { spare, ..self }
    }

    /// With texts that are broken into lines where the page is too narrow, and not cut.
    pub fn wrapped(self) -> Table {
        Table { wraps: true, ..self }
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
        Table { headings: [first].into_iter().chain(headings).collect(), ..Table::default() }
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
        self.top(usize::MAX, w)
    }

    /// The same of the first `n` rows, unless another number was asked for; and how many more there are.
    ///
    /// # Errors
    /// If `w` cannot be written.
    pub fn top(&self, n: usize, w: &mut dyn Write) -> io::Result<()> {
        let look = look::look();
        let rows = self.wanted(&look);
        let n = look.n_rows.unwrap_or(n).min(rows.len());
        self.aligned(&rows[..n], &look, w)?;
        if n < rows.len() {
            writeln!(w, "and {} more: -n {} shows all", rows.len() - n, rows.len())?;
        }
        Ok(())
    }

    /// All rows, whatever was asked for: who writes it has chosen them.
    ///
    /// # Errors
    /// If `w` cannot be written.
    pub(crate) fn whole(&self, w: &mut dyn Write) -> io::Result<()> {
        self.aligned(&self.rows.iter().collect::<Vec<_>>(), &look::look(), w)
    }

    /// The rows of the functions that are asked for, sorted as asked.
    fn wanted(&self, look: &Look) -> Vec<&Vec<String>> {
        const NAMES: [&str; 4] = ["function", "name", "caller", "callee"];
        let is_name: Vec<bool> = self.headings.iter().map(|h| NAMES.contains(&bare(h))).collect();
        let has_names = is_name.contains(&true);
        let filter = look.filter.as_deref().filter(|_| has_names).map(Like::new);
        let is_wanted = |row: &&Vec<String>| {
            let Some(filter) = &filter else { return true };
            row.iter().zip(&is_name).any(|(cell, is_name)| *is_name && filter.fits(cell))
        };
        let mut rows: Vec<&Vec<String>> = self.rows.iter().filter(is_wanted).collect();
        let key = look.sort.as_deref().and_then(|key| {
            let at = |is: &dyn Fn(&str) -> bool| self.headings.iter().position(|h| is(bare(h)));
            at(&|h| h == key).or_else(|| at(&|h| h.starts_with(key)))
        });
        if let Some(at) = key {
            let number = |row: &Vec<String>| row.get(at).map_or(f64::MIN, |cell| leading(cell));
            match self.headings.get(at).is_some_and(|h| h.ends_with('>')) {
                true => rows.sort_by(|a, b| number(b).total_cmp(&number(a))),
                false => rows.sort_by_key(|row| row.get(at)),
            }
            if look.is_reversed {
                rows.reverse();
            }
        }
        look::wrote(self.headings.iter().map(|h| bare(h)), key.is_some());
        rows
    }

    /// Writes these rows as wide as the terminal: names are cut in the middle, numbers never.
    fn aligned(&self, rows: &[&Vec<String>], look: &Look, w: &mut dyn Write) -> io::Result<()> {
        let headings: Vec<String> = self.headings.iter().map(|h| bare(h).to_owned()).collect();
        let is_right: Vec<bool> = self.headings.iter().map(|h| h.ends_with('>')).collect();
        // Numbers are for people to read where nothing else reads them.
        let shown = |cell: &String, is_right: bool| match look.width {
            Some(_) if is_right => grouped(cell),
            _ => cell.clone(),
        };
        let rows = rows
            .iter()
            .map(|row| row.iter().zip(&is_right).map(|(cell, right)| shown(cell, *right)).collect());
        let rows: Vec<Vec<String>> = rows.collect();
        let mut widths = vec![0; headings.len()];
        for row in rows.iter().chain([&headings]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = columns(cell).max(*width);
            }
        }
        let mut is_shown = vec![true; headings.len()];
        match look.width {
            Some(width) => self.fit(&mut widths, &mut is_shown, &is_right, width),
            // A name that is very long stands out of its column, and not all others with it.
            None => widths.iter_mut().zip(&is_right).filter(|(_, right)| !**right).for_each(|(width, _)| {
                *width = (*width).min(LONGEST);
            }),
        }
        for (n, row) in [&headings].into_iter().chain(&rows).enumerate() {
            let cells = row.iter().zip(&widths).zip(&is_right).zip(&is_shown).filter(|cell| *cell.1);
            let cells: Vec<(Vec<String>, usize, bool)> = cells
                .map(|(((cell, &width), &right), _)| (self.lines(cell, width, look), width, right))
                .collect();
            let n_lines = cells.iter().map(|(lines, ..)| lines.len()).max().unwrap_or(0);
            for at in 0..n_lines {
                let mut line = String::new();
                for (lines, width, right) in &cells {
                    let cell = lines.get(at).map_or("", String::as_str);
                    let padding = " ".repeat(width.saturating_sub(columns(cell)));
                    let (before, behind) = if *right { (&*padding, "") } else { ("", &*padding) };
                    line.extend([before, cell, behind, "  "]);
                }
                let line = line.trim_end();
                match look.is_coloured && n == 0 && !line.is_empty() {
                    true => writeln!(w, "{BOLD}{line}{PLAIN}")?,
                    false => writeln!(w, "{line}")?,
                }
            }
        }
        Ok(())
    }

    /// A cell as it stands in its column.
    fn lines(&self, cell: &str, width: usize, look: &Look) -> Vec<String> {
        match look.width {
            None => vec![cell.to_owned()],
            Some(_) if self.wraps => wrapped(cell, width),
            Some(_) => vec![indented(cell, width)],
        }
    }

    /// Makes `widths` so small that the columns that are shown fit into `width`, as far as names can be cut;
    /// and shows less of them if names could not be told then.
    fn fit(&self, widths: &mut Vec<usize>, is_shown: &mut [bool], is_right: &[bool], width: usize) {
        let whole = widths.clone();
        let mut spare = self.spare.iter();
        loop {
            widths.clone_from(&whole);
            fit(widths, is_right, is_shown, width);
            let is_told =
                |i: usize| widths.get(i).zip(whole.get(i)).is_none_or(|(w, all)| w == all || *w >= TOLD);
            let are_told = (0..whole.len()).all(|i| is_right.get(i) == Some(&true) || is_told(i));
            let Some(next) = spare.next().filter(|_| !are_told) else { return };
            for (shown, _) in is_shown.iter_mut().zip(&self.headings).filter(|(_, h)| bare(h) == *next) {
                *shown = false;
            }
        }
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
        let look = look::look();
        let rows = self.wanted(&look);
        csv.write_record(self.headings.iter().map(|h| bare(h))).map_err(failed)?;
        for row in rows.iter().take(look.n_rows.unwrap_or(usize::MAX)) {
            csv.write_record(row.iter().map(|cell| without_unit(cell))).map_err(failed)?;
        }
        csv.flush()
    }
}

/// Columns that a name has where nothing says how wide the page is, at most, before what stands behind it
/// moves.
const LONGEST: usize = 60;
/// What is left of a name, at least.
const SHORTEST: usize = 8;
/// What of a name tells it from others, mostly.
const TOLD: usize = 16;
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// A heading without its mark.
fn bare(heading: &'static str) -> &'static str {
    heading.trim_end_matches('>')
}

/// The number that a cell starts with, for sorting: of `5..6` the least; what is none stands last.
fn leading(cell: &str) -> f64 {
    if let Some(hex) = cell.strip_prefix("0x") {
        #[expect(clippy::cast_precision_loss, reason = "for an order alone")]
        return u64::from_str_radix(hex, 16).map_or(f64::MIN, |n| n as f64);
    }
    let number = cell.trim_start_matches('~').split("..").next().unwrap_or_default();
    let end = number.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(number.len());
    number.get(..end).and_then(|number| number.parse().ok()).unwrap_or(f64::MIN)
}

/// A cell for a spreadsheet: a number is one, of per cent, or an estimate.
fn without_unit(cell: &str) -> &str {
    let estimate = cell.strip_prefix('~').filter(|cell| cell.starts_with(|c: char| c.is_ascii_digit()));
    let cell = estimate.unwrap_or(cell);
    let number = cell.strip_suffix(" %").filter(|number| number.parse::<f64>().is_ok());
    match cell {
        "-" => "",
        cell => number.unwrap_or(cell),
    }
}

/// Makes `widths` so small that all columns that are shown fit into `width`, as far as names can be cut: the
/// widest first.
fn fit(widths: &mut [usize], is_right: &[bool], is_shown: &[bool], width: usize) {
    let total = |widths: &[usize]| {
        let shown = widths.iter().zip(is_shown).filter(|(_, shown)| **shown);
        shown.map(|(width, _)| width + 2).sum::<usize>().saturating_sub(2)
    };
    while total(widths) > width {
        let names = widths.iter_mut().zip(is_right.iter().zip(is_shown));
        let can_be_cut = names.filter(|(w, (right, shown))| !**right && **shown && **w > SHORTEST);
        match can_be_cut.max_by_key(|(w, _)| **w) {
            Some((widest, _)) => *widest -= 1,
            None => return,
        }
    }
}

/// A cell cut to its column; what it is indented by is cut last: it says below what it stands.
fn indented(cell: &str, width: usize) -> String {
    let name = cell.trim_start_matches(' ');
    let indent = (cell.len() - name.len()).min(width.saturating_sub(2 * SHORTEST));
    " ".repeat(indent) + &middle(name, width - indent)
}

/// A text in lines of so many columns, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if columns(line) + 1 + columns(word) <= width {
            line.extend([" ", word]);
        } else {
            lines.push(word.to_owned());
        }
    }
    // A word that is longer than a line is one of several.
    let pieces = lines.iter().flat_map(|line| {
        let mut pieces = vec![String::new()];
        for c in line.chars() {
            match pieces.last_mut() {
                Some(piece) if columns(piece) < width.max(1) => piece.push(c),
                _ => pieces.push(c.to_string()),
            }
        }
        pieces
    });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_table_fits_into_its_page_and_only_names_are_cut() {
        let mut t = Table::new(&["instructions>", "share>", "function", "module"]);
        let name = "a::function::of::a::long::path::that::ends::with::its::name";
        t.row(["1234567".into(), "99.10 %".into(), name.into(), "libsomething-of-some-length.so.6".into()]);
        t.row(["5..6000".into(), "0.90 %".into(), "main".into(), "exe".into()]);
        let written = |look: &Look| {
            let mut text = Vec::new();
            look.write(&mut text, |w| t.text(w)).expect("memory").expect("no key");
            String::from_utf8(text).expect("text")
        };
        for width in 50..120 {
            let text = written(&Look { width: Some(width), ..Look::default() });
            assert!(text.lines().all(|line| columns(line) <= width), "{width}:\n{text}");
            assert!(text.contains("1,234,567  99.10 %") && text.contains("5..6,000"), "{text}");
            let whole =
                "instructions  99.10 %  ".len() + name.len() + "  libsomething-of-some-length.so.6".len();
            assert!(text.contains('…') == (width < whole), "{width}:\n{text}");
        }
        let text = written(&Look::default());
        assert!(text.contains(name) && text.contains("1234567") && !text.contains('…'), "{text}");
    }

    fn at_width(width: usize, t: &Table) -> String {
        let mut text = Vec::new();
        let look = Look { width: Some(width), ..Look::default() };
        look.write(&mut text, |w| t.text(w)).expect("memory").expect("no key");
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn columns_that_can_be_spared_give_way_to_names() {
        let headings = ["n>", "exits>", "depth>", "function"];
        let mut t = Table::new(&headings).with_spare(&["exits", "depth"]);
        t.row(["1".into(), "100".into(), "1".into(), "a_function_of_some_length".into()]);
        assert_eq!(at_width(80, &t).lines().next(), Some("n  exits  depth  function"));
        assert_eq!(at_width(30, &t), "n  depth  function\n1      1  a_func…f_some_length\n");
        assert_eq!(at_width(20, &t), "n  function\n1  a_fun…some_length\n");
    }

    #[test]
    fn texts_are_broken_between_words_where_they_are_not_to_be_cut() {
        let mut t = Table::new(&["works", "why"]).wrapped();
        t.row(["NO".into(), "the kernel refuses: /proc/sys/kernel/perf_event_paranoid is 4".into()]);
        expect![[r#"
            works  why
            NO     the kernel refuses:
                   /proc/sys/kernel/perf_
                   event_paranoid
                   is 4
        "#]]
        .assert_eq(&at_width(29, &t));
    }

    #[test]
    fn what_is_cut_stays_below_what_it_is_indented_under() {
        let mut t = Table::new(&["n>", "function"]);
        for (depth, name) in
            [(0, "main"), (1, "std::basic_string::_M_create"), (2, "operator new(unsigned long)")]
        {
            t.row([depth.to_string(), "    ".repeat(depth) + name]);
        }
        let text = at_width(26, &t);
        let starts = text.lines().skip(1).map(|line| line[3..].chars().take_while(|c| *c == ' ').count());
        assert_eq!(starts.collect::<Vec<_>>(), [0, 4, 7], "{text}");
        assert!(text.lines().all(|line| columns(line) <= 26), "{text}");
    }

    #[test]
    fn rows_are_chosen_and_sorted_as_asked() {
        let mut t = Table::new(&["count>", "at>", "function"]);
        for (count, at, name) in [("7", "0x10", "walk"), ("30..31", "0x9", "work"), ("-", "0x200", "rest")] {
            t.row([count.into(), at.into(), name.into()]);
        }
        let check = |look: Look, expect: &str| {
            let mut text = Vec::new();
            look.write(&mut text, |w| t.top(2, w)).expect("memory").expect("there is such a column");
            let text = String::from_utf8(text).expect("text");
            let last = text.lines().skip(1).map(|line| line.split_whitespace().last().unwrap_or_default());
            assert_eq!(last.collect::<Vec<_>>().join(" "), expect, "{text}");
        };
        let look = Look::default;
        check(look(), "walk work all");
        check(Look { n_rows: Some(1), ..look() }, "walk all");
        check(Look { n_rows: Some(9), ..look() }, "walk work rest");
        check(Look { sort: Some("count".into()), n_rows: Some(9), ..look() }, "work walk rest");
        check(Look { sort: Some("at".into()), n_rows: Some(9), ..look() }, "rest walk work");
        check(Look { sort: Some("func".into()), n_rows: Some(9), ..look() }, "rest walk work");
        check(Look { filter: Some("w*".into()), ..look() }, "walk work");
        let mut none = Vec::new();
        let refused = Look { sort: Some("size".into()), ..look() }.write(&mut none, |w| t.text(w));
        assert_eq!(
            refused.expect("memory").expect_err("no such column").headings,
            ["count", "at", "function"]
        );
        let mut csv = Vec::new();
        let mut shares = Table::new(&["share>", "n>"]);
        shares.row(["12.50 %".into(), "-".into()]);
        shares.csv(&mut csv).expect("memory");
        assert_eq!(String::from_utf8_lossy(&csv), "share,n\n12.50,\n");
    }

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
