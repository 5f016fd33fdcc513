//! Threads of processes, sampled: where each is, again and again, told by the kernel in a ring buffer a
//! processor. Nothing of them is stopped or changed.
//!
//! ```text
//!  threads × processors × events ──► a ring a processor ──► records by time ──► [`Heard`]
//! ```
//! Each event is inherited by threads and processes that come later. Records of several rings are put into
//! order by their times. They are given out at once: of deep stacks, more is read then, while it is there.
//!
//! What an event is asked for cannot change while it is open. To have more or less of stacks, or more or
//! fewer samples, events are opened anew, to the same rings; from when all of these are there, their samples
//! count, and up to then, those of the events before.
//!
//! Source: perf_event_open(2); PADRONE, 2.2.

use super::event::Event;
use super::perf::{PerfBuffer, Record, processors};
use crate::arch::SAMPLED_FOR_CHAINS;
use crate::sys::{event_number, let_event, open_event, send_to_ring_of, thread_times};
use nix::unistd::Pid;
use perf_event_open_sys::bindings as perf;
use program::LiveVa;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// How many bytes of its stack were to be copied, if there were so many.
    pub stack: u32,
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
    /// A thread has ended.
    Ended {
        /// Its process.
        process: u32,
        /// Its number.
        thread: u32,
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

/// What records of a number are.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Number {
    /// Which of the events.
    event: usize,
    /// How many bytes of stacks are copied.
    stack: u32,
    /// Of what time its samples count, in nanoseconds: none yet, while it begins at the end.
    time: Range<u64>,
}

impl Number {
    /// Not yet.
    const NEVER: Range<u64> = u64::MAX..u64::MAX;

    fn is_new(&self) -> bool {
        self.time == Number::NEVER
    }
}

/// Processes that are sampled.
#[derive(Debug)]
pub struct Sampling {
    /// By the number that records have.
    numbers: HashMap<u64, Number>,
    /// What is sent to the rings of others.
    others: Vec<File>,
    rings: Vec<PerfBuffer>,
    /// Whether the events that rings were made for tell no more: others do.
    is_changed: bool,
    online: Vec<i32>,
    /// Threads that there are, as far as was told, with their processes.
    threads: BTreeMap<u32, i32>,
    /// Of these, those that have the newest events, opened or inherited.
    opened: BTreeSet<u32>,
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
/// More than the first of these is for what comes in so many milliseconds, up to so much.
const ROOM_MS: u64 = 100;
const MOST_ROOM: u64 = 64 << 20;

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
            is_changed: false,
            online: processors(&online),
            threads: BTreeMap::new(),
            opened: BTreeSet::new(),
            wanted: wanted.clone(),
            has_kernel,
            waiting: Vec::new(),
            youngest: 0,
            began: 0,
        };
        sampling.open_all(&|| {
            let of =
                |pid: &i32| threads_of(*pid).into_iter().map(|thread| (thread, *pid)).collect::<Vec<_>>();
            pids.iter().flat_map(of).collect()
        })?;
        if sampling.numbers.is_empty() {
            return Err(OpenError::Ended { pid: pids.first().copied().unwrap_or(0) });
        }
        sampling.began = sampling.begin();
        Ok(sampling)
    }

    /// Opens the events of all threads that there are, and of those that `listed` says there are.
    fn open_all(&mut self, listed: &dyn Fn() -> Vec<(u32, i32)>) -> Result<(), OpenError> {
        self.opened.clear();
        loop {
            // One that came meanwhile has inherited what its maker had, if that was opened before.
            let heard = self.heard_now();
            self.waiting.extend(heard);
            let mut threads: Vec<(u32, i32)> =
                self.threads.iter().map(|(thread, pid)| (*thread, *pid)).collect();
            threads.extend(listed());
            // What is told of a thread twice, of events before and of new ones, is told at once.
            let heard = self.heard_now();
            self.waiting.extend(heard);
            threads.retain(|(thread, _)| !self.opened.contains(thread));
            if threads.is_empty() {
                return Ok(());
            }
            for (thread, pid) in threads {
                if self.opened.insert(thread) {
                    self.threads.insert(thread, pid);
                    self.open_thread(pid, thread)?;
                }
            }
        }
    }

    /// From now on, samples of new events count, and of those before no more: when that is.
    fn begin(&mut self) -> u64 {
        let now = thread_times().0;
        for number in self.numbers.values_mut() {
            match number.is_new() {
                true => number.time = now..u64::MAX,
                false => number.time.end = number.time.end.min(now),
            }
        }
        now
    }

    /// Has `stack` bytes of stacks be copied from now on, where callers are wanted, and samples come so
    /// often. No sample is lost for that, or told twice.
    ///
    /// # Errors
    /// If the kernel refuses: then all stays as it was.
    pub fn change(&mut self, stack: u32, rate: Rate) -> Result<(), OpenError> {
        let chains = self.wanted.chains.map(|_| Chains { stack });
        let wanted = Wanted { chains, rate, ..self.wanted.clone() };
        let wanted = std::mem::replace(&mut self.wanted, wanted);
        let others = std::mem::take(&mut self.others);
        if let Err(err) = self.open_all(&Vec::new) {
            (self.wanted, self.others) = (wanted, others);
            self.numbers.retain(|_, number| !number.is_new());
            return Err(err);
        }
        self.begin();
        if !self.is_changed {
            // They are as long as their rings.
            let rings = self.rings.iter().map(PerfBuffer::event);
            rings.for_each(|event| drop(let_event(event, false)));
            self.is_changed = true;
        }
        drop(others);
        // What is told of them may be in the rings, but of no sample that waits.
        let oldest =
            self.waiting.iter().map(|heard| heard.0).min().unwrap_or(self.youngest).min(self.youngest);
        self.numbers.retain(|_, number| number.time.end >= oldest);
        Ok(())
    }

    /// How many bytes of records there is room for on each processor, at least.
    pub fn room_bytes(&self) -> usize {
        self.rings.iter().map(PerfBuffer::room).min().unwrap_or(0)
    }

    /// Opens the events of a thread on all processors; nothing of one that has ended.
    fn open_thread(&mut self, pid: i32, thread: u32) -> Result<(), OpenError> {
        let id = Pid::from_raw(i32::try_from(thread).unwrap_or(0));
        for (n, cpu) in self.online.clone().into_iter().enumerate() {
            for (which, event) in self.wanted.events.clone().iter().enumerate() {
                let mut attributes = self.attributes(event);
                match open_event(&mut attributes, id, cpu, None) {
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
        let stack = self.wanted.chains.map_or(0, |chains| chains.stack);
        let number = Number { event: which, stack, time: Number::NEVER };
        self.numbers.insert(event_number(&file)?, number);
        match self.rings.get(n) {
            Some(ring) => {
                send_to_ring_of(&file, ring.event())?;
                self.others.push(file);
            }
            None => self.rings.push(ring_of(file, room(&self.wanted))?),
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
        let rings = self.rings.iter().map(PerfBuffer::event).filter(|_| !self.is_changed);
        for event in rings.chain(&self.others) {
            let _of_nobody_any_more = let_event(event, go_on);
        }
    }

    /// Waits until there is something to take, for `most`.
    pub fn wait(&self, most: Duration) {
        let _something = crate::sys::wait_for_any(self.rings.iter().map(PerfBuffer::event), most);
    }

    /// Takes what was told, in order. What a record follows from, such as where its code was mapped, is in
    /// some ring before it: whatever is there when all rings were read is read then, and stands in front.
    pub fn take(&mut self) -> Vec<Heard> {
        let new = self.heard_now();
        self.waiting.extend(new);
        let youngest = self.waiting.iter().map(|heard| heard.0).max().unwrap_or(0);
        self.youngest = self.youngest.max(youngest);
        let meanwhile = self.heard_now();
        self.waiting.extend(meanwhile);
        self.waiting.sort_by_key(|heard| heard.0);
        let n = self.waiting.partition_point(|heard| heard.0 <= self.youngest);
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
                let heard = heard(&record, &self.numbers, self.wanted.chains.is_some());
                let number = || number_of(record.body).and_then(|number| self.numbers.get(&number));
                all.extend(heard.map(|(time, heard)| (time, heard, number().is_some_and(Number::is_new))));
            }
        }
        all.sort_by_key(|told| told.0);
        for (_, heard, is_new) in &all {
            match heard {
                // Whoever becomes another program has its process's number from then on.
                Heard::Began { process, thread, .. }
                | Heard::Named { process, thread, is_exec: true, .. } => {
                    self.threads.insert(*thread, process.cast_signed());
                    if *is_new {
                        self.opened.insert(*thread);
                    }
                }
                Heard::Ended { thread, .. } => drop(self.threads.remove(thread)),
                _ => {}
            }
        }
        all.into_iter().map(|(time, heard, _)| (time, heard)).collect()
    }
}

/// The number of the event that told a record, but of a sample.
fn number_of(body: &[u8]) -> Option<u64> {
    body.last_chunk().map(|word| u64::from_le_bytes(*word))
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

/// How much room there should be for what comes between two looks at a ring.
fn room(wanted: &Wanted) -> usize {
    let hertz = match wanted.rate {
        Rate::Hertz(n) => n,
        Rate::Every(_) => 0,
    };
    let bytes = u64::from(wanted.chains.map_or(0, |chains| chains.stack)).saturating_mul(hertz);
    let bytes = (bytes / 1000).saturating_mul(ROOM_MS).min(MOST_ROOM).next_power_of_two();
    usize::try_from(bytes).unwrap_or(0).max(ROOMS[0])
}

/// A ring for `event`, with `room` if it may have so much.
fn ring_of(event: File, room: usize) -> io::Result<PerfBuffer> {
    let mut failed = io::Error::from_raw_os_error(nix::libc::ENOMEM);
    for room in [room].into_iter().chain(ROOMS) {
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
fn heard(record: &Record<'_>, numbers: &HashMap<u64, Number>, has_chains: bool) -> Option<(u64, Heard)> {
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
        perf::PERF_RECORD_EXIT => {
            let (process, _parent) = (r.u32()?, r.u32()?);
            Heard::Ended { process, thread: r.u32()? }
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

/// A sample, if it is one that counts.
fn sample(body: &[u8], numbers: &HashMap<u64, Number>, has_chains: bool) -> Option<Sample> {
    let mut r = Reader(body);
    let number = numbers.get(&r.u64()?)?;
    let event = number.event;
    let at = LiveVa(r.u64()?);
    let (process, thread) = (r.u32()?, r.u32()?);
    let (time, period) = (r.u64()?, r.u64()?);
    if !number.time.contains(&time) {
        return None;
    }
    let (kernel, user) = (Vec::new(), None);
    let mut sample = Sample { event, time, process, thread, at, period, kernel, user, stack: number.stack };
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
mod tests;
