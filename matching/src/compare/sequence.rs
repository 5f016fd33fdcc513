//! Two sequences of keys, aligned: which of the one is which of the other, in order.
//!
//! What is small is aligned so that as many as possible are paired. What is large is cut at keys that both
//! have once, and where there are none, aligned through a window that moves on: differences are small and
//! many, and keys come again and again, which is what tools for texts are not made for.
//!
//! Source: E. Myers, "An O(ND) difference algorithm", Algorithmica 1 (1986), by imara-diff; B. Cohen's
//! patience diff.

use imara_diff::{Algorithm, Diff, Token};
use std::collections::HashMap;

/// The product of two lengths up to which as many as possible are paired.
const SMALL: usize = 400_000;
/// How long the window is, in both sequences; of what is paired in it, the first half is kept.
const WINDOW: usize = 600;

/// Positions in `old` and `new` that are paired, in order.
pub fn pairs(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (rest_old, rest_new) = (old.get(start..).unwrap_or_default(), new.get(start..).unwrap_or_default());
    let end = rest_old.iter().rev().zip(rest_new.iter().rev()).take_while(|(a, b)| a == b).count();
    let middle = |keys: &[u32]| keys.len() - end;
    let mut found: Vec<(usize, usize)> = (0..start).map(|n| (n, n)).collect();
    let (mid_old, mid_new) = (rest_old.get(..middle(rest_old)), rest_new.get(..middle(rest_new)));
    if let (Some(a @ [_, ..]), Some(b @ [_, ..])) = (mid_old, mid_new) {
        found.extend(differing(a, b).into_iter().map(|(x, y)| (x + start, y + start)));
    }
    found.extend((0..end).map(|n| (old.len() - end + n, new.len() - end + n)));
    found
}

/// The same of sequences that begin and end differently.
fn differing(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    if old.len().saturating_mul(new.len()) <= SMALL {
        return by(Algorithm::MyersMinimal, old, new);
    }
    let by_window = by_window(old, new);
    let by_rare =
        if has_rare(old) && has_rare(new) { by(Algorithm::Histogram, old, new) } else { Vec::new() };
    let better = if by_rare.len() > by_window.len() { by_rare } else { by_window };
    let anchors = anchors(old, new);
    if anchors.is_empty() {
        return better;
    }
    let mut found = Vec::new();
    let (mut a, mut b) = (0, 0);
    for (x, y) in anchors.into_iter().chain([(old.len(), new.len())]) {
        let between = (old.get(a..x).unwrap_or_default(), new.get(b..y).unwrap_or_default());
        found.extend(pairs(between.0, between.1).into_iter().map(|(i, j)| (i + a, j + b)));
        if x < old.len() {
            found.push((x, y));
        }
        (a, b) = (x + 1, y + 1);
    }
    if found.len() > better.len() { found } else { better }
}

/// Whether some of `keys` come seldom enough for them to be told apart by these: imara-diff looks at all that
/// is between two such, for each that comes often.
fn has_rare(keys: &[u32]) -> bool {
    /// So many that come often between two that do not, on average.
    const FAR: usize = 64;
    let mut times: HashMap<u32, usize> = HashMap::new();
    for key in keys {
        *times.entry(*key).or_default() += 1;
    }
    let seldom = keys.len().isqrt();
    let n_rare: usize = times.values().filter(|times| **times < seldom).sum();
    n_rare > keys.len() / FAR
}

/// As imara-diff has it, of the keys that both have: beside keys that only one has, it takes no part in
/// pairing those that come often.
fn by(algorithm: Algorithm, old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    // By key: its number, and whether `new` has it.
    let mut numbers: HashMap<u32, (u32, bool)> = HashMap::new();
    for key in old {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        numbers.entry(*key).or_insert((next, false));
    }
    for key in new {
        numbers.entry(*key).and_modify(|number| number.1 = true);
    }
    let shared = |keys: &[u32]| -> (Vec<usize>, Vec<Token>) {
        let token = |(at, key)| match numbers.get(key) {
            Some((number, true)) => Some((at, Token(*number))),
            _ => None,
        };
        keys.iter().enumerate().filter_map(token).unzip()
    };
    let ((at_old, a), (at_new, b)) = (shared(old), shared(new));
    let n = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    let mut diff = Diff::default();
    diff.compute_with(algorithm, &a, &b, n);
    let mut found = Vec::new();
    let (mut x, mut y) = (0, 0);
    for hunk in diff.hunks() {
        found.extend((x..hunk.before.start as usize).zip(y..hunk.after.start as usize));
        (x, y) = (hunk.before.end as usize, hunk.after.end as usize);
    }
    found.extend((x..a.len()).zip(y..b.len()));
    found.into_iter().filter_map(|(x, y)| Some((*at_old.get(x)?, *at_new.get(y)?))).collect()
}

/// Keys that both have once, as many as are in the same order.
fn anchors(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    // By key: where it is, if it is there once.
    let once = |keys: &[u32]| {
        let mut at: HashMap<u32, Option<usize>> = HashMap::new();
        for (n, key) in keys.iter().enumerate() {
            at.entry(*key).and_modify(|at| *at = None).or_insert(Some(n));
        }
        at
    };
    let in_new = once(new);
    let mut both: Vec<(usize, usize)> = once(old)
        .into_iter()
        .filter_map(|(key, at)| Some((at?, in_new.get(&key).copied().flatten()?)))
        .collect();
    both.sort_unstable();
    // The longest rising subsequence: by length, the last of the one that ends lowest, and who is before it.
    let (mut ends, mut before): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
    for (n, (_, y)) in both.iter().enumerate() {
        let len = ends.partition_point(|end: &usize| both.get(*end).is_some_and(|(_, other)| other < y));
        before.push(len.checked_sub(1).and_then(|len| ends.get(len)).copied());
        match ends.get_mut(len) {
            Some(end) => *end = n,
            None => ends.push(n),
        }
    }
    let first = ends.last().copied();
    let chain = std::iter::successors(first, |n| before.get(*n).copied().flatten());
    let mut found: Vec<(usize, usize)> = chain.filter_map(|n| both.get(n).copied()).collect();
    found.reverse();
    found
}

/// Those that are near each other.
fn by_window(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let (mut a, mut b) = (0, 0);
    while a < old.len() && b < new.len() {
        let (end_old, end_new) = ((a + WINDOW).min(old.len()), (b + WINDOW).min(new.len()));
        let part = (old.get(a..end_old).unwrap_or_default(), new.get(b..end_new).unwrap_or_default());
        let is_last = end_old == old.len() && end_new == new.len();
        let all = by(Algorithm::MyersMinimal, part.0, part.1);
        let n = all.partition_point(|(x, y)| is_last || x.max(y) < &(WINDOW / 2));
        // What stands far apart in the window is better than nothing.
        let n = if n == 0 { all.len().min(1) } else { n };
        found.extend(all.iter().take(n).map(|(x, y)| (x + a, y + b)));
        (a, b) = match all.get(..n).and_then(<[_]>::last) {
            _ if is_last => break,
            Some((x, y)) => (a + x + 1, b + y + 1),
            None => (a + WINDOW / 2, b + WINDOW / 2),
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The length of the longest common subsequence, by the table.
    fn longest(a: &[u32], b: &[u32]) -> usize {
        let mut above = vec![0; b.len() + 1];
        for x in a {
            let mut row = vec![0; b.len() + 1];
            for (n, y) in b.iter().enumerate() {
                row[n + 1] = if x == y { above[n] + 1 } else { row[n].max(above[n + 1]) };
            }
            above = row;
        }
        above[b.len()]
    }

    #[test]
    fn a_key_that_comes_often_is_paired_beside_keys_that_one_alone_has() {
        assert_eq!(pairs(&[5, 1, 5, 0, 5], &[1, 1]).len(), 1);
    }

    proptest! {
        #[test]
        fn small_ones_are_paired_as_far_as_can_be(
            a in prop::collection::vec(0u32..6, 0..40),
            b in prop::collection::vec(0u32..6, 0..40),
        ) {
            let found = pairs(&a, &b);
            prop_assert!(found.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
            prop_assert!(found.iter().all(|(x, y)| a[*x] == b[*y]));
            prop_assert_eq!(found.len(), longest(&a, &b));
        }
    }

    /// Two sequences of few keys, of which some were left out on both sides.
    fn thinned(n: u32, keys: u32) -> (Vec<u32>, Vec<u32>, usize) {
        let mut dice = 1u64;
        let mut throw = |n: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 33) % n
        };
        let (mut old, mut new, mut both) = (Vec::new(), Vec::new(), 0);
        for _ in 0..n {
            let key = u32::try_from(throw(u64::from(keys))).expect("few");
            let (in_old, in_new) = (throw(40) > 0, throw(40) > 0);
            old.extend(in_old.then_some(key));
            new.extend(in_new.then_some(key));
            both += usize::from(in_old && in_new);
        }
        (old, new, both)
    }

    #[test]
    fn large_ones_are_paired_in_order_whether_keys_are_rare_or_not() {
        for keys in [6, 40, 4000, 1_000_000] {
            let (old, new, both) = thinned(60_000, keys);
            let found = pairs(&old, &new);
            assert!(found.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1), "{keys}");
            assert!(found.iter().all(|(x, y)| old[*x] == new[*y]), "{keys}");
            assert!(found.len() > both * 99 / 100, "{keys}: {} of {both}", found.len());
        }
    }
}
