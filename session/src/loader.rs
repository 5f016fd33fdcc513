//! Libraries that a program loads while it runs, and programs that it becomes: made ready while it waits.

use crate::choose::is_system_file;
use crate::messages::{Warning, with_causes};
use crate::module::{self, Instrumented, LinkerSites, ModuleError, Recipe};
use crate::prepare::{Prepared, ReadyProgram, Refused};
use crate::run::Bell;
use live::launch::{SegmentsFile, Swap};
use live::{Arena, Request};
use measure::Placement;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// Makes modules ready that come while the program runs, which waits for each.
pub struct Loader<'a> {
    prepared: &'a Prepared<'a>,
    arena: &'a Arena,
    state: Mutex<State>,
    /// Who is told of each module before the program gets it.
    tells: Option<Tells>,
    /// Rings whenever the program has an answer, and is about to map something.
    bell: Bell,
}

/// What is told of each module before the program gets it.
pub(crate) type Tells = Box<dyn Fn(&Instrumented) + Send + Sync>;

/// A file as it is now: device, inode, length, and when it was changed.
type Version = (u64, u64, u64, i64, i64);

/// A program made ready, or why it cannot be.
type Ready = Result<Arc<ReadyProgram>, String>;

/// What came so far.
struct State {
    /// Programs that were made ready, or why they cannot be.
    programs: HashMap<Version, Arc<OnceLock<Ready>>>,
    swaps: Vec<Swap>,
    loaded: Loaded,
    /// How many copies of a module there is room for.
    copies: HashMap<u128, usize>,
}

impl State {
    /// Says so once, however often it is asked for.
    fn refuse(&mut self, path: PathBuf, why: String) {
        if !self.loaded.refused.iter().any(|(known, _)| *known == path) {
            self.loaded.refused.push((path, why));
        }
    }
}

/// What came while the program ran, beside what was there at its start.
pub(crate) struct Loaded {
    /// Modules that are counted.
    pub(crate) modules: Vec<Instrumented>,
    /// Modules that are not, those of the start among them.
    pub(crate) refused: Refused,
    /// Files that the program got in place of libraries, each with the identity of the library that it is
    /// made of; those of the start, too.
    pub(crate) given: Vec<(PathBuf, u128)>,
    /// What is to be known of them.
    pub(crate) warnings: Vec<Warning>,
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
    /// Beside what is `prepared` already, in the same `arena`. Tells of each module that comes from now on,
    /// before it appends anything.
    pub(crate) fn new(prepared: &'a Prepared<'a>, arena: &'a Arena, tells: Option<Tells>) -> Loader<'a> {
        let Prepared { modules, swaps, refused, .. } = prepared;
        let copies = modules.iter().map(|module| (module.key, 1)).collect();
        let given = swaps.iter().filter_map(|swap| {
            let module = modules.iter().find(|module| module.path == swap.asked)?;
            Some((swap.given.clone(), module.key))
        });
        let loaded = Loaded {
            modules: Vec::new(),
            refused: refused.clone(),
            given: given.collect(),
            warnings: Vec::new(),
        };
        let state = State { programs: HashMap::new(), swaps: swaps.clone(), loaded, copies };
        Loader { prepared, arena, state: Mutex::new(state), tells, bell: Bell::default() }
    }

    /// What rings whenever the program is about to map something.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Another module is counted.
    fn add(&self, state: &mut State, module: Instrumented) {
        if let Some(tell) = &self.tells {
            tell(&module);
        }
        state.loaded.modules.push(module);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// What was given in place of libraries so far.
    pub(crate) fn swaps(&self) -> Vec<Swap> {
        self.state().swaps.clone()
    }

    /// Says that `path` was not counted.
    pub(crate) fn refuse(&self, path: PathBuf, why: String) {
        self.state().refuse(path, why);
    }

    /// Another program made ready: `file`, seen from here, which is `path`.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(crate) fn program(&self, file: &Path, path: &Path) -> Ready {
        let about = std::fs::metadata(file).map_err(|e| e.to_string())?;
        // By its name, where that is what it is called here.
        let is_it = std::fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (about.dev(), about.ino()));
        let file = if is_it { path } else { file };
        let version = (about.dev(), about.ino(), about.len(), about.mtime(), about.mtime_nsec());
        let known = Arc::clone(self.state().programs.entry(version).or_default());
        // Who asks for it meanwhile, waits.
        known.get_or_init(|| self.make_program(file, path).map(Arc::new)).clone()
    }

    fn make_program(&self, file: &Path, path: &Path) -> Result<ReadyProgram, String> {
        let said = |err: ModuleError| with_causes(&err);
        let Prepared { store, wanted, asked, .. } = self.prepared;
        let is_counted = wanted.has_executable(path);
        let placement = if is_counted { asked.placement } else { Placement::Nowhere };
        let (image, warning) = module::load(file).map_err(said)?;
        self.state().loaded.warnings.extend(warning);
        let interpreter = image.interpreter.clone();
        let recipe = Recipe { placement, is_executable: true, ..self.prepared.recipe() };
        let ((segments, file), mut module) = module::executable(store, file, image, recipe).map_err(said)?;
        path.clone_into(&mut module.path);
        let linker = interpreter.map(|linker| LinkerSites::of(store, &linker)).transpose().map_err(said)?;
        let mut state = self.state();
        if is_counted && !state.copies.contains_key(&module.key) {
            self.arena.add(module.key, module.notes.n_words()).map_err(|e| e.to_string())?;
            state.copies.insert(module.key, 1);
            self.add(&mut state, module);
        }
        let file = file.or_else(|| SegmentsFile::new(&segments).ok());
        Ok(ReadyProgram { segments, file, linker: linker.unwrap_or_default() })
    }

    /// Answers until `is_over`, from when it says that it is ready. However it ends, nobody waits for an
    /// answer any more.
    pub(crate) fn serve(&self, ready: Sender<()>, is_over: &AtomicBool) {
        let _closes = ClosesMailbox(self.arena);
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
            self.bell.ring();
        }
    }

    /// The file to open in place of the one that is asked for, if that is to be counted and can be.
    fn given(&self, request: &Request) -> Option<PathBuf> {
        let Prepared { store, wanted, asked, modules, .. } = self.prepared;
        let file = request.file();
        let real = file.canonicalize().ok()?;
        if !wanted.has_library(&request.path) || !asked.concerns(&file, &file) {
            let asks = asked.follows && is_system_file(&request.path) && is_elf(&file);
            return if asks { module::asking(store, &file).ok().flatten() } else { None };
        }
        if !is_elf(&file) {
            return None;
        }
        let mut state = self.state();
        if self.arena.has_near().unwrap_or(true) {
            let why = "beside what the program's threads count in, which has few addresses, there may be no \
                       room for its counters";
            state.refuse(real, why.to_owned());
            return None;
        }
        let made = |turn| module::library(store, &file, &real, Recipe { turn, ..self.prepared.recipe() });
        let is_apart = |(one, _): &(Instrumented, PathBuf)| {
            one.is_told_apart(modules.iter().chain(&state.loaded.modules))
        };
        let (module, given) = match made(0).and_then(|first| module::told_apart(first, is_apart, made)) {
            Ok(made) => made,
            Err(err) => {
                state.refuse(real, with_causes(&err));
                return None;
            }
        };
        let key = module.key;
        // A row is for one copy that is loaded: what was unloaded leaves its own to the next.
        let n = n_loaded(request.pid, &given) + 1;
        let copies = state.copies.get(&key).copied().unwrap_or(0);
        if n > copies {
            if let Err(err) = self.arena.add(key, module.notes.n_words()) {
                state.refuse(real, err.to_string());
                return None;
            }
            state.copies.insert(key, copies + 1);
        }
        if copies == 0 {
            self.add(&mut state, module);
            state.loaded.given.push((given.clone(), key));
            if request.path.is_absolute() {
                state.swaps.push(Swap { asked: request.path.clone(), given: given.clone() });
            }
        }
        Some(given)
    }

    /// What came while the program ran.
    pub(crate) fn finish(self) -> Loaded {
        self.state.into_inner().expect("nobody panics while holding it").loaded
    }
}

/// Closes the mailbox when it goes, also if that is because we panic.
pub(crate) struct ClosesMailbox<'a>(pub(crate) &'a Arena);

impl Drop for ClosesMailbox<'_> {
    fn drop(&mut self) {
        let _gone = self.0.close_mailbox();
    }
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut f| std::io::Read::read_exact(&mut f, &mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}
