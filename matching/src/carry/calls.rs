//! Calls and mispredictions of the new build: what is known of them beyond the counts of blocks and edges.
//!
//! Direct calls run as often as their block, those of imports through their slots too; indirect ones go where
//! their matches went. Mispredictions go along with their edges.
//!
//! Invariant: what is in the old profile and not in the new one is among the losses, or its block is.

use crate::carry::transfer::{Along, part};
use crate::carry::{CarryLoss, Complete, Knowledge, LossReason};
use profile::{Edge as EdgeAt, Profile};
use program::{BlockId, CallKind, Callee, FuncId, Program, Va};
use std::collections::{BTreeMap, BTreeSet};

/// Number and summed counts of lost calls, by function.
type Lost = BTreeMap<FuncId, (usize, u64)>;

fn losses(lost: Lost, reason: LossReason) -> Vec<CarryLoss> {
    let loss = |(f, (n_blocks, count))| CarryLoss { old: Some(f), reason, count, n_blocks };
    lost.into_iter().map(loss).collect()
}

/// Calls of the new build: direct ones run as often as their block, indirect ones go where their matches
/// went.
pub(crate) struct Calls {
    /// By calling instruction: targets and their share of the block's executions.
    indirect: BTreeMap<Va, Vec<(Va, f64)>>,
    /// By calling instruction: the share that leaves the image, or goes where nothing is known.
    out: BTreeMap<Va, f64>,
    /// Executions by calling instruction and target.
    pub counts: BTreeMap<(Va, Va), u64>,
    /// Executions by calling instruction, of calls without a target in the image.
    pub counts_out: BTreeMap<Va, u64>,
    lost: Lost,
}

impl Calls {
    pub fn of(along: &Along<'_>, profile: &Profile, from: &[Option<FuncId>]) -> Calls {
        let mut to_new: Vec<Option<FuncId>> = vec![None; along.old.functions.len()];
        for (new, old) in from.iter().enumerate() {
            if let Some(old) = old {
                to_new[old.index()] = Some(FuncId::at(new));
            }
        }
        let mut calls = Calls::none();
        let mut placed: BTreeSet<Va> = BTreeSet::new();
        for m in &along.matching.blocks {
            let is_indirect = |c: &&program::Call| matches!(c.callee, Callee::Indirect);
            let old: Vec<_> = along.old.calls_in(m.old).iter().filter(is_indirect).collect();
            let new: Vec<_> = along.new.calls_in(m.new).iter().filter(is_indirect).collect();
            if old.len() != new.len() {
                continue;
            }
            let times = along.counts.blocks[m.old.index()].max(1) as f64;
            for (o, n) in old.into_iter().zip(new) {
                placed.insert(o.at);
                for (&(_, target), &count) in profile.calls.range((o.at, Va(0))..=(o.at, Va(u64::MAX))) {
                    let callee = along.old.function_from(target).and_then(|f| to_new[f.index()]);
                    if let Some(callee) = callee {
                        let entry = along.new.function(callee).entry;
                        let targets: &mut Vec<(Va, f64)> = calls.indirect.entry(n.at).or_default();
                        match targets.iter_mut().find(|t| t.0 == entry) {
                            Some(t) => t.1 = t.1.max(count as f64 / times),
                            None => targets.push((entry, count as f64 / times)),
                        }
                    }
                }
                if let Some(&count) = profile.calls_out.get(&o.at) {
                    let share = calls.out.entry(n.at).or_insert(0.0);
                    *share = share.max(count as f64 / times);
                }
            }
        }
        let known = profile.calls.iter().map(|(&(at, to), &count)| (at, Some(to), count));
        for (at, to, count) in known.chain(profile.calls_out.iter().map(|(&at, &count)| (at, None, count))) {
            let Some(block) = along.old.block_at(at) else { continue };
            let call = along.old.calls_in(block).iter().find(|c| c.at == at);
            // Direct calls follow from their blocks, and blocks without a match are lost as blocks.
            if call.is_some_and(|c| c.callee != Callee::Indirect) || along.news(block).next().is_none() {
                continue;
            }
            let reached =
                to.is_none_or(|to| along.old.function_from(to).is_some_and(|f| to_new[f.index()].is_some()));
            if count > 0 && !(reached && placed.contains(&at)) {
                let lost = calls.lost.entry(along.old.block(block).func).or_default();
                *lost = (lost.0 + 1, lost.1.saturating_add(count));
            }
        }
        calls
    }

    /// Indirect calls as both profiles of `new` have them: by the one that saw the call, else the other.
    pub fn like(new: &Program, carried: &Profile, fresh: &Profile) -> Calls {
        let mut calls = Calls::none();
        for profile in [fresh, carried] {
            for (&at, &count) in &profile.calls_out {
                let Some(block) = new.block_at(at) else { continue };
                let times = profile.blocks.get(&new.block(block).start).copied().unwrap_or(count).max(1);
                calls.out.entry(at).or_insert(count as f64 / times as f64);
            }
            let mut mine: BTreeMap<Va, Vec<(Va, f64)>> = BTreeMap::new();
            for (&(at, to), &count) in &profile.calls {
                let Some(block) = new.block_at(at) else { continue };
                let times = profile.blocks.get(&new.block(block).start).copied().unwrap_or(count).max(1);
                mine.entry(at).or_default().push((to, count as f64 / times as f64));
            }
            for (at, targets) in mine {
                calls.indirect.entry(at).or_insert(targets);
            }
        }
        calls
    }

    /// No calls.
    fn none() -> Calls {
        Calls {
            indirect: BTreeMap::new(),
            out: BTreeMap::new(),
            counts: BTreeMap::new(),
            counts_out: BTreeMap::new(),
            lost: Lost::new(),
        }
    }

    /// Calls of the old build that could not be taken along.
    pub fn losses(&mut self) -> Vec<CarryLoss> {
        losses(std::mem::take(&mut self.lost), LossReason::CallUnmatched)
    }

    /// How often a direct call ran.
    pub fn times(new: &Program, result: &Complete, call: &program::Call) -> u64 {
        let block = result.blocks[call.block.index()];
        match call.kind {
            CallKind::Call | CallKind::TailCall => block,
            // A branch out of a function that runs on otherwise: the rare way out.
            CallKind::BranchTailCall
                if new.calls_in(call.block).iter().any(|c| c.kind == CallKind::FallThrough) =>
            {
                0
            }
            CallKind::BranchTailCall | CallKind::FallThrough => {
                let out = new
                    .edge_ids(call.block)
                    .fold(0_u64, |sum, e| sum.saturating_add(result.edges[e.index()]));
                block.saturating_sub(out)
            }
        }
    }

    /// Fills in `counts` from the counts of blocks.
    pub fn count(&mut self, new: &Program, result: &Complete) {
        for call in &new.calls {
            let times = Calls::times(new, result, call);
            // What runs on into the next function makes no record of a transfer.
            if times == 0 || call.kind == CallKind::FallThrough {
                continue;
            }
            match call.callee {
                Callee::Function(f) => {
                    self.counts.insert((call.at, new.function(f).entry), times);
                }
                Callee::Indirect => {
                    for &(to, share) in self.indirect.get(&call.at).into_iter().flatten() {
                        let count = share_of(times, share);
                        if count > 0 {
                            self.counts.insert((call.at, to), count);
                        }
                    }
                    let share = self.out.get(&call.at).copied().unwrap_or(0.0);
                    if share_of(times, share) > 0 {
                        self.counts_out.insert(call.at, share_of(times, share));
                    }
                }
                // Of a function that was only entered nothing inside is known, nor what it calls.
                Callee::Import(_) | Callee::Unknown(_)
                    if result.known[new.block(call.block).func.index()] == Knowledge::Inside =>
                {
                    self.counts_out.insert(call.at, times);
                }
                Callee::Import(_) | Callee::Unknown(_) => {}
            }
        }
    }
}

fn share_of(times: u64, share: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count is a count"
    )]
    let count = (times as f64 * share).round() as u64;
    count
}

/// Puts the mispredictions of `profile` at the edges that `carried` has in their place. Returns those that
/// found none.
pub(super) fn mispredicts(along: &Along<'_>, profile: &Profile, carried: &mut Profile) -> Vec<CarryLoss> {
    let mut lost = Lost::new();
    let start = |b: BlockId| along.new.block(b).start;
    for (edge, &misses) in profile.mispredicts.iter().filter(|(_, n)| **n > 0) {
        let (Some(from), Some(to)) = (along.old.block_from(edge.from), along.old.block_from(edge.to)) else {
            continue;
        };
        if along.news(from).next().is_none() {
            continue;
        }
        let mut placed = false;
        for m in along.news(from) {
            let leads = |e: &&program::Edge| along.news(to).any(|t| t.new == e.to);
            let Some(e) = along.new.successors(m.new).iter().find(leads) else { continue };
            let at = EdgeAt { from: start(e.from), to: start(e.to) };
            let ran = carried.edges.get(&at).copied().unwrap_or(0);
            if ran > 0 {
                placed = true;
                let sum = carried.mispredicts.entry(at).or_default();
                *sum = sum.saturating_add(part(misses, along.share(m))).min(ran);
            }
        }
        if !placed {
            let lost = lost.entry(along.old.block(from).func).or_default();
            *lost = (lost.0 + 1, lost.1.saturating_add(misses));
        }
    }
    losses(lost, LossReason::BranchUnmatched)
}
