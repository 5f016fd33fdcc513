//! Counts of one image: the [`Profile`], its arithmetic, and one file per format.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bolt;
mod counts;
mod derive;
pub mod fdata;
mod format;

pub use counts::{Edge, Exactness, ImageRef, Lost, Profile};
pub use format::{ReadError, Written};

#[cfg(test)]
mod testing;
