//! Matching what is left by its place in the control flow: both graphs are walked down together from what is
//! matched.
//!
//! A new block gets the old block at whose place it stands; several may share one. Branches, jumps, returns
//! and earlier matches are what the two walks are held together by, not calls. `partial` marks a block that
//! some of the old one's flow may go past: of what ways lead to the old block's place, only some lead through
//! the new one. So is one whose old block has no match of its own either, unless matched blocks on both sides
//! hem the two in: there the walks may have lost each other. And so is a match, however found, that is only
//! the test of its old block behind new tests, if these let flow past it.
//!
//! Source: BMAT, 2.3 and figure 3. The paper does not say how a branch that only one side has is walked: here
//! the other side waits in front of it.

use super::body::{Link, NONE};
use super::pair::{Pair, SharedMatch};
use super::split::TEST;
use crate::relation::BlockMethod;
use program::BlockEnd;
use std::collections::VecDeque;

/// Regions of more blocks than this are taken as partial but for their entry.
const REGION_LIMIT: usize = 64;

/// Gives every new block that can be reached from matched ones, or from the entry, an old one.
pub(crate) fn pass(pair: &mut Pair<'_>) {
    let n = pair.new.hash.len();
    if n == 0 || pair.old.hash.is_empty() {
        return;
    }
    let mut walk = Walk { place: vec![NONE; n], queue: VecDeque::new(), order: Vec::new() };
    walk.arrive(pair, pair.old.entry, pair.new.entry);
    let matched: Vec<(u32, u32)> = pair.matched().collect();
    let seconds = pair.more.iter().filter(|m| pair.second[m.new as usize]).map(|m| (m.old, m.new));
    for (old, new) in matched.into_iter().chain(seconds) {
        walk.leave(pair, old, new);
    }
    while let Some((old, new)) = walk.queue.pop_front() {
        walk.go_on(pair, old, new);
    }
    finish(pair, &walk);
}

struct Walk {
    /// Per new block the old block at whose place it stands, or `NONE`.
    place: Vec<u32>,
    queue: VecDeque<(u32, u32)>,
    order: Vec<u32>,
}

impl Walk {
    /// Reaches a new block while the old walk is at `old`.
    fn arrive(&mut self, pair: &Pair<'_>, old: u32, new: u32) {
        if pair.of_new[new as usize] == NONE && !pair.second[new as usize] && self.place[new as usize] == NONE
        {
            self.place[new as usize] = old;
            self.order.push(new);
            self.queue.push_back((old, new));
        }
    }

    /// Leaves two blocks that correspond, by each of the new one's edges.
    fn leave(&mut self, pair: &Pair<'_>, old: u32, new: u32) {
        let links = pair.new.successors(new);
        for (i, link) in links.iter().enumerate() {
            let to = counterpart(pair, old, new, i, link);
            self.arrive(pair, to, link.to);
        }
    }

    fn go_on(&mut self, pair: &Pair<'_>, old: u32, new: u32) {
        let anchored = pair.of_old[old as usize] != NONE;
        let (a, b) = (pair.old.end[old as usize], pair.new.end[new as usize]);
        if !anchored && comparable(a, b) {
            self.leave(pair, old, new);
        } else {
            for link in pair.new.successors(new) {
                self.arrive(pair, old, link.to);
            }
        }
    }
}

fn comparable(a: BlockEnd, b: BlockEnd) -> bool {
    let goes_on = |e| matches!(e, BlockEnd::Jump | BlockEnd::FallThrough);
    a == b || (goes_on(a) && goes_on(b))
}

/// Where the old walk stands when the new one leaves `new` by its edge number `i`.
fn counterpart(pair: &Pair<'_>, old: u32, new: u32, i: usize, link: &Link) -> u32 {
    let left = pair.old.successors(old);
    let right = pair.new.successors(new);
    // An old successor that another of our edges leads to is not this edge's (a branch may have been
    // inverted).
    let has_other_edge = |to: u32| {
        let of = pair.of_old[to as usize];
        of != NONE && right.len() <= 8 && right.iter().any(|r| r.to == of)
    };
    // By the same side of the same condition; a negated branch has its sides the other way round.
    let same = |l: &&Link| pair.same_edge(old, l.kind, new, link.kind);
    if right.len() > 8 || left.len() > 8 {
        let at = i * left.len() / right.len().max(1);
        return left
            .get(at)
            .filter(same)
            .or_else(|| left.iter().find(same))
            .or(left.first())
            .map_or(old, |l| l.to);
    }
    left.iter()
        .find(|l| same(l) && !has_other_edge(l.to))
        .or_else(|| left.iter().find(|l| !has_other_edge(l.to)))
        .or_else(|| left.iter().find(same))
        .or(left.first())
        .map_or(old, |l| l.to)
}

/// Writes down what the walk found, with partial flags.
fn finish(pair: &mut Pair<'_>, walk: &Walk) {
    let mut regions: Vec<(u32, usize, u32)> =
        walk.order.iter().enumerate().map(|(i, &new)| (walk.place[new as usize], i, new)).collect();
    regions.sort_unstable();
    let merged: Vec<(u32, u32)> = pair.more.iter().map(|m| (m.new, m.old)).collect();
    let first = pair.more.len();
    for region in regions.chunk_by(|a, b| a.0 == b.0) {
        let old = region[0].0;
        let blocks: Vec<u32> = region.iter().map(|r| r.2).collect();
        let anchor = pair.of_old[old as usize];
        // What else was merged into the block in front of which they stand goes through them, too.
        let others = merged.iter().filter(|m| anchor != NONE && m.0 == anchor).map(|m| m.1);
        let olds: Vec<u32> = std::iter::once(old).chain(others).collect();
        // A region in front of its anchor, which is matched one to one.
        if anchor != NONE && blocks.len() <= REGION_LIMIT && goes_past(pair, walk, &blocks, old, anchor) {
            pair.bypassed[anchor as usize] = true;
        }
        for (i, &new) in blocks.iter().enumerate() {
            let full = blocks.len() <= REGION_LIMIT
                && (anchor != NONE || i == 0 && hemmed_in(pair, old, new))
                && on_every_path(pair, &blocks, anchor, new);
            let olds = if full { olds.as_slice() } else { &olds[..1] };
            pair.more.extend(olds.iter().map(|&old| SharedMatch {
                old,
                new,
                method: BlockMethod::ControlFlow,
                confidence: if anchor == NONE { 0.5 } else { 0.35 },
                share: if full { 1.0 } else { 0.5 },
                partial: !full,
            }));
        }
    }
    // What only such blocks lead to has no more of the flow than they.
    for m in &mut pair.more[first..] {
        let into = pair.new.predecessors(m.new);
        if !m.partial && !into.is_empty() && into.iter().all(|l| pair.bypassed[l.to as usize]) {
            (m.partial, m.share) = (true, 0.5);
        }
    }
}

/// Whether a way leads from a region past its `anchor` to where control formerly came through the anchor's
/// old block alone, and the anchor is the old block's test and no more: then the rest of it is done in front
/// of the new tests, and only what they let through comes to the old one. A block that does the old one's
/// work may be all that most of the flow goes to.
fn goes_past(pair: &Pair<'_>, walk: &Walk, region: &[u32], old: u32, anchor: u32) -> bool {
    let (was, is) = (pair.old.hash(old).n_insns, pair.new.hash(anchor).n_insns);
    let branches = |end| end == BlockEnd::Branch;
    if is >= was
        || is > TEST
        || !branches(pair.old.end[old as usize])
        || !branches(pair.new.end[anchor as usize])
    {
        return false;
    }
    let out = region.iter().flat_map(|&b| pair.new.successors(b)).map(|l| l.to);
    let out = out.filter(|b| *b != anchor && !region.contains(b));
    let places = out.map(|b| match pair.of_new[b as usize] {
        NONE => walk.place[b as usize],
        place => place,
    });
    let mut places: Vec<u32> = places.filter(|&p| p != NONE && p != old).collect();
    places.sort_unstable();
    places.dedup();
    if places.is_empty() || old == pair.old.entry {
        return false;
    }
    // What is reached without the old block.
    let mut seen = vec![false; pair.old.hash.len()];
    seen[old as usize] = true;
    let mut work = vec![pair.old.entry];
    while let Some(at) = work.pop() {
        if !std::mem::replace(&mut seen[at as usize], true) {
            work.extend(pair.old.successors(at).iter().map(|l| l.to));
        }
    }
    places.iter().any(|&p| !seen[p as usize])
}

/// Whether all of the old block's flow goes through `block`: no way into the region, and through it to
/// `anchor` (the new block that the old one became, if it became one), or without one out of the region
/// again, goes past it.
fn on_every_path(pair: &Pair<'_>, region: &[u32], anchor: u32, block: u32) -> bool {
    let inside = |b: u32| b == anchor || region.contains(&b);
    let enters = |b: u32| b == pair.new.entry || pair.new.predecessors(b).iter().any(|l| !inside(l.to));
    let all = region.iter().copied().chain((anchor != NONE).then_some(anchor));
    let mut seen: Vec<u32> = all.filter(|&b| b != block && enters(b)).collect();
    let mut i = 0;
    while let Some(&at) = seen.get(i) {
        i += 1;
        if at == anchor {
            return false;
        }
        let links = pair.new.successors(at);
        if links.is_empty() || links.iter().any(|l| !inside(l.to)) {
            return false;
        }
        for link in links {
            if link.to != block && !seen.contains(&link.to) {
                seen.push(link.to);
            }
        }
    }
    true
}

/// Whether two blocks are entered from the same matched blocks alone, or matched blocks on both sides say
/// that they are each other and none that they are not.
fn hemmed_in(pair: &Pair<'_>, old: u32, new: u32) -> bool {
    // How many neighbours are matched, on both sides together; `None` if one of them contradicts.
    let agreeing = |left: &[Link], right: &[Link]| -> Option<usize> {
        let matched = |links: &[Link], of: &[u32]| -> Vec<u32> {
            links.iter().map(|l| of[l.to as usize]).filter(|&to| to != NONE).collect()
        };
        let (went, came) = (matched(left, &pair.of_old), matched(right, &pair.of_new));
        let among = |links: &[Link], to: u32| links.iter().any(|l| l.to == to);
        let agree = went.iter().all(|&to| among(right, to)) && came.iter().all(|&to| among(left, to));
        agree.then_some(went.len() + came.len())
    };
    let (into, out) = (pair.old.predecessors(old), pair.old.successors(old));
    let (new_into, new_out) = (pair.new.predecessors(new), pair.new.successors(new));
    let before = agreeing(into, new_into);
    if before.is_some_and(|n| n > 0 && n == into.len() + new_into.len()) {
        return true;
    }
    let ends = out.is_empty() && new_out.is_empty();
    comparable(pair.old.end[old as usize], pair.new.end[new as usize])
        && before.is_some_and(|n| n > 0)
        && agreeing(out, new_out).is_some_and(|n| n > 0 || ends)
}
