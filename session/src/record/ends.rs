//! How the stream of each thread ends: by what was seen of the thread, and what the kernel told.

use super::deaths;
use live::{KernelReport, Owner};
use std::collections::BTreeMap;
use std::process::ExitStatus;
use trace::Cause;
use trace::recording::event::Event;

/// SIGABRT.
const ABORT: i32 = 6;

/// The last event of a stream whose thread was ended nobody knows where.
const ANYWHERE: [Event; 1] = [Event::Ended { is_placed: false }];

/// How the stream of a thread ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StreamEnd {
    /// The thread's area.
    pub(crate) area: u32,
    /// The last events of the stream, to be appended to it.
    pub(crate) events: Vec<Event>,
    /// Why what was open is left.
    pub(crate) cause: Cause,
    /// Whether it is known how far the thread came behind its last event.
    pub(crate) is_known: bool,
}

/// What is known of the ends of a run's threads.
pub(crate) struct Ends<'a> {
    /// Who appended to each area's stream last.
    pub(crate) owners: &'a [Owner],
    /// What the kernel told.
    pub(crate) report: &'a KernelReport,
    /// By area, the events that say where a signal ended its thread.
    pub(crate) last_events: BTreeMap<u32, [Event; 2]>,
    /// The process that was started, and how it ended.
    pub(crate) main: (u32, ExitStatus),
    /// Whether that became another program.
    pub(crate) has_become: bool,
}

impl Ends<'_> {
    /// Of each area, in order.
    pub(crate) fn all(&self) -> Vec<StreamEnd> {
        (0..).zip(self.owners).map(|(area, owner)| self.end(area, owner)).collect()
    }

    fn end(&self, area: u32, owner: &Owner) -> StreamEnd {
        let led = |cause| StreamEnd { area, events: Vec::new(), cause, is_known: true };
        match owner {
            Owner { is_another: true, .. } => led(Cause::Exec),
            // The recording ended first.
            Owner { runs: true, .. } => StreamEnd { is_known: false, ..led(Cause::RecordingEnd) },
            // Seen when its process ended, or by a thread that came later.
            Owner { has_ended: true, .. } => led(Cause::ThreadEnd),
            _ if self.has_become && owner.process == self.main.0 => led(Cause::Exec),
            Owner { has_left: true, .. } => led(Cause::ProcessEnd),
            _ => match self.last_events.get(&area) {
                Some(events) => StreamEnd { events: events.to_vec(), ..led(Cause::ProcessEnd) },
                None if deaths::ended_before(owner, self.report) => led(Cause::ThreadEnd),
                None if self.is_stopped(owner) || self.has_exited(owner.process) => {
                    StreamEnd { events: ANYWHERE.to_vec(), is_known: false, ..led(Cause::ProcessEnd) }
                }
                None => led(Cause::ProcessEnd),
            },
        }
    }

    /// Whether a thread of the process has said that it ends it: the others were stopped anywhere.
    fn has_exited(&self, process: u32) -> bool {
        self.owners.iter().any(|owner| owner.has_left && owner.process == process)
    }

    /// Whether a signal ended the thread: who knows how far that came behind its last event? But SIGABRT is
    /// where one calls something.
    fn is_stopped(&self, owner: &Owner) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        let (pid, status) = self.main;
        let is_open = |owner: &Owner| !(owner.runs || owner.has_ended || owner.has_left || owner.is_another);
        let n_open = || self.owners.iter().filter(|owner| owner.process == pid && is_open(owner)).count();
        match deaths::signal_of(owner, self.report) {
            Some(signal) => signal != ABORT,
            None if owner.process == pid => {
                status.signal().is_some_and(|signal| signal != ABORT || n_open() > 1)
            }
            // What ended another, only the kernel tells, and by a thread's number.
            None => !self.report.is_whole || owner.thread.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use live::Death;
    use std::os::unix::process::ExitStatusExt as _;

    /// The process that was started.
    const MAIN: u32 = 100;

    fn owner(process: u32, thread: u32) -> Owner {
        let (is_another, has_ended, has_left) = (false, false, false);
        Owner { process, thread: Some(thread), runs: false, is_another, has_ended, has_left }
    }

    /// How the streams of `owners` end of which the main process ended with the `status` of wait(2).
    fn ends(owners: &[Owner], status: i32, report: &KernelReport) -> Vec<(Cause, bool, usize)> {
        let main = (MAIN, ExitStatus::from_raw(status));
        let ends = Ends { owners, report, last_events: BTreeMap::new(), main, has_become: false };
        ends.all().into_iter().map(|end| (end.cause, end.is_known, end.events.len())).collect()
    }

    #[test]
    fn what_was_seen_of_a_thread_says_how_it_ended() {
        let one = owner(MAIN, 1);
        let owners = [
            Owner { is_another: true, ..one },
            Owner { runs: true, ..one },
            Owner { has_ended: true, ..one },
            Owner { has_left: true, ..one },
            // Another one has left: it was stopped anywhere.
            one,
        ];
        let report = KernelReport { is_whole: true, ..KernelReport::default() };
        let want = [
            (Cause::Exec, true, 0),
            (Cause::RecordingEnd, false, 0),
            (Cause::ThreadEnd, true, 0),
            (Cause::ProcessEnd, true, 0),
            (Cause::ProcessEnd, false, 1),
        ];
        assert_eq!(ends(&owners, 0, &report), want);
    }

    /// SIGSEGV ends a thread anywhere; SIGABRT where it calls something, if it is the only one.
    #[test]
    fn a_signal_ends_a_thread_anywhere_but_one_that_aborts() {
        let report = KernelReport { is_whole: true, ..KernelReport::default() };
        assert_eq!(ends(&[owner(MAIN, 1)], 11, &report), [(Cause::ProcessEnd, false, 1)]);
        assert_eq!(ends(&[owner(MAIN, 1)], ABORT, &report), [(Cause::ProcessEnd, true, 0)]);
        let two = [owner(MAIN, 1), owner(MAIN, 2)];
        assert_eq!(ends(&two, ABORT, &report), [(Cause::ProcessEnd, false, 1); 2]);
    }

    /// The kernel told of all whom the signal ended: a thread that is not among them had ended before.
    #[test]
    fn who_is_not_among_the_dead_ended_before() {
        let death = Death { process: MAIN, thread: 1, signal: 11, at: program::LiveVa(0x1000), top: None };
        let report = KernelReport { is_whole: true, deaths: vec![death], ..KernelReport::default() };
        let two = [owner(MAIN, 1), owner(MAIN, 2)];
        assert_eq!(ends(&two, 11, &report), [(Cause::ProcessEnd, false, 1), (Cause::ThreadEnd, true, 0)]);
    }
}
