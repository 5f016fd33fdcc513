//! Chunks: pieces of a stream, 4 MB of symbols each, compressed alone, with the index that lets a search pass over them.
//!
//! ```text
//! section = thread: varint, first index, n symbols, start in ns, entry level, pops, pushes (see `balance::Levels`),
//!           functions (rising: those that are entered or execute a block in it), codec: varint, data
//! codec   = 1 zlib, 2 zstd; of the symbols as u32, little-endian
//! ```
//! Source: Zhang and Gupta, Path Matching in Compressed Control Flow Traces, section 4.3.
#![warn(clippy::indexing_slicing)]

use crate::balance::{Balance, Levels, Unbalanced};
use crate::file::{ReadError, Section, Source, section};
use crate::symbol::{Step, Symbol};
use crate::varint::{self, Cursor};
use std::io::{Read as _, Write as _};

/// Symbols in a chunk, but the last of a stream: 4 MB.
pub const CHUNK: usize = 1 << 20;
/// What a chunk's section is called.
pub const TAG: [u8; 4] = *b"CHNK";

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
    pub thread: u32,
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
    pub functions: Vec<u32>,
}

/// Makes the chunks of one stream. Knows nothing of others, so each can be fed by its own thread.
pub struct Stream {
    thread: u32,
    codec: Codec,
    balance: Balance,
    buffer: Vec<u8>,
    functions: Vec<u32>,
    seen: Vec<u64>,
    first: u64,
    entry: u32,
    start_ns: u64,
    len: usize,
}

impl Stream {
    /// The stream of `thread`, empty.
    pub fn new(thread: u32, codec: Codec) -> Self {
        let balance = Balance::default();
        let (buffer, functions, seen) = (Vec::new(), Vec::new(), Vec::new());
        Self { thread, codec, balance, buffer, functions, seen, first: 0, entry: 0, start_ns: 0, len: CHUNK }
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
            let (word, bit) = (func as usize / 64, func % 64);
            if self.seen.len() <= word {
                self.seen.resize(word + 1, 0);
            }
            if let Some(seen) = self.seen.get_mut(word).filter(|seen| **seen >> bit & 1 == 0) {
                *seen |= 1 << bit;
                self.functions.push(func);
            }
        }
        self.buffer.extend(symbol.0.to_le_bytes());
        Ok((self.buffer.len() >= 4 * self.len).then(|| self.cut()))
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
        varint::put(&mut out, u64::from(self.thread));
        varint::put(&mut out, self.first);
        varint::put(&mut out, self.buffer.len() as u64 / 4);
        varint::put(&mut out, self.start_ns);
        for n in [self.entry, levels.pops, levels.pushes] {
            varint::put(&mut out, u64::from(n));
        }
        varint::put_rising(&mut out, &self.functions);
        varint::put(
            &mut out,
            match self.codec {
                Codec::Zlib => 1,
                Codec::Zstd => 2,
            },
        );
        pack(self.codec, &self.buffer, &mut out);
        self.first = self.balance.n_symbols();
        self.entry = u32::try_from(self.balance.open().len()).unwrap_or(u32::MAX);
        self.buffer.clear();
        self.functions.clear();
        self.seen.clear();
        section(TAG, &out)
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
    for section in source.sections.iter().filter(|s| s.tag == TAG) {
        // A head takes some bytes a function; it is rarely longer than this.
        let start = source.peek(section, 16 << 10)?;
        let head = match parse_head(&mut Cursor::new(&start)) {
            Some(head) => head,
            None => parse_head(&mut Cursor::new(&source.read(section)?))
                .ok_or_else(|| source.senseless(TAG, "a chunk's head"))?,
        };
        heads.push((*section, head));
    }
    Ok(heads)
}

fn parse_head(cursor: &mut Cursor) -> Option<Head> {
    let thread = cursor.get_u32()?;
    let first = cursor.get()?;
    let n_symbols = usize::try_from(cursor.get()?).ok().filter(|&n| n <= CHUNK)?;
    let start_ns = cursor.get()?;
    let entry = cursor.get_u32()?;
    let levels = Levels { pops: cursor.get_u32()?, pushes: cursor.get_u32()? };
    let fits = levels.pops <= entry && levels.pushes as usize <= n_symbols;
    let functions = cursor.get_rising().filter(|_| fits)?;
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
        self.unpack_payload(&payload).ok_or_else(|| source.senseless(TAG, "a chunk's symbols"))?;
        Ok(&self.symbols)
    }

    fn unpack_payload(&mut self, payload: &[u8]) -> Option<()> {
        let mut cursor = Cursor::new(payload);
        let head = parse_head(&mut cursor)?;
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
