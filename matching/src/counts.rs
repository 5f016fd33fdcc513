//! A profile's counts by ids: one number a block, edge and entry of one [`Program`], or none.
//!
//! Samples of instructions are taken as they are, by default as in llvm-bolt: dividing them by the length of
//! their blocks made carried profiles worse on two pairs of three.
//!
//! Invariant: unknown is not zero, as in [`Profile`]; what the program has no block or edge for is in `lost`.
//! Where two edges lead from one block to the same other one, the first has the count and the rest none.

pub(crate) mod bolt;
pub(crate) mod branches;
pub(crate) mod evidence;
pub(crate) mod score;

use profile::{Edge as EdgeAt, Lost, Profile};
use program::Program;

/// Counts of one program, as executions: one for each block or edge of it, in the order of their ids; `None`
/// where it is not known.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Executions of a block, by [`program::BlockId`].
    pub blocks: Vec<Option<u64>>,
    /// Executions of an edge, by [`program::EdgeId`].
    pub edges: Vec<Option<u64>>,
    /// Times that a block was entered from outside its function, by [`program::BlockId`].
    pub entries: Vec<Option<u64>>,
    /// What the program has no place for.
    pub lost: Vec<Lost>,
}

impl Measured {
    /// The counts of `profile` at the blocks and edges of `program`.
    pub fn of(program: &Program, profile: &Profile) -> Measured {
        let mut m = Measured {
            blocks: vec![None; program.blocks.len()],
            edges: vec![None; program.edges.len()],
            entries: vec![None; program.blocks.len()],
            lost: Vec::new(),
        };
        let mut lose = |what: String, why: &str, count: u64| {
            m.lost.push(Lost { what, why: why.to_owned(), count });
        };
        for (&at, &count) in &profile.blocks {
            match program.block_from(at) {
                Some(b) => m.blocks[b.index()] = Some(count),
                None => lose(format!("block {at}"), "no block starts here", count),
            }
        }
        for (&at, &count) in &profile.entries {
            match program.block_from(at) {
                Some(b) => m.entries[b.index()] = Some(count),
                None => lose(format!("entry {at}"), "no block starts here", count),
            }
        }
        for (&EdgeAt { from, to }, &count) in &profile.edges {
            let edge = program.block_from(from).zip(program.block_from(to)).and_then(|(a, b)| {
                let mut leaving = program.edge_ids(a);
                leaving.find(|&e| program.edge(e).to == b)
            });
            match edge {
                Some(e) => m.edges[e.index()] = Some(count),
                None => lose(format!("edge {from} -> {to}"), "no such edge", count),
            }
        }
        m
    }

    /// How often a block ran, as far as anything says: its own count, or what enters or leaves it.
    pub fn times(&self, program: &Program) -> Vec<u64> {
        let mut into = vec![0_u64; program.blocks.len()];
        let mut out = vec![0_u64; program.blocks.len()];
        for (i, e) in program.edges.iter().enumerate() {
            let count = self.edges[i].unwrap_or(0);
            into[e.to.index()] = into[e.to.index()].saturating_add(count);
            out[e.from.index()] = out[e.from.index()].saturating_add(count);
        }
        (0..program.blocks.len())
            .map(|b| {
                let known = self.blocks[b].unwrap_or(0).max(self.entries[b].unwrap_or(0));
                known.max(into[b]).max(out[b])
            })
            .collect()
    }
}
