//! One at a time: who works on a process holds its lock, and the kernel gives it back when he is no more.
//!
//! It is a name for sockets, of which the kernel gives each out once (of a network namespace; in others, what
//! stands in the process itself has to tell).
//!
//! Source: unix(7), abstract names.

use super::AttachError;
use nix::unistd::Pid;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

/// A process that nobody else works on as long as this is there.
pub(super) struct Lock {
    _name: UnixListener,
}

impl Lock {
    /// That of process `pid`; `None` if somebody has it.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn take(pid: Pid) -> Result<Option<Lock>, AttachError> {
        // Another process may have its number one day.
        let since = procfs::process::Process::new(pid.as_raw()).and_then(|process| process.stat());
        let since = since.map_or(0, |stat| stat.starttime);
        let refused = |err: io::Error| AttachError::refused(pid, "locking it", err);
        let name = SocketAddr::from_abstract_name(format!("engraft/{pid}/{since}")).map_err(refused)?;
        match UnixListener::bind_addr(&name) {
            Ok(name) => Ok(Some(Lock { _name: name })),
            Err(err) if err.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(err) => Err(refused(err)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_it() {
        let own = Pid::this();
        let first = Lock::take(own).expect("it may be asked for").expect("nobody has it");
        assert!(Lock::take(own).expect("it may be asked for").is_none());
        drop(first);
        assert!(Lock::take(own).expect("it may be asked for").is_some());
    }
}
