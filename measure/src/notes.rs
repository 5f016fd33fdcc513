//! What the counters of a module mean: the flow of its functions, and which of it is counted.

use crate::edges::Shape;
use crate::returns::Returns;
use probe::{Counted, Module, Stay};
use profile::ImageRef;
use profile::counters::{self, Flow, Node, Notes, Way};
use program::{BlockEnd, BlockId, CallKind, Callee, FuncId, Program};
use std::collections::{BTreeMap, HashSet};

// The runtime writes what `profile` reads.
const _: () = assert!(
    probe::arch::ARENA_MAGIC == counters::RAW_MAGIC
        && probe::arch::N_ROWS == counters::N_ROWS
        && probe::arch::N_AREAS == counters::N_AREAS
        && probe::arch::MAX_AREAS == counters::MAX_AREAS
        && probe::arch::EXTENTS_AT == counters::EXTENTS_AT
        && probe::arch::ROWS_AT == counters::ROWS_AT
        && probe::arch::ROW_LEN == counters::ROW_LEN
);

/// What the counters of `module` mean.
///
/// Of a function whose blocks are all counted, calls are taken to come back: then its entries are known where flow leaves no choice. A stub
/// of the linkage table that stays runs as often as the blocks that call it: exact, unless an earlier call of such a block did not return.
pub fn notes(module: &Module<'_>) -> Notes {
    let program = module.program;
    let returns = Returns::of(program);
    let (mut blocks, mut edges) = (vec![false; program.blocks.len()], HashSet::new());
    for one in &module.counted {
        match one {
            Counted::Block(b) => blocks[b.index()] = true,
            Counted::Edge(e) => {
                edges.insert(*e);
            }
        }
    }
    let mut functions = Vec::new();
    let mut position = vec![None; program.blocks.len()];
    let mut n = 0u32;
    let is_moved = |f: &FuncId| module.stays.get(f.index()).is_some_and(Option::is_none);
    for id in program.func_ids().filter(is_moved).filter(|_| !module.counted.is_empty()) {
        let function = program.function(id);
        let is_whole = module.sparse.binary_search(&id).is_ok();
        // Where every block is counted, jump tables are ways inside: else what goes through one to the entry would have called it.
        let shape = match is_whole {
            true => Shape::of(program, &returns, id).0,
            false => Shape::with(program, &returns, id, false),
        };
        // Of a stub, the first block is moved.
        let mine: Vec<BlockId> = function.block_ids().filter(|b| is_whole || blocks[b.index()]).collect();
        for b in &mine {
            position[b.index()] = Some(n);
            n += 1;
        }
        let first = function.blocks.start;
        let node = |b: BlockId| {
            let ways = shape
                .ways(program, b)
                .map(|e| Way { to: program.edge(e).to.0 - first, is_counted: edges.contains(&e) });
            Node {
                start: program.block(b).start,
                is_counted: blocks[b.index()],
                enters: shape.enters(b),
                leaves: if is_whole { shape.leaves(b) } else { ends(program, &shape, b) },
                ways: ways.collect(),
            }
        };
        let nodes = mine.into_iter().map(node).collect();
        functions.push(Flow { entry: function.entry, is_whole, blocks: nodes });
    }
    Notes {
        watches: Vec::new(),
        sums: sums(module, &position),
        image: ImageRef::of(&program.image),
        functions,
    }
}

/// Whether control may leave the function in `block`, if all calls come back that may.
fn ends(program: &Program, shape: &Shape, block: BlockId) -> bool {
    let b = program.block(block);
    !matches!(b.end, BlockEnd::FallThrough | BlockEnd::Branch | BlockEnd::Jump | BlockEnd::Switch)
        || shape.ways(program, block).next().is_none()
        || program.calls_in(block).iter().any(|c| c.kind != CallKind::Call || !c.returns)
}

/// Stubs of the linkage table that stay where they are: who calls them is counted. `position` is that of blocks in the notes.
fn sums(module: &Module<'_>, position: &[Option<u32>]) -> Vec<(program::Va, Vec<u32>)> {
    let program = module.program;
    let mut callers: BTreeMap<FuncId, Option<Vec<u32>>> = BTreeMap::new();
    for call in &program.calls {
        let Callee::Function(callee) = call.callee else { continue };
        if module.stays.get(callee.index()) == Some(&Some(Stay::PltStub)) {
            let all = callers.entry(callee).or_insert_with(|| Some(Vec::new()));
            match (all.as_mut(), position[call.block.index()], call.kind) {
                (Some(all), Some(n), CallKind::Call | CallKind::TailCall) => all.push(n),
                _ => *all = None,
            }
        }
    }
    let first = |id| program.entry_block(id).map(|b| (b, program.block(b).start));
    let sums = callers.into_iter().filter_map(|(id, all)| {
        let (block, start) = first(id)?;
        position[block.index()].is_none().then_some((start, all?))
    });
    sums.collect()
}
