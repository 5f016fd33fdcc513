//! A process that is stopped, and ours to look at and change until it goes on.
//!
//! Invariant: what is borrowed is given back: registers and code bytes that a system call made in the
//! process's name needs are restored before the call returns. If we die, the kernel kills nothing and the
//! process goes on.
//!
//! Source: ptrace(2), proc(5).

mod limits;
mod mappings;

pub use limits::{Limits, can_set_bases};
pub use mappings::Mapping;

use crate::{arch, sys};
use mappings::mapping;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use program::LiveVa;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// What went wrong with a process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The kernel refused a request.
    #[error("process {pid}: {call} failed")]
    Refused {
        /// The process.
        pid: i32,
        /// The request.
        call: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A system call made in the process's name failed.
    #[error("process {pid}: its {call} failed")]
    Call {
        /// The process.
        pid: i32,
        /// The call.
        call: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It ended, or stopped where it was not expected to.
    #[error("process {pid} {how} before its first instruction")]
    Ended {
        /// The process.
        pid: i32,
        /// How.
        how: String,
    },
    /// Its address space is not what it should be.
    #[error("process {pid}: {what}")]
    Space {
        /// The process.
        pid: i32,
        /// What was looked for and not found.
        what: String,
    },
}

/// A stopped process that we trace.
pub struct Stopped {
    pid: Pid,
    memory: File,
    /// Signals that came for it meanwhile.
    came: RefCell<Vec<libc::c_int>>,
}

/// Arguments of a system call, with its name for messages.
pub struct Syscall {
    /// Name.
    pub name: &'static str,
    /// Number.
    pub number: libc::c_long,
    /// Arguments, in order.
    pub args: [u64; 6],
}

impl Stopped {
    /// Takes over a child that stopped at its `exec`.
    ///
    /// # Errors
    /// [`ProcessError::Ended`] if it ended or stopped otherwise, [`ProcessError::Refused`] by the kernel.
    pub fn at_exec(pid: Pid) -> Result<Stopped, ProcessError> {
        let refused = |call, source: io::Error| ProcessError::Refused { pid: pid.as_raw(), call, source };
        match waitpid(pid, None).map_err(|e| refused("waitpid", e.into()))? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            WaitStatus::Exited(_, code) => {
                return Err(ProcessError::Ended {
                    pid: pid.as_raw(),
                    how: format!("exited with status {code}"),
                });
            }
            other => {
                return Err(ProcessError::Ended { pid: pid.as_raw(), how: format!("stopped ({other:?})") });
            }
        }
        Stopped::traced(pid)
    }

    /// Takes over a process that this thread traces, and that stands still.
    ///
    /// # Errors
    /// [`ProcessError::Refused`] if its memory cannot be opened.
    pub fn traced(pid: Pid) -> Result<Stopped, ProcessError> {
        let memory =
            File::options().read(true).write(true).open(format!("/proc/{pid}/mem")).map_err(|source| {
                ProcessError::Refused { pid: pid.as_raw(), call: "opening its memory", source }
            })?;
        Ok(Stopped { pid, memory, came: RefCell::new(Vec::new()) })
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    fn refused(&self, call: &'static str) -> impl FnOnce(nix::Error) -> ProcessError + use<> {
        let pid = self.pid.as_raw();
        move |e| ProcessError::Refused { pid, call, source: e.into() }
    }

    /// An error about its address space.
    pub fn space(&self, what: impl Into<String>) -> ProcessError {
        ProcessError::Space { pid: self.pid.as_raw(), what: what.into() }
    }

    /// Reads all of `bytes` from `at`.
    ///
    /// # Errors
    /// If less is mapped there; `bytes` may be read in part.
    pub fn read(&self, at: LiveVa, bytes: &mut [u8]) -> Result<(), ProcessError> {
        self.memory.read_exact_at(bytes, at.0).map_err(|source| ProcessError::Refused {
            pid: self.pid.as_raw(),
            call: "reading its memory",
            source,
        })
    }

    /// The word at `at`.
    ///
    /// # Errors
    /// If it is not mapped.
    pub fn word(&self, at: LiveVa) -> Result<u64, ProcessError> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes `bytes` to `at`, whatever the protection of the page.
    ///
    /// # Errors
    /// If less is mapped there; `bytes` may be written in part.
    pub fn write(&self, at: LiveVa, bytes: &[u8]) -> Result<(), ProcessError> {
        self.memory.write_all_at(bytes, at.0).map_err(|source| ProcessError::Refused {
            pid: self.pid.as_raw(),
            call: "writing its memory",
            source,
        })
    }

    /// Its mappings, by address.
    ///
    /// # Errors
    /// If it is gone, or the kernel's list cannot be read.
    pub fn mappings(&self) -> Result<Vec<Mapping>, ProcessError> {
        let text = std::fs::read(format!("/proc/{}/maps", self.pid))
            .map_err(|e| self.space(format!("its mappings cannot be read: {e}")))?;
        let lines = text.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| mapping(line).ok_or_else(|| self.space("its mappings are not as proc(5) says")))
            .collect()
    }

    /// Its stack pointer.
    ///
    /// # Errors
    /// [`ProcessError::Refused`] if it is gone, or runs.
    pub fn stack_pointer(&self) -> Result<LiveVa, ProcessError> {
        Ok(LiveVa(
            ptrace::getregs(self.pid)
                .map_err(self.refused("reading its registers"))
                .map(|r| arch::stack_pointer(&r))?,
        ))
    }

    /// Makes a system call in its name; registers and code are afterwards as they were.
    ///
    /// # Errors
    /// If the kernel refuses to let us, or the call itself.
    pub fn call(&self, call: &Syscall) -> Result<u64, ProcessError> {
        let before = ptrace::getregs(self.pid).map_err(self.refused("reading its registers"))?;
        let at = LiveVa(arch::instruction_pointer(&before));
        let mut old = [0; arch::SYSCALL.len()];
        self.read(at, &mut old)?;
        let regs = arch::with_call(before, call.number, call.args);
        self.write(at, &arch::SYSCALL)?;
        let ran = self.step(regs);
        let restored = self.write(at, &old);
        let registers = ptrace::setregs(self.pid, before).map_err(self.refused("restoring its registers"));
        let result = ran?;
        restored?;
        registers?;
        match i32::try_from(result.cast_signed()) {
            Ok(error) if (-4095..0).contains(&error) => Err(ProcessError::Call {
                pid: self.pid.as_raw(),
                call: call.name,
                source: io::Error::from_raw_os_error(-error),
            }),
            _ => Ok(result),
        }
    }

    fn step(&self, regs: libc::user_regs_struct) -> Result<u64, ProcessError> {
        ptrace::setregs(self.pid, regs).map_err(self.refused("setting its registers"))?;
        loop {
            ptrace::step(self.pid, None).map_err(self.refused("stepping it"))?;
            let stop = sys::next_stop(None).map_err(|source| ProcessError::Refused {
                pid: self.pid.as_raw(),
                call: "waiting for it",
                source,
            })?;
            match stop {
                Some((_, sys::Stop::Signal(libc::SIGTRAP))) => break,
                Some((_, sys::Stop::Signal(signal))) => self.came.borrow_mut().push(signal),
                other => {
                    return Err(ProcessError::Ended {
                        pid: self.pid.as_raw(),
                        how: format!("stopped ({other:?})"),
                    });
                }
            }
        }
        ptrace::getregs(self.pid).map_err(self.refused("reading its registers")).map(|r| arch::result(&r))
    }

    /// Maps `len` bytes of the open file `fd` of the process, from `offset`, at exactly `at`; fails if
    /// something is there.
    ///
    /// # Errors
    /// If something is mapped there, or the kernel refuses.
    pub fn map(
        &self,
        at: LiveVa,
        len: u64,
        protection: i32,
        flags: i32,
        fd: u64,
        offset: u64,
    ) -> Result<(), ProcessError> {
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        let bits = |n: i32| u64::from(n.cast_unsigned());
        let args = [at.0, len, bits(protection), bits(flags), fd, offset];
        let got = self.call(&Syscall { name: "mmap", number: libc::SYS_mmap, args })?;
        if got == at.0 {
            Ok(())
        } else {
            Err(self.space(format!("mmap put {len} bytes at {got:#x}, not at {at}")))
        }
    }

    /// Lets it go on by itself.
    ///
    /// # Errors
    /// [`ProcessError::Refused`] if it is gone.
    pub fn detach(self) -> Result<(), ProcessError> {
        self.came.take().into_iter().for_each(|signal| sys::send(self.pid, signal));
        ptrace::detach(self.pid, None).map_err(self.refused("letting it go"))
    }
}
