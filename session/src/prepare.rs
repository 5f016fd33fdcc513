//! All modules that a program has at its start, made ready before it runs.
//!
//! ```text
//!  Target ─Modules::of→ Modules ─Prepared::new→ Prepared ─arena→ Arena
//! ```

use crate::choose::{ModuleFilter, NoneWanted, is_system_file};
use crate::messages::{Warning, with_causes};
use crate::module::{self, Instrumentation, Instrumented, LinkerSites, ModuleError, Recipe};
use crate::store::Store;
use live::launch::{SegmentsFile, Swap};
use live::{Arena, Target};
use measure::Placement;
use probe::{RewriteError, Segments};
use program::Image;
use rayon::prelude::*;
use std::io;
use std::path::{Path, PathBuf};

/// Why a program is not made ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// One of its modules, without which it cannot run.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The program that says which libraries it will load.
    #[error("cannot run {}", linker.display())]
    Linker {
        /// Its ld.so.
        linker: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Nothing of it is wanted.
    #[error(transparent)]
    NoneWanted(#[from] NoneWanted),
    /// Nothing of it can be counted.
    #[error("{what}")]
    Nothing {
        /// Why.
        what: String,
    },
    /// There is no memory to share with it.
    #[error("cannot get memory for the {what}")]
    Memory {
        /// What would be in it.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl PrepareError {
    /// What can be done about it, where we know, but for what helps whatever was tried.
    pub fn hint(&self) -> Option<String> {
        match self {
            PrepareError::Module(err) => err.hint().map(str::to_owned),
            PrepareError::NoneWanted(none) => Some(none.hint()),
            PrepareError::Memory { source, .. } if crate::messages::kernel_hint(source).is_none() => Some(
                "they are in memory that is shared: raise the limits of the length of files and of addresses \
                 (`ulimit -f`, `ulimit -v`)"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// The modules of a program, as they are known before it starts.
pub struct Modules {
    /// Its executable.
    image: Image,
    executable: PathBuf,
    /// The libraries that it will load.
    libraries: Vec<PathBuf>,
    linker: LinkerSites,
    /// Names that some of it defines ([`Recipe::interposed`]).
    interposed: Vec<Box<str>>,
    /// What is to be known of them.
    pub warnings: Vec<Warning>,
}

impl Modules {
    /// Of `target`.
    ///
    /// # Errors
    /// If its executable cannot be counted, or its ld.so cannot be run.
    pub fn of(store: &Store, target: &Target) -> Result<Modules, PrepareError> {
        let (image, warning) = module::load(&target.executable)?;
        let (libraries, sites) = match &image.interpreter {
            Some(linker) => (
                target
                    .libraries(linker)
                    .map_err(|source| PrepareError::Linker { linker: PathBuf::from(linker), source })?,
                LinkerSites::of(store, linker)?,
            ),
            None => Default::default(),
        };
        let interposed = interposed(&image, &libraries);
        let executable = target.executable.clone();
        let warnings = warning.into_iter().collect();
        Ok(Modules { image, executable, libraries, linker: sites, interposed, warnings })
    }
}

/// Names of functions of the C library that count for plans, and that the executable of `image` or one of its
/// `libraries` defines that are not the C library's: calls of such a name from any of its modules may be
/// theirs. Sorted.
pub(crate) fn interposed(image: &Image, libraries: &[PathBuf]) -> Vec<Box<str>> {
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

/// An executable made ready.
pub(crate) struct ReadyProgram {
    /// Its code and its tables.
    pub(crate) segments: Segments,
    /// A file that holds them, if there is one.
    pub(crate) file: Option<SegmentsFile>,
    /// What is done to its ld.so.
    pub(crate) linker: LinkerSites,
}

/// Modules that are left as they are, and why.
pub(crate) type Refused = Vec<(PathBuf, String)>;

/// A program whose modules are made ready.
pub struct Prepared<'a> {
    pub(crate) store: &'a Store,
    pub(crate) wanted: &'a ModuleFilter,
    pub(crate) asked: Instrumentation,
    interposed: Vec<Box<str>>,
    /// The path of its executable.
    pub(crate) path: PathBuf,
    /// The identity of that.
    pub(crate) key: u128,
    pub(crate) executable: ReadyProgram,
    pub(crate) modules: Vec<Instrumented>,
    /// The libraries that it gets in place of others.
    pub(crate) swaps: Vec<Swap>,
    pub(crate) refused: Refused,
    /// The libraries that are not wanted, its ld.so last.
    pub(crate) left_out: Vec<PathBuf>,
}

impl<'a> Prepared<'a> {
    /// Of `modules` those that are `wanted`, with what is `asked` for in them.
    ///
    /// # Errors
    /// If the executable cannot be rewritten, nothing would be counted, or one of the modules would be
    /// disturbed by what is counted in others. A library that cannot be rewritten is left as it is.
    pub fn new(
        store: &'a Store,
        wanted: &'a ModuleFilter,
        modules: Modules,
        asked: Instrumentation,
    ) -> Result<Prepared<'a>, PrepareError> {
        let Modules { image, executable: path, libraries, linker, interposed, .. } = modules;
        let is_wanted = wanted.has_executable(&path);
        let interpreter = image.interpreter.clone();
        let is_linker = |path: &PathBuf| {
            interpreter.as_ref().is_some_and(|linker| linker.file_name() == path.file_name())
        };
        let placement = asked.placement;
        let recipe =
            Recipe { asked: &asked, placement, turn: 0, interposed: &interposed, is_executable: false };
        let placement = if is_wanted { asked.placement } else { Placement::Nowhere };
        let of_executable = Recipe { placement, is_executable: true, ..recipe };
        let ((segments, file), exe) = module::executable(store, &path, image, of_executable)?;
        if !asked.follows {
            wanted.refuse_none(&path, &libraries)?;
        }
        let key = exe.key;
        let mut modules = if is_wanted { vec![exe] } else { Vec::new() };
        let (ours, others): (Vec<PathBuf>, Vec<_>) = libraries
            .into_par_iter()
            .partition(|path| wanted.has_library(path) && asked.concerns(path, path));
        // What is named by its place from here is given when it is asked for: the program may ask from
        // elsewhere. But whether it can be counted is known now.
        let (ours, from_here): (Vec<PathBuf>, Vec<_>) = ours.into_iter().partition(|path| path.is_absolute());
        if !asked.placement.has_streams() {
            made_ready(store, &[], from_here, recipe)?;
        }
        let (libraries, refused) = made_ready(store, &modules, ours, recipe)?;
        let mut left_out: Vec<PathBuf> = others.iter().filter(|path| !is_linker(path)).cloned().collect();
        left_out.extend(interpreter);
        let mut swaps = Vec::new();
        for (library, given) in libraries {
            swaps.push(Swap { asked: library.path.clone(), given });
            modules.push(library);
        }
        for file in others.into_iter().filter(|path| asked.follows && is_system_file(path)) {
            swaps.extend(module::asking(store, &file)?.map(|given| Swap { asked: file, given }));
        }
        let executable = ReadyProgram { segments, file, linker };
        Ok(Prepared {
            store,
            wanted,
            asked,
            interposed,
            path,
            key,
            executable,
            modules,
            swaps,
            refused,
            left_out,
        })
    }

    /// How modules are rewritten.
    pub(crate) fn recipe(&self) -> Recipe<'_> {
        let (asked, interposed) = (&self.asked, &*self.interposed);
        Recipe { asked, placement: asked.placement, turn: 0, interposed, is_executable: false }
    }

    /// The memory that the program shares with us, with room for all of its modules.
    ///
    /// # Errors
    /// If there is not enough.
    pub(crate) fn arena(&self) -> Result<Arena, PrepareError> {
        if self.asked.placement.has_streams() {
            let keys: Vec<u128> = self.modules.iter().map(|module| module.key).collect();
            let memory = |source| PrepareError::Memory { what: "events", source };
            return Arena::for_events(&keys).map_err(memory);
        }
        let keys: Vec<(u128, usize)> = self.modules.iter().map(|m| (m.key, m.notes.n_words())).collect();
        let needs_much = self.asked.follows || self.asked.callees;
        Arena::create(&keys, needs_much).map_err(|source| PrepareError::Memory { what: "counters", source })
    }
}

/// All of `paths` that can be counted beside `others`, each with the file that is given in its place; and why
/// not the rest.
fn made_ready(
    store: &Store,
    others: &[Instrumented],
    paths: Vec<PathBuf>,
    recipe: Recipe<'_>,
) -> Result<(Vec<(Instrumented, PathBuf)>, Refused), ModuleError> {
    let make = |path: &Path, turn| module::library(store, path, path, Recipe { turn, ..recipe });
    let made: Vec<_> = paths.into_par_iter().map(|path| (make(&path, 0), path)).collect();
    let (mut ready, mut refused): (Vec<(Instrumented, PathBuf)>, _) = (Vec::new(), Vec::new());
    for (result, path) in made {
        let is_apart = |(one, _): &(Instrumented, PathBuf)| {
            one.is_told_apart(others.iter().chain(ready.iter().map(|c| &c.0)))
        };
        match result.and_then(|made| module::told_apart(made, is_apart, |turn| make(&path, turn))) {
            Ok(made) => ready.push(made),
            Err(err @ ModuleError::Rewrite(RewriteError::UsesGs { .. })) => return Err(err),
            Err(err) => refused.push((path, with_causes(&err))),
        }
    }
    Ok((ready, refused))
}
