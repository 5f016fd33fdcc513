//! The streams of a run, emptied into a recorder while it goes on.

use live::{Arena, Owner, Stream};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use trace::recording::event::Event;
use trace::recording::module_code::ModuleCode;
use trace::recording::recorder::{Recorder, Timestamps};

/// How long the streams are left alone where there was nothing to take.
pub(crate) const NAP: Duration = Duration::from_micros(300);

/// After which time it is said how large the file will be.
const FORECAST: Duration = Duration::from_secs(1);

/// What a minute will come to that is like what came so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forecast {
    /// Events, in bytes.
    pub events_bytes: u64,
    /// The file, in bytes.
    pub file_bytes: u64,
}

/// What was seen of the streams.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) n_threads: usize,
    /// How often a thread waited until there was room for its events.
    pub(crate) n_stalls: usize,
    /// How many streams lost events.
    pub(crate) n_lost: u64,
    /// How many processes go on, of which no more is taken.
    pub(crate) n_left: usize,
    /// Of each stream, who appended to it, when all was taken.
    pub(crate) owners: Vec<Owner>,
    /// How often a thread had to append to the stream of another.
    pub(crate) n_shared: u64,
    /// Why no more was taken.
    pub(crate) failed: Option<io::Error>,
}

/// Empties the memory shared with a program into a recorder.
pub(crate) struct Taker<W> {
    pub(crate) recorder: Recorder<W>,
    /// What the events of modules mean that were loaded meanwhile.
    later: Receiver<ModuleCode>,
    since: Instant,
}

/// Of each stream, how long it was, and when it was seen to have grown last.
type Active = Vec<(u64, Duration)>;

impl<W: Write> Taker<W> {
    /// Into `recorder`, which is told of the modules that `later` brings.
    pub(crate) fn new(recorder: Recorder<W>, later: Receiver<ModuleCode>) -> Taker<W> {
        Taker { recorder, later, since: Instant::now() }
    }

    /// Takes all events until `is_done`, and what is there then: who goes on, is left alone. What cannot be
    /// written any more is still taken: the program must not wait.
    pub(crate) fn take(
        &mut self,
        arena: &Arena,
        is_done: &AtomicBool,
        forecast: impl FnOnce(Forecast),
    ) -> Taken {
        let mut taken = Taken::default();
        taken.failed = self.take_to(&mut taken, arena, is_done, forecast).err();
        taken
    }

    fn take_to(
        &mut self,
        taken: &mut Taken,
        arena: &Arena,
        is_done: &AtomicBool,
        forecast: impl FnOnce(Forecast),
    ) -> io::Result<()> {
        let (mut streams, mut events) = (Vec::new(), Vec::new());
        let mut active = Active::new();
        let mut forecast = Some(forecast);
        let mut n_rounds_left = Stream::N_CHUNKS;
        loop {
            let was_done = is_done.load(Ordering::SeqCst);
            let mut found = self.look(arena, &mut streams, &mut events)?;
            let since = self.since.elapsed();
            let n_turns = live::n_kept_signals();
            self.recorder.window().tick(since, n_turns, n_streams(&streams), |k| n_words(&streams, k));
            if since >= FORECAST && self.recorder.n_bytes() > 0 {
                self.forecast(since, forecast.take());
            }
            if self.recorder.keeps_tail() {
                see_growth(&streams, &mut active, since)?;
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
        self.take_rests(taken, arena, &mut streams, &active)
    }

    /// Meets the streams that began meanwhile, and has the window look at what is not taken yet, if it looks;
    /// whether there are any new ones.
    fn look<'a>(
        &mut self,
        arena: &'a Arena,
        streams: &mut Vec<Stream<'a>>,
        events: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let found = self.meet(arena, streams)?;
        let window = self.recorder.window();
        if !window.looks() {
            return Ok(found);
        }
        window.begin(n_streams(streams), |k| n_words(streams, k));
        for (k, stream) in (0..).zip(&*streams) {
            let n_whole = stream.look(window.n_seen(k), events)?;
            window.look(k, events, n_whole);
        }
        // Those that began meanwhile had what ran then.
        Ok(self.meet(arena, streams)? || found)
    }

    /// Takes what is left in the streams of who is gone or goes on.
    fn take_rests<'a>(
        &mut self,
        taken: &mut Taken,
        arena: &'a Arena,
        streams: &mut Vec<Stream<'a>>,
        active: &Active,
    ) -> io::Result<()> {
        // Before the rests are read: who is gone by then has nothing to add.
        taken.n_left = arena.running()?;
        taken.owners = arena.owners()?;
        self.meet(arena, streams)?;
        for (k, stream) in (0..).zip(&*streams) {
            let rest = stream.rest()?;
            let n_words = rest.len() as u64 / 4;
            if !rest.is_empty() {
                self.keep(k, &rest, active.get(k as usize).map(|last| last.1));
            }
            taken.n_stalls += usize::try_from(stream.n_stalls()?).unwrap_or(usize::MAX);
            let is_behind = taken.n_left == 0 && stream.n_words()? > n_words + Stream::N_UNUSED;
            taken.n_lost += u64::from(is_behind || stream.has_lost()?);
        }
        taken.n_threads = self.recorder.n_threads();
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
        self.recorder.append(area, bytes, Timestamps { taken, appended: at.unwrap_or(taken) });
    }

    /// Those that were loaded meanwhile: the next events may be theirs.
    pub(crate) fn add_modules(&mut self) {
        self.later.try_iter().for_each(|code| self.recorder.add_module(&code));
    }

    /// Tells `whom` how large the file will be, if all that comes is written.
    fn forecast(&mut self, since: Duration, whom: Option<impl FnOnce(Forecast)>) {
        let Some(whom) = whom else { return };
        if self.recorder.keeps_tail() || !self.recorder.window().is_all() {
            return;
        }
        let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1);
        let a_minute = |n: u64| n.saturating_mul(60_000) / since_ms;
        let events_bytes = a_minute(self.recorder.n_bytes() as u64);
        whom(Forecast { events_bytes, file_bytes: a_minute(self.recorder.n_written()) });
    }

    /// Adds `events` to the stream of an area, of which all was taken.
    pub(crate) fn append_last(&mut self, area: u32, events: &[Event]) {
        self.add_modules();
        self.recorder.append_last(area, events, self.since.elapsed());
    }
}

fn n_streams(streams: &[Stream<'_>]) -> u32 {
    u32::try_from(streams.len()).expect("few")
}

fn n_words(streams: &[Stream<'_>], k: u32) -> u64 {
    streams.get(k as usize).map_or(0, |stream| stream.n_words().unwrap_or(0))
}

/// Notes which streams have grown until `since`.
fn see_growth(streams: &[Stream<'_>], active: &mut Active, since: Duration) -> io::Result<()> {
    active.resize(streams.len(), (0, since));
    for (stream, last) in streams.iter().zip(active) {
        let n_words = stream.n_words()?;
        if n_words != last.0 {
            *last = (n_words, since);
        }
    }
    Ok(())
}
