//! Moved code, laid out: ranges anew, and where each stands.

pub mod code_map;
pub mod piece;
pub mod place;
pub mod plt_direct;
