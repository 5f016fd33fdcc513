//! What a run's loops did: how often they were entered, how often they went round, and how long that took.
//!
//! Source: VPROF, section 2.1: instances, iterations and cycles of loops.

use crate::values::{Buckets, Distribution};
use serde::{Deserialize, Serialize};

/// Ticks of an iteration are kept in parts of a tick: so many are one.
pub const PARTS_OF_TICK: u64 = 1024;

/// A loop of the code. An *instance* is one time that it is entered and left.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Loop {
    /// Its function, as it is reported.
    pub function: String,
    /// The path of the module.
    pub module: String,
    /// The address of its header there: of several, the first.
    pub header: u64,
    /// How deep it lies in others, 1 for the outermost.
    pub depth: u32,
    /// The file and line of its header, where that is known.
    pub line: Option<(String, u32)>,
    /// How often it was entered, and left by an edge.
    pub n_instances: u64,
    /// How often it was left otherwise: by an exception that lands farther out, `longjmp`, or the end of its
    /// thread.
    pub n_left: u64,
    /// How often it was being run when its process ended.
    pub n_open: u64,
    /// Instances in which an inner one of the same loop, by recursion, was left so that its iterations are
    /// not known: the instance may have fewer than is said.
    pub n_uncertain: u64,
    /// How often each instance went through its header.
    pub iterations: Buckets,
    /// The same, number by number, as long as they are not too many.
    pub trip_counts: Distribution,
    /// Ticks of the time stamp counter that each instance took, less what reading it costs.
    pub ticks: Option<Ticks>,
}

/// How long the instances of a loop took.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Ticks {
    /// In ticks.
    pub instances: Buckets,
    /// For each iteration, in parts of a tick ([`PARTS_OF_TICK`]).
    pub iterations: Buckets,
}

/// What it costs to read the time stamp counter where loops are entered and left, measured on the machine
/// just before the run, by the same code.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stamps {
    /// What an instance that takes no time would be said to take, in ticks; this is subtracted.
    pub offset: u64,
    /// What an instance costs whoever runs it, in ticks: subtracted from the loops around it.
    pub cost: u64,
    /// The least step of the counter, in ticks.
    pub step: u64,
    /// Ticks in a second.
    pub per_second: f64,
    /// Ticks that a multiplication of known latency takes, divided by its cycles: an estimate of ticks in a
    /// cycle of the core.
    pub per_cycle: f64,
    /// By how much that may be wrong.
    pub per_cycle_error: f64,
    /// Whether the counter is read so that nothing else runs meanwhile.
    pub are_serialised: bool,
}
