//! What is moved, and what must follow: functions, jump tables, stubs of the PLT, jumps from old code.

pub mod address_taken;
pub mod jump_tables;
pub mod movable;
pub mod plt;
pub mod runtimes;
pub mod springboard;
