//! The mailbox, where a process asks for a library that it is about to load.
//!
//! Invariant: an answer goes to who asked for it.
//!
//! Source: futex(2).

use super::{Arena, FUTEX_OWNER_DIED};
use probe::arch::shared::{self, Mailbox};
use probe::offset;
use std::ffi::OsStr;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A library that a counted program is about to load, and waits for our answer.
#[derive(Debug)]
pub struct Request {
    /// The process.
    pub pid: u32,
    /// The path it opened, as it gave it.
    pub path: PathBuf,
    number: u32,
}

impl Request {
    /// The file, seen from here.
    pub fn file(&self) -> PathBuf {
        let side = if self.path.is_absolute() { "root" } else { "cwd" };
        let path = self.path.strip_prefix("/").unwrap_or(&self.path);
        PathBuf::from(format!("/proc/{}/{side}", self.pid)).join(path)
    }
}

impl Arena {
    /// Where the mailbox is in a process.
    pub(crate) fn mailbox_at(&self) -> u64 {
        shared::ARENA + self.mailbox
    }

    /// The next library that a program asks for; `None` if it asks for none for so long.
    ///
    /// # Errors
    /// The kernel's.
    pub fn request(&self, at_most: Duration) -> io::Result<Option<Request>> {
        let mut page = vec![0; size_of::<Mailbox>()];
        for is_last in [false, true] {
            self.file.read_exact_at(&mut page, self.mailbox)?;
            let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
            let state = word(offset_of!(Mailbox, state));
            if state == 1 {
                let path = page[offset_of!(Mailbox, path)..].split(|b| *b == 0);
                let path = PathBuf::from(OsStr::from_bytes(path.into_iter().next().unwrap_or_default()));
                return Ok(Some(Request {
                    pid: word(offset_of!(Mailbox, lock)),
                    number: word(offset_of!(Mailbox, n_requests)),
                    path,
                }));
            }
            if !is_last {
                self.word.sleep(state, at_most);
            }
        }
        Ok(None)
    }

    /// Has who sleeps in [`Arena::request`] look again.
    pub fn wake(&self) {
        self.word.wake();
    }

    /// Makes this thread the one that answers. When it ends, however it does, nobody waits for answers any
    /// more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hold_mailbox(&self) -> io::Result<()> {
        self.word.hold(offset_of!(Mailbox, owner))
    }

    /// Has whoever asks for a library from now on, or waits for an answer, take the plain one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn close_mailbox(&self) -> io::Result<()> {
        self.file.write_all_at(&FUTEX_OWNER_DIED.to_le_bytes(), self.mailbox + offset!(Mailbox, owner))?;
        self.word.wake();
        Ok(())
    }

    /// Answers `request`: the file to open in its place, if another one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn answer(&self, request: &Request, given: Option<&Path>) -> io::Result<()> {
        // Who asked may be gone, and another one may ask now.
        let mut number = [0; 4];
        self.file.read_exact_at(&mut number, self.mailbox + offset!(Mailbox, n_requests))?;
        if u32::from_le_bytes(number) != request.number {
            return Ok(());
        }
        let mut path = given.map_or_else(Vec::new, |p| p.as_os_str().as_bytes().to_vec());
        if path.len() as u64 + offset!(Mailbox, path) >= offset!(Mailbox, owner) {
            path.clear();
        }
        path.push(0);
        self.file.write_all_at(&path, self.mailbox + offset!(Mailbox, path))?;
        self.file.write_all_at(&2u32.to_le_bytes(), self.mailbox + offset!(Mailbox, state))?;
        self.word.wake();
        Ok(())
    }
}
