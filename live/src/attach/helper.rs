//! A thread of ours in another process: it makes system calls in the process's name while the program's own
//! threads go on.
//!
//! ```text
//!  a thread of the program: stopped ──► maps a page of code ──► clone ──► goes on
//!  the helper:                                                  └─► stands still, makes calls, ends
//! ```
//! It has open files of its own, so that the program sees none of ours. Its code is a system call, and behind
//! that its own end: so if we die, it ends, and the program goes on as if it had never been. The program's
//! thread has on its stack, below all that it keeps, what it was doing: so if we die while it works for us,
//! it goes back to that.
//!
//! Source: clone(2); ptrace(2), PTRACE_O_TRACECLONE; sigreturn(2).

use super::AttachError;
use super::handlers;
use super::journal;
use super::stacks;
use super::threads::{self, Thread, Threads};
use crate::arch::{self, WayHome};
use crate::process::{Entering, Mapping, ProcessError, Stopped, Syscall};
use crate::sys::{self, Stop};
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use probe::arch::shared::{HELPER, PAGE};
use program::LiveVa;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// The helper in a process.
pub(super) struct Helper {
    stopped: Stopped,
    process: Pid,
    /// How long all threads of the program may stand still at once, if that matters.
    max_pause: Option<Duration>,
    /// What code is mapped from, if some was, and how long that is.
    code: RefCell<Option<(File, u64, u64)>>,
}

impl Deref for Helper {
    type Target = Stopped;
    fn deref(&self) -> &Stopped {
        &self.stopped
    }
}

impl Helper {
    /// Makes one in `pid`, of which one thread stands still for as long.
    ///
    /// # Errors
    /// If no thread can be stopped, or no further one be made.
    pub(super) fn start(pid: Pid, max_pause: Option<Duration>) -> Result<Helper, AttachError> {
        let code = Code::find(pid)?;
        let stopped = with_thread(pid, None, &code, |lender| {
            let rights = libc::PROT_READ | libc::PROT_EXEC;
            match lender.map(LiveVa(HELPER), PAGE, rights, crate::give::PRIVATE, u64::MAX, 0) {
                Ok(()) => {}
                // Of one that somebody left behind.
                Err(_) if journal::is_left(lender) => {}
                Err(err) => return Err(err.into()),
            }
            let written = lender.write(LiveVa(HELPER), &arch::HELPER_CODE);
            written
                .map_err(AttachError::from)
                .and_then(|()| start_thread(lender, threads::working(pid)))
                .inspect_err(|_| {
                    // One that was made runs there.
                    if lender.made().is_none() {
                        let _gone = lender.unmap(LiveVa(HELPER), PAGE);
                    }
                })
        })?;
        let helper = Helper { stopped, process: pid, max_pause, code: RefCell::default() };
        // What the program closes meanwhile is closed.
        let args = [0, u64::from(u32::MAX), 0, 0, 0, 0];
        match helper.call(&Syscall { name: "close_range", number: libc::SYS_close_range, args }) {
            Ok(_) => Ok(helper),
            Err(err) => {
                helper.end();
                let _gone = forget_code(pid);
                Err(err.into())
            }
        }
    }

    /// The number of its process.
    pub(super) fn process(&self) -> i32 {
        self.process.as_raw()
    }

    /// Its own number.
    pub(super) fn thread(&self) -> Pid {
        Pid::from_raw(self.stopped.pid())
    }

    /// Memory that the process and we share: a file of it, and what it is called there, in the helper.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn share_memory(&self, name: &str) -> Result<(File, u64), AttachError> {
        let buffer = self.map_anywhere(PAGE, libc::PROT_READ | libc::PROT_WRITE)?;
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        self.write(buffer, &text)?;
        let args = [buffer.0, u64::from(libc::MFD_CLOEXEC), 0, 0, 0, 0];
        let made = self.call(&Syscall { name: "memfd_create", number: libc::SYS_memfd_create, args });
        self.unmap(buffer, PAGE)?;
        let fd = made?;
        let path = format!("/proc/{}/task/{}/fd/{fd}", self.process, self.thread());
        let file = File::options().read(true).write(true).open(path);
        let file =
            file.map_err(|err| AttachError::refused(self.process, "opening memory of its own", err))?;
        Ok((file, fd))
    }

    /// Maps pages with these bytes, to be read and run: at `at`, or anywhere. They are those of a file in
    /// memory: so the process has only those by itself that it runs.
    ///
    /// # Errors
    /// If there is no room.
    pub(super) fn map_code(&self, at: Option<LiveVa>, bytes: &[u8]) -> Result<LiveVa, AttachError> {
        let failed = |err| AttachError::refused(self.process, "writing its new code", err);
        let mut code = self.code.borrow_mut();
        if code.is_none() {
            let (file, fd) = self.share_memory(journal::CODE_NAME)?;
            *code = Some((file, fd, 0));
        }
        let (file, fd, end) = code.as_mut().expect("it was just made");
        let (offset, len) = (*end, (bytes.len() as u64).next_multiple_of(PAGE));
        file.set_len(offset + len).and_then(|()| file.write_all_at(bytes, offset)).map_err(failed)?;
        *end += len;
        let rights = libc::PROT_READ | libc::PROT_EXEC;
        match at {
            Some(at) => {
                self.map(at, len, rights, libc::MAP_PRIVATE, *fd, offset)?;
                Ok(at)
            }
            None => Ok(self.map_file_anywhere(len, rights, *fd, offset)?),
        }
    }

    /// The file that code was mapped from, if some was. Whoever keeps it has the kernel not give back all its
    /// memory at the moment at which nothing of it is mapped any more.
    pub(super) fn code_file(&self) -> Option<File> {
        self.code.borrow_mut().take().map(|code| code.0)
    }

    /// How long all threads of the program may stand still at once, if that matters.
    pub(super) fn max_pause(&self) -> Option<Duration> {
        self.max_pause
    }

    /// Ends it; its page of code stays.
    pub(super) fn end(self) {
        end_thread(&self.stopped, self.process());
    }
}

/// Ends a thread of ours in `process`.
pub(super) fn end_thread(stopped: &Stopped, process: i32) {
    let tid = Pid::from_raw(stopped.pid());
    // Behind its system call stands its end, and it is there already if it cannot be told so.
    let at = HELPER + arch::SYSCALL.len() as u64;
    if let Ok(regs) = stopped.registers() {
        let _gone = stopped.set_registers(arch::going_on_at(regs, at));
    }
    let _gone = ptrace::cont(tid, None);
    // Also one that an exec or the end of the process has killed: we alone can bury it, and until then that
    // exec does not go on, and the process's parent does not hear of its end.
    let _gone = sys::end_of(tid);
    // Nobody sees it any more when this returns.
    for _ in 0..1000 {
        if !std::path::Path::new(&format!("/proc/{process}/task/{tid}")).exists() {
            break;
        }
        std::thread::park_timeout(Duration::from_micros(50));
    }
}

/// Takes the page of code that a helper has left out of `pid`.
pub(super) fn forget_code(pid: Pid) -> Result<(), AttachError> {
    let code = Code::find(pid)?;
    with_thread(pid, None, &code, |lender| Ok(lender.unmap(LiveVa(HELPER), PAGE)?))
}

/// The stacks on which `threads` handle signals, of those that are on none of these now: nothing there is
/// needed any more.
///
/// Source: sigaltstack(2).
pub(super) fn idle_signal_stacks(helper: &Helper, threads: &[Pid]) -> Result<Vec<Range<u64>>, AttachError> {
    let pid = Pid::from_raw(helper.process());
    let code = Code::find(pid)?;
    let room = helper.map_anywhere(PAGE, libc::PROT_READ | libc::PROT_WRITE)?;
    let stack_of = |tid: &Pid| {
        let asked = with_thread(pid, Some(*tid), &code, |lender| {
            let args = [0, room.0, 0, 0, 0, 0];
            lender.call(&Syscall { name: "sigaltstack", number: libc::SYS_sigaltstack, args })?;
            Ok([0, 8, 16].map(|n| helper.word(LiveVa(room.0 + n))))
        });
        let [Ok(start), Ok(flags), Ok(len)] = asked.ok()? else { return None };
        // In use, or none. The upper half is padding.
        let is_idle = flags & u64::from((libc::SS_ONSTACK | libc::SS_DISABLE).cast_unsigned()) == 0;
        is_idle.then(|| start..start.saturating_add(len))
    };
    let stacks = threads.iter().filter_map(stack_of).collect();
    helper.unmap(room, PAGE)?;
    Ok(stacks)
}

/// Code of the process by which a thread of its own makes system calls for us.
struct Code {
    /// `syscall; ret`.
    call: LiveVa,
    /// What goes back from signal handlers.
    home: LiveVa,
    /// What the process may write.
    writable: Vec<Writable>,
}

/// Memory that a process may write.
struct Writable {
    range: Range<LiveVa>,
    /// It is a stack, and nothing else.
    is_stack: bool,
}

impl Code {
    /// That in the process `pid`.
    fn find(pid: Pid) -> Result<Code, AttachError> {
        let stopped = Stopped::looked_at(pid)?;
        let mut mappings = stopped.mappings()?;
        let writable =
            |m: &Mapping| Writable { range: m.range.clone(), is_stack: stacks::is_stack(&mappings, m) };
        let writable = mappings.iter().filter(|m| m.writable).map(writable).collect();
        // The C library has it all; few others have anything.
        mappings.retain(|m| m.executable && m.path.is_some());
        mappings.sort_by_key(|m| !is_libc(m));
        let (mut call, mut home) = (None, None);
        for m in mappings {
            let mut code = vec![0; usize::try_from(m.range.end.0 - m.range.start.0).unwrap_or(0)];
            // What cannot be read is not run.
            if stopped.read(m.range.start, &mut code).is_err() {
                continue;
            }
            let found = memchr::memmem::find(&code, &arch::CALL_AND_RETURN);
            call = call.or(found.map(|n| LiveVa(m.range.start.0 + n as u64)));
            home = home.or(handlers::ways_back_of_handlers(&code, m.range.start.0).next().map(LiveVa));
            if let (Some(call), Some(home)) = (call, home) {
                return Ok(Code { call, home, writable });
            }
        }
        Err(stopped
            .space("it has no code that makes system calls and comes back, as C libraries have it")
            .into())
    }
}

fn is_libc(mapping: &Mapping) -> bool {
    let name = mapping.path.as_deref().and_then(std::path::Path::file_name);
    name.is_some_and(|name| program::image::is_libc_file(&name.to_string_lossy()))
}

/// So often a thread is asked that is about to handle a signal each time, with so much time in between.
const TURNS: usize = 200;
const NAP: Duration = Duration::from_micros(500);

/// Has a thread of `pid` do `work` for us, any or this one, while it stands still; then it goes on.
///
/// One that is about to handle a signal goes on with it: the kernel says to handlers alone what else is known
/// of it. One whose stack is a stack and nothing else is taken first: what is written below what it keeps
/// there is nobody's.
fn with_thread<T>(
    pid: Pid,
    which: Option<Pid>,
    code: &Code,
    work: impl FnOnce(&Stopped) -> Result<T, AttachError>,
) -> Result<T, AttachError> {
    let mut refused = None;
    let options = threads::working(pid);
    for turn in 0..TURNS {
        let all = which.map_or_else(|| threads::that_can_work(pid), |tid| Ok(vec![tid]))?;
        for tid in all {
            let mut threads = match Threads::stop_one(pid, tid, options) {
                Ok(threads) => threads,
                // It has ended since, others may be there.
                Err(AttachError::Ended { .. }) if which.is_none() => continue,
                Err(err) => return Err(err),
            };
            let Some(thread) = threads.all.first_mut().filter(|thread| !thread.has_signal()) else {
                continue;
            };
            let lender = Stopped::entering_by(thread.pid, Entering::FromHome(code.call))?;
            let blocked = sys::blocked_signals(thread.pid)
                .map_err(|err| AttachError::refused(pid, "asking which signals it blocks", err))?;
            let refuse = |call| move |err: io::Error| AttachError::refused(tid, call, err);
            let state = sys::vector_state(tid).map_err(refuse("reading its vector registers"))?;
            let way = arch::way_home(&thread.regs, &state, blocked, code.home.0);
            let range = LiveVa(way.at)..LiveVa(way.at + way.bytes.len() as u64);
            let room = code
                .writable
                .iter()
                .find(|room| room.range.start <= range.start && range.end <= room.range.end);
            match room {
                Some(room) if room.is_stack || turn > 0 => {}
                Some(_) => continue,
                None => {
                    let why = lender.space("its stack has no room for what a thread of it was doing");
                    refused = Some(why.into());
                    continue;
                }
            }
            // Others may have something there, if it is no stack alone.
            let before = match room.is_some_and(|room| room.is_stack) {
                true => None,
                false => {
                    let mut before = way.bytes.clone();
                    lender.read(range.start, &mut before)?;
                    Some(before)
                }
            };
            let lent = lend(thread, &lender, &way, code).map_err(|err| match Code::find(pid) {
                Ok(now) if now.call == code.call => err,
                _ => AttachError::Ended { pid: pid.as_raw() },
            });
            let worked = lent.and_then(|()| work(&lender));
            // One that is gone handles none.
            let _gone = sys::block_signals(thread.pid, blocked);
            thread.has_worked(lender.take_signals());
            // Until it has its registers again, it goes home by what is written there, should we die.
            let settled = threads.settle();
            if let (Some(before), Ok(())) = (before, &settled) {
                let _gone = lender.write(range.start, &before);
            }
            threads.go_on();
            return worked;
        }
        if turn > 0
            && let Some(err) = refused
        {
            return Err(err);
        }
        std::thread::park_timeout(NAP);
    }
    Err(AttachError::refused(
        pid,
        "stopping a thread of it that handles no signal",
        io::ErrorKind::TimedOut.into(),
    ))
}

/// A mask that has all of them.
const ALL_SIGNALS: u64 = u64::MAX;

/// Has `thread` go home by itself from now on, the `way` it is to go; signals wait until then.
fn lend(thread: &Thread, lender: &Stopped, way: &WayHome, code: &Code) -> Result<(), AttachError> {
    let refused = |call| move |err: io::Error| AttachError::refused(thread.pid, call, err);
    lender.write(LiveVa(way.at), &way.bytes)?;
    lender.set_registers(arch::at_work(thread.regs, way, code.home.0))?;
    // One that came would have the kernel make no thread.
    sys::block_signals(thread.pid, ALL_SIGNALS).map_err(refused("having signals wait"))
}

/// Has `lender`, a thread of the program or of ours that is traced with `options`, make a thread that stands
/// still.
pub(super) fn start_thread(lender: &Stopped, options: Options) -> Result<Stopped, AttachError> {
    const FLAGS: libc::c_int = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
    // It returns to its own end, should nobody tell it otherwise.
    cloned(lender, options, FLAGS, HELPER + arch::HELPER_STACK).map(|made| made.0)
}

/// The same, of a thread or process as `flags` say, with a stack that ends at `stack`, if that is not 0; it,
/// and what number it has for the process.
pub(super) fn cloned(
    lender: &Stopped,
    options: Options,
    flags: libc::c_int,
    stack: u64,
) -> Result<(Stopped, u64), AttachError> {
    let tid = Pid::from_raw(lender.pid());
    ptrace::setoptions(tid, options | Options::PTRACE_O_TRACECLONE)
        .map_err(|err| AttachError::refused(tid, "following its threads", err.into()))?;
    let args = [u64::from(flags.cast_unsigned()), stack, 0, 0, 0, 0];
    let made = lender.call(&Syscall { name: "clone", number: libc::SYS_clone, args });
    let _gone = ptrace::setoptions(tid, options);
    let number = made?;
    let unknown = || lender.space("the kernel does not say which thread it has made");
    let new = lender.made().ok_or_else(unknown)?;
    let refused = |err| AttachError::refused(new, "waiting for our thread in it", err);
    // It stops before its first instruction; of a process that is stopped, as all of that.
    while !matches!(sys::stop_of(new).map_err(refused)?, Stop::Interrupt | Stop::Group) {
        ptrace::cont(new, None).map_err(|err| refused(err.into()))?;
    }
    sys::block_signals(new, ALL_SIGNALS).map_err(refused)?;
    Ok((Stopped::entering_by(new, Entering::Ours(LiveVa(HELPER)))?, number))
}

impl From<ProcessError> for AttachError {
    fn from(source: ProcessError) -> AttachError {
        let gone = |pid| AttachError::Ended { pid };
        match source {
            ProcessError::Refused { pid, source, .. } if source.raw_os_error() == Some(libc::ESRCH) => {
                gone(pid)
            }
            ProcessError::Ended { pid, .. } => gone(pid),
            source => AttachError::Process(source),
        }
    }
}
