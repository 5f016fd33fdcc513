//! Rewritten libraries on disk, by identity: the second run finds them made.
//!
//! Invariant: a file in the cache is whole: it is written beside its place and moved there, and ends with a
//! checksum of what stands before, by which it is seen if a full disk, or somebody, has changed it since:
//! then it is none. What was not used longest goes first.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

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

    /// The file of that name, if it is there and as it was put. Behind what was put stands a checksum, which
    /// ELF files do not mind.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        let (path, mut file, len) = self.open_file(name)?;
        let mut hasher = Xxh3::new();
        let mut buffer = vec![0; 1 << 17];
        let mut left = len;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let n = file.read(buffer.get_mut(..most)?).ok().filter(|n| *n > 0)?;
            hasher.update(buffer.get(..n)?);
            left -= n as u64;
        }
        let mut end = [0; END_LEN];
        file.read_exact(&mut end).ok()?;
        (end == hasher.digest().to_le_bytes()).then_some(path)
    }

    /// What was put under that name, if it is there and as it was.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let (_, mut file, len) = self.open_file(name)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let end = bytes.split_off(usize::try_from(len).ok().filter(|len| *len <= bytes.len())?);
        (end == xxh3_64(&bytes).to_le_bytes()).then_some(bytes)
    }

    /// The file of that name, for who can tell whether it is as it was put.
    pub fn open_unchecked(&self, name: &str) -> Option<fs::File> {
        self.open_file(name).map(|(_, file, _)| file)
    }

    /// Removes the file of that name, if it is there and can be.
    pub fn remove(&self, name: &str) {
        let _not_there = fs::remove_file(self.folder.join(name));
    }

    /// The file of that name, and how much of it was put.
    fn open_file(&self, name: &str) -> Option<(PathBuf, fs::File, u64)> {
        let path = self.folder.join(name);
        let file = fs::File::open(&path).ok()?;
        let about = file.metadata().ok().filter(fs::Metadata::is_file)?;
        // Its age decides who goes first.
        let _unknown = file.set_modified(SystemTime::now());
        Some((path, file, about.len().checked_sub(END_LEN as u64)?))
    }

    /// Makes the file of that name, if it is not there as it is to be.
    ///
    /// # Errors
    /// The kernel's. Nothing is left behind.
    pub fn put(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        self.find(name).map_or_else(|| self.replace(name, bytes), Ok)
    }

    /// Makes the file of that name, in place of the one that may be there.
    ///
    /// # Errors
    /// The kernel's. Nothing is left behind, and what was there stays.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        static N: AtomicU64 = AtomicU64::new(0);
        let path = self.folder.join(name);
        // Threads may make the same one at once.
        let n = N.fetch_add(1, Ordering::Relaxed);
        let beside = self.folder.join(format!(".{name}.{}.{n}", std::process::id()));
        let written = fs::File::create(&beside).and_then(|mut file| {
            file.write_all(bytes)?;
            file.write_all(&xxh3_64(bytes).to_le_bytes())
        });
        let made = written.and_then(|()| fs::rename(&beside, &path));
        if made.is_err() {
            let _not_there = fs::remove_file(&beside);
        }
        made.map(|()| path)
    }

    /// What is in `folder`, with what is in the making, by name; nothing, if there is no such folder.
    ///
    /// # Errors
    /// The kernel's, if the folder cannot be read.
    pub fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
        let there = match fs::read_dir(folder) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            there => there?,
        };
        let entry = |entry: fs::DirEntry| {
            let about = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            let name = entry.file_name().into_string().ok()?;
            Some(Entry { path: entry.path(), name, len_bytes: about.len() })
        };
        let mut entries: Vec<_> = there.filter_map(|there| entry(there.ok()?)).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Removes what was not used longest until the rest is within the limit. What somebody writes just now
    /// stays, and so does what cannot be removed.
    ///
    /// # Errors
    /// The kernel's, if the folder cannot be read.
    pub fn trim(&self) -> io::Result<()> {
        let now = SystemTime::now();
        let mut files: Vec<(SystemTime, u64, PathBuf)> = fs::read_dir(&self.folder)?
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let meta = entry.metadata().ok()?;
                let made = meta.modified().ok()?;
                let is_in_the_making = entry.file_name().as_encoded_bytes().starts_with(b".")
                    && now.duration_since(made).is_ok_and(|age| age < ABANDONED);
                (!is_in_the_making).then(|| (made, meta.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut total: u64 = files.iter().map(|f| f.1).sum();
        for (_, len, path) in files {
            if total <= self.limit_bytes {
                break;
            }
            // A program that still has it mapped keeps it. Another process may have removed it first.
            match fs::remove_file(path) {
                Err(err) if err.kind() != io::ErrorKind::NotFound => {}
                _ => total -= len,
            }
        }
        Ok(())
    }
}

/// A file in a cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Where it is.
    pub path: PathBuf,
    /// What it is called there.
    pub name: String,
    /// Its length, with the checksum.
    pub len_bytes: u64,
}

/// Length of the checksum.
const END_LEN: usize = 8;

/// Who has not finished a file for so long will not.
const ABANDONED: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_made_again_and_the_oldest_goes_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(folder.path(), 10 + 2 * END_LEN as u64).expect("made");
        let get = |name: &str, bytes: &[u8]| cache.put(name, bytes).expect("made");
        for (i, name) in ["a", "b"].into_iter().enumerate() {
            let path = get(name, b"123456");
            let at = SystemTime::now() - Duration::from_secs(100 - 10 * i as u64);
            fs::File::options().append(true).open(path).expect("there").set_modified(at).expect("set");
        }
        get("a", b"other");
        assert_eq!(cache.read("a").as_deref(), Some(&b"123456"[..]));
        // Of another process, just now and long ago.
        for (name, age) in [(".c.1", 0), (".d.1", 100_000)] {
            fs::write(folder.path().join(name), b"123456").expect("written");
            let at = SystemTime::now() - Duration::from_secs(age);
            let file = fs::File::options().append(true).open(folder.path().join(name)).expect("there");
            file.set_modified(at).expect("set");
        }
        cache.trim().expect("trimmed");
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).expect("there").map(|e| e.expect("read").file_name()).collect();
        left.sort();
        // `a` was used again just now.
        assert_eq!(left, [".c.1", "a"]);
    }

    #[test]
    fn what_was_changed_is_made_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(folder.path(), 1000).expect("made");
        let path = cache.put("a", b"123456").expect("made");
        let whole = fs::read(&path).expect("there");
        let flipped = (0..whole.len()).map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            bytes
        });
        let cut = (0..whole.len()).map(|len| whole[..len].to_vec());
        for damaged in flipped.chain(cut).chain([[&whole[..], b"x"].concat()]) {
            fs::write(&path, &damaged).expect("written");
            assert!(cache.find("a").is_none() && cache.read("a").is_none(), "{damaged:?}");
            assert_eq!(cache.put("a", b"123456").expect("made"), path);
            assert_eq!((cache.find("a"), cache.read("a")), (Some(path.clone()), Some(b"123456".to_vec())));
        }
    }

    #[test]
    fn nothing_is_left_of_what_cannot_be_made() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(folder.path(), 10).expect("made");
        // A folder that is not empty cannot be replaced by a file; but `find` must not take it for one.
        fs::create_dir_all(folder.path().join("a").join("b")).expect("made");
        assert!(cache.put("a", b"1").is_err());
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
    }
}
