//! Waiting for another process: until it has ended, for a time, or until somebody asks us to end.

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// What users, shells and systems send to have a program end.
const ASK: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Where the handler says that one came; −1: nobody would read it.
static CAME: AtomicI32 = AtomicI32::new(-1);

extern "C" fn came(_: libc::c_int) {
    let error = nix::errno::Errno::last_raw();
    // SAFETY: the kernel reads one byte; `write` may be called in a signal handler.
    let _nobody_reads = unsafe { libc::write(CAME.load(Ordering::SeqCst), b"!".as_ptr().cast(), 1) };
    nix::errno::Errno::set_raw(error);
}

/// What would have us stand still (Ctrl-Z), while somebody may wait for us.
const STAND_STILL: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// While it is there, signals that ask us to end are kept, and end us no more; those that would have us stand
/// still are ignored.
pub struct AskedToEnd {
    reader: PipeReader,
    _writer: PipeWriter,
    before: Vec<(Signal, SigAction)>,
}

/// The end of a process, of that one alone: also when another has its number by then.
pub struct End(Option<OwnedFd>);

impl End {
    /// Of process `pid`; of one that is gone, that it has ended.
    pub fn of(pid: i32) -> End {
        End(super::pass_on::end_of(pid))
    }
}

/// Why a wait is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// The process has ended.
    Ended,
    /// The time is over.
    Time,
    /// Somebody asks us to end.
    Asked,
}

impl AskedToEnd {
    /// From now on. A signal that we were started to ignore stays so (`nohup`), but for SIGINT: shells have
    /// whatever a script starts with `&` ignore it, and `kill -INT` is how scripts end an observation, as
    /// perf's and strace's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn keep() -> io::Result<AskedToEnd> {
        let (reader, writer) = io::pipe()?;
        CAME.store(writer.as_raw_fd(), Ordering::SeqCst);
        let action = SigAction::new(SigHandler::Handler(came), SaFlags::SA_RESTART, SigSet::empty());
        let mut before = Vec::new();
        let is_kept =
            |signal: &Signal| *signal != Signal::SIGINT && super::inherited::is_ignored(*signal as i32);
        for signal in ASK.into_iter().filter(|signal| !is_kept(signal)) {
            // SAFETY: the handler calls nothing that may not be called in one.
            before.push((signal, unsafe { sigaction(signal, &action) }?));
        }
        let ignored = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
        for signal in STAND_STILL {
            // SAFETY: nothing is run.
            before.push((signal, unsafe { sigaction(signal, &ignored) }?));
        }
        Ok(AskedToEnd { reader, _writer: writer, before })
    }

    /// Waits until all processes have ended of which these are the `ends`: for `most`, if there is an end to
    /// it.
    pub fn wait(&self, ends: &[End], most: Option<Duration>) -> Over {
        let until = most.map(|most| Instant::now() + most);
        for end in ends.iter().filter_map(|end| end.0.as_ref()) {
            match self.wait_for(end, until) {
                Over::Ended => {}
                other => return other,
            }
        }
        Over::Ended
    }

    /// Waits until somebody asks us to end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn asked(&self) -> io::Result<()> {
        let mut byte = [0];
        (&self.reader).read_exact(&mut byte)
    }

    fn wait_for(&self, end: &OwnedFd, until: Option<Instant>) -> Over {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            // Not before it is over.
            let ms =
                left.map_or(-1, |left| i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
            let asked = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut both = [asked(end.as_raw_fd()), asked(self.reader.as_raw_fd())];
            // SAFETY: the kernel writes into `both` while the call lasts.
            let n = unsafe { libc::poll(both.as_mut_ptr(), 2, ms) };
            match both.map(|one| one.revents != 0) {
                [true, _] if n > 0 => return Over::Ended,
                [_, true] if n > 0 => return Over::Asked,
                _ if left == Some(Duration::ZERO) => return Over::Time,
                _ => {}
            }
        }
    }
}

impl Drop for AskedToEnd {
    fn drop(&mut self) {
        for (signal, action) in &self.before {
            // SAFETY: it was there before.
            let _unknown = unsafe { sigaction(*signal, action) };
        }
        CAME.store(-1, Ordering::SeqCst);
    }
}
