//! Symbols as people read them: `engraft query --at`, and what is around an occurrence.

use super::at::Span;
use super::functions::{FunctionView, Functions};
use super::source::{Binaries, Code};
use super::{Args, unreadable};
use crate::output::{self, Answer, Format};
use serde::Serialize;
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use trace::{Cause, Line, Position, Step, Symbol, Trace};
use tracing::info_span;
use views::{Table, View};

/// A symbol, with the names of what it speaks of.
#[derive(Serialize)]
pub struct SymbolView {
    index: u64,
    /// F entered, B block executed, E left.
    step: char,
    /// Why it was left, or that it was entered from outside.
    mark: Option<&'static str>,
    #[serde(flatten)]
    function: FunctionView,
    block: Option<u32>,
    at: Option<u64>,
    file: Option<String>,
    line: Option<u32>,
    /// Its instructions or source lines, if they are asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    code: Vec<String>,
}

fn mark(symbol: Symbol) -> Option<&'static str> {
    match symbol.cause() {
        None => symbol.is_from_outside().then_some("outside"),
        Some(Cause::Return) => None,
        Some(cause) => Some(cause.name()),
    }
}

impl SymbolView {
    /// Of a symbol.
    pub fn new(line: &Line, functions: &Functions<'_>) -> SymbolView {
        let (step, block) = match line.symbol.step() {
            Step::Enter(_) => ('F', None),
            Step::Block(block) => ('B', Some(block)),
            Step::Exit => ('E', None),
        };
        let known = || functions.names.functions.get(&line.func?)?.blocks.get(&block?);
        SymbolView {
            index: line.index,
            step,
            mark: mark(line.symbol),
            function: functions.view(line.func),
            block,
            at: known().map(|b| b.at),
            file: known().filter(|b| !b.file.is_empty()).map(|b| b.file.clone()),
            line: known().map(|b| b.line).filter(|&n| n > 0),
            code: Vec::new(),
        }
    }

    /// The same with its code, and its line where the trace does not have it.
    fn with(mut self, binaries: &Binaries<'_>, code: Option<Code>) -> SymbolView {
        let (Some(code), Some(func), Some(block)) = (code, self.function.function_id, self.block) else {
            return self;
        };
        self.code = binaries.code(code, func, block);
        if self.file.is_none()
            && let Some((file, line)) = binaries.lines(func, block).into_iter().next()
        {
            (self.file, self.line) = (Some(file), Some(line));
        }
        self
    }

    fn step(&self) -> String {
        self.mark.map_or_else(|| self.step.to_string(), |mark| format!("{}({mark})", self.step))
    }

    fn source(&self) -> String {
        let file = self.file.clone().unwrap_or_default();
        self.line.map_or(file.clone(), |line| format!("{file}:{line}"))
    }

    /// A line of text: `17 B main 2 0x1010 words.c:3`.
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
            let at = s.at.map_or_else(String::new, |at| format!("{at:#x}"));
            t.row([s.index.to_string(), s.step(), function, block, at, s.source()]);
        }
        t
    }
}

/// What `--at` prints.
#[derive(Serialize)]
struct RangeView {
    schema: &'static str,
    thread: u32,
    symbols: Vec<SymbolView>,
}

impl View for RangeView {
    fn table(&self) -> Table {
        SymbolView::table(self.symbols.iter())
    }
}

/// Prints the symbols of a range.
pub fn print(
    args: &Args,
    trace: &Trace,
    functions: &Functions<'_>,
    binaries: Binaries<'_>,
    span: Span,
) -> anyhow::Result<Answer> {
    args.code.map_or(Ok(()), |code| binaries.has_code(code, &args.trace))?;
    let (of, range) = span.of(&args.trace, trace, args.thread)?;
    let _span = info_span!("expand").entered();
    if args.output.format() != Format::Table {
        let symbols = expanded(&args.trace, trace, functions, of.thread, range)?;
        let symbols = symbols.into_iter().map(|symbol| symbol.with(&binaries, args.code)).collect();
        binaries.warn();
        args.output.print(&RangeView { schema: "engraft.query/1", thread: of.thread, symbols })?;
        return Ok(Answer::Yes);
    }
    // A range may be the whole run: it is not kept.
    let mut failed = None;
    let printed = output::data(None, |w| {
        let expanded = trace.expand(of.thread, range, |line| {
            let symbol = SymbolView::new(&line, functions).with(&binaries, args.code);
            symbol.text(w).map_or_else(ControlFlow::Break, ControlFlow::Continue)
        });
        match expanded {
            Ok(None) => Ok(()),
            Ok(Some(err)) => Err(err),
            Err(err) => {
                failed = Some(err);
                Err(io::Error::other("the trace cannot be read"))
            }
        }
    });
    binaries.warn();
    match failed {
        Some(err) => Err(unreadable(&args.trace, err)),
        None => printed.map(|()| Answer::Yes),
    }
}

/// The symbols of a range.
pub fn expanded(
    path: &Path,
    trace: &Trace,
    functions: &Functions<'_>,
    thread: u32,
    range: Range<u64>,
) -> anyhow::Result<Vec<SymbolView>> {
    let mut symbols = Vec::new();
    let done = trace.expand(thread, range, |line| {
        symbols.push(SymbolView::new(&line, functions));
        ControlFlow::<()>::Continue(())
    });
    done.map_err(|err| unreadable(path, err))?;
    Ok(symbols)
}

/// The `n` symbols before a position, that at it, and the `n` behind it.
pub fn around(
    args: &Args,
    trace: &Trace,
    functions: &Functions<'_>,
    binaries: &Binaries<'_>,
    at: Position,
    n: u64,
) -> anyhow::Result<Vec<SymbolView>> {
    args.code.map_or(Ok(()), |code| binaries.has_code(code, &args.trace))?;
    let range = at.index.saturating_sub(n)..at.index.saturating_add(n).saturating_add(1);
    let symbols = expanded(&args.trace, trace, functions, at.thread, range)?;
    Ok(symbols.into_iter().map(|symbol| symbol.with(binaries, args.code)).collect())
}

/// Lines of text, that at `index` marked.
pub fn marked(w: &mut dyn Write, symbols: &[SymbolView], index: Option<u64>) -> io::Result<()> {
    symbols.iter().try_for_each(|s| {
        write!(w, "{} ", if Some(s.index) == index { '>' } else { ' ' })?;
        s.text(w)
    })
}
