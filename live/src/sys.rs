//! The calls that have no safe form: a child that asks to be traced before it becomes another program; what we were started with, before
//! anything of ours has changed it; signals passed on to it; sleeping on a word that other processes change.

use nix::libc::{self, c_void};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::ptrace;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction, signal};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Files that were closed when we were started, a bit each of the first three; Rust's start-up code opens something in their place.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// Signals that were ignored when we were started, and those that were blocked: bit n − 1 for signal n. Rust lets its children have
/// SIGPIPE as it is by default, and none blocked.
static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Runs before Rust's start-up code.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AROUND: extern "C" fn() = look_around;

/// The signals whose handling we, or Rust's start-up code, change.
const CHANGED: [libc::c_int; 9] = [
    libc::SIGPIPE,
    libc::SIGXFSZ,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCONT,
];

fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

extern "C" fn look_around() {
    for fd in 0..3 {
        // SAFETY: asks, and changes nothing.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
    for which in CHANGED {
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

/// Whether our standard output was closed when we were started: what is written there goes nowhere, without an error.
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
    for which in CHANGED {
        let how =
            if IGNORED.load(Ordering::Relaxed) & bit(which) != 0 { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: neither runs code of ours.
        let _old = unsafe { libc::signal(which, how) };
    }
    let blocked = BLOCKED.load(Ordering::Relaxed);
    // SAFETY: `blocked` is read during the call; the kernel's sets have 8 bytes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const blocked, 0, size_of::<u64>());
    }
}

/// Has the child of `command` stop at its `exec`, before the first instruction of the new program; with files and signals as we got them.
pub fn stop_at_exec(command: &mut Command) {
    std::hint::black_box(&LOOK_AROUND); // so that no linker leaves it out
    // SAFETY: runs between fork and exec; all of it are system calls, which allocate nothing and take no lock.
    unsafe {
        command.pre_exec(|| {
            as_we_were_started();
            ptrace::traceme().map_err(io::Error::from)
        });
    }
}

/// Has what we write beyond a limit of the user's (RLIMIT_FSIZE) fail, and not end us.
pub fn fail_beyond_limits() {
    // SAFETY: SIG_IGN runs no code of ours.
    let _unknown = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
}

/// What users send to a program, and so send to us in its place.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
];

/// Whom signals are passed on to; 0: nobody yet, or nobody any more.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// Signals that came and were not passed on yet, a bit each as above.
static CAME: AtomicU64 = AtomicU64::new(0);

fn pass_on_what_came() {
    let program = PROGRAM.load(Ordering::SeqCst);
    if program == 0 {
        return;
    }
    let came = CAME.swap(0, Ordering::SeqCst);
    for which in (1..64).filter(|&which| came & bit(which) != 0) {
        // SAFETY: asks the kernel, and touches no memory.
        let _sent = unsafe { libc::kill(program, which) };
    }
}

extern "C" fn pass_on(which: libc::c_int, about: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel's, for as long as the handler runs.
    let is_the_terminals = unsafe { (*about).si_code } == libc::SI_KERNEL;
    // What keys send goes to the whole group, the program included.
    if is_the_terminals && (which == libc::SIGINT || which == libc::SIGQUIT) {
        return;
    }
    let error = nix::errno::Errno::last_raw();
    CAME.fetch_or(bit(which), Ordering::SeqCst);
    pass_on_what_came();
    nix::errno::Errno::set_raw(error);
}

/// Has signals that are sent to us go to the program, as soon as there is one ([`wait`]): it decides what they mean, and we write down
/// what was counted.
pub fn pass_signals_on() {
    let action = SigAction::new(
        SigHandler::SigAction(pass_on),
        SaFlags::SA_RESTART | SaFlags::SA_SIGINFO,
        SigSet::empty(),
    );
    for which in PASSED_ON {
        // SAFETY: the handler uses atomics and kill(2) only, and leaves errno as it was.
        let _unknown = unsafe { sigaction(which, &action) };
    }
}

/// Waits for the program's end; until then, signals are passed on to it.
///
/// # Errors
/// The kernel's.
pub fn wait(program: &mut Child) -> io::Result<ExitStatus> {
    let pid = i32::try_from(program.id()).expect("process numbers fit");
    PROGRAM.store(pid, Ordering::SeqCst);
    pass_on_what_came();
    // Its number is its own until we have asked for its status: nobody else gets a signal.
    while waitid(Id::Pid(Pid::from_raw(pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)
        == Err(nix::errno::Errno::EINTR)
    {}
    PROGRAM.store(0, Ordering::SeqCst);
    program.wait()
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
