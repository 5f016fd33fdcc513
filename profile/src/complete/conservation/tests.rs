//! Walks through random graphs, counted edge by edge, against what follows from some of the counts.

use super::*;
use proptest::prelude::*;

/// A graph by its edges, outside being the last node, and where walks turn: from outside to outside.
fn graph() -> impl Strategy<Value = (usize, Vec<(usize, usize)>, Vec<u8>)> {
    (1..8usize).prop_flat_map(|n| {
        let edge = (0..=n, 0..=n).prop_filter("from outside to outside is no flow", move |e| *e != (n, n));
        let edges = proptest::collection::vec(edge, 1..24);
        (Just(n), edges, proptest::collection::vec(any::<u8>(), 0..400))
    })
}

/// How often walks took each edge: they start outside, turn as `turns` says, and count if they come back
/// there.
fn walk(n_nodes: usize, edges: &[(usize, usize)], turns: &[u8]) -> Vec<u64> {
    let mut counts = vec![0; edges.len()];
    let (mut at, mut taken) = (n_nodes, Vec::new());
    for turn in turns {
        let ways: Vec<usize> = (0..edges.len()).filter(|&e| edges[e].0 == at).collect();
        let Some(&way) = ways.get(usize::from(*turn) % ways.len().max(1)) else {
            // A dead end.
            (at, taken) = (n_nodes, Vec::new());
            continue;
        };
        taken.push(way);
        at = edges[way].1;
        if at == n_nodes {
            taken.drain(..).for_each(|e| counts[e] += 1);
        }
    }
    counts
}

/// Which edges make no cycle with those before them, whatever their direction.
fn tree(n_nodes: usize, edges: &[(usize, usize)]) -> Vec<bool> {
    let mut part: Vec<usize> = (0..=n_nodes).collect();
    let mut is_in_tree = Vec::new();
    for &(from, to) in edges {
        let (from, to) = (part[from], part[to]);
        is_in_tree.push(from != to);
        part.iter_mut().filter(|p| **p == from).for_each(|p| *p = to);
    }
    is_in_tree
}

fn system(
    n_nodes: usize,
    edges: &[(usize, usize)],
    counts: &[u64],
    is_open: impl Fn(usize) -> bool,
) -> Conservation {
    let mut system = Conservation::new(n_nodes);
    for (e, (&(from, to), &n)) in edges.iter().zip(counts).enumerate() {
        let node = |node: usize| (node < n_nodes).then_some(node);
        system.flow(node(from), node(to), (!is_open(e)).then_some(n));
    }
    system
}

proptest! {
    /// Counters off a spanning tree say all.
    #[test]
    fn a_tree_follows_whole((n_nodes, edges, turns) in graph()) {
        let counts = walk(n_nodes, &edges, &turns);
        let tree = tree(n_nodes, &edges);
        let want: Vec<Option<u64>> = counts.iter().copied().map(Some).collect();
        let mut wrapping = system(n_nodes, &edges, &counts, |e| tree[e]);
        let mut natural = wrapping.clone();
        let mut n_told = 0;
        wrapping.settle(|_| n_told += 1);
        natural.settle_natural();
        prop_assert_eq!(wrapping.counts().collect::<Vec<_>>(), want.clone());
        prop_assert_eq!(natural.counts().collect::<Vec<_>>(), want);
        prop_assert_eq!(n_told, tree.iter().filter(|is_open| **is_open).count());
    }

    /// Whatever is not known, what follows is so; and what is known stays.
    #[test]
    fn what_follows_is_true((n_nodes, edges, turns) in graph(), open in any::<u32>()) {
        let counts = walk(n_nodes, &edges, &turns);
        let is_open = |e: usize| open >> e & 1 == 1;
        let mut wrapping = system(n_nodes, &edges, &counts, is_open);
        let mut natural = wrapping.clone();
        wrapping.settle(|_| {});
        natural.settle_natural();
        for (e, (&n, (a, b))) in counts.iter().zip(wrapping.counts().zip(natural.counts())).enumerate() {
            prop_assert!(a.is_none_or(|a| a == n) && b.is_none_or(|b| b == n), "{}: {:?} {:?}, not {}", e, a, b, n);
            prop_assert!(is_open(e) || a == Some(n));
            // What follows from sums that wrap follows from those that do not.
            prop_assert!(a.is_none() || b.is_some());
        }
    }
}

#[test]
fn what_never_ran_sends_nothing_on() {
    let mut system = Conservation::new(1);
    system.comes(0, 5);
    system.leaves(0, 5);
    system.flow(Some(0), None, None);
    system.flow(Some(0), None, None);
    let mut wrapping = system.clone();
    wrapping.settle(|_| {});
    assert_eq!(wrapping.counts().collect::<Vec<_>>(), [None, None]);
    system.settle_natural();
    assert_eq!(system.counts().collect::<Vec<_>>(), [Some(0), Some(0)]);
}

#[test]
fn counts_that_contradict_each_other_end_at_none_or_wrap() {
    let mut system = Conservation::new(1);
    system.comes(0, 5);
    system.leaves(0, 7);
    system.flow(Some(0), None, None);
    let mut natural = system.clone();
    natural.settle_natural();
    assert_eq!(natural.counts().collect::<Vec<_>>(), [Some(0)]);
    system.settle(|_| {});
    assert_eq!(system.counts().collect::<Vec<_>>(), [Some(2u64.wrapping_neg())]);
}
