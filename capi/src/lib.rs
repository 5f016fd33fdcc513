//! Processes that run, sampled, measured and changed by programs that are not written in Rust: the shared
//! library `libengraft.so`, and its header `include/engraft.h`, which is made from this crate.
//!
//! What each call of PADRONE is here, is said in the head of the crate `session`.
//!
//! ```c
//! engraft_process *process;
//! engraft_function *function;
//! if (engraft_open(pid, NULL, &process) || engraft_function_named(process, "main", &function))
//!     fprintf(stderr, "%s\n", engraft_last_error());
//! ```
//! *Invariant*: pointers of clients are followed in `boundary` alone; no panic crosses it; nothing is
//! printed, and no environment is read.
//!
//! *Source*: PADRONE, figures 5 and 7.
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[expect(unsafe_code, reason = "clients of other languages have pointers")]
mod boundary;
mod calls;
mod cfg;
mod code;
mod failure;
mod process;
mod profile;
