//! `show BINARY functions`, `tables`, `gaps`, `data`: one row each.

use program::{DataKind, Function, GapReason, Origin, Program, Sure, Unread};
use views::show::lists::{
    Data, DataRow, FunctionRow, Functions, GapRow, Gaps, ListView, SCHEMA, TableRow, Tables,
};

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

/// Words for [`Unread`].
fn unread(why: Unread) -> &'static str {
    match why {
        Unread::Base => "the address it reads its target from is not one constant with an index",
        Unread::Entries => "an entry that it may read leads to no instruction of the function",
        Unread::Writable => "its target stands where the program may write",
        Unread::Ways => "its target is computed in too many places",
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
        source_name: crate::input::source_names(program, program::FuncId::at(i))
            .next()
            .filter(|_| !crate::output::are_names_mangled()),
        aliases: f.names.iter().skip(1).map(ToString::to_string).collect(),
        ranges: f.ranges.iter().map(|r| (r.start.0, r.end.0)).collect(),
        cut_from: f.cut_from.map(|id| program.function(id).name()),
    };
    let functions = program.functions.iter().enumerate().map(row).collect();
    list(program, Functions { functions })
}

fn list<R: serde::Serialize>(program: &Program, rows: R) -> ListView<R> {
    ListView { schema: SCHEMA, binary: program.image.name.clone(), rows }
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
            detail: g.unread.map(unread),
        }
    });
    list(program, Gaps { gaps: gaps.collect() })
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
