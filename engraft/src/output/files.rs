//! Where data go: to standard output, or to a file that is whole or untouched.
//!
//! Invariant: a file is written beside its place and moved there; a program is never replaced. A name of
//! where our standard output goes already (`/dev/stdout`) is `-`: what others write there stays. What is no
//! file is written and never read: nobody may write to a pipe.

use super::hints::Hinted;
use super::look::StandardStream;
use super::temporary::Temporary;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Whether `path` names our standard output, or what we talk to: `-`, a name of that descriptor, or the file
/// or pipe that it is.
pub fn standard_stream(path: &Path) -> Option<StandardStream> {
    if path == Path::new("-") {
        return Some(StandardStream::Output);
    }
    let there = path.metadata().ok();
    let is = |names: [&str; 3], fd: BorrowedFd<'_>| {
        let same = || {
            // A device can be written to in several ways at once.
            let there =
                there.as_ref().filter(|there| !there.file_type().is_char_device() && !there.is_dir())?;
            let open = File::from(fd.try_clone_to_owned().ok()?).metadata().ok()?;
            Some((open.dev(), open.ino()) == (there.dev(), there.ino()))
        };
        names.iter().any(|name| path == Path::new(name)) || same() == Some(true)
    };
    if is(["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"], io::stdout().as_fd()) {
        return Some(StandardStream::Output);
    }
    let is_error = is(["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"], io::stderr().as_fd());
    is_error.then_some(StandardStream::Error)
}

/// Whether what is written to `path` goes to our standard output: `-`, or another name of it.
pub fn is_standard_output(path: &Path) -> bool {
    standard_stream(path) == Some(StandardStream::Output)
}

/// Whether `path` is a file that can be written and read again, or may become one: no pipe, no device,
/// nothing that others write to.
pub fn is_own_file(path: &Path) -> bool {
    standard_stream(path).is_none() && real(path).is_ok_and(|real| !is_device(&real))
}

/// Writes data to the file `to`, or to standard output without one or with `-`.
///
/// # Errors
/// If it cannot be written; the file then is what it was before.
pub fn data(to: Option<&Path>, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    match to {
        Some(path) if !is_standard_output(path) => {
            refuse_replacing(path, &[])?;
            file(path, write)
        }
        _ if live::is_output_closed() => {
            let hint = "send it to a file with `-o FILE`, or to /dev/null";
            Err(Hinted::new("cannot write to standard output: it is closed", hint).into())
        }
        _ => {
            super::talk::pause_progress();
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

/// Writes the file `path`, be it a program: whole, or not at all. A device or a pipe is written as it is.
///
/// # Errors
/// If it cannot be written.
pub fn file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let failed = |err: io::Error| unwritable(path, &err);
    if standard_stream(path) == Some(StandardStream::Error) {
        return as_it_is(path, &mut io::stderr().lock(), write);
    }
    let real = real(path)?;
    if is_device(&real) {
        return as_it_is(path, &mut File::options().write(true).open(&real).map_err(failed)?, write);
    }
    let temporary = beside(path, &real)?;
    let mut buffer = BufWriter::new(temporary.as_file());
    let done = write(&mut buffer).and_then(|()| buffer.flush());
    let _ = buffer.into_parts();
    done.and_then(|()| temporary.as_file().sync_data()).map_err(failed)?;
    temporary.persist(&real).map_err(failed)?;
    Ok(())
}

/// Writes to what is no file of ours: nothing of it can be taken back.
fn as_it_is(
    path: &Path,
    to: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut buffer = BufWriter::new(to);
    let done = write(&mut buffer).and_then(|()| buffer.flush());
    // What is left in it must not be tried again on drop.
    let _ = buffer.into_parts();
    done.map_err(|err| match err.kind() {
        io::ErrorKind::BrokenPipe => Closed.into(),
        _ => unwritable(path, &err),
    })
}

/// Starts the file `path`: what `begin` makes of it goes on, with the file under its name; where it fails,
/// the file is what it was before.
///
/// # Errors
/// If it cannot be written.
pub fn create<T>(path: &Path, begin: impl FnOnce(File) -> io::Result<T>) -> anyhow::Result<T> {
    let failed = |err: io::Error| unwritable(path, &err);
    let real = real(path)?;
    if is_device(&real) {
        return File::options().write(true).open(&real).and_then(begin).map_err(failed);
    }
    let temporary = beside(path, &real)?;
    let begun = temporary.as_file().try_clone().and_then(begin).map_err(failed)?;
    temporary.persist(&real).map_err(failed)?;
    Ok(begun)
}

/// Takes away what [`create`] made, where nothing comes of it.
pub fn discard(path: &Path) {
    let there = real(path).ok().filter(|real| real.is_file());
    let _gone = there.map(std::fs::remove_file);
}

/// Refuses a place that data could not be written to, before a program is run for them.
///
/// # Errors
/// Those of [`data`] that can be known beforehand.
pub fn can_be_written(path: &Path) -> anyhow::Result<()> {
    if standard_stream(path).is_none() {
        let real = real(path)?;
        // To open a pipe is to wait for its reader: what devices take shows when they are written.
        refuse_replacing(path, &[])?;
        if !is_device(&real) {
            beside(path, &real)?;
        }
    }
    Ok(())
}

/// Where data for `path` go: a link is written through, not replaced.
fn real(path: &Path) -> anyhow::Result<PathBuf> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real.is_dir() {
        return Err(unwritable(path, &io::ErrorKind::IsADirectory.into()));
    }
    let is_open = || folder(path).canonicalize().is_ok_and(|folder| folder.starts_with("/proc"));
    if real.is_file() && is_open() {
        // To replace it would take it away from who has it open.
        let what = format!("{} is the open file {}, and is not replaced", path.display(), real.display());
        return Err(Hinted::new(what, "name another file after -o").into());
    }
    Ok(real)
}

fn is_device(real: &Path) -> bool {
    real.exists() && !real.is_file()
}

/// A file beside `real` that can take its place; it goes away unless it does.
fn beside(path: &Path, real: &Path) -> anyhow::Result<Temporary> {
    let mode = real.metadata().map_or(0o666, |there| there.permissions().mode());
    Temporary::new(&folder(real), mode).map_err(|err| unwritable(path, &err))
}

fn unwritable(path: &Path, err: &io::Error) -> anyhow::Error {
    let hint = match err.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!(
                "make room, or name a place elsewhere; where {} is a file, it is what it was before",
                path.display()
            )
        }
        io::ErrorKind::NotFound => format!("make the folder {} first", folder(path).display()),
        io::ErrorKind::IsADirectory => "name a file in it".to_owned(),
        _ => format!("name a place that can be written; {} was not touched", path.display()),
    };
    Hinted::new(format!("cannot write {}: {err}", path.display()), hint).into()
}

/// Whether an ELF file stands there: no data of ours are one, so a name was mistaken. To open a pipe would be
/// to wait for who writes to it.
fn is_program(path: &Path) -> bool {
    let mut magic = [0; 4];
    path.is_file()
        && File::open(path).and_then(|mut f| io::Read::read_exact(&mut f, &mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

/// Refuses to write to `to` if it is one of the files that are read, before any work is done.
///
/// # Errors
/// If it is one of them.
pub fn refuse_overwriting(to: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    let real = |path: &Path| path.canonicalize().ok();
    let Some(there) = real(to).filter(|there| there.is_file()) else { return Ok(()) };
    if inputs.iter().any(|input| real(input).as_ref() == Some(&there)) {
        let message = format!("{} is read, and would be overwritten", to.display());
        return Err(Hinted::new(message, "name another file after -o").into());
    }
    Ok(())
}

/// The same, for what is no program: refuses to replace one, too.
///
/// # Errors
/// If it is one of them, or a program.
pub fn refuse_replacing(to: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    refuse_overwriting(to, inputs)?;
    if is_program(to) {
        let hint = format!("name another file; if it is of no use any more, remove {} first", to.display());
        return Err(Hinted::new(format!("{} is a program, and is not replaced", to.display()), hint).into());
    }
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
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output")
    }
}

impl std::error::Error for Closed {}
