//! Events that can be sampled or counted, by the names that perf has for them.
//!
//! Source: perf_event_open(2), perf-list(1).

use super::perf::tracepoint_number;
use perf_event_open_sys::bindings as perf;
use std::fmt;
use std::io;

/// An event of the processor's or the kernel's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// What it is called.
    pub name: String,
    kind: u32,
    config: u64,
}

/// Why there is no such event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// Nothing is called so.
    #[error("there is no event {name}")]
    Unknown {
        /// As it was named.
        name: String,
    },
    /// The kernel does not let us see its tracepoints, or has none of this name.
    #[error("there is no tracepoint {name}")]
    Tracepoint {
        /// As it was named.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl EventError {
    /// What can be done about it.
    pub fn hint(&self) -> String {
        match self {
            EventError::Unknown { .. } => format!("there are {}, rHEX and SYSTEM:TRACEPOINT", known()),
            EventError::Tracepoint { .. } => {
                "root sees those that there are in /sys/kernel/tracing/available_events".to_owned()
            }
        }
    }
}

/// What an event is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Nanoseconds of a thread's time on a processor.
    Nanoseconds,
    /// How often it came.
    Times,
}

/// Those of the processor, where there are counters.
const OF_PROCESSOR: [(&str, u32); 10] = [
    ("cycles", perf::PERF_COUNT_HW_CPU_CYCLES),
    ("instructions", perf::PERF_COUNT_HW_INSTRUCTIONS),
    ("cache-references", perf::PERF_COUNT_HW_CACHE_REFERENCES),
    ("cache-misses", perf::PERF_COUNT_HW_CACHE_MISSES),
    ("branches", perf::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ("branch-misses", perf::PERF_COUNT_HW_BRANCH_MISSES),
    ("bus-cycles", perf::PERF_COUNT_HW_BUS_CYCLES),
    ("stalled-cycles-frontend", perf::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND),
    ("stalled-cycles-backend", perf::PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
    ("ref-cycles", perf::PERF_COUNT_HW_REF_CPU_CYCLES),
];

/// Those of the kernel.
const OF_KERNEL: [(&str, u32); 9] = [
    ("cpu-clock", perf::PERF_COUNT_SW_CPU_CLOCK),
    ("task-clock", perf::PERF_COUNT_SW_TASK_CLOCK),
    ("page-faults", perf::PERF_COUNT_SW_PAGE_FAULTS),
    ("minor-faults", perf::PERF_COUNT_SW_PAGE_FAULTS_MIN),
    ("major-faults", perf::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    ("context-switches", perf::PERF_COUNT_SW_CONTEXT_SWITCHES),
    ("cpu-migrations", perf::PERF_COUNT_SW_CPU_MIGRATIONS),
    ("alignment-faults", perf::PERF_COUNT_SW_ALIGNMENT_FAULTS),
    ("emulation-faults", perf::PERF_COUNT_SW_EMULATION_FAULTS),
];

/// The names that there are, but for tracepoints.
fn known() -> String {
    let names = OF_PROCESSOR.iter().chain(&OF_KERNEL).map(|(name, _)| *name);
    names.collect::<Vec<_>>().join(", ")
}

impl Event {
    /// The event that is called `name`: `cycles`, `page-faults`, `r01c2`, `sched:sched_switch`.
    ///
    /// # Errors
    /// If there is none, or we may not see it.
    pub fn named(name: &str) -> Result<Event, EventError> {
        let find = |all: &[(&str, u32)]| all.iter().find(|(known, _)| *known == name).map(|(_, n)| *n);
        let of = |kind, config| Ok(Event { name: name.to_owned(), kind, config });
        if let Some(n) = find(&OF_PROCESSOR) {
            return of(perf::PERF_TYPE_HARDWARE, n.into());
        }
        if let Some(n) = find(&OF_KERNEL) {
            return of(perf::PERF_TYPE_SOFTWARE, n.into());
        }
        if let Some((system, tracepoint)) = name.split_once(':') {
            let number = tracepoint_number(&format!("{system}/{tracepoint}"));
            let number = number.map_err(|source| EventError::Tracepoint { name: name.to_owned(), source })?;
            return of(perf::PERF_TYPE_TRACEPOINT, number);
        }
        match name.strip_prefix('r').and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
            Some(config) => of(perf::PERF_TYPE_RAW, config),
            None => Err(EventError::Unknown { name: name.to_owned() }),
        }
    }

    /// The processor's cycles.
    pub fn cycles() -> Event {
        let config = perf::PERF_COUNT_HW_CPU_CYCLES.into();
        Event { name: "cycles".to_owned(), kind: perf::PERF_TYPE_HARDWARE, config }
    }

    /// The kernel's clock of a thread's time on a processor.
    pub fn clock() -> Event {
        let config = perf::PERF_COUNT_SW_CPU_CLOCK.into();
        Event { name: "cpu-clock".to_owned(), kind: perf::PERF_TYPE_SOFTWARE, config }
    }

    /// What it is counted in.
    pub fn unit(&self) -> Unit {
        let clocks = [perf::PERF_COUNT_SW_CPU_CLOCK, perf::PERF_COUNT_SW_TASK_CLOCK].map(u64::from);
        match self.kind == perf::PERF_TYPE_SOFTWARE && clocks.contains(&self.config) {
            true => Unit::Nanoseconds,
            false => Unit::Times,
        }
    }

    /// Whether each one is taken: of tracepoints there are few enough.
    pub(super) fn is_tracepoint(&self) -> bool {
        self.kind == perf::PERF_TYPE_TRACEPOINT
    }

    /// What the kernel is asked for.
    pub(super) fn attributes(&self) -> perf::perf_event_attr {
        perf::perf_event_attr { type_: self.kind, config: self.config, ..perf::perf_event_attr::default() }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_known_by_name() {
        let cycles = Event::named("cycles").expect("it is known");
        assert_eq!((cycles, Event::cycles().unit()), (Event::cycles(), Unit::Times));
        assert_eq!(Event::named("cpu-clock").expect("it is known").unit(), Unit::Nanoseconds);
        let raw = Event::named("r01c2").expect("a number");
        assert_eq!((raw.kind, raw.config), (perf::PERF_TYPE_RAW, 0x1c2));
        let err = Event::named("rain").expect_err("there is none");
        assert!(err.hint().contains("page-faults"), "{}", err.hint());
        assert!(matches!(Event::named("no:such"), Err(EventError::Tracepoint { .. })));
    }
}
