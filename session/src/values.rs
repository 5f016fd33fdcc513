//! A program whose values are recorded: run while its streams are emptied, and what they came to.

mod calibrate;
mod callers;
mod places;
mod targets;

pub use calibrate::CalibrateError;
pub(crate) use calibrate::{Clocks, calibrated, stamps};
pub(crate) use places::{Places, Source};

use crate::died::{self, Died};
use crate::loader::{Loaded, Loader};
use crate::messages::{Done, Warning};
use crate::module::{Instrumented, Recipe, written_path};
use crate::prepare::{PrepareError, Prepared};
use crate::record::{NAP, Taken, take_during, warnings};
use crate::run::{self, Process, RunError, Watched};
use crate::store::Store;
use live::{Arena, Owner, Stream, Target};
use measure::Placement;
use measure::values::{Asked, Code, Collector, Condition, OneInstance, Rows, Stamping};
use probe::Room;
use profile::recording::SectionWriter;
use profile::values::{Loop, Stamps, Unlike, Values};
use program::{Image, Lines, Va};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

/// A program made ready, with the memory for the streams of its records.
pub struct Measurable<'a> {
    prepared: Prepared<'a>,
    arena: Arena,
    stamps: Option<Stamps>,
    condition: Option<Condition>,
    keeps_instances: bool,
    /// Whether it is run for us: then signals that are sent to us are not its.
    is_ours: bool,
}

/// Why a program whose values are to be recorded is not made ready.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// It cannot be.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// It is not known what it costs to read the time.
    #[error(transparent)]
    Calibrate(#[from] CalibrateError),
}

impl<'a> Measurable<'a> {
    /// What is `prepared`, for [`Placement::Values`]. If loops or calls are timed, it is measured what that
    /// costs: by a small program that is run.
    ///
    /// # Errors
    /// If there is not enough memory, or the cost of time stamps cannot be measured.
    ///
    /// # Panics
    /// If it is prepared for something else: there is no stream then.
    pub fn new(prepared: Prepared<'a>) -> Result<Measurable<'a>, MeasureError> {
        let stamps = stamps_for(prepared.store, &prepared.asked.values)?;
        Ok(Measurable { stamps, ..Measurable::without_stamps(prepared)? })
    }

    /// The same, but that times are as they are read.
    fn without_stamps(prepared: Prepared<'a>) -> Result<Measurable<'a>, PrepareError> {
        assert_eq!(
            prepared.asked.placement,
            Placement::Values,
            "values are taken of what is prepared for them"
        );
        let arena = prepared.arena()?;
        Ok(Measurable {
            prepared,
            arena,
            stamps: None,
            condition: None,
            keeps_instances: false,
            is_ours: false,
        })
    }

    /// The same, but that only calls are recorded of which `condition` holds, if it is about arguments that
    /// they have.
    pub fn with_condition(self, condition: Option<Condition>) -> Measurable<'a> {
        Measurable { condition, ..self }
    }

    /// The same, but that instances of loops are kept one by one.
    fn keeping_instances(self) -> Measurable<'a> {
        Measurable { keeps_instances: true, ..self }
    }

    /// The same, but of a program of ours: signals are ours, not its, whoever sends them to all of our group.
    fn of_ours(self) -> Measurable<'a> {
        Measurable { is_ours: true, ..self }
    }

    /// What the records of its modules mean that are there from the start.
    pub fn codes(&self) -> Vec<Code> {
        self.prepared.modules.iter().filter_map(Instrumented::recorded_values).collect()
    }
}

/// What time stamps cost here now, if any are `asked` for.
///
/// # Errors
/// If that cannot be measured.
pub(crate) fn stamps_for(store: &Store, asked: &Asked) -> Result<Option<Stamps>, CalibrateError> {
    let has_times = asked.log.is_some_and(|log| log.has_times);
    let is_timed = (has_times || !asked.loops.is_empty()) && asked.stamping != Stamping::None;
    if is_timed { stamps(store, asked.stamping).map(Some) } else { Ok(None) }
}

/// A program whose values were recorded, and that is over.
pub struct MeasuredRun<'a> {
    prepared: Prepared<'a>,
    loaded: Loaded,
    process: Process,
    collector: Collector,
    taken: Taken,
    clocks: Clocks,
}

/// What came of it.
pub struct Measured {
    /// The values.
    pub values: Values,
    /// What was recorded of each module, and what could not be.
    pub codes: Vec<Code>,
    /// What is to be known of it.
    pub warnings: Vec<Warning>,
    /// The last instances of loops, one by one, if they were kept.
    pub instances: Vec<OneInstance>,
    /// The recording with its log, if one was kept: the rest goes behind it.
    pub log: Option<FinishedLog>,
}

impl Measured {
    /// Adds what was measured of another process; logs are not added up.
    ///
    /// # Errors
    /// If that was of something else.
    pub fn add(&mut self, other: Measured) -> Result<(), Unlike> {
        self.values.merge(other.values)?;
        self.codes.extend(other.codes);
        let new = other.warnings.into_iter().filter(|warning| !self.warnings.contains(warning));
        let new: Vec<Warning> = new.collect();
        self.warnings.extend(new);
        Ok(())
    }
}

/// A recording that has its log, and why that ends early, if it does; or why nothing can be written to it.
pub type FinishedLog = io::Result<(SectionWriter<File>, Option<io::Error>)>;

impl<'a> MeasuredRun<'a> {
    /// Runs `target`, called `name`, with `args` and with what is made ready in `measurable` until it ends;
    /// each call has a row in `log`, if there is one.
    ///
    /// # Errors
    /// If it cannot be started; then no instruction of it has run.
    pub fn new(
        measurable: Measurable<'a>,
        target: &Target,
        (name, args): (&OsStr, &[OsString]),
        log: Option<Rows>,
    ) -> Result<MeasuredRun<'a>, RunError> {
        let maps = log.is_some() || !measurable.prepared.asked.values.watched.is_empty();
        let mut collector = Collector::with_log(log);
        measurable.condition.iter().for_each(|condition| collector.set_condition(condition.clone()));
        measurable.codes().iter().for_each(|code| collector.add_module(code));
        if measurable.keeps_instances {
            collector.keep_instances();
        }
        let Measurable { prepared, arena, stamps, is_ours, .. } = measurable;
        stamps.into_iter().for_each(|stamps| collector.set_stamps(stamps));
        let clocks = Clocks::now();
        let mut command = run::command(target, name, args);
        match is_ours {
            true => drop(command.process_group(0)),
            false => live::pass_signals_on(),
        }
        let (tells, later) = std::sync::mpsc::channel();
        let tell = move |module: &Instrumented| {
            module.recorded_values().into_iter().for_each(|code| drop(tells.send(code)));
        };
        let loader = Loader::new(&prepared, &arena, Some(Box::new(tell)));
        let watched = Watched { execs: true, maps: maps.then(|| loader.bell()), deaths: true };
        let mut taker = Taker { collector, later };
        let (process, taken) = run::serve(&loader, &arena, false, || {
            take_during(
                &arena,
                |is_done| taker.take(&arena, is_done),
                || {
                    run::start(command, &prepared, &arena, watched)
                        .and_then(|started| run::wait(started, name, &prepared, watched))
                },
            )
        })?;
        let loaded = loader.finish();
        Ok(MeasuredRun { prepared, loaded, process, collector: taker.collector, taken, clocks })
    }

    /// How the program ended.
    pub fn status(&self) -> ExitStatus {
        self.process.status
    }

    /// How the program died, if a signal has ended it.
    pub fn died(&self) -> Option<Died> {
        let told = self.process.deaths.as_ref().map(live::Deaths::report).unwrap_or_default();
        died::died(&self.prepared, &self.loaded, &self.process, &told)
    }

    /// What its modules are called in recordings, the executable first.
    pub fn modules(&self) -> Vec<PathBuf> {
        self.recorded().map(|module| PathBuf::from(written_path(&module.path))).collect()
    }

    fn recorded(&self) -> impl Iterator<Item = &Instrumented> {
        self.prepared.modules.iter().chain(&self.loaded.modules)
    }

    /// What there was. What is called `name` in warnings is the program.
    pub fn finish(self, name: &OsStr) -> Measured {
        let MeasuredRun { prepared, mut collector, taken, loaded, process, clocks } = self;
        for (area, owner) in taken.owners.iter().enumerate() {
            collector.end(area, !has_ended(owner));
        }
        let modules: Vec<&Instrumented> = prepared.modules.iter().chain(&loaded.modules).collect();
        let mut all = warnings(&loaded, process.became.as_deref(), Done::Recorded);
        all.extend(doubts(&taken, name));
        let is_left_out = !prepared.wanted.has_executable(&prepared.path);
        let placement = if is_left_out { Placement::Nowhere } else { prepared.asked.placement };
        let recipe = prepared.recipe();
        let own = Source {
            path: &prepared.path,
            key: prepared.key,
            recipe: Recipe { placement, is_executable: true, ..recipe },
            room: Room::Apart,
        };
        let given = loaded.given.iter().filter_map(|(given, key)| {
            let module = modules.iter().find(|module| module.key == *key)?;
            let (path, key) = (module.path.as_path(), module.key);
            Some((given.clone(), Source { path, key, recipe, room: Room::Behind }))
        });
        let places = Places {
            store: prepared.store,
            moved: vec![(process.text.start.0..process.text.end.0, own)],
            given: given.collect(),
            maps: &process.maps,
        };
        measured(collector, &taken, &modules, &places, clocks, all)
    }
}

/// What a `collector` has of a run of `modules`, whose code was at `places`, with these `warnings`.
pub(crate) fn measured(
    mut collector: Collector,
    taken: &Taken,
    modules: &[&Instrumented],
    places: &Places<'_>,
    clocks: Clocks,
    warnings: Vec<Warning>,
) -> Measured {
    let rate = clocks.rate();
    let paths: Vec<(PathBuf, PathBuf)> =
        modules.iter().map(|one| (PathBuf::from(written_path(&one.path)), one.path.clone())).collect();
    let codes: Vec<Code> = modules.iter().filter_map(|module| module.recorded_values()).collect();
    collector.end_all();
    let log = collector.log().take().map(|rows| {
        let callers = callers::named(places, rows.callers());
        rows.finish(&callers)
    });
    let instances = collector.take_instances();
    let mut values = Values { n_lost: taken.n_lost, ..collector.finish() };
    values.targets = targets::named(places, &values);
    values.stamps.iter_mut().for_each(|stamps| stamps.per_second = rate);
    lines_of_loops(&mut values, &paths);
    places.store.trim();
    Measured { values, codes, warnings, instances, log }
}

/// What is to be known of the records that were taken. What is called `name` is the program.
pub(crate) fn doubts(taken: &Taken, name: &OsStr) -> Vec<Warning> {
    let name = || Path::new(name).display().to_string();
    let mut all = Vec::new();
    all.extend(taken.failed.as_ref().map(|err| Warning::NotTaken { name: name(), why: err.to_string() }));
    all.extend((taken.n_lost > 0).then_some(Warning::LostEvents));
    all.extend((taken.n_shared > 0).then_some(Warning::SharedStream));
    let n = taken.n_left;
    all.extend((n > 0).then_some(Warning::StillRun { n, done: Done::Recorded }));
    all
}

/// Finds the lines of loops that ran, in the files of `modules`: as they are called, and where they are.
fn lines_of_loops(values: &mut Values, modules: &[(PathBuf, PathBuf)]) {
    for (called, path) in modules {
        let is_here = |one: &&mut Loop| Path::new(&one.module) == called && one.n_instances + one.n_open > 0;
        let mut here = values.loops.iter_mut().filter(is_here).peekable();
        if here.peek().is_none() {
            continue;
        }
        let Some(lines) = Image::load(path).ok().and_then(|image| Lines::load(&image)) else { continue };
        here.for_each(|one| one.line = lines.at(Va(one.header)).map(|(file, line)| (file.to_owned(), line)));
    }
}

/// Whether the thread was over before its process.
pub(crate) fn has_ended(owner: &Owner) -> bool {
    owner.has_ended && !owner.runs
}

/// Empties the memory shared with a program into a collector.
pub(crate) struct Taker {
    pub(crate) collector: Collector,
    /// What the records of modules mean that were loaded meanwhile.
    pub(crate) later: Receiver<Code>,
}

impl Taker {
    /// Takes all records until `is_done`, and what is there then: who goes on, is left alone.
    pub(crate) fn take(&mut self, arena: &Arena, is_done: &AtomicBool) -> Taken {
        let mut taken = Taken::default();
        taken.failed = self.take_to(&mut taken, arena, is_done).err();
        taken
    }

    fn take_to(&mut self, taken: &mut Taken, arena: &Arena, is_done: &AtomicBool) -> io::Result<()> {
        let (mut streams, mut bytes) = (Vec::new(), Vec::new());
        let mut n_rounds_left = Stream::N_CHUNKS;
        loop {
            let was_done = is_done.load(Ordering::SeqCst);
            let mut found = meet(arena, &mut streams)?;
            for (k, stream) in streams.iter_mut().enumerate() {
                if stream.take(&mut bytes) {
                    found = true;
                    self.append(k, &bytes);
                }
            }
            n_rounds_left -= usize::from(was_done);
            if was_done && (!found || n_rounds_left == 0) {
                break;
            }
            if let Some(log) = self.collector.log() {
                log.flush_at_times();
            }
            if !found {
                std::thread::park_timeout(NAP);
            }
        }
        // Before the rests are read: who is gone by then has nothing to add.
        taken.n_left = arena.running()?;
        taken.owners = arena.owners()?;
        meet(arena, &mut streams)?;
        for (k, stream) in streams.iter().enumerate() {
            let rest = stream.rest()?;
            self.append(k, &rest);
            taken.n_stalls += usize::try_from(stream.n_stalls()?).unwrap_or(usize::MAX);
            let is_behind = taken.n_left == 0 && stream.n_words()? > rest.len() as u64 / 4 + LONGEST_UNUSED;
            taken.n_lost += u64::from(is_behind || stream.has_lost()?);
        }
        taken.n_threads = streams.len();
        taken.n_shared = arena.n_shared()?;
        Ok(())
    }

    fn append(&mut self, area: usize, bytes: &[u8]) {
        self.later.try_iter().for_each(|code| self.collector.add_module(&code));
        self.collector.append(area, bytes);
    }
}

/// Room for so many words may be taken at the end of a chunk that are not used.
const LONGEST_UNUSED: u64 = Stream::N_UNUSED + measure::values::LONGEST_WORDS;

/// Adds to `streams` those that began meanwhile; whether there are any.
fn meet<'a>(arena: &'a Arena, streams: &mut Vec<Stream<'a>>) -> io::Result<bool> {
    let n_before = streams.len() as u64;
    for k in n_before..arena.n_areas()? {
        streams.push(arena.stream(k)?);
    }
    Ok(streams.len() as u64 > n_before)
}
