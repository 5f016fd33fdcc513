//! Which signals are passed on to the program, and what they are called.

use nix::libc;
use nix::sys::signal::Signal;

/// What users and timers send to a program, and so send to us in its place (`alarm(5); exec engraft count
/// …`): all that would end us or have a meaning of the program's own, but faults; those of real-time, but for
/// the two that are the C library's.
pub(super) fn passed_on() -> impl Iterator<Item = libc::c_int> {
    const NAMED: [libc::c_int; 18] = [
        libc::SIGPIPE,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGCONT,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGWINCH,
        libc::SIGTSTP,
        libc::SIGXCPU,
        libc::SIGPOLL,
        libc::SIGPWR,
        libc::SIGSTKFLT,
        libc::SIGURG,
    ];
    NAMED.into_iter().chain(34..=64)
}

/// The bit of a signal in a word.
pub(super) fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// What a signal is called: `SIGSEGV`.
pub fn signal_name(signal: i32) -> String {
    match Signal::try_from(signal) {
        Ok(signal) => signal.as_str().to_owned(),
        // Those of real-time have numbers.
        Err(_) => format!("signal {signal}"),
    }
}

/// The signal of this name, with or without `SIG`, or number, if it is one that is passed on.
pub fn signal_named(text: &str) -> Option<i32> {
    let upper = text.to_ascii_uppercase();
    let named = || Some(format!("SIG{}", upper.trim_start_matches("SIG")).parse::<Signal>().ok()? as i32);
    text.parse().ok().or_else(named).filter(|which| passed_on().any(|passed| passed == *which))
}
