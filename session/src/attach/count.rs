//! A process that runs already, counted for a while.

use super::{Attached, ReadyProcess, RunningError, Since};
use crate::count::{Collected, CountError, Counts, with_code};
use crate::messages::{Done, Warning};
use crate::module::Instrumented;
use live::attach::{AttachError, Attachment, GivenBack, Stop};
use live::{Arena, StoppedThreads};
use profile::{Profile, recording};
use std::path::PathBuf;

/// A process that counts.
pub struct AttachedRun<'a> {
    process: ReadyProcess<'a>,
    arena: Arena,
    attachment: Attachment,
}

impl<'a> AttachedRun<'a> {
    /// Has `process` count from now on.
    ///
    /// # Errors
    /// If it cannot be attached to: then it is as it was.
    pub fn new(mut process: ReadyProcess<'a>) -> Result<AttachedRun<'a>, RunningError> {
        let (entered, arena) = process.enter()?;
        let attachment = process.put_in(entered, &arena)?;
        Ok(AttachedRun { process, arena, attachment })
    }

    /// The stop in which it was attached to.
    pub fn stopped(&self) -> Stop {
        self.attachment.stopped
    }

    /// Gives the process back as it was; an error of that, if it could not be done: `rescue` may help.
    pub fn end(self) -> (CountedWhile<'a>, Result<GivenBack, AttachError>) {
        let AttachedRun { mut process, arena, attachment } = self;
        let Since { became, attached, given } = process.take_out(attachment);
        (CountedWhile { process, became, arena, attached }, given)
    }
}

/// What a process counted while somebody was attached to it.
pub struct CountedWhile<'a> {
    process: ReadyProcess<'a>,
    /// The program that it became.
    became: Option<PathBuf>,
    arena: Arena,
    /// What was done to it.
    pub attached: Attached,
}

impl CountedWhile<'_> {
    /// Its modules that nobody asked to count.
    pub fn left_out(&self) -> &[PathBuf] {
        self.process.left_out()
    }

    /// Reads the counters. `n_inside` is how many threads may have come to, or left, counted code in the
    /// middle of a block.
    ///
    /// # Errors
    /// If the memory that was shared with the process cannot be read.
    pub fn collect(&self, per_thread: bool, n_inside: u64) -> Result<Collected, CountError> {
        let modules: Vec<&Instrumented> = self.process.modules().collect();
        let n_threads = self.arena.n_areas().map_err(CountError::Arena)?;
        let n_areas = usize::try_from(n_threads).unwrap_or(0);
        let stopped = StoppedThreads { n: n_inside, n_untold: n_inside, in_areas: vec![1; n_areas] };
        let stops = self.arena.stops().map_err(CountError::Arena)?;
        let counts = Counts {
            modules: &modules,
            arena: &self.arena,
            maps: &self.process.maps,
            stops: &stops,
            stopped: &stopped,
            ended_at: &[],
        };
        let (profiles, threads) = counts.collect(per_thread, None)?;
        self.process.store.trim();
        let warnings = self.warnings().map_err(CountError::Arena)?;
        Ok(Collected { profiles, threads, n_threads, warnings })
    }

    fn warnings(&self) -> std::io::Result<Vec<Warning>> {
        let mut all = Vec::new();
        all.extend((self.arena.n_shared()? > 0).then_some(Warning::Shared));
        all.extend(self.process.warnings(self.became.as_deref(), Done::Counted));
        let unmoved = self.process.modules().filter(|module| module.notes.n_counters() == 0);
        all.extend(unmoved.map(|module| Warning::NothingMoved { path: module.path.clone() }));
        Ok(all)
    }

    /// Of several processes, the `profiles` of each, as they were collected: those of one module added up,
    /// with what a recording keeps of its code.
    pub fn added_up(
        all: &[CountedWhile<'_>],
        profiles: impl IntoIterator<Item = Vec<Profile>>,
    ) -> Vec<recording::Module> {
        let mut modules: Vec<(&Instrumented, Profile)> = Vec::new();
        for (one, profiles) in all.iter().zip(profiles) {
            for (module, profile) in one.process.modules().zip(profiles) {
                match modules.iter_mut().find(|(known, _)| known.key == module.key) {
                    Some((_, sum)) => sum.add(&profile),
                    None => modules.push((module, profile)),
                }
            }
        }
        let Some(first) = all.first() else { return Vec::new() };
        let (modules, profiles) = modules.into_iter().unzip();
        with_code(first.process.store, modules, profiles)
    }
}
