//! What works on this machine, tried where that is possible.

use crate::choose::ModuleFilter;
use crate::count::{CountError, CountedRun};
use crate::find::{NoProc, needs_proc};
use crate::messages::with_causes;
use crate::module::{Instrumentation, Instrumented};
use crate::prepare::{Modules, PrepareError, Prepared};
use crate::record::{Recordable, RecordedRun};
use crate::run::{self, RunError};
use crate::store::{CACHE_LIMIT, Store, StoreError};
use live::{Target, TargetError};
use measure::Placement;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use trace::recording::recorder::Recorder;
use trace::recording::window::{When, Window};

/// One thing that verbs need.
#[derive(Clone, Debug)]
pub struct Check {
    /// What.
    pub what: &'static str,
    /// The verbs that need it.
    pub verbs: &'static str,
    /// Whether these verbs work without it, too, though not as well.
    pub is_spare: bool,
    /// How it works; or why not, and what can be done.
    pub found: Result<String, String>,
}

/// What works on this machine: programs are looked for in `search`, and rewritten modules kept in `cache`,
/// or in `temporary` as long as they are used.
pub fn checks(search: &OsStr, cache: Option<&Path>, temporary: &Path) -> Vec<Check> {
    let nothing = || Ok("needs nothing of the machine".to_owned());
    let check = |what, verbs, found| Check { what, verbs, is_spare: false, found };
    let spare = |what, verbs, found| Check { what, verbs, is_spare: true, found };
    let tried = |found: Result<String, TryError>| found.map_err(|err| with_causes(&err));
    vec![
        check(
            "reading binaries, profiles, traces",
            "show match carry score convert query diff trace pack",
            nothing(),
        ),
        check("moving code", "instrument --null", nothing()),
        check("counters of each thread's own", "count trace instrument", bases()),
        check("looking into a program before it starts", "count trace", tracing()),
        check("counting a program (`true`)", "count", tried(try_out(search, temporary))),
        check("recording a program (`true`)", "trace", tried(try_recording(search, temporary))),
        check("following programs that are started", "count --follow", tracing()),
        check("attaching to programs that run", "count -p trace -p values -p", attaching()),
        spare("being told where signals end threads", "count trace", deaths()),
        spare("keeping rewritten modules", "count trace", tried(cache_folder(cache, temporary))),
    ]
}

fn bases() -> Result<String, String> {
    needs_proc()
        .map_err(|err| format!("{err}, so it is not known whether programs may set the base of gs"))?;
    match live::can_set_bases() {
        true => Ok("programs may set the base of gs (FSGSBASE)".to_owned()),
        false => {
            Err("programs may not set the base of gs: that takes a processor with FSGSBASE (2012 or later) \
                      and Linux 5.9 or later, started without `nofsgsbase`"
                .to_owned())
        }
    }
}

/// Whether the kernel tells where signals end threads. Source: Linux, Documentation/admin-guide/sysctl/
/// kernel.rst, perf_event_paranoid; Documentation/trace/ftrace.rst.
fn deaths() -> Result<String, String> {
    needs_proc().map_err(|err| err.to_string())?;
    live::Deaths::try_out().map(|()| "the kernel tells (tracepoint signal:signal_deliver)".to_owned()).map_err(
        |err| {
            format!(
                "the kernel does not tell us ({}): of a program that is killed, or whose threads still run at \
                 its end, some counts are intervals, and it is not said where it died; as root, or with \
                 CAP_PERFMON and readable /sys/kernel/tracing, they are exact",
                io_error(&err)
            )
        },
    )
}

/// The kernel's reason without its number.
fn io_error(err: &std::io::Error) -> String {
    let text = err.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Yama's setting, where there is one. Source: Linux, Documentation/admin-guide/LSM/Yama.rst.
fn tracing() -> Result<String, String> {
    needs_proc().map_err(|err| err.to_string())?;
    let path = Path::new("/proc/sys/kernel/yama/ptrace_scope");
    match std::fs::read_to_string(path).map(|text| text.trim().to_owned()) {
        Ok(scope) if scope == "3" => Err(format!(
            "ptrace is switched off until the next start of the machine ({} is 3): set it to 1 or 0 before \
             anything sets it to 3, in /etc/sysctl.d",
            path.display()
        )),
        Ok(scope) if scope == "2" => {
            Ok(format!("only who has CAP_SYS_PTRACE may trace ({} is 2; 1 lets parents)", path.display()))
        }
        Ok(scope) => Ok(format!("a parent may trace its child ({} is {scope})", path.display())),
        Err(_) => Ok("ptrace is not restricted by Yama".to_owned()),
    }
}

/// Who may be attached to; and what cannot be seen of a program before, but has to be known of it.
fn attaching() -> Result<String, String> {
    let caution = "code is changed in place, so a program that checks its own code sees that it differs \
                   meanwhile: one that ends itself for that must not be attached to";
    tracing().map(|who| format!("{who}; {caution}"))
}

/// Why something that was tried does not work.
#[derive(Debug, thiserror::Error)]
enum TryError {
    #[error(transparent)]
    NoProc(#[from] NoProc),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Count(#[from] CountError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("cannot begin a recording")]
    Recorder(#[source] std::io::Error),
    #[error("{} ended with {status}, and {n_bytes} bytes of events came", path.display())]
    NotRecorded { path: PathBuf, status: ExitStatus, n_bytes: usize },
    #[error("{} ended with {status}, and {n_run} blocks were counted", path.display())]
    NotCounted { path: PathBuf, status: ExitStatus, n_run: usize },
    #[error(
        "no folder could be made in $XDG_CACHE_HOME or $HOME/.cache: every run rewrites its modules anew"
    )]
    NoCache,
}

/// Counts `true`, which every system has: whether counting works on this one. Says what was counted.
fn try_out(search: &OsStr, temporary: &Path) -> Result<String, TryError> {
    needs_proc()?;
    let target = Target::find("true".as_ref(), search)?;
    let (store, wanted) = (Store::open(None, temporary)?, ModuleFilter::new(&["exe"]));
    let modules = Modules::of(&store, &target)?;
    let prepared = Prepared::new(&store, &wanted, modules, Instrumentation::new(Placement::Edges))?;
    let run = CountedRun::new(prepared, &target, "true".as_ref(), &[])?;
    let (path, status, n_run) = (target.executable, run.status(), run.n_counters_that_ran()?);
    if !status.success() || n_run == 0 {
        return Err(TryError::NotCounted { path, status, n_run });
    }
    Ok(format!("{n_run} blocks of {} ran and were counted", path.display()))
}

/// Records `true`. Says what was recorded.
fn try_recording(search: &OsStr, temporary: &Path) -> Result<String, TryError> {
    needs_proc()?;
    let target = Target::find("true".as_ref(), search)?;
    let (store, wanted) = (Store::open(None, temporary)?, ModuleFilter::new(&["exe"]));
    let modules = Modules::of(&store, &target)?;
    let prepared = Prepared::new(&store, &wanted, modules, Instrumentation::new(Placement::Events))?;
    let recordable = Recordable::new(prepared)?;
    let first: Vec<_> = recordable.modules().iter().filter_map(Instrumented::meaning).collect();
    let window = Window::new(When::default(), HashSet::new(), HashSet::new());
    let recorder = Recorder::new(Vec::new(), &first, window, None).map_err(TryError::Recorder)?;
    let name = OsStr::new("true");
    let command = (run::command(&target, name, &[]), name);
    let run = RecordedRun::new(recordable, command, recorder, |_| ())?;
    let (path, status) = (target.executable, run.status());
    let n_bytes = run.finish("true".as_ref()).n_bytes_of_events;
    if !status.success() || n_bytes == 0 {
        return Err(TryError::NotRecorded { path, status, n_bytes });
    }
    Ok(format!("{n_bytes} bytes of events of {} were recorded", path.display()))
}

/// Where rewritten modules are kept.
fn cache_folder(cache: Option<&Path>, temporary: &Path) -> Result<String, TryError> {
    needs_proc()?;
    let store = Store::open(cache, temporary)?;
    if store.is_temporary() {
        return Err(TryError::NoCache);
    }
    Ok(format!("in {}, {} MB at most", store.folder().display(), CACHE_LIMIT >> 20))
}
