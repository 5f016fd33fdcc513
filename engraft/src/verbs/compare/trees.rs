//! Who called whom in both builds, as one tree: functions are the same that the comparison says are.

use super::Recorded;
use super::fill::name;
use crate::input::unreadable;
use crate::output;
use matching::compare::{Code, Comparison, FunctionMix, Side};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use trace::{CallTree, Part, TreeError};
use tracing::info_span;
use views::compare::Both;
use views::compare::trees::{CallTrees, CallsCost, CallsRow};

/// Ways of less than this part of either build are one row.
const LEAST: u64 = 10_000;

/// The tree of both runs; nothing if one has too many ways.
///
/// # Errors
/// If a trace cannot be read.
pub fn trees(
    recorded: [(&Path, &Recorded); 2],
    sides: &[Side<'_>; 2],
    found: &Comparison,
) -> anyhow::Result<Option<CallTrees>> {
    let _span = info_span!("calls").entered();
    let mut joined = Joined::default();
    let mut total = Both::default();
    for (n, (path, of)) in recorded.into_iter().enumerate() {
        let code = sides[n].code;
        let weight = |func, before, block| weight(code, func, before, block);
        let tree = match CallTree::of(&of.trace, &Part::ALL, usize::MAX, weight) {
            Ok(tree) => tree,
            Err(TreeError::Read(err)) => return Err(unreadable(path, err)),
            Err(err) => {
                let what = format!("the tree of calls is not kept of {}: {err}", path.display());
                output::warn(&what, None);
                return Ok(None);
            }
        };
        // What ran in no function is of no way.
        *if n == 0 { &mut total.old } else { &mut total.new } =
            tree.inclusive().first().copied().unwrap_or_default() - tree.nodes.first().map_or(0, |of| of.own);
        joined.add(n, &tree, &numbers(n, found));
    }
    Ok(Some(joined.finish(sides, total)))
}

/// How many instructions run with a block, and with the padding before it, as the log of a run counts them.
pub(super) fn weight(
    code: &Code,
    func: trace::FuncId,
    before: Option<trace::BlockId>,
    block: trace::BlockId,
) -> u64 {
    let Some(function) = code.functions.get(func.0 as usize) else { return 0 };
    let number = |block: trace::BlockId| {
        let at = function.blocks.start.saturating_add(block.0);
        function.blocks.contains(&at).then_some(at)
    };
    let Some(at) = number(block) else { return 0 };
    let own = code.blocks.get(at as usize).map_or(0, |block| block.weight);
    let before = before.and_then(number).and_then(|before| code.blocks.get(before as usize));
    let padding = before.filter(|before| before.not_taken.0 == at).map_or(0, |before| before.not_taken.1);
    u64::from(own) + u64::from(padding)
}

/// By function of a side: the number of the function that it is in both.
pub(super) fn numbers(n: usize, found: &Comparison) -> HashMap<u32, usize> {
    let of = |(number, pair): (usize, &matching::compare::FunctionPair)| {
        let functions = pair.sides.get(n).and_then(Option::as_ref).map(|mix| mix.functions.clone());
        functions.unwrap_or_default().into_iter().map(move |function| (function, number))
    };
    found.functions.iter().enumerate().flat_map(of).collect()
}

/// What is one in both builds: a function of both, or one of one build that did nothing itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Key {
    Both(usize),
    One(usize, u32),
}

/// What a function of side `n` is in both.
pub(super) fn key(n: usize, function: u32, numbers: &HashMap<u32, usize>) -> Key {
    numbers.get(&function).map_or(Key::One(n, function), |number| Key::Both(*number))
}

/// What it is called.
pub(super) fn called(sides: &[Side<'_>; 2], found: &Comparison, key: Key) -> String {
    let of = match key {
        Key::One(n, function) => Some((n, function)),
        Key::Both(number) => found.functions.get(number).and_then(|pair| {
            let of = |(n, mix): (usize, &Option<FunctionMix>)| Some((n, *mix.as_ref()?.functions.first()?));
            pair.sides.iter().enumerate().find_map(of)
        }),
    };
    of.map_or_else(String::new, |(n, function)| name(&sides[n], function))
}

/// A row in the making.
#[derive(Clone)]
struct Node {
    under: usize,
    /// The function of each side, if it was called there.
    of: [Option<u32>; 2],
    costs: [CallsCost; 2],
}

/// Both trees in one; the first node stands for no function.
struct Joined {
    nodes: Vec<Node>,
    known: BTreeMap<(usize, Key), usize>,
}

impl Default for Joined {
    fn default() -> Joined {
        let root = Node { under: 0, of: [None; 2], costs: Default::default() };
        Joined { nodes: vec![root], known: BTreeMap::new() }
    }
}

impl Joined {
    fn add(&mut self, n: usize, tree: &CallTree, numbers: &HashMap<u32, usize>) {
        let inclusive = tree.inclusive();
        let mut places: Vec<usize> = vec![0];
        for (node, inclusive) in tree.nodes.iter().zip(inclusive).skip(1) {
            let under = places.get(node.under as usize).copied().unwrap_or_default();
            let key = key(n, node.func.0, numbers);
            let nodes = &mut self.nodes;
            let place = *self.known.entry((under, key)).or_insert_with(|| {
                nodes.push(Node { under, of: [None; 2], costs: Default::default() });
                nodes.len() - 1
            });
            places.push(place);
            if let Some(Node { of, costs, .. }) = nodes.get_mut(place) {
                of[n].get_or_insert(node.func.0);
                costs[n].inclusive = costs[n].inclusive.saturating_add(inclusive);
                costs[n].own = costs[n].own.saturating_add(node.own);
                costs[n].calls = costs[n].calls.saturating_add(node.entries);
            }
        }
    }

    /// The rows, the costliest first; what is too little is one row beside them.
    fn finish(self, sides: &[Side<'_>; 2], total: Both<u64>) -> CallTrees {
        let least = [&total.old, &total.new].map(|total| total.div_ceil(LEAST));
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (n, node) in self.nodes.iter().enumerate().skip(1) {
            below.get_mut(node.under).into_iter().for_each(|all| all.push(n));
        }
        let node = |n: usize| self.nodes.get(n);
        let most = |n: &usize| node(*n).map_or(0, |of| of.costs[0].inclusive.max(of.costs[1].inclusive));
        let is_large = |n: &usize| {
            node(*n).is_some_and(|of| (0..2).any(|side| of.costs[side].inclusive >= least[side].max(1)))
        };
        let mut tree: Vec<CallsRow> = Vec::new();
        // What comes next is last: a node, or those that are too little below one.
        let mut open: Vec<(Vec<usize>, Option<usize>, usize)> = Vec::new();
        let push = |open: &mut Vec<(Vec<usize>, Option<usize>, usize)>, of: usize, under, depth| {
            let (mut large, little): (Vec<usize>, Vec<usize>) =
                below.get(of).cloned().unwrap_or_default().into_iter().partition(is_large);
            if !little.is_empty() {
                open.push((little, under, depth));
            }
            large.sort_by_key(|n| (most(n), std::cmp::Reverse(*n)));
            open.extend(large.into_iter().map(|n| (vec![n], under, depth)));
        };
        push(&mut open, 0, None, 0);
        while let Some((all, under, depth)) = open.pop() {
            let id = tree.len();
            match all.as_slice() {
                [one] if is_large(one) => {
                    tree.extend(node(*one).map(|node| row(sides, node, (id, under, depth))));
                    push(&mut open, *one, Some(id), depth + 1);
                }
                little => tree.extend(elided(&self.nodes, &below, little, (id, under, depth))),
            }
        }
        CallTrees { total, tree }
    }
}

fn row(sides: &[Side<'_>; 2], node: &Node, (id, under, depth): (usize, Option<usize>, usize)) -> CallsRow {
    let named = node.of.iter().zip(sides).find_map(|(of, side)| Some((side, (*of)?)));
    let module = named.and_then(|(side, of)| {
        let function = side.code.functions.get(of as usize)?;
        Some(side.modules.get(function.module as usize)?.name.clone())
    });
    CallsRow {
        id,
        under,
        depth,
        function: Some(named.map_or_else(String::new, |(side, of)| name(side, of))),
        module: module.unwrap_or_default(),
        old: node.costs[0],
        new: node.costs[1],
        elided: 0,
    }
}

/// A row for nodes that are too little; nothing, where nothing ran in them.
fn elided(
    nodes: &[Node],
    below: &[Vec<usize>],
    little: &[usize],
    (id, under, depth): (usize, Option<usize>, usize),
) -> Option<CallsRow> {
    let mut all = little.to_vec();
    let mut at = 0;
    while let Some(n) = all.get(at).copied() {
        all.extend(below.get(n).into_iter().flatten());
        at += 1;
    }
    let cost = |side: usize| {
        let costs = little.iter().filter_map(|n| nodes.get(*n)).map(|node| node.costs[side]);
        // All that they called is in them.
        costs.fold(CallsCost::default(), |sum, cost| CallsCost {
            inclusive: sum.inclusive.saturating_add(cost.inclusive),
            own: sum.own.saturating_add(cost.inclusive),
            calls: sum.calls.saturating_add(cost.calls),
        })
    };
    let (old, new) = (cost(0), cost(1));
    let row = CallsRow {
        id,
        under,
        depth,
        function: None,
        module: String::new(),
        old,
        new,
        elided: all.len() as u64,
    };
    (old.inclusive + new.inclusive > 0).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::FuncId;
    use trace::call_tree::Node as Call;

    fn tree(nodes: &[(u32, u32, u64)]) -> CallTree {
        let root = Call { under: 0, func: FuncId(0), own: 0, entries: 0 };
        let call =
            |&(under, func, own): &(u32, u32, u64)| Call { under, func: FuncId(func), own, entries: 1 };
        CallTree { nodes: [root].into_iter().chain(nodes.iter().map(call)).collect() }
    }

    /// Old: `1(2 3)`; new, where the same are ten more: `11(12(13) 14 15)`, of which 14 and 15 are little.
    #[test]
    fn what_is_the_same_stands_in_one_row_and_what_is_little_in_one() {
        let mut joined = Joined::default();
        joined.add(0, &tree(&[(0, 1, 10), (1, 2, 50_000), (1, 3, 7000)]), &[(1, 0), (2, 1), (3, 2)].into());
        let new = [(0, 11, 20), (1, 12, 40_000), (2, 13, 500), (1, 14, 3), (4, 15, 1)];
        joined.add(1, &tree(&new), &[(11, 0), (12, 1), (13, 2), (14, 3), (15, 4)].into());
        let code = Code::default();
        let log = matching::compare::Log::default();
        let side = Side { code: &code, log: &log, modules: &[] };
        let got = joined.finish(&[side, side], Both { old: 57_010, new: 40_524 });
        let line = |row: &CallsRow| {
            let cost = |of: CallsCost| format!("{} of {} in {}", of.own, of.inclusive, of.calls);
            format!("{}{} | {} ({})", "-".repeat(row.depth), cost(row.old), cost(row.new), row.elided)
        };
        let want = [
            "10 of 57010 in 1 | 20 of 40524 in 1 (0)",
            "-50000 of 50000 in 1 | 40000 of 40500 in 1 (0)",
            "--0 of 0 in 0 | 500 of 500 in 1 (0)",
            "-7000 of 7000 in 1 | 0 of 0 in 0 (0)",
            "-0 of 0 in 0 | 4 of 4 in 1 (2)",
        ];
        assert_eq!(got.tree.iter().map(line).collect::<Vec<_>>(), want);
        let sum: u64 = got.tree.iter().map(|row| row.new.own).sum();
        assert_eq!(sum, 40_524, "nothing is forgotten");
    }
}
