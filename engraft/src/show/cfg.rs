//! `show BINARY cfg`: starts of functions and blocks, and jump tables, for other tools.

use program::{Program, Va};
use serde::Serialize;
use views::{Table, View};

/// Addresses are numbers, in ascending order.
#[derive(Serialize)]
pub struct CfgView {
    schema: &'static str,
    functions: Vec<u64>,
    blocks: Vec<u64>,
    tables: Vec<TableView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<Vec<u64>>,
}

#[derive(Serialize)]
struct TableView {
    at: u64,
    targets: Vec<u64>,
}

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
        schema: "engraft.cfg/1",
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

impl View for CfgView {
    fn table(&self) -> Table {
        let mut table = Table::new(&["kind", "at>", "target>"]);
        let mut row =
            |kind: &str, at: u64, target: String| table.row([kind.into(), Va(at).to_string(), target]);
        self.functions.iter().for_each(|&at| row("function", at, String::new()));
        self.blocks.iter().for_each(|&at| row("block", at, String::new()));
        for t in &self.tables {
            t.targets.iter().for_each(|&to| row("table", t.at, Va(to).to_string()));
        }
        self.instructions.iter().flatten().for_each(|&at| row("instruction", at, String::new()));
        table
    }
}
