//! What is sampled, told while it is: how often each stack was seen, in all and of late. Of the first event.

use super::Seen;
use profile::samples::Frame;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What was sampled so far.
#[derive(Clone, Default, Debug)]
pub struct Glimpse {
    /// Where threads were, each way there once.
    pub stacks: Vec<SeenStack>,
    /// How many samples there are, in all.
    pub samples: u64,
    /// How many of them are of late.
    pub samples_of_late: u64,
    /// For how many more there was no room.
    pub lost: u64,
    /// Of how many of them some callers are not known.
    pub cut: u64,
    /// The images that frames are of, by number.
    pub images: Vec<SeenImage>,
}

/// A stack that was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenStack {
    /// Its frames, the innermost first; the modules' numbers are those of images.
    pub frames: Vec<Frame>,
    /// How many of the event its samples stand for, in all.
    pub period: u64,
    /// And how many of it of late.
    pub period_of_late: u64,
}

/// An image of which code was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenImage {
    /// What its process calls it.
    pub path: PathBuf,
    /// The file that it is in, if it is in one.
    pub file: Option<PathBuf>,
}

/// A part of the time: how many samples, and of each stack how many of the event they stand for.
#[derive(Default)]
struct Part {
    n: u64,
    periods: HashMap<u32, u64>,
}

/// What is told.
pub(super) struct Watch {
    every: Duration,
    /// So many parts are of late.
    n_parts: usize,
    next: Instant,
    stacks: HashMap<Box<[Seen]>, u32>,
    /// By number.
    frames: Vec<Box<[Seen]>>,
    all: Part,
    /// The latest last.
    parts: VecDeque<Part>,
}

impl Watch {
    /// From now on: once in `every`; of late are the last `n_parts` times that.
    pub(super) fn new(every: Duration, n_parts: usize) -> Watch {
        Watch {
            every,
            n_parts: n_parts.max(1),
            next: Instant::now() + every,
            stacks: HashMap::new(),
            frames: Vec::new(),
            all: Part::default(),
            parts: VecDeque::from([Part::default()]),
        }
    }

    /// A sample of the stack with these frames, the innermost first, that stands for `period` of the event.
    pub(super) fn add(&mut self, innermost_first: Vec<Seen>, period: u64) {
        let n = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        let key = innermost_first.into_boxed_slice();
        let stack = *self.stacks.entry(key).or_insert_with_key(|key| {
            self.frames.push(key.clone());
            n
        });
        for part in [Some(&mut self.all), self.parts.back_mut()].into_iter().flatten() {
            part.n += 1;
            let sum = part.periods.entry(stack).or_default();
            *sum = sum.saturating_add(period);
        }
    }

    /// Whether it is time to tell.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// What there is by now, with what there is in place of what was seen; a new part of the time begins.
    pub(super) fn glimpse(&mut self, mut frame: impl FnMut(&Seen) -> Frame) -> Glimpse {
        let mut named: HashMap<Seen, Frame> = HashMap::new();
        let mut stacks = Vec::with_capacity(self.frames.len());
        for (n, seen) in (0..).zip(&self.frames) {
            let frames = seen.iter().map(|seen| named.entry(*seen).or_insert_with(|| frame(seen)).clone());
            let of = |part: &Part| part.periods.get(&n).copied().unwrap_or(0);
            stacks.push(SeenStack {
                frames: frames.collect(),
                period: of(&self.all),
                period_of_late: self.parts.iter().map(of).fold(0, u64::saturating_add),
            });
        }
        let (samples, samples_of_late) = (self.all.n, self.parts.iter().map(|part| part.n).sum());
        self.next = Instant::now() + self.every;
        self.parts.push_back(Part::default());
        while self.parts.len() > self.n_parts {
            self.parts.pop_front();
        }
        Glimpse { stacks, samples, samples_of_late, ..Glimpse::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::Va;

    #[test]
    fn of_late_are_the_last_parts() {
        let mut watch = Watch::new(Duration::ZERO, 2);
        let code = |at| Seen::Code { image: 3, at: Va(at) };
        let name = |seen: &Seen| match *seen {
            Seen::Code { image, at } => Frame::Code { module: u32::try_from(image).expect("small"), at },
            _ => Frame::Unknown,
        };
        let mut told = Vec::new();
        for stack in [vec![code(1), code(2)], vec![code(2)], vec![code(1), code(2)], vec![]] {
            assert!(watch.is_due());
            watch.add(stack, 5);
            let Glimpse { stacks, samples, samples_of_late, .. } = watch.glimpse(name);
            let periods: Vec<(u64, u64)> = stacks.iter().map(|s| (s.period, s.period_of_late)).collect();
            told.push((samples, samples_of_late, periods));
            let first = stacks.first().expect("one was added");
            let frame = |at| Frame::Code { module: 3, at: Va(at) };
            assert_eq!(first.frames, [frame(1), frame(2)]);
        }
        let want = [
            (1, 1, vec![(5, 5)]),
            (2, 2, vec![(5, 5), (5, 5)]),
            (3, 2, vec![(10, 5), (5, 5)]),
            (4, 2, vec![(10, 5), (5, 0), (5, 5)]),
        ];
        assert_eq!(told, want);
    }
}
