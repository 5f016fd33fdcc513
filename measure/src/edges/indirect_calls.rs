//! Where indirect calls led, as a counted program leaves it: words behind the counters of each area.
//!
//! ```text
//! callees = base: varint, start and end of the old segments: varint, first word: varint, slots of the table:
//!           varint, n: varint, calling instruction from the one before: varint*
//! words   = site*, slot*
//! site    = base - target of what was called first, if that is in the image; how often; how often something
//!           there was no room for
//! slot    = number of the site's first word; base - target; how often; which: 1 in the image, 2^48 (m + 1) +
//!           offset in the old segments of row m, else the target in the process
//! ```
//! Invariant: what was counted for a site is all there, if only as "something else".
#![warn(clippy::indexing_slicing)]

use probe::arch::shared::{CallSite, CallSlot, SITE_WORDS, SLOT_WORDS, TARGET_ROW};
use profile::encoding::{Cursor, varint};
use profile::{Beyond, Profile, ReadError};
use program::Va;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;

const SITE_LEN: usize = SITE_WORDS as usize;
const SLOT_LEN: usize = SLOT_WORDS as usize;

/// The calls whose targets are counted, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Callees {
    /// What targets are subtracted from.
    pub base: Va,
    /// The old segments.
    pub old: Range<Va>,
    /// The first word of the first site.
    pub first: u32,
    /// How many slots the table has.
    pub n_slots: u32,
    /// The calling instructions, by address.
    pub sites: Vec<Va>,
}

/// Where a call led.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// To this address of the image.
    Here(Va),
    /// To this offset in the old segments of a row of the recording.
    Row(u32, u64),
    /// To this address of the process.
    Process(u64),
    /// Elsewhere.
    Other,
}

/// How often calls led where: by calling instruction and target.
pub type Found = BTreeMap<(Va, Target), u64>;

impl Callees {
    /// How many words it has.
    pub fn n_words(&self) -> u64 {
        u64::from(SITE_WORDS) * self.sites.len() as u64 + u64::from(SLOT_WORDS) * u64::from(self.n_slots)
    }

    /// Adds what is in `words`, those of an area from the first on.
    pub fn add(&self, words: &[u64], found: &mut Found) {
        let mut add = |site: Va, target: Target, n: u64| {
            if n > 0 {
                let sum = found.entry((site, target)).or_insert(0);
                *sum = sum.saturating_add(n);
            }
        };
        let here = |distance: u64| Va(self.base.0.wrapping_sub(distance));
        let n_sites = self.sites.len();
        let (sites, slots) = words.split_at((SITE_LEN * n_sites).min(words.len()));
        for (&at, words) in self.sites.iter().zip(sites.as_chunks().0) {
            let CallSite { target, n, n_lost } = site(words);
            add(at, if target == 0 { Target::Other } else { Target::Here(here(target)) }, n);
            add(at, Target::Other, n_lost);
        }
        for words in slots.as_chunks().0 {
            let CallSlot { site, distance, n, target } = slot(words);
            let words_before = site.checked_sub(u64::from(self.first));
            let place = words_before.and_then(|n| usize::try_from(n / u64::from(SITE_WORDS)).ok());
            let Some(&at) = place.and_then(|n| self.sites.get(n)) else { continue };
            let to = match (target, target >> TARGET_ROW) {
                (0, _) => Target::Other,
                (1, _) => Target::Here(here(distance)),
                (_, 0) => Target::Process(target),
                (_, row) => match u32::try_from(row - 1) {
                    Ok(row) => Target::Row(row, target & ((1 << TARGET_ROW) - 1)),
                    Err(_) => Target::Other,
                },
            };
            add(at, to, n);
        }
    }

    /// Adds `found` to `profile`; `row` says which image a row is of, and where its old segments start.
    pub fn tell(&self, found: &Found, profile: &mut Profile, row: impl Fn(u32) -> Option<(String, Va)>) {
        for (&(at, target), &n) in found {
            let beyond = match target {
                Target::Here(to) => {
                    let sum = profile.calls.entry((at, to)).or_insert(0);
                    *sum = sum.saturating_add(n);
                    continue;
                }
                Target::Row(m, offset) => match row(m) {
                    Some((image, start)) => Beyond::Image(image, start.plus(offset)),
                    None => Beyond::Unknown,
                },
                Target::Process(at) => Beyond::Process(at),
                Target::Other => Beyond::Unknown,
            };
            let sum = profile.calls_out.entry(at).or_insert(0);
            *sum = sum.saturating_add(n);
            let sum = profile.calls_beyond.entry((at, beyond)).or_insert(0);
            *sum = sum.saturating_add(n);
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for n in [self.base.0, self.old.start.0, self.old.end.0] {
            varint(out, n);
        }
        varint(out, u64::from(self.first));
        varint(out, u64::from(self.n_slots));
        varint(out, self.sites.len() as u64);
        let mut before = Va(0);
        for &at in &self.sites {
            varint(out, at.since(before));
            before = at;
        }
    }

    pub(crate) fn parse(c: &mut Cursor<'_>) -> Result<Callees, ReadError> {
        let base = Va(c.varint()?);
        let old = Va(c.varint()?)..Va(c.varint()?);
        let word = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let (first, n_slots) = (word(c.varint()?), word(c.varint()?));
        let mut sites = Vec::new();
        let mut at = Va(0);
        for _ in 0..c.varint()? {
            at = at.plus(c.varint()?);
            sites.push(at);
        }
        Ok(Callees { base, old, first, n_slots, sites })
    }
}

// Their words stand in the order of their fields.
const _: () = assert!(
    offset_of!(CallSite, target) == 0 && offset_of!(CallSite, n) == 8 && offset_of!(CallSite, n_lost) == 16
);
const _: () = assert!(
    offset_of!(CallSlot, site) == 0
        && offset_of!(CallSlot, distance) == 8
        && offset_of!(CallSlot, n) == 16
        && offset_of!(CallSlot, target) == 24
);

fn site(&[target, n, n_lost]: &[u64; SITE_LEN]) -> CallSite {
    CallSite { target, n, n_lost }
}

fn slot(&[site, distance, n, target]: &[u64; SLOT_LEN]) -> CallSlot {
    CallSlot { site, distance, n, target }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callees() -> Callees {
        Callees {
            base: Va(0x9000),
            old: Va(0x1000)..Va(0x8000),
            first: 5,
            n_slots: 4,
            sites: vec![Va(0x1100), Va(0x1180)],
        }
    }

    /// Two areas written down word by word, and what they mean.
    #[test]
    fn what_words_mean_is_told_site_by_site() {
        let (c, mut found) = (callees(), Found::new());
        let unused = [0; 4];
        let one = [0x9000 - 0x2000, 7, 0, 0, 0, 3];
        let slots =
            [[5, 0x9000 - 0x3000, 2, 1], [8, 77, 4, 2 << 48 | 0x40], unused, [5, 99, 6, 0x7f00_0000_1234]];
        c.add(&[&one[..], &slots.concat()].concat(), &mut found);
        // The first site led elsewhere first here; the last slot was left before it said which.
        let two = [0x9000 - 0x3000, 1, 0, 0x9000 - 0x2000, 10, 0];
        let slots = [[5, 0x9000 - 0x2000, 20, 1], [8, 77, 0, 2 << 48 | 0x40], [4, 1, 1, 1], [8, 1, 0, 0]];
        c.add(&[&two[..], &slots.concat()].concat(), &mut found);
        let mut profile = Profile::default();
        c.tell(&found, &mut profile, |row| (row == 1).then(|| ("lib".to_owned(), Va(0x100))));
        let (a, b) = (Va(0x1100), Va(0x1180));
        let calls: Vec<_> = profile.calls.into_iter().collect();
        assert_eq!(calls, [((a, Va(0x2000)), 27), ((a, Va(0x3000)), 3), ((b, Va(0x2000)), 10)]);
        let beyond: Vec<_> = profile.calls_beyond.into_iter().collect();
        let in_lib = Beyond::Image("lib".to_owned(), Va(0x140));
        let want = [((a, Beyond::Process(0x7f00_0000_1234)), 6), ((b, in_lib), 4), ((b, Beyond::Unknown), 3)];
        assert_eq!(beyond, want);
        assert_eq!(profile.calls_out.into_iter().collect::<Vec<_>>(), [(a, 6), (b, 7)]);
    }

    #[test]
    fn hostile_words_do_no_harm() {
        let mut found = Found::new();
        callees().add(&[u64::MAX; 7], &mut found);
        callees().add(&[u64::MAX; 22], &mut found);
        callees().add(&[], &mut found);
    }
}
