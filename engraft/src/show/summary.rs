//! `show BINARY`: identity, compiler, how much there is, how much was understood.

use super::{lists, loops};
use program::image::Kind;
use program::{GapReason, Loops, Program, Sure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use views::{Table, View, percent};

/// The whole binary on one page.
#[derive(Serialize)]
pub struct SummaryView {
    schema: &'static str,
    binary: String,
    kind: &'static str,
    image_id: String,
    build_id: Option<String>,
    compilers: Vec<String>,
    notes: Vec<String>,
    code_bytes: u64,
    code_bytes_in_functions: u64,
    /// Between functions, and of no known use.
    code_bytes_padding: u64,
    n_functions: usize,
    n_functions_named: usize,
    n_functions_complete: usize,
    functions_by_origin: BTreeMap<&'static str, usize>,
    functions_by_sure: BTreeMap<&'static str, usize>,
    n_blocks: usize,
    n_edges: usize,
    n_calls: usize,
    n_loops: usize,
    n_loops_irreducible: usize,
    n_tables: usize,
    n_table_entries: usize,
    data_objects: usize,
    data_bytes: u64,
    gaps: Vec<GapSum>,
}

#[derive(Serialize)]
struct GapSum {
    reason: &'static str,
    n: usize,
    len_bytes: u64,
}

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
        schema: "engraft.show/1",
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

impl View for SummaryView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["what", "value"]);
        for (what, value) in self.lines() {
            t.row([what.into(), value]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        for (what, value) in self.lines() {
            writeln!(w, "{what:<12}{value}")?;
        }
        Ok(())
    }
}

impl SummaryView {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let counts = |of: &BTreeMap<&'static str, usize>| {
            of.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
        };
        let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let mut lines = vec![
            ("binary", self.binary.clone()),
            ("kind", self.kind.to_owned()),
            ("image", self.image_id.clone()),
            ("build-id", self.build_id.clone().unwrap_or_else(|| "none".into())),
        ];
        if self.compilers.is_empty() {
            lines.push(("compiler", "not said".into()));
        }
        lines.extend(self.compilers.iter().map(|c| ("compiler", c.clone())));
        lines.extend(self.notes.iter().map(|n| ("left out", n.clone())));
        lines.push((
            "code",
            format!(
                "{} bytes, {} of them padding; {} of the rest in functions",
                self.code_bytes,
                self.code_bytes_padding,
                percent(
                    bytes(self.code_bytes_in_functions),
                    bytes(self.code_bytes - self.code_bytes_padding)
                )
            ),
        ));
        lines.push((
            "functions",
            format!(
                "{}: {} named, {} fully understood",
                self.n_functions, self.n_functions_named, self.n_functions_complete
            ),
        ));
        lines.push(("  found by", counts(&self.functions_by_origin)));
        if self.functions_by_sure.keys().any(|&s| s != lists::sure(Sure::Proved)) {
            lines.push(("  sure", counts(&self.functions_by_sure)));
        }
        lines.push(("blocks", format!("{}, {} edges, {} calls", self.n_blocks, self.n_edges, self.n_calls)));
        lines.push(("loops", format!("{}, {} of them irreducible", self.n_loops, self.n_loops_irreducible)));
        lines.push(("tables", format!("{}, {} entries", self.n_tables, self.n_table_entries)));
        lines.push(("data", format!("{} objects, {} bytes", self.data_objects, self.data_bytes)));
        if self.gaps.is_empty() {
            lines.push(("gaps", "none".into()));
        }
        for g in &self.gaps {
            lines.push(("gaps", format!("{} {}, {} bytes", g.n, g.reason, g.len_bytes)));
        }
        lines
    }
}
