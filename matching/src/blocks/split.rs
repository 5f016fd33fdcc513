//! Old blocks that became two in a row, because the new source tests something before what they tested: the
//! second carries their branch, and all their flow.
//!
//! The first has the old block's match, by its code; its branch is a new one. The second is reached from it
//! alone, is nothing but a test, on the old block's condition, and leads to where the old one led. If it does
//! more, the new test may well be there to save that work, and nothing is said.
//!
//! Source: ours; BMAT (figure 3) has blocks that became several, but none of which one has the code and
//! another the branch. Not here: what has only a part of the flow (`control_flow`).

use super::body::{Body, NONE};
use super::merged::beyond;
use super::pair::{Pair, SharedMatch};
use crate::relation::BlockMethod;
use program::BlockEnd;

/// How sure such a match is; no surer than that of the first part.
const CONFIDENCE: f32 = 0.8;

/// A comparison and its branch.
pub(super) const TEST: u32 = 2;

/// Gives the second parts of split blocks their old block.
pub(crate) fn pass(pair: &mut Pair<'_>) {
    let mut found: Vec<(u32, u32, f32)> = Vec::new();
    for (old, head) in pair.matched() {
        if pair.old.end[old as usize] != BlockEnd::Branch
            || pair.new.end[head as usize] != BlockEnd::Branch
            || same_test(pair, old, head)
        {
            continue;
        }
        let tails = pair.new.successors(head).iter().map(|l| l.to);
        let mut tails = tails.filter(|&tail| pair.allows(old, tail) && is_tail(pair, old, head, tail));
        if let (Some(tail), None) = (tails.next(), tails.next()) {
            found.push((old, tail, CONFIDENCE.min(pair.how[head as usize].1)));
        }
    }
    for (old, new, confidence) in found {
        pair.second[new as usize] = true;
        let method = BlockMethod::Aligned;
        pair.more.push(SharedMatch { old, new, method, confidence, share: 1.0, partial: false });
    }
}

/// Whether two blocks branch on the same condition, or its negation.
fn same_test(pair: &Pair<'_>, old: u32, new: u32) -> bool {
    let (x, y) = (pair.old.hash(old).condition, pair.new.hash(new).condition);
    x.div_ceil(2) == y.div_ceil(2)
}

/// What stands before the branch of a block, as far as it can be compared between builds.
fn tested(body: &Body, block: u32) -> Option<u32> {
    body.tokens(block).iter().rev().nth(1).map(|t| t.weak)
}

/// Whether `tail`, behind `head`, does what `old` did at its end.
fn is_tail(pair: &Pair<'_>, old: u32, head: u32, tail: u32) -> bool {
    let alone = pair.new.predecessors(tail).iter().all(|l| l.to == head);
    if pair.of_new[tail as usize] != NONE
        || !alone
        || pair.new.hash(tail).n_insns > TEST
        || tested(pair.old, old).is_none_or(|by| tested(pair.new, tail) != Some(by))
        || tail == pair.new.entry
        || pair.new.end[tail as usize] != BlockEnd::Branch
        || !same_test(pair, old, tail)
    {
        return false;
    }
    let reached = beyond(pair, tail);
    let led = pair.old.successors(old).iter().map(|l| pair.of_old[l.to as usize]);
    let (mut known, mut all) = (0, true);
    for to in led.filter(|&to| to != NONE) {
        known += 1;
        all &= reached.contains(&to);
    }
    known > 0 && all
}
