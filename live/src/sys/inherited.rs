//! What we were started with, before anything of ours has changed it; given to the program that we start.

use super::signals::{bit, passed_on};
use nix::libc;
use nix::sys::personality::{self, Persona};
use nix::sys::ptrace;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Files that were closed when we were started, a bit each of the first three; Rust's start-up code opens
/// something in their place.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// Signals that were ignored when we were started, and those that were blocked: bit n − 1 for signal n. Rust
/// lets its children have SIGPIPE as it is by default, and none blocked.
static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Runs before Rust's start-up code.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AROUND: extern "C" fn() = look_around;

/// The signals whose handling we, or Rust's start-up code, change.
fn changed() -> impl Iterator<Item = libc::c_int> {
    [libc::SIGXFSZ].into_iter().chain(passed_on())
}

extern "C" fn look_around() {
    for fd in 0..3 {
        // SAFETY: asks, and changes nothing.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
    for which in changed() {
        let mut old = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: asks; the kernel fills `old`.
        let _asked = unsafe { libc::sigaction(which, std::ptr::null(), old.as_mut_ptr()) };
        // SAFETY: zeros are a value of it, too.
        let old = unsafe { old.assume_init() };
        if old.sa_sigaction == libc::SIG_IGN {
            IGNORED.fetch_or(bit(which), Ordering::Relaxed);
        }
    }
    let mut blocked = 0u64;
    // SAFETY: asks; the kernel's sets have 8 bytes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0, &raw mut blocked, size_of::<u64>());
    }
    BLOCKED.store(blocked, Ordering::Relaxed);
}

/// Whether our standard output was closed when we were started: what is written there goes nowhere, without
/// an error.
pub fn is_output_closed() -> bool {
    std::hint::black_box(&LOOK_AROUND); // so that no linker leaves it out
    CLOSED.load(Ordering::Relaxed) & 1 << 1 != 0
}

/// Puts back what was when we were started.
fn as_we_were_started() {
    for fd in (0..3).filter(|fd| CLOSED.load(Ordering::Relaxed) & 1 << fd != 0) {
        // SAFETY: nobody uses what start-up code opened there in the child.
        let _closed = unsafe { libc::close(fd) };
    }
    for which in changed() {
        let how = if is_ignored(which) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: neither runs code of ours.
        let _old = unsafe { libc::signal(which, how) };
    }
    let blocked = BLOCKED.load(Ordering::Relaxed);
    // SAFETY: `blocked` is read during the call; the kernel's sets have 8 bytes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const blocked, 0, size_of::<u64>());
    }
}

/// Has the child of `command` stop at its `exec`, before the first instruction of the new program; with files
/// and signals as we got them.
pub fn stop_at_exec(command: &mut Command) {
    std::hint::black_box(&LOOK_AROUND); // so that no linker leaves it out
    // SAFETY: runs between fork and exec; all of it are system calls, which allocate nothing and take no
    // lock.
    unsafe {
        command.pre_exec(|| {
            as_we_were_started();
            ptrace::traceme().map_err(io::Error::from)
        });
    }
}

/// Has the child of `command` be at the same addresses each time, where the kernel can.
///
/// Source: personality(2), `ADDR_NO_RANDOMIZE`.
pub fn at_same_addresses(command: &mut Command) {
    let fixed = || {
        // What is not granted is no reason not to run.
        let _refused = personality::get().and_then(|now| personality::set(now | Persona::ADDR_NO_RANDOMIZE));
        Ok(())
    };
    // SAFETY: runs between fork and exec; it is two system calls, which allocate nothing and take no lock.
    unsafe {
        command.pre_exec(fixed);
    }
}

/// Whether a signal was ignored when we were started.
pub(super) fn is_ignored(which: libc::c_int) -> bool {
    IGNORED.load(Ordering::Relaxed) & bit(which) != 0
}
