//! The calls that have no safe form: a child that asks to be traced before it becomes another program
//! ([`inherited`]), signals passed on to it ([`pass_on`]) or that end us ([`interrupts`]), its stops
//! ([`stops`]), memory that other processes change ([`memory`]), the kernel's events ([`perf_events`]), and a
//! few of their own.

mod asked_to_end;
mod inherited;
mod interrupts;
mod memory;
mod pass_on;
mod perf_events;
mod signals;
mod stops;

pub use asked_to_end::{AskedToEnd, End, Over};
pub use inherited::{at_same_addresses, is_output_closed, stop_at_exec};
pub use interrupts::{end_by, tidy_before_signals_end_us};
pub use memory::{SharedBytes, SharedWord};
pub use pass_on::{Ended, asked_to_end_by, keep_signal, n_kept_signals, pass_signals_on, wait};
pub use perf_events::{event_number, let_event, open_event, send_to_ring_of, thread_times, wait_for_any};
pub use signals::{signal_name, signal_named};
pub use stops::{
    Hurry, Stop, block_signals, blocked_signals, detach, end_of, fp_state, hurry, hurry_on, interrupt,
    is_gone, next_stop, send, send_to_thread, set_fp_state, set_registers, stop_of, stop_of_until,
    to_next_call, vector_state,
};

use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The time stamp counter.
pub fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has it, and Linux lets programs read it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Has what we write beyond a limit of the user's (RLIMIT_FSIZE) fail, and not end us.
pub fn fail_beyond_limits() {
    // SAFETY: SIG_IGN runs no code of ours.
    let _unknown = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
}

/// Has memory that is given back kept for what comes next, but large pieces: the work before a program starts
/// is short, and every page that is had anew costs as much as a thousand instructions. Threads share it, so
/// that what one has given back is not had anew for another: said before they start.
pub fn keep_memory() {
    #[cfg(target_env = "gnu")]
    for (what, n) in
        [(libc::M_TRIM_THRESHOLD, 1 << 30), (libc::M_MMAP_THRESHOLD, 4 << 20), (libc::M_ARENA_MAX, 2)]
    {
        // SAFETY: sets a number that the allocator reads under its own lock.
        let _unknown = unsafe { libc::mallopt(what, n) };
    }
}

/// Whether the file at `path` gives who runs it capabilities (capabilities(7)).
pub fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: both are ended by a zero; nothing is written where there is room for nothing.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}
