//! How much of stacks is copied with samples: as much as their callers are found in.
//!
//! Each sample says how far up its stack its callers were. It begins with most, and comes down to what all of
//! the first samples would have needed; when chains are cut then where the copy ends, it is most again, and
//! for longer. What lies deeper than most is read a moment later; where that held all callers, no more is
//! copied for it.
//!
//! Invariant: a size that helps nobody is left again, and each time it is tried for longer, so that what goes
//! to and fro costs little.

use super::cost::cost_of_a_sample;
use live::{Chains, OpenError, Rate, Wanted};
use profile::samples::Copied;

/// What may be copied, in bytes; the kernel's records have no room for more than the last.
const SIZES: [u32; 4] = [8 << 10, 16 << 10, 32 << 10, 65_528];
/// So many samples decide at first whether less is enough; and at most.
const FIRST: u32 = 64;
const LONGEST: u32 = 1 << 13;
/// One chain of so many may be cut because of the size.
const ONE_OF: u32 = 256;
/// So many cut chains are looked at together, at least, before more is copied; twice as many each time that
/// it was.
const CUT: u32 = 2;
const MOST_CUT: u32 = 64;
/// A ring should hold so many samples.
const IN_RING: usize = 4;

/// How much of a stack is copied, how often, and what that costs.
#[derive(Clone, Copy, Debug)]
struct Size {
    bytes: u32,
    rate: Rate,
    /// Nanoseconds that a sample takes of its thread, if that was measured.
    cost_ns: Option<u64>,
    /// How many samples there were.
    n: u64,
}

/// How much of stacks is copied: one size, or as much as is needed.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Ascending.
    all: Vec<Size>,
    now: usize,
    /// Samples since it was looked at last whether another size is better: how many, and how many of them
    /// needed no more than each size; cut ones, where copies ended.
    n: u32,
    fits: Vec<u32>,
    cut: u32,
    /// So many samples are waited for before it becomes less.
    patience: u32,
    /// So many cut ones are, before it becomes more.
    enough: u32,
}

/// How far up its stack the callers of a sample were looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Need {
    /// Bytes from its stack pointer on.
    pub(super) bytes: u64,
    /// Whether some of these had not been copied.
    pub(super) is_deeper: bool,
    /// Whether some were read a moment later.
    pub(super) is_read_later: bool,
    /// Whether all callers were found.
    pub(super) is_whole: bool,
}

impl Sizes {
    /// What `wanted` says, to the end; a sample of it costs so many nanoseconds, if that is known.
    pub fn fixed(wanted: &Wanted, cost_ns: Option<u64>) -> Sizes {
        let bytes = wanted.chains.map_or(0, |chains| chains.stack);
        Sizes::of(vec![Size { bytes, rate: wanted.rate, cost_ns, n: 0 }])
    }

    /// As much as the callers of `wanted` need. What samples cost is measured; `rate` says how often that may
    /// be.
    ///
    /// # Errors
    /// If there is no such event, or we may not.
    pub fn as_needed(wanted: &Wanted, rate: impl Fn(Option<u64>) -> Rate) -> Result<Sizes, OpenError> {
        let (least, most) = (SIZES[0], SIZES[SIZES.len() - 1]);
        let cost = |stack| {
            let chains = wanted.chains.map(|_| Chains { stack });
            cost_of_a_sample(&Wanted { chains, ..wanted.clone() })
        };
        let (cheap, dear) = (cost(least)?, cost(most)?);
        let size = |bytes: u32| {
            let cost_ns = cheap.zip(dear).map(|(cheap, dear)| {
                // What is copied is most of what makes the difference.
                let more = u64::from(bytes - least) * dear.saturating_sub(cheap) / u64::from(most - least);
                cheap + more
            });
            Size { bytes, rate: rate(cost_ns), cost_ns, n: 0 }
        };
        Ok(Sizes::of(SIZES.into_iter().map(size).collect()))
    }

    fn of(all: Vec<Size>) -> Sizes {
        let fits = vec![0; all.len()];
        let now = all.len().saturating_sub(1);
        Sizes { all, now, n: 0, fits, cut: 0, patience: FIRST, enough: CUT }
    }

    /// What it is now: how much is copied, and how often.
    pub(super) fn now(&self) -> (u32, Rate) {
        let size = self.all.get(self.now);
        size.map_or((0, Rate::Hertz(1)), |size| (size.bytes, size.rate))
    }

    /// No more than what a ring of `room` bytes has several of.
    pub(super) fn fit_into(&mut self, room: usize) {
        let most = room / IN_RING;
        let n = self.all.partition_point(|size| usize::try_from(size.bytes).is_ok_and(|bytes| bytes <= most));
        self.all.truncate(n.max(1));
        self.now = self.now.min(self.all.len() - 1);
    }

    /// It stays what it is: no other can be had.
    pub(super) fn stay(&mut self, bytes: u32) {
        self.all.retain(|size| size.bytes == bytes || size.n > 0);
        self.now = self.all.iter().position(|size| size.bytes == bytes).unwrap_or(0);
        self.patience = u32::MAX;
        self.enough = u32::MAX;
    }

    /// A sample came, when so many bytes were copied.
    pub(super) fn count(&mut self, bytes: u32) {
        if let Some(size) = self.all.iter_mut().find(|size| size.bytes == bytes) {
            size.n += 1;
        }
    }

    /// What a sample needed, when so many bytes were copied; whether another size is to be taken now.
    pub(super) fn heard(&mut self, bytes: u32, need: Need) -> bool {
        // What was sampled before it became another says nothing of that.
        if self.all.len() < 2 || bytes != self.now().0 {
            return false;
        }
        self.n += 1;
        if need.is_whole {
            for (fits, size) in self.fits.iter_mut().zip(&self.all) {
                *fits += u32::from(need.bytes <= u64::from(size.bytes));
            }
        } else if need.is_deeper {
            self.cut += 1;
        } else {
            // More would not have helped.
            self.fits.iter_mut().for_each(|fits| *fits += 1);
        }
        let last = self.all.len() - 1;
        if self.now < last && self.cut >= self.enough && self.cut.saturating_mul(ONE_OF) > self.n {
            self.enough = (self.enough * 2).min(MOST_CUT);
            self.patience = (self.patience * 2).min(LONGEST);
            self.look_anew(last);
            return true;
        }
        if self.n < self.patience {
            return false;
        }
        let may_miss = self.n / ONE_OF;
        let least = self.fits.iter().position(|fits| self.n - fits <= may_miss).unwrap_or(last);
        let before = self.now;
        self.patience = (self.patience * 2).min(LONGEST);
        self.look_anew(least.min(before));
        self.now != before
    }

    fn look_anew(&mut self, now: usize) {
        self.now = now;
        (self.n, self.cut) = (0, 0);
        self.fits.fill(0);
    }

    /// Which sizes there were, the least first.
    pub(super) fn copied(&self) -> Vec<Copied> {
        let used = self.all.iter().filter(|size| size.n > 0);
        let hertz = |rate| if let Rate::Hertz(n) = rate { n } else { 0 };
        used.map(|size| Copied { bytes: size.bytes, hertz: hertz(size.rate), samples: size.n }).collect()
    }

    /// How often samples came in a second of a thread's time, most of them; 0: one each so many of the event.
    pub(super) fn hertz(&self) -> u64 {
        let most = self.all.iter().max_by_key(|size| size.n);
        most.map_or(0, |size| if let Rate::Hertz(n) = size.rate { n } else { 0 })
    }

    /// Nanoseconds that a sample took, by and large, if that was measured.
    pub(super) fn cost_ns(&self) -> Option<u64> {
        let n: u64 = self.all.iter().map(|size| size.n).sum();
        let add = |sum: u64, size: &Size| Some(sum.saturating_add(size.cost_ns?.saturating_mul(size.n)));
        let all = self.all.iter().try_fold(0, add)?;
        all.checked_div(n).or_else(|| self.all.get(self.now)?.cost_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u32; 0] = [];

    fn all() -> Sizes {
        let size = |(n, bytes): (u64, u32)| {
            let cost_ns = Some(10 * (n + 1));
            Size { bytes, rate: Rate::Hertz(100 - n), cost_ns, n: 0 }
        };
        Sizes::of((0..).zip(SIZES).map(size).collect())
    }

    /// So many samples, of which each `every`th needs `bytes`, and the others 100; sizes that were taken.
    #[track_caller]
    fn run(sizes: &mut Sizes, n: u32, (every, bytes): (u32, u64)) -> Vec<u32> {
        let mut taken = Vec::new();
        for k in 0..n {
            let bytes = if k % every == 0 { bytes } else { 100 };
            let now = sizes.now().0;
            let is_deeper = bytes > u64::from(now);
            sizes.count(now);
            if sizes.heard(now, Need { bytes, is_deeper, is_read_later: false, is_whole: !is_deeper }) {
                taken.push(sizes.now().0);
            }
        }
        taken
    }

    #[test]
    fn it_begins_with_most_and_comes_down_to_what_is_needed() {
        let mut flat = all();
        assert_eq!(flat.now(), (65_528, Rate::Hertz(97)));
        assert_eq!(run(&mut flat, 63, (1, 5000)), NONE);
        assert_eq!(run(&mut flat, 5000, (1, 5000)), [8192]);
        assert_eq!(run(&mut all(), 5000, (3, 20_000)), [32_768]);
        assert_eq!(run(&mut all(), 5000, (3, 60_000)), NONE);
        // What is deeper than anything, and cut, is no reason to copy less.
        assert_eq!(run(&mut all(), 5000, (3, 90_000)), NONE);
    }

    #[test]
    fn where_chains_are_cut_more_is_copied_at_once_and_for_longer() {
        let mut sizes = all();
        run(&mut sizes, 64, (1, 100));
        assert_eq!(run(&mut sizes, 8, (4, 40_000)), [65_528], "after two of eight");
        // Stacks are flat again, and deep: it is waited for longer.
        assert_eq!(run(&mut sizes, 127, (1, 100)), NONE);
        assert_eq!(run(&mut sizes, 2000, (1, 100)), [8192]);
        assert_eq!(run(&mut sizes, 12, (4, 40_000)), NONE, "four are cut now");
        assert_eq!(run(&mut sizes, 4, (4, 40_000)), [65_528]);
        // One of very many is no reason.
        let mut seldom = all();
        run(&mut seldom, 64, (1, 100));
        assert_eq!(run(&mut seldom, 20_000, (1000, 40_000)), NONE);
    }

    #[test]
    fn chains_that_end_elsewhere_are_no_reason() {
        let mut sizes = all();
        let mut taken = Vec::new();
        for _ in 0..1000 {
            if sizes.heard(
                sizes.now().0,
                Need { bytes: 64, is_deeper: false, is_read_later: false, is_whole: false },
            ) {
                taken.push(sizes.now().0);
            }
        }
        assert_eq!(taken, [8192]);
        // What was found a moment later was found.
        let mut deep = all();
        deep.look_anew(0);
        for _ in 0..1000 {
            assert!(
                !deep.heard(
                    8192,
                    Need { bytes: 84_000, is_deeper: true, is_read_later: true, is_whole: true }
                )
            );
        }
    }

    #[test]
    fn what_samples_cost_is_weighed_by_how_many_there_were() {
        let mut sizes = all();
        assert_eq!((sizes.cost_ns(), sizes.hertz()), (Some(40), 97));
        run(&mut sizes, 64 + 192, (1, 100));
        assert_eq!(sizes.cost_ns(), Some((64 * 40 + 192 * 10) / 256));
        assert_eq!(sizes.hertz(), 100);
        let copied = |bytes, hertz, samples| Copied { bytes, hertz, samples };
        assert_eq!(sizes.copied(), [copied(8192, 100, 192), copied(65_528, 97, 64)]);
        // A small ring.
        sizes.fit_into(1 << 16);
        assert_eq!(sizes.all.iter().map(|size| size.bytes).collect::<Vec<_>>(), [8192, 16_384]);
    }
}
