//! Formats of our own: all that a profile holds (`engraft`, `json`), of all images of a run (`recording`);
//! blocks as a table (`csv`).

pub mod csv;
pub mod engraft;
pub mod json;
pub mod recording;
