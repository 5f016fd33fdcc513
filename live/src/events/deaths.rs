//! Where the threads of a program were when a signal ended them. The kernel tells it, and nobody in the
//! program can notice: no handler is put in, and nothing is traced.
//!
//! ```text
//!  stopped at exec ──► an event a processor, of the process and all that it makes ──► records in rings ──► read when it has ended
//! ```
//! The tracepoint `signal:signal_deliver` comes to each thread that a signal ends, also to those that are
//! ended since another one was. With it come the thread's registers and what its stack has on top; and the
//! same rings tell which files' code was mapped where.
//!
//! Source: perf_event_open(2); Linux, kernel/signal.c, get_signal.

use crate::arch::SAMPLED;
use crate::sys::{SharedBytes, open_event};
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Pid;
use perf_event_open_sys::bindings::{
    PERF_RECORD_MMAP, PERF_RECORD_SAMPLE, PERF_SAMPLE_RAW, PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STACK_USER,
    PERF_SAMPLE_TID, PERF_TYPE_TRACEPOINT, perf_event_attr,
};
use program::LiveVa;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Where a thread was when a signal ended it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Death {
    /// Its process.
    pub process: u32,
    /// Its own number.
    pub thread: u32,
    /// The signal: SIGKILL for those that are ended since another one was.
    pub signal: i32,
    /// Its next instruction.
    pub at: LiveVa,
    /// The word on top of its stack, if that can be read.
    pub top: Option<u64>,
}

/// Code of a file in a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The process that it was mapped in; those that it makes have it, too.
    pub process: u32,
    /// Where.
    pub range: Range<LiveVa>,
    /// What of the file, in bytes from its start.
    pub offset: u64,
    /// The file.
    pub path: PathBuf,
}

/// What the kernel has told.
#[derive(Clone, Default, Debug)]
pub struct Told {
    /// Where threads were when signals ended them.
    pub deaths: Vec<Death>,
    /// Where code is.
    pub mapped: Vec<Mapped>,
    /// Whether that is all: nobody is missing who was ended so.
    pub is_whole: bool,
}

/// What tells of them.
#[derive(Debug)]
pub struct Deaths {
    rings: Vec<Ring>,
    /// Where a record of the event has the signal.
    signal_at: usize,
}

/// What the kernel tells on one processor.
#[derive(Debug)]
struct Ring {
    _event: File,
    pages: SharedBytes,
}

/// Bytes in front of a ring.
const HEADER: usize = 0x1000;
/// Bytes of a ring: some thousand records, a power of two.
const ROOM: usize = 1 << 19;
/// Bytes of the stack that are told.
const STACK: u32 = 8;

impl Deaths {
    /// Of process `pid`, and those that it makes, from now on.
    ///
    /// # Errors
    /// If the kernel has no such events, or we may not ask for them: then only the privileged may.
    pub fn watch(pid: Pid) -> io::Result<Deaths> {
        let Tracepoint { config, signal_at } = tracepoint("signal/signal_deliver")?;
        // Those by which nothing ends are no concern of ours, and those that have a handler.
        let alive = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
        let stop = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        let not: String = alive.iter().chain(&stop).map(|signal| format!(" && sig != {signal}")).collect();
        let filter = CString::new(format!("sa_handler == 0{not}")).map_err(io::Error::other)?;
        let ring = |cpu| {
            let mut attributes = perf_event_attr {
                type_: PERF_TYPE_TRACEPOINT,
                size: u32::try_from(size_of::<perf_event_attr>()).map_err(io::Error::other)?,
                config,
                sample_type: u64::from(
                    PERF_SAMPLE_TID | PERF_SAMPLE_RAW | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
                ),
                sample_regs_user: SAMPLED,
                sample_stack_user: STACK,
                ..perf_event_attr::default()
            };
            attributes.__bindgen_anon_1.sample_period = 1;
            attributes.set_inherit(1);
            attributes.set_mmap(1);
            let event = open_event(&mut attributes, pid, cpu, &filter)?;
            let pages = SharedBytes::map(&event, 0, (HEADER + ROOM) as u64)?;
            Ok(Ring { _event: event, pages })
        };
        let online = fs::read_to_string("/sys/devices/system/cpu/online")?;
        let rings = numbers(&online).into_iter().map(ring).collect::<io::Result<Vec<_>>>()?;
        Ok(Deaths { rings, signal_at })
    }

    /// What was told so far.
    pub fn told(&self) -> Told {
        let Told { mut deaths, mut mapped, mut is_whole } = Told { is_whole: true, ..Told::default() };
        for ring in &self.rings {
            let (bytes, has_all) = ring.bytes();
            is_whole &= has_all;
            let mut rest = bytes.as_slice();
            while let Some(record) = Record::first(&mut rest) {
                match record.kind {
                    PERF_RECORD_SAMPLE => deaths.extend(death(record.body, self.signal_at)),
                    PERF_RECORD_MMAP => mapped.extend(code(record.body)),
                    _ => {}
                }
            }
        }
        Told { deaths, mapped, is_whole }
    }
}

/// The numbers in a list such as `0-3,8`.
fn numbers(list: &str) -> Vec<i32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse::<i32>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// A tracepoint that tells of a signal.
struct Tracepoint {
    /// Its number.
    config: u64,
    /// Where its records have the signal.
    signal_at: usize,
}

/// Where a record has a field, from the text that says where fields are.
fn field_at(format: &str, field: &str) -> Option<usize> {
    let (_, rest) = format.split_once(&format!(" {field};"))?;
    let (_, rest) = rest.split_once("offset:")?;
    rest.split_once(';')?.0.parse().ok()
}

/// A tracepoint, as the kernel's list of them has it where that is mounted; else in a mount that only a
/// thread of ours sees.
fn tracepoint(name: &str) -> io::Result<Tracepoint> {
    let read = |folder: &str| {
        let event = Path::new(folder).join("events").join(name);
        let config = fs::read_to_string(event.join("id"))?.trim().parse().map_err(io::Error::other)?;
        let signal_at = field_at(&fs::read_to_string(event.join("format"))?, "sig");
        let none = || io::Error::other(format!("{} has no signal", event.display()));
        Ok(Tracepoint { config, signal_at: signal_at.ok_or_else(none)? })
    };
    const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    if let Some(id) = MOUNTED.iter().find_map(|folder| read(folder).ok()) {
        return Ok(id);
    }
    let alone = || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        const NOTHING: Option<&str> = None;
        mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING)?;
        mount(Some("tracefs"), MOUNTED[0], Some("tracefs"), MsFlags::empty(), NOTHING)?;
        read(MOUNTED[0])
    };
    std::thread::scope(|scope| {
        let asked = std::thread::Builder::new().spawn_scoped(scope, alone)?.join();
        asked.unwrap_or_else(|_| Err(io::Error::other("the thread that asked has panicked")))
    })
}

impl Ring {
    /// What is in it, from its start, and whether that is all: the kernel leaves out what does not fit.
    fn bytes(&self) -> (Vec<u8>, bool) {
        const HEAD: usize =
            std::mem::offset_of!(perf_event_open_sys::bindings::perf_event_mmap_page, data_head);
        let mut head = [0; 8];
        self.pages.look(HEAD, &mut head);
        let len = usize::try_from(u64::from_le_bytes(head)).unwrap_or(ROOM).min(ROOM);
        let mut bytes = vec![0; len & !7];
        self.pages.look(HEADER, &mut bytes);
        // The longest record is that of a path.
        (bytes, len + 0x2000 < ROOM)
    }
}

/// A record of the kernel's.
struct Record<'a> {
    kind: u32,
    body: &'a [u8],
}

impl<'a> Record<'a> {
    /// Takes the first of `rest`.
    fn first(rest: &mut &'a [u8]) -> Option<Record<'a>> {
        let kind = u32::from_le_bytes(*rest.first_chunk()?);
        let len = usize::from(u16::from_le_bytes(*rest.get(6..)?.first_chunk()?));
        let body = rest.get(8..len)?;
        *rest = rest.get(len..)?;
        Some(Record { kind, body })
    }
}

/// The process and the thread that a record begins with, and the words behind them.
fn words(body: &[u8]) -> Option<(u32, u32, impl Iterator<Item = u64>)> {
    let (numbers, rest) = body.split_first_chunk::<8>()?;
    let [process, thread] = [0, 4].map(|at| numbers.get(at..).and_then(|n| n.first_chunk()));
    let words = rest.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    Some((u32::from_le_bytes(*process?), u32::from_le_bytes(*thread?), words))
}

fn death(body: &[u8], signal_at: usize) -> Option<Death> {
    let (process, thread, _) = words(body)?;
    // What the tracepoint has itself, behind its length.
    let own_len = u32::from_le_bytes(*body.get(8..)?.first_chunk()?);
    let own = body.get(12..)?.get(..usize::try_from(own_len).ok()?)?;
    let signal = i32::from_le_bytes(*own.get(signal_at..)?.first_chunk()?);
    let rest = body.get(12 + own.len()..)?;
    let mut words = rest.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    // A thread of the kernel's has none.
    let _abi = words.next().filter(|abi| *abi != 0)?;
    let (_stack_pointer, at) = (words.next()?, LiveVa(words.next()?));
    let room = words.next()?;
    let stack: Vec<u64> = words.by_ref().take(usize::try_from(room / 8).ok()?).collect();
    let told = words.next().unwrap_or(0);
    let top = stack.first().copied().filter(|_| told >= 8);
    Some(Death { process, thread, signal, at, top })
}

fn code(body: &[u8]) -> Option<Mapped> {
    let (process, _, mut words) = words(body)?;
    let (start, len, offset) = (words.next()?, words.next()?, words.next()?);
    let name = body.get(32..)?.split(|byte| *byte == 0).next()?;
    let range = LiveVa(start)..LiveVa(start.checked_add(len)?);
    Some(Mapped { process, range, offset, path: PathBuf::from(OsStr::from_bytes(name)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(numbers("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(numbers("0\n"), [0]);
    }

    #[test]
    fn records_are_read_up_to_one_that_is_cut() {
        let mut bytes = Vec::new();
        let mut push = |kind: u32, words: &[u64]| {
            bytes.extend(kind.to_le_bytes());
            bytes.extend(u32::to_le_bytes(u32::try_from(8 + 8 * words.len()).expect("short") << 16));
            words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        };
        // Of a stack that can be read, and of one that cannot.
        push(PERF_RECORD_SAMPLE, &[7 << 32 | 5, 20, 11 << 32, 0, 2, 0x1000, 0x2000, 8, 11, 8]);
        push(PERF_RECORD_SAMPLE, &[7 << 32 | 5, 20, 11 << 32, 0, 2, 0x1000, 0x2000, 8, 0, 0]);
        push(PERF_RECORD_MMAP, &[7 << 32 | 5, 0x4000, 0x1000, 0x200, u64::from_le_bytes(*b"/a/b.so\0")]);
        push(PERF_RECORD_SAMPLE, &[7 << 32 | 5, 0]);
        bytes.extend([9, 0, 0, 0, 0, 0, 64, 0, 1]);
        let mut rest = bytes.as_slice();
        let mut next = || Record::first(&mut rest);
        let dead = Death { process: 5, thread: 7, signal: 11, at: LiveVa(0x2000), top: Some(11) };
        assert_eq!(next().and_then(|r| death(r.body, 8)), Some(dead.clone()));
        assert_eq!(next().and_then(|r| death(r.body, 8)), Some(Death { top: None, ..dead }));
        let range = LiveVa(0x4000)..LiveVa(0x5000);
        let mapped = Mapped { process: 5, range, offset: 0x200, path: "/a/b.so".into() };
        assert_eq!(next().and_then(|r| code(r.body)), Some(mapped));
        assert_eq!(next().map(|r| death(r.body, 8)), Some(None));
        assert!(next().is_none());
    }

    #[test]
    fn a_field_is_where_the_text_says() {
        let format = "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:int sig;\toffset:12;\tsize:4;\tsigned:1;\n";
        assert_eq!(field_at(format, "sig"), Some(12));
        assert_eq!(field_at(format, "code"), None);
    }
}
