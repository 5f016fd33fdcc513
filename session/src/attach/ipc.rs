//! Calls of a function of a process that runs, or instances of a loop: how many instructions they run, how
//! many cycles they take.
//!
//! The process is attached to for a while and given back, for longer each time, until there are enough calls:
//! first those that are watched alone, then those whose instructions are counted; if they come often, both
//! are done in turn. Its modules are made ready once for each of both; before, between and behind them, the
//! clock is calibrated.
//!
//! Source: PADRONE, section 3.2.

use super::{Attached, MeasuredWhile, ReadyProcess, RunningError, RunningProgram, Taking};
use crate::choose::{ModuleFilter, Spellings};
use crate::module::{Instrumentation, Instrumented};
use crate::store::Store;
use crate::values::{MeasureError, calibrated};
use live::attach::{AttachError, GivenBack};
use measure::Placement;
use measure::reports::ipc::{self, Calibration, Call, Clock, Ipc, Round, Subject};
use measure::values::{Code, Recorded, Rows, Stamping, Unseen, What};
use profile::ReadError;
use profile::recording::Recording;
use profile::values::Stamps;
use profile::values::log::{Chosen, Log, LogWriter};
use program::Va;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why calls are not measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IpcError {
    /// It cannot be attached to.
    #[error(transparent)]
    Running(#[from] RunningError),
    /// What it costs to read the time is not known.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The calls cannot be kept for a moment.
    #[error("calls cannot be kept in a temporary file in {}", folder.display())]
    File {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What was kept cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It was not given back as it was.
    #[error("process {pid} was not given back as it was")]
    NotGivenBack {
        /// Its number.
        pid: i32,
        /// Why.
        source: AttachError,
    },
}

impl IpcError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            IpcError::Running(err) => err.hint(),
            IpcError::NotGivenBack { pid, source } => {
                source.hint().or_else(|| Some(format!("`engraft rescue {pid}` tries once more")))
            }
            IpcError::File { .. } => {
                Some("make room there: it is where rewritten modules are kept".to_owned())
            }
            IpcError::Measure(_) | IpcError::Read(_) => None,
        }
    }
}

/// Which calls are wanted, or which instances of a loop.
#[derive(Clone, Debug)]
pub struct CallsWanted<'a> {
    /// The process.
    pub pid: i32,
    /// Their function: a symbol, one of its `spellings`, or an address in the executable.
    pub function: &'a str,
    /// Of a loop: the text that names it ([`measure::values::Asked::loops`]).
    pub in_loop: Option<&'a str>,
    /// How users spell functions.
    pub spellings: Spellings,
    /// How many.
    pub n: usize,
    /// How long they are waited for, for each of both measurements.
    pub at_most: Duration,
}

impl<'a> CallsWanted<'a> {
    /// So many of the function whose symbol, or address in the executable, this is: for 30 s at most.
    pub fn of(pid: i32, function: &'a str, n: usize) -> CallsWanted<'a> {
        let at_most = Duration::from_secs(30);
        CallsWanted { pid, function, in_loop: None, spellings: |_| Vec::new(), n, at_most }
    }

    fn subject(&self) -> Subject<'a> {
        self.in_loop.map_or(Subject::Calls(self.function), Subject::Loop)
    }
}

/// What came of it.
#[derive(Default)]
pub struct CallsMeasured {
    /// The calls, or the instances; nothing, if none came back.
    pub ipc: Option<Ipc>,
    /// How many were watched whose instructions were not counted.
    pub n_plain: usize,
    /// Whether any of its modules has the function, or the loop.
    pub is_there: bool,
    /// Functions whose instructions could not be counted, and why.
    pub uncounted: Vec<Unseen>,
    /// Modules whose instructions could not be counted, and why.
    pub uncounted_modules: Vec<(PathBuf, String)>,
    /// Why the function is not seen, if it is not.
    pub unseen: Vec<Unseen>,
    /// What was done to the process, each time.
    pub attached: Vec<(Attached, GivenBack)>,
}

/// How long it is attached to first; each time after, four times as long.
const FIRST: Duration = Duration::from_millis(100);
/// How often both are measured in turn, if calls come often enough.
const ROUNDS: usize = 3;

/// Measures calls; `waits` comes back after so long, or at once and with false, if all is to end. It is asked
/// first when all is made ready, before anything is done to the process.
///
/// # Errors
/// If the process cannot be attached to, or is not given back as it was.
pub fn measure_calls(
    store: &Store,
    wanted: &CallsWanted<'_>,
    waits: &dyn Fn(Duration) -> bool,
) -> Result<CallsMeasured, IpcError> {
    // What it calls is in any of them.
    let all = ModuleFilter::new(&["*"]);
    let (clock, stamps) = (Vec::new(), Stamps::default());
    let mut measuring = Measuring { store, wanted, waits, clock, stamps, goes_on: true };
    let mut measured = CallsMeasured::default();
    let Some(plain) = measuring.where_it_is(&all, &mut measured)? else { return Ok(measured) };
    // Both are made ready before either is measured: the less time lies between them, the better.
    let runs = where_it_runs(&plain).unwrap_or(all.clone());
    let counted = measuring.ready(true, &runs)?;
    measuring.goes_on = waits(Duration::ZERO);
    let (mut processes, mut rounds) = (Some((plain, counted)), Vec::<Round>::new());
    while let Some((plain, counted)) = processes.take() {
        measuring.calibrate()?;
        let n_before = measured.attached.len();
        let (plain, plain_process) = measuring.seen(plain, &mut measured)?;
        measured.n_plain += plain.len();
        if measured.n_plain == 0 {
            return Ok(measured);
        }
        measuring.calibrate()?;
        let (counted, counted_process) = measuring.seen(counted, &mut measured)?;
        // Of what seldom comes, there is one round.
        let is_quick = measured.attached.len() == n_before + 2 && !plain.is_empty() && !counted.is_empty();
        rounds.push(Round { plain, counted });
        if is_quick && rounds.len() < ROUNDS && measuring.goes_on {
            processes = Some((plain_process, counted_process));
        }
    }
    measuring.calibrate()?;
    let clock = Clock::of(&measuring.clock);
    measured.ipc = clock.and_then(|clock| ipc::ipc(&rounds, wanted.n, &clock));
    Ok(measured)
}

/// The modules in which what `process` was made ready for runs, with all that it calls; nothing if it may
/// run in any.
fn where_it_runs(process: &ReadyProcess<'_>) -> Option<ModuleFilter> {
    let _span = tracing::info_span!("where it runs").entered();
    let mut paths = Vec::new();
    for module in process.modules() {
        let records = module.recorded_values().map(|code| code.records).unwrap_or_default();
        let mut begins = records.iter().filter(|one| begins(one.what)).peekable();
        if begins.peek().is_none() {
            continue;
        }
        let program = module.program()?;
        let stays = |one: &Recorded| {
            let block = program.block_at(Va(one.at));
            block.is_some_and(|block| program.stays_in_module(program.block(block).func))
        };
        if !begins.all(stays) {
            return None;
        }
        paths.push(module.path.to_str()?);
    }
    Some(ModuleFilter::new(&paths))
}

/// Whether a record says that a call, or an instance of a loop, begins.
fn begins(what: What) -> bool {
    matches!(what, What::Enters | What::EntersLoop)
}

/// What is done for it.
struct Measuring<'a> {
    store: &'a Store,
    wanted: &'a CallsWanted<'a>,
    waits: &'a dyn Fn(Duration) -> bool,
    clock: Vec<Calibration>,
    /// What stamps cost, by the last calibration.
    stamps: Stamps,
    /// Whether the process is there still, and nobody has asked to end.
    goes_on: bool,
}

impl<'a> Measuring<'a> {
    /// The process with those of its modules made ready that are `of` interest.
    fn ready(&self, counted: bool, of: &'a ModuleFilter) -> Result<ReadyProcess<'a>, RunningError> {
        let asked = Instrumentation {
            values: Arc::new(ipc::asked(self.wanted.subject(), counted)),
            spellings: self.wanted.spellings,
            ..Instrumentation::new(Placement::Values)
        };
        ReadyProcess::if_any(self.store, of, RunningProgram::of(self.wanted.pid)?, asked)
    }

    /// The process, made ready for calls that are watched alone; nothing if none of its modules has the
    /// function, or it is not seen: then that is said.
    fn where_it_is(
        &self,
        all: &'a ModuleFilter,
        measured: &mut CallsMeasured,
    ) -> Result<Option<ReadyProcess<'a>>, IpcError> {
        let process = self.ready(false, all)?;
        measured.told_by(&process);
        if !measured.is_there && measured.unseen.is_empty() && !process.refused.is_empty() {
            process.refuse_nothing().map_err(RunningError::from)?;
        }
        Ok(measured.is_there.then_some(process))
    }

    /// Times a chain of known latency.
    fn calibrate(&mut self) -> Result<(), IpcError> {
        let (stamps, calibration) =
            calibrated(self.store, Stamping::Serialised, self.wanted.pid).map_err(MeasureError::from)?;
        self.clock.push(calibration);
        self.stamps = stamps;
        Ok(())
    }

    /// Attaches to the process until as many calls came back as are wanted, or the time is over; these, and
    /// the process.
    fn seen(
        &mut self,
        mut process: ReadyProcess<'a>,
        measured: &mut CallsMeasured,
    ) -> Result<(Vec<Call>, ReadyProcess<'a>), IpcError> {
        let (pid, n) = (self.wanted.pid, self.wanted.n);
        let folder = self.store.folder();
        let kept = |source| IpcError::File { folder: folder.to_owned(), source };
        measured.told_by(&process);
        let mut calls = Vec::new();
        let (mut left, mut long) = (self.wanted.at_most, FIRST);
        while self.goes_on && calls.len() < n && !left.is_zero() {
            let now = long.min(left);
            (left, long) = (left - now, long * 4);
            let file = tempfile::tempfile_in(self.store.folder()).map_err(&kept)?;
            let rows = match self.wanted.in_loop {
                Some(_) => None,
                None => {
                    let log = LogWriter::new(file.try_clone().map_err(&kept)?, Chosen::All);
                    let log = log.map_err(&kept)?;
                    Some(Rows::new(log, true, Chosen::All).without_callers())
                }
            };
            let taking = Taking::keeping_instances(self.stamps);
            let during = |_| self.goes_on = (self.waits)(now);
            let while_attached = MeasuredWhile::new(process, taking, rows, during)?;
            let attached = while_attached.attached.clone();
            let (found, given, again) = while_attached.finish_with_process(OsStr::new("the process"));
            process = again;
            let back = match given {
                Ok(back) => back,
                // What has ended, or is another program, needs nothing back.
                Err(_) if !live::attach::is_attached(pid) => {
                    self.goes_on = false;
                    GivenBack::default()
                }
                Err(source) => return Err(IpcError::NotGivenBack { pid, source }),
            };
            measured.attached.push((attached, back));
            match found.log {
                Some(log) => calls.extend(calls_in(&file, log.map_err(&kept)?, &kept)?),
                None => calls.extend(ipc::instances(&found.instances, &found.values.loops)),
            }
        }
        Ok((calls, process))
    }
}

impl CallsMeasured {
    /// What the modules of a process, made ready, say of what is seen.
    fn told_by(&mut self, process: &ReadyProcess<'_>) {
        let codes: Vec<Code> = process.modules().filter_map(Instrumented::recorded_values).collect();
        let mut recorded = codes.iter().flat_map(|code| &code.records);
        self.is_there |= recorded.any(|one| begins(one.what));
        self.uncounted = codes.iter().flat_map(|code| code.uncounted.clone()).collect();
        self.unseen = codes.iter().flat_map(|code| code.unseen.clone()).collect();
        self.uncounted_modules = process.refused.clone();
    }
}

/// The calls of a log that is to be ended.
fn calls_in(
    file: &File,
    (to, failed): (profile::recording::SectionWriter<File>, Option<io::Error>),
    kept: &dyn Fn(io::Error) -> IpcError,
) -> Result<Vec<Call>, IpcError> {
    Recording::default().write_behind(to).map_err(kept)?;
    if let Some(err) = failed {
        return Err(kept(err));
    }
    match Log::open(file.try_clone().map_err(kept)?)? {
        Some(log) => Ok(ipc::calls(&log)?),
        None => Ok(Vec::new()),
    }
}
