//! Bounds of block counts: for blocks that carry only a part of a known flow, and those
//! without a match.
//!
//! Invariant: holds for every flow that has the known counts, or up to twice or down to half of them, since
//! they are of another build; what bounds nothing is 0 or [`u64::MAX`].
//!
//! Source: BMAT, figure 3: a partial block runs "anywhere between 0 and N times". We differ in that the edges
//! around it narrow that: what comes in must go out, and no more comes out of a block than goes in.

use program::{BlockEnd, BlockId, CallKind, FuncId, Program, Va};
use std::collections::BTreeMap;

/// The least and the most that a block can have run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountRange {
    /// The least.
    pub low: u64,
    /// The most; [`u64::MAX`] if nothing bounds it.
    pub high: u64,
}

/// By what factor counts of the same code differ from build to build: one that bounds others holds up to
/// that.
const DRIFT: u64 = 2;

/// Ranges of the blocks of `func` whose count is not `known`, by start.
///
/// Shape: `known` and `most` are one per block of the function; `most` bounds what carries a part of an
/// old block's flow. `entered`: how often its entry is.
pub(crate) fn ranges(
    program: &Program,
    func: FuncId,
    known: &[Option<u64>],
    most: &[u64],
    entered: u64,
    into: &mut BTreeMap<Va, CountRange>,
) {
    const ROUNDS: usize = 12;
    let function = program.function(func);
    let first = function.blocks.start;
    let n = function.n_blocks();
    if known.iter().all(Option::is_some) || known.len() != n || most.len() != n {
        return;
    }
    let mut around = Around::of(program, func, entered);
    let mut blocks: Vec<CountRange> = known
        .iter()
        .zip(most)
        .map(|(k, &most)| k.map_or(CountRange { low: 0, high: most }, |k| CountRange { low: k, high: k }))
        .collect();
    for _ in 0..ROUNDS {
        let before = blocks.clone();
        around.narrow(&mut blocks, known);
        if before == blocks {
            break;
        }
    }
    for (i, r) in blocks.into_iter().enumerate() {
        if known[i].is_none() {
            let b = BlockId(first + u32::try_from(i).expect("an index of a block"));
            let high = r.high.saturating_mul(DRIFT);
            into.insert(program.block(b).start, CountRange { low: r.low / DRIFT, high });
        }
    }
}

/// What is around the blocks of a function: edges, and whether anything else leads there.
struct Around {
    /// From, to, and the bounds of its count.
    edges: Vec<(usize, usize, CountRange)>,
    /// By block: whether control leaves it along its edges alone.
    closed: Vec<bool>,
    /// By block: how often control comes from outside, at most.
    outside: Vec<u64>,
}

impl Around {
    /// Of `func`, whose entry is entered so often. Nothing is known of its edges.
    fn of(program: &Program, func: FuncId, entered: u64) -> Around {
        let function = program.function(func);
        let (first, n) = (function.blocks.start, function.n_blocks());
        let mut around = Around { edges: Vec::new(), closed: vec![true; n], outside: vec![0_u64; n] };
        for (i, b) in function.block_ids().enumerate() {
            let block = program.block(b);
            // Where control may leave or come in unseen, nothing is concluded from the edges on that side.
            let calls = program.calls_in(b);
            around.closed[i] = !program.successors(b).is_empty()
                && block.end != BlockEnd::Unresolved
                && calls.iter().all(|c| c.kind == CallKind::Call);
            if program.entry_block(func) == Some(b) {
                around.outside[i] = entered;
            } else if function.entries.contains(&b) || block.landing_pad || !function.complete {
                around.outside[i] = u64::MAX;
            }
            for e in program.successors(b) {
                around.edges.push((i, (e.to.0 - first) as usize, CountRange { low: 0, high: u64::MAX }));
            }
        }
        around
    }

    /// The sums of the edges that come to each block, or that leave it.
    fn sums(&self, by_to: bool) -> Vec<CountRange> {
        let mut all = vec![CountRange { low: 0, high: 0 }; self.closed.len()];
        for &(a, b, r) in &self.edges {
            let s = &mut all[if by_to { b } else { a }];
            *s = CountRange { low: s.low.saturating_add(r.low), high: s.high.saturating_add(r.high) };
        }
        all
    }

    /// Narrows the blocks that are not `known` by their edges, then the edges by their blocks.
    fn narrow(&mut self, blocks: &mut [CountRange], known: &[Option<u64>]) {
        let (coming, leaving) = (self.sums(true), self.sums(false));
        let Around { edges, closed, outside } = self;
        for i in (0..blocks.len()).filter(|&i| known[i].is_none()) {
            let mut r = blocks[i];
            r.high = r.high.min(coming[i].high.saturating_add(outside[i]));
            r.low = r.low.max(coming[i].low);
            if closed[i] {
                r.high = r.high.min(leaving[i].high);
            }
            r.low = r.low.max(leaving[i].low).min(r.high);
            blocks[i] = r;
        }
        for e in edges {
            let (a, b) = (e.0, e.1);
            e.2.high = e.2.high.min(blocks[a].high).min(blocks[b].high);
            // What cannot go any other way goes this way.
            let rest = |sum: u64, mine: u64| if sum == u64::MAX { u64::MAX } else { sum - mine.min(sum) };
            if closed[a] && leaving[a].high != u64::MAX {
                e.2.low = e.2.low.max(blocks[a].low.saturating_sub(rest(leaving[a].high, e.2.high)));
            }
            if coming[b].high != u64::MAX && outside[b] != u64::MAX {
                let others = rest(coming[b].high, e.2.high).saturating_add(outside[b]);
                e.2.low = e.2.low.max(blocks[b].low.saturating_sub(others));
            }
            e.2.low = e.2.low.min(e.2.high);
        }
    }
}
