//! `show BINARY loops`: every loop of every function, outer ones before those inside.

use crate::{Table, View, address};
use serde::Serialize;

/// All loops.
#[derive(Debug, Serialize)]
pub struct LoopsView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file, as it was named.
    pub binary: String,
    /// The loops.
    pub loops: Vec<LoopRow>,
}

impl LoopsView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.show/1";
}

/// A loop.
#[derive(Debug, Serialize)]
pub struct LoopRow {
    /// The function it is in.
    pub function: String,
    /// Its first header.
    pub header: u64,
    /// All of its headers: more than one if the loop is irreducible.
    pub headers: Vec<u64>,
    /// How many loops hold it, itself too.
    pub depth: u32,
    /// How many blocks it has.
    pub n_blocks: usize,
    /// Its back edges: from, to.
    pub back_edges: Vec<(u64, u64)>,
    /// The edges that leave it: from, to.
    pub exits: Vec<(u64, u64)>,
}

impl View for LoopsView {
    fn table(&self) -> Table {
        let mut t =
            Table::new(&["header>", "depth>", "blocks>", "entries>", "back edges>", "exits>", "function"]);
        for l in &self.loops {
            t.row([
                address(l.header),
                l.depth.to_string(),
                l.n_blocks.to_string(),
                l.headers.len().to_string(),
                l.back_edges.len().to_string(),
                l.exits.len().to_string(),
                l.function.clone(),
            ]);
        }
        t
    }
}
