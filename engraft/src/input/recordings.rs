//! Recordings that nobody gave a name: what they are called, and which is the newest.
//!
//! `count` writes `PROGRAM.count.engraft`, `trace` writes `PROGRAM.trace`, where we are; what an instrumented
//! program leaves is `PROGRAM.engraft`. The one before stays, with `.old` before the end of its name, as
//! perf.data does.
//!
//! In a name that is given, `%p` is the number of our process, `%q{NAME}` the environment's NAME, `%%` a per
//! cent sign, as valgrind has it. The processes of an MPI program each have a name of their own, by their
//! rank.
//!
//! Invariant: nothing is replaced that is no recording.

use super::source::{is_recording, is_trace};
use crate::output::{self, Hinted};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where a recording goes.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// What the one becomes that is there, where no name was given.
    old: Option<PathBuf>,
}

/// How the names of recordings end that get theirs from us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Of `count`.
    Counts,
    /// Of `trace`.
    Trace,
    /// Of `values`.
    Values,
    /// Of `sample`.
    Samples,
}

impl Ending {
    fn parts(self) -> (&'static str, &'static str) {
        match self {
            Ending::Counts => (".count", ".engraft"),
            Ending::Trace => ("", ".trace"),
            Ending::Values => (".values", ".engraft"),
            Ending::Samples => (".sample", ".engraft"),
        }
    }
}

impl Place {
    /// Where `given` says, else under a name of its own, for a recording of the program at `command`.
    ///
    /// # Errors
    /// If something is there that is not to be replaced.
    pub fn new(given: Option<&Path>, ending: Ending, command: &Path) -> anyhow::Result<Place> {
        let (start, end) = ending.parts();
        let named = |between: &str| {
            let mut name = command.file_name().unwrap_or_default().to_owned();
            [start, between, end].into_iter().for_each(|part| name.push(part));
            PathBuf::from(name)
        };
        let place = match given {
            Some(path) => Place { path: expanded(path)?, old: None },
            None => match rank() {
                Some(rank) => {
                    Place { path: named(&format!(".{rank}")), old: Some(named(&format!(".{rank}.old"))) }
                }
                None => Place { path: named(""), old: Some(named(".old")) },
            },
        };
        output::refuse_replacing(&place.path, &[command])?;
        [Some(&place.path), place.old.as_ref()]
            .into_iter()
            .flatten()
            .try_for_each(|path| replaceable(path))?;
        Ok(place)
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes room for a new one, where the name is ours. What cannot be moved is replaced.
    pub fn make_room(&self) {
        if let Some(old) = self.old.as_ref().filter(|_| self.path.is_file()) {
            let _stays = std::fs::rename(&self.path, old);
        }
    }

    /// Puts the one before back in its place: there is no new one.
    pub fn give_up(&self) {
        output::discard(&self.path);
        if let Some(old) = &self.old {
            let _was_none = std::fs::rename(old, &self.path);
        }
    }
}

/// What MPI's launchers and Slurm call the number of a process among those of its program.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];

/// Our number among the processes of an MPI program, if we are one.
fn rank() -> Option<u32> {
    RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// `path` with what stands for something else filled in.
///
/// # Errors
/// If it names a variable that is not set, or a per cent sign stands before something else.
fn expanded(path: &Path) -> anyhow::Result<PathBuf> {
    let Some(text) = path.to_str().filter(|text| text.contains('%')) else { return Ok(path.to_owned()) };
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    while let Some(part) = parts.next() {
        if let Some(rest) = part.strip_prefix('p') {
            out += &std::process::id().to_string();
            out += rest;
        } else if let Some((name, rest)) = part.strip_prefix("q{").and_then(|rest| rest.split_once('}')) {
            let value = std::env::var(name).map_err(|_| {
                let what = format!("-o {text}: the environment has no {name}");
                Hinted::new(what, "`%q{NAME}` in a file's name stands for the variable NAME")
            })?;
            out += &value;
            out += rest;
        } else if part.is_empty() {
            out.push('%');
            out += parts.next().unwrap_or_default();
        } else {
            let hint =
                "`%p` is the number of our process, `%q{NAME}` the variable NAME, `%%` a per cent sign";
            return Err(Hinted::new(format!("-o {text}: %{part} stands for nothing"), hint).into());
        }
    }
    Ok(PathBuf::from(out))
}

/// Refuses what is a file, has something in it, and is no recording.
fn replaceable(path: &Path) -> anyhow::Result<()> {
    let is_something = path.metadata().is_ok_and(|there| there.is_file() && there.len() > 0);
    if is_something && output::is_own_file(path) && !is_recording(path) && !is_trace(path) {
        let what = format!("{} is no recording, and is not replaced", path.display());
        return Err(Hinted::new(what, "name another file with -o, or remove it first").into());
    }
    Ok(())
}

/// The newest recordings in this folder, the newest first.
pub fn newest() -> Vec<PathBuf> {
    let has_name = |path: &PathBuf| path.extension().is_some_and(|end| end == OsStr::new("engraft"));
    let made = |path: PathBuf| Some((path.metadata().ok()?.modified().ok()?, path));
    let there = std::fs::read_dir(".").into_iter().flatten();
    let named = there.filter_map(|entry| Some(PathBuf::from(entry.ok()?.file_name()))).filter(has_name);
    let mut found: Vec<(SystemTime, PathBuf)> =
        named.filter(|path| is_recording(path)).filter_map(made).collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// The newest recording in this folder; says which it is.
///
/// # Errors
/// If there is none.
pub fn the_newest() -> anyhow::Result<PathBuf> {
    let found = newest().into_iter().next().ok_or_else(|| none("no recording"))?;
    tell(&format!("{}, the newest recording here", found.display()));
    Ok(found)
}

/// The two newest recordings in this folder, the older one first; says which they are.
///
/// # Errors
/// If there are not two.
pub fn the_newest_two() -> anyhow::Result<(PathBuf, PathBuf)> {
    let mut found = newest().into_iter();
    let (Some(second), Some(first)) = (found.next(), found.next()) else {
        return Err(none("no two recordings"));
    };
    let (before, after) = (first.display(), second.display());
    tell(&format!("{before} and {after}, the two newest recordings here"));
    Ok((first, second))
}

fn none(what: &str) -> anyhow::Error {
    let hint = "make one: `engraft count PROGRAM`, or name what is to be looked at; `--help` says more";
    Hinted::new(format!("there is {what} in this folder"), hint).into()
}

/// Says what was taken, for people: data have its name in them.
fn tell(what: &str) {
    let mode = output::talk_mode();
    if !mode.quiet && !mode.json {
        output::say(format_args!("engraft: {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_something_else_is_filled_in() {
        let said = |path: &str| expanded(Path::new(path)).map(|path| path.display().to_string());
        let path = std::env::var("PATH").expect("it is set");
        assert_eq!(said("a.engraft").ok(), Some("a.engraft".to_owned()));
        assert_eq!(said("a-%p.b").ok(), Some(format!("a-{}.b", std::process::id())));
        assert_eq!(said("%q{PATH}.b").ok(), Some(format!("{path}.b")));
        assert_eq!(said("100%%p%%").ok(), Some("100%p%".to_owned()));
        let refused = |path: &str| said(path).map_err(|err| err.to_string()).expect_err("it is refused");
        assert_eq!(refused("%q{NO SUCH}"), "-o %q{NO SUCH}: the environment has no NO SUCH");
        assert_eq!(refused("a%d"), "-o a%d: %d stands for nothing");
    }
}
