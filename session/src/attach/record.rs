//! A process that runs already, whose events are recorded for a while.
//!
//! Invariant: its streams are emptied from before anything is put in until all is taken out: no thread waits
//! for room in vain.

use super::{Attached, ReadyProcess, RunningError, Since};
use crate::messages::Done;
use crate::module::Instrumented;
use crate::record::{Ends, Forecast, Recorded, Taken, Taker, finished};
use live::attach::{AttachError, GivenBack, Stop};
use live::{KernelReport, Owner};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use trace::recording::module_code::ModuleCode;
use trace::recording::recorder::Recorder;

/// A process whose events were recorded while somebody was attached to it; it is given back.
pub struct RecordedWhile<'a, W> {
    process: ReadyProcess<'a>,
    taker: Taker<W>,
    taken: Taken,
    /// The program that it became.
    became: Option<PathBuf>,
    /// What was done to it.
    pub attached: Attached,
    /// How it was given back; why not, if it was not: `rescue` may help.
    given: Result<GivenBack, AttachError>,
}

impl<'a, W: Write + Send> RecordedWhile<'a, W> {
    /// Has `process` append events, which go to `recorder`, until whoever is `during`, and is told of the
    /// stop in which it was attached to, is done. After a second, `forecast` is told how large the file will
    /// be, if all of it is kept.
    ///
    /// # Errors
    /// If it cannot be attached to: then it is as it was.
    pub fn new(
        mut process: ReadyProcess<'a>,
        recorder: Recorder<W>,
        forecast: impl FnOnce(Forecast) + Send,
        during: impl FnOnce(Stop),
    ) -> Result<RecordedWhile<'a, W>, RunningError> {
        let (entered, arena) = process.enter()?;
        let (_tells, later) = std::sync::mpsc::channel();
        let mut taker = Taker::new(recorder.of_running(), later);
        let taking = |is_done: &_| taker.take(&arena, is_done, forecast);
        let (since, mut taken) = process.appends_during(entered, &arena, taking, during)?;
        let Since { became, attached, given } = since;
        as_they_were(&mut taken.owners, became.is_some());
        // All that goes on does so without us.
        taken.n_left = 0;
        Ok(RecordedWhile { process, taker, taken, became, attached, given })
    }

    /// Says how the stream of each thread ends, and finishes the file; and how the process was given back.
    /// What is called `name` in warnings is the program.
    pub fn finish(self, name: &OsStr) -> (Recorded, Result<GivenBack, AttachError>) {
        let RecordedWhile { process, taker, taken, became, given, .. } = self;
        let codes: Vec<ModuleCode> = process.modules().filter_map(Instrumented::meaning).collect();
        let ends = Ends {
            owners: &taken.owners,
            // Nobody was told.
            report: &KernelReport::default(),
            last_events: BTreeMap::new(),
            main: (0, ExitStatus::from_raw(0)),
            has_become: false,
        };
        let ends = ends.all();
        let mut warnings = process.warnings(became.as_deref(), Done::Recorded);
        process.store.trim();
        let mut recorded = finished(taker, &taken, ends, codes, name);
        warnings.append(&mut recorded.warnings);
        (Recorded { warnings, ..recorded }, given)
    }
}

/// Of who went on without us, nothing of ours is left by which it is seen that it is the same program.
pub(super) fn as_they_were(owners: &mut [Owner], has_become: bool) {
    for owner in owners.iter_mut().filter(|owner| owner.runs) {
        owner.is_another = has_become;
    }
}
