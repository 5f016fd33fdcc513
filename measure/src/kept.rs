//! What the words of a probe keep: how many they are, how notes say so, and what was kept in a run.
//!
//! ```text
//! watch = what: bytes, first word: varint, keeps
//! keeps = varint: 0 count, 1 last, 2 histogram, 3 + n ring of n, a power of two; 3 itself is none, and is
//!         free for the tag of another that stands behind it
//! ```
//! Not here: which words a probe has (`probe`), where they are in a recording (`edges::raw_recording`).
#![warn(clippy::indexing_slicing)]

use probe::HISTOGRAM_WORDS;
use profile::encoding::{Cursor, put_bytes, varint};
use profile::{ImageRef, ReadError};

/// What stands before the address of a place, where a line of a plan means several.
pub(crate) const AT: &str = " at 0x";

/// Words that keep what was seen at a point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    /// What was asked for.
    pub what: String,
    /// The first word.
    pub word: u32,
    /// What is in it, and in those that follow.
    pub keeps: Keeps,
}

/// What words keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// How often.
    Count,
    /// The last value.
    Last,
    /// [`HISTOGRAM_WORDS`]: how many values had 0, 1, 2 … 64 bits.
    Histogram,
    /// How many values there were, and behind it the last ones: so many, a power of two.
    Ring(u32),
}

/// What was seen at a point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The image it is in.
    pub image: ImageRef,
    /// What was asked for.
    pub what: String,
    /// What was kept.
    pub kept: Kept,
}

impl Seen {
    /// The line of the plan, without which of its places it is.
    pub fn line(&self) -> &str {
        self.what.split_once(AT).map_or(&self.what, |parts| parts.0)
    }

    /// Whether nothing came by.
    pub fn is_nothing(&self) -> bool {
        match &self.kept {
            Kept::Count(n) => *n == 0,
            Kept::Histogram(all) => all.iter().all(|n| *n == 0),
            Kept::Ring(threads) => threads.is_empty(),
            // Zero may be a value.
            Kept::Last(_) => false,
        }
    }
}

/// The lines of plans in `all` of which nothing came by, at none of their places.
pub fn never_reached(all: &[Seen]) -> Vec<&str> {
    let mut lines: Vec<&str> = Vec::new();
    for seen in all {
        let same = |other: &&Seen| other.image == seen.image && other.line() == seen.line();
        if !lines.contains(&seen.line()) && all.iter().filter(same).all(Seen::is_nothing) {
            lines.push(seen.line());
        }
    }
    lines
}

/// What was kept, of all threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kept {
    /// How often.
    Count(u64),
    /// The last value of each thread that has one other than zero.
    Last(Vec<u64>),
    /// How many values had 0, 1, 2 … 64 bits.
    Histogram(Vec<u64>),
    /// Per thread: how many values there were, and the last ones in order.
    Ring(Vec<(u64, Vec<u64>)>),
}

/// How notes say what words keep.
const COUNT: u64 = 0;
const LAST: u64 = 1;
const HISTOGRAM: u64 = 2;
/// A ring of n is this and n.
const RING: u64 = 3;

impl Watch {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.what.as_bytes());
        varint(out, u64::from(self.word));
        varint(
            out,
            match self.keeps {
                Keeps::Count => COUNT,
                Keeps::Last => LAST,
                Keeps::Histogram => HISTOGRAM,
                Keeps::Ring(len) => RING + u64::from(len),
            },
        );
    }

    pub(crate) fn parse(c: &mut Cursor<'_>) -> Result<Watch, ReadError> {
        let what = String::from_utf8_lossy(c.bytes()?).into_owned();
        let word = u32::try_from(c.varint()?).unwrap_or(u32::MAX);
        let ring = |tag: u64| u32::try_from(tag - RING).ok().filter(|len| len.is_power_of_two());
        let keeps = match c.varint()? {
            COUNT => Keeps::Count,
            LAST => Keeps::Last,
            HISTOGRAM => Keeps::Histogram,
            tag => match ring(tag) {
                Some(len) => Keeps::Ring(len),
                None => return Err(c.damaged(&format!("it keeps {tag} at a point, which we do not know"))),
            },
        };
        Ok(Watch { what, word, keeps })
    }
}

impl Keeps {
    /// How many words.
    pub fn n_words(self) -> u64 {
        match self {
            Keeps::Count | Keeps::Last => 1,
            Keeps::Histogram => u64::from(HISTOGRAM_WORDS),
            Keeps::Ring(len) => 1 + u64::from(len),
        }
    }

    /// What is in its words, one run of them a thread.
    pub(crate) fn read(self, threads: &[Vec<u64>]) -> Kept {
        let sums = || {
            let mut sums = vec![0u64; threads.first().map_or(0, Vec::len)];
            let each = threads.iter().flat_map(|t| t.iter().enumerate());
            each.for_each(|(n, x)| {
                if let Some(sum) = sums.get_mut(n) {
                    *sum = sum.saturating_add(*x);
                }
            });
            sums
        };
        match self {
            Keeps::Count => Kept::Count(sums().first().copied().unwrap_or(0)),
            Keeps::Histogram => Kept::Histogram(sums()),
            Keeps::Last => Kept::Last(threads.iter().flatten().copied().filter(|v| *v != 0).collect()),
            Keeps::Ring(len) => {
                Kept::Ring(threads.iter().filter_map(|t| ring(t, len)).filter(|r| r.0 > 0).collect())
            }
        }
    }
}

/// How many values went into a ring, and those that are left, the oldest first.
fn ring(words: &[u64], len: u32) -> Option<(u64, Vec<u64>)> {
    let (&n, values) = words.split_first()?;
    let len = (len > 0).then(|| u64::from(len))?;
    let first = n.saturating_sub(len);
    let at = |i: u64| values.get(usize::try_from(i.checked_rem(len)?).ok()?).copied();
    Some((n, (first..n).map(at).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written down of a watch, and what is read of it.
    fn check(keeps: Keeps, want: &[u8]) {
        let watch = Watch { what: "f".to_owned(), word: 7, keeps };
        let mut bytes = Vec::new();
        watch.write(&mut bytes);
        assert_eq!(bytes, [&[1, b'f', 7][..], want].concat(), "{keeps:?}");
        assert_eq!(Watch::parse(&mut Cursor::within(&bytes)).expect("written"), watch);
    }

    #[test]
    fn what_is_kept_has_a_tag() {
        check(Keeps::Count, &[0]);
        check(Keeps::Last, &[1]);
        check(Keeps::Histogram, &[2]);
        check(Keeps::Ring(1), &[4]);
        check(Keeps::Ring(16), &[19]);
        check(Keeps::Ring(1 << 16), &[0x83, 0x80, 4]);
    }

    #[test]
    fn tags_of_later_versions_are_refused() {
        // The one that is free, no power of two, one that has too many bits, one that is cut off.
        for tag in [&[3][..], &[3, 0], &[6], &[0x83, 0x80, 0x80, 0x80, 0x20], &[0x83]] {
            let bytes = [&[1, b'f', 7][..], tag].concat();
            assert!(Watch::parse(&mut Cursor::within(&bytes)).is_err(), "{tag:?}");
        }
    }

    #[test]
    fn rings_are_read_in_order() {
        assert_eq!(ring(&[5, 11, 12, 13, 14], 4), Some((5, vec![12, 13, 14, 11])));
        assert_eq!(ring(&[6, 11, 12, 13, 14], 4), Some((6, vec![13, 14, 11, 12])));
        assert_eq!(ring(&[3, 11, 12], 0), None);
    }

    #[test]
    fn words_of_all_threads_are_put_together() {
        let threads = [vec![3, 5, 6], vec![0, 1, 0]];
        assert_eq!(Keeps::Count.read(&threads), Kept::Count(3));
        assert_eq!(Keeps::Histogram.read(&threads), Kept::Histogram(vec![3, 6, 6]));
        assert_eq!(Keeps::Last.read(&threads), Kept::Last(vec![3, 5, 6, 1]));
        assert_eq!(Keeps::Ring(2).read(&threads), Kept::Ring(vec![(3, vec![6, 5])]));
        for keeps in [Keeps::Count, Keeps::Histogram, Keeps::Last, Keeps::Ring(2)] {
            keeps.read(&[]);
            keeps.read(&[Vec::new(), vec![u64::MAX]]);
        }
    }
}
