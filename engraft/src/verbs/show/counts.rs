//! What a recording says of edges, calls and paths: `show REC edges`, `never`, `calls`, `paths`, `loops`.

use crate::input;
use crate::verbs::count::fill::loop_view;
use measure::{loops, paths};
use profile::calls::Cuts;
use profile::{Beyond, Count, Edge, Profile, calls};
use program::image::{Symbol, SymbolKind};
use program::{BlockId, Callee, EdgeKind, FuncId, Lines, Program, Va};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use views::show::counts::{
    CallGraph, CallRow, CountsView, EdgeRow, Edges, LoopRuns, POINTER, PathRow, Paths, SCHEMA,
};
use views::{Between, ratio};

/// An image with its counts.
pub type Image = (Program, Profile);

fn module((program, profile): &Image) -> String {
    input::module_name(profile, program)
}

fn view<T>(rows: T) -> CountsView<T> {
    CountsView { schema: SCHEMA, rows }
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

/// What is written for a callee where targets were counted and there was no room for all.
const ELSEWHERE: &str = "(indirect call, to one of many)";

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

/// Every loop that ran, most instructions first.
pub fn loop_runs(images: &[Image]) -> CountsView<LoopRuns> {
    let mut rows = Vec::new();
    for image in images {
        let (program, profile) = image;
        let runs = loops::runs(program, profile, &Cuts::of(profile, program));
        rows.extend(runs.iter().map(|run| loop_view(run, module(image), program)));
    }
    rows.sort_by(|a, b| {
        b.instructions.cmp(&a.instructions).then_with(|| (&a.module, a.at).cmp(&(&b.module, b.at)))
    });
    view(LoopRuns { loops: rows })
}
