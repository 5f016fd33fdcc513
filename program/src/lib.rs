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
mod analyses;
pub mod arch;
pub mod as_bytes;
mod discovery;
mod excerpt;
mod ids;
pub mod image;
pub mod layout;
pub mod libc;
mod lines;
pub mod mix;
mod model;
mod recorded_lines;
pub mod signature;
mod verify;

pub use addr::{Bias, FileOff, LiveVa, Va};
pub use analyses::dominators::Dominators;
pub use analyses::liveness::{Conventions, FlagLiveness, Liveness};
pub use analyses::loops::{LoopId, Loops};
pub use analyses::resolvers::{Bearer, Returned};
pub use analyses::waste::Waste;
pub use arch::Insn;
pub use excerpt::{Catalogue, Excerpt, ExcerptError, KnownLines};
pub use ids::{BlockId, EdgeId, FuncId};
pub use image::{Image, ImageId, LoadError};
pub use libc::returns_twice;
pub use lines::{Declarations, Frame, Lines, Statements};
pub use mix::{Metric, Mix};
pub use model::{
    Block, BlockEnd, Call, CallKind, Callee, DataKind, DataObject, Edge, EdgeKind, Function, Gap, GapReason,
    Instructions, JumpTable, Origin, Program, Remark, Sure, Unread,
};

pub use verify::{Rule, Violation};
