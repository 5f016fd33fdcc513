//! What `engraft show` says: a binary on one page, lists of what is in it, one function, and counts of runs.

pub mod by;
pub mod cfg;
pub mod costs;
pub mod counts;
pub mod function;
pub mod lists;
pub mod loops;
pub mod process;
pub mod summary;
pub mod time;
pub mod verify;
