//! The third phase: ranges laid out anew, a place for each, and the distances between them filled in.
//!
//! Not here: what is put into them (`lower`), the tables that speak of them (`image`).

pub mod code_map;
pub mod entry_stubs;
pub mod link;
pub mod piece;
pub mod place;
pub mod plt_direct;
pub mod relax;
