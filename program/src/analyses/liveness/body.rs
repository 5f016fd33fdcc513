//! One function for liveness: its instructions summed up once, then solved as often as others ask for more.
//!
//! Invariant: `Body` is small (some 20 bytes a block, [`Starts`] 8), since all functions are held at once;
//! what solving needs besides is [`Scratch`], used again for the next function.

mod reading;

use super::{Conventions, Liveness};
use crate::addr::Va;
use crate::analyses::flow_graph::count;
use crate::arch::{Decoder, EffectsOf, Insn, RegSet, Sum, abi};
use crate::ids::{BlockId, FuncId};
use crate::model::{Block, BlockEnd, Call, Callee, Edge, EdgeKind, Program};
use reading::Reading;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::OnceLock;

/// A run of instructions without a call into the image inside: what it reads first, and what it kills.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Read by an instruction before it is killed.
    reads: RegSet,
    /// Read before it is killed, also by calls that may take it as an argument.
    all_reads: RegSet,
    kills: RegSet,
}

impl Run {
    fn then(&mut self, reads: RegSet, maybe_reads: RegSet, kills: RegSet) {
        self.reads.add(reads.minus(self.kills));
        self.all_reads.add(reads.union(maybe_reads).minus(self.kills));
        self.kills.add(kills);
    }

    /// Takes what several instructions do, and notes what they write.
    fn add(&mut self, sum: &mut Sum, writes: &mut RegSet) {
        let effects = std::mem::take(sum).effects();
        writes.add(effects.writes);
        self.then(effects.reads, RegSet::EMPTY, effects.kills);
    }
}

/// Two sets as [`RegSet::narrow`] gives them, and a number, in eight bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Packed(u64);

impl Packed {
    const SET_BITS: u32 = 23;
    /// Numbers are below this.
    const LIMIT: usize = 1 << (u64::BITS - 2 * Self::SET_BITS);

    #[inline(always)]
    fn of(first: u32, second: u32, number: u32) -> Packed {
        let number = u64::from(number) << (2 * Self::SET_BITS);
        Packed(u64::from(first) | u64::from(second) << Self::SET_BITS | number)
    }
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the bits that are left out are those of the others")]
    fn sets(self) -> (u32, u32) {
        let set = (1 << Self::SET_BITS) - 1;
        (self.0 as u32 & set, (self.0 >> Self::SET_BITS) as u32 & set)
    }
    #[inline(always)]
    fn number(self) -> u32 {
        u32::try_from(self.0 >> (2 * Self::SET_BITS)).unwrap_or(0)
    }
}

/// A [`Run`] in less room: general registers and flags here, read and killed; what it does to the others,
/// which few runs touch, in a list: the number is a position in the list of the body, counted from one, or 0
/// for nothing. What is always live is left out.
type Segment = Packed;

/// Read for certain, and live, at one place: general registers and flags apart from the others.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Pair {
    reads: u32,
    live: u32,
    wide: Wide,
}

/// Other registers than [`RegSet::narrow`] holds: read for certain, and live.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Wide {
    reads: RegSet,
    live: RegSet,
}

impl Pair {
    #[inline]
    fn of(reads: RegSet, live: RegSet) -> Pair {
        let wide = Wide { reads: reads.wide(), live: live.wide() };
        Pair { reads: reads.narrow(), live: live.narrow(), wide }
    }
    fn reads(&self) -> RegSet {
        RegSet::from_narrow(self.reads).union(self.wide.reads)
    }
    fn live(&self) -> RegSet {
        RegSet::from_narrow(self.live).union(self.wide.live)
    }
    fn add_live(&mut self, set: RegSet) {
        self.live |= set.narrow();
        self.wide.live.add(set.wide());
    }
}

impl Wide {
    #[inline]
    fn add(&mut self, other: Wide) {
        self.reads.add(other.reads);
        self.live.add(other.live);
    }
}

const NONE: u32 = u32::MAX;
/// Entries of the list that are looked through for an equal one.
const RECENT: usize = 8;
/// Passes over a function before its blocks are followed one by one.
const PASSES: u32 = 6;

/// Bits under a position in `Body::segments`: the block makes calls; it is one of `Body::exits`.
const CALLS: u32 = 1;
const EXITS: u32 = 2;

/// A function's blocks, decoded once: all that solving needs.
pub struct Body {
    pub func: FuncId,
    pub first: u32,
    n_blocks: u32,
    n_entries: u32,
    /// Whether an edge leads to a block that does not come before in the order.
    is_cyclic: bool,
    has_pads: bool,
    /// In this order, to be one piece of memory: a depth-first postorder of the blocks, by position; where
    /// each block's segments end in `segments`, above [`CALLS`] and [`EXITS`]; the blocks at the entries; the
    /// functions called at the ends of all segments but each block's last.
    words: Box<[u32]>,
    /// Segments of all blocks.
    segments: Box<[Segment]>,
    /// What `segments` do to vector and mask registers, and the narrow ones among `all_reads` that may be
    /// read only.
    rest: Box<[Run]>,
    /// Written by its instructions, or by calls that keep to the ABI.
    pub writes: RegSet,
    /// Blocks that leave the function, and how; by position.
    exits: Box<[(u32, Exit)]>,
}

/// How a block leaves its function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Not at all, or never to come back: what is live there is at its last call.
    None,
    /// By a return.
    Return,
    /// Into a trap: a handler may look at the frame.
    Trap,
    /// By a jump to a function of this image.
    To(FuncId),
    /// By a jump to an import.
    Outside,
    /// By a jump through a pointer.
    Pointer,
    /// In a way that is not understood.
    Unknown,
}

/// Read for certain, and live, at the start of each block.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    at: Box<[Start]>,
    /// What [`USUAL`] does not hold.
    wides: Vec<Wide>,
}

/// Read for certain, and live; the number is the position of the other registers, in [`USUAL`] and `wides`
/// behind one another.
type Start = Packed;

/// What the ABI makes live where nothing else does.
static USUAL: [Wide; 6] = {
    const fn live(set: RegSet) -> Wide {
        Wide { reads: RegSet::EMPTY, live: set.wide() }
    }
    const ALWAYS: RegSet = abi::ALWAYS_LIVE;
    [
        live(RegSet::EMPTY),
        live(ALWAYS),
        live(ALWAYS.union(abi::ARGUMENTS)),
        live(ALWAYS.union(abi::RETURNED)),
        live(ALWAYS.union(abi::ARGUMENTS).union(abi::RETURNED)),
        Wide { reads: abi::RETURNED.wide(), live: ALWAYS.union(abi::RETURNED).wide() },
    ]
};

impl Starts {
    fn new(n: usize) -> Starts {
        Starts { at: vec![Start::default(); n].into(), wides: Vec::new() }
    }

    #[inline]
    fn wide(&self, at: u32) -> Wide {
        let at = at as usize;
        USUAL.get(at).copied().unwrap_or_else(|| self.wides[at - USUAL.len()])
    }

    fn get(&self, node: u32) -> Pair {
        let start = self.at[node as usize];
        let (reads, live) = start.sets();
        Pair { reads, live, wide: self.wide(start.number()) }
    }

    /// Adds what is at the start of `node`.
    #[inline]
    fn add_to(&self, sum: &mut Pair, node: u32) {
        let start = self.at[node as usize];
        let (reads, live) = start.sets();
        sum.reads |= reads;
        sum.live |= live;
        let wide = start.number();
        if wide != 0 {
            sum.wide.add(self.wide(wide));
        }
    }

    /// Whether that changes anything.
    fn set(&mut self, node: u32, to: Pair) -> bool {
        let start = self.at[node as usize];
        let wide = start.number();
        let wide = if self.wide(wide) == to.wide { wide } else { self.position(to.wide) };
        let start = Start::of(to.reads, to.live, wide);
        std::mem::replace(&mut self.at[node as usize], start) != start
    }

    fn position(&mut self, wide: Wide) -> u32 {
        if let Some(i) = USUAL.iter().position(|&w| w == wide) {
            return count(i);
        }
        if let Some(back) = self.wides.iter().rev().take(RECENT).position(|&w| w == wide) {
            return count(USUAL.len() + self.wides.len() - 1 - back);
        }
        if self.wides.is_empty() {
            self.wides.reserve_exact(1);
        }
        // No compiler makes so many different ones; of those that are too many, everything is said to be
        // live.
        match (USUAL.len() + self.wides.len() + 1).cmp(&Packed::LIMIT) {
            Ordering::Less => self.wides.push(wide),
            Ordering::Equal => self.wides.push(Wide { reads: abi::ALL.wide(), live: abi::ALL.wide() }),
            Ordering::Greater => {}
        }
        count(USUAL.len() + self.wides.len() - 1)
    }

    /// Live at the start of `node`.
    pub fn live(&self, node: u32) -> RegSet {
        self.get(node).live()
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.at.len()
    }
}

/// What is live in a function, given what others expect; and what it expects of others.
pub struct Solution {
    pub starts: Starts,
    pub at_entry: RegSet,
    pub read_at_entry: RegSet,
    /// What must be live at the returns of functions it calls or jumps to.
    pub wanted: Vec<(FuncId, RegSet)>,
}

/// Room for the work on one function, used again for the next.
pub struct Scratch {
    of: EffectsOf,
    seen: Vec<bool>,
    order: Vec<u32>,
    stack: Vec<(u32, u32)>,
    segments: Vec<Segment>,
    rest: Vec<Run>,
    ends: Vec<u32>,
    called: Vec<u32>,
    exits: Vec<(u32, Exit)>,
    /// When each block last grew, and when it was last computed.
    grown_at: Vec<u32>,
    computed_at: Vec<u32>,
    first_in: Vec<u32>,
    from: Vec<u32>,
    queue: VecDeque<u32>,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch {
            of: EffectsOf::new(),
            seen: Vec::new(),
            order: Vec::new(),
            stack: Vec::new(),
            segments: Vec::new(),
            rest: Vec::new(),
            ends: Vec::new(),
            called: Vec::new(),
            exits: Vec::new(),
            grown_at: Vec::new(),
            computed_at: Vec::new(),
            first_in: Vec::new(),
            from: Vec::new(),
            queue: VecDeque::new(),
        }
    }

    fn push(&mut self, run: Run) {
        let known = abi::ALL.minus(abi::ALWAYS_LIVE);
        let wide = |set: RegSet| set.both(known).wide();
        let maybe = RegSet::from_narrow(run.all_reads.narrow() & !run.reads.narrow());
        let all_reads = wide(run.all_reads).union(maybe);
        let rest = Run { reads: wide(run.reads), all_reads, kills: wide(run.kills) };
        let same = |r: &Run| (r.reads, r.all_reads, r.kills) == (rest.reads, rest.all_reads, rest.kills);
        let at = if rest.all_reads.is_empty() && rest.kills.is_empty() {
            0
        } else if let Some(back) = self.rest.iter().rev().take(RECENT).position(same) {
            self.rest.len() - back
        } else {
            // As with what is live: if there are too many different ones, the last says that everything is
            // read.
            let all = Run { reads: abi::ALL.wide(), all_reads: abi::ALL, kills: RegSet::EMPTY };
            match (self.rest.len() + 2).cmp(&Packed::LIMIT) {
                Ordering::Less => self.rest.push(rest),
                Ordering::Equal => self.rest.push(all),
                Ordering::Greater => {}
            }
            self.rest.len()
        };
        self.segments.push(Segment::of(run.reads.narrow(), run.kills.narrow(), count(at)));
    }
}

impl Body {
    /// With the functions that it calls or jumps to.
    pub fn of(program: &Program, system_v: bool, func: FuncId, scratch: &mut Scratch) -> (Body, Vec<FuncId>) {
        let f = program.function(func);
        let first = f.blocks.start;
        let main = program.blocks_of(func).binary_search_by_key(&f.entry, |b| b.start).ok();
        let entries: Vec<u32> =
            main.map(count).into_iter().chain(f.entries.iter().map(|b| b.0 - first)).collect();
        let is_cyclic = postorder(program, func, &entries, scratch);
        let mut reading = Reading::of(program, system_v, func, scratch);
        for b in f.block_ids() {
            reading.block(b, first);
        }
        let Reading { mut callees, writes, switches_stack, has_pads, .. } = reading;
        if switches_stack {
            let returns = scratch.exits.iter_mut().filter(|e| e.1 == Exit::Return);
            returns.for_each(|e| e.1 = Exit::Unknown);
        }
        callees.sort_unstable();
        callees.dedup();
        let body = Body {
            func,
            first,
            n_blocks: count(scratch.order.len()),
            n_entries: count(entries.len()),
            is_cyclic,
            has_pads,
            words: [&scratch.order[..], &scratch.ends, &entries, &scratch.called].concat().into(),
            segments: scratch.segments.as_slice().into(),
            rest: scratch.rest.as_slice().into(),
            writes,
            exits: scratch.exits.as_slice().into(),
        };
        (body, callees)
    }

    /// A depth-first postorder of its blocks, by position.
    fn order(&self) -> &[u32] {
        &self.words[..self.n_blocks as usize]
    }

    /// The blocks at its entries.
    pub fn entries(&self) -> &[u32] {
        let from = 2 * self.n_blocks as usize;
        &self.words[from..from + self.n_entries as usize]
    }

    fn end_of(&self, node: u32) -> u32 {
        self.words[(self.n_blocks + node) as usize]
    }

    /// The segments of a block, and the functions called at the ends of all but the last.
    fn segments_of(&self, node: u32) -> (&[Segment], &[u32]) {
        let from = node.checked_sub(1).map_or(0, |before| self.end_of(before) >> 2) as usize;
        let to = (self.end_of(node) >> 2) as usize;
        // Each block before has one segment that ends in no call.
        let called = (2 * self.n_blocks + self.n_entries) as usize + from - node as usize;
        (&self.segments[from..to], &self.words[called..called + (to - from) - 1])
    }

    fn makes_calls(&self, node: u32) -> bool {
        self.end_of(node) & CALLS != 0
    }

    fn exit_of(&self, node: u32) -> Exit {
        if self.end_of(node) & EXITS == 0 {
            return Exit::None;
        }
        let found = self.exits.binary_search_by_key(&node, |e| e.0);
        found.map_or(Exit::None, |i| self.exits[i].1)
    }

    /// Read for certain, and live, before `segment`, given the same after it.
    #[inline]
    fn before(&self, segment: &Segment, after: Pair) -> Pair {
        let (reads, kills) = segment.sets();
        let mut pair =
            Pair { reads: reads | after.reads & !kills, live: reads | after.live & !kills, wide: after.wide };
        if let Some(rest) = segment.number().checked_sub(1) {
            let rest = &self.rest[rest as usize];
            pair.live |= rest.all_reads.narrow();
            pair.wide.reads = rest.reads.union(after.wide.reads.minus(rest.kills));
            pair.wide.live = rest.all_reads.wide().union(after.wide.live.minus(rest.kills));
        }
        pair
    }

    /// The least solution. `before` is one for conventions that asked for less, which is where to go on from.
    ///
    /// A block is computed again only when something grew at one of its successors, which can happen once a
    /// register. Most functions are done after three passes over their blocks in postorder; what is not by
    /// the sixth goes on block by block, so that the work is at most edges times registers.
    pub fn solve(
        &self,
        program: &Program,
        conventions: &Conventions,
        before: Option<Starts>,
        s: &mut Scratch,
    ) -> Solution {
        let n = self.n_blocks as usize;
        let is_first = before.is_none();
        let mut at = before.unwrap_or_else(|| Starts::new(n));
        for times in [&mut s.grown_at, &mut s.computed_at] {
            times.clear();
            times.resize(n, 0);
        }
        let (mut now, mut last_grown) = (0, 0);
        let (mut n_passes, mut is_done) = (0, false);
        while !is_done && n_passes < PASSES {
            is_done = true;
            for &node in self.order() {
                let computed = s.computed_at[node as usize];
                let is_stale = match computed {
                    0 => is_first || self.hears_of_others(node),
                    _ => false,
                };
                let has_grown = |e: &Edge| s.grown_at[(e.to.0 - self.first) as usize] > computed;
                let successors = || program.successors(BlockId(self.first + node));
                if !is_stale && (last_grown <= computed || !successors().iter().any(has_grown)) {
                    continue;
                }
                now += 1;
                s.computed_at[node as usize] = now;
                if self.step(program, conventions, node, &mut at) {
                    s.grown_at[node as usize] = now;
                    last_grown = now;
                    is_done &= !self.is_cyclic;
                }
            }
            n_passes += 1;
        }
        if !is_done {
            self.solve_by_block(program, conventions, &mut at, s);
        }
        self.solution(program, conventions, at)
    }

    /// Goes on until nothing grows, whatever the order of the blocks.
    fn solve_by_block(&self, program: &Program, conventions: &Conventions, at: &mut Starts, s: &mut Scratch) {
        self.make_predecessors(program, s);
        s.seen.clear();
        s.seen.resize(self.n_blocks as usize, true);
        s.queue.clear();
        s.queue.extend(self.order().iter());
        while let Some(node) = s.queue.pop_front() {
            s.seen[node as usize] = false;
            if self.step(program, conventions, node, at) {
                for k in s.first_in[node as usize]..s.first_in[node as usize + 1] {
                    let p = s.from[k as usize];
                    if !std::mem::replace(&mut s.seen[p as usize], true) {
                        s.queue.push_back(p);
                    }
                }
            }
        }
    }

    /// Whether what is live at the start of a block follows from conventions, not only from its successors.
    fn hears_of_others(&self, node: u32) -> bool {
        self.end_of(node) & EXITS != 0 || !self.segments_of(node).1.is_empty()
    }

    /// Computes one block; whether anything grew.
    fn step(&self, program: &Program, conventions: &Conventions, node: u32, at: &mut Starts) -> bool {
        let callee_saved = abi::CALLEE_SAVED.minus(self.writes);
        let (segments, called) = self.segments_of(node);
        let after = match called.first() {
            None => self.out(program, conventions, node, at),
            Some(&g) => {
                let callee = conventions.of(FuncId(g));
                Pair::of(callee.read_at_entry, callee.at_entry.union(callee_saved))
            }
        };
        let mut pair = self.before(&segments[0], after);
        pair.add_live(abi::ALWAYS_LIVE);
        if self.has_pads {
            for pad in self.pads_of(program, node) {
                at.add_to(&mut pair, pad);
            }
        }
        if self.makes_calls(node) {
            pair.add_live(callee_saved);
        }
        at.set(node, pair)
    }

    /// What follows from the sets at the blocks' starts.
    fn solution(&self, program: &Program, conventions: &Conventions, at: Starts) -> Solution {
        let mut wanted = Vec::new();
        for node in (0..self.n_blocks).filter(|&n| self.makes_calls(n)) {
            let (segments, called) = self.segments_of(node);
            if called.is_empty() {
                continue;
            }
            let mut out = self.out(program, conventions, node, &at);
            for pad in self.pads_of(program, node) {
                at.add_to(&mut out, pad);
            }
            for (i, &g) in called.iter().enumerate() {
                let after = match called.get(i + 1) {
                    None => out,
                    Some(&next) => {
                        let next = conventions.of(FuncId(next));
                        Pair::of(next.read_at_entry, next.at_entry)
                    }
                };
                let before = self.before(&segments[i + 1], after);
                let callee = FuncId(g);
                let asked = before.live().minus(conventions.of(callee).clobbers);
                wanted.push((callee, before.reads().union(asked)));
            }
        }
        for &(_, exit) in &self.exits {
            if let Exit::To(g) = exit {
                wanted.push((g, conventions.of(self.func).at_return));
            }
        }
        let mut entry = Pair::default();
        for &node in self.entries() {
            at.add_to(&mut entry, node);
        }
        Solution { starts: at, at_entry: entry.live(), read_at_entry: entry.reads(), wanted }
    }

    /// The result, from a solution for the final conventions.
    pub fn liveness(&self, conventions: &Conventions, at: Starts) -> Liveness {
        let exits =
            self.exits.iter().map(|&(node, exit)| (node, self.at_exit(conventions, exit).1)).collect();
        Liveness { func: self.func, first: self.first, starts: at, exits, callee_saved: OnceLock::new() }
    }

    /// Read for certain, and live, at the end of a block.
    fn out(&self, program: &Program, conventions: &Conventions, node: u32, at: &Starts) -> Pair {
        let mut out = match self.exit_of(node) {
            Exit::None => Pair::default(),
            exit => {
                let (reads, live) = self.at_exit(conventions, exit);
                Pair::of(reads, live)
            }
        };
        for e in program.successors(BlockId(self.first + node)) {
            at.add_to(&mut out, e.to.0 - self.first);
        }
        out
    }

    fn pads_of(&self, program: &Program, node: u32) -> impl Iterator<Item = u32> {
        let edges = program.successors(BlockId(self.first + node)).iter();
        edges.filter(|e| e.kind == EdgeKind::LandingPad).map(|e| e.to.0 - self.first)
    }

    fn make_predecessors(&self, program: &Program, s: &mut Scratch) {
        let n = self.n_blocks;
        let successors = |node: u32| program.successors(BlockId(self.first + node)).iter();
        s.first_in.clear();
        s.first_in.resize(n as usize + 1, 0);
        for node in 0..n {
            successors(node).for_each(|e| s.first_in[(e.to.0 - self.first) as usize] += 1);
        }
        let mut sum = 0;
        for first in &mut s.first_in {
            sum += *first;
            *first = sum;
        }
        s.from.clear();
        s.from.resize(sum as usize, 0);
        // From the end of each list to its start, which is where the sums then stand.
        for node in (0..n).rev() {
            for e in successors(node) {
                let at = &mut s.first_in[(e.to.0 - self.first) as usize];
                *at -= 1;
                s.from[*at as usize] = node;
            }
        }
    }

    /// Read for certain, and live, where a block leaves the function.
    fn at_exit(&self, conventions: &Conventions, exit: Exit) -> (RegSet, RegSet) {
        let me = conventions.of(self.func);
        let both = |set| (set, set);
        match exit {
            Exit::None => both(RegSet::EMPTY),
            Exit::Return => both(me.at_return),
            Exit::Trap => both(abi::CALLEE_SAVED),
            Exit::To(g) => (conventions.of(g).read_at_entry, conventions.of(g).at_entry),
            Exit::Outside if conventions.system_v => {
                let callee_saved = abi::CALLEE_SAVED.union(me.at_return.minus(abi::CALLER_SAVED));
                (callee_saved, callee_saved.union(abi::ARGUMENTS))
            }
            // Any register may hold what the target needs, but no compiler passes flags to code it cannot
            // see.
            Exit::Pointer if conventions.system_v => (abi::CALLEE_SAVED, abi::ALL.minus(abi::FLAGS)),
            Exit::Outside | Exit::Pointer | Exit::Unknown => both(abi::ALL),
        }
    }
}

/// Whether `block` returns to an address that it makes itself: the instruction at `before`, the one before
/// its last, does.
pub fn makes_return_address(program: &Program, block: &Block, before: Option<Va>) -> bool {
    block.end == BlockEnd::Return
        && before.and_then(|at| insn_at(program, at)).is_some_and(|insn| insn.makes_return_address())
}

/// Has the decoder go on at `to`.
#[inline]
pub fn seek<'p>(program: &'p Program, decoder: &mut Decoder<'p>, to: Va) {
    if decoder.seek(to).is_none() {
        *decoder = Decoder::new(program.image.bytes_from(to).unwrap_or_default(), to);
    }
}

/// The instruction at `at`.
pub fn insn_at(program: &Program, at: Va) -> Option<Insn> {
    Decoder::new(program.image.bytes_from(at)?, at).next()
}

/// Puts a depth-first postorder of the blocks of `func` into `scratch.order`; whether an edge leads back in
/// it.
fn postorder(program: &Program, func: FuncId, entries: &[u32], scratch: &mut Scratch) -> bool {
    let blocks = &program.function(func).blocks;
    let n = blocks.len();
    let Scratch { seen, order, stack, first_in: place, .. } = scratch;
    seen.clear();
    seen.resize(n, false);
    place.clear();
    place.resize(n, NONE);
    order.clear();
    stack.clear();
    let mut is_cyclic = false;
    // What no entry reaches is taken from the last one on, as code mostly runs forward.
    for root in entries.iter().copied().chain((0..count(n)).rev()) {
        if std::mem::replace(&mut seen[root as usize], true) {
            continue;
        }
        stack.push((root, 0));
        while let Some((node, next)) = stack.last_mut() {
            match program.successors(BlockId(blocks.start + *node)).get(*next as usize) {
                Some(e) => {
                    *next += 1;
                    let to = e.to.0 - blocks.start;
                    if !std::mem::replace(&mut seen[to as usize], true) {
                        stack.push((to, 0));
                    } else {
                        is_cyclic |= place[to as usize] == NONE;
                    }
                }
                None => {
                    place[*node as usize] = count(order.len());
                    order.push(*node);
                    stack.pop();
                }
            }
        }
    }
    is_cyclic
}

/// Whether places inside a function are known outside of its flow: an indirect jump of it may lead there, as
/// in threaded code whose operations hold the addresses of labels.
fn has_kept_labels(program: &Program, func: FuncId) -> bool {
    program.function(func).entries.iter().any(|&b| !program.block(b).landing_pad)
}

/// How `block` leaves its function, `call` being its jump out of it.
pub fn exit(program: &Program, id: BlockId, block: &Block, call: Option<&Call>) -> Exit {
    let n_edges = || program.successors(id).iter().filter(|e| e.kind != EdgeKind::LandingPad).count();
    let out = call.map_or(Exit::Unknown, |call| match call.callee {
        Callee::Function(g) if program.function(g).import.is_none() => Exit::To(g),
        Callee::Function(_) | Callee::Import(_) => Exit::Outside,
        // Labels that were kept in memory rely on other registers than callees do.
        Callee::Indirect if has_kept_labels(program, block.func) => Exit::Unknown,
        Callee::Indirect => Exit::Pointer,
        Callee::Unknown(_) => Exit::Unknown,
    });
    match block.end {
        BlockEnd::Return => Exit::Return,
        BlockEnd::NoReturn => Exit::None,
        BlockEnd::Stop => Exit::Trap,
        BlockEnd::Switch | BlockEnd::FallThrough if n_edges() > 0 => Exit::None,
        BlockEnd::Jump if n_edges() == 1 => Exit::None,
        BlockEnd::Branch if n_edges() == 2 => Exit::None,
        // On into the next function.
        BlockEnd::FallThrough => out,
        BlockEnd::Jump | BlockEnd::IndirectTailCall => out,
        BlockEnd::Branch if n_edges() == 1 => out,
        _ => Exit::Unknown,
    }
}
