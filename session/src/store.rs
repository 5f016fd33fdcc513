//! What is kept from one session for the next: rewritten modules, what their counters mean, how they ran.
//!
//! Invariant: a file is known by a hash of all that it was made from: the module, how it was rewritten, and
//! the build of ours that did it. What cannot be kept is made each time.

use live::{Cache, Entry};
use profile::Profile;
use profile::recording::Recording;
use program::{Catalogue, KnownLines};
use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use xxhash_rust::xxh3::Xxh3;

/// What is kept at most, in bytes.
pub const CACHE_LIMIT: u64 = 2 << 30;

/// Why nothing can be kept, not even for one session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no folder for what this session needs.
    #[error("cannot make a temporary folder")]
    Temporary(#[source] io::Error),
    /// The folder that was made cannot be used.
    #[error("cannot use a temporary folder")]
    Open(#[source] io::Error),
    /// Our own file, by which builds of ours are told apart.
    #[error("cannot look at our own file")]
    Ourselves(#[source] io::Error),
    /// A file that the session needs cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// What is to be kept cannot be encoded.
    #[error(transparent)]
    Encode(postcard::Error),
}

/// Kinds of kept files. The name ends with it, for those who look into the folder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    /// What its process is given of an executable, but for its code; and what its counters mean.
    Executable,
    /// Code and tables of one.
    Text,
    /// A rewritten library.
    Library,
    /// What the counters of one mean.
    Meaning,
    /// Where ld.so opens files, and where it becomes another program.
    LinkerSites,
    /// A library that asks before its program becomes another one.
    Asking,
    /// How a module ran: its profile.
    Ran,
    /// What its functions consist of.
    Catalogue,
    /// Source lines of its code that ran in some run.
    Lines,
    /// The program that shows what time stamps cost.
    Calibration,
    /// What a process that runs is given of a module, but for its code; and what its counters mean.
    Running,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::Executable,
        Kind::Text,
        Kind::Library,
        Kind::Meaning,
        Kind::LinkerSites,
        Kind::Asking,
        Kind::Ran,
        Kind::Catalogue,
        Kind::Lines,
        Kind::Calibration,
        Kind::Running,
    ];

    fn what(self) -> &'static str {
        match self {
            Kind::Executable => "how executables are rewritten",
            Kind::Text => "rewritten executables",
            Kind::Library => "rewritten libraries",
            Kind::Meaning => "what their counters and events mean",
            Kind::LinkerSites => "places in ld.so",
            Kind::Asking => "libraries that ask before exec",
            Kind::Ran => "how modules ran",
            Kind::Catalogue => "what their code consists of",
            Kind::Lines => "source lines of what ran",
            Kind::Calibration => "the program that shows what time stamps cost",
            Kind::Running => "how modules of running processes are rewritten",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Executable => "exe",
            Kind::Text => "text",
            Kind::Library => "library",
            Kind::Meaning => "meaning",
            Kind::LinkerSites => "sites",
            Kind::Asking => "asks",
            Kind::Ran => "ran",
            Kind::Catalogue => "catalogue",
            Kind::Lines => "lines",
            Kind::Calibration => "calibration",
            Kind::Running => "running",
        }
    }
}

/// What is kept in a cache: a row for each kind that there is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// What it is, in a few words.
    pub what: &'static str,
    /// How many files.
    pub n_files: usize,
    /// Their length together.
    pub len_bytes: u64,
}

/// Files of ours in the cache in `folder`, by kind: those of other names are not ours.
fn ours(folder: &Path) -> io::Result<Vec<(Kind, Entry)>> {
    let kind = |entry: &Entry| {
        // In the making: `.NAME.PROCESS.N`.
        let name = entry.name.trim_start_matches('.').split('.').next().unwrap_or_default();
        let (hash, kind) = name.split_once('-')?;
        let is_hash = hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        Kind::ALL.into_iter().find(|known| is_hash && known.name() == kind)
    };
    Ok(Cache::entries(folder)?.into_iter().filter_map(|entry| Some((kind(&entry)?, entry))).collect())
}

/// What is kept in the cache in `folder`.
///
/// # Errors
/// The kernel's, if it cannot be read; if it is not there, nothing is kept.
pub fn cached(folder: &Path) -> io::Result<Vec<Kept>> {
    let ours = ours(folder)?;
    let rows = Kind::ALL.into_iter().map(|kind| {
        let of_kind = || ours.iter().filter(move |(other, _)| *other == kind);
        let len_bytes = of_kind().map(|(_, entry)| entry.len_bytes).sum();
        Kept { what: kind.what(), n_files: of_kind().count(), len_bytes }
    });
    Ok(rows.filter(|row| row.n_files > 0).collect())
}

/// Removes all that is kept in the cache in `folder`; how many files, and their length. A program that runs
/// keeps what it has mapped.
///
/// # Errors
/// The kernel's, if something cannot be removed.
pub fn clear_cache(folder: &Path) -> io::Result<(usize, u64)> {
    let (mut n, mut len_bytes) = (0, 0);
    for (_, entry) in ours(folder)? {
        match std::fs::remove_file(&entry.path) {
            // Another process was first.
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            removed => {
                removed?;
                (n, len_bytes) = (n + 1, len_bytes + entry.len_bytes);
            }
        }
    }
    Ok((n, len_bytes))
}

/// Which build of ours made a file: another one may lay code out differently.
#[derive(Clone, Copy, Hash, Debug)]
struct Maker {
    len_bytes: u64,
    made_ns: u128,
}

impl Maker {
    fn ours() -> io::Result<Maker> {
        let us = std::fs::metadata("/proc/self/exe")?;
        let made_ns = us.modified()?.duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        Ok(Maker { len_bytes: us.len(), made_ns })
    }
}

/// All that a kept file is made from.
#[derive(Hash)]
struct Key<'a, T> {
    maker: &'a Maker,
    kind: Kind,
    /// The identity of the module's whole file.
    module: u128,
    recipe: &'a T,
}

/// How a module ran earlier: its profile, written.
#[derive(Hash)]
pub(crate) struct Earlier(Vec<u8>);

impl Earlier {
    /// Its profile, if it can be read.
    pub(crate) fn profile(&self) -> Option<Profile> {
        Recording::parse(&self.0).ok()?.into_profiles().pop()
    }
}

/// Where rewritten modules are kept: a folder of the user's, or one that goes with the session.
pub struct Store {
    cache: Cache,
    maker: Maker,
    /// The cache's folder, if it goes with the session.
    own: Option<tempfile::TempDir>,
    /// Where folders are made that go with the session.
    temporary: PathBuf,
    /// For what cannot be written into the cache.
    spare: Mutex<Option<tempfile::TempDir>>,
    /// How modules ran earlier, as it was when this session first asked: so that it has each in one form
    /// only.
    ran: Mutex<HashMap<u128, Option<Arc<Earlier>>>>,
}

impl Store {
    /// In `folder`, which is made and holds at most [`CACHE_LIMIT`] bytes; where there is none, or it
    /// cannot be made, in one of `temporary` that goes with the store.
    ///
    /// # Errors
    /// If no folder can be made.
    pub fn open(folder: Option<&Path>, temporary: &Path) -> Result<Store, StoreError> {
        let opened = folder.and_then(|folder| Cache::open(folder, CACHE_LIMIT).ok());
        let (cache, own) = match opened {
            Some(cache) => (cache, None),
            None => {
                let folder = tempfile::tempdir_in(temporary).map_err(StoreError::Temporary)?;
                (Cache::open(folder.path(), CACHE_LIMIT).map_err(StoreError::Open)?, Some(folder))
            }
        };
        let maker = Maker::ours().map_err(StoreError::Ourselves)?;
        let (temporary, spare) = (temporary.to_owned(), Mutex::new(None));
        Ok(Store { cache, maker, own, temporary, spare, ran: Mutex::default() })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        self.cache.folder()
    }

    /// Whether it goes with the session.
    pub fn is_temporary(&self) -> bool {
        self.own.is_some()
    }

    /// Removes what was not used longest. Nothing that the session uses may be needed any more.
    pub fn trim(&self) {
        if let Err(err) = self.cache.trim() {
            tracing::debug!("cannot trim {}: {err}", self.folder().display());
        }
    }

    /// What the file of this `kind` is called that is made from the `module` with this identity by `recipe`.
    pub(crate) fn name(&self, kind: Kind, module: u128, recipe: &impl Hash) -> String {
        let mut hasher = Xxh3::new();
        Key { maker: &self.maker, kind, module, recipe }.hash(&mut hasher);
        format!("{:032x}-{}", hasher.digest128(), kind.name())
    }

    /// The file of that name, if it is there and as it was kept.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        self.cache.find(name)
    }

    /// The value that was kept under that name.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        postcard::from_bytes(&self.cache.read(name)?).ok()
    }

    /// Keeps `value` for the next time, if it can be.
    pub(crate) fn write(&self, name: &str, value: &impl serde::Serialize) -> Result<(), StoreError> {
        let bytes = postcard::to_stdvec(value).map_err(StoreError::Encode)?;
        self.keep(name, &bytes);
        Ok(())
    }

    /// Keeps `bytes` for the next time; the file, if they could be.
    fn keep(&self, name: &str, bytes: &[u8]) -> Option<PathBuf> {
        match self.cache.put(name, bytes) {
            Ok(path) => Some(path),
            Err(err) => {
                tracing::debug!("{name} cannot be kept in {}: {err}", self.folder().display());
                None
            }
        }
    }

    /// A file with these `bytes`: for this session, if it cannot be kept.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, StoreError> {
        if let Some(path) = self.keep(name, bytes) {
            return Ok(path);
        }
        let mut spare = self.spare.lock().expect("nobody panics while holding it");
        let folder = match &mut *spare {
            Some(folder) => folder,
            none => none.insert(tempfile::tempdir_in(&self.temporary).map_err(StoreError::Temporary)?),
        };
        let path = folder.path().join(name);
        if !path.exists()
            && let Err(source) = std::fs::write(&path, bytes)
        {
            // Not a part of it.
            let _not_there = std::fs::remove_file(&path);
            return Err(StoreError::Write { path, source });
        }
        Ok(path)
    }

    /// How the `module` with this identity ran earlier.
    pub(crate) fn earlier(&self, module: u128) -> Option<Arc<Earlier>> {
        let mut ran = self.ran.lock().expect("nobody panics while holding it");
        let read = || Some(Arc::new(Earlier(self.cache.read(&self.name(Kind::Ran, module, &()))?)));
        ran.entry(module).or_insert_with(read).clone()
    }

    /// Whether there is a file of that name; it may be damaged.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.folder().join(name).is_file()
    }

    /// The catalogue of that name.
    pub(crate) fn catalogue(&self, name: &str) -> Option<Catalogue> {
        Catalogue::open(self.cache.open_unchecked(name)?)
    }

    /// Removes what is kept under that name, which is damaged, so that it is made the next time.
    pub(crate) fn remove(&self, name: &str) {
        self.cache.remove(name);
    }

    /// Keeps the catalogue of that name, which is made unless it is there.
    pub(crate) fn keep_catalogue(&self, name: &str, make: impl FnOnce() -> Catalogue) {
        if self.find(name).is_none() {
            // What cannot be kept is made again.
            let _kept = self.keep(name, &make().into_bytes());
        }
    }

    /// The source lines that are kept of the code of the `module` with this identity.
    pub(crate) fn lines(&self, module: u128) -> Option<KnownLines> {
        self.read(&self.name(Kind::Lines, module, &()))
    }

    /// Keeps all source lines that are known of the code of the `module` with this identity, so that they
    /// need not be looked for the next time.
    pub(crate) fn keep_lines(&self, module: u128, lines: &KnownLines) {
        let name = self.name(Kind::Lines, module, &());
        let bytes = postcard::to_stdvec(lines).expect("all of it has a form");
        if let Err(err) = self.cache.replace(&name, &bytes) {
            // They are looked for again.
            tracing::debug!("{name} cannot be kept in {}: {err}", self.folder().display());
        }
    }

    /// Whether it is known how the `module` with this identity ran earlier.
    pub(crate) fn knows_run(&self, module: u128) -> bool {
        self.earlier(module).is_some()
    }

    /// Keeps how the `module` with this identity ran, for the places of its counters or events the next time;
    /// if it ran so long that it is worth it to rewrite it once more.
    pub(crate) fn keep_run(&self, module: u128, is_long: bool, profile: &Profile) {
        if is_long && !self.is_temporary() && !self.knows_run(module) {
            let name = self.name(Kind::Ran, module, &());
            self.keep(&name, &Recording::of([profile.clone()]).write());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_by_all_that_it_is_made_from_and_by_nothing_less() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let open = || Store::open(Some(folder.path()), folder.path()).expect("opened");
        let (first, second) = (open(), open());
        let name = |store: &Store, kind, module, recipe: (u32, &str)| store.name(kind, module, &recipe);
        let kept = name(&first, Kind::Meaning, 7, (1, "a"));
        first.write(&kept, &(3u64, "value".to_owned())).expect("encoded");
        let again = name(&second, Kind::Meaning, 7, (1, "a"));
        assert_eq!(second.read::<(u64, String)>(&again), Some((3, "value".to_owned())));
        for (kind, module, recipe) in [
            (Kind::Library, 7, (1, "a")),
            (Kind::Meaning, 8, (1, "a")),
            (Kind::Meaning, 7, (2, "a")),
            (Kind::Meaning, 7, (1, "b")),
        ] {
            assert_ne!(name(&second, kind, module, recipe), kept, "{kind:?} {module} {recipe:?}");
        }
    }

    #[test]
    fn the_cache_is_listed_and_cleared_and_what_is_not_ours_stays() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::open(Some(folder.path()), folder.path()).expect("opened");
        for (kind, bytes) in [(Kind::Library, 10), (Kind::Library, 20), (Kind::Ran, 5)] {
            store.keep(&store.name(kind, bytes, &()), &vec![0; usize::try_from(bytes).expect("few")]);
        }
        let others = ["notes", "0123-exe", "0123456789abcdef0123456789abcdef-notes"];
        others.iter().for_each(|name| std::fs::write(folder.path().join(name), "mine").expect("written"));
        let rows = cached(folder.path()).expect("read");
        let rows: Vec<_> = rows.iter().map(|row| (row.what, row.n_files, row.len_bytes)).collect();
        // Each has a checksum of eight bytes.
        assert_eq!(rows, [("rewritten libraries", 2, 46), ("how modules ran", 1, 13)]);
        assert_eq!(clear_cache(folder.path()).expect("cleared"), (3, 59));
        assert!(others.iter().all(|name| folder.path().join(name).exists()));
        assert_eq!(cached(&folder.path().join("nowhere")).expect("read"), []);
    }

    #[test]
    fn how_a_module_ran_is_kept_once_and_only_of_long_runs() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let open = || Store::open(Some(folder.path()), folder.path()).expect("opened");
        let mut ran = Profile::default();
        ran.blocks.insert(program::Va(0x1000), 5);
        open().keep_run(7, false, &ran);
        assert!(!open().knows_run(7));
        open().keep_run(7, true, &ran);
        open().keep_run(7, true, &Profile::default());
        let earlier = open().earlier(7).and_then(|earlier| earlier.profile()).expect("it was kept");
        assert_eq!(earlier.blocks, ran.blocks);
        // One that goes with the session learns nothing.
        let temporary = Store::open(None, folder.path()).expect("opened");
        temporary.keep_run(7, true, &ran);
        assert!(!temporary.knows_run(7));
    }
}
