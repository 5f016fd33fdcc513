//! Functions that only the code itself shows: in the gaps between what unwind ranges and symbols claim.
//!
//! Functions start where something calls or points to, and then, what those do not reach by their own jumps,
//! at places that look like entries: aligned as the file's functions are, after code that does not go on,
//! reading only what a caller provides. A jump to such a place leaves its function if it comes with an empty
//! stack.
//!
//! Not here: the claimed regions (`starts`).

use crate::arch::{ControlFlow, Decoder, StackMove};
use crate::discovery::code::{NO_FUNC, RawCode};
use crate::discovery::prologue::{has_prologue, looks_like_entry};
use crate::discovery::starts::{Finder, Jump, Owner, Start, has};
use crate::discovery::sweep::raw::{RawEnd, RegionKind, Rel};
use crate::model::Origin;
use std::collections::HashSet;
use std::ops::Range;

/// Calls in the gaps that padding follows up to an aligned place to which no jump leads, but where a function
/// may start: no compiler pads code that runs through, so such a call does not return. By call, with the
/// place.
pub fn seams(code: &RawCode<'_>) -> Vec<(Rel, Rel)> {
    let mut found = Vec::new();
    for region in code.regions.iter().filter(|r| r.kind == RegionKind::Gap) {
        let from = code.calls.partition_point(|c| c.at < region.range.start);
        for call in
            code.calls[from..].iter().take_while(|c| c.at < region.range.end).filter(|c| c.transfer.is_call())
        {
            let end = call.end();
            let aligned = end.next_multiple_of(16);
            if aligned == end || aligned >= region.range.end || code.block_from(aligned).is_some() {
                continue;
            }
            if code.only_nops(end..aligned) && has_prologue(code, aligned) && looks_like_entry(code, aligned)
            {
                found.push((call.at, aligned));
            }
        }
    }
    found
}

/// The blocks of a gap from one start to the next.
struct Segment {
    ranks: Range<u32>,
    /// Whether its first block is a known start.
    started: bool,
}

impl Finder<'_, '_> {
    /// Starts in the gaps.
    pub fn gaps(&mut self) {
        let code = self.code;
        let gaps: Vec<Range<Rel>> =
            code.regions.iter().filter(|r| r.kind == RegionKind::Gap).map(|r| r.range.clone()).collect();
        if gaps.is_empty() {
            return;
        }
        let in_gap = |at: Rel| {
            let i = gaps.partition_point(|g| g.end <= at);
            gaps.get(i).is_some_and(|g| g.contains(&at))
        };
        let (certain, aligned) = self.certain_starts(&in_gap);
        let mut jumps = Vec::new();
        for (rank, block) in code.blocks.iter().enumerate() {
            if matches!(block.end, RawEnd::Jump | RawEnd::Branch) && in_gap(block.target) {
                jumps.push((block.target, u32::try_from(rank).unwrap_or(NO_FUNC)));
            }
        }
        jumps.sort_unstable();
        let mut search = Search {
            finder: self,
            jumps,
            aligned,
            padding_tells: false,
            last_round: false,
            seen: vec![0; code.blocks.len()],
            round: 0,
            depths: Vec::new(),
            passed: vec![0; code.blocks.len()],
            n_walks: 0,
            entry_like: vec![None; code.blocks.len()],
            first_jump: Vec::new(),
            starts: certain.into_iter().map(|(at, origin)| (at, Owner::Function(origin))).collect(),
            settled: HashSet::new(),
            found: Vec::new(),
        };
        search.make_first_jump();
        let padded: usize = gaps
            .iter()
            .map(|gap| search.segments(gap))
            .collect::<Vec<_>>()
            .iter()
            .flatten()
            .map(|s| search.padded_within(&s.ranks))
            .sum();
        search.padding_tells = aligned && padded * 25 < search.starts.len();
        for _ in 0..8 {
            let before = search.starts.len();
            for gap in &gaps {
                search.gap(gap);
            }
            let mut found = std::mem::take(&mut search.found);
            search.starts.append(&mut found);
            search.starts.sort_unstable();
            search.starts.dedup_by_key(|s| s.0);
            search.depths.clear();
            if search.starts.len() == before {
                if search.last_round {
                    break;
                }
                search.last_round = true;
            }
        }
        let found = std::mem::take(&mut search.starts);
        self.starts.extend(found.into_iter().map(|(at, owner)| Start { at, owner }));
        self.own_heads(&gaps);
    }

    /// Starts of functions that files or calls tell, by address, and whether functions start at multiples of
    /// 16 here.
    fn certain_starts(&self, in_gap: &impl Fn(Rel) -> bool) -> (Vec<(Rel, Origin)>, bool) {
        let code = self.code;
        let mut certain: Vec<(Rel, Origin)> = Vec::new();
        for s in self.evidence.seeds.iter().filter(|s| in_gap(s.at) && !has(&self.evidence.cold, s.at)) {
            certain.push((s.at, s.origin));
        }
        certain.extend(self.called.iter().filter(|&&at| in_gap(at)).map(|&at| (at, Origin::Called)));
        certain.retain(|c| code.block_from(c.0).is_some());
        let aligned = certain.iter().filter(|c| c.0 % 16 == 0).count();
        let aligned = certain.len() < 8 || aligned * 10 >= certain.len() * 9;
        for &at in self.address_taken.iter().filter(|&&at| in_gap(at) && !has(self.labels, at)) {
            if let Some(rank) = code.block_from(at)
                && !self.fallen_into(rank)
                && looks_like_entry(code, at)
            {
                certain.push((at, Origin::AddressTaken));
            }
        }
        certain.sort_unstable();
        certain.dedup_by_key(|c| c.0);
        (certain, aligned)
    }

    /// Code before the first start of a gap: what falls into it owns it.
    fn own_heads(&mut self, gaps: &[Range<Rel>]) {
        let code = self.code;
        let mut known: Vec<Rel> = self.starts.iter().map(|s| s.at).collect();
        known.sort_unstable();
        for gap in gaps {
            let first = code.first_from(gap.start);
            if code.blocks.get(first).is_some_and(|b| b.start < gap.end) {
                let rank = u32::try_from(first).unwrap_or(NO_FUNC);
                let at = code.blocks[first].start;
                if !has(&known, at) {
                    let owner = if rank > 0 && self.fallen_into(rank) {
                        Owner::PartOf(rank - 1)
                    } else {
                        Owner::Nobody
                    };
                    self.starts.push(Start { at, owner });
                }
            }
        }
    }
}

/// How deep the stack is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    NotAsked,
    Unknown,
    KnownTargets(i32),
}

impl Depth {
    fn of(bytes: i64) -> Depth {
        i32::try_from(bytes).map_or(Depth::Unknown, Depth::KnownTargets)
    }
}

struct Search<'s, 'f, 'a> {
    finder: &'s Finder<'f, 'a>,
    /// All direct jumps and branches into gaps, by target.
    jumps: Vec<Jump>,
    /// Whether functions start at multiples of 16.
    aligned: bool,
    /// Whether padding after code that does not go on tells where functions start.
    padding_tells: bool,
    /// Whether what is undecided must be decided.
    last_round: bool,
    seen: Vec<u32>,
    round: u32,
    /// Depth of the stack at the end of each block, for functions looked at in this round; empty before the
    /// first.
    depths: Vec<Depth>,
    /// The last walk that came through each block, and how many there were.
    passed: Vec<u32>,
    n_walks: u32,
    /// Whether a function may start at each block, by its first instructions, where it was asked.
    entry_like: Vec<Option<bool>>,
    /// The first of `jumps` that leads to each block, or beyond.
    first_jump: Vec<u32>,
    /// By address.
    starts: Vec<(Rel, Owner)>,
    /// Segments that hold one function without doubt.
    settled: HashSet<(u32, u32)>,
    /// Found in this round.
    found: Vec<(Rel, Owner)>,
}

impl Search<'_, '_, '_> {
    fn make_first_jump(&mut self) {
        let mut next = 0;
        for block in &self.finder.code.blocks {
            while self.jumps.get(next).is_some_and(|j| j.0 < block.start) {
                next += 1;
            }
            self.first_jump.push(u32::try_from(next).unwrap_or(u32::MAX));
        }
    }

    /// The direct jumps and branches to the block.
    fn incoming(&self, u: u32) -> &[Jump] {
        let at = self.finder.code.blocks[u as usize].start;
        let from = &self.jumps[self.first_jump[u as usize] as usize..];
        &from[..from.iter().take_while(|j| j.0 == at).count()]
    }

    /// Whether the first instructions of the block could be a function's.
    fn is_entry_like(&mut self, u: u32) -> bool {
        let code = self.finder.code;
        let at = code.blocks[u as usize].start;
        *self.entry_like[u as usize].get_or_insert_with(|| looks_like_entry(code, at))
    }

    fn gap(&mut self, gap: &Range<Rel>) {
        for segment in self.segments(gap) {
            self.segment(&segment);
        }
    }

    /// The blocks of a gap, from start to start.
    fn segments(&self, gap: &Range<Rel>) -> Vec<Segment> {
        let code = self.finder.code;
        let rank = |at: Rel| u32::try_from(code.first_from(at)).unwrap_or(NO_FUNC);
        let from = self.starts.partition_point(|s| s.0 < gap.start);
        let to = self.starts.partition_point(|s| s.0 < gap.end);
        let mut segments = Vec::new();
        let mut cursor = rank(gap.start);
        let mut started = false;
        for (at, _) in &self.starts[from..to] {
            let here = rank(*at);
            if here > cursor {
                segments.push(Segment { ranks: cursor..here, started });
            }
            (cursor, started) = (here, true);
        }
        let end = rank(gap.end);
        if end > cursor {
            segments.push(Segment { ranks: cursor..end, started });
        }
        segments
    }

    fn segment(&mut self, segment: &Segment) {
        if self.settled.contains(&(segment.ranks.start, segment.ranks.end)) {
            return;
        }
        let mut open = false;
        let code = self.finder.code;
        self.round += 1;
        let mut new: Vec<(Rel, Owner)> = Vec::new();
        let mut current = None;
        if segment.started || self.finder.fallen_into(segment.ranks.start) {
            self.reach(segment.ranks.start, &segment.ranks);
            current = Some(segment.ranks.start);
        }
        // What the start does not reach.
        for u in segment.ranks.clone() {
            if self.seen[u as usize] == self.round {
                continue;
            }
            let at = code.blocks[u as usize].start;
            open = true;
            let owner = self.judge(u, current, &segment.ranks);
            if let Some(owner) = owner {
                new.push((at, owner));
                current = Some(u);
            }
            self.reach(u, &segment.ranks);
        }
        // What it reaches by jumps that rather leave it. Those found above are in order.
        let n_above = new.len();
        for u in segment.ranks.clone().skip(1) {
            let at = code.blocks[u as usize].start;
            if new[..n_above].binary_search_by_key(&at, |n| n.0).is_ok()
                || !self.may_start(u)
                || has(self.finder.labels, at)
            {
                continue;
            }
            let incoming = self.incoming(u);
            let padded = self.padding_tells && self.is_padded(u);
            let branches = incoming.iter().any(|j| code.blocks[j.1 as usize].end != RawEnd::Jump);
            if incoming.is_empty() || branches && !(padded && incoming.iter().all(|j| j.1 < u)) {
                continue;
            }
            let incoming = incoming.to_vec();
            open = true;
            // Compilers align what jumps lead to as well: within one stretch of code, a prologue must tell.
            let within = incoming.iter().all(|j| segment.ranks.contains(&j.1));
            if within && !padded && !has_prologue(code, at) {
                continue;
            }
            if self.is_entry_like(u) && incoming.iter().all(|j| self.depth(j.1) == Some(0)) {
                new.push((at, Owner::Function(Origin::TailCalled)));
            }
        }
        if !open && segment.started {
            self.settled.insert((segment.ranks.start, segment.ranks.end));
        }
        self.found.extend(new);
    }

    /// Whether padding lies before the block.
    fn is_padded(&self, u: u32) -> bool {
        let blocks = &self.finder.code.blocks;
        u > 0 && blocks[u as usize - 1].end_rel() < blocks[u as usize].start
    }

    /// Whether the block is the jump that a compiler puts after a call it does not know to be final.
    fn resumes(&self, u: u32) -> bool {
        let block = &self.finder.code.blocks[u as usize];
        block.end == RawEnd::Jump && block.n_insns == 1 && !self.is_padded(u)
    }

    /// Counts blocks within functions that padding precedes though nothing loops to them: gcc aligns these,
    /// clang does not.
    fn padded_within(&mut self, ranks: &Range<u32>) -> usize {
        let within = |u: &u32| {
            let incoming = self.incoming(*u);
            self.is_padded(*u)
                && !self.finder.fallen_into(*u)
                && !incoming.is_empty()
                && incoming.iter().all(|j| j.1 < *u && ranks.contains(&j.1))
        };
        ranks.clone().skip(1).filter(within).count()
    }

    /// Whether a function may start at the block, by what stands before it and by its address.
    fn may_start(&self, u: u32) -> bool {
        let at = self.finder.code.blocks[u as usize].start;
        (!self.aligned || at.is_multiple_of(16)) && !self.finder.fallen_into(u)
    }

    /// What an unreached block is the start of, if of anything.
    fn judge(&mut self, u: u32, current: Option<u32>, own: &Range<u32>) -> Option<Owner> {
        let code = self.finder.code;
        let at = code.blocks[u as usize].start;
        if self.finder.fallen_into(u) && u > own.start {
            return None;
        }
        let incoming: Vec<Jump> = self.incoming(u).iter().filter(|j| !own.contains(&j.1)).copied().collect();
        let cold = has(&self.finder.evidence.cold, at);
        if let Some(&(_, source)) = incoming.first() {
            // Conditional jumps out of functions are rare; to a place where functions start they are such
            // nevertheless.
            let conditional =
                self.may_start(u) && (self.aligned || self.is_padded(u) && has_prologue(code, at));
            let leaves = incoming.iter().any(|j| {
                (conditional || code.blocks[j.1 as usize].end == RawEnd::Jump) && self.depth(j.1) == Some(0)
            });
            if !cold && leaves && self.is_entry_like(u) {
                return Some(Owner::Function(Origin::TailCalled));
            }
            let known = incoming.iter().find(|j| self.depth(j.1).is_some_and(|d| d != 0) || cold);
            if let Some(&(_, source)) = known {
                return Some(Owner::PartOf(source));
            }
            // Perhaps the code that jumps here is yet to be found.
            if !self.last_round {
                return None;
            }
            if self.may_start(u) && self.is_entry_like(u) {
                return Some(Owner::Function(Origin::TailCalled));
            }
            return Some(Owner::PartOf(source));
        }
        let good = self.may_start(u) && !self.resumes(u) && self.is_entry_like(u) && !self.joins(u, own);
        if good || current.is_none() { Some(Owner::Function(Origin::Scored)) } else { None }
    }

    /// Whether control gets from the unreached block into the middle of what was reached already.
    fn joins(&mut self, from: u32, own: &Range<u32>) -> bool {
        let code = self.finder.code;
        self.n_walks += 1;
        let mut n_passed = 1;
        let mut stack = vec![from];
        self.passed[from as usize] = self.n_walks;
        while let Some(b) = stack.pop() {
            let block = &code.blocks[b as usize];
            let falls = block.end.falls_through() && !self.finder.ends_in_final_call(b);
            let jumps = matches!(block.end, RawEnd::Jump | RawEnd::Branch);
            let next = falls.then(|| code.next(b)).flatten();
            let target = jumps.then(|| code.block_from(block.target)).flatten();
            for t in next.into_iter().chain(target) {
                if !own.contains(&t) {
                    continue;
                }
                if self.seen[t as usize] == self.round {
                    // Where functions are aligned, an aligned place may be a function that both jump to.
                    if !(self.aligned && self.may_start(t)) {
                        return true;
                    }
                } else if n_passed < 256
                    && std::mem::replace(&mut self.passed[t as usize], self.n_walks) != self.n_walks
                {
                    n_passed += 1;
                    stack.push(t);
                }
            }
        }
        false
    }

    /// Marks what control reaches from the block within the segment.
    fn reach(&mut self, from: u32, own: &Range<u32>) {
        let code = self.finder.code;
        let mut stack = vec![from];
        while let Some(b) = stack.pop() {
            if !own.contains(&b) || std::mem::replace(&mut self.seen[b as usize], self.round) == self.round {
                continue;
            }
            let block = &code.blocks[b as usize];
            code.pads_of(b, |t| stack.push(t));
            if block.end.falls_through() && !self.finder.ends_in_final_call(b) {
                stack.extend(code.next(b));
            }
            match block.end {
                RawEnd::Jump | RawEnd::Branch => stack.extend(code.block_from(block.target)),
                RawEnd::Switch => {
                    for table in code.tables_of(b) {
                        stack.extend(table.targets.iter().filter_map(|&t| code.block_from(t)));
                    }
                }
                _ => {}
            }
        }
    }

    /// Bytes on the stack at the end of a block, if they can be followed from the start before it.
    fn depth(&mut self, rank: u32) -> Option<i64> {
        let code = self.finder.code;
        self.depths.resize(code.blocks.len(), Depth::NotAsked);
        match self.depths[rank as usize] {
            Depth::NotAsked => {}
            Depth::Unknown => return None,
            Depth::KnownTargets(depth) => return Some(depth.into()),
        }
        let block = &code.blocks[rank as usize];
        let region = code.region_at(block.start).map(|r| code.regions[r].range.clone())?;
        // From function to function: the parts between go with the one before, so that each block is looked
        // at once a round.
        let i = self.starts.partition_point(|s| s.0 <= block.start);
        let within = self.starts[..i].iter().rev().take_while(|s| s.0 >= region.start);
        let is_function = |s: &&(Rel, Owner)| matches!(s.1, Owner::Function(_));
        let from = within.into_iter().find(is_function).map_or(region.start, |s| s.0);
        let next = self.starts[i..].iter().take_while(|s| s.0 < region.end).find(is_function);
        let to = next.map_or(region.end, |s| s.0);
        let first = code.first_from(from);
        let end = code.first_from(to);
        let own = u32::try_from(first).ok()?..u32::try_from(end).ok()?;
        let mut stack = vec![(own.start, 0i64, None::<i64>)];
        self.n_walks += 1;
        self.depths[own.start as usize..own.end as usize].fill(Depth::Unknown);
        while let Some((b, depth, frame)) = stack.pop() {
            if !own.contains(&b)
                || std::mem::replace(&mut self.passed[b as usize], self.n_walks) == self.n_walks
            {
                continue;
            }
            let block = code.blocks[b as usize];
            let Some((depth, frame)) = self.through(b, depth, frame) else { continue };
            self.depths[b as usize] = Depth::of(depth);
            if block.end.falls_through() && !self.finder.ends_in_final_call(b) {
                stack.extend(code.next(b).map(|t| (t, depth, frame)));
            }
            match block.end {
                RawEnd::Jump | RawEnd::Branch => {
                    stack.extend(code.block_from(block.target).map(|t| (t, depth, frame)));
                }
                RawEnd::Switch => {
                    for table in code.tables_of(b) {
                        stack.extend(
                            table
                                .targets
                                .iter()
                                .filter_map(|&t| code.block_from(t))
                                .map(|t| (t, depth, frame)),
                        );
                    }
                }
                _ => {}
            }
        }
        match self.depths[rank as usize] {
            Depth::KnownTargets(depth) => Some(depth.into()),
            _ => None,
        }
    }

    /// Depth and frame pointer after a block.
    fn through(&self, rank: u32, mut depth: i64, mut frame: Option<i64>) -> Option<(i64, Option<i64>)> {
        let code = self.finder.code;
        let block = &code.blocks[rank as usize];
        let va = code.cx.space.va(block.start)..code.cx.space.va(block.end_rel());
        for insn in Decoder::new(code.cx.image.bytes_in(&va)?, va.start) {
            match insn.stack_move() {
                None => {}
                Some(_) if !matches!(insn.flow(), ControlFlow::Next) => {}
                Some(StackMove::By(n)) => depth = depth.wrapping_add(n),
                Some(StackMove::ToFrame) => frame = Some(depth),
                Some(StackMove::FromFrame(plus)) => depth = frame?.wrapping_add(plus),
                Some(StackMove::Unknown) => return None,
            }
        }
        Some((depth, frame))
    }
}
