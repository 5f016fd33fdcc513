//! What a command line will load: the executable, its dynamic linker, and the libraries that are there from
//! the start.
//!
//! Source: execve(2) for scripts, ld.so(8) for `--list`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program as the kernel will start it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The file that was named, or found in the search path.
    pub command: PathBuf,
    /// What to start: the same, or what `#!/usr/bin/env NAME` in it finds, so that no `env` stands between.
    pub start: PathBuf,
    /// Its name for itself, if not the one that was given.
    pub arg0: Option<OsString>,
    /// Arguments to come before those that were given.
    pub before: Vec<OsString>,
    /// The ELF file that will run: for a script, its interpreter.
    pub executable: PathBuf,
}

/// Why there is nothing to start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// No such program.
    #[error("no program {} was found", said(Path::new(name)))]
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
    /// It is none, for it is no file.
    #[error("{} is {what}, not a program", path.display())]
    NoFile {
        /// What was named.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// What a script names to be run by cannot be read.
    #[error("{} is to be run by {}, as its first line says, which cannot be read", script.display(), said(interpreter))]
    Interpreter {
        /// The script.
        script: PathBuf,
        /// What it names.
        interpreter: PathBuf,
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
    #[error("{} changes its user when it starts, so nobody may look into it", path.display())]
    SetUser {
        /// The file.
        path: PathBuf,
    },
}

impl TargetError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            TargetError::NoFile { .. } => Some("name the executable file, or a script"),
            TargetError::NotFound { .. } => Some("name it with its path, or put its folder into PATH"),
            TargetError::SetUser { .. } => {
                Some("copy it, which drops that right, and run the copy as that user")
            }
            _ => None,
        }
    }
}

/// A name as it is said, also if it is none.
fn said(name: &Path) -> String {
    if name.as_os_str().is_empty() { "''".to_owned() } else { name.display().to_string() }
}

impl Target {
    /// The program `name`, searched in the folders of `search` as `execvp` does if it has no slash.
    ///
    /// # Errors
    /// If there is none, or it cannot be counted.
    pub fn find(name: &OsStr, search: &OsStr) -> Result<Target, TargetError> {
        let command = found(name, search)
            .ok_or_else(|| TargetError::NotFound { name: name.to_string_lossy().into_owned() })?;
        let mut target = Target {
            start: command.clone(),
            executable: command.clone(),
            arg0: None,
            before: Vec::new(),
            command,
        };
        let mut script = None;
        // The kernel follows four.
        for _ in 0..5 {
            let at = &target.executable;
            let unreadable = |source| match &script {
                Some(script) => TargetError::Interpreter {
                    script: PathBuf::clone(script),
                    interpreter: at.clone(),
                    source,
                },
                None => TargetError::Unreadable { path: at.clone(), source },
            };
            let real = at.canonicalize().map_err(unreadable)?;
            // To open a pipe would be to wait for who writes to it.
            let about = std::fs::metadata(&real).map_err(unreadable)?;
            if !about.is_file() {
                return Err(TargetError::NoFile { what: kind_of(&about), path: at.clone() });
            }
            let mut head = [0; 256];
            let len = std::fs::File::open(&real).and_then(|mut f| f.read(&mut head)).map_err(unreadable)?;
            let Some(line) = head[..len].strip_prefix(b"#!") else {
                let mode = about.permissions().mode();
                if mode & 0o6000 != 0 {
                    return Err(TargetError::SetUser { path: real });
                }
                target.executable = real;
                return Ok(target);
            };
            let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
            let is_started = target.executable == target.start;
            if let Some((name, args)) = asked_of_env(line).filter(|_| is_started)
                && let Some(program) = found(&name, search)
            {
                let script = std::mem::replace(&mut target.start, program.clone());
                target.before.splice(0..0, args.into_iter().chain([script.into_os_string()]));
                target.arg0 = Some(name);
                target.executable = program;
                continue;
            }
            let interpreter = words(line).next().unwrap_or_default();
            script = Some(target.executable.clone());
            target.executable = PathBuf::from(OsStr::from_bytes(interpreter));
        }
        Err(TargetError::Scripts { path: target.command })
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
            // What is needed by a path has no arrow; nor has the linker itself.
            let found = line.split_once(" => ").map_or(line.trim(), |(_, found)| found);
            let path = Path::new(found.rsplit_once(" (")?.0);
            (path.components().nth(1).is_some() && path.file_name() != linker.file_name())
                .then(|| path.to_owned())
        };
        Ok(text.lines().filter_map(path).collect())
    }
}

/// What that is which is no regular file.
fn kind_of(about: &std::fs::Metadata) -> &'static str {
    let kind = about.file_type();
    if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// The program `name`, in the folders of `search` if it has no slash.
fn found(name: &OsStr, search: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    std::env::split_paths(search).map(|folder| folder.join(name)).find(|path| is_program(path))
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The program, with its first arguments, that `env` starts for a script whose first line, behind `#!`, is
/// `line`; if that changes nothing else.
fn asked_of_env(line: &[u8]) -> Option<(OsString, Vec<OsString>)> {
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace)?;
    let (interpreter, asked) = (&line[..end], line[end..].trim_ascii());
    if Path::new(OsStr::from_bytes(interpreter)).file_name() != Some(OsStr::new("env")) {
        return None;
    }
    // The kernel hands all of it over as one argument, which `-S` has `env` split.
    let split = asked.strip_prefix(b"-S");
    let mut asked = words(split.unwrap_or(asked)).map(|word| OsStr::from_bytes(word).to_owned());
    let (name, args) = (asked.next()?, asked.collect::<Vec<_>>());
    let is_plain = |word: &OsString| !word.as_bytes().iter().any(|b| b"'\"\\$#".contains(b));
    let is_name = !name.as_bytes().starts_with(b"-") && !name.as_bytes().contains(&b'=');
    let is_as_said = (split.is_some() || args.is_empty()) && args.iter().chain([&name]).all(is_plain);
    (is_name && is_as_said).then_some((name, args))
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
        let target = Target::find("s".as_ref(), folder.path().as_os_str()).expect("found");
        assert_eq!(target.command, script);
        assert_eq!(target.executable, Path::new("/bin/sh").canonicalize().expect("there is a shell"));
    }

    #[test]
    fn what_env_starts_is_started_at_once() {
        for (line, want) in [
            ("/usr/bin/env perl", Some("perl")),
            (" /usr/bin/env  perl ", Some("perl")),
            ("/usr/bin/env -S perl -w -T", Some("perl -w -T")),
            ("/usr/bin/env -Sperl -w", Some("perl -w")),
            // What env looks for is named `perl -w`.
            ("/usr/bin/env perl -w", None),
            ("/usr/bin/env -S A=1 perl", None),
            ("/usr/bin/env -S -i perl", None),
            ("/usr/bin/env -S perl '-e x'", None),
            ("/usr/bin/env -i", None),
            ("/usr/bin/env", None),
            ("/usr/bin/perl -w", None),
        ] {
            let got = asked_of_env(line.as_bytes());
            let got = got.map(|(name, args)| {
                std::iter::once(name).chain(args).collect::<Vec<_>>().join(OsStr::new(" "))
            });
            assert_eq!(got.as_deref(), want.map(OsStr::new), "{line}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error =
            Target::find("no-such-program".as_ref(), "/usr/bin".as_ref()).expect_err("it is not there");
        assert_eq!(error.to_string(), "no program no-such-program was found");
    }

    #[test]
    fn libraries_are_those_that_the_linker_lists() {
        let target = Target::find("sh".as_ref(), "/bin".as_ref()).expect("there is a shell");
        let found = target.libraries(Path::new("/lib64/ld-linux-x86-64.so.2")).expect("it runs");
        assert!(found.iter().any(|p| p.ends_with("libc.so.6")), "{found:?}");
    }
}
