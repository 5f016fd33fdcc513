//! Control-flow traces: stored, compressed, indexed, and searched without unpacking. Knows numbers of
//! functions and blocks, not ELF.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod symbol;

pub mod balance;
pub mod chunks;
pub mod decode;
pub mod events;
pub mod file;
pub mod flow;
pub mod import;
pub mod names;
pub mod pack;
pub mod plain;
pub mod sample;
pub mod times;

pub mod activations;
pub mod grammar;
pub mod repair;
pub mod rules;
pub mod sequitur;

pub mod automaton;
pub mod chrome;
pub mod divergence;
pub mod expand;
pub mod folded;
pub mod part;
pub mod path;
pub mod scan;
pub mod search;
pub mod trace;
pub mod windows;
pub mod within;

mod callers;
mod calls;
mod coder;
mod columns;
mod compressed;
mod effects;
mod loaded;
mod range;
pub mod region;
mod segments;
mod varint;

#[cfg(test)]
mod tests;

pub use automaton::Automaton;
pub use balance::{Balance, Unbalanced};
pub use expand::Line;
pub use file::ReadError;
pub use flow::Flow;
pub use import::{ImportError, Imported, Stores};
pub use names::Names;
pub use pack::Maker;
pub use part::Part;
pub use path::{NotAPath, Path};
pub use search::{Found, Position, Scheme, Want};
pub use symbol::{Cause, Step, Symbol};
pub use times::Times;
pub use trace::{SearchError, Stats, Thread, Trace};
