//! Where functions and their parts start, in code that unwind ranges, symbols and stubs claim.
//!
//! A claimed range is one function; parts that begin in the middle of one (`.cold`) go to the function that
//! jumps there. Not here: starts in the gaps between (`gaps`).

use crate::discovery::code::{NO_FUNC, RawCode};
use crate::discovery::regions::{Pointer, Seed};
use crate::discovery::sweep::listing::sorted;
use crate::discovery::sweep::raw::{RawEnd, RawTable, RegionKind, Rel, Transfer};
use crate::model::Origin;
use std::ops::Range;

/// Where the blocks of a function, or of a part of one, start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Start {
    pub at: Rel,
    pub owner: Owner,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Owner {
    Function(Origin),
    /// A further range of the function that the block of this rank belongs to.
    PartOf(u32),
    /// Of no function.
    Nobody,
}

/// What the file says of starts, and what was found.
pub struct Evidence {
    /// By address, one for each address.
    pub seeds: Vec<Seed>,
    /// Words of data that point to code, by target.
    pub pointers: Vec<Pointer>,
    /// Starts of symbols that name a part (`f.cold`), sorted.
    pub cold: Vec<Rel>,
    /// Starts of symbols whose names C and C++ reserve for functions that never return, sorted.
    pub never: Vec<Rel>,
}

/// What the code says of starts, whoever owns its blocks.
pub struct KnownTargets {
    /// Targets of direct calls, sorted.
    pub called: Vec<Rel>,
    /// Code whose address is taken, sorted.
    pub address_taken: Vec<Rel>,
    /// Targets of tables, sorted.
    pub labels: Vec<Rel>,
}

impl KnownTargets {
    /// From the calls, references and tables of the whole image.
    pub fn of(code: &RawCode<'_>, evidence: &Evidence) -> KnownTargets {
        let span = code.cx.span();
        let labels: Vec<Rel> = code.tables.iter().flat_map(|t| t.targets.iter().copied()).collect();
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
        let direct = code.calls.iter().filter(|c| c.transfer == Transfer::Direct && c.target != c.end());
        let called: Vec<Rel> = direct.map(|c| c.target).collect();
        let pointers = evidence.pointers.iter().filter(|p| !in_table(p.from)).map(|p| p.to);
        let address_taken: Vec<Rel> = pointers.chain(code.code_refs.iter().map(|r| r.to)).collect();
        KnownTargets {
            called: sorted(&called, &span),
            address_taken: sorted(&address_taken, &span),
            labels: sorted(&labels, &span),
        }
    }
}

/// A jump, by target.
pub type Jump = (Rel, u32);

/// Finds the starts.
pub struct Finder<'f, 'a> {
    pub code: &'f RawCode<'a>,
    pub evidence: &'f Evidence,
    pub starts: Vec<Start>,
    pub entries: Vec<Rel>,
    /// Targets of direct calls, sorted.
    pub called: &'f [Rel],
    /// Code whose address is taken, sorted.
    pub address_taken: &'f [Rel],
    /// Direct jumps and branches that lead to another region, by target.
    pub crossing: Vec<Jump>,
    /// Targets of tables, sorted.
    pub labels: &'f [Rel],
}

pub fn has(sorted: &[Rel], at: Rel) -> bool {
    sorted.binary_search(&at).is_ok()
}

pub fn among<'x>(jumps: &'x [Jump], range: &Range<Rel>) -> &'x [Jump] {
    let from = jumps.partition_point(|j| j.0 < range.start);
    let to = jumps.partition_point(|j| j.0 < range.end);
    &jumps[from..to.max(from)]
}

impl<'f, 'a> Finder<'f, 'a> {
    pub fn new(code: &'f RawCode<'a>, evidence: &'f Evidence, known: &'f KnownTargets) -> Finder<'f, 'a> {
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
        let KnownTargets { called, address_taken, labels } = known;
        Finder {
            code,
            evidence,
            starts: Vec::new(),
            entries: Vec::new(),
            called,
            address_taken,
            crossing,
            labels,
        }
    }

    fn start(&mut self, at: Rel, origin: Origin) {
        self.starts.push(Start { at, owner: Owner::Function(origin) });
    }

    /// Whether control can fall into the block from the one before.
    pub fn fallen_into(&self, rank: u32) -> bool {
        let Some(before) = rank.checked_sub(1) else { return false };
        let block = &self.code.blocks[before as usize];
        block.end.falls_through() && self.code.next(before).is_some() && !self.ends_in_final_call(before)
    }

    /// The block that control falls from into the one at `at`, with neither padding nor a call between.
    fn continues(&self, at: Rel) -> Option<u32> {
        let rank = self.code.block_from(at)?;
        let before = rank.checked_sub(1).filter(|_| self.fallen_into(rank))?;
        let block = &self.code.blocks[before as usize];
        (block.end_rel() == at && !self.code.ends_in_call(before)).then_some(before)
    }

    /// Whether the last instruction of the block is a call that does not return.
    pub fn ends_in_final_call(&self, rank: u32) -> bool {
        self.code.blocks[rank as usize].end == RawEnd::FallThrough
            && !self.code.never.is_empty()
            && self.code.calls_in(rank).iter().any(|c| has(&self.code.never, c.at))
    }

    fn is_seed(&self, at: Rel) -> bool {
        self.evidence.seeds.binary_search_by_key(&at, |s| s.at).is_ok()
    }

    /// Starts in regions that unwind ranges, symbols and stubs claim.
    pub fn claimed(&mut self) {
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
        for &at in self.address_taken {
            let Some(region) = code.region_at(at).map(|r| &code.regions[r]) else { continue };
            let claimed = matches!(region.kind, RegionKind::Unwind { .. } | RegionKind::Symbol);
            if claimed && region.range.start != at && !has(self.labels, at) && code.block_from(at).is_some() {
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
        if self.is_seed(at) || has(self.called, at) || has(self.address_taken, at) {
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
    pub fn parts(&mut self) {
        let code = self.code;
        let mut known: Vec<Rel> = self.starts.iter().map(|s| s.at).collect();
        known.sort_unstable();
        // By target, made when a part needs it.
        let mut by_target: Option<Vec<(Rel, Rel)>> = None;
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
                let by_target = by_target.get_or_insert_with(|| {
                    let jump_to = |t: &RawTable| t.targets.iter().map(|&to| (to, t.jump)).collect::<Vec<_>>();
                    let mut all: Vec<(Rel, Rel)> = code.tables.iter().flat_map(jump_to).collect();
                    all.sort_unstable();
                    all.dedup();
                    all
                });
                let from = by_target.partition_point(|t| t.0 < range.start);
                for &(_, jump) in by_target[from..].iter().take_while(|t| t.0 < range.end) {
                    if let Some(rank) = code.block_at(jump).filter(|&r| outside(r)) {
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
            let owner = best.map_or(Owner::Function(Origin::Unwind), |v| Owner::PartOf(v.1));
            self.starts.push(Start { at: range.start, owner });
        }
    }
}

/// Where jumps in `range` lead outside it.
fn among_sources<'x>(code: &'x RawCode<'_>, range: &'x Range<Rel>) -> impl Iterator<Item = Rel> + 'x {
    let from = code.first_from(range.start);
    code.blocks[from..]
        .iter()
        .take_while(|b| b.start < range.end)
        .filter(|b| matches!(b.end, RawEnd::Jump | RawEnd::Branch) && !range.contains(&b.target))
        .map(|b| b.target)
}
