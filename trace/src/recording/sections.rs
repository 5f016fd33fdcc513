//! The sections of a recording.
//!
//! ```text
//! EVNT = thread: varint, when it was taken in ns, n words, data: u32, little-endian, under zstd (`event`)
//! CODE = a `ModuleCode`, as postcard under zstd; in the order of their functions' numbers
//! ENDS = (thread: varint, cause)*
//! ```
#![warn(clippy::indexing_slicing)]

use super::module_code::ModuleCode;
use crate::file::varint::{self, Cursor};
use crate::file::{ReadError, Section, Source, section, unpacked_words};
use crate::ids::ThreadId;
use crate::symbol::Cause;

/// What the section of a stream's events is called.
pub const EVENTS: [u8; 4] = *b"EVNT";
/// What the section of a module's code is called.
pub const CODE: [u8; 4] = *b"CODE";
/// What the section of the ends of streams is called.
pub const ENDS: [u8; 4] = *b"ENDS";

/// How hard events are compressed: it must keep up.
const LEVEL: i32 = -1;

/// The section of a module.
///
/// # Errors
/// If there is no memory.
pub fn code_section(code: &ModuleCode) -> std::io::Result<Vec<u8>> {
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
    pub fn section(&mut self, thread: ThreadId, taken_ns: u64, words: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut out = Vec::new();
        varint::put(&mut out, u64::from(thread.0));
        varint::put(&mut out, taken_ns);
        varint::put(&mut out, words.len() as u64 / 4);
        out.extend(self.0.compress(words)?);
        Ok(section(EVENTS, &out))
    }
}

/// The section of how streams ended.
pub fn ends_section(ends: &[(ThreadId, Cause)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (thread, cause) in ends {
        varint::put(&mut out, u64::from(thread.0));
        varint::put(&mut out, *cause as u64);
    }
    section(ENDS, &out)
}

/// The longest head of a section of events.
const HEAD: usize = 30;
/// The most words of one.
const MOST: u64 = 1 << 24;

/// The sections of events with their streams, in the order of the streams.
pub(crate) fn heads(source: &Source) -> Result<Vec<(ThreadId, Section)>, ReadError> {
    let mut all = Vec::new();
    for section in source.sections.iter().filter(|s| s.tag == EVENTS) {
        let head = source.peek(section, HEAD)?;
        let thread = Cursor::new(&head).get_u32().map(ThreadId);
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
pub(crate) fn codes(source: &Source) -> Result<Vec<ModuleCode>, ReadError> {
    let read = |section: &Section| {
        let bytes = source.read(section)?;
        let code = unpacked_words(&bytes);
        let code = code.and_then(|bytes| postcard::from_bytes(&bytes).ok());
        code.ok_or_else(|| source.senseless(CODE, "the code of a module"))
    };
    source.sections.iter().filter(|s| s.tag == CODE).map(read).collect()
}

/// How streams ended, where it is known.
pub(crate) fn ends(source: &Source) -> Result<Vec<(ThreadId, Cause)>, ReadError> {
    let Some(bytes) = source.read_tagged(ENDS)? else { return Ok(Vec::new()) };
    let mut cursor = Cursor::new(&bytes);
    let mut all = Vec::new();
    while let Some(thread) = cursor.get_u32().map(ThreadId) {
        let cause = cursor.get().and_then(Cause::numbered);
        all.push((thread, cause.ok_or_else(|| source.senseless(ENDS, "the ends"))?));
    }
    Ok(all)
}
