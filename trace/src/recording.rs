//! A run while it is recorded: what moved code appends, and what of it is kept.

pub mod code;
pub mod event;
pub mod recorder;
pub mod ring;
pub mod sample;
pub mod sections;
pub mod threads;
pub mod window;
