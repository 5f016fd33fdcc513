//! The machine that a run is on, for its recording.

use profile::recording::Machine;
use std::fs;

/// This machine, as far as the kernel tells.
pub fn machine() -> Machine {
    let kernel = |name: &str| {
        let read = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        read.trim().to_owned()
    };
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Machine {
        host: kernel("hostname"),
        kernel: format!("{} {}", kernel("ostype"), kernel("osrelease")),
        cpu: cpu(&cpus),
        n_cpus: std::thread::available_parallelism()
            .map_or(0, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
    }
}

/// What the processor calls itself.
fn cpu(cpuinfo: &str) -> String {
    let value =
        |line: &str| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned());
    cpuinfo.lines().find_map(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_as_the_kernel_names_it() {
        let text = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9B14: x\nprocessor\t: 1\n";
        assert_eq!(cpu(text), "AMD EPYC 9B14: x");
        assert_eq!(cpu(""), "");
    }
}
