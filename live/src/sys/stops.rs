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
    /// It has made a thread, which stands still, too.
    Clone,
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
    loop {
        // SAFETY: zeros are a value of it.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills `info`.
        let code = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags.bits()) };
        // SAFETY: of a child's signal, or zeros.
        let pid = Pid::from_raw(unsafe { info.si_pid() });
        match nix::errno::Errno::result(code) {
            Err(nix::errno::Errno::EINTR) => {}
            Err(err) => return Err(err.into()),
            Ok(_) if pid.as_raw() == 0 => {}
            Ok(_) if matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) => {
                return Ok(Some((pid, Stop::Ended)));
            }
            Ok(_) => match status_now(pid)? {
                Now::Status(status) => return Ok(Some((pid, stop(status)))),
                Now::Gone => return Ok(Some((pid, Stop::Ended))),
                // It was killed since: its end comes when that of others may have been seen.
                Now::GoesOn => {}
            },
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(None);
        }
        std::thread::park_timeout(pause);
        pause = (2 * pause).min(Duration::from_millis(2));
    }
}

/// Waits until `pid`, a process or thread that this thread traces, stops or ends.
///
/// # Errors
/// The kernel's.
pub fn stop_of(pid: Pid) -> io::Result<Stop> {
    Ok(status_of(pid)?.map_or(Stop::Ended, stop))
}

/// What is known of whom this thread traces.
enum Now {
    /// It has stopped or ended: its status.
    Status(libc::c_int),
    /// It goes on.
    GoesOn,
    /// It is traced no more: a thread whose number another one of its process has taken, as `exec` does, is
    /// gone without a word.
    Gone,
}

/// What is known of `pid` now.
fn status_now(pid: Pid) -> io::Result<Now> {
    let flags = (WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD | WaitPidFlag::WNOHANG).bits();
    loop {
        let mut status = 0;
        // SAFETY: the kernel fills `status`.
        match nix::errno::Errno::result(unsafe { libc::waitpid(pid.as_raw(), &raw mut status, flags) }) {
            Err(nix::errno::Errno::EINTR) => {}
            Ok(0) => return Ok(Now::GoesOn),
            Ok(_) => return Ok(Now::Status(status)),
            Err(nix::errno::Errno::ECHILD) => return Ok(Now::Gone),
            Err(err) => return Err(err.into()),
        }
    }
}

/// The next status of `pid`, which this thread traces; none, if it is traced no more.
///
/// Of one whose number another one takes, the kernel may wake nobody who waits for that number, which is the
/// other's by then (`de_thread` in Linux, fs/exec.c): so all are waited for.
fn status_of(pid: Pid) -> io::Result<Option<libc::c_int>> {
    const NAP: Duration = Duration::from_micros(50);
    let any = WaitPidFlag::WEXITED
        | WaitPidFlag::WSTOPPED
        | WaitPidFlag::WNOWAIT
        | WaitPidFlag::__WALL
        | WaitPidFlag::__WNOTHREAD;
    loop {
        match status_now(pid)? {
            Now::Status(status) => return Ok(Some(status)),
            Now::Gone => return Ok(None),
            Now::GoesOn => {}
        }
        // SAFETY: zeros are a value of it.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills `info`.
        let code = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, any.bits()) };
        // SAFETY: of a child's signal, or zeros.
        if code == 0 && unsafe { info.si_pid() } != pid.as_raw() {
            // Another one, whose turn comes later.
            std::thread::park_timeout(NAP);
        }
    }
}

/// The same; nothing, if it goes on until then.
///
/// # Errors
/// The kernel's.
pub fn stop_of_until(pid: Pid, until: Instant) -> io::Result<Option<Stop>> {
    let mut status = 0;
    let flags = (WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD | WaitPidFlag::WNOHANG).bits();
    let mut pause = Duration::from_micros(10);
    loop {
        // SAFETY: the kernel fills `status`.
        match nix::errno::Errno::result(unsafe { libc::waitpid(pid.as_raw(), &raw mut status, flags) }) {
            Err(nix::errno::Errno::EINTR) => {}
            Err(err) => return Err(err.into()),
            Ok(0) if Instant::now() >= until => return Ok(None),
            Ok(0) => {
                std::thread::park_timeout(pause);
                pause = (2 * pause).min(Duration::from_millis(2));
            }
            Ok(_) => return Ok(Some(stop(status))),
        }
    }
}

/// Has `pid`, which this thread traces (as of PTRACE_SEIZE), stop.
///
/// # Errors
/// The kernel's.
pub fn interrupt(pid: Pid) -> io::Result<()> {
    nix::sys::ptrace::interrupt(pid).map_err(io::Error::from)
}

/// The state of floating-point and vector registers, as `fxsave` has it.
pub type FpState = [u8; 512];
/// Source: Linux, include/uapi/linux/elf.h.
const NT_PRFPREG: libc::c_int = 2;

/// That of `pid`, which this thread traces and which stands still.
///
/// # Errors
/// The kernel's.
pub fn fp_state(pid: Pid) -> io::Result<FpState> {
    let mut state: FpState = [0; 512];
    let mut part = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
    // SAFETY: the kernel writes no more than that to `state`, and how much to `part`.
    let code = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, pid.as_raw(), NT_PRFPREG, &raw mut part) };
    nix::errno::Errno::result(code).map(|_| state).map_err(io::Error::from)
}

/// Gives `pid`, which this thread traces and which stands still, another one.
///
/// # Errors
/// The kernel's.
pub fn set_fp_state(pid: Pid, state: &FpState) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: state.as_ptr().cast_mut().cast(), iov_len: state.len() };
    // SAFETY: the kernel reads so many bytes of `state`, and writes to `part`.
    let code = unsafe { libc::ptrace(libc::PTRACE_SETREGSET, pid.as_raw(), NT_PRFPREG, &raw mut part) };
    nix::errno::Errno::result(code).map(drop).map_err(io::Error::from)
}

/// Waits until `pid`, a thread that this thread traces and that goes on, ends; its status, if it ended by
/// itself.
///
/// # Errors
/// The kernel's.
pub fn end_of(pid: Pid) -> io::Result<Option<libc::c_int>> {
    loop {
        match status_of(pid)? {
            // As all of its process, by a signal. Of one that was killed meanwhile, its end is next.
            Some(status) if libc::WIFSTOPPED(status) => drop(nix::sys::ptrace::cont(pid, None)),
            Some(status) if libc::WIFEXITED(status) => return Ok(Some(libc::WEXITSTATUS(status))),
            _ => return Ok(None),
        }
    }
}

/// What a status says.
fn stop(status: libc::c_int) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended;
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        libc::PTRACE_EVENT_CLONE => Stop::Clone,
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Interrupt,
        libc::PTRACE_EVENT_STOP => Stop::Group,
        _ if signal == libc::SIGTRAP | 0x80 => Stop::Call,
        _ => Stop::Signal(signal),
    }
}

/// Gives the thread `pid`, which this thread traces and which stands still, other registers: those that stand
/// first among the kernel's, without the bases of segments, since it takes none of these that is negative.
///
/// # Errors
/// The kernel's.
pub fn set_registers(pid: Pid, words: &[u64]) -> io::Result<()> {
    /// The general registers. Source: Linux, include/uapi/linux/elf.h.
    const NT_PRSTATUS: libc::c_int = 1;
    let base = words.as_ptr().cast_mut().cast();
    let mut part = libc::iovec { iov_base: base, iov_len: size_of_val(words) };
    // SAFETY: the kernel reads so many bytes of `words`, and writes to `part`.
    let code = unsafe { libc::ptrace(libc::PTRACE_SETREGSET, pid.as_raw(), NT_PRSTATUS, &raw mut part) };
    nix::errno::Errno::result(code).map(drop).map_err(io::Error::from)
}

/// The state of the vector and floating-point registers of `pid`, which this thread traces and which stands
/// still, as `xsave` has it.
///
/// # Errors
/// The kernel's.
pub fn vector_state(pid: Pid) -> io::Result<Vec<u8>> {
    /// Source: Linux, include/uapi/linux/elf.h.
    const NT_X86_XSTATE: libc::c_int = 0x202;
    /// More than any processor has.
    const MOST: usize = 1 << 14;
    let mut state = vec![0u8; MOST];
    let mut part = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: MOST };
    // SAFETY: the kernel writes no more than that to `state`, and how much to `part`.
    let code = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, pid.as_raw(), NT_X86_XSTATE, &raw mut part) };
    nix::errno::Errno::result(code)?;
    state.truncate(part.iov_len);
    Ok(state)
}

/// Which signals `pid` blocks, which this thread traces and which stands still: a bit each.
///
/// # Errors
/// The kernel's.
pub fn blocked_signals(pid: Pid) -> io::Result<u64> {
    let mut mask = 0u64;
    let len = size_of::<u64>();
    // SAFETY: the kernel writes so many bytes to the mask.
    let code = unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, pid.as_raw(), len, &raw mut mask) };
    nix::errno::Errno::result(code).map(|_| mask).map_err(io::Error::from)
}

/// Has these signals, a bit each, and no others wait for the thread `pid`, which this thread traces and which
/// stands still.
///
/// # Errors
/// The kernel's.
pub fn block_signals(pid: Pid, mask: u64) -> io::Result<()> {
    let len = size_of::<u64>();
    // SAFETY: the kernel reads the mask.
    let code = unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, pid.as_raw(), len, &raw const mask) };
    nix::errno::Errno::result(code).map(drop).map_err(io::Error::from)
}

/// Has this thread run before all others, if it may, until what this gives goes: who is stopped waits for it.
pub fn hurry() -> Hurry {
    let urgent = libc::sched_param { sched_priority: 1 };
    let mut before = libc::sched_param { sched_priority: 0 };
    // SAFETY: asks for a number.
    let policy = unsafe { libc::sched_getscheduler(0) };
    // SAFETY: the kernel writes to `before`.
    let is_known = policy >= 0 && unsafe { libc::sched_getparam(0, &raw mut before) } == 0;
    // SAFETY: the kernel reads `urgent`.
    let is_urgent =
        is_known && unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const urgent) } == 0;
    let policy = is_urgent.then_some(policy);
    Hurry { before, policy }
}

/// Has the thread `pid` run before all others, if we may have it do so.
pub fn hurry_on(pid: Pid) {
    let urgent = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads `urgent`.
    let _may_not = unsafe { libc::sched_setscheduler(pid.as_raw(), libc::SCHED_FIFO, &raw const urgent) };
}

/// See [`hurry`].
pub struct Hurry {
    before: libc::sched_param,
    policy: Option<libc::c_int>,
}

impl Drop for Hurry {
    fn drop(&mut self) {
        let Some(policy) = self.policy else { return };
        // SAFETY: the kernel reads what was there before.
        unsafe { libc::sched_setscheduler(0, policy, &raw const self.before) };
    }
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

/// Sends `signal` to thread `tid` alone.
pub fn send_to_thread(tid: Pid, signal: libc::c_int) {
    // SAFETY: asks the kernel, and touches no memory.
    let _sent = unsafe { libc::syscall(libc::SYS_tkill, tid.as_raw(), signal) };
}

/// Lets `tid` go, which we trace, with `signal`, if there is one: real-time ones, too, which have no names.
///
/// # Errors
/// The kernel's, if it is gone.
pub fn detach(tid: Pid, signal: Option<libc::c_int>) -> io::Result<()> {
    let signal = usize::try_from(signal.unwrap_or(0)).unwrap_or(0);
    // SAFETY: the kernel takes the signal as a number, and touches no memory of ours.
    let done = unsafe {
        libc::ptrace(libc::PTRACE_DETACH, tid.as_raw(), std::ptr::null_mut::<libc::c_void>(), signal)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether there is no process or thread of this number.
pub fn is_gone(number: i32) -> bool {
    // SAFETY: no signal is sent; the kernel looks whether one could be.
    let found = unsafe { libc::kill(number, 0) };
    found != 0 && nix::errno::Errno::last() == nix::errno::Errno::ESRCH
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::mpsc::channel;

    const SOURCE: &str = "
        #include <pthread.h>
        #include <unistd.h>
        static void *become(void *unused) { usleep(300000); execl(\"/bin/sleep\", \"sleep\", \"30\", (char *)0); return unused; }
        int main(void) { pthread_t other; pthread_create(&other, 0, become, 0); for (;;) pause(); }
    ";

    /// The first thread is traced, and gone without a word when the other one becomes another program.
    #[test]
    fn a_thread_whose_number_another_one_takes_has_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let (source, binary) = (folder.path().join("a.c"), folder.path().join("a"));
        std::fs::write(&source, SOURCE).expect("written");
        let made = Command::new("gcc").arg("-pthread").arg("-o").arg(&binary).arg(&source).status();
        assert!(made.expect("gcc runs").success());
        let mut child = Command::new(&binary).spawn().expect("it starts");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a number"));
        let (say, said) = channel();
        std::thread::spawn(move || {
            // One that is not there yet has no other thread either.
            std::thread::park_timeout(Duration::from_millis(100));
            nix::sys::ptrace::seize(pid, nix::sys::ptrace::Options::empty()).expect("it is ours");
            let _gone = say.send(stop_of(pid));
        });
        let stop = said.recv_timeout(Duration::from_secs(10)).expect("the kernel says nothing");
        assert_eq!(stop.expect("it may be waited for"), Stop::Ended);
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
    }
}
