//! Starting a program with counted code: new segments are mapped while it stands before its first
//! instruction, then we let go.
//!
//! ```text
//!  fork, exec ── stopped ──► recording, counters, text, tables mapped ──► AT_PHDR, AT_PHNUM redirected ──► detached
//!                            old code patched; ld.so's openat redirected
//! ```
//! ld.so has not run yet: it sees a program whose headers name all segments, so unwinding, `dlsym` and
//! debuggers work. Libraries are counted by handing ld.so the rewritten file in place of the plain one; their
//! paths do not change for the program.
//!
//! Source: proc(5), getauxval(3); glibc 2.36, elf/rtld.c for what ld.so takes from the auxiliary vector.

pub(crate) mod target;

use crate::events::Deaths;
use crate::process::{ProcessError, Stopped, Syscall};
use crate::shared::Arena;
use crate::sys;
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Pid;
use probe::Segments;
use probe::arch::shared::{ARENA, Header, Home, HomePage, MAY_RUN, PROCESS, Process, Thread};
use probe::arch::{self as runtime, ExecSite, OpenSite};
use probe::offset;
use program::{Bias, LiveVa, Va};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};

const PAGE: u64 = 0x1000;

/// Why a program could not be started with counted code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// It could not be started at all.
    #[error("cannot start {}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It was started, but could not be prepared; it was ended before its first instruction.
    #[error("{} could not be prepared, and was ended before its first instruction", path.display())]
    Prepare {
        /// The program.
        path: PathBuf,
        /// What failed.
        source: ProcessError,
    },
}

/// A library that is handed to ld.so in place of another.
#[derive(Clone, Debug)]
pub struct Swap {
    /// The path that ld.so asks for.
    pub asked: PathBuf,
    /// The file that it gets.
    pub given: PathBuf,
}

/// A program with what it is to be started with.
#[derive(Clone, Copy, Debug)]
pub struct Ready<'a> {
    /// Its executable, rewritten.
    pub segments: &'a Segments,
    /// A file that holds the text and the tables of these, for programs that are started often.
    pub file: Option<&'a SegmentsFile>,
    /// The libraries that it gets in place of others.
    pub swaps: &'a [Swap],
    /// Where its ld.so opens files.
    pub opens: &'a [OpenSite],
    /// If programs that it becomes, or starts, are followed: where its ld.so does that.
    pub execs: Option<&'a [ExecSite]>,
    /// Whether the kernel is to tell where signals end its threads, if it can.
    pub watches: bool,
}

/// A program that runs.
#[derive(Debug)]
pub struct Started {
    /// Its first process.
    pub child: Child,
    /// Where the moved code of its executable is.
    pub text: Range<LiveVa>,
    /// What tells where signals end its threads, if the kernel can.
    pub deaths: Option<Deaths>,
}

/// The text and the tables of segments in a file of no name, from which processes map them.
#[derive(Debug)]
pub struct SegmentsFile(File);

impl SegmentsFile {
    /// Of `segments`.
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
    (segments.text.len() as u64).next_multiple_of(PAGE)
}

/// Starts `command` with `ready`, counting into `arena`.
///
/// # Errors
/// If it cannot be started or prepared. In both cases no instruction of it has run.
pub fn launch(mut command: Command, ready: &Ready<'_>, arena: &Arena) -> Result<Started, LaunchError> {
    let path = PathBuf::from(command.get_program());
    sys::stop_at_exec(&mut command);
    let mut child = command.spawn().map_err(|source| LaunchError::Start { path: path.clone(), source })?;
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("process numbers fit"));
    let prepared = Stopped::at_exec(pid).and_then(|stopped| {
        // Not everybody may ask for that.
        let deaths = if ready.watches { Deaths::watch(pid).ok() } else { None };
        let bias = prepare(&stopped, ready, arena, Recording::Inherited)?;
        stopped.detach()?;
        Ok((bias, deaths))
    });
    let source = match prepared {
        Ok((bias, deaths)) => {
            let start = ready.segments.text_at;
            let [start, end] =
                [start, start + ready.segments.text.len() as u64].map(|at| bias.to_live(Va(at)));
            return Ok(Started { child, text: start..end, deaths });
        }
        Err(source) => source,
    };
    // It has not run: there is nothing to lose.
    let _gone = child.kill();
    let _status = child.wait();
    Err(LaunchError::Prepare { path, source })
}

/// How a process comes by the recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recording {
    /// It has the file open, since we started it, under the number that it has here; its first area is the
    /// first of all.
    Inherited,
    /// It opens our file, and gets an area that nobody has.
    Opened,
}

/// Maps what `ready` is made of, and has control lead there; how far from its addresses it is. What fails,
/// fails before any code has changed.
pub(crate) fn prepare(
    stopped: &Stopped,
    ready: &Ready<'_>,
    arena: &Arena,
    recording: Recording,
) -> Result<Bias, ProcessError> {
    let Ready { segments, .. } = *ready;
    let vector = Auxiliary::read(stopped)?;
    let entry = segments.entry.ok_or_else(|| stopped.space("it has no entry point"))?;
    let bias = Bias::between(Va(entry), vector.value(AT_ENTRY, stopped)?);
    let live = |at: u64| bias.to_live(Va(at));
    for (at, old, _) in &segments.patches {
        let at = live(*at);
        let mut there = vec![0; old.len()];
        stopped.read(at, &mut there)?;
        if there != *old {
            return Err(stopped.space(format!(
                "{at} does not hold what the file holds: it was changed while it was started"
            )));
        }
    }

    let shared = libc::PROT_READ | libc::PROT_WRITE;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    stopped.map(LiveVa(PROCESS), Process::LEN, shared, private, u64::MAX, 0)?;
    wipe_on_fork(stopped, LiveVa(PROCESS))?;
    // Closed before the first instruction.
    let ours = u64::try_from(arena.file().as_raw_fd()).expect("an open file has a number");
    let (fd, area) = match recording {
        Recording::Inherited => (ours, 0),
        Recording::Opened => {
            let fd = open(stopped, arena.file(), libc::O_RDWR)?;
            (fd, arena.take_area(stopped.pid()).map_err(|e| stopped.space(e.to_string()))?)
        }
    };
    let mapped = map_all(stopped, ready, arena, fd, area, bias);
    close(stopped, fd)?;
    let (jumps, own) = match mapped {
        Ok(mapped) => mapped,
        Err(err) => {
            let _kept = arena.set_owner(area, 0);
            return Err(err);
        }
    };
    stopped.write(LiveVa(PROCESS), &own)?;
    let owner = u32::try_from(stopped.pid()).expect("process numbers are positive");
    stopped.write(LiveVa(arena.owners_at() + 4 * area), &owner.to_le_bytes())?;
    stopped.write(LiveVa(arena.state_at(area)), &[MAY_RUN])?;
    if recording == Recording::Inherited {
        stopped.write(LiveVa(ARENA + offset!(Header, n_areas)), &1u64.to_le_bytes())?;
    }
    segments.patches.iter().try_for_each(|(at, _, new)| stopped.write(live(*at), new))?;
    vector.set(AT_PHDR, live(segments.tables_at).0, stopped)?;
    vector.set(AT_PHNUM, u64::from(segments.n_headers), stopped)?;
    jumps.into_iter().try_for_each(|(site, jump)| stopped.write(site, &jump))?;
    Ok(bias)
}

/// Changes of code: where, and what is there then.
type Changes = Vec<(LiveVa, Vec<u8>)>;

/// Maps all that `ready` needs; gives back what changes in ld.so, and what the process knows of itself.
fn map_all(
    stopped: &Stopped,
    ready: &Ready<'_>,
    arena: &Arena,
    fd: u64,
    area: u64,
    bias: Bias,
) -> Result<(Changes, Vec<u8>), ProcessError> {
    let Ready { segments, .. } = *ready;
    let live = |at: u64| bias.to_live(Va(at));
    let shared = libc::PROT_READ | libc::PROT_WRITE;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    stopped.map(LiveVa(ARENA), arena.mapped_len(), shared, libc::MAP_SHARED | libc::MAP_NORESERVE, fd, 0)?;
    stopped.call(&Syscall {
        name: "madvise",
        number: libc::SYS_madvise,
        args: [ARENA, arena.mapped_len(), u64::from(libc::MADV_DONTDUMP.cast_unsigned()), 0, 0, 0],
    })?;
    let mut own = vec![0; usize::try_from(Process::LEN).expect("small")];
    let mut word = |at: u64, value: u64| {
        let at = usize::try_from(at).expect("small");
        own[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    let pid = u64::try_from(stopped.pid()).expect("process numbers are positive");
    word(offset!(Process, number), pid);
    if arena.knows_namespace() {
        // It need not ask what it is called, which filters of its own might forbid.
        word(offset!(Process, name), pid);
        word(offset!(Process, inherited_name), 1);
    }
    word(offset!(Process, mapped), arena.mapped_len());
    word(offset!(Process, n_threads), 1);
    word(offset!(Process, threads) + offset!(Thread, area), area);
    if let Some(code) = segments.runtime_at
        && let Some((n, row)) = arena.row(segments.key)
    {
        let home = live(segments.counters_at);
        stopped.map(home, HomePage::LEN, shared, private, u64::MAX, 0)?;
        wipe_on_fork(stopped, home)?;
        let counters = LiveVa(home.0 + HomePage::LEN);
        stopped.map(counters, row.len, shared, libc::MAP_SHARED, fd, row.of(area))?;
        let at = offset!(Process, homes) + Home::LEN * n as u64;
        for (field, place) in [
            (offset!(Home, at), home),
            (offset!(Home, runtime), live(code)),
            (offset!(Home, text), live(segments.text_at)),
            (offset!(Home, text_end), live(code)),
            (offset!(Home, old), live(segments.old.start)),
            (offset!(Home, old_end), live(segments.old.end)),
        ] {
            word(at + field, place.0);
        }
    }
    let (text, tables) = (live(segments.text_at), live(segments.tables_at));
    match ready.file {
        Some(SegmentsFile(file)) => {
            let fd = open(stopped, file, libc::O_RDONLY)?;
            let map = |at, bytes: &[u8], protection, offset| match bytes.len() as u64 {
                0 => Ok(()),
                len => stopped.map(at, len.next_multiple_of(PAGE), protection, libc::MAP_PRIVATE, fd, offset),
            };
            let mapped = map(text, &segments.text, libc::PROT_READ | libc::PROT_EXEC, 0)
                .and_then(|()| map(tables, &segments.tables, libc::PROT_READ, tables_offset(segments)));
            close(stopped, fd)?;
            mapped?;
        }
        None => {
            fill(stopped, text, &segments.text, libc::PROT_READ | libc::PROT_EXEC)?;
            fill(stopped, tables, &segments.tables, libc::PROT_READ)?;
        }
    }
    if ready.execs.is_some() {
        let (bells, owner) = arena.bells_at();
        let page = runtime::exec_page(bells, owner);
        fill(stopped, LiveVa(runtime::EXEC), &page, libc::PROT_READ | libc::PROT_EXEC)?;
    }
    let jumps = match vector_base(stopped)? {
        Some(base) => redirect(stopped, Bias::between(Va(0), base), ready, arena.mailbox_at())?,
        None => Vec::new(),
    };
    Ok((jumps, own))
}

/// Where ld.so is, if there is one.
fn vector_base(stopped: &Stopped) -> Result<Option<LiveVa>, ProcessError> {
    let vector = Auxiliary::read(stopped)?;
    Ok(vector.value(AT_BASE, stopped).ok().filter(|base| base.0 != 0))
}

/// Has a child find the page at `at` zero: that is how it knows that it is one.
fn wipe_on_fork(stopped: &Stopped, at: LiveVa) -> Result<(), ProcessError> {
    let advice = u64::from(libc::MADV_WIPEONFORK.cast_unsigned());
    let args = [at.0, PAGE, advice, 0, 0, 0];
    stopped.call(&Syscall { name: "madvise", number: libc::SYS_madvise, args }).map(drop)
}

/// Maps private pages at `at` and fills them; none for nothing, as for the text of a program in which nothing
/// can be moved.
fn fill(stopped: &Stopped, at: LiveVa, bytes: &[u8], protection: i32) -> Result<(), ProcessError> {
    if bytes.is_empty() {
        return Ok(());
    }
    let len = (bytes.len() as u64).next_multiple_of(PAGE);
    stopped.map(at, len, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, u64::MAX, 0)?;
    stopped.write(at, bytes)
}

/// What has ld.so's `openat` calls go through a look-up of paths, and ask before another program takes its
/// place.
fn redirect(stopped: &Stopped, bias: Bias, ready: &Ready<'_>, mailbox: u64) -> Result<Changes, ProcessError> {
    let mut jumps = Vec::new();
    let expect = |from: LiveVa, bytes: &[u8]| {
        let mut there = vec![0; bytes.len()];
        stopped.read(from, &mut there)?;
        match there == bytes {
            true => Ok(()),
            false => {
                Err(stopped.space(format!("{from} of ld.so is not the system call that its file has there")))
            }
        }
    };
    for site in ready.execs.unwrap_or_default() {
        let from = bias.to_live(Va(site.at));
        expect(from, &site.old)?;
        jumps.push((from, site.new.clone()));
    }
    let mut paths = Vec::new();
    for swap in ready.swaps {
        let (asked, given) = (swap.asked.as_os_str().as_bytes(), swap.given.as_os_str().as_bytes());
        let second = 8 + asked.len() + 1;
        let len = (second + given.len() + 1).next_multiple_of(8);
        let from = paths.len();
        let word = |n: usize| u32::try_from(n).expect("paths are short").to_le_bytes();
        paths.extend(word(len));
        paths.extend(word(second));
        paths.extend(asked);
        paths.push(0);
        paths.extend(given);
        paths.resize(from + len, 0);
    }
    paths.extend([0; 8]);
    let sites = ready.opens;
    let Some(first) = sites.first() else { return Ok(jumps) };
    let stub_len = runtime::open_library(first, 0, 0, 0).len().next_multiple_of(64) as u64;
    let code_len = (stub_len * sites.len() as u64).next_multiple_of(PAGE);
    let len = code_len + (paths.len() as u64).next_multiple_of(PAGE);
    let at = room_near(stopped, bias.to_live(first.at), len)?;
    let paths_at = at.0 + code_len;
    let mut code = Vec::new();
    for (n, site) in sites.iter().enumerate() {
        let from = bias.to_live(site.at);
        let stub = at.0 + n as u64 * stub_len;
        code.resize(usize::try_from(stub - at.0).expect("small"), 0xcc);
        code.extend(runtime::open_library(site, from.0, paths_at, mailbox));
        expect(from, &site.bytes)?;
        let mut jump = vec![0xe9];
        let distance = (stub + runtime::OPEN_LIBRARY_ENTRY).wrapping_sub(from.0 + 5);
        jump.extend(&distance.to_le_bytes()[..4]);
        jumps.push((from, jump));
    }
    code.resize(usize::try_from(code_len).expect("small"), 0xcc);
    code.extend(paths);
    fill(stopped, at, &code, libc::PROT_READ | libc::PROT_EXEC)?;
    Ok(jumps)
}

/// Unused addresses within 1 GiB below `near`.
fn room_near(stopped: &Stopped, near: LiveVa, len: u64) -> Result<LiveVa, ProcessError> {
    let maps = stopped.mappings()?;
    // Apart from what is there, so that the next mapping of the kernel still joins its neighbours.
    let apart = 16 * PAGE;
    let mut end = near.0;
    for m in maps.iter().rev().filter(|m| m.range.start.0 <= near.0) {
        let free_from = m.range.end.0 + apart;
        if m.range.end.0 <= end && end.saturating_sub(len + apart) >= free_from {
            break;
        }
        end = end.min(m.range.start.0);
    }
    let at = end.saturating_sub(len + apart) & !(PAGE - 1);
    if near.0 - at > 1 << 30 {
        return Err(stopped.space("there is no room near its dynamic linker"));
    }
    Ok(LiveVa(at))
}

/// Opens a file of ours in the process, by the page that is to hold what it knows of itself: its number
/// there.
fn open(stopped: &Stopped, file: &File, how: i32) -> Result<u64, ProcessError> {
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

fn close(stopped: &Stopped, fd: u64) -> Result<(), ProcessError> {
    stopped.call(&Syscall { name: "close", number: libc::SYS_close, args: [fd, 0, 0, 0, 0, 0] }).map(drop)
}

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;

/// The auxiliary vector on the stack of a program that has not run yet.
struct Auxiliary {
    rows: Vec<(u64, LiveVa, u64)>,
}

impl Auxiliary {
    fn read(stopped: &Stopped) -> Result<Auxiliary, ProcessError> {
        let mut at = stopped.stack_pointer()?.0;
        let n_args = stopped.word(LiveVa(at))?;
        at += 8 * (n_args + 2);
        while stopped.word(LiveVa(at))? != 0 {
            at += 8;
        }
        at += 8;
        let mut rows = Vec::new();
        loop {
            let (tag, value) = (stopped.word(LiveVa(at))?, stopped.word(LiveVa(at + 8))?);
            if tag == 0 {
                return Ok(Auxiliary { rows });
            }
            rows.push((tag, LiveVa(at + 8), value));
            at += 16;
        }
    }
    fn value(&self, tag: u64, stopped: &Stopped) -> Result<LiveVa, ProcessError> {
        let row = self.rows.iter().find(|r| r.0 == tag);
        row.map(|r| LiveVa(r.2))
            .ok_or_else(|| stopped.space(format!("its auxiliary vector has no entry {tag}")))
    }
    fn set(&self, tag: u64, value: u64, stopped: &Stopped) -> Result<(), ProcessError> {
        match self.rows.iter().find(|r| r.0 == tag) {
            Some(row) => stopped.write(row.1, &value.to_le_bytes()),
            None => Err(stopped.space(format!("its auxiliary vector has no entry {tag}"))),
        }
    }
}
