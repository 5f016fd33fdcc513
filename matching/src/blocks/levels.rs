//! Matching by hashes at rising fuzziness: at each level blocks that are each other's only candidates, then
//! their neighbours.
//!
//! Source: BMAT, 3.3 and 3.4.

use super::body::{Body, NONE};
use super::pair::{Crossing, Pair};
use crate::hash::{NO_TARGET, combine};
use crate::relation::{BlockMethod, Level};
use std::collections::VecDeque;

/// The order of passes (BMAT, 3.4).
pub(crate) const ORDER: [Level; 7] =
    [Level::L1, Level::L3, Level::L2, Level::L1a, Level::L4, Level::L3a, Level::L5];

/// How far a match at this level is to be believed, before its surroundings are looked at.
///
/// What the last instruction or opcode groups alone match is seldom right once alignment has refused it.
pub(crate) fn confidence(level: Level, propagated: bool, careful: bool) -> f32 {
    let unique = match level {
        Level::L0 => 1.0,
        Level::L1 | Level::L2 => 0.97,
        Level::L3 => 0.92,
        Level::L1a | Level::L3a | Level::L5 if careful => 0.5,
        Level::L1a => 0.7,
        Level::L4 => 0.85,
        Level::L3a => 0.7,
        Level::L5 => 0.7,
    };
    if propagated { unique } else { unique - 0.04 }
}

/// What a pass does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Phases {
    /// The one-to-one phase.
    pub one_to_one: bool,
    /// The propagation phase.
    pub propagation: bool,
    /// Leave what matched neighbours contradict, or what only its hash speaks for and which is short or
    /// crosses other matches: alignment does better on it.
    pub careful: bool,
}

/// One pass at a level.
pub(crate) fn pass(pair: &mut Pair<'_>, level: Level, phases: Phases) {
    if pair.is_done() {
        return;
    }
    let old = hashes(pair.old, level, |target| match pair.of_old[target as usize] {
        NONE => None,
        new => Some(new),
    });
    let new = hashes(pair.new, level, |target| (pair.of_new[target as usize] != NONE).then_some(target));
    if phases.one_to_one && level != Level::L3a {
        match_unique(pair, level, phases.careful, &old, &new);
    }
    if phases.propagation {
        propagate(pair, level, phases.careful, &old, &new);
    }
}

/// The level's hash of each block. Matched targets count as their new block.
fn hashes(body: &Body, level: Level, matched: impl Fn(u32) -> Option<u32>) -> Vec<u64> {
    body.hash
        .iter()
        .map(|h| {
            let base = match level {
                Level::L0 => h.zero,
                Level::L1 | Level::L2 => h.one,
                Level::L1a => h.last_one,
                Level::L3 => return h.three_with_direction(),
                Level::L3a => return h.last_three_with_direction(),
                Level::L4 => return h.four,
                Level::L5 => return h.five,
            };
            if h.target == NO_TARGET {
                return base;
            }
            if let Some(target) = matched(h.target) {
                return combine(combine(base, 1), u64::from(target));
            }
            let distance = u64::from(h.target.wrapping_sub(h.at));
            let place = if level == Level::L2 { 0 } else { u64::from(h.target) };
            combine(combine(combine(base, 2), distance), place)
        })
        .collect()
}

/// Whether the level may match a block of so many instructions at all, and if so across other matches.
fn allowed(level: Level, n_insns: u32) -> Option<bool> {
    match level {
        Level::L0 | Level::L1 | Level::L2 => Some(true),
        Level::L1a => Some(false),
        Level::L3 | Level::L3a => Some(n_insns > 3),
        Level::L4 | Level::L5 => (n_insns > 2).then_some(n_insns > 3),
    }
}

fn allowed_pair(pair: &Pair<'_>, crossing: &Crossing, level: Level, old: u32, new: u32) -> bool {
    if !pair.allows(old, new) {
        return false;
    }
    let n_insns = pair.old.hash(old).n_insns.min(pair.new.hash(new).n_insns);
    match allowed(level, n_insns) {
        None => false,
        Some(true) => true,
        Some(false) => !crossing.would_cross(old, new),
    }
}

/// Whether no matched neighbour contradicts the match, and either one supports it, or it is long and in
/// order.
fn fits(pair: &Pair<'_>, crossing: &Crossing, old: u32, new: u32) -> bool {
    let mut supported = false;
    for (left, right, map) in [
        (pair.old.predecessors(old), pair.new.predecessors(new), &pair.of_new),
        (pair.old.successors(old), pair.new.successors(new), &pair.of_new),
        (pair.new.predecessors(new), pair.old.predecessors(old), &pair.of_old),
        (pair.new.successors(new), pair.old.successors(old), &pair.of_old),
    ] {
        // Of wide switches and joins the first few say enough.
        for link in right.iter().take(16) {
            let to = map[link.to as usize];
            if to == NONE {
                continue;
            }
            if !left.iter().any(|l| l.to == to) {
                return false;
            }
            supported = true;
        }
    }
    supported || (pair.new.hash(new).n_insns > 3 && !crossing.would_cross(old, new))
}

fn match_unique(pair: &mut Pair<'_>, level: Level, careful: bool, old: &[u64], new: &[u64]) {
    // (hash, side, block), free blocks only.
    let mut all: Vec<(u64, bool, u32)> = Vec::new();
    let free = |side: bool, hashes: &[u64], of: &[u32], all: &mut Vec<(u64, bool, u32)>| {
        all.extend((0..).zip(hashes).filter(|(i, _)| of[*i as usize] == NONE).map(|(i, &h)| (h, side, i)));
    };
    free(false, old, &pair.of_old, &mut all);
    free(true, new, &pair.of_new, &mut all);
    all.sort_unstable();
    let mut found: Vec<(u32, u32)> = all
        .chunk_by(|a, b| a.0 == b.0)
        .filter_map(|same| match same {
            [(_, false, a), (_, true, b)] => Some((*a, *b)),
            _ => None,
        })
        .collect();
    found.sort_unstable_by_key(|&(_, b)| b);
    let mut crossing = Crossing::new(pair);
    for (a, b) in found {
        if allowed_pair(pair, &crossing, level, a, b) && (!careful || fits(pair, &crossing, a, b)) {
            pair.set(a, b, BlockMethod::Unique(level), confidence(level, false, careful));
            crossing.add(a, b);
        }
    }
}

fn propagate(pair: &mut Pair<'_>, level: Level, careful: bool, old: &[u64], new: &[u64]) {
    let mut crossing = Crossing::new(pair);
    let mut work: VecDeque<(u32, u32)> = pair.matched().collect();
    let mut candidates: Vec<(bool, u32, u32, u32)> = Vec::new();
    while let Some((a, b)) = work.pop_front() {
        for forward in [true, false] {
            let (left, right) = if forward {
                (pair.old.successors(a), pair.new.successors(b))
            } else {
                (pair.old.predecessors(a), pair.new.predecessors(b))
            };
            candidates.clear();
            for (k, r) in (0..).zip(right) {
                if pair.of_new[r.to as usize] != NONE {
                    continue;
                }
                // Of a wide switch or join, look at the neighbours near the same place only.
                let near = |i: u32| left.len() <= 32 || i.abs_diff(k) <= 16;
                for (i, l) in (0u32..).zip(left) {
                    if pair.of_old[l.to as usize] == NONE
                        && near(i)
                        && old[l.to as usize] == new[r.to as usize]
                        && allowed_pair(pair, &crossing, level, l.to, r.to)
                        && (!careful || fits(pair, &crossing, l.to, r.to))
                    {
                        candidates.push((l.kind != r.kind, i.abs_diff(k), l.to, r.to));
                    }
                }
            }
            candidates.sort_unstable();
            for &(_, _, x, y) in &candidates {
                if pair.is_free(x, y) {
                    pair.set(x, y, BlockMethod::Propagated(level), confidence(level, true, careful));
                    crossing.add(x, y);
                    work.push_back((x, y));
                }
            }
        }
    }
}
