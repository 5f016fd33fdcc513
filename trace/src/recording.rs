//! A run while it is recorded: what moved code appends, and what of it is kept.

pub mod event;
pub mod module_code;
pub mod recorder;
pub mod sample;
pub mod sections;
pub mod tail;
pub mod threads;
pub mod window;
