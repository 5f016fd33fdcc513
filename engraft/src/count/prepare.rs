//! Modules made ready to be counted, before the program starts and while it runs; kept for the next time.
//!
//! Invariant: what a module's counters mean is kept beside its rewritten code, by the identity of the whole file and of ourselves: the
//! second time, nothing is analysed before the program runs. What cannot be kept is made each time.

use crate::input::refuse_known_by_address;
use anyhow::Context as _;
use live::{Arena, Cache, Request};
use measure::Placement;
use probe::arch::{self, OpenSite};
use probe::{Module, Old, RewriteError, Room, Segments, file_key};
use profile::counters::Notes;
use program::{Image, Program, Va};
use rayon::prelude::*;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

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
        Ok(Store { cache, maker, temporary, spare: Mutex::new(None) })
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
        let bytes = std::fs::read(self.cache.find(name)?).ok()?;
        postcard::from_bytes(&bytes).ok()
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
        if !path.exists() {
            std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(path)
    }

    /// Removes from the cache what was not used longest. Nothing that this run uses may be needed any more.
    pub fn trim(&self) {
        if let Err(err) = self.cache.trim() {
            tracing::debug!("cannot trim {}: {err}", self.cache.folder().display());
        }
    }
}

/// A module that is counted.
pub struct Counted {
    /// Where it was loaded from.
    pub path: PathBuf,
    /// Identity of its file.
    pub key: u128,
    /// What its counters mean.
    pub notes: Notes,
    program: OnceLock<Program>,
}

impl Counted {
    fn new(path: &Path, program: Program, notes: Notes) -> Counted {
        let key = file_key(&program.image);
        Counted { path: path.to_owned(), key, notes, program: OnceLock::from(program) }
    }

    fn known(path: &Path, key: u128, notes: Notes) -> Counted {
        Counted { path: path.to_owned(), key, notes, program: OnceLock::new() }
    }

    /// The program, if its file is still what was counted.
    pub fn into_program(self) -> Option<Program> {
        self.program.into_inner().or_else(|| {
            let image = Image::load(&self.path).ok()?;
            (file_key(&image) == self.key).then(|| Program::analyze(image))
        })
    }
}

/// What tells files apart whose counters stand elsewhere.
fn suffix(placement: Placement) -> &'static str {
    match placement {
        Placement::Edges => "",
        Placement::Blocks => "-blocks",
        Placement::Nowhere => "-null",
    }
}

/// The executable, for its process; with the dynamic linker that it names.
///
/// # Errors
/// If it cannot be read or rewritten.
pub fn executable(
    kept: &Store,
    path: &Path,
    placement: Placement,
) -> anyhow::Result<(Segments, Counted, Option<PathBuf>)> {
    let image = Image::load(path)?;
    refuse_known_by_address(&image)?;
    let linker = image.interpreter.clone();
    let key = file_key(&image);
    let name = kept.name(key, &format!("-exe{}", suffix(placement)));
    if let Some((segments, notes)) = kept.read::<(Segments, Vec<u8>)>(&name)
        && let Ok(notes) = Notes::parse(&notes)
    {
        return Ok((segments, Counted::known(path, key, notes), linker));
    }
    let program = Program::analyze(image);
    let module = Module::build(&program, &placement.plan(&program), Room::Apart)?;
    let segments = module.to_segments()?;
    let notes = measure::notes(&module);
    kept.write(&name, &(&segments, notes.write()))?;
    Ok((segments, Counted::new(path, program, notes), linker))
}

/// Where `linker`, which is ld.so, opens files.
///
/// # Errors
/// If it cannot be read.
pub fn open_sites(kept: &Store, linker: &Path) -> anyhow::Result<Vec<OpenSite>> {
    let image = Image::load(linker)?;
    let name = kept.name(file_key(&image), "-opens");
    let site = |(at, bytes): (u64, Vec<u8>)| OpenSite { at: Va(at), bytes };
    if let Some(rows) = kept.read::<Vec<(u64, Vec<u8>)>>(&name) {
        return Ok(rows.into_iter().map(site).collect());
    }
    let sites = arch::open_sites(&Program::analyze(image));
    kept.write(&name, &sites.iter().map(|s| (s.at.0, &s.bytes)).collect::<Vec<_>>())?;
    Ok(sites)
}

/// A library that counts, with the file that is given to ld.so in its place.
///
/// # Errors
/// If it cannot be read or rewritten.
fn library(
    kept: &Store,
    file: &Path,
    path: &Path,
    placement: Placement,
) -> anyhow::Result<(Counted, PathBuf)> {
    let image = Image::load(file)?;
    refuse_known_by_address(&image)?;
    let key = file_key(&image);
    let how = suffix(placement);
    let (code, notes) = (kept.name(key, how), kept.name(key, &format!("{how}-notes")));
    let known = kept.cache.find(&notes).and_then(|path| Notes::parse(&std::fs::read(path).ok()?).ok());
    if let (Some(given), Some(notes)) = (kept.cache.find(&code), known) {
        return Ok((Counted::known(path, key, notes), given));
    }
    let program = Program::analyze(image);
    let module = Module::build(&program, &placement.plan(&program), Room::Behind)?;
    anyhow::ensure!(module.can_start(), "it has no room for DT_INIT, where counting would start");
    let meaning = measure::notes(&module);
    kept.keep(&notes, &meaning.write());
    let given = kept.file(&code, &module.to_file(Old::Kept)?)?;
    Ok((Counted::new(path, program, meaning), given))
}

/// Why modules are not counted.
pub type Refused = Vec<(PathBuf, String)>;

/// All of `paths` that can be counted, and the others.
///
/// # Errors
/// If one of them would be disturbed by what is counted in others.
pub fn libraries(
    kept: &Store,
    paths: Vec<PathBuf>,
    placement: Placement,
) -> anyhow::Result<(Vec<(Counted, PathBuf)>, Refused)> {
    let made: Vec<_> =
        paths.into_par_iter().map(|path| (library(kept, &path, &path, placement), path)).collect();
    let (mut counted, mut refused) = (Vec::new(), Vec::new());
    for (result, path) in made {
        match result {
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
    is_wanted: &'a (dyn Fn(&Path) -> bool + Sync),
    placement: Placement,
    state: Mutex<Loaded>,
}

struct Loaded {
    counted: Vec<Counted>,
    refused: Refused,
    /// How many copies of a module there is room for.
    copies: HashMap<u128, usize>,
}

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
    /// Beside what is `counted` already.
    pub fn new(
        kept: &'a Store,
        arena: &'a Arena,
        is_wanted: &'a (dyn Fn(&Path) -> bool + Sync),
        placement: Placement,
        counted: Vec<Counted>,
        refused: Refused,
    ) -> Loader<'a> {
        let copies = counted.iter().map(|c| (c.key, 1)).collect();
        let state = Loaded { counted, refused, copies };
        Loader { kept, arena, is_wanted, placement, state: Mutex::new(state) }
    }

    /// Answers until `is_over`, from when it says that it is ready. However it ends, nobody waits for an answer any more.
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
        if !(self.is_wanted)(&request.path) || !is_elf(&file) {
            return None;
        }
        let mut state = self.state.lock().expect("nobody panics while holding it");
        let (counted, given) = match library(self.kept, &file, &real, self.placement) {
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
            if let Err(err) = self.arena.add(key, counted.notes.n_counters()) {
                state.refuse(real, err.to_string());
                return None;
            }
            state.copies.insert(key, copies + 1);
        }
        if copies == 0 {
            state.counted.push(counted);
        }
        Some(given)
    }

    /// All that was counted, and what could not be.
    pub fn finish(self) -> (Vec<Counted>, Refused) {
        let state = self.state.into_inner().expect("nobody panics while holding it");
        (state.counted, state.refused)
    }
}

/// Closes the mailbox when it goes, also if that is because we panic.
struct Closes<'a>(&'a Arena);

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
