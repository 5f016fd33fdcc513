//! Threads that are about to `exec`, and wait for our answer.

use super::Arena;
use super::areas::is_dead;
use probe::arch::shared::{ExecRequest, ExecRequests, Mailbox};
use probe::offset;
use std::io;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A thread that is about to `exec`, and waits for our answer.
#[derive(Debug)]
pub struct Asking {
    /// The thread.
    pub thread: u32,
    /// The number of the system call.
    pub number: u64,
    /// Its first, second and fifth argument.
    pub args: [u64; 3],
    slot: usize,
    /// It may ask again as soon as it is.
    is_answered: AtomicBool,
}

/// How many threads can say at once that they are about to `exec`.
const N_SLOTS: usize =
    (size_of::<ExecRequests>() - offset_of!(ExecRequests, slots)) / size_of::<ExecRequest>();

/// Where a slot is among the [`ExecRequests`].
fn slot_at(slot: usize) -> usize {
    offset_of!(ExecRequests, slots) + slot * size_of::<ExecRequest>()
}

impl Arena {
    /// Where threads that are about to `exec` say so, in a process; and where they see that nobody answers.
    pub(crate) fn exec_requests_at(&self) -> (u64, u64) {
        (self.mailbox_at() + Mailbox::LEN, self.mailbox_at() + offset!(Mailbox, owner))
    }

    /// Threads that are about to `exec`, those that are known to be asking left out; waits `at_most` for one.
    /// Slots of threads that are gone are cleared.
    ///
    /// # Errors
    /// The kernel's.
    pub fn asking(&self, is_known: impl Fn(u32) -> bool, at_most: Duration) -> io::Result<Vec<Asking>> {
        for is_last in [false, true] {
            let n_raised = self.exec_requests.word(offset_of!(ExecRequests, n_raised)).load(Ordering::SeqCst);
            let mut found = Vec::new();
            for slot in 0..N_SLOTS {
                let thread = self.slot(slot, offset_of!(ExecRequest, thread)).load(Ordering::SeqCst);
                if thread == 0 {
                    continue;
                }
                // In this order, here and below: who asked may have gone on, and the slot be another's
                // meanwhile.
                if is_last && is_dead(thread) {
                    if self.slot(slot, offset_of!(ExecRequest, thread)).load(Ordering::SeqCst) == thread {
                        self.slot(slot, offset_of!(ExecRequest, state)).store(0, Ordering::SeqCst);
                        self.slot(slot, offset_of!(ExecRequest, thread)).store(0, Ordering::SeqCst);
                    }
                    continue;
                }
                if is_known(thread)
                    || self.slot(slot, offset_of!(ExecRequest, state)).load(Ordering::SeqCst) != 1
                {
                    continue;
                }
                let at = self.mailbox + Mailbox::LEN + slot_at(slot) as u64;
                let args = at + offset!(ExecRequest, args);
                let asking = Asking {
                    thread,
                    number: self.word(at + offset!(ExecRequest, number))?,
                    args: [self.word(args)?, self.word(args + 8)?, self.word(args + 16)?],
                    slot,
                    is_answered: AtomicBool::new(false),
                };
                if self.is_asking(&asking) {
                    found.push(asking);
                }
            }
            if !found.is_empty() {
                return Ok(found);
            }
            if !is_last {
                self.exec_requests.sleep(n_raised, at_most);
            }
        }
        Ok(Vec::new())
    }

    fn slot(&self, slot: usize, at: usize) -> &AtomicU32 {
        self.exec_requests.word(slot_at(slot) + at)
    }

    /// Whether the thread that is called so here is the one that waits, in processes that have the recording
    /// mapped.
    pub fn is_here(&self, asking: &Asking) -> bool {
        let at = self.exec_requests_at().0 + slot_at(asking.slot) as u64 + offset!(ExecRequest, state);
        // The number of the call that it sleeps in, and its arguments; or `running`.
        let wanted = format!("{} {at:#x} ", nix::libc::SYS_futex);
        let path = format!("/proc/{}/syscall", asking.thread);
        // It may have to wait for a processor before it sleeps; one of another namespace does not sleep
        // there.
        let until = Instant::now() + Duration::from_secs(10);
        let mut others = 0;
        while let Ok(text) = std::fs::read_to_string(&path) {
            if text.starts_with(&wanted) {
                return true;
            }
            let is_running = text.starts_with("running");
            others += u32::from(!is_running);
            if others > 100 || !self.is_asking(asking) || Instant::now() > until {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        false
    }

    /// Whether it waits still.
    pub fn is_asking(&self, asking: &Asking) -> bool {
        self.slot(asking.slot, offset_of!(ExecRequest, thread)).load(Ordering::SeqCst) == asking.thread
            && self.slot(asking.slot, offset_of!(ExecRequest, state)).load(Ordering::SeqCst) == 1
    }

    /// Has it go on, once.
    pub fn let_go(&self, asking: &Asking) {
        if !asking.is_answered.swap(true, Ordering::SeqCst) && self.is_asking(asking) {
            self.slot(asking.slot, offset_of!(ExecRequest, state)).store(2, Ordering::SeqCst);
            self.exec_requests.wake_at(slot_at(asking.slot) + offset_of!(ExecRequest, state));
        }
    }

    /// Has who sleeps in [`Arena::asking`] look again.
    pub fn wake_for_exec(&self) {
        self.exec_requests.word(offset_of!(ExecRequests, n_raised)).fetch_add(1, Ordering::SeqCst);
        self.exec_requests.wake();
    }
}
