//! Lines of source files, where these are at hand.

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

/// The most bytes of a file that is looked into.
const MOST_BYTES: u64 = 64 << 20;

/// Source files that were looked for.
pub struct Sources {
    files: HashMap<String, Vec<String>>,
    /// What was changed later says something else now.
    until: Option<SystemTime>,
    changed: Vec<String>,
}

impl Sources {
    /// Those of what the file at `path` is about, a binary or a recording.
    pub fn of(path: &Path) -> Sources {
        let until = path.metadata().and_then(|meta| meta.modified()).ok();
        Sources { files: HashMap::new(), until, changed: Vec::new() }
    }

    /// Those that were asked for and not looked into, for they were changed later.
    pub fn changed(&self) -> &[String] {
        &self.changed
    }

    /// Line `n` of `file`, from 1, without the spaces around it; `None` if it is not there, or empty.
    pub fn line(&mut self, file: &str, n: u32) -> Option<&str> {
        if !self.files.contains_key(file) {
            let path = Path::new(file);
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
