//! A trace file, opened: what is in it, its streams, and searches by every scheme that its contents allow.

use crate::chunks::{self, Head, Indices, Unpacker};
use crate::decode::{Decoder, Faults, Forked, ModuleCodes};
use crate::file::flow::{self, FlowGraphs};
use crate::file::names::Names;
use crate::file::times::{self, Times};
use crate::file::varint::Cursor;
use crate::file::{ReadError, Section, Source, unpacked_words};
use crate::grammar::coder;
use crate::grammar::loaded::Loaded;
use crate::grammar::segments::{self, Wanted};
use crate::grammar::{Expansion, PIECE};
use crate::ids::{FuncId, ThreadId};
use crate::recording::sections;
use crate::search::automaton::{Automaton, TooWide};
use crate::search::callers;
use crate::search::calls;
use crate::search::columns::{self, Column};
use crate::search::compressed;
use crate::search::path::Path;
use crate::search::scan::Scan;
use crate::search::{Found, Scheme, Want};
use crate::symbol::Cause;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub(crate) mod access;
pub mod part;
mod stats;

pub use stats::Stats;

/// What the section of names is called.
pub(crate) const NAMES: [u8; 4] = *b"NAME";
/// The section of what was wrong with the events that a file was made of: `n_astray n_lost`, as varints; not
/// there if nothing was.
pub(crate) const FAULTS: [u8; 4] = *b"FLTS";

/// A trace file.
pub struct Trace {
    source: Source,
    chunks: Vec<(Section, Head)>,
    events: Vec<(ThreadId, Section)>,
    codes: OnceLock<ModuleCodes>,
    has_grammar: bool,
    has_columns: bool,
    loaded: OnceLock<Loaded>,
    columns: OnceLock<Vec<u8>>,
    decoded: Mutex<BTreeMap<FuncId, Arc<Column>>>,
    /// What was wrong with events, when they were read last.
    faults: Mutex<Faults>,
}

/// A stream of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Its number.
    pub thread: ThreadId,
    /// How many symbols it has.
    pub n_symbols: u64,
}

/// Why a search gives no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file does not hold what the scheme works on.
    #[error("scheme {} works on {needs}, which the file does not have", *scheme as u8)]
    Missing {
        /// Which scheme.
        scheme: Scheme,
        /// What it works on.
        needs: &'static str,
    },
    /// The path goes through calls, which the scheme does not follow.
    #[error("scheme {} does not follow a path through calls", *scheme as u8)]
    Calls {
        /// Which scheme.
        scheme: Scheme,
    },
    /// The path needs too many states.
    #[error(transparent)]
    Wide(#[from] TooWide),
}

impl Trace {
    /// Opens a file. Reads no more than where things are.
    ///
    /// # Errors
    /// If it is no trace, or its chunks do not follow each other. A cut file is no error: [`Trace::cut`]
    /// tells.
    pub fn open(file: File) -> Result<Self, ReadError> {
        let source = Source::open(file)?;
        let mut chunks = chunks::heads(&source)?;
        chunks.sort_by_key(|(_, head)| (head.thread, head.first));
        let mut last: Option<&Head> = None;
        for (_, head) in &chunks {
            let before = last.filter(|last| last.thread == head.thread);
            let behind = |b: &Head| {
                let first = b.first.checked_add(b.n_symbols as u64)?;
                Some((first, b.entry.checked_sub(b.levels.pops)?.checked_add(b.levels.pushes)?))
            };
            if before.map_or(Some((0, 0)), behind) != Some((head.first, head.entry)) {
                return Err(source.senseless(chunks::TAG, "the order of chunks"));
            }
            last = Some(head);
        }
        let has = |tag| source.sections.iter().any(|s| s.tag == tag);
        let (has_grammar, has_columns) = (has(coder::GRAMMAR), has(columns::COLUMNS));
        let events = sections::heads(&source)?;
        let faults = match source.read_tagged(FAULTS)? {
            None => Faults::default(),
            Some(bytes) => {
                let mut from = Cursor::new(&bytes);
                let read = from.get().zip(from.get());
                let (n_astray, n_lost) = read.ok_or_else(|| source.senseless(FAULTS, "the numbers"))?;
                Faults { n_astray, n_lost }
            }
        };
        Ok(Self {
            source,
            chunks,
            events,
            codes: OnceLock::new(),
            has_grammar,
            has_columns,
            loaded: OnceLock::new(),
            columns: OnceLock::new(),
            decoded: Mutex::default(),
            faults: Mutex::new(faults),
        })
    }

    /// Where the file is cut off, if it is.
    pub fn cut(&self) -> Option<u64> {
        self.source.cut
    }

    /// Whether it is cut off there since what comes next is damaged, and not since the file ends.
    pub fn is_damaged(&self) -> bool {
        self.source.is_damaged
    }

    /// How many bytes stand behind its end, which are no part of it.
    pub fn n_behind(&self) -> u64 {
        self.source.n_behind
    }

    /// What was wrong with the events of a recording, as far as it was read, or of that which a file was made
    /// of.
    pub fn faults(&self) -> Faults {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names that came with it; empty if none did.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn names(&self) -> Result<Names, ReadError> {
        let Some(packed) = self.source.read_tagged(NAMES)? else {
            return if self.events.is_empty() { Ok(Names::default()) } else { Ok(Names::of(self.codes()?)) };
        };
        let bytes = unpacked_words(&packed);
        bytes.and_then(|bytes| Names::decode(&bytes)).ok_or_else(|| self.source.senseless(NAMES, "the names"))
    }

    /// Whether no symbol of any stream is there, as in a file that was cut off early.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn is_empty(&self) -> Result<bool, ReadError> {
        if !self.chunks.is_empty() || self.source.sections.iter().any(|section| section.tag == coder::GRAMMAR)
        {
            return Ok(false);
        }
        for (_, section) in &self.events {
            if sections::n_words(&self.source, section)? > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Its streams, by number.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn threads(&self) -> Result<Vec<Thread>, ReadError> {
        if let (true, Some(loaded)) = (self.chunks.is_empty(), self.load()?) {
            let thread =
                |s: &crate::grammar::Sequence| Thread { thread: s.thread, n_symbols: loaded.n_symbols(s) };
            return Ok(loaded.grammar.sequences.iter().map(thread).collect());
        }
        let mut threads: Vec<Thread> = Vec::new();
        self.read_events(|thread, symbols| {
            let n_symbols = symbols.len() as u64;
            match threads.last_mut().filter(|last| last.thread == thread) {
                Some(last) => last.n_symbols += n_symbols,
                None => threads.push(Thread { thread, n_symbols }),
            }
            ControlFlow::<()>::Continue(())
        })?;
        for (_, head) in &self.chunks {
            let n_symbols = head.n_symbols as u64;
            match threads.last_mut().filter(|last| last.thread == head.thread) {
                Some(last) => last.n_symbols += n_symbols,
                None => threads.push(Thread { thread: head.thread, n_symbols }),
            }
        }
        Ok(threads)
    }

    /// Reads all streams, one after the other, piece by piece, until `take(thread, symbols)` has enough.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn read<B>(
        &self,
        mut take: impl FnMut(ThreadId, &[u32]) -> ControlFlow<B>,
    ) -> Result<Option<B>, ReadError> {
        if let (true, Some(loaded)) = (self.chunks.is_empty(), self.load()?) {
            for sequence in &loaded.grammar.sequences {
                let mut expansion = Expansion::new(&loaded.grammar, &loaded.lengths);
                expansion.start(&sequence.body);
                loop {
                    let symbols = expansion.next(PIECE);
                    if symbols.is_empty() {
                        break;
                    }
                    if let ControlFlow::Break(enough) = take(sequence.thread, symbols) {
                        return Ok(Some(enough));
                    }
                }
            }
            return Ok(None);
        }
        if let Some(enough) = self.read_events(&mut take)? {
            return Ok(Some(enough));
        }
        let mut unpacker = Unpacker::default();
        for (section, head) in &self.chunks {
            if let ControlFlow::Break(enough) = take(head.thread, unpacker.unpack(&self.source, section)?) {
                return Ok(Some(enough));
            }
        }
        Ok(None)
    }

    /// Searches, by the fastest scheme if none is named; says by which it was done. Columns count, and say
    /// what does not occur; where something is, scheme 4 finds.
    ///
    /// # Errors
    /// If the file cannot be read, or does not hold what the scheme works on.
    pub fn search(
        &self,
        path: &Automaton,
        want: Want,
        scheme: Option<Scheme>,
    ) -> Result<(Found, Scheme), SearchError> {
        let fastest = match want {
            Want::Count if self.has_columns => Scheme::Columns,
            _ if self.has_grammar => Scheme::Segments,
            _ => Scheme::Chunks,
        };
        self.search_by(path, want, scheme.unwrap_or(fastest))
    }

    fn search_by(
        &self,
        path: &Automaton,
        want: Want,
        scheme: Scheme,
    ) -> Result<(Found, Scheme), SearchError> {
        let found = match scheme {
            Scheme::Unpacked | Scheme::Chunks => {
                let mut found = Found::default();
                let skips = scheme == Scheme::Chunks;
                self.each_of(path, want.thread(), skips, |thread, at| found.note(want, thread, at))?;
                found
            }
            Scheme::Grammar | Scheme::Segments => {
                let loaded = self.load()?.ok_or(SearchError::Missing { scheme, needs: "a grammar" })?;
                compressed::search(loaded, path, want, scheme == Scheme::Segments)
            }
            Scheme::Columns => {
                let column =
                    self.column(path.func)?.ok_or(SearchError::Missing { scheme, needs: "columns" })?;
                let count = column.count(path);
                // Columns know how often, not where: that is looked up where it is known.
                match want {
                    Want::Count => Found { count, ..Found::default() },
                    _ if count == 0 => Found::default(),
                    _ => return self.search_by(path, want, Scheme::Segments),
                }
            }
        };
        Ok((found, scheme))
    }

    /// Searches a path, which may go through calls; else as [`Trace::search`].
    ///
    /// # Errors
    /// If the file cannot be read, does not hold what the scheme works on, or the scheme does not follow
    /// calls.
    pub fn search_path(
        &self,
        path: &Path,
        want: Want,
        scheme: Option<Scheme>,
    ) -> Result<(Found, Scheme), SearchError> {
        if !path.has_calls() {
            return self.search(&Automaton::new(path)?, want, scheme);
        }
        let mut found = Found::default();
        let scheme = self.each(path, want.thread(), scheme, |thread, at| found.note(want, thread, at))?;
        Ok((found, scheme))
    }

    /// Tells thread and index of each occurrence of a path, in one stream or all, as long as `note` wants
    /// more; by scheme 1 or 3.
    pub(crate) fn each(
        &self,
        path: &Path,
        thread: Option<ThreadId>,
        scheme: Option<Scheme>,
        mut note: impl FnMut(ThreadId, u64) -> bool,
    ) -> Result<Scheme, SearchError> {
        let scheme = scheme.unwrap_or(Scheme::Chunks);
        let skips = scheme == Scheme::Chunks;
        match scheme {
            Scheme::Unpacked | Scheme::Chunks if path.has_calls() => {
                self.follow(path, thread, skips, |thread, index, _| note(thread, index))?;
            }
            Scheme::Unpacked | Scheme::Chunks => {
                self.each_of(&Automaton::new(path)?, thread, skips, note)?;
            }
            _ if path.has_calls() => return Err(SearchError::Calls { scheme }),
            Scheme::Columns => return Err(SearchError::Missing { scheme, needs: "columns" }),
            _ => return Err(SearchError::Missing { scheme, needs: "a grammar" }),
        }
        Ok(scheme)
    }

    fn each_of(
        &self,
        path: &Automaton,
        thread: Option<ThreadId>,
        skips: bool,
        note: impl FnMut(ThreadId, u64) -> bool,
    ) -> Result<(), ReadError> {
        match self.load_unless_chunks()? {
            Some(loaded) => compressed::search_expanded(loaded, path, thread, skips, note),
            None => self.search_chunks(path, thread, skips, note)?,
        }
        Ok(())
    }

    /// How often a path occurs by who called the function: `None` stands for no caller, where a stream starts
    /// in it.
    ///
    /// # Errors
    /// If the file cannot be read, or the path is too wide.
    pub fn count_by_caller(&self, path: &Path) -> Result<BTreeMap<Option<FuncId>, u64>, SearchError> {
        if let (false, Some(loaded)) = (path.has_calls(), self.load()?) {
            return Ok(callers::of_grammar(loaded, &Automaton::new(path)?));
        }
        let mut counts = BTreeMap::new();
        // What is passed over has callers, too.
        self.follow(path, None, false, |_, _, caller| {
            *counts.entry(caller).or_insert(0) += 1;
            true
        })?;
        Ok(counts)
    }

    /// Follows a path through calls; `found` is told the thread, the index, and the caller of each
    /// occurrence.
    fn follow(
        &self,
        path: &Path,
        thread: Option<ThreadId>,
        skips: bool,
        mut found: impl FnMut(ThreadId, u64, Option<FuncId>) -> bool,
    ) -> Result<(), ReadError> {
        let mut scan = calls::Scan::new(path);
        let functions = scan.functions();
        let is_asked = |of: ThreadId| thread.is_none_or(|asked| asked == of);
        if let Some(loaded) = self.load_unless_chunks()? {
            let sequences = loaded.grammar.sequences.iter().zip(&loaded.segments.of);
            for (sequence, segments) in sequences.filter(|(s, _)| is_asked(s.thread)) {
                scan.start();
                let mut expansion = Expansion::new(&loaded.grammar, &loaded.lengths);
                let mut start = 0;
                for segment in segments {
                    expansion.start(&sequence.body[start..segment.end]);
                    start = segment.end;
                    if skips
                        && functions.iter().all(|&func| segment.is_passed(&Wanted::Function, func, || true))
                    {
                        scan.pass(segment.n_symbols, segment.levels);
                        continue;
                    }
                    loop {
                        let symbols = expansion.next(PIECE);
                        if symbols.is_empty() {
                            break;
                        }
                        if !scan.feed(symbols, |index, caller| found(sequence.thread, index, caller)) {
                            return Ok(());
                        }
                    }
                }
            }
            return Ok(());
        }
        let mut of = None;
        self.read_events(|thread, symbols| {
            if !is_asked(thread) {
                return ControlFlow::Continue(());
            }
            if of.replace(thread) != Some(thread) {
                scan.start();
            }
            match scan.feed(symbols, |index, caller| found(thread, index, caller)) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        let (mut unpacker, mut of) = (Unpacker::default(), None);
        for (section, head) in self.chunks.iter().filter(|(_, head)| is_asked(head.thread)) {
            if of.replace(head.thread) != Some(head.thread) {
                scan.start();
            }
            if skips && functions.iter().all(|func| head.functions.binary_search(func).is_err()) {
                scan.pass(head.n_symbols as u64, head.levels);
                continue;
            }
            let symbols = unpacker.unpack(&self.source, section)?;
            if !scan.feed(symbols, |index, caller| found(head.thread, index, caller)) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Decodes the grammar, if there is one and it has not been done; searches by schemes 2 and 4 do it
    /// themselves.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn load_grammar(&self) -> Result<(), ReadError> {
        self.load().map(drop)
    }

    fn load(&self) -> Result<Option<&Loaded>, ReadError> {
        if self.loaded.get().is_none() {
            let Some(bytes) = self.source.read_tagged(coder::GRAMMAR)? else { return self.without_grammar() };
            let segments = self.source.read_tagged(segments::SEGMENTS)?;
            let loaded = Loaded::read(&bytes, segments.as_deref());
            let loaded = loaded.map_err(|(tag, what)| self.source.senseless(tag, what))?;
            let _set_meanwhile = self.loaded.set(loaded);
        }
        Ok(self.loaded.get())
    }

    /// The error for symbols of which none are there; `None` if the file is whole.
    pub fn ends_before_symbols(&self) -> Option<ReadError> {
        self.source.ends_before("its first symbols are complete")
    }

    /// That there is no grammar is an error if the file is cut off before anything that it tells.
    fn without_grammar(&self) -> Result<Option<&Loaded>, ReadError> {
        match self.ends_before_symbols() {
            Some(err) if self.chunks.is_empty() && self.events.is_empty() => Err(err),
            _ => Ok(None),
        }
    }

    /// The column of a function; `None` if the file has none at all.
    pub(crate) fn column(&self, func: FuncId) -> Result<Option<Arc<Column>>, ReadError> {
        let decoded = || self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(column) = decoded().get(&func) {
            return Ok(Some(Arc::clone(column)));
        }
        let Some(bytes) = self.column_bytes()? else { return Ok(None) };
        let column = columns::read(bytes, func);
        let column = Arc::new(column.ok_or_else(|| self.source.senseless(columns::COLUMNS, "the columns"))?);
        decoded().insert(func, Arc::clone(&column));
        Ok(Some(column))
    }

    /// The functions that have columns; `None` if the file has none at all.
    pub(crate) fn column_functions(&self) -> Result<Option<Vec<FuncId>>, ReadError> {
        let Some(bytes) = self.column_bytes()? else { return Ok(None) };
        columns::functions(bytes)
            .map(Some)
            .ok_or_else(|| self.source.senseless(columns::COLUMNS, "the columns"))
    }

    fn column_bytes(&self) -> Result<Option<&Vec<u8>>, ReadError> {
        if self.columns.get().is_none() {
            let Some(bytes) = self.source.read_tagged(columns::COLUMNS)? else { return Ok(None) };
            let _set_meanwhile = self.columns.set(bytes);
        }
        Ok(self.columns.get())
    }

    pub(crate) fn load_unless_chunks(&self) -> Result<Option<&Loaded>, ReadError> {
        if self.chunks.is_empty() { self.load() } else { Ok(None) }
    }

    /// Whether it has a grammar.
    pub(crate) fn has_grammar(&self) -> bool {
        self.has_grammar
    }

    /// Its chunks, by thread and place, and what to read them from.
    pub(crate) fn chunks(&self) -> (&Source, &[(Section, Head)]) {
        (&self.source, &self.chunks)
    }

    /// Schemes 1 and 3.
    fn search_chunks(
        &self,
        path: &Automaton,
        thread: Option<ThreadId>,
        skips: bool,
        mut note: impl FnMut(ThreadId, u64) -> bool,
    ) -> Result<(), ReadError> {
        let is_asked = |of: ThreadId| thread.is_none_or(|asked| asked == of);
        let (mut scan, mut thread) = (Scan::new(path), None);
        self.read_events(|of, symbols| {
            if !is_asked(of) {
                return ControlFlow::Continue(());
            }
            if thread.replace(of) != Some(of) {
                scan = Scan::new(path);
            }
            match scan.feed(symbols, |at| note(of, at)) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        let mut unpacker = Unpacker::default();
        let indices = path
            .plain()
            .filter(|blocks| skips && blocks.len() > 1)
            .map(|blocks| Ok((blocks, Indices::of(&self.source)?)));
        let indices = indices.transpose()?;
        let (mut scan, mut thread) = (Scan::new(path), None);
        for (section, head) in self.chunks.iter().filter(|(_, head)| is_asked(head.thread)) {
            if thread.replace(head.thread) != Some(head.thread) {
                scan = Scan::new(path);
            }
            if skips && head.functions.binary_search(&path.func).is_err() {
                scan.skip(head.n_symbols as u64, head.levels);
            } else if let Some((blocks, indices)) = &indices
                && let Some(index) = indices.get(head, path.func)?
                && index.is_passed(path.func, blocks, || scan.has_begun())
            {
                scan.pass(head.n_symbols as u64, |other, states| {
                    index.pass(head.levels, path, other, states);
                });
            } else if !scan.feed(unpacker.unpack(&self.source, section)?, |at| note(head.thread, at)) {
                break;
            }
        }
        Ok(())
    }

    /// Whether it is as it was recorded: events, from which symbols are told one after the other.
    pub fn is_recording(&self) -> bool {
        !self.events.is_empty()
    }

    /// The modules of a recording; none, if it is another trace.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn codes(&self) -> Result<&ModuleCodes, ReadError> {
        if self.codes.get().is_none() {
            let _set_meanwhile = self.codes.set(ModuleCodes::new(sections::codes(&self.source)?));
        }
        Ok(self.codes.get_or_init(ModuleCodes::default))
    }

    /// When its symbols were executed; `None` if that is not known.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn times(&self) -> Result<Option<Times>, ReadError> {
        if !self.is_recording() {
            let Some(bytes) = self.source.read_tagged(times::TIMES)? else { return Ok(None) };
            let times = Times::decode(&bytes);
            return times.map(Some).ok_or_else(|| self.source.senseless(times::TIMES, "the times"));
        }
        let mut times = Times::default();
        self.read_timed(&mut times, |_, _| ControlFlow::<()>::Continue(()))?;
        Ok(Some(times))
    }

    /// What it knows of the program's control flow; nothing, if it was made of a plain trace.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn flow(&self) -> Result<FlowGraphs, ReadError> {
        if self.is_recording() {
            return Ok(FlowGraphs::of(self.codes()?));
        }
        let Some(packed) = self.source.read_tagged(flow::FLOW)? else { return Ok(FlowGraphs::default()) };
        let bytes = unpacked_words(&packed);
        let flow = bytes.and_then(|bytes| FlowGraphs::decode(&bytes));
        flow.ok_or_else(|| self.source.senseless(flow::FLOW, "the control flow"))
    }

    /// What its events tell, stream by stream.
    fn read_events<B>(
        &self,
        mut take: impl FnMut(ThreadId, &[u32]) -> ControlFlow<B>,
    ) -> Result<Option<B>, ReadError> {
        self.read_stamped(|thread, symbols, _| match symbols.is_empty() {
            true => ControlFlow::Continue(()),
            false => take(thread, symbols),
        })
    }

    /// The same; with the last symbols of a chunk of events, when it was taken, in ns.
    pub(crate) fn read_stamped<B>(
        &self,
        mut take: impl FnMut(ThreadId, &[u32], Option<u64>) -> ControlFlow<B>,
    ) -> Result<Option<B>, ReadError> {
        if self.events.is_empty() {
            return Ok(None);
        }
        let mut faults = Faults::default();
        let (codes, ends) = (self.codes()?, sections::ends(&self.source)?);
        let mut symbols = Vec::new();
        let mut forked = Forked::default();
        for stream in self.events.chunk_by(|a, b| a.0 == b.0) {
            let mut decoder = Decoder::new(codes).behind(std::mem::take(&mut forked));
            let thread = stream.first().map_or(ThreadId(0), |s| s.0);
            for (_, section) in stream {
                let (words, taken_ns) = sections::words(&self.source, section)?;
                decoder.begin_chunk();
                // A word of events may be many symbols.
                for piece in words.chunks(PIECE / 64) {
                    symbols.clear();
                    decoder.push(piece, &mut symbols);
                    if let ControlFlow::Break(enough) = take(thread, &symbols, None) {
                        return Ok(Some(enough));
                    }
                }
                if let ControlFlow::Break(enough) = take(thread, &[], Some(taken_ns)) {
                    return Ok(Some(enough));
                }
            }
            symbols.clear();
            let cause = ends.iter().find(|end| end.0 == thread).map_or(Cause::RecordingEnd, |end| end.1);
            faults.n_astray += decoder.faults.n_astray;
            faults.n_lost += decoder.faults.n_lost;
            // One thread alone says less than all of them.
            let mut known = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
            known.n_astray = known.n_astray.max(faults.n_astray);
            known.n_lost = known.n_lost.max(faults.n_lost);
            forked = decoder.finish(cause, &mut symbols);
            if let ControlFlow::Break(enough) = take(thread, &symbols, None) {
                return Ok(Some(enough));
            }
        }
        Ok(None)
    }

    /// Reads all streams, as [`Trace::read`]; of a recording, notes in `times` what it tells.
    pub(crate) fn read_timed<B>(
        &self,
        times: &mut Times,
        mut take: impl FnMut(ThreadId, &[u32]) -> ControlFlow<B>,
    ) -> Result<Option<B>, ReadError> {
        if !self.is_recording() {
            return self.read(take);
        }
        let (mut of, mut index) = (None, 0);
        self.read_stamped(|thread, symbols, taken_ns| {
            if of.replace(thread) != Some(thread) {
                index = 0;
            }
            index += symbols.len() as u64;
            taken_ns.into_iter().for_each(|ns| times.taken(thread, index, ns));
            if symbols.is_empty() { ControlFlow::Continue(()) } else { take(thread, symbols) }
        })
    }
}

#[cfg(test)]
mod tests;
