//! What a matching is made with: every pass can be switched off, so that its worth can be measured.
//!
//! Invariant: names of passes are stable; `match --without PASS` and the table of ablations use them.

use crate::relation::map::Map;
use program::{BlockId, FuncId};
use std::collections::BTreeSet;
use std::fmt;

macro_rules! passes {
    ($($(#[doc = $what:literal])+ $variant:ident = $name:literal,)*) => {
        /// A pass of the matching that can be switched off.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Pass {
            $($(#[doc = $what])+ $variant,)*
        }

        impl Pass {
            /// All of them, in the order in which they run.
            pub const ALL: &[Pass] = &[$(Pass::$variant,)*];

            /// Its stable name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Pass::$variant => $name,)*
                }
            }

            /// What it does, in a line.
            pub fn what(self) -> &'static str {
                match self {
                    $(Pass::$variant => concat!($($what),+).trim_ascii(),)*
                }
            }
        }
    };
}

passes! {
    /// Data of the same symbol are each other.
    DataNames = "data-names",
    /// Data of the same contents, relocated words left out, are each other.
    DataHashes = "data-hashes",
    /// Data between matched neighbours and of similar size are each other.
    DataPosition = "data-position",
    /// Data that matched code refers to at the same place are each other.
    DataReferences = "data-references",
    /// Functions of the same symbol are each other.
    Names = "names",
    /// Functions of the same symbol but for decorations are each other.
    BareNames = "bare-names",
    /// Functions of the same hierarchical name and other parameters are each other.
    HierarchicalNames = "hierarchical-names",
    /// Functions of the same hash are each other, at levels 0, 1, 3, 1a, 5, 3a.
    Hashes = "hashes",
    /// Functions of similar names whose blocks match are each other.
    SimilarNames = "similar-names",
    /// Functions that use the same imports, strings, constants and data are each other.
    Features = "features",
    /// Functions called by, or calling, matched functions at the same place are each other.
    Neighbours = "neighbours",
    /// Functions between matched functions in the file's order are each other.
    Order = "order",
    /// Functions of the same code and bare name are told apart by whom they call and who calls them.
    Twins = "twins",
    /// Blocks at the same place of two tables of labels are matched.
    DispatchTables = "dispatch-tables",
    /// Blocks are matched by hashes that hold their neighbours' hashes.
    BlockRefinement = "block-refinement",
    /// Blocks that fit best by content, neighbours and order are matched.
    BlockAlignment = "block-alignment",
    /// Blocks are matched by hash at levels 1, 3, 2, 1a, 4, 3a, 5.
    BlockHashes = "block-hashes",
    /// Matches are propagated to neighbours of the same hash.
    BlockPropagation = "block-propagation",
    /// Old blocks of which the new compiler made one are found.
    MergedBlocks = "merged-blocks",
    /// Old blocks whose branch stands in a block of its own now, behind a new one, are found in both.
    SplitBlocks = "split-blocks",
    /// Blocks are matched by their position in the control flow.
    ControlFlow = "control-flow",
    /// Functions that matched blocks call at the same place, and that nothing else claims, are each other.
    CallSites = "call-sites",
    /// Blocks of functions that were inlined in one build only are found.
    Inlined = "inlined",
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A pass of this name does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no pass is named {name:?}; there are {}", Pass::ALL.iter().map(|p| p.name()).collect::<Vec<_>>().join(", "))]
pub struct UnknownPass {
    /// What was asked for.
    pub name: String,
}

impl std::str::FromStr for Pass {
    type Err = UnknownPass;
    fn from_str(name: &str) -> Result<Pass, UnknownPass> {
        let found = Pass::ALL.iter().find(|p| p.name() == name);
        found.copied().ok_or_else(|| UnknownPass { name: name.to_owned() })
    }
}

/// Which passes run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    off: BTreeSet<Pass>,
    pins: Vec<(FuncId, FuncId)>,
    forbids: BTreeSet<(FuncId, FuncId)>,
    block_pins: Vec<(BlockId, BlockId)>,
    block_forbids: BTreeSet<(BlockId, BlockId)>,
}

impl Options {
    /// Every pass.
    pub fn all() -> Options {
        Options::default()
    }
    /// These, without `pass`.
    #[must_use]
    pub fn without(mut self, pass: Pass) -> Options {
        self.off.insert(pass);
        self
    }
    /// These, with what a person pinned and forbade in `map`, which must be of the same two programs.
    #[must_use]
    pub fn with_map(mut self, map: &Map) -> Options {
        self.pins.extend_from_slice(&map.pins);
        self.forbids.extend(map.forbids.iter().copied());
        self.block_pins.extend_from_slice(&map.block_pins);
        self.block_forbids.extend(map.block_forbids.iter().copied());
        self
    }
    /// Functions that are each other whatever the passes say.
    pub fn pins(&self) -> &[(FuncId, FuncId)] {
        &self.pins
    }
    /// Whether two functions may be matched.
    pub fn allows(&self, old: FuncId, new: FuncId) -> bool {
        self.forbids.is_empty() || !self.forbids.contains(&(old, new))
    }
    /// Blocks that are each other whatever the passes say.
    pub fn block_pins(&self) -> &[(BlockId, BlockId)] {
        &self.block_pins
    }
    /// Blocks that may not be matched.
    pub fn block_forbids(&self) -> &BTreeSet<(BlockId, BlockId)> {
        &self.block_forbids
    }
    /// Whether `pass` runs.
    pub fn has(&self, pass: Pass) -> bool {
        !self.off.contains(&pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_is_found_by_its_name_and_switched_off_alone() {
        for &pass in Pass::ALL {
            assert_eq!(pass.name().parse(), Ok(pass));
            let options = Options::all().without(pass);
            let off: Vec<_> = Pass::ALL.iter().filter(|p| !options.has(**p)).collect();
            assert_eq!(off, [&pass]);
        }
    }
}
