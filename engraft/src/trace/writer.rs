//! Takes the events of a run while it goes on, and writes them.

use crate::output;
use live::{Arena, Owner, Stream};
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use trace::Cause;
use trace::events;
use trace::file::Sections;
use trace::recording::ring::Ring;
use trace::recording::threads::Threads;
use trace::recording::window::Window;
use trace::sample::Sample;
use views::size;

/// How long the streams are left alone where there was nothing to take.
const NAP: Duration = Duration::from_micros(300);

/// After which time it is said how large the file will be.
const FORECAST: Duration = Duration::from_secs(1);

/// What came of a run.
#[derive(Default)]
pub struct Taken {
    pub n_bytes: usize,
    /// Whether any of them were kept.
    pub has_kept: bool,
    pub n_streams: usize,
    pub n_stalls: usize,
    pub n_lost: u64,
    /// How many processes go on, of which no more is taken.
    pub n_left: usize,
    /// Of each stream, who appended to it, when all was taken.
    pub owners: Vec<Owner>,
    /// How often a thread had to append to the stream of another.
    pub n_shared: u64,
    /// Why no more was taken.
    pub failed: Option<io::Error>,
}

/// Writes the trace while the program runs.
pub struct Writer {
    sections: Sections<File>,
    /// What the events of modules mean that were loaded meanwhile.
    later: Receiver<events::Code>,
    packer: events::Packer,
    /// Some of what was taken.
    pub sample: Sample,
    /// Why nothing can be written any more.
    failed: Option<io::Error>,
    since: Instant,
    window: Window,
    threads: Threads,
    /// What is kept until the end, if only the last is.
    ring: Option<Ring>,
    /// How much of a file there is.
    n_written: u64,
    has_said: bool,
}

impl Writer {
    /// What the events of `codes` mean is written first, so that a trace that is cut can be read.
    pub fn new(
        file: File,
        codes: &[events::Code],
        later: Receiver<events::Code>,
        window: Window,
        ring: Option<Ring>,
    ) -> io::Result<Writer> {
        let mut sections = Sections::create(file)?;
        for code in codes {
            sections.write(&events::code_section(code)?)?;
        }
        let packer = events::Packer::new()?;
        let (sample, since) = (Sample::default(), Instant::now());
        Ok(Writer {
            sections,
            later,
            packer,
            sample,
            failed: None,
            since,
            window,
            threads: Threads::default(),
            ring,
            n_written: 0,
            has_said: false,
        })
    }

    /// Takes all events until `is_done`, and what is there then: who goes on, is left alone. What cannot be
    /// written any more is still taken: the program must not wait.
    pub fn take(&mut self, arena: &Arena, is_done: &AtomicBool) -> Taken {
        let mut taken = Taken::default();
        taken.failed = self.take_to(&mut taken, arena, is_done).err();
        taken
    }

    fn take_to(&mut self, taken: &mut Taken, arena: &Arena, is_done: &AtomicBool) -> io::Result<()> {
        let (mut streams, mut events) = (Vec::new(), Vec::new());
        // Of each stream, how long it was, and when it was seen to have grown last.
        let mut active: Vec<(u64, Duration)> = Vec::new();
        let mut n_rounds_left = Stream::N_CHUNKS;
        loop {
            let was_done = is_done.load(Ordering::SeqCst);
            let mut found = self.meet(arena, &mut streams, taken)?;
            let n_streams = |streams: &[Stream<'_>]| u32::try_from(streams.len()).expect("few");
            let n_words = |streams: &[Stream<'_>], k: u32| {
                streams.get(k as usize).map_or(0, |stream| stream.n_words().unwrap_or(0))
            };
            if self.window.looks() {
                self.window.begin(n_streams(&streams), |k| n_words(&streams, k));
                for (k, stream) in (0..).zip(&streams) {
                    let n_whole = stream.look(self.window.n_seen(k), &mut events)?;
                    self.window.look(k, &events, n_whole);
                }
                // Those that began meanwhile had what ran then.
                found |= self.meet(arena, &mut streams, taken)?;
            }
            let since = self.since.elapsed();
            let n_turns = live::n_kept_signals();
            self.window.tick(since, n_turns, n_streams(&streams), |k| n_words(&streams, k));
            self.forecast(since, taken);
            if self.ring.is_some() {
                active.resize(streams.len(), (0, since));
                for (stream, last) in streams.iter().zip(&mut active) {
                    let n_words = stream.n_words()?;
                    if n_words != last.0 {
                        *last = (n_words, since);
                    }
                }
            }
            for (k, stream) in (0..).zip(&mut streams) {
                if self.window.may_take(k, Stream::N_WORDS) && stream.take(&mut events) {
                    found = true;
                    self.keep(k, &events, None, taken);
                }
            }
            n_rounds_left -= usize::from(was_done);
            if was_done && (!found || n_rounds_left == 0) {
                break;
            }
            if !found {
                std::thread::park_timeout(NAP);
            }
        }
        // Before the rests are read: who is gone by then has nothing to add.
        taken.n_left = arena.running()?;
        taken.owners = arena.owners()?;
        self.meet(arena, &mut streams, taken)?;
        for (k, stream) in (0..).zip(&streams) {
            let rest = stream.rest()?;
            let n_words = rest.len() as u64 / 4;
            if !rest.is_empty() {
                self.keep(k, &rest, active.get(k as usize).map(|last| last.1), taken);
            }
            taken.n_stalls += usize::try_from(stream.n_stalls()?).unwrap_or(usize::MAX);
            let is_behind = taken.n_left == 0 && stream.n_words()? > n_words + Stream::N_UNUSED;
            taken.n_lost += u64::from(is_behind || stream.has_lost()?);
        }
        taken.n_streams = self.threads.count();
        taken.n_shared = arena.n_shared()?;
        Ok(())
    }

    /// Adds to `streams` those that began meanwhile; whether there are any.
    fn meet<'a>(
        &mut self,
        arena: &'a Arena,
        streams: &mut Vec<Stream<'a>>,
        taken: &mut Taken,
    ) -> io::Result<bool> {
        let n_before = streams.len();
        for (n, k) in (0..).zip(0..arena.n_areas()?).skip(streams.len()) {
            streams.push(arena.stream(k)?);
            // When it began.
            self.keep(n, &[], None, taken);
        }
        Ok(streams.len() > n_before)
    }

    /// Writes what is kept of `bytes`, the next of an area's stream, that were appended until `at`, or until
    /// now.
    fn keep(&mut self, area: u32, bytes: &[u8], at: Option<Duration>, taken: &mut Taken) {
        taken.n_bytes += bytes.len();
        if !bytes.is_empty() {
            self.sample.offer(bytes);
        }
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let since = ns(self.since.elapsed());
        let at_ns = at.map_or(since, ns);
        let kept = match self.window.is_all() {
            true => Cow::Borrowed(bytes),
            false => Cow::Owned(self.window.keep(area, bytes)),
        };
        taken.has_kept |= !bytes.is_empty() && (self.window.is_all() || self.window.has_begun(area));
        if self.failed.is_some() || kept.is_empty() && !bytes.is_empty() {
            return;
        }
        let mut threads = std::mem::take(&mut self.threads);
        let n_ended = threads.ended().len();
        let done = threads.cut(area, &kept, |thread, words| self.write(thread, since, at_ns, words));
        for &thread in threads.ended().get(n_ended..).unwrap_or_default() {
            self.ring.iter_mut().for_each(|ring| ring.end(thread));
        }
        self.threads = threads;
        self.failed = done.err();
    }

    /// Writes the section of `words`, or keeps it until the end.
    fn write(&mut self, thread: u32, taken_ns: u64, at_ns: u64, words: &[u8]) -> io::Result<()> {
        // Those of modules that these events may be of, too.
        self.write_later()?;
        let Some(ring) = &mut self.ring else {
            let section = self.packer.section(thread, taken_ns, words)?;
            self.n_written += section.len() as u64;
            return self.sections.write(&section);
        };
        ring.push(thread, at_ns, words, |piece| self.packer.section(thread, taken_ns, piece))
    }

    /// Writes what the events of modules mean that were loaded meanwhile.
    fn write_later(&mut self) -> io::Result<()> {
        self.later.try_iter().try_for_each(|code| {
            let section = events::code_section(&code)?;
            self.n_written += section.len() as u64;
            self.sections.write(&section)
        })
    }

    /// Says after a second how large the file will be.
    fn forecast(&mut self, since: Duration, taken: &Taken) {
        // Of one that has not filled a chunk yet, nothing is known.
        if self.has_said || since < FORECAST || taken.n_bytes == 0 {
            return;
        }
        self.has_said = true;
        let manner = output::manner();
        if manner.quiet || manner.json || self.ring.is_some() || !self.window.is_all() {
            return;
        }
        let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1);
        let a_minute = |n: u64| size(n.saturating_mul(60_000) / since_ms);
        let (events, file) = (a_minute(taken.n_bytes as u64), a_minute(self.n_written));
        output::say(format_args!(
            "recording: a minute like what came so far has {events} of events, {file} in the file"
        ));
    }

    /// Adds `words` to the stream of an area, of which all was taken.
    pub fn append(&mut self, area: u32, words: &[u32], taken: &mut Taken) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if self.ring.is_none() || !self.window.is_all() {
            self.keep(area, &bytes, None, taken);
            return;
        }
        let thread = self.threads.number(area);
        match self.packer.section(thread, 0, &bytes) {
            Ok(section) => self.ring.iter_mut().for_each(|ring| ring.append(thread, section.clone())),
            Err(err) => self.failed = Some(err),
        }
    }

    /// Why the last thread of an area is left: what went on when nothing was kept any more did not end there.
    fn end(&self, area: u32, cause: Cause) -> Cause {
        if self.window.is_all() || self.window.is_open(area) { cause } else { Cause::RecordingEnd }
    }

    /// Writes what is left, and how the stream of each area ends.
    pub fn finish(mut self, ends: &[(u32, Cause)]) -> io::Result<u64> {
        if let Some(err) = self.failed {
            return Err(err);
        }
        self.write_later()?;
        if let Some(n_bytes) = self.ring.as_ref().and_then(Ring::excess) {
            let what =
                format!("what each thread did last takes {}: more than --last allows", size(n_bytes as u64));
            output::warn(&what, None);
        }
        for (thread, mark, section) in self.ring.iter_mut().flat_map(Ring::take) {
            if let Some(mark) = mark {
                let cut: Vec<u8> = mark.iter().flat_map(|word| word.to_le_bytes()).collect();
                self.sections.write(&self.packer.section(thread, 0, &cut)?)?;
            }
            self.sections.write(&section)?;
        }
        let mut all: Vec<(u32, Cause)> =
            ends.iter().map(|&(area, cause)| (self.threads.number(area), self.end(area, cause))).collect();
        all.extend(self.threads.ended().iter().map(|&thread| (thread, Cause::ThreadEnd)));
        all.sort_unstable_by_key(|end| end.0);
        self.sections.write(&events::ends_section(&all))?;
        self.sections.finish()
    }
}
