//! What ran when in both builds: functions are the same that the comparison says are.

use super::Recorded;
use super::trees::{Key, called, key, numbers, weight};
use crate::input::unreadable;
use matching::compare::{Comparison, Side};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use trace::Windows;
use tracing::info_span;
use views::compare::Both;
use views::compare::times::{BothFunction, BothTimes};
use views::show::time::TimeWindow;

/// So many windows a run has at least, if so much ran.
const WINDOWS: usize = 60;
/// So many functions are told apart.
const FUNCTIONS: usize = 8;

/// What both runs did, each in its thread that did most.
///
/// # Errors
/// If a trace cannot be read.
pub fn times(
    recorded: [(&Path, &Recorded); 2],
    sides: &[Side<'_>; 2],
    found: &Comparison,
) -> anyhow::Result<BothTimes> {
    let _span = info_span!("windows").entered();
    let numbers = [0, 1].map(|n| numbers(n, found));
    let mut runs: Vec<Windows> = Vec::new();
    let mut sums: BTreeMap<Key, [u64; 2]> = BTreeMap::new();
    for (n, (path, of)) in recorded.into_iter().enumerate() {
        let weight = |func, before, block| weight(sides[n].code, func, before, block);
        let all = Windows::of(&of.trace, &(0..u64::MAX), WINDOWS, weight);
        let all = all.map_err(|err| unreadable(path, err))?;
        let most = all.into_iter().rev().max_by_key(|of| of.total);
        for (func, own) in most.iter().flat_map(|of| &of.windows).flat_map(|window| &window.own) {
            let sum = sums.entry(key(n, func.0, &numbers[n])).or_default();
            sum[n] = sum[n].saturating_add(*own);
        }
        runs.extend(most);
    }
    let mut sorted: Vec<(Key, [u64; 2])> = sums.into_iter().collect();
    sorted.sort_by_key(|(key, own)| (std::cmp::Reverse(own[0].max(own[1])), *key));
    let others = sorted.split_off(sorted.len().min(FUNCTIONS));
    let places: HashMap<Key, usize> = sorted.iter().map(|(key, _)| *key).zip(0..).collect();
    let mut functions: Vec<BothFunction> = sorted
        .iter()
        .map(|(key, [old, new])| BothFunction {
            function: Some(called(sides, found, *key)),
            old: *old,
            new: *new,
        })
        .collect();
    if !others.is_empty() {
        let sum = |n: usize| others.iter().fold(0, |sum: u64, (_, own)| sum.saturating_add(own[n]));
        functions.push(BothFunction { function: None, old: sum(0), new: sum(1) });
    }
    let windows = |n: usize| {
        let Some(run) = runs.get(n) else { return Vec::new() };
        let window = |(at, window): (u64, &trace::Window)| {
            let mut own = vec![0_u64; functions.len()];
            for (func, more) in &window.own {
                let place = places.get(&key(n, func.0, &numbers[n])).copied().unwrap_or(places.len());
                own.get_mut(place).into_iter().for_each(|own| *own = own.saturating_add(*more));
            }
            let from = at.saturating_mul(run.size);
            TimeWindow { from, to: from.saturating_add(run.size).min(run.total), seconds: None, own }
        };
        (0..).zip(&run.windows).map(window).collect()
    };
    let windows = Both { old: windows(0), new: windows(1) };
    Ok(BothTimes { functions, windows })
}
