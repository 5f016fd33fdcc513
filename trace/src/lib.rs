//! Control-flow traces: stored, compressed, indexed, and searched without unpacking. Knows numbers of
//! functions and blocks, not ELF.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod balance;
pub mod ids;
pub mod symbol;

pub mod file;
pub mod recording;

pub mod chunks;
pub mod decode;
pub mod grammar;

pub mod search;
pub mod trace;

pub mod call_tree;
pub mod diff;
pub mod export;

#[cfg(test)]
mod tests;

pub use balance::{Balance, Unbalanced};
pub use call_tree::costs::{Cost, Costs};
pub use call_tree::windows::{Window, Windows};
pub use call_tree::{CallTree, TreeError};
pub use decode::region;
pub use export::{chrome, folded};
pub use file::flow::FlowGraphs;
pub use file::import::{ImportError, Imported, Stores};
pub use file::names::Names;
pub use file::times::Times;
pub use file::{ReadError, flow, import, names, plain, times};
pub use grammar::pack::Maker;
pub use ids::{BlockId, FuncId, ThreadId};
pub use recording::sample;
pub use search::automaton::Automaton;
pub use search::expand::Line;
pub use search::path::{NotAPath, Path};
pub use search::{Found, Position, Scheme, Want};
pub use search::{ngrams, path, scan};
pub use symbol::{Cause, Step, Symbol};
pub use trace::part::Part;
pub use trace::{SearchError, Stats, Thread, Trace};
