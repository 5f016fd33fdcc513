//! Events that no instruction says of itself, from recordings of both builds: memory that was not aligned,
//! by `engraft values --auto`; those of the processor and the kernel, by `engraft sample --event`.

use super::Args;
use super::fill::{Sums, number};
use crate::input::Source;
use crate::output::{self, Hinted};
use crate::verbs::sample::recorded::Recorded;
use matching::compare::{Counted, Side, Weights};
use profile::samples::Frame;
use profile::values::{Place, Watched};
use program::{ImageId, Va};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use views::compare::{EVENTS, MISALIGNED};

/// By metric: how often an execution of each block of both builds was one.
pub type Events = BTreeMap<String, [Weights; 2]>;

/// Those of the recordings that are named.
///
/// # Errors
/// If one cannot be read, or has none; or if the metric that is asked for is of none of them.
pub fn read(args: &Args, sides: &[Side<'_>; 2]) -> anyhow::Result<Events> {
    let mut events = Events::new();
    if let (Some(old), Some(new)) = (&args.old_values, &args.new_values) {
        events.insert(MISALIGNED.to_owned(), [misaligned(old, &sides[0])?, misaligned(new, &sides[1])?]);
    }
    if let (Some(old), Some(new)) = (&args.old_samples, &args.new_samples) {
        let [of_old, mut of_new] = [sampled(old, &sides[0])?, sampled(new, &sides[1])?];
        for (name, weights) in of_old {
            match of_new.remove(&name) {
                Some(other) => _ = events.insert(name, [weights, other]),
                None => output::warn(&format!("{name} is in {} alone, and left out", old.display()), None),
            }
        }
        for name in of_new.keys() {
            output::warn(&format!("{name} is in {} alone, and left out", new.display()), None);
        }
    }
    if args.metric.starts_with(EVENTS) && !events.contains_key(&args.metric) {
        let names: Vec<&str> = events.keys().map(String::as_str).collect();
        let hint = match names.is_empty() {
            true => "name recordings of both builds: --old-samples and --new-samples, of `engraft sample --event`, or --old-values and --new-values, of `engraft values --auto`".to_owned(),
            false => format!("they have {}", names.join(", ")),
        };
        return Err(Hinted::new(format!("no recording of both builds has {}", args.metric), hint).into());
    }
    Ok(events)
}

/// By module and block of a side's programs: ours.
fn blocks(side: &Side<'_>) -> HashMap<(u32, program::BlockId), u32> {
    (0..).zip(&side.code.blocks).map(|(n, block)| (block.id, n)).collect()
}

/// The block of a side that an address of the module of this name is in.
fn block_at(
    side: &Side<'_>,
    blocks: &HashMap<(u32, program::BlockId), u32>,
    name: &str,
    at: Va,
) -> Option<u32> {
    let module = side.modules.iter().position(|module| module.name == name)?;
    let id = side.modules.get(module)?.program.block_at(at)?;
    blocks.get(&(u32::try_from(module).ok()?, id)).copied()
}

/// Of the code of a side, by metric: how many of an event an execution of each block came to.
///
/// # Errors
/// If the recording cannot be read, or has no samples.
fn sampled(path: &Path, side: &Side<'_>) -> anyhow::Result<BTreeMap<String, Weights>> {
    let Some(recorded) = Recorded::open(path)? else {
        let hint = "record each build by `engraft sample --event NAME --period 1`, on the same input";
        return Err(Hinted::new(format!("{}: there are no samples in it", path.display()), hint).into());
    };
    let ids: Vec<_> = recorded.images().collect();
    is_of_build(path, &ids, side)?;
    let blocks = blocks(side);
    let mut runs: BTreeMap<u32, u64> = BTreeMap::new();
    for (block, what, n) in side.log.gaps.iter().flat_map(|(_, gap)| gap.counts()) {
        if what == Counted::Run {
            *runs.entry(block).or_default() += n;
        }
    }
    let samples = &recorded.samples;
    if samples.quality.lost > 0 {
        let what = format!("{}: {} samples were lost, and left out", path.display(), samples.quality.lost);
        output::warn(&what, Some("`engraft sample --no-chains` loses fewer"));
    }
    let mut found = BTreeMap::new();
    for (number, event) in (0..).zip(&samples.events) {
        let (mut weights, mut all, mut elsewhere, mut n_samples) = (Weights::new(), 0, 0, 0);
        for (stack, (n_here, n)) in (0..).zip(samples.by_stack(number)) {
            let block = match samples.frames_of(stack).next() {
                Some(Frame::Code { module, at }) => {
                    recorded.module(*module).and_then(|name| block_at(side, &blocks, &name, *at))
                }
                _ => None,
            };
            all += n;
            n_samples += n_here;
            match block.and_then(|block| Some((block, *runs.get(&block)?))) {
                Some((block, times)) => *weights.entry(block).or_default() += number_of(n, times),
                None => elsewhere += n,
            }
        }
        if n_samples < FEW {
            let what =
                format!("{}: {n_samples} samples of {} say next to nothing", path.display(), event.name);
            output::warn(&what, Some("`engraft sample --event NAME --period 1` samples each"));
        }
        if elsewhere > 0 {
            let share = 100.0 * number_of(elsewhere, all);
            let what = format!(
                "{}: {share:.1} % of {} are not in code that was traced, and left out",
                path.display(),
                event.name
            );
            output::warn(&what, None);
        }
        found.insert(format!("{EVENTS}{}", event.name), weights);
    }
    Ok(found)
}

/// Refuses a recording of another build than that of a side; each of its files with what identifies it, if
/// that was kept.
fn is_of_build(path: &Path, files: &[(String, Option<ImageId>)], side: &Side<'_>) -> anyhow::Result<()> {
    let ours = |id: &ImageId| side.modules.iter().any(|module| module.program.image.id == *id);
    let mut known = files.iter().filter_map(|(_, id)| *id).peekable();
    if known.peek().is_none() || known.any(|id| ours(&id)) {
        return Ok(());
    }
    let name = side.modules.first().map_or("", |of| of.name.as_str());
    let what = format!("{} is of another build than the trace of {name}", path.display());
    Err(Hinted::new(what, "record the builds that are compared; or are the old and the new one swapped?")
        .into())
}

/// Fewer samples than that say next to nothing.
const FEW: u64 = 30;

/// So many in so many times.
fn number_of(n: u64, times: u64) -> f64 {
    number(n) / number(times.max(1))
}

/// Of the code of a side: how often an execution of each block touched memory that was not aligned.
///
/// # Errors
/// If the recording cannot be read, or was not made with `--auto`.
fn misaligned(path: &Path, side: &Side<'_>) -> anyhow::Result<Weights> {
    let values = Source::read(path)?.values()?;
    let mut accesses: Vec<(&Place, u8)> = Vec::new();
    for place in values.iter().flat_map(|values| &values.places) {
        if let Some(Watched::Access { width }) = place.watched {
            accesses.push((place, width));
        }
    }
    if accesses.is_empty() {
        let what = format!("{}: nothing is in it of accesses to memory", path.display());
        let hint = "record each build by `engraft values --auto='*'`, on the same input";
        return Err(Hinted::new(what, hint).into());
    }
    let blocks = blocks(side);
    let mut weights = Weights::new();
    for (place, width) in accesses {
        let Some(address) = place.addresses.first() else { continue };
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let block = block_at(side, &blocks, &name(&address.module), Va(address.at));
        let Some(block) = block else { continue };
        let counted = place.columns.first().map(|column| column.values.counted()).unwrap_or_default();
        let is_off = |at: u64| width > 0 && !at.is_multiple_of(u64::from(width));
        let off = counted.iter().filter(|one| is_off(one.bytes.first().copied().unwrap_or_default().into()));
        let n: u64 = off.map(|one| one.count).sum();
        if n > 0 && place.n > 0 {
            *weights.entry(block).or_default() += number(n) / number(place.n);
        }
    }
    Ok(weights)
}

/// How many of each event the functions of both builds have.
pub fn sums(sides: &[Side<'_>; 2], events: &Events) -> Sums {
    let of =
        |weights: &[Weights; 2]| [0, 1].map(|n: usize| matching::compare::weighed(&sides[n], &weights[n]));
    events.iter().map(|(metric, weights)| (metric.clone(), of(weights))).collect()
}
