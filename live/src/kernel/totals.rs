//! Events of processes' threads, counted: no samples are taken.
//!
//! Each thread that there is has an event of its own, and a second one that its children inherit: what the
//! second has more came from threads and processes that were made meanwhile.
//!
//! Source: perf_event_open(2); PADRONE, 2.2 (its counting mode).

use super::event::Event;
use super::sampling::{OpenError, refused, threads_of};
use crate::sys::open_event;
use nix::unistd::Pid;
use perf_event_open_sys::bindings as perf;
use std::fs::File;
use std::io::{self, Read as _};

/// Threads whose events are counted.
#[derive(Debug)]
pub struct Totals {
    events: Vec<Event>,
    threads: Vec<Counted>,
}

/// A thread's events: each its own, and with what came of it.
#[derive(Debug)]
struct Counted {
    process: u32,
    thread: u32,
    files: Vec<(File, File)>,
}

/// How often an event came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Total {
    /// The event.
    pub event: Event,
    /// By process and thread.
    pub threads: Vec<(u32, u32, u64)>,
    /// In threads and processes that were made meanwhile.
    pub meanwhile: u64,
}

impl Totals {
    /// Of processes `pids` with all their threads, and those that come, from now on.
    ///
    /// # Errors
    /// If the kernel has no such event, or we may not.
    pub fn start(pids: &[i32], events: &[Event]) -> Result<Totals, OpenError> {
        match Totals::open(pids, events, true) {
            Err(OpenError::Forbidden { .. }) => Totals::open(pids, events, false),
            opened => opened,
        }
    }

    fn open(pids: &[i32], events: &[Event], has_kernel: bool) -> Result<Totals, OpenError> {
        let mut threads = Vec::new();
        for pid in pids {
            for thread in threads_of(*pid) {
                let id = Pid::from_raw(thread.cast_signed());
                let mut files = Vec::new();
                for event in events {
                    let both = event_of(event, id, has_kernel, false)
                        .and_then(|own| Ok((own, event_of(event, id, has_kernel, true)?)));
                    match both {
                        // It has ended.
                        Err(err) if err.raw_os_error() == Some(nix::libc::ESRCH) => break,
                        both => files.push(both.map_err(|source| refused(*pid, event, source))?),
                    }
                }
                if files.len() == events.len() {
                    threads.push(Counted { process: pid.cast_unsigned(), thread, files });
                }
            }
        }
        match (threads.is_empty(), pids.first()) {
            (true, Some(pid)) => Err(OpenError::Ended { pid: *pid }),
            _ => Ok(Totals { events: events.to_vec(), threads }),
        }
    }

    /// How often each came so far.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self) -> io::Result<Vec<Total>> {
        let mut all = Vec::new();
        for (n, event) in self.events.iter().enumerate() {
            let mut total = Total { event: event.clone(), threads: Vec::new(), meanwhile: 0 };
            for counted in &mut self.threads {
                let Some((own, with_others)) = counted.files.get_mut(n) else { continue };
                // First what has more: what comes between is of the thread.
                let (all, own) = (value(with_others)?, value(own)?);
                total.threads.push((counted.process, counted.thread, own));
                total.meanwhile = total.meanwhile.saturating_add(all.saturating_sub(own));
            }
            all.push(total);
        }
        Ok(all)
    }
}

fn event_of(event: &Event, thread: Pid, has_kernel: bool, is_inherited: bool) -> io::Result<File> {
    let mut a = event.attributes();
    a.size = u32::try_from(size_of::<perf::perf_event_attr>()).map_err(io::Error::other)?;
    a.read_format = u64::from(perf::PERF_FORMAT_TOTAL_TIME_ENABLED | perf::PERF_FORMAT_TOTAL_TIME_RUNNING);
    a.set_inherit(u64::from(is_inherited));
    a.set_exclude_hv(1);
    a.set_exclude_kernel(u64::from(!has_kernel));
    open_event(&mut a, thread, -1, None)
}

/// What an event came to: of one that shared its counter with others, as if it had had it all the time.
fn value(event: &mut File) -> io::Result<u64> {
    let mut words = [0; 24];
    event.read_exact(&mut words)?;
    let word = |n: usize| {
        words.get(8 * n..).and_then(|rest| rest.first_chunk()).map_or(0, |w| u64::from_le_bytes(*w))
    };
    Ok(scaled(word(0), word(1), word(2)))
}

fn scaled(n: u64, enabled: u64, running: u64) -> u64 {
    if running == 0 || running >= enabled {
        return n;
    }
    u64::try_from(u128::from(n) * u128::from(enabled) / u128::from(running)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shared_its_counter_is_scaled() {
        assert_eq!(scaled(100, 1000, 250), 400);
        assert_eq!((scaled(7, 10, 10), scaled(7, 0, 0), scaled(u64::MAX, 2, 1)), (7, 7, u64::MAX));
    }

    #[test]
    fn page_faults_of_threads_are_counted_where_they_are() {
        let own = i32::try_from(std::process::id()).expect("small");
        let event = Event::named("page-faults").expect("it is known");
        let mut totals = match Totals::start(&[own], &[event]) {
            // Not everybody may.
            Err(OpenError::Forbidden { .. }) => return,
            totals => totals.expect("there is such an event"),
        };
        let touch = |pages: usize| {
            let mut memory = vec![0u8; pages * 4096 + (1 << 20)];
            (0..pages).for_each(|page| memory[page * 4096] = 1);
            std::hint::black_box(&memory);
        };
        std::thread::spawn(move || touch(3000)).join().expect("it ends");
        let [total] = &totals.read().expect("it can be read")[..] else { panic!("one event") };
        // Large pages are given at once.
        assert!(total.meanwhile > 5, "{total:?}");
        assert!(!total.threads.is_empty());
    }
}
