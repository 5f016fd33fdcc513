//! `show BINARY functions`, `tables`, `gaps`, `data`: one row each.

use program::{DataKind, Function, GapReason, Origin, Program, Sure, Va};
use serde::Serialize;
use views::{Table, View};

/// Words for [`Origin`].
pub fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Symbol => "symbol",
        Origin::Plt => "plt",
        Origin::Unwind => "unwind",
        Origin::Start => "start",
        Origin::GoTable => "go-table",
        Origin::Called => "called",
        Origin::TailCalled => "tail-called",
        Origin::AddressTaken => "address-taken",
        Origin::Scored => "scored",
    }
}

/// Words for [`Sure`].
pub fn sure(sure: Sure) -> &'static str {
    match sure {
        Sure::Proved => "proved",
        Sure::Likely => "likely",
        Sure::Guessed => "guessed",
    }
}

/// Words for [`GapReason`].
pub fn reason(reason: GapReason) -> &'static str {
    match reason {
        GapReason::NoFunction => "no-function",
        GapReason::OpenEnd => "open-end",
        GapReason::UnresolvedJump => "unresolved-jump",
        GapReason::NotCode => "not-code",
        GapReason::Overlap => "overlap",
    }
}

fn kind(kind: DataKind) -> &'static str {
    match kind {
        DataKind::Bytes => "bytes",
        DataKind::String => "string",
        DataKind::Pointers => "pointers",
        DataKind::JumpTable => "jump-table",
        DataKind::Zero => "zero",
    }
}

/// Rows of one sort.
#[derive(Serialize)]
pub struct ListView<R: Serialize> {
    schema: &'static str,
    binary: String,
    #[serde(flatten)]
    rows: R,
}

/// The functions.
#[derive(Serialize)]
pub struct Functions {
    functions: Vec<FunctionRow>,
}

#[derive(Serialize)]
struct FunctionRow {
    id: String,
    at: u64,
    len_bytes: u64,
    n_blocks: usize,
    origin: &'static str,
    sure: &'static str,
    complete: bool,
    returns: bool,
    name: String,
    /// What the source calls it, if its symbol is decorated.
    source_name: Option<String>,
    aliases: Vec<String>,
    ranges: Vec<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_from: Option<String>,
}

/// Every function, by address.
pub fn functions(program: &Program) -> ListView<Functions> {
    let row = |(i, f): (usize, &Function)| FunctionRow {
        id: program::FuncId::at(i).to_string(),
        at: f.entry.0,
        len_bytes: f.len_bytes(),
        n_blocks: f.n_blocks(),
        origin: origin(f.origin),
        sure: sure(f.sure),
        complete: f.complete,
        returns: f.returns,
        name: f.name(),
        source_name: crate::input::source_names(program, program::FuncId::at(i)).next(),
        aliases: f.names.iter().skip(1).map(ToString::to_string).collect(),
        ranges: f.ranges.iter().map(|r| (r.start.0, r.end.0)).collect(),
        cut_from: f.cut_from.map(|id| program.function(id).name()),
    };
    let functions = program.functions.iter().enumerate().map(row).collect();
    list(program, Functions { functions })
}

fn list<R: Serialize>(program: &Program, rows: R) -> ListView<R> {
    ListView { schema: "engraft.show/1", binary: program.image.name.clone(), rows }
}

impl View for ListView<Functions> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["id", "at>", "bytes>", "blocks>", "found by", "sure", "complete", "name"]);
        for f in &self.rows.functions {
            t.row([
                f.id.clone(),
                Va(f.at).to_string(),
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
#[derive(Serialize)]
pub struct Tables {
    tables: Vec<TableRow>,
}

#[derive(Serialize)]
struct TableRow {
    at: u64,
    entry_len_bytes: u8,
    function: String,
    jumps: Vec<u64>,
    targets: Vec<u64>,
    sure: &'static str,
}

/// Every jump table, by address.
pub fn tables(program: &Program) -> ListView<Tables> {
    let tables = program.tables.iter().map(|t| TableRow {
        at: t.at.0,
        entry_len_bytes: t.entry_len,
        function: program.function(t.func).name(),
        jumps: t.jumps.iter().map(|va| va.0).collect(),
        targets: t.targets.iter().map(|va| va.0).collect(),
        sure: sure(t.sure),
    });
    list(program, Tables { tables: tables.collect() })
}

impl View for ListView<Tables> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["at>", "entries>", "bytes each>", "targets>", "sure", "jumps", "function"]);
        for row in &self.rows.tables {
            let mut distinct = row.targets.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let jumps: Vec<_> = row.jumps.iter().map(|&va| Va(va).to_string()).collect();
            t.row([
                Va(row.at).to_string(),
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
#[derive(Serialize)]
pub struct Gaps {
    gaps: Vec<GapRow>,
}

#[derive(Serialize)]
struct GapRow {
    at: u64,
    len_bytes: u64,
    reason: &'static str,
    function: Option<String>,
    bytes: String,
}

/// Every gap, by address, with its first bytes.
pub fn gaps(program: &Program) -> ListView<Gaps> {
    let gaps = program.gaps.iter().map(|g| {
        let bytes = program.image.bytes_in(&g.range).unwrap_or_default();
        GapRow {
            at: g.range.start.0,
            len_bytes: g.range.end.since(g.range.start),
            reason: reason(g.reason),
            function: program.function_at(g.range.start).map(|f| program.function(f).name()),
            bytes: bytes.iter().take(16).map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" "),
        }
    });
    list(program, Gaps { gaps: gaps.collect() })
}

impl View for ListView<Gaps> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["at>", "bytes>", "why", "function", "first bytes"]);
        for g in &self.rows.gaps {
            let function = g.function.clone().unwrap_or_default();
            t.row([
                Va(g.at).to_string(),
                g.len_bytes.to_string(),
                g.reason.into(),
                function,
                g.bytes.clone(),
            ]);
        }
        t
    }
}

/// The data objects.
#[derive(Serialize)]
pub struct Data {
    data: Vec<DataRow>,
}

#[derive(Serialize)]
struct DataRow {
    at: u64,
    len_bytes: u64,
    kind: &'static str,
    sure: &'static str,
    section: Option<String>,
    name: Option<String>,
    /// Of a string: its text, cut at 60 characters.
    text: Option<String>,
}

/// Every data object, by address.
pub fn data(program: &Program) -> ListView<Data> {
    let data = program.data.iter().map(|d| DataRow {
        at: d.range.start.0,
        len_bytes: d.range.end.since(d.range.start),
        kind: kind(d.kind),
        sure: sure(d.sure),
        section: program.image.section_at(d.range.start).map(|s| s.name.clone()),
        name: d.name.as_deref().map(str::to_owned),
        text: (d.kind == DataKind::String).then(|| {
            let bytes = program.image.bytes_in(&d.range).unwrap_or_default();
            let text = String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned();
            text.chars().take(60).collect()
        }),
    });
    list(program, Data { data: data.collect() })
}

impl View for ListView<Data> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["at>", "bytes>", "kind", "sure", "section", "name"]);
        for d in &self.rows.data {
            let text = || d.text.as_ref().map(|text| format!("{text:?}"));
            t.row([
                Va(d.at).to_string(),
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
