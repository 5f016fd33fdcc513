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
    /// Its first thread has ended, and others run on: by its number, the kernel tells nothing of it any more.
    #[error("the first thread of process {pid} has ended, though others run on")]
    FirstThreadOver {
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
            LookError::FirstThreadOver { .. } => {
                "start it under engraft: by then, what it has mapped is known"
            }
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

/// The threads of process `pid`.
fn threads(pid: i32) -> impl Iterator<Item = i32> {
    let all = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// By whose number the kernel tells what there is of process `pid`: its own, or, if its first thread has
/// ended while others run on, that of another of its threads.
pub(crate) fn alive(pid: i32) -> i32 {
    let is_there = |tid: &i32| Status::read(*tid).is_ok_and(|status| !status.is_over());
    if is_there(&pid) { pid } else { threads(pid).find(is_there).unwrap_or(pid) }
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
        if status.is_over() {
            return Err(match alive(pid) == pid {
                true => LookError::Over { pid },
                false => LookError::FirstThreadOver { pid },
            });
        }
        match status.field("VmSize:") {
            Some(_) => Ok(status),
            None => Err(LookError::Kernel { pid }),
        }
    }

    fn is_over(&self) -> bool {
        self.field("State:").is_some_and(|state| state.starts_with(['Z', 'X']))
    }

    /// Whether it, or another of its threads, has its system calls filtered (seccomp).
    pub(crate) fn is_filtered(pid: i32) -> bool {
        let is_one = |status: &Status| status.field("Seccomp:").is_some_and(|mode| mode != "0");
        threads(pid).any(|tid| Status::read(tid).is_ok_and(|status| is_one(&status)))
    }

    /// Whether there is a program in process `pid` that runs, if only in threads other than its first.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn of_what_runs(pid: i32) -> Result<(), LookError> {
        match Status::of_program(pid) {
            Ok(_) | Err(LookError::FirstThreadOver { .. }) => Ok(()),
            Err(err) => Err(err),
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
