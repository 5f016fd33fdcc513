//! Signals that are sent to us, passed on to the program; and its end.

use super::inherited::is_ignored;
use super::signals::{bit, passed_on};
use nix::libc::{self, c_void};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

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

/// Keeps this signal for us, from now on.
pub fn keep_signal(which: i32) {
    SWITCH.store(which, Ordering::SeqCst);
}

/// How often the signal came that is kept for us.
pub fn n_kept_signals() -> usize {
    N_SWITCHED.load(Ordering::SeqCst)
}

/// The last signal that came and asks whoever gets it to end; 0: none.
static ASKED: AtomicI32 = AtomicI32::new(0);

/// The signal that asked us to end while a program ran, be it that the program got it, too.
pub fn asked_to_end_by() -> Option<i32> {
    Some(ASKED.load(Ordering::SeqCst)).filter(|which| *which != 0)
}

extern "C" fn pass_on(which: libc::c_int, about: *mut libc::siginfo_t, _: *mut c_void) {
    if which == SWITCH.load(Ordering::SeqCst) {
        N_SWITCHED.fetch_add(1, Ordering::SeqCst);
        return;
    }
    let error = nix::errno::Errno::last_raw();
    if matches!(which, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) {
        ASKED.store(which, Ordering::SeqCst);
    }
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
        stop();
    }
    nix::errno::Errno::set_raw(error);
}

/// Stops us by SIGTSTP, as the program was stopped: who waits for us sees that and no other signal. Called
/// by its handler.
fn stop() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default runs no code of ours.
    let handled = unsafe { sigaction(Signal::SIGTSTP, &default) };
    // It comes when it is let through; we go on behind that when we are continued.
    let _pending = raise(Signal::SIGTSTP);
    let mut only = SigSet::empty();
    only.add(Signal::SIGTSTP);
    let _stopped = only.thread_unblock();
    let _blocked = only.thread_block();
    if let Ok(handled) = handled {
        // SAFETY: the same handler as before.
        let _known = unsafe { sigaction(Signal::SIGTSTP, &handled) };
    }
}

/// Has signals that are sent to us go to the program, as soon as there is one ([`wait`]): it decides what
/// they mean, and we write down what was counted.
pub fn pass_signals_on() {
    for which in passed_on() {
        // Who ignores stops is not to be stopped.
        if which == libc::SIGTSTP && is_ignored(which) {
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

/// How a program ended, and what it took.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// Whether it waited for processes that it had started; if that is known.
    pub has_waited: Option<bool>,
    /// Of the processor time of all of them, what these took, `0.0..=1.0`; unknown where it is too little to
    /// be told (some clock ticks).
    pub children_share: Option<f64>,
}

/// Waits for the program's end; until then, signals are passed on to it.
///
/// # Errors
/// The kernel's.
pub fn wait(program: &mut Child) -> io::Result<Ended> {
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
    // Its record is there until somebody has asked for its status.
    let record = procfs::process::Process::new(pid).and_then(|process| process.stat()).ok();
    let status = program.wait()?;
    let children = |stat: &procfs::process::Stat| u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
    let share = |stat: &procfs::process::Stat| {
        let all = stat.utime + stat.stime + children(stat);
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        (all >= ENOUGH_TICKS).then(|| children(stat) as f64 / all as f64)
    };
    let children_share = record.as_ref().and_then(share);
    Ok(Ended { status, has_waited: record.map(|stat| stat.cminflt > 0), children_share })
}

/// Fewer clock ticks say nothing of shares.
const ENOUGH_TICKS: u64 = 10;

/// What can be read from once process `pid` has ended (Linux 5.3).
pub(super) fn end_of(pid: i32) -> Option<OwnedFd> {
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
