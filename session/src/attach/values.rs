//! A process that runs already, whose values are recorded for a while.
//!
//! What was called, or entered, before has no beginning in the records: how it ends is not told. What is open
//! when all is taken out is said to be.

use super::record::as_they_were;
use super::{Attached, ReadyProcess, RunningError, Since};
use crate::messages::Done;
use crate::module::Instrumented;
use crate::record::Taken;
use crate::store::Store;
use crate::values::{
    Clocks, MeasureError, Measured, Places, Source, Taker, doubts, has_ended, measured, stamps_for,
};
use live::attach::{AttachError, GivenBack, Stop};
use measure::values::{Asked, Collector, Condition, Rows};
use profile::values::Stamps;
use std::ffi::OsStr;
use std::path::PathBuf;

/// How values are taken.
#[derive(Clone, Default)]
pub struct Taking {
    stamps: Option<Stamps>,
    condition: Option<Condition>,
    keeps_instances: bool,
}

impl Taking {
    /// As they are `asked` for. If loops or calls are timed, it is measured what that costs: by a small
    /// program that is run.
    ///
    /// # Errors
    /// If that cannot be measured.
    pub fn new(store: &Store, asked: &Asked) -> Result<Taking, MeasureError> {
        Ok(Taking { stamps: stamps_for(store, asked)?, ..Taking::default() })
    }

    /// With instances of loops one by one; stamps cost this.
    pub(crate) fn keeping_instances(stamps: Stamps) -> Taking {
        Taking { stamps: Some(stamps), condition: None, keeps_instances: true }
    }

    /// The same, but that only calls are recorded of which `condition` holds, if it is about arguments that
    /// they have.
    #[must_use]
    pub fn with_condition(self, condition: Option<Condition>) -> Taking {
        Taking { condition, ..self }
    }
}

/// A process whose values were recorded while somebody was attached to it; it is given back.
pub struct MeasuredWhile<'a> {
    process: ReadyProcess<'a>,
    collector: Collector,
    taken: Taken,
    clocks: Clocks,
    /// The program that it became.
    became: Option<PathBuf>,
    /// What was done to it.
    pub attached: Attached,
    /// How it was given back; why not, if it was not: `rescue` may help.
    given: Result<GivenBack, AttachError>,
}

impl<'a> MeasuredWhile<'a> {
    /// Has `process` append records until whoever is `during`, and is told of the stop in which it was
    /// attached to, is done; each call has a row in `log`, if there is one.
    ///
    /// # Errors
    /// If it cannot be attached to: then it is as it was.
    pub fn new(
        mut process: ReadyProcess<'a>,
        taking: Taking,
        log: Option<Rows>,
        during: impl FnOnce(Stop),
    ) -> Result<MeasuredWhile<'a>, RunningError> {
        let mut collector = Collector::with_log(log);
        taking.condition.into_iter().for_each(|condition| collector.set_condition(condition));
        let codes = process.modules().filter_map(Instrumented::recorded_values);
        codes.for_each(|code| collector.add_module(&code));
        taking.stamps.into_iter().for_each(|stamps| collector.set_stamps(stamps));
        if taking.keeps_instances {
            collector.keep_instances();
        }
        let (entered, arena) = process.enter()?;
        let clocks = Clocks::now();
        let (_tells, later) = std::sync::mpsc::channel();
        let mut taker = Taker { collector, later };
        let taking = |is_done: &_| taker.take(&arena, is_done);
        let (since, mut taken) = process.appends_during(entered, &arena, taking, during)?;
        let Since { became, attached, given } = since;
        as_they_were(&mut taken.owners, became.is_some());
        // All that goes on does so without us.
        taken.n_left = 0;
        Ok(MeasuredWhile { process, collector: taker.collector, taken, clocks, became, attached, given })
    }

    /// What its modules are called in recordings, the executable first.
    pub fn modules(&self) -> Vec<PathBuf> {
        self.process
            .modules()
            .map(|module| PathBuf::from(crate::module::written_path(&module.path)))
            .collect()
    }

    /// What there was, and how the process was given back. What is called `name` in warnings is the program.
    pub fn finish(self, name: &OsStr) -> (Measured, Result<GivenBack, AttachError>) {
        let (measured, given, _) = self.finish_with_process(name);
        (measured, given)
    }

    /// The same, and the process, to be attached to again.
    pub(crate) fn finish_with_process(
        self,
        name: &OsStr,
    ) -> (Measured, Result<GivenBack, AttachError>, ReadyProcess<'a>) {
        let MeasuredWhile { process, mut collector, taken, clocks, became, given, .. } = self;
        for (area, owner) in taken.owners.iter().enumerate() {
            collector.end(area, !has_ended(owner));
        }
        let mut all = process.warnings(became.as_deref(), Done::Recorded);
        all.extend(doubts(&taken, name));
        let modules: Vec<&Instrumented> = process.modules().collect();
        let moved = process.texts().map(|(text, module, recipe, room)| {
            (text, Source { path: &module.path, key: module.key, recipe, room })
        });
        let places =
            Places { store: process.store, moved: moved.collect(), given: Vec::new(), maps: &process.maps };
        let measured = measured(collector, &taken, &modules, &places, clocks, all);
        (measured, given, process)
    }
}
