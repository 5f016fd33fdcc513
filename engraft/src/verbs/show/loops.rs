//! `show BINARY loops`: every loop of every function, outer ones before those inside.

use program::{EdgeId, FuncId, LoopId, Loops, Program};
use rayon::prelude::*;
use tracing::info_span;
use views::show::loops::{LoopRow, LoopsView};

/// The loops of all functions, computed function by function.
pub fn of_all(program: &Program) -> Vec<Loops> {
    let _span = info_span!("loops").entered();
    let ids: Vec<FuncId> = program.func_ids().collect();
    ids.par_iter().map(|&f| Loops::compute(program, f)).collect()
}

/// Every loop, by function.
pub fn view(program: &Program) -> LoopsView {
    let at = |b| program.block(b).start.0;
    let ends = |e: EdgeId| (at(program.edge(e).from), at(program.edge(e).to));
    let row = |loops: &Loops, id: LoopId| LoopRow {
        function: program.function(loops.func).name(),
        header: at(loops.header(id)),
        headers: loops.entries(id).map(at).collect(),
        depth: loops.depth(id),
        n_blocks: loops.blocks(id).len(),
        back_edges: loops.back_edges(id).iter().map(|&e| ends(e)).collect(),
        exits: loops.exits(program, id).into_iter().map(ends).collect(),
    };
    let all = of_all(program);
    let loops = all.iter().flat_map(|loops| loops.ids().map(move |id| row(loops, id))).collect();
    LoopsView { schema: LoopsView::SCHEMA, binary: program.image.name.clone(), loops }
}
