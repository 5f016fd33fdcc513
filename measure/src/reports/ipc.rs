//! Instructions and cycles of calls, or of instances of a loop, and their quotient, without the processor's
//! counters.
//!
//! ```text
//!  plain:   calls with two stamps each     ──► ticks as they are
//!  counted: the same, the instructions of all that they run being counted
//!                                          ──► instructions, exactly; ticks, longer by a factor
//! ```
//! The calls are those that were counted. That counting took time is taken off: by what calls take on average
//! that were not. Both are done in turn, [`Round`] for round. Ticks become cycles by a chain of instructions
//! of known latency, which is timed before, between and after ([`Clock`]):
//!
//! ```text
//! c = (T − o)·f / p         T: ticks between two stamps, o: those of an instance that takes no time,
//!                           f = mean plain / mean counted, p: ticks in a cycle
//! U² = (2·f·u(T − o)/p)²    u(T − o)² = step²/6 + s(o)²: a stamp is a multiple of the counter's
//!                           step, so that distances are wrong by a triangular distribution; the way
//!                           in and out varies by s(o)
//!    + (c·t·u(f)/f)²        u(f): the standard errors of both means
//!    + (c·U(f)/f)²          U(f) = t·√(s²·(1 + 1/n)): s is the deviation of f in n rounds, if there
//!                           are some
//!    + (c·U(p)/p)²          U(p) = t·√(s²·(1 + 1/n) + w²): s is the deviation of p in n calibrations,
//!                           w the one within them
//!    + d²                   d: how far c is off if what counting took is taken off by instructions, not by
//!                           a factor: what calls take that are not all alike
//! ```
//! U is what `c` may be wrong by with 95 %; one more round, one more calibration would be within U(f), U(p).
//! Means are without the tenth of the numbers on either side: who is not on a processor meanwhile takes as
//! long as it likes.
//!
//! Source: PADRONE, section 3.2 and figure 6; VPROF, section 3.3 (what it costs to measure is measured). The
//! error: JCGM 100:2008 (GUM), 4.3.9 (triangular distribution), 5.1.2 (how errors add up), G.3 and table G.2
//! (Student's t); the interval of one more: G. Hahn, W. Meeker, "Statistical Intervals"; trimmed means: R.
//! Wilcox, "Introduction to Robust Estimation and Hypothesis Testing".

use crate::values::{Asked, AskedCall, Logged, OneInstance, Passed, Piece, Stamping, Wanted, executed};
use profile::ReadError;
use profile::values::Loop;
use profile::values::log::{Ended, Log, Part};
use program::signature::Type;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject<'a> {
    /// Calls of the function with this name.
    Calls(&'a str),
    /// Instances of the loop that this text names, as of [`Asked::loops`].
    Loop(&'a str),
}

/// Which values are recorded of calls, or of instances: the stamps of each, and if that is `counted`, how
/// many instructions its thread had run when it began, and when it ended.
pub fn asked(subject: Subject<'_>, counted: bool) -> Asked {
    let rest = Asked {
        stamping: Stamping::Serialised,
        is_without_ends: true,
        counts_instructions: counted,
        ..Asked::default()
    };
    let function = match subject {
        Subject::Calls(function) => function,
        Subject::Loop(text) => return Asked { loops: vec![text.to_owned()], ..rest },
    };
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
        ..rest
    }
}

/// A call that came back, or an instance of a loop that was left.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Call {
    /// Its thread, from 1.
    pub thread: u32,
    /// Instructions that it ran, with all that it called; 0, if they were not counted.
    pub instructions: u64,
    /// Ticks of the time stamp counter that it took, and that it took to read that.
    pub ticks: u64,
    /// Of an instance: of which loop.
    pub of_loop: Option<Iterated>,
}

/// What else is known of an instance of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Iterated {
    /// The address of the loop's header, in its module.
    pub header: u64,
    /// How often the instance went through it.
    pub iterations: u64,
}

/// The calls in a log that came back, in order.
///
/// # Errors
/// If the log cannot be read.
pub fn calls(log: &Log) -> Result<Vec<Call>, ReadError> {
    const PARTS: [Part; 5] = [Part::Thread, Part::Ended, Part::Argument(0), Part::Result, Part::Ticks];
    let mut all = Vec::new();
    for (table, _) in log.tables.iter().enumerate().filter(|(_, table)| !table.is_place) {
        for block in log.blocks(table, &PARTS) {
            let block = block?;
            for row in (0..block.n_rows()).filter(|row| block.ended(*row) == Ended::Result) {
                let word = |part| block.word(part, row);
                all.push(Call {
                    thread: u32::try_from(word(Part::Thread)).unwrap_or(u32::MAX),
                    instructions: word(Part::Result).wrapping_sub(word(Part::Argument(0))),
                    ticks: word(Part::Ticks),
                    of_loop: None,
                });
            }
        }
    }
    Ok(all)
}

/// The same of `instances` of `loops`, in the order of their ends.
pub fn instances(instances: &[OneInstance], loops: &[Loop]) -> Vec<Call> {
    let call = |one: &OneInstance| {
        let of = loops.get(one.of as usize)?;
        Some(Call {
            thread: one.area + 1,
            instructions: one.instructions,
            ticks: one.ticks,
            of_loop: Some(Iterated { header: of.header, iterations: one.iterations }),
        })
    };
    instances.iter().filter_map(call).collect()
}

/// What a calibration says.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Calibration {
    /// Ticks of the time stamp counter in a cycle of the core.
    pub per_cycle: f64,
    /// The standard deviation of that within the calibration.
    pub per_cycle_deviation: f64,
    /// What an instance that takes no time is said to take, in ticks.
    pub offset: f64,
    /// The standard deviation of that.
    pub offset_deviation: f64,
    /// In which steps the counter goes, in ticks.
    pub step: f64,
}

/// What the clock of the core was meanwhile, by several calibrations.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Clock {
    /// How many.
    pub n: usize,
    /// Ticks in a cycle: their mean.
    pub per_cycle: f64,
    /// By how much that may be wrong at a time, with 95 %.
    pub per_cycle_error: f64,
    /// The least that one of them said, and the most.
    pub range: [f64; 2],
    /// What an instance that takes no time is said to take, in ticks.
    pub offset: f64,
    /// The standard deviation of that.
    pub offset_deviation: f64,
    /// In which steps the counter goes, in ticks.
    pub step: f64,
}

/// By how many standard deviations a number of so many degrees of freedom, from 1, is off with 95 %. Source:
/// JCGM 100:2008, table G.2.
const STUDENT: [f64; 19] = [
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11,
    2.10, 2.09,
];

/// The same; without any, nothing is known.
fn student(degrees: usize) -> f64 {
    degrees.checked_sub(1).map_or(f64::INFINITY, |n| STUDENT.get(n).copied().unwrap_or(2.0))
}

/// That a reading is wrong by, since the counter goes in steps: the standard deviation of a distance.
fn of_steps(step: f64) -> f64 {
    step / 6.0_f64.sqrt()
}

impl Clock {
    /// By how much cycles may be wrong for it, with 95 %: a share of them.
    pub fn error_share(&self) -> f64 {
        self.per_cycle_error / self.per_cycle
    }

    /// What these calibrations say; nothing if there are none, or one of them is of no clock.
    pub fn of(all: &[Calibration]) -> Option<Clock> {
        if all.is_empty() || all.iter().any(|one| one.per_cycle <= 0.0) {
            return None;
        }
        let numbers = |of: fn(&Calibration) -> f64| all.iter().map(of).collect::<Vec<f64>>();
        let mean_square = |of: fn(&Calibration) -> f64| {
            numbers(of).iter().map(|one| one * one).sum::<f64>() / float(all.len() as u64)
        };
        let per_cycle = numbers(|one| one.per_cycle);
        let (clock, offset) = (Spread::of(&per_cycle), Spread::of(&numbers(|one| one.offset)));
        let within = mean_square(|one| one.per_cycle_deviation);
        let t = if all.len() > 1 { student(all.len() - 1) } else { 2.0 };
        let one_more = clock.deviation * clock.deviation * (1.0 + 1.0 / float(all.len() as u64));
        Some(Clock {
            n: all.len(),
            per_cycle: clock.mean,
            per_cycle_error: t * (one_more + within).sqrt(),
            range: [
                per_cycle.iter().copied().fold(f64::INFINITY, f64::min),
                per_cycle.iter().copied().fold(0.0, f64::max),
            ],
            offset: offset.mean,
            offset_deviation: offset.deviation.hypot(mean_square(|one| one.offset_deviation).sqrt()),
            step: all.iter().map(|one| one.step).fold(0.0, f64::max),
        })
    }
}

/// What a call, or an instance of a loop, took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Its thread, from 1.
    pub thread: u32,
    /// Instructions, exactly.
    pub instructions: u64,
    /// Cycles, estimated.
    pub cycles: f64,
    /// By how much they may be wrong, with 95 %.
    pub error: f64,
    /// Of an instance: of which loop.
    pub of_loop: Option<Iterated>,
}

impl Cost {
    /// Instructions a cycle; `None`, where the cycles may be none for all that is known.
    pub fn ipc(&self) -> Option<f64> {
        (self.cycles > self.error).then(|| float(self.instructions) / self.cycles)
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
    /// Instructions a cycle, of the calls that it is known of, if it is of any; the interval has the errors
    /// of these in it.
    pub ipc: Option<Spread>,
    /// How much longer these calls took while their instructions were counted: a factor, on average.
    pub slowdown: f64,
    /// What the clock was meanwhile.
    pub clock: Clock,
    /// How much of cycles may be wrong, with 95 %, because the clock was not the same all the time, and
    /// because calls took longer in one round than in another.
    pub unsteady_share: f64,
}

/// Calls that were not counted, and calls that were, one after the other.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Round {
    /// Those that were not.
    pub plain: Vec<Call>,
    /// Those that were.
    pub counted: Vec<Call>,
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
}

/// The mean of numbers without the tenth of them on either side.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Middle {
    /// That mean.
    pub mean: f64,
    /// By how much it may be wrong, with 95 %.
    pub error: f64,
}

impl Middle {
    /// That of some numbers; of one alone, and of none, nothing is known.
    pub fn of(numbers: &[f64]) -> Middle {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let cut = sorted.len() / 10;
        let rest = sorted.get(cut..sorted.len() - cut).unwrap_or_default();
        let (Some(first), Some(last)) = (rest.first(), rest.last()) else { return Middle::default() };
        let (n, n_rest) = (float(sorted.len() as u64), float(rest.len() as u64));
        let mean = rest.iter().sum::<f64>() / n_rest;
        if rest.len() < 2 {
            return Middle { mean, error: mean };
        }
        let winsorised: Vec<f64> = sorted.iter().map(|one| one.clamp(*first, *last)).collect();
        let standard = Spread::of(&winsorised).deviation / (n_rest / n * n.sqrt());
        Middle { mean, error: student(rest.len() - 1) * standard }
    }

    fn of_ticks(calls: &[Call], clock: &Clock) -> Middle {
        let ticks: Vec<f64> = calls.iter().map(|call| (float(call.ticks) - clock.offset).max(0.0)).collect();
        Middle::of(&ticks)
    }

    fn error_share(self) -> f64 {
        self.error / self.mean
    }
}

/// What counting cost the calls of a function, or the instances of a loop.
struct Counting {
    /// The ticks of one that is not counted, divided by those of one that is.
    factor: f64,
    /// By how much that may be wrong for the means, as a share of it, with 95 %.
    of_means: f64,
    /// The same because rounds were not alike.
    of_rounds: f64,
    /// The same otherwise: what was added for each instruction, in ticks.
    ticks_per_instruction: f64,
}

impl Counting {
    fn of(rounds: &[Round], clock: &Clock) -> Option<Counting> {
        let plain: Vec<Call> = rounds.iter().flat_map(|round| round.plain.iter().copied()).collect();
        let counted: Vec<Call> = rounds.iter().flat_map(|round| round.counted.iter().copied()).collect();
        let (of_plain, of_counted) = (Middle::of_ticks(&plain, clock), Middle::of_ticks(&counted, clock));
        let factor = |plain: Middle, counted: Middle| {
            (plain.mean > 0.0 && counted.mean > 0.0).then(|| plain.mean / counted.mean)
        };
        let all = factor(of_plain, of_counted)?;
        let factors = rounds.iter().filter_map(|round| {
            factor(Middle::of_ticks(&round.plain, clock), Middle::of_ticks(&round.counted, clock))
        });
        let factors: Vec<f64> = factors.collect();
        let of_rounds = match factors.len() {
            0 | 1 => 0.0,
            n => {
                let one_more = (1.0 + 1.0 / float(n as u64)).sqrt();
                student(n - 1) * Spread::of(&factors).deviation * one_more / all
            }
        };
        let instructions: Vec<f64> = counted.iter().map(|call| float(call.instructions)).collect();
        let added = of_counted.mean - of_plain.mean;
        Some(Counting {
            factor: all,
            of_means: of_plain.error_share().hypot(of_counted.error_share()),
            of_rounds,
            ticks_per_instruction: added / Middle::of(&instructions).mean.max(1.0),
        })
    }

    /// What `call` took, by the `clock`.
    fn cost(&self, call: &Call, clock: &Clock) -> Cost {
        let net = (float(call.ticks) - clock.offset).max(0.0);
        let ticks = net * self.factor;
        let otherwise = net - self.ticks_per_instruction * float(call.instructions);
        let in_ticks = [
            2.0 * self.factor * of_steps(clock.step).hypot(clock.offset_deviation),
            ticks * self.of_means,
            ticks * self.of_rounds,
            ticks * clock.error_share(),
            ticks - otherwise,
        ];
        let error = in_ticks.iter().map(|error| error * error).sum::<f64>().sqrt();
        Cost {
            thread: call.thread,
            instructions: call.instructions,
            cycles: ticks / clock.per_cycle,
            error: error / clock.per_cycle,
            of_loop: call.of_loop,
        }
    }
}

/// What the last `n` of the calls that were counted took. Nothing, if of those that were counted, or of those
/// that were not, none took any time.
pub fn ipc(rounds: &[Round], n: usize, clock: &Clock) -> Option<Ipc> {
    let header = |call: &Call| call.of_loop.map(|of| of.header);
    let counted: Vec<Call> = rounds.iter().flat_map(|round| round.counted.iter().copied()).collect();
    let mut loops: Vec<Option<u64>> = counted.iter().map(header).collect();
    loops.sort_unstable();
    loops.dedup();
    let of = |of: Option<u64>| {
        let only = |all: &[Call]| all.iter().filter(|call| header(call) == of).copied().collect();
        let round = |round: &Round| Round { plain: only(&round.plain), counted: only(&round.counted) };
        Counting::of(&rounds.iter().map(round).collect::<Vec<_>>(), clock)
    };
    let countings: Vec<(Option<u64>, Counting)> =
        loops.into_iter().filter_map(|one| Some((one, of(one)?))).collect();
    let cost = |call: &Call| {
        let (_, counting) = countings.iter().find(|(of, _)| *of == header(call))?;
        Some((counting.cost(call, clock), counting))
    };
    // The first ones had code and data to fetch that had just been put there.
    let mut last: Vec<(Cost, &Counting)> = counted.iter().rev().filter_map(cost).take(n).collect();
    last.reverse();
    let mean = |of: &dyn Fn(&Counting) -> f64| {
        Spread::of(&last.iter().map(|one| of(one.1)).collect::<Vec<_>>()).mean
    };
    let (slowdown, of_rounds) = (mean(&|one| 1.0 / one.factor), mean(&|one| one.of_rounds));
    let calls: Vec<Cost> = last.iter().map(|one| one.0).collect();
    if calls.is_empty() {
        return None;
    }
    let ipc = quotient(&calls);
    Some(Ipc { calls, ipc, slowdown, clock: *clock, unsteady_share: of_rounds.hypot(clock.error_share()) })
}

/// Instructions a cycle of `calls`. Their errors are of the clock mostly, which is the same for all.
fn quotient(calls: &[Cost]) -> Option<Spread> {
    let known: Vec<(f64, f64)> =
        calls.iter().filter_map(|call| Some((call.ipc()?, call.error / call.cycles))).collect();
    let all = |of: fn(&(f64, f64)) -> f64| Spread::of(&known.iter().map(of).collect::<Vec<_>>());
    let (spread, error_share) = (all(|one| one.0), all(|one| one.1).mean);
    let half_interval = spread.half_interval.hypot(spread.mean * error_share);
    (!known.is_empty()).then_some(Spread { half_interval, ..spread })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(instructions: u64, ticks: u64) -> Call {
        Call { thread: 1, instructions, ticks, of_loop: None }
    }

    fn calibration(per_cycle: f64) -> Calibration {
        Calibration { per_cycle, per_cycle_deviation: 0.001, offset: 10.0, offset_deviation: 2.0, step: 1.0 }
    }

    fn clock() -> Clock {
        Clock::of(&[calibration(0.49), calibration(0.5), calibration(0.51)]).expect("a clock")
    }

    fn round(plain: &[Call], counted: &[Call]) -> Round {
        Round { plain: plain.to_vec(), counted: counted.to_vec() }
    }

    #[test]
    fn what_counting_took_is_taken_off() {
        let plain = [call(0, 1010), call(0, 3010)];
        let counted = [call(8000, 2010), call(24_000, 6010)];
        let found = ipc(&[round(&plain, &counted)], 2, &clock()).expect("they took time");
        assert!((found.slowdown - 2.0).abs() < 1e-9);
        let cycles: Vec<f64> = found.calls.iter().map(|cost| cost.cycles).collect();
        assert_eq!(cycles, [2000.0, 6000.0]);
        // Two calls say little of all.
        assert_eq!(found.ipc, None);
        assert!(found.calls.iter().all(|cost| cost.error > 0.5 * cost.cycles), "{found:?}");
        assert_eq!(ipc(&[round(&[], &counted)], 2, &clock()), None);
        let last = ipc(&[round(&plain, &counted)], 1, &clock()).expect("they took time");
        assert_eq!(last.calls, [found.calls[1]]);
        // Who was not on a processor for a while says nothing of the others.
        let mut stopped = vec![call(0, 2010); 40];
        stopped[3].ticks = 1 << 40;
        let same = ipc(&[round(&stopped, &counted)], 2, &clock()).expect("they took time");
        assert!((same.slowdown - 2.0).abs() < 1e-9, "{}", same.slowdown);
    }

    #[test]
    fn loops_are_told_apart() {
        let of = |header, ticks| {
            let of_loop = Some(Iterated { header, iterations: 3 });
            Call { of_loop, ..call(1000, ticks) }
        };
        let plain = [vec![of(1, 1010); 50], vec![of(2, 5010); 10]].concat();
        let counted = [vec![of(1, 3010); 10], vec![of(2, 10_010); 50]].concat();
        let found = ipc(&[round(&plain, &counted)], 60, &clock()).expect("they took time");
        let cycles = |n: usize| found.calls[n].cycles;
        assert!((cycles(0) - 2000.0).abs() < 1e-6 && (cycles(59) - 10_000.0).abs() < 1e-6);
        assert!((found.slowdown - (3.0 * 10.0 + 2.0 * 50.0) / 60.0).abs() < 1e-9, "{}", found.slowdown);
    }

    #[test]
    fn an_error_has_all_that_may_be_wrong() {
        let alike = |ticks| round(&vec![call(0, 1010); 50], &vec![call(4000, ticks); 50]);
        let of = |rounds: &[Round], clock: &Clock| {
            let found = ipc(rounds, 1, clock).expect("they took time");
            (found.calls[0].cycles, found.calls[0].error)
        };
        // The clock alone: t of two degrees of freedom, the spread, one more; then what it is within.
        let steady = |per_cycle| Calibration { step: 0.0, offset_deviation: 0.0, ..calibration(per_cycle) };
        let clock =
            |all: &[f64]| Clock::of(&all.iter().map(|p| steady(*p)).collect::<Vec<_>>()).expect("a clock");
        let (cycles, error) = of(&[alike(2010)], &clock(&[0.49, 0.5, 0.51]));
        let share = 4.30 * (0.0001_f64 * (4.0 / 3.0) + 1e-6).sqrt() / 0.5;
        assert!((cycles - 2000.0).abs() < 1e-9 && (error - 2000.0 * share).abs() < 1e-6, "{cycles} {error}");
        assert_eq!(clock(&[0.49, 0.5, 0.51]).range, [0.49, 0.51]);
        assert!((of(&[alike(2010)], &clock(&[0.5])).1 - 2000.0 * 2.0 * 0.001 / 0.5).abs() < 1e-6);
        // The ends: of a triangular distribution, and how the way in and out varies.
        let exact = Clock { per_cycle_error: 0.0, ..clock(&[0.5]) };
        let ends = Clock { step: 30.0, offset_deviation: 5.0, ..exact };
        let want = 2.0 * 0.5 * (150.0_f64 + 25.0).sqrt() / 0.5;
        assert!((of(&[alike(2010)], &ends).1 - want).abs() < 1e-6, "{want}");
        // Rounds that are not alike: factors of 1/2, 1/2, 1/4.
        let (cycles, error) = of(&[alike(2010), alike(2010), alike(4010)], &exact);
        // The deviation of these, for one more, is a sixth of 1; t is 4.30; the factor of all is 3/8 or more.
        assert!(error > 4.30 / 6.0 * cycles, "{cycles} {error}");
        // Calls that are not alike: by a factor, and by instructions.
        let plain = vec![call(0, 1010); 200];
        let counted: Vec<Call> = (0..200).map(|n| call(if n % 2 == 0 { 3000 } else { 5000 }, 2010)).collect();
        let unlike = ipc(&[round(&plain, &counted)], 1, &exact).expect("they took time").calls[0];
        let by_instructions = (2000.0 - 1000.0 / 4000.0 * 5000.0) / 0.5;
        assert!((unlike.error - (unlike.cycles - by_instructions).abs()).abs() < 1e-6, "{unlike:?}");
    }

    #[test]
    fn the_middle_of_numbers() {
        // Of twenty, two on either side do not matter: sixteen from 3 to 18 are left.
        let numbers: Vec<f64> = (1..=20).map(f64::from).collect();
        let mut wild = numbers.clone();
        (wild[0], wild[19]) = (-1e9, 1e9);
        let middle = Middle::of(&wild);
        assert_eq!(middle, Middle::of(&numbers));
        assert!((middle.mean - 10.5).abs() < 1e-9);
        let winsorised: f64 = (3..=18).map(|n| (f64::from(n) - 10.5).powi(2)).sum::<f64>() + 4.0 * 7.5 * 7.5;
        let want = 2.13 * (winsorised / 19.0).sqrt() / (0.8 * 20.0_f64.sqrt());
        assert!((middle.error - want).abs() < 1e-9, "{middle:?} {want}");
        assert_eq!(Middle::of(&[7.0]), Middle { mean: 7.0, error: 7.0 });
        assert_eq!(Middle::of(&[]), Middle::default());
    }

    #[test]
    fn calls_that_are_shorter_than_the_error_have_no_quotient() {
        let cost = |cycles, error| Cost { thread: 1, instructions: 400, cycles, error, of_loop: None };
        assert_eq!(cost(0.0, 1436.0).ipc(), None);
        assert_eq!(cost(100.0, 100.0).ipc(), None);
        assert_eq!(cost(100.0, 50.0).ipc(), Some(4.0));
        assert_eq!(quotient(&[cost(0.0, 10.0), cost(5.0, 9.0)]), None);
        let spread = quotient(&[cost(0.0, 10.0), cost(100.0, 10.0), cost(100.0, 30.0)]).expect("of two");
        assert_eq!((spread.mean, spread.deviation), (4.0, 0.0));
        assert!((spread.half_interval - 0.8).abs() < 1e-9, "a fifth of it, by the errors alone: {spread:?}");
    }

    #[test]
    fn the_spread_of_numbers() {
        let spread = Spread::of(&[1.0, 2.0, 3.0, 4.0]);
        assert!((spread.mean - 2.5).abs() < 1e-9 && (spread.deviation - 1.290_994_4).abs() < 1e-6);
        assert!((spread.half_interval - 1.96 * 1.290_994_4 / 2.0).abs() < 1e-6);
        assert_eq!(Spread::of(&[7.0]), Spread { mean: 7.0, ..Spread::default() });
    }
}
