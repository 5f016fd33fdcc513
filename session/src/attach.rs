//! A process that runs already, observed for a while: its modules found, rewritten for it, put into it, and
//! taken out again.
//!
//! ```text
//! pid ─RunningProgram::of→ RunningProgram ─ReadyProcess::new→ ReadyProcess
//!       counted:  ─AttachedRun::new→ (it counts) ─end→ CountedWhile ─collect→ profiles
//!       recorded: ─RecordedWhile::new→ (streams are emptied meanwhile) ─finish→ Recorded
//!       values:   ─MeasuredWhile::new→ (the same) ─finish→ Measured
//!       told of:  ─tell_passings→ (somebody is told meanwhile) → Told
//! ```
//! Invariant: what fails before anything is put in leaves the process as it was.

mod count;
mod ipc;
mod passings;
pub(crate) mod places;
mod record;
mod replace;
mod values;

pub use count::{AttachedRun, CountedWhile};
pub use ipc::{CallsMeasured, CallsWanted, IpcError, measure_calls};
pub use passings::{Passing, PassingsError, Told, tell_passings};
pub use record::RecordedWhile;
pub use replace::{
    Compared, Difference, LoadedModule, LoopFate, PureFunction, ReplaceError, Replacement, Standing, Trial,
    TrialError, TrialWanted, Verdict, Word, constant, standing,
};
pub use values::{MeasuredWhile, Taking};

use crate::choose::{ModuleFilter, NoneWanted};
use crate::messages::{Done, Warning, with_causes};
use crate::module::{self, Instrumentation, Instrumented, ModuleError, Recipe, RunningModule};
use crate::prepare::{self, PrepareError, Refused};
use crate::record::{Taken, take_during};
use crate::run::{Maps, RunError};
use crate::store::Store;
use live::attach::{self, AttachError, Attachment, Entered, GivenBack, Part, Stop};
use live::{Arena, Mapping, Resident, RunningMemory};
use measure::Placement;
use places::Mapped;
use probe::{RewriteError, Room, Stayed};
use program::{Bias, Image, Va};
use rayon::prelude::*;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Why a process is not counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunningError {
    /// It cannot be attached to.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Nothing of it is made ready.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// Its executable, which alone is wanted, or another module without which nothing can be counted.
    #[error("{}", path.display())]
    Module {
        /// The module.
        path: PathBuf,
        /// Why.
        source: ModuleError,
    },
    /// It has no dynamic linker.
    #[error("{} is a static program: nothing in it would tell unwinders of moved code", path.display())]
    Static {
        /// The program.
        path: PathBuf,
    },
    /// Threads may not have counters of their own.
    #[error("processes cannot be counted on this machine: they may not set the base of gs")]
    NoBases,
    /// It is observed already, by us.
    #[error("it is observed already")]
    Busy,
    /// What it appends cannot be taken.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl RunningError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            RunningError::Attach(err) => err.hint(),
            RunningError::Prepare(err) => err.hint(),
            RunningError::Module { source, .. } => source.hint().map(str::to_owned),
            RunningError::Static { .. } => Some("start it under `engraft count`".into()),
            RunningError::NoBases => {
                Some("it needs FSGSBASE: Linux 5.9 or later, a processor of 2012 or later".into())
            }
            RunningError::Run(_) | RunningError::Busy => None,
        }
    }
}

/// A process that runs, and what is known of its modules.
pub struct RunningProgram {
    pid: i32,
    mappings: Vec<Mapping>,
    /// Its executable first.
    modules: Vec<Mapped>,
    max_pause: Option<Duration>,
}

impl RunningProgram {
    /// Process `pid`, if it can be attached to.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn of(pid: i32) -> Result<RunningProgram, RunningError> {
        if !live::can_set_bases() {
            return Err(RunningError::NoBases);
        }
        let program = RunningProgram::mapping(pid, attach::look(pid)?)?;
        let executable = program.modules.first().map(|module| (Image::load(&module.file), &module.path));
        if let Some((Ok(image), path)) = executable
            && image.kind.is_static()
        {
            return Err(RunningError::Static { path: path.clone() });
        }
        Ok(program)
    }

    /// Process `pid` as it is now, to be looked at alone: also if it cannot be attached to, as one of which
    /// functions are replaced. What is to be done to it says why that cannot be.
    ///
    /// # Errors
    /// If it is gone, or may not be looked at.
    pub fn looked_at(pid: i32) -> Result<RunningProgram, RunningError> {
        let memory = RunningMemory::of(pid).map_err(AttachError::Look)?;
        RunningProgram::mapping(pid, memory.mappings().to_vec())
    }

    fn mapping(pid: i32, mappings: Vec<Mapping>) -> Result<RunningProgram, RunningError> {
        let modules = places::mapped(pid, &mappings);
        if modules.is_empty() {
            // It is about to become another program.
            return Err(AttachError::Ended { pid }.into());
        }
        Ok(RunningProgram { pid, mappings, modules, max_pause: None })
    }

    /// The same, of which all threads may stand still at once for no longer than `max_pause`, if that is
    /// given.
    #[must_use]
    pub fn pausing_at_most(self, max_pause: Option<Duration>) -> RunningProgram {
        RunningProgram { max_pause, ..self }
    }

    /// The path of its executable, as it was started.
    pub fn path(&self) -> &Path {
        self.modules.first().map_or(Path::new(""), |module| &module.path)
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }
}

/// A module made ready for the process, and where it is.
struct Ready {
    mapped: Mapped,
    made: RunningModule,
    bias: Bias,
    /// Where what is new of it begins.
    at: Va,
    /// Which numbers its events have ([`Recipe::turn`]).
    turn: u32,
    is_executable: bool,
}

/// A process whose modules are made ready for it. Nothing of it has changed yet.
pub struct ReadyProcess<'a> {
    store: &'a Store,
    wanted: &'a ModuleFilter,
    asked: Instrumentation,
    interposed: Vec<Box<str>>,
    ready: Vec<Ready>,
    /// Modules in which nothing is to be observed: they are left alone.
    idle: Vec<Instrumented>,
    refused: Refused,
    left_out: Vec<PathBuf>,
    /// All its modules, the executable first, when they were looked at.
    known: Vec<PathBuf>,
    /// Where files were mapped in it then.
    maps: Maps,
    /// What it took of memory then.
    resident: Option<Resident>,
    pid: i32,
    /// How long all its threads may stand still at once, if that matters.
    max_pause: Option<Duration>,
}

/// What came of a process while it was observed.
struct Since {
    /// The program that it has become, if it has.
    became: Option<PathBuf>,
    /// What was done to it.
    attached: Attached,
    given: Result<GivenBack, AttachError>,
}

impl<'a> ReadyProcess<'a> {
    /// Those modules of `program` that are `wanted`, with what is `asked` for in them.
    ///
    /// # Errors
    /// If there is nothing in it that can be observed.
    pub fn new(
        store: &'a Store,
        wanted: &'a ModuleFilter,
        program: RunningProgram,
        asked: Instrumentation,
    ) -> Result<ReadyProcess<'a>, RunningError> {
        let process = ReadyProcess::if_any(store, wanted, program, asked)?;
        process.refuse_nothing()?;
        Ok(process)
    }

    /// The same, also if there is nothing in it that can be observed: such a process is not to be entered.
    fn if_any(
        store: &'a Store,
        wanted: &'a ModuleFilter,
        program: RunningProgram,
        asked: Instrumentation,
    ) -> Result<ReadyProcess<'a>, RunningError> {
        let RunningProgram { pid, mappings, modules, max_pause } = program;
        let known = modules.iter().map(|module| module.path.clone()).collect();
        let seen = modules.iter().map(|module| (module.path.clone(), module.file.clone())).collect();
        let (chosen, left_out) = chosen(wanted, &asked, &modules)?;
        let interposed = interposed(&modules);
        let recipe = recipe(&asked, &interposed, (0, false));
        let (ready, refused) = made_ready(store, recipe, &mappings, chosen)?;
        let has_any = |one: &Ready| one.made.segments.runtime_at.is_some();
        let (ready, idle): (Vec<Ready>, Vec<_>) = ready.into_iter().partition(has_any);
        let idle: Vec<Instrumented> = idle.into_iter().map(|one| one.made.instrumented).collect();
        Ok(ReadyProcess {
            store,
            wanted,
            asked,
            interposed,
            ready,
            idle,
            refused,
            left_out,
            known,
            maps: Maps::of(pid, seen),
            resident: Resident::of(pid),
            pid,
            max_pause,
        })
    }

    /// Refuses one in which there is nothing that can be observed.
    fn refuse_nothing(&self) -> Result<(), PrepareError> {
        let what = match (&self.ready[..], &self.refused[..]) {
            ([], [(path, why)]) => format!("{} cannot be counted: {why}", path.display()),
            ([], _) if self.asked.placement == Placement::Values => {
                "nothing of what is asked for is in its modules".to_owned()
            }
            ([], _) => "none of its modules can be counted".to_owned(),
            _ => return Ok(()),
        };
        Err(PrepareError::Nothing { what })
    }

    /// The number of the process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The path of its executable.
    pub fn path(&self) -> &Path {
        self.known.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Those modules that are asked for, also if there is nothing in them that will be observed.
    pub fn modules(&self) -> impl Iterator<Item = &Instrumented> {
        self.observed().chain(&self.idle)
    }

    /// Those of which code is put into the process.
    fn observed(&self) -> impl Iterator<Item = &Instrumented> {
        self.ready.iter().map(|ready| &ready.made.instrumented)
    }

    /// Its modules that nobody asked for.
    pub fn left_out(&self) -> &[PathBuf] {
        &self.left_out
    }

    /// Has a module made ready for another place, if the process has something by now where that was to be.
    fn make_room(&mut self) -> Result<(), RunningError> {
        let mut taken: Vec<Range<u64>> =
            attach::look(self.pid)?.iter().map(|m| m.range.start.0..m.range.end.0).collect();
        let rooms: Vec<Range<u64>> = self.ready.iter().map(room_of).collect();
        for (one, room) in self.ready.iter_mut().zip(&rooms) {
            if !taken.iter().any(|range| range.start < room.end && room.start < range.end) {
                continue;
            }
            taken.extend(rooms.iter().cloned());
            let recipe = recipe(&self.asked, &self.interposed, (one.turn, one.is_executable));
            let nowhere = |what: String| PrepareError::Nothing { what };
            let (image, bias, room) = place(&one.mapped, &mut taken)
                .map_err(|why| nowhere(format!("{} cannot be observed: {why}", one.mapped.path.display())))?;
            *one = made(self.store, &one.mapped, image, recipe, (bias, &room))
                .map_err(|source| RunningError::Module { path: one.mapped.path.clone(), source })?;
        }
        Ok(())
    }

    /// Enters it, with memory that it shares with us.
    fn enter(&mut self) -> Result<(Entered, Arena), RunningError> {
        let _span = tracing::info_span!("enter").entered();
        self.make_room()?;
        let mut entered = Entered::new(self.pid, self.max_pause)?;
        let file = entered.share_memory()?;
        let what = if self.asked.placement.has_streams() { "events" } else { "counters" };
        let arena = match self.asked.placement.has_streams() {
            true => {
                let keys: Vec<u128> = self.observed().map(|module| module.key).collect();
                Arena::for_events_in(file, &keys)
            }
            false => {
                let n_words = |module: &Instrumented| (module.key, module.notes.n_words());
                Arena::create_in(file, &self.observed().map(n_words).collect::<Vec<_>>())
            }
        };
        let arena = arena.map_err(|source| PrepareError::Memory { what, source })?;
        Ok((entered, arena))
    }

    fn put_in(&self, entered: Entered, arena: &Arena) -> Result<Attachment, AttachError> {
        let _span = tracing::info_span!("put in").entered();
        let parts: Vec<Part<'_>> = self.ready.iter().map(part).collect();
        entered.put_in(&parts, arena)
    }

    /// The program that the process has become, if it has; and modules that are wanted and came later.
    fn came_meanwhile(&self) -> (Option<PathBuf>, Refused) {
        // One that is gone has loaded nothing since.
        let Ok(mappings) = attach::mappings(self.pid) else { return (None, Refused::new()) };
        let now = places::mapped(self.pid, &mappings);
        let became = now.first().filter(|first| self.known.first() != Some(&first.path));
        if let Some(program) = became {
            return (Some(program.path.clone()), Refused::new());
        }
        let is_new = |module: &&Mapped| {
            // What stands in memory of ours is no library.
            let is_ours = module.path.to_string_lossy().starts_with("/memfd:engraft");
            let is_file = module.file.exists() && !is_ours;
            let is_wanted =
                || self.wanted.has_library(&module.path) && self.asked.concerns(&module.path, &module.file);
            is_file && !self.known.contains(&module.path) && is_wanted()
        };
        let why =
            |module: &Mapped| (module.path.clone(), "it was loaded after engraft had attached".to_owned());
        (None, now.iter().filter(is_new).map(why).collect())
    }

    /// Gives the process back as it was.
    fn take_out(&mut self, attachment: Attachment) -> Since {
        let _span = tracing::info_span!("take out").entered();
        let (became, later) = self.came_meanwhile();
        self.refused.extend(later);
        let (stopped, attached) = (attachment.stopped, Resident::of(self.pid));
        let given = attachment.detach();
        let resident = [self.resident, attached, Resident::of(self.pid)];
        let sites = self.ready.iter().map(|r| r.made.running.boards.len()).sum();
        let moved = self.ready.iter().map(|r| r.made.running.n_moved).sum();
        let stayed = self.ready.iter().flat_map(stayed).collect();
        Since { became, attached: Attached { pid: self.pid, stopped, sites, moved, stayed, resident }, given }
    }

    /// Has the process append to the streams of `arena`, which whoever is `taking` empties, until whoever is
    /// `during`, and is told of the stop in which it was attached to, is done.
    fn appends_during(
        &mut self,
        entered: Entered,
        arena: &Arena,
        taking: impl FnOnce(&AtomicBool) -> Taken + Send,
        during: impl FnOnce(Stop),
    ) -> Result<(Since, Taken), RunningError> {
        let (holds, held) = std::sync::mpsc::channel();
        let take = |is_done: &AtomicBool| {
            // Whoever finds no room waits for it as long as this thread is there.
            let _waits = holds.send(arena.hold_mailbox());
            taking(is_done)
        };
        take_during(arena, take, || {
            match held.recv() {
                Ok(held) => held.map_err(RunError::Thread)?,
                Err(_) => return Err(RunError::Taker.into()),
            }
            let attachment = self.put_in(entered, arena)?;
            during(attachment.stopped);
            Ok(self.take_out(attachment))
        })
    }

    /// What is to be known of modules, of which something was to be `done`.
    fn warnings(&self, became: Option<&Path>, done: Done) -> Vec<Warning> {
        let mut all = Vec::new();
        all.extend(became.map(|program| Warning::BecameAnother { program: program.to_owned(), done }));
        let left = self.refused.iter().cloned();
        all.extend(left.map(|(path, why)| Warning::Left { path, why, done }));
        // By default, values are looked for under names of files that few programs have.
        if self.asked.placement == Placement::Values {
            return all;
        }
        let seen = self.modules().map(|module| module.path.as_path());
        let seen: Vec<&Path> = seen.chain(self.refused.iter().map(|r| r.0.as_path())).collect();
        let unmatched = self.wanted.unmatched(&seen).into_iter();
        all.extend(unmatched.map(|name| Warning::NoneNamed { name: name.to_owned() }));
        all
    }

    /// Where the moved code of each module is, and how it was made.
    fn texts(&self) -> impl Iterator<Item = (Range<u64>, &Instrumented, Recipe<'_>, Room)> {
        self.ready.iter().map(|ready| {
            let segments = &ready.made.segments;
            let start = ready.bias.to_live(Va(segments.text_at)).0;
            let recipe = recipe(&self.asked, &self.interposed, (ready.turn, ready.is_executable));
            (start..start + segments.text_len, &ready.made.instrumented, recipe, Room::Running(ready.at))
        })
    }
}

/// What was done to a process.
#[derive(Clone, Debug)]
pub struct Attached {
    /// Its number.
    pub pid: i32,
    /// The stop in which it was done.
    pub stopped: Stop,
    /// How many springboards there were.
    pub sites: usize,
    /// How many functions were moved.
    pub moved: u64,
    /// What the process took of memory: before, while it was observed, and after; as far as it is known.
    pub resident: [Option<Resident>; 3],
    /// Functions that stayed where they were, and in which module.
    pub stayed: Vec<(PathBuf, Stayed)>,
}

/// How a module is made ready, of which it is known how its events are told apart, and whether it is the
/// executable.
fn recipe<'r>(
    asked: &'r Instrumentation,
    interposed: &'r [Box<str>],
    (turn, is_executable): (u32, bool),
) -> Recipe<'r> {
    Recipe { asked, placement: asked.placement, turn, interposed, is_executable }
}

fn part(ready: &Ready) -> Part<'_> {
    let RunningModule { segments, running, instrumented } = &ready.made;
    Part { path: &instrumented.path, segments, running, bias: ready.bias }
}

fn stayed(ready: &Ready) -> Vec<(PathBuf, Stayed)> {
    let path = &ready.made.instrumented.path;
    ready.made.running.stayed.iter().map(|stayed| (path.clone(), stayed.clone())).collect()
}

/// A module that is wanted, and whether it is the executable.
type Chosen<'m> = (&'m Mapped, bool);

/// Those of `modules` that are wanted, each with whether it is the executable; and those that are not.
fn chosen<'m>(
    wanted: &ModuleFilter,
    asked: &Instrumentation,
    modules: &'m [Mapped],
) -> Result<(Vec<Chosen<'m>>, Vec<PathBuf>), PrepareError> {
    let (mut chosen, mut left_out) = (Vec::new(), Vec::new());
    for (n, module) in modules.iter().enumerate() {
        let is_wanted = match n {
            0 => wanted.has_executable(&module.path),
            _ => wanted.has_library(&module.path) && asked.concerns(&module.path, &module.file),
        };
        if is_wanted {
            chosen.push((module, n == 0));
        } else {
            left_out.push(module.path.clone());
        }
    }
    // Its ld.so last, as of a program that is started.
    left_out
        .sort_by_key(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-")));
    if chosen.is_empty() {
        let there = modules.iter().map(|module| module.path.as_path());
        return Err(NoneWanted::of(wanted, there).into());
    }
    Ok((chosen, left_out))
}

/// Names that modules of the process define, not the C library ([`Recipe::interposed`]).
fn interposed(modules: &[Mapped]) -> Vec<Box<str>> {
    let Some((executable, libraries)) = modules.split_first() else { return Vec::new() };
    let Ok(image) = Image::load(&executable.file) else { return Vec::new() };
    let files: Vec<PathBuf> = libraries.iter().map(|module| module.file.clone()).collect();
    prepare::interposed(&image, &files)
}

/// All of `chosen` that can be counted, made ready for where they are; and why not the rest.
fn made_ready(
    store: &Store,
    recipe: Recipe<'_>,
    mappings: &[Mapping],
    chosen: Vec<Chosen<'_>>,
) -> Result<(Vec<Ready>, Refused), RunningError> {
    let (mut found, mut refused) = (Vec::new(), Refused::new());
    let mut taken: Vec<Range<u64>> = mappings.iter().map(|m| m.range.start.0..m.range.end.0).collect();
    for (mapped, is_executable) in chosen {
        match place(mapped, &mut taken) {
            Ok((image, bias, room)) => found.push((mapped, is_executable, image, bias, room)),
            Err(why) => refused.push((mapped.path.clone(), why)),
        }
    }
    let all: Vec<_> = found
        .into_par_iter()
        .map(|(mapped, is_executable, image, bias, room)| {
            let recipe = Recipe { is_executable, ..recipe };
            let made = made(store, mapped, image, recipe, (bias, &room));
            (mapped, made, bias, room)
        })
        .collect();
    let mut ready: Vec<Ready> = Vec::new();
    for (mapped, one, bias, room) in all {
        let path = mapped.path.clone();
        let others = || ready.iter().map(|one| &one.made.instrumented);
        let one = one.and_then(|one: Ready| {
            let is_executable = one.is_executable;
            let is_apart = |one: &Ready| one.made.instrumented.is_told_apart(others());
            let again = |turn| {
                let recipe = Recipe { turn, is_executable, ..recipe };
                made(store, mapped, image_of(mapped)?, recipe, (bias, &room))
            };
            module::told_apart(one, is_apart, again)
        });
        match one {
            Ok(one) if end(&one) > room.end => {
                refused.push((path, "there is not room enough near it for its moved code".to_owned()));
            }
            Ok(one) => ready.push(one),
            Err(source @ ModuleError::Rewrite(RewriteError::UsesGs { .. })) => {
                return Err(RunningError::Module { path, source });
            }
            Err(err) => refused.push((path, with_causes(&err))),
        }
    }
    Ok((ready, refused))
}

/// A module made ready for where it is, with what is new of it in a room.
fn made(
    store: &Store,
    mapped: &Mapped,
    image: Image,
    recipe: Recipe<'_>,
    (bias, room): (Bias, &Range<u64>),
) -> Result<Ready, ModuleError> {
    let at = bias.to_image(program::LiveVa(room.start));
    let made = module::running(store, (&mapped.path, &mapped.file), image, recipe, at)?;
    let Recipe { turn, is_executable, .. } = recipe;
    Ok(Ready { mapped: mapped.clone(), made, bias, at, turn, is_executable })
}

/// Where all that is new of a module is in the process.
fn room_of(ready: &Ready) -> Range<u64> {
    ready.bias.to_live(ready.at).0..end(ready)
}

/// The end of all that is new of a module in the process.
fn end(ready: &Ready) -> u64 {
    let segments = &ready.made.segments;
    ready.bias.to_live(Va(segments.tables_at + segments.tables_len)).0
}

/// The image of a module.
fn image_of(mapped: &Mapped) -> Result<Image, ModuleError> {
    let mut image = Image::load(&mapped.file)?;
    module::refuse_known_by_address(&image)?;
    module::refuse_sanitized(&image)?;
    image.name = mapped.path.display().to_string();
    Ok(image)
}

/// The image of a module, where it is, and room for what is new of it, which is `taken` from then on.
fn place(mapped: &Mapped, taken: &mut Vec<Range<u64>>) -> Result<(Image, Bias, Range<u64>), String> {
    let image = image_of(mapped).map_err(|err| with_causes(&err))?;
    let bias = places::bias(&image, mapped).ok_or("it is not mapped as its file says")?;
    taken.sort_unstable_by_key(|range| range.start);
    let room = places::room(&image, bias, taken).ok_or("there is no room near it for its moved code")?;
    taken.push(room.clone());
    Ok((image, bias, room))
}
