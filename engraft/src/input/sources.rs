//! Lines of source files, where these are at hand.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most bytes of a file that is looked into.
const MOST_BYTES: u64 = 64 << 20;

/// Source files that were looked for.
pub struct Sources {
    files: HashMap<String, Vec<String>>,
    /// What was changed later says something else now.
    until: Option<SystemTime>,
    changed: Vec<String>,
    /// The folders that files are looked for in; anywhere, if there is nothing.
    within: Option<Vec<PathBuf>>,
}

impl Sources {
    /// Those of what the file at `path` is about, a binary or a recording.
    pub fn of(path: &Path) -> Sources {
        let until = path.metadata().and_then(|meta| meta.modified()).ok();
        Sources { files: HashMap::new(), until, changed: Vec::new(), within: None }
    }

    /// Those below one of these folders alone: debug information of others may name any file.
    pub fn within(self, folders: &[PathBuf]) -> Sources {
        let real = folders.iter().filter_map(|folder| folder.canonicalize().ok());
        Sources { within: Some(real.collect()), ..self }
    }

    /// Whether the file at `path` may be read.
    fn may_be_read(&self, path: &Path) -> bool {
        // Where links and `..` lead is what counts.
        let is_below = |real: &Path| self.within.iter().flatten().any(|folder| real.starts_with(folder));
        self.within.is_none() || path.canonicalize().is_ok_and(|real| is_below(&real))
    }

    /// Those that were asked for and not looked into, for they were changed later.
    pub fn changed(&self) -> &[String] {
        &self.changed
    }

    /// Line `n` of `file`, from 1, without the spaces around it; `None` if it is not there, or empty.
    pub fn line(&mut self, file: &str, n: u32) -> Option<&str> {
        if !self.files.contains_key(file) {
            let path = Path::new(file);
            if !self.may_be_read(path) {
                return None;
            }
            let changed = path.metadata().and_then(|meta| meta.modified()).ok();
            let is_later = changed.zip(self.until).is_some_and(|(changed, until)| changed > until);
            if is_later {
                self.changed.push(file.to_owned());
            }
            self.files.insert(file.to_owned(), if is_later { Vec::new() } else { lines(path) });
        }
        let lines = self.files.get(file)?;
        let at = usize::try_from(n).ok()?.checked_sub(1)?;
        lines.get(at).map(String::as_str).filter(|line| !line.is_empty())
    }
}

/// The lines of a file; none if it cannot be read.
fn lines(file: &Path) -> Vec<String> {
    // What is no file may never end.
    let is_one = file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= MOST_BYTES);
    let bytes = if is_one { std::fs::read(file).unwrap_or_default() } else { Vec::new() };
    let plain = |line: &str| line.trim().replace(char::is_control, " ");
    String::from_utf8_lossy(&bytes).lines().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_below_the_folders_are_read_wherever_links_lead() {
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        let of = |name: &str| at(name).display().to_string();
        std::fs::create_dir_all(at("own/deep")).expect("made");
        std::fs::write(at("own/deep/a.c"), "own\n").expect("written");
        std::fs::write(at("secret"), "secret\n").expect("written");
        std::os::unix::fs::symlink(at("secret"), at("own/link.c")).expect("made");
        let mut sources = Sources::of(&at("none")).within(&[at("own")]);
        assert_eq!(sources.line(&of("own/deep/a.c"), 1), Some("own"));
        assert_eq!(sources.line(&of("own/deep/../deep/a.c"), 1), Some("own"));
        for other in ["secret", "own/link.c", "own/../secret", "own/none.c"] {
            assert_eq!(sources.line(&of(other), 1), None, "{other}");
        }
        assert_eq!(Sources::of(&at("none")).line(&of("secret"), 1), Some("secret"));
    }
}
