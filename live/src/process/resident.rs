//! How much memory a process takes.
//!
//! Source: proc(5), smaps_rollup.

use procfs::process::Process;

/// Memory that a process takes, in kB (1,024 bytes).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Resident {
    /// What is in memory of what it has mapped.
    pub all_kb: u64,
    /// What of that was written, by whomever, and is in no file as it is.
    pub dirty_kb: u64,
}

impl Resident {
    /// Of process `pid` now; `None` if it is gone, or the kernel does not tell.
    pub fn of(pid: i32) -> Option<Resident> {
        let sums = Process::new(pid).and_then(|process| process.smaps_rollup()).ok()?.memory_map_rollup.0;
        let kb = |name| sums.iter().filter_map(|map| map.extension.map.get(name)).sum::<u64>() >> 10;
        Some(Resident { all_kb: kb("Rss"), dirty_kb: kb("Shared_Dirty") + kb("Private_Dirty") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_write_is_ours() {
        let own = i32::try_from(std::process::id()).expect("small");
        let before = Resident::of(own).expect("it runs");
        let written = vec![1u8; 64 << 20];
        let after = Resident::of(own).expect("it runs");
        assert_eq!(written.iter().map(|b| u64::from(*b)).sum::<u64>(), 64 << 20);
        assert!(after.all_kb >= before.all_kb + (60 << 10), "{before:?} {after:?}");
        assert!(after.dirty_kb >= before.dirty_kb + (60 << 10), "{before:?} {after:?}");
        assert!(after.all_kb < before.all_kb + (300 << 10), "{before:?} {after:?}");
        assert_eq!(Resident::of(0), None);
    }
}
