//! Symbols as people read them: a range of a thread, and what is around an occurrence.

use super::functions::FunctionView;
use crate::{Table, View, address};
use serde::Serialize;
use std::io::{self, Write};

/// A symbol, with the names of what it speaks of.
#[derive(Debug, Serialize)]
pub struct SymbolView {
    /// Which symbol of the thread, from 0.
    pub index: u64,
    /// F entered, B block executed, E left.
    pub step: char,
    /// Why it was left, or that it was entered from outside.
    pub mark: Option<&'static str>,
    /// The function it is in.
    #[serde(flatten)]
    pub function: FunctionView,
    /// The block, as the trace numbers it.
    pub block: Option<u32>,
    /// Where the block starts.
    pub at: Option<u64>,
    /// The source file of its first line.
    pub file: Option<String>,
    /// That line.
    pub line: Option<u32>,
    /// Its instructions or source lines, if they are asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<String>,
}

impl SymbolView {
    fn step(&self) -> String {
        self.mark.map_or_else(|| self.step.to_string(), |mark| format!("{}({mark})", self.step))
    }

    fn source(&self) -> String {
        let file = self.file.as_deref().unwrap_or_default();
        let file = file.rsplit('/').next().unwrap_or(file).to_owned();
        self.line.map_or(file.clone(), |line| format!("{file}:{line}"))
    }

    /// A line of text: `17 B main 2 0x1010 words.c:3`.
    ///
    /// # Errors
    /// If `w` cannot be written.
    pub fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        write!(w, "{} {} {}", self.index, self.step(), self.function.called().unwrap_or("?"))?;
        if let Some(block) = self.block {
            write!(w, " {block}")?;
        }
        self.at.iter().try_for_each(|at| write!(w, " {at:#x}"))?;
        match self.source() {
            source if source.is_empty() => writeln!(w),
            source => writeln!(w, " {source}"),
        }?;
        self.code.iter().try_for_each(|line| writeln!(w, "      {line}"))
    }

    /// Rows of symbols.
    pub fn table<'a>(symbols: impl Iterator<Item = &'a SymbolView>) -> Table {
        let mut t = Table::new(&["index>", "step", "function", "block>", "at", "source"]);
        for s in symbols {
            let block = s.block.map_or_else(String::new, |b| b.to_string());
            let function = s.function.called().unwrap_or_default().to_owned();
            let at = s.at.map_or_else(String::new, address);
            t.row([s.index.to_string(), s.step(), function, block, at, s.source()]);
        }
        t
    }
}

/// What `--at` prints.
#[derive(Debug, Serialize)]
pub struct RangeView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The thread they are of.
    pub thread: u32,
    /// The symbols, in order.
    pub symbols: Vec<SymbolView>,
}

impl RangeView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.query/1";
}

impl View for RangeView {
    fn table(&self) -> Table {
        SymbolView::table(self.symbols.iter())
    }
}

/// Lines of text, that at `index` marked.
///
/// # Errors
/// If `w` cannot be written.
pub fn marked(w: &mut dyn Write, symbols: &[SymbolView], index: Option<u64>) -> io::Result<()> {
    symbols.iter().try_for_each(|s| {
        write!(w, "{} ", if Some(s.index) == index { '>' } else { ' ' })?;
        s.text(w)
    })
}
