//! What the events of a module mean: its functions, their blocks, where points and entries are.
//!
//! Each module has numbers of its own for them ([`ModuleCode::base`]). Between two events control goes where
//! only one way leads to what the second tells (`decode::region`).
#![warn(clippy::indexing_slicing)]

use crate::ids::BlockId;
use serde::{Deserialize, Serialize};

/// A module, as far as its events need it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ModuleCode {
    /// What its file is known by.
    pub key: u32,
    /// Its file.
    pub path: String,
    /// Its functions; what is called elsewhere by number is one of these.
    pub functions: Vec<Function>,
    /// Functions of other modules that it calls by name.
    pub imports: Vec<String>,
    /// Its entries: function and block.
    pub entries: Vec<(u32, BlockId)>,
    /// What is added to the numbers of its entries and points, so that those of modules do not overlap.
    pub base: u32,
    /// Its points, from 1.
    pub points: Vec<PointPlace>,
    /// Which block of which function the moved code is of, from some distance from its start on, in order;
    /// `None`: none.
    pub places: Vec<(u32, Option<(u32, BlockId)>)>,
}

/// A function.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its blocks; none if it is not moved.
    pub blocks: Vec<Block>,
}

/// A block.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Block {
    /// Where it starts.
    pub at: u64,
    /// The point at its start; 0: none.
    pub point: u32,
    /// The point where its branch leaves the function, if it may, and the entry that it comes to, as of
    /// [`End::Tail`].
    pub leaves: Option<(u32, Option<u32>)>,
    /// Whether exceptions come here.
    pub lands: bool,
    /// Whether control may come here from any depth.
    pub is_far: bool,
    /// Whether the process may end in it, by a system call.
    pub may_end: bool,
    /// Whether its jump may lead to other places of the function than those that are known.
    pub is_open: bool,
    /// The stub that it leaves the function for, as of [`Site`].
    pub stub: u32,
    /// Its calls, in order.
    pub calls: Vec<Site>,
    /// How it ends.
    pub end: End,
}

impl ModuleCode {
    /// The numbers of its entries and points.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        let n = u32::try_from(self.entries.len().max(self.points.len() + 1)).unwrap_or(u32::MAX);
        self.base..self.base.saturating_add(n)
    }
}

impl Block {
    /// Where it may go in its function, each with the point on the way.
    pub fn ways(&self) -> impl Iterator<Item = (BlockId, u32)> {
        let ways = if let End::To(ways) = &self.end { ways.as_slice() } else { &[] };
        ways.iter().copied()
    }

    /// The first call from the `from`th on that something tells of.
    pub(crate) fn next_call(&self, from: u32) -> Option<u32> {
        let mut calls = (0..).zip(&self.calls).skip(from as usize);
        calls.find(|(_, site)| site.told != SiteTold::Nothing).map(|(n, _)| n)
    }
}

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Site {
    /// The entry that it comes to, if it is sure that it comes to one that is recorded.
    pub entry: Option<u32>,
    /// The import that it calls, from 1; 0: none.
    pub import: u32,
    /// The stub that it calls that by, a function from 1, of one block; 0: none. Stubs have no events.
    pub stub: u32,
    /// The point behind it; 0: none.
    pub point: u32,
    /// What tells of it.
    pub told: SiteTold,
}

/// What tells that control came to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum SiteTold {
    /// An event at the entry that it comes to, or behind it.
    #[default]
    Event,
    /// The first event of what it comes to, or of what that calls: `entry` is sure, and says nothing.
    Inside,
    /// Nothing: it goes on behind it without an event, whatever it does. It calls nothing that is recorded,
    /// or, if `entry` is sure, a function of one way without events.
    Nothing,
}

/// How a block ends.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum End {
    /// In one of these blocks of the function, each with the point on the way there; 0: none.
    To(Vec<(BlockId, u32)>),
    /// By a return.
    Return,
    /// By a jump out of the function: to this entry, if it is sure that it comes to one that is recorded.
    Tail(Option<u32>),
    /// Not at all.
    #[default]
    Stop,
}

/// A place of which an event tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PointPlace {
    /// The start of this block of this function.
    Start(u32, BlockId),
    /// Behind this call of this block of this function.
    Behind(u32, BlockId, u32),
    /// This block of this function leaves it by its branch.
    Leaves(u32, BlockId),
    /// On the way from this block of this function to that.
    Way(u32, BlockId, BlockId),
}

impl PointPlace {
    /// The function.
    pub fn function(self) -> u32 {
        match self {
            PointPlace::Start(f, _)
            | PointPlace::Behind(f, ..)
            | PointPlace::Leaves(f, _)
            | PointPlace::Way(f, ..) => f,
        }
    }
}
