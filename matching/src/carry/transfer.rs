//! What the old build's counts say about one function of the new build, before inference.
//!
//! A block's count goes along its matches by their shares; an edge's count goes to the new edge between the
//! matches of its ends, or to the one from which only blocks without a match lead there. What is left goes to
//! what is left. Not here: how contradictions are settled (`infer`).

use crate::carry::CarryOptions;
use crate::carry::complete::{Complete, Knowledge};
use crate::carry::infer::{Estimate, Problem};
use crate::relation::{BlockMatch, BlockMethod, Matching};
use program::{BlockId, Callee, Edge, EdgeKind, FuncId, Loops, Program};
use std::collections::BTreeMap;

/// Cost of a leak that the old build did not have.
const LEAK: u32 = 200;
/// How many blocks without a match are looked through for where an edge leads.
const LOOK_THROUGH: usize = 24;

/// Matches by both sides.
pub(crate) struct Along<'a> {
    pub old: &'a Program,
    pub new: &'a Program,
    pub matching: &'a Matching,
    pub counts: &'a Complete,
    pub options: &'a CarryOptions,
    /// Indexes into the matching's blocks, by old block; `old_first` says where each begins.
    by_old: Vec<u32>,
    old_first: Vec<u32>,
    /// For each new function, the old one.
    from: Vec<Option<FuncId>>,
    /// Executions of calls in the old build, by caller and callee.
    called: BTreeMap<(FuncId, FuncId), u64>,
}

/// What is known of a function before inference, and what it came from.
pub(crate) struct Transferred {
    pub problem: Problem,
    /// Whether anything was matched.
    pub any: bool,
    /// By block: whether it has a match, and whether that is partial.
    pub matched: Vec<Option<Carried>>,
}

/// How a block got its count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    /// Executions that were carried.
    pub count: u64,
    /// Executions of its old blocks, which bound its own if it has only a part of their flow.
    pub most: u64,
    /// How sure it is, `0.0..=1.0`; of several matches, weighted by their counts.
    pub confidence: f32,
    /// Carries only a part of the flow of the old block.
    pub partial: bool,
    /// Matched by its place in the control flow alone.
    pub placed: bool,
}

fn index(i: usize) -> u32 {
    u32::try_from(i).expect("tables have fewer than 2^32 entries")
}

/// The part of a count that goes along a match.
pub(super) fn part(count: u64, share: f32) -> u64 {
    profile::scaled(count, f64::from(share.min(1.0)))
}

impl<'a> Along<'a> {
    pub fn new(
        old: &'a Program,
        new: &'a Program,
        matching: &'a Matching,
        counts: &'a Complete,
        options: &'a CarryOptions,
    ) -> Along<'a> {
        let mut old_first = vec![0_u32; old.blocks.len() + 1];
        for m in &matching.blocks {
            old_first[m.old.index() + 1] += 1;
        }
        for b in 0..old.blocks.len() {
            old_first[b + 1] += old_first[b];
        }
        let mut next = old_first.clone();
        let mut by_old = vec![0; matching.blocks.len()];
        for (i, m) in matching.blocks.iter().enumerate() {
            by_old[next[m.old.index()] as usize] = index(i);
            next[m.old.index()] += 1;
        }
        let mut from = vec![None; new.functions.len()];
        for m in &matching.functions {
            from[m.new.index()] = Some(m.old);
        }
        let mut called: BTreeMap<(FuncId, FuncId), u64> = BTreeMap::new();
        for call in &old.calls {
            if let Callee::Function(callee) = call.callee {
                let times = called.entry((old.block(call.block).func, callee)).or_default();
                *times = times.saturating_add(counts.blocks[call.block.index()]);
            }
        }
        Along { old, new, matching, counts, options, by_old, old_first, from, called }
    }

    /// The old blocks of a new one.
    pub fn olds(&self, new: BlockId) -> &'a [BlockMatch] {
        let all = &self.matching.blocks;
        let from = all.partition_point(|m| m.new < new);
        let to = all.partition_point(|m| m.new <= new);
        &all[from..to]
    }

    /// The new blocks of an old one.
    pub fn news(&self, old: BlockId) -> impl Iterator<Item = &'a BlockMatch> + '_ {
        let range = self.old_first[old.index()] as usize..self.old_first[old.index() + 1] as usize;
        self.by_old[range].iter().map(|&i| &self.matching.blocks[i as usize])
    }

    /// Whether the old function's inside is known.
    fn is_known(&self, old: BlockId) -> bool {
        self.counts.known[self.old.block(old).func.index()] == Knowledge::Inside
    }

    /// What part of the old block's counts goes along a match.
    ///
    /// A callee that was inlined gives what its caller called it for, not what all its callers did.
    pub fn share(&self, m: &BlockMatch) -> f32 {
        if m.method != BlockMethod::Inlined {
            return m.share;
        }
        let (callee, into) = (self.old.block(m.old).func, self.new.block(m.new).func);
        let caller = self.from[into.index()];
        let Some(&times) = caller.and_then(|caller| self.called.get(&(caller, callee))) else {
            return m.share;
        };
        let entered = self.old.entry_block(callee).map_or(0, |b| self.counts.enter[b.index()]);
        let copies = self.news(m.old).filter(|o| self.new.block(o.new).func == into).count();
        #[expect(clippy::cast_possible_truncation, reason = "a share")]
        let share = (times as f64 / entered.max(times).max(1) as f64 / copies.max(1) as f64) as f32;
        share
    }

    /// All that is known of `func` in the new build; `from` is its old function, if it has one.
    pub fn function(&self, func: FuncId, from: Option<FuncId>) -> Transferred {
        let function = self.new.function(func);
        let mut p = Problem::of(self.new, func, LEAK);
        let mut matched: Vec<Option<Carried>> = vec![None; function.n_blocks()];
        let mut any = false;
        for (i, b) in function.block_ids().enumerate() {
            matched[i] = self.block(b, &mut p, i);
            any |= matched[i].is_some();
        }
        if let Some(from) = from.filter(|f| self.counts.known[f.index()] == Knowledge::Inside) {
            self.once_a_call(func, from, &mut p, &mut matched);
        }
        self.split_heads(func, &mut p, &matched);
        let edges = self.new.edge_range(func);
        for (i, b) in function.block_ids().enumerate() {
            if matched[i].is_some_and(|m| !m.partial) {
                self.edges(b, &mut p, edges.start);
            }
        }
        if let Some(from) = from
            && self.counts.known[from.index()] != Knowledge::Nothing
            && let (Some(old_entry), Some(entry)) = (self.old.entry_block(from), self.new.entry_block(func))
        {
            let count = self.counts.enter[old_entry.index()];
            let i = entry.index() - function.blocks.start as usize;
            p.enter[i] = Some(Estimate { count, raise: 40, lower: 80, keep: false });
        }
        Transferred { problem: p, any, matched }
    }

    /// An old block that is several now, with ways past each: together they are entered as often as it ran.
    /// If all but one of the blocks from which they are entered, and that lead nowhere else, have counts,
    /// that one has the rest.
    fn split_heads(&self, func: FuncId, p: &mut Problem, matched: &[Option<Carried>]) {
        let first = self.new.function(func).blocks.start;
        for b in self.new.function(func).block_ids() {
            let bypassed = |m: &&BlockMatch| m.partial && m.method != BlockMethod::ControlFlow;
            let Some(m) = self.olds(b).iter().find(bypassed).filter(|m| self.is_known(m.old)) else {
                continue;
            };
            let members: Vec<BlockId> =
                self.news(m.old).map(|m| m.new).filter(|n| self.new.block(*n).func == func).collect();
            let leads_in = |u: BlockId| self.new.successors(u).iter().any(|e| members.contains(&e.to));
            let heads =
                || self.new.function(func).block_ids().filter(|u| !members.contains(u) && leads_in(*u));
            let (mut rest, mut open) = (self.counts.blocks[m.old.index()], Vec::new());
            for u in heads() {
                if !self.new.successors(u).iter().all(|e| members.contains(&e.to)) {
                    open.clear();
                    break;
                }
                let i = (u.0 - first) as usize;
                match matched[i].filter(|c| !c.partial) {
                    Some(c) => rest = rest.saturating_sub(c.count),
                    None => open.push(i),
                }
            }
            if let [i] = *open.as_slice() {
                let unit = price(m.confidence);
                p.blocks[i] = Estimate { count: rest, raise: unit, lower: unit, keep: false };
            }
        }
    }

    /// What is in no loop runs once a call at most: where its old block was in one, only a part of that one's
    /// flow comes here.
    fn once_a_call(&self, func: FuncId, from: FuncId, p: &mut Problem, matched: &mut [Option<Carried>]) {
        let blocks = || self.old.function(from).block_ids();
        let entered = blocks().map(|b| self.counts.enter[b.index()]).fold(0_u64, u64::saturating_add);
        let more = |most: u64, c: &Option<Carried>| c.is_some_and(|c| c.count > most);
        if entered == 0 || !matched.iter().any(|c| more(entered, c)) {
            return;
        }
        // Not every source counts all calls: what ran in no loop of the old build says how many there were,
        // too.
        let loops = Loops::compute(self.old, from);
        let once = blocks().filter(|&b| loops.block_depth(b) == 0).map(|b| self.counts.blocks[b.index()]);
        let entered = once.fold(entered, u64::max);
        if !matched.iter().any(|c| more(entered, c)) {
            return;
        }
        let loops = Loops::compute(self.new, func);
        for (i, b) in self.new.function(func).block_ids().enumerate() {
            // Code that was inlined in the old build has calls of its own.
            let own = self.olds(b).iter().all(|m| self.old.block(m.old).func == from);
            if let Some(c) = matched[i].as_mut().filter(|c| own && c.count > entered)
                && loops.block_depth(b) == 0
            {
                p.blocks[i] = Estimate::unknown(0);
                *c = Carried { count: entered, most: entered, partial: true, ..*c };
            }
        }
    }

    /// A block's count, and its leaks.
    fn block(&self, b: BlockId, p: &mut Problem, i: usize) -> Option<Carried> {
        let olds = self.olds(b);
        let mut count = 0_u64;
        let (mut enter, mut leave, mut most) = (0_u64, 0_u64, 0_u64);
        let (mut weight, mut confidence) = (0.0_f64, 0.0_f64);
        let mut partial = false;
        let mut placed = true;
        let mut known = 0;
        for m in olds.iter().filter(|m| self.is_known(m.old)) {
            let old = m.old.index();
            let share = self.share(m);
            known += 1;
            most = most.saturating_add(self.counts.blocks[old]);
            let carried = part(self.counts.blocks[old], share);
            count = count.saturating_add(carried);
            enter = enter.saturating_add(part(self.counts.enter[old], share));
            leave = leave.saturating_add(part(self.counts.leave[old], share));
            let mass = carried as f64 + 1.0;
            weight += mass;
            confidence += mass * f64::from(m.confidence);
            partial |= m.partial;
            placed &= m.method == BlockMethod::ControlFlow;
        }
        if known == 0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a mean of confidences")]
        let confidence = (confidence / weight) as f32;
        let unit = price(confidence);
        let ran = count > 0;
        p.blocks[i] = if partial {
            // Between none and all of it: the flow around it says how much, and prediction.
            Estimate::unknown(0)
        } else {
            Estimate { count, raise: if ran { unit } else { 3 * unit }, lower: 2 * unit, keep: ran }
        };
        // Leaks of the old build are known here: an exit block's leaving is free anyway.
        let leaking = |e: &mut Option<Estimate>, count: u64, is_exit: bool| {
            // What part of a leak a part of a flow has is not known.
            if count > 0 && !is_exit && !partial {
                *e = Some(Estimate { count, raise: LEAK, lower: 10, keep: false });
            }
        };
        let is_exit = p.leave[i].is_some_and(|e| e.raise == 0);
        let is_entry = p.enter[i].is_some_and(|e| e.raise == 1);
        leaking(&mut p.leave[i], leave, is_exit);
        leaking(&mut p.enter[i], enter, is_entry);
        Some(Carried { count, most, confidence, partial, placed })
    }

    /// Counts of the edges that leave `b`.
    fn edges(&self, b: BlockId, p: &mut Problem, first_edge: usize) {
        let out = self.new.successors(b);
        let leads: Vec<Vec<BlockId>> = out.iter().map(|e| self.leads_to(e.to)).collect();
        let mut ways = OutgoingEdges::of(out.len());
        let mut left: Vec<(u64, EdgeKind)> = Vec::new();
        let mut known = false;
        for m in self.olds(b).iter().filter(|m| !m.partial && self.is_known(m.old)) {
            known = true;
            let unit = price(m.confidence) * 3 / 5;
            let share = self.share(m);
            // Of a block that became two in a row, the branch is the second's, and all of the flow goes
            // there.
            if let Some(k) = out.iter().position(|e| self.is_second(m.old, b, e.to)) {
                ways.add(k, part(self.counts.blocks[m.old.index()], share), unit);
                continue;
            }
            for e in self.old.edge_ids(m.old) {
                let edge = self.old.edge(e);
                let count = part(self.counts.edges[e.index()], share);
                let to: Vec<BlockId> = self.news(edge.to).map(|t| t.new).collect();
                let hits: Vec<usize> =
                    (0..out.len()).filter(|&k| leads[k].iter().any(|t| to.contains(t))).collect();
                match *hits.as_slice() {
                    [] if count > 0 => left.push((count, edge.kind)),
                    [] => {}
                    [k] => {
                        let direct = to.contains(&out[k].to);
                        ways.add(k, count, if direct { unit } else { unit / 2 });
                    }
                    ref several => ways.add_to_one_of(several, out, &to, edge.kind, count, unit),
                }
            }
        }
        if !known {
            return;
        }
        ways.add_rest(out, &left);
        for (k, id) in self.new.edge_ids(b).enumerate().filter(|&(k, _)| ways.is_explained(k)) {
            let cost = ways.cost[k].max(3);
            p.edge[id.index() - first_edge] =
                Estimate { count: ways.sum[k], raise: cost, lower: cost, keep: false };
        }
    }

    /// Whether `to` is the second part of `old`, of which `from` is the first: control comes to it from there
    /// alone.
    fn is_second(&self, old: BlockId, from: BlockId, to: BlockId) -> bool {
        let firm = |m: &BlockMatch| !m.partial && m.method == BlockMethod::Aligned;
        let mut into = self.new.edge_range(self.new.block(to).func).filter(|&e| self.new.edges[e].to == to);
        to != from
            && self.news(old).any(|m| m.new == to && firm(m))
            && self.news(old).any(|m| m.new == from && m.method != BlockMethod::ControlFlow)
            && into.all(|e| self.new.edges[e].from == from)
    }

    /// Matched blocks to which control comes from `start`, it included, through blocks without a match.
    fn leads_to(&self, start: BlockId) -> Vec<BlockId> {
        let mut found = Vec::new();
        let mut seen = vec![start];
        let mut next = 0;
        while let Some(&b) = seen.get(next) {
            next += 1;
            if self.olds(b).iter().any(|m| !m.partial) {
                found.push(b);
                // What only its place speaks for is looked through all the same.
                if self.olds(b).iter().any(|m| m.method != BlockMethod::ControlFlow) {
                    continue;
                }
            }
            if !self.options.look_through || next > LOOK_THROUGH {
                continue;
            }
            for e in self.new.successors(b) {
                if e.kind != EdgeKind::LandingPad && !seen.contains(&e.to) {
                    seen.push(e.to);
                }
            }
        }
        found
    }
}

/// What is known of the edges that leave one block, by edge.
struct OutgoingEdges {
    /// Executions in the old build.
    sum: Vec<u64>,
    /// Whether an old edge became it for certain.
    explained: Vec<bool>,
    /// Whether an old edge may be it or another one.
    open: Vec<bool>,
    /// What it costs to change its count.
    cost: Vec<u32>,
}

impl OutgoingEdges {
    /// `n` edges of which nothing is known.
    fn of(n: usize) -> OutgoingEdges {
        OutgoingEdges {
            sum: vec![0; n],
            explained: vec![false; n],
            open: vec![false; n],
            cost: vec![u32::MAX; n],
        }
    }

    fn is_explained(&self, k: usize) -> bool {
        self.explained[k] && !self.open[k]
    }

    /// Adds an old edge that became this one.
    fn add(&mut self, k: usize, count: u64, cost: u32) {
        self.sum[k] = self.sum[k].saturating_add(count);
        self.explained[k] = true;
        self.cost[k] = self.cost[k].min(cost);
    }

    /// An old edge of this kind, to what became one of `to`, that may be any of `several` of the edges `out`.
    ///
    /// The same kind of edge straight to the match decides; else the flow must.
    fn add_to_one_of(
        &mut self,
        several: &[usize],
        out: &[Edge],
        to: &[BlockId],
        kind: EdgeKind,
        count: u64,
        unit: u32,
    ) {
        let straight: Vec<usize> = several.iter().copied().filter(|&k| to.contains(&out[k].to)).collect();
        let same: Vec<usize> = straight.iter().copied().filter(|&k| out[k].kind == kind).collect();
        let table = straight.len() > 1 && same.len() == straight.len();
        match (straight.as_slice(), same.as_slice()) {
            (_, &[k]) if several.len() == straight.len() => self.add(k, count, unit),
            (&[k, ..], _) if table => self.add(k, count, unit),
            _ if count == 0 => several.iter().for_each(|&k| self.add(k, 0, unit / 2)),
            _ => several.iter().for_each(|&k| self.open[k] = true),
        }
    }

    /// What went to blocks without a match, by kind of edge, goes to edges that nothing explains.
    fn add_rest(&mut self, out: &[Edge], left: &[(u64, EdgeKind)]) {
        let free: Vec<usize> = (0..out.len()).filter(|&k| !self.explained[k] && !self.open[k]).collect();
        let total = left.iter().fold(0_u64, |sum, l| sum.saturating_add(l.0));
        match *free.as_slice() {
            [] => {}
            [k] => self.add(k, total, 15),
            _ if total == 0 => free.iter().for_each(|&k| self.add(k, 0, 15)),
            _ => {
                for &(count, kind) in left {
                    let same: Vec<usize> = free.iter().copied().filter(|&k| out[k].kind == kind).collect();
                    if let [k] = *same.as_slice() {
                        self.add(k, count, 8);
                    }
                }
            }
        }
    }
}

/// What it costs to change a count carried with this confidence.
fn price(confidence: f32) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 10..=50")]
    let unit = (10.0 + 40.0 * confidence.clamp(0.0, 1.0)) as u32;
    unit
}
