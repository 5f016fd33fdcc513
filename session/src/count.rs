//! A program counted: run, and what its counters came to.

mod indirect_calls;

use crate::died::{self, Died, End};
use crate::loader::{Loaded, Loader};
use crate::messages::{Done, Warning};
use crate::module::{Instrumented, written_path};
use crate::prepare::{PrepareError, Prepared};
use crate::run::{self, Maps, Process, RunError, Watched};
use crate::store::Store;
use indirect_calls::IndirectCalls;
use live::{Arena, Death, Deaths, KernelReport, StoppedThreads, Target};
use measure::Placement;
use profile::{Profile, recording};
use program::Program;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Why a program is not counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// It is not made ready.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// It was not run to its end.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The memory shared with it cannot be looked at.
    #[error(transparent)]
    Arena(io::Error),
    /// Its counters cannot be read.
    #[error("cannot read the counters")]
    Counters(#[source] io::Error),
}

/// How often the counters of a module are incremented on average in a run that is long: rewriting it takes
/// about as long as a thousand increments a counter.
const LONG_RUN: u64 = 1000;

/// A counted program whose counters are still in the memory that it shared with us.
pub struct CountedRun<'a> {
    prepared: Prepared<'a>,
    arena: Arena,
    loaded: Loaded,
    process: Process,
    /// What the kernel told of its threads and processes.
    told: KernelReport,
}

/// Other programs that a counted one started, or became, by `exec`: they are not counted.
#[derive(Clone, Copy, Debug)]
pub struct OtherPrograms {
    /// How many, if the kernel told.
    pub n: Option<u64>,
    /// Whether these may be more.
    pub is_least: bool,
    /// Of the processor time of all, what processes took that it started and waited for, `0.0..=1.0`; unknown
    /// where it is too little to be told.
    pub share: Option<f64>,
}

/// Where signals ended threads.
#[derive(Default)]
struct Ends {
    /// By module: offsets in its moved code where a thread was.
    stops: Vec<(u128, u64)>,
    /// By process: threads that were anywhere; nothing, if not all are known that signals ended.
    anywhere: Option<BTreeMap<u32, u64>>,
}

/// What was counted.
pub struct Collected {
    /// Of each module, all its threads together.
    pub profiles: Vec<Profile>,
    /// Of each thread, those of the modules; none, if they were not kept apart.
    pub threads: Vec<Vec<Profile>>,
    /// How many threads counted.
    pub n_threads: u64,
    /// What is to be known of the counts.
    pub warnings: Vec<Warning>,
}

impl<'a> CountedRun<'a> {
    /// Runs `target`, called `name`, with `args` and with what is `prepared` until it ends.
    ///
    /// # Errors
    /// If there is no memory for its counters, or it cannot be started; then no instruction of it has run.
    pub fn new(
        prepared: Prepared<'a>,
        target: &Target,
        name: &OsStr,
        args: &[OsString],
    ) -> Result<CountedRun<'a>, CountError> {
        let arena = prepared.arena()?;
        let command = run::command(target, name, args);
        live::pass_signals_on();
        let follows = prepared.asked.follows;
        // What is followed has other addresses.
        let maps = prepared.asked.callees && !follows;
        let loader = Loader::new(&prepared, &arena, None);
        let watched = Watched { execs: !follows, maps: maps.then(|| loader.bell()), deaths: true };
        let process = run::serve(&loader, &arena, follows, || {
            let started = run::start(command, &prepared, &arena, watched);
            run::wait(started.map_err(RunError::explained)?, name, &prepared, watched)
        })?;
        let loaded = loader.finish();
        let told = process.deaths.as_ref().map(Deaths::report).unwrap_or_default();
        Ok(CountedRun { prepared, arena, loaded, process, told })
    }

    /// How the program died, if a signal has ended it.
    pub fn died(&self) -> Option<Died> {
        died::died(&self.prepared, &self.loaded, &self.process, &self.told)
    }

    /// The other programs that it started, if there are any that may not have been counted.
    pub fn others(&self) -> Option<OtherPrograms> {
        let live::Ended { has_waited, children_share, .. } = self.process.ended;
        let of_kernel = self.process.deaths.is_some();
        let is_any = if of_kernel { self.told.n_execs > 0 } else { has_waited == Some(true) };
        (is_any && !self.prepared.asked.follows).then(|| OtherPrograms {
            n: of_kernel.then_some(self.told.n_execs),
            is_least: self.told.is_cut,
            share: children_share,
        })
    }

    /// The libraries that were there at its start and that nobody asked to count; the last may be its ld.so,
    /// which cannot be counted.
    pub fn left_out(&self) -> &[PathBuf] {
        &self.prepared.left_out
    }

    /// Where signals ended threads, as far as the kernel told.
    fn ends(&self) -> io::Result<Ends> {
        if !self.told.is_whole || self.told.deaths.is_empty() {
            return Ok(Ends { anywhere: self.told.is_whole.then(BTreeMap::new), ..Ends::default() });
        }
        let counted = self.arena.that_may_be_stopped()?;
        let (mut stops, mut anywhere) = (Vec::new(), BTreeMap::new());
        let modules = self.modules();
        let is_counted = |d: &&Death| d.process == self.process.pid || counted.contains(&d.process);
        for death in self.told.deaths.iter().filter(is_counted) {
            let (process, mapped) = (death.process, &self.told.mapped);
            let texts = died::moved_texts(&self.prepared, &self.loaded, &self.process, process, mapped);
            match died::end(&texts, &modules, mapped, death) {
                End::At(key, offset) => stops.push((key, offset)),
                End::InCall => {}
                End::Anywhere => *anywhere.entry(process).or_default() += 1,
            }
        }
        Ok(Ends { stops, anywhere: Some(anywhere) })
    }

    /// How the program ended.
    pub fn status(&self) -> ExitStatus {
        self.process.status
    }

    /// How many counters of the first thread are not zero.
    ///
    /// # Errors
    /// If the memory shared with the program cannot be read.
    pub(crate) fn n_counters_that_ran(&self) -> Result<usize, CountError> {
        let of = |module: &Instrumented| self.arena.area(module.key, module.notes.n_counters(), 0);
        let areas = self.modules().into_iter().map(of).collect::<io::Result<Vec<_>>>();
        let areas = areas.map_err(CountError::Arena)?;
        Ok(areas.iter().flatten().filter(|n| **n > 0).count())
    }

    fn modules(&self) -> Vec<&Instrumented> {
        self.prepared.modules.iter().chain(&self.loaded.modules).collect()
    }

    /// The programs of all modules that were counted, if their files are still what was counted.
    pub fn into_programs(self) -> Vec<Program> {
        let modules: Vec<Instrumented> =
            self.prepared.modules.into_iter().chain(self.loaded.modules).collect();
        modules.into_par_iter().filter_map(Instrumented::into_program).collect()
    }

    /// The `profiles` of its modules, as they were collected, with what a recording keeps of the code of
    /// each: nothing, if its file is not any more what was counted.
    pub fn with_code(&self, profiles: Vec<Profile>) -> Vec<recording::Module> {
        with_code(self.prepared.store, self.modules(), profiles)
    }

    /// What is to be known of the modules that came while it ran.
    pub fn warnings(&self) -> Vec<Warning> {
        let counted = self.modules().into_iter().map(|module| module.path.as_path());
        let seen: Vec<&Path> =
            counted.chain(self.loaded.refused.iter().map(|(path, _)| path.as_path())).collect();
        let unmatched = self.prepared.wanted.unmatched(&seen).into_iter();
        let unmatched = unmatched.map(|name| Warning::NoneNamed { name: name.to_owned() });
        self.loaded.warnings.iter().cloned().chain(unmatched).collect()
    }

    /// Reads the counters; keeps how modules ran for the next time, and what they were rewritten to.
    ///
    /// # Errors
    /// If the memory shared with the program cannot be read.
    pub fn collect(&self, per_thread: bool) -> Result<Collected, CountError> {
        let n_threads = self.arena.n_areas().map_err(CountError::Arena)?;
        let modules = self.modules();
        let ends_are_taken = modules.iter().any(|module| module.notes.ends_are_taken);
        let Process { pid, status, .. } = self.process;
        let ended = (|| {
            let ends = self.ends()?;
            let stopped = self.arena.stopped(pid, status, ends_are_taken, ends.anywhere.as_ref())?;
            Ok((self.arena.stops()?, stopped, ends))
        })();
        let (stops, stopped, ends) = ended.map_err(CountError::Arena)?;
        let counts = Counts {
            modules: &modules,
            arena: &self.arena,
            maps: &self.process.maps,
            stops: &stops,
            stopped: &stopped,
            ended_at: &ends.stops,
        };
        let keeps = self.prepared.asked.placement == Placement::Edges;
        let (profiles, threads) = counts.collect(per_thread, keeps.then_some(self.prepared.store))?;
        self.prepared.store.trim();
        let warnings = self.doubts().map_err(CountError::Arena)?;
        Ok(Collected { profiles, threads, n_threads, warnings })
    }

    /// What is to be known of the counts.
    fn doubts(&self) -> io::Result<Vec<Warning>> {
        let done = Done::Counted;
        let mut all = Vec::new();
        all.extend((self.arena.n_shared()? > 0).then_some(Warning::Shared));
        all.extend((self.arena.n_unknown()? > 0).then_some(Warning::Unknown));
        let n = self.arena.running()?;
        all.extend((n > 0).then_some(Warning::StillRun { n, done }));
        all.extend(self.process.became.clone().map(|program| Warning::BecameAnother { program, done }));
        let left = self.loaded.refused.iter().cloned();
        all.extend(left.map(|(path, why)| Warning::Left { path, why, done }));
        let unmoved = self.modules().into_iter().filter(|module| module.notes.n_counters() == 0);
        all.extend(unmoved.map(|module| Warning::NothingMoved { path: module.path.clone() }));
        Ok(all)
    }
}

/// What is known of the counters of all modules, but for their counts.
pub(crate) struct Counts<'a> {
    pub(crate) modules: &'a [&'a Instrumented],
    pub(crate) arena: &'a Arena,
    pub(crate) maps: &'a Maps,
    /// What was written down of blocks that were left in the middle.
    pub(crate) stops: &'a [u8],
    pub(crate) stopped: &'a StoppedThreads,
    /// By module: offsets in its moved code where a signal ended a thread.
    pub(crate) ended_at: &'a [(u128, u64)],
}

impl Counts<'_> {
    /// The profile of each module, and if `per_thread`, those of each thread. How modules ran is kept in
    /// `store`, if there is one.
    ///
    /// # Errors
    /// If the memory shared with the program cannot be read.
    pub(crate) fn collect(
        &self,
        per_thread: bool,
        store: Option<&Store>,
    ) -> Result<(Vec<Profile>, Vec<Vec<Profile>>), CountError> {
        let Counts { modules, arena, maps, stops, stopped, ended_at } = *self;
        let n_threads = arena.n_areas().map_err(CountError::Arena)?;
        let n = if per_thread { n_threads } else { 0 };
        let mut threads = vec![Vec::new(); usize::try_from(n).expect("what is in memory can be counted")];
        let mut profiles = Vec::new();
        for module in modules {
            let counts = ModuleCounts { module, all: modules, arena, maps, stops, stopped, ended_at };
            let (profile, is_long) = counts.collect(n_threads, &mut threads)?;
            if let Some(store) = store {
                store.keep_run(module.key, is_long, &profile);
            }
            profiles.push(profile);
        }
        Ok((profiles, threads))
    }
}

/// What a recording keeps of the code of `modules`, each with its profile: nothing of one whose file is not
/// any more what was counted.
pub(crate) fn with_code(
    store: &Store,
    modules: Vec<&Instrumented>,
    profiles: Vec<Profile>,
) -> Vec<recording::Module> {
    let kept = |(module, profile): (&Instrumented, Profile)| {
        let code = module.code_that_ran(store, &profile);
        recording::Module::new(profile, code.as_ref())
    };
    modules.into_par_iter().zip(profiles).map(kept).collect()
}

/// What is known of the counters of a module, but for their counts.
struct ModuleCounts<'a> {
    module: &'a Instrumented,
    all: &'a [&'a Instrumented],
    arena: &'a Arena,
    maps: &'a Maps,
    /// What was written down of blocks that were left in the middle.
    stops: &'a [u8],
    stopped: &'a StoppedThreads,
    /// By module: offsets in its moved code where a signal ended a thread.
    ended_at: &'a [(u128, u64)],
}

impl ModuleCounts<'_> {
    fn profile(&self, counts: &[u64], stops: &[(u64, i64)], n_stopped: u64) -> Profile {
        let mut profile = self.module.notes.profile(counts, stops, n_stopped);
        profile.image.name = written_path(&self.module.path);
        profile
    }

    /// The module's profile, and whether it ran long; adds those of its threads to `threads`, if there are
    /// any.
    fn collect(&self, n_threads: u64, threads: &mut [Vec<Profile>]) -> Result<(Profile, bool), CountError> {
        let (module, arena) = (self.module, self.arena);
        let n = module.notes.n_counters();
        let mut all = vec![0u64; n];
        let mut calls = IndirectCalls::of(module, self.all, arena, self.maps);
        for k in 0..n_threads {
            // One area at a time: of large modules, many together do not fit into memory.
            let index = usize::try_from(k).expect("what is in memory can be counted");
            let thread = threads.get_mut(index);
            let n_stopped = self.stopped.in_areas.get(index).map_or(0, |n| self.stopped.n_untold.min(*n));
            let mut own = None;
            if thread.is_some() {
                let area = arena.area(module.key, n, k).map_err(CountError::Arena)?;
                measure::raw_recording::add_area(&mut all, area.iter().copied());
                own = Some(self.profile(&area, &[], n_stopped));
            } else {
                arena.add_area(module.key, k, &mut all).map_err(CountError::Arena)?;
            }
            calls.add(k, own.as_mut()).map_err(CountError::Counters)?;
            if let (Some(thread), Some(own)) = (thread, own) {
                thread.push(own);
            }
        }
        let rows = arena.rows(module.key).into_iter();
        let by_handlers = rows.flat_map(|row| measure::raw_recording::stops(self.stops, row));
        let by_signals = self.ended_at.iter().filter(|(key, _)| *key == module.key).map(|(_, at)| (*at, 1));
        let stops: Vec<_> = by_handlers.chain(by_signals).collect();
        let mut profile = self.profile(&all, &stops, self.stopped.n);
        calls.tell(&mut profile);
        let n_increments = all.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
        let is_long = n_increments > 0 && n_increments / LONG_RUN >= all.len() as u64;
        Ok((profile, is_long))
    }
}
