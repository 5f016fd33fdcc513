//! From a plain trace, one that is kept in another way, or streams, to a file of ours.

use crate::balance::{Balance, Unbalanced};
use crate::chunks::{Codec, Stream};
use crate::file::{ReadError, Sections, section};
use crate::flow::{self, Flow};
use crate::names::Names;
use crate::pack::{Builder, Maker};
use crate::plain::{self, PlainError};
use crate::symbol::{Step, Symbol};
use crate::times::{self, Times};
use crate::trace::{NAMES, Trace};
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

/// Writes what is known of the program's control flow, as far as it ran, and of times.
fn write_around<W: Write>(
    sections: &mut Sections<W>,
    flow: &Flow,
    ran: &BTreeSet<u32>,
    times: &Times,
) -> io::Result<()> {
    if !flow.modules.is_empty() {
        let bytes = flow.encode(|func| ran.contains(&func));
        sections.write(&section(flow::FLOW, &zstd::bulk::compress(&bytes, 19)?))?;
    }
    if times.is_empty() {
        return Ok(());
    }
    sections.write(&section(times::TIMES, &times.encode()))
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
    let mut sections = start(to, names)?;
    let mut stream = stores.chunks.map(|codec| Stream::new(0, codec));
    let mut builder = stores.grammar.map(Builder::new);
    let mut balance = Balance::default();
    let n_symbols = plain::read(from, |symbols| {
        for &code in symbols {
            let symbol = unmarked(code, balance.n_symbols())?;
            let func = balance.push(symbol)?;
            if let Some(builder) = &mut builder {
                builder.push(func, symbol);
            }
            if let Some(stream) = &mut stream
                && let Some(chunk) = stream.push(symbol)?
            {
                sections.write(&chunk)?;
            }
        }
        Ok::<_, ImportError>(())
    })?;
    balance.finish()?;
    if let Some(chunk) = stream.as_mut().and_then(Stream::flush) {
        sections.write(&chunk)?;
    }
    if let Some(mut builder) = builder {
        builder.end(0);
        builder.finish(&mut sections)?;
    }
    Ok(Imported { n_symbols, n_bytes: sections.finish()? })
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

/// Keeps a trace in another way: what was recorded as chunks becomes a grammar, a sequence a thread. What a cut recording leaves
/// open stays open.
///
/// # Errors
/// If it cannot be read, or the file cannot be written.
pub fn repack(trace: &Trace, to: impl Write, stores: Stores) -> Result<Imported, RepackError> {
    let mut sections = start(to, &trace.names()?)?;
    let mut builder = stores.grammar.map(Builder::new);
    let mut open: Option<(u32, Balance, Option<Stream>)> = None;
    let mut n_symbols = 0;
    let (flow, mut ran) = (trace.flow()?, BTreeSet::new());
    let mut times = if trace.is_recording() { Times::default() } else { trace.times()?.unwrap_or_default() };
    let end = |open: Option<(u32, Balance, Option<Stream>)>,
               builder: &mut Option<Builder>,
               sections: &mut Sections<_>| {
        let Some((thread, _, stream)) = open else { return Ok(()) };
        if let Some(builder) = builder {
            builder.end(thread);
        }
        stream.and_then(|mut stream| stream.flush()).map_or(Ok(()), |chunk| sections.write(&chunk))
    };
    let failed = trace.read_timed(&mut times, |thread, symbols| {
        let mut take = || {
            if open.as_ref().is_none_or(|(last, ..)| *last != thread) {
                end(open.take(), &mut builder, &mut sections)?;
                let stream = stores.chunks.map(|codec| Stream::new(thread, codec));
                open = Some((thread, Balance::default(), stream));
            }
            let Some((_, balance, stream)) = &mut open else { return Ok(()) };
            n_symbols += symbols.len() as u64;
            for &code in symbols {
                let func = balance.push(Symbol(code))?;
                if matches!(Symbol(code).step(), Step::Enter(_)) {
                    ran.insert(func);
                }
                if let Some(builder) = &mut builder {
                    builder.push(func, Symbol(code));
                }
                if let Some(stream) = stream
                    && let Some(chunk) = stream.push(Symbol(code))?
                {
                    sections.write(&chunk)?;
                }
            }
            Ok::<_, RepackError>(())
        };
        take().map_or_else(ControlFlow::Break, ControlFlow::Continue)
    })?;
    if let Some(err) = failed {
        return Err(err);
    }
    end(open.take(), &mut builder, &mut sections)?;
    if let Some(builder) = builder {
        builder.finish(&mut sections)?;
    }
    write_around(&mut sections, &flow, &ran, &times)?;
    Ok(Imported { n_symbols, n_bytes: sections.finish()? })
}

/// What is known of a program that is not recorded by us.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// What its functions and blocks are called.
    pub names: &'a Names,
    /// Its files, and what may follow what.
    pub flow: &'a Flow,
    /// When symbols were executed.
    pub times: &'a Times,
}

/// Makes a file of streams: each with its number, in rising order.
///
/// # Errors
/// If they are not balanced, or it cannot be written.
pub fn import_streams<'a>(
    streams: impl Iterator<Item = (u32, &'a [u32])>,
    to: impl Write,
    around: Around<'_>,
    stores: Stores,
) -> Result<Imported, ImportError> {
    let mut sections = start(to, around.names)?;
    let mut builder = stores.grammar.map(Builder::new);
    let (mut n_symbols, mut ran) = (0, BTreeSet::new());
    for (thread, symbols) in streams {
        let mut balance = Balance::default();
        let mut stream = stores.chunks.map(|codec| Stream::new(thread, codec));
        for &code in symbols {
            let func = balance.push(Symbol(code))?;
            if matches!(Symbol(code).step(), Step::Enter(_)) {
                ran.insert(func);
            }
            if let Some(builder) = &mut builder {
                builder.push(func, Symbol(code));
            }
            if let Some(stream) = &mut stream
                && let Some(chunk) = stream.push(Symbol(code))?
            {
                sections.write(&chunk)?;
            }
        }
        balance.finish()?;
        n_symbols += balance.n_symbols();
        if let Some(builder) = &mut builder {
            builder.end(thread);
        }
        if let Some(chunk) = stream.as_mut().and_then(Stream::flush) {
            sections.write(&chunk)?;
        }
    }
    if let Some(builder) = builder {
        builder.finish(&mut sections)?;
    }
    write_around(&mut sections, around.flow, &ran, around.times)?;
    Ok(Imported { n_symbols, n_bytes: sections.finish()? })
}
