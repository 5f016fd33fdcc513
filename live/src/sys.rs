//! The calls that have no safe form: a child that asks to be traced before it becomes another program; ignored signals; sleeping on
//! a word that other processes change.

use nix::libc::{self, c_void};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::ptrace;
use nix::sys::signal::{SigHandler, Signal, signal};
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr::NonNull;
use std::time::Duration;

/// Has the child of `command` stop at its `exec`, before the first instruction of the new program.
pub fn stop_at_exec(command: &mut Command) {
    // SAFETY: runs between fork and exec; PTRACE_TRACEME is one system call, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| ptrace::traceme().map_err(io::Error::from));
    }
}

/// Has us ignore the signals that the terminal sends to a whole group: the program decides what they mean.
pub fn leave_interrupts_to_the_child() {
    for which in [Signal::SIGINT, Signal::SIGQUIT] {
        // SAFETY: SIG_IGN runs no code of ours.
        let _unknown = unsafe { signal(which, SigHandler::SigIgn) };
    }
}

/// A word of a file's memory that others share, to sleep on until it changes.
#[derive(Debug)]
pub struct SharedWord {
    page: NonNull<c_void>,
}

// SAFETY: the address is only ever handed to the kernel.
unsafe impl Send for SharedWord {}
// SAFETY: as above.
unsafe impl Sync for SharedWord {}

const PAGE: NonZeroUsize = NonZeroUsize::new(0x1000).expect("not zero");

impl SharedWord {
    /// The first word of the page at `offset` of `file`.
    ///
    /// # Errors
    /// The kernel's, if it cannot be mapped.
    pub fn map(file: &File, offset: u64) -> io::Result<SharedWord> {
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping where nothing is; it is never read or written through this address by us.
        let page = unsafe { mmap(None, PAGE, both, MapFlags::MAP_SHARED, file, offset) }?;
        Ok(SharedWord { page })
    }

    /// Takes a lock at `offset` of the page, for good. The kernel marks it (bit 30 of its first word) when this thread ends.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hold(&self, offset: usize) -> io::Result<()> {
        assert!(offset.is_multiple_of(8) && offset + size_of::<libc::pthread_mutex_t>() <= PAGE.get());
        let check = |code| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
        let lock = self.page.as_ptr().wrapping_byte_add(offset).cast::<libc::pthread_mutex_t>();
        let mut kind = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let kind = kind.as_mut_ptr();
        // SAFETY: `kind` is ours; of glibc, it owns nothing that would have to be given back.
        check(unsafe { libc::pthread_mutexattr_init(kind) })?;
        // SAFETY: `kind` was initialised.
        check(unsafe { libc::pthread_mutexattr_setpshared(kind, libc::PTHREAD_PROCESS_SHARED) })?;
        // SAFETY: as above.
        check(unsafe { libc::pthread_mutexattr_setrobust(kind, libc::PTHREAD_MUTEX_ROBUST) })?;
        // SAFETY: the lock lies in the page, aligned, and nobody else initialises it.
        check(unsafe { libc::pthread_mutex_init(lock, kind) })?;
        // SAFETY: it was initialised, and the page stays mapped as long as we live.
        check(unsafe { libc::pthread_mutex_lock(lock) })
    }

    /// Sleeps until somebody wakes us, if the word is `expected`; not longer than `at_most`.
    pub fn sleep(&self, expected: u32, at_most: Duration) {
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        // SAFETY: the word is mapped as long as we live, and `time` as long as the call lasts.
        let _woken = unsafe {
            libc::syscall(libc::SYS_futex, self.page.as_ptr(), libc::FUTEX_WAIT, expected, &raw const time)
        };
    }

    /// Wakes all who sleep on it.
    pub fn wake(&self) {
        // SAFETY: the word is mapped as long as we live.
        let _woken =
            unsafe { libc::syscall(libc::SYS_futex, self.page.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and nobody has the address but us.
        let _unmapped = unsafe { munmap(self.page, PAGE.get()) };
    }
}
