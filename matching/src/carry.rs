//! A profile of the old build, carried to the new one along a [`Matching`].
//!
//! Three steps: the old counts are made complete (`complete`), go along the matches (`transfer`), and are
//! made consistent in the new build (`infer`). Functions that only the new build has get their entries from
//! calls in functions that have counts, and their inside from static prediction (`static_prediction`).
//!
//! Invariant: every edge and call of the result is one that the new build has; every function's counts are a
//! flow; what ran and is matched still runs, if any path permits it. The profile of a build carried to itself
//! comes out as it was.
//!
//! Source: BMAT, section 4 (what happens to counts); He et al., POPL 2022 (inference).
//! Not here: what is each other (`compute`), how good the result is (`score`).

mod bounds;
mod calls;
mod complete;
pub(crate) mod infer;
mod judge;
mod learned_prediction;
pub(crate) mod merge;
mod predict;
mod static_prediction;
mod transfer;

use crate::counts::Measured;
use crate::relation::Matching;
pub use bounds::CountRange;
pub(crate) use calls::Calls;
pub(crate) use complete::complete;
pub(crate) use complete::{Complete, Knowledge, WORK};
use infer::{Estimate, Inferred, Problem};
use learned_prediction::{Callees, Learned, Observed};
pub use predict::{Doubt, Expected, Parts, Prediction};
use profile::{Edge as EdgeAt, Exactness, ImageRef, Profile};
use program::{BlockId, Callee, FuncId, Origin, Program, Va};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use transfer::{Along, Carried, Transferred};

/// Which parts of carrying are on. All are, unless their worth is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CarryOptions {
    /// Make counts consistent; off: they are written as they come along the matches.
    pub infer: bool,
    /// Follow edges through blocks without a match.
    pub look_through: bool,
    /// Static prediction where nothing is known.
    pub predict_static: bool,
    /// Counts for functions of the new build only, from the calls to them.
    pub new_functions: bool,
}

impl Default for CarryOptions {
    fn default() -> CarryOptions {
        CarryOptions { infer: true, look_through: true, predict_static: true, new_functions: true }
    }
}

/// The result of carrying a profile.
#[derive(Clone, PartialEq, Debug)]
pub struct CarriedProfile {
    /// The profile of the new build.
    pub profile: Profile,
    /// By start: the bounds of the counts of blocks that have only a part of an old block's flow, or
    /// no match.
    pub ranges: BTreeMap<Va, CountRange>,
    /// How sure each block's count is, by start, 0.0..=1.0: 0 where nothing but inference speaks.
    pub confidence: BTreeMap<Va, f32>,
    /// What was carried and what was lost.
    pub report: CarryReport,
}

/// Why executions of the old build are not in the new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LossReason {
    /// The profile has records that the old build has no place for.
    NotInOld,
    /// The function has no match.
    FunctionUnmatched,
    /// The function has a match, the block has none.
    BlockUnmatched,
    /// Indirect calls and jumps whose block has a match, but they or what they call has none.
    CallUnmatched,
    /// Mispredictions of branches that the new build does not have, or where none is known to go that way.
    BranchUnmatched,
}

/// Executions of one old function that were not carried.
#[derive(Clone, PartialEq, Debug)]
pub struct CarryLoss {
    /// The function; `None` for records that belong to none.
    pub old: Option<FuncId>,
    /// The reason.
    pub reason: LossReason,
    /// Executions of blocks; of calls, or mispredictions, where the reason says so.
    pub count: u64,
    /// Blocks that ran; calls, or branches.
    pub n_blocks: usize,
}

/// What was carried, and what was lost and where. Counts are block executions.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CarryReport {
    /// Block executions in the old profile.
    pub old_count: u64,
    /// How many of those are in blocks that have a match.
    pub carried_count: u64,
    /// Block executions in the new profile.
    pub new_count: u64,
    /// The sum of the changes that inference made to carried counts.
    pub changed_count: u64,
    /// Old functions that ran.
    pub n_functions_ran: usize,
    /// How many of those have a match.
    pub n_functions_carried: usize,
    /// Functions of the new build only that got counts from the calls to them.
    pub n_new_functions: usize,
    /// Functions so large that a cheaper, inexact method made them consistent.
    pub n_inexact: usize,
    /// How well the result is expected to do against a fresh profile.
    pub predicted: Prediction,
    /// What was lost, the largest first.
    pub losses: Vec<CarryLoss>,
}

/// The most that all counts of a profile may add up to: sums of those that were carried, and may be in
/// several blocks, fit. A profile with more is one of smaller counts in the same ratios.
pub(crate) const MOST: u64 = 1 << 56;

/// Carries `profile` of `old` to `new`.
///
/// Shape: the result has a count for every block and edge of every function of which anything is known; calls
/// by instruction and target; entries by entry. Its exactness is [`Exactness::Inferred`].
pub fn carry(
    old: &Program,
    new: &Program,
    matching: &Matching,
    profile: &Profile,
    options: &CarryOptions,
) -> CarriedProfile {
    let profile = &*profile.at_most(MOST);
    let measured = Measured::of(old, profile);
    let counts = complete(old, profile, &measured);
    let calling = crate::counts::evidence::calling(old, profile);
    let along = Along::new(old, new, matching, &counts, options);
    let mut from: Vec<Option<FuncId>> = vec![None; new.functions.len()];
    for m in &matching.functions {
        from[m.new.index()] = Some(m.old);
    }
    let callees = Callees::of(old, &counts);
    let guess = Guess {
        learned: Learned::of(old, &counts, &callees),
        seen: Observed { program: new, callees: &callees, from: Some(&from) },
    };
    let solved: Vec<Option<Solved>> = new
        .func_ids()
        .collect::<Vec<_>>()
        .into_par_iter()
        .map(|f| solve(&along, &guess, f, from[f.index()]))
        .collect();

    let mut result = Complete::none(new);
    let mut carried: Vec<Option<Carried>> = vec![None; new.blocks.len()];
    let mut report = CarryReport::default();
    for (f, s) in solved.into_iter().enumerate() {
        let Some(s) = s else { continue };
        let func = FuncId::at(f);
        result.known[f] = Knowledge::Inside;
        report.n_inexact += usize::from(!s.inferred.optimal);
        result.put(new, func, &s.inferred);
        let first = new.function(func).blocks.start as usize;
        for (i, c) in s.matched.into_iter().enumerate() {
            carried[first + i] = c;
        }
    }
    for (f, old) in from.iter().enumerate() {
        let Some(was) = old.filter(|o| counts.known[o.index()] == Knowledge::Entered) else { continue };
        if let (Knowledge::Nothing, Some(a), Some(b)) =
            (result.known[f], along.old.entry_block(was), new.entry_block(FuncId::at(f)))
        {
            result.known[f] = Knowledge::Entered;
            result.enter[b.index()] = counts.enter[a.index()];
            result.blocks[b.index()] = counts.enter[a.index()];
        }
    }
    let mut calls = Calls::of(&along, profile, &from);
    if options.new_functions {
        report.n_new_functions = enter_new_functions(&along, &guess, &mut result, &from);
    }
    calls.count(new, &result);
    report.losses = calls.losses();
    let ranges = all_ranges(new, &result, &carried);
    account(&along, &measured, &result, &carried, &from, &mut report);
    let confidence = confidences(new, &result, &carried);
    let mut carried = write(new, &result, calls);
    report.losses.extend(calls::mispredicts(&along, profile, &mut carried));
    report.losses.sort_by_key(|l| (std::cmp::Reverse(l.count), l.old));
    let profile = carried;
    let was = predict::OldBuild { program: old, measured: &measured, counts: &counts, calling: &calling };
    report.predicted = predict::predict(&was, new, matching, &profile, &confidence);
    CarriedProfile { profile, ranges, confidence, report }
}

/// What is guessed of the new build's code from the old build's.
struct Guess<'a> {
    learned: Learned,
    seen: Observed<'a>,
}

/// One function of the new build with counts.
struct Solved {
    inferred: Inferred,
    matched: Vec<Option<Carried>>,
}

/// `None`: nothing is known of it.
fn solve(along: &Along<'_>, guess: &Guess<'_>, func: FuncId, from: Option<FuncId>) -> Option<Solved> {
    let known_as = |known| from.is_some_and(|f| along.counts.known[f.index()] == known);
    let known = known_as(Knowledge::Inside);
    if known_as(Knowledge::Entered) {
        return None;
    }
    let Transferred { mut problem, any, matched } = along.function(func, from);
    if !known && !any {
        return None;
    }
    let ran =
        problem.blocks.iter().any(|e| e.count > 0) || problem.enter.iter().flatten().any(|e| e.count > 0);
    if ran && along.options.predict_static {
        judge::fill(&guess.seen, &guess.learned, func, &mut problem, &matched);
        // A part of a flow is no more than the whole of it.
        for (e, c) in problem.blocks.iter_mut().zip(&matched) {
            if let Some(c) = c.filter(|c| c.partial) {
                e.count = e.count.min(c.most);
            }
        }
    }
    let inferred = if along.options.infer { problem.solve(WORK) } else { problem.unchanged() };
    Some(Solved { inferred, matched })
}

/// Functions of the new build only: entered as often as they are called, counted inside by what was learnt.
///
/// New functions call new functions, and each other: rounds, until nothing changes. Returns how many got
/// counts.
fn enter_new_functions(
    along: &Along<'_>,
    guess: &Guess<'_>,
    result: &mut Complete,
    from: &[Option<FuncId>],
) -> usize {
    const ROUNDS: usize = 12;
    let new = along.new;
    let is_new = |f: FuncId| {
        from[f.index()].is_none()
            && result.known[f.index()] == Knowledge::Nothing
            && new.function(f).origin != Origin::Plt
    };
    let to_new: Vec<(&program::Call, FuncId)> = new
        .calls
        .iter()
        .filter_map(|call| match call.callee {
            Callee::Function(f) if is_new(f) && new.block(call.block).func != f => Some((call, f)),
            _ => None,
        })
        .collect();
    let mut before: BTreeMap<FuncId, u64> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let mut entered: BTreeMap<FuncId, u64> = BTreeMap::new();
        for &(call, callee) in &to_new {
            let count = Calls::times(new, result, call);
            if count > 0 {
                let times = entered.entry(callee).or_default();
                *times = times.saturating_add(count);
            }
        }
        // What was entered stays so: those that call each other would come and go.
        for (&f, &count) in &before {
            entered.entry(f).or_insert(count);
        }
        let changed: Vec<(FuncId, u64)> =
            entered.iter().filter(|(f, count)| before.get(f) != Some(count)).map(|(&f, &c)| (f, c)).collect();
        if changed.is_empty() {
            break;
        }
        let solved: Vec<_> = changed
            .into_par_iter()
            .map(|(f, count)| {
                let mut p = Problem::of(new, f, 50);
                let first = new.function(f).blocks.start;
                if let Some(entry) = new.entry_block(f) {
                    p.enter[(entry.0 - first) as usize] =
                        Some(Estimate { count, raise: 50, lower: 100, keep: true });
                }
                judge::fill(&guess.seen, &guess.learned, f, &mut p, &vec![None; new.function(f).n_blocks()]);
                (f, p.solve(WORK))
            })
            .collect();
        for (f, inferred) in solved {
            result.known[f.index()] = Knowledge::Inside;
            result.put(new, f, &inferred);
        }
        before = entered;
    }
    before.len()
}

fn all_ranges(new: &Program, result: &Complete, carried: &[Option<Carried>]) -> BTreeMap<Va, CountRange> {
    let mut ranges = BTreeMap::new();
    for f in new.func_ids().filter(|f| result.known[f.index()] == Knowledge::Inside) {
        let blocks = new.function(f).blocks.start as usize..new.function(f).blocks.end as usize;
        let known: Vec<Option<u64>> = blocks
            .clone()
            .map(|b| {
                let ran = result.blocks[b] > 0;
                carried[b].filter(|c| !c.partial && ran && c.confidence >= FIRM).map(|_| result.blocks[b])
            })
            .collect();
        // What only its place speaks for may as well be new: nothing bounds it but the flow around it.
        let partial = |c: &Carried| c.partial && !c.placed && c.most > 0;
        let most: Vec<u64> =
            blocks.map(|b| carried[b].filter(partial).map_or(u64::MAX, |c| c.most)).collect();
        let entered = new.entry_block(f).map_or(0, |b| result.enter[b.index()]);
        if known.iter().any(Option::is_some) {
            bounds::ranges(new, f, &known, &most, entered, &mut ranges);
        }
    }
    ranges
}

fn confidences(new: &Program, result: &Complete, carried: &[Option<Carried>]) -> BTreeMap<Va, f32> {
    let known = new.func_ids().filter(|f| result.known[f.index()] == Knowledge::Inside);
    let blocks = known.flat_map(|f| new.function(f).block_ids());
    let sure = |b: BlockId| match carried[b.index()] {
        Some(c) if c.partial => c.confidence / 2.0,
        Some(c) => c.confidence,
        None => 0.0,
    };
    blocks.map(|b| (new.block(b).start, sure(b))).collect()
}

/// Counts of blocks matched with this confidence bound the counts of others, if they ran: that a block did
/// not run in the old build says nothing of how often it does in the new one.
const FIRM: f32 = 0.9;

/// The profile of `new` with these counts.
pub(crate) fn write(new: &Program, result: &Complete, calls: Calls) -> Profile {
    let image = &new.image;
    let mut profile = Profile {
        image: ImageRef { name: image.name.clone(), id: Some(image.id), build_id: image.build_id.clone() },
        exactness: Exactness::Inferred,
        calls: calls.counts,
        calls_out: calls.counts_out,
        ..Profile::default()
    };
    for f in new.func_ids().filter(|f| result.known[f.index()] != Knowledge::Nothing) {
        if result.known[f.index()] == Knowledge::Entered {
            if let Some(b) = new.entry_block(f) {
                profile.entries.insert(new.block(b).start, result.enter[b.index()]);
            }
            continue;
        }
        for b in new.function(f).block_ids() {
            let at = new.block(b).start;
            profile.blocks.insert(at, result.blocks[b.index()]);
            let entered = result.enter[b.index()];
            if entered > 0 && (at == new.function(f).entry || new.function(f).entries.contains(&b)) {
                profile.entries.insert(at, entered);
            }
        }
        for e in new.edge_range(f) {
            let edge = &new.edges[e];
            let at = EdgeAt { from: new.block(edge.from).start, to: new.block(edge.to).start };
            let count = profile.edges.entry(at).or_default();
            *count = count.saturating_add(result.edges[e]);
        }
    }
    profile
}

#[cfg(test)]
mod tests;

fn account(
    along: &Along<'_>,
    measured: &Measured,
    result: &Complete,
    carried: &[Option<Carried>],
    from: &[Option<FuncId>],
    report: &mut CarryReport,
) {
    let matched: BTreeSet<FuncId> = from.iter().flatten().copied().collect();
    for f in along.old.func_ids() {
        let mut lost = (0_u64, 0_usize);
        let mut ran = false;
        let mut any = false;
        for b in along.old.function(f).block_ids() {
            let count = along.counts.blocks[b.index()];
            ran |= count > 0;
            report.old_count = report.old_count.saturating_add(count);
            if along.news(b).next().is_some() {
                any |= count > 0;
                report.carried_count = report.carried_count.saturating_add(count);
            } else if count > 0 {
                lost = (lost.0.saturating_add(count), lost.1 + 1);
            }
        }
        report.n_functions_ran += usize::from(ran);
        report.n_functions_carried += usize::from(ran && (any || matched.contains(&f)));
        if lost.1 > 0 {
            let reason = if any || matched.contains(&f) {
                LossReason::BlockUnmatched
            } else {
                LossReason::FunctionUnmatched
            };
            report.losses.push(CarryLoss { old: Some(f), reason, count: lost.0, n_blocks: lost.1 });
        }
    }
    let not_in_old = measured.lost.iter().fold(0_u64, |sum, l| sum.saturating_add(l.count));
    if !measured.lost.is_empty() {
        report.losses.push(CarryLoss {
            old: None,
            reason: LossReason::NotInOld,
            count: not_in_old,
            n_blocks: measured.lost.len(),
        });
    }
    report.new_count = result.blocks.iter().fold(0, |sum, &count| sum.saturating_add(count));
    for (b, c) in carried.iter().enumerate() {
        if let Some(c) = c.filter(|c| !c.partial) {
            let changed = c.count.abs_diff(result.blocks[BlockId::at(b).index()]);
            report.changed_count = report.changed_count.saturating_add(changed);
        }
    }
}
