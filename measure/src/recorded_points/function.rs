//! Where the points of a function stand, and what its events mean.
#![warn(clippy::indexing_slicing)]

use super::calls::{Around, Comes};
use crate::edges::plan::Often;
use crate::edges::returns::Returns;
use probe::{Event, EventAt};
use program::{BlockEnd, BlockId, Call, CallKind, Callee, EdgeKind, FuncId, Sure, Va, libc};
use std::collections::HashMap;
use trace::recording::event::Head;
use trace::recording::module_code::{Block, End, ModuleCode, PointPlace, Site, SiteTold};
use trace::region::{Costs, Passages, thin};

/// A function that is moved.
pub(super) struct FunctionPoints<'a> {
    pub(super) around: &'a Around<'a>,
    pub(super) func: FuncId,
    pub(super) entries: &'a HashMap<BlockId, u32>,
    pub(super) leaves: &'a [bool],
    pub(super) recurses: &'a [usize],
    /// Whether a call comes to it directly that need not tell.
    pub(super) is_called: bool,
}

/// What control may come to the blocks of a function by.
struct Starts {
    /// Whether there is a point at the start.
    has_point: Vec<bool>,
    /// Whether there must be one: control may come from elsewhere.
    must: Vec<bool>,
    /// Of those, whether control may come there from any depth of calls.
    is_far: Vec<bool>,
    /// Whether exceptions land there.
    lands: Vec<bool>,
}

impl FunctionPoints<'_> {
    /// The number of a block in traces.
    fn nth(&self, block: BlockId) -> u32 {
        self.around.program.block_number(block)
    }

    /// Where each block may go, landing pads left out; and whether it may leave the function by its branch.
    fn ways(&self, block: BlockId) -> (Vec<u32>, bool) {
        let program = self.around.program;
        let edges = program.successors(block).iter().filter(|e| e.kind != EdgeKind::LandingPad);
        let mut to: Vec<u32> = edges.map(|e| self.nth(e.to)).collect();
        to.sort_unstable();
        to.dedup();
        let leaves = program.calls_in(block).iter().any(|c| c.kind == CallKind::BranchTailCall);
        (to, leaves)
    }

    /// Its blocks, with a number other than zero where there is to be a point.
    pub(super) fn blocks(
        &self,
        imports: &HashMap<String, u32>,
        returns: &Returns<'_>,
        often: &Often,
        passages: &mut Passages,
    ) -> Vec<Block> {
        let program = self.around.program;
        let ids: Vec<BlockId> = program.numbered_blocks(self.func).collect();
        let first = program.function(self.func).blocks.start;
        let ways: Vec<(Vec<u32>, bool)> = ids.iter().map(|b| self.ways(*b)).collect();
        let starts = self.starts(&ids, &ways);
        // On the others of several ways, on the way.
        let is_on_way = |(to, leaves): &(Vec<u32>, bool), n: u32| {
            to.len() + usize::from(*leaves) > 1 && !starts.has_point.get(n as usize).is_some_and(|has| *has)
        };
        let mut made = Vec::with_capacity(ids.len());
        let always = self.is_called && !self.around.has_frames(self.func);
        let mut costs = Costs { always, ..Costs::default() };
        let mut entered = Vec::with_capacity(ids.len());
        let first_edge = ids.iter().map(|id| program.block(*id).first_edge.0).min().unwrap_or_default();
        for ((n, &id), way) in (0..).zip(&ids).zip(ways) {
            let at = |all: &[bool]| all.get(n as usize).copied().unwrap_or_default();
            let mut block = Block {
                at: program.block(id).start.0,
                lands: at(&starts.lands),
                is_far: at(&starts.is_far),
                may_end: returns.block_calls_system(id),
                // It can only come there by an entry.
                is_open: self.is_open(id) && !program.function(self.func).entries.is_empty(),
                point: u32::from(at(&starts.has_point)),
                ..Block::default()
            };
            let mine = often.blocks.get((id.0 - first) as usize).copied().unwrap_or_default();
            entered.push(self.entries.contains_key(&id) || at(&starts.is_far));
            costs.starts.push((!at(&starts.must)).then_some(mine));
            costs
                .ways
                .push(way.0.iter().map(|to| self.way_costs(id, *to, first_edge, mine, often)).collect());
            let tail = self.leave(id, &mut block);
            let last = self.last_calls(id).map(|call| call.at).max();
            let site = |call: &Call| {
                let to = self.around.target(call);
                let may_be_last = to.is_some() && last.is_some_and(|last| last > call.at);
                let needs_point = call.returns && (may_be_last || self.needs_point(call));
                let is_quiet = |to: Comes| to.is_direct && !(self.around.tells)(to.func);
                let may_be_inside = call.returns && !needs_point && to.is_some_and(is_quiet);
                let is_plain = match to {
                    Some(to) => may_be_inside && passages.is_plain(to.entry),
                    None => call.returns && self.around.is_quiet_import(call),
                };
                let site = Site {
                    entry: to.map(|to| to.entry),
                    import: self.import(call, imports),
                    stub: self.stub(call),
                    point: if is_plain { 0 } else { u32::from(needs_point) },
                    told: if is_plain { SiteTold::Nothing } else { SiteTold::Event },
                };
                (site, (may_be_inside && !is_plain).then_some(mine))
            };
            let (calls, of_calls) = self.sites(id).map(site).unzip();
            block.calls = calls;
            costs.calls.push(of_calls);
            block.end = match program.block(id).end {
                BlockEnd::Return => End::Return,
                BlockEnd::NoReturn | BlockEnd::Stop | BlockEnd::Broken => End::Stop,
                _ if !way.0.is_empty() => End::To(
                    way.0.iter().map(|to| (trace::BlockId(*to), u32::from(is_on_way(&way, *to)))).collect(),
                ),
                _ => tail.map_or(End::Stop, End::Tail),
            };
            made.push(block);
        }
        number_all(&mut made);
        thin(&mut made, &entered, &costs, passages);
        let mine = ids.iter().filter_map(|id| Some((*self.entries.get(id)?, trace::BlockId(self.nth(*id)))));
        let has_frame = self.around.has_frames(self.func);
        passages.add(self.func.0, &made, &entered, has_frame, &mine.collect::<Vec<_>>());
        made
    }

    /// Where points stand at the starts of blocks, and what control may come there by.
    fn starts(&self, ids: &[BlockId], ways: &[(Vec<u32>, bool)]) -> Starts {
        let program = self.around.program;
        let is_branch = |id: BlockId| program.block(id).end == BlockEnd::Branch;
        // Which must have a point, since control may come from elsewhere; of those, which control may come to
        // from any depth.
        let mut must = vec![false; ids.len()];
        let mut is_far = vec![false; ids.len()];
        let mut lands = vec![false; ids.len()];
        // Which have one unless others tell; how many ways lead there.
        let mut may = vec![false; ids.len()];
        let mut n_ways = vec![0u32; ids.len()];
        let set =
            |all: &mut [bool], n: u32| all.get_mut(n as usize).into_iter().for_each(|place| *place = true);
        for (&id, (to, leaves)) in ids.iter().zip(ways) {
            let is_switch = program.block(id).end == BlockEnd::Switch;
            if self.is_open(id) {
                to.iter().for_each(|n| set(&mut must, *n));
            } else if is_switch || to.len() + usize::from(*leaves) > 1 && !is_branch(id) {
                to.iter().for_each(|n| set(&mut may, *n));
            }
            to.iter().for_each(|n| n_ways.get_mut(*n as usize).into_iter().for_each(|n| *n += 1));
            for edge in program.successors(id).iter().filter(|e| e.kind == EdgeKind::LandingPad) {
                set(&mut is_far, self.nth(edge.to));
                set(&mut lands, self.nth(edge.to));
            }
            if self.returns_twice(id) {
                to.iter().for_each(|n| set(&mut is_far, *n));
            }
        }
        // The process may end in it, and nothing comes that tells.
        for (must, &id) in must.iter_mut().zip(ids) {
            *must |= program.calls_in(id).iter().any(|call| self.around.is_named(call, libc::may_be_last));
        }
        // What nothing leads to is come to by signal handlers, which change where control goes on.
        let n_known = ids.iter().zip(&n_ways).map(|(id, n)| n + u32::from(self.entries.contains_key(id)));
        let n_known: Vec<u32> = n_known.collect();
        for ((must, n), is_far) in must.iter_mut().zip(&n_known).zip(&is_far) {
            *must |= *n == 0 || *is_far;
        }
        for (&id, (to, leaves)) in ids.iter().zip(ways) {
            if is_branch(id) && to.len() + usize::from(*leaves) > 1 {
                let only = |n: &&u32| n_known.get(**n as usize).is_some_and(|n| *n == 1);
                to.iter().filter(only).for_each(|n| set(&mut may, *n));
            }
        }
        let mut starts: Vec<bool> = must.iter().zip(&may).map(|(must, may)| *must || *may).collect();
        let singles: Vec<Vec<u32>> = ways
            .iter()
            .map(|(to, leaves)| if to.len() + usize::from(*leaves) > 1 { Vec::new() } else { to.clone() })
            .collect();
        break_circles(&singles, &mut starts);
        Starts { has_point: starts, must, is_far, lands }
    }

    /// What a point on the way from `id`, which runs `mine` times, to the function's block `to` costs.
    fn way_costs(&self, id: BlockId, to: u32, first_edge: u32, mine: f32, often: &Often) -> f32 {
        let block = self.around.program.block(id);
        let mut edges = (block.first_edge.0 - first_edge..).zip(self.around.program.successors(id));
        edges.find(|(_, edge)| self.nth(edge.to) == to).map_or(0.0, |(n, edge)| {
            let of_edge = often.edges.get(n as usize).copied().unwrap_or_default();
            match edge.kind {
                EdgeKind::Taken => of_edge * (1.0 + TAKEN) + (mine - of_edge) * PAST,
                _ => of_edge,
            }
        })
    }

    /// Writes into `block` what is called where control leaves the function in `id`: by a branch, and to
    /// which entry; returns the entry of the tail call at its end, if there is one.
    fn leave(&self, id: BlockId, block: &mut Block) -> Option<Option<u32>> {
        let mut tail = None;
        for call in self.around.program.calls_in(id) {
            let entry = self.around.target(call).map(|to| to.entry);
            block.stub = if call.kind == CallKind::Call { block.stub } else { self.stub(call) };
            match call.kind {
                // One that returns twice comes to nothing that is recorded, and what is behind it says so.
                CallKind::Call if self.is_last_and_twice(id, call) => block.stub = self.stub(call),
                CallKind::Call => {}
                CallKind::BranchTailCall => block.leaves = Some((1, entry)),
                CallKind::TailCall | CallKind::FallThrough => tail = Some(entry),
            }
        }
        tail
    }

    /// The calls that come past the event of the entry.
    pub(super) fn quiet_calls(&self, blocks: &[Block]) -> Vec<Va> {
        let program = self.around.program;
        let ids = program.numbered_blocks(self.func);
        let sites = ids.zip(blocks).flat_map(|(id, block)| self.sites(id).zip(&block.calls));
        let quiet = sites.filter(|(_, site)| site.entry.is_some() && site.told != SiteTold::Event);
        quiet.map(|(call, _)| call.at).collect()
    }

    /// Whether what follows a call tells itself that it returned.
    fn needs_point(&self, call: &Call) -> bool {
        // Behind one of the same circle, the same function may be open twice.
        let is_sure = |to: Comes| {
            let f = to.func.index();
            !self.leaves.get(f).is_some_and(|l| *l)
                && self.recurses.get(f) != self.recurses.get(self.func.index())
        };
        !self.around.target(call).is_some_and(is_sure) || self.around.is_far(call)
    }

    /// Whether not all may be known of where a block's jump through a table or a pointer leads.
    fn is_open(&self, block: BlockId) -> bool {
        let program = self.around.program;
        match program.block(block).end {
            BlockEnd::Switch => program.successors(block).iter().any(|e| e.sure != Sure::Proved),
            end => end == BlockEnd::Unresolved,
        }
    }

    /// The calls of a block that it comes back from, if at all, in the block.
    fn sites(&self, block: BlockId) -> impl Iterator<Item = &Call> {
        let calls = self.around.program.calls_in(block).iter();
        calls.filter(move |c| c.kind == CallKind::Call && !self.is_last_and_twice(block, c))
    }

    /// The calls of a block that may be the last that the process does, and may come back.
    fn last_calls(&self, block: BlockId) -> impl Iterator<Item = &Call> {
        self.sites(block).filter(|call| self.around.is_named(call, libc::may_be_last))
    }

    fn is_last_and_twice(&self, block: BlockId, call: &Call) -> bool {
        call.at == self.around.program.block(block).last_insn() && self.around.is_twice(call)
    }

    fn returns_twice(&self, block: BlockId) -> bool {
        self.around.program.calls_in(block).iter().any(|call| self.is_last_and_twice(block, call))
    }

    /// Numbers the points of its blocks, and says what is appended there.
    pub(super) fn number(&self, blocks: &mut [Block], code: &mut ModuleCode, events: &mut Vec<Event>) {
        let program = self.around.program;
        let func = self.func.0;
        for ((n, id), block) in (0..).map(trace::BlockId).zip(program.numbered_blocks(self.func)).zip(blocks)
        {
            let mut number = |slot: &mut u32, of: PointPlace, at: EventAt, is_far: bool| {
                if *slot != 0 {
                    code.points.push(of);
                    *slot = u32::try_from(code.points.len()).unwrap_or(u32::MAX);
                    let word = code.base.saturating_add(*slot);
                    let word = if is_far { Head::FarPoint(word).word() } else { word };
                    events.push(Event { block: id, at, word, has_frame: is_far });
                }
            };
            number(&mut block.point, PointPlace::Start(func, n), EventAt::Start, block.is_far);
            for ((k, call), site) in (0..).zip(self.sites(id)).zip(&mut block.calls) {
                let point = PointPlace::Behind(func, n, k);
                number(&mut site.point, point, EventAt::Behind(call.at), self.around.is_far(call));
            }
            if let Some((slot, _)) = &mut block.leaves {
                number(slot, PointPlace::Leaves(func, n), EventAt::Taken, false);
            }
            if let End::To(ways) = &mut block.end {
                for (to, slot) in ways {
                    let taken = program
                        .successors(id)
                        .iter()
                        .any(|e| e.kind == EdgeKind::Taken && self.nth(e.to) == to.0);
                    let at = if taken { EventAt::Taken } else { EventAt::Through };
                    number(slot, PointPlace::Way(func, n, *to), at, false);
                }
            }
        }
    }

    /// The stub that a call goes through, as of [`Around::stub`].
    fn stub(&self, call: &Call) -> u32 {
        match call.callee {
            Callee::Function(f) => self.around.stub(f),
            _ => 0,
        }
    }

    /// The import that a call names, from 1.
    fn import(&self, call: &Call, imports: &HashMap<String, u32>) -> u32 {
        let program = self.around.program;
        let name = match call.callee {
            Callee::Import(n) => program.imports.get(n as usize).map(AsRef::as_ref),
            Callee::Function(f) => program.function(f).import.as_deref(),
            _ => None,
        };
        name.and_then(|name| imports.get(name)).copied().unwrap_or_default()
    }
}

/// What an event on a branch that is taken costs beyond what it costs elsewhere: a jump. And what those pay
/// that run past it.
const TAKEN: f32 = 0.2;
const PAST: f32 = 0.1;

/// Gives each point a number of its own.
fn number_all(blocks: &mut [Block]) {
    let mut n_points = 0;
    for block in blocks {
        let Block { point, leaves, calls, end, .. } = block;
        let ways = if let End::To(ways) = end { ways.as_mut_slice() } else { &mut [] };
        let ways = ways.iter_mut().map(|way| &mut way.1);
        let leaves = leaves.iter_mut().map(|leaves| &mut leaves.0);
        let calls = calls.iter_mut().map(|site| &mut site.point);
        for slot in calls.chain(ways).chain(leaves).chain([point]).filter(|slot| **slot != 0) {
            n_points += 1;
            *slot = n_points;
        }
    }
}

/// Has every circle of blocks have one that needs an event.
fn break_circles(ways: &[Vec<u32>], needs: &mut [bool]) {
    // 0: not seen, 1: on the way here, 2: done.
    let mut state = vec![0u8; ways.len()];
    for root in 0..ways.len() {
        let mut way: Vec<(usize, usize)> = vec![(root, 0)];
        while let Some((at, next)) = way.last_mut() {
            let (n, k) = (*at, *next);
            if k == 0 {
                match state.get_mut(n) {
                    Some(state @ 0) => *state = 1,
                    _ => {
                        way.pop();
                        continue;
                    }
                }
            }
            *next += 1;
            match ways.get(n).and_then(|w| w.get(k)) {
                Some(&to) => {
                    let to = to as usize;
                    match (state.get(to), needs.get_mut(to)) {
                        (Some(1), Some(needs)) => *needs = true,
                        (Some(0), _) => way.push((to, 0)),
                        _ => {}
                    }
                }
                None => {
                    if let Some(state) = state.get_mut(n) {
                        *state = 2;
                    }
                    way.pop();
                }
            }
        }
    }
}
