//! The kernel's events: a ring buffer a processor, and the records in it.
//!
//! Source: perf_event_open(2).

use crate::arch::SAMPLED;
use crate::sys::{SharedBytes, open_event};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Pid;
use perf_event_open_sys::bindings::{
    PERF_SAMPLE_RAW, PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STACK_USER, PERF_SAMPLE_TID, PERF_TYPE_TRACEPOINT,
    perf_event_attr,
};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// What the kernel tells on one processor.
#[derive(Debug)]
pub(super) struct PerfBuffer {
    _event: File,
    pages: SharedBytes,
}

/// Bytes in front of a ring buffer.
const HEADER: usize = 0x1000;
/// Bytes of a ring buffer: some thousand records, a power of two.
const ROOM: usize = 1 << 19;

/// Bytes of the stack that are told.
const STACK: u32 = 8;

impl PerfBuffer {
    /// Of process `pid`, and those that it makes, on the processor `cpu`: the tracepoint `config`, where
    /// `filter` holds, and what is mapped.
    pub(super) fn of(pid: Pid, cpu: i32, config: u64, filter: &CStr) -> io::Result<PerfBuffer> {
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
        let event = open_event(&mut attributes, pid, cpu, filter)?;
        let pages = SharedBytes::map(&event, 0, (HEADER + ROOM) as u64)?;
        Ok(PerfBuffer { _event: event, pages })
    }

    /// What is in it, from its start, and whether that is all: the kernel leaves out what does not fit.
    pub(super) fn bytes(&self) -> (Vec<u8>, bool) {
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
pub(super) struct Record<'a> {
    pub(super) kind: u32,
    pub(super) body: &'a [u8],
}

impl<'a> Record<'a> {
    /// Takes the first of `rest`.
    pub(super) fn first(rest: &mut &'a [u8]) -> Option<Record<'a>> {
        let kind = u32::from_le_bytes(*rest.first_chunk()?);
        let len = usize::from(u16::from_le_bytes(*rest.get(6..)?.first_chunk()?));
        let body = rest.get(8..len)?;
        *rest = rest.get(len..)?;
        Some(Record { kind, body })
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

/// A tracepoint, as the kernel's list of them has it where that is mounted; else in a mount that only a
/// thread of ours sees.
pub(super) fn tracepoint(name: &str) -> io::Result<Tracepoint> {
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
