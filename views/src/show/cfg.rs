//! `show BINARY cfg`: starts of functions and blocks, and jump tables, for other tools.

use crate::{Table, View, address};
use serde::Serialize;

/// Addresses are numbers, in ascending order.
#[derive(Debug, Serialize)]
pub struct CfgView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// Where functions start; PLT stubs are left out.
    pub functions: Vec<u64>,
    /// Where their blocks start.
    pub blocks: Vec<u64>,
    /// The jump tables.
    pub tables: Vec<TableView>,
    /// Where their instructions start, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Vec<u64>>,
}

impl CfgView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.cfg/1";
}

/// A jump table.
#[derive(Debug, Serialize)]
pub struct TableView {
    /// Its address.
    pub at: u64,
    /// Where it leads.
    pub targets: Vec<u64>,
}

impl View for CfgView {
    fn table(&self) -> Table {
        let mut table = Table::new(&["kind", "at>", "target>"]);
        let mut row = |kind: &str, at: u64, target: String| table.row([kind.into(), address(at), target]);
        self.functions.iter().for_each(|&at| row("function", at, String::new()));
        self.blocks.iter().for_each(|&at| row("block", at, String::new()));
        for t in &self.tables {
            t.targets.iter().for_each(|&to| row("table", t.at, address(to)));
        }
        self.instructions.iter().flatten().for_each(|&at| row("instruction", at, String::new()));
        table
    }
}
