//! Rewritten libraries on disk, by identity: the second run finds them made.
//!
//! Invariant: a file in the cache is whole: it is written beside its place and moved there. What was not used longest goes first.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A folder of rewritten modules.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    limit_bytes: u64,
}

impl Cache {
    /// In `folder`, which is made, holding at most `limit_bytes`.
    ///
    /// # Errors
    /// The kernel's, if the folder cannot be made.
    pub fn open(folder: &Path, limit_bytes: u64) -> io::Result<Cache> {
        fs::create_dir_all(folder)?;
        Ok(Cache { folder: folder.to_owned(), limit_bytes })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of that name, if it is there.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        let path = self.folder.join(name);
        let file = fs::File::options().append(true).open(&path).ok()?;
        // Its age decides who goes first.
        let _unknown = file.set_modified(SystemTime::now());
        Some(path)
    }

    /// The file of that name; `make` gives its bytes if it is not there.
    ///
    /// # Errors
    /// Those of `make`, or the kernel's.
    pub fn get<E: From<io::Error>>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<PathBuf, E> {
        if let Some(path) = self.find(name) {
            return Ok(path);
        }
        let path = self.folder.join(name);
        let bytes = make()?;
        let beside = self.folder.join(format!(".{name}.{}", std::process::id()));
        fs::write(&beside, bytes)?;
        fs::rename(&beside, &path)?;
        Ok(path)
    }

    /// Removes what was not used longest until the rest is within the limit.
    ///
    /// # Errors
    /// The kernel's, if the folder cannot be read.
    pub fn trim(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = fs::read_dir(&self.folder)?
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let meta = entry.metadata().ok()?;
                Some((meta.modified().ok()?, meta.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut total: u64 = files.iter().map(|f| f.1).sum();
        for (_, len, path) in files {
            if total <= self.limit_bytes {
                break;
            }
            // A program that still has it mapped keeps it.
            fs::remove_file(path)?;
            total -= len;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_there_is_not_made_again_and_the_oldest_goes_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(folder.path(), 10).expect("made");
        let get =
            |name: &str, bytes: &[u8]| cache.get::<io::Error>(name, || Ok(bytes.to_vec())).expect("made");
        for (i, name) in ["a", "b"].into_iter().enumerate() {
            let path = get(name, b"123456");
            let at = SystemTime::now() - Duration::from_secs(100 - 10 * i as u64);
            fs::File::options().append(true).open(path).expect("there").set_modified(at).expect("set");
        }
        assert_eq!(fs::read(get("a", b"other")).expect("there"), b"123456");
        cache.trim().expect("trimmed");
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).expect("there").map(|e| e.expect("read").file_name()).collect();
        left.sort();
        // `a` was used again just now.
        assert_eq!(left, ["a"]);
    }
}
