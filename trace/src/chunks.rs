//! Chunks: pieces of a stream, 4 MB of symbols each, compressed alone, with the index that lets a search pass
//! over them.
//!
//! ```text
//! section = thread: varint, first index, n symbols, start in ns, entry level, pops, pushes (see
//!           `balance::Levels`), functions (rising: those that are entered or execute a block in it),
//!           the low half of the XXH3 of all that, 4 bytes, since heads are read alone; codec: varint,
//!           data. Older files have sections `CHNK`, without it
//! codec   = 1 zlib, 2 zstd; of the symbols as u32, little-endian
//! behind  = its index, a section `PRS2`; a search does without it if it is not there. thread, first
//!           index, zstd of: n pairs, for each: function − last function (rising), first block, second
//!           block; 1 if there is a survivor, else 0; n functions that stay open: it, and those that are
//!           entered and stay open, for each: its number, n blocks, the last blocks that it executed in
//!           the chunk, eight at most
//! ```
//! A pair is two blocks that one activation executed one after the other, the second of them in the chunk.
//! The survivor is the topmost of the functions that were open before and stay open. Source: Zhang and Gupta,
//! Path Matching in Compressed Control Flow Traces, section 4.3.
#![warn(clippy::indexing_slicing)]

use crate::balance::{Balance, Levels, Unbalanced};
use crate::file::varint::{self, Cursor};
use crate::file::{ReadError, Section, Source, section, unpacked};
use crate::ids::{BlockId, FuncId, ThreadId};
use crate::search::automaton::{Automaton, State};
use crate::symbol::{Step, Symbol};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use xxhash_rust::xxh3::xxh3_64;

/// Symbols in a chunk, but the last of a stream: 4 MB.
pub const CHUNK: usize = 1 << 20;
/// Bytes of a chunk's index before it is packed, at most: of each symbol either a pair and a last block, of
/// four numbers, or an entry, of two; and what is left.
const MOST_INDEX: usize = 20 * CHUNK + 128;
/// What a chunk's section is called.
pub const TAG: [u8; 4] = *b"CHK2";
/// The same without a checksum of its head, as it was written before.
const UNSUMMED: [u8; 4] = *b"CHNK";
/// What the section of its index is called.
const PAIRS: [u8; 4] = *b"PRS2";
/// Blocks that are kept of a function that stays open.
const LAST: usize = 8;

/// How chunks are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// Deflate at level 6, as in the paper.
    Zlib,
    /// Zstandard at level 1: fast enough to keep up with a running program.
    Zstd,
}

/// What is known of a chunk without unpacking it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// Which stream.
    pub thread: ThreadId,
    /// The index of its first symbol in the stream.
    pub first: u64,
    /// How many symbols it has.
    pub n_symbols: usize,
    /// When its first symbol was recorded, in ns since the recording began.
    pub start_ns: u64,
    /// How many functions are open before it.
    pub entry: u32,
    /// What it does to them.
    pub levels: Levels,
    /// The functions that are entered or execute a block in it, rising.
    pub functions: Vec<FuncId>,
}

/// What happens in a chunk, as far as it says whether a search need look into it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Index {
    /// Function, and two blocks that one activation executed one after the other; rising.
    pairs: Vec<(FuncId, BlockId, BlockId)>,
    /// Whether the first of those that stay open was open before.
    has_survivor: bool,
    /// The topmost of the functions that were open before and stay open, and those that are entered and stay
    /// open.
    open: Vec<StaysOpen>,
}

/// A function that is open behind a chunk.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct StaysOpen {
    func: FuncId,
    /// The last blocks that it executed in the chunk, [`LAST`] at most: all, if there are fewer.
    blocks: Vec<BlockId>,
}

/// Makes the chunks of one stream. Knows nothing of others, so each can be fed by its own thread.
pub struct Stream {
    thread: ThreadId,
    codec: Codec,
    balance: Balance,
    buffer: Vec<u8>,
    functions: Vec<FuncId>,
    seen: Vec<u64>,
    first: u64,
    entry: u32,
    start_ns: u64,
    len: usize,
    /// Of each open function, its last block.
    last: Vec<Option<BlockId>>,
    pairs: BTreeSet<(FuncId, BlockId, BlockId)>,
    /// Pairs that came lately: most that come are among them.
    lately: Vec<(FuncId, BlockId, BlockId)>,
}

/// Pairs that are remembered by their hash.
const LATELY: usize = 1 << 10;
/// No pair.
const NO_PAIR: (FuncId, BlockId, BlockId) = (FuncId(u32::MAX), BlockId(0), BlockId(0));

impl Stream {
    /// The stream of `thread`, empty.
    pub fn new(thread: ThreadId, codec: Codec) -> Self {
        let balance = Balance::default();
        let (buffer, functions, seen) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            thread,
            codec,
            balance,
            buffer,
            functions,
            seen,
            first: 0,
            entry: 0,
            start_ns: 0,
            len: CHUNK,
            last: Vec::new(),
            pairs: BTreeSet::new(),
            lately: vec![NO_PAIR; LATELY],
        }
    }

    /// The same, with chunks of `len` symbols, at most [`CHUNK`].
    #[must_use]
    pub fn with_chunks_of(mut self, len: usize) -> Self {
        self.len = len.clamp(1, CHUNK);
        self
    }

    /// Sets the time stamp of the chunk that the next symbol starts, if it starts one.
    pub fn at_ns(&mut self, ns: u64) {
        if self.buffer.is_empty() {
            self.start_ns = ns;
        }
    }

    /// Appends a symbol. When a chunk is full, its section comes back, to be written.
    ///
    /// # Errors
    /// If the symbol cannot stand there; it is not appended.
    #[inline]
    pub fn push(&mut self, symbol: Symbol) -> Result<Option<Vec<u8>>, Unbalanced> {
        let func = self.balance.push(symbol)?;
        if symbol.step() != Step::Exit {
            let (word, bit) = (func.index() / 64, func.0 % 64);
            if self.seen.len() <= word {
                self.seen.resize(word + 1, 0);
            }
            if let Some(seen) = self.seen.get_mut(word).filter(|seen| **seen >> bit & 1 == 0) {
                *seen |= 1 << bit;
                self.functions.push(func);
            }
        }
        match symbol.step() {
            Step::Enter(_) => self.last.push(None),
            Step::Exit => _ = self.last.pop(),
            Step::Block(block) => {
                if let Some(before) = self.last.last_mut().and_then(|last| last.replace(block)) {
                    self.pair((func, before, block));
                }
            }
        }
        self.buffer.extend(symbol.0.to_le_bytes());
        Ok((self.buffer.len() >= 4 * self.len).then(|| self.cut()))
    }

    #[inline]
    fn pair(&mut self, pair: (FuncId, BlockId, BlockId)) {
        let mixed = pair.0.0.wrapping_mul(0x9e37_79b1) ^ pair.1.0.wrapping_mul(0x85eb_ca77) ^ pair.2.0;
        let slot = mixed.wrapping_mul(0x9e37_79b1) as usize >> 7 & (LATELY - 1);
        if let Some(lately) = self.lately.get_mut(slot).filter(|lately| **lately != pair) {
            *lately = pair;
            self.pairs.insert(pair);
        }
    }

    /// Ends the current chunk before it is full: its section, if it has symbols.
    pub fn flush(&mut self) -> Option<Vec<u8>> {
        (!self.buffer.is_empty()).then(|| self.cut())
    }

    /// The open functions of the stream, to end it in order.
    pub fn balance(&self) -> &Balance {
        &self.balance
    }

    fn cut(&mut self) -> Vec<u8> {
        let levels = self.balance.levels_since();
        self.functions.sort_unstable();
        let mut out = Vec::new();
        varint::put(&mut out, u64::from(self.thread.0));
        varint::put(&mut out, self.first);
        varint::put(&mut out, self.buffer.len() as u64 / 4);
        varint::put(&mut out, self.start_ns);
        for n in [self.entry, levels.pops, levels.pushes] {
            varint::put(&mut out, u64::from(n));
        }
        varint::put_rising(&mut out, self.functions.iter().map(|func| func.0));
        out.extend(head_sum(&out));
        varint::put(
            &mut out,
            match self.codec {
                Codec::Zlib => 1,
                Codec::Zstd => 2,
            },
        );
        pack(self.codec, &self.buffer, &mut out);
        let mut index = Vec::new();
        varint::put(&mut index, u64::from(self.thread.0));
        varint::put(&mut index, self.first);
        index.extend(self.index(levels).encode());
        self.pairs.clear();
        self.lately.fill(NO_PAIR);
        self.first = self.balance.n_symbols();
        self.entry = u32::try_from(self.balance.open().len()).unwrap_or(u32::MAX);
        self.buffer.clear();
        self.functions.clear();
        self.seen.clear();
        let mut both = section(TAG, &out);
        both.extend(section(PAIRS, &index));
        both
    }

    fn index(&mut self, levels: Levels) -> Index {
        let n_kept = self.entry.saturating_sub(levels.pops) as usize;
        let has_survivor = n_kept > 0;
        let stays = self.balance.open().iter().skip(n_kept.saturating_sub(1));
        let mut open: Vec<StaysOpen> = stays.map(|&func| StaysOpen { func, blocks: Vec::new() }).collect();
        // Back from the end, through those that stay open; what is called and comes back is passed over.
        let (mut n_left, mut n_closed) = (open.len(), 0_u64);
        let (words, _none) = self.buffer.as_chunks::<4>();
        for word in words.iter().rev() {
            let Some(top) = n_left.checked_sub(1).and_then(|top| open.get_mut(top)) else { break };
            match Symbol(u32::from_le_bytes(*word)).step() {
                Step::Exit => n_closed += 1,
                Step::Enter(_) if n_closed > 0 => n_closed -= 1,
                Step::Enter(_) => n_left -= 1,
                Step::Block(block) if n_closed == 0 && top.blocks.len() < LAST => top.blocks.push(block),
                Step::Block(_) if n_left == 1 && has_survivor && n_closed == 0 => break,
                Step::Block(_) => {}
            }
        }
        open.iter_mut().for_each(|open| open.blocks.reverse());
        Index { pairs: std::mem::take(&mut self.pairs).into_iter().collect(), has_survivor, open }
    }
}

impl Index {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, self.pairs.len() as u64);
        let mut last = 0;
        for &(func, a, b) in &self.pairs {
            varint::put(&mut out, u64::from(func.0 - last));
            last = func.0;
            varint::put(&mut out, u64::from(a.0));
            varint::put(&mut out, u64::from(b.0));
        }
        varint::put(&mut out, u64::from(self.has_survivor));
        varint::put(&mut out, self.open.len() as u64);
        for StaysOpen { func, blocks } in &self.open {
            varint::put(&mut out, u64::from(func.0));
            varint::put(&mut out, blocks.len() as u64);
            blocks.iter().for_each(|&block| varint::put(&mut out, u64::from(block.0)));
        }
        zstd::bulk::compress(&out, 3).expect("level 3 exists, and memory is not an error")
    }

    /// As far as it is of `func`, or not of one function alone.
    fn decode(bytes: &[u8], of: FuncId) -> Option<Self> {
        let bytes = unpacked(bytes, MOST_INDEX)?;
        let mut cursor = Cursor::new(&bytes);
        let (mut this, mut func) = (Self::default(), 0_u32);
        for _ in 0..cursor.get_len()? {
            func = func.checked_add(cursor.get_u32()?)?;
            let pair = (FuncId(func), BlockId(cursor.get_u32()?), BlockId(cursor.get_u32()?));
            if pair.0 == of {
                this.pairs.push(pair);
            }
        }
        this.has_survivor = cursor.get()? == 1;
        for _ in 0..cursor.get_len()? {
            let func = FuncId(cursor.get_u32()?);
            let blocks =
                (0..cursor.get_len()?).map(|_| cursor.get_u32().map(BlockId)).collect::<Option<_>>()?;
            this.open.push(StaysOpen { func, blocks });
        }
        Some(this)
    }

    /// Whether it is of a chunk that does this to the stack.
    fn fits(&self, levels: Levels) -> bool {
        self.open.len() == levels.pushes as usize + usize::from(self.has_survivor)
    }

    /// Whether no occurrence of a plain path ends in the chunk, and the states behind it are known: the pair
    /// that it ends with is not there, or any of its pairs, if no activation `has_begun` two blocks of it
    /// before the chunk; and no block that an activation executed last ends one of the others that are.
    pub fn is_passed(&self, func: FuncId, path: &[BlockId], has_begun: impl FnOnce() -> bool) -> bool {
        let has = |two: &[BlockId]| match *two {
            [a, b] => self.pairs.binary_search(&(func, a, b)).is_ok(),
            _ => true,
        };
        let Some(end) = path.windows(2).next_back() else { return false };
        if has(end) && (path.windows(2).all(has) || has_begun()) {
            return false;
        }
        // What an activation did last says its state, if it is all that matters, or if it follows nothing
        // that does.
        let is_known = |open: &StaysOpen| {
            let is_all = open.blocks.len() < LAST || open.blocks.len() + 1 >= path.len();
            let follows = |two: &[BlockId]| two.last() == open.blocks.last() && has(two);
            is_all || !path.windows(2).any(follows)
        };
        self.open.iter().all(|open| open.func != func || is_known(open))
    }

    /// Brings the states of open functions from before the chunk to behind it; `other` is the state of other
    /// functions.
    pub fn pass(&self, levels: Levels, automaton: &Automaton, other: State, states: &mut Vec<State>) {
        states.truncate(states.len().saturating_sub(levels.pops as usize).max(1));
        let behind = |open: &StaysOpen, before: State| {
            // More may have been executed before what is kept.
            let before = if open.blocks.len() < LAST { before } else { 0 };
            open.blocks.iter().fold(before, |state, &block| automaton.next(state, automaton.class(block)))
        };
        let mut open = self.open.iter();
        if self.has_survivor
            && let (Some(open), Some(top)) = (open.next(), states.last_mut())
            && open.func == automaton.func
            && *top != other
        {
            *top = behind(open, *top);
        }
        states.extend(open.map(|open| if open.func == automaton.func { behind(open, 0) } else { other }));
    }
}

/// The indices of chunks, by thread and first index; those that are there.
pub struct Indices<'s> {
    source: &'s Source,
    sections: BTreeMap<(ThreadId, u64), Section>,
}

/// The longest head of a section of an index.
const INDEX_HEAD: usize = 20;

impl<'s> Indices<'s> {
    /// Those of a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(source: &'s Source) -> Result<Self, ReadError> {
        let mut sections = BTreeMap::new();
        for section in source.sections.iter().filter(|s| s.tag == PAIRS) {
            let head = source.peek(section, INDEX_HEAD)?;
            let mut cursor = Cursor::new(&head);
            let place = cursor.get_u32().map(ThreadId).zip(cursor.get());
            let place = place.ok_or_else(|| source.senseless(PAIRS, "the place of a chunk's index"))?;
            sections.insert(place, *section);
        }
        Ok(Self { source, sections })
    }

    /// That of a chunk, as far as it is asked for one function; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read or makes no sense.
    pub fn get(&self, head: &Head, func: FuncId) -> Result<Option<Index>, ReadError> {
        let Some(section) = self.sections.get(&(head.thread, head.first)) else { return Ok(None) };
        let bytes = self.source.read(section)?;
        let mut cursor = Cursor::new(&bytes);
        let _place = cursor.get_u32().zip(cursor.get());
        let index = Index::decode(cursor.rest(), func).filter(|index| index.fits(head.levels));
        index.map(Some).ok_or_else(|| self.source.senseless(PAIRS, "a chunk's index"))
    }
}

fn pack(codec: Codec, symbols: &[u8], out: &mut Vec<u8>) {
    match codec {
        Codec::Zlib => {
            let mut to = flate2::write::ZlibEncoder::new(out, flate2::Compression::new(6));
            to.write_all(symbols).and_then(|()| to.try_finish()).expect("a vector takes all");
        }
        Codec::Zstd => {
            let packed =
                zstd::bulk::compress(symbols, 1).expect("level 1 exists, and memory is not an error");
            out.extend(packed);
        }
    }
}

/// The heads of all chunks, in the order of the file, each with its section.
///
/// # Errors
/// If one cannot be read or makes no sense.
pub fn heads(source: &Source) -> Result<Vec<(Section, Head)>, ReadError> {
    let mut heads = Vec::new();
    for section in source.sections.iter().filter(|s| s.tag == TAG || s.tag == UNSUMMED) {
        // A head takes some bytes a function; it is rarely longer than this.
        let start = source.peek(section, 16 << 10)?;
        let head = match parse_head(section, &start) {
            Some((head, _)) => head,
            // Longer, or damaged: then it is seen when all of it is read.
            None => {
                let bytes = source.read(section)?;
                parse_head(section, &bytes).ok_or_else(|| source.senseless(TAG, "a chunk's head"))?.0
            }
        };
        heads.push((*section, head));
    }
    Ok(heads)
}

/// The checksum of a head.
fn head_sum(head: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = xxh3_64(head).to_le_bytes();
    [a, b, c, d]
}

/// The head that a section starts with, and what stands behind it.
fn parse_head<'b>(section: &Section, bytes: &'b [u8]) -> Option<(Head, &'b [u8])> {
    let mut cursor = Cursor::new(bytes);
    let head = head(&mut cursor)?;
    let rest = cursor.rest();
    if section.tag == UNSUMMED {
        return Some((head, rest));
    }
    let (sum, behind) = rest.split_first_chunk::<4>()?;
    (head_sum(bytes.get(..bytes.len() - rest.len())?) == *sum).then_some((head, behind))
}

fn head(cursor: &mut Cursor) -> Option<Head> {
    let thread = ThreadId(cursor.get_u32()?);
    let first = cursor.get()?;
    let n_symbols = usize::try_from(cursor.get()?).ok().filter(|&n| n <= CHUNK)?;
    let start_ns = cursor.get()?;
    let entry = cursor.get_u32()?;
    let levels = Levels { pops: cursor.get_u32()?, pushes: cursor.get_u32()? };
    let fits = levels.pops <= entry && levels.pushes as usize <= n_symbols;
    let functions = cursor.get_rising().filter(|_| fits)?.into_iter().map(FuncId).collect();
    Some(Head { thread, first, n_symbols, start_ns, entry, levels, functions })
}

/// Unpacks chunks, one after the other.
#[derive(Default)]
pub struct Unpacker {
    bytes: Vec<u8>,
    symbols: Vec<u32>,
}

impl Unpacker {
    /// The symbols of a chunk.
    ///
    /// # Errors
    /// If it cannot be read, or is not what was written.
    pub fn unpack(&mut self, source: &Source, section: &Section) -> Result<&[u32], ReadError> {
        let payload = source.read(section)?;
        self.unpack_payload(section, &payload).ok_or_else(|| source.senseless(TAG, "a chunk's symbols"))?;
        Ok(&self.symbols)
    }

    fn unpack_payload(&mut self, section: &Section, payload: &[u8]) -> Option<()> {
        let (head, behind) = parse_head(section, payload)?;
        let mut cursor = Cursor::new(behind);
        let codec = cursor.get()?;
        self.bytes.clear();
        // One more, so that what is too long is seen.
        let most = 4 * head.n_symbols as u64 + 1;
        match codec {
            1 => {
                flate2::read::ZlibDecoder::new(cursor.rest()).take(most).read_to_end(&mut self.bytes).ok()?
            }
            2 => zstd::Decoder::new(cursor.rest()).ok()?.take(most).read_to_end(&mut self.bytes).ok()?,
            _ => return None,
        };
        if self.bytes.len() != 4 * head.n_symbols {
            return None;
        }
        self.symbols.clear();
        let (words, _none) = self.bytes.as_chunks::<4>();
        self.symbols.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
        Some(())
    }
}
