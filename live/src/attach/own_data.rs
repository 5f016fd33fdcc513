//! Memory of code that was put into a process, read and written while the process runs.
//!
//! Invariant: nothing else of the process is written.

use super::AttachError;
use nix::libc;
use nix::unistd::Pid;
use program::LiveVa;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Such memory.
#[derive(Debug)]
pub struct OwnData {
    pid: Pid,
    memory: File,
    range: Range<u64>,
}

impl OwnData {
    /// That of `len` bytes at `at` of process `pid`.
    ///
    /// # Errors
    /// If the process is gone, or its memory cannot be written by us.
    pub fn of(pid: i32, at: LiveVa, len: u64) -> Result<OwnData, AttachError> {
        let pid = Pid::from_raw(pid);
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
        let memory = memory.map_err(|err| match err.raw_os_error() {
            Some(libc::ENOENT) => AttachError::Ended { pid: pid.as_raw() },
            _ => AttachError::refused(pid, "opening its memory", err),
        })?;
        Ok(OwnData { pid, memory, range: at.0..at.0.saturating_add(len) })
    }

    /// Fills `bytes` with what is so far from its start.
    ///
    /// # Errors
    /// If the process is gone, or has not as much.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), AttachError> {
        let at = self.place(offset, bytes.len())?;
        self.memory.read_exact_at(bytes, at).map_err(|err| self.failed("reading its memory", err))
    }

    /// Writes a word so far from its start, at once.
    ///
    /// # Errors
    /// As above.
    pub fn write(&self, offset: u64, word: u64) -> Result<(), AttachError> {
        let at = self.place(offset, 8)?;
        let written = self.memory.write_all_at(&word.to_le_bytes(), at);
        written.map_err(|err| self.failed("writing its memory", err))
    }

    fn place(&self, offset: u64, len: usize) -> Result<u64, AttachError> {
        let at = self.range.start.checked_add(offset);
        let is_within = |at: &u64| at.checked_add(len as u64).is_some_and(|end| end <= self.range.end);
        let beyond =
            || AttachError::refused(self.pid, "reading its memory", io::ErrorKind::InvalidInput.into());
        at.filter(is_within).ok_or_else(beyond)
    }

    fn failed(&self, call: &'static str, err: io::Error) -> AttachError {
        // What has ended has no memory any more.
        match err.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero => {
                AttachError::Ended { pid: self.pid.as_raw() }
            }
            _ if err.raw_os_error() == Some(libc::EIO) => AttachError::Ended { pid: self.pid.as_raw() },
            _ => AttachError::refused(self.pid, call, err),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_is_neither_read_nor_written() {
        let words = [1u64, 2, 3];
        let own = i32::try_from(std::process::id()).expect("small");
        let data = OwnData::of(own, LiveVa(words.as_ptr().addr() as u64), 16).expect("it is ours");
        data.write(8, 7).expect("it is within");
        let mut bytes = [0; 8];
        data.read(8, &mut bytes).expect("it is within");
        assert_eq!(u64::from_le_bytes(bytes), 7);
        assert!(data.write(9, 9).is_err() && data.read(16, &mut bytes).is_err());
        assert!(data.write(u64::MAX, 9).is_err());
        assert_eq!(std::hint::black_box(&words)[2], 3);
    }
}
