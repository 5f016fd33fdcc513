//! How a trace is kept, as `--store` says it.

use crate::output::Hinted;
use trace::chunks::Codec;
use trace::{Maker, Stores};

/// How a trace is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Store {
    /// A grammar, made by SEQUITUR: small, and searched as it is.
    Packed,
    /// The same, made by RePair: the smallest, but slow, and in memory.
    Archive,
    /// Chunks of 4 MB under zlib, as the paper has them.
    Zlib,
    /// Chunks of 4 MB under zstd, as they are recorded.
    Zstd,
}

/// Which it is to be kept in; a file has one grammar, and chunks of one kind.
///
/// # Errors
/// If two are asked for that exclude each other.
pub fn stores(asked: &[Store]) -> anyhow::Result<Stores> {
    let has = |store| asked.contains(&store);
    for (one, other, what) in
        [(Store::Zlib, Store::Zstd, "zlib and zstd"), (Store::Packed, Store::Archive, "packed and archive")]
    {
        if has(one) && has(other) {
            let hint = "leave one out, or make two files; packed or archive goes with zlib or zstd";
            return Err(Hinted::new(format!("--store {what} exclude each other"), hint).into());
        }
    }
    let chunks = match (has(Store::Zlib), has(Store::Zstd)) {
        (true, _) => Some(Codec::Zlib),
        (_, true) => Some(Codec::Zstd),
        _ => None,
    };
    let grammar = match (has(Store::Archive), has(Store::Packed) || chunks.is_none()) {
        (true, _) => Some(Maker::Repair),
        (_, is_packed) => is_packed.then_some(Maker::Sequitur),
    };
    Ok(Stores { grammar, chunks })
}
