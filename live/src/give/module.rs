//! A rewritten module, mapped into a process: its counters, its text and its tables.

use super::calls::{PAGE, PRIVATE, READ_WRITE, close, fill, open, wipe_on_fork};
use crate::process::{ProcessError, Stopped};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use probe::Segments;
use probe::arch::shared::HomePage;
use program::{Bias, LiveVa, Va};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The text and the tables of segments in a file, from which processes map them.
#[derive(Debug)]
pub struct SegmentsFile(File);

impl SegmentsFile {
    /// The one at `path`, which holds [`SegmentsFile::bytes`].
    ///
    /// # Errors
    /// The kernel's, if it cannot be opened.
    pub fn open(path: &Path) -> io::Result<SegmentsFile> {
        File::open(path).map(SegmentsFile)
    }

    /// What such a file of `segments` holds: their text, and their tables on pages of their own.
    pub fn bytes(segments: &Segments) -> Vec<u8> {
        let mut bytes = segments.text.clone();
        bytes.resize(usize::try_from(tables_offset(segments)).expect("it is in memory"), 0);
        bytes.extend(&segments.tables);
        bytes
    }

    /// One of no name, of `segments`.
    ///
    /// # Errors
    /// The kernel's, if it has no memory for it.
    pub fn new(segments: &Segments) -> io::Result<SegmentsFile> {
        let file = File::from(memfd_create("engraft-code", MFdFlags::MFD_CLOEXEC)?);
        file.write_all_at(&segments.text, 0)?;
        file.write_all_at(&segments.tables, tables_offset(segments))?;
        Ok(SegmentsFile(file))
    }
}

/// Where the tables of `segments` are in their file: on a page of their own.
fn tables_offset(segments: &Segments) -> u64 {
    segments.text_len.next_multiple_of(PAGE)
}

/// Where a module's counters are in the recording, which the process has open as `fd`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountersAt {
    pub fd: u64,
    pub offset: u64,
    pub len_bytes: u64,
}

/// Maps `segments` into a process in which their module is at `bias`, their text and tables from `file` if
/// there is one; and its home with its counters, if it has any.
pub(crate) fn map_module(
    stopped: &Stopped,
    segments: &Segments,
    bias: Bias,
    file: Option<&SegmentsFile>,
    counters: Option<CountersAt>,
) -> Result<(), ProcessError> {
    map_counters(stopped, segments, bias, counters)?;
    let live = |at: u64| bias.to_live(Va(at));
    let (text, tables) = (live(segments.text_at), live(segments.tables_at));
    let Some(SegmentsFile(file)) = file else {
        fill(stopped, text, &segments.text, libc::PROT_READ | libc::PROT_EXEC)?;
        return fill(stopped, tables, &segments.tables, libc::PROT_READ);
    };
    let fd = open(stopped, file, libc::O_RDONLY)?;
    let map = |at, len: u64, protection, offset| match len {
        0 => Ok(()),
        len => stopped.map(at, len.next_multiple_of(PAGE), protection, libc::MAP_PRIVATE, fd, offset),
    };
    let code = libc::PROT_READ | libc::PROT_EXEC;
    let mapped = map(text, segments.text_len, code, 0)
        // Where it is kept, no code may be run, perhaps.
        .or_else(|_| fill(stopped, text, &read(stopped, file, segments.text_len)?, code))
        .and_then(|()| map(tables, segments.tables_len, libc::PROT_READ, tables_offset(segments)));
    close(stopped, fd)?;
    mapped
}

/// Maps the home of the module of `segments`, which is at `bias`, with its counters, if it has any.
pub(crate) fn map_counters(
    stopped: &Stopped,
    segments: &Segments,
    bias: Bias,
    counters: Option<CountersAt>,
) -> Result<(), ProcessError> {
    let Some(CountersAt { fd, offset, len_bytes }) = counters else { return Ok(()) };
    let home = bias.to_live(Va(segments.counters_at));
    stopped.map(home, HomePage::LEN, READ_WRITE, PRIVATE, u64::MAX, 0)?;
    wipe_on_fork(stopped, home)?;
    let at = LiveVa(home.0 + HomePage::LEN);
    stopped.map(at, len_bytes, READ_WRITE, libc::MAP_SHARED, fd, offset)
}

/// The first `len` bytes of `file`.
fn read(stopped: &Stopped, file: &File, len: u64) -> Result<Vec<u8>, ProcessError> {
    let mut bytes = vec![0; usize::try_from(len).expect("it was in memory when it was made")];
    let read = file.read_exact_at(&mut bytes, 0);
    read.map_err(|err| stopped.space(format!("its rewritten code cannot be read: {err}")))?;
    Ok(bytes)
}
