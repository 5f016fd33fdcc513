//! Processes that come while others are observed: what these start, and those that have a name that is meant.
//!
//! What a process forks has our code in it and counts with it; here are those that have become a program of
//! their own since. Such a one is observed once its dynamic linker has mapped all that it needs.

use live::attach;
use std::collections::HashMap;
use std::path::PathBuf;

/// Which processes have come, and are observed already.
pub struct Newcomers {
    name: Option<String>,
    known: Vec<i32>,
    /// Those that were there before, and are not meant.
    others: Vec<i32>,
    /// Those that are not ready yet: which files were mapped in them the last time.
    seen: HashMap<i32, Vec<PathBuf>>,
    n_missed: usize,
}

impl Newcomers {
    /// Those that come beside the ones `known`: which they start, or which are called `name`.
    pub fn new(known: &[i32], name: Option<&str>) -> Newcomers {
        let mut newcomers = Newcomers {
            name: name.map(str::to_owned),
            known: known.to_vec(),
            others: Vec::new(),
            seen: HashMap::new(),
            n_missed: 0,
        };
        newcomers.others = newcomers.there();
        newcomers
    }

    /// Those that are ready since the last time this was asked.
    pub fn ready(&mut self) -> Vec<i32> {
        let mut ready = Vec::new();
        for pid in self.there() {
            let mappings = attach::mappings(pid).unwrap_or_default();
            let files: Vec<PathBuf> = mappings.into_iter().filter_map(|mapping| mapping.path).collect();
            if !files.is_empty() && self.seen.get(&pid) == Some(&files) {
                self.seen.remove(&pid);
                self.known.push(pid);
                ready.push(pid);
            } else {
                self.seen.insert(pid, files);
            }
        }
        ready
    }

    /// Those that are there, are not known, and have none of our code. Those that were seen and are gone by
    /// now are missed.
    fn there(&mut self) -> Vec<i32> {
        let parents = self.known.iter().chain(self.seen.keys());
        let mut all: Vec<i32> = parents.flat_map(|pid| live::children_of(*pid)).collect();
        all.extend(self.name.iter().flat_map(|name| live::processes_named(name)));
        all.sort_unstable();
        all.dedup();
        let is_new = |pid: &i32| !self.known.contains(pid) && !self.others.contains(pid);
        all.retain(|pid| is_new(pid) && !attach::is_attached(*pid));
        let n_before = self.seen.len();
        self.seen.retain(|pid, _| all.contains(pid));
        self.n_missed += n_before - self.seen.len();
        all
    }

    /// How many came and were never ready.
    pub fn n_missed(&self) -> usize {
        self.n_missed + self.seen.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Newcomers;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn who_comes_is_ready_once_it_is_the_same_at_two_looks() {
        let own = i32::try_from(std::process::id()).expect("small");
        let mut newcomers = Newcomers::new(&[own], None);
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it starts");
        let pid = i32::try_from(child.id()).expect("small");
        std::thread::park_timeout(Duration::from_millis(100));
        // Other tests may have children, too.
        assert!(!newcomers.ready().contains(&pid));
        assert!(newcomers.ready().contains(&pid));
        assert!(!newcomers.ready().contains(&pid), "once");
        assert!(!Newcomers::new(&[own], None).ready().contains(&pid), "it was there before");
        drop(child.stdin.take());
        assert!(child.wait().expect("it is ours").success());
        let mut newcomers = Newcomers::new(&[own], None);
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it starts");
        newcomers.ready();
        let n = newcomers.n_missed();
        drop(child.stdin.take());
        assert!(child.wait().expect("it is ours").success());
        newcomers.ready();
        assert!(n >= 1 && newcomers.n_missed() >= 1, "it was seen once");
    }
}
