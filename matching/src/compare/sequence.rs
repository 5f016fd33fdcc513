//! Two sequences of keys, aligned: which of the one is which of the other, in order.
//!
//! What is small is aligned so that as many as possible are paired. What is large is cut at keys that both
//! have once, and where there are none, aligned through a window that moves on: differences are small and
//! many, and keys come again and again, which is what tools for texts are not made for.
//!
//! Source: E. Myers, "An O(ND) difference algorithm", Algorithmica 1 (1986), by similar; the histogram diff
//! of git, by imara-diff, whose own Myers does not always pair as many as can be; B. Cohen's patience diff.

use imara_diff::{Algorithm, Diff, Token};
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// The product of two lengths up to which as many as possible are paired.
const SMALL: usize = 400_000;
/// What tells more is taken to be right where it pairs more than this share of what else can be.
const SURE: f64 = 0.8;
/// How long the window is, in both sequences; of what is paired in it, the first half is kept.
const WINDOW: usize = 600;

/// A sequence: its keys; and as many that tell more, of which equal ones have equal keys.
#[derive(Clone, Copy, Debug)]
pub struct Keyed<'a> {
    /// What may be paired.
    pub keys: &'a [u32],
    /// What is likely to be the same, where it is there once in both.
    pub fine: &'a [u64],
}

impl Keyed<'_> {
    fn part(&self, range: std::ops::Range<usize>) -> Self {
        Keyed {
            keys: self.keys.get(range.clone()).unwrap_or_default(),
            fine: self.fine.get(range).unwrap_or_default(),
        }
    }
}

/// Positions in `old` and `new` that are paired, in order.
pub fn pairs(old: Keyed<'_>, new: Keyed<'_>) -> Vec<(usize, usize)> {
    let (n_old, n_new) = (old.keys.len(), new.keys.len());
    let start = old.keys.iter().zip(new.keys).take_while(|(a, b)| a == b).count();
    let behind = old.keys.iter().rev().zip(new.keys.iter().rev()).take_while(|(a, b)| a == b).count();
    let end = behind.min(n_old.min(n_new) - start);
    let mut found: Vec<(usize, usize)> = (0..start).map(|n| (n, n)).collect();
    if start + end < n_old && start + end < n_new {
        let middle = differing(old.part(start..n_old - end), new.part(start..n_new - end));
        found.extend(middle.into_iter().map(|(x, y)| (x + start, y + start)));
    }
    found.extend((0..end).map(|n| (n_old - end + n, n_new - end + n)));
    found
}

/// The same of sequences that begin and end differently.
fn differing(old: Keyed<'_>, new: Keyed<'_>) -> Vec<(usize, usize)> {
    if old.keys.len().saturating_mul(new.keys.len()) <= SMALL {
        return exactly(old.keys, new.keys);
    }
    let most = at_most(old.keys, new.keys);
    // Less will not do: what is left may be one period of what comes again and again, at either end.
    let is_all = |found: &[(usize, usize)]| found.len() >= most;
    let by_anchors = |anchors: Vec<(usize, usize)>| {
        if anchors.is_empty() { Vec::new() } else { between(old, new, anchors) }
    };
    // What tells more first: where it pairs all, nothing else is tried.
    let by_fine = by_anchors(anchors(old.fine, new.fine));
    if is_all(&by_fine) {
        return by_fine;
    }
    let mut best = by_anchors(anchors(old.keys, new.keys));
    if !is_all(&best) {
        let by_looks = by_looks(old.keys, new.keys, is_all);
        best = if by_looks.len() > best.len() { by_looks } else { best };
    }
    // What is there once in both may still be another: it is not, where about as much is paired by it.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let is_sure = by_fine.len() as f64 > best.len() as f64 * SURE;
    if is_sure { by_fine } else { best }
}

/// How many can be paired at most, in whatever order.
fn at_most(old: &[u32], new: &[u32]) -> usize {
    let mut times: FxHashMap<u32, usize> = FxHashMap::default();
    old.iter().for_each(|key| *times.entry(*key).or_default() += 1);
    let is_left = |key: &&u32| {
        let left = times.get_mut(*key).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    };
    new.iter().filter(is_left).count()
}

/// `anchors`, and what is paired between them.
fn between(old: Keyed<'_>, new: Keyed<'_>, anchors: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let ends = (old.keys.len(), new.keys.len());
    let mut found = Vec::new();
    let (mut a, mut b) = (0, 0);
    for (x, y) in anchors.into_iter().chain([ends]) {
        let inner = pairs(old.part(a..x), new.part(b..y));
        found.extend(inner.into_iter().map(|(i, j)| (i + a, j + b)));
        if x < ends.0 {
            found.push((x, y));
        }
        (a, b) = (x + 1, y + 1);
    }
    found
}

/// Large ones, by what is seldom, or through a window, if what is seldom does not pair all.
fn by_looks(old: &[u32], new: &[u32], is_all: impl Fn(&[(usize, usize)]) -> bool) -> Vec<(usize, usize)> {
    let by_rare = if has_rare(old) && has_rare(new) { by_rare(old, new) } else { Vec::new() };
    if is_all(&by_rare) {
        return by_rare;
    }
    let forwards = by_window(old, new);
    if is_all(&forwards) {
        return forwards;
    }
    // Whoever has lost its way in what comes again and again does not find it any more: from behind, it is
    // another part of it that goes wrong.
    let reversed = |keys: &[u32]| keys.iter().rev().copied().collect::<Vec<u32>>();
    let mut backwards = by_window(&reversed(old), &reversed(new));
    backwards.reverse();
    backwards.iter_mut().for_each(|(x, y)| (*x, *y) = (old.len() - 1 - *x, new.len() - 1 - *y));
    let longest = |a: Vec<_>, b: Vec<_>| if b.len() > a.len() { b } else { a };
    longest(longest(forwards, backwards), by_rare)
}

/// Whether enough of `keys` come seldom for them to be told apart by these: imara-diff looks at all that is
/// between two such, for each that comes often.
fn has_rare(keys: &[u32]) -> bool {
    /// So much may be looked at.
    const MOST: usize = 1 << 30;
    let mut times: FxHashMap<u32, usize> = FxHashMap::default();
    for key in keys {
        *times.entry(*key).or_default() += 1;
    }
    let often = keys.len().isqrt();
    let is_often = |key: &u32| times.get(key).is_some_and(|times| *times >= often);
    let runs = keys.chunk_by(|a, b| is_often(a) == is_often(b));
    let looks = runs.filter(|run| run.first().is_some_and(is_often)).map(|run| run.len() * run.len());
    looks.fold(0, usize::saturating_add) <= MOST
}

/// As many as can be paired.
fn exactly(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for op in similar::capture_diff_slices(similar::Algorithm::Myers, old, new) {
        if let similar::DiffOp::Equal { old_index, new_index, len } = op {
            found.extend((old_index..old_index + len).zip(new_index..new_index + len));
        }
    }
    found
}

/// As imara-diff has it, of the keys that both have: beside keys that only one has, it takes no part in
/// pairing those that come often.
fn by_rare(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    // By key: its number, and whether `new` has it.
    let mut numbers: FxHashMap<u32, (u32, bool)> = FxHashMap::default();
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
    diff.compute_with(Algorithm::Histogram, &a, &b, n);
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
fn anchors<K: Copy + Eq + Hash>(old: &[K], new: &[K]) -> Vec<(usize, usize)> {
    // By key: where it is, if it is there once.
    let once = |keys: &[K]| {
        let mut at: FxHashMap<K, Option<usize>> = FxHashMap::default();
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
        let all = exactly(part.0, part.1);
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

    /// The same where nothing tells more than keys.
    fn pairs(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
        let fine = |keys: &[u32]| keys.iter().copied().map(u64::from).collect::<Vec<_>>();
        super::pairs(Keyed { keys: old, fine: &fine(old) }, Keyed { keys: new, fine: &fine(new) })
    }

    #[test]
    fn what_tells_more_is_paired_where_keys_say_little() {
        // One key, but for what is not there on the other side; of a thousand, one is known.
        let mut keys = (vec![7u32; 3000], vec![7u32; 3000]);
        let mut fine = (vec![7u64; 3000], vec![7u64; 3000]);
        (keys.0[0], keys.1[2999]) = (1, 2);
        (fine.0[0], fine.1[2999]) = (1, 2);
        for n in 1..3 {
            fine.0[1000 * n] = 100 + n as u64;
            fine.1[1000 * n - 300] = 100 + n as u64;
        }
        let (old, new) = (Keyed { keys: &keys.0, fine: &fine.0 }, Keyed { keys: &keys.1, fine: &fine.1 });
        let found = super::pairs(old, new);
        assert!(found.contains(&(1000, 700)) && found.contains(&(2000, 1700)), "{}", found.len());
        assert!(found.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
    }

    #[test]
    fn what_comes_again_and_again_behind_a_part_that_differs_is_paired_without_a_shift() {
        // Of 50 keys in turn, behind 1,000 that have nothing in common but some of these.
        let turns = |n: u32| (0..n).map(|n| n % 50).collect::<Vec<u32>>();
        let start = |seed: u32| (0..1000).map(move |n: u32| (n * seed + seed) % 50).collect::<Vec<u32>>();
        let (old, new) =
            ([start(7), turns(60_000)].concat(), [start(11), turns(59_000), vec![50; 3]].concat());
        let found = pairs(&old, &new);
        // Both end alike, but for what one alone has.
        let is_right = |(x, y): &&(usize, usize)| old.len() - x == new.len() - 3 - y;
        assert!(found.iter().filter(is_right).count() > 58_000, "{}", found.len());
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
