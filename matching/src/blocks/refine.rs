//! Matching by hashes that hold what surrounds a block: its neighbours' hashes, their neighbours', and so on.
//!
//! Blocks that are unique with their surroundings are matched first, by the widest surroundings; so a short
//! block that occurs often is told apart by where it stands, not by how far down the function it is.
//!
//! Source: Weisfeiler and Lehman, 1968 (colour refinement), on hashes at BMAT's level 1 with structure
//! offsets.

use super::body::{Body, Link, NONE, count};
use super::pair::Pair;
use crate::hash::combine;
use crate::relation::{BlockMethod, Level};

/// How many steps away the surroundings reach at most.
const ROUNDS: usize = 3;
/// Blocks of no more instructions are not known by their nearest neighbours alone.
const SHORT: u32 = 2;
/// Neighbours of switches and joins wider than this are left to other passes.
const WIDE: usize = 16;

/// Matches blocks that are unique with their surroundings, the widest first.
pub(crate) fn pass(pair: &mut Pair<'_>) {
    let old = rounds(pair.old);
    let new = rounds(pair.new);
    for (round, (x, y)) in old.iter().zip(&new).enumerate().rev() {
        let least = if round == 0 { SHORT } else { 0 };
        let mut all: Vec<(u64, bool, u32)> = Vec::with_capacity(x.len() + y.len());
        all.extend(
            (0..).zip(x).filter(|(i, _)| pair.of_old[*i as usize] == NONE).map(|(i, &h)| (h, false, i)),
        );
        all.extend(
            (0..).zip(y).filter(|(i, _)| pair.of_new[*i as usize] == NONE).map(|(i, &h)| (h, true, i)),
        );
        all.sort_unstable();
        for same in all.chunk_by(|a, b| a.0 == b.0) {
            if let [(_, false, a), (_, true, b)] = same
                && pair.old.hash(*a).n_insns > least
                && pair.allows(*a, *b)
            {
                pair.set(*a, *b, BlockMethod::Unique(Level::L1), 0.98);
            }
        }
        spread(pair);
    }
}

/// From matched blocks on, matches neighbours of the same hash by the same kind of edge, where there is only
/// one such on each side.
fn spread(pair: &mut Pair<'_>) {
    let mut work: Vec<(u32, u32)> = pair.matched().collect();
    while let Some((a, b)) = work.pop() {
        for forward in [true, false] {
            let (left, right) = if forward {
                (pair.old.successors(a), pair.new.successors(b))
            } else {
                (pair.old.predecessors(a), pair.new.predecessors(b))
            };
            if left.len() > WIDE || right.len() > WIDE {
                continue;
            }
            for r in right {
                let fits = |x: &Link, y: &Link| {
                    x.kind == y.kind
                        && pair.old.hash(x.to).fine == pair.new.hash(y.to).fine
                        && pair.is_free(x.to, y.to)
                };
                let mut olds = left.iter().filter(|l| fits(l, r));
                let (Some(l), None) = (olds.next(), olds.next()) else { continue };
                if right.iter().filter(|y| fits(l, y)).count() == 1 {
                    let (x, y) = (l.to, r.to);
                    pair.set(x, y, BlockMethod::Propagated(Level::L1), 0.98);
                    work.push((x, y));
                }
            }
        }
    }
}

/// Per round, the hash of each block with its surroundings.
fn rounds(body: &Body) -> Vec<Vec<u64>> {
    // A block that says nothing by itself starts from its kind of end only, so that surroundings decide.
    let mut hashes: Vec<u64> = body.hash.iter().map(|h| h.fine).collect();
    let mut out = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let next = (0..count(hashes.len()))
            .map(|i| {
                let mut hash = combine(hashes[i as usize], 1);
                // Of a dispatch over many labels, one changed handler would change all blocks: what is wide
                // says nothing.
                let successors = body.successors(i);
                if successors.len() <= WIDE {
                    for link in successors {
                        hash = combine(hash, combine(hashes[link.to as usize], link.kind as u64));
                    }
                }
                let predecessors = body.predecessors(i);
                if predecessors.len() > WIDE {
                    return combine(hash, 2);
                }
                // The order of predecessors is that of addresses: a sum does not depend on it.
                let before = predecessors.iter().map(|l| combine(hashes[l.to as usize], l.kind as u64));
                combine(hash, before.fold(0, u64::wrapping_add))
            })
            .collect();
        hashes = next;
        out.push(hashes.clone());
    }
    out
}
