//! Files in the making: beside their place, and gone with us, whatever ends us.
//!
//! Invariant: who writes one holds a lock on it (flock), from before anybody could find it without. So one
//! without a lock has lost its writer, to SIGKILL, say, and is taken away by who writes next in that folder.
//! Where there are no locks, nothing is.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::NamedTempFile;

/// How their names start; random letters and digits follow.
const PREFIX: &str = ".engraft-";
const N_RANDOM: usize = 6;

/// What is to be taken away when a signal ends us.
static OURS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn ours() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file beside the place that it can take; it goes away unless it does.
pub struct Temporary {
    file: Option<NamedTempFile>,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let name = self.file.take().map(|file| file.path().to_owned());
        name.map(|name| ours().remove(&name));
    }
}

impl Temporary {
    /// In `folder`, with these rights. What others left there is taken away.
    ///
    /// # Errors
    /// The kernel's, if it cannot be made.
    pub fn new(folder: &Path, mode: u32) -> io::Result<Temporary> {
        take_away_abandoned(folder);
        // tempfile wraps the reason in the file's name, which says nothing to the user: keep the bare one.
        let mut reason = None;
        let made = tempfile::Builder::new().prefix(PREFIX).rand_bytes(N_RANDOM).make_in(folder, |name| {
            ours().insert(name.to_owned());
            let made = locked(name, mode);
            if made.is_err() {
                ours().remove(name);
            }
            made.inspect_err(|err| reason = err.raw_os_error())
        });
        made.map(|file| Temporary { file: Some(file) })
            .map_err(|err| reason.map_or(err, io::Error::from_raw_os_error))
    }

    /// The file itself: through its guard, an error would have the temporary name in it.
    pub fn as_file(&self) -> &File {
        self.file.as_ref().expect("it is taken by the last use").as_file()
    }

    /// Moves it to `path`.
    ///
    /// # Errors
    /// The kernel's; then it is gone.
    pub fn persist(mut self, path: &Path) -> io::Result<()> {
        let file = self.file.take().expect("it is taken by the last use");
        let name = file.path().to_owned();
        let moved = file.persist(path).map(drop).map_err(|err| err.error);
        ours().remove(&name);
        moved
    }
}

/// Makes the file and locks it. Whoever takes away what was abandoned may come between: then it is another
/// one's name, and the next is tried.
fn locked(name: &Path, mode: u32) -> io::Result<File> {
    let file = File::options().write(true).create_new(true).mode(mode).open(name)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::AlreadyExists.into()),
        // No locks here: nobody takes it for abandoned.
        Err(TryLockError::Error(_)) | Ok(()) => {}
    }
    if file.metadata()?.nlink() == 0 { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(file) }
}

/// Has a folder go when a signal ends us, with what is in it.
pub fn goes_with_us(folder: &Path) {
    ours().insert(folder.to_owned());
}

/// Takes away what is not finished: a signal ends us. Who would make more waits for the end.
pub fn take_away() {
    let ours = ours();
    for path in ours.iter() {
        let _gone = match path.is_dir() {
            true => std::fs::remove_dir_all(path),
            false => std::fs::remove_file(path),
        };
    }
    std::mem::forget(ours);
}

/// Takes away files in the making whose writer is no more.
fn take_away_abandoned(folder: &Path) {
    let is_ours = |name: &str| {
        let rest = name.strip_prefix(PREFIX).unwrap_or_default();
        rest.len() == N_RANDOM && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(is_ours) || !entry.file_type().is_ok_and(|t| t.is_file()) {
            continue;
        }
        let path = entry.path();
        let Ok(file) = File::options().write(true).open(&path) else { continue };
        let is_the_same = || Some(file.metadata().ok()?.ino() == path.symlink_metadata().ok()?.ino());
        if file.try_lock().is_ok() && is_the_same() == Some(true) {
            let _gone = std::fs::remove_file(&path);
        }
    }
}
