//! What a binary is: addresses, image, instructions, functions, blocks, edges, loops, liveness.
//!
//! ```no_run
//! let image = program::Image::load("/usr/bin/true".as_ref())?;
//! let program = program::Program::analyze(image);
//! for function in &program.functions {
//!     println!("{} {}", function.entry, function.name());
//! }
//! # Ok::<(), program::LoadError>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod addr;
pub mod arch;
mod cfg;
mod code;
mod data;
mod discover;
mod dominators;
mod gaps;
mod graph;
mod ids;
pub mod image;
pub mod layout;
pub mod libc;
mod lines;
mod listing;
mod liveness;
mod loops;
mod model;
mod noreturn;
mod partition;
mod prologue;
mod raw;
mod sweep;
mod tables;
mod verify;

pub use addr::{Bias, FileOff, LiveVa, Va};
pub use arch::Insn;
pub use dominators::Dominators;
pub use ids::{BlockId, EdgeId, FuncId};
pub use image::{Image, ImageId, LoadError};
pub use libc::returns_twice;
pub use lines::{Declarations, Frame, Lines, Statements};
pub use liveness::{Conventions, FlagLiveness, Liveness};
pub use loops::{LoopId, Loops};
pub use model::{
    Block, BlockEnd, Call, CallKind, Callee, DataKind, DataObject, Edge, EdgeKind, Function, Gap, GapReason,
    Instructions, JumpTable, Origin, Program, Sure,
};

pub use verify::{Rule, Violation};
