//! What a command line will load: the executable, its dynamic linker, and the libraries that are there from the start.
//!
//! Source: execve(2) for scripts, ld.so(8) for `--list`.

use std::io;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program as the kernel will start it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The file that was named, or found in the search path.
    pub command: PathBuf,
    /// The ELF file that will run: for a script, its interpreter.
    pub executable: PathBuf,
}

/// Why there is nothing to start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// No such program.
    #[error("no program {name} was found")]
    NotFound {
        /// As it was named.
        name: String,
    },
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Scripts that name scripts, without end.
    #[error("{} names an interpreter that is a script that names another, too many times", path.display())]
    Scripts {
        /// The file.
        path: PathBuf,
    },
    /// It runs with other rights than ours, so its counters could not be shared.
    #[error("{} changes its user when it starts, so it cannot be counted", path.display())]
    SetUser {
        /// The file.
        path: PathBuf,
    },
}

impl TargetError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            TargetError::NotFound { .. } => Some("name it with its path, or put its folder into PATH"),
            TargetError::SetUser { .. } => {
                Some("copy it, which drops that right, and count the copy as that user")
            }
            _ => None,
        }
    }
}

impl Target {
    /// The program `name`, searched in the folders of `search` as `execvp` does if it has no slash.
    ///
    /// # Errors
    /// If there is none, or it cannot be counted.
    pub fn find(name: &str, search: &str) -> Result<Target, TargetError> {
        let command = match name.contains('/') {
            true => Some(PathBuf::from(name)),
            false => search.split(':').map(|folder| Path::new(folder).join(name)).find(|p| is_program(p)),
        };
        let command =
            command.filter(|p| p.exists()).ok_or(TargetError::NotFound { name: name.to_owned() })?;
        let mut executable = command.clone();
        // The kernel follows four.
        for _ in 0..5 {
            let unreadable = |source| TargetError::Unreadable { path: executable.clone(), source };
            let real = executable.canonicalize().map_err(unreadable)?;
            let mut head = [0; 256];
            let len = std::fs::File::open(&real).and_then(|mut f| f.read(&mut head)).map_err(unreadable)?;
            let Some(line) = head[..len].strip_prefix(b"#!") else {
                let mode = std::fs::metadata(&real).map_err(unreadable)?.permissions().mode();
                if mode & 0o6000 != 0 {
                    return Err(TargetError::SetUser { path: real });
                }
                return Ok(Target { command, executable: real });
            };
            let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
            let text = String::from_utf8_lossy(line);
            executable = PathBuf::from(text.split_whitespace().next().unwrap_or_default());
        }
        Err(TargetError::Scripts { path: command })
    }

    /// The libraries that `linker` will load for it: the paths that it will ask for.
    ///
    /// # Errors
    /// The kernel's, if the linker cannot be run.
    pub fn libraries(&self, linker: &Path) -> io::Result<Vec<PathBuf>> {
        let out = Command::new(linker)
            .arg("--list")
            .arg(&self.executable)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&out.stdout);
        let path = |line: &str| {
            let (_, found) = line.split_once(" => ")?;
            let (path, _) = found.rsplit_once(" (")?;
            path.starts_with('/').then(|| PathBuf::from(path))
        };
        Ok(text.lines().filter_map(path).collect())
    }
}

/// Whether programs may set the base of `gs` themselves here, which giving each thread its counters needs.
///
/// The kernel lists the flag only if both the processor has it and the kernel lets programs use it (Linux 5.9).
pub fn can_set_bases() -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "fsgsbase"))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn scripts_lead_to_their_interpreter() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let script = folder.path().join("s");
        std::fs::write(&script, "#!/bin/sh -e\nexit 3\n").expect("written");
        std::fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("set");
        let target = Target::find("s", folder.path().to_str().expect("text")).expect("found");
        assert_eq!(target.command, script);
        assert_eq!(target.executable, Path::new("/bin/sh").canonicalize().expect("there is a shell"));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = Target::find("no-such-program", "/usr/bin").expect_err("it is not there");
        assert_eq!(error.to_string(), "no program no-such-program was found");
    }

    #[test]
    fn libraries_are_those_that_the_linker_lists() {
        let target = Target::find("sh", "/bin").expect("there is a shell");
        let found = target.libraries(Path::new("/lib64/ld-linux-x86-64.so.2")).expect("it runs");
        assert!(found.iter().any(|p| p.ends_with("libc.so.6")), "{found:?}");
    }
}
