//! `show BINARY function NAME`: the blocks of one function with instructions and edges.

use super::lists;
use crate::input::{self, Sources};
use profile::{Count, Profile};
use program::layout::{self, Counts};
use program::{
    BlockEnd, BlockId, CallKind, Callee, Conventions, EdgeId, EdgeKind, FuncId, Lines, Liveness, Loops,
    Program, Va,
};
use tracing::info_span;
use viewer::{Drawing, FlowGraph};
use views::show::function::{BlockView, EdgeView, FunctionView, InsnView, ResolverView};
use views::{Between, ratio};

fn end(end: BlockEnd) -> &'static str {
    match end {
        BlockEnd::FallThrough => "fall-through",
        BlockEnd::Jump => "jump",
        BlockEnd::Branch => "branch",
        BlockEnd::Switch => "switch",
        BlockEnd::IndirectTailCall => "indirect-tail-call",
        BlockEnd::Unresolved => "unresolved",
        BlockEnd::Return => "return",
        BlockEnd::NoReturn => "no-return",
        BlockEnd::Stop => "stop",
        BlockEnd::Broken => "broken",
    }
}

fn edge(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::FallThrough => "fall-through",
        EdgeKind::Jump => "jump",
        EdgeKind::Taken => "taken",
        EdgeKind::Table => "table",
        EdgeKind::LandingPad => "landing-pad",
    }
}

/// The kind of edges between the same two blocks, taken as one: a branch to the next instruction goes there
/// either way.
pub(super) fn kind_of_all(edges: impl IntoIterator<Item = EdgeKind>) -> &'static str {
    let mut kinds = edges.into_iter();
    let first = kinds.next().map_or("", edge);
    if kinds.any(|kind| edge(kind) != first) { "both-ways" } else { first }
}

/// The edges `same`, which lead from one block to one other.
fn edges_view(program: &Program, profile: Option<&Profile>, same: &[EdgeId]) -> Option<EdgeView> {
    let (first, others) = same.split_first()?;
    let this = program.edge(*first);
    let count = profile.and_then(|p| edge_count(program, p, this));
    Some(EdgeView {
        id: first.to_string(),
        also: others.iter().map(ToString::to_string).collect(),
        to: program.block(this.to).start.0,
        to_block: program.block_number(this.to),
        kind: kind_of_all(same.iter().map(|&e| program.edge(e).kind)),
        sure: lists::sure(this.sure),
        count: count.map(|n| n.n),
        between: Between::of(count.and_then(Count::between).as_ref()),
    })
}

/// What the call at `at` calls, in words.
fn callee(program: &Program, block: BlockId, at: Va) -> Option<String> {
    let call = program.calls_in(block).iter().find(|c| c.at == at)?;
    let what = match call.callee {
        Callee::Function(f) => program.function(f).name(),
        Callee::Import(i) => program.imports.get(i as usize).map_or_else(String::new, ToString::to_string),
        Callee::Unknown(va) => format!("unknown {va}"),
        Callee::Indirect => "indirect".into(),
    };
    let how = match call.kind {
        CallKind::Call => "call",
        CallKind::TailCall => "tail call",
        CallKind::BranchTailCall => "conditional tail call",
        CallKind::FallThrough => "falls through",
    };
    Some(if call.returns { format!("{how} {what}") } else { format!("{how} {what}, does not return") })
}

/// The instructions of a block, with their lines, and the text of each that is another than the one before.
fn instructions(
    program: &Program,
    b: BlockId,
    lines: Option<&Lines>,
    sources: &mut Sources,
) -> Vec<InsnView> {
    let mut last = None;
    let view = |i: program::Insn| {
        let line = lines.and_then(|lines| lines.at(i.at()));
        let is_next = line.is_some() && std::mem::replace(&mut last, line) != line;
        let text = line.filter(|_| is_next).and_then(|(file, line)| sources.line(file, line));
        InsnView {
            at: i.at().0,
            text: i.to_string(),
            line: line.map(|(file, line)| format!("{file}:{line}")),
            source: text.map(str::to_owned),
            calls: callee(program, b, i.at()),
        }
    };
    program.insns(b).map(view).collect()
}

/// Function `id`, drawn as an SVG picture; with counts if there are any.
pub fn picture(program: &Program, id: FuncId, drawing: &Drawing<'_>, profile: Option<&Profile>) -> FlowGraph {
    with_counts(program, profile, |counts| {
        let f = program.function(id);
        let lines = Lines::load(&program.image);
        let name = |id| input::spelt(program, id);
        let line = |at| {
            let (file, line) = lines.as_ref()?.at(at)?;
            Some(format!("{}:{line}", input::file_name(file)))
        };
        let is_folded = drawing.most.is_some_and(|most| f.n_blocks() > most);
        let folding = is_folded.then(|| layout::Folding::compute(program, id, counts));
        let style = layout::Style {
            instructions: true,
            name: Some(&name),
            line: Some(&line),
            folding: folding.as_ref(),
            links: drawing.links,
        };
        let svg = layout::svg(program, id, style, counts);
        let nth = |b: BlockId| b.0.checked_sub(f.blocks.start);
        let node = |b: BlockId| match &folding {
            None => nth(b),
            Some(folding) => folding.node_of.get(usize::try_from(nth(b)?).ok()?).copied(),
        };
        FlowGraph { svg, is_folded, node_of: program.numbered_blocks(id).map(node).collect() }
    })
}

/// Function `id` as a graph for Graphviz; with counts if there are any.
pub fn dot(program: &Program, id: FuncId, profile: Option<&Profile>) -> String {
    with_counts(program, profile, |counts| layout::dot(program, id, counts))
}

fn with_counts<T>(
    program: &Program,
    profile: Option<&Profile>,
    draw: impl FnOnce(Option<&Counts<'_>>) -> T,
) -> T {
    let ran = |n: Count| layout::RunCount { n: n.n, between: n.between() };
    let block = |b: BlockId| block_count(program, profile?, b).map(ran);
    let edge = |e: EdgeId| edge_count(program, profile?, program.edge(e)).map(ran);
    let counts = Counts { block: &block, edge: &edge };
    draw(profile.map(|_| &counts))
}

fn block_count(program: &Program, profile: &Profile, b: BlockId) -> Option<Count> {
    profile.block(program.block(b).start)
}

fn edge_count(program: &Program, profile: &Profile, e: &program::Edge) -> Option<Count> {
    let (from, to) = (program.block(e.from).start, program.block(e.to).start);
    profile.edge(profile::Edge { from, to })
}

/// All of function `id`, with the text of its lines in `sources`.
pub fn view(
    program: &Program,
    id: FuncId,
    liveness: bool,
    profile: Option<&Profile>,
    sources: &mut Sources,
) -> FunctionView {
    let f = program.function(id);
    let loops = Loops::compute(program, id);
    let live = liveness.then(|| {
        let _span = info_span!("liveness").entered();
        let (conventions, _) = Conventions::compute(program);
        Liveness::compute_with(program, &conventions, id)
    });
    let lines = Lines::load(&program.image);
    let ran = |b: BlockId| {
        let n = profile.and_then(|p| block_count(program, p, b))?.n;
        Some(n.saturating_mul(u64::from(program.block(b).n_insns)))
    };
    let all_ran = f.block_ids().filter_map(ran).fold(0, u64::saturating_add);
    let block = |b: BlockId| {
        let block = program.block(b);
        let count = profile.and_then(|p| block_count(program, p, b));
        BlockView {
            block: program.block_number(b),
            at: block.start.0,
            len_bytes: block.len_bytes,
            end: end(block.end),
            landing_pad: block.landing_pad,
            // Where the unwinder enters is no entry for callers, wherever its part of the function starts.
            entry: block.start == f.entry || f.entries.contains(&b) && !block.landing_pad,
            loop_depth: loops.block_depth(b),
            loop_header: loops.is_header(b),
            share: ran(b).map(|n| ratio(n, all_ran)),
            count: count.map(|n| n.n),
            between: Between::of(count.and_then(Count::between).as_ref()),
            live: live.as_ref().map(|l| l.live_in(b).iter().map(|r| r.to_string()).collect()),
            instructions: instructions(program, b, lines.as_ref(), sources),
            edges: {
                let all: Vec<EdgeId> = program.edge_ids(b).collect();
                // The edges of a block are by target.
                let is_one =
                    |a: &EdgeId, b: &EdgeId| profile.is_some() && program.edge(*a).to == program.edge(*b).to;
                all.chunk_by(is_one).filter_map(|same| edges_view(program, profile, same)).collect()
            },
        }
    };
    FunctionView {
        schema: FunctionView::SCHEMA,
        binary: program.image.name.clone(),
        id: id.to_string(),
        name: f.name(),
        source_name: input::source_names(program, id).next(),
        at: f.entry.0,
        ranges: f.ranges.iter().map(|r| (r.start.0, r.end.0)).collect(),
        origin: lists::origin(f.origin),
        sure: lists::sure(f.sure),
        complete: f.complete,
        returns: f.returns,
        namesakes: namesakes(program, id),
        resolves: program.resolvers().contains(&id).then(|| {
            let returned = program.returned_by(id);
            let to = returned.functions.iter().map(|&f| program.function(f).entry.0).collect();
            ResolverView { to, or_others: !returned.is_whole }
        }),
        live: None,
        blocks: program.numbered_blocks(id).map(block).collect(),
    }
}

/// Entries of other functions that bear a symbol of `id`.
fn namesakes(program: &Program, id: FuncId) -> Vec<u64> {
    let names = &program.function(id).names;
    let is_one = |f: &FuncId| *f != id && program.function(*f).names.iter().any(|n| names.contains(n));
    program.func_ids().filter(is_one).map(|f| program.function(f).entry.0).collect()
}
