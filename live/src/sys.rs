//! The calls that have no safe form: a child that asks to be traced before it becomes another program; what
//! we were started with, before anything of ours has changed it; signals passed on to it; sleeping on a word
//! that other processes change; stops of a process that is traced, for which another thread of ours must not
//! wait.

use nix::libc::{self, c_void};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::ptrace;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use perf_event_open_sys::bindings::perf_event_attr;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

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

/// What users and timers send to a program, and so send to us in its place (`alarm(5); exec engraft count
/// …`): all that would end us or have a meaning of the program's own, but faults; those of real-time, but for
/// the two that are the C library's.
fn passed_on() -> impl Iterator<Item = libc::c_int> {
    const NAMED: [libc::c_int; 18] = [
        libc::SIGPIPE,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGCONT,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGWINCH,
        libc::SIGTSTP,
        libc::SIGXCPU,
        libc::SIGPOLL,
        libc::SIGPWR,
        libc::SIGSTKFLT,
        libc::SIGURG,
    ];
    NAMED.into_iter().chain(34..=64)
}

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
    for which in (1..=64).filter(|&which| came & bit(which) != 0) {
        // SAFETY: asks the kernel, and touches no memory.
        let _sent = unsafe { libc::kill(program, which) };
    }
}

/// The signal that is for us, not for the program; 0: none. How often it came.
static SWITCH: AtomicI32 = AtomicI32::new(0);
static N_SWITCHED: AtomicUsize = AtomicUsize::new(0);

/// The signal of this name, with or without `SIG`, or number, if it is one that is passed on.
pub fn signal_named(text: &str) -> Option<i32> {
    let upper = text.to_ascii_uppercase();
    let named = || Some(format!("SIG{}", upper.trim_start_matches("SIG")).parse::<Signal>().ok()? as i32);
    text.parse().ok().or_else(named).filter(|which| passed_on().any(|passed| passed == *which))
}

/// Keeps this signal for us, from now on.
pub fn keep_signal(which: i32) {
    SWITCH.store(which, Ordering::SeqCst);
}

/// How often the signal came that is kept for us.
pub fn n_kept_signals() -> usize {
    N_SWITCHED.load(Ordering::SeqCst)
}

extern "C" fn pass_on(which: libc::c_int, about: *mut libc::siginfo_t, _: *mut c_void) {
    if which == SWITCH.load(Ordering::SeqCst) {
        N_SWITCHED.fetch_add(1, Ordering::SeqCst);
        return;
    }
    let error = nix::errno::Errno::last_raw();
    // SAFETY: the kernel's, for as long as the handler runs.
    let about = unsafe { &*about };
    let code = about.si_code;
    let is_the_programs = match which {
        // What keys and windows send goes to the whole group, the program included; the limit of time is
        // ours, and the program has its own.
        libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP | libc::SIGWINCH | libc::SIGXCPU => {
            code != libc::SI_KERNEL
        }
        // Nobody reads what we write.
        libc::SIGPIPE => {
            // SAFETY: a signal of a process says which.
            let from = unsafe { about.si_pid() };
            // SAFETY: asks the kernel, and touches no memory.
            from != unsafe { libc::getpid() }
        }
        _ => true,
    };
    if is_the_programs {
        CAME.fetch_or(bit(which), Ordering::SeqCst);
        pass_on_what_came();
    }
    if which == libc::SIGTSTP {
        // SAFETY: asks the kernel, and touches no memory: who waits for us sees that the work has stopped.
        let _stopped = unsafe { libc::raise(libc::SIGSTOP) };
    }
    nix::errno::Errno::set_raw(error);
}

/// Has signals that are sent to us go to the program, as soon as there is one ([`wait`]): it decides what
/// they mean, and we write down what was counted.
pub fn pass_signals_on() {
    let ignored = IGNORED.load(Ordering::Relaxed);
    for which in passed_on() {
        // Who ignores stops is not to be stopped.
        if which == libc::SIGTSTP && ignored & bit(which) != 0 {
            continue;
        }
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) = pass_on;
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: zeros are a value of it: no signal is blocked, no flag set.
        let action = unsafe { action.assume_init_mut() };
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
        // SAFETY: the handler uses atomics and system calls only, and leaves errno as it was.
        let _unknown = unsafe { libc::sigaction(which, action, std::ptr::null_mut()) };
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
    // Its number is its own until we have asked for its status: nobody else gets a signal. Where another
    // thread of ours traces it for a moment, waiting for it would take away that thread's stops: so we wait
    // for something else that tells its end.
    let end = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    match end_of(pid) {
        Some(end_of_it) => loop {
            sleep_until_readable(&end_of_it);
            match waitid(Id::Pid(Pid::from_raw(pid)), end | WaitPidFlag::WNOHANG) {
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => break,
                Err(err) if err != nix::errno::Errno::EINTR => break,
                // Its first thread is gone, while another one becomes a new program.
                _ => std::thread::park_timeout(Duration::from_millis(1)),
            }
        },
        None => while waitid(Id::Pid(Pid::from_raw(pid)), end) == Err(nix::errno::Errno::EINTR) {},
    }
    PROGRAM.store(0, Ordering::SeqCst);
    program.wait()
}

/// What can be read from once process `pid` has ended (Linux 5.3).
fn end_of(pid: i32) -> Option<OwnedFd> {
    // SAFETY: asks for a new file, or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: it is new, and nobody else's.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn sleep_until_readable(fd: &OwnedFd) {
    let mut asked = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the kernel writes into `asked` while the call lasts.
    while unsafe { libc::poll(&raw mut asked, 1, -1) } < 0
        && nix::errno::Errno::last() == nix::errno::Errno::EINTR
    {}
}

/// Why a process that this thread traces stands still, or that it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// At a system call, before or after it.
    Call,
    /// It has become another program.
    Exec,
    /// As we asked for.
    Interrupt,
    /// All of its threads were stopped by a signal.
    Group,
    /// A signal is about to be handled.
    Signal(libc::c_int),
    /// It is no more. Its status is left to its parent.
    Ended,
}

/// Waits until a process that this thread traces stops; `None` if none does before the time given.
///
/// # Errors
/// The kernel's.
pub fn next_stop(until: Option<Instant>) -> io::Result<Option<(Pid, Stop)>> {
    let mut flags = WaitPidFlag::WEXITED
        | WaitPidFlag::WSTOPPED
        | WaitPidFlag::WNOWAIT
        | WaitPidFlag::__WALL
        | WaitPidFlag::__WNOTHREAD;
    flags.set(WaitPidFlag::WNOHANG, until.is_some());
    let mut pause = Duration::from_micros(20);
    let pid = loop {
        // SAFETY: zeros are a value of it.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills `info`.
        let code = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags.bits()) };
        // SAFETY: of a child's signal, or zeros.
        let pid = unsafe { info.si_pid() };
        match nix::errno::Errno::result(code) {
            Err(nix::errno::Errno::EINTR) => {}
            Err(err) => return Err(err.into()),
            Ok(_) if pid == 0 => {}
            Ok(_) if matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) => {
                return Ok(Some((Pid::from_raw(pid), Stop::Ended)));
            }
            Ok(_) => break pid,
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(None);
        }
        std::thread::park_timeout(pause);
        pause = (2 * pause).min(Duration::from_millis(2));
    };
    let mut status = 0;
    let flags = (WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD).bits();
    // SAFETY: the kernel fills `status`.
    nix::errno::Errno::result(unsafe { libc::waitpid(pid, &raw mut status, flags) })?;
    if !libc::WIFSTOPPED(status) {
        return Ok(Some((Pid::from_raw(pid), Stop::Ended)));
    }
    let signal = libc::WSTOPSIG(status);
    let stop = match status >> 16 {
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Interrupt,
        libc::PTRACE_EVENT_STOP => Stop::Group,
        _ if signal == libc::SIGTRAP | 0x80 => Stop::Call,
        _ => Stop::Signal(signal),
    };
    Ok(Some((Pid::from_raw(pid), stop)))
}

/// Lets `pid`, which this thread traces, go on to its next system call, with `signal`.
///
/// # Errors
/// The kernel's.
pub fn to_next_call(pid: Pid, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: touches no memory of ours.
    let code = unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid.as_raw(), 0, libc::c_long::from(signal)) };
    nix::errno::Errno::result(code).map(drop).map_err(io::Error::from)
}

/// Whether the file at `path` gives who runs it capabilities (capabilities(7)).
pub fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: both are ended by a zero; nothing is written where there is room for nothing.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Sends `signal` to process `pid`.
pub fn send(pid: Pid, signal: libc::c_int) {
    // SAFETY: asks the kernel, and touches no memory.
    let _sent = unsafe { libc::kill(pid.as_raw(), signal) };
}

/// Whether there is no process or thread of this number.
pub fn is_gone(number: i32) -> bool {
    // SAFETY: no signal is sent; the kernel looks whether one could be.
    let found = unsafe { libc::kill(number, 0) };
    found != 0 && nix::errno::Errno::last() == nix::errno::Errno::ESRCH
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
        // SAFETY: a new mapping where nothing is; it is read and written through this address by atomic
        // instructions alone.
        let page = unsafe { mmap(None, PAGE, both, MapFlags::MAP_SHARED, file, offset) }?;
        Ok(SharedWord { page })
    }

    /// Takes a lock at `offset` of the page, for good. The kernel marks it (bit 30 of its first word) when
    /// this thread ends.
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
        self.wake_at(0);
    }

    /// Wakes all who sleep on the word at `offset`.
    pub fn wake_at(&self, offset: usize) {
        let word = self.word(offset).as_ptr();
        // SAFETY: the word is mapped as long as we live.
        let _woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
    }

    /// The word at `offset` of the page.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < PAGE.get());
        let word = self.page.as_ptr().wrapping_byte_add(offset).cast::<u32>();
        // SAFETY: it lies in the page, aligned, and is mapped as long as we live; other processes change it
        // by atomic instructions.
        unsafe { AtomicU32::from_ptr(word) }
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and nobody has the address but us.
        let _unmapped = unsafe { munmap(self.page, PAGE.get()) };
    }
}

/// Opens an event of the kernel's: of process `pid`, on the processor `cpu`, where `filter` holds.
///
/// # Errors
/// The kernel's, if it has none, or we may not.
pub fn open_event(attributes: &mut perf_event_attr, pid: Pid, cpu: i32, filter: &CStr) -> io::Result<File> {
    let flags = perf_event_open_sys::bindings::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: the kernel reads the attributes, which say how long they are.
    let fd = unsafe { perf_event_open_sys::perf_event_open(attributes, pid.as_raw(), cpu, -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nobody else has it.
    let event = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: the kernel reads the text, to its zero.
    let set = unsafe { perf_event_open_sys::ioctls::SET_FILTER(fd, filter.as_ptr().cast_mut()) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(event) }
}

/// Memory of a file that others share, which is taken out of it.
#[derive(Debug)]
pub struct SharedBytes {
    start: NonNull<c_void>,
    len: NonZeroUsize,
}

// SAFETY: it is read and written by atomic instructions alone.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// So many bytes, whole pages, at `offset` of `file`.
    ///
    /// # Errors
    /// The kernel's, if it cannot be mapped.
    pub fn map(file: &File, offset: u64, len: u64) -> io::Result<SharedBytes> {
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let len = NonZeroUsize::new(len).ok_or_else(|| io::Error::other("nothing to map"))?;
        // SAFETY: a new mapping where nothing is; it is read and written through this address by atomic
        // instructions alone.
        let start = unsafe { mmap(None, len, both, MapFlags::MAP_SHARED, file, offset) }?;
        Ok(SharedBytes { start, len })
    }

    /// Moves the bytes from `at` on, a multiple of 8, to `to`, and leaves zeros; `to` is of whole words of 8
    /// bytes.
    pub fn take(&self, at: usize, to: &mut [u8]) {
        assert!(at.is_multiple_of(8) && at.checked_add(to.len()).is_some_and(|end| end <= self.len.get()));
        for (n, to) in to.chunks_exact_mut(8).enumerate() {
            let word = self.start.as_ptr().wrapping_byte_add(at + 8 * n).cast::<u64>();
            // SAFETY: it lies in the mapping, aligned, and is mapped as long as we live.
            let word = unsafe { AtomicU64::from_ptr(word) };
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Copies the bytes from `at` on, a multiple of 8, to `to`, of whole words of 8 bytes, the last first: of
    /// two that somebody writes in order meanwhile, there is not the second alone.
    pub fn look(&self, at: usize, to: &mut [u8]) {
        assert!(at.is_multiple_of(8) && to.len().is_multiple_of(8));
        assert!(at.checked_add(to.len()).is_some_and(|end| end <= self.len.get()));
        for (n, to) in to.chunks_exact_mut(8).enumerate().rev() {
            let word = self.start.as_ptr().wrapping_byte_add(at + 8 * n).cast::<u64>();
            // SAFETY: it lies in the mapping, aligned, and is mapped as long as we live.
            let word = unsafe { AtomicU64::from_ptr(word) };
            to.copy_from_slice(&word.load(Ordering::Acquire).to_le_bytes());
        }
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and nobody has the address but us.
        let _unmapped = unsafe { munmap(self.start, self.len.get()) };
    }
}
