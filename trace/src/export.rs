//! A trace as other tools read it.

pub mod chrome;
pub mod folded;
