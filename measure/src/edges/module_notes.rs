//! What the counters of a module mean: the flow of its functions, and which of it is counted.

use super::indirect_calls::Callees;
use super::notes::{FunctionFlow, Node, Notes, Sum, Way};
use super::plan::{Shape, goes_on};
use super::positions;
use super::returns::Returns;
use probe::arch::shared;
use probe::{Counted, Module, NotMoved, Reached};
use profile::ImageRef;
use program::{BlockId, Call, CallKind, Callee, FuncId};
use std::collections::BTreeMap;

/// What the counters of `module` mean.
///
/// Of a function whose blocks are all counted, calls are taken to come back: then its entries are known where
/// flow leaves no choice. A PLT stub that stays runs as often as the blocks that call it:
/// where an earlier call of such a block may not return, the flow behind it says how often, or a counter of
/// the call's own.
pub fn notes(module: &Module<'_>) -> Notes {
    let program = module.program;
    let returns = Returns::of(program);
    let (mut blocks, mut edges) = (vec![false; program.blocks.len()], vec![false; program.edges.len()]);
    for one in &module.words.counted {
        match one {
            Counted::Block(b) => blocks[b.index()] = true,
            Counted::Edge(e) => edges[e.index()] = true,
        }
    }
    let mut functions = Vec::new();
    let mut position = vec![None; program.blocks.len()];
    let mut n = 0u32;
    let is_moved = |f: &FuncId| module.not_moved.get(f.index()).is_some_and(Option::is_none);
    for id in program.func_ids().filter(is_moved).filter(|_| !module.words.counted.is_empty()) {
        let function = program.function(id);
        let is_whole = module.words.sparse.binary_search(&id).is_ok();
        // Where every block is counted, jump tables are ways inside: else what goes through one to the entry
        // would have called it.
        let shape = match is_whole {
            true => Shape::of(program, &returns, id).0,
            false => Shape::with(program, &returns, id, false),
        };
        let first = function.blocks.start;
        let mut nodes = Vec::with_capacity(if is_whole { function.n_blocks() } else { 0 });
        // Of a stub, the first block is moved.
        for id in function.block_ids().filter(|b| is_whole || blocks[b.index()]) {
            let block = program.block(id);
            let out = program.successors(id);
            let ways = out.iter().zip(&edges[block.first_edge.index()..]).filter(|(e, _)| shape.is_way(e));
            let ways = ways.map(|(e, &is_counted)| Way { to: e.to.0 - first, is_counted });
            let node = Node {
                start: block.start,
                is_counted: blocks[id.index()],
                enters: shape.enters(id),
                leaves: false,
                ways: ways.collect(),
            };
            let leaves = match is_whole {
                true => shape.leaves(id),
                false => node.ways.is_empty() || !goes_on(block.end) || !returns.may_all_be(id),
            };
            position[id.index()] = Some(n);
            n += 1;
            nodes.push(Node { leaves, ..node });
        }
        functions.push(FunctionFlow { entry: function.entry, is_whole, blocks: nodes });
    }
    let callees = module.words.indirect_calls.as_ref().map(|c| Callees {
        base: module.counters().start.plus(probe::offset!(shared::HomePage, owner)),
        old: module.old_segments(),
        first: c.first,
        n_slots: c.n_slots,
        sites: c.sites.clone(),
    });
    Notes {
        callees,
        ends_are_taken: probe::ends_are_taken(program),
        watches: Vec::new(),
        positions: positions::write(&positions_of(module, &functions)),
        sums: sums(module, &returns, &position),
        image: ImageRef::of(&program.image),
        functions: functions.into_iter().collect(),
    }
}

/// Where the moved code belongs to in the flow of `functions`.
fn positions_of(module: &Module<'_>, functions: &[FunctionFlow]) -> Vec<positions::Position> {
    let program = module.program;
    let mut position: Vec<Option<u32>> = vec![None; program.functions.len()];
    for (n, flow) in (0..).zip(functions).filter(|(_, flow)| flow.is_whole) {
        if let Some(place) = program.function_from(flow.entry).and_then(|f| position.get_mut(f.index())) {
            *place = Some(n);
        }
    }
    let mut is_counted = vec![false; program.blocks.len()];
    for one in &module.words.counted {
        if let Counted::Block(b) = one {
            is_counted[b.index()] = true;
        }
    }
    let node = |block: BlockId, is_end: bool| {
        let func = program.block(block).func;
        let n = block.0 - program.function(func).blocks.start;
        Some((position[func.index()]?, 2 * n + u32::from(is_end)))
    };
    let mut n_marks = vec![0; program.blocks.len()];
    for block in module.code_map.stub_calls.iter().filter_map(|at| program.block_at(*at)) {
        n_marks[block.index()] += 1;
    }
    let mut out: Vec<positions::Position> = Vec::new();
    for &(at, place) in &module.code_map.reached {
        let is_start = matches!(place, Reached::Block(b) if !is_counted[b.index()]);
        let node = match place {
            Reached::Block(b) => node(b, !is_counted[b.index()]),
            Reached::Behind(b) | Reached::Called(b) => node(b, true),
            // Of what else is counted nothing follows.
            Reached::Counted(n) if n as usize >= module.words.counted.len() => continue,
            Reached::Counted(n) => match module.words.counted.get(n as usize) {
                Some(&Counted::Block(b)) => node(b, true),
                Some(&Counted::Edge(e)) => node(program.edge(e).to, false),
                None => None,
            },
            Reached::Nothing => None,
        };
        let n_called = match place {
            Reached::Called(b) => {
                out.last().filter(|last| last.node == node).map_or(0, |last| last.n_called)
                    + u32::from(n_marks[b.index()] > 0)
            }
            Reached::Behind(b) => n_marks[b.index()],
            _ => 0,
        };
        let here = positions::Position { at, node, is_start, n_called };
        match out.last_mut() {
            Some(last) if last.at == at => *last = here,
            Some(last) if last.node == node && !is_start && last.n_called == n_called => {}
            _ => out.push(here),
        }
    }
    out
}

/// PLT stubs that stay where they are: who calls them is counted. `position` is that of
/// blocks in the notes.
fn sums(module: &Module<'_>, returns: &Returns<'_>, position: &[Option<u32>]) -> Vec<Sum> {
    let program = module.program;
    let doubtful = returns.doubtful();
    let first_call = u32::try_from(module.words.counted.len()).expect("ids are 32 bits");
    // How many of the calls whose places are known are made in the block before it.
    let n_before = |call: &Call| {
        let of_block = program.calls_in(call.block).iter().take_while(|c| c.at < call.at);
        let is_known = |c: &&Call| module.code_map.stub_calls.binary_search(&c.at).is_ok();
        u32::try_from(of_block.filter(is_known).count()).unwrap_or(u32::MAX)
    };
    let mut sums: BTreeMap<FuncId, Option<Sum>> = BTreeMap::new();
    for call in &program.calls {
        let Callee::Function(callee) = call.callee else { continue };
        if module.not_moved.get(callee.index()) != Some(&Some(NotMoved::PltStub)) {
            continue;
        }
        let place = sums.entry(callee).or_insert_with(|| {
            let block = program.entry_block(callee)?;
            let is_counted = position[block.index()].is_some();
            (!is_counted).then(|| Sum { at: program.block(block).start, ..Sum::default() })
        });
        let (Some(sum), Some(n), CallKind::Call | CallKind::TailCall) =
            (place.as_mut(), position[call.block.index()], call.kind)
        else {
            *place = None;
            continue;
        };
        let own = module.words.calls.binary_search(&call.at).ok();
        let is_doubtful = doubtful.binary_search_by_key(&call.at, |d| d.at).is_ok();
        match own {
            Some(i) => sum.counters.push(first_call + u32::try_from(i).expect("ids are 32 bits")),
            None if is_doubtful => sum.left.push(n),
            None => sum.blocks.push((n, n_before(call))),
        }
    }
    sums.into_values().flatten().collect()
}

#[cfg(test)]
mod tests;
