//! One module made ready to be counted or recorded; kept for the next time.
//!
//! Invariant: what a module's counters mean is kept beside its rewritten code, by the identity of the whole
//! file and of ourselves: the second time, nothing is analysed before the program runs. Of a module that ran
//! long, how it ran is kept, too: then it is made once more, with its counters where it seldom went.

mod hindrance;
mod linker;
mod paths;
mod places;
mod running;

pub use hindrance::{Hindrance, changes_code, is_cut_off, refuse_known_by_address, refuse_sanitized};
pub(crate) use linker::{LinkerSites, asking};
pub use paths::{recorded_path, written_path};
pub(crate) use running::{RunningModule, running};

use crate::choose::{FunctionFilter, Spellings};
use crate::messages::Warning;
use crate::store::{Earlier, Kind, Store, StoreError};
use hindrance::is_instrumented;
use live::launch::SegmentsFile;
use measure::Placement;
use measure::edges::notes::Notes;
use measure::recorded_points::{Scope, TooLarge};
use measure::values::{Asked, Code, Found};
use probe::arch;
use probe::{Module, Old, Plan, RewriteError, Room, Segments, file_key};
use profile::Profile;
use program::{Excerpt, Image, KnownLines, Lines, LoadError, Program, Va};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use trace::recording::module_code::ModuleCode;

/// Why a module is not made ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// Its file cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its file cannot be rewritten.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    /// It is a library that counts by itself.
    #[error("it is instrumented already, and counts by itself")]
    CountsItself,
    /// There is no room for the first call of ours.
    #[error("it has no room for DT_INIT, where our code would start")]
    NoInit,
    /// It cannot be rewritten.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// It has too many events.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Its events would be taken for others'.
    #[error("there are too many modules to tell their events apart")]
    TooMany,
    /// What was made cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ModuleError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ModuleError::Load(err) => err.hint(),
            ModuleError::Hindered(hindrance) => Some(hindrance.hint()),
            ModuleError::Rewrite(err) => err.hint(),
            _ => None,
        }
    }
}

/// What is put into the modules of a program.
#[derive(Clone, Debug)]
pub struct Instrumentation {
    /// Where counters stand, or that events are recorded.
    pub placement: Placement,
    /// Whether it is counted where indirect calls lead.
    pub callees: bool,
    /// Whether programs that are started by `exec` are counted, too: then the code that starts them asks
    /// first.
    pub follows: bool,
    /// Whether events of the C library are recorded, too.
    pub libc: bool,
    /// The functions whose events are recorded; all, if there are none.
    pub functions: FunctionFilter,
    /// Functions of which an event tells each time that they are entered.
    pub telling: FunctionFilter,
    /// Which values are recorded.
    pub values: Arc<Asked>,
    /// How users spell the functions of these.
    pub spellings: Spellings,
}

impl Instrumentation {
    /// All of it, so, and nothing else.
    pub fn new(placement: Placement) -> Instrumentation {
        let (functions, telling) = (FunctionFilter::default(), FunctionFilter::default());
        Instrumentation {
            placement,
            callees: false,
            follows: false,
            libc: false,
            functions,
            telling,
            values: Arc::default(),
            spellings: |_| Vec::new(),
        }
    }

    /// Whether something is asked for that the library at `path` may have: of values, those of functions that
    /// it has, by its symbols, which `file` has. One that cannot be read is said to: why, is said where it is
    /// rewritten.
    pub fn concerns(&self, path: &Path, file: &Path) -> bool {
        if self.placement != Placement::Values {
            return true;
        }
        // What is called runs anywhere.
        if self.values.counts_instructions {
            return true;
        }
        let is_named = |module: &str| path.ends_with(module);
        if self.values.has_lines() || self.values.modules().any(is_named) {
            return true;
        }
        let Ok(image) = Image::load(file) else { return true };
        self.values.functions().any(|name| self.is_in(&image, name))
    }

    /// Whether `image` has a symbol that `name` may mean.
    fn is_in(&self, image: &Image, name: &str) -> bool {
        let filter = FunctionFilter::new(&[name], self.spellings);
        image.symbols.iter().any(|symbol| filter.has(&symbol.name))
    }

    /// The same for the library of `image`, where that is made ready whatever functions are asked for: what
    /// it has none of changes nothing then, and is in no key.
    fn of_library(&self, image: &Image) -> Option<Instrumentation> {
        if self.placement != Placement::Values || !self.values.counts_instructions {
            return None;
        }
        let values = Arc::new(self.values.of_module(|name| self.is_in(image, name)));
        Some(Instrumentation { values, ..self.clone() })
    }

    /// Whether some functions are not like the others.
    pub fn is_partial(&self) -> bool {
        !self.functions.is_empty() || !self.telling.is_empty()
    }
}

/// How the modules of one program are rewritten.
#[derive(Clone, Copy)]
pub(crate) struct Recipe<'a> {
    /// What was asked for.
    pub(crate) asked: &'a Instrumentation,
    /// Where counters stand in this module.
    pub(crate) placement: Placement,
    /// Which numbers events have: others than those of the turn before.
    pub(crate) turn: u32,
    /// Whether it is the executable, whose addresses need no name.
    pub(crate) is_executable: bool,
    /// Names that modules of the program define, not the C library, sorted: calls of such a name may be
    /// theirs.
    pub(crate) interposed: &'a [Box<str>],
}

/// All on which a rewritten module depends, beside its file: what tells those apart that are made of one
/// file.
#[derive(Hash)]
struct RecipeKey<'a> {
    placement: u8,
    turn: u32,
    libc: bool,
    callees: bool,
    asks_before_exec: bool,
    functions: &'a FunctionFilter,
    telling: &'a FunctionFilter,
    values: Option<&'a Asked>,
    /// The file of debug information, if what is recorded goes by it: its path, length, and time of change.
    debug_file: Option<(PathBuf, u64, Option<SystemTime>)>,
    /// Imports that are none of the C library's in this program.
    interposed: &'a [Box<str>],
    earlier: Option<&'a Earlier>,
}

impl<'a> Recipe<'a> {
    /// `interposed` are imports of `image` that are other modules'.
    fn key(&self, image: &Image, interposed: &'a [Box<str>], earlier: Option<&'a Earlier>) -> RecipeKey<'a> {
        let placement = match self.placement {
            Placement::Edges => 0,
            Placement::Blocks => 1,
            Placement::Nowhere => 2,
            Placement::Events => 3,
            Placement::Values => 4,
        };
        let asks_what_is_known =
            self.placement == Placement::Values && self.asked.values.asks_what_is_known();
        let debug_file = image.debug_file.as_ref().filter(|_| asks_what_is_known).map(|path| {
            let metadata = std::fs::metadata(path);
            let len = metadata.as_ref().map_or(0, std::fs::Metadata::len);
            (path.clone(), len, metadata.and_then(|m| m.modified()).ok())
        });
        RecipeKey {
            placement,
            turn: self.turn,
            libc: self.asked.libc,
            callees: self.counts_callees(),
            asks_before_exec: self.asked.follows && arch::may_exec(image.file_bytes()),
            functions: &self.asked.functions,
            telling: &self.asked.telling,
            values: (self.placement == Placement::Values).then_some(&self.asked.values),
            debug_file,
            interposed,
            earlier,
        }
    }

    fn counts_callees(&self) -> bool {
        self.asked.callees && matches!(self.placement, Placement::Edges | Placement::Blocks)
    }

    /// What the catalogue of the module with this identity is called, some of whose imports are `interposed`,
    /// if it is counted.
    fn catalogue(&self, store: &Store, module: u128, interposed: &[Box<str>]) -> Option<String> {
        let is_counted = matches!(self.placement, Placement::Edges | Placement::Blocks);
        is_counted.then(|| store.name(Kind::Catalogue, module, &interposed))
    }

    /// How the module with this identity ran earlier, if that matters.
    fn earlier(&self, store: &Store, module: u128) -> Option<Arc<Earlier>> {
        store.earlier(module).filter(|_| matches!(self.placement, Placement::Edges | Placement::Events))
    }

    /// Moves the code of `program`, with what is put into it.
    fn build<'p>(
        &self,
        program: &'p Program,
        earlier: Option<&Earlier>,
        room: Room,
    ) -> Result<(Module<'p>, Appended), ModuleError> {
        let (mut code, mut values) = (None, None);
        let profile = earlier.and_then(Earlier::profile);
        let asked = self.asked;
        let mut plan = match profile {
            _ if self.placement == Placement::Events => {
                let (recorded, telling) = (asked.functions.of(program), asked.telling.of(program));
                let scope = Scope {
                    not_moved: &Module::not_moved_in(program, room),
                    libc: asked.libc,
                    is_recorded: &|f| asked.functions.is_empty() || recorded.contains(&f),
                    tells: &|f| telling.contains(&f),
                };
                let key = measure::recorded_points::key(file_key(&program.image));
                let (plan, made) =
                    measure::recorded_points::plan(program, key, self.turn, scope, profile.as_ref())?;
                code = Some(made);
                plan
            }
            _ if self.placement == Placement::Values => {
                let (plan, made) = self.values(program, room);
                values = Some(made);
                plan
            }
            Some(profile) => measure::plan_like(program, &profile),
            None => self.placement.plan(program),
        };
        plan.indirect_calls = self.counts_callees();
        let mut module = Module::build(program, &plan, room)?;
        if let Some(code) = &mut code {
            code.places = measure::recorded_points::places(&module);
        }
        if asked.follows && arch::may_exec(program.image.file_bytes()) {
            module.ask_at(&arch::exec_sites(program));
        }
        Ok((module, Appended { events: code, values }))
    }

    /// Which values of `program` are recorded.
    fn values(&self, program: &Program, room: Room) -> (Plan, Code) {
        let key = measure::recorded_points::key(file_key(&program.image));
        let resolvers = program.resolvers();
        let functions = |name: &str| {
            let mut all = FunctionFilter::new(&[name], self.asked.spellings).of(program);
            // What they may return stands for them.
            all.retain(|f| !resolvers.contains(f) || program.returned_by(*f).functions.is_empty());
            all
        };
        let asked = &self.asked.values;
        let place = |place: &str| places::of(program, place, self.is_executable, &functions);
        let lines = asked.has_lines().then(|| Lines::load(&program.image)).flatten();
        let loops = |text: &str| places::loops(program, text, self.is_executable, &functions, lines.as_ref());
        let watched = |name: &str| {
            if name == "*" && !self.is_executable { BTreeSet::new() } else { functions(name) }
        };
        let not_moved = &Module::not_moved_in(program, room);
        let called = |text: &str| places::functions(program, text, self.is_executable, &functions);
        let found = Found { functions: &called, places: &place, watched: &watched, loops: &loops, not_moved };
        measure::values::plan(program, key, self.turn, asked, &found)
    }
}

/// What is appended to streams means.
#[derive(Serialize, Deserialize, Default)]
pub(crate) struct Appended {
    events: Option<ModuleCode>,
    values: Option<Code>,
}

/// What its counters mean, and what it appends.
type Meaning = (Notes, Appended);

/// The same, as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(with = "program::as_bytes")]
    notes: Vec<u8>,
    code: Appended,
}

/// A module that is counted or recorded.
pub struct Instrumented {
    /// Where it was loaded from.
    pub path: PathBuf,
    /// What can be opened of it here, if that is something else.
    file: Option<PathBuf>,
    /// Identity of its file.
    pub key: u128,
    /// What its counters mean.
    pub notes: Notes,
    /// What its events mean, if they are recorded.
    pub code: Option<ModuleCode>,
    /// What its records of values mean, if there are any.
    pub values: Option<Code>,
    /// Under which name its catalogue is kept, if it is counted.
    catalogue: Option<String>,
    /// Its file, if it was not analysed: then `program` has it.
    image: Option<Image>,
    program: OnceLock<Program>,
}

impl Instrumented {
    fn new(path: &Path, program: Program, meaning: Meaning, catalogue: Option<String>) -> Instrumented {
        let key = file_key(&program.image);
        Instrumented {
            program: OnceLock::from(program),
            ..Instrumented::of(path, key, None, meaning, catalogue)
        }
    }

    fn known(path: &Path, image: Image, meaning: Meaning, catalogue: Option<String>) -> Instrumented {
        Instrumented::of(path, file_key(&image), Some(image), meaning, catalogue)
    }

    fn of(
        path: &Path,
        key: u128,
        image: Option<Image>,
        (notes, Appended { events, values }): Meaning,
        catalogue: Option<String>,
    ) -> Instrumented {
        let path = path.to_owned();
        let (code, program) = (events, OnceLock::new());
        Instrumented { path, file: None, key, notes, code, values, catalogue, image, program }
    }

    /// The same, which is opened here as `file`.
    fn opened_as(self, file: &Path) -> Instrumented {
        Instrumented { file: Some(file.to_owned()), ..self }
    }

    /// What its events mean, under its name, if they are recorded.
    pub fn meaning(&self) -> Option<ModuleCode> {
        self.code.clone().map(|code| ModuleCode { path: written_path(&self.path), ..code })
    }

    /// What its records of values mean, under its name, if there are any.
    pub fn recorded_values(&self) -> Option<Code> {
        self.values.clone().map(|code| Code { path: written_path(&self.path), ..code })
    }

    /// The program, if its file is still what was counted.
    pub fn program(&self) -> Option<&Program> {
        if self.program.get().is_none() {
            let file = self.file.as_ref().unwrap_or(&self.path);
            let image = Image::load(file).ok().filter(|image| file_key(image) == self.key)?;
            // Another thread's is the same.
            let _set_before = self.program.set(Program::analyze_code(image));
        }
        self.program.get()
    }

    /// What a recording keeps of its code, of which `profile` has the counts: taken from its catalogue, so
    /// that nothing is analysed.
    pub(crate) fn code_that_ran(&self, store: &Store, profile: &Profile) -> Option<Excerpt> {
        let image = self.image.as_ref().or_else(|| self.program.get().map(|program| &program.image));
        let part = image.zip(self.catalogue.as_ref()).and_then(|(image, name)| {
            let catalogue = store.catalogue(name);
            let part = catalogue.and_then(|it| measure::that_may_have_run(&it, image, profile).ok());
            if part.is_none() {
                store.remove(name);
            }
            Some((part?, image))
        });
        let Some((program, image)) = part else { return Some(measure::excerpt(self.program()?, profile)) };
        let mut are_new = false;
        let excerpt = measure::excerpt_with(&program, profile, |ran| {
            store.lines(self.key).and_then(|known| known.lines(&program, ran)).or_else(|| {
                are_new = true;
                Lines::load(image)
            })
        });
        if are_new && excerpt.has_lines() {
            let mut all = KnownLines::of(&excerpt);
            store.lines(self.key).iter().for_each(|known| all.add(known));
            store.keep_lines(self.key, &all);
        }
        Some(excerpt)
    }

    /// The same, of a module that is needed no more.
    pub fn into_program(self) -> Option<Program> {
        self.program()?;
        self.program.into_inner()
    }

    /// Whether its events are told from those of all `others`.
    pub(crate) fn is_told_apart<'a>(&self, others: impl IntoIterator<Item = &'a Instrumented>) -> bool {
        let numbers = |one: &Instrumented| {
            one.code.as_ref().map(ModuleCode::numbers).or_else(|| one.values.as_ref().map(Code::numbers))
        };
        let Some(mine) = numbers(self) else { return true };
        let others = others.into_iter().filter(|other| other.key != self.key);
        others.filter_map(numbers).all(|other| other.end <= mine.start || mine.end <= other.start)
    }
}

/// An executable that can be counted, and what is to be known of it.
///
/// # Errors
/// If it cannot be.
pub(crate) fn load(path: &Path) -> Result<(Image, Option<Warning>), ModuleError> {
    let image = Image::load(path)?;
    refuse_known_by_address(&image)?;
    refuse_sanitized(&image)?;
    let warning = changes_code(&image).or_else(|| is_cut_off(&image));
    Ok((image, warning))
}

/// The executable of `image`, which was loaded from `path`, for its process; with a file of its code, if
/// there is one.
///
/// # Errors
/// If it cannot be rewritten.
pub(crate) fn executable(
    store: &Store,
    path: &Path,
    mut image: Image,
    recipe: Recipe<'_>,
) -> Result<((Segments, Option<SegmentsFile>), Instrumented), ModuleError> {
    let key = file_key(&image);
    let earlier = recipe.earlier(store, key);
    let interposed = image.interpose(recipe.interposed);
    let recipe_key = recipe.key(&image, &interposed, earlier.as_deref());
    let [name, text] = [Kind::Executable, Kind::Text].map(|kind| store.name(kind, key, &recipe_key));
    let catalogue = recipe.catalogue(store, key, &interposed);
    if catalogue.as_ref().is_none_or(|name| store.has(name))
        && let Some((segments, Kept { notes, code })) = store.read::<(Segments, Kept)>(&name)
        && let Ok(notes) = Notes::parse(&notes)
        && let Some(file) = store.find(&text).and_then(|path| SegmentsFile::open(&path).ok())
    {
        return Ok(((segments, Some(file)), Instrumented::known(path, image, (notes, code), catalogue)));
    }
    let program = Program::analyze_code(image);
    let built = recipe.build(&program, earlier.as_deref(), Room::Apart);
    let (module, code) = built.map_err(|err| explained(&program.image, err))?;
    let mut segments = module.to_segments()?;
    // Where no file may be so long, it stays in memory.
    let file = store.file(&text, &SegmentsFile::bytes(&segments));
    let file = file.ok().and_then(|path| SegmentsFile::open(&path).ok());
    let in_memory = (std::mem::take(&mut segments.text), std::mem::take(&mut segments.tables));
    let notes = measure::notes(&module);
    let meaning = Kept { notes: notes.write(), code };
    store.write(&name, &(&segments, &meaning))?;
    if file.is_none() {
        (segments.text, segments.tables) = in_memory;
    }
    let code = meaning.code;
    keep_catalogue(store, catalogue.as_deref(), &module);
    Ok(((segments, file), Instrumented::new(path, program, (notes, code), catalogue)))
}

/// The program of the file at `path`, if that is still the one with this `key`, and its instruction that is
/// so many bytes from the start of its moved code, or stands behind the code of ours that is there: found by
/// moving it once more.
pub(crate) fn old_of(
    store: &Store,
    (path, key): (&Path, u128),
    recipe: Recipe<'_>,
    room: Room,
    offset: u64,
) -> Option<(Program, Va)> {
    let (program, earlier) = analyzed(store, (path, key), recipe)?;
    let (module, _) = recipe.build(&program, earlier.as_deref(), room).ok()?;
    let at = module.text_at().plus(offset);
    let old = (0..LONGEST_OF_OURS).find_map(|n| module.code_map.old_of(&program, at.plus(n)))?;
    drop(module);
    Some((program, old))
}

/// The same program, and its instructions behind which control comes back at these `places` of its moved
/// code, which depend on where that starts.
pub(crate) fn calls_before(
    store: &Store,
    (path, key): (&Path, u128),
    recipe: Recipe<'_>,
    room: Room,
    places: impl FnOnce(Va) -> Vec<Va>,
) -> Option<(Program, Vec<Option<Va>>)> {
    let (program, earlier) = analyzed(store, (path, key), recipe)?;
    let (module, _) = recipe.build(&program, earlier.as_deref(), room).ok()?;
    let places = places(module.text_at());
    let found = places.iter().map(|at| module.code_map.insn_before(&program, *at)).collect();
    drop(module);
    Some((program, found))
}

/// The program of the file at `path`, if that is still the one with this `key`, as it was moved; how it ran
/// earlier.
fn analyzed(
    store: &Store,
    (path, key): (&Path, u128),
    recipe: Recipe<'_>,
) -> Option<(Program, Option<Arc<Earlier>>)> {
    let mut image = Image::load(path).ok().filter(|image| file_key(image) == key)?;
    image.interpose(recipe.interposed);
    Some((Program::analyze_code(image), recipe.earlier(store, key)))
}

/// So many bytes of ours stand in front of an instruction at most, or more than a thread is likely to be in.
const LONGEST_OF_OURS: u64 = 256;

/// Why `image` cannot be rewritten: if it is for the base of gs, that may be because it counts by itself.
pub(crate) fn explained(image: &Image, err: ModuleError) -> ModuleError {
    match err {
        ModuleError::Rewrite(RewriteError::UsesGs { .. }) if is_instrumented(image) => {
            Hindrance::Instrumented { image: image.name.clone() }.into()
        }
        err => err,
    }
}

/// A module whose events are told from those of others, as `is_apart` says: the one that was `made`, or one
/// that is made again in another turn.
///
/// # Errors
/// If making it again fails, or does not help.
pub(crate) fn told_apart<T>(
    mut made: T,
    is_apart: impl Fn(&T) -> bool,
    make: impl Fn(u32) -> Result<T, ModuleError>,
) -> Result<T, ModuleError> {
    for turn in 1..=TURNS {
        if is_apart(&made) {
            return Ok(made);
        }
        made = make(turn)?;
    }
    Err(ModuleError::TooMany)
}

/// How often other numbers are tried for a module's events.
const TURNS: u32 = 16;

/// The library at `path`, read from `file`, with the file that is given to ld.so in its place.
///
/// # Errors
/// If it cannot be read or rewritten.
pub(crate) fn library(
    store: &Store,
    file: &Path,
    path: &Path,
    recipe: Recipe<'_>,
) -> Result<(Instrumented, PathBuf), ModuleError> {
    let mut image = Image::load(file)?;
    refuse_known_by_address(&image)?;
    if is_instrumented(&image) {
        return Err(ModuleError::CountsItself);
    }
    let key = file_key(&image);
    let earlier = recipe.earlier(store, key);
    let interposed = image.interpose(recipe.interposed);
    let recipe_key = recipe.key(&image, &interposed, earlier.as_deref());
    let [code, notes] = [Kind::Library, Kind::Meaning].map(|kind| store.name(kind, key, &recipe_key));
    let catalogue = recipe.catalogue(store, key, &interposed);
    let known = store.read::<Kept>(&notes);
    let known = known.and_then(|kept| Some((Notes::parse(&kept.notes).ok()?, kept.code)));
    if catalogue.as_ref().is_none_or(|name| store.has(name))
        && let (Some(given), Some(meaning)) = (store.find(&code), known)
    {
        return Ok((Instrumented::known(path, image, meaning, catalogue), given));
    }
    let program = Program::analyze_code(image);
    let (module, means) = recipe.build(&program, earlier.as_deref(), Room::Behind)?;
    if !module.can_start() {
        return Err(ModuleError::NoInit);
    }
    let meaning = measure::notes(&module);
    let kept = Kept { notes: meaning.write(), code: means };
    store.write(&notes, &kept)?;
    let means = kept.code;
    let given = store.file(&code, &module.to_file(Old::Kept)?)?;
    keep_catalogue(store, catalogue.as_deref(), &module);
    Ok((Instrumented::new(path, program, (meaning, means), catalogue), given))
}

/// Keeps the catalogue of `module`, if it is to have one of this name and it is not there yet.
fn keep_catalogue(store: &Store, name: Option<&str>, module: &Module<'_>) {
    if let Some(name) = name {
        store.keep_catalogue(name, || measure::catalogue(module.program, &module.not_moved));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
#include <stdlib.h>
__attribute__((noinline)) int leaf(int x) { return x * 3; }
int main(int argc, char **argv) { return argc > 1 ? leaf(argc) : abs(argc); }
";

    /// Whatever ran, and whatever ran before.
    #[test]
    fn of_a_known_module_nothing_is_analysed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (source, path) = (folder.path().join("a.c"), folder.path().join("a"));
        std::fs::write(&source, SOURCE).expect("written");
        let mut gcc = std::process::Command::new("gcc");
        gcc.args(["-O1", "-g", "-o"]).arg(&path).arg(&source);
        assert!(gcc.status().expect("gcc is installed").success());
        let store = Store::open(Some(&folder.path().join("cache")), folder.path()).expect("opened");
        let asked = Instrumentation::new(Placement::Edges);
        let recipe = Recipe {
            asked: &asked,
            placement: asked.placement,
            turn: 0,
            interposed: &[],
            is_executable: false,
        };
        let module = || {
            let image = Image::load(&path).expect("an image");
            executable(&store, &path, image, recipe).expect("it can be counted").1
        };
        let first = module();
        assert!(first.program.get().is_some());
        let n = first.notes.n_counters();
        let mut n_with_lines = 0;
        for ran in 0..n {
            let known = module();
            let counters: Vec<u64> = (0..n).map(|i| u64::from(i == ran)).collect();
            let profile = known.notes.profile(&counters, &[], 0);
            let code = known.code_that_ran(&store, &profile);
            n_with_lines += usize::from(code.as_ref().is_some_and(|code| code.has_lines()));
            assert!(known.program.get().is_none(), "{ran} of {n}");
            assert!(code == first.program().map(|program| measure::excerpt(program, &profile)));
        }
        assert!(n_with_lines > 0);
        // A damaged catalogue is as good as none, and is made again.
        let (known, profile) = (module(), first.notes.profile(&vec![1; n], &[], 0));
        let kept = store.folder().join(known.catalogue.as_deref().expect("it is counted"));
        let whole = std::fs::read(&kept).expect("it was kept");
        // Behind it stands a checksum.
        std::fs::write(&kept, &whole[..whole.len() - 9]).expect("written");
        assert!(known.code_that_ran(&store, &profile) == module().code_that_ran(&store, &profile));
        assert!(std::fs::read(&kept).expect("it was kept") == whole);
    }
}
