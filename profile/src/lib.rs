//! Counts of one image: the [`Profile`], its arithmetic, and one file per format.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod counts;

pub use counts::{Edge, Exactness, ImageRef, Lost, Profile};
