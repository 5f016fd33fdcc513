//! Two builds compared by way of a third one, which is less optimised: each is aligned with that, and what is
//! the same as the same in it is the same.
//!
//! Source: Chainsaw (2009), "inferred matches" by an unoptimised build.

use super::anchors::Order;
use super::items::{Item, Reading};
use super::pairs::{Aligned, Aligner, Both};
use std::collections::{BTreeMap, HashMap};

/// Aligns what is reachable from `roots`, activities of the base and of both builds. `by` are the base with
/// the old build, and with the new one. Gives each to `take`, once.
pub fn align(by: [&[Reading<'_>; 2]; 2], roots: &[[u32; 3]], mut take: impl FnMut(Aligned)) {
    let mut aligners = by.map(Aligner::new);
    let order = by.map(|of| Order::new(&of[0]));
    // By what must come first: the largest.
    let mut todo: BTreeMap<[u32; 3], f64> = BTreeMap::new();
    for root in roots {
        *todo.entry(*root).or_default() += 1.0;
    }
    while let Some(([base, old, new], times)) = todo.pop_last() {
        let activities = [old, new];
        let both = [0, 1].map(|n: usize| aligners[n].align([base, activities[n]]));
        let before = [0, 1].map(|n: usize| order[n].before(base, &both[n].0[0]));
        let pairs = pairs(&both, &before);
        let [(of_old, _), (of_new, _)] = both;
        let ([in_base, old_items], [_, new_items]) = (of_old, of_new);
        for &(at, x, y) in &pairs {
            let called = |reading: &Reading<'_>, items: &[Item], at: usize| {
                items.get(at).and_then(|item| reading.called(item))
            };
            let called = [
                called(&by[0][0], &in_base, at),
                called(&by[0][1], &old_items, x),
                called(&by[1][1], &new_items, y),
            ];
            if let [Some(base), Some(old), Some(new)] = called {
                *todo.entry([base, old, new]).or_default() += times;
            }
        }
        let pairs = pairs.into_iter().map(|(_, x, y)| (x, y)).collect();
        take(Aligned {
            activities,
            times,
            items: [old_items, new_items],
            pairs,
            is_first: true,
            is_last: true,
            is_flat: false,
        });
    }
}

/// What was paired with the same event of the base: its place among the items of the first alignment, and
/// those of what it was paired with.
fn pairs(both: &[Both; 2], before: &[Vec<u64>; 2]) -> Vec<(usize, usize, usize)> {
    let by_event = |n: usize| {
        let event = move |&(base, other): &(usize, usize)| Some((*before[n].get(base)?, (base, other)));
        both[n].1.iter().filter_map(event)
    };
    let new: HashMap<u64, (usize, usize)> = by_event(1).collect();
    let pair = |(event, (base, old))| new.get(&event).map(|(_, new)| (base, old, *new));
    by_event(0).filter_map(pair).collect()
}
