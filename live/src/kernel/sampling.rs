//! Threads of processes, sampled: where each is, again and again, told by the kernel in a ring buffer a
//! processor. Nothing of them is stopped or changed.
//!
//! ```text
//!  threads × processors × events ──► a ring a processor ──► records by time ──► [`Heard`]
//! ```
//! Each event is inherited by threads and processes that come later. Records of several rings are put into
//! order by their times: what is younger than the round before it was taken in waits for the next one.
//!
//! Source: perf_event_open(2); PADRONE, 2.2.

use super::event::Event;
use super::perf::{PerfBuffer, Record, processors};
use crate::arch::SAMPLED_FOR_CHAINS;
use crate::sys::{event_number, let_event, open_event, send_to_ring_of, thread_times};
use nix::unistd::Pid;
use perf_event_open_sys::bindings as perf;
use program::LiveVa;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

/// How often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rate {
    /// So many times in a second of each thread's time.
    Hertz(u64),
    /// Each time that an event came so often.
    Every(u64),
}

/// How the callers of a sampled instruction are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chains {
    /// How many bytes of the stack are copied: a multiple of 8, less than 65,536.
    pub stack: u32,
}

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The events.
    pub events: Vec<Event>,
    /// How often each.
    pub rate: Rate,
    /// The callers, if these are wanted.
    pub chains: Option<Chains>,
}

/// Why nothing is sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// We may not.
    #[error("process {pid} may not be sampled by us: the kernel refuses {event}")]
    Forbidden {
        /// The process.
        pid: i32,
        /// The event.
        event: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// This machine has no such event.
    #[error("this machine has no event {event}")]
    NoSuchEvent {
        /// The event.
        event: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel allows no such rate.
    #[error("the kernel samples no more than {most} times a second")]
    TooOften {
        /// What it allows.
        most: u64,
    },
    /// So many files cannot be open.
    #[error("process {pid} has more threads than there may be files open")]
    TooMany {
        /// The process.
        pid: i32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It is gone.
    #[error("process {pid} has ended")]
    Ended {
        /// The process.
        pid: i32,
    },
    /// Another reason.
    #[error("process {pid} cannot be sampled")]
    Other {
        /// The process.
        pid: i32,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl OpenError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            OpenError::Forbidden { .. } => Some(
                "one's own processes, where /proc/sys/kernel/perf_event_paranoid is 2 or less; others with root \
                 or CAP_PERFMON"
                    .to_owned(),
            ),
            OpenError::NoSuchEvent { .. } => {
                Some("cpu-clock and page-faults are everywhere; `engraft doctor` says what there is".to_owned())
            }
            OpenError::TooOften { .. } => Some("/proc/sys/kernel/perf_event_max_sample_rate is that number".to_owned()),
            OpenError::TooMany { .. } => Some("`ulimit -n` sets how many files may be open".to_owned()),
            OpenError::Ended { .. } => Some("`ps -e` lists the processes that there are".to_owned()),
            OpenError::Other { .. } => None,
        }
    }
}

/// A thread's registers and what its stack has from there on, when a sample was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserStack {
    /// Its next instruction in its own code, also if it was in the kernel.
    pub at: LiveVa,
    /// Its stack pointer.
    pub sp: u64,
    /// Its frame pointer, if it is one.
    pub bp: u64,
    /// What its stack has from `sp` on, as far as it was copied.
    pub bytes: Vec<u8>,
}

/// A sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Which of the events.
    pub event: usize,
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub time: u64,
    /// Its process.
    pub process: u32,
    /// Its thread.
    pub thread: u32,
    /// Where it was, be that in the kernel.
    pub at: LiveVa,
    /// How many of the event it stands for.
    pub period: u64,
    /// Where it was in the kernel, the innermost first; with chains alone.
    pub kernel: Vec<u64>,
    /// What its callers follow from.
    pub user: Option<UserStack>,
}

/// What the kernel has told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// A sample.
    Sample(Sample),
    /// Code of a file was mapped.
    Mapped {
        /// The process.
        process: u32,
        /// Where.
        range: Range<LiveVa>,
        /// What of the file, in bytes from its start.
        offset: u64,
        /// The file's number.
        inode: u64,
        /// What the process calls it; of memory, what the kernel calls that.
        path: PathBuf,
    },
    /// A thread began; of its own process, if that is not its parent's.
    Began {
        /// Its process.
        process: u32,
        /// Its number.
        thread: u32,
        /// The process of the thread that made it.
        parent: u32,
        /// That thread.
        maker: u32,
    },
    /// A thread has a name, or became another program.
    Named {
        /// Its process.
        process: u32,
        /// Its number.
        thread: u32,
        /// The name.
        name: String,
        /// Whether that is because it became another program: nothing is mapped that was.
        is_exec: bool,
    },
    /// Records for which there was no room.
    Lost(u64),
}

/// Processes that are sampled.
#[derive(Debug)]
pub struct Sampling {
    /// By the number that records have.
    numbers: HashMap<u64, usize>,
    /// What is sent to the rings of others.
    others: Vec<File>,
    rings: Vec<PerfBuffer>,
    wanted: Wanted,
    has_kernel: bool,
    /// Records that wait for older ones, and when the youngest of the last round was.
    waiting: Vec<(u64, Heard)>,
    youngest: u64,
    /// Samples before are of nobody's time.
    began: u64,
}

/// How much room a ring has, whatever of these there may be: without rights, all that a user has is half a
/// megabyte a processor.
const ROOMS: [usize; 4] = [8 << 20, 2 << 20, 1 << 19, 1 << 16];

/// What is told with every record but samples: the thread, the time, the event.
const TRAILER: usize = 24;

impl Sampling {
    /// Of processes `pids` with all their threads, and those that come, from now on.
    ///
    /// # Errors
    /// If the kernel has no such event, or we may not.
    pub fn start(pids: &[i32], wanted: Wanted) -> Result<Sampling, OpenError> {
        match Sampling::open(pids, &wanted, true) {
            Err(OpenError::Forbidden { .. }) => Sampling::open(pids, &wanted, false),
            opened => opened,
        }
    }

    fn open(pids: &[i32], wanted: &Wanted, has_kernel: bool) -> Result<Sampling, OpenError> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_else(|_| "0".to_owned());
        let mut sampling = Sampling {
            numbers: HashMap::new(),
            others: Vec::new(),
            rings: Vec::new(),
            wanted: wanted.clone(),
            has_kernel,
            waiting: Vec::new(),
            youngest: 0,
            began: 0,
        };
        let online = processors(&online);
        let mut opened: BTreeSet<u32> = BTreeSet::new();
        loop {
            // One that came meanwhile has inherited what its maker had, if that was opened before.
            let heard = sampling.heard_now();
            sampling.waiting.extend(heard);
            let inherits = |heard: &(u64, Heard)| match &heard.1 {
                Heard::Began { thread, .. } => Some(*thread),
                _ => None,
            };
            opened.extend(sampling.waiting.iter().filter_map(inherits));
            let of =
                |pid: &i32| threads_of(*pid).into_iter().map(|thread| (*pid, thread)).collect::<Vec<_>>();
            let mut threads: Vec<(i32, u32)> = pids.iter().flat_map(of).collect();
            threads.retain(|(_, thread)| !opened.contains(thread));
            if threads.is_empty() {
                break;
            }
            for (pid, thread) in threads {
                opened.insert(thread);
                sampling.open_thread(pid, thread, &online)?;
            }
        }
        if sampling.numbers.is_empty() {
            return Err(OpenError::Ended { pid: pids.first().copied().unwrap_or(0) });
        }
        sampling.began = thread_times().0;
        Ok(sampling)
    }

    /// Opens the events of a thread on all processors; nothing of one that has ended.
    fn open_thread(&mut self, pid: i32, thread: u32, online: &[i32]) -> Result<(), OpenError> {
        let id = Pid::from_raw(i32::try_from(thread).unwrap_or(0));
        for (n, cpu) in online.iter().enumerate() {
            for (which, event) in self.wanted.events.clone().iter().enumerate() {
                let mut attributes = self.attributes(event);
                match open_event(&mut attributes, id, *cpu, None) {
                    Err(err) if err.raw_os_error() == Some(nix::libc::ESRCH) => return Ok(()),
                    file => file.and_then(|file| self.add(n, which, file)),
                }
                .map_err(|source| self.refused(pid, event, source))?;
            }
        }
        Ok(())
    }

    /// Takes `file`, which is of the event of number `which`, to the ring of processor `n`.
    fn add(&mut self, n: usize, which: usize, file: File) -> io::Result<()> {
        self.numbers.insert(event_number(&file)?, which);
        match self.rings.get(n) {
            Some(ring) => {
                send_to_ring_of(&file, ring.event())?;
                self.others.push(file);
            }
            None => self.rings.push(ring_of(file)?),
        }
        Ok(())
    }

    fn attributes(&self, event: &Event) -> perf::perf_event_attr {
        let mut a = event.attributes();
        a.size = u32::try_from(size_of::<perf::perf_event_attr>()).unwrap_or(0);
        match self.wanted.rate {
            _ if event.is_tracepoint() => a.__bindgen_anon_1.sample_period = 1,
            Rate::Every(n) => a.__bindgen_anon_1.sample_period = n,
            Rate::Hertz(n) => {
                a.set_freq(1);
                a.__bindgen_anon_1.sample_freq = n;
            }
        }
        a.sample_type = u64::from(
            perf::PERF_SAMPLE_IDENTIFIER
                | perf::PERF_SAMPLE_IP
                | perf::PERF_SAMPLE_TID
                | perf::PERF_SAMPLE_TIME
                | perf::PERF_SAMPLE_PERIOD,
        );
        if let Some(Chains { stack }) = self.wanted.chains {
            a.sample_type |= u64::from(
                perf::PERF_SAMPLE_CALLCHAIN | perf::PERF_SAMPLE_REGS_USER | perf::PERF_SAMPLE_STACK_USER,
            );
            a.set_exclude_callchain_user(1);
            a.sample_regs_user = SAMPLED_FOR_CHAINS;
            a.sample_stack_user = stack;
        }
        a.set_sample_id_all(1);
        a.set_use_clockid(1);
        a.clockid = nix::libc::CLOCK_MONOTONIC;
        a.set_inherit(1);
        a.set_mmap(1);
        a.set_mmap2(1);
        a.set_comm(1);
        a.set_comm_exec(1);
        a.set_task(1);
        a.set_exclude_hv(1);
        a.set_exclude_kernel(u64::from(!self.has_kernel));
        a.set_watermark(1);
        a.__bindgen_anon_2.wakeup_watermark = 1 << 16;
        a
    }

    fn refused(&self, pid: i32, event: &Event, source: io::Error) -> OpenError {
        match self.wanted.rate {
            Rate::Hertz(n) if n > most_often() && source.raw_os_error() == Some(nix::libc::EINVAL) => {
                OpenError::TooOften { most: most_often() }
            }
            _ => refused(pid, event, source),
        }
    }

    /// Whether code of the kernel is sampled, too: not everybody may.
    pub fn has_kernel(&self) -> bool {
        self.has_kernel
    }

    /// When it began, in nanoseconds of CLOCK_MONOTONIC.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// Takes no more samples.
    pub fn stop(&self) {
        self.let_all(false);
    }

    /// Takes samples again.
    pub fn go_on(&self) {
        self.let_all(true);
    }

    fn let_all(&self, go_on: bool) {
        for event in self.rings.iter().map(PerfBuffer::event).chain(&self.others) {
            let _of_nobody_any_more = let_event(event, go_on);
        }
    }

    /// Waits until there is something to take, for `most`.
    pub fn wait(&self, most: Duration) {
        let _something = crate::sys::wait_for_any(self.rings.iter().map(PerfBuffer::event), most);
    }

    /// Takes what was told, in order; not the youngest of it, which may still be behind something.
    pub fn take(&mut self) -> Vec<Heard> {
        let before = self.youngest;
        let new = self.heard_now();
        self.waiting.extend(new);
        self.youngest = self.waiting.iter().map(|heard| heard.0).max().unwrap_or(before).max(before);
        self.waiting.sort_by_key(|heard| heard.0);
        let n = self.waiting.partition_point(|heard| heard.0 <= before);
        self.waiting.drain(..n).map(|heard| heard.1).collect()
    }

    /// Takes all that is left.
    pub fn take_rest(&mut self) -> Vec<Heard> {
        let new = self.heard_now();
        self.waiting.extend(new);
        self.waiting.sort_by_key(|heard| heard.0);
        self.waiting.drain(..).map(|heard| heard.1).collect()
    }

    fn heard_now(&mut self) -> Vec<(u64, Heard)> {
        let mut all = Vec::new();
        for ring in &mut self.rings {
            let (bytes, _) = ring.take();
            let mut rest = bytes.as_slice();
            while let Some(record) = Record::first(&mut rest) {
                all.extend(heard(&record, &self.numbers, self.wanted.chains.is_some()));
            }
        }
        let began = self.began;
        all.retain(|(time, heard)| *time >= began || !matches!(heard, Heard::Sample(_)));
        all
    }
}

/// Why an event of process `pid` cannot be had.
pub(super) fn refused(pid: i32, event: &Event, source: io::Error) -> OpenError {
    let event = event.name.clone();
    match source.raw_os_error() {
        Some(nix::libc::EPERM | nix::libc::EACCES) => OpenError::Forbidden { pid, event, source },
        Some(nix::libc::EMFILE | nix::libc::ENFILE) => OpenError::TooMany { pid, source },
        Some(nix::libc::ENOENT | nix::libc::EOPNOTSUPP | nix::libc::EINVAL | nix::libc::ENODEV) => {
            OpenError::NoSuchEvent { event, source }
        }
        _ => OpenError::Other { pid, source },
    }
}

/// The threads that process `pid` has; none, if it has ended.
pub(super) fn threads_of(pid: i32) -> Vec<u32> {
    let folder = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    folder.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A ring for `event`, as large as it may be.
fn ring_of(event: File) -> io::Result<PerfBuffer> {
    let mut failed = io::Error::from_raw_os_error(nix::libc::ENOMEM);
    for room in ROOMS {
        match event.try_clone().and_then(|event| PerfBuffer::mapped(event, room)) {
            Ok(ring) => return Ok(ring),
            Err(err) => failed = err,
        }
    }
    Err(failed)
}

/// The most samples a second that the kernel takes.
fn most_often() -> u64 {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap_or_default();
    text.trim().parse().unwrap_or(u64::MAX)
}

/// Takes numbers from the front of a record's body.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }

    fn bytes(&mut self, n: u64) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(usize::try_from(n).ok()?)?;
        self.0 = rest;
        Some(first)
    }
}

/// What a record says, and when; nothing, if it is none of those that we asked for.
fn heard(record: &Record<'_>, numbers: &HashMap<u64, usize>, has_chains: bool) -> Option<(u64, Heard)> {
    if record.kind == perf::PERF_RECORD_SAMPLE {
        let sample = sample(record.body, numbers, has_chains)?;
        return Some((sample.time, Heard::Sample(sample)));
    }
    let (body, trailer) = record.body.split_at_checked(record.body.len().checked_sub(TRAILER)?)?;
    let time = u64::from_le_bytes(*trailer.get(8..)?.first_chunk()?);
    let mut r = Reader(body);
    let misc = u32::from(record.misc);
    let heard = match record.kind {
        perf::PERF_RECORD_MMAP2 => {
            let (process, _thread) = (r.u32()?, r.u32()?);
            let (start, len, offset) = (r.u64()?, r.u64()?, r.u64()?);
            let (_device, inode) = (r.u64()?, r.u64()?);
            let _generation_and_rights = (r.u64()?, r.u64()?);
            let name = r.0.split(|byte| *byte == 0).next()?;
            Heard::Mapped {
                process,
                range: LiveVa(start)..LiveVa(start.checked_add(len)?),
                offset,
                inode,
                path: PathBuf::from(OsStr::from_bytes(name)),
            }
        }
        perf::PERF_RECORD_FORK => {
            let (process, parent) = (r.u32()?, r.u32()?);
            Heard::Began { process, parent, thread: r.u32()?, maker: r.u32()? }
        }
        perf::PERF_RECORD_COMM => {
            let (process, thread) = (r.u32()?, r.u32()?);
            let name = r.0.split(|byte| *byte == 0).next()?;
            let name = String::from_utf8_lossy(name).into_owned();
            Heard::Named { process, thread, name, is_exec: misc & perf::PERF_RECORD_MISC_COMM_EXEC != 0 }
        }
        perf::PERF_RECORD_LOST => {
            let _number = r.u64()?;
            Heard::Lost(r.u64()?)
        }
        perf::PERF_RECORD_LOST_SAMPLES => Heard::Lost(r.u64()?),
        _ => return None,
    };
    Some((time, heard))
}

/// Marks of where in a chain addresses of whom begin; they look like addresses of the kernel.
fn is_mark(at: u64) -> bool {
    at >= perf::PERF_CONTEXT_MAX
}

fn sample(body: &[u8], numbers: &HashMap<u64, usize>, has_chains: bool) -> Option<Sample> {
    let mut r = Reader(body);
    let event = *numbers.get(&r.u64()?)?;
    let at = LiveVa(r.u64()?);
    let (process, thread) = (r.u32()?, r.u32()?);
    let (time, period) = (r.u64()?, r.u64()?);
    let mut sample = Sample { event, time, process, thread, at, period, kernel: Vec::new(), user: None };
    if !has_chains {
        return Some(sample);
    }
    let n = r.u64()?;
    let chain = r.bytes(n.checked_mul(8)?)?.as_chunks::<8>().0.iter().map(|at| u64::from_le_bytes(*at));
    let mut is_kernel = false;
    for at in chain {
        if is_mark(at) {
            is_kernel = at == perf::PERF_CONTEXT_KERNEL;
        } else if is_kernel {
            sample.kernel.push(at);
        }
    }
    // Threads of the kernel have no registers of a program's.
    if r.u64()? != 0 {
        let (bp, sp, at) = (r.u64()?, r.u64()?, LiveVa(r.u64()?));
        let copied = r.u64()?;
        let bytes = r.bytes(copied)?;
        let n = if copied == 0 { 0 } else { usize::try_from(r.u64()?).ok()? };
        let bytes = bytes.get(..n.min(bytes.len()))?.to_vec();
        sample.user = Some(UserStack { at, sp, bp, bytes });
    }
    Some(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(all: &[u64]) -> Vec<u8> {
        all.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn numbers() -> HashMap<u64, usize> {
        HashMap::from([(70, 0), (71, 1)])
    }

    #[test]
    fn a_sample_is_read() {
        let body = words(&[71, 0x1000, 6 << 32 | 5, 99, 250]);
        let read = sample(&body, &numbers(), false).expect("it is one");
        assert_eq!((read.event, read.at, read.process, read.thread), (1, LiveVa(0x1000), 5, 6));
        assert_eq!((read.time, read.period, read.user), (99, 250, None));
        assert_eq!(sample(&words(&[72, 0x1000, 0, 0, 0]), &numbers(), false), None);
    }

    #[test]
    fn a_chain_and_a_stack_are_read_up_to_what_was_copied() {
        let (kernel, user) = (perf::PERF_CONTEXT_KERNEL, perf::PERF_CONTEXT_USER);
        let head = [70, 0xffff_8000_0000_0000, 6 << 32 | 5, 99, 250];
        let chain = [4, kernel, 0xffff_8000_0000_0000, user, 0x40];
        let stack = [2, 0x7000, 0x6ff0, 0x40, 24, 1, 2, 3, 16];
        let body = words(&[&head[..], &chain, &stack].concat());
        let read = sample(&body, &numbers(), true).expect("it is one");
        assert_eq!(read.kernel, [0xffff_8000_0000_0000]);
        let user = UserStack { at: LiveVa(0x40), sp: 0x6ff0, bp: 0x7000, bytes: words(&[1, 2]) };
        assert_eq!(read.user, Some(user));
        // Of every length that is cut, nothing or less.
        for n in 0..body.len() {
            assert_eq!(sample(&body[..n], &numbers(), true), None, "{n}");
        }
        // A thread of the kernel.
        let body = words(&[&head[..], &[0], &[0, 0]].concat());
        assert_eq!(sample(&body, &numbers(), true).map(|s| s.user), Some(None));
    }

    #[test]
    fn records_of_processes_are_read() {
        let of = |kind, misc, body: &[u8]| heard(&Record { kind, misc, body }, &numbers(), false);
        let trailer = words(&[6 << 32 | 5, 77, 70]);
        let mapped = [
            words(&[6 << 32 | 5, 0x4000, 0x1000, 0x200, 0, 12, 0, 5]),
            b"/a/b.so\0".to_vec(),
            trailer.clone(),
        ];
        let range = LiveVa(0x4000)..LiveVa(0x5000);
        let want = Heard::Mapped { process: 5, range, offset: 0x200, inode: 12, path: "/a/b.so".into() };
        assert_eq!(of(perf::PERF_RECORD_MMAP2, 0, &mapped.concat()), Some((77, want)));
        let began = [words(&[4 << 32 | 5, 3 << 32 | 6, 0]), trailer.clone()].concat();
        let want = Heard::Began { process: 5, thread: 6, parent: 4, maker: 3 };
        assert_eq!(of(perf::PERF_RECORD_FORK, 0, &began), Some((77, want)));
        let named = [words(&[6 << 32 | 5]), b"name\0\0\0\0".to_vec(), trailer.clone()].concat();
        let want = |is_exec| Heard::Named { process: 5, thread: 6, name: "name".into(), is_exec };
        assert_eq!(of(perf::PERF_RECORD_COMM, 0, &named), Some((77, want(false))));
        assert_eq!(of(perf::PERF_RECORD_COMM, 0x2000, &named), Some((77, want(true))));
        let lost = [words(&[70, 9]), trailer].concat();
        assert_eq!(of(perf::PERF_RECORD_LOST, 0, &lost), Some((77, Heard::Lost(9))));
        assert_eq!(of(perf::PERF_RECORD_LOST, 0, &lost[..20]), None);
    }
}
