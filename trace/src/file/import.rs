//! From a plain trace, one that is kept in another way, or streams, to a file of ours.

use crate::balance::{Balance, Unbalanced};
use crate::chunks::{Codec, Stream};
use crate::decode::Faults;
use crate::file::flow::{self, FlowGraphs};
use crate::file::names::Names;
use crate::file::plain::{self, PlainError};
use crate::file::times::{self, Times};
use crate::file::varint;
use crate::file::{ReadError, Sections, section};
use crate::grammar::pack::{Builder, Maker};
use crate::ids::{FuncId, ThreadId};
use crate::symbol::{Step, Symbol};
use crate::trace::{FAULTS, NAMES, Trace};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;

/// Why a plain trace does not become a file of ours.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] PlainError),
    /// It is no trace.
    #[error(transparent)]
    Unbalanced(#[from] Unbalanced),
    /// The file cannot be written.
    #[error("cannot write")]
    Write(#[from] io::Error),
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imported {
    /// Symbols read.
    pub n_symbols: u64,
    /// Bytes written.
    pub n_bytes: u64,
}

/// Starts a file with names, if there are any.
pub(crate) fn start<W: Write>(to: W, names: &Names) -> io::Result<Sections<W>> {
    let mut sections = Sections::create(to)?;
    if !names.functions.is_empty() {
        sections.write(&section(NAMES, &zstd::bulk::compress(&names.encode(), 19)?))?;
    }
    Ok(sections)
}

/// Checks that a code can stand in a plain trace, which has no marks.
#[inline]
pub(crate) fn unmarked(code: u32, index: u64) -> Result<Symbol, Unbalanced> {
    let symbol = Symbol(code);
    if symbol.plain() == symbol { Ok(symbol) } else { Err(Unbalanced::NotASymbol { index, code }) }
}

/// How a trace is kept. A file may hold it in several ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stores {
    /// As a grammar, with what searches need of it.
    pub grammar: Option<Maker>,
    /// As chunks of symbols.
    pub chunks: Option<Codec>,
}

impl Stores {
    /// Small, and answers all questions.
    pub const PACKED: Self = Self { grammar: Some(Maker::Sequitur), chunks: None };
    /// The smallest, which answers them, too.
    pub const ARCHIVE: Self = Self { grammar: Some(Maker::Repair), chunks: None };
}

/// Keeps streams, one behind the other, in all ways that are asked for.
struct Keeper<W: Write> {
    sections: Sections<W>,
    stores: Stores,
    builder: Option<Builder>,
    /// The stream that is kept, its symbols so far, and its chunk.
    open: Option<(ThreadId, Balance, Option<Stream>)>,
    n_symbols: u64,
    /// Functions that were entered, if that is asked for.
    ran: Option<BTreeSet<FuncId>>,
}

impl<W: Write> Keeper<W> {
    fn new(to: W, names: &Names, stores: Stores, ran: Option<BTreeSet<FuncId>>) -> io::Result<Self> {
        let sections = start(to, names)?;
        Ok(Self {
            sections,
            stores,
            builder: stores.grammar.map(Builder::new),
            open: None,
            n_symbols: 0,
            ran,
        })
    }

    /// The symbols that follow are of this stream.
    fn begin(&mut self, thread: ThreadId) -> io::Result<()> {
        if self.open.as_ref().is_none_or(|(last, ..)| *last != thread) {
            self.end()?;
            let stream = self.stores.chunks.map(|codec| Stream::new(thread, codec));
            self.open = Some((thread, Balance::default(), stream));
        }
        Ok(())
    }

    /// The index of the next symbol.
    fn index(&self) -> u64 {
        self.open.as_ref().map_or(0, |(_, balance, _)| balance.n_symbols())
    }

    #[inline]
    fn push<E: From<Unbalanced> + From<io::Error>>(&mut self, symbol: Symbol) -> Result<(), E> {
        let Some((_, balance, stream)) = &mut self.open else { return Ok(()) };
        let func = balance.push(symbol)?;
        if let Some(ran) = &mut self.ran
            && matches!(symbol.step(), Step::Enter(_))
        {
            ran.insert(func);
        }
        if let Some(builder) = &mut self.builder {
            builder.push(func, symbol);
        }
        if let Some(stream) = stream
            && let Some(chunk) = stream.push(symbol)?
        {
            self.sections.write(&chunk)?;
        }
        Ok(())
    }

    /// The stream that is kept has ended: how it is balanced.
    fn end(&mut self) -> io::Result<Balance> {
        let Some((thread, balance, stream)) = self.open.take() else { return Ok(Balance::default()) };
        self.n_symbols += balance.n_symbols();
        if let Some(builder) = &mut self.builder {
            builder.end(thread);
        }
        if let Some(chunk) = stream.and_then(|mut stream| stream.flush()) {
            self.sections.write(&chunk)?;
        }
        Ok(balance)
    }

    /// Writes the rest: what is known of the program's control flow, as far as it ran, of times, and of what
    /// was wrong.
    fn finish(mut self, flow: &FlowGraphs, times: &Times, faults: Faults) -> io::Result<Imported> {
        self.end()?;
        if let Some(builder) = self.builder {
            builder.finish(&mut self.sections)?;
        }
        if !flow.modules.is_empty() {
            let bytes = flow.encode(|func| self.ran.as_ref().is_none_or(|ran| ran.contains(&func)));
            self.sections.write(&section(flow::FLOW, &zstd::bulk::compress(&bytes, 19)?))?;
        }
        if !times.is_empty() {
            self.sections.write(&section(times::TIMES, &times.encode()))?;
        }
        if faults != Faults::default() {
            let mut bytes = Vec::new();
            varint::put(&mut bytes, faults.n_astray);
            varint::put(&mut bytes, faults.n_lost);
            self.sections.write(&section(FAULTS, &bytes))?;
        }
        Ok(Imported { n_symbols: self.n_symbols, n_bytes: self.sections.finish()? })
    }
}

/// Makes a file of a plain trace.
///
/// # Errors
/// If it cannot be read, is not balanced, or cannot be written.
pub fn import(
    from: impl Read,
    to: impl Write,
    names: &Names,
    stores: Stores,
) -> Result<Imported, ImportError> {
    let mut keeper = Keeper::new(to, names, stores, None)?;
    keeper.begin(ThreadId(0))?;
    plain::read(from, |symbols| {
        for &code in symbols {
            let symbol = unmarked(code, keeper.index())?;
            keeper.push::<ImportError>(symbol)?;
        }
        Ok::<_, ImportError>(())
    })?;
    keeper.end()?.finish()?;
    Ok(keeper.finish(&FlowGraphs::default(), &Times::default(), Faults::default())?)
}

/// Why a trace is not kept in another way.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepackError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What it holds is no trace.
    #[error(transparent)]
    Unbalanced(#[from] Unbalanced),
    /// The file cannot be written.
    #[error("cannot write")]
    Write(#[from] io::Error),
}

/// Keeps a trace in another way: what was recorded as chunks becomes a grammar, a sequence a thread. What a
/// cut recording leaves open stays open.
///
/// # Errors
/// If it cannot be read, or the file cannot be written.
pub fn repack(trace: &Trace, to: impl Write, stores: Stores) -> Result<Imported, RepackError> {
    let mut keeper = Keeper::new(to, &trace.names()?, stores, Some(BTreeSet::new()))?;
    let flow = trace.flow()?;
    let mut times = if trace.is_recording() { Times::default() } else { trace.times()?.unwrap_or_default() };
    let failed = trace.read_timed(&mut times, |thread, symbols| {
        let mut take = || {
            keeper.begin(thread)?;
            symbols.iter().try_for_each(|&code| keeper.push::<RepackError>(Symbol(code)))
        };
        take().map_or_else(ControlFlow::Break, ControlFlow::Continue)
    })?;
    if let Some(err) = failed {
        return Err(err);
    }
    Ok(keeper.finish(&flow, &times, trace.faults())?)
}

/// What is known of a program that is not recorded by us.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// What its functions and blocks are called.
    pub names: &'a Names,
    /// Its files, and what may follow what.
    pub flow: &'a FlowGraphs,
    /// When symbols were executed.
    pub times: &'a Times,
}

/// Makes a file of streams: each with its number, in rising order.
///
/// # Errors
/// If they are not balanced, or it cannot be written.
pub fn import_streams<'a>(
    streams: impl Iterator<Item = (ThreadId, &'a [u32])>,
    to: impl Write,
    around: Around<'_>,
    stores: Stores,
) -> Result<Imported, ImportError> {
    let mut keeper = Keeper::new(to, around.names, stores, Some(BTreeSet::new()))?;
    for (thread, symbols) in streams {
        keeper.begin(thread)?;
        symbols.iter().try_for_each(|&code| keeper.push::<ImportError>(Symbol(code)))?;
        keeper.end()?.finish()?;
    }
    Ok(keeper.finish(around.flow, around.times, Faults::default())?)
}
