//! Modules made ready to be counted, before the program starts and while it runs; kept for the next time.
//!
//! Invariant: what a module's counters mean is kept beside its rewritten code, by the identity of the whole
//! file and of ourselves: the second time, nothing is analysed before the program runs. What cannot be kept
//! is made each time. Of a module that ran long, how it ran is kept, too: then it is made once more, with its
//! counters where it seldom went.

use crate::input::{self, refuse_known_by_address, refuse_sanitized, warn_of_changing_code};
use anyhow::Context as _;
use live::launch::{SegmentsFile, Swap};
use live::{Arena, Cache, Request, Target};
use measure::Placement;
use measure::edges::notes::Notes;
use measure::events::Which;
use probe::arch::{self, ExecSite, OpenSite};
use probe::{Module, Old, RewriteError, Room, Segments, file_key};
use profile::Profile;
use program::{FuncId, Image, Program, Va};
use rayon::prelude::*;
use session::{Glob, Modules, is_system_file};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use trace::recording::code::Code;

/// What is kept, in bytes.
pub const CACHE_LIMIT: u64 = 2 << 30;

/// Where rewritten libraries are kept: the user's cache, or a folder that goes with us.
pub struct Store {
    /// The folder.
    pub cache: Cache,
    /// Which version of us made them.
    maker: String,
    temporary: Option<tempfile::TempDir>,
    /// For what cannot be written into the cache.
    spare: Mutex<Option<tempfile::TempDir>>,
    /// How modules ran earlier, as it was when this run first asked: so that it has each in one form only.
    ran: Mutex<HashMap<u128, Option<Arc<Earlier>>>>,
}

/// How a module ran earlier: its profile, written.
struct Earlier(Vec<u8>);

impl Earlier {
    /// What tells files apart that are made for other runs.
    fn suffix(&self) -> String {
        format!("-like-{:016x}", hash(&self.0))
    }

    fn profile(&self) -> Option<Profile> {
        profile::recording::parse(&self.0).ok()?.pop()
    }
}

impl Store {
    /// In the user's cache, or only for this run.
    ///
    /// # Errors
    /// If no folder can be made.
    pub fn open(is_temporary: bool) -> anyhow::Result<Store> {
        let home = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
            .filter(|path| path.is_absolute() && !is_temporary);
        let opened = home.and_then(|home| Cache::open(&home.join("engraft"), CACHE_LIMIT).ok());
        let (cache, temporary) = match opened {
            Some(cache) => (cache, None),
            None => {
                let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
                (Cache::open(folder.path(), CACHE_LIMIT)?, Some(folder))
            }
        };
        // Another build of us may lay code out differently.
        let us = std::fs::metadata("/proc/self/exe").context("cannot look at our own file")?;
        let made = us.modified()?.duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let maker = format!("{:x}-{made:x}", us.len());
        Ok(Store { cache, maker, temporary, spare: Mutex::new(None), ran: Mutex::default() })
    }
}

impl Store {
    /// Whether it goes with us.
    pub fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    fn name(&self, key: u128, what: &str) -> String {
        format!("{key:032x}-{}{what}", self.maker)
    }

    fn read<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        postcard::from_bytes(&self.cache.read(name)?).ok()
    }

    /// Keeps `value` for the next time, if it can be.
    fn write(&self, name: &str, value: &impl serde::Serialize) -> anyhow::Result<()> {
        let bytes = postcard::to_stdvec(value)?;
        self.keep(name, &bytes);
        Ok(())
    }

    /// Keeps `bytes` for the next time; whether they could be.
    fn keep(&self, name: &str, bytes: &[u8]) -> Option<PathBuf> {
        match self.cache.put(name, bytes) {
            Ok(path) => Some(path),
            Err(err) => {
                tracing::debug!("{name} cannot be kept in {}: {err}", self.cache.folder().display());
                None
            }
        }
    }

    /// A file with these `bytes`: for this run, if it cannot be kept.
    fn file(&self, name: &str, bytes: &[u8]) -> anyhow::Result<PathBuf> {
        if let Some(path) = self.keep(name, bytes) {
            return Ok(path);
        }
        let mut spare = self.spare.lock().expect("nobody panics while holding it");
        let folder = match &mut *spare {
            Some(folder) => folder,
            none => none.insert(tempfile::tempdir().context("cannot make a temporary folder")?),
        };
        let path = folder.path().join(name);
        if !path.exists()
            && let Err(err) = std::fs::write(&path, bytes)
        {
            // Not a part of it.
            let _not_there = std::fs::remove_file(&path);
            return Err(err).with_context(|| format!("cannot write {}", path.display()));
        }
        Ok(path)
    }

    /// How the module with this `key` ran earlier.
    fn earlier(&self, key: u128) -> Option<Arc<Earlier>> {
        let mut ran = self.ran.lock().expect("nobody panics while holding it");
        let found =
            ran.entry(key).or_insert_with(|| Some(Arc::new(Earlier(self.cache.read(&self.name(key, RAN))?))));
        found.clone()
    }

    /// Whether it is known how `module` ran earlier.
    pub fn knows_run(&self, module: &Counted) -> bool {
        self.earlier(module.key).is_some()
    }

    /// Keeps how `module` ran, for the places of its counters or events the next time; if it ran so long that
    /// it is worth it to rewrite it once more.
    pub fn keep_run(&self, module: &Counted, is_long: bool, profile: &Profile) {
        if is_long && !self.is_temporary() && !self.knows_run(module) {
            self.keep(&self.name(module.key, RAN), &profile::recording::write(std::slice::from_ref(profile)));
        }
    }

    /// Removes from the cache what was not used longest. Nothing that this run uses may be needed any more.
    pub fn trim(&self) {
        if let Err(err) = self.cache.trim() {
            tracing::debug!("cannot trim {}: {err}", self.cache.folder().display());
        }
    }
}

fn hash(what: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// What the file with the profile of an earlier run is called.
const RAN: &str = "-ran";

/// A module that is counted.
pub struct Counted {
    /// Where it was loaded from.
    pub path: PathBuf,
    /// Identity of its file.
    pub key: u128,
    /// What its counters mean.
    pub notes: Notes,
    /// What its events mean, if they are recorded.
    pub code: Option<Code>,
    program: OnceLock<Program>,
}

impl Counted {
    fn new(path: &Path, program: Program, notes: Notes, code: Option<Code>) -> Counted {
        let key = file_key(&program.image);
        Counted { path: path.to_owned(), key, notes, code, program: OnceLock::from(program) }
    }

    fn known(path: &Path, key: u128, notes: Notes, code: Option<Code>) -> Counted {
        Counted { path: path.to_owned(), key, notes, code, program: OnceLock::new() }
    }

    /// What its events mean, under its name, if they are recorded.
    pub fn means(&self) -> Option<Code> {
        self.code.clone().map(|code| Code { path: input::written_path(&self.path), ..code })
    }

    /// The program, if its file is still what was counted.
    pub fn into_program(self) -> Option<Program> {
        self.program.into_inner().or_else(|| {
            let image = Image::load(&self.path).ok()?;
            (file_key(&image) == self.key).then(|| Program::analyze_code(image))
        })
    }
}

/// What tells files apart whose counters stand elsewhere.
fn suffix(placement: Placement) -> &'static str {
    match placement {
        Placement::Edges => "",
        Placement::Blocks => "-blocks",
        Placement::Nowhere => "-null",
        Placement::Events => "-events",
    }
}

/// How modules are rewritten.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// Where counters stand.
    pub placement: Placement,
    /// Whether it is counted where indirect calls lead.
    pub callees: bool,
    /// Whether programs that are started by `exec` are counted, too: then the code that starts them asks
    /// first.
    pub follows: bool,
    /// Which numbers events have: others than those of the turn before.
    pub turn: u32,
    /// Whether events of the C library are recorded, too.
    pub libc: bool,
    /// Names of the functions whose events are recorded, `*` standing for anything; all, if there are none.
    pub functions: &'a [String],
    /// Names of functions of which an event tells each time that they are entered.
    pub telling: &'a [String],
    /// Names that modules of the program define, not the C library, sorted: calls of such a name may be
    /// theirs.
    pub interposed: &'a [Box<str>],
}

impl How<'_> {
    /// All of it, so, and nothing else.
    pub fn of(placement: Placement) -> Self {
        let (functions, telling) = (&[], &[]);
        let (callees, follows, libc) = (false, false, false);
        How { placement, callees, follows, turn: 0, libc, functions, telling, interposed: &[] }
    }

    /// Has `image` have the imports that it has in a program like this; and what tells it apart from the same
    /// module in another one.
    fn interpose(self, image: &mut Image) -> String {
        let theirs = image.interpose(self.interposed);
        if theirs.is_empty() { String::new() } else { format!("-without-{:016x}", hash(&theirs)) }
    }

    /// What tells files apart that are made otherwise of the module of `image`.
    fn suffix(self, image: &Image, earlier: Option<&Earlier>) -> String {
        let asks = self.follows && arch::may_exec(image.file_bytes());
        let like = earlier.map(Earlier::suffix).unwrap_or_default();
        let callees = if self.counts_callees() { "-callees" } else { "" };
        let turn = if self.turn == 0 { String::new() } else { format!("-{}", self.turn) };
        let libc = if self.libc { "-libc" } else { "" };
        let asks = if asks { "-asks" } else { "" };
        let chosen = if self.is_partial() {
            format!("-of-{:016x}", hash(&(self.functions, self.telling)))
        } else {
            String::new()
        };
        format!("{}{turn}{libc}{callees}{chosen}{asks}{like}", suffix(self.placement))
    }

    /// Whether some functions are not like the others.
    pub fn is_partial(self) -> bool {
        !self.functions.is_empty() || !self.telling.is_empty()
    }

    fn counts_callees(self) -> bool {
        self.callees && matches!(self.placement, Placement::Edges | Placement::Blocks)
    }

    /// How the module with this `key` ran earlier, if that matters.
    fn earlier(self, kept: &Store, key: u128) -> Option<Arc<Earlier>> {
        kept.earlier(key).filter(|_| matches!(self.placement, Placement::Edges | Placement::Events))
    }

    /// Moves the code of `program`, with what is put into it.
    fn build<'p>(
        self,
        program: &'p Program,
        earlier: Option<&Earlier>,
        room: Room,
    ) -> anyhow::Result<(Module<'p>, Option<Code>)> {
        let mut code = None;
        let profile = earlier.and_then(Earlier::profile);
        let mut plan = match profile {
            _ if self.placement == Placement::Events => {
                let is_called = |f: FuncId, names: &[String]| {
                    let symbol = program.function(f).name();
                    names.iter().any(|name| is_name(name, &symbol))
                };
                let which = Which {
                    libc: self.libc,
                    is_recorded: &|f| self.functions.is_empty() || is_called(f, self.functions),
                    tells: &|f| is_called(f, self.telling),
                };
                let key = measure::events::key(file_key(&program.image));
                let (plan, made) = measure::events::plan(program, key, self.turn, which, profile.as_ref())?;
                code = Some(made);
                plan
            }
            Some(profile) => measure::plan_like(program, &profile),
            None => self.placement.plan(program),
        };
        plan.indirect_calls = self.counts_callees();
        let mut module = Module::build(program, &plan, room)?;
        if let Some(code) = &mut code {
            code.places = measure::events::places(&module);
        }
        if self.follows && arch::may_exec(program.image.file_bytes()) {
            module.ask_at(&arch::exec_sites(program));
        }
        Ok((module, code))
    }
}

/// Whether `name`, in which `*` stands for anything, is a function's: the symbol, or what the source calls
/// it, with its parameters or without.
pub fn is_name(name: &str, symbol: &str) -> bool {
    let glob = Glob::new(name);
    let is_it = |text: &str| glob.is_match(text);
    let in_source = || matching::names::in_source(symbol);
    is_it(symbol) || in_source().is_some_and(|source| is_it(&source) || is_it(input::names::path(&source)))
}

/// How often other numbers are tried for a module's events.
const TURNS: u32 = 16;

/// Whether the events of `one` are told from those of all `others`.
fn is_told_apart<'a>(one: &Counted, others: impl IntoIterator<Item = &'a Counted>) -> bool {
    let numbers = |c: &Counted| c.code.as_ref().map(Code::numbers);
    let Some(mine) = numbers(one) else { return true };
    let others = others.into_iter().filter(|other| other.key != one.key);
    others.filter_map(numbers).all(|other| other.end <= mine.start || mine.end <= other.start)
}

/// What is known before a program starts.
pub struct Start {
    /// Its executable.
    pub image: Image,
    /// The libraries that it will load.
    pub libraries: Vec<PathBuf>,
    /// What is done to its ld.so.
    pub sites: Sites,
    /// Names that some of it defines ([`How::interposed`]).
    pub interposed: Vec<Box<str>>,
}

impl Start {
    /// Of `target`.
    ///
    /// # Errors
    /// If it cannot be counted, or its ld.so cannot be run.
    pub fn of(kept: &Store, target: &Target) -> anyhow::Result<Start> {
        let image = load(&target.executable)?;
        let (libraries, sites) = match &image.interpreter {
            Some(linker) => (
                target.libraries(linker).with_context(|| format!("cannot run {}", linker.display()))?,
                sites(kept, linker)?,
            ),
            None => Default::default(),
        };
        let interposed = interposed(&image, &libraries);
        Ok(Start { image, libraries, sites, interposed })
    }
}

/// Names of functions of the C library that count for plans, and that the executable of `image` or one of its
/// `libraries` defines that are not the C library's: calls of such a name from any of its modules may be
/// theirs. Sorted.
fn interposed(image: &Image, libraries: &[PathBuf]) -> Vec<Box<str>> {
    let is_libc = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| program::image::is_libc_file(&name.to_string_lossy()))
    };
    let of = |path: &PathBuf| {
        program::image::exports(path, measure::relies_on).unwrap_or_else(|err| {
            // If it is one that matters, it will be said where it is rewritten.
            tracing::debug!("{err}: {}", path.display());
            Vec::new()
        })
    };
    let mut all: Vec<Box<str>> =
        libraries.par_iter().filter(|path| !is_libc(path)).flat_map_iter(of).collect();
    all.extend(image.exports().filter(|name| measure::relies_on(name)).map(Box::from));
    all.sort_unstable();
    all.dedup();
    all
}

/// An executable that can be counted.
///
/// # Errors
/// If it cannot be.
pub fn load(path: &Path) -> anyhow::Result<Image> {
    let image = Image::load(path)?;
    refuse_known_by_address(&image)?;
    refuse_sanitized(&image)?;
    warn_of_changing_code(&image);
    Ok(image)
}

/// The executable of `image`, which was loaded from `path`, for its process.
///
/// # Errors
/// If it cannot be rewritten.
pub fn executable(
    kept: &Store,
    path: &Path,
    mut image: Image,
    how: How<'_>,
) -> anyhow::Result<(Segments, Counted)> {
    let key = file_key(&image);
    let earlier = how.earlier(kept, key);
    let apart = how.interpose(&mut image);
    let name = kept.name(key, &format!("-exe{apart}{}", how.suffix(&image, earlier.as_deref())));
    if let Some((segments, notes, code)) = kept.read::<(Segments, Vec<u8>, Option<Code>)>(&name)
        && let Ok(notes) = Notes::parse(&notes)
    {
        return Ok((segments, Counted::known(path, key, notes, code)));
    }
    let program = Program::analyze_code(image);
    let built = how.build(&program, earlier.as_deref(), Room::Apart);
    let (module, code) = built.map_err(|err| input::says_if_instrumented(&program.image, err))?;
    let segments = module.to_segments()?;
    let notes = measure::notes(&module);
    kept.write(&name, &(&segments, notes.write(), &code))?;
    Ok((segments, Counted::new(path, program, notes, code)))
}

/// Where ld.so opens files, and where it becomes another program (musl's is libc, too).
pub type Sites = (Vec<OpenSite>, Vec<ExecSite>);

/// Those of `linker`.
///
/// # Errors
/// If it cannot be read.
pub fn sites(kept: &Store, linker: &Path) -> anyhow::Result<Sites> {
    let image = Image::load(linker)?;
    let name = kept.name(file_key(&image), "-sites");
    let site = |(at, bytes): (u64, Vec<u8>)| OpenSite { at: Va(at), bytes };
    if let Some((opens, execs)) = kept.read::<(Vec<(u64, Vec<u8>)>, Vec<ExecSite>)>(&name) {
        return Ok((opens.into_iter().map(site).collect(), execs));
    }
    let program = Program::analyze_code(image);
    let (opens, execs) = (arch::open_sites(&program), arch::exec_sites(&program));
    kept.write(&name, &(opens.iter().map(|s| (s.at.0, &s.bytes)).collect::<Vec<_>>(), &execs))?;
    Ok((opens, execs))
}

/// A library that is not counted, but asks before it becomes another program; `None` if it does not do that.
///
/// # Errors
/// If it cannot be read or written.
pub fn asking(kept: &Store, file: &Path) -> anyhow::Result<Option<PathBuf>> {
    let image = Image::load(file)?;
    if !arch::may_exec(image.file_bytes()) {
        return Ok(None);
    }
    let name = kept.name(file_key(&image), "-asks");
    if let Some(path) = kept.cache.find(&name) {
        return Ok(Some(path));
    }
    let program = Program::analyze_code(image);
    let sites = arch::exec_sites(&program);
    kept.file(&name, &probe::asking(&program.image, &sites)).map(Some)
}

/// A library that counts, with the file that is given to ld.so in its place.
///
/// # Errors
/// If it cannot be read or rewritten.
fn library(kept: &Store, file: &Path, path: &Path, how: How<'_>) -> anyhow::Result<(Counted, PathBuf)> {
    let mut image = Image::load(file)?;
    refuse_known_by_address(&image)?;
    let is_instrumented = memchr::memmem::find(image.file_bytes(), arch::SAYS).is_some();
    anyhow::ensure!(!is_instrumented, "it is instrumented already, and counts by itself");
    let key = file_key(&image);
    let earlier = how.earlier(kept, key);
    let apart = how.interpose(&mut image);
    let suffix = format!("{apart}{}", how.suffix(&image, earlier.as_deref()));
    let (code, notes) = (kept.name(key, &suffix), kept.name(key, &format!("{suffix}-notes")));
    let known = kept.read::<(Vec<u8>, Option<Code>)>(&notes);
    let known = known.and_then(|(notes, means)| Some((Notes::parse(&notes).ok()?, means)));
    if let (Some(given), Some((notes, means))) = (kept.cache.find(&code), known) {
        return Ok((Counted::known(path, key, notes, means), given));
    }
    let program = Program::analyze_code(image);
    let (module, means) = how.build(&program, earlier.as_deref(), Room::Behind)?;
    anyhow::ensure!(module.can_start(), "it has no room for DT_INIT, where counting would start");
    let meaning = measure::notes(&module);
    kept.write(&notes, &(meaning.write(), &means))?;
    let given = kept.file(&code, &module.to_file(Old::Kept)?)?;
    Ok((Counted::new(path, program, meaning, means), given))
}

/// A module whose events are told apart from those of others: the one that was `made`, or one that is made
/// again.
fn told_apart<T>(
    mut made: (Counted, T),
    is_well: impl Fn(&Counted) -> bool,
    make: impl Fn(u32) -> anyhow::Result<(Counted, T)>,
) -> anyhow::Result<(Counted, T)> {
    for turn in 1..=TURNS {
        if is_well(&made.0) {
            return Ok(made);
        }
        made = make(turn)?;
    }
    anyhow::bail!("there are too many modules to tell their events apart")
}

/// Why modules are not counted.
pub type Refused = Vec<(PathBuf, String)>;

/// All of `paths` that can be counted beside `exe`, and the others.
///
/// # Errors
/// If one of them would be disturbed by what is counted in others.
pub fn libraries(
    kept: &Store,
    exe: Option<&Counted>,
    paths: Vec<PathBuf>,
    how: How<'_>,
) -> anyhow::Result<(Vec<(Counted, PathBuf)>, Refused)> {
    let made: Vec<_> = paths.into_par_iter().map(|path| (library(kept, &path, &path, how), path)).collect();
    let (mut counted, mut refused): (Vec<(Counted, PathBuf)>, _) = (Vec::new(), Vec::new());
    for (result, path) in made {
        let beside = |one: &Counted| is_told_apart(one, exe.into_iter().chain(counted.iter().map(|c| &c.0)));
        match result.and_then(|made| {
            told_apart(made, beside, |turn| library(kept, &path, &path, How { turn, ..how }))
        }) {
            Ok(made) => counted.push(made),
            Err(err) if matches!(err.downcast_ref(), Some(RewriteError::UsesGs { .. })) => return Err(err),
            Err(err) => refused.push((path, format!("{err:#}"))),
        }
    }
    Ok((counted, refused))
}

/// Makes libraries ready that the program loads while it runs, which waits for each.
pub struct Loader<'a> {
    kept: &'a Store,
    arena: &'a Arena,
    wanted: &'a Modules,
    how: How<'a>,
    state: Mutex<Loaded>,
    /// Who is told of each module before the program gets it.
    tells: Option<Sender<Code>>,
}

/// A program made ready.
pub struct Made {
    /// Its executable.
    pub segments: Segments,
    /// What of it is mapped; nothing, if there is no room for that.
    pub file: Option<SegmentsFile>,
    /// What is done to its ld.so.
    pub sites: Sites,
}

/// A file as it is now: device, inode, length, and when it was changed.
type Version = (u64, u64, u64, i64, i64);

/// A program made ready, or why it cannot be.
type Ready = Result<Arc<Made>, String>;

struct Loaded {
    /// Programs that were made ready, or why they cannot be.
    programs: HashMap<Version, Arc<OnceLock<Ready>>>,
    swaps: Vec<Swap>,
    counted: Vec<Counted>,
    refused: Refused,
    /// How many copies of a module there is room for.
    copies: HashMap<u128, usize>,
    /// The files that were given in place of counted libraries.
    given: Given,
}

/// Files that a program got, each with the key of the library that it is made of.
pub type Given = Vec<(PathBuf, u128)>;

impl Loaded {
    /// Says so once, however often it is asked for.
    fn refuse(&mut self, path: PathBuf, why: String) {
        if !self.refused.iter().any(|(known, _)| *known == path) {
            self.refused.push((path, why));
        }
    }
}

/// How many copies of the file `given` process `pid` has loaded now.
fn n_loaded(pid: u32, given: &Path) -> usize {
    let Ok(inode) = std::fs::metadata(given).map(|m| m.ino()) else { return 0 };
    let Ok(maps) = std::fs::read(format!("/proc/{pid}/maps")) else { return 0 };
    let maps = String::from_utf8_lossy(&maps);
    // Addresses, rights, offset, device, inode, path: a copy has one mapping of its start.
    let is_start = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        words.next().is_some_and(|offset| offset.bytes().all(|b| b == b'0'))
            && words.nth(1).and_then(|word| word.parse().ok()) == Some(inode)
    };
    maps.lines().filter(is_start).count()
}

/// How long we sleep at most before we look whether the program is over.
const NAP: Duration = Duration::from_millis(200);

impl<'a> Loader<'a> {
    /// Beside what is `counted` already, and was swapped.
    pub fn new(
        kept: &'a Store,
        arena: &'a Arena,
        wanted: &'a Modules,
        how: How<'a>,
        counted: Vec<Counted>,
        refused: Refused,
        swaps: Vec<Swap>,
    ) -> Loader<'a> {
        let copies = counted.iter().map(|c| (c.key, 1)).collect();
        let of = |swap: &Swap| {
            let counted = counted.iter().find(|c| c.path == swap.asked)?;
            Some((swap.given.clone(), counted.key))
        };
        let given = swaps.iter().filter_map(of).collect();
        let state = Loaded { programs: HashMap::new(), swaps, counted, refused, copies, given };
        Loader { kept, arena, wanted, how, state: Mutex::new(state), tells: None }
    }

    /// Sends what the events of each module mean that comes from now on, before there can be any.
    pub fn telling(self, whom: Sender<Code>) -> Loader<'a> {
        Loader { tells: Some(whom), ..self }
    }

    /// Another module is counted.
    fn add(&self, state: &mut Loaded, counted: Counted) {
        if let (Some(whom), Some(code)) = (&self.tells, counted.means()) {
            let _waits = whom.send(code);
        }
        state.counted.push(counted);
    }

    fn state(&self) -> MutexGuard<'_, Loaded> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// What was given in place of libraries so far.
    pub fn swaps(&self) -> Vec<Swap> {
        self.state().swaps.clone()
    }

    /// Says that `path` was not counted.
    pub fn refuse(&self, path: PathBuf, why: String) {
        self.state().refuse(path, why);
    }

    /// Another program made ready: `file`, seen from here, which is `path`.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn program(&self, file: &Path, path: &Path) -> Result<Arc<Made>, String> {
        let about = std::fs::metadata(file).map_err(|e| e.to_string())?;
        // By its name, where that is what it is called here.
        let is_it = std::fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (about.dev(), about.ino()));
        let file = if is_it { path } else { file };
        let version = (about.dev(), about.ino(), about.len(), about.mtime(), about.mtime_nsec());
        let known = Arc::clone(self.state().programs.entry(version).or_default());
        // Who asks for it meanwhile, waits.
        known.get_or_init(|| self.made(file, path).map(Arc::new).map_err(|e| format!("{e:#}"))).clone()
    }

    fn made(&self, file: &Path, path: &Path) -> anyhow::Result<Made> {
        let is_counted = self.wanted.has_executable(path);
        let placement = if is_counted { self.how.placement } else { Placement::Nowhere };
        let image = load(file)?;
        let linker = image.interpreter.clone();
        let (segments, mut counted) = executable(self.kept, file, image, How { placement, ..self.how })?;
        path.clone_into(&mut counted.path);
        let sites = linker.map(|linker| sites(self.kept, &linker)).transpose()?.unwrap_or_default();
        let mut state = self.state();
        if is_counted && !state.copies.contains_key(&counted.key) {
            self.arena.add(counted.key, counted.notes.n_words())?;
            state.copies.insert(counted.key, 1);
            self.add(&mut state, counted);
        }
        let file = SegmentsFile::new(&segments).ok();
        Ok(Made { segments, file, sites })
    }

    /// Answers until `is_over`, from when it says that it is ready. However it ends, nobody waits for an
    /// answer any more.
    pub fn serve(&self, ready: Sender<()>, is_over: &AtomicBool) {
        let _closes = Closes(self.arena);
        if self.arena.hold_mailbox().is_err() {
            return;
        }
        let _waits = ready.send(());
        drop(ready);
        while !is_over.load(Ordering::Relaxed) {
            let Ok(request) = self.arena.request(NAP) else { return };
            let Some(request) = request else { continue };
            let given = self.given(&request);
            if self.arena.answer(&request, given.as_deref()).is_err() {
                return;
            }
        }
    }

    /// The file to open in place of the one that is asked for, if that is to be counted and can be.
    fn given(&self, request: &Request) -> Option<PathBuf> {
        let file = request.file();
        let real = file.canonicalize().ok()?;
        if !self.wanted.has_library(&request.path) {
            let asks = self.how.follows && is_system_file(&request.path) && is_elf(&file);
            return if asks { asking(self.kept, &file).ok().flatten() } else { None };
        }
        if !is_elf(&file) {
            return None;
        }
        let mut state = self.state();
        if self.arena.has_near().unwrap_or(true) {
            let why = "beside what the program's threads count in, which has few addresses, there may be no room for its counters";
            state.refuse(real, why.to_owned());
            return None;
        }
        let made = |turn| library(self.kept, &file, &real, How { turn, ..self.how });
        let is_well = |one: &Counted| is_told_apart(one, &state.counted);
        let (counted, given) = match made(0).and_then(|first| told_apart(first, is_well, made)) {
            Ok(made) => made,
            Err(err) => {
                state.refuse(real, format!("{err:#}"));
                return None;
            }
        };
        let key = counted.key;
        // A row is for one copy that is loaded: what was unloaded leaves its own to the next.
        let n = n_loaded(request.pid, &given) + 1;
        let copies = state.copies.get(&key).copied().unwrap_or(0);
        if n > copies {
            if let Err(err) = self.arena.add(key, counted.notes.n_words()) {
                state.refuse(real, err.to_string());
                return None;
            }
            state.copies.insert(key, copies + 1);
        }
        if copies == 0 {
            self.add(&mut state, counted);
            state.given.push((given.clone(), key));
            if request.path.is_absolute() {
                state.swaps.push(Swap { asked: request.path.clone(), given: given.clone() });
            }
        }
        Some(given)
    }

    /// All that was counted, what could not be, and what the program got.
    pub fn finish(self) -> (Vec<Counted>, Refused, Given) {
        let state = self.state.into_inner().expect("nobody panics while holding it");
        (state.counted, state.refused, state.given)
    }
}

/// Closes the mailbox when it goes, also if that is because we panic.
pub struct Closes<'a>(pub &'a Arena);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        let _gone = self.0.close_mailbox();
    }
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut f| std::io::Read::read_exact(&mut f, &mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}
