//! What `engraft cache` says: what is kept of rewritten programs, and where.

use crate::{Table, View, many, size};
use serde::Serialize;
use std::io::{self, Write};

/// What is kept.
#[derive(Debug, Serialize)]
pub struct CacheView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// Where it is.
    pub folder: String,
    /// How many files.
    pub n_files: usize,
    /// Their length together.
    pub len_bytes: u64,
    /// What is kept at most: what was not used longest goes first.
    pub limit_bytes: u64,
    /// A row a kind.
    pub kinds: Vec<KindView>,
    /// How many files were removed just now.
    pub n_removed: usize,
    /// Their length together.
    pub removed_bytes: u64,
    /// Whether it was to be cleared.
    #[serde(skip)]
    pub is_cleared: bool,
}

/// Files of a kind.
#[derive(Debug, Serialize)]
pub struct KindView {
    /// What they are.
    pub what: &'static str,
    /// How many.
    pub n_files: usize,
    /// Their length together.
    pub len_bytes: u64,
}

impl CacheView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.cache/1";
}

impl View for CacheView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["bytes>", "files>", "what"]);
        for kind in &self.kinds {
            t.row([kind.len_bytes.to_string(), kind.n_files.to_string(), kind.what.to_owned()]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        if self.is_cleared {
            let (files, bytes) = (many(self.n_removed, "file"), size(self.removed_bytes));
            return writeln!(w, "removed {files}, {bytes}, from {}", self.folder);
        }
        let (files, bytes) = (many(self.n_files, "file"), size(self.len_bytes));
        writeln!(w, "{}: {files}, {bytes} of at most {}", self.folder, size(self.limit_bytes))?;
        if self.kinds.is_empty() {
            return Ok(());
        }
        let mut t = Table::new(&["size>", "files>", "what"]);
        for kind in &self.kinds {
            t.row([size(kind.len_bytes), kind.n_files.to_string(), kind.what.to_owned()]);
        }
        writeln!(w)?;
        t.text(w)
    }
}
