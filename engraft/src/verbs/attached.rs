//! Processes that run already: which ones, attached to for a while, and what is said of that.

mod newcomers;

use crate::input::{self, names::source_name};
use crate::output::{self, Hinted};
use anyhow::Context as _;
use live::attach::{self, AttachError, GivenBack, Stop};
use live::{AskedToEnd, End, Over};
use newcomers::Newcomers;
use profile::recording::{self, Stayed};
use session::{Attached, Instrumentation, ModuleFilter, ReadyProcess, RunningError, RunningProgram, Store};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant, SystemTime};
use views::attach::{AttachView, AttachedView, MemoryView, ResidentView, StayedView};

/// Which processes are meant.
#[derive(clap::Args, Debug)]
pub struct Processes {
    /// Observe processes that run already, from now until `--for` is over, they end, or Ctrl-C: several with
    /// commas between them
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',', conflicts_with = "words")]
    pids: Vec<i32>,
    /// The same of all processes of this name
    #[arg(long = "name", value_name = "NAME", conflicts_with = "words")]
    process_name: Option<String>,
    /// And of the processes that these have started, as far as they run now
    #[arg(long)]
    children: bool,
    /// Do not attach where all threads would stand still at once for longer than this: 5ms
    #[arg(long, value_name = "TIME", conflicts_with = "words", value_parser = humantime::parse_duration)]
    #[arg(hide_short_help = true)]
    max_pause: Option<Duration>,
}

impl Processes {
    /// Whether any are meant.
    pub fn are_meant(&self) -> bool {
        !self.pids.is_empty() || self.process_name.is_some()
    }

    /// The processes, in this order.
    ///
    /// # Errors
    /// If none has the name.
    fn all(&self) -> anyhow::Result<Vec<i32>> {
        let mut all = self.pids.clone();
        if let Some(name) = &self.process_name {
            let named = live::processes_named(name);
            if named.is_empty() {
                let hint = "`ps -e` lists the processes that there are";
                return Err(Hinted::new(format!("no process is called {name}"), hint).into());
            }
            all.extend(named);
        }
        if self.children {
            let mut n = 0;
            while let Some(pid) = all.get(n).copied() {
                all.extend(live::children_of(pid));
                n += 1;
            }
        }
        let mut once: Vec<i32> = Vec::new();
        for pid in all {
            if !once.contains(&pid) {
                once.push(pid);
            }
        }
        Ok(once)
    }

    /// The numbers of the processes, of which nothing is changed.
    ///
    /// # Errors
    /// If one of them cannot be looked at.
    pub fn looked_at(&self) -> anyhow::Result<Vec<i32>> {
        let all = self.all()?;
        self.pids.iter().try_for_each(|pid| live::RunningMemory::of(*pid).map(drop)).map_err(|err| {
            let hint = err.hint();
            let err = anyhow::Error::from(err);
            match hint {
                Some(hint) => Hinted::new(format!("{err:#}"), hint).into(),
                None => err,
            }
        })?;
        Ok(all)
    }

    fn found(&self, pid: i32) -> Result<RunningProgram, RunningError> {
        RunningProgram::of(pid).map(|program| program.pausing_at_most(self.max_pause))
    }

    /// The process `pid`, which came later.
    ///
    /// # Errors
    /// If it cannot be observed.
    pub fn program(&self, pid: i32) -> anyhow::Result<RunningProgram> {
        self.found(pid).map_err(hinted)
    }

    /// The processes, as they are before anything is done to them.
    ///
    /// # Errors
    /// If one of them cannot be observed.
    pub fn programs(&self) -> anyhow::Result<Vec<RunningProgram>> {
        let program = |pid: i32| match self.found(pid) {
            // A child that is not buried yet, or that has ended since it was found.
            Err(RunningError::Attach(err)) if err.is_over() && !self.pids.contains(&pid) => None,
            found => Some(found.map_err(hinted)),
        };
        let programs = self.all()?.into_iter().filter_map(program).collect::<anyhow::Result<Vec<_>>>()?;
        anyhow::ensure!(!programs.is_empty(), "all of them have ended");
        Ok(programs)
    }
}

/// The error with its remedy, if there is one.
pub fn hinted(err: RunningError) -> anyhow::Error {
    match err.hint() {
        Some(hint) => Hinted::new(format!("{:#}", anyhow::Error::from(err)), hint).into(),
        None => err.into(),
    }
}

/// All of `programs` made ready: nothing is changed before all are.
///
/// # Errors
/// If one cannot be.
pub fn made_ready<'a>(
    store: &'a Store,
    wanted: &'a ModuleFilter,
    programs: Vec<RunningProgram>,
    asked: &Instrumentation,
) -> anyhow::Result<Vec<ReadyProcess<'a>>> {
    let _span = tracing::info_span!("prepare").entered();
    programs.into_iter().map(|program| one_made_ready(store, wanted, program, asked)).collect()
}

/// The same of one process.
///
/// # Errors
/// If it cannot be.
pub fn one_made_ready<'a>(
    store: &'a Store,
    wanted: &'a ModuleFilter,
    program: RunningProgram,
    asked: &Instrumentation,
) -> anyhow::Result<ReadyProcess<'a>> {
    ReadyProcess::new(store, wanted, program, asked.clone()).map_err(hinted)
}

/// How processes that come later are made ready, too, if they are to be.
pub type Readies<'r, 'a> = &'r (dyn Fn(i32) -> anyhow::Result<ReadyProcess<'a>> + Sync);

/// When something was observed, for how long, and what came of each process.
pub struct Observed<T> {
    /// When it began.
    pub started: SystemTime,
    /// How long it lasted.
    pub took: Duration,
    /// Of each process, in order; of those that came meanwhile last.
    pub all: Vec<T>,
    /// How many came and were not observed.
    pub n_missed: usize,
}

/// A gate that opens once.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opens: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opens.notify_all();
    }

    fn pass(&self) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opens.wait_while(is_open, |is_open| !*is_open));
    }
}

/// Opens the gate when it goes.
struct Opens<'g>(&'g Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Says of a process that it is attached to, or that it will not be, when it goes.
struct Tells(Sender<bool>, bool);

impl Drop for Tells {
    fn drop(&mut self) {
        let _waits = self.0.send(self.1);
    }
}

/// What becomes of a process while a thread of ours observes it: nothing, if it has ended before.
type Observing<'scope, T> = io::Result<ScopedJoinHandle<'scope, Option<anyhow::Result<T>>>>;

/// Has all of `processes` observed at once, each by a thread that `observes` it: which calls what it is given
/// once it is attached. That comes back when the time is over, all have ended, or somebody asks us to end.
/// Those that come meanwhile are observed, too, if somebody `follows` them.
///
/// # Errors
/// If one of them cannot be attached to: then all are as they were.
pub fn observe<'a, T: Send>(
    processes: Vec<ReadyProcess<'a>>,
    (meant, how_long): (&Processes, Option<Duration>),
    follows: Option<Readies<'_, 'a>>,
    observes: impl Fn(ReadyProcess<'a>, &dyn Fn(Stop)) -> Result<T, RunningError> + Sync,
) -> anyhow::Result<Observed<T>> {
    // Until all are given back, nothing may end us halfway.
    let asked_to_end = AskedToEnd::keep()?;
    let pids: Vec<i32> = processes.iter().map(ReadyProcess::pid).collect();
    let ends: Vec<End> = pids.iter().copied().map(End::of).collect();
    let (gate, observes) = (&Gate::default(), &observes);
    output::pause_progress();
    let observed = std::thread::scope(|scope| {
        let (tells, told) = channel();
        let opens = Opens(gate);
        let mut threads: Vec<Observing<'_, T>> = Vec::new();
        for process in processes {
            let (tells, n, pid) = (Tells(tells.clone(), false), pids.len(), process.pid());
            threads.push(std::thread::Builder::new().spawn_scoped(scope, move || {
                let tells = std::cell::RefCell::new(Some(tells));
                let is_fine = || tells.take().into_iter().for_each(|mut tells| tells.1 = true);
                let observed = observes(process, &|_| {
                    is_fine();
                    gate.pass();
                });
                // Of several, one that has ended before it was attached to is none of them.
                if observed.is_err() && n > 1 && has_ended(pid) {
                    is_fine();
                    return None;
                }
                Some(observed.map_err(hinted))
            }));
        }
        drop(tells);
        let are_all = told.iter().take(pids.len()).all(|is_attached| is_attached);
        let (started, clock) = (SystemTime::now(), Instant::now());
        let mut newcomers = Newcomers::new(&pids, meant.process_name.as_deref());
        if are_all {
            say_attached(&pids, how_long);
            let until = how_long.map(|how_long| clock + how_long);
            wait(&asked_to_end, ends, until, follows.map(|readies| (readies, &mut newcomers)), |ready| {
                threads.push(std::thread::Builder::new().spawn_scoped(scope, move || {
                    match ready().and_then(|process| observes(process, &|_| gate.pass()).map_err(hinted)) {
                        Ok(observed) => Some(Ok(observed)),
                        Err(err) => {
                            tracing::debug!("{err:#}");
                            None
                        }
                    }
                }));
            });
        }
        let took = clock.elapsed();
        drop(opens);
        let n_asked = pids.len();
        let ended = threads.into_iter().map(|thread| {
            let thread = thread.context("cannot start a thread")?;
            thread.join().map_err(|_| anyhow::anyhow!("a thread that observed has panicked"))?.transpose()
        });
        let ended: Vec<anyhow::Result<Option<T>>> = ended.collect();
        let all = ended.into_iter().collect::<anyhow::Result<Vec<Option<T>>>>()?;
        let n_missed = newcomers.n_missed() + all.iter().skip(n_asked).filter(|one| one.is_none()).count();
        let all: Vec<T> = all.into_iter().flatten().collect();
        anyhow::ensure!(!all.is_empty(), "all of them have ended before they were attached to");
        Ok(Observed { started, took, all, n_missed })
    });
    output::resume_progress();
    observed
}

/// How often it is looked for processes that have come.
const LOOK: Duration = Duration::from_millis(25);

/// Waits until the time is over, all processes have ended whose `ends` these are, and those that came, or
/// somebody asks us to end. Each that comes is given to whoever `starts` what makes it ready and observes it.
fn wait<'r, 'a: 'r>(
    asked_to_end: &AskedToEnd,
    mut ends: Vec<End>,
    until: Option<Instant>,
    mut follows: Option<(Readies<'r, 'a>, &mut Newcomers)>,
    mut starts: impl FnMut(Box<dyn FnOnce() -> anyhow::Result<ReadyProcess<'a>> + Send + 'r>),
) {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let most = follows.as_ref().map(|_| LOOK);
        let over = asked_to_end.wait(&ends, left.into_iter().chain(most).min());
        let is_over = over != Over::Time || until.is_some_and(|until| Instant::now() >= until);
        let Some((readies, newcomers)) = follows.as_mut().filter(|_| !is_over) else { return };
        let readies = *readies;
        for pid in newcomers.ready() {
            ends.push(End::of(pid));
            starts(Box::new(move || readies(pid)));
        }
    }
}

pub fn say_attached(pids: &[i32], how_long: Option<Duration>) {
    let talk = output::talk_mode();
    if how_long.is_some() || talk.json || talk.quiet {
        return;
    }
    match pids {
        [pid] => output::say(format_args!("attached to process {pid}: Ctrl-C ends that")),
        _ => output::say(format_args!("attached to {} processes: Ctrl-C ends that", pids.len())),
    }
}

/// Whether process `pid` has ended, be it not buried yet.
fn has_ended(pid: i32) -> bool {
    attach::look(pid).is_err_and(|err| err.is_over())
}

/// How process `pid` was given back, and why not, if it is there and was not.
pub fn back(pid: i32, given: Result<GivenBack, AttachError>) -> (GivenBack, Option<(i32, AttachError)>) {
    match given {
        Ok(given) => (given, None),
        // What has ended, or is another program, needs nothing back.
        Err(_) if !attach::is_attached(pid) => (GivenBack::default(), None),
        Err(err) => (GivenBack::default(), Some((pid, err))),
    }
}

/// That a process was not given back, though what was recorded of it is in `rec`.
pub fn not_given_back((pid, err): (i32, AttachError), rec: &Path) -> anyhow::Error {
    let hint = err.hint().unwrap_or_else(|| format!("`engraft rescue {pid}` tries once more"));
    let what = format!(
        "process {pid} was not given back as it was: {:#}; {} is whole",
        anyhow::Error::from(err),
        rec.display()
    );
    Hinted::new(what, hint).into()
}

/// The command line of process `pid`.
pub fn command_of(pid: i32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    if words.is_empty() { Vec::new() } else { words.split(|&b| b == 0).map(text).collect() }
}

/// How many threads of a process were in moved functions' code when it was attached to, and given back.
pub fn open(attached: &Attached, back: &GivenBack) -> [u64; 2] {
    [attached.stopped.n_inside, back.stopped.n_inside].map(|n| n as u64)
}

/// What was done to a process, for its recording.
pub fn recorded(attached: &Attached, back: &GivenBack) -> recording::Attached {
    let Attached { pid, stopped, sites, moved, stayed, .. } = attached;
    let nanoseconds = |pause: Duration| u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
    let stayed = stayed.iter().map(|(path, stayed)| {
        let source = source_name(&stayed.name).filter(|_| !output::are_names_mangled());
        Stayed {
            module: input::file_name(&path.to_string_lossy()),
            at: stayed.at,
            function: source.unwrap_or_else(|| stayed.name.clone()),
            why: stayed.why.clone(),
        }
    });
    recording::Attached {
        pid: *pid,
        pauses_ns: [nanoseconds(stopped.pause), nanoseconds(back.stopped.pause)],
        n_sites: *sites as u64,
        n_threads: stopped.n_threads as u64,
        n_moved: *moved,
        stayed: stayed.collect(),
        open: open(attached, back),
        resident: attached
            .resident
            .map(|one| one.map(|one| recording::Resident { all: one.all_kb, dirty: one.dirty_kb })),
        left: back.left.clone(),
    }
}

/// What is said of that.
pub fn view<'r>(all: impl IntoIterator<Item = &'r recording::Attached>) -> AttachedView {
    AttachedView(all.into_iter().map(one_view).collect())
}

fn one_view(attached: &recording::Attached) -> AttachView {
    let stayed = |Stayed { module, at, function, why }: &Stayed| StayedView {
        module: module.clone(),
        at: *at,
        function: function.clone(),
        why: why.clone(),
    };
    let resident = |one: Option<recording::Resident>| {
        one.map(|one| ResidentView { resident: one.all, dirty: one.dirty })
    };
    let [before, meanwhile, after] = attached.resident.map(resident);
    AttachView {
        pid: attached.pid,
        pause_us: attached.pauses_ns.map(|ns| ns.div_ceil(1000)),
        sites: attached.n_sites,
        threads: attached.n_threads,
        moved_functions: attached.n_moved,
        stayed: attached.stayed.iter().map(stayed).collect(),
        open_at_start: attached.open[0],
        open_at_end: attached.open[1],
        memory_kb: MemoryView { before, attached: meanwhile, after },
        left: attached.left.clone(),
    }
}
