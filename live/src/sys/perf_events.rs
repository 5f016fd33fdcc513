//! The kernel's events: opened, sent to a ring, counted.
//!
//! Source: perf_event_open(2).

use nix::libc;
use nix::unistd::Pid;
use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr};
use perf_event_open_sys::ioctls;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// Opens an event of the kernel's: of process `pid`, on the processor `cpu`, where `filter` holds, if there
/// is one.
///
/// # Errors
/// The kernel's, if it has none, or we may not.
pub fn open_event(
    attributes: &mut perf_event_attr,
    pid: Pid,
    cpu: i32,
    filter: Option<&CStr>,
) -> io::Result<File> {
    let flags = PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: the kernel reads the attributes, which say how long they are.
    let fd = unsafe { perf_event_open_sys::perf_event_open(attributes, pid.as_raw(), cpu, -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nobody else has it.
    let event = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let Some(filter) = filter else { return Ok(event) };
    // SAFETY: the kernel reads the text, to its zero.
    let set = unsafe { ioctls::SET_FILTER(fd, filter.as_ptr().cast_mut()) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(event) }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number that the records of `event` have, those of threads that inherit it, too.
///
/// # Errors
/// The kernel's.
pub fn event_number(event: &File) -> io::Result<u64> {
    let mut number = 0;
    // SAFETY: the kernel writes one word.
    checked(unsafe { ioctls::ID(event.as_raw_fd(), &raw mut number) })?;
    Ok(number)
}

/// Has the records of `event` go where those of `other` go, of the same processor.
///
/// # Errors
/// The kernel's.
pub fn send_to_ring_of(event: &File, other: &File) -> io::Result<()> {
    // SAFETY: both are open.
    checked(unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), other.as_raw_fd()) })
}

/// Has `event` go on, or stand still, in those that inherited it, too.
///
/// # Errors
/// The kernel's.
pub fn let_event(event: &File, go_on: bool) -> io::Result<()> {
    let event = event.as_raw_fd();
    if go_on {
        // SAFETY: it is open.
        checked(unsafe { ioctls::ENABLE(event, 0) })
    } else {
        // SAFETY: it is open.
        checked(unsafe { ioctls::DISABLE(event, 0) })
    }
}

/// Nanoseconds on the clock that events are told the time by (CLOCK_MONOTONIC), and of processor time that
/// this thread has had.
pub fn thread_times() -> (u64, u64) {
    let read = |clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes into `time`.
        let _always_there = unsafe { libc::clock_gettime(clock, &raw mut time) };
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
    };
    (read(libc::CLOCK_MONOTONIC), read(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Waits until one of `events` has records to take, for `most`. Of a thread that is gone, an event tells no
/// more that it has some.
///
/// # Errors
/// The kernel's; a signal is one.
pub fn wait_for_any<'e>(events: impl Iterator<Item = &'e File>, most: Duration) -> io::Result<()> {
    let asked = |event: &File| libc::pollfd { fd: event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut all: Vec<libc::pollfd> = events.map(asked).collect();
    let until = Instant::now() + most;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the kernel writes into `all` while the call lasts.
        checked(unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, ms) })?;
        let is_told = |one: &libc::pollfd| one.revents & libc::POLLIN != 0;
        if all.iter().any(is_told) || all.iter().all(|one| one.revents == 0) {
            return Ok(());
        }
        // The kernel leaves out what is negative.
        all.iter_mut().filter(|one| one.revents != 0).for_each(|one| one.fd = -1);
    }
}
