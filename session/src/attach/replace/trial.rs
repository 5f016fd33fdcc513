//! New code tried before it stays: called in a copy of the process first, then by turns with the function
//! itself, and how long both take compared.
//!
//! ```text
//! Trial::start ─→ its calls are recorded ─verify→ the same of both, in a copy ─compare→ by turns ─→ Verdict
//! ```
//! Whatever comes of it, the function runs as before when it is over. Ticks of a call are inclusive, and
//! those of reading the clock twice are in both: so gains are rather said too small than too large.
//!
//! Source: PADRONE, section 5 (outlook); H. David, H. Nagaraja, "Order Statistics", 3rd ed., 7.1, for
//! intervals of a median without a word about how values are distributed.

use super::pure::PureFunction;
use super::tried::{Came, Copy, LONG};
use super::{LoadedModule, ReplaceError, Replacement, RunningProgram, Standing};
use live::attach::{self, AttachError, CallRegisters, GivenBack, OwnData, Stop};
use probe::graft::Graft;
use probe::stand_in::{self, Ring, TRIAL, mxcsr};
use program::FuncId;
use std::time::{Duration, Instant};

/// How long, and of how much.
#[derive(Clone, Copy, Debug)]
pub struct TrialWanted {
    /// How long it is compared.
    pub long: Duration,
    /// How many calls are made in a copy first.
    pub n_verified: u64,
}

/// Why a trial is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// The new code cannot stand in for the function.
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    /// The process is no more, or was not given back.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// The new code is faster.
    Faster,
    /// It is slower.
    Slower,
    /// It cannot be said which is faster.
    Even,
    /// Too few calls came back for that.
    TooFew,
    /// In a copy, it did something else than the function: what, and with which arguments.
    Wrong {
        /// What it was called with.
        arguments: Vec<u64>,
        /// What the function gave, and what the new code did.
        why: Difference,
    },
    /// Somebody said that it be over.
    Interrupted,
}

/// How two calls differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// By their results.
    Results {
        /// Of the function.
        old: Vec<u64>,
        /// Of the new code.
        new: Vec<u64>,
    },
    /// By the flags of floating-point arithmetic that they have raised.
    Flags {
        /// Of the function.
        old: u32,
        /// Of the new code.
        new: u32,
    },
    /// By what they have set errno to, if they did.
    Errno {
        /// Of the function.
        old: Option<u32>,
        /// Of the new code.
        new: Option<u32>,
    },
    /// The new code did not come back: how it ended.
    Ended(String),
}

/// A trial of which the first code stands in the process.
pub struct Trial<'a> {
    process: &'a RunningProgram,
    replacement: Replacement,
    data: OwnData,
    /// The stop in which it was put in.
    pub stopped: Stop,
    /// Whether the function calls itself: then a call is all of one or all of the other, by slices of time.
    is_recursive: bool,
}

/// What was compared.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Compared {
    /// Ticks a call of the function: the median of what it was in slices of time.
    pub old_ticks: f64,
    /// The same of the new code.
    pub new_ticks: f64,
    /// How many times longer calls of the function take: the median of what it was in slices.
    pub gain: f64,
    /// Where that is with 95 % confidence.
    pub interval: (f64, f64),
    /// How many calls of the function, and of the new code, came back.
    pub n_calls: [u64; 2],
}

/// A slice of time, after which it is looked; of a recursive function, one or the other runs for so long.
const SLICE: Duration = Duration::from_millis(20);
/// In a part that is looked at, so many calls of both came back at least.
const LEAST_CALLS: u64 = 4;
/// With fewer parts than these, nothing is said of the median with 95 % confidence.
const LEAST_PARTS: usize = 8;

impl<'a> Trial<'a> {
    /// Puts `graft` (from its function `symbol` on) beside `func`, which still runs; `standing` says so in
    /// the process.
    ///
    /// # Errors
    /// If it cannot stand in for it: then the process is as it was.
    pub fn start(
        process: &'a RunningProgram,
        module: &LoadedModule,
        func: FuncId,
        (graft, symbol): (&Graft, Option<&str>),
        standing: &dyn Fn(&Replacement) -> Standing,
    ) -> Result<Trial<'a>, TrialError> {
        let function = module.program.function(func).name();
        if module.program.takes_arguments_in_memory(func) {
            let why = stand_in::NoWords::InMemory;
            return Err(ReplaceError::Words { function, why }.into());
        }
        let made = stand_in::trial().map_err(ReplaceError::from)?;
        let first = Graft::of_stand_in("a trial", &made);
        let replacement = Replacement::by_way_of(process, module, func, (graft, symbol), Some(&first))?;
        let data = OwnData::of(process.pid(), replacement.data, stand_in::Trial::LEN)?;
        let stopped = replacement.put_in(&[standing(&replacement)])?;
        let is_recursive = module.program.is_recursive(func);
        Ok(Trial { process, replacement, data, stopped, is_recursive })
    }

    fn does(&self, what: u64) -> Result<(), AttachError> {
        self.data.write(stand_in::Trial::WHAT, what)
    }

    fn read<const N: usize>(&self, offset: u64) -> Result<[u8; N], AttachError> {
        let mut bytes = [0; N];
        self.data.read(offset, &mut bytes).map(|()| bytes)
    }

    fn state(&self) -> Result<stand_in::Trial, AttachError> {
        Ok(stand_in::Trial::of_bytes(&self.read(0)?))
    }

    /// Has calls of the `function` made in a copy, with what it was called with for some time,
    /// of both: how many, and where they first differ. `waits` comes back after so long, or at once and with
    /// false, if all is to end.
    ///
    /// # Errors
    /// If there can be no copy.
    pub fn verify(
        &self,
        function: &PureFunction,
        wanted: &TrialWanted,
        waits: &dyn Fn(Duration) -> bool,
    ) -> Result<(u64, Option<Verdict>), TrialError> {
        let n_wanted = wanted.n_verified.min(stand_in::Trial::MOST_CALLS);
        let until = Instant::now() + wanted.long;
        self.does(TRIAL.record)?;
        while self.state()?.n_recorded < n_wanted && Instant::now() < until {
            if !waits(SLICE) {
                return Ok((0, Some(Verdict::Interrupted)));
            }
        }
        self.does(TRIAL.pass)?;
        let n = self.state()?.n_recorded.min(n_wanted);
        let copy = Copy::of(self.process)?;
        let mut n_verified = 0;
        for n in 0..n {
            let call = Ring::of_bytes(&self.read(stand_in::Trial::CALLS + n * size_of::<Ring>() as u64)?);
            // One that is written at the moment is none.
            if call.state & 1 == 0 {
                continue;
            }
            let registers = registers(&call);
            let arguments = function.words.arguments.iter().filter_map(|word| call.word(*word)).collect();
            if !waits(Duration::ZERO) {
                return Ok((n_verified, Some(Verdict::Interrupted)));
            }
            let call = |at| copy.call(at, &function.words, &registers, LONG);
            // What the function itself does not come back from there says nothing.
            let Ok(old) = call(self.replacement.original)? else { continue };
            let why = match call(self.replacement.replacement)? {
                Err(why) => Some(Difference::Ended(why)),
                Ok(new) => difference(&old.of(&function.words), &new.of(&function.words)),
            };
            n_verified += 1;
            if let Some(why) = why {
                return Ok((n_verified, Some(Verdict::Wrong { arguments, why })));
            }
        }
        Ok((n_verified, None))
    }

    /// Has both run by turns for as long as is `wanted`.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn compare(
        &self,
        wanted: &TrialWanted,
        waits: &dyn Fn(Duration) -> bool,
    ) -> Result<(Compared, Verdict), TrialError> {
        // Any start will do that is not the same each time.
        let start = Instant::now();
        self.data.write(stand_in::Trial::DICE, live::time_stamp() | 1)?;
        let mut parts = Vec::new();
        let mut last = self.state()?;
        let mut is_new = live::time_stamp() >> 4 & 1 != 0;
        self.does(TRIAL.alternate)?;
        let mut goes_on = true;
        while goes_on && start.elapsed() < wanted.long {
            if self.is_recursive {
                is_new = !is_new;
                self.does(if is_new { TRIAL.new } else { TRIAL.old })?;
            }
            goes_on = waits(SLICE.min(wanted.long.saturating_sub(start.elapsed())));
            let now = self.state()?;
            if let Some(part) = Part::between(&last, &now) {
                parts.push(part);
                last = now;
            }
        }
        self.does(TRIAL.pass)?;
        let state = self.state()?;
        let compared = compared(&parts, [state.old[1], state.new[1]]);
        let verdict = match compared.interval {
            _ if !goes_on => Verdict::Interrupted,
            _ if parts.len() < LEAST_PARTS => Verdict::TooFew,
            (low, _) if low > 1.0 => Verdict::Faster,
            (_, high) if high < 1.0 => Verdict::Slower,
            _ => Verdict::Even,
        };
        Ok((compared, verdict))
    }

    /// Takes it out again: the function runs as it did.
    ///
    /// # Errors
    /// If the process cannot be stopped.
    pub fn end(self) -> Result<GivenBack, AttachError> {
        attach::rescue(self.process.pid())
    }
}

/// What was counted between two looks.
#[derive(Clone, Copy, Debug)]
struct Part {
    old: f64,
    new: f64,
}

impl Part {
    /// Ticks a call of both, if enough came back.
    fn between(last: &stand_in::Trial, now: &stand_in::Trial) -> Option<Part> {
        let each = |before: [u64; 2], after: [u64; 2]| {
            let n = after[1].wrapping_sub(before[1]);
            (n >= LEAST_CALLS).then(|| float(after[0].wrapping_sub(before[0])) / float(n))
        };
        Some(Part { old: each(last.old, now.old)?, new: each(last.new, now.new)? })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean is rounded anyway")]
fn float(n: u64) -> f64 {
    n as f64
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    match all.len() {
        0 => 0.0,
        n if n % 2 == 1 => all.get(n / 2).copied().unwrap_or_default(),
        n => all.get(n / 2 - 1..=n / 2).map_or(0.0, |both| both.iter().sum::<f64>() / 2.0),
    }
}

fn compared(parts: &[Part], n_calls: [u64; 2]) -> Compared {
    let of = |value: &dyn Fn(&Part) -> f64| median(parts.iter().map(value).collect());
    let mut gains: Vec<f64> = parts.iter().map(|part| part.old / part.new.max(1.0)).collect();
    gains.sort_by(f64::total_cmp);
    let n = gains.len();
    let rank = rank_below_median(n);
    let at = |n: usize| gains.get(n).copied().unwrap_or_default();
    Compared {
        old_ticks: of(&|part| part.old),
        new_ticks: of(&|part| part.new),
        gain: median(gains.clone()),
        interval: (at(rank), at(n.saturating_sub(1).saturating_sub(rank))),
        n_calls,
    }
}

/// The rank, from 0, of that of `n` values below which their median is with a probability of 2.5 % at most:
/// of as many throws of a coin, so many are heads.
fn rank_below_median(n: usize) -> usize {
    if n > 1000 {
        // Of many, the binomial distribution is a normal one.
        let many = float(n as u64);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and n"
        )]
        return (many / 2.0 - 0.98 * many.sqrt()).floor() as usize;
    }
    let mut probability = 0.5f64.powi(i32::try_from(n).unwrap_or(1000));
    let mut sum = probability;
    let mut n_heads = 0;
    while sum <= 0.025 && n_heads < n {
        n_heads += 1;
        probability *= float((n - n_heads + 1) as u64) / float(n_heads as u64);
        sum += probability;
    }
    n_heads.saturating_sub(1)
}

/// Where two calls differ, if they do.
fn difference(old: &Came, new: &Came) -> Option<Difference> {
    if old.results != new.results {
        return Some(Difference::Results { old: old.results.clone(), new: new.results.clone() });
    }
    if old.errno != new.errno {
        return Some(Difference::Errno { old: old.errno, new: new.errno });
    }
    // That something was rounded, compilers may see to differently.
    let flags = |came: &Came| came.raised & !mxcsr::INEXACT;
    (flags(old) != flags(new)).then_some(Difference::Flags { old: old.raised, new: new.raised })
}

/// Registers as a recorded call had them.
fn registers(call: &Ring) -> CallRegisters {
    let mut vector = [0; 16];
    vector[..8].copy_from_slice(&call.vector);
    let mxcsr = (call.state >> 32) as u32;
    CallRegisters { general: call.general_by_number(), vector, mxcsr }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_a_median_are_those_of_the_tables() {
        // Conover, "Practical Nonparametric Statistics", table A3, for p = 0.5: ranks from 0.
        for (n, rank) in [(8, 0), (9, 1), (12, 2), (20, 5), (30, 9), (50, 17), (100, 39)] {
            assert_eq!(rank_below_median(n), rank, "{n}");
        }
        assert!((468..=469).contains(&rank_below_median(1000)) && rank_below_median(1001) == 469);
    }

    #[test]
    fn a_gain_is_what_old_takes_longer() {
        let part = |n: u32| Part { old: f64::from(200 + n % 5), new: f64::from(100 + n % 3) };
        let parts: Vec<Part> = (0..60).map(part).collect();
        let got = compared(&parts, [1, 2]);
        assert!((got.gain - 2.0).abs() < 0.05 && got.interval.0 <= got.gain && got.gain <= got.interval.1);
        assert_eq!((got.old_ticks, got.new_ticks), (202.0, 101.0));
    }
}
