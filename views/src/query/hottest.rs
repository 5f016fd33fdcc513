//! The paths of blocks that were executed most often.

use super::functions::FunctionView;
use crate::{Table, View};
use serde::Serialize;

/// What `--hottest` prints.
#[derive(Debug, Serialize)]
pub struct HottestView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// How many blocks a path has.
    pub length: usize,
    /// The most frequent first.
    pub paths: Vec<PathView>,
}

impl HottestView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.query/1";
}

/// A path that was executed.
#[derive(Debug, Serialize)]
pub struct PathView {
    /// The function that it is in.
    #[serde(flatten)]
    pub function: FunctionView,
    /// Its blocks, as the trace numbers them.
    pub blocks: Vec<u32>,
    /// How often it ran.
    pub count: u64,
}

/// Blocks as a path has them.
pub fn blocks(blocks: &[u32]) -> String {
    blocks.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

impl View for HottestView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["count>", "function", "path"]);
        for p in &self.paths {
            t.row([p.count.to_string(), p.function.cell(), blocks(&p.blocks)]);
        }
        t
    }
}
