//! Recordings in a web browser: a server for this machine alone, the pages that it gives, and a file of them.
//!
//! A page shows what the command line says, from the same [`views`]: nothing is computed here but which rows
//! of a table are shown, and in which order. Where the views come from is the command's to say
//! ([`Recordings`]).
//!
//! Invariant: read-only; nothing is fetched from elsewhere; all that a file, a binary or a request says is
//! escaped. Pages render without script, an address holds all the state of its page, and each page of data
//! has a `.json` and a `.csv` twin.
//!
//! Not here: files, and the environment: who shows recordings opens them, and the browser.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod assets;
mod escape;
mod pages;
mod recordings;
mod saved;
mod server;

pub use pages::{Answer, Site};
pub use recordings::{Drawing, Failed, FlowGraph, Recordings};
pub use saved::{Saved, saved};
pub use server::{ServeError, Server};
