//! How text for people looks: as wide as the terminal, coloured or not, which rows of tables.
//!
//! Invariant: what goes into a pipe or a file is neither cut nor wrapped nor coloured. A look is set for one
//! writing ([`Look::write`]), on the thread that writes; without one, tables are written whole.

use crate::columns::columns;
use memchr::memmem::Finder;
use std::cell::RefCell;
use std::io::{self, Write};

/// How text looks, and which rows tables have.
#[derive(Clone, Default, Debug)]
pub struct Look {
    /// Columns of the terminal; `None` if it goes elsewhere.
    pub width: Option<usize>,
    /// Whether headings and large shares have colours.
    pub is_coloured: bool,
    /// How many rows of each table are shown, if that was said.
    pub n_rows: Option<usize>,
    /// The heading of the column by which rows are sorted, or how it starts.
    pub sort: Option<String>,
    /// Whether the least come first, or of texts the last.
    pub is_reversed: bool,
    /// Which functions are shown, `*` standing for anything.
    pub filter: Option<String>,
}

thread_local! {
    static LOOK: RefCell<State> = RefCell::default();
}

/// The look of what is written just now, and what came of it.
#[derive(Default)]
struct State {
    look: Look,
    /// Headings of the tables that were written.
    headings: Vec<&'static str>,
    was_sorted: bool,
}

/// There is no column to sort by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoColumn {
    /// The columns that there are.
    pub headings: Vec<&'static str>,
}

impl Look {
    /// Has `write` write to `w` in this look.
    ///
    /// # Errors
    /// If `w` cannot be written; within, if rows were to be sorted by a column that no table has.
    pub fn write(
        &self,
        w: &mut dyn Write,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<Result<(), NoColumn>> {
        LOOK.with_borrow_mut(|state| *state = State { look: self.clone(), ..State::default() });
        let mut page = Page { to: w, width: self.width, line: Vec::new() };
        let written = write(&mut page).and_then(|()| page.flush());
        let state = LOOK.take();
        written?;
        let is_unknown = self.sort.is_some() && !state.was_sorted && !state.headings.is_empty();
        Ok(if is_unknown { Err(NoColumn { headings: state.headings }) } else { Ok(()) })
    }
}

/// The look of what is written just now.
pub(crate) fn look() -> Look {
    LOOK.with_borrow(|state| state.look.clone())
}

/// Writes down that a table with these headings was written, and whether it could be sorted.
pub(crate) fn wrote(headings: impl Iterator<Item = &'static str>, is_sorted: bool) {
    LOOK.with_borrow_mut(|state| {
        for heading in headings {
            if !heading.is_empty() && !state.headings.contains(&heading) {
                state.headings.push(heading);
            }
        }
        state.was_sorted |= is_sorted;
    });
}

/// Breaks lines that are too long between words.
struct Page<'a> {
    to: &'a mut dyn Write,
    width: Option<usize>,
    line: Vec<u8>,
}

impl Write for Page<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(width) = self.width else { return self.to.write(bytes) };
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.to.write_all(wrap(&String::from_utf8_lossy(&line), width).as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.line);
        self.to.write_all(&rest)?;
        self.to.flush()
    }
}

/// A line broken between words so that no part is wider than `width`; what follows is indented by two more. A
/// word that is wider by itself is cut into pieces.
pub fn wrap(line: &str, width: usize) -> String {
    let text = line.trim_end_matches('\n');
    if columns(&plain(text)) <= width {
        return line.to_owned();
    }
    let indent = text.len() - text.trim_start_matches(' ').len();
    let behind = " ".repeat((indent + 2).min(width / 2));
    let mut out = String::new();
    let mut now = " ".repeat(indent.min(width / 2));
    let mut is_new = true;
    for word in text.trim_start_matches(' ').split(' ') {
        if !is_new && columns(&plain(&now)) + 1 + columns(&plain(word)) > width {
            out.extend([now.trim_end(), "\n"]);
            now.clone_from(&behind);
            is_new = true;
        }
        if !is_new {
            now.push(' ');
        }
        is_new = false;
        for c in word.chars() {
            if columns(&plain(&now)) + columns(c.encode_utf8(&mut [0; 4])) > width {
                out.extend([&*now, "\n"]);
                now.clone_from(&behind);
            }
            now.push(c);
        }
    }
    out + &now + if line.ends_with('\n') { "\n" } else { "" }
}

/// Text without colours.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut parts = text.split("\x1b[");
    out.extend(parts.next());
    out.extend(parts.map(|part| part.split_once('m').map_or("", |(_, rest)| rest)));
    out
}

/// A pattern of names, in which `*` stands for anything: made once, and held against many.
pub struct Like<'a> {
    first: &'a str,
    /// What stands between stars.
    middle: Vec<Finder<'a>>,
    /// What stands behind the last star, if there is one.
    last: Option<&'a str>,
}

impl<'a> Like<'a> {
    /// Of this pattern.
    pub fn new(pattern: &'a str) -> Like<'a> {
        let mut parts: Vec<&str> = pattern.split('*').collect();
        let last = if parts.len() > 1 { parts.pop() } else { None };
        let mut parts = parts.into_iter();
        let first = parts.next().unwrap_or_default();
        Like { first, middle: parts.filter(|part| !part.is_empty()).map(Finder::new).collect(), last }
    }

    /// Whether `name` is like it.
    pub fn fits(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(self.first) else { return false };
        let Some(last) = self.last else { return rest.is_empty() };
        let mut rest = rest.as_bytes();
        for part in &self.middle {
            let behind = part.find(rest).and_then(|at| rest.get(at + part.needle().len()..));
            let Some(behind) = behind else { return false };
            rest = behind;
        }
        rest.ends_with(last.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_none_is_wider() {
        assert_eq!(wrap("short line\n", 20), "short line\n");
        assert_eq!(wrap("one two three four\n", 9), "one two\n  three\n  four\n");
        assert_eq!(wrap("  one two three", 9), "  one two\n    three");
        for width in 4..30 {
            let line =
                "a b cc ddd eeee fffff and-a-word-that-is-longer-than-the-line 🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀 end";
            let got = wrap(line, width);
            assert!(got.lines().all(|line| columns(line) <= width), "{width}:\n{got}");
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(letters(&got), letters(line));
        }
    }

    #[test]
    fn colours_take_no_room() {
        assert_eq!(wrap("\x1b[1mone two\x1b[0m", 7), "\x1b[1mone two\x1b[0m");
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (name, pattern, expect) in [
            ("main", "main", true),
            ("main", "mai", false),
            ("main", "ma*", true),
            ("main", "*in", true),
            ("main", "*a*n", true),
            ("main", "*x*", false),
            ("std::vec<int>::push(int)", "std::*::push*", true),
            ("aa", "a*a", true),
            ("a", "a*a", false),
            ("main", "*", true),
        ] {
            assert_eq!(Like::new(pattern).fits(name), expect, "{name} {pattern}");
        }
    }
}
