//! Instructions and cycles of calls, and their quotient, without the processor's counters.
//!
//! ```text
//!  plain:   calls with two stamps each     ──► ticks as they are
//!  counted: the same, the instructions of all that they run being counted
//!                                          ──► instructions, exactly; ticks, longer by a factor
//! ```
//! The calls are those that were counted. That counting took time is taken off: by what calls take on average
//! that were not. Ticks become cycles by a chain of instructions of known latency.
//!
//! Source: PADRONE, section 3.2 and figure 6; VPROF, section 3.3 (what it costs to measure is measured).

use crate::values::{Asked, AskedCall, Logged, Passed, Piece, Stamping, Wanted, executed};
use profile::ReadError;
use profile::values::Stamps;
use profile::values::log::{Ended, Log, Part};
use program::signature::Type;

/// Which values are recorded of calls of `function`: the stamps of each, and if that is `counted`, how many
/// instructions its thread had run when it began, and when it came back.
pub fn asked(function: &str, counted: bool) -> Asked {
    let kind = Type::Integer { bytes: 8, is_signed: false };
    let piece = Piece { field: executed::field(), at: 0, len: 8 };
    let value = Wanted {
        name: "instructions".to_owned(),
        type_name: "unsigned long".to_owned(),
        kind,
        pieces: vec![piece],
    };
    let passed = Passed {
        arguments: if counted { vec![value.clone()] } else { Vec::new() },
        result: counted.then_some(value),
        has_arguments_in_memory: false,
    };
    Asked {
        calls: vec![AskedCall { name: function.to_owned(), passed: Some(passed), is_implied: false }],
        log: Some(Logged { has_times: true }),
        stamping: Stamping::Serialised,
        counts_instructions: counted,
        ..Asked::default()
    }
}

/// A call that came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its thread, from 1.
    pub thread: u32,
    /// Instructions that it ran, with all that it called; 0, if they were not counted.
    pub instructions: u64,
    /// Ticks of the time stamp counter that it took.
    pub ticks: u64,
}

/// The calls in a log that came back, in order; `stamps` is what it costs to take the time.
///
/// # Errors
/// If the log cannot be read.
pub fn calls(log: &Log, stamps: Option<&Stamps>) -> Result<Vec<Call>, ReadError> {
    const PARTS: [Part; 5] = [Part::Thread, Part::Ended, Part::Argument(0), Part::Result, Part::Ticks];
    let offset = stamps.map_or(0, |stamps| stamps.offset);
    let mut all = Vec::new();
    for (table, _) in log.tables.iter().enumerate().filter(|(_, table)| !table.is_place) {
        for block in log.blocks(table, &PARTS) {
            let block = block?;
            for row in (0..block.n_rows()).filter(|row| block.ended(*row) == Ended::Result) {
                let word = |part| block.word(part, row);
                all.push(Call {
                    thread: u32::try_from(word(Part::Thread)).unwrap_or(u32::MAX),
                    instructions: word(Part::Result).wrapping_sub(word(Part::Argument(0))),
                    ticks: word(Part::Ticks).saturating_sub(offset),
                });
            }
        }
    }
    Ok(all)
}

/// What a call took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Its thread, from 1.
    pub thread: u32,
    /// Instructions, exactly.
    pub instructions: u64,
    /// Cycles, estimated.
    pub cycles: f64,
    /// By how much they may be wrong: two standard deviations.
    pub error: f64,
}

impl Cost {
    /// Instructions a cycle.
    pub fn ipc(&self) -> f64 {
        float(self.instructions) / self.cycles.max(1.0)
    }
}

/// A mean, and how far numbers are from it.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
    /// How far the mean may be from that of all calls: half of the interval that has it with 95 %.
    pub half_interval: f64,
}

/// What calls took.
#[derive(Clone, PartialEq, Debug)]
pub struct Ipc {
    /// Call by call.
    pub calls: Vec<Cost>,
    /// Instructions a cycle, call by call.
    pub ipc: Spread,
    /// How much longer calls took while their instructions were counted: a factor.
    pub slowdown: f64,
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more")]
fn float(n: u64) -> f64 {
    n as f64
}

impl Spread {
    /// That of some numbers.
    pub fn of(numbers: &[f64]) -> Spread {
        let n = float(numbers.len() as u64);
        if numbers.is_empty() {
            return Spread::default();
        }
        let mean = numbers.iter().sum::<f64>() / n;
        let squares: f64 = numbers.iter().map(|one| (one - mean) * (one - mean)).sum();
        let deviation = if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        Spread { mean, deviation, half_interval: 1.96 * deviation / n.sqrt() }
    }

    /// The standard error of the mean, of the mean.
    fn relative_error(self) -> f64 {
        if self.mean > 0.0 { self.half_interval / 1.96 / self.mean } else { 0.0 }
    }
}

/// The ticks of calls, without the twentieth of them that took least, and that which took most: who is not on
/// a processor meanwhile takes as long as it likes.
fn without_ends(calls: &[Call]) -> Vec<f64> {
    let mut ticks: Vec<u64> = calls.iter().map(|call| call.ticks).collect();
    ticks.sort_unstable();
    let ends = ticks.len() / 20;
    let middle = ticks.get(ends..ticks.len() - ends).unwrap_or_default();
    middle.iter().map(|ticks| float(*ticks)).collect()
}

/// What the last `n` of the calls that were `counted` took; `plain` are others, which were not. Nothing, if
/// one of both has no call that took any time.
pub fn ipc(plain: &[Call], counted: &[Call], n: usize, stamps: &Stamps) -> Option<Ipc> {
    let (of_plain, of_counted) = (Spread::of(&without_ends(plain)), Spread::of(&without_ends(counted)));
    if of_plain.mean <= 0.0 || of_counted.mean <= 0.0 || stamps.per_cycle <= 0.0 {
        return None;
    }
    let factor = of_plain.mean / of_counted.mean;
    let of_clock = stamps.per_cycle_error / stamps.per_cycle;
    let errors = [of_plain.relative_error(), of_counted.relative_error(), of_clock];
    let relative = errors.iter().map(|error| error * error).sum::<f64>().sqrt();
    let cost = |call: &Call| {
        let ticks = float(call.ticks) * factor;
        // Neither end is known better than to a step of the counter.
        let of_step = float(stamps.step) / ticks.max(1.0);
        let cycles = ticks / stamps.per_cycle;
        let error = 2.0 * cycles * relative.hypot(of_step);
        Cost { thread: call.thread, instructions: call.instructions, cycles, error }
    };
    // The first ones had code and data to fetch that had just been put there.
    let last = counted.get(counted.len().saturating_sub(n)..).unwrap_or_default();
    let calls: Vec<Cost> = last.iter().map(cost).collect();
    let ipc = Spread::of(&calls.iter().map(Cost::ipc).collect::<Vec<_>>());
    Some(Ipc { calls, ipc, slowdown: 1.0 / factor })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(instructions: u64, ticks: u64) -> Call {
        Call { thread: 1, instructions, ticks }
    }

    #[test]
    fn what_counting_took_is_taken_off() {
        let stamps = Stamps { per_cycle: 0.5, per_cycle_error: 0.01, step: 1, ..Stamps::default() };
        let plain = [call(0, 1000), call(0, 3000)];
        let counted = [call(8000, 2000), call(24_000, 6000)];
        let ipc = ipc(&plain, &counted, 2, &stamps).expect("they took time");
        assert!((ipc.slowdown - 2.0).abs() < 1e-9);
        let cycles: Vec<f64> = ipc.calls.iter().map(|cost| cost.cycles).collect();
        assert_eq!(cycles, [2000.0, 6000.0]);
        assert_eq!((ipc.ipc.mean, ipc.ipc.deviation), (4.0, 0.0));
        // Two calls say little of all.
        assert!(ipc.calls.iter().all(|cost| cost.error > 0.5 * cost.cycles), "{ipc:?}");
        assert_eq!(super::ipc(&[], &counted, 2, &stamps), None);
        let last = super::ipc(&plain, &counted, 1, &stamps).expect("they took time");
        assert_eq!(last.calls, [ipc.calls[1]]);
        // Who was not on a processor for a while says nothing of the others.
        let mut stopped = vec![call(0, 2000); 40];
        stopped[3].ticks = 1 << 40;
        let same = super::ipc(&stopped, &counted, 2, &stamps).expect("they took time");
        assert!((same.slowdown - 2.0).abs() < 1e-9, "{}", same.slowdown);
    }

    #[test]
    fn the_spread_of_numbers() {
        let spread = Spread::of(&[1.0, 2.0, 3.0, 4.0]);
        assert!((spread.mean - 2.5).abs() < 1e-9 && (spread.deviation - 1.290_994_4).abs() < 1e-6);
        assert!((spread.half_interval - 1.96 * 1.290_994_4 / 2.0).abs() < 1e-6);
        assert_eq!(Spread::of(&[7.0]), Spread { mean: 7.0, ..Spread::default() });
    }
}
