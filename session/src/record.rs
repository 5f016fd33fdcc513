//! A program recorded: run while its streams are emptied, and how they end.

mod deaths;
mod ends;
mod take;

pub use take::Forecast;

use crate::loader::{ClosesMailbox, Loaded, Loader};
use crate::messages::{Done, Warning};
use crate::module::Instrumented;
use crate::prepare::Prepared;
use crate::run::{self, Process, RunError, Watched};
use deaths::{Library, Texts};
use ends::{Ends, StreamEnd};
use live::{Arena, Target};
use profile::Profile;
use program::Va;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use take::{Taken, Taker};
use trace::Cause;
use trace::recording::code::Code;
use trace::recording::recorder::Recorder;
use trace::sample::Sample;

/// How many events a point has on average in a run that is long: to rewrite its code takes about as long as a
/// few hundred events a point, each time, and saves a third of them.
const LONG_RUN: u64 = 500;

/// A program that was recorded, and is over; what its streams held was given to a recorder.
pub struct RecordedRun<'a, W> {
    prepared: Prepared<'a>,
    loaded: Loaded,
    process: Process,
    taker: Taker<W>,
    taken: Taken,
}

/// What came of a recording.
pub struct Recorded {
    /// How many bytes the file has, or why not all could be written.
    pub written: io::Result<u64>,
    /// How many bytes the last of it has, if these are more than were asked for.
    pub excess_bytes: Option<usize>,
    /// Whether it is not known how far a thread came behind its last event.
    pub is_cut: bool,
    /// How many bytes of events came, kept or not.
    pub n_bytes_of_events: usize,
    /// How many threads there were.
    pub n_threads: usize,
    /// How often a thread waited until there was room for its events.
    pub n_stalls: usize,
    /// What the events of its modules mean.
    pub codes: Vec<Code>,
    /// What is to be known of it.
    pub warnings: Vec<Warning>,
}

impl<'a, W: Write + Send> RecordedRun<'a, W> {
    /// Runs `target` as `command`, its name and its arguments, with what is `prepared` until it ends.
    /// Meanwhile the streams of `arena` are emptied into `recorder`, which knows the modules that are
    /// prepared; after a second, `forecast` is told how large the file will be, if all of it is kept.
    ///
    /// # Errors
    /// If it cannot be started; then no instruction of it has run.
    pub fn new(
        prepared: Prepared<'a>,
        arena: &Arena,
        target: &Target,
        (name, args): (&OsStr, &[OsString]),
        recorder: Recorder<W>,
        forecast: impl FnOnce(Forecast) + Send,
    ) -> Result<RecordedRun<'a, W>, RunError> {
        let command = run::command(target, name, args);
        live::pass_signals_on();
        let watched = Watched { execs: true, maps: false, deaths: true };
        let (tells, later) = std::sync::mpsc::channel();
        let mut taker = Taker::new(recorder, later);
        let loader = Loader::new(&prepared, arena, Some(tells));
        let is_done = &AtomicBool::new(false);
        let (process, taken) = run::serve(&loader, arena, false, || {
            std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().spawn_scoped(scope, || {
                    // However taking ends, nobody waits for room any more.
                    let _closes = ClosesMailbox(arena);
                    taker.take(arena, is_done, forecast)
                });
                let thread = thread.map_err(RunError::Thread)?;
                let process = run::start(command, &prepared, arena, watched)
                    .and_then(|started| run::wait(started, name, &prepared, watched));
                is_done.store(true, Ordering::SeqCst);
                let taken = thread.join();
                Ok((process?, taken.map_err(|_| RunError::Taker)?))
            })
        })?;
        let loaded = loader.finish();
        Ok(RecordedRun { prepared, loaded, process, taker, taken })
    }
}

impl<W: Write> RecordedRun<'_, W> {
    /// How the program ended.
    pub fn status(&self) -> ExitStatus {
        self.process.status
    }

    fn modules(&self) -> impl Iterator<Item = &Instrumented> {
        modules(&self.prepared, &self.loaded)
    }

    /// What is to be known of its modules.
    pub fn warnings(&self) -> Vec<Warning> {
        let done = Done::Recorded;
        let became = self.process.became.clone().into_iter();
        let became = became.map(|program| Warning::BecameAnother { program, done });
        let refused = self.loaded.refused.iter().cloned();
        became.chain(refused.map(|(path, why)| Warning::Left { path, why, done })).collect()
    }

    /// Says how the stream of each thread ends, and finishes the file; keeps how modules ran for the next
    /// time. What is called `name` in warnings is the program.
    pub fn finish(mut self, name: &OsStr) -> Recorded {
        let codes: Vec<Code> = self.modules().filter_map(Instrumented::meaning).collect();
        let ends = self.ends(&codes);
        let is_cut = ends.iter().any(|end| !end.is_known);
        for end in ends.iter().filter(|end| !end.events.is_empty()) {
            self.taker.append_last(end.area, &end.events);
        }
        let ends: Vec<(u32, Cause)> = ends.into_iter().map(|end| (end.area, end.cause)).collect();
        self.taker.add_modules();
        let recorder = &mut self.taker.recorder;
        let sample = recorder.take_sample();
        let (n_bytes_of_events, excess_bytes) = (recorder.n_bytes(), recorder.excess());
        let (n_threads, n_stalls) = (self.taken.n_threads, self.taken.n_stalls);
        let warnings = self.doubts(name);
        let written = self.taker.recorder.finish(&ends);
        learn(&self.prepared, &self.loaded, &sample);
        self.prepared.store.trim();
        Recorded { written, excess_bytes, is_cut, n_bytes_of_events, n_threads, n_stalls, codes, warnings }
    }

    /// What is to be known of the events that were taken.
    fn doubts(&self, name: &OsStr) -> Vec<Warning> {
        let taken = &self.taken;
        let recorder = &self.taker.recorder;
        let name = || Path::new(name).display().to_string();
        let mut all = Vec::new();
        all.extend(taken.failed.as_ref().map(|err| Warning::NotTaken { name: name(), why: err.to_string() }));
        all.extend((taken.n_lost > 0).then_some(Warning::LostEvents));
        let nothing = recorder.n_bytes() > 0 && !recorder.has_kept();
        all.extend(nothing.then(|| Warning::NothingKept { name: name() }));
        all.extend((taken.n_shared > 0).then_some(Warning::SharedStream));
        let n = taken.n_left;
        all.extend((n > 0).then_some(Warning::StillRun { n, done: Done::Recorded }));
        all
    }

    /// How the stream of each area ends.
    fn ends(&self, codes: &[Code]) -> Vec<StreamEnd> {
        let owners = &self.taken.owners;
        let told = self.process.deaths.as_ref().map(live::Deaths::told).unwrap_or_default();
        let key = |module: &Instrumented| Some(module.code.as_ref()?.key);
        let libraries = self.loaded.given.iter().filter_map(|(given, file)| {
            let library = self.modules().find(|module| module.key == *file)?;
            Some(Library { plain: &library.path, given: given.clone(), key: key(library)? })
        });
        let texts = Texts {
            executable: self.process.text.clone(),
            key: self.modules().find(|module| module.path == self.prepared.path).and_then(key),
            libraries: libraries.collect(),
            codes,
        };
        let ends = Ends {
            owners,
            told: &told,
            last_events: texts.last_events(owners, &told),
            main: (self.process.pid, self.process.status),
            has_become: self.process.became.is_some(),
        };
        ends.all()
    }
}

/// All modules that are recorded.
fn modules<'m>(prepared: &'m Prepared<'_>, loaded: &'m Loaded) -> impl Iterator<Item = &'m Instrumented> {
    prepared.modules.iter().chain(&loaded.modules)
}

/// Keeps how modules ran, as a `sample` of their events says, for the places of their events when they
/// are recorded again: but if some functions are not recorded like the others.
fn learn(prepared: &Prepared<'_>, loaded: &Loaded, sample: &Sample) {
    let store = prepared.store;
    let modules: Vec<&Instrumented> =
        modules(prepared, loaded).filter(|module| module.code.is_some()).collect();
    if prepared.asked.is_partial()
        || store.is_temporary()
        || modules.iter().all(|module| store.knows_run(module.key))
    {
        return;
    }
    let _span = tracing::info_span!("learn").entered();
    let codes = modules.iter().filter_map(|module| module.meaning()).collect();
    let is_long = |module: &Instrumented, n_events: u64| {
        let n_points = module.code.as_ref().map_or(0, |code| code.points.len());
        n_events > 0 && n_events / LONG_RUN >= n_points as u64
    };
    let is_new =
        |n: usize, n_events| modules.get(n).is_some_and(|m| is_long(m, n_events) && !store.knows_run(m.key));
    for (module, weights) in modules.iter().zip(sample.weights(codes, is_new).into_iter().flatten()) {
        let mut profile = Profile::default();
        profile.image.name = module.path.display().to_string();
        profile.blocks = weights.blocks.into_iter().map(|(at, n)| (Va(at), n)).collect();
        let edge = |(from, to)| profile::Edge { from: Va(from), to: Va(to) };
        profile.edges = weights.edges.into_iter().map(|(ends, n)| (edge(ends), n)).collect();
        store.keep_run(module.key, is_long(module, weights.n_events), &profile);
    }
}
