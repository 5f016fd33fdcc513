//! Symbols as people read them: `engraft query --at`, and what is around an occurrence.

use super::Args;
use super::functions::Functions;
use super::positions::RangeArg;
use super::source::{Binaries, Code};
use crate::input::unreadable;
use crate::output::{self, Answer, Format};
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use trace::{BlockId, Cause, FuncId, Line, Position, Step, Symbol, ThreadId, Trace};
use tracing::info_span;
use views::query::symbols::{RangeView, SymbolView};

fn mark(symbol: Symbol) -> Option<&'static str> {
    match symbol.cause() {
        None => symbol.is_from_outside().then_some("outside"),
        Some(Cause::Return) => None,
        Some(cause) => Some(cause.name()),
    }
}

/// A symbol, with the names of what it speaks of.
fn symbol_view(line: &Line, functions: &Functions<'_>) -> SymbolView {
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
        block: block.map(|block| block.0),
        at: known().map(|b| b.at),
        file: known().filter(|b| !b.file.is_empty()).map(|b| b.file.clone()),
        line: known().map(|b| b.line).filter(|&n| n > 0),
        code: Vec::new(),
    }
}

/// The same with its code, if that is asked for, and its line where the trace does not have it.
fn with_code(mut symbol: SymbolView, binaries: &Binaries<'_>, code: Option<Code>) -> SymbolView {
    let (Some(func), Some(block)) = (symbol.function.function_id, symbol.block) else { return symbol };
    let (func, block) = (FuncId(func), BlockId(block));
    symbol.code = code.map_or_else(Vec::new, |code| binaries.code(code, func, block));
    if symbol.file.is_none()
        && let Some((file, line)) = binaries.first_line(func, block)
    {
        (symbol.file, symbol.line) = (Some(file), Some(line));
    }
    symbol
}

/// Prints the symbols of a range.
pub fn print(
    args: &Args,
    trace: &Trace,
    functions: &Functions<'_>,
    binaries: Binaries<'_>,
    span: RangeArg,
) -> anyhow::Result<Answer> {
    args.code.map_or(Ok(()), |code| binaries.has_code(code, &args.trace))?;
    let (of, range) = span.of(&args.trace, trace, args.thread.map(ThreadId))?;
    let _span = info_span!("expand").entered();
    if args.output.format() != Format::Table {
        let symbols = expanded(&args.trace, trace, functions, of.thread, range)?;
        let symbols = symbols.into_iter().map(|symbol| with_code(symbol, &binaries, args.code)).collect();
        binaries.warn_of(args.code);
        args.output.print(&RangeView { schema: RangeView::SCHEMA, thread: of.thread.0, symbols })?;
        return Ok(Answer::Yes);
    }
    // A range may be the whole run: it is not kept.
    let mut failed = None;
    let printed = output::data(None, |w| {
        let expanded = trace.expand(of.thread, range, |line| {
            let symbol = with_code(symbol_view(&line, functions), &binaries, args.code);
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
    binaries.warn_of(args.code);
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
    thread: ThreadId,
    range: Range<u64>,
) -> anyhow::Result<Vec<SymbolView>> {
    let mut symbols = Vec::new();
    let done = trace.expand(thread, range, |line| {
        symbols.push(symbol_view(&line, functions));
        ControlFlow::<()>::Continue(())
    });
    done.map_err(|err| unreadable(path, err))?;
    Ok(symbols)
}

/// The `n` symbols before a position, that at it, and the `n` behind it; with `code`, if that is asked for.
pub fn around(
    path: &Path,
    code: Option<Code>,
    trace: &Trace,
    functions: &Functions<'_>,
    binaries: &Binaries<'_>,
    at: Position,
    n: u64,
) -> anyhow::Result<Vec<SymbolView>> {
    code.map_or(Ok(()), |code| binaries.has_code(code, path))?;
    let range = at.index.saturating_sub(n)..at.index.saturating_add(n).saturating_add(1);
    let symbols = expanded(path, trace, functions, at.thread, range)?;
    Ok(symbols.into_iter().map(|symbol| with_code(symbol, binaries, code)).collect())
}
