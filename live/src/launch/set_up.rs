//! A process that stands before its first instruction, given all that its program is to be started with.

use super::Ready;
use super::auxiliary::{AT_ENTRY, AT_PHDR, AT_PHNUM, Auxiliary, linker_base};
use super::dynamic_linker::{Changes, redirect};
use super::map_module::{CountersAt, home_of, map_module};
use super::remote_calls::{PAGE, PRIVATE, READ_WRITE, close, fill, open, wipe_on_fork};
use crate::process::{ProcessError, Stopped, Syscall};
use crate::shared::Arena;
use nix::libc;
use probe::arch::shared::{ARENA, Header, Home, MAY_RUN, PROCESS, Process, Thread};
use probe::arch::{EXEC, exec_page};
use probe::{Memory, Patch, PatchError, Segments, offset};
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
    memory.check_unchanged(segments)?;
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
    stopped.write(LiveVa(PROCESS), &process_of(stopped.pid(), segments, arena, area, bias))?;
    let owner = u32::try_from(stopped.pid()).expect("process numbers are positive");
    stopped.write(LiveVa(arena.owners_at() + 4 * area), &owner.to_le_bytes())?;
    stopped.write(LiveVa(arena.state_at(area)), &[MAY_RUN])?;
    if recording == Recording::Inherited {
        stopped.write(LiveVa(ARENA + offset!(Header, n_areas)), &1u64.to_le_bytes())?;
    }
    // They were checked, before anything else was done.
    memory.change(segments)?;
    vector.set(AT_PHDR, live(segments.tables_at).0, stopped)?;
    vector.set(AT_PHNUM, u64::from(segments.n_headers), stopped)?;
    jumps.into_iter().try_for_each(|(site, jump)| stopped.write(site, &jump))?;
    Ok(bias)
}

/// A stopped process's memory by the addresses of a module in it.
struct ModuleMemory<'a> {
    stopped: &'a Stopped,
    bias: Bias,
}

impl ModuleMemory<'_> {
    /// Whether all that is to be patched is as the file has it.
    fn check_unchanged(&self, segments: &Segments) -> Result<(), ProcessError> {
        stretches(&segments.patches).try_for_each(|patches| {
            let copy = Copy::of(self, patches)?;
            patches.iter().try_for_each(|patch| patch.check(&copy)).map_err(|why| self.refused(why))
        })
    }

    /// Makes all patches.
    fn change(&mut self, segments: &Segments) -> Result<(), ProcessError> {
        stretches(&segments.patches).try_for_each(|patches| {
            let mut copy = Copy::of(self, patches)?;
            patches.iter().try_for_each(|patch| patch.apply(&mut copy)).map_err(|why| self.refused(why))?;
            self.write(copy.at, &copy.bytes)
        })
    }

    fn refused(&self, why: PatchError<NotInCopy>) -> ProcessError {
        match why {
            PatchError::Memory(NotInCopy) => self.stopped.space("patches overlap"),
            PatchError::Unexpected { at } => self.stopped.space(format!(
                "{} does not hold what the file holds: it was changed while it was started",
                self.bias.to_live(at)
            )),
        }
    }
}

/// `patches`, which are by address, in parts between whose bytes no whole page lies, so that what is between
/// them is mapped, too, and is on pages that change.
fn stretches(patches: &[Patch]) -> impl Iterator<Item = &[Patch]> {
    let is_near = |a: &Patch, b: &Patch| b.at.0 < a.at.0 + a.old.len() as u64 + PAGE;
    patches.chunk_by(is_near).flat_map(|near| near.chunks(MOST_TOGETHER))
}

/// So many patches take a few hundred kilobytes together.
const MOST_TOGETHER: usize = 1 << 12;

/// A copy of a part of a module's memory, in which patches are checked and made: each by itself would cost
/// two system calls.
struct Copy {
    at: Va,
    bytes: Vec<u8>,
}

/// A patch is not in the part that was copied for it.
#[derive(Debug)]
struct NotInCopy;

impl Copy {
    /// From the first of `patches` to the end of the last.
    fn of(memory: &ModuleMemory<'_>, patches: &[Patch]) -> Result<Copy, ProcessError> {
        let at = patches.first().map_or(Va(0), |patch| patch.at);
        let end = patches.last().map_or(at, |patch| patch.at.plus(patch.old.len() as u64));
        let mut bytes = vec![0; usize::try_from(end.since(at)).unwrap_or(0)];
        memory.read(at, &mut bytes)?;
        Ok(Copy { at, bytes })
    }

    fn place(&self, at: Va, len: usize) -> Result<std::ops::Range<usize>, NotInCopy> {
        let from =
            at.0.checked_sub(self.at.0).and_then(|from| usize::try_from(from).ok()).ok_or(NotInCopy)?;
        let end = from.checked_add(len).filter(|end| *end <= self.bytes.len()).ok_or(NotInCopy)?;
        Ok(from..end)
    }
}

impl Memory for Copy {
    type Error = NotInCopy;

    fn read(&self, at: Va, bytes: &mut [u8]) -> Result<(), NotInCopy> {
        bytes.copy_from_slice(&self.bytes[self.place(at, bytes.len())?]);
        Ok(())
    }

    fn write(&mut self, at: Va, bytes: &[u8]) -> Result<(), NotInCopy> {
        let place = self.place(at, bytes.len())?;
        self.bytes[place].copy_from_slice(bytes);
        Ok(())
    }
}

impl Memory for ModuleMemory<'_> {
    type Error = ProcessError;

    fn read(&self, at: Va, bytes: &mut [u8]) -> Result<(), ProcessError> {
        self.stopped.read(self.bias.to_live(at), bytes)
    }

    fn write(&mut self, at: Va, bytes: &[u8]) -> Result<(), ProcessError> {
        self.stopped.write(self.bias.to_live(at), bytes)
    }
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

/// What process `pid`, whose first thread has the area `area`, knows of itself: [`Process`].
fn process_of(pid: i32, segments: &Segments, arena: &Arena, area: u64, bias: Bias) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<Process>()];
    let mut set = |at: u64, value: u64| {
        let at = usize::try_from(at).expect("small");
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    let pid = u64::try_from(pid).expect("process numbers are positive");
    set(offset!(Process, number), pid);
    if arena.knows_namespace() {
        // It need not ask what it is called, which filters of its own might forbid.
        set(offset!(Process, name), pid);
        set(offset!(Process, inherited_name), 1);
    }
    set(offset!(Process, mapped), arena.mapped_len());
    set(offset!(Process, n_threads), 1);
    set(offset!(Process, threads) + offset!(Thread, area), area);
    if let Some(runtime) = segments.runtime_at
        && let Some((n, _)) = arena.row(segments.key)
    {
        let home = offset!(Process, homes) + Home::LEN * n as u64;
        for (field, place) in home_of(segments, bias, runtime) {
            set(home + field, place.0);
        }
    }
    bytes
}
