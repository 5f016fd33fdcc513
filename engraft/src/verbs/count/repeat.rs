//! What was not the same in each of several runs, as it is said.

use crate::input;
use measure::reports::repeat::{ModuleSpread, Repeats};
use program::{FuncId, Program};
use views::count::repeat::{BlockSpread, EdgeSpread, FunctionSpread, RepeatView};

/// What is said of `repeats`: of the modules that are in `programs`.
pub fn view(repeats: &Repeats, programs: &[Program]) -> RepeatView {
    let mut view = RepeatView {
        runs: repeats.n_runs(),
        functions: Vec::new(),
        blocks: Vec::new(),
        edges: Vec::new(),
        n_within: 0,
    };
    repeats.spreads(programs).iter().for_each(|module| add(&mut view, module));
    let spread = |(least, most): (u64, u64)| std::cmp::Reverse(most - least);
    view.functions.sort_by_key(|f| (spread(f.instructions), f.at));
    view.blocks.sort_by_key(|b| (spread(b.count), b.at));
    view.edges.sort_by_key(|e| (spread(e.count), e.from, e.to));
    view
}

fn add(view: &mut RepeatView, of: &ModuleSpread<'_>) {
    let module = input::module_name(of.first, of.program);
    let name = |id: FuncId| input::spelt(of.program, id);
    view.n_within += of.n_within;
    view.functions.extend(of.functions.iter().map(|f| FunctionSpread {
        module: module.clone(),
        name: name(f.func),
        at: of.program.function(f.func).entry.0,
        instructions: f.instructions,
        entries: f.entries,
    }));
    view.blocks.extend(of.blocks.iter().map(|b| BlockSpread {
        module: module.clone(),
        function: name(b.func),
        at: b.at.0,
        count: b.count,
    }));
    view.edges.extend(of.edges.iter().map(|e| EdgeSpread {
        module: module.clone(),
        function: e.func.map_or_else(String::new, name),
        from: e.edge.from.0,
        to: e.edge.to.0,
        count: e.count,
    }));
}
