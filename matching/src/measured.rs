//! A profile's counts by ids: one number a block, edge and entry of one [`Program`], or none.
//!
//! Samples of instructions become executions: a block of twenty instructions has twenty times the samples of one of a single
//! instruction that ran as often. The unit is chosen so that their sum stays what it was.
//!
//! Invariant: unknown is not zero, as in [`Profile`]; what the program has no block or edge for is in `lost`.
//! Where two edges lead from one block to the same other one, the first has the count and the rest none.

use profile::{Edge as EdgeAt, Lost, Profile};
use program::{BlockId, EdgeId, Program};
use std::collections::BTreeMap;

/// Instructions of the blocks that samples were taken in, the mean over executions.
fn mean_len(program: &Program, profile: &Profile) -> f64 {
    let (mut samples, mut executions) = (0.0_f64, 0.0_f64);
    for (&at, &count) in &profile.blocks {
        if let Some(b) = program.block_from(at) {
            samples += count as f64;
            executions += count as f64 / f64::from(program.block(b).n_insns.max(1));
        }
    }
    if executions > 0.0 { samples / executions } else { 1.0 }
}

/// Executions of `block`, in units of `unit` samples; what was seen ran.
fn executions(program: &Program, block: BlockId, samples: u64, unit: f64) -> u64 {
    let count = samples as f64 * unit / f64::from(program.block(block).n_insns.max(1));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded, and never negative"
    )]
    let count = count.round() as u64;
    count.max(u64::from(samples > 0))
}

/// Counts of one program, by id.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Executions of a block, by [`BlockId`].
    pub blocks: Vec<Option<u64>>,
    /// Executions of an edge, by [`EdgeId`].
    pub edges: Vec<Option<u64>>,
    /// Times that a block was entered from outside its function, by [`BlockId`].
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
        let unit = profile.is_of_points().then(|| mean_len(program, profile));
        for (&at, &count) in &profile.blocks {
            match program.block_from(at) {
                Some(b) => {
                    m.blocks[b.index()] = Some(unit.map_or(count, |u| executions(program, b, count, u)))
                }
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

    /// As a profile: what is known, at addresses. `like` gives all that is not a count of a block or edge.
    pub fn to_profile(&self, program: &Program, like: Profile) -> Profile {
        let at = |b: BlockId| program.block(b).start;
        let known = |table: &[Option<u64>]| -> BTreeMap<_, _> {
            let some = table.iter().enumerate().filter_map(|(b, c)| Some((at(BlockId::at(b)), (*c)?)));
            some.collect()
        };
        let mut edges: BTreeMap<EdgeAt, u64> = BTreeMap::new();
        for (i, count) in self.edges.iter().enumerate() {
            if let Some(count) = count {
                let e = program.edge(EdgeId::at(i));
                *edges.entry(EdgeAt { from: at(e.from), to: at(e.to) }).or_default() += count;
            }
        }
        Profile { entries: known(&self.entries), blocks: known(&self.blocks), edges, ..like }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::Exactness;

    /// Blocks that ran equally often have samples as they are long.
    #[test]
    fn samples_become_executions() {
        let program = crate::testing::loops_and_calls();
        let with = |exactness, of: &dyn Fn(&program::Block) -> u64| {
            let blocks = program.blocks.iter().map(|b| (b.start, of(b))).collect();
            Measured::of(&program, &Profile { exactness, blocks, ..Profile::default() })
        };
        let even = with(Exactness::Sampled, &|b| 100 * u64::from(b.n_insns));
        let counts: Vec<u64> = even.blocks.iter().map(|c| c.expect("a count")).collect();
        assert!(counts.iter().all(|c| *c == counts[0] && *c > 0), "{counts:?}");
        let seen = with(Exactness::Sampled, &|b| u64::from(b.n_insns > 3));
        let ran = |b: &program::Block, c: &Option<u64>| (b.n_insns > 3) == (c.expect("a count") > 0);
        assert!(
            program.blocks.iter().zip(&seen.blocks).all(|(b, c)| ran(b, c)),
            "what was seen ran, and no more"
        );
        let exact = with(Exactness::Exact, &|b| u64::from(b.n_insns));
        assert!(program.blocks.iter().zip(&exact.blocks).all(|(b, c)| *c == Some(u64::from(b.n_insns))));
    }
}
