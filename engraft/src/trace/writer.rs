//! Takes the events of a run while it goes on, and writes them.

use crate::output;
use live::{Arena, Owner, Stream};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use trace::Cause;
use trace::recording::code::Code;
use trace::recording::event::Event;
use trace::recording::recorder::{At, Recorder};
use trace::recording::ring::Ring;
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

/// Empties the memory shared with the program into a recorder while the program runs.
pub struct Writer {
    recorder: Recorder<File>,
    /// What the events of modules mean that were loaded meanwhile.
    later: Receiver<Code>,
    since: Instant,
    has_said: bool,
}

impl Writer {
    /// What the events of `codes` mean is written first, so that a trace that is cut can be read.
    pub fn new(
        file: File,
        codes: &[Code],
        later: Receiver<Code>,
        window: Window,
        ring: Option<Ring>,
    ) -> io::Result<Writer> {
        let recorder = Recorder::new(file, codes, window, ring)?;
        Ok(Writer { recorder, later, since: Instant::now(), has_said: false })
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
            let mut found = self.meet(arena, &mut streams)?;
            let n_streams = |streams: &[Stream<'_>]| u32::try_from(streams.len()).expect("few");
            let n_words = |streams: &[Stream<'_>], k: u32| {
                streams.get(k as usize).map_or(0, |stream| stream.n_words().unwrap_or(0))
            };
            let window = self.recorder.window();
            if window.looks() {
                window.begin(n_streams(&streams), |k| n_words(&streams, k));
                for (k, stream) in (0..).zip(&streams) {
                    let n_whole = stream.look(window.n_seen(k), &mut events)?;
                    window.look(k, &events, n_whole);
                }
                // Those that began meanwhile had what ran then.
                found |= self.meet(arena, &mut streams)?;
            }
            let since = self.since.elapsed();
            let n_turns = live::n_kept_signals();
            self.recorder.window().tick(since, n_turns, n_streams(&streams), |k| n_words(&streams, k));
            self.forecast(since);
            if self.recorder.has_ring() {
                active.resize(streams.len(), (0, since));
                for (stream, last) in streams.iter().zip(&mut active) {
                    let n_words = stream.n_words()?;
                    if n_words != last.0 {
                        *last = (n_words, since);
                    }
                }
            }
            for (k, stream) in (0..).zip(&mut streams) {
                if self.recorder.window().may_take(k, Stream::N_WORDS) && stream.take(&mut events) {
                    found = true;
                    self.keep(k, &events, None);
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
        self.meet(arena, &mut streams)?;
        for (k, stream) in (0..).zip(&streams) {
            let rest = stream.rest()?;
            let n_words = rest.len() as u64 / 4;
            if !rest.is_empty() {
                self.keep(k, &rest, active.get(k as usize).map(|last| last.1));
            }
            taken.n_stalls += usize::try_from(stream.n_stalls()?).unwrap_or(usize::MAX);
            let is_behind = taken.n_left == 0 && stream.n_words()? > n_words + Stream::N_UNUSED;
            taken.n_lost += u64::from(is_behind || stream.has_lost()?);
        }
        taken.n_streams = self.recorder.n_threads();
        taken.n_shared = arena.n_shared()?;
        Ok(())
    }

    /// Adds to `streams` those that began meanwhile; whether there are any.
    fn meet<'a>(&mut self, arena: &'a Arena, streams: &mut Vec<Stream<'a>>) -> io::Result<bool> {
        let n_before = streams.len();
        for (n, k) in (0..).zip(0..arena.n_areas()?).skip(streams.len()) {
            streams.push(arena.stream(k)?);
            // When it began.
            self.keep(n, &[], None);
        }
        Ok(streams.len() > n_before)
    }

    /// Appends `bytes`, the next of an area's stream, that were appended until `at`, or until now.
    fn keep(&mut self, area: u32, bytes: &[u8], at: Option<Duration>) {
        self.add_modules();
        let taken = self.since.elapsed();
        self.recorder.append(area, bytes, At { taken, appended: at.unwrap_or(taken) });
    }

    /// Those that were loaded meanwhile: the next events may be theirs.
    fn add_modules(&mut self) {
        self.later.try_iter().for_each(|code| self.recorder.add_module(&code));
    }

    /// Says after a second how large the file will be.
    fn forecast(&mut self, since: Duration) {
        // Of one that has not filled a chunk yet, nothing is known.
        if self.has_said || since < FORECAST || self.recorder.n_bytes() == 0 {
            return;
        }
        self.has_said = true;
        let mode = output::talk_mode();
        if mode.quiet || mode.json || self.recorder.has_ring() || !self.recorder.window().is_all() {
            return;
        }
        let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1);
        let a_minute = |n: u64| size(n.saturating_mul(60_000) / since_ms);
        let (events, file) = (a_minute(self.recorder.n_bytes() as u64), a_minute(self.recorder.n_written()));
        output::say(format_args!(
            "recording: a minute like what came so far has {events} of events, {file} in the file"
        ));
    }

    /// Adds events to the stream of an area, of which all was taken.
    pub fn append(&mut self, area: u32, events: &[Event]) {
        self.add_modules();
        self.recorder.append_last(area, events, self.since.elapsed());
    }

    /// Some of what was taken.
    pub fn take_sample(&mut self) -> Sample {
        self.recorder.take_sample()
    }

    /// How many bytes of events were taken.
    pub fn n_bytes(&self) -> usize {
        self.recorder.n_bytes()
    }

    /// Whether any of them were kept.
    pub fn has_kept(&self) -> bool {
        self.recorder.has_kept()
    }

    /// Writes what is left, and how the stream of each area ends.
    pub fn finish(mut self, ends: &[(u32, Cause)]) -> io::Result<u64> {
        self.add_modules();
        if let Some(n_bytes) = self.recorder.excess() {
            let what =
                format!("what each thread did last takes {}: more than --last allows", size(n_bytes as u64));
            output::warn(&what, None);
        }
        self.recorder.finish(ends)
    }
}
