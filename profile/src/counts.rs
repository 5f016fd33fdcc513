//! The [`Profile`]: how often functions, blocks, edges and calls of one image ran.
//!
//! Invariant: unknown is not zero. A count that is not in a table was not measured; a zero in it was
//! measured (or inferred) to be zero. Addresses are starts of blocks and functions of that image, as
//! [`program::Program`] has them; never a process's, never ids.

mod by_address;

pub use by_address::ByAddress;

use program::{Image, ImageId, Va};
use std::collections::BTreeMap;
use std::fmt;

/// Which image a profile is of, as far as its source says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImageRef {
    /// File name, for messages.
    pub name: String,
    /// Identity by content, where the source or the binary gave it.
    pub id: Option<ImageId>,
    /// GNU build-id.
    pub build_id: Option<Vec<u8>>,
}

impl ImageRef {
    /// The reference to `image`, with its identity.
    pub fn of(image: &Image) -> ImageRef {
        ImageRef { name: image.name.clone(), id: Some(image.id), build_id: image.build_id.clone() }
    }
}

/// Whether counts are executions or samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Exactness {
    /// Every execution was counted.
    #[default]
    Exact,
    /// Samples, or counts scaled up from samples.
    Sampled,
    /// Carried from another build, or completed by inference.
    Inferred,
}

/// Two blocks, by their starts, with control going from the first to the second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Edge {
    /// Start of the block that it leaves.
    pub from: Va,
    /// Start of the block that it enters.
    pub to: Va,
}

/// Where a call led that left the image.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Beyond {
    /// To this address of the image of this name.
    Image(String, Va),
    /// To this address of the process, of no image that is known.
    Process(u64),
    /// That is not known.
    Unknown,
}

/// What could not be taken over from a source, in its own words; with the count that it stood for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The record, or a summary of many.
    pub what: String,
    /// Why.
    pub why: String,
    /// Its executions or samples.
    pub count: u64,
}

/// Counts that may be off, most since threads may have been stopped in the middle of a block: the least and
/// the most of each. What is not in here is exact.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Intervals {
    /// How many threads that may be, in all images together.
    pub n_stopped: u64,
    /// Of entries.
    pub entries: BTreeMap<Va, (u64, u64)>,
    /// Of blocks.
    pub blocks: BTreeMap<Va, (u64, u64)>,
    /// Of edges.
    pub edges: BTreeMap<Edge, (u64, u64)>,
    /// Of calls that follow from blocks (`calls`): behind one that may not have come back. In no file: they
    /// follow again.
    pub calls: BTreeMap<(Va, Va), (u64, u64)>,
}

impl Intervals {
    /// Whether all counts are exact.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.blocks.is_empty() && self.edges.is_empty() && self.calls.is_empty()
    }
}

/// A count, the least and the most that it may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// As far as is known: what it is if no thread was stopped in the middle of a block.
    pub n: u64,
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
}

impl Count {
    /// A count that is exact.
    pub fn exact(n: u64) -> Count {
        Count { n, least: n, most: n }
    }

    /// A count that is anywhere `between` the least and the most; exact without an interval.
    pub fn of(n: u64, between: Option<&(u64, u64)>) -> Count {
        let (least, most) = between.copied().unwrap_or((n, n));
        Count { n, least, most }
    }

    /// The least and the most, if it may be off.
    pub fn between(self) -> Option<(u64, u64)> {
        (self.least != self.most).then_some((self.least, self.most))
    }

    /// Whether it cannot be the same as `other`.
    pub fn differs(self, other: Count) -> bool {
        self.least > other.most || other.least > self.most
    }

    /// The sum of both; so are its least and its most.
    pub fn plus(self, other: Count) -> Count {
        Count {
            n: self.n.saturating_add(other.n),
            least: self.least.saturating_add(other.least),
            most: self.most.saturating_add(other.most),
        }
    }

    /// The count without `n` of it, none at the least.
    pub fn less(self, n: u64) -> Count {
        let without = |all: u64| all.saturating_sub(n);
        Count { n: without(self.n), least: without(self.least), most: without(self.most) }
    }

    /// The count of what runs `n` times as often.
    pub fn times(self, n: u64) -> Count {
        Count {
            n: self.n.saturating_mul(n),
            least: self.least.saturating_mul(n),
            most: self.most.saturating_mul(n),
        }
    }
}

impl fmt::Display for Count {
    /// `5`, or `5..6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.between() {
            Some((least, most)) => write!(f, "{least}..{most}"),
            None => write!(f, "{}", self.n),
        }
    }
}

/// Counts of one image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// Of which image.
    pub image: ImageRef,
    /// Executions or samples.
    pub exactness: Exactness,
    /// Times that a function was entered from outside, by its entry.
    pub entries: ByAddress,
    /// Executions of a block, by its start; of samples of instructions, the samples in it.
    pub blocks: ByAddress,
    /// Executions of an edge inside a function.
    pub edges: BTreeMap<Edge, u64>,
    /// Mispredictions of the branch behind an edge, where the source has them.
    pub mispredicts: BTreeMap<Edge, u64>,
    /// Executions of a call or tail call: (calling instruction, entered address).
    pub calls: BTreeMap<(Va, Va), u64>,
    /// Executions of calls whose target is unknown or in another image, by calling instruction.
    pub calls_out: BTreeMap<Va, u64>,
    /// Of those, executions of calls of which it is known where they led: by calling instruction and place.
    pub calls_beyond: BTreeMap<(Va, Beyond), u64>,
    /// Those of these counts that may be off.
    pub intervals: Intervals,
}

impl Profile {
    /// Executions of the block that starts at `at`; `None` if they are not known.
    pub fn block(&self, at: Va) -> Option<Count> {
        self.blocks.get(&at).map(|&n| Count::of(n, self.intervals.blocks.get(&at)))
    }

    /// Executions of an edge; `None` if they are not known.
    pub fn edge(&self, edge: Edge) -> Option<Count> {
        self.edges.get(&edge).map(|&n| Count::of(n, self.intervals.edges.get(&edge)))
    }

    /// How often the function at `at` was entered from outside; `None` if that is not known.
    pub fn entered(&self, at: Va) -> Option<Count> {
        self.entries.get(&at).map(|&n| Count::of(n, self.intervals.entries.get(&at)))
    }

    /// Whether its counts are samples of instructions, summed up by block: a long block has more of them than
    /// a short one that ran as often. Samples of branches are not.
    pub fn is_of_points(&self) -> bool {
        self.exactness == Exactness::Sampled
            && self.edges.is_empty()
            && self.entries.is_empty()
            && self.calls.is_empty()
    }

    /// Sum of all counts but the mispredictions.
    pub fn total(&self) -> u64 {
        let others = self.calls_out.values().chain(self.edges.values()).chain(self.calls.values());
        let by_address = self.entries.sum().saturating_add(self.blocks.sum());
        others.fold(by_address, |sum, &n| sum.saturating_add(n))
    }
}
