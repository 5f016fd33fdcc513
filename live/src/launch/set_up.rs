//! A process that stands before its first instruction, given all that its program is to be started with.

use super::Ready;
use super::auxiliary::{AT_ENTRY, AT_PHDR, AT_PHNUM, Auxiliary, linker_base};
use super::dynamic_linker::{Changes, redirect};
use crate::give::{
    CountersAt, ModuleMemory, PRIVATE, READ_WRITE, close, fill, map_module, open, process_of, wipe_on_fork,
};
use crate::process::{ProcessError, Stopped, Syscall};
use crate::shared::Arena;
use nix::libc;
use probe::arch::shared::{ARENA, Header, MAY_RUN, PROCESS, Process};
use probe::arch::{EXEC, exec_page};
use probe::offset;
use program::{Bias, LiveVa, Va};
use std::os::fd::AsRawFd as _;

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
pub(crate) fn set_up(
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
    let mut memory = ModuleMemory { stopped, bias };
    memory.check_unchanged(&segments.patches)?;
    stopped.map(LiveVa(PROCESS), Process::LEN, READ_WRITE, PRIVATE, u64::MAX, 0)?;
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
    let jumps = match mapped {
        Ok(mapped) => mapped,
        Err(err) => {
            let _kept = arena.set_owner(area, 0);
            return Err(err);
        }
    };
    stopped.write(LiveVa(PROCESS), &process_of(stopped.pid(), [(segments, bias)], arena, area))?;
    let owner = u32::try_from(stopped.pid()).expect("process numbers are positive");
    stopped.write(LiveVa(arena.owners_at() + 4 * area), &owner.to_le_bytes())?;
    stopped.write(LiveVa(arena.state_at(area)), &[MAY_RUN])?;
    if recording == Recording::Inherited {
        stopped.write(LiveVa(ARENA + offset!(Header, n_areas)), &1u64.to_le_bytes())?;
    }
    // They were checked, before anything else was done.
    memory.change(&segments.patches)?;
    vector.set(AT_PHDR, live(segments.tables_at).0, stopped)?;
    vector.set(AT_PHNUM, u64::from(segments.n_headers), stopped)?;
    jumps.into_iter().try_for_each(|(site, jump)| stopped.write(site, &jump))?;
    Ok(bias)
}

/// Maps all that `ready` needs; gives back what changes in ld.so.
fn map_all(
    stopped: &Stopped,
    ready: &Ready<'_>,
    arena: &Arena,
    fd: u64,
    area: u64,
    bias: Bias,
) -> Result<Changes, ProcessError> {
    let len = arena.mapped_len();
    stopped.map(LiveVa(ARENA), len, READ_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE, fd, 0)?;
    stopped.call(&Syscall {
        name: "madvise",
        number: libc::SYS_madvise,
        args: [ARENA, len, u64::from(libc::MADV_DONTDUMP.cast_unsigned()), 0, 0, 0],
    })?;
    let row = ready.segments.runtime_at.and_then(|_| arena.row(ready.segments.key));
    let counters = row.map(|(_, row)| CountersAt { fd, offset: row.of(area), len_bytes: row.len });
    map_module(stopped, ready.segments, bias, ready.file, counters)?;
    if ready.execs.is_some() {
        let (requests, owner) = arena.exec_requests_at();
        fill(stopped, LiveVa(EXEC), &exec_page(requests, owner), libc::PROT_READ | libc::PROT_EXEC)?;
    }
    match linker_base(stopped)? {
        Some(base) => redirect(stopped, Bias::between(Va(0), base), ready, arena.mailbox_at()),
        None => Ok(Changes::new()),
    }
}
