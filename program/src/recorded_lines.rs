//! Source lines of code that ran, kept without the debug information that they came from.
//!
//! Not here: how they are taken from it (`excerpt`), and used (`lines`).
#![warn(clippy::indexing_slicing)]

use crate::addr::Va;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Lines, with each text once.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RecordedLines {
    texts: Vec<String>,
    /// From this address to the next row: frames, the innermost first.
    rows: BTreeMap<u64, Vec<RowFrame>>,
}

/// Function and file by their places among the texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RowFrame {
    function: Option<u32>,
    file: Option<u32>,
    line: Option<u32>,
}

/// A frame: function, file, line.
pub(crate) type Told<'a> = (Option<&'a str>, Option<&'a str>, Option<u32>);

/// Lines on their way into a table.
#[derive(Default)]
pub(crate) struct Rows {
    places: HashMap<String, u32>,
    lines: RecordedLines,
}

impl Rows {
    fn place(&mut self, text: &str) -> u32 {
        if let Some(&n) = self.places.get(text) {
            return n;
        }
        let n = u32::try_from(self.lines.texts.len()).expect("there are fewer texts than bytes of a file");
        self.places.insert(text.to_owned(), n);
        self.lines.texts.push(text.to_owned());
        n
    }

    /// From `at` on, code has these frames; what was said of it before stays.
    pub(crate) fn add<'a>(&mut self, at: u64, frames: impl Iterator<Item = Told<'a>>) {
        if self.lines.rows.contains_key(&at) {
            return;
        }
        let frames = frames.map(|(function, file, line)| RowFrame {
            function: function.map(|text| self.place(text)),
            file: file.map(|text| self.place(text)),
            line,
        });
        let frames = frames.collect();
        self.lines.rows.insert(at, frames);
    }

    /// The table; an empty one, if nothing is known of any address.
    pub(crate) fn finish(self) -> RecordedLines {
        let is_known = self.lines.rows.values().any(|frames| !frames.is_empty());
        if is_known { self.lines } else { RecordedLines::default() }
    }
}

impl RecordedLines {
    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn text(&self, n: Option<u32>) -> Option<&str> {
        self.texts.get(n? as usize).map(String::as_str)
    }

    fn told<'a>(&'a self, frames: &'a [RowFrame]) -> impl Iterator<Item = Told<'a>> {
        frames.iter().map(|f| (self.text(f.function), self.text(f.file), f.line))
    }

    /// The frames of the instruction at `at`, the innermost first.
    pub(crate) fn frames(&self, at: Va) -> impl Iterator<Item = Told<'_>> {
        let row = self.rows.range(..=at.0).next_back().map_or(&[][..], |(_, frames)| frames.as_slice());
        self.told(row)
    }

    /// Whether it has frames of any address in `range`.
    pub(crate) fn knows(&self, range: &Range<Va>) -> bool {
        let before = self.rows.range(..=range.start.0).next_back();
        let inside = self.rows.range(range.start.0..range.end.0);
        before.into_iter().chain(inside).any(|(_, frames)| !frames.is_empty())
    }

    /// The sum of both, of one image: what both know is the same.
    pub(crate) fn with(&self, other: &RecordedLines) -> RecordedLines {
        let mut rows = Rows::default();
        for lines in [self, other] {
            lines.rows.iter().for_each(|(at, frames)| rows.add(*at, lines.told(frames)));
        }
        rows.finish()
    }
}
