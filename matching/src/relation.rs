//! The [`Matching`]: a weighted relation between two programs, each pair with how it was found.
//!
//! Invariant: functions are matched one to one, except parts that were inlined in one build only; a new
//! block may have several old ones (its shares tell how much of each it carries), and an old block several
//! new ones. Pairs are sorted by new; of several old blocks of one new block, the best stands first.
//!
//! Source: BMAT, sections 2 and 3. We differ in that a match is a weighted relation across functions, since
//! inlining differs.

pub(crate) mod map;
pub(crate) mod report;

use program::{BlockId, FuncId};
use std::fmt;

/// How two functions were found to be each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FunctionMethod {
    /// A person said so.
    Pinned,
    /// The same symbol.
    Name,
    /// The same symbol but for decorations (`.isra.0`, Rust's hash).
    BareName,
    /// The same hierarchical name (`ns::class::f`), other parameters.
    HierarchicalName,
    /// The same hash of all blocks, at this fuzziness level.
    Hash(Level),
    /// Similar names, and most blocks match.
    SimilarName,
    /// Neighbours in the call graph, or the same imports, strings and constants.
    Neighbours,
    /// Between two matched functions, in the file's order.
    Order,
}

/// A fuzziness level (BMAT, 3.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Everything counts.
    L0,
    /// Without address offsets; one class of registers is one, dependencies kept.
    L1,
    /// Level 1, last instruction only.
    L1a,
    /// Level 1 without distances from the function's start.
    L2,
    /// Without immediates and names; both classes of registers are one; directions in place of distances.
    L3,
    /// Level 3, last instruction only.
    L3a,
    /// Opcodes and kinds of operands.
    L4,
    /// Groups of opcodes.
    L5,
}

/// How two blocks were found to be each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BlockMethod {
    /// A person said so.
    Pinned,
    /// The same hash and the only candidates for each other.
    Unique(Level),
    /// The same hash, and neighbours are matched.
    Propagated(Level),
    /// By position in the control flow.
    ControlFlow,
    /// By alignment of the two functions' sequences of blocks.
    Aligned,
    /// Inlined in one of the builds.
    Inlined,
}

/// How two data objects were found to be each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DataMethod {
    /// The same symbol.
    Name,
    /// The same contents, relocated words left out.
    Hash,
    /// Between matched neighbours, of similar size.
    Position,
    /// Referred to by matched code at the same place.
    Reference,
}

impl fmt::Display for FunctionMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FunctionMethod::Pinned => "pinned",
            FunctionMethod::Name => "name",
            FunctionMethod::BareName => "bare-name",
            FunctionMethod::HierarchicalName => "hierarchical-name",
            FunctionMethod::Hash(level) => return write!(f, "hash-{level}"),
            FunctionMethod::SimilarName => "similar-name",
            FunctionMethod::Neighbours => "neighbours",
            FunctionMethod::Order => "order",
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::L0 => "0",
            Level::L1 => "1",
            Level::L1a => "1a",
            Level::L2 => "2",
            Level::L3 => "3",
            Level::L3a => "3a",
            Level::L4 => "4",
            Level::L5 => "5",
        })
    }
}

impl fmt::Display for BlockMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BlockMethod::Pinned => "pinned",
            BlockMethod::Unique(level) => return write!(f, "unique-{level}"),
            BlockMethod::Propagated(level) => return write!(f, "propagated-{level}"),
            BlockMethod::ControlFlow => "control-flow",
            BlockMethod::Aligned => "aligned",
            BlockMethod::Inlined => "inlined",
        })
    }
}

impl fmt::Display for DataMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DataMethod::Name => "name",
            DataMethod::Hash => "hash",
            DataMethod::Position => "position",
            DataMethod::Reference => "reference",
        })
    }
}

/// Two functions that are each other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FunctionMatch {
    /// In the old build.
    pub old: FuncId,
    /// In the new build.
    pub new: FuncId,
    /// How it was found.
    pub method: FunctionMethod,
    /// How likely it is right: `0.0..=1.0`.
    pub confidence: f32,
}

/// An old block whose executions a new block carries.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BlockMatch {
    /// In the old build.
    pub old: BlockId,
    /// In the new build.
    pub new: BlockId,
    /// How it was found.
    pub method: BlockMethod,
    /// How likely it is right: `0.0..=1.0`.
    pub confidence: f32,
    /// Which share of the old block's executions goes through the new one, as far as is known: 0.0..=1.0.
    pub share: f32,
    /// The new block has only a part of the old one's flow (BMAT, figure 3): between none and all of it.
    pub partial: bool,
}

/// Two data objects that are each other: indexes into [`program::Program::data`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DataMatch {
    /// In the old build.
    pub old: usize,
    /// In the new build.
    pub new: usize,
    /// How it was found.
    pub method: DataMethod,
}

/// A partial one-to-one relation between two tables, by index, looked up from both sides.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OneToOne {
    to_new: Vec<Option<u32>>,
    to_old: Vec<Option<u32>>,
}

impl OneToOne {
    /// Nothing related yet, between `n_old` and `n_new` things.
    pub fn new(n_old: usize, n_new: usize) -> OneToOne {
        OneToOne { to_new: vec![None; n_old], to_old: vec![None; n_new] }
    }
    /// What `old` became; `None` if nothing, or if there is no such index.
    pub fn new_of(&self, old: usize) -> Option<usize> {
        self.to_new.get(old).copied().flatten().map(|i| i as usize)
    }
    /// What `new` was; `None` if nothing, or if there is no such index.
    pub fn old_of(&self, new: usize) -> Option<usize> {
        self.to_old.get(new).copied().flatten().map(|i| i as usize)
    }
    /// Relates them, if both are free; else leaves everything and answers no.
    ///
    /// # Panics
    /// If an index is outside its table.
    pub fn insert(&mut self, old: usize, new: usize) -> bool {
        if self.to_new[old].is_some() || self.to_old[new].is_some() {
            return false;
        }
        self.to_new[old] = u32::try_from(new).ok();
        self.to_old[new] = u32::try_from(old).ok();
        true
    }
    /// Frees `new` and what it was.
    ///
    /// # Panics
    /// If `new` is outside its table.
    pub fn remove(&mut self, new: usize) {
        if let Some(old) = self.to_old[new].take() {
            self.to_new[old as usize] = None;
        }
    }
    /// All pairs, by new, as (old, new).
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.to_old.len()).filter_map(|new| Some((self.old_of(new)?, new)))
    }
}

/// Which parts of two programs are each other.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Matching {
    /// Functions, by new.
    pub functions: Vec<FunctionMatch>,
    /// Blocks, by new; of the old blocks of one new block, the one it carries most of first.
    pub blocks: Vec<BlockMatch>,
    /// Data, by new.
    pub data: Vec<DataMatch>,
}
