//! What the user's limits and the kernel leave a process.

/// What the user's limits leave a process, in bytes; `None`: no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Addresses.
    pub addresses: Option<u64>,
    /// Length of a file, of which memory that is shared is one.
    pub file_len: Option<u64>,
    /// Stack of the first thread.
    pub stack: Option<u64>,
}

impl Limits {
    /// Our own, which what we start inherits.
    pub fn ours() -> Limits {
        let Ok(limits) = procfs::process::Process::myself().and_then(|us| us.limits()) else {
            return Limits::default();
        };
        let value = |limit: procfs::process::Limit| match limit.soft_limit {
            procfs::process::LimitValue::Value(n) => Some(n),
            procfs::process::LimitValue::Unlimited => None,
        };
        Limits {
            addresses: value(limits.max_address_space),
            file_len: value(limits.max_file_size),
            stack: value(limits.max_stack_size),
        }
    }
}

/// Whether programs may set the base of `gs` themselves here, which giving each thread its counters needs.
///
/// The kernel lists the flag only if both the processor has it and the kernel lets programs use it (Linux
/// 5.9).
pub fn can_set_bases() -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "fsgsbase"))
}
