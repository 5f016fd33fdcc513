//! Calls of a function of a process that runs: how many instructions they run, how many cycles they take.
//!
//! The process is attached to for a while and given back, for longer each time, until there are enough calls:
//! first those that are watched alone, then those whose instructions are counted.
//!
//! Source: PADRONE, section 3.2.

use super::{Attached, MeasuredWhile, ReadyProcess, RunningError, RunningProgram, Taking};
use crate::choose::{ModuleFilter, Spellings};
use crate::module::Instrumentation;
use crate::store::Store;
use crate::values::MeasureError;
use live::attach::{AttachError, GivenBack};
use measure::Placement;
use measure::reports::ipc::{self, Call, Ipc};
use measure::values::{Asked, Rows, Unseen, What};
use profile::ReadError;
use profile::recording::Recording;
use profile::values::Stamps;
use profile::values::log::{Chosen, Log, LogWriter};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
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
    #[error("calls cannot be kept in a temporary file")]
    File(#[from] io::Error),
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
            IpcError::File(_) => Some("$TMPDIR says where such files go: there must be room".to_owned()),
            IpcError::Measure(_) | IpcError::Read(_) => None,
        }
    }
}

/// Which calls are wanted.
#[derive(Clone, Debug)]
pub struct CallsWanted<'a> {
    /// The process.
    pub pid: i32,
    /// Their function: a symbol, one of its `spellings`, or an address in the executable.
    pub function: &'a str,
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
        CallsWanted { pid, function, spellings: |_| Vec::new(), n, at_most }
    }
}

/// What came of it.
#[derive(Default)]
pub struct CallsMeasured {
    /// The calls; nothing, if none came back.
    pub ipc: Option<Ipc>,
    /// How many calls were watched whose instructions were not counted.
    pub n_plain: usize,
    /// Whether any of its modules has the function.
    pub is_there: bool,
    /// Functions whose instructions could not be counted, and why.
    pub uncounted: Vec<Unseen>,
    /// Why the function is not seen, if it is not.
    pub unseen: Vec<Unseen>,
    /// What was done to the process, each time.
    pub attached: Vec<(Attached, GivenBack)>,
}

/// How long it is attached to first; each time after, four times as long.
const FIRST: Duration = Duration::from_millis(100);

/// Measures calls; `waits` comes back after so long, or at once and with false, if all is to end.
///
/// # Errors
/// If the process cannot be attached to, or is not given back as it was.
pub fn measure_calls(
    store: &Store,
    wanted: &CallsWanted<'_>,
    waits: &dyn Fn(Duration) -> bool,
) -> Result<CallsMeasured, IpcError> {
    let mut measured = CallsMeasured::default();
    let (plain, _) = seen(store, wanted, &ipc::asked(wanted.function, false), waits, &mut measured)?;
    measured.n_plain = plain.len();
    if plain.is_empty() {
        return Ok(measured);
    }
    let (counted, stamps) = seen(store, wanted, &ipc::asked(wanted.function, true), waits, &mut measured)?;
    measured.ipc = stamps.and_then(|stamps| ipc::ipc(&plain, &counted, wanted.n, &stamps));
    Ok(measured)
}

/// Attaches to the process until as many calls came back as are wanted, or the time is over.
fn seen(
    store: &Store,
    wanted: &CallsWanted<'_>,
    asked: &Asked,
    waits: &dyn Fn(Duration) -> bool,
    measured: &mut CallsMeasured,
) -> Result<(Vec<Call>, Option<Stamps>), IpcError> {
    let taking = Taking::new(store, asked)?;
    // What it calls is in any of them.
    let all = ModuleFilter::new(&["*"]);
    let asked = Instrumentation {
        values: Arc::new(asked.clone()),
        spellings: wanted.spellings,
        ..Instrumentation::new(Placement::Values)
    };
    let (mut calls, mut stamps) = (Vec::new(), None);
    let (mut left, mut long, mut goes_on) = (wanted.at_most, FIRST, true);
    while goes_on && calls.len() < wanted.n && !left.is_zero() {
        let now = long.min(left);
        (left, long) = (left - now, long * 4);
        let file = tempfile::tempfile_in(store.folder())?;
        let rows = Rows::new(LogWriter::new(file.try_clone()?, Chosen::All)?, true, Chosen::All);
        let program = RunningProgram::of(wanted.pid)?;
        let ready = ReadyProcess::new(store, &all, program, asked.clone())?;
        let while_attached = MeasuredWhile::new(ready, taking.clone(), Some(rows), |_| goes_on = waits(now))?;
        let attached = while_attached.attached.clone();
        let (found, given) = while_attached.finish(OsStr::new("the process"));
        let back = match given {
            Ok(back) => back,
            // What has ended, or is another program, needs nothing back.
            Err(_) if !live::attach::is_attached(wanted.pid) => {
                goes_on = false;
                GivenBack::default()
            }
            Err(source) => return Err(IpcError::NotGivenBack { pid: wanted.pid, source }),
        };
        measured.attached.push((attached, back));
        let mut recorded = found.codes.iter().flat_map(|code| &code.records);
        measured.is_there |= recorded.any(|one| one.what == What::Enters);
        goes_on &= measured.is_there;
        measured.uncounted = found.codes.iter().flat_map(|code| code.uncounted.clone()).collect();
        measured.unseen = found.codes.iter().flat_map(|code| code.unseen.clone()).collect();
        stamps = stamps.or(found.values.stamps);
        if let Some(log) = found.log {
            calls.extend(calls_in(&file, log?, stamps.as_ref())?);
        }
    }
    Ok((calls, stamps))
}

/// The calls of a log that is to be ended.
fn calls_in(
    file: &File,
    (to, failed): (profile::recording::SectionWriter<File>, Option<io::Error>),
    stamps: Option<&Stamps>,
) -> Result<Vec<Call>, IpcError> {
    Recording::default().write_behind(to)?;
    if let Some(err) = failed {
        return Err(err.into());
    }
    match Log::open(file.try_clone()?)? {
        Some(log) => Ok(ipc::calls(&log, stamps)?),
        None => Ok(Vec::new()),
    }
}
