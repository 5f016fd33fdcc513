//! A program recorded: run while its streams are emptied, and how they end.

mod deaths;
mod ends;
mod take;

pub(crate) use ends::{Ends, StreamEnd};
pub use take::Forecast;
pub(crate) use take::{NAP, Taken, Taker};

use crate::died::{self, Died};
use crate::loader::{ClosesMailbox, Loaded, Loader};
use crate::messages::{Done, Warning};
use crate::module::Instrumented;
use crate::prepare::{PrepareError, Prepared};
use crate::run::{self, Process, RunError, Watched};
use deaths::{Library, Texts};
use live::Arena;
use measure::Placement;
use profile::Profile;
use program::Va;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use trace::Cause;
use trace::recording::module_code::ModuleCode;
use trace::recording::recorder::Recorder;
use trace::sample::Sample;

/// How many events a point has on average in a run that is long: to rewrite its code takes about as long as a
/// few hundred events a point, each time, and saves a third of them.
const LONG_RUN: u64 = 500;

/// A program made ready to be recorded, with the memory for the streams of its events.
pub struct Recordable<'a> {
    prepared: Prepared<'a>,
    arena: Arena,
}

impl<'a> Recordable<'a> {
    /// What is `prepared`, for [`Placement::Events`].
    ///
    /// # Errors
    /// If there is not enough memory.
    ///
    /// # Panics
    /// If it is prepared for something else: there is no stream then.
    pub fn new(prepared: Prepared<'a>) -> Result<Recordable<'a>, PrepareError> {
        let placement = prepared.asked.placement;
        assert_eq!(placement, Placement::Events, "events are recorded of what is prepared for them");
        let arena = prepared.arena()?;
        Ok(Recordable { prepared, arena })
    }

    /// The modules that are recorded from the start.
    pub fn modules(&self) -> &[Instrumented] {
        &self.prepared.modules
    }
}

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
    pub codes: Vec<ModuleCode>,
    /// What is to be known of it.
    pub warnings: Vec<Warning>,
}

impl<'a, W: Write + Send> RecordedRun<'a, W> {
    /// Runs `command`, as [`run::command`] makes it of what is called `name`, with what is made ready in
    /// `recordable` until it ends.
    /// Meanwhile its streams are emptied into `recorder`, which knows the modules that are recorded from the
    /// start; after a second, `forecast` is told how large the file will be, if all of it is kept.
    ///
    /// # Errors
    /// If it cannot be started; then no instruction of it has run.
    pub fn new(
        recordable: Recordable<'a>,
        (command, name): (Command, &OsStr),
        recorder: Recorder<W>,
        forecast: impl FnOnce(Forecast) + Send,
    ) -> Result<RecordedRun<'a, W>, RunError> {
        let Recordable { prepared, arena } = recordable;
        live::pass_signals_on();
        let watched = Watched { execs: true, maps: None, deaths: true };
        let (tells, later) = std::sync::mpsc::channel();
        let mut taker = Taker::new(recorder, later);
        let tell = move |module: &Instrumented| {
            module.meaning().into_iter().for_each(|code| drop(tells.send(code)));
        };
        let loader = Loader::new(&prepared, &arena, Some(Box::new(tell)));
        let (process, taken) = run::serve(&loader, &arena, false, || {
            take_during(
                &arena,
                |is_done| taker.take(&arena, is_done, forecast),
                || {
                    run::start(command, &prepared, &arena, watched)
                        .and_then(|started| run::wait(started, name, &prepared, watched))
                },
            )
        })?;
        let loaded = loader.finish();
        Ok(RecordedRun { prepared, loaded, process, taker, taken })
    }
}

/// Has whoever is `taking` empty the streams of `arena` while whoever is `during` runs a program, until that
/// is over or has failed, which it is told. Then nobody waits for room any more: a program that goes on does
/// so alone.
///
/// # Errors
/// If there is no room for a thread, or whatever `during` fails with.
pub(crate) fn take_during<T, E: From<RunError>>(
    arena: &Arena,
    taking: impl FnOnce(&AtomicBool) -> Taken + Send,
    during: impl FnOnce() -> Result<T, E>,
) -> Result<(T, Taken), E> {
    let is_done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = EndsTaking(is_done);
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            // However taking ends, nobody waits for room any more.
            let _closes = ClosesMailbox(arena);
            taking(is_done)
        });
        let thread = thread.map_err(RunError::Thread)?;
        let done = during();
        drop(ends);
        let taken = thread.join();
        Ok((done?, taken.map_err(|_| RunError::Taker)?))
    })
}

/// Has the taker take what is there, and end, when it goes: also if that is because the session has failed,
/// or panics.
struct EndsTaking<'a>(&'a AtomicBool);

impl Drop for EndsTaking<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<W: Write> RecordedRun<'_, W> {
    /// How the program ended.
    pub fn status(&self) -> ExitStatus {
        self.process.status
    }

    /// Libraries, and the linker, that it was started with and that were not recorded.
    pub fn left_out(&self) -> &[PathBuf] {
        &self.prepared.left_out
    }

    /// How the program died, if a signal has ended it.
    pub fn died(&self) -> Option<Died> {
        let told = self.process.deaths.as_ref().map(live::Deaths::report).unwrap_or_default();
        died::died(&self.prepared, &self.loaded, &self.process, &told)
    }

    fn modules(&self) -> impl Iterator<Item = &Instrumented> {
        modules(&self.prepared, &self.loaded)
    }

    /// What is to be known of its modules.
    pub fn warnings(&self) -> Vec<Warning> {
        warnings(&self.loaded, self.process.became.as_deref(), Done::Recorded)
    }

    /// Says how the stream of each thread ends, and finishes the file; keeps how modules ran for the next
    /// time. What is called `name` in warnings is the program.
    pub fn finish(mut self, name: &OsStr) -> Recorded {
        let codes: Vec<ModuleCode> = self.modules().filter_map(Instrumented::meaning).collect();
        let ends = self.ends(&codes);
        self.taker.add_modules();
        let sample = self.taker.recorder.take_sample();
        let recorded = finished(self.taker, &self.taken, ends, codes, name);
        learn(&self.prepared, &self.loaded, &sample);
        self.prepared.store.trim();
        recorded
    }

    /// How the stream of each area ends.
    fn ends(&self, codes: &[ModuleCode]) -> Vec<StreamEnd> {
        let owners = &self.taken.owners;
        let report = self.process.deaths.as_ref().map(live::Deaths::report).unwrap_or_default();
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
            report: &report,
            last_events: texts.last_events(owners, &report),
            main: (self.process.pid, self.process.status),
            has_become: self.process.became.is_some(),
        };
        ends.all()
    }
}

/// Writes down how each stream `ends`, and finishes the file of what a `taker` has `taken`. What is called
/// `name` in warnings is the program.
pub(crate) fn finished<W: Write>(
    mut taker: Taker<W>,
    taken: &Taken,
    ends: Vec<StreamEnd>,
    codes: Vec<ModuleCode>,
    name: &OsStr,
) -> Recorded {
    let is_cut = ends.iter().any(|end| !end.is_known);
    for end in ends.iter().filter(|end| !end.events.is_empty()) {
        taker.append_last(end.area, &end.events);
    }
    let ends: Vec<(u32, Cause)> = ends.into_iter().map(|end| (end.area, end.cause)).collect();
    taker.add_modules();
    let warnings = doubts(taken, &taker.recorder, name);
    let (n_bytes_of_events, excess_bytes) = (taker.recorder.n_bytes(), taker.recorder.excess());
    let (n_threads, n_stalls) = (taken.n_threads, taken.n_stalls);
    let written = taker.recorder.finish(&ends);
    Recorded { written, excess_bytes, is_cut, n_bytes_of_events, n_threads, n_stalls, codes, warnings }
}

/// What is to be known of the events that were taken.
fn doubts<W: Write>(taken: &Taken, recorder: &Recorder<W>, name: &OsStr) -> Vec<Warning> {
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

/// What is to be known of what was `loaded`, and of the program that the process `became`.
pub(crate) fn warnings(loaded: &Loaded, became: Option<&Path>, done: Done) -> Vec<Warning> {
    let became = became.map(|program| Warning::BecameAnother { program: program.to_owned(), done });
    let refused = loaded.refused.iter().cloned();
    let refused = refused.map(|(path, why)| Warning::Left { path, why, done });
    loaded.warnings.iter().cloned().chain(became).chain(refused).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use trace::recording::window::{When, Window};

    /// What [`take_during`] gives while `during` goes on; nothing, if it does not come back.
    fn taken_during(during: impl FnOnce(&Arena) -> Result<(), RunError> + Send + 'static) -> Option<Outcome> {
        let (tells, told) = channel();
        std::thread::spawn(move || {
            let arena = Arena::for_events(&[]).expect("memory");
            let window = Window::new(When::default(), Default::default(), Default::default());
            let recorder = Recorder::new(Vec::new(), &[], window, None).expect("a file in memory");
            let mut taker = Taker::new(recorder, channel().1);
            let take = |is_done: &AtomicBool| taker.take(&arena, is_done, |_| ());
            let run = || take_during(&arena, take, || during(&arena)).map(|_| ());
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            let _waits = tells.send(ended.map_err(|_| ()));
        });
        told.recv_timeout(Duration::from_secs(20)).ok()
    }

    /// What came of it; nothing, if it panicked.
    type Outcome = Result<Result<(), RunError>, ()>;

    /// A program that ends when nobody can write to it any more.
    fn program() -> Child {
        Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("it is there")
    }

    #[test]
    fn taking_ends_when_the_program_is_over() {
        assert!(matches!(taken_during(|_| Ok(())), Some(Ok(Ok(())))));
    }

    /// The session fails, as where the kernel does not let it wait: the taker ends, and the program goes on.
    #[test]
    fn taking_ends_when_the_session_fails_and_the_program_goes_on() {
        let (gives, given) = channel();
        let failed = taken_during(move |_| {
            gives.send(program()).expect("it waits");
            Err(RunError::Wait { name: "cat".to_owned(), source: io::Error::other("tried") })
        });
        assert!(matches!(failed, Some(Ok(Err(RunError::Wait { .. })))), "{failed:?}");
        let mut child = given.recv().expect("it was started");
        assert!(child.try_wait().expect("it is ours").is_none(), "it goes on");
        drop(child.stdin.take());
        assert!(child.wait().expect("it is ours").success());
    }

    #[test]
    fn taking_ends_when_the_session_panics() {
        assert!(matches!(taken_during(|_| panic!("tried")), Some(Err(()))));
    }

    #[test]
    fn warnings_of_what_came_while_it_ran_are_passed_on() {
        let changes = Warning::ChangesCode { image: "/lib/jit.so".to_owned() };
        let loaded = Loaded {
            modules: Vec::new(),
            refused: vec![("/lib/a.so".into(), "it cannot be".to_owned())],
            given: Vec::new(),
            warnings: vec![changes.clone()],
        };
        let done = Done::Recorded;
        let left = Warning::Left { path: "/lib/a.so".into(), why: "it cannot be".to_owned(), done };
        let became = Warning::BecameAnother { program: "/bin/b".into(), done };
        assert_eq!(
            warnings(&loaded, Some(Path::new("/bin/b")), done),
            [changes.clone(), became, left.clone()]
        );
        assert_eq!(warnings(&loaded, None, done), [changes, left]);
    }
}
