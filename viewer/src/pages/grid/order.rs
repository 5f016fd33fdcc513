//! In which order rows stand: numbers by their size, texts by their bytes, without a comparison that looks
//! at what it has seen before.
//!
//! Texts are sorted by eight bytes at a time, behind what all of a group have in common: names of large
//! programs begin alike, and each look at one is a miss of the cache.
//!
//! Source: W.-K. Ng, K. Kakehi, "Merging string sequences by longest common prefixes", 2008, and their
//! "Cache efficient radix sort for string sorting", 2007: caching the next bytes beside the pointer.

use super::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The places of those whose values are numbers in the order of [`key`], what is not known last; where all is
/// equal, in their own order.
pub fn by_number<'a>(places: impl Iterator<Item = u32>, value: impl Fn(u32) -> Value<'a>) -> Vec<u32> {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for place in places {
        match key(&value(place)) {
            Some(key) => known.push(u128::from(key) << 32 | u128::from(place)),
            None => unknown.push(place),
        }
    }
    known.sort_unstable();
    known.into_iter().map(low).chain(unknown).collect()
}

/// The number in the low 32 bits. What is sorted is one number: a comparison of pairs would have branches.
fn low(of: u128) -> u32 {
    u32::try_from(of & u128::from(u32::MAX)).unwrap_or(0)
}

/// A number that is the smaller the sooner a value comes: the largest numbers first, but the smallest
/// addresses.
fn key(value: &Value<'_>) -> Option<u64> {
    // IEEE 754: of two floats with the same sign, the bits are in the order of their sizes.
    let ascending = |n: f64| {
        let bits = n.to_bits();
        if n.is_sign_negative() { !bits } else { bits | 1 << 63 }
    };
    match *value {
        Value::Count(n) => Some(!n),
        Value::Share(n) | Value::Number(n) => Some(!ascending(n)),
        Value::Difference(n) => Some(!ascending(n.abs())),
        Value::Address(at) => Some(at),
        Value::Unknown | Value::Text(_) => None,
    }
}

/// The next eight bytes of a text, how many there are of them, and in the low 32 bits which text it is.
type Next = u128;
/// Texts of which all are equal up to some byte.
type Group<'a> = (&'a mut [Next], usize);
/// Bytes that are compared at once.
const BYTES: usize = 8;
/// A group that is sorted by comparing its texts.
const SMALL: usize = 12;
/// How many of a group are asked first what they have in common.
const SOME: usize = 64;
/// Fewer texts than these are sorted by one thread.
const FEW: usize = 20_000;

/// The places in the order of their texts; where these are equal, in their own order.
pub fn by_text<'a>(places: impl Iterator<Item = u32>, text: impl Fn(u32) -> &'a str) -> Vec<u32> {
    // Side by side: rows lie far apart.
    let (places, texts): (Vec<u32>, Vec<&[u8]>) = places.map(|place| (place, text(place).as_bytes())).unzip();
    let mut all: Vec<Next> = (0..).zip(&texts).map(|(n, _)| n).collect();
    let n_others = match all.len() {
        0..FEW => 0,
        _ => std::thread::available_parallelism().map_or(0, |n| n.get() - 1),
    };
    let mut groups = split((&mut all, 0), &texts, n_others);
    groups.sort_unstable_by_key(|group| group.0.len());
    side_by_side(groups, n_others, |group| {
        let mut within = vec![group];
        while let Some(group) = within.pop() {
            within.extend(split(group, &texts, 0));
        }
    });
    all.into_iter().filter_map(|next| places.get(usize::try_from(low(next)).ok()?).copied()).collect()
}

/// Does all `work`, the last of it first, by this thread and that many others.
fn side_by_side<T: Send>(work: Vec<T>, n_others: usize, does: impl Fn(T) + Sync) {
    let work = Mutex::new(work);
    let next = || work.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let works = || {
        while let Some(part) = next() {
            does(part);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..n_others {
            // Without it, others have more to do.
            let _none = std::thread::Builder::new().spawn_scoped(scope, works);
        }
        works();
    });
}

/// Sorts a group by the next bytes in which its texts differ, with that many other threads; gives the groups
/// that need to be sorted by those behind.
fn split<'a>((group, depth): Group<'a>, texts: &[&[u8]], n_others: usize) -> Vec<Group<'a>> {
    let behind = |next: &Next| {
        let text = usize::try_from(low(*next)).ok().and_then(|n| texts.get(n)?.get(depth..));
        text.unwrap_or_default()
    };
    if group.len() <= SMALL {
        group.sort_unstable_by(|a, b| behind(a).cmp(behind(b)).then(low(*a).cmp(&low(*b))));
        return Vec::new();
    }
    let first = group.first().map_or(&[][..], behind);
    let alike =
        |bytes: &[u8], most: usize| first.iter().zip(bytes).take(most).take_while(|(a, b)| a == b).count();
    // What some have in common, all mostly have: then each is looked at once.
    let some = group.iter().step_by(group.len().div_ceil(SOME));
    let common = AtomicUsize::new(some.fold(first.len(), |most, next| alike(behind(next), most)));
    let part = group.len().div_ceil(n_others + 1);
    loop {
        let tried = common.load(Ordering::Relaxed);
        side_by_side(group.chunks_mut(part).collect(), n_others, |part| {
            for next in part.iter_mut() {
                let text = behind(next);
                let is_alike = text.get(..tried) == first.get(..tried);
                if !is_alike {
                    common.fetch_min(alike(text, tried), Ordering::Relaxed);
                }
                let bytes = next_bytes(text.get(tried..).unwrap_or_default());
                *next = bytes << 32 | u128::from(low(*next));
            }
        });
        if common.load(Ordering::Relaxed) == tried {
            break;
        }
    }
    let common = common.into_inner();
    side_by_side(group.chunks_mut(part).collect(), n_others, |part| part.sort_unstable());
    if n_others > 0 {
        // Takes sorted parts as they are, and merges them.
        group.sort();
    }
    // Those that have ended are equal, and in the order of their places.
    let goes_on = |group: &&mut [Next]| {
        group.len() > 1 && group.first().is_some_and(|next| (next >> 32) & 0xff == BYTES as u128)
    };
    let groups = group.chunk_by_mut(|a, b| a >> 32 == b >> 32).filter(goes_on);
    groups.map(|group| (group, depth + common + BYTES)).collect()
}

/// The first bytes as a number in their order, then how many there are: what ends sooner comes sooner.
fn next_bytes(bytes: &[u8]) -> u128 {
    let mut next = [0; BYTES];
    for (to, byte) in next.iter_mut().zip(bytes) {
        *to = *byte;
    }
    u128::from(u64::from_be_bytes(next)) << 8 | bytes.len().min(BYTES) as u128
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_texts(texts: &[String]) {
        let n = u32::try_from(texts.len()).expect("few");
        let text = |place: u32| texts[place as usize].as_str();
        let mut expect: Vec<u32> = (0..n).collect();
        expect.sort_by(|a, b| text(*a).cmp(text(*b)).then(a.cmp(b)));
        assert_eq!(by_text(0..n, text), expect, "{texts:?}");
    }

    #[test]
    fn texts_are_in_the_order_of_their_bytes_whatever_they_have_in_common() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut below = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % n).expect("it is small")
        };
        for round in 0..200 {
            let n = below(120) + 1;
            let text = |_| {
                let start = ["", "std::vector<int>::", "\0\0\0\0\0\0\0\0", "\u{202e}ü"][below(4)];
                let letters = (0..below(20)).map(|_| ["a", "b", "\0", "ß"][below(4)]);
                letters.fold(start.to_owned(), |all, letter| all + letter)
            };
            let mut texts: Vec<String> = (0..n).map(text).collect();
            if round % 2 == 0 {
                texts.extend(texts.clone());
            }
            check_texts(&texts);
        }
        check_texts(&[]);
        // Many that end where others go on with what cannot be seen.
        let long = (0..40).map(|n| "\0".repeat(n));
        check_texts(&long.clone().rev().chain(long).collect::<Vec<_>>());
    }

    #[test]
    fn long_texts_that_are_equal_are_looked_at_once() {
        let texts = vec!["x".repeat(1 << 20); 40];
        let start = std::time::Instant::now();
        check_texts(&texts);
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }

    #[test]
    fn numbers_are_in_the_order_of_their_values() {
        let all = [
            Value::Number(-0.0),
            Value::Number(f64::INFINITY),
            Value::Unknown,
            Value::Number(2.5),
            Value::Number(-7.0),
            Value::Number(2.5),
            Value::Number(1e-300),
        ];
        assert_eq!(by_number(0..7, |place| all[place as usize]), [1, 3, 5, 6, 0, 4, 2]);
        let by = [Value::Difference(-8.0), Value::Difference(3.0), Value::Difference(8.0)];
        assert_eq!(by_number(0..3, |place| by[place as usize]), [0, 2, 1]);
        let at = [Value::Address(9), Value::Address(3)];
        assert_eq!(by_number(0..2, |place| at[place as usize]), [1, 0]);
        let n = [Value::Count(0), Value::Count(u64::MAX), Value::Unknown, Value::Count(5)];
        assert_eq!(by_number(0..4, |place| n[place as usize]), [1, 3, 0, 2]);
    }
}
