//! Where the threads of a program were when a signal ended them, and which processes it made. The kernel
//! tells it, and nobody in the program can notice: no handler is put in, and nothing is traced.
//!
//! ```text
//!  stopped at exec ──► an event a processor, of the process and all that it makes
//!                  ──► records in buffers ──► taken now and then, and when it has ended
//! ```
//! The tracepoint `signal:signal_deliver` comes to each thread that a signal ends, also to those that are
//! ended since another one was. With it come the thread's registers and what its stack has on top; and the
//! same buffers tell which files' code was mapped where. Who may not have tracepoints, is told of processes
//! alone, if of anything.
//!
//! Source: perf_event_open(2); Linux, kernel/signal.c, get_signal.

use super::perf::{PerfBuffer, Record, processors, tracepoint};
use nix::libc;
use nix::unistd::Pid;
use perf_event_open_sys::bindings::{
    PERF_RECORD_COMM, PERF_RECORD_FORK, PERF_RECORD_LOST, PERF_RECORD_MISC_COMM_EXEC, PERF_RECORD_MMAP,
    PERF_RECORD_SAMPLE,
};
use program::LiveVa;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

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
pub struct KernelReport {
    /// Where threads were when signals ended them.
    pub deaths: Vec<Death>,
    /// Where code is.
    pub mapped: Vec<Mapped>,
    /// Whether that is all: nobody is missing who was ended so.
    pub is_whole: bool,
    /// How many processes began, and how often one became another program; at least, if `is_cut`.
    pub n_processes: u64,
    /// How often a process became another program.
    pub n_execs: u64,
    /// Whether some of its records were lost.
    pub is_cut: bool,
}

/// What tells of them.
#[derive(Debug)]
pub struct Deaths(Mutex<Told>);

#[derive(Debug)]
struct Told {
    buffers: Vec<PerfBuffer>,
    /// Where a record of the tracepoint has the signal, if there is one.
    signal_at: Option<usize>,
    so_far: KernelReport,
}

/// How much code in how many processes is kept: of more, who dies does so in none that is known.
const MOST_MAPPED: usize = 1 << 16;

impl Deaths {
    /// Of process `pid`, and those that it makes, from now on.
    ///
    /// # Errors
    /// If the kernel has no such events, or we may not ask for them: then only the privileged may.
    pub fn watch(pid: Pid) -> io::Result<Deaths> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online")?;
        let online = processors(&online);
        let (buffers, signal_at) = match Deaths::of_signals(pid, &online) {
            Ok((buffers, signal_at)) => (buffers, Some(signal_at)),
            Err(_) => {
                let buffer = |&cpu| PerfBuffer::of_processes(pid, cpu);
                (online.iter().map(buffer).collect::<io::Result<_>>()?, None)
            }
        };
        let so_far = KernelReport { is_whole: signal_at.is_some(), ..KernelReport::default() };
        Ok(Deaths(Mutex::new(Told { buffers, signal_at, so_far })))
    }

    /// Whether we are told where signals end the threads of a process that we start.
    ///
    /// # Errors
    /// Why not.
    pub fn try_out() -> io::Result<()> {
        Deaths::of_signals(Pid::from_raw(0), &[0]).map(drop)
    }

    fn of_signals(pid: Pid, online: &[i32]) -> io::Result<(Vec<PerfBuffer>, usize)> {
        let tracepoint = tracepoint("signal/signal_deliver")?;
        // Those by which nothing ends are no concern of ours, and those that have a handler.
        let alive = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
        let stop = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        let not: String = alive.iter().chain(&stop).map(|signal| format!(" && sig != {signal}")).collect();
        let filter = CString::new(format!("sa_handler == 0{not}")).map_err(io::Error::other)?;
        let buffer = |&cpu| PerfBuffer::of(pid, cpu, &tracepoint, &filter);
        Ok((online.iter().map(buffer).collect::<io::Result<_>>()?, tracepoint.signal_at))
    }

    /// Takes what was told since, so that there is room for more.
    pub fn take(&self) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Told { buffers, signal_at, so_far } = &mut *told;
        for buffer in buffers {
            let (bytes, has_all) = buffer.take();
            so_far.is_whole &= has_all;
            so_far.is_cut |= !has_all;
            let mut rest = bytes.as_slice();
            while let Some(record) = Record::first(&mut rest) {
                so_far.add(&record, *signal_at);
            }
        }
    }

    /// What it has told so far.
    pub fn report(&self) -> KernelReport {
        self.take();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).so_far.clone()
    }
}

impl KernelReport {
    /// Adds what a record says; `signal_at` is where those of the tracepoint have the signal.
    fn add(&mut self, record: &Record<'_>, signal_at: Option<usize>) {
        match record.kind {
            PERF_RECORD_SAMPLE => {
                self.deaths.extend(signal_at.and_then(|signal_at| death(record.body, signal_at)));
            }
            PERF_RECORD_MMAP if self.mapped.len() < MOST_MAPPED => self.mapped.extend(code(record.body)),
            PERF_RECORD_FORK => self.n_processes += u64::from(is_process(record.body)),
            PERF_RECORD_COMM if u32::from(record.misc) & PERF_RECORD_MISC_COMM_EXEC != 0 => self.n_execs += 1,
            PERF_RECORD_LOST => (self.is_whole, self.is_cut) = (false, true),
            _ => {}
        }
    }
}

/// Whether a record of somebody who began is that of a process: its number is none of its parent's.
fn is_process(body: &[u8]) -> bool {
    let number = |at: usize| body.get(at..).and_then(|n| n.first_chunk()).map(|n| u32::from_le_bytes(*n));
    number(0) != number(4)
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
}
