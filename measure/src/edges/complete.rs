//! The profile that the counters of a module stand for: what follows function by function (`solve`), put
//! together.
#![warn(clippy::indexing_slicing)]

use super::notes::{Flow, FunctionFlow, Notes, Sum};
use super::positions::{self, Found};
use super::solve::Solved;
use probe::arch::shared::BEHIND_CALL;
use profile::{ByAddress, Count, Edge, Exactness, Intervals, Profile};
use program::Va;
use std::collections::BTreeMap;

impl Notes {
    /// The profile that `counts`, one a counter, stand for. `left` says where moved code was left otherwise
    /// than its flow says, as offsets in it, and how often. `n_stopped` threads may have been stopped in the
    /// middle of a block.
    pub fn profile(&self, counts: &[u64], left: &[(u64, i64)], n_stopped: u64) -> Profile {
        let left = Left::of(&self.positions, left);
        let mut whole = Whole::new(n_stopped);
        let mut first = 0;
        for (function, flow) in (0..).zip(self.functions.iter()) {
            let end = first + flow.n_counters();
            let nodes = left.by_function.get(&function).map_or(&[][..], Vec::as_slice);
            let own = counts.get(first..end).unwrap_or_default();
            first = end;
            let is_any = own.iter().any(|n| *n > 0) || !nodes.is_empty() || n_stopped > 0;
            if flow.is_whole() && !is_any {
                whole.add_none(flow);
                continue;
            }
            let flow = flow.decode();
            whole.left_before_calls(function, &left);
            whole.add(&flow, &flow.solve(own, nodes, n_stopped));
        }
        let sums: Vec<(Va, Count)> =
            self.sums.iter().map(|sum| (sum.at, whole.sum(sum, counts, n_stopped))).collect();
        let mut profile = whole.profile();
        profile.image = self.image.clone();
        for (at, n) in sums {
            profile.blocks.insert(at, n.n);
            profile.entries.insert(at, n.n);
            if let Some(between) = n.between() {
                profile.intervals.blocks.insert(at, between);
                profile.intervals.entries.insert(at, between);
            }
        }
        profile
    }
}

/// How often a block was left behind its counter, and behind how many of its calls.
type LeftBehindCalls = Vec<(u32, i64)>;

/// Where the flow of a module was left otherwise than along its ways, and how often.
struct Left {
    /// By function: at which nodes.
    by_function: BTreeMap<u32, Vec<(u32, i64)>>,
    /// By function and block.
    behind_calls: BTreeMap<(u32, u32), LeftBehindCalls>,
}

impl Left {
    /// `left` are offsets in the moved code, and how often it was left there; `positions`, as they are
    /// written, say which nodes they belong to.
    fn of(positions: &[u8], left: &[(u64, i64)]) -> Left {
        // A block may end with its call.
        let is_call = |at: u64| at >> BEHIND_CALL & 1 == 1;
        let in_call = |at: u64| if is_call(at) { (at & !(1 << BEHIND_CALL)).saturating_sub(1) } else { at };
        let offsets: Vec<u64> = left.iter().map(|l| in_call(l.0)).collect();
        let find = |offsets: &[u64]| match left {
            [] => Vec::new(),
            _ => positions::find(positions, offsets).unwrap_or_default(),
        };
        let nodes = find(&offsets);
        let behind = find(&left.iter().map(|l| l.0 & !(1 << BEHIND_CALL)).collect::<Vec<_>>());
        let mut all = Left { by_function: BTreeMap::new(), behind_calls: BTreeMap::new() };
        for ((found, behind), (at, n)) in nodes.iter().zip(&behind).zip(left) {
            let Some(Found { function, node, n_called }) = *found else { continue };
            all.by_function.entry(function).or_default().push((node, *n));
            let n_called = match (is_call(*at), behind) {
                (false, _) => n_called,
                (true, Some(behind)) if (behind.function, behind.node) == (function, node) => behind.n_called,
                (true, _) => n_called + 1,
            };
            if node & 1 == 1 {
                all.behind_calls.entry((function, node / 2)).or_default().push((n_called, *n));
            }
        }
        all
    }
}

/// What follows from the counters of all functions so far.
struct Whole<'a> {
    /// How many blocks they have.
    n_blocks: usize,
    /// Per block of the functions that may have run.
    blocks: Vec<Count>,
    /// Per block of these: how often it was left along its ways.
    left_along: Vec<Count>,
    /// Of each of these functions, the position of its first block among all, and among those that are here.
    first_blocks: Vec<(usize, usize)>,
    /// By the blocks' positions.
    left_behind_calls: BTreeMap<u32, &'a LeftBehindCalls>,
    /// Blocks that ran, as far as their counts follow.
    starts: Vec<(Va, u64)>,
    /// Blocks of which it follows that they never did.
    zeros: Vec<Va>,
    entries: ByAddress,
    edges: Vec<(Edge, Count)>,
    intervals: Intervals,
}

impl<'a> Whole<'a> {
    fn new(n_stopped: u64) -> Whole<'a> {
        Whole {
            n_blocks: 0,
            blocks: Vec::new(),
            left_along: Vec::new(),
            first_blocks: Vec::new(),
            left_behind_calls: BTreeMap::new(),
            starts: Vec::new(),
            zeros: Vec::new(),
            entries: ByAddress::default(),
            edges: Vec::new(),
            intervals: Intervals { n_stopped, ..Intervals::default() },
        }
    }

    /// Takes what was left of the blocks of `function`, which are the next.
    fn left_before_calls(&mut self, function: u32, left: &'a Left) {
        let first = u32::try_from(self.n_blocks).unwrap_or(u32::MAX);
        let own = left.behind_calls.range((function, 0)..=(function, u32::MAX));
        self.left_behind_calls.extend(own.map(|(&(_, n), left)| (first.saturating_add(n), left)));
    }

    /// Adds the next function, which never ran: as [`FunctionFlow::solve`] says of it.
    fn add_none(&mut self, flow: Flow<'_>) {
        let before = self.zeros.len();
        self.zeros.extend(flow.starts());
        self.n_blocks += self.zeros.len() - before;
        if flow.has_entry_block() {
            self.entries.insert(flow.entry(), 0);
        }
    }

    /// Adds the next function.
    fn add(&mut self, flow: &FunctionFlow, solved: &Solved) {
        let between = &solved.between;
        self.first_blocks.push((self.n_blocks, self.blocks.len()));
        self.n_blocks += flow.blocks.len();
        for (i, (node, &n)) in flow.blocks.iter().zip(&solved.blocks).enumerate() {
            let count = Count::of(n.unwrap_or(0), between.blocks.get(i));
            self.blocks.push(count);
            match n {
                Some(0) => self.zeros.push(node.start),
                n => self.starts.extend(n.map(|n| (node.start, n))),
            }
            let off = n.and_then(|_| count.between());
            self.intervals.blocks.extend(off.map(|between| (node.start, between)));
        }
        let mut ways = solved.ways.iter().enumerate();
        for node in &flow.blocks {
            let own = ways.by_ref().take(node.ways.len());
            let counts = own.map(|(i, n)| Count::of(n.unwrap_or(0), between.ways.get(i)));
            self.left_along.push(counts.fold(Count::default(), Count::plus));
        }
        if let Some(i) = flow.entry_block()
            && let Some(&Some(n)) = solved.enters.get(i)
        {
            self.entries.insert(flow.entry, n);
            let off = Count::of(n, between.enters.get(i)).between();
            self.intervals.entries.extend(off.map(|between| (flow.entry, between)));
        }
        // Of what never ran, blocks say all.
        let may_have_run = between.blocks.iter().any(|(least, most)| least != most);
        if flow.is_whole && (may_have_run || solved.blocks.iter().any(|n| *n != Some(0))) {
            let ways = flow.blocks.iter().flat_map(|b| b.ways.iter().map(move |w| (b, w)));
            for (i, ((from, way), n)) in ways.zip(&solved.ways).enumerate() {
                let (Some(to), &Some(n)) = (flow.blocks.get(way.to as usize), n) else { continue };
                let edge = Edge { from: from.start, to: to.start };
                self.edges.push((edge, Count::of(n, between.ways.get(i))));
            }
        }
    }

    /// Where the block at this position among all stands among those of functions that may have run; `None`
    /// if it is of one that never did.
    fn place(&self, block: u32) -> Option<usize> {
        let block = block as usize;
        let next = self.first_blocks.partition_point(|(first, _)| *first <= block);
        let (first, place) = self.first_blocks.get(next.checked_sub(1)?)?;
        let place = place + (block - first);
        let end = self.first_blocks.get(next).map_or(self.blocks.len(), |(_, place)| *place);
        (place < end).then_some(place)
    }

    /// How often a function of one block without a counter ran.
    fn sum(&self, sum: &Sum, counts: &[u64], n_stopped: u64) -> Count {
        let mut n = Count::default();
        for &(block, n_calls) in &sum.blocks {
            // How often the block was left before the call.
            let behind = self.left_behind_calls.get(&block).map_or(&[][..], |left| left.as_slice());
            let before =
                behind.iter().filter(|l| l.0 <= n_calls).fold(0, |sum: i64, l| sum.wrapping_add(l.1));
            let less = |n: u64| n.saturating_sub_signed(before);
            let of = self.place(block).and_then(|place| self.blocks.get(place));
            n = of
                .map_or(n, |of| n.plus(Count { n: less(of.n), least: less(of.least), most: less(of.most) }));
        }
        for &block in &sum.left {
            // A thread may have been stopped behind the call.
            let along = self.place(block).and_then(|place| self.left_along.get(place));
            let along = along.copied().unwrap_or_default();
            n = n.plus(Count { most: along.most.saturating_add(n_stopped), ..along });
        }
        for &counter in &sum.counters {
            n = n.plus(Count::exact(counts.get(counter as usize).copied().unwrap_or(0)));
        }
        // A thread may have been stopped before it came to the call.
        Count { least: n.least.saturating_sub(n_stopped), ..n }
    }

    /// All of it.
    fn profile(self) -> Profile {
        let Whole { starts, zeros, entries, mut edges, mut intervals, .. } = self;
        edges.sort_by_key(|e| e.0);
        // Two edges between the same blocks are one here.
        edges.dedup_by(|next, one| {
            let is_same = next.0 == one.0;
            if is_same {
                one.1 = one.1.plus(next.1);
            }
            is_same
        });
        intervals.edges = edges.iter().filter_map(|(e, n)| Some((*e, n.between()?))).collect();
        Profile {
            exactness: Exactness::Exact,
            // All at once: in the order of addresses, which they mostly have.
            blocks: ByAddress::with_zeros(zeros, starts.into_iter().collect()),
            edges: edges.into_iter().map(|(e, n)| (e, n.n)).collect(),
            entries,
            intervals,
            ..Profile::default()
        }
    }
}
