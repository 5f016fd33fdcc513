//! A program recorded: run while its streams are emptied, and how they end.

mod deaths;
mod ends;

pub use ends::StreamEnd;

use crate::loader::{ClosesMailbox, Loaded, Loader};
use crate::messages::{Done, Warning};
use crate::module::Instrumented;
use crate::prepare::Prepared;
use crate::run::{self, Process, RunError, Watched};
use deaths::{Library, Texts};
use ends::Ends;
use live::{Arena, Owner, Target};
use profile::Profile;
use program::Va;
use std::ffi::{OsStr, OsString};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use trace::recording::code::Code;
use trace::sample::Sample;

/// How many events a point has on average in a run that is long: to rewrite its code takes about as long as a
/// few hundred events a point, each time, and saves a third of them.
const LONG_RUN: u64 = 500;

/// A program that was recorded, and is over; `T` is what came of its streams.
pub struct RecordedRun<'a, T> {
    prepared: Prepared<'a>,
    loaded: Loaded,
    process: Process,
    /// What came of its streams.
    pub taken: T,
}

impl<'a, T: Send> RecordedRun<'a, T> {
    /// Runs `target`, called `name`, with `args` and with what is `prepared` until it ends. Meanwhile `take`
    /// empties the streams of `arena`, until it is told that no more will come; `tells` is sent what the
    /// events of modules mean that are loaded meanwhile.
    ///
    /// # Errors
    /// If it cannot be started; then no instruction of it has run.
    pub fn new(
        prepared: Prepared<'a>,
        arena: &Arena,
        target: &Target,
        (name, args): (&OsStr, &[OsString]),
        tells: Sender<Code>,
        take: impl FnOnce(&Arena, &AtomicBool) -> T + Send,
    ) -> Result<RecordedRun<'a, T>, RunError> {
        let command = run::command(target, name, args);
        live::pass_signals_on();
        let watched = Watched { execs: true, maps: false, deaths: true };
        let loader = Loader::new(&prepared, arena, Some(tells));
        let is_done = &AtomicBool::new(false);
        let (process, taken) = run::serve(&loader, arena, false, || {
            std::thread::scope(|scope| {
                let taker = std::thread::Builder::new().spawn_scoped(scope, move || {
                    // However taking ends, nobody waits for room any more.
                    let _closes = ClosesMailbox(arena);
                    take(arena, is_done)
                });
                let taker = taker.map_err(RunError::Thread)?;
                let process = run::start(command, &prepared, arena, watched)
                    .and_then(|started| run::wait(started, name, &prepared, watched));
                is_done.store(true, Ordering::SeqCst);
                let taken = taker.join();
                Ok((process?, taken.map_err(|_| RunError::Taker)?))
            })
        })?;
        let loaded = loader.finish();
        Ok(RecordedRun { prepared, loaded, process, taken })
    }
}

impl<T> RecordedRun<'_, T> {
    /// How the program ended.
    pub fn status(&self) -> ExitStatus {
        self.process.status
    }

    fn modules(&self) -> impl Iterator<Item = &Instrumented> {
        self.prepared.modules.iter().chain(&self.loaded.modules)
    }

    /// What the events of its modules mean.
    pub fn codes(&self) -> Vec<Code> {
        self.modules().filter_map(Instrumented::meaning).collect()
    }

    /// What is to be known of its modules.
    pub fn warnings(&self) -> Vec<Warning> {
        let done = Done::Recorded;
        let became = self.process.became.clone().into_iter();
        let became = became.map(|program| Warning::BecameAnother { program, done });
        let refused = self.loaded.refused.iter().cloned();
        became.chain(refused.map(|(path, why)| Warning::Left { path, why, done })).collect()
    }

    /// How the stream of each area ends, of which `owners` are those who appended last.
    pub fn ends(&self, owners: &[Owner], codes: &[Code]) -> Vec<StreamEnd> {
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

    /// Keeps how modules ran, as a `sample` of their events says, for the places of their events when they are
    /// recorded again: but if some functions are not recorded like the others.
    pub fn learn(&self, sample: &Sample) {
        let store = self.prepared.store;
        let modules: Vec<&Instrumented> = self.modules().filter(|module| module.code.is_some()).collect();
        if self.prepared.asked.is_partial()
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
        let is_new = |n: usize, n_events| {
            modules.get(n).is_some_and(|m| is_long(m, n_events) && !store.knows_run(m.key))
        };
        for (module, weights) in modules.iter().zip(sample.weights(codes, is_new).into_iter().flatten()) {
            let mut profile = Profile::default();
            profile.image.name = module.path.display().to_string();
            profile.blocks = weights.blocks.into_iter().map(|(at, n)| (Va(at), n)).collect();
            let edge = |(from, to)| profile::Edge { from: Va(from), to: Va(to) };
            profile.edges = weights.edges.into_iter().map(|(ends, n)| (edge(ends), n)).collect();
            store.keep_run(module.key, is_long(module, weights.n_events), &profile);
        }
    }
}
