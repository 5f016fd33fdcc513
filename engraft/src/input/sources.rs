//! Lines of source files, where these are at hand.

use std::collections::HashMap;
use std::path::Path;

/// The most bytes of a file that is looked into.
const MOST_BYTES: u64 = 64 << 20;

/// Source files that were looked for.
#[derive(Default)]
pub struct Sources(HashMap<String, Vec<String>>);

impl Sources {
    /// Line `n` of `file`, from 1, without the spaces around it; `None` if it is not there, or empty.
    pub fn line(&mut self, file: &str, n: u32) -> Option<&str> {
        let lines = self.0.entry(file.to_owned()).or_insert_with(|| lines(Path::new(file)));
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
