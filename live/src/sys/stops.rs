//! Stops of a process that is traced, for which another thread of ours must not wait.

use nix::libc;
use nix::sys::wait::WaitPidFlag;
use nix::unistd::Pid;
use std::io;
use std::time::{Duration, Instant};

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
