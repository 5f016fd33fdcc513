//! Access to any symbol of a stream: the symbols from it on, and the functions that are open there.
//!
//! On the grammar, a search in the sums of lengths finds where in the sequence the index is, and the lengths
//! of rules lead down to its symbol. From there the grammar is read forwards for the symbols, and backwards
//! for the functions that were entered before and not left: a rule that leaves as many as it enters is one
//! step, whatever its length. Chunks are read from the one that has the index, recordings from their start.

use crate::chunks::{Head, Unpacker};
use crate::file::{ReadError, Section, Source};
use crate::grammar::loaded::Loaded;
use crate::grammar::{Expansion, Sequence};
use crate::ids::{FuncId, ThreadId};
use crate::symbol::{Step, Symbol};
use crate::trace::Trace;

/// Where a symbol stands in the grammar: bodies, each with an index in it, the innermost last.
type GrammarCursor<'a> = Vec<(&'a [u32], usize)>;

/// Where the symbol `index` of a sequence stands; where its end is, if there is none.
fn cursor_at<'a>(loaded: &'a Loaded, sequence: &'a Sequence, mut index: u64) -> GrammarCursor<'a> {
    let ends = loaded.ends(sequence.thread);
    let at = ends.partition_point(|&end| end <= index);
    index -= at.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    let mut place = vec![(sequence.body.as_slice(), at)];
    let n_terminals = loaded.grammar.terminals.len();
    while let Some(rule) =
        place.last().and_then(|(body, at)| (*body.get(*at)? as usize).checked_sub(n_terminals))
    {
        let body = loaded.grammar.body(rule);
        let mut at = 0;
        while let Some(len) = body.get(at).map(|&s| loaded.lengths[s as usize]).filter(|&len| len <= index) {
            index -= len;
            at += 1;
        }
        place.push((body, at));
    }
    place
}

/// Reads a stream forwards.
pub struct Reader<'a>(Forwards<'a>);

enum Forwards<'a> {
    Grammar(Expansion<'a>),
    Chunks { source: &'a Source, rest: Vec<&'a (Section, Head)>, unpacker: Unpacker, passed: usize },
}

impl Reader<'_> {
    /// The next symbols, none when the stream has ended; from a grammar about `about`, else those of a chunk.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn next(&mut self, about: usize) -> Result<&[u32], ReadError> {
        match &mut self.0 {
            Forwards::Grammar(expansion) => Ok(expansion.next(about)),
            Forwards::Chunks { source, rest, unpacker, passed } => {
                let Some((section, _)) = rest.pop() else { return Ok(&[]) };
                let symbols = unpacker.unpack(source, section)?;
                Ok(symbols.get(std::mem::take(passed)..).unwrap_or_default())
            }
        }
    }
}

/// The functions that are open before a symbol, the topmost first.
pub enum Open<'a> {
    /// What stands before it: bodies, the innermost last; and how many entries are matched by exits that were
    /// passed.
    Grammar {
        loaded: &'a Loaded,
        before: Vec<&'a [u32]>,
        matched: u64,
    },
    Chunks {
        source: &'a Source,
        before: Vec<&'a (Section, Head)>,
        symbols: Vec<u32>,
        matched: u64,
    },
}

impl Open<'_> {
    /// The next one further out.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn next(&mut self) -> Result<Option<FuncId>, ReadError> {
        match self {
            Open::Grammar { loaded, before, matched } => Ok(next_in_grammar(loaded, before, matched)),
            Open::Chunks { source, before, symbols, matched } => loop {
                while let Some(code) = symbols.pop() {
                    match Symbol(code).step() {
                        Step::Exit => *matched += 1,
                        Step::Enter(func) if *matched == 0 => return Ok(Some(func)),
                        Step::Enter(_) => *matched -= 1,
                        Step::Block(_) => {}
                    }
                }
                let Some((section, head)) = before.pop() else { return Ok(None) };
                match matched.checked_sub(u64::from(head.levels.pushes)) {
                    Some(rest) => *matched = rest + u64::from(head.levels.pops),
                    None => *symbols = Unpacker::default().unpack(source, section)?.to_vec(),
                }
            },
        }
    }
}

fn next_in_grammar<'a>(loaded: &'a Loaded, before: &mut Vec<&'a [u32]>, matched: &mut u64) -> Option<FuncId> {
    let terminals = &loaded.grammar.terminals;
    while let Some(body) = before.last_mut() {
        let Some((&symbol, rest)) = body.split_last() else {
            before.pop();
            continue;
        };
        *body = rest;
        let levels = loaded.levels[symbol as usize];
        match (matched.checked_sub(u64::from(levels.pushes)), (symbol as usize).checked_sub(terminals.len()))
        {
            (Some(rest), _) => *matched = rest.saturating_add(u64::from(levels.pops)),
            (None, Some(rule)) => before.push(loaded.grammar.body(rule)),
            (None, None) => return terminals.get(symbol as usize).map(|t| t.func),
        }
    }
    None
}

impl Trace {
    /// Reads the stream of a thread from its symbol `from` on; nothing if there is no such thread.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_from(&self, thread: ThreadId, from: u64) -> Result<Reader<'_>, ReadError> {
        if let Some(loaded) = self.load_unless_chunks()? {
            let mut expansion = Expansion::new(&loaded.grammar, &loaded.lengths);
            let sequence = loaded.grammar.sequences.iter().find(|s| s.thread == thread);
            let place = sequence.map_or_else(Vec::new, |sequence| cursor_at(loaded, sequence, from));
            let innermost = place.len().saturating_sub(1);
            expansion.resume(place.iter().enumerate().filter_map(|(i, (body, at))| {
                // Of all but the innermost, the symbol at the index is what the next body is of.
                body.get(at + usize::from(i < innermost)..)
            }));
            return Ok(Reader(Forwards::Grammar(expansion)));
        }
        let (source, chunks) = self.chunks();
        let has_more = |head: &Head| head.first + head.n_symbols as u64 > from;
        let mut rest: Vec<_> = chunks.iter().filter(|(_, h)| h.thread == thread && has_more(h)).collect();
        rest.reverse();
        let first = rest.last().map_or(0, |(_, head)| head.first);
        let passed = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        Ok(Reader(Forwards::Chunks { source, rest, unpacker: Unpacker::default(), passed }))
    }

    /// The functions that are open before the symbol `index` of a stream, the outermost first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn open_at(&self, thread: ThreadId, index: u64) -> Result<Vec<FuncId>, ReadError> {
        let mut before = self.open_before(thread, index)?;
        let mut open = Vec::new();
        while let Some(func) = before.next()? {
            open.push(func);
        }
        open.reverse();
        Ok(open)
    }

    /// The same, from the innermost outwards, as many as are asked for.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn open_before(&self, thread: ThreadId, index: u64) -> Result<Open<'_>, ReadError> {
        if let Some(loaded) = self.load_unless_chunks()? {
            let sequence = loaded.grammar.sequences.iter().find(|s| s.thread == thread);
            let place = sequence.map_or_else(Vec::new, |sequence| cursor_at(loaded, sequence, index));
            let before = place.iter().filter_map(|(body, at)| body.get(..*at)).collect();
            return Ok(Open::Grammar { loaded, before, matched: 0 });
        }
        let (source, chunks) = self.chunks();
        let starts_before = |head: &Head| head.first < index;
        let mut before: Vec<_> =
            chunks.iter().filter(|(_, h)| h.thread == thread && starts_before(h)).collect();
        let mut symbols = Vec::new();
        if let Some((section, head)) = before.pop() {
            symbols = Unpacker::default().unpack(source, section)?.to_vec();
            symbols.truncate(usize::try_from(index - head.first).unwrap_or(usize::MAX));
        }
        Ok(Open::Chunks { source, before, symbols, matched: 0 })
    }
}
