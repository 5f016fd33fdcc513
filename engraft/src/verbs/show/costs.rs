//! What functions cost with all that they called, and the tree of calls: of traces exactly, of counts as an
//! estimate.

use crate::input::{self, Instructions, Source};
use crate::output::Hinted;
use crate::verbs::query::functions::Functions;
use measure::reports::inclusive::{self, Inclusive};
use std::collections::BTreeMap;
use std::path::Path;
use trace::{Cost, Costs, FuncId, Names, Part, Trace, TreeError};
use tracing::info_span;
use views::count::{CountView, FunctionView, PADDING};
use views::show::costs::{self, CostRow, TreeRow, Ways};
use views::show::counts::{CountsView, SCHEMA};
use views::{Between, ratio};

use super::counts::Image;

/// A trace, read for what its calls cost.
pub struct Traced {
    pub(super) trace: Box<Trace>,
    pub(super) names: Names,
    /// By its first function: what the file is called.
    modules: BTreeMap<FuncId, String>,
    /// As the trace has them.
    files: Vec<trace::flow::Module>,
    /// How many instructions blocks have; not known of plain traces.
    instructions: Option<Instructions>,
}

impl Traced {
    /// Opens it.
    ///
    /// # Errors
    /// If it cannot be read, or a binary that it is of is gone.
    pub fn open(from: &Path) -> anyhow::Result<Traced> {
        let trace = Box::new(input::open(from)?);
        let unreadable = |err| input::unreadable(from, err);
        let names = trace.names().map_err(unreadable)?;
        let flow = trace.flow().map_err(unreadable)?;
        let modules = flow.modules.iter().map(|m| (m.first, input::file_name(&m.path))).collect();
        let files = flow.modules.clone();
        let instructions = match flow.modules.is_empty() {
            true => None,
            false => Some(Instructions::of(None, from, &trace, &names)?),
        };
        Ok(Traced { trace, names, modules, files, instructions })
    }

    pub(super) fn weight(&self, func: FuncId, before: Option<trace::BlockId>, block: trace::BlockId) -> u64 {
        self.instructions.as_ref().map_or(1, |insns| insns.of_block(func, before, block))
    }

    pub(super) fn finish(&self) -> anyhow::Result<()> {
        let functions = Functions::new(&self.names);
        self.instructions.as_ref().map_or(Ok(()), |insns| insns.finish(&|func| functions.called(func)))
    }

    pub(super) fn unit(&self) -> &'static str {
        if self.instructions.is_some() { "instructions" } else { "blocks" }
    }

    pub(super) fn module(&self, func: FuncId) -> String {
        self.modules.range(..=func).next_back().map_or_else(String::new, |(_, name)| name.clone())
    }

    /// Where a function is entered; 0 if that is not known.
    fn at(&self, func: FuncId) -> u64 {
        self.instructions.as_ref().and_then(|insns| insns.entry(func)).map_or(0, |at| at.0)
    }

    /// What each function cost.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn costs(&self, from: &Path) -> anyhow::Result<Costs> {
        let _span = info_span!("calls").entered();
        let weight = |func, before, block| self.weight(func, before, block);
        let costs = Costs::of(&self.trace, &Part::ALL, weight).map_err(|err| input::unreadable(from, err))?;
        self.finish()?;
        Ok(costs)
    }

    /// What each function cost, as rows.
    pub fn functions(&self, from: &Path) -> anyhow::Result<CountsView<costs::Costs>> {
        let costs = self.costs(from)?;
        let called = Functions::new(&self.names);
        let row = |(&func, cost): (&FuncId, &Cost)| CostRow {
            module: self.module(func),
            name: called.called(func),
            at: self.at(func),
            inclusive: cost.inclusive,
            inclusive_share: ratio(cost.inclusive, costs.total),
            instructions: cost.own,
            share: ratio(cost.own, costs.total),
            entries: Some(cost.entries),
            cycle: None,
        };
        Ok(functions(costs.functions.iter().map(row).collect(), false))
    }

    /// The tree of calls; upside down it is made of all.
    pub fn tree(&self, from: &Path, ways: Ways<'_>) -> anyhow::Result<CountsView<costs::CallTree>> {
        let called = Functions::new(&self.names).of(&self.files);
        let of = match ways {
            Ways::All | Ways::Inverted => None,
            Ways::Below(name) | Ways::Callers(name) => Some(name),
        };
        let wanted = of.map(|name| called.find(name)).transpose();
        let wanted = wanted.map_err(|err| Hinted::new(err.what, err.hint))?;
        let tree = {
            let _span = info_span!("calls").entered();
            let weight = |func, before, block| self.weight(func, before, block);
            trace::CallTree::of(&self.trace, &Part::ALL, usize::MAX, weight).map_err(|err| match err {
                TreeError::Read(err) => input::unreadable(from, err),
                err => {
                    let what = format!("{} has no tree of calls: {err}", from.display());
                    Hinted::new(what, "`show TRACE functions` needs none").into()
                }
            })?
        };
        self.finish()?;
        let total = tree.total();
        let tree = match wanted {
            Some(func) if matches!(ways, Ways::Callers(_)) => tree.callers(func),
            Some(func) => tree.below(func),
            None => tree,
        };
        let inclusive = tree.inclusive();
        let cost = |n: usize| inclusive.get(n).copied().unwrap_or(0);
        let row = |n: usize, node: &trace::call_tree::Node| TreeRow {
            id: 0,
            under: None,
            depth: 0,
            module: self.module(node.func),
            function: called.called(node.func),
            inclusive: cost(n),
            inclusive_share: ratio(cost(n), total),
            own: node.own,
            entries: Some(node.entries),
        };
        let nodes = tree.nodes.iter().enumerate().skip(1);
        let parents = nodes.clone().map(|(n, node)| (n, (node.under > 0).then_some(node.under as usize)));
        let rows = nodes.map(|(n, node)| (n, row(n, node))).collect();
        let tree = ordered(parents, rows);
        let rows = costs::CallTree { estimated: false, unit: self.unit(), total, tree, n_left_out: 0 };
        Ok(CountsView { schema: SCHEMA, rows })
    }

    /// Puts what a report of `from` does not know into it: entries, and what was called.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn complete(&self, from: &Path, view: &mut CountView) -> anyhow::Result<()> {
        let costs = self.costs(from)?;
        let key = |module: &str, at: u64| (module.to_owned(), at);
        let place = |(n, f): (usize, &FunctionView)| (key(&f.module, f.at), n);
        let mut rows: BTreeMap<(String, u64), usize> = view.functions.iter().enumerate().map(place).collect();
        for (&func, cost) in &costs.functions {
            let (module, at) = (self.module(func), self.at(func));
            let n = *rows.entry(key(&module, at)).or_insert_with(|| {
                view.functions.push(FunctionView {
                    name: Functions::new(&self.names).called(func),
                    module,
                    at,
                    entries: None,
                    between: Between::of(None),
                    instructions: 0,
                    share: 0.0,
                    inclusive: None,
                });
                view.functions.len() - 1
            });
            let Some(row) = view.functions.get_mut(n) else { continue };
            (row.entries, row.inclusive) = (Some(cost.entries), Some(cost.inclusive));
            (row.instructions, row.share) = (cost.own, ratio(cost.own, costs.total));
        }
        // It is known which way was taken: so is what padding ran.
        view.instructions = costs.total;
        view.uncounted.retain(|missed| missed.why != PADDING);
        for module in &mut view.modules {
            let file = input::file_name(&module.path);
            let own = costs.functions.iter().filter(|(func, _)| self.module(**func) == file);
            module.instructions = own.fold(0, |sum: u64, (_, cost)| sum.saturating_add(cost.own));
        }
        view.functions.retain(|f| f.instructions > 0);
        view.functions.sort_by(|a, b| {
            b.instructions.cmp(&a.instructions).then_with(|| (&a.module, a.at).cmp(&(&b.module, b.at)))
        });
        Ok(())
    }
}

/// What functions of recordings cost, estimated.
pub fn estimated_functions(images: &[Image]) -> CountsView<costs::Costs> {
    let graph = inclusive::CallGraph::of(images);
    let inclusive = Inclusive::of(&graph);
    let total = graph.functions.iter().fold(0, |sum: u64, f| sum.saturating_add(f.own));
    let cycles = cycles(&inclusive);
    let mut rows = Vec::new();
    for (n, function) in graph.functions.iter().enumerate() {
        let Some((program, profile)) = images.get(function.of.0) else { continue };
        let cost = inclusive.of_function(n);
        rows.push(CostRow {
            module: input::module_name(profile, program),
            name: input::spelt(program, function.of.1),
            at: program.function(function.of.1).entry.0,
            inclusive: cost,
            inclusive_share: ratio(cost, total),
            instructions: function.own,
            share: ratio(function.own, total),
            entries: function.entries,
            cycle: inclusive.group_of.get(n).and_then(|group| cycles.get(group)).copied(),
        });
    }
    functions(rows, true)
}

/// The numbers of groups of several functions, the costliest first, from 1.
fn cycles(inclusive: &Inclusive) -> BTreeMap<usize, usize> {
    let several = inclusive.groups.iter().enumerate().filter(|(_, group)| group.functions.len() > 1);
    let mut groups: Vec<_> = several.map(|(n, group)| (std::cmp::Reverse(group.inclusive), n)).collect();
    groups.sort_unstable();
    groups.into_iter().map(|(_, n)| n).zip(1..).collect()
}

/// The tree of calls of recordings, estimated.
pub fn estimated_tree(images: &[Image]) -> CountsView<costs::CallTree> {
    let graph = inclusive::CallGraph::of(images);
    let inclusive = Inclusive::of(&graph);
    let total = graph.functions.iter().fold(0, |sum: u64, f| sum.saturating_add(f.own));
    let cycles = cycles(&inclusive);
    let branches = inclusive.tree(total / 1000);
    let mut rows = BTreeMap::new();
    for (n, branch) in branches.iter().enumerate() {
        let group = inclusive.groups.get(branch.group);
        let members = group.map_or(&[][..], |group| &group.functions);
        let ids: Vec<_> = members.iter().filter_map(|&f| graph.functions.get(f)).map(|f| f.of).collect();
        let images = ids.iter().filter_map(|(n, id)| Some((images.get(*n)?, *id)));
        let names: Vec<String> = images.clone().map(|((program, _), id)| input::spelt(program, id)).collect();
        let cycle = cycles.get(&branch.group).map_or_else(String::new, |n| format!(" <cycle {n}>"));
        let module =
            images.clone().next().map(|((program, profile), _)| input::module_name(profile, program));
        rows.insert(
            n,
            TreeRow {
                id: 0,
                under: None,
                depth: 0,
                module: module.unwrap_or_default(),
                function: names.join(", ") + &cycle,
                inclusive: branch.inclusive,
                inclusive_share: ratio(branch.inclusive, total),
                own: branch.own,
                entries: Some(branch.entries),
            },
        );
    }
    let tree = ordered(branches.iter().enumerate().map(|(n, b)| (n, b.under)), rows);
    let n_left_out = inclusive.groups.len() - {
        let mut shown: Vec<usize> = branches.iter().map(|b| b.group).collect();
        shown.sort_unstable();
        shown.dedup();
        shown.len()
    };
    let rows = costs::CallTree { estimated: true, unit: "instructions", total, tree, n_left_out };
    CountsView { schema: SCHEMA, rows }
}

/// What `from` is, by which of the two ways its calls cost something.
pub enum Costly {
    /// A trace.
    Traced(Traced),
    /// A recording of counts.
    Counted(Vec<Image>),
}

impl Costly {
    /// Opens it.
    ///
    /// # Errors
    /// If it cannot be read, or a binary that it needs is gone.
    pub fn open(from: &Path) -> anyhow::Result<Costly> {
        match input::is_trace(from) {
            true => Traced::open(from).map(Costly::Traced),
            false => Source::read(from)?.images().map(Costly::Counted),
        }
    }
}

/// Rows of functions, the costliest first.
fn functions(mut rows: Vec<CostRow>, estimated: bool) -> CountsView<costs::Costs> {
    rows.sort_by(|a, b| {
        let order = |row: &CostRow| std::cmp::Reverse((row.inclusive, row.instructions));
        order(a).cmp(&order(b)).then_with(|| (&a.module, a.at).cmp(&(&b.module, b.at)))
    });
    CountsView { schema: SCHEMA, rows: costs::Costs { estimated, functions: rows } }
}

/// The rows of nodes by what is above them, each behind its caller, the costliest first; with their numbers.
pub(super) fn ordered(
    parents: impl Iterator<Item = (usize, Option<usize>)>,
    mut rows: BTreeMap<usize, TreeRow>,
) -> Vec<TreeRow> {
    let mut under: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    parents.for_each(|(n, parent)| under.entry(parent).or_default().push(n));
    for nodes in under.values_mut() {
        // What is taken first stands last.
        nodes.sort_by_key(|n| rows.get(n).map(|row| (row.inclusive, std::cmp::Reverse(*n))));
    }
    let mut out: Vec<TreeRow> = Vec::with_capacity(rows.len());
    let mut open: Vec<(usize, Option<usize>, usize)> = Vec::new();
    let push = |open: &mut Vec<_>, nodes: Option<Vec<usize>>, parent, depth| {
        open.extend(nodes.unwrap_or_default().into_iter().map(|n| (n, parent, depth)));
    };
    push(&mut open, under.remove(&None), None, 0);
    while let Some((n, parent, depth)) = open.pop() {
        let Some(row) = rows.remove(&n) else { continue };
        let id = out.len();
        out.push(TreeRow { id, under: parent, depth, ..row });
        push(&mut open, under.remove(&Some(n)), Some(id), depth + 1);
    }
    out
}
