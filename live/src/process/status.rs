//! What the kernel says of a process, and why nothing of it can be looked at.
//!
//! Source: proc(5), /proc/PID/status.

use nix::libc;
use std::io;

/// Why nothing of a process can be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookError {
    /// There is none of this number, or no more.
    #[error("there is no process {pid}")]
    Gone {
        /// Its number.
        pid: i32,
    },
    /// It has ended, and its parent has not asked how yet: it has no memory any more.
    #[error("process {pid} has ended already")]
    Over {
        /// Its number.
        pid: i32,
    },
    /// It is a thread of another process.
    #[error("{pid} is a thread of process {process}")]
    Thread {
        /// Its number.
        pid: i32,
        /// Its process.
        process: i32,
    },
    /// It is a thread of the kernel.
    #[error("process {pid} is one of the kernel's, which runs no program")]
    Kernel {
        /// Its number.
        pid: i32,
    },
    /// The kernel refused.
    #[error("process {pid}: its {what} cannot be read")]
    Refused {
        /// Its number.
        pid: i32,
        /// What was to be read.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl LookError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<String> {
        let remedy = match self {
            LookError::Thread { process, .. } => return Some(format!("give the process: -p {process}")),
            LookError::Gone { .. } | LookError::Over { .. } => "`ps -e` lists the processes that there are",
            LookError::Kernel { .. } => "`ps -e` lists others; those in brackets are the kernel's",
            LookError::Refused { source, .. }
                if matches!(source.raw_os_error(), Some(libc::EACCES | libc::EPERM)) =>
            {
                "only root, or the process's owner where kernel.yama.ptrace_scope is 0, may read it"
            }
            LookError::Refused { .. } => return None,
        };
        Some(remedy.to_owned())
    }
}

/// What the kernel says of a process, a line each.
#[derive(Debug)]
pub(crate) struct Status {
    pid: i32,
    lines: String,
}

impl Status {
    /// That of process `pid`, whatever it is.
    ///
    /// # Errors
    /// The kernel's, if it is gone.
    pub(crate) fn read(pid: i32) -> io::Result<Status> {
        Ok(Status { pid, lines: std::fs::read_to_string(format!("/proc/{pid}/status"))? })
    }

    /// That of process `pid`, if it runs a program.
    ///
    /// # Errors
    /// Why there is nothing to look at.
    pub(crate) fn of_program(pid: i32) -> Result<Status, LookError> {
        let status = Status::read(pid).map_err(|_| LookError::Gone { pid })?;
        let process = status.number("Tgid:").unwrap_or(pid);
        if process != pid {
            return Err(LookError::Thread { pid, process });
        }
        if status.field("State:").is_some_and(|state| state.starts_with(['Z', 'X'])) {
            return Err(LookError::Over { pid });
        }
        match status.field("VmSize:") {
            Some(_) => Ok(status),
            None => Err(LookError::Kernel { pid }),
        }
    }

    /// What the line that begins with `name` has.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.lines.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }

    /// The number there.
    pub(crate) fn number(&self, name: &str) -> Option<i32> {
        self.field(name)?.parse().ok()
    }

    /// The number that it has in its own namespace of processes.
    pub(crate) fn own_number(&self) -> i32 {
        // From the outermost that we can see to its own.
        let numbers = self.field("NSpid:").unwrap_or_default();
        numbers.split_ascii_whitespace().next_back().and_then(|n| n.parse().ok()).unwrap_or(self.pid)
    }

    /// The number of the user that it runs as.
    pub(crate) fn user(&self) -> Option<u32> {
        self.field("Uid:")?.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}
