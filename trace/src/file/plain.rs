//! Plain traces: an array of [`Symbol`]s as little-endian u32, one stream, no header. Read and written in
//! bounded memory.

use crate::symbol::Symbol;
use std::io::{self, Read, Write};

/// Why a plain trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PlainError {
    /// It ends within a symbol.
    #[error("it ends within symbol {index}: a plain trace has four bytes a symbol")]
    Torn {
        /// The index of that symbol.
        index: u64,
    },
    /// The system does not give it to us.
    #[error("cannot read symbol {index}")]
    Io {
        /// The index of the first symbol that was not read.
        index: u64,
        /// Why.
        #[source]
        err: io::Error,
    },
}

/// Whether a file that starts with `bytes` can be a plain trace: a function is entered first, of a number
/// that text does not look like.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.first_chunk::<4>().is_some_and(|code| u32::from_le_bytes(*code) >> 24 == 0x40)
}

/// Reads all symbols, a buffer at a time.
///
/// # Errors
/// [`PlainError`], or what `take` says; `E` is the caller's.
pub fn read<E: From<PlainError>>(
    mut from: impl Read,
    mut take: impl FnMut(&[u32]) -> Result<(), E>,
) -> Result<u64, E> {
    let mut bytes = vec![0; 1 << 18];
    let mut symbols = Vec::with_capacity(bytes.len() / 4);
    let (mut kept, mut index) = (0, 0);
    loop {
        let room = bytes.get_mut(kept..).expect("less than a symbol was kept");
        let n = match from.read(room) {
            Ok(0) if kept > 0 => return Err(PlainError::Torn { index }.into()),
            Ok(0) => return Ok(index),
            Ok(n) => n,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(err) => return Err(PlainError::Io { index, err }.into()),
        };
        let whole = (kept + n) / 4 * 4;
        let (words, _none) = bytes.get(..whole).expect("so many were read").as_chunks::<4>();
        symbols.clear();
        symbols.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
        take(&symbols)?;
        index += symbols.len() as u64;
        bytes.copy_within(whole..kept + n, 0);
        kept = kept + n - whole;
    }
}

/// Writes symbols without their marks.
///
/// # Errors
/// If they cannot be written.
pub fn write(to: &mut (impl Write + ?Sized), symbols: &[u32]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(4 * symbols.len());
    symbols.iter().for_each(|&code| bytes.extend(Symbol(code).plain().0.to_le_bytes()));
    to.write_all(&bytes)
}
