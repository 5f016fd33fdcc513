//! A process that runs on while it is looked at: what it has mapped, and what is in its memory. Nothing of it
//! is stopped, traced or changed.
//!
//! Source: proc(5), process_vm_readv(2) (who may read).

use super::mappings::{Mapping, mapping};
use super::status::{LookError, Status};
use nix::libc;
use probe::arch::shared::{ARENA, JOURNAL, PROCESS};
use program::LiveVa;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// A process that runs on, and its memory.
#[derive(Debug)]
pub struct RunningMemory {
    pid: i32,
    memory: File,
    mappings: Vec<Mapping>,
    status: Status,
}

impl RunningMemory {
    /// That of process `pid`, with what it has mapped now.
    ///
    /// # Errors
    /// Why it cannot be looked at.
    pub fn of(pid: i32) -> Result<RunningMemory, LookError> {
        let status = Status::of_program(pid)?;
        let refused = |what| {
            move |source: io::Error| match source.raw_os_error() {
                Some(libc::ENOENT | libc::ESRCH) => LookError::Gone { pid },
                _ => LookError::Refused { pid, what, source },
            }
        };
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(refused("memory"))?;
        let text = std::fs::read(format!("/proc/{pid}/maps")).map_err(refused("mappings"))?;
        let lines = text.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        let mappings: Vec<Mapping> = lines.filter_map(mapping).collect();
        // It has given them back, and is about to end.
        if mappings.is_empty() {
            return Err(LookError::Over { pid });
        }
        Ok(RunningMemory { pid, memory, mappings, status })
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its mappings, by address, as they were when it was first looked at.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The mapping that holds `at`.
    pub fn mapping_at(&self, at: LiveVa) -> Option<&Mapping> {
        let i = self.mappings.partition_point(|m| m.range.end <= at);
        self.mappings.get(i).filter(|m| m.range.contains(&at))
    }

    /// Fills `bytes` with what is in its memory from `at` on. Says whether all of it is there; if not, they
    /// may be filled in part.
    pub fn read(&self, at: LiveVa, bytes: &mut [u8]) -> bool {
        self.memory.read_exact_at(bytes, at.0).is_ok()
    }

    /// Whether we have changed its code, or somebody who was killed has: attached to it, or started it so.
    pub fn is_observed(&self) -> bool {
        let ours = [JOURNAL, PROCESS, ARENA];
        self.mappings.iter().any(|m| ours.contains(&m.range.start.0))
    }

    /// The number that it has in its own namespace of processes.
    pub fn own_number(&self) -> i32 {
        self.status.own_number()
    }

    /// A file at `path` in its root folder, if it, or root, owns that; neither followed, if it is a link, nor
    /// waited for.
    pub fn own_file(&self, path: &Path) -> Option<File> {
        let path = Path::new("/proc").join(self.pid.to_string()).join("root").join(path);
        file_of(&path, self.status.user())
    }
}

/// The file at `path`, if we, or root, own it; neither followed, if it is a link, nor waited for.
pub fn own_file(path: &Path) -> Option<File> {
    file_of(path, Some(nix::unistd::Uid::effective().as_raw()))
}

/// The file at `path`, if `user`, or root, owns it.
fn file_of(path: &Path, user: Option<u32>) -> Option<File> {
    let as_it_is = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(as_it_is).open(path).ok()?;
    let about = file.metadata().ok()?;
    (about.is_file() && (about.uid() == 0 || user == Some(about.uid()))).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn our_own_memory_is_what_we_have_in_it() {
        let own = i32::try_from(std::process::id()).expect("small");
        let memory = RunningMemory::of(own).expect("we may read ours");
        let text = *b"seen from outside";
        let at = LiveVa(text.as_ptr().addr() as u64);
        let mut seen = [0; 17];
        assert!(memory.read(at, &mut seen));
        assert_eq!(seen, text);
        assert!(memory.mapping_at(at).is_some_and(|m| m.range.contains(&at)));
        assert!(!memory.read(LiveVa(0x10), &mut seen) && memory.mapping_at(LiveVa(0x10)).is_none());
        assert!(!memory.is_observed());
        assert!(memory.status.user().is_some() && memory.own_number() > 0);
    }

    #[test]
    fn who_has_no_memory_is_refused_by_name() {
        let refused = |pid| RunningMemory::of(pid).expect_err("it cannot be looked at");
        let gone = refused(0);
        assert_eq!(gone.to_string(), "there is no process 0");
        assert!(gone.hint().is_some_and(|hint| hint.contains("ps -e")));
        assert_eq!(refused(-7).to_string(), "there is no process -7");
        // It has ended, and is still there.
        let mut child = Command::new("true").stdin(Stdio::null()).spawn().expect("it starts");
        let pid = i32::try_from(child.id()).expect("small");
        let ended =
            || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z"));
        while !ended() {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        assert_eq!(refused(pid).to_string(), format!("process {pid} has ended already"));
        child.wait().expect("it is ours");
        assert_eq!(refused(pid).to_string(), format!("there is no process {pid}"));
        // Number 2 is the kernel's, where it is seen.
        if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
            let kernel = refused(2);
            assert_eq!(kernel.to_string(), "process 2 is one of the kernel's, which runs no program");
        }
    }
}
