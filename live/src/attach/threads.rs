//! All threads of a process, stopped at one moment, and let go again.
//!
//! Invariant: whatever happens, they go on: when this goes, and, by the kernel, when we are no more. A system
//! call that ended for the stop alone is made again, so that nobody sees it.
//!
//! Source: ptrace(2), with PTRACE_SEIZE; signal(7), "Interruption of system calls".

use super::AttachError;
use crate::arch;
use crate::process::Status;
use crate::sys::{self, Hurry, Stop};
use nix::errno::Errno;
use nix::libc::{c_int, user_regs_struct};
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// A thread that stands still.
pub(super) struct Thread {
    /// Its number.
    pub(super) pid: Pid,
    /// Its registers, as it goes on with them.
    pub(super) regs: user_regs_struct,
    /// What they were.
    stopped_with: user_regs_struct,
    /// The signal that it was about to handle.
    signal: Option<c_int>,
    /// Whether it has others now than it stopped with.
    is_changed: bool,
}

/// The threads of a process, all of which stand still.
pub(super) struct Threads {
    pub(super) all: Vec<Thread>,
    /// Those that were killed when they had stood still: their ends are to be seen.
    killed: Vec<Pid>,
    since: Instant,
    _hurry: Hurry,
}

impl Threads {
    /// Stops all threads of `pid` but those of ours.
    ///
    /// # Errors
    /// If one of them cannot be stopped, or does not stand still in so much time; then all go on.
    pub(super) fn stop(pid: Pid, ours: &[Pid], most: Option<Duration>) -> Result<Threads, AttachError> {
        wait_for_sleepers(pid)?;
        let mut there = numbers(pid)?;
        let hurry = sys::hurry();
        let mut threads =
            Threads { all: Vec::new(), killed: Vec::new(), since: Instant::now(), _hurry: hurry };
        // Those that have ended, and are listed as long as others run: the first one.
        let mut over: Vec<Pid> = Vec::new();
        // Those that run may make others meanwhile.
        loop {
            let is_known =
                |tid: &Pid| ours.contains(tid) || over.contains(tid) || threads.killed.contains(tid);
            let is_new = |tid: &Pid| !is_known(tid) && threads.all.iter().all(|t| t.pid != *tid);
            let new: Vec<Pid> = there.into_iter().filter(is_new).collect();
            if new.is_empty() {
                return Ok(threads);
            }
            let mut asked = Vec::new();
            let mut refused = None;
            for tid in new {
                match ptrace::seize(tid, Options::PTRACE_O_TRACESYSGOOD).and_then(|()| ptrace::interrupt(tid))
                {
                    Ok(()) => asked.push(tid),
                    Err(_) if is_over(pid, tid) => over.push(tid),
                    Err(Errno::ESRCH) => {}
                    Err(err) => refused = Some(AttachError::refused(pid, "stopping it", err.into())),
                }
            }
            // Whatever is wrong with one of them, all that were asked are waited for, to be let go again.
            let stopped = threads.wait_for(pid, asked, most);
            if let Some(err) = refused {
                return Err(err);
            }
            stopped?;
            there = numbers(pid)?;
            // All that are gone already: none is left.
            if threads.all.is_empty() && there.iter().all(|tid| ours.contains(tid) || is_over(pid, *tid)) {
                return Err(AttachError::Ended { pid: pid.as_raw() });
            }
        }
    }

    /// Waits until those that were `asked` stand still, in whichever order they do. A thread that becomes
    /// another program, or that ends with the whole process, may wait for the burial of others that stood
    /// still already. If that takes more than `most`, those that stand still go on at once.
    fn wait_for(&mut self, pid: Pid, mut asked: Vec<Pid>, most: Option<Duration>) -> Result<(), AttachError> {
        let waited = |err| AttachError::refused(pid, "waiting for a thread", err);
        let gone = || AttachError::Ended { pid: pid.as_raw() };
        let mut refused = None;
        let mut until = most.map(|most| self.since + most);
        while !asked.is_empty() {
            let (tid, stop) = match sys::next_stop(until) {
                Ok(Some(stop)) => stop,
                Ok(None) => {
                    self.release();
                    until = None;
                    refused = Some(AttachError::slow(pid, self.since.elapsed(), most));
                    continue;
                }
                Err(err) if err.raw_os_error() == Some(nix::libc::ECHILD) => return Err(gone()),
                Err(err) => return Err(waited(err)),
            };
            let place = asked.iter().position(|asked| *asked == tid);
            place.map(|place| asked.swap_remove(place));
            match stop {
                Stop::Ended => {
                    bury(tid);
                    self.all.retain(|thread| thread.pid != tid);
                    self.killed.retain(|killed| *killed != tid);
                    continue;
                }
                _ if place.is_none() => {
                    // A thread that has become another program, under the number of its process.
                    self.all.retain(|thread| thread.pid != tid);
                    let _gone = ptrace::detach(tid, None);
                    return Err(gone());
                }
                stop => match Thread::stopped(pid, tid, stop) {
                    Ok(Some(thread)) => self.all.push(thread),
                    Ok(None) => self.killed.push(tid),
                    Err(err) => refused = Some(err),
                },
            }
            if refused.is_some() {
                self.release();
            }
            // The same, before the thread that had the number has stood still.
            if tid == pid {
                let n_asked = asked.len();
                asked.retain(|tid| !sys::is_gone(tid.as_raw()));
                if asked.len() < n_asked {
                    refused = Some(gone());
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// The same, for what has to be done: some more times, if they do not stand still in so much time, and at
    /// last in as much as it takes.
    ///
    /// # Errors
    /// If one of them cannot be stopped; then all go on.
    pub(super) fn stop_in_turns(
        pid: Pid,
        ours: &[Pid],
        most: Option<Duration>,
    ) -> Result<Threads, AttachError> {
        const TURNS: usize = 20;
        for _ in 0..TURNS {
            match Threads::stop(pid, ours, most) {
                Err(AttachError::Slow { .. }) => std::thread::park_timeout(Duration::from_millis(5)),
                stopped => return stopped,
            }
        }
        Threads::stop(pid, ours, None)
    }

    /// Stops thread `tid` of `pid` alone, to work with these `options`.
    ///
    /// # Errors
    /// If it cannot be stopped, or may not work so.
    pub(super) fn stop_one(pid: Pid, tid: Pid, options: Options) -> Result<Threads, AttachError> {
        let mut threads =
            Threads { all: Vec::new(), killed: Vec::new(), since: Instant::now(), _hurry: sys::hurry() };
        let refused = |err: Errno| match err {
            Errno::EPERM | Errno::EINVAL if options != WORKING => AttachError::Filtered { pid: pid.as_raw() },
            err => AttachError::refused(pid, "stopping it", err.into()),
        };
        ptrace::seize(tid, options).map_err(refused)?;
        ptrace::interrupt(tid).map_err(|err| AttachError::refused(pid, "stopping it", err.into()))?;
        threads.wait_for(pid, vec![tid], None)?;
        Ok(threads)
    }

    /// Lets all go on; how long they stood still.
    pub(super) fn go_on(mut self) -> Duration {
        self.release();
        self.since.elapsed()
    }

    /// Has those whose registers were changed have them now: what comes next may rely on that.
    ///
    /// # Errors
    /// The kernel's; one that is gone is none.
    pub(super) fn settle(&mut self) -> Result<(), AttachError> {
        for thread in &mut self.all {
            match thread.set_registers() {
                Err(err) if err.raw_os_error() != Some(nix::libc::ESRCH) => {
                    return Err(AttachError::refused(thread.pid, "setting its registers", err));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn release(&mut self) {
        let mut killed = std::mem::take(&mut self.killed);
        for mut thread in std::mem::take(&mut self.all) {
            thread.hide_stop();
            let _gone = thread.set_registers();
            let gone = sys::detach(thread.pid, thread.signal)
                .is_err_and(|err| err.raw_os_error() == Some(nix::libc::ESRCH));
            killed.extend(gone.then_some(thread.pid));
        }
        bury_all(killed);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.release();
    }
}

impl Thread {
    /// `tid`, which came to this stop; `None` if it was killed since.
    fn stopped(pid: Pid, tid: Pid, stop: Stop) -> Result<Option<Thread>, AttachError> {
        let signal = match stop {
            Stop::Signal(signal) => Some(signal),
            _ => None,
        };
        match ptrace::getregs(tid) {
            Ok(regs) => Ok(Some(Thread { pid: tid, regs, stopped_with: regs, signal, is_changed: false })),
            Err(Errno::ESRCH) => Ok(None),
            Err(err) => Err(AttachError::refused(pid, "reading its registers", err.into())),
        }
    }

    /// Whether it is about to handle a signal.
    pub(super) fn has_signal(&self) -> bool {
        self.signal.is_some()
    }

    /// Whether it is in a system call, or has just come back from one.
    pub(super) fn is_in_call(&self) -> bool {
        arch::is_in_call(&self.regs)
    }

    /// Has it have its registers, where they were changed.
    fn set_registers(&mut self) -> std::io::Result<()> {
        let base = arch::counters_base(&self.regs);
        if base != arch::counters_base(&self.stopped_with) {
            let word = base.cast_signed();
            ptrace::write_user(self.pid, arch::COUNTERS_BASE as ptrace::AddressType, word)?;
        }
        if self.is_changed || self.regs != self.stopped_with {
            sys::set_registers(self.pid, &arch::without_bases(&self.regs))?;
        }
        (self.stopped_with, self.is_changed) = (self.regs, false);
        Ok(())
    }

    /// Its registers are to be written, whatever they are now: it worked for us.
    pub(super) fn has_worked(&mut self, signals: Vec<c_int>) {
        for signal in signals {
            match self.signal {
                None => self.signal = Some(signal),
                Some(_) => sys::send_to_thread(self.pid, signal),
            }
        }
        self.is_changed = true;
    }

    /// Has a system call made again that ended for our stop, and for nothing else.
    fn hide_stop(&mut self) {
        if self.signal.is_none()
            && let Some(again) = arch::made_again(&self.regs)
            && !has_signals(self.pid)
        {
            self.regs = again;
        }
    }
}

/// Waits until `tid`, which was killed, has ended, if it has not been seen yet.
fn bury(tid: Pid) {
    let _buried = sys::end_of(tid);
}

/// Buries threads that were killed, and those of ours in the same process: whoever killed them, or the
/// process's parent, waits until we have seen their ends, and the first thread's comes after all others'.
fn bury_all(mut killed: Vec<Pid>) {
    let until = Instant::now() + PATIENCE;
    while !killed.is_empty() && Instant::now() < until {
        match sys::next_stop(Some(Instant::now() + Duration::from_millis(1))) {
            Ok(Some((tid, Stop::Ended))) => {
                bury(tid);
                killed.retain(|killed| *killed != tid);
            }
            // One of them is another program by now.
            Ok(Some((tid, _))) => drop(ptrace::detach(tid, None)),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// How threads are traced that work for us.
const WORKING: Options = Options::PTRACE_O_TRACESYSGOOD;

/// How threads of `pid` are traced that work for us. Its filters of system calls, if it has set some since it
/// was attached to, are asked nothing meanwhile.
///
/// Source: ptrace(2), PTRACE_O_SUSPEND_SECCOMP.
pub(super) fn working(pid: Pid) -> Options {
    match Status::is_filtered(pid.as_raw()) {
        true => WORKING | Options::from_bits_retain(nix::libc::PTRACE_O_SUSPEND_SECCOMP),
        false => WORKING,
    }
}

/// The threads of `pid` that can work for us: those first that run, for these are in no system call.
///
/// # Errors
/// If it has none, or one sleeps where nothing wakes it.
pub(super) fn that_can_work(pid: Pid) -> Result<Vec<Pid>, AttachError> {
    wait_for_sleepers(pid)?;
    let mut all = numbers(pid)?;
    all.retain(|tid| !is_over(pid, *tid));
    if all.is_empty() {
        return Err(AttachError::Ended { pid: pid.as_raw() });
    }
    all.sort_by_key(|tid| state(pid, *tid) != Some('R'));
    Ok(all)
}

/// The threads of `pid`.
fn numbers(pid: Pid) -> Result<Vec<Pid>, AttachError> {
    let gone = |_| AttachError::Ended { pid: pid.as_raw() };
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(gone)?;
    let number = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(entries.filter_map(number).map(Pid::from_raw).collect())
}

fn state(pid: Pid, tid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    // The name, in brackets, may hold anything.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether `tid` has ended, be it not buried yet.
fn is_over(pid: Pid, tid: Pid) -> bool {
    matches!(state(pid, tid), None | Some('Z' | 'X'))
}

/// How long a thread may sleep where no signal wakes it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits until no thread sleeps where it cannot be stopped: on a disk, or for a child of `vfork`.
fn wait_for_sleepers(pid: Pid) -> Result<(), AttachError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let asleep = numbers(pid)?.into_iter().find(|tid| state(pid, *tid) == Some('D'));
        let Some(tid) = asleep else { return Ok(()) };
        if Instant::now() >= until {
            return Err(AttachError::Asleep { pid: pid.as_raw(), thread: tid.as_raw() });
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Whether signals wait for `tid`, or its process, that it handles as soon as it goes on.
fn has_signals(tid: Pid) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{tid}/status")) else { return true };
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let [own, shared, blocked] = ["SigPnd:", "ShdPnd:", "SigBlk:"].map(|name| mask(name).unwrap_or(0));
    (own | shared) & !blocked != 0
}

#[cfg(test)]
mod tests {
    use super::{Pid, Threads};
    use crate::sys;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// What has [`threads_that_are_stopped`] be a program of many threads.
    const MARK: &str = "--skip=what-is-stopped";

    /// Of itself, nothing: the other program of what comes next.
    #[test]
    fn threads_that_are_stopped() {
        let end = Instant::now() + Duration::from_secs(10);
        if std::env::args().any(|word| word == MARK) {
            let spin = move || while Instant::now() < end {};
            let all: Vec<_> = (0..6).map(|_| std::thread::spawn(spin)).collect();
            all.into_iter().for_each(|thread| thread.join().expect("it ends"));
        }
    }

    /// Whoever is killed while some of its threads stand still ends: its parent hears of it at once, though
    /// that needs all who stood still to be seen to end, the first thread last.
    #[test]
    fn a_process_that_is_killed_while_it_is_stopped_ends() {
        for n in 0..60 {
            let own = std::env::current_exe().expect("it runs");
            let words = ["attach::threads::tests::threads_that_are_stopped", "--exact", MARK];
            // Not a child of ours: of that we would be told as its parent.
            let script = r#""$@" > /dev/null & echo $!; wait $!; echo $?"#;
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh"]).arg(own).args(words).stdout(Stdio::piped());
            shell.stderr(Stdio::null());
            let mut shell = shell.spawn().expect("it starts");
            let mut said = BufReader::new(shell.stdout.take().expect("a pipe")).lines();
            let mut number = || said.next().and_then(|line| line.ok()?.parse().ok()).expect("a number");
            let pid = Pid::from_raw(number());
            let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").count();
            while tasks() < 8 {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            let (says, heard) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let ended = loop {
                    match Threads::stop(pid, &[], None) {
                        Ok(threads) => threads.go_on(),
                        Err(err) => break err,
                    };
                };
                says.send(if ended.is_over() { String::new() } else { format!("{ended:?}") })
            });
            std::thread::park_timeout(Duration::from_micros(3000 + 37 * n));
            sys::send(pid, nix::libc::SIGKILL);
            assert_eq!(heard.recv_timeout(Duration::from_secs(20)), Ok(String::new()), "{n}");
            assert_eq!(number(), 128 + nix::libc::SIGKILL);
            shell.wait().expect("it is ours");
        }
    }
}
