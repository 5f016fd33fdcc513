//! Which counter each block or edge has, and how it is incremented.
//!
//! A block's counter is incremented at the first place in the block where that costs nothing but `inc`: where
//! the flags are dead. Places after a call do not qualify, since a call may not return.
//!
//! Source: Knuth, TAOCP vol. 1, 1.3.3 for counting at all; the placement by liveness is that of every binary
//! instrumenter.

use crate::arch::emit::Increment;
use crate::code::Insert;
use crate::inserts::{Spot, Written};
use crate::not_moved::NotMoved;
use crate::plan::{CountedCall, Counting};
use crate::select::plt;
use crate::select::springboard::{Comes, Springboard};
use program::arch::ControlFlow;
use program::{BlockId, Call, CallKind, Callee, EdgeId, EdgeKind, FlagLiveness, FuncId, Program, Va};

/// What has a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// A block.
    Block(BlockId),
    /// An edge.
    Edge(EdgeId),
}

/// What is counted, in the order of the counters: function by function, blocks before edges; and which
/// functions as sparsely as was asked for.
pub fn choose(
    program: &Program,
    counting: &Counting,
    not_moved: &[Option<NotMoved>],
    boards: &[Springboard],
) -> (Vec<Counted>, Vec<FuncId>) {
    let mut sparsely = Vec::new();
    let sparse = match counting {
        Counting::Nothing => return (Vec::new(), sparsely),
        Counting::Blocks => &[][..],
        Counting::Sparse(all) => all,
    };
    let from_outside = boards.iter().filter(|b| b.comes == Comes::In);
    let mut boards: Vec<Va> = from_outside.map(|b| b.at).collect();
    boards.sort_unstable();
    let mut all = Vec::new();
    for id in program.func_ids().filter(|id| not_moved.get(id.index()).is_some_and(Option::is_none)) {
        let few = sparse.get(id.index()).and_then(Option::as_ref).filter(|few| {
            !has_other_ways_in(program, id, &boards, &few.open)
                && few.edges.iter().all(|&e| spot(program, e).is_some())
        });
        match few {
            Some(few) => {
                sparsely.push(id);
                all.extend(few.blocks.iter().map(|&b| Counted::Block(b)));
                all.extend(few.edges.iter().map(|&e| Counted::Edge(e)));
            }
            None => all.extend(plt::blocks(program, id).map(Counted::Block)),
        }
    }
    (all, sparsely)
}

/// The calls, ascending, of stubs that stay. They come as from inside of the stub, where nothing else stands:
/// so it is known where in the block each of them is. They are put where they go.
pub fn mark_stub_calls(
    program: &Program,
    not_moved: &[Option<NotMoved>],
    inserts: &mut Vec<Written>,
) -> Vec<Va> {
    let why = |id: FuncId| not_moved.get(id.index()).copied().flatten();
    let mut all = Vec::new();
    for call in program.calls.iter().filter(|c| c.kind == CallKind::Call) {
        let Callee::Function(callee) = call.callee else { continue };
        if why(program.block(call.block).func).is_none()
            && why(callee) == Some(NotMoved::PltStub)
            && program.is_direct_call(call.at)
        {
            all.push(call.at);
            inserts.push(((call.block, Spot::FromInside(call.at)), Insert::default()));
        }
    }
    all
}

/// Which calls of stubs that stay are counted by themselves, ascending: of functions that are `sparse`, those
/// of `calls` where it does not follow how often control comes to them; of others all, since nothing tells
/// how often a signal handler left their blocks before.
pub fn choose_calls(
    program: &Program,
    calls: &[CountedCall],
    not_moved: &[Option<NotMoved>],
    sparse: &[FuncId],
) -> Vec<Va> {
    let why = |id: FuncId| not_moved.get(id.index()).copied().flatten();
    let is_one = |call: &&Call| {
        let Callee::Function(callee) = call.callee else { return false };
        let func = program.block(call.block).func;
        let known = || calls.binary_search_by_key(&call.at, |c| c.at).ok().and_then(|n| calls.get(n));
        why(func).is_none()
            && why(callee) == Some(NotMoved::PltStub)
            && match call.kind {
                _ if sparse.binary_search(&func).is_ok() => known().is_some_and(|c| !c.follows),
                CallKind::Call | CallKind::TailCall => true,
                _ => false,
            }
    };
    program.calls.iter().filter(is_one).map(|call| call.at).collect()
}

/// Puts the increments of `calls`, whose counters are `first` and those that follow, where they go.
pub fn count_calls(
    program: &Program,
    flags: &FlagLiveness,
    calls: &[Va],
    first: u32,
    inserts: &mut Vec<Written>,
) {
    for (n, &at) in (first..).zip(calls) {
        let Some(block) = program.block_at(at) else { continue };
        let live = flags.before(program, block).into_iter().find(|b| b.0 == at);
        let how = live.map_or(Increment::Spilled, |l| Increment::at(l.1));
        inserts.push(((block, Spot::Before(at)), Insert::increment(how, n)));
    }
}

/// Whether old code may lead into the function elsewhere than at its entries and at the blocks `open`;
/// `boards` are the places of springboards, sorted.
fn has_other_ways_in(program: &Program, id: FuncId, boards: &[Va], open: &[BlockId]) -> bool {
    let function = program.function(id);
    let is_other = |at: Va| {
        let is_known = |b: BlockId| function.entries.contains(&b) || open.contains(&b);
        at != function.entry && !program.block_from(at).is_some_and(is_known)
    };
    function.ranges.iter().any(|range| {
        let from = boards.partition_point(|b| *b < range.start);
        boards.iter().skip(from).take_while(|b| **b < range.end).any(|b| is_other(*b))
    })
}

/// Where on its way an edge is counted, if it can be without more ado.
fn spot(program: &Program, edge: EdgeId) -> Option<(BlockId, Spot)> {
    let edge = program.edge(edge);
    match edge.kind {
        EdgeKind::FallThrough => Some((edge.from, Spot::Through)),
        EdgeKind::Taken => Some((edge.from, Spot::Taken)),
        // Behind what the block calls, which may not have come back.
        EdgeKind::Jump => Some((edge.from, Spot::Before(program.block(edge.from).last_insn()))),
        EdgeKind::Table | EdgeKind::LandingPad => None,
    }
}

/// Puts the increments of the edges among `counted` where they go.
pub fn count_edges(program: &Program, flags: &FlagLiveness, counted: &[Counted], inserts: &mut Vec<Written>) {
    for (n, one) in (0..).zip(counted) {
        let place = match *one {
            Counted::Block(_) => None,
            Counted::Edge(edge) => spot(program, edge).zip(Some(program.edge(edge).to)),
        };
        let Some((place, to)) = place else { continue };
        let mut how = Increment::at(flags.live_in(to));
        if how != Increment::Flags {
            let live = flags.before(program, to).first().map(|l| l.1);
            how = live.map_or(Increment::Spilled, Increment::at);
        }
        inserts.push((place, Insert::increment(how, n)));
    }
}

/// The counters of blocks.
pub struct BlockCounters {
    /// Per block its counter, `NO_COUNTER` if it has none; empty if no block has one.
    counter_of: Vec<u32>,
    flags: Option<FlagLiveness>,
}

const NO_COUNTER: u32 = u32::MAX;

impl BlockCounters {
    /// Those of the blocks among what is `counted`; `flags` are there if anything is.
    pub fn new(program: &Program, counted: &[Counted], flags: Option<FlagLiveness>) -> BlockCounters {
        let mut counter_of = vec![NO_COUNTER; if counted.is_empty() { 0 } else { program.blocks.len() }];
        for (n, one) in (0..).zip(counted) {
            if let Counted::Block(b) = one
                && let Some(place) = counter_of.get_mut(b.index())
            {
                *place = n;
            }
        }
        BlockCounters { counter_of, flags }
    }

    /// Where and how the counter of `block` is incremented, if it has one.
    pub fn probe(&self, program: &Program, block: BlockId) -> Option<Probe> {
        let counter = *self.counter_of.get(block.index()).filter(|n| **n != NO_COUNTER)?;
        Some(probe(program, self.flags.as_ref()?, block, counter))
    }
}

/// An increment of a counter before an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The instruction.
    pub at: Va,
    /// How it is written.
    pub how: Increment,
    /// Which counter.
    pub counter: u32,
}

/// The probe that counts `block`.
fn probe(program: &Program, flags: &FlagLiveness, block: BlockId, counter: u32) -> Probe {
    let start = program.block(block).start;
    // Ninety-nine of a hundred blocks.
    if Increment::at(flags.live_in(block)) == Increment::Flags {
        return Probe { at: start, how: Increment::Flags, counter };
    }
    let before = flags.before(program, block);
    let mut best = Probe { at: start, how: Increment::Spilled, counter };
    for (insn, (at, live)) in program.insns(block).zip(before) {
        let how = Increment::at(live);
        if how < best.how {
            best = Probe { at, how, counter };
        }
        if matches!(insn.flow(), ControlFlow::Call(_) | ControlFlow::CallIndirect) || insn.is_repeated() {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, Sparse};
    use crate::testing::{assembled, function, inserts};
    use expect_test::expect;

    #[test]
    fn edges_are_counted_on_their_way() {
        let code = "test %edi,%edi\nje 1f\nmov $1,%eax\njmp 2f\n1: mov $2,%eax\n2: ret";
        let program = assembled(&[("_start", "call f\nhlt"), ("f", code)]);
        let f = function(&program, "f");
        let edges: Vec<EdgeId> = program.function(f).block_ids().flat_map(|b| program.edge_ids(b)).collect();
        let mut all = vec![None; program.functions.len()];
        all[f.index()] = Some(Sparse { edges, ..Sparse::default() });
        let plan = Plan { counting: Counting::Sparse(all), ..Plan::NULL };
        let text = inserts(&program, &plan, f);
        let counted: String = text.split_inclusive("\n+").filter(|part| part.contains("Flags")).collect();
        expect![[r#"
            0 Taken
                Flags 2
            +0 Through
                Flags 1
            +4 Before(+0x9)
                Flags 3
            +b Through
                Flags 4
        "#]]
        .assert_eq(&counted);
    }

    #[test]
    fn a_counter_goes_where_it_costs_least_but_not_behind_a_call() {
        let dead_later = "jo 1f\nmov %edi,%eax\nseto %al\nadd %edi,%eax\n1: ret";
        let behind_call = "jo 1f\ncall g\n1: seto %al\nret";
        for (code, at) in [(dead_later, 5), (behind_call, 0)] {
            let program = assembled(&[("_start", "call f\nhlt"), ("f", code), ("g", "ret")]);
            let flags = FlagLiveness::compute(&program);
            let f = function(&program, "f");
            let block = program.function(f).block_ids().nth(1).expect("the one behind the branch");
            let probe = probe(&program, &flags, block, 0);
            assert_eq!(probe.at.since(program.block(block).start), at, "{code}");
        }
    }
}
