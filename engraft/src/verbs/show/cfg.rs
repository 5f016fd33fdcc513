//! `show BINARY cfg`: starts of functions and blocks, and jump tables, for other tools.

use program::Program;
use views::show::cfg::{CfgView, TableView};

/// Of all functions but PLT stubs, which no compiler wrote.
pub fn view(program: &Program, instructions: bool) -> CfgView {
    let ours = || program.func_ids().filter(|&f| program.function(f).import.is_none());
    let sorted = |mut all: Vec<u64>| {
        all.sort_unstable();
        all.dedup();
        all
    };
    let blocks = || ours().flat_map(|f| program.function(f).block_ids());
    CfgView {
        schema: CfgView::SCHEMA,
        functions: sorted(ours().map(|f| program.function(f).entry.0).collect()),
        blocks: sorted(blocks().map(|b| program.block(b).start.0).collect()),
        tables: program
            .tables
            .iter()
            .map(|t| TableView { at: t.at.0, targets: t.targets.iter().map(|va| va.0).collect() })
            .collect(),
        instructions: instructions.then(|| {
            sorted(blocks().flat_map(|b| program.insns(b).map(|i| i.at().0).collect::<Vec<_>>()).collect())
        }),
    }
}
