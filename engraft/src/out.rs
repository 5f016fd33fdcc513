//! What the user sees: data on standard output or in a file, talk on standard error.
//!
//! Invariant: nothing else in the workspace prints. A file is whole or untouched: it is written beside its place and
//! moved there. A reader that closes its end of the pipe is no failure.
//!
//! Not here: what the data look like (`view`, the verbs).

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a verb found out, once it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Done.
    Yes,
    /// Done, and the answer is no: a gate did not hold, nothing matched, a promise is broken.
    No,
}

/// Runs the command and turns what comes of it into an exit code: 0 done, 1 the answer is no, 2 failed.
pub fn finish(result: anyhow::Result<Answer>) -> ExitCode {
    match result {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Err(err) if err.downcast_ref::<Closed>().is_some() => ExitCode::SUCCESS,
        Err(err) => {
            say(format_args!("engraft: {err:#}"));
            if let Some(hint) = hint(&err) {
                say(format_args!("hint: {hint}"));
            }
            ExitCode::from(2)
        }
    }
}

/// One line of talk. That it cannot be said is no reason to stop.
pub fn say(line: impl fmt::Display) {
    let mut stderr = io::stderr().lock();
    let _gone = writeln!(stderr, "{line}");
}

/// Writes data to the file `to`, or to standard output without one or with `-`.
///
/// # Errors
/// If it cannot be written; the file then is what it was before.
pub fn data(to: Option<&Path>, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    match to {
        Some(path) if path != Path::new("-") => file(path, write),
        _ => {
            let mut stdout = BufWriter::new(io::stdout().lock());
            let done = write(&mut stdout).and_then(|()| stdout.flush());
            // What is left in the buffer must not be tried again on drop.
            let _ = stdout.into_parts();
            done.map_err(|err| match err.kind() {
                io::ErrorKind::BrokenPipe => Closed.into(),
                _ => Hinted::new(
                    format!("cannot write to standard output: {err}"),
                    "the output ends early: do not use it",
                )
                .into(),
            })
        }
    }
}

/// Writes the file `path`: whole, or not at all. A device or a pipe is written as it is.
fn file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let failed = |err: io::Error| -> anyhow::Error {
        let hint = match err.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "make room and run it again; nothing that was there is lost".to_owned()
            }
            io::ErrorKind::NotFound => format!("make the folder {} first", folder(path).display()),
            io::ErrorKind::IsADirectory => "name a file in it".to_owned(),
            _ => format!("name a place that can be written; {} was not touched", path.display()),
        };
        Hinted::new(format!("cannot write {}: {err}", path.display()), hint).into()
    };
    // A link is written through, not replaced.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    if real.exists() && !real.is_file() {
        let mut device = BufWriter::new(File::options().write(true).open(&real).map_err(failed)?);
        let done = write(&mut device).and_then(|()| device.flush());
        let _ = device.into_parts();
        return done.map_err(failed);
    }
    let mode = real.metadata().map_or(0o666, |there| there.permissions().mode());
    // tempfile wraps the reason in the temporary file's name, which says nothing to the user: keep the bare one.
    let mut reason = None;
    let temporary = tempfile::Builder::new()
        .prefix(".engraft-")
        .make_in(folder(&real), |name| {
            let made = File::options().write(true).create_new(true).mode(mode).open(name);
            made.inspect_err(|err| reason = err.raw_os_error())
        })
        .map_err(|err| failed(reason.map_or(err, io::Error::from_raw_os_error)))?;
    let mut buffer = BufWriter::new(temporary);
    let done = write(&mut buffer).and_then(|()| buffer.flush());
    let (temporary, _) = buffer.into_parts();
    done.and_then(|()| temporary.as_file().sync_data()).map_err(failed)?;
    temporary.persist(&real).map_err(|err| failed(err.error))?;
    Ok(())
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Nobody reads our standard output any more.
#[derive(Debug)]
struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output")
    }
}

impl std::error::Error for Closed {}

/// A failure of the command itself, with its remedy.
#[derive(Debug)]
pub struct Hinted {
    message: String,
    hint: String,
}

impl Hinted {
    /// Says `message`, and `hint` on a line of its own.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Hinted {
        Hinted { message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Hinted {}

/// The remedy that an error in the chain knows.
pub fn hint(err: &anyhow::Error) -> Option<String> {
    err.chain().find_map(|cause| {
        if let Some(hinted) = cause.downcast_ref::<Hinted>() {
            return Some(hinted.hint.clone());
        }
        let known = [
            cause.downcast_ref::<program::LoadError>().and_then(program::LoadError::hint),
            cause.downcast_ref::<profile::ReadError>().and_then(profile::ReadError::hint),
            cause.downcast_ref::<profile::WriteError>().and_then(profile::WriteError::hint),
        ];
        known.into_iter().flatten().next().map(str::to_owned)
    })
}
