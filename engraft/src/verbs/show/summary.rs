//! `show BINARY`: identity, compiler, how much there is, how much was understood.

use super::{lists, loops};
use program::image::Kind;
use program::{GapReason, Loops, Program};
use std::collections::BTreeMap;
use views::show::summary::{GapSum, SummaryView};

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Executable => "executable",
        Kind::Pie => "position-independent executable",
        Kind::Static => "static executable",
        Kind::StaticPie => "static position-independent executable",
        Kind::SharedObject => "shared object",
    }
}

/// Counts it all.
pub fn view(program: &Program) -> SummaryView {
    let mut by_origin = BTreeMap::new();
    let mut by_sure = BTreeMap::new();
    for f in &program.functions {
        *by_origin.entry(lists::origin(f.origin)).or_insert(0) += 1;
        *by_sure.entry(lists::sure(f.sure)).or_insert(0) += 1;
    }
    let mut gaps: BTreeMap<_, GapSum> = BTreeMap::new();
    for g in &program.gaps {
        let sum =
            gaps.entry(g.reason).or_insert(GapSum { reason: lists::reason(g.reason), n: 0, len_bytes: 0 });
        sum.n += 1;
        sum.len_bytes += g.range.end.since(g.range.start);
    }
    let image = &program.image;
    let loops = loops::of_all(program);
    let code: u64 = image.code_ranges().iter().map(|r| r.end.since(r.start)).sum();
    let in_functions: u64 = program.functions.iter().map(program::Function::len_bytes).sum();
    SummaryView {
        schema: SummaryView::SCHEMA,
        binary: image.name.clone(),
        kind: kind(image.kind),
        image_id: image.id.to_string(),
        build_id: image.build_id.as_ref().map(|id| id.iter().map(|b| format!("{b:02x}")).collect()),
        compilers: image.compilers.clone(),
        notes: image.notes.clone(),
        code_bytes: code,
        code_bytes_in_functions: in_functions,
        code_bytes_padding: code.saturating_sub(held(program)),
        n_functions: program.functions.len(),
        n_functions_named: program.functions.iter().filter(|f| !f.names.is_empty()).count(),
        n_functions_complete: program.functions.iter().filter(|f| f.complete).count(),
        functions_by_origin: by_origin,
        functions_by_sure: by_sure,
        n_blocks: program.blocks.len(),
        n_edges: program.edges.len(),
        n_calls: program.calls.len(),
        n_loops: loops.iter().map(Loops::len).sum(),
        n_loops_irreducible: loops.iter().map(|l| l.ids().filter(|&id| l.is_irreducible(id)).count()).sum(),
        n_tables: program.tables.len(),
        n_table_entries: program.tables.iter().map(|t| t.targets.len()).sum(),
        data_objects: program.data.len(),
        data_bytes: program.data.iter().map(|d| d.range.end.since(d.range.start)).sum(),
        gaps: gaps.into_values().collect(),
    }
}

/// Bytes of code that are in functions or in gaps: the rest is padding.
fn held(program: &Program) -> u64 {
    let gaps = program.gaps.iter().filter(|g| matches!(g.reason, GapReason::NoFunction | GapReason::NotCode));
    let functions = program.functions.iter().flat_map(|f| f.ranges.iter().cloned());
    let stubs = program.image.plt.iter().filter(|s| s.is_linkers()).map(|s| s.range.clone());
    let mut held: Vec<_> = functions.chain(gaps.map(|g| g.range.clone())).chain(stubs).collect();
    held.sort_unstable_by_key(|r| r.start);
    let mut at = program::Va(0);
    let mut sum = 0;
    for r in held {
        sum += r.end.0.saturating_sub(at.max(r.start).0);
        at = at.max(r.end);
    }
    sum
}
