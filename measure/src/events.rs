//! What is recorded of a run: events where control could have gone another way and the next event would not
//! tell, and the code that tells the rest from them.
//!
//! ```text
//! entry              each that is reached from outside, with the stack pointer where frames must be told apart
//! start of a block   that nothing leads to, a landing pad, behind a call that returns twice, where the process may end itself (`kill`), and one on
//!                    each circle of blocks that would have none
//! one of several     at its start, or on the way there: as few as the rest follows from, where they run seldom (`trace::region`)
//! a sure call        none, where what is told next tells of it; the other calls of it come to its entry
//! behind a call      of something that need not be recorded when it is entered, or left, or that may call its caller
//! a branch taken     out of the function
//! ```
//!
//! Source: J. R. Larus, "Abstract Execution", Software: Practice and Experience 20, 1990 (what need not be
//! recorded).
#![warn(clippy::indexing_slicing)]

use crate::edges::plan::{Often, Shape};
use crate::edges::returns::Returns;
use petgraph::algo::kosaraju_scc;
use petgraph::graph::DiGraph;
use probe::{Event, EventAt, Module, Plan, Reached};
use profile::Profile;
use program::arch::Flow;
use program::image::RelocationTo;
use program::{BlockEnd, BlockId, Call, CallKind, Callee, EdgeKind, FuncId, Insn, Program, Sure, Va, libc};
use rayon::prelude::*;
use std::collections::HashMap;
use trace::recording::code::{Block, Code, End, Function, Point, Site, SiteTold};
use trace::recording::event::{Head, LIMIT};
use trace::region::{Costs, Passages, thin};

// The runtime appends what `trace` reads.
const _: () = assert!(
    probe::arch::shared::EVENTS_HANDLER == trace::recording::event::HANDLER
        && probe::arch::shared::EVENTS_ANOTHER == trace::recording::event::ANOTHER
        && 1 << probe::arch::shared::EVENTS_IN_CALL == trace::recording::event::IN_CALL
        && probe::arch::shared::EVENTS_REDIRECTED == trace::recording::event::REDIRECTED
);

/// Why a module cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[error("it has more blocks than events can tell apart")]
pub struct TooLarge;

/// The most points of a module.
const MOST_POINTS: u32 = 1 << 24;
/// Where the numbers of a module's points start is a multiple of this.
const BASES: u32 = 1 << 12;

/// What of a module is recorded.
#[derive(Clone, Copy)]
pub struct Which<'a> {
    /// Whether the C library is recorded, too.
    pub libc: bool,
    /// Whether a function is, if it can be.
    pub is_recorded: &'a (dyn Fn(FuncId) -> bool + Sync),
    /// Whether a function has an event each time that it is entered.
    pub tells: &'a (dyn Fn(FuncId) -> bool + Sync),
}

/// What the events of a file go by, and it is known by in traces; of its [`probe::file_key`].
pub fn key(file_key: u128) -> u32 {
    let [a, b, c, d, ..] = file_key.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// What is to be put into the code of `program`, and what its events mean. Their numbers go by `key` and
/// `turn`; those of two modules may overlap ([`Code::numbers`]), then one needs another turn. `earlier` is
/// how it ran before.
///
/// # Errors
/// If it is too large.
pub fn plan(
    program: &Program,
    key: u32,
    turn: u32,
    which: Which<'_>,
    earlier: Option<&Profile>,
) -> Result<(Plan, Code), TooLarge> {
    let not_moved = Module::not_moved(program);
    // A stub is no function of the program's.
    let is_moved = |f: FuncId| {
        not_moved.get(f.index()).is_some_and(Option::is_none)
            && program.function(f).import.is_none()
            && (which.is_recorded)(f)
    };
    let forks = probe::calls_of_forks(program);
    // Of a static program, it is in the same file.
    let is_libc_recorded = which.libc || program.image.kind.is_static();
    let (is_moved, is_recorded, tells) = (&is_moved, which.is_recorded, which.tells);
    let mut around =
        Around { program, forks, is_moved, is_recorded, tells, is_libc_recorded, targets: HashMap::new() };
    let entries = around.entries();
    around.find_targets(&entries);
    let around = around;
    let leaves_somewhere = around.leave_somewhere();
    let base = key.wrapping_add(turn.wrapping_mul(0x9e37_79b9)) % ((LIMIT - 2 * MOST_POINTS) / BASES) * BASES;
    let mut code = unnumbered(program, key, base);
    let returns = Returns::of(program);
    let recurses = around.recurse(&leaves_somewhere);
    let mut passages = Passages::default();
    let mut often = Often::default();
    let mut events = Vec::new();
    let mut imports: HashMap<String, u32> = HashMap::new();
    for (name, n) in code.imports.iter().zip(1..) {
        imports.entry(name.clone()).or_insert(n);
    }
    let called = around.called(&leaves_somewhere, &recurses);
    let of = |func: FuncId| Of {
        around: &around,
        func,
        entries: &entries,
        leaves: &leaves_somewhere,
        recurses: &recurses,
        is_called: called.get(func.index()).is_some_and(|c| *c),
    };
    // What is called comes before what calls it.
    let mut order: Vec<FuncId> = program.func_ids().collect();
    order.sort_by_key(|f| recurses.get(f.index()));
    for func in order {
        let function = program.function(func);
        let blocks = if is_moved(func) {
            often.estimate(program, &returns, func, &Shape::with(program, &returns, func, true));
            if let Some(earlier) = earlier {
                often.take(program, func, earlier);
            }
            of(func).blocks(&imports, &returns, &often, &mut passages)
        } else if around.stub(func) > 0 {
            let block = |b: BlockId| Block { at: program.block(b).start.0, ..Block::default() };
            function.block_ids().map(block).collect()
        } else {
            Vec::new()
        };
        code.functions.get_mut(func.index()).into_iter().for_each(|f| f.blocks.clone_from(&blocks));
    }
    let mut from_inside = Vec::new();
    let mut functions = std::mem::take(&mut code.functions);
    for (func, made) in program.func_ids().zip(&mut functions).filter(|(func, _)| is_moved(*func)) {
        of(func).number(&mut made.blocks, &mut code, &mut events);
        from_inside.extend(of(func).quiet_calls(&made.blocks));
    }
    code.functions = functions;
    let mut sorted: Vec<(BlockId, u32)> = entries.iter().map(|(block, n)| (*block, *n)).collect();
    sorted.sort_by_key(|(_, n)| *n);
    for (block, n) in sorted {
        let func = program.block(block).func;
        let at = block.0 - program.function(func).blocks.start;
        code.entries.push((func.0, at));
        let has_frame = around.has_frames(func);
        let word = Head::Entry { number: base + n, has_frame }.word();
        events.push(Event { block, at: EventAt::Entry, word, has_frame });
    }
    if code.points.len() > MOST_POINTS as usize || code.entries.len() > MOST_POINTS as usize {
        return Err(TooLarge);
    }
    Ok((Plan { events, from_inside, ..Plan::NULL }, code))
}

/// The code of `program` with its functions and imports by name, without blocks.
fn unnumbered(program: &Program, key: u32, base: u32) -> Code {
    let mut code = Code { key, base, path: program.image.name.clone(), ..Code::default() };
    let stubs = program.func_ids().filter_map(|f| program.function(f).import.as_deref());
    code.imports = program.imports.iter().map(AsRef::as_ref).chain(stubs).map(str::to_owned).collect();
    code.imports.sort_unstable();
    code.imports.dedup();
    let name = |f: FuncId| Function { name: program.function(f).name(), blocks: Vec::new() };
    code.functions = program.func_ids().map(name).collect();
    code
}

/// Which block of which function the moved code of `module` is of.
pub fn places(module: &Module<'_>) -> Vec<(u32, Option<(u32, u32)>)> {
    let program = module.program;
    let block = |id: BlockId| {
        let func = program.block(id).func;
        (func.0, id.0 - program.function(func).blocks.start)
    };
    let of = |place: Reached| match place {
        Reached::Block(id) | Reached::Behind(id) | Reached::Called(id) => Some(block(id)),
        Reached::Counted(_) | Reached::Nothing => None,
    };
    module.code_map.reached.iter().map(|(at, place)| (*at, of(*place))).collect()
}

/// Where a call comes to.
#[derive(Clone, Copy)]
struct Comes {
    entry: u32,
    func: FuncId,
    /// Whether it goes there itself.
    is_direct: bool,
}

struct Around<'p> {
    program: &'p Program,
    /// The calls that may return in another process, too.
    forks: Vec<Va>,
    is_moved: &'p (dyn Fn(FuncId) -> bool + Sync),
    /// Whether a function is recorded, if it can be.
    is_recorded: &'p (dyn Fn(FuncId) -> bool + Sync),
    /// Whether a function has an event each time that it is entered.
    tells: &'p (dyn Fn(FuncId) -> bool + Sync),
    /// Whether the C library is recorded, too.
    is_libc_recorded: bool,
    /// By call: the entry that it comes to.
    targets: HashMap<Va, Comes>,
}

impl Around<'_> {
    /// The blocks of moved functions that are entered from outside, numbered.
    fn entries(&self) -> HashMap<BlockId, u32> {
        let program = self.program;
        let mut entries = HashMap::new();
        for func in program.func_ids().filter(|f| (self.is_moved)(*f)) {
            let first = program.entry_block(func);
            for block in first.into_iter().chain(program.function(func).entries.iter().copied()) {
                let n = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                entries.entry(block).or_insert(n);
            }
        }
        entries
    }

    /// Finds the entry that each call or jump comes to, if that is one that is recorded: another module may
    /// take its place only if it defines the same name.
    fn find_targets(&mut self, entries: &HashMap<BlockId, u32>) {
        let program = self.program;
        let own = own_stubs(program);
        let target = |call: &Call, insn: Option<&Insn>| {
            let Callee::Function(callee) = call.callee else { return None };
            let stub = own.get(&callee);
            let block = if let Some(stub) = stub {
                *stub
            } else {
                // It may come to another entry of it than the first.
                let to = insn.and_then(|insn| match insn.flow() {
                    Flow::Call(to) | Flow::Jump(to) | Flow::Branch(to) => Some(to),
                    _ => None,
                });
                match to {
                    Some(to) => program.block_from(to).filter(|b| program.block(*b).func == callee)?,
                    None if call.kind == CallKind::FallThrough => program.entry_block(callee)?,
                    None => return None,
                }
            };
            let entry = entries.get(&block).copied()?;
            Some((call.at, Comes { entry, func: program.block(block).func, is_direct: stub.is_none() }))
        };
        // A block may have thousands of calls: its instructions are gone through once.
        let of_block = |calls: &[Call]| {
            let mut insns =
                calls.first().map(|call| program.insns(call.block)).into_iter().flatten().peekable();
            let targets = calls.iter().map(|call| {
                while insns.next_if(|insn| insn.at() < call.at).is_some() {}
                target(call, insns.peek().filter(|insn| insn.at() == call.at))
            });
            targets.collect::<Vec<_>>()
        };
        let blocks: Vec<&[Call]> = program.calls.chunk_by(|a, b| a.block == b.block).collect();
        self.targets = blocks.into_par_iter().flat_map_iter(of_block).flatten().collect();
    }

    /// The entry that a call or jump comes to.
    fn target(&self, call: &Call) -> Option<Comes> {
        self.targets.get(&call.at).copied()
    }

    /// Functions that may be left by a jump to something that need not be recorded.
    fn leave_somewhere(&self) -> Vec<bool> {
        let program = self.program;
        let mut found = vec![false; program.functions.len()];
        loop {
            let mut changed = false;
            for call in program.calls.iter().filter(|c| c.kind != CallKind::Call) {
                let from = program.block(call.block).func;
                let to = self.target(call);
                let leads = to.is_none_or(|to| found.get(to.func.index()).copied().unwrap_or(true));
                if leads && let Some(place @ false) = found.get_mut(from.index()) {
                    *place = true;
                    changed = true;
                }
            }
            if !changed {
                return found;
            }
        }
    }

    /// Per function: in which circle of calls it is, which come back for sure; what is called has a lower
    /// number than what calls it.
    fn recurse(&self, leaves: &[bool]) -> Vec<usize> {
        let program = self.program;
        let mut graph = DiGraph::<(), (), u32>::new();
        let nodes: Vec<_> = program.func_ids().map(|_| graph.add_node(())).collect();
        for call in &program.calls {
            let from = program.block(call.block).func;
            if let Some(to) = self.target(call)
                && !leaves.get(to.func.index()).is_some_and(|l| *l)
                && let (Some(from), Some(to)) = (nodes.get(from.index()), nodes.get(to.func.index()))
            {
                graph.add_edge(*from, *to, ());
            }
        }
        let mut circle = vec![0; nodes.len()];
        for (n, all) in kosaraju_scc(&graph).into_iter().enumerate() {
            for node in all {
                circle.get_mut(node.index()).into_iter().for_each(|place| *place = n);
            }
        }
        circle
    }

    /// Per function: whether a call comes to it directly that comes back for sure, from outside of its circle
    /// of calls.
    fn called(&self, leaves: &[bool], recurses: &[usize]) -> Vec<bool> {
        let program = self.program;
        let mut called = vec![false; program.functions.len()];
        for call in program.calls.iter().filter(|c| c.kind == CallKind::Call && c.returns) {
            let Some(to) = self.target(call).filter(|to| to.is_direct) else { continue };
            let from = program.block(call.block).func;
            let is_sure = !leaves.get(to.func.index()).is_some_and(|l| *l)
                && recurses.get(to.func.index()) != recurses.get(from.index());
            called.get_mut(to.func.index()).into_iter().for_each(|place| *place |= is_sure);
        }
        called
    }

    /// The number of a function, from 1, if it is a stub that is recorded; else 0.
    fn stub(&self, func: FuncId) -> u32 {
        let is_one = self.program.function(func).import.is_some() && (self.is_recorded)(func);
        if is_one { func.0 + 1 } else { 0 }
    }

    fn is_twice(&self, call: &Call) -> bool {
        self.is_named(call, libc::returns_twice)
    }

    /// Whether it is of a function of such a name.
    fn is_named(&self, call: &Call, is_one: impl Fn(&str) -> bool) -> bool {
        let program = self.program;
        match call.callee {
            Callee::Import(n) => program.imports.get(n as usize).is_some_and(|name| is_one(name)),
            Callee::Function(f) => {
                let f = program.function(f);
                f.import.as_deref().is_some_and(&is_one) || f.names.iter().any(|n| is_one(n))
            }
            _ => false,
        }
    }

    /// Whether it is of a function of the C library that need not be recorded, which is in another module.
    fn is_quiet_import(&self, call: &Call) -> bool {
        let program = self.program;
        let name = match call.callee {
            Callee::Import(n) => program.imports.get(n as usize),
            Callee::Function(f) => program.function(f).import.as_ref(),
            _ => None,
        };
        !self.is_libc_recorded
            && name.is_some_and(|name| {
                libc::does(name, libc::SELF_CONTAINED) && self.program.image.is_libc_import(name)
            })
    }

    /// Whether it may return in another process, too, or when another stack has run.
    fn is_far(&self, call: &Call) -> bool {
        self.forks.binary_search(&call.at).is_ok()
            || self.is_named(call, |name| libc::does(name, libc::SWITCHES_STACK))
    }

    /// Whether control may come into the middle of the function's activations from other ones.
    fn has_frames(&self, func: FuncId) -> bool {
        let program = self.program;
        program.edges_of(func).iter().any(|e| e.kind == EdgeKind::LandingPad)
            || program
                .function(func)
                .block_ids()
                .flat_map(|b| program.calls_in(b))
                .any(|call| self.is_twice(call) || self.is_far(call))
    }
}

/// A function that is moved.
struct Of<'a> {
    around: &'a Around<'a>,
    func: FuncId,
    entries: &'a HashMap<BlockId, u32>,
    leaves: &'a [bool],
    recurses: &'a [usize],
    /// Whether a call comes to it directly that need not tell.
    is_called: bool,
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

impl Of<'_> {
    fn nth(&self, block: BlockId) -> u32 {
        block.0 - self.around.program.function(self.func).blocks.start
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
    fn blocks(
        &self,
        imports: &HashMap<String, u32>,
        returns: &Returns<'_>,
        often: &Often,
        passages: &mut Passages,
    ) -> Vec<Block> {
        let program = self.around.program;
        let ids: Vec<BlockId> = program.function(self.func).block_ids().collect();
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
        let first_edge = ids.first().map_or(0, |id| program.block(*id).first_edge.0);
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
            let mine = often.blocks.get(n as usize).copied().unwrap_or_default();
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
                _ if !way.0.is_empty() => {
                    End::To(way.0.iter().map(|to| (*to, u32::from(is_on_way(&way, *to)))).collect())
                }
                _ => tail.map_or(End::Stop, End::Tail),
            };
            made.push(block);
        }
        number_all(&mut made);
        thin(&mut made, &entered, &costs, passages);
        let mine = ids.iter().filter_map(|id| Some((*self.entries.get(id)?, self.nth(*id))));
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
        // What nothing leads to is come to by handlers of signals, which change where control goes on.
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

    /// Writes into `block` what is called where control leaves the function in `id`: by a branch, and to which
    /// entry; returns the entry of the tail call at its end, if there is one.
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
    fn quiet_calls(&self, blocks: &[Block]) -> Vec<Va> {
        let program = self.around.program;
        let ids = program.function(self.func).block_ids();
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
    fn number(&self, blocks: &mut [Block], code: &mut Code, events: &mut Vec<Event>) {
        let program = self.around.program;
        let func = self.func.0;
        for ((n, id), block) in (0..).zip(program.function(self.func).block_ids()).zip(blocks) {
            let mut number = |slot: &mut u32, of: Point, at: EventAt, is_far: bool| {
                if *slot != 0 {
                    code.points.push(of);
                    *slot = u32::try_from(code.points.len()).unwrap_or(u32::MAX);
                    let word = code.base.saturating_add(*slot);
                    let word = if is_far { Head::FarPoint(word).word() } else { word };
                    events.push(Event { block: id, at, word, has_frame: is_far });
                }
            };
            number(&mut block.point, Point::Start(func, n), EventAt::Start, block.is_far);
            for ((k, call), site) in (0..).zip(self.sites(id)).zip(&mut block.calls) {
                let point = Point::Behind(func, n, k);
                number(&mut site.point, point, EventAt::Behind(call.at), self.around.is_far(call));
            }
            if let Some((slot, _)) = &mut block.leaves {
                number(slot, Point::Leaves(func, n), EventAt::Taken, false);
            }
            if let End::To(ways) = &mut block.end {
                for (to, slot) in ways {
                    let taken = program
                        .successors(id)
                        .iter()
                        .any(|e| e.kind == EdgeKind::Taken && self.nth(e.to) == *to);
                    let at = if taken { EventAt::Taken } else { EventAt::Through };
                    number(slot, Point::Way(func, n, *to), at, false);
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

/// Stubs of what the module defines itself, with where that starts.
fn own_stubs(program: &Program) -> HashMap<FuncId, BlockId> {
    let image = &program.image;
    let mut own = HashMap::new();
    for stub in &image.plt {
        let at = stub.slot.and_then(|slot| {
            let n = image.relocations.binary_search_by_key(&slot, |r| r.at).ok()?;
            match image.relocations.get(n)?.to {
                RelocationTo::Symbol(_, at) => at,
                _ => None,
            }
        });
        let block = at.and_then(|at| program.block_from(at));
        let stub = program.block_from(stub.range.start).map(|b| program.block(b).func);
        if let (Some(block), Some(stub)) = (block, stub) {
            own.insert(stub, block);
        }
    }
    own
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
