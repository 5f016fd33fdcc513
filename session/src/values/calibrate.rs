//! What it costs to read the time where loops are entered and left: a small program that does little else is
//! run before the one that matters, with the same code in it.
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
use measure::values::{Asked, Stamping};
use probe::arch::calibration;
use profile::values::{Loop, Stamps};
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
    Ok(measured(store, stamping)?)
}

fn measured(store: &Store, stamping: Stamping) -> Result<Stamps, Why> {
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
    let measurable = Measurable::without_stamps(prepared).map_err(Box::new)?;
    let name = OsStr::new("calibration");
    let run = MeasuredRun::new(measurable, &target, (name, &[]), None)?;
    let all = run.finish(name).values.loops;
    let of = |at| all.iter().find(|one: &&Loop| one.header == at).filter(|one| one.n_instances > 0);
    let [around, inner, chain] = calibration::LOOPS.map(|at| of(at.0));
    let (Some(around), Some(inner), Some(chain)) = (around, inner, chain) else { return Err(Why::Short) };
    let summary = |of: &Loop| of.ticks.clone().unwrap_or_default().instances.summary(1.0);
    let (around, inner, chain) = (summary(around), summary(inner), summary(chain));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundreds of ticks")]
    let whole = |ticks: f64| ticks.max(0.0).round() as u64;
    Ok(Stamps {
        offset: whole(inner.median),
        cost: whole((around.median - inner.median) / f64::from(calibration::INNER_INSTANCES)),
        step: step(),
        per_second: 0.0,
        per_cycle: chain.median / f64::from(calibration::CHAIN_CYCLES),
        per_cycle_error: (chain.q3 - chain.q1) / f64::from(calibration::CHAIN_CYCLES),
        are_serialised: stamping == Stamping::Serialised,
    })
}

/// The least step of the counter: what all distances of some stamps are multiples of.
fn step() -> u64 {
    let stamps: Vec<u64> = (0..1000).map(|_| live::time_stamp()).collect();
    let distances = stamps.iter().zip(stamps.iter().skip(1)).map(|(a, b)| b.wrapping_sub(*a));
    distances.fold(0, common).max(1)
}

/// The greatest common divisor.
fn common(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
