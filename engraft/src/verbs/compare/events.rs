//! Events that no instruction says of itself, from recordings of both builds: memory that was not aligned,
//! by `engraft values --auto`.

use super::fill::number;
use crate::input::Source;
use crate::output::Hinted;
use matching::compare::{Side, Weights};
use profile::values::{Place, Watched};
use program::Va;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use views::compare::{Amount, CompareView, MISALIGNED};

/// Of the code of a side: how often an execution of each block touched memory that was not aligned.
///
/// # Errors
/// If the recording cannot be read, or was not made with `--auto`.
pub fn misaligned(path: &Path, side: &Side<'_>) -> anyhow::Result<Weights> {
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
    // By name of a module, and block of its program: ours.
    let mut blocks = HashMap::new();
    for (n, block) in (0..).zip(&side.code.blocks) {
        blocks.insert(block.id, n);
    }
    let mut weights = Weights::new();
    for (place, width) in accesses {
        let Some(address) = place.addresses.first() else { continue };
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let module = side.modules.iter().position(|module| module.name == name(&address.module));
        let Some(module) = module else { continue };
        let program = side.modules.get(module).map(|module| module.program);
        let id = program.and_then(|program| program.block_at(Va(address.at)));
        let Some(block) = id.and_then(|id| blocks.get(&(u32::try_from(module).ok()?, id))) else { continue };
        let counted = place.columns.first().map(|column| column.values.counted()).unwrap_or_default();
        let is_off = |at: u64| width > 0 && !at.is_multiple_of(u64::from(width));
        let off = counted.iter().filter(|one| is_off(one.bytes.first().copied().unwrap_or_default().into()));
        let n: u64 = off.map(|one| one.count).sum();
        if n > 0 && place.n > 0 {
            *weights.entry(*block).or_default() += number(n) / number(place.n);
        }
    }
    Ok(weights)
}

/// Adds what they come to, of functions and of all, to a view.
pub fn add(view: &mut CompareView, sides: &[Side<'_>; 2], weights: &[Weights; 2]) {
    for n in [0, 1] {
        let mut by_function: BTreeMap<String, f64> = BTreeMap::new();
        for (function, sum) in matching::compare::weighed(&sides[n], &weights[n]) {
            *by_function.entry(super::fill::name(&sides[n], function)).or_default() += sum;
        }
        let amount = |sum: f64| Amount(sum.round());
        let all = by_function.values().fold(0.0, |all, n| all + n);
        let totals = if n == 0 { &mut view.totals.old } else { &mut view.totals.new };
        totals.insert(MISALIGNED.to_owned(), amount(all));
        for row in &mut view.functions {
            let of = if n == 0 { &mut row.old } else { &mut row.new };
            of.insert(MISALIGNED.to_owned(), amount(by_function.get(&row.name).copied().unwrap_or_default()));
        }
    }
}
