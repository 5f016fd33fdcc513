//! Signals that ask us to end: what we would leave behind is taken away first, then they end us.
//!
//! Not here: signals while a program of ours runs (`pass_on`), which are for it.

use super::inherited::is_ignored;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::io::{self, Read as _};
use std::os::fd::IntoRawFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// What users, shells and systems send to have a program end.
const ASK: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Where the handler writes which signal came; −1: nobody would read it.
static CAME: AtomicI32 = AtomicI32::new(-1);

extern "C" fn came(which: libc::c_int) {
    let error = nix::errno::Errno::last_raw();
    let byte = which.to_le_bytes();
    // SAFETY: the kernel reads one byte of `byte`; `write` may be called in a signal handler.
    let _nobody_reads = unsafe { libc::write(CAME.load(Ordering::SeqCst), byte.as_ptr().cast(), 1) };
    nix::errno::Errno::set_raw(error);
}

/// From now on, signals that ask us to end do so once `tidy` has run, on a thread of its own; those that were
/// ignored when we were started stay so. The first `tidy` counts: called again, it takes back what
/// `pass_on` changed.
///
/// # Errors
/// If there can be no such thread: then signals end us at once, as before.
pub fn tidy_before_signals_end_us(tidy: fn()) -> io::Result<()> {
    static STARTED: OnceLock<io::Result<()>> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        let (mut reader, writer) = io::pipe()?;
        let work = move || {
            let mut byte = [0];
            if reader.read_exact(&mut byte).is_ok() {
                tidy();
                end_by(i32::from(byte[0]));
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).stack_size(128 << 10).spawn(work)?;
        CAME.store(writer.into_raw_fd(), Ordering::SeqCst);
        Ok(())
    });
    if let Err(err) = started {
        return Err(err.kind().into());
    }
    let action = SigAction::new(SigHandler::Handler(came), SaFlags::SA_RESTART, SigSet::empty());
    for which in ASK.into_iter().filter(|which| !is_ignored(*which as libc::c_int)) {
        // SAFETY: the handler makes one system call, and leaves errno as it was.
        unsafe { sigaction(which, &action) }?;
    }
    Ok(())
}

/// Ends us by a signal, as if we had never handled it.
pub fn end_by(which: i32) {
    // SAFETY: the default runs no code of ours.
    let _old = unsafe { libc::signal(which, libc::SIG_DFL) };
    let mut one = SigSet::empty();
    if let Ok(which) = Signal::try_from(which) {
        one.add(which);
    }
    let _unchanged = one.thread_unblock();
    // SAFETY: asks the kernel, and touches no memory.
    let _ended = unsafe { libc::raise(which) };
}
