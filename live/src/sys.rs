//! The calls that have no safe form: a child that asks to be traced before it becomes another program; ignored signals.

use nix::sys::ptrace;
use nix::sys::signal::{SigHandler, Signal, signal};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Has the child of `command` stop at its `exec`, before the first instruction of the new program.
pub fn stop_at_exec(command: &mut Command) {
    // SAFETY: runs between fork and exec; PTRACE_TRACEME is one system call, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| ptrace::traceme().map_err(std::io::Error::from));
    }
}

/// Has us ignore the signals that the terminal sends to a whole group: the program decides what they mean.
pub fn leave_interrupts_to_the_child() {
    for which in [Signal::SIGINT, Signal::SIGQUIT] {
        // SAFETY: SIG_IGN runs no code of ours.
        let _unknown = unsafe { signal(which, SigHandler::SigIgn) };
    }
}
