//! What is done in a process's name while it stands: memory, and files of ours that it opens.

use crate::process::{ProcessError, Stopped, Syscall};
use nix::libc;
use probe::arch::shared::PROCESS;
use program::LiveVa;
use std::fs::File;
use std::os::fd::AsRawFd as _;

pub(crate) const PAGE: u64 = 0x1000;
/// Protection and flags of memory that it reads and writes.
pub(crate) const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
pub(crate) const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Has a child find the page at `at` zero: that is how it knows that it is one.
pub(crate) fn wipe_on_fork(stopped: &Stopped, at: LiveVa) -> Result<(), ProcessError> {
    let advice = u64::from(libc::MADV_WIPEONFORK.cast_unsigned());
    let args = [at.0, PAGE, advice, 0, 0, 0];
    stopped.call(&Syscall { name: "madvise", number: libc::SYS_madvise, args }).map(drop)
}

/// Maps private pages at `at` and fills them; none for nothing, as for the text of a program in which nothing
/// can be moved.
pub(crate) fn fill(stopped: &Stopped, at: LiveVa, bytes: &[u8], protection: i32) -> Result<(), ProcessError> {
    if bytes.is_empty() {
        return Ok(());
    }
    let len = (bytes.len() as u64).next_multiple_of(PAGE);
    stopped.map(at, len, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, u64::MAX, 0)?;
    stopped.write(at, bytes)
}

/// Opens a file of ours in the process, by the page that is to hold what it knows of itself: its number
/// there.
pub(crate) fn open(stopped: &Stopped, file: &File, how: i32) -> Result<u64, ProcessError> {
    let mut path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into_bytes();
    path.push(0);
    stopped.write(LiveVa(PROCESS), &path)?;
    let flags = u64::from((how | libc::O_CLOEXEC).cast_unsigned());
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    let args = [here, PROCESS, flags, 0, 0, 0];
    stopped.call(&Syscall { name: "openat", number: libc::SYS_openat, args }).map_err(|err| match err {
        ProcessError::Call { source, .. } => stopped.space(format!(
            "it may not open the memory that is shared with it, /proc/{}/fd/{}: {source}",
            std::process::id(),
            file.as_raw_fd()
        )),
        err => err,
    })
}

pub(crate) fn close(stopped: &Stopped, fd: u64) -> Result<(), ProcessError> {
    stopped.call(&Syscall { name: "close", number: libc::SYS_close, args: [fd, 0, 0, 0, 0, 0] }).map(drop)
}
