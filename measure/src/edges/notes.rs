//! What the counters of one image mean, and what follows from them.
//!
//! ```text
//! notes    = magic version kind profile ends_are_taken: byte, n: varint, function*, n: varint, sum*, n: varint, watch*, places: bytes (`positions`),
//!            callees (`indirect_calls`; of kind 'O' only), checksum
//! profile  = bytes: a `.engraft` file of kind 'P' without counts, for the image
//! function = entry: signed varint from the one before, is_whole, n: varint, block*
//! block    = start: signed varint from the one before, marks: varint (1 counted, 2 enters, 4 leaves, 8 · n ways), way*
//! way      = 2 · (blocks from this one on, signed) + counted: varint
//! sum      = address: signed varint from the one before, n: varint, (position of a block, calls before: varint)*, twice n: varint, varint*
//!            (positions of blocks whose ways out count;
//!            counters)
//! watch    = what: bytes, counter: varint, keeps: varint (0 count, 1 last, 2 histogram, 3 + n ring of n)
//! ```
//! Counters are numbered as they come: a function's blocks, then its ways. What has none follows by
//! conservation of flow: what enters a block, from other blocks or from outside, is its count; what leaves
//! it, to other blocks or to outside, too. Calls that may not come back, or come back twice, leave to
//! outside: so the rest holds whatever they do.
//!
//! A thread that is stopped for good in the middle of a block came there, and did not leave. A count without
//! a counter follows from the balance of all nodes that are cut off from outside if its edge is taken out of
//! the tree: if k threads may have been stopped there, then what leads in ran up to k times more often than
//! follows, and what leads out up to k times less often. Nobody is stopped where nobody can have come.
//!
//! Source: Knuth, TAOCP vol. 1, 2.3.4.1; Ball and Larus, "Optimally Profiling and Tracing Programs", TOPLAS
//! 1994, section 3.
#![warn(clippy::indexing_slicing)]

use super::indirect_calls::Callees;
use super::positions::{self, Found};
use probe::arch::shared::BEHIND_CALL;
use profile::encoding::{Cursor, MAGIC, VERSION, put_bytes, unzigzag, varint, zigzag};
use profile::{Edge, Exactness, ImageRef, Intervals, Profile, ReadError, engraft};
use program::Va;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// What the counters of one image mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notes {
    /// The image.
    pub image: ImageRef,
    /// Whether a handler of signals may end the process, and nothing say so.
    pub ends_are_taken: bool,
    /// The functions that are counted. Their counters come one after the other.
    pub functions: Vec<Flow>,
    /// Functions of one block that have no counter, and what their calls are.
    pub sums: Vec<Sum>,
    /// Words behind the counters, which keep other things.
    pub watches: Vec<Watch>,
    /// Where moved code belongs to in the flow (`positions`).
    pub places: Vec<u8>,
    /// Calls through pointers whose targets are counted.
    pub callees: Option<Callees>,
}

/// A function of one block that has no counter: it ran as often as all of these together. Blocks go by their
/// position among all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// The function.
    pub at: Va,
    /// Blocks that call it: control comes to the call whenever it comes to the block, but where a handler
    /// leaves that before. And how many calls whose places are known are made in the block before.
    pub blocks: Vec<(u32, u32)>,
    /// Blocks that call it behind a call that may not come back: whoever comes to it leaves the block along a
    /// way.
    pub left: Vec<u32>,
    /// Counters of calls.
    pub counters: Vec<u32>,
}

/// The flow of a function: which of its counts are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Its entry.
    pub entry: Va,
    /// Whether all edges are here, so that their counts follow, too. Else only those of blocks hold, and what
    /// entered them.
    pub is_whole: bool,
    /// Its blocks, by address; those of cold parts may come first.
    pub blocks: Vec<Node>,
}

/// A block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its start.
    pub start: Va,
    /// Whether it has a counter.
    pub is_counted: bool,
    /// Whether control may come to it from outside: calls, jumps of other functions, exceptions.
    pub enters: bool,
    /// Whether control may leave the function in it: returns, jumps out of it, calls that do not come back.
    pub leaves: bool,
    /// Where control goes from it.
    pub ways: SmallVec<[Way; 2]>,
}

/// An edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The block that it leads to, by position.
    pub to: u32,
    /// Whether it has a counter.
    pub is_counted: bool,
}

/// Words that keep what was seen at a point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    /// What was asked for.
    pub what: String,
    /// The first word.
    pub word: u32,
    /// What is in it, and in those that follow.
    pub keeps: Keeps,
}

/// What words keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// How often.
    Count,
    /// The last value.
    Last,
    /// 65 words: how many values had 0, 1, 2 … 64 bits.
    Histogram,
    /// How many values there were, and behind it the last ones: so many, a power of two.
    Ring(u32),
}

impl Keeps {
    /// How many words.
    pub fn n_words(self) -> u64 {
        match self {
            Keeps::Count | Keeps::Last => 1,
            Keeps::Histogram => 65,
            Keeps::Ring(len) => 1 + u64::from(len),
        }
    }
}

/// What follows from a function's counters: nothing where they leave a choice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Solved {
    /// Per block: how often it ran.
    pub blocks: Vec<Option<u64>>,
    /// Per block: how often it was entered from outside.
    pub enters: Vec<Option<u64>>,
    /// Per way, block by block.
    pub ways: Vec<Option<u64>>,
    /// The least and the most that each of these may be; all empty if all are exact.
    pub between: Between,
}

/// The least and the most of counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Between {
    /// Of blocks.
    pub blocks: Vec<(u64, u64)>,
    /// Of entries from outside.
    pub enters: Vec<(u64, u64)>,
    /// Of ways.
    pub ways: Vec<(u64, u64)>,
}

impl Flow {
    /// How many counters it has.
    pub fn n_counters(&self) -> usize {
        let ways = self.blocks.iter().map(|b| b.ways.iter().filter(|w| w.is_counted).count());
        self.blocks.iter().filter(|b| b.is_counted).count() + ways.sum::<usize>()
    }

    fn never_ran(&self) -> Solved {
        let none = vec![Some(0); self.blocks.len()];
        let n_ways = self.blocks.iter().map(|b| b.ways.len()).sum();
        let between = Between::default();
        Solved { enters: none.clone(), blocks: none, ways: vec![Some(0); n_ways], between }
    }

    /// The block that it starts with, by position.
    fn entry_block(&self) -> Option<usize> {
        self.blocks.iter().position(|node| node.start == self.entry)
    }

    /// Per node: whether a thread may have been stopped there. `known` are the counters of blocks and ways,
    /// as far as they have one.
    fn may_stop(&self, known: &[Option<u64>]) -> Vec<bool> {
        let may_run = |n: Option<&Option<u64>>| n.is_some_and(|n| *n != Some(0));
        let mut first_way = self.blocks.len();
        let mut first_ways = Vec::with_capacity(self.blocks.len());
        let mut is_counted_in = vec![false; self.blocks.len()];
        for block in &self.blocks {
            first_ways.push(first_way);
            first_way += block.ways.len();
            for way in block.ways.iter().filter(|w| w.is_counted) {
                if let Some(place) = is_counted_in.get_mut(way.to as usize) {
                    *place = true;
                }
            }
        }
        let mut came = vec![false; self.blocks.len()];
        let mut waiting: Vec<usize> =
            (0..).zip(&self.blocks).filter(|(_, b)| b.enters).map(|b| b.0).collect();
        let mut stops = vec![false; 2 * self.blocks.len()];
        while let Some(i) = waiting.pop() {
            let (Some(came), Some(block)) = (came.get_mut(i), self.blocks.get(i)) else { continue };
            if std::mem::replace(came, true) {
                continue;
            }
            if let Some(head) = stops.get_mut(2 * i) {
                *head = block.is_counted && is_counted_in.get(i) == Some(&true);
            }
            if !may_run(known.get(i)) {
                continue;
            }
            if let Some(end) = stops.get_mut(2 * i + 1) {
                *end = true;
            }
            let first = first_ways.get(i).copied().unwrap_or(usize::MAX);
            let goes = |(n, _): &(usize, &Way)| may_run(known.get(*n));
            waiting.extend((first..).zip(&block.ways).filter(goes).map(|(_, w)| w.to as usize));
        }
        stops
    }

    /// What follows from its counters. Sums wrap, so that what is known of a part of the flow does not spoil
    /// the rest.
    ///
    /// `left` are nodes, and how often control left the flow there otherwise than along a way, or came from
    /// outside, if less than never: 2 i is where block i starts, 2 i + 1 where it ends. `n_stopped` threads
    /// may have been stopped in it besides.
    pub fn solve(&self, counters: &[u64], left: &[(u32, i64)], n_stopped: u64) -> Solved {
        if self.is_whole && left.is_empty() && n_stopped == 0 && counters.iter().all(|n| *n == 0) {
            return self.never_ran();
        }
        let mut counters = counters.iter().copied();
        let mut next = |is_counted: bool| match is_counted {
            true => Some(counters.next().unwrap_or(0)),
            false => None,
        };
        // Flows from node to node: 2 i is the head of block i, 2 i + 1 its end; None is outside.
        let mut flows: Vec<(Option<usize>, Option<usize>)> = Vec::new();
        let mut known: Vec<Option<u64>> = Vec::new();
        for (i, block) in self.blocks.iter().enumerate() {
            flows.push((Some(2 * i), Some(2 * i + 1)));
            known.push(next(block.is_counted));
        }
        for (i, block) in self.blocks.iter().enumerate() {
            for way in &block.ways {
                flows.push((Some(2 * i + 1), Some(2 * way.to as usize)));
                known.push(next(way.is_counted));
            }
        }
        let n_ways = flows.len() - self.blocks.len();
        let mut stops = match (n_stopped, left) {
            (0, _) => Vec::new(),
            (_, []) => self.may_stop(&known),
            _ => vec![true; 2 * self.blocks.len()],
        };
        for (i, block) in self.blocks.iter().enumerate() {
            flows.push((None, Some(2 * i)));
            known.push((!block.enters).then_some(0));
            flows.push((Some(2 * i + 1), None));
            known.push((!block.leaves).then_some(0));
        }
        let is_given: Vec<bool> = known.iter().map(Option::is_some).collect();
        let mut balance = vec![0u64; 2 * self.blocks.len()];
        for &(node, n) in left {
            add(&mut balance, node as usize, n.cast_unsigned(), false);
        }
        let mut unknown: Vec<Vec<usize>> = vec![Vec::new(); 2 * self.blocks.len()];
        let mut left = vec![0usize; 2 * self.blocks.len()];
        for (f, (&(from, to), n)) in flows.iter().zip(&known).enumerate() {
            for (node, is_in) in [(from, false), (to, true)] {
                let Some(node) = node else { continue };
                match n {
                    Some(n) => add(&mut balance, node, *n, is_in),
                    None => {
                        if let (Some(all), Some(left)) = (unknown.get_mut(node), left.get_mut(node)) {
                            all.push(f);
                            *left += 1;
                        }
                    }
                }
            }
        }
        // Flows that may be off: whether they lead to where threads may have been stopped, or from there.
        let mut off: Vec<Option<bool>> = vec![None; if n_stopped > 0 { flows.len() } else { 0 }];
        let mut ready: Vec<usize> = (0..left.len()).filter(|&n| left.get(n) == Some(&1)).collect();
        while let Some(node) = ready.pop() {
            if left.get(node) != Some(&1) {
                continue;
            }
            let open = unknown.get(node).and_then(|all| all.iter().find(|&&f| known.get(f) == Some(&None)));
            let Some((&f, &(from, to))) = open.and_then(|f| Some((f, flows.get(*f)?))) else { continue };
            let is_in = to == Some(node);
            let here = balance.get(node).copied().unwrap_or(0);
            let n = if is_in { here.wrapping_neg() } else { here };
            if let Some(place) = known.get_mut(f) {
                *place = Some(n);
            }
            let is_off = stops.get(node) == Some(&true);
            if let Some(place) = off.get_mut(f).filter(|_| is_off) {
                *place = Some(is_in);
            }
            for (end, is_in) in [(from, false), (to, true)] {
                let Some(end) = end else { continue };
                add(&mut balance, end, n, is_in);
                if let Some(place) = stops.get_mut(end) {
                    *place |= is_off;
                }
                if let Some(left) = left.get_mut(end) {
                    *left -= 1;
                    if *left == 1 {
                        ready.push(end);
                    }
                }
            }
        }
        let more = i64::try_from(n_stopped).unwrap_or(i64::MAX);
        let interval = |(n, is_in): (Option<u64>, Option<bool>)| {
            let n = n.unwrap_or(0).cast_signed();
            let (least, most) = match is_in {
                None => (n, n),
                Some(true) => (n, n.saturating_add(more)),
                Some(false) => (n.saturating_sub(more), n),
            };
            // Counters end at 2⁶³, long after everything else.
            (least.max(0).cast_unsigned(), most.max(0).cast_unsigned())
        };
        let between: Vec<(u64, u64)> = known.iter().copied().zip(off).map(interval).collect();
        // A running program may be read: then a count may be one behind what follows from others.
        let least = |(n, given): (Option<u64>, bool)| n.map(|n| if given || n < 1 << 63 { n } else { 0 });
        let mut known = known.into_iter().zip(is_given).map(least);
        let blocks = known.by_ref().take(self.blocks.len()).collect();
        let ways = known.by_ref().take(n_ways).collect();
        let mut between = between.into_iter();
        let between = Between {
            blocks: between.by_ref().take(self.blocks.len()).collect(),
            ways: between.by_ref().take(n_ways).collect(),
            enters: between.step_by(2).collect(),
        };
        Solved { blocks, ways, enters: known.step_by(2).collect(), between }
    }
}

/// A count, and the least and the most that it may be.
type Count = (u64, (u64, u64));

fn plus(a: Count, b: Count) -> Count {
    let between = (a.1.0.saturating_add(b.1.0), a.1.1.saturating_add(b.1.1));
    (a.0.saturating_add(b.0), between)
}

/// How often a block was left before the call that so many others are made before.
fn left_before(left: &[(u32, i64)], n_calls: u32) -> i64 {
    left.iter().filter(|l| l.0 <= n_calls).fold(0, |sum, l| sum.wrapping_add(l.1))
}

fn add(balance: &mut [u64], node: usize, n: u64, is_in: bool) {
    if let Some(place) = balance.get_mut(node) {
        *place = place.wrapping_add(if is_in { n } else { n.wrapping_neg() });
    }
}

impl Notes {
    /// How many counters there are.
    pub fn n_counters(&self) -> usize {
        let of_calls = self.sums.iter().map(|sum| sum.counters.len()).sum::<usize>();
        self.functions.iter().map(Flow::n_counters).sum::<usize>() + of_calls
    }

    /// How many words an area has of what is counted: all counters, and those of calls through pointers.
    pub fn n_words(&self) -> usize {
        let end = |c: &Callees| {
            usize::try_from(u64::from(c.first).saturating_add(c.n_words())).unwrap_or(usize::MAX)
        };
        self.callees.as_ref().map_or(0, end).max(self.n_counters())
    }

    /// The profile that `counts`, one a counter, stand for. `left` says where moved code was left otherwise
    /// than its flow says, as offsets in it, and how often. `n_stopped` threads may have been stopped in the
    /// middle of a block.
    pub fn profile(&self, counts: &[u64], left: &[(u64, i64)], n_stopped: u64) -> Profile {
        // A block may end with its call.
        let is_call = |at: u64| at >> BEHIND_CALL & 1 == 1;
        let in_call = |at: u64| if is_call(at) { (at & !(1 << BEHIND_CALL)).saturating_sub(1) } else { at };
        let offsets: Vec<u64> = left.iter().map(|l| in_call(l.0)).collect();
        let find = |offsets: &[u64]| match left {
            [] => Vec::new(),
            _ => positions::find(&self.places, offsets).unwrap_or_default(),
        };
        let nodes = find(&offsets);
        let behind = find(&left.iter().map(|l| l.0 & !(1 << BEHIND_CALL)).collect::<Vec<_>>());
        let mut by_function: BTreeMap<u32, Vec<(u32, i64)>> = BTreeMap::new();
        // How often a block was left behind its counter, and behind how many of its calls.
        let mut before_calls: BTreeMap<(u32, u32), Vec<(u32, i64)>> = BTreeMap::new();
        for ((found, behind), (at, n)) in nodes.iter().zip(&behind).zip(left) {
            let Some(Found { function, node, n_called }) = *found else { continue };
            by_function.entry(function).or_default().push((node, *n));
            let n_called = match (is_call(*at), behind) {
                (false, _) => n_called,
                (true, Some(behind)) if (behind.function, behind.node) == (function, node) => behind.n_called,
                (true, _) => n_called + 1,
            };
            if node & 1 == 1 {
                before_calls.entry((function, node / 2)).or_default().push((n_called, *n));
            }
        }
        let mut profile =
            Profile { image: self.image.clone(), exactness: Exactness::Exact, ..Profile::default() };
        let n_blocks = self.functions.iter().map(|f| f.blocks.len()).sum();
        let (mut all, mut blocks) = (Vec::with_capacity(n_blocks), Vec::with_capacity(n_blocks));
        // Per block: how often it was left along its ways.
        let mut left_along: Vec<(u64, (u64, u64))> = Vec::with_capacity(n_blocks);
        let mut edges: Vec<(Edge, u64, (u64, u64))> = Vec::new();
        let mut intervals = Intervals { n_stopped, ..Intervals::default() };
        let is_off = |(least, most): &(u64, u64)| least != most;
        let mut first = 0;
        // The same by the blocks' positions.
        let mut before_of: BTreeMap<u32, &Vec<(u32, i64)>> = BTreeMap::new();
        for (function, flow) in (0..).zip(&self.functions) {
            let position = u32::try_from(all.len()).unwrap_or(u32::MAX);
            let own = before_calls.range((function, 0)..=(function, u32::MAX));
            before_of.extend(own.map(|(&(_, n), left)| (position.saturating_add(n), left)));
            let end = first + flow.n_counters();
            let left = by_function.get(&function).map_or(&[][..], Vec::as_slice);
            let solved = flow.solve(counts.get(first..end).unwrap_or_default(), left, n_stopped);
            first = end;
            for (i, (node, n)) in flow.blocks.iter().zip(&solved.blocks).enumerate() {
                let count = n.unwrap_or(0);
                let between = solved.between.blocks.get(i).copied().unwrap_or((count, count));
                all.push((count, between));
                blocks.extend(n.map(|n| (node.start, n)));
                intervals.blocks.extend(n.map(|_| (node.start, between)).filter(|(_, b)| is_off(b)));
            }
            let mut ways = solved.ways.iter().enumerate();
            for node in &flow.blocks {
                let own = ways.by_ref().take(node.ways.len());
                left_along.push(own.fold((0, (0, 0)), |sum, (i, n)| {
                    let n = n.unwrap_or(0);
                    plus(sum, (n, solved.between.ways.get(i).copied().unwrap_or((n, n))))
                }));
            }
            if let Some(i) = flow.entry_block()
                && let Some(&Some(n)) = solved.enters.get(i)
            {
                profile.entries.insert(flow.entry, n);
                let between = solved.between.enters.get(i).copied().filter(is_off);
                intervals.entries.extend(between.map(|b| (flow.entry, b)));
            }
            // Of what never ran, blocks say all.
            let may_have_run = solved.between.blocks.iter().any(is_off);
            if flow.is_whole && (may_have_run || solved.blocks.iter().any(|n| *n != Some(0))) {
                let ways = flow.blocks.iter().flat_map(|b| b.ways.iter().map(move |w| (b, w)));
                for (i, ((from, way), n)) in ways.zip(&solved.ways).enumerate() {
                    let (Some(to), Some(n)) = (flow.blocks.get(way.to as usize), n) else { continue };
                    let between = solved.between.ways.get(i).copied().unwrap_or((*n, *n));
                    edges.push((Edge { from: from.start, to: to.start }, *n, between));
                }
            }
        }
        // All at once: in the order of addresses, which they mostly have.
        profile.blocks = blocks.into_iter().collect();
        edges.sort_by_key(|e| e.0);
        // Two edges between the same blocks are one here.
        edges.dedup_by(|next, one| {
            let same = next.0 == one.0;
            if same {
                one.1 = one.1.saturating_add(next.1);
                one.2 = (one.2.0.saturating_add(next.2.0), one.2.1.saturating_add(next.2.1));
            }
            same
        });
        intervals.edges = edges.iter().filter(|e| is_off(&e.2)).map(|e| (e.0, e.2)).collect();
        profile.edges = edges.into_iter().map(|e| (e.0, e.1)).collect();
        for sum in &self.sums {
            let mut n: Count = (0, (0, 0));
            for &(block, n_calls) in &sum.blocks {
                let less = before_of.get(&block).map_or(0, |left| left_before(left, n_calls));
                let least = |n: u64| n.saturating_sub_signed(less);
                let of = all.get(block as usize).map(|&(n, (a, b))| (least(n), (least(a), least(b))));
                n = of.map_or(n, |of| plus(n, of));
            }
            for &block in &sum.left {
                // A thread may have been stopped behind the call.
                let along = left_along.get(block as usize).copied().unwrap_or_default();
                n = plus(n, (along.0, (along.1.0, along.1.1.saturating_add(n_stopped))));
            }
            for &counter in &sum.counters {
                let count = counts.get(counter as usize).copied().unwrap_or(0);
                n = plus(n, (count, (count, count)));
            }
            let (n, between) = n;
            profile.blocks.insert(sum.at, n);
            profile.entries.insert(sum.at, n);
            // A thread may have been stopped before it came to the call.
            let between = (between.0.saturating_sub(n_stopped), between.1);
            if is_off(&between) {
                intervals.blocks.insert(sum.at, between);
                intervals.entries.insert(sum.at, between);
            }
        }
        profile.intervals = intervals;
        profile
    }

    /// Writes them.
    pub fn write(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([VERSION, if self.callees.is_some() { KIND_WITH_CALLEES } else { KIND }]);
        let empty = Profile { image: self.image.clone(), ..Profile::default() };
        put_bytes(&mut out, &engraft::write(&empty).bytes);
        out.push(u8::from(self.ends_are_taken));
        let mut before = Va(0);
        let mut address = |out: &mut Vec<u8>, at: Va| {
            varint(out, zigzag(at.since(before).cast_signed()));
            before = at;
        };
        varint(&mut out, self.functions.len() as u64);
        for flow in &self.functions {
            address(&mut out, flow.entry);
            out.push(u8::from(flow.is_whole));
            varint(&mut out, flow.blocks.len() as u64);
            for (i, block) in (0i64..).zip(&flow.blocks) {
                address(&mut out, block.start);
                let marks =
                    u64::from(block.is_counted) | u64::from(block.enters) << 1 | u64::from(block.leaves) << 2;
                varint(&mut out, marks | (block.ways.len() as u64) << 3);
                for way in &block.ways {
                    varint(&mut out, zigzag(i64::from(way.to) - i) << 1 | u64::from(way.is_counted));
                }
            }
        }
        varint(&mut out, self.sums.len() as u64);
        for sum in &self.sums {
            address(&mut out, sum.at);
            varint(&mut out, sum.blocks.len() as u64);
            sum.blocks.iter().flat_map(|&(n, k)| [n, k]).for_each(|n| varint(&mut out, u64::from(n)));
            for all in [&sum.left, &sum.counters] {
                varint(&mut out, all.len() as u64);
                all.iter().for_each(|&n| varint(&mut out, u64::from(n)));
            }
        }
        varint(&mut out, self.watches.len() as u64);
        for watch in &self.watches {
            put_bytes(&mut out, watch.what.as_bytes());
            varint(&mut out, u64::from(watch.word));
            let keeps = match watch.keeps {
                Keeps::Count => 0,
                Keeps::Last => 1,
                Keeps::Histogram => 2,
                Keeps::Ring(len) => 3 + u64::from(len),
            };
            varint(&mut out, keeps);
        }
        put_bytes(&mut out, &self.places);
        if let Some(callees) = &self.callees {
            callees.write(&mut out);
        }
        let sum = xxh3_64(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if they are cut off, changed, or of a version that we do not know.
    pub fn parse(file: &[u8]) -> Result<Notes, ReadError> {
        let has_callees = file.get(MAGIC.len() + 1) == Some(&KIND_WITH_CALLEES);
        let kind = if has_callees { KIND_WITH_CALLEES } else { KIND };
        let mut c = Cursor::open(file, kind, "these are no notes that we know")?;
        let image = engraft::parse(c.bytes()?)?.image;
        let ends_are_taken = c.varint()? == 1;
        let mut before = Va(0);
        let mut address = |c: &mut Cursor<'_>| -> Result<Va, ReadError> {
            before = before.plus(unzigzag(c.varint()?).cast_unsigned());
            Ok(before)
        };
        let word = |c: &mut Cursor<'_>| Ok(u32::try_from(c.varint()?).unwrap_or(u32::MAX));
        let mut functions = Vec::new();
        for _ in 0..c.varint()? {
            let entry = address(&mut c)?;
            let is_whole = c.varint()? == 1;
            let mut blocks = Vec::new();
            for i in 0..c.varint()?.cast_signed() {
                let start = address(&mut c)?;
                let marks = c.varint()?;
                let mut ways = SmallVec::new();
                for _ in 0..marks >> 3 {
                    let way = c.varint()?;
                    let to = u32::try_from(i.wrapping_add(unzigzag(way >> 1))).unwrap_or(u32::MAX);
                    ways.push(Way { to, is_counted: way & 1 == 1 });
                }
                blocks.push(Node {
                    start,
                    is_counted: marks & 1 == 1,
                    enters: marks & 2 == 2,
                    leaves: marks & 4 == 4,
                    ways,
                });
            }
            functions.push(Flow { entry, is_whole, blocks });
        }
        let mut sums = Vec::new();
        for _ in 0..c.varint()? {
            let at = address(&mut c)?;
            let n_blocks = c.varint()?;
            let blocks = (0..n_blocks).map(|_| Ok((word(&mut c)?, word(&mut c)?)));
            let blocks = blocks.collect::<Result<_, ReadError>>()?;
            let mut numbers = || -> Result<Vec<u32>, ReadError> {
                let n = c.varint()?;
                (0..n).map(|_| word(&mut c)).collect()
            };
            let (left, counters) = (numbers()?, numbers()?);
            sums.push(Sum { at, blocks, left, counters });
        }
        let mut watches = Vec::new();
        for _ in 0..c.varint()? {
            let what = String::from_utf8_lossy(c.bytes()?).into_owned();
            let first = word(&mut c)?;
            let keeps = match c.varint()? {
                0 => Keeps::Count,
                1 => Keeps::Last,
                2 => Keeps::Histogram,
                n => Keeps::Ring(u32::try_from(n - 3).unwrap_or(0)),
            };
            watches.push(Watch { what, word: first, keeps });
        }
        let places = c.bytes()?.to_vec();
        let callees = has_callees.then(|| Callees::parse(&mut c)).transpose()?;
        Ok(Notes { image, ends_are_taken, functions, sums, watches, places, callees })
    }
}

/// What kind of `.engraft` file notes are; those of 'F' to 'L' and 'N' came before.
const KIND: u8 = b'M';
/// The kind of those that speak of calls through pointers, too.
const KIND_WITH_CALLEES: u8 = b'O';

#[cfg(test)]
mod tests;
