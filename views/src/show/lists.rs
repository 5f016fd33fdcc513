//! `show BINARY functions`, `tables`, `gaps`, `data`: one row each.

use crate::{Table, View, address};
use serde::Serialize;

/// The schema that the JSON of these lists names.
pub const SCHEMA: &str = "engraft.show/1";

/// Rows of one sort.
#[derive(Debug, Serialize)]
pub struct ListView<R: Serialize> {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file, as it was named.
    pub binary: String,
    /// The rows, under the name of what they are.
    #[serde(flatten)]
    pub rows: R,
}

/// The functions.
#[derive(Debug, Serialize)]
pub struct Functions {
    /// The functions.
    pub functions: Vec<FunctionRow>,
}

/// A function.
#[derive(Debug, Serialize)]
pub struct FunctionRow {
    /// Its number in this analysis.
    pub id: String,
    /// Its address.
    pub at: u64,
    /// Of all its code.
    pub len_bytes: u64,
    /// How many blocks it has.
    pub n_blocks: usize,
    /// How it was found.
    pub origin: &'static str,
    /// How sure that is: `proved`, `likely`, `guessed`.
    pub sure: &'static str,
    /// Whether all of its control flow is understood.
    pub complete: bool,
    /// Whether it comes back.
    pub returns: bool,
    /// Its name: the symbol, where there is one.
    pub name: String,
    /// What the source calls it, if its symbol is decorated.
    pub source_name: Option<String>,
    /// Its other names.
    pub aliases: Vec<String>,
    /// Where its code is: first address, and the one behind the last.
    pub ranges: Vec<(u64, u64)>,
    /// The function that a compiler cut it out of, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_from: Option<String>,
}

impl View for ListView<Functions> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["id", "at>", "bytes>", "blocks>", "found by", "sure", "complete", "name"]);
        for f in &self.rows.functions {
            t.row([
                f.id.clone(),
                address(f.at),
                f.len_bytes.to_string(),
                f.n_blocks.to_string(),
                f.origin.into(),
                f.sure.into(),
                if f.complete { "yes" } else { "no" }.into(),
                f.source_name.as_ref().unwrap_or(&f.name).clone(),
            ]);
        }
        t
    }
}

/// The jump tables.
#[derive(Debug, Serialize)]
pub struct Tables {
    /// The jump tables.
    pub tables: Vec<TableRow>,
}

/// A jump table.
#[derive(Debug, Serialize)]
pub struct TableRow {
    /// Its address.
    pub at: u64,
    /// Of an entry.
    pub entry_len_bytes: u8,
    /// The function that it belongs to.
    pub function: String,
    /// The jumps that read it.
    pub jumps: Vec<u64>,
    /// Where its entries lead, in order.
    pub targets: Vec<u64>,
    /// How sure that is: `proved`, `likely`, `guessed`.
    pub sure: &'static str,
}

impl View for ListView<Tables> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["at>", "entries>", "bytes each>", "targets>", "sure", "jumps", "function"]);
        for row in &self.rows.tables {
            let mut distinct = row.targets.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let jumps: Vec<_> = row.jumps.iter().map(|&va| address(va)).collect();
            t.row([
                address(row.at),
                row.targets.len().to_string(),
                row.entry_len_bytes.to_string(),
                distinct.len().to_string(),
                row.sure.into(),
                jumps.join(" "),
                row.function.clone(),
            ]);
        }
        t
    }
}

/// The gaps.
#[derive(Debug, Serialize)]
pub struct Gaps {
    /// The gaps.
    pub gaps: Vec<GapRow>,
}

/// Code that was not understood.
#[derive(Debug, Serialize)]
pub struct GapRow {
    /// Its address.
    pub at: u64,
    /// Its length.
    pub len_bytes: u64,
    /// Why it was not.
    pub reason: &'static str,
    /// The function that it is in, if it is in one.
    pub function: Option<String>,
    /// Its first bytes, in hexadecimal.
    pub bytes: String,
    /// Of an unresolved jump: what of the table that it reads was not understood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<&'static str>,
}

impl View for ListView<Gaps> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["at>", "bytes>", "why", "function", "first bytes", "detail"]);
        for g in &self.rows.gaps {
            let function = g.function.clone().unwrap_or_default();
            let detail = g.detail.unwrap_or_default().into();
            let len = g.len_bytes.to_string();
            t.row([address(g.at), len, g.reason.into(), function, g.bytes.clone(), detail]);
        }
        t
    }
}

/// The data objects.
#[derive(Debug, Serialize)]
pub struct Data {
    /// The objects.
    pub data: Vec<DataRow>,
}

/// A data object.
#[derive(Debug, Serialize)]
pub struct DataRow {
    /// Its address.
    pub at: u64,
    /// Its length.
    pub len_bytes: u64,
    /// What it holds.
    pub kind: &'static str,
    /// How sure that is: `proved`, `likely`, `guessed`.
    pub sure: &'static str,
    /// The section that it is in.
    pub section: Option<String>,
    /// Its symbol, if it has one.
    pub name: Option<String>,
    /// Of a string: its text, cut at 60 characters.
    pub text: Option<String>,
}

impl View for ListView<Data> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["at>", "bytes>", "kind", "sure", "section", "name"]);
        for d in &self.rows.data {
            let text = || d.text.as_ref().map(|text| format!("{text:?}"));
            t.row([
                address(d.at),
                d.len_bytes.to_string(),
                d.kind.into(),
                d.sure.into(),
                d.section.clone().unwrap_or_default(),
                d.name.clone().or_else(text).unwrap_or_default(),
            ]);
        }
        t
    }
}
