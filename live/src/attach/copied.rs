//! A copy of a process, in which functions are called: what they do there, be it to fault or never to come
//! back, the process itself does not see.
//!
//! ```text
//! the process ─a thread of ours─clone→ the copy: one thread, all memory as it was, no files
//!                                        └─ call: registers set, goes on, until it comes back or fails
//! ```
//! The copy makes no system call: each is kept from the kernel, and ends the call (`PTRACE_SYSEMU`). What
//! memory it shares with others it may read only. It ends with us. Its parent is the process, which is told
//! nothing of its end: it has no signal for that, and our thread in the process takes its status away.
//!
//! Source: clone(2); ptrace(2), PTRACE_SYSEMU, PTRACE_O_EXITKILL.

use super::helper::{Helper, cloned, forget_code};
use super::journal;
use super::lock::Lock;
use super::{AttachError, look, threads};
use crate::arch::{self, Called};
use crate::process::{Stopped, Syscall};
use crate::sys::{self, Stop};
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use probe::arch::shared::PAGE;
use program::LiveVa;
use std::time::{Duration, Instant};

/// Such a copy.
pub struct Copied {
    helper: Option<Helper>,
    copy: Stopped,
    /// What the process itself knows it by.
    number: u64,
    /// The end of a stack for functions.
    stack: u64,
    registers: libc::user_regs_struct,
    _lock: Lock,
}

/// What registers hold when a function is entered, or has come back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallRegisters {
    /// General registers, by number.
    pub general: [u64; 16],
    /// The low halves of vector registers, by number.
    pub vector: [u64; 16],
    /// The control and status word of vector arithmetic (MXCSR).
    pub mxcsr: u32,
}

/// What came of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CameTo {
    /// It came back.
    Back(Box<CallRegisters>),
    /// It was ended by a signal at an instruction.
    Signal {
        /// Its number.
        signal: i32,
        /// Where.
        at: LiveVa,
    },
    /// It was about to make a system call.
    SystemCall {
        /// Its number.
        number: u64,
        /// Behind it.
        at: LiveVa,
    },
    /// It was not back in time.
    TooLong,
}

/// How long its stack is.
const STACK: u64 = 1 << 20;
/// Where functions return to: nothing is mapped there.
const NOWHERE: u64 = 0x10;

impl Copied {
    /// A copy of process `pid`, as it is now.
    ///
    /// # Errors
    /// If none can be made: the process is as it was.
    pub fn of(pid: i32) -> Result<Copied, AttachError> {
        let pid = Pid::from_raw(pid);
        let lock = Lock::take(pid)?.ok_or(AttachError::Attached { pid: pid.as_raw() })?;
        match look::look_locked(pid) {
            Ok(_) | Err(AttachError::Replaced { .. }) => {}
            Err(err) => return Err(err),
        }
        let helper = Helper::start(pid, None)?;
        match start(pid, &helper) {
            Ok((copy, number)) => {
                let registers = copy.registers().inspect_err(|_| end(&copy, number, &helper));
                let registers = match registers {
                    Ok(registers) => registers,
                    Err(err) => {
                        leave(pid, helper);
                        return Err(err.into());
                    }
                };
                let mut copied =
                    Copied { registers, helper: Some(helper), copy, number, stack: 0, _lock: lock };
                copied.stack = prepare(&copied.copy)?;
                Ok(copied)
            }
            Err(err) => {
                leave(pid, helper);
                Err(err)
            }
        }
    }

    /// Where its thread pointer leads: as that of a thread of the process.
    pub fn thread_pointer(&self) -> LiveVa {
        LiveVa(arch::thread_pointer(&self.registers))
    }

    /// Calls the function at `at` with these `registers`, of which the stack pointer does not matter. Memory
    /// is as the calls before have left it.
    ///
    /// # Errors
    /// If the copy is no more.
    pub fn call(
        &self,
        at: LiveVa,
        registers: &CallRegisters,
        at_most: Duration,
    ) -> Result<CameTo, AttachError> {
        let tid = Pid::from_raw(self.copy.pid());
        let refused = |call| move |err| AttachError::refused(tid, call, err);
        // As a call leaves it: the stack pointer is a multiple of 16, less the return address.
        let stack = self.stack - 8;
        self.copy.write(LiveVa(stack), &NOWHERE.to_le_bytes())?;
        let mut state = sys::fp_state(tid).map_err(refused("reading its registers"))?;
        arch::set_called_vectors(&mut state, &registers.vector, registers.mxcsr);
        sys::set_fp_state(tid, &state).map_err(refused("setting its registers"))?;
        self.copy.set_registers(arch::about_to_call(
            self.registers,
            &registers.general,
            Called { at: at.0, stack },
        ))?;
        let until = Instant::now() + at_most;
        loop {
            ptrace::sysemu(tid, None).map_err(|err| refused("having it go on")(err.into()))?;
            let stop = sys::stop_of_until(tid, until).map_err(refused("waiting for it"))?;
            let Some(stop) = stop else {
                sys::interrupt(tid).map_err(refused("stopping it"))?;
                sys::stop_of(tid).map_err(refused("waiting for it"))?;
                return Ok(CameTo::TooLong);
            };
            let regs = self.copy.registers();
            match stop {
                Stop::Ended => return Err(AttachError::Ended { pid: self.copy.pid() }),
                Stop::Call => {
                    let regs = regs?;
                    let number = arch::call_number(&regs);
                    return Ok(CameTo::SystemCall { number, at: LiveVa(arch::instruction_pointer(&regs)) });
                }
                Stop::Signal(signal) => {
                    let regs = regs?;
                    let at = arch::instruction_pointer(&regs);
                    if signal != libc::SIGSEGV || at != NOWHERE {
                        return Ok(CameTo::Signal { signal, at: LiveVa(at) });
                    }
                    let state = sys::fp_state(tid).map_err(refused("reading its registers"))?;
                    let (vector, mxcsr) = arch::called_vectors(&state);
                    let general = arch::general_by_number(&regs);
                    return Ok(CameTo::Back(Box::new(CallRegisters { general, vector, mxcsr })));
                }
                Stop::Interrupt | Stop::Group | Stop::Exec | Stop::Clone => {}
            }
        }
    }

    /// The four bytes at `at`.
    ///
    /// # Errors
    /// If they are not there.
    pub fn half(&self, at: LiveVa) -> Result<u32, AttachError> {
        let mut bytes = [0; 4];
        self.copy.read(at, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Writes four bytes to `at`.
    ///
    /// # Errors
    /// If they are not there.
    pub fn set_half(&self, at: LiveVa, value: u32) -> Result<(), AttachError> {
        Ok(self.copy.write(at, &value.to_le_bytes())?)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let Some(helper) = self.helper.take() else { return };
        end(&self.copy, self.number, &helper);
        leave(Pid::from_raw(helper.process()), helper);
    }
}

/// Has `helper` make the copy; it, and its number in the process.
fn start(pid: Pid, helper: &Helper) -> Result<(Stopped, u64), AttachError> {
    let (copy, number) = cloned(helper, threads::working(pid), 0, 0)?;
    let tid = Pid::from_raw(copy.pid());
    let options = threads::working(pid) | Options::PTRACE_O_EXITKILL;
    if let Err(err) = ptrace::setoptions(tid, options) {
        end(&copy, number, helper);
        return Err(AttachError::refused(tid, "having it end with us", err.into()));
    }
    Ok((copy, number))
}

/// Ends the copy, which the process of `helper` knows by this number.
fn end(copy: &Stopped, number: u64, helper: &Helper) {
    let tid = Pid::from_raw(copy.pid());
    sys::send(tid, libc::SIGKILL);
    let _gone = sys::end_of(tid);
    // Its status is left to its parent.
    let args = [number, 0, u64::from(libc::__WALL.cast_unsigned()), 0, 0, 0];
    let _gone = helper.call(&Syscall { name: "wait4", number: libc::SYS_wait4, args });
}

/// Gives the copy a stack, and takes from it what others would see; the end of the stack.
fn prepare(copy: &Stopped) -> Result<u64, AttachError> {
    let args = [0, u64::from(u32::MAX), 0, 0, 0, 0];
    copy.call(&Syscall { name: "close_range", number: libc::SYS_close_range, args })?;
    for m in copy.mappings()?.iter().filter(|m| m.shared && m.writable) {
        let rights = u64::from(libc::PROT_READ.cast_unsigned());
        let args = [m.range.start.0, m.range.end.0 - m.range.start.0, rights, 0, 0, 0];
        copy.call(&Syscall { name: "mprotect", number: libc::SYS_mprotect, args })?;
    }
    let stack = copy.map_anywhere(STACK, libc::PROT_READ | libc::PROT_WRITE)?;
    Ok(stack.0 + STACK - PAGE)
}

/// Ends our thread in `pid`, and takes its code away, unless something else of ours is there.
fn leave(pid: Pid, helper: Helper) {
    let has_more = helper.word(LiveVa(probe::arch::shared::JOURNAL)).is_ok() && journal::is_there(pid);
    helper.end();
    if !has_more {
        // Of a process that is gone, nothing is left.
        let _gone = forget_code(pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    const SOURCE: &str = "
        #include <errno.h>
        #include <stdio.h>
        #include <sys/mman.h>
        #include <unistd.h>
        long *shared, own;
        double half(double x) { return x / 2; }
        long sets_errno(long n) { errno = 33; return n + 1; }
        long faults(void) { return *(volatile long *)8; }
        long loops(void) { for (volatile long n = 1; n; n++) ; return 0; }
        long asks(void) { return getpid(); }
        long writes(long n) { own = n; return own; }
        long writes_shared(void) { return *shared = 5; }
        int main(void) {
            shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            printf(\"%p %p %p %p %p %p %p %p\\n\", (void *)half, (void *)sets_errno, (void *)faults, (void *)loops,
                   (void *)asks, (void *)writes, (void *)writes_shared, (void *)__errno_location);
            fflush(stdout);
            for (;;) { usleep(1000); if (own || *shared) return 3; }
        }
    ";

    fn started(folder: &std::path::Path) -> (Child, Vec<LiveVa>) {
        use std::io::BufRead as _;
        let (source, binary) = (folder.join("a.c"), folder.join("a"));
        std::fs::write(&source, SOURCE).expect("written");
        let made = Command::new("gcc").arg("-O1").arg("-o").arg(&binary).arg(&source).status();
        assert!(made.expect("gcc runs").success());
        let mut child =
            Command::new(&binary).stdout(std::process::Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("it is piped");
        std::io::BufReader::new(out).read_line(&mut line).expect("it says where its functions are");
        let all = line
            .split_whitespace()
            .map(|at| LiveVa(u64::from_str_radix(at.trim_start_matches("0x"), 16).expect("an address")));
        (child, all.collect())
    }

    fn with(rdi: u64, x: f64) -> CallRegisters {
        let mut registers = CallRegisters { general: [0; 16], vector: [0; 16], mxcsr: 0x1f80 };
        (registers.general[7], registers.vector[0]) = (rdi, x.to_bits());
        registers
    }

    #[test]
    fn what_a_function_does_in_a_copy_is_seen_there_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut child, at) = started(folder.path());
        let pid = i32::try_from(child.id()).expect("a number");
        let copied = Copied::of(pid).expect("it can be copied");
        let long = Duration::from_secs(5);
        let call = |n: usize, rdi, x, long| copied.call(at[n], &with(rdi, x), long).expect("it is there");
        let back = |came: CameTo| match came {
            CameTo::Back(registers) => registers,
            other => panic!("{other:?}"),
        };
        let half = back(call(0, 0, 5.0, long));
        assert_eq!((f64::from_bits(half.vector[0]), half.mxcsr), (2.5, 0x1f80));
        assert_eq!(back(call(0, 0, 5e-324, long)).mxcsr & 0x3f, 0x32, "denormal, inexact, too small");
        let errno_at = LiveVa(back(call(7, 0, 0.0, long)).general[0]);
        copied.set_half(errno_at, 0).expect("it is there");
        assert_eq!(back(call(1, 6, 0.0, long)).general[0], 7);
        assert_eq!(copied.half(errno_at).expect("it is there"), 33);
        let CameTo::Signal { signal, at: place } = call(2, 0, 0.0, long) else { panic!("it faults") };
        assert_eq!(signal, libc::SIGSEGV);
        assert!((at[2].0..at[2].0 + 16).contains(&place.0));
        assert_eq!(call(3, 0, 0.0, Duration::from_millis(50)), CameTo::TooLong);
        let CameTo::SystemCall { number, .. } = call(4, 0, 0.0, long) else { panic!("it asks the kernel") };
        assert_eq!(number, libc::SYS_getpid.cast_unsigned());
        // Behind all of these, it still works.
        assert_eq!(back(call(5, 9, 0.0, long)).general[0], 9);
        let CameTo::Signal { signal, .. } = call(6, 0, 0.0, long) else { panic!("it is shared") };
        assert_eq!(signal, libc::SIGSEGV);
        let number = copied.copy.pid();
        drop(copied);
        assert!(sys::is_gone(number), "the copy is left");
        std::thread::park_timeout(Duration::from_millis(20));
        assert_eq!(child.try_wait().expect("it can be asked"), None, "the process has seen something");
        assert!(!journal::is_there(Pid::from_raw(pid)));
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there").count();
        assert_eq!(threads, 1);
        child.kill().expect("it is there");
        child.wait().expect("it ends");
    }
}
