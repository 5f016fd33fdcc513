//! On which processor a process runs, and a thread of ours there for a while.
//!
//! Source: proc(5), /proc/PID/task/TID/stat; sched_setaffinity(2).

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use procfs::process::Process;

/// The processor on which that thread of process `pid` was last that has had the most time, by its number;
/// nothing if the process is gone, or the kernel does not tell.
pub fn processor_of(pid: i32) -> Option<usize> {
    let tasks = Process::new(pid).and_then(|process| process.tasks()).ok()?;
    let stats = tasks.filter_map(|task| task.and_then(|task| task.stat()).ok());
    let busiest = stats.max_by_key(|stat| stat.utime + stat.stime)?;
    usize::try_from(busiest.processor?).ok()
}

/// The thread that made it runs on one processor alone, and so does whatever it starts, until this goes.
pub struct OnProcessor {
    before: CpuSet,
}

impl OnProcessor {
    /// On the one with this number; nothing if the thread may not run there.
    pub fn number(n: usize) -> Option<OnProcessor> {
        let us = Pid::from_raw(0);
        let before = sched_getaffinity(us).ok()?;
        let mut one = CpuSet::new();
        one.set(n).ok()?;
        sched_setaffinity(us, &one).ok()?;
        Some(OnProcessor { before })
    }
}

impl Drop for OnProcessor {
    fn drop(&mut self) {
        // If it may run where it ran before no longer, the kernel has chosen.
        let _back = sched_setaffinity(Pid::from_raw(0), &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_on_one_processor_for_a_while() {
        let allowed = || {
            let set = sched_getaffinity(Pid::from_raw(0)).expect("ours");
            (0..CpuSet::count()).filter(|n| set.is_set(*n).unwrap_or(false)).collect::<Vec<_>>()
        };
        let before = allowed();
        let last = *before.last().expect("there is one");
        let there = OnProcessor::number(last).expect("it is allowed");
        assert_eq!(allowed(), [last]);
        // One that is started runs there, too.
        let child = std::thread::spawn(move || (allowed(), processor_of(0))).join().expect("it ends");
        assert_eq!(child, (vec![last], None));
        drop(there);
        assert_eq!(allowed(), before);
        assert!(OnProcessor::number(CpuSet::count() - 1).is_none() || before.len() == CpuSet::count());
        let own = i32::try_from(std::process::id()).expect("small");
        assert!(processor_of(own).is_some_and(|n| before.contains(&n)));
    }
}
