//! What a recording says of edges, calls and paths: `show REC edges`, `never`, `calls`, `paths`, `loops`.

use crate::count::view::loop_view;
use crate::input;
use measure::{loops, paths};
use profile::{Beyond, Count, Edge, Profile, calls};
use program::image::{Symbol, SymbolKind};
use program::{BlockId, Callee, EdgeKind, FuncId, Lines, Program, Va};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use views::{Between, LoopView, Table, View, cut, ratio, share};

/// An image with its counts.
pub type Image = (Program, Profile);

fn module((program, profile): &Image) -> String {
    input::module_name(profile, program)
}

/// Rows under the name of what they are.
#[derive(Serialize)]
pub struct CountsView<T> {
    schema: &'static str,
    #[serde(flatten)]
    rows: T,
}

fn view<T>(rows: T) -> CountsView<T> {
    CountsView { schema: "engraft.show/1", rows }
}

/// Edges that ran, or that did not.
#[derive(Serialize)]
pub struct Edges {
    edges: Vec<EdgeRow>,
}

#[derive(Serialize)]
struct EdgeRow {
    module: String,
    function: String,
    from: u64,
    to: u64,
    kind: &'static str,
    count: u64,
    #[serde(flatten)]
    between: Between,
    /// Executions of the block that it leaves, and the share of them.
    block_count: u64,
    share: f64,
    /// Of the last instruction before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<String>,
}

/// Every edge of blocks that ran, those that ran most first; `never`: only those that never did.
pub fn edges(images: &[Image], never: bool) -> CountsView<Edges> {
    let mut edges = Vec::new();
    for image in images {
        let (program, profile) = image;
        let lines = Lines::load(&program.image);
        let module = module(image);
        for id in program.func_ids() {
            let mut rows = Vec::new();
            for b in program.function(id).block_ids() {
                let block = program.block(b);
                let Some(&n) = profile.blocks.get(&block.start).filter(|n| **n > 0) else { continue };
                // Two edges between the same blocks are one in a profile; those of a block are by target.
                for same in program.successors(b).chunk_by(|a, b| a.to == b.to) {
                    let Some(e) = same.first() else { continue };
                    let to = program.block(e.to).start;
                    // An exception is no way on.
                    if never && e.kind == EdgeKind::LandingPad {
                        continue;
                    }
                    let Some(&count) = profile.edges.get(&Edge { from: block.start, to }) else { continue };
                    let between = profile.intervals.edges.get(&Edge { from: block.start, to });
                    if never && (count > 0 || between.is_some()) {
                        continue;
                    }
                    let line = lines.as_ref().and_then(|l| l.at(block.last_insn()));
                    rows.push(EdgeRow {
                        module: module.clone(),
                        function: String::new(),
                        from: block.start.0,
                        to: to.0,
                        kind: super::function::kind_of_all(same.iter().map(|e| e.kind)),
                        count,
                        between: Between::of(between),
                        block_count: n,
                        share: ratio(count, n),
                        line: line.map(|(file, line)| format!("{file}:{line}")),
                    });
                }
            }
            if !rows.is_empty() {
                let name = input::spelt(program, id);
                rows.iter_mut().for_each(|row| row.function.clone_from(&name));
                edges.append(&mut rows);
            }
        }
    }
    let order = |row: &EdgeRow| std::cmp::Reverse((row.count, row.block_count));
    edges.sort_by(|a, b| {
        order(a).cmp(&order(b)).then_with(|| (&a.module, a.from, a.to).cmp(&(&b.module, b.from, b.to)))
    });
    view(Edges { edges })
}

impl View for CountsView<Edges> {
    fn table(&self) -> Table {
        let mut t =
            Table::new(&["count>", "of>", "share>", "from>", "to>", "kind", "function", "module", "line"]);
        for e in &self.rows.edges {
            let line = e.line.as_deref().unwrap_or_default();
            t.row([
                e.between.count(e.count),
                e.block_count.to_string(),
                share(e.share),
                Va(e.from).to_string(),
                Va(e.to).to_string(),
                e.kind.into(),
                cut(&e.function),
                e.module.clone(),
                line.rsplit('/').next().unwrap_or(line).to_owned(),
            ]);
        }
        t
    }
}

/// Who called whom.
#[derive(Serialize)]
pub struct CallGraph {
    calls: Vec<CallRow>,
}

#[derive(Serialize)]
struct CallRow {
    module: String,
    caller: String,
    /// `null` where the caller is in another module, or called through a pointer.
    callee: Option<String>,
    /// Of calls through pointers whose targets were counted: the module that they led to, if it is another
    /// one and known.
    #[serde(skip_serializing_if = "Option::is_none")]
    callee_module: Option<String>,
    count: u64,
    /// Where an earlier call may not have come back.
    #[serde(flatten)]
    between: Between,
    /// Of the callee's entries, where they are known.
    share_of_entries: Option<f64>,
    /// The calling instructions.
    at: Vec<u64>,
}

/// What is written for a target that is not known.
const POINTER: &str = "(through a pointer)";
/// The same, where targets were counted and there was no room for all.
const ELSEWHERE: &str = "(through a pointer, to one of many)";

/// Names of code in other images than the one that calls it.
struct Outside<'a> {
    images: &'a [Image],
    /// Files that were looked at: where their functions are.
    files: BTreeMap<String, BTreeMap<Va, (u64, String)>>,
}

impl Outside<'_> {
    fn name(&mut self, to: &Beyond) -> String {
        let (path, at) = match to {
            Beyond::Image(path, at) => (path, *at),
            Beyond::Process(at) => return format!("{at:#x} (in the process)"),
            Beyond::Unknown => return ELSEWHERE.to_owned(),
        };
        if let Some((program, _)) = self.images.iter().find(|image| image.1.image.name == *path)
            && let Some(id) = program.function_at(at)
        {
            return input::spelt(program, id);
        }
        let file = self.files.entry(path.clone()).or_insert_with(|| functions(path));
        let before = file.range(..=at).next_back().filter(|(start, f)| at.since(**start) < f.0.max(1));
        match before {
            Some((_, (_, name))) => name.clone(),
            None => at.to_string(),
        }
    }
}

/// The functions that the symbols of a file name, by address, with their lengths.
fn functions(path: &str) -> BTreeMap<Va, (u64, String)> {
    let Ok(image) = program::Image::load(Path::new(path)) else { return BTreeMap::new() };
    let is_code = |s: &&Symbol| matches!(s.kind, SymbolKind::Function | SymbolKind::IndirectFunction);
    let mut found = BTreeMap::new();
    // By the name that others know it by, if there is one.
    for is_dynamic in [true, false] {
        for symbol in image.symbols.iter().filter(is_code).filter(|s| s.dynamic == is_dynamic) {
            found.entry(symbol.at).or_insert_with(|| (symbol.len, symbol.name.to_string()));
        }
    }
    found
}

/// Every pair of functions of which one called the other, most calls first.
pub fn call_graph(images: &[Image]) -> CountsView<CallGraph> {
    let mut rows = Vec::new();
    let mut others = Outside { images, files: BTreeMap::new() };
    for image in images {
        let (program, profile) = image;
        // By caller and callee, which is a function of ours or a name and perhaps a module: how often, and
        // from where.
        type Who = (FuncId, Result<FuncId, (String, Option<String>)>);
        let mut sums: BTreeMap<Who, (Count, Vec<u64>)> = BTreeMap::new();
        for call in calls::made(profile, program) {
            let Some(block) = program.block_at(call.at) else { continue };
            let outside = || {
                let known = program.calls_in(block).iter().find(|c| c.at == call.at);
                match known.map(|c| c.callee) {
                    Some(Callee::Import(i)) => {
                        program.imports.get(i as usize).map_or_else(String::new, ToString::to_string)
                    }
                    Some(Callee::Unknown(va)) => va.to_string(),
                    _ => POINTER.to_owned(),
                }
            };
            let caller = program.block(block).func;
            let mut left = call.n;
            let mut add = |callee, n: Count| {
                let (sum, at) = sums.entry((caller, callee)).or_default();
                *sum = sum.plus(n);
                at.push(call.at.0);
            };
            if call.to.is_none() {
                let first = (call.at, Beyond::Image(String::new(), Va(0)));
                let known = profile.calls_beyond.range(first..).take_while(|((at, _), _)| *at == call.at);
                for ((_, to), &n) in known {
                    let module = match to {
                        Beyond::Image(path, _) => Some(input::file_name(path)),
                        _ => None,
                    };
                    add(Err((others.name(to), module)), Count::exact(n));
                    left = left.less(n);
                }
            }
            if left.most > 0 {
                let callee = call.to.map(|to| program.function_at(to).ok_or_else(|| to.to_string()));
                add(callee.unwrap_or_else(|| Err(outside())).map_err(|name| (name, None)), left);
            }
        }
        for ((caller, callee), (count, mut at)) in sums {
            at.dedup();
            let entries = callee.as_ref().ok().and_then(|f| profile.entries.get(&program.function(*f).entry));
            rows.push(CallRow {
                module: module(image),
                caller: input::spelt(program, caller),
                callee_module: callee.as_ref().err().and_then(|outside| outside.1.clone()),
                callee: match callee {
                    Ok(f) => Some(input::spelt(program, f)),
                    Err((outside, _)) => Some(outside).filter(|name| name != POINTER),
                },
                count: count.n,
                between: Between::of(count.between().as_ref()),
                share_of_entries: entries.map(|n| ratio(count.n, *n)),
                at,
            });
        }
    }
    rows.sort_by(|a, b| {
        b.count
            .cmp(&a.count)
            .then_with(|| (&a.module, &a.caller, &a.callee).cmp(&(&b.module, &b.caller, &b.callee)))
    });
    view(CallGraph { calls: rows })
}

impl View for CountsView<CallGraph> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["count>", "of entries>", "caller", "callee", "places>", "module"]);
        for c in &self.rows.calls {
            t.row([
                c.between.count(c.count),
                c.share_of_entries.map_or_else(|| "-".to_owned(), share),
                cut(&c.caller),
                match &c.callee_module {
                    Some(module) => format!("{} ({module})", cut(c.callee.as_deref().unwrap_or(POINTER))),
                    None => cut(c.callee.as_deref().unwrap_or(POINTER)),
                },
                c.at.len().to_string(),
                c.module.clone(),
            ]);
        }
        t
    }
}

/// Where most of a loop's, or a function's, executions went along.
#[derive(Serialize)]
pub struct Paths {
    paths: Vec<PathRow>,
}

#[derive(Serialize)]
struct PathRow {
    module: String,
    function: String,
    /// A loop's header, or the function's entry.
    at: u64,
    is_loop: bool,
    /// How often it was run along, at least and at most.
    at_least: u64,
    at_most: u64,
    /// How often its first block ran, and the least and the most where that may be off.
    of: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_between: Option<(u64, u64)>,
    /// Instructions of its blocks, times `at_least`.
    instructions: u64,
    blocks: Vec<u64>,
}

/// The hottest path of each loop and each function that ran, those with most instructions first.
pub fn hot_paths(images: &[Image]) -> CountsView<Paths> {
    let mut rows = Vec::new();
    for image in images {
        let (program, profile) = image;
        let module = module(image);
        let ids: Vec<FuncId> = program.func_ids().collect();
        let found: Vec<Vec<PathRow>> = ids
            .par_iter()
            .map(|&id| {
                let row = |path: paths::HotPath| {
                    let at = |b: &BlockId| program.block(*b).start.0;
                    let len: u64 = path.blocks.iter().map(|&b| program.n_insns_run(b)).sum();
                    PathRow {
                        module: module.clone(),
                        function: input::spelt(program, id),
                        at: path.blocks.first().map_or(0, at),
                        is_loop: path.is_loop,
                        at_least: path.at_least,
                        at_most: path.at_most,
                        of: path.n.n,
                        of_between: path.n.between(),
                        instructions: len.saturating_mul(path.at_least),
                        blocks: path.blocks.iter().map(at).collect(),
                    }
                };
                paths::hottest(program, profile, id).into_iter().map(row).collect()
            })
            .collect();
        rows.extend(found.into_iter().flatten());
    }
    rows.sort_by(|a, b| {
        b.instructions.cmp(&a.instructions).then_with(|| (&a.module, a.at).cmp(&(&b.module, b.at)))
    });
    view(Paths { paths: rows })
}

impl View for CountsView<Paths> {
    fn table(&self) -> Table {
        let mut t =
            Table::new(&["at least>", "at most>", "of>", "instructions>", "path of", "function", "blocks"]);
        for p in &self.rows.paths {
            let blocks: Vec<String> = p.blocks.iter().map(|&b| Va(b).to_string()).collect();
            t.row([
                p.at_least.to_string(),
                p.at_most.to_string(),
                Count::of(p.of, p.of_between.as_ref()).to_string(),
                p.instructions.to_string(),
                if p.is_loop { "loop" } else { "function" }.to_owned(),
                cut(&p.function),
                blocks.join(" "),
            ]);
        }
        t
    }
}

/// Loops that ran.
#[derive(Serialize)]
pub struct LoopRuns {
    loops: Vec<LoopView>,
}

/// Every loop that ran, most instructions first.
pub fn loop_runs(images: &[Image]) -> CountsView<LoopRuns> {
    let mut rows = Vec::new();
    for image in images {
        let (program, profile) = image;
        let runs = loops::runs(program, profile);
        rows.extend(runs.iter().map(|run| loop_view(run, module(image), program)));
    }
    rows.sort_by(|a, b| {
        b.instructions.cmp(&a.instructions).then_with(|| (&a.module, a.at).cmp(&(&b.module, b.at)))
    });
    view(LoopRuns { loops: rows })
}

impl View for CountsView<LoopRuns> {
    fn table(&self) -> Table {
        let mut t = Table::with_first("instructions>", LoopView::HEADINGS);
        for l in &self.rows.loops {
            t.row_with_first(l.instructions.to_string(), l.cells(cut(&l.function)));
        }
        t
    }
}
