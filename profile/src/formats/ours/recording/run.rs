//! Which run a recording is of.
//!
//! Of the environment, only variables that change what a program does below its own code are kept: others
//! hold secrets.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A run.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables of its environment: those that [`Run::keeps`] has.
    pub environment: BTreeMap<String, String>,
    /// When it started, in nanoseconds since 1970 (UTC).
    pub start_ns: u64,
    /// How long it ran, in nanoseconds.
    pub duration_ns: u64,
    /// How it ended.
    pub end: Option<End>,
    /// Where a signal ended it, if one did.
    pub died: Option<Died>,
    /// Files of the program that were not counted.
    pub left_out: Vec<LeftOut>,
    /// Other programs that it started, which were not counted.
    pub others: Option<Others>,
    /// How many threads counted.
    pub n_threads: Option<u64>,
    /// What was done to processes that ran before, if it is of such: `start_ns` is when they were attached
    /// to, and `duration_ns` how long that lasted.
    #[serde(deserialize_with = "one_or_several")]
    pub attached: Vec<Attached>,
    /// Where it ran.
    pub machine: Machine,
    /// The version of ours that recorded it.
    pub version: String,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// With this status.
    Exit(i32),
    /// By the signal of this number.
    Signal(i32),
}

/// Where a signal ended a program. Of where, nothing is there that is not known.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Died {
    /// The signal's number.
    pub signal: i32,
    /// What it is called: `SIGSEGV`.
    pub name: String,
    /// The file of the instruction that the thread was at.
    pub module: Option<String>,
    /// The instruction: a virtual address as in that file.
    pub at: Option<u64>,
    /// The function.
    pub function: Option<String>,
    /// How many bytes behind its start.
    pub offset: Option<u64>,
    /// The source file.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
}

/// A file of a program that was not counted, since that was not asked for.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    /// The file.
    pub module: String,
    /// The option that counts it, too; `None` if none does.
    pub option: Option<String>,
}

/// A process that ran before somebody attached to it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Attached {
    /// Its number.
    pub pid: i32,
    /// How long all its threads stood still when it was attached to, in nanoseconds, and when it was given
    /// back.
    pub pauses_ns: [u64; 2],
    /// How many places of old code led to moved code.
    pub n_sites: u64,
    /// How many threads there were when it was attached to.
    pub n_threads: u64,
    /// How many functions were moved.
    pub n_moved: u64,
    /// Functions that were not, and why.
    pub stayed: Vec<Stayed>,
    /// How many threads were in counted functions' code when it was attached to, and when it was given back.
    pub open: [u64; 2],
    /// What it took of memory, in kB: before, while it was observed, and after; as far as it is known.
    pub resident: [Option<Resident>; 3],
    /// Why something of ours is in it still; `None` if nothing is.
    pub left: Option<String>,
}

/// Memory that a process takes, in kB.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Resident {
    /// What is in memory of what it has mapped.
    pub all: u64,
    /// What of that was written.
    pub dirty: u64,
}

/// What was done to processes: earlier recordings are of one, or of none.
fn one_or_several<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Attached>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Known {
        Several(Vec<Attached>),
        One(Box<Attached>),
        None(()),
    }
    Ok(match Known::deserialize(from)? {
        Known::Several(all) => all,
        Known::One(one) => vec![*one],
        Known::None(()) => Vec::new(),
    })
}

/// A function that was not moved.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Stayed {
    /// The file it is in.
    pub module: String,
    /// Its address.
    pub at: u64,
    /// What it is called.
    pub function: String,
    /// Why.
    pub why: String,
}

/// Other programs that were started, and not counted.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Others {
    /// How many, where that is known.
    pub n: Option<u64>,
    /// Whether these may be more.
    pub is_least: bool,
    /// Of the processor time of all, what they took that were waited for, `0.0..=1.0`.
    pub share: Option<f64>,
}

/// A machine.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor, as it calls itself.
    pub cpu: String,
    /// How many processors are online.
    pub n_cpus: u32,
}

impl Run {
    /// Whether the variable `name` is kept: of the dynamic linker, the C library, OpenMP, and of the locale.
    pub fn keeps(name: &str) -> bool {
        name.starts_with("LD_")
            || name.starts_with("OMP_")
            || name.starts_with("LC_")
            || matches!(name, "GLIBC_TUNABLES" | "LANG" | "LANGUAGE")
    }

    /// How long it ran.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.duration_ns)
    }
}
