//! Calls of a function, measured.

use crate::failure::{Failure, Status};
use crate::process::Function;
use measure::reports::ipc::Cost;
use session::{CallsWanted, measure_calls};
use std::time::{Duration, Instant};

/// What calls of a function took.
pub struct Calls {
    pub(crate) calls: Vec<Call>,
}

/// What a call took.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[repr(C)]
pub struct Call {
    /// The thread that made it: from 1, in the order in which threads were first seen.
    pub thread: u32,
    /// Instructions, exactly, those of all that it called included; without the kernel's.
    pub instructions: u64,
    /// Cycles of the core, estimated from the time stamp counter.
    pub cycles: f64,
    /// By how much `cycles` may be wrong: two standard deviations.
    pub cycles_error: f64,
    /// Instructions a cycle; not a number, where the cycles may be none for all that is known.
    pub ipc: f64,
}

impl From<&Cost> for Call {
    fn from(cost: &Cost) -> Call {
        let Cost { thread, instructions, cycles, error, .. } = *cost;
        Call { thread, instructions, cycles, cycles_error: error, ipc: cost.ipc().unwrap_or(f64::NAN) }
    }
}

impl Calls {
    /// The next `n` of `function`, as many as come within `at_most`, for each of both measurements.
    pub fn measure(function: &Function, n: usize, at_most: Duration) -> Result<Calls, Failure> {
        let (pid, name) = (function.process.pid, function.spelt()?);
        if n == 0 || at_most.is_zero() {
            let what = format!("{n} calls of {name} in process {pid} cannot be measured in {at_most:?}");
            return Err(Failure::new(Status::Argument, what).with_hint("10 calls, 30000 ms is usual"));
        }
        let wanted = CallsWanted { at_most, ..CallsWanted::of(pid, &name, n) };
        let measured = measure_calls(&function.process.store()?, &wanted, &waits)?;
        let Some(ipc) = measured.ipc else {
            return Err(match measured.unseen.first() {
                Some(unseen) => {
                    let what =
                        format!("calls of {} in process {pid} are not seen: {}", unseen.function, unseen.why);
                    Failure::new(Status::Refused, what).with_hint("measure a function that calls it")
                }
                None => Failure::new(
                    Status::Nothing,
                    format!("no call of {name} in process {pid} came back in {at_most:?}"),
                )
                .with_hint("wait longer, or measure a function that it calls"),
            });
        };
        Ok(Calls { calls: ipc.calls.iter().map(Call::from).collect() })
    }
}

/// Waits for so long.
fn waits(long: Duration) -> bool {
    let until = Instant::now() + long;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
    true
}
