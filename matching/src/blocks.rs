//! The blocks of two functions that are each other: which became which.
//!
//! Passes, each of which only takes what is still free: tables of labels (`dispatch`), hashes refined by
//! their neighbours' (`refine`), alignment (`align`), BMAT's levels (`levels`), what was merged (`merged`),
//! then control flow (`control_flow`). Each can be switched off; without the first three it is BMAT.
//! Alignment comes before the levels: it tells equal short blocks apart better than one-to-one and
//! propagation do (measured; the later it came, the more was wrong), and what it leaves is taken with care.
//!
//! Invariant: pure and sequential for one pair of functions; the caller runs pairs in parallel.
//! Source: BMAT, 2.3 and 3. Not here: functions and data (`functions`, `data`), code across functions
//! (`inlined`).

mod align;
mod body;
mod control_flow;
mod dispatch;
pub(crate) mod inlined;
mod levels;
mod merged;
mod pair;
mod refine;
mod split;

use crate::hash::{Hashes, Keys};
use crate::options::{Options, Pass};
use crate::relation::{BlockMatch, BlockMethod, Level};
pub(crate) use body::{Body, count};
use levels::Phases;
use pair::{Pair, positions};
use program::{FuncId, Program};

/// What is known of both programs when blocks are matched: keys joined after functions and data were matched.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The old program's keys.
    pub old: &'a Keys,
    /// The new program's keys.
    pub new: &'a Keys,
    /// Which passes run.
    pub options: &'a Options,
}

/// Matches the blocks of two functions. Sorted by new, then by how much of the new block each explains.
pub fn compute(old: &Program, fo: FuncId, new: &Program, fnew: FuncId, ctx: &Context<'_>) -> Vec<BlockMatch> {
    let a = Body::read(old, ctx.old, fo);
    let b = Body::read(new, ctx.new, fnew);
    let on = ctx.options;
    let mut pair = Pair::new(&a, &b);
    let told = pair.obey(on);
    if !told && identical(&a, &b) {
        for i in positions(a.hash.len()) {
            pair.set(i, i, BlockMethod::Unique(Level::L1), 1.0);
        }
        return collect(&pair);
    }
    if on.has(Pass::DispatchTables) {
        dispatch::pass(&mut pair);
    }
    if on.has(Pass::BlockRefinement) {
        refine::pass(&mut pair);
    }
    let phases = Phases {
        one_to_one: on.has(Pass::BlockHashes),
        propagation: on.has(Pass::BlockPropagation),
        careful: on.has(Pass::BlockAlignment),
    };
    if on.has(Pass::BlockAlignment) {
        align::pass(&mut pair);
    }
    for level in levels::ORDER {
        levels::pass(&mut pair, level, phases);
    }
    if on.has(Pass::MergedBlocks) {
        merged::pass(&mut pair);
    }
    if on.has(Pass::SplitBlocks) {
        split::pass(&mut pair);
    }
    if on.has(Pass::ControlFlow) {
        control_flow::pass(&mut pair);
    }
    collect(&pair)
}

/// Matches blocks of two pieces of code by surroundings and alignment: (old, new, confidence). Gives up, with
/// what it has, where the surer rounds of alignment match next to nothing of `old` with a confidence of at
/// least `least`; and with nothing, where no more than `wanted` of the instructions of `old` can be matched
/// so any more.
pub(crate) fn fit(old: &Body, new: &Body, least: f32, wanted: f32) -> Vec<(u32, u32, f32)> {
    /// How many rounds of alignment are the surer ones, and what part of the instructions they must match: on
    /// five pairs of builds of five programs, no copy was found where they matched less.
    const SURER: (usize, u32) = (4, 20);
    let mut pair = Pair::new(old, new);
    refine::pass(&mut pair);
    let all: u32 = old.hash.iter().map(|h| h.n_insns).sum();
    // Of the instructions of `old`, how many are in blocks that are matched so, and how many may still be.
    let sure = |pair: &Pair<'_>| -> u32 {
        let sure = pair.matched().filter(|&(_, b)| pair.how[b as usize].1 >= least);
        sure.map(|(a, _)| pair.old.hash(a).n_insns).sum()
    };
    #[expect(clippy::cast_precision_loss, reason = "as it is compared with what is wanted")]
    let is_lost = |pair: &Pair<'_>| {
        let free = (0..).zip(&pair.of_old).filter(|(_, new)| **new == body::NONE);
        let free: u32 = free.map(|(a, _)| pair.old.hash(a).n_insns).sum();
        ((sure(pair) + free) as f32) < wanted
    };
    if is_lost(&pair) {
        return Vec::new();
    }
    align::pass_while(&mut pair, |pair, round| {
        (round < SURER.0 || SURER.1 * sure(pair) > all) && !is_lost(pair)
    });
    pair.matched().map(|(a, b)| (a, b, pair.how[b as usize].1)).collect()
}

/// Whether two functions are the same block by block, edges included.
fn identical(a: &Body, b: &Body) -> bool {
    a.hash.len() == b.hash.len()
        && a.entry == b.entry
        && a.hash.iter().zip(&b.hash).all(|(x, y)| x.fine == y.fine && x.target == y.target)
        && positions(a.hash.len()).all(|i| a.successors(i) == b.successors(i))
}

fn collect(pair: &Pair<'_>) -> Vec<BlockMatch> {
    let mut out: Vec<BlockMatch> = pair
        .matched()
        .map(|(old, new)| {
            let (method, confidence) = pair.how[new as usize];
            BlockMatch {
                old: pair.old.id(old),
                new: pair.new.id(new),
                method,
                confidence,
                share: 1.0,
                partial: pair.bypassed[new as usize],
            }
        })
        .collect();
    out.extend(pair.more.iter().map(|m| BlockMatch {
        old: pair.old.id(m.old),
        new: pair.new.id(m.new),
        method: m.method,
        confidence: m.confidence,
        share: m.share,
        partial: m.partial,
    }));
    out.sort_by(|x, y| x.new.cmp(&y.new).then(y.confidence.total_cmp(&x.confidence)).then(x.old.cmp(&y.old)));
    out
}

/// How much of two functions is the same, 0.0..=1.0: a fast trial with the blocks' hashes at levels 1, 3 and
/// 4.
///
/// A block counts as many times as it has instructions; equal hashes match whatever their order.
///
/// Source: BMAT, 2.1 (block trial-matching): one pass, simplified.
pub fn similarity(
    old: &Program,
    fo: FuncId,
    old_hashes: &Hashes,
    new: &Program,
    fnew: FuncId,
    new_hashes: &Hashes,
) -> f32 {
    let blocks = |p: &Program, f: FuncId| {
        let b = &p.function(f).blocks;
        b.start as usize..b.end as usize
    };
    let (a, b) = (blocks(old, fo), blocks(new, fnew));
    let total: u64 = old_hashes.n_insns[a.clone()]
        .iter()
        .chain(&new_hashes.n_insns[b.clone()])
        .map(|&n| u64::from(n))
        .sum();
    if total == 0 {
        return 0.0;
    }
    let mut left: Vec<usize> = a.collect();
    let mut right: Vec<usize> = b.collect();
    let mut same = 0.0;
    type HashOf = fn(&Hashes, usize) -> u64;
    let levels: [(f64, HashOf); 3] =
        [(1.0, |h, i| h.one[i]), (0.9, |h, i| u64::from(h.three[i])), (0.7, |h, i| u64::from(h.four[i]))];
    for (worth, level) in levels {
        left.sort_by_key(|&i| (level(old_hashes, i), i));
        right.sort_by_key(|&i| (level(new_hashes, i), i));
        let (mut i, mut j) = (0, 0);
        let (mut rest_left, mut rest_right) = (Vec::new(), Vec::new());
        while let (Some(&x), Some(&y)) = (left.get(i), right.get(j)) {
            let (hx, hy) = (level(old_hashes, x), level(new_hashes, y));
            match hx.cmp(&hy) {
                std::cmp::Ordering::Less => {
                    rest_left.push(x);
                    i += 1;
                }
                std::cmp::Ordering::Greater => {
                    rest_right.push(y);
                    j += 1;
                }
                std::cmp::Ordering::Equal => {
                    let n = f64::from(old_hashes.n_insns[x]) + f64::from(new_hashes.n_insns[y]);
                    same += worth * n;
                    i += 1;
                    j += 1;
                }
            }
        }
        rest_left.extend_from_slice(&left[i..]);
        rest_right.extend_from_slice(&right[j..]);
        left = rest_left;
        right = rest_right;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a ratio")]
    let ratio = (same / total as f64) as f32;
    ratio
}

#[cfg(test)]
mod tests;
