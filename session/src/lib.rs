//! Sessions: a program's modules chosen, prepared, run and served, and what was counted or recorded collected.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod choose;

pub use choose::{Glob, Modules, NoneWanted, is_system_file};
