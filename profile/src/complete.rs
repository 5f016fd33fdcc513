//! Counts that follow from others: of blocks from those of edges, the other way round, of calls; and what
//! transfers between addresses come to.

pub mod calls;
pub mod conservation;
pub(crate) mod derive;
pub mod flow;
pub(crate) mod transfers;
