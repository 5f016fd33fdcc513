//! Which thread of one run is which of the other: the one that runs the same.
//!
//! Threads begin in whatever order they are scheduled in, so that says little. The first ones of both runs
//! are the same: they run `main`.

use super::items::Reading;
use super::log::Kind;
use std::collections::BTreeMap;

/// What a thread ran: by name of a function or key of a loop, how often.
type Ran = BTreeMap<(bool, u32), f64>;

/// Pairs of activities, each all that a thread did.
pub fn pairs(sides: &[Reading<'_>; 2]) -> Vec<[u32; 2]> {
    let roots =
        sides.each_ref().map(|of| of.side.log.threads.iter().map(|(_, root)| *root).collect::<Vec<_>>());
    let [[first, old @ ..], [other, new @ ..]] = roots.each_ref().map(Vec::as_slice) else {
        return Vec::new();
    };
    let mut found = vec![[*first, *other]];
    let ran = [(0, old), (1, new)]
        .map(|(n, of): (usize, &[u32])| of.iter().map(|root| ran(&sides[n], *root)).collect::<Vec<Ran>>());
    let mut all = Vec::new();
    for (x, a) in ran[0].iter().enumerate() {
        all.extend(ran[1].iter().enumerate().map(|(y, b)| (alike(a, b), x, y)));
    }
    // Of those that are as much alike, those that began in the same order.
    all.sort_by(|a, b| {
        b.0.total_cmp(&a.0).then(a.1.abs_diff(a.2).cmp(&b.1.abs_diff(b.2))).then(a.1.cmp(&b.1))
    });
    let mut is_free = ran.each_ref().map(|of| vec![true; of.len()]);
    for (_, x, y) in all {
        if is_free[0][x] && is_free[1][y] {
            (is_free[0][x], is_free[1][y]) = (false, false);
            found.push([old[x], new[y]]);
        }
    }
    found
}

/// What ran in activity `root`, with all that it called.
fn ran(of: &Reading<'_>, root: u32) -> Ran {
    let activities = &of.side.log.activities;
    let mut ran = Ran::new();
    let mut times: BTreeMap<u32, f64> = BTreeMap::from([(root, 1.0)]);
    // Who calls another one has a larger number.
    while let Some((at, n)) = times.pop_last() {
        let Some(activity) = activities.get(at as usize) else { continue };
        for (token, sums) in activity.tokens.iter().zip(of.side.log.all_sums(activity)) {
            match token.kind() {
                Kind::Call(_) => {
                    let Some(call) = of.call(activity.function, *token) else { continue };
                    *ran.entry((true, call.key.callee)).or_default() += n;
                    *times.entry(call.activity).or_default() += n;
                }
                Kind::Rounds(loop_) => {
                    let Some(key) = of.keys.loops[of.n].get(loop_ as usize) else { continue };
                    #[expect(clippy::cast_precision_loss, reason = "counts up to 2⁵³ are exact")]
                    let rounds = sums.heavy as f64 / activity.times.max(1) as f64;
                    *ran.entry((false, *key)).or_default() += n * rounds;
                }
            }
        }
    }
    ran
}

/// The share of what both ran that is the same, from 0 to 1.
fn alike(a: &Ran, b: &Ran) -> f64 {
    let of = |all: &Ran, key| all.get(key).copied().unwrap_or_default();
    let both: f64 = a.iter().map(|(key, n)| n.min(of(b, key))).sum();
    let either: f64 = a.values().sum::<f64>() + b.values().sum::<f64>() - both;
    if either > 0.0 { both / either } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_alike_as_far_as_they_ran_the_same() {
        let ran = |of: &[(u32, f64)]| of.iter().map(|(name, n)| ((true, *name), *n)).collect::<Ran>();
        let (a, b) = (ran(&[(1, 10.0), (2, 30.0)]), ran(&[(2, 30.0), (3, 10.0)]));
        assert_eq!(alike(&a, &b), 0.6);
        assert_eq!((alike(&a, &a), alike(&ran(&[]), &ran(&[])), alike(&a, &ran(&[]))), (1.0, 1.0, 0.0));
    }
}
