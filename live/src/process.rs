//! A process that is stopped, and ours to look at and change until it goes on.
//!
//! Invariant: what is borrowed is given back: registers and code bytes that a system call made in the
//! process's name needs are restored before the call returns. If we die, the kernel kills nothing and the
//! process goes on.
//!
//! Source: ptrace(2), proc(5).

mod limits;
mod mappings;
mod memory;
mod processor;
mod resident;
mod status;
mod which;

pub use limits::{Limits, can_set_bases};
pub use mappings::{Mapping, Root};
pub use memory::{RunningMemory, own_file};
pub use processor::{OnProcessor, processor_of};
pub use resident::Resident;
pub use status::LookError;
pub(crate) use status::Status;
pub use which::{children_of, processes_named};
pub(crate) use which::{numbered_in, own_number};

use crate::{arch, sys};
use mappings::mapping;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use probe::arch::shared::PAGE;
use program::LiveVa;
use std::cell::{Cell, RefCell};
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
    #[error("process {pid} {how} while it was prepared")]
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
    /// Where it enters the kernel, if no code need be borrowed for that.
    entering: Option<Entering>,
    /// Signals that came for it meanwhile.
    came: RefCell<Vec<libc::c_int>>,
    /// What was mapped in it: where, and how many bytes.
    mapped: RefCell<Vec<(LiveVa, u64)>>,
    /// The thread that it made last, by the number that we know it by.
    made: Cell<Option<Pid>>,
    /// Where that is written down in it, too, if it is: how many there are, and a row each.
    ledger: Cell<Option<(LiveVa, usize)>>,
}

/// By which code a thread makes the system calls that are made in its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entering {
    /// That of ours at this address.
    Ours(LiveVa),
    /// `syscall; ret` at this address, from which it goes home by itself (`arch::way_home`).
    FromHome(LiveVa),
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

/// How private memory of no file is mapped.
const NONE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// What stands in a row of a ledger, in the bits that a length in pages leaves, of what is about to be mapped
/// with these rights, if there is nothing in its place.
fn about_to_be(protection: i32) -> u64 {
    1 | u64::from(protection.cast_unsigned()) << 1
}

/// The length in a row of a ledger; and, of what was about to be mapped, whether it may be written and run.
pub(crate) fn row_len(word: u64) -> (u64, Option<[bool; 2]>) {
    const MARKS: u64 = 0xf;
    let has = |right: libc::c_int| word >> 1 & u64::from(right.cast_unsigned()) != 0;
    (word & !MARKS, (word & 1 != 0).then(|| [libc::PROT_WRITE, libc::PROT_EXEC].map(has)))
}

/// What puts the `len` bytes that are mapped at `from` to `to`, in place of what is there, at once.
pub(crate) fn put_in_place(from: LiveVa, to: LiveVa, len: u64) -> Syscall {
    let how = u64::from((libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED).cast_unsigned());
    Syscall { name: "mremap", number: libc::SYS_mremap, args: [from.0, len, len, how, to.0, 0] }
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
        Ok(Stopped {
            pid,
            memory,
            entering: None,
            came: RefCell::default(),
            made: Cell::default(),
            mapped: RefCell::default(),
            ledger: Cell::default(),
        })
    }

    /// Process `pid`, whichever of its threads are there still, to be looked at.
    ///
    /// # Errors
    /// As [`Stopped::traced`].
    pub(crate) fn looked_at(pid: Pid) -> Result<Stopped, ProcessError> {
        Stopped::traced(Pid::from_raw(status::alive(pid.as_raw())))
    }

    /// The same, which makes its system calls by code that is there, and whose stops at them are told from
    /// others (`PTRACE_O_TRACESYSGOOD`).
    ///
    /// # Errors
    /// [`ProcessError::Refused`] if its memory cannot be opened.
    pub(crate) fn entering_by(pid: Pid, code: Entering) -> Result<Stopped, ProcessError> {
        Ok(Stopped { entering: Some(code), ..Stopped::traced(pid)? })
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
        let root = Root::of(self.pid());
        let named = |m: Mapping| Mapping { path: m.path.map(|path| root.named(&path)), ..m };
        lines
            .map(|line| {
                mapping(line).map(named).ok_or_else(|| self.space("its mappings are not as proc(5) says"))
            })
            .collect()
    }

    /// Its stack pointer.
    ///
    /// # Errors
    /// [`ProcessError::Refused`] if it is gone, or runs.
    pub fn stack_pointer(&self) -> Result<LiveVa, ProcessError> {
        self.registers().map(|r| LiveVa(arch::stack_pointer(&r)))
    }

    /// Makes a system call in its name; registers and code are afterwards as they were.
    ///
    /// # Errors
    /// If the kernel refuses to let us, or the call itself.
    pub fn call(&self, call: &Syscall) -> Result<u64, ProcessError> {
        let before = self.registers()?;
        let regs = arch::with_call(before, call.number, call.args);
        let (ran, restored) = match self.entering {
            Some(Entering::Ours(at)) => (self.run_call(arch::going_on_at(regs, at.0)), Ok(())),
            Some(Entering::FromHome(at)) => (self.run_call(arch::with_call_from_home(regs, at.0)), Ok(())),
            None => {
                let at = LiveVa(arch::instruction_pointer(&before));
                let mut old = [0; arch::SYSCALL.len()];
                self.read(at, &mut old)?;
                self.write(at, &arch::SYSCALL)?;
                (self.step(regs), self.write(at, &old))
            }
        };
        let registers = self.set_registers(before);
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

    /// Its registers.
    pub(crate) fn registers(&self) -> Result<libc::user_regs_struct, ProcessError> {
        ptrace::getregs(self.pid).map_err(self.refused("reading its registers"))
    }

    /// Gives it other registers, but for the bases of segments.
    pub(crate) fn set_registers(&self, regs: libc::user_regs_struct) -> Result<(), ProcessError> {
        sys::set_registers(self.pid, &arch::without_bases(&regs)).map_err(|source| ProcessError::Refused {
            pid: self.pid.as_raw(),
            call: "setting its registers",
            source,
        })
    }

    fn next_stop(&self) -> Result<sys::Stop, ProcessError> {
        sys::stop_of(self.pid).map_err(|source| ProcessError::Refused {
            pid: self.pid.as_raw(),
            call: "waiting for it",
            source,
        })
    }

    /// Has it make the system call that `regs` are before, from one of its stops to the other. No instruction
    /// is stepped over: should we die meanwhile, nothing would be left to stop it.
    fn run_call(&self, regs: libc::user_regs_struct) -> Result<u64, ProcessError> {
        self.set_registers(regs)?;
        let mut n_stops = 0;
        while n_stops < 2 {
            ptrace::syscall(self.pid, None).map_err(self.refused("having it make a call"))?;
            match self.next_stop()? {
                sys::Stop::Call => n_stops += 1,
                sys::Stop::Signal(signal) => self.came.borrow_mut().push(signal),
                // What the call returns is its number where the process is, which need not be ours.
                sys::Stop::Clone => {
                    let number = ptrace::getevent(self.pid).map_err(self.refused("asking for its thread"))?;
                    self.made.set(i32::try_from(number).ok().map(Pid::from_raw));
                }
                // It is at our disposal all the same: also while all threads are stopped by a signal.
                sys::Stop::Group | sys::Stop::Interrupt => {}
                other @ (sys::Stop::Exec | sys::Stop::Ended) => {
                    return Err(ProcessError::Ended {
                        pid: self.pid.as_raw(),
                        how: format!("stopped ({other:?})"),
                    });
                }
            }
        }
        self.registers().map(|r| arch::result(&r))
    }

    /// The thread that it has made, where that is followed (`PTRACE_O_TRACECLONE`).
    pub(crate) fn made(&self) -> Option<Pid> {
        self.made.get()
    }

    /// The signals that came for it meanwhile, which nobody else gives it now.
    pub(crate) fn take_signals(&self) -> Vec<libc::c_int> {
        self.came.take()
    }

    fn step(&self, regs: libc::user_regs_struct) -> Result<u64, ProcessError> {
        self.set_registers(regs)?;
        loop {
            ptrace::step(self.pid, None).map_err(self.refused("stepping it"))?;
            match self.next_stop()? {
                sys::Stop::Signal(libc::SIGTRAP) => break,
                sys::Stop::Signal(signal) => self.came.borrow_mut().push(signal),
                other => {
                    return Err(ProcessError::Ended {
                        pid: self.pid.as_raw(),
                        how: format!("stopped ({other:?})"),
                    });
                }
            }
        }
        self.registers().map(|r| arch::result(&r))
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
        // Should we die in between: what has no name is known by what is written down of it alone.
        let pages = len.next_multiple_of(PAGE);
        self.has_mapped(at, pages | about_to_be(protection))?;
        let got = self.call(&Syscall { name: "mmap", number: libc::SYS_mmap, args });
        self.mapped.borrow_mut().retain(|mapped| mapped.0 != at);
        match got {
            Ok(got) if got == at.0 => self.has_mapped(at, pages),
            Ok(got) => {
                self.write_ledger()?;
                Err(self.space(format!("mmap put {len} bytes at {got:#x}, not at {at}")))
            }
            Err(err) => {
                self.write_ledger()?;
                Err(err)
            }
        }
    }

    /// Maps `len` bytes anywhere: private, of no file.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn map_anywhere(&self, len: u64, protection: i32) -> Result<LiveVa, ProcessError> {
        self.map_file_anywhere(len, protection, u64::MAX, 0)
    }

    /// The same of the open file `fd` of the process, from `offset`; of none, if that is −1.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn map_file_anywhere(
        &self,
        len: u64,
        protection: i32,
        fd: u64,
        offset: u64,
    ) -> Result<LiveVa, ProcessError> {
        let flags = if fd == u64::MAX { NONE } else { libc::MAP_PRIVATE };
        self.map_somewhere(len, protection, flags, (fd, offset))
    }

    /// The same, shared with all who have mapped the file.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn share_file_anywhere(&self, len: u64, fd: u64) -> Result<LiveVa, ProcessError> {
        self.map_somewhere(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, (fd, 0))
    }

    fn map_somewhere(
        &self,
        len: u64,
        protection: i32,
        flags: i32,
        (fd, offset): (u64, u64),
    ) -> Result<LiveVa, ProcessError> {
        // It is written down where it is before it is anything.
        let bits = |n: i32| u64::from(n.cast_unsigned());
        let room = [0, len, bits(libc::PROT_NONE), bits(NONE | libc::MAP_NORESERVE), u64::MAX, 0];
        let at = LiveVa(self.call(&Syscall { name: "mmap", number: libc::SYS_mmap, args: room })?);
        self.has_mapped(at, len.next_multiple_of(PAGE))?;
        let args = [at.0, len, bits(protection), bits(flags | libc::MAP_FIXED), fd, offset];
        match self.call(&Syscall { name: "mmap", number: libc::SYS_mmap, args }) {
            Ok(_) => Ok(at),
            Err(err) => {
                self.unmap(at, len)?;
                Err(err)
            }
        }
    }

    /// Unmaps `len` bytes at `at`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn unmap(&self, at: LiveVa, len: u64) -> Result<(), ProcessError> {
        self.forget_mapped(at)?;
        let args = [at.0, len, 0, 0, 0, 0];
        self.call(&Syscall { name: "munmap", number: libc::SYS_munmap, args }).map(drop)
    }

    /// Has it forget which pages of a file it has `len` bytes at `at` from, where it has none of its own:
    /// what it needs of them it finds again, and the rest need not be taken from it while it stands still.
    pub(crate) fn forget_pages(&self, at: LiveVa, len: u64) {
        let args = [at.0, len, u64::from(libc::MADV_DONTNEED.cast_unsigned()), 0, 0, 0];
        // If it cannot be, it takes longer.
        let _kept = self.call(&Syscall { name: "madvise", number: libc::SYS_madvise, args });
    }

    /// Puts the `len` bytes that are mapped at `from` to `to`, in place of what is there, at once.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn put_in_place(&self, from: LiveVa, to: LiveVa, len: u64) -> Result<(), ProcessError> {
        // Should we die now, it stays where it is; what comes to be there later is the program's.
        self.forget_mapped(from)?;
        self.call(&put_in_place(from, to, len)).map(drop)
    }

    /// Where it is written down how much is mapped at `at`, which is to be put somewhere: 0 stands for what
    /// is there already.
    pub(crate) fn place_in_ledger(&self, at: LiveVa) -> Option<LiveVa> {
        let (start, n_rows) = self.ledger.get()?;
        let row =
            self.mapped.borrow().iter().position(|mapped| mapped.0 == at).filter(|row| *row < n_rows)?;
        Some(LiveVa(start.0 + 8 + 16 * row as u64 + 8))
    }

    /// What was mapped at all of these is somewhere else now.
    pub(crate) fn forget_all_mapped(&self, all: &[LiveVa]) -> Result<(), ProcessError> {
        self.mapped.borrow_mut().retain(|mapped| !all.contains(&mapped.0));
        self.write_ledger()
    }

    /// Has what is mapped from now on, and not put anywhere yet, be written down at `at`, where there is room
    /// for so many rows.
    pub(crate) fn keep_ledger(&self, at: LiveVa, n_rows: usize) {
        self.ledger.set(Some((at, n_rows)));
    }

    fn has_mapped(&self, at: LiveVa, len: u64) -> Result<(), ProcessError> {
        self.mapped.borrow_mut().push((at, len));
        self.write_ledger()
    }

    fn forget_mapped(&self, at: LiveVa) -> Result<(), ProcessError> {
        self.mapped.borrow_mut().retain(|mapped| mapped.0 != at);
        self.write_ledger()
    }

    /// What is mapped at one of `kept` alone is still to be put somewhere; the rest stays.
    pub(crate) fn keep_mapped_but(&self, kept: &[LiveVa]) {
        self.mapped.borrow_mut().retain(|mapped| kept.contains(&mapped.0));
    }

    /// What is written down of what is mapped.
    pub(crate) fn ledger(&self) -> Vec<u8> {
        let n_rows = self.ledger.get().map_or(0, |ledger| ledger.1);
        let mapped = self.mapped.borrow();
        let rows = &mapped[..mapped.len().min(n_rows)];
        let words = rows.iter().flat_map(|(at, len)| [at.0, *len]);
        std::iter::once(rows.len() as u64).chain(words).flat_map(u64::to_le_bytes).collect()
    }

    fn write_ledger(&self) -> Result<(), ProcessError> {
        match self.ledger.get() {
            Some((at, _)) => self.write(at, &self.ledger()),
            None => Ok(()),
        }
    }

    /// Unmaps all that was mapped and is where it was.
    pub(crate) fn unmap_all(&self) {
        self.ledger.set(None);
        for (at, len) in self.mapped.take() {
            let args = [at.0, len, 0, 0, 0, 0];
            let _gone = self.call(&Syscall { name: "munmap", number: libc::SYS_munmap, args });
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

#[cfg(test)]
mod tests {
    use super::{about_to_be, row_len};
    use nix::libc::{PROT_EXEC, PROT_READ, PROT_WRITE};

    #[test]
    fn a_row_says_how_long_and_whether_it_is_there() {
        assert_eq!(row_len(0x3000), (0x3000, None));
        assert_eq!(row_len(0), (0, None));
        let of = |rights| row_len(0x3000 | about_to_be(rights));
        assert_eq!(of(PROT_READ), (0x3000, Some([false, false])));
        assert_eq!(of(PROT_READ | PROT_WRITE), (0x3000, Some([true, false])));
        assert_eq!(of(PROT_READ | PROT_EXEC), (0x3000, Some([false, true])));
    }
}
