//! What a rewritten module's image has: segments, tables of the dynamic linker, symbols, unwind tables.

pub mod dynamic;
pub mod lsda;
pub mod segments;
pub mod symbols;
pub mod unwind;
