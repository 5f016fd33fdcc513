//! What it costs to read the time where loops are entered and left: a small program that does little else is
//! run before the one that matters, with the same code in it.
//!
//! The same program says how many ticks a cycle of the core has: by chains of instructions of known latency.
//!
//! Source: VPROF, section 3.3 (the counter's own cost is measured and taken off).

use super::{Measurable, MeasuredRun};
use crate::choose::ModuleFilter;
use crate::module::Instrumentation;
use crate::prepare::{Modules, PrepareError, Prepared};
use crate::run::RunError;
use crate::store::{Kind, Store, StoreError};
use live::Target;
use measure::Placement;
use measure::reports::ipc::{Calibration, Middle};
use measure::values::{Asked, OneInstance, Stamping};
use probe::arch::calibration;
use profile::values::{Stamps, Statistics};
use program::Va;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Instant;

/// Why it is not known.
#[derive(Debug, thiserror::Error)]
#[error("what it costs to read the time cannot be measured")]
pub struct CalibrateError(#[from] Why);

/// See there.
#[derive(Debug, thiserror::Error)]
pub(super) enum Why {
    /// The program has no place.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It cannot be made a program.
    #[error("its program cannot be made one")]
    Mode(#[from] std::io::Error),
    /// It cannot be made ready.
    #[error(transparent)]
    Prepare(#[from] Box<PrepareError>),
    /// It cannot be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// It did not do what it should.
    #[error("its program has ended before it was done")]
    Short,
}

/// Two clocks, read at once.
#[derive(Clone, Copy)]
pub(crate) struct Clocks(u64, Instant);

impl Clocks {
    pub(crate) fn now() -> Clocks {
        Clocks(live::time_stamp(), Instant::now())
    }

    /// Ticks in a second, by what has passed since.
    pub(crate) fn rate(self) -> f64 {
        let Clocks(ticks, time) = Clocks::now();
        #[expect(clippy::cast_precision_loss, reason = "some years of ticks have a place in it")]
        let ticks = ticks.wrapping_sub(self.0) as f64;
        ticks / time.duration_since(self.1).as_secs_f64()
    }
}

/// What stamps cost on this machine now.
pub(crate) fn stamps(store: &Store, stamping: Stamping) -> Result<Stamps, CalibrateError> {
    Ok(measured(store, stamping, None)?.0)
}

/// The same, measured on the processor on which the process `near` runs, beside it, if we may run there: what
/// that has of clock is what the process has.
pub(crate) fn calibrated(
    store: &Store,
    stamping: Stamping,
    near: i32,
) -> Result<(Stamps, Calibration), CalibrateError> {
    Ok(measured(store, stamping, Some(near))?)
}

fn measured(store: &Store, stamping: Stamping, near: Option<i32>) -> Result<(Stamps, Calibration), Why> {
    let _span = tracing::info_span!("calibrate").entered();
    let bytes = calibration::program();
    let path = store.file(&store.name(Kind::Calibration, 0, &bytes), &bytes)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
    let target = Target {
        command: path.clone(),
        start: path.clone(),
        arg0: None,
        before: Vec::new(),
        executable: path,
    };
    let loops = calibration::LOOPS.iter().map(|at| format!("{:#x}", at.0)).collect();
    let values = Arc::new(Asked { loops, stamping, ..Asked::default() });
    let wanted = ModuleFilter::new(&["exe"]);
    let modules = Modules::of(store, &target).map_err(Box::new)?;
    let asked = Instrumentation { values, ..Instrumentation::new(Placement::Values) };
    let prepared = Prepared::new(store, &wanted, modules, asked).map_err(Box::new)?;
    let measurable = Measurable::without_stamps(prepared).map_err(Box::new)?.keeping_instances().of_ours();
    let name = OsStr::new("calibration");
    let beside = near.and_then(live::processor_of).and_then(live::OnProcessor::number);
    let run = MeasuredRun::new(measurable, &target, (name, &[]), None)?;
    drop(beside);
    let measured = run.finish(name);
    let header = |one: &OneInstance| measured.values.loops.get(one.of as usize).map(|of| of.header);
    let ticks =
        |at: Va| measured.instances.iter().filter(move |one| header(one) == Some(at.0)).map(|one| one.ticks);
    let [around, inner, short, long] = calibration::LOOPS;
    // Each long chain stands behind a short one.
    let chains = ticks(short).zip(ticks(long)).map(|(short, long)| long.saturating_sub(short));
    let (chain, chain_deviation) = middle(chains).ok_or(Why::Short)?;
    let (around, _) = middle(ticks(around)).ok_or(Why::Short)?;
    let (inner, inner_deviation) = middle(ticks(inner)).ok_or(Why::Short)?;
    let cycles = f64::from(calibration::CHAIN_CYCLES);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundreds of ticks")]
    let whole = |ticks: f64| ticks.max(0.0).round() as u64;
    let step = step();
    let calibration = Calibration {
        per_cycle: chain / cycles,
        per_cycle_deviation: chain_deviation / cycles,
        offset: inner,
        offset_deviation: inner_deviation,
        step,
    };
    let stamps = Stamps {
        offset: whole(inner),
        cost: whole((around - inner) / f64::from(calibration::INNER_INSTANCES)),
        step: whole(step),
        per_second: 0.0,
        per_cycle: calibration.per_cycle,
        per_cycle_error: 2.0 * calibration.per_cycle_deviation,
        are_serialised: stamping == Stamping::Serialised,
    };
    Ok((stamps, calibration))
}

/// The mean of numbers of ticks, if there are any, but for those at both ends; and their standard deviation
/// by the quartiles, so that a few times at which something else ran do not matter: of a normal distribution,
/// they are 1.349 of them apart.
fn middle(ticks: impl Iterator<Item = u64>) -> Option<(f64, f64)> {
    let counts: Vec<(u64, u64)> = ticks.map(|ticks| (ticks, 1)).collect();
    let of = Statistics::of_counts(&counts).of_finite?;
    #[expect(clippy::cast_precision_loss, reason = "they are few")]
    let numbers: Vec<f64> = counts.iter().map(|(ticks, _)| *ticks as f64).collect();
    Some((Middle::of(&numbers).mean, (of.q3 - of.q1) / 1.349))
}

/// In which steps the counter goes, in ticks: virtual machines have counters whose rate is not the
/// processor's, so that steps are not all of one length. Stamps are taken at times that have nothing to do
/// with steps: where there are some, distances lie in heaps, of which one is a step from the next.
fn step() -> f64 {
    let mut distances: Vec<u64> = Vec::new();
    let (mut before, mut spun) = (live::time_stamp(), 1u64);
    for n in 0..8000u64 {
        (0..n % 61).for_each(|by| spun = std::hint::black_box(spun.wrapping_mul(by | 3)));
        let now = live::time_stamp();
        distances.push(now.wrapping_sub(before));
        before = now;
    }
    distances.retain(|one| *one < 400);
    step_of(distances)
}

/// The same of such distances.
fn step_of(mut distances: Vec<u64>) -> f64 {
    distances.sort_unstable();
    distances.dedup();
    let mut heaps: Vec<(u64, u64)> = Vec::new();
    for one in distances {
        match heaps.last_mut() {
            Some((_, last)) if one - *last <= 2 => *last = one,
            _ => heaps.push((one, one)),
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "they are small")]
    let middles: Vec<f64> = heaps.iter().map(|(first, last)| (first + last) as f64 / 2.0).collect();
    let mut steps: Vec<f64> = middles.iter().zip(middles.iter().skip(1)).map(|(a, b)| b - a).collect();
    steps.sort_by(f64::total_cmp);
    // Few heaps are those of a counter that goes in single ticks, and of what came seldom.
    if steps.len() < 4 { 1.0 } else { steps.get(steps.len() / 2).copied().unwrap_or(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_counters_are_found_by_their_heaps() {
        assert!((step_of((20..400).collect()) - 1.0).abs() < 1e-9);
        assert!((step_of((10..100).map(|n| 4 * n).collect()) - 4.0).abs() < 1e-9);
        // Steps of 24.5 ticks.
        let heaps: Vec<u64> = (1..15u64).flat_map(|n| [49 * n / 2, (49 * n).div_ceil(2)]).collect();
        assert!((step_of(heaps) - 24.5).abs() < 0.51);
        assert!((step_of(vec![20, 22, 47]) - 1.0).abs() < 1e-9);
        assert!(step() >= 1.0);
    }
}
