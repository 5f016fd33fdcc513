//! Comparisons as files.
//!
//! ```text
//! file    = "ENGRAFT\0" 1 'D' content checksum     as crate::profile::encoding has it
//! content = zstd of JSON: KeptComparison
//! ```
//! What is kept is what is shown, so it is the views that are written.

use super::read::{bytes, spelt, start};
use crate::output::{self, Hinted};
use anyhow::Context as _;
use profile::encoding::{Cursor, MAGIC, VERSION, sealed};
use std::io::Read as _;
use std::path::Path;
use views::compare::kept::KeptComparison;

/// What the content is.
const KIND: u8 = b'D';
/// How many bytes of JSON are read: a file of ours has much less.
const MOST: u64 = 1 << 30;
const LEVEL: i32 = 3;

/// Whether the file at `path` is a comparison; not if it cannot be read.
pub fn is_comparison(path: &Path) -> bool {
    start(path, MAGIC.len() + 2).is_some_and(|start| start == [MAGIC.as_slice(), &[VERSION, KIND]].concat())
}

/// Writes a comparison to the file `to`.
///
/// # Errors
/// If it cannot be written.
pub fn write_comparison(to: &Path, kept: &KeptComparison) -> anyhow::Result<()> {
    let json = serde_json::to_vec(kept).context("a comparison cannot be told as JSON")?;
    let packed = zstd::encode_all(json.as_slice(), LEVEL).context("memory is written to")?;
    output::data(Some(to), |w| w.write_all(&sealed(KIND, &packed)))
}

/// Reads the comparison at `path`.
///
/// # Errors
/// If it cannot be read, is none, or is damaged.
pub fn comparison(path: &Path) -> anyhow::Result<KeptComparison> {
    let file = bytes(path)?;
    let content = Cursor::open(&file, KIND, "it is no comparison").map(|mut cursor| cursor.rest());
    let unreadable = |why: &dyn std::fmt::Display| {
        let hint = "compare the builds again, with `engraft compare -o`";
        Hinted::new(format!("cannot read {}: {why}", spelt(path)), hint)
    };
    let content = content.map_err(|err| unreadable(&err))?;
    let mut json = Vec::new();
    let mut plain = zstd::Decoder::new(content).map_err(|err| unreadable(&err))?.take(MOST);
    plain.read_to_end(&mut json).map_err(|err| unreadable(&err))?;
    Ok(serde_json::from_slice(&json).map_err(|err| unreadable(&err))?)
}
