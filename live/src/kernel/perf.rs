//! The kernel's events: a ring buffer a processor, and the records in it.
//!
//! Source: perf_event_open(2).

use crate::arch::SAMPLED;
use crate::sys::{SharedBytes, open_event};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Pid;
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_DUMMY, PERF_SAMPLE_RAW, PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STACK_USER, PERF_SAMPLE_TID,
    PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, perf_event_attr, perf_event_mmap_page,
};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::mem::offset_of;
use std::path::Path;

/// What the kernel tells on one processor.
#[derive(Debug)]
pub(super) struct PerfBuffer {
    event: File,
    pages: SharedBytes,
    /// How many bytes of it were taken.
    taken: u64,
}

/// Bytes in front of a ring buffer.
const HEADER: usize = 0x1000;
/// Bytes of a ring buffer: some thousand records, a power of two. And of one of processes alone: what all
/// buffers of a user may have without rights is some hundred pages a processor.
const ROOM: usize = 1 << 19;
const SMALL_ROOM: usize = 1 << 16;
/// No record is longer.
const LONGEST: usize = 0x2000;

/// Bytes of the stack that are told.
const STACK: u32 = 8;

impl PerfBuffer {
    /// Of process `pid`, and those that it makes, on the processor `cpu`: the `tracepoint`, what is mapped,
    /// and which processes begin and become other programs.
    pub(super) fn of(pid: Pid, cpu: i32, tracepoint: &Tracepoint, filter: &CStr) -> io::Result<PerfBuffer> {
        let mut attributes = perf_event_attr {
            type_: PERF_TYPE_TRACEPOINT,
            config: tracepoint.config,
            sample_type: u64::from(
                PERF_SAMPLE_TID | PERF_SAMPLE_RAW | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
            ),
            sample_regs_user: SAMPLED,
            sample_stack_user: STACK,
            ..perf_event_attr::default()
        };
        attributes.__bindgen_anon_1.sample_period = 1;
        attributes.set_mmap(1);
        PerfBuffer::open(attributes, pid, cpu, Some(filter), ROOM)
    }

    /// Of process `pid`, and those that it makes, on the processor `cpu`: which processes begin and become
    /// other programs, and nothing else. For that, nobody needs rights where users may have events at all.
    pub(super) fn of_processes(pid: Pid, cpu: i32) -> io::Result<PerfBuffer> {
        let mut attributes = perf_event_attr {
            type_: PERF_TYPE_SOFTWARE,
            config: u64::from(PERF_COUNT_SW_DUMMY),
            ..perf_event_attr::default()
        };
        attributes.set_exclude_kernel(1);
        attributes.set_exclude_hv(1);
        PerfBuffer::open(attributes, pid, cpu, None, SMALL_ROOM)
    }

    fn open(
        mut attributes: perf_event_attr,
        pid: Pid,
        cpu: i32,
        filter: Option<&CStr>,
        room: usize,
    ) -> io::Result<PerfBuffer> {
        attributes.size = u32::try_from(size_of::<perf_event_attr>()).map_err(io::Error::other)?;
        attributes.set_inherit(1);
        attributes.set_task(1);
        attributes.set_comm(1);
        attributes.set_comm_exec(1);
        let event = open_event(&mut attributes, pid, cpu, filter)?;
        PerfBuffer::mapped(event, room)
    }

    /// With room for `room` bytes of records, a power of two, of `event` and those that are sent there.
    pub(super) fn mapped(event: File, room: usize) -> io::Result<PerfBuffer> {
        let pages = SharedBytes::map(&event, 0, (HEADER + room) as u64)?;
        Ok(PerfBuffer { event, pages, taken: 0 })
    }

    /// The event that it was made for.
    pub(super) fn event(&self) -> &File {
        &self.event
    }

    /// How many bytes of records there is room for: a power of two.
    pub(super) fn room(&self) -> usize {
        self.pages.len() - HEADER
    }

    /// Takes what came since it was called last, and whether that is all: the kernel leaves out what does not
    /// fit.
    pub(super) fn take(&mut self) -> (Vec<u8>, bool) {
        const HEAD: usize = offset_of!(perf_event_mmap_page, data_head);
        const TAIL: usize = offset_of!(perf_event_mmap_page, data_tail);
        let mut head = [0; 8];
        self.pages.look(HEAD, &mut head);
        let head = u64::from_le_bytes(head);
        let room = self.room();
        let len = usize::try_from(head.wrapping_sub(self.taken)).unwrap_or(room).min(room) & !7;
        let start = usize::try_from(self.taken).unwrap_or(0) & (room - 1);
        let mut bytes = vec![0; len];
        let (first, second) = bytes.split_at_mut(len.min(room - start));
        self.pages.look(HEADER + start, first);
        self.pages.look(HEADER, second);
        self.taken = head;
        self.pages.set(TAIL, head);
        // The longest record is that of a path.
        (bytes, len + LONGEST < room)
    }
}

/// A record of the kernel's.
pub(super) struct Record<'a> {
    pub(super) kind: u32,
    /// What the kernel says of it beside its kind.
    pub(super) misc: u16,
    pub(super) body: &'a [u8],
}

impl<'a> Record<'a> {
    /// Takes the first of `rest`.
    pub(super) fn first(rest: &mut &'a [u8]) -> Option<Record<'a>> {
        let kind = u32::from_le_bytes(*rest.first_chunk()?);
        let misc = u16::from_le_bytes(*rest.get(4..)?.first_chunk()?);
        let len = usize::from(u16::from_le_bytes(*rest.get(6..)?.first_chunk()?));
        let body = rest.get(8..len)?;
        *rest = rest.get(len..)?;
        Some(Record { kind, misc, body })
    }
}

/// The numbers in a list such as `0-3,8`.
pub(super) fn processors(list: &str) -> Vec<i32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse::<i32>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// A tracepoint that tells of a signal.
pub(super) struct Tracepoint {
    /// Its number.
    pub(super) config: u64,
    /// Where its records have the signal.
    pub(super) signal_at: usize,
}

/// Where a record has a field, from the text that says where fields are.
fn field_at(format: &str, field: &str) -> Option<usize> {
    let (_, rest) = format.split_once(&format!(" {field};"))?;
    let (_, rest) = rest.split_once("offset:")?;
    rest.split_once(';')?.0.parse().ok()
}

/// A tracepoint that tells of a signal, as the kernel's list of them has it where that is mounted; else in a
/// mount that only a thread of ours sees.
pub(super) fn tracepoint(name: &str) -> io::Result<Tracepoint> {
    let read = |folder: &str| {
        let config = number(folder, name)?;
        let event = Path::new(folder).join("events").join(name);
        let signal_at = field_at(&fs::read_to_string(event.join("format"))?, "sig");
        let none = || io::Error::other(format!("{} has no signal", event.display()));
        Ok(Tracepoint { config, signal_at: signal_at.ok_or_else(none)? })
    };
    where_listed(read)
}

/// The number of the tracepoint `SYSTEM/NAME`.
pub(super) fn tracepoint_number(name: &str) -> io::Result<u64> {
    where_listed(|folder: &str| number(folder, name))
}

/// The number of a tracepoint that is listed in `folder`.
fn number(folder: &str, name: &str) -> io::Result<u64> {
    let path = Path::new(folder).join("events").join(name).join("id");
    fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}

/// What is `read` where tracepoints are listed.
fn where_listed<T: Send>(read: impl Fn(&str) -> io::Result<T> + Sync) -> io::Result<T> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(processors("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(processors("0\n"), [0]);
    }

    #[test]
    fn a_field_is_where_the_text_says() {
        let format = "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:int sig;\toffset:12;\tsize:4;\tsigned:1;\n";
        assert_eq!(field_at(format, "sig"), Some(12));
        assert_eq!(field_at(format, "code"), None);
    }
}
