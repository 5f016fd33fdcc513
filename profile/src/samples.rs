//! Samples of processes: where threads were, by whom that was called, and when. A section of recordings.
//!
//! ```text
//! section = version: u8, 2; length: varint; zstd of what postcard makes of [`Samples`]
//! ```
//! Stacks are a tree: each has a frame and the stack of its caller. By columns, so that what is alike is
//! together: a sample takes some four bytes.
//!
//! Not here: which functions frames are in (who has the programs asks them).

pub mod firefox;
pub mod folded;
mod named;
pub mod pprof;

pub use named::{Named, NamedFrame, NamedModule, NamedSamples, Origin};

use crate::encoding::{Cursor, varint};
use crate::vocabulary::ReadError;
use program::Va;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::Hash;
use std::io::Read as _;

/// The tag of the section.
pub const SECTION: u8 = b'S';
const VERSION: u8 = 2;
const LEVEL: i32 = 3;
/// More than this times its compressed length no section has.
const MOST_EXPANSION: u64 = 1 << 12;

/// Where a thread was, or whence it was called.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
pub enum Frame {
    /// In a module of the recording: by its number there. Of callers, the last byte of the call.
    Code {
        /// Which module.
        module: u32,
        /// The address in its image.
        at: Va,
    },
    /// In the kernel, in this function; empty, where its names are not known.
    Kernel(Box<str>),
    /// In code that is of no module, and that a perf map names.
    Named(Box<str>),
    /// In code of which nothing is known.
    #[default]
    Unknown,
}

/// Stacks as a tree.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
struct Tree {
    frames: Vec<Frame>,
    /// Of each stack: its frame, and the stack of its caller, one more than its number; 0: it has none.
    frame_of: Vec<u32>,
    caller_of: Vec<u32>,
}

/// A thread that was sampled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Thread {
    /// Its process.
    pub process: u32,
    /// Its number.
    pub number: u32,
    /// Its name, as it was last.
    pub name: String,
}

/// An event that was sampled.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// What it is called.
    pub name: String,
    /// Whether it is counted in nanoseconds; else, in times.
    pub is_time: bool,
}

/// A sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Which event.
    pub event: u32,
    /// Which thread.
    pub thread: u32,
    /// When, in nanoseconds since sampling began.
    pub time: u64,
    /// Where.
    pub stack: u32,
    /// How many of the event it stands for.
    pub period: u64,
}

/// How much of stacks was copied with samples, for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Copied {
    /// At most so many bytes.
    pub bytes: u32,
    /// Samples asked for in a second of each thread's time meanwhile; 0: one each so many of the event.
    pub hertz: u64,
    /// How many there were.
    pub samples: u64,
}

/// How it was sampled, and how well.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Quality {
    /// Samples asked for in a second of each thread's time; 0: one each so many of the event.
    pub hertz: u64,
    /// Records for which there was no room.
    pub lost: u64,
    /// Nanoseconds that a sample takes of the thread, if that was measured.
    pub cost_ns: Option<u64>,
    /// Whether callers were asked for.
    pub has_chains: bool,
    /// Of samples with callers, those whose callers are known to the first.
    pub n_whole: u64,
    /// Of these, those of which some were read from the stack a moment later: it is deeper than was copied.
    pub n_later: u64,
    /// And those with some callers that are not known.
    pub n_cut: u64,
    /// How much of stacks was copied, the least first.
    pub copied: Vec<Copied>,
    /// Whether code of the kernel was sampled.
    pub has_kernel: bool,
    /// How long, in nanoseconds.
    pub duration_ns: u64,
}

/// Samples of one run.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Samples {
    /// The events.
    pub events: Vec<Event>,
    /// The threads, in the order in which they were first seen.
    pub threads: Vec<Thread>,
    /// How it was sampled.
    pub quality: Quality,
    tree: Tree,
    event_of: Vec<u32>,
    thread_of: Vec<u32>,
    /// From the one before.
    time_since: Vec<u64>,
    stack_of: Vec<u32>,
    period_of: Vec<u64>,
}

/// Samples in the making. Their frames may be `F`, whatever is known while it is sampled, until the end.
#[derive(Default, Debug)]
pub struct Recorder<F = Frame> {
    /// Without frames.
    samples: Samples,
    /// By number.
    seen: Vec<F>,
    frames: HashMap<F, u32>,
    stacks: HashMap<(u32, u32), u32>,
    threads: HashMap<(u32, u32), u32>,
    last: u64,
}

fn index(len: usize) -> u32 {
    u32::try_from(len).expect("memory holds fewer")
}

impl<F: Clone + Default + Eq + Hash> Recorder<F> {
    /// Of these events.
    pub fn new(events: Vec<Event>) -> Recorder<F> {
        Recorder { samples: Samples { events, ..Samples::default() }, ..Recorder::default() }
    }

    /// The number of a stack: its frames, the outermost first. An empty one has the default frame.
    pub fn stack(&mut self, outermost_first: impl IntoIterator<Item = F>) -> u32 {
        let mut caller = 0;
        let (tree, seen) = (&mut self.samples.tree, &mut self.seen);
        for frame in outermost_first {
            let n = index(seen.len());
            let frame = *self.frames.entry(frame).or_insert_with_key(|frame| {
                seen.push(frame.clone());
                n
            });
            let n = index(tree.frame_of.len());
            caller = 1 + *self.stacks.entry((frame, caller)).or_insert_with(|| {
                tree.frame_of.push(frame);
                tree.caller_of.push(caller);
                n
            });
        }
        match caller.checked_sub(1) {
            Some(stack) => stack,
            None => self.stack([F::default()]),
        }
    }

    /// The number of a thread.
    pub fn thread(&mut self, process: u32, number: u32) -> u32 {
        let threads = &mut self.samples.threads;
        let n = index(threads.len());
        *self.threads.entry((process, number)).or_insert_with(|| {
            threads.push(Thread { process, number, name: String::new() });
            n
        })
    }

    /// Gives a thread its name.
    pub fn name(&mut self, process: u32, number: u32, name: &str) {
        let thread = self.thread(process, number);
        if let Some(thread) = self.samples.threads.get_mut(thread as usize) {
            name.clone_into(&mut thread.name);
        }
    }

    /// Gives a thread, by its process and number, the name that another has.
    pub fn name_as(&mut self, thread: (u32, u32), other: (u32, u32)) {
        let other = self.threads.get(&other).and_then(|n| self.samples.threads.get(*n as usize));
        if let Some(name) = other.map(|other| other.name.clone()) {
            self.name(thread.0, thread.1, &name);
        }
    }

    /// Adds a sample, in the order of time: one that is older than the last is taken to be of its time.
    pub fn add(&mut self, sample: Sample) {
        let samples = &mut self.samples;
        samples.event_of.push(sample.event);
        samples.thread_of.push(sample.thread);
        samples.time_since.push(sample.time.saturating_sub(self.last));
        samples.stack_of.push(sample.stack);
        samples.period_of.push(sample.period);
        self.last = self.last.max(sample.time);
    }

    /// What came of it, with what there is in place of its frames.
    pub fn finish_with(self, quality: Quality, frame: impl FnMut(&F) -> Frame) -> Samples {
        let mut samples = self.samples;
        samples.tree.frames = self.seen.iter().map(frame).collect();
        samples.quality = quality;
        samples.without_idle_threads()
    }
}

impl Recorder {
    /// What came of it.
    pub fn finish(self, quality: Quality) -> Samples {
        self.finish_with(quality, Frame::clone)
    }
}

impl Samples {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.stack_of.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.stack_of.is_empty()
    }

    /// All of them, in the order of time.
    pub fn iter(&self) -> impl Iterator<Item = Sample> {
        let mut time = 0;
        let columns = self.event_of.iter().zip(&self.thread_of).zip(&self.time_since);
        columns.zip(self.stack_of.iter().zip(&self.period_of)).map(
            move |(((event, thread), since), (stack, period))| {
                time += since;
                Sample { event: *event, thread: *thread, time, stack: *stack, period: *period }
            },
        )
    }

    /// How many stacks there are; they have the numbers below.
    pub fn n_stacks(&self) -> usize {
        self.tree.frame_of.len()
    }

    /// The frames, by number.
    pub fn frames(&self) -> &[Frame] {
        &self.tree.frames
    }

    /// The frame of a stack, by number, and the stack of its caller, which has a lower one.
    pub fn stack(&self, stack: u32) -> (u32, Option<u32>) {
        let of = |column: &[u32]| column.get(stack as usize).copied().unwrap_or(0);
        (of(&self.tree.frame_of), of(&self.tree.caller_of).checked_sub(1))
    }

    /// Of each stack, by number: samples of `event`, and how many of it they stand for.
    pub fn by_stack(&self, event: u32) -> Vec<(u64, u64)> {
        let mut own = vec![(0u64, 0u64); self.n_stacks()];
        for sample in self.iter().filter(|sample| sample.event == event) {
            if let Some((n, period)) = own.get_mut(sample.stack as usize) {
                *n += 1;
                *period = period.saturating_add(sample.period);
            }
        }
        own
    }

    /// The frames of a stack, the innermost first.
    pub fn frames_of(&self, stack: u32) -> impl Iterator<Item = &Frame> {
        let all = std::iter::successors(Some(stack), |stack| self.stack(*stack).1);
        all.filter_map(|stack| self.tree.frames.get(self.stack(stack).0 as usize))
    }

    /// With other frames in place of these.
    pub fn with_frames(mut self, other: impl Fn(&Frame) -> Option<Frame>) -> Samples {
        for frame in &mut self.tree.frames {
            if let Some(other) = other(frame) {
                *frame = other;
            }
        }
        self
    }

    /// Threads that were never seen on a processor are of no interest.
    fn without_idle_threads(mut self) -> Samples {
        let mut seen = vec![false; self.threads.len()];
        for thread in &self.thread_of {
            if let Some(seen) = seen.get_mut(*thread as usize) {
                *seen = true;
            }
        }
        let mut n = 0;
        let number = |seen: &bool| {
            let number = n;
            n += u32::from(*seen);
            number
        };
        let numbers: Vec<u32> = seen.iter().map(number).collect();
        let mut seen = seen.into_iter();
        self.threads.retain(|_| seen.next().unwrap_or(true));
        for thread in &mut self.thread_of {
            *thread = numbers.get(*thread as usize).copied().unwrap_or(*thread);
        }
        self
    }

    /// As a section's body.
    pub fn write(&self) -> Vec<u8> {
        let bytes = postcard::to_stdvec(self).expect("all of it has a form");
        let mut out = vec![VERSION];
        varint(&mut out, bytes.len() as u64);
        out.extend(zstd::encode_all(bytes.as_slice(), LEVEL).expect("memory is written to"));
        out
    }

    /// Reads the body of a section.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if it is cut off, changed, or contradicts itself.
    pub fn parse(body: &[u8]) -> Result<Samples, ReadError> {
        let mut c = Cursor::within(body);
        if c.byte()? != VERSION {
            return Err(c.damaged("another version of engraft wrote its samples"));
        }
        let len = c.varint()?;
        let packed = body.get(c.at()..).unwrap_or_default();
        if len > (packed.len() as u64).saturating_mul(MOST_EXPANSION) {
            return Err(c.damaged("its samples are longer than can be"));
        }
        let mut plain = Vec::new();
        let decoder = zstd::Decoder::new(packed).map(|decoder| decoder.take(len));
        let read = decoder.and_then(|mut decoder| decoder.read_to_end(&mut plain));
        read.map_err(|_| c.damaged("its samples cannot be unpacked"))?;
        let samples: Samples =
            postcard::from_bytes(&plain).map_err(|_| c.damaged("its samples cannot be read"))?;
        if samples.is_sound() { Ok(samples) } else { Err(c.damaged("its samples contradict themselves")) }
    }

    /// Whether all columns are equally long, and all numbers of something that there is.
    fn is_sound(&self) -> bool {
        let n = self.len();
        let below = |column: &[u32], n: usize| column.iter().all(|one| (*one as usize) < n);
        let tree = &self.tree;
        let is_before = |(stack, caller): (usize, &u32)| *caller as usize <= stack;
        [self.event_of.len(), self.thread_of.len(), self.time_since.len(), self.period_of.len()] == [n; 4]
            && tree.frame_of.len() == tree.caller_of.len()
            && tree.caller_of.iter().enumerate().all(is_before)
            && below(&tree.frame_of, tree.frames.len())
            && below(&self.stack_of, tree.frame_of.len())
            && below(&self.event_of, self.events.len())
            && below(&self.thread_of, self.threads.len())
            && self.time_since.iter().try_fold(0u64, |sum, since| sum.checked_add(*since)).is_some()
    }
}

#[cfg(test)]
mod testing {
    use super::*;

    /// Names for the frames of [`tests::samples`].
    pub fn named(samples: &Samples) -> NamedSamples<'_> {
        let function =
            |name: &str| NamedFrame { function: name.to_owned(), line: Some(("a.c".to_owned(), 7)) };
        let of = |frame: &Frame| match frame {
            Frame::Code { module, at } if at.0 == 1 => {
                Named { origin: Origin::Module(*module, *at), functions: vec![function("start")] }
            }
            Frame::Code { module, at } => {
                let functions = vec![function("main"), function("inlined")];
                Named { origin: Origin::Module(*module, *at), functions }
            }
            Frame::Kernel(name) => Named { origin: Origin::Kernel, functions: vec![function(name)] },
            Frame::Named(_) | Frame::Unknown => {
                Named { origin: Origin::Elsewhere, functions: vec![function("?")] }
            }
        };
        let code = vec![(Va(0)..Va(16), program::FileOff(0))];
        let module = NamedModule { path: "/bin/program".to_owned(), build_id: Some(vec![10, 11]), code };
        NamedSamples {
            samples,
            frames: samples.frames().iter().map(of).collect(),
            modules: vec![module],
            title: "program".to_owned(),
            start_ns: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(at: u64) -> Frame {
        Frame::Code { module: 0, at: Va(at) }
    }

    pub(super) fn samples() -> Samples {
        let mut recorder = Recorder::new(vec![Event { name: "cpu-clock".into(), is_time: true }]);
        recorder.name(7, 9, "idle");
        let thread = recorder.thread(7, 8);
        let deep = recorder.stack([code(1), code(2), Frame::Kernel("do_it".into())]);
        let flat = recorder.stack([code(1), code(2)]);
        for (time, stack) in [(5, deep), (9, flat), (8, flat), (20, deep)] {
            recorder.add(Sample { event: 0, thread, time, stack, period: 250 });
        }
        recorder.name(7, 8, "work");
        recorder.finish(Quality { hertz: 4000, lost: 2, ..Quality::default() })
    }

    #[test]
    fn stacks_are_a_tree_whose_callers_come_first() {
        let samples = samples();
        assert_eq!((samples.len(), samples.n_stacks()), (4, 3));
        assert_eq!(samples.iter().map(|s| s.time).collect::<Vec<_>>(), [5, 9, 9, 20]);
        let frames = |n: usize| {
            let stack = samples.iter().nth(n).expect("there are four").stack;
            samples.frames_of(stack).cloned().collect::<Vec<_>>()
        };
        assert_eq!(frames(0), [Frame::Kernel("do_it".into()), code(2), code(1)]);
        assert_eq!(frames(1), [code(2), code(1)]);
        assert_eq!(Recorder::<Frame>::default().stack([]), 0);
    }

    #[test]
    fn threads_that_never_ran_are_left_out() {
        let samples = samples();
        let threads: Vec<&str> = samples.threads.iter().map(|t| &*t.name).collect();
        assert_eq!(threads, ["work"]);
        assert!(samples.iter().all(|s| s.thread == 0));
    }

    #[test]
    fn reading_undoes_writing_and_refuses_what_was_changed() {
        let whole = samples();
        let bytes = whole.write();
        assert_eq!(Samples::parse(&bytes).expect("it is one"), whole);
        for n in 0..bytes.len() {
            assert!(Samples::parse(&bytes[..n]).is_err(), "{n}");
            for with in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[n] ^= with;
                // Whatever is read has numbers of what there is.
                if let Ok(read) = Samples::parse(&changed) {
                    assert!(read.iter().all(|s| read.frames_of(s.stack).count() > 0));
                }
            }
        }
        let mut wrong = whole.clone();
        wrong.stack_of[0] = 3;
        assert!(Samples::parse(&wrong.write()).is_err());
        let mut wrong = whole;
        wrong.tree.caller_of[0] = 1;
        assert!(Samples::parse(&wrong.write()).is_err());
    }
}
