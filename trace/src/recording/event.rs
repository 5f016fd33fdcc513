//! Events: what moved code appends while a program runs, and what is needed to tell from them what it did.
//!
//! ```text
//! word  = 0                               nothing: room that was taken and not used
//!       | 1 i frame?                      entry i, the stack pointer's low half behind it if the second bit is set
//!       | 001 i frame                     point i, which control may have come to from any depth
//!       | 000 i                           another point i
//!       | 000 and 29 bits set, key at     a signal came `at` bytes into the moved code of module `key` (0: elsewhere; `at` all ones: in our own
//!                                         code; highest bit set: in a call there); its handler is entered next. `key` all ones: the handler that was entered last
//!                                         returns to where it changed the context to, outside of moved code; all ones but the last bit: the
//!                                         signal whose mark comes before this one ended the thread there
//!       | 000 and 29 bits set, less 1   what came before is left out (GAP); up to the next START, words tell only what is open
//!       | 000 and 29 bits set, less 2   what comes next is kept (START)
//!       | 000 and 29 bits set, less 3   what comes next is another thread's (ANOTHER): not in files, where it has a stream of its own
//!       | 000 and 29 bits set, less 4   what comes next, up to the next START, is not kept; nothing is missing before it (PAUSE)
//! EVNT  = thread: varint, when it was taken in ns, n words, data: u32, little-endian, under zstd
//! CODE  = a `Code`, as postcard under zstd; in the order of their functions' numbers
//! ENDS  = (thread: varint, cause)*
//! ```
//! The bits are the highest of the word. Each module has numbers of its own (`Code::base`). Between two
//! events control goes where only one way leads to what the second tells.
#![warn(clippy::indexing_slicing)]

use crate::file::varint::{self, Cursor};
use crate::file::{ReadError, Section, Source, section, unpacked_words};
use crate::symbol::Cause;
use serde::{Deserialize, Serialize};

/// What the sections are called.
pub const EVENTS: [u8; 4] = *b"EVNT";
/// See there.
pub const CODE: [u8; 4] = *b"CODE";
/// See there.
pub const ENDS: [u8; 4] = *b"ENDS";

/// Bits of an entry's word.
pub const ENTRY: u32 = 1 << 31;
/// Of an entry with a frame.
pub const HAS_FRAME: u32 = 1 << 30;
/// Of a point that control may come to from any depth.
pub const FROM_ANYWHERE: u32 = 1 << 29;
/// Numbers are below this, less one.
pub const LIMIT: u32 = 1 << 29;
/// A signal came; its handler is entered next. Two words follow.
pub const HANDLER: u32 = LIMIT - 1;
/// What came before was not kept: functions may be open of which nothing tells.
pub const GAP: u32 = LIMIT - 2;
/// What stands between a gap and this was not kept either: it tells what is open.
pub const START: u32 = LIMIT - 3;
/// See the head of this file.
pub const ANOTHER: u32 = LIMIT - 4;
/// What comes next is not kept, up to START, but nothing is missing: it comes behind what came before.
pub const PAUSE: u32 = LIMIT - 5;
/// In place of where it came: in our own code.
pub const NO_PLACE: u32 = u32::MAX;
/// Of a place: the signal came in what the call there has come to.
pub const IN_CALL: u32 = 1 << 31;
/// In place of the module: a handler does not return to where its signal came.
pub const REDIRECTED: u32 = u32::MAX;
/// In place of the module: a signal ended the thread; in place of where: 1 if that is what the signal before
/// tells, 0 if nobody knows.
pub const ENDED: u32 = u32::MAX - 1;

/// A module, as far as its events need it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Code {
    /// What its file is known by.
    pub key: u32,
    /// Its file.
    pub path: String,
    /// Its functions; what is called elsewhere by number is one of these.
    pub functions: Vec<Function>,
    /// Functions of other modules that it calls by name.
    pub imports: Vec<String>,
    /// Its entries: function and block.
    pub entries: Vec<(u32, u32)>,
    /// What is added to the numbers of its entries and points, so that those of modules do not overlap.
    pub base: u32,
    /// Its points, from 1.
    pub points: Vec<Point>,
    /// Which block of which function the moved code is of, from some distance from its start on, in order;
    /// `None`: none.
    pub places: Vec<(u32, Option<(u32, u32)>)>,
}

/// A function.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its blocks; none if it is not moved.
    pub blocks: Vec<Block>,
}

/// A block.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Block {
    /// Where it starts.
    pub at: u64,
    /// The point at its start; 0: none.
    pub point: u32,
    /// The point where its branch leaves the function, if it may, and the entry that it comes to, as of
    /// [`End::Tail`].
    pub leaves: Option<(u32, Option<u32>)>,
    /// Whether exceptions come here.
    pub lands: bool,
    /// Whether control may come here from any depth.
    pub is_far: bool,
    /// Whether the process may end in it, by a system call.
    pub may_end: bool,
    /// Whether its jump may lead to other places of the function than those that are known.
    pub is_open: bool,
    /// The stub that it leaves the function for, as of [`Site`].
    pub stub: u32,
    /// Its calls, in order.
    pub calls: Vec<Site>,
    /// How it ends.
    pub end: End,
}

impl Code {
    /// The numbers of its entries and points.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        let n = u32::try_from(self.entries.len().max(self.points.len() + 1)).unwrap_or(u32::MAX);
        self.base..self.base.saturating_add(n)
    }
}

impl Block {
    /// Where it may go in its function, each with the point on the way.
    pub fn ways(&self) -> impl Iterator<Item = (u32, u32)> {
        let ways = if let End::To(ways) = &self.end { ways.as_slice() } else { &[] };
        ways.iter().copied()
    }

    /// The first call from the `from`th on that something tells of.
    pub(crate) fn next_call(&self, from: u32) -> Option<u32> {
        let mut calls = (0..).zip(&self.calls).skip(from as usize);
        calls.find(|(_, site)| site.told != SiteTold::Nothing).map(|(n, _)| n)
    }
}

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Site {
    /// The entry that it comes to, if it is sure that it comes to one that is recorded.
    pub entry: Option<u32>,
    /// The import that it calls, from 1; 0: none.
    pub import: u32,
    /// The stub that it calls that by, a function from 1, of one block; 0: none. Stubs have no events.
    pub stub: u32,
    /// The point behind it; 0: none.
    pub point: u32,
    /// What tells of it.
    pub told: SiteTold,
}

/// What tells that control came to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum SiteTold {
    /// An event at the entry that it comes to, or behind it.
    #[default]
    Event,
    /// The first event of what it comes to, or of what that calls: `entry` is sure, and says nothing.
    Inside,
    /// Nothing: it goes on behind it without an event, whatever it does. It calls nothing that is recorded,
    /// or, if `entry` is sure, a function of one way without events.
    Nothing,
}

/// How a block ends.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum End {
    /// In one of these blocks of the function, each with the point on the way there; 0: none.
    To(Vec<(u32, u32)>),
    /// By a return.
    Return,
    /// By a jump out of the function: to this entry, if it is sure that it comes to one that is recorded.
    Tail(Option<u32>),
    /// Not at all.
    #[default]
    Stop,
}

/// A place of which an event tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Point {
    /// The start of this block of this function.
    Start(u32, u32),
    /// Behind this call of this block of this function.
    Behind(u32, u32, u32),
    /// This block of this function leaves it by its branch.
    Leaves(u32, u32),
    /// On the way from this block of this function to that.
    Way(u32, u32, u32),
}

impl Point {
    /// The function.
    pub fn function(self) -> u32 {
        match self {
            Point::Start(f, _) | Point::Behind(f, ..) | Point::Leaves(f, _) | Point::Way(f, ..) => f,
        }
    }
}

/// How hard events are compressed: it must keep up.
const LEVEL: i32 = -1;

/// The section of a module.
///
/// # Errors
/// If there is no memory.
pub fn code_section(code: &Code) -> std::io::Result<Vec<u8>> {
    let bytes = postcard::to_stdvec(code).map_err(std::io::Error::other)?;
    Ok(section(CODE, &zstd::bulk::compress(&bytes, LEVEL)?))
}

/// Makes sections of events.
pub struct Packer(zstd::bulk::Compressor<'static>);

impl Packer {
    /// With nothing in it.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new() -> std::io::Result<Packer> {
        Ok(Packer(zstd::bulk::Compressor::new(LEVEL)?))
    }

    /// The section of `words` of a stream, taken `taken_ns` after the recording began: what they tell came
    /// before. One without words says that the stream had begun by then.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn section(&mut self, thread: u32, taken_ns: u64, words: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut out = Vec::new();
        varint::put(&mut out, u64::from(thread));
        varint::put(&mut out, taken_ns);
        varint::put(&mut out, words.len() as u64 / 4);
        out.extend(self.0.compress(words)?);
        Ok(section(EVENTS, &out))
    }
}

/// The section of how streams ended.
pub fn ends_section(ends: &[(u32, Cause)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (thread, cause) in ends {
        varint::put(&mut out, u64::from(*thread));
        varint::put(&mut out, *cause as u64);
    }
    section(ENDS, &out)
}

/// The longest head of a section of events.
const HEAD: usize = 30;
/// The most words of one.
const MOST: u64 = 1 << 24;

/// The sections of events with their streams, in the order of the streams.
pub(crate) fn heads(source: &Source) -> Result<Vec<(u32, Section)>, ReadError> {
    let mut all = Vec::new();
    for section in source.sections.iter().filter(|s| s.tag == EVENTS) {
        let head = source.peek(section, HEAD)?;
        let thread = Cursor::new(&head).get_u32();
        all.push((thread.ok_or_else(|| source.senseless(EVENTS, "the stream"))?, *section));
    }
    all.sort_by_key(|(thread, _)| *thread);
    Ok(all)
}

/// How many words a section has.
pub(crate) fn n_words(source: &Source, section: &Section) -> Result<u64, ReadError> {
    let head = source.peek(section, HEAD)?;
    let mut cursor = Cursor::new(&head);
    let n = cursor.get().and(cursor.get()).and(cursor.get());
    n.ok_or_else(|| source.senseless(EVENTS, "how many events there are"))
}

/// The words of a section, and when they were taken.
pub(crate) fn words(source: &Source, section: &Section) -> Result<(Vec<u32>, u64), ReadError> {
    let bytes = source.read(section)?;
    let mut cursor = Cursor::new(&bytes);
    let mut read = || {
        let (_thread, taken_ns) = (cursor.get()?, cursor.get()?);
        let n = cursor.get().filter(|n| *n <= MOST)?;
        let data = zstd::bulk::decompress(cursor.rest(), usize::try_from(4 * n).ok()?).ok()?;
        (data.len() as u64 == 4 * n).then(|| {
            let words = data.chunks_exact(4);
            (words.map(|w| w.first_chunk().map_or(0, |w| u32::from_le_bytes(*w))).collect(), taken_ns)
        })
    };
    read().ok_or_else(|| source.senseless(EVENTS, "the events"))
}

/// The modules.
pub(crate) fn codes(source: &Source) -> Result<Vec<Code>, ReadError> {
    let read = |section: &Section| {
        let bytes = source.read(section)?;
        let code = unpacked_words(&bytes);
        let code = code.and_then(|bytes| postcard::from_bytes(&bytes).ok());
        code.ok_or_else(|| source.senseless(CODE, "the code of a module"))
    };
    source.sections.iter().filter(|s| s.tag == CODE).map(read).collect()
}

/// How streams ended, where it is known.
pub(crate) fn ends(source: &Source) -> Result<Vec<(u32, Cause)>, ReadError> {
    let Some(bytes) = source.read_tagged(ENDS)? else { return Ok(Vec::new()) };
    let mut cursor = Cursor::new(&bytes);
    let mut all = Vec::new();
    while let Some(thread) = cursor.get_u32() {
        let cause = cursor.get().and_then(Cause::numbered);
        all.push((thread, cause.ok_or_else(|| source.senseless(ENDS, "the ends"))?));
    }
    Ok(all)
}
