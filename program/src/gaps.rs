//! Which blocks make up which function, where nothing but the code itself may say so.
//!
//! Code with unwind ranges or sized symbols is one function a range; parts that begin in the middle of a function (`.cold`) go to
//! the function that jumps there. In the gaps, functions start where something calls or points to, and then, what those do not
//! reach by their own jumps, at places that look like entries: aligned as the file's functions are, after code that does
//! not go on, reading only what a caller provides. A jump to such a place leaves its function if it comes with an empty stack.
//!
//! Invariant: every start is a block's start; a block belongs to the last start at or below it within its region.

use crate::arch::{Decoder, Flow, Insn, Operand, RegSet, StackMove, Step};
use crate::code::{Code, NO_FUNC, Proto};
use crate::discover::{Pointer, Seed};
use crate::model::Origin;
use crate::sweep::{How, RawEnd, RegionKind, Rel};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Where the blocks of a function, or of a part of one, start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Start {
    at: Rel,
    is: Is,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Is {
    Function(Origin),
    /// A further range of the function that the block of this rank belongs to.
    PartOf(u32),
    /// No function's.
    Nobody,
}

/// What the file says of starts, and what was found.
pub struct Evidence {
    /// By address, one a place.
    pub seeds: Vec<Seed>,
    /// Words of data that point to code, by target.
    pub pointers: Vec<Pointer>,
    /// Starts of symbols that name a part (`f.cold`), sorted.
    pub cold: Vec<Rel>,
}

/// A jump, by target.
type Jump = (Rel, u32);

/// Gives every block its function, and makes the list of functions, by entry.
pub fn partition(code: &mut Code<'_>, evidence: &Evidence) {
    let mut finder = Finder::new(code, evidence);
    finder.claimed();
    finder.parts();
    finder.gaps();
    let Finder { mut starts, entries, .. } = finder;
    starts.sort_unstable();
    starts.dedup_by_key(|s| s.at);
    assign(code, &starts);
    let mut entries: Vec<Rel> = entries;
    // Whatever one function jumps to in the middle of another is an entry of that one.
    for (rank, block) in code.blocks.iter().enumerate() {
        if matches!(block.end, RawEnd::Jump | RawEnd::Branch)
            && let Some(to) = code.block_from(block.target)
            && code.owner[to as usize] != code.owner[rank]
        {
            entries.push(block.target);
        }
    }
    entries.extend(
        code.calls
            .iter()
            .filter(|c| c.how == How::Direct)
            .map(|c| c.target)
            .filter(|&t| code.block_from(t).is_some()),
    );
    entries.sort_unstable();
    entries.dedup();
    let by_entry: Vec<Rel> = code.funcs.iter().map(|f| f.entry).collect();
    entries.retain(|e| by_entry.binary_search(e).is_err());
    code.entries = entries;
}

/// Fills `funcs` and `owner` from the starts.
fn assign(code: &mut Code<'_>, starts: &[Start]) {
    code.funcs.clear();
    let mut func_of: Vec<u32> = vec![NO_FUNC; starts.len()];
    for (i, start) in starts.iter().enumerate() {
        if let Is::Function(origin) = start.is {
            func_of[i] = u32::try_from(code.funcs.len()).unwrap_or(NO_FUNC);
            let stub = code.region_at(start.at).and_then(|r| match code.regions[r].kind {
                RegionKind::Plt(i) => Some(i),
                _ => None,
            });
            let import_returns = stub.map(|i| {
                let import = code.cx.image.plt.get(i as usize).and_then(|s| s.import.as_deref());
                !import.is_some_and(crate::noreturn::never_returns)
            });
            code.funcs.push(Proto { entry: start.at, origin, import_returns, stub, returns: true });
        }
    }
    // The start of each block; regions without one own nothing.
    let mut start_of: Vec<u32> = Vec::with_capacity(code.blocks.len());
    let (mut s, mut r) = (0, 0);
    for block in &code.blocks {
        while starts.get(s).is_some_and(|x| x.at <= block.start) {
            s += 1;
        }
        while code.regions.get(r).is_some_and(|x| x.range.end <= block.start) {
            r += 1;
        }
        let inside =
            s.checked_sub(1).filter(|&s| code.regions.get(r).is_some_and(|x| x.range.start <= starts[s].at));
        start_of.push(inside.map_or(NO_FUNC, |s| u32::try_from(s).unwrap_or(NO_FUNC)));
    }
    // A part belongs where the block belongs that leads to it, perhaps through other parts.
    for i in 0..starts.len() {
        let mut at = i;
        for _ in 0..16 {
            match starts[at].is {
                Is::PartOf(rank) => match start_of.get(rank as usize) {
                    Some(&s) if s != NO_FUNC => at = s as usize,
                    _ => break,
                },
                _ => break,
            }
        }
        func_of[i] = func_of[at];
    }
    code.owner.clear();
    code.owner.extend(start_of.iter().map(|&s| func_of.get(s as usize).copied().unwrap_or(NO_FUNC)));
}

struct Finder<'f, 'a> {
    code: &'f Code<'a>,
    evidence: &'f Evidence,
    starts: Vec<Start>,
    entries: Vec<Rel>,
    /// Targets of direct calls, sorted.
    called: Vec<Rel>,
    /// Code whose address is taken, sorted.
    taken: Vec<Rel>,
    /// Direct jumps and branches that lead to another region, by target.
    crossing: Vec<Jump>,
    /// Targets of tables, sorted.
    labels: Vec<Rel>,
}

fn has(sorted: &[Rel], at: Rel) -> bool {
    sorted.binary_search(&at).is_ok()
}

fn among<'x>(jumps: &'x [Jump], range: &Range<Rel>) -> &'x [Jump] {
    let from = jumps.partition_point(|j| j.0 < range.start);
    let to = jumps.partition_point(|j| j.0 < range.end);
    &jumps[from..to.max(from)]
}

impl<'f, 'a> Finder<'f, 'a> {
    fn new(code: &'f Code<'a>, evidence: &'f Evidence) -> Finder<'f, 'a> {
        let mut labels: Vec<Rel> = code.tables.iter().flat_map(|t| t.targets.iter().copied()).collect();
        labels.sort_unstable();
        labels.dedup();
        let mut words: Vec<Range<Rel>> = code
            .tables
            .iter()
            .map(|t| {
                let from = code.cx.space.rel(t.at);
                from..from
                    .saturating_add(u32::try_from(t.targets.len() * usize::from(t.entry_len)).unwrap_or(0))
            })
            .collect();
        words.sort_unstable_by_key(|w| w.start);
        let in_table = |at: Rel| {
            let i = words.partition_point(|w| w.start <= at);
            i > 0 && words[i - 1].contains(&at)
        };
        let mut called: Vec<Rel> = code
            .calls
            .iter()
            .filter(|c| c.how == How::Direct && c.target != c.end())
            .map(|c| c.target)
            .collect();
        called.sort_unstable();
        called.dedup();
        let mut taken: Vec<Rel> =
            evidence.pointers.iter().filter(|p| !in_table(p.from)).map(|p| p.to).collect();
        taken.extend(code.code_refs.iter().map(|r| r.to));
        taken.sort_unstable();
        taken.dedup();
        let mut crossing = Vec::new();
        let mut r = 0;
        for (rank, block) in code.blocks.iter().enumerate() {
            while code.regions.get(r).is_some_and(|x| x.range.end <= block.start) {
                r += 1;
            }
            let Some(region) = code.regions.get(r) else { break };
            if matches!(block.end, RawEnd::Jump | RawEnd::Branch) && !region.range.contains(&block.target) {
                crossing.push((block.target, u32::try_from(rank).unwrap_or(NO_FUNC)));
            }
        }
        crossing.sort_unstable();
        Finder { code, evidence, starts: Vec::new(), entries: Vec::new(), called, taken, crossing, labels }
    }

    fn start(&mut self, at: Rel, origin: Origin) {
        self.starts.push(Start { at, is: Is::Function(origin) });
    }

    /// Whether control can fall into the block from the one before.
    fn fallen_into(&self, rank: u32) -> bool {
        let Some(before) = rank.checked_sub(1) else { return false };
        let block = &self.code.blocks[before as usize];
        block.end.falls_through() && self.code.next(before).is_some() && !self.ends_in_final_call(before)
    }

    /// The block that control falls from into the one at `at`, with neither padding nor a call between.
    fn continues(&self, at: Rel) -> Option<u32> {
        let rank = self.code.block_from(at)?;
        let before = rank.checked_sub(1).filter(|_| self.fallen_into(rank))?;
        let block = &self.code.blocks[before as usize];
        let call = self.code.calls_in(before).last().is_some_and(|c| c.end() == block.end_rel());
        (block.end_rel() == at && !call).then_some(before)
    }

    /// Whether the last instruction of the block is a call that does not return.
    fn ends_in_final_call(&self, rank: u32) -> bool {
        self.code.blocks[rank as usize].end == RawEnd::FallThrough
            && !self.code.never.is_empty()
            && self.code.calls_in(rank).iter().any(|c| has(&self.code.never, c.at))
    }

    fn is_seed(&self, at: Rel) -> bool {
        self.evidence.seeds.binary_search_by_key(&at, |s| s.at).is_ok()
    }

    /// Starts in regions that unwind ranges, symbols and stubs claim.
    fn claimed(&mut self) {
        let code = self.code;
        for region in &code.regions {
            let at = region.range.start;
            match region.kind {
                RegionKind::Plt(_) => self.start(at, Origin::Plt),
                RegionKind::Unwind { at_entry } => {
                    let seed = self.evidence.seeds.binary_search_by_key(&at, |s| s.at).ok();
                    let seed = seed.map(|i| self.evidence.seeds[i]);
                    if !self.is_part(&region.range, at_entry) {
                        self.start(at, seed.map_or(Origin::Unwind, |s| s.origin.min(Origin::Unwind)));
                    }
                }
                RegionKind::Symbol => {
                    if !self.is_part(&region.range, true) {
                        self.start(at, Origin::Symbol);
                    }
                }
                RegionKind::PltHeader | RegionKind::Gap => {}
            }
        }
        // What is entered in the middle of a claimed region.
        let seeds = self.evidence.seeds.iter().map(|s| (s.at, Some(s.origin)));
        let called = self.called.iter().map(|&at| (at, None));
        let all: Vec<(Rel, Option<Origin>)> = seeds.chain(called).collect();
        for (at, origin) in all {
            let Some(region) = code.region_at(at).map(|r| &code.regions[r]) else { continue };
            if matches!(region.kind, RegionKind::Gap | RegionKind::PltHeader | RegionKind::Plt(_))
                || region.range.start == at
            {
                continue;
            }
            let Some(rank) = code.block_from(at) else { continue };
            if has(&self.evidence.cold, at) {
                continue;
            }
            if self.fallen_into(rank)
                || origin.is_none()
                    && code.blocks[rank as usize].targeted
                    && self.jumped_to_within(&region.range, at)
            {
                self.entries.push(at);
            } else {
                self.start(at, origin.unwrap_or(Origin::Called));
            }
        }
        for &at in &self.taken {
            let Some(region) = code.region_at(at).map(|r| &code.regions[r]) else { continue };
            let claimed = matches!(region.kind, RegionKind::Unwind { .. } | RegionKind::Symbol);
            if claimed && region.range.start != at && !has(&self.labels, at) && code.block_from(at).is_some()
            {
                self.entries.push(at);
            }
        }
        for &(at, _) in &self.crossing {
            let Some(region) = code.region_at(at).map(|r| &code.regions[r]) else { continue };
            let claimed = matches!(region.kind, RegionKind::Unwind { .. } | RegionKind::Symbol);
            if claimed && region.range.start != at && code.block_from(at).is_some() {
                self.entries.push(at);
            }
        }
    }

    fn jumped_to_within(&self, range: &Range<Rel>, at: Rel) -> bool {
        let from = self.code.first_from(range.start);
        let blocks = self.code.blocks[from..].iter().take_while(|b| b.start < range.end);
        blocks.into_iter().any(|b| matches!(b.end, RawEnd::Jump | RawEnd::Branch) && b.target == at)
    }

    /// Whether a claimed range is a further part of some function.
    fn is_part(&self, range: &Range<Rel>, at_entry: bool) -> bool {
        let at = range.start;
        if has(&self.evidence.cold, at) {
            return true;
        }
        if self.is_seed(at) || has(&self.called, at) || has(&self.taken, at) {
            return false;
        }
        let inward = among(&self.crossing, range);
        if !at_entry {
            return true;
        }
        if self.continues(at).is_some() {
            return true;
        }
        let Some(&(_, source)) = inward.first() else { return false };
        // Jumps from one function only, and the two lead into each other's middle.
        let Some(home) = self.code.region_at(self.code.blocks[source as usize].start) else { return false };
        let home = &self.code.regions[home];
        let whole = !matches!(home.kind, RegionKind::Gap | RegionKind::Unwind { at_entry: false });
        let larger = home.range.end - home.range.start > range.end - range.start;
        if !whole
            || !larger
            || inward.iter().any(|j| !home.range.contains(&self.code.blocks[j.1 as usize].start))
        {
            return false;
        }
        let into_middle = inward.iter().any(|j| j.0 != at);
        let back =
            among_sources(self.code, range).any(|to| home.range.contains(&to) && to != home.range.start);
        // Compilers' functions are aligned, and conditional jumps to them are rare.
        let branches = inward.iter().all(|j| self.code.blocks[j.1 as usize].end == RawEnd::Branch);
        into_middle || back || branches && !at.is_multiple_of(16)
    }

    /// Gives the parts among the claimed regions to the blocks that lead there.
    fn parts(&mut self) {
        let code = self.code;
        let mut known: Vec<Rel> = self.starts.iter().map(|s| s.at).collect();
        known.sort_unstable();
        for region in &code.regions {
            if !matches!(region.kind, RegionKind::Unwind { .. } | RegionKind::Symbol)
                || has(&known, region.range.start)
            {
                continue;
            }
            let range = &region.range;
            let outside = |rank: u32| !range.contains(&code.blocks[rank as usize].start);
            // The region most jumps come from, the first of equals.
            let mut votes: Vec<(Rel, u32, usize)> = Vec::new();
            let mut vote = |rank: u32| {
                let Some(home) = code.region_at(code.blocks[rank as usize].start) else { return };
                let home = code.regions[home].range.start;
                match votes.iter_mut().find(|v| v.0 == home) {
                    Some(v) => v.2 += 1,
                    None => votes.push((home, rank, 1)),
                }
            };
            for &(_, source) in among(&self.crossing, range) {
                if outside(source) {
                    vote(source);
                }
            }
            if votes.is_empty()
                && let Some(before) = self.continues(range.start)
            {
                votes.push((0, before, 1));
            }
            if votes.is_empty() {
                for table in &code.tables {
                    if table.targets.iter().any(|t| range.contains(t))
                        && let Some(rank) = code.block_at(table.jump).filter(|&r| outside(r))
                    {
                        let home = code.blocks[rank as usize].start;
                        if code.region_at(home).is_some() {
                            votes.push((home, rank, 1));
                        }
                    }
                }
            }
            if votes.is_empty() {
                for to in among_sources(code, range) {
                    if let Some(rank) = code.block_from(to).filter(|&r| outside(r)) {
                        votes.push((to, rank, 1));
                    }
                }
            }
            let best = votes.iter().max_by_key(|v| (v.2, std::cmp::Reverse(v.0)));
            let is = best.map_or(Is::Function(Origin::Unwind), |v| Is::PartOf(v.1));
            self.starts.push(Start { at: range.start, is });
        }
    }
}

/// Where jumps in `range` lead outside it.
fn among_sources<'x>(code: &'x Code<'_>, range: &'x Range<Rel>) -> impl Iterator<Item = Rel> + 'x {
    let from = code.first_from(range.start);
    code.blocks[from..]
        .iter()
        .take_while(|b| b.start < range.end)
        .filter(|b| matches!(b.end, RawEnd::Jump | RawEnd::Branch) && !range.contains(&b.target))
        .map(|b| b.target)
}

/// A gap's blocks from one start to the next.
struct Segment {
    ranks: Range<u32>,
    /// Whether its first block is a known start.
    started: bool,
}

impl Finder<'_, '_> {
    /// Starts in the gaps.
    fn gaps(&mut self) {
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
        let mut certain: Vec<(Rel, Origin)> = Vec::new();
        for s in self.evidence.seeds.iter().filter(|s| in_gap(s.at) && !has(&self.evidence.cold, s.at)) {
            certain.push((s.at, s.origin));
        }
        certain.extend(self.called.iter().filter(|&&at| in_gap(at)).map(|&at| (at, Origin::Called)));
        certain.retain(|c| code.block_from(c.0).is_some());
        let aligned = certain.iter().filter(|c| c.0 % 16 == 0).count();
        let aligned = certain.len() < 8 || aligned * 10 >= certain.len() * 9;
        for &at in self.taken.iter().filter(|&&at| in_gap(at) && !has(&self.labels, at)) {
            if let Some(rank) = code.block_from(at)
                && !self.fallen_into(rank)
                && self.looks_like_entry(at)
            {
                certain.push((at, Origin::AddressTaken));
            }
        }
        certain.sort_unstable();
        certain.dedup_by_key(|c| c.0);
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
            seen: vec![0; code.blocks.len()],
            round: 0,
            depths: HashMap::new(),
            starts: certain.into_iter().map(|(at, origin)| (at, Is::Function(origin))).collect(),
            found: Vec::new(),
        };
        let padded: usize = gaps
            .iter()
            .map(|gap| search.segments(gap))
            .collect::<Vec<_>>()
            .iter()
            .flatten()
            .map(|s| search.padded_within(&s.ranks))
            .sum();
        search.padding_tells = aligned && padded * 25 < search.starts.len();
        for _ in 0..4 {
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
                break;
            }
        }
        let found = std::mem::take(&mut search.starts);
        self.starts.extend(found.into_iter().map(|(at, is)| Start { at, is }));
        // Code before the first start of a gap: what falls into it owns it.
        for gap in &gaps {
            let first = code.first_from(gap.start);
            if code.blocks.get(first).is_some_and(|b| b.start < gap.end) {
                let rank = u32::try_from(first).unwrap_or(NO_FUNC);
                let at = code.blocks[first].start;
                if !self.starts.iter().any(|s| s.at == at) {
                    let is =
                        if rank > 0 && self.fallen_into(rank) { Is::PartOf(rank - 1) } else { Is::Nobody };
                    self.starts.push(Start { at, is });
                }
            }
        }
    }

    /// Whether the code at `at` saves registers or makes room on the stack at once.
    fn has_prologue(&self, at: Rel) -> bool {
        let va = self.code.cx.space.va(at);
        let bytes = self.code.cx.image.bytes_from(va).unwrap_or_default();
        let grows = |insn: &Insn| match insn.stack_move() {
            Some(StackMove::By(n)) => n < 0,
            _ => insn.is_landing_mark(),
        };
        Decoder::new(&bytes[..bytes.len().min(60)], va).take(4).any(|insn| grows(&insn))
    }

    /// Whether the code at `at` reads only what a caller provides, and leaves the caller's stack alone.
    fn looks_like_entry(&self, at: Rel) -> bool {
        let va = self.code.cx.space.va(at);
        let Some(bytes) = self.code.cx.image.bytes_from(va) else { return false };
        let bytes = &bytes[..bytes.len().min(160)];
        let mut defined = RegSet::defined_at_entry();
        let mut depth = 0;
        for (n, insn) in Decoder::new(bytes, va).take(24).enumerate() {
            match insn.flow() {
                Flow::Invalid => return false,
                Flow::Stop => return n > 0 || !insn.is_padding(),
                _ => {}
            }
            if n == 0 && insn.is_landing_mark() {
                return true;
            }
            if !reads_defined(&insn, defined) {
                return false;
            }
            match insn.stack_move() {
                Some(StackMove::By(n)) if insn.flow() != Flow::Return => {
                    depth += n;
                    if depth > 0 {
                        return false;
                    }
                }
                Some(StackMove::FromFrame(_)) if depth == 0 => return false,
                _ => {}
            }
            defined = defined.union(insn.effects().writes);
            match insn.flow() {
                Flow::Next | Flow::Branch(_) => {}
                // After a call everything it may return is defined; by then an entry has shown itself.
                _ => return true,
            }
        }
        true
    }
}

/// Whether the instruction reads only registers in `defined`, or saves those it must keep.
fn reads_defined(insn: &Insn, defined: RegSet) -> bool {
    if insn.pushed().is_some() || insn.is_zeroing() || insn.is_nop() {
        return true;
    }
    if let Step::Store { to: Operand::Mem { base: Some(base), .. }, from } = insn.step()
        && base.is_frame()
        && RegSet::kept_at_calls().contains(from)
    {
        return true;
    }
    if matches!(insn.stack_move(), Some(StackMove::ToFrame)) {
        return true;
    }
    insn.effects().reads.minus(defined).is_empty()
}

struct Search<'s, 'f, 'a> {
    finder: &'s Finder<'f, 'a>,
    /// All direct jumps and branches into gaps, by target.
    jumps: Vec<Jump>,
    /// Whether functions start at multiples of 16.
    aligned: bool,
    /// Whether padding after code that does not go on tells where functions start.
    padding_tells: bool,
    seen: Vec<u32>,
    round: u32,
    /// Depth of the stack at the end of blocks, for functions looked at.
    depths: HashMap<u32, Option<i64>>,
    /// By address.
    starts: Vec<(Rel, Is)>,
    /// Found in this round.
    found: Vec<(Rel, Is)>,
}

impl Search<'_, '_, '_> {
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
        let code = self.finder.code;
        self.round += 1;
        let mut new: Vec<(Rel, Is)> = Vec::new();
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
            let is = self.judge(u, current, &segment.ranks);
            if let Some(is) = is {
                new.push((at, is));
                current = Some(u);
            }
            self.reach(u, &segment.ranks);
        }
        // What it reaches by jumps that rather leave it.
        for u in segment.ranks.clone().skip(1) {
            let at = code.blocks[u as usize].start;
            if new.iter().any(|n| n.0 == at) || !self.may_start(u) || has(&self.finder.labels, at) {
                continue;
            }
            let incoming = among(&self.jumps, &(at..at + 1));
            let padded = self.padding_tells && self.is_padded(u);
            let branches = incoming.iter().any(|j| code.blocks[j.1 as usize].end != RawEnd::Jump);
            if incoming.is_empty() || branches && !(padded && incoming.iter().all(|j| j.1 < u)) {
                continue;
            }
            let incoming = incoming.to_vec();
            // Compilers align what jumps lead to as well: within one stretch of code, a prologue must tell.
            let within = incoming.iter().all(|j| segment.ranks.contains(&j.1));
            if within && !padded && !self.finder.has_prologue(at) {
                continue;
            }
            if self.finder.looks_like_entry(at) && incoming.iter().all(|j| self.depth(j.1) == Some(0)) {
                new.push((at, Is::Function(Origin::TailCalled)));
            }
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

    /// Counts blocks within functions that padding precedes though nothing loops to them: gcc aligns these, clang does not.
    fn padded_within(&mut self, ranks: &Range<u32>) -> usize {
        let code = self.finder.code;
        let within = |u: &u32| {
            let at = code.blocks[*u as usize].start;
            let incoming = among(&self.jumps, &(at..at + 1));
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
    fn judge(&mut self, u: u32, current: Option<u32>, own: &Range<u32>) -> Option<Is> {
        let code = self.finder.code;
        let at = code.blocks[u as usize].start;
        if self.finder.fallen_into(u) && u > own.start {
            return None;
        }
        let incoming: Vec<Jump> =
            among(&self.jumps, &(at..at + 1)).iter().filter(|j| !own.contains(&j.1)).copied().collect();
        let cold = has(&self.finder.evidence.cold, at);
        if let Some(&(_, source)) = incoming.first() {
            // Conditional jumps out of functions are rare; to a place where functions start they are such nevertheless.
            let conditional = self.aligned && self.may_start(u);
            let leaves = incoming.iter().any(|j| {
                (conditional || code.blocks[j.1 as usize].end == RawEnd::Jump) && self.depth(j.1) == Some(0)
            });
            if !cold && leaves && self.finder.looks_like_entry(at) {
                return Some(Is::Function(Origin::TailCalled));
            }
            return Some(Is::PartOf(source));
        }
        let good =
            self.may_start(u) && !self.resumes(u) && self.finder.looks_like_entry(at) && !self.joins(u, own);
        if good || current.is_none() { Some(Is::Function(Origin::Scored)) } else { None }
    }

    /// Whether control gets from the unreached block into the middle of what was reached already.
    fn joins(&self, from: u32, own: &Range<u32>) -> bool {
        let code = self.finder.code;
        let mut stack = vec![from];
        let mut passed = HashSet::from([from]);
        while let Some(b) = stack.pop() {
            let block = &code.blocks[b as usize];
            let mut next = Vec::new();
            if block.end.falls_through() && !self.finder.ends_in_final_call(b) {
                next.extend(code.next(b));
            }
            if matches!(block.end, RawEnd::Jump | RawEnd::Branch) {
                next.extend(code.block_from(block.target));
            }
            for t in next {
                if !own.contains(&t) {
                    continue;
                }
                if self.seen[t as usize] == self.round {
                    // Where functions are aligned, an aligned place may be a function that both jump to.
                    if !(self.aligned && self.may_start(t)) {
                        return true;
                    }
                } else if passed.len() < 256 && passed.insert(t) {
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
        if let Some(&known) = self.depths.get(&rank) {
            return known;
        }
        let code = self.finder.code;
        let block = &code.blocks[rank as usize];
        let i = self.starts.partition_point(|s| s.0 <= block.start);
        let region = code.region_at(block.start).map(|r| code.regions[r].range.clone())?;
        let (from, to) = match (i.checked_sub(1).map(|i| self.starts[i]), self.starts.get(i)) {
            (Some((at, Is::Function(_))), next) if at >= region.start => {
                (at, next.map_or(region.end, |n| n.0.min(region.end)))
            }
            (_, next) => (region.start, next.map_or(region.end, |n| n.0.min(region.end))),
        };
        let first = code.first_from(from);
        let end = code.first_from(to);
        let own = u32::try_from(first).ok()?..u32::try_from(end).ok()?;
        let mut stack = vec![(own.start, 0i64, None::<i64>)];
        let mut seen: HashMap<u32, ()> = HashMap::new();
        for b in own.clone() {
            self.depths.insert(b, None);
        }
        while let Some((b, depth, frame)) = stack.pop() {
            if !own.contains(&b) || seen.insert(b, ()).is_some() {
                continue;
            }
            let block = code.blocks[b as usize];
            let Some((depth, frame)) = self.through(b, depth, frame) else { continue };
            self.depths.insert(b, Some(depth));
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
        self.depths.get(&rank).copied().flatten()
    }

    /// Depth and frame pointer after a block.
    fn through(&self, rank: u32, mut depth: i64, mut frame: Option<i64>) -> Option<(i64, Option<i64>)> {
        let code = self.finder.code;
        let block = &code.blocks[rank as usize];
        let va = code.cx.space.va(block.start)..code.cx.space.va(block.end_rel());
        for insn in Decoder::new(code.cx.image.bytes_in(&va)?, va.start) {
            match insn.stack_move() {
                None => {}
                Some(_) if !matches!(insn.flow(), Flow::Next) => {}
                Some(StackMove::By(n)) => depth = depth.wrapping_add(n),
                Some(StackMove::ToFrame) => frame = Some(depth),
                Some(StackMove::FromFrame(plus)) => depth = frame?.wrapping_add(plus),
                Some(StackMove::Unknown) => return None,
            }
        }
        Some((depth, frame))
    }
}
