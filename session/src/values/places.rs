//! Where the code of a run's modules was: moved, given in place of files, or as the files have it.

use crate::module::Recipe;
use crate::run::Maps;
use crate::store::Store;
use probe::Room;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What moved code was made of.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// The file.
    pub(crate) path: &'a Path,
    /// Its identity.
    pub(crate) key: u128,
    /// How it was rewritten.
    pub(crate) recipe: Recipe<'a>,
    /// Where what is new of it was to be.
    pub(crate) room: Room,
}

/// The code of a run's modules.
pub(crate) struct Places<'a> {
    /// Where it is kept how modules ran.
    pub(crate) store: &'a Store,
    /// Moved code that is in no file.
    pub(crate) moved: Vec<(Range<u64>, Source<'a>)>,
    /// Files that the program got in place of others.
    pub(crate) given: Vec<(PathBuf, Source<'a>)>,
    /// What was mapped.
    pub(crate) maps: &'a Maps,
}

impl<'a> Places<'a> {
    /// The start of the moved code in no file that has `at` in it, and what it was made of.
    pub(super) fn moved(&self, at: u64) -> Option<(u64, Source<'a>)> {
        let found = self.moved.iter().find(|(range, _)| range.contains(&at));
        found.map(|(range, source)| (range.start, *source))
    }

    /// What the file at `path` was given in place of.
    pub(super) fn given(&self, path: &Path) -> Option<Source<'a>> {
        let is_it =
            |given: &PathBuf| given.as_path() == path || given.canonicalize().is_ok_and(|g| g == path);
        self.given.iter().find(|(given, _)| is_it(given)).map(|(_, source)| *source)
    }
}
