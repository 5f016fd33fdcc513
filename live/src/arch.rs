//! Registers of a stopped process, for the one processor there is.

mod x86_64;

pub use x86_64::{SAMPLED, SYSCALL, instruction_pointer, is_exec, result, stack_pointer, with_call};
