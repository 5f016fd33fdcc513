//! Which values are recorded of a run, and what the records mean.
//!
//! ```text
//!  Asked ─plan→ Plan, Code ─(probe, a run)→ records ─Collector→ profile::values::Values
//! ```
//! A call has a record where its function is entered, with its arguments and where its return address lies,
//! and one where its caller gets control back, with its result: the two that have the same place are of one
//! call (`values/open.rs`). A jump out of a function that stays a jump says so; then the result of whoever
//! returns there is its own, too.
//!
//! An instance of a loop has a record where it is entered and one where it is left, with the thread's count
//! of back edges and the time (`values/loops.rs`).
//!
//! *Not here*: prototypes (`prototypes`), where code goes (`probe`), how values are kept (`profile::values`).
//!
//! *Source*: VPROF, section 2.2 (values at calls); that the two ends of a call have their stack pointer in
//! common: System V ABI, AMD64 supplement, 3.2.2.
#![warn(clippy::indexing_slicing)]

mod asked;
mod auto;
mod bytes;
mod collect;
mod condition;
pub mod executed;
mod known;
mod loops;
mod open;
mod plan;
mod prototyped;
mod rows;

pub use asked::{Asked, AskedCall, AskedPlace, BadPlace, Logged, Passed, Piece, Stamping, Wanted};
pub use auto::InLine;
pub use collect::Collector;
pub use condition::{BadCondition, Condition};
pub use known::Known;
pub use loops::OneInstance;
pub use plan::{Code, Found, LONGEST_WORDS, LoopCode, Recorded, Unseen, What, plan};
pub use rows::Rows;
