//! What users name, read: a file, or standard input, which is `-`. A device is nothing to read.

use crate::output::Hinted;
use anyhow::Context as _;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::Path;
use std::sync::OnceLock;

/// Bytes of a file, or those of standard input, which are kept.
pub type Bytes = Cow<'static, [u8]>;

/// Whether `path` is standard input.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// How `path` is called where something is said of it.
pub fn spelt(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// All of what is at `path`; standard input can be asked for again.
///
/// # Errors
/// If it cannot be read, or is a device.
pub fn bytes(path: &Path) -> anyhow::Result<Bytes> {
    static STDIN: OnceLock<Vec<u8>> = OnceLock::new();
    let failed = || format!("cannot read {}", spelt(path));
    if !is_stdin(path) {
        refuse_device(path)?;
        return std::fs::read(path).map(Cow::Owned).with_context(failed);
    }
    if STDIN.get().is_none() {
        let mut read = Vec::new();
        io::stdin().lock().read_to_end(&mut read).with_context(failed)?;
        let _set_before = STDIN.set(read);
    }
    Ok(Cow::Borrowed(STDIN.get().map_or(&[], Vec::as_slice)))
}

/// The same, as text.
///
/// # Errors
/// If it cannot be read, or is no text.
pub fn text(path: &Path) -> anyhow::Result<String> {
    let text = String::from_utf8(bytes(path)?.into_owned());
    text.map_err(|_| anyhow::anyhow!("{} is no text", spelt(path)))
}

/// What is at `path`, to be read at any place: a file. Standard input is written to one first, unless it is
/// one.
///
/// # Errors
/// If it cannot be read, or is a device or a pipe.
pub fn file(path: &Path) -> anyhow::Result<File> {
    let failed = || format!("cannot read {}", spelt(path));
    if !is_stdin(path) {
        refuse_device(path)?;
        if path.metadata().is_ok_and(|there| there.file_type().is_fifo()) {
            let what = format!("{} is a pipe, and is to be read at any place", path.display());
            return Err(
                Hinted::new(what, "send it to standard input, `-`, or write it to a file first").into()
            );
        }
        return File::open(path).with_context(failed);
    }
    if let Some(mut file) = stdin_file() {
        file.rewind().with_context(failed)?;
        return Ok(file);
    }
    let mut copy = tempfile::tempfile().context("cannot keep standard input in a temporary file")?;
    copy.write_all(&bytes(path)?).and_then(|()| copy.rewind()).context("cannot keep standard input")?;
    Ok(copy)
}

/// The first `n_bytes` of what is at `path`, if that is a file: what is taken out of a pipe is gone. Standard
/// input is kept.
pub fn start(path: &Path, n_bytes: usize) -> Option<Vec<u8>> {
    let file = match is_stdin(path) {
        true => stdin_file(),
        false => path.is_file().then(|| File::open(path).ok()).flatten(),
    };
    let mut start = vec![0; n_bytes];
    let mut n = 0;
    match file {
        Some(file) => {
            while n < n_bytes {
                match file.read_at(start.get_mut(n..)?, n as u64).ok()? {
                    0 => break,
                    more => n += more,
                }
            }
        }
        None if is_stdin(path) => {
            let all = bytes(path).ok()?;
            n = all.len().min(n_bytes);
            start.get_mut(..n)?.copy_from_slice(all.get(..n)?);
        }
        None => return None,
    }
    start.truncate(n);
    Some(start)
}

/// Standard input, if it is a file.
fn stdin_file() -> Option<File> {
    let file = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    file.metadata().is_ok_and(|there| there.is_file()).then_some(file)
}

/// Refuses what gives bytes without end, or takes them from a terminal; other names of standard input are
/// none.
fn refuse_device(path: &Path) -> anyhow::Result<()> {
    let is_named =
        ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/dev/null"].iter().any(|n| path == Path::new(n));
    let is_device = path.metadata().is_ok_and(|there| {
        let kind = there.file_type();
        kind.is_char_device() || kind.is_block_device()
    });
    if is_device && !is_named {
        let what = format!("{} is a device: nothing that it gives is a file of ours", path.display());
        return Err(Hinted::new(what, "name a file; `-` is standard input").into());
    }
    Ok(())
}
