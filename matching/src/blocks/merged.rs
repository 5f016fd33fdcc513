//! Old blocks that were alike and that the new compiler made one of: the new block carries what they all did.
//!
//! GCC merges equal tails (cross-jumping), as many as it finds that day. An old block that is left over,
//! though the way to it leads on to a new block of the same content that a twin of it became, was merged into
//! that one.
//!
//! Not here: one old block that became several new ones, of which each carries a part (`control_flow`).

use super::body::{Link, NONE};
use super::pair::{Pair, SharedMatch};
use crate::hash::BlockHash;
use crate::relation::BlockMethod;

/// How sure such a match is; a little less than those it stands beside.
const CONFIDENCE: f32 = 0.8;
/// Neighbours looked at; of a wide dispatch too many are alike.
const WIDE: usize = 16;
/// New blocks without a counterpart that are looked through.
const STEPS: usize = 4;

/// Gives old blocks without a counterpart the one of their twin.
pub(crate) fn pass(pair: &mut Pair<'_>) {
    let mut into = vec![NONE; pair.old.hash.len()];
    let mut work: Vec<(u32, u32)> = pair.matched().collect();
    while let Some((p, q)) = work.pop() {
        let left = pair.old.successors(p);
        let is_free = |l: &Link| pair.of_old[l.to as usize] == NONE && into[l.to as usize] == NONE;
        if left.len() > WIDE || pair.new.successors(q).len() > WIDE || !left.iter().any(is_free) {
            continue;
        }
        let right = beyond(pair, q);
        for l in left {
            let a = l.to;
            if pair.of_old[a as usize] != NONE || into[a as usize] != NONE {
                continue;
            }
            let mut fits = right.iter().copied().filter(|&b| merged(pair, p, a, b));
            let (Some(b), None) = (fits.next(), fits.next()) else { continue };
            into[a as usize] = b;
            work.push((a, b));
        }
    }
    for (old, &new) in (0..).zip(&into).filter(|(_, n)| **n != NONE) {
        pair.more.push(SharedMatch {
            old,
            new,
            method: BlockMethod::Aligned,
            confidence: CONFIDENCE.min(pair.how[new as usize].1),
            share: 1.0,
            partial: false,
        });
    }
}

/// New blocks to which control comes from `q`, through at most a few without a counterpart: a tail that was
/// merged from the middle of a block on is a block of its own.
pub(super) fn beyond(pair: &Pair<'_>, q: u32) -> Vec<u32> {
    let mut found: Vec<u32> = pair.new.successors(q).iter().map(|l| l.to).collect();
    let mut next = 0;
    while let Some(&at) = found.get(next) {
        next += 1;
        if next > STEPS || pair.of_new[at as usize] != NONE || pair.new.successors(at).len() > WIDE {
            continue;
        }
        for link in pair.new.successors(at) {
            if !found.contains(&link.to) {
                found.push(link.to);
            }
        }
    }
    found
}

/// Whether `a`, to which `p` leads, is in `b` now: `b` is what a twin of `a` became to which `p` does not
/// lead. A single instruction has twins everywhere.
fn merged(pair: &Pair<'_>, p: u32, a: u32, b: u32) -> bool {
    let twin = pair.of_new[b as usize];
    if twin == NONE || pair.old.successors(p).iter().any(|l| l.to == twin) {
        return false;
    }
    let (x, y, z) = (pair.old.hash(a), pair.old.hash(twin), pair.new.hash(b));
    let same = |l: &BlockHash, r: &BlockHash| l.three == r.three && l.four == r.four;
    x.n_insns > 1 && (same(x, y) || same(x, z))
}
