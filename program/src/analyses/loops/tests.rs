//! Loops against brute force by strongly connected components, on random graphs and on the functions of real
//! binaries.

use super::*;
use crate::analyses::flow_graph::tests::{any_graph, reach};
use crate::image::Image;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// A loop by what it consists of: its nodes, its entries, and the nodes of the loop around it.
type Plain = BTreeMap<Vec<u32>, (Vec<u32>, Option<Vec<u32>>)>;

/// The definition at the head of the module, word by word: components by mutual reachability, entries taken
/// away, again inside.
fn brute_force(graph: &FlowGraph) -> Plain {
    let mut found = Plain::new();
    let mut without = vec![true; graph.len()];
    inside(graph, (0..count(graph.len())).collect(), None, &mut without, &mut found);
    found
}

fn inside(
    graph: &FlowGraph,
    nodes: Vec<u32>,
    around: Option<Vec<u32>>,
    without: &mut [bool],
    found: &mut Plain,
) {
    without.fill(true);
    nodes.iter().for_each(|&v| without[v as usize] = false);
    let reach = reach(graph, without);
    let mut left: BTreeSet<u32> = nodes.into_iter().collect();
    while let Some(&v) = left.first() {
        let together = |w: u32| reach[v as usize][w as usize] && reach[w as usize][v as usize];
        let component: Vec<u32> = left.iter().copied().filter(|&w| together(w)).collect();
        if component.is_empty() {
            left.remove(&v);
            continue;
        }
        component.iter().for_each(|w| {
            left.remove(w);
        });
        let from_outside = |w: &u32| {
            graph.roots.contains(w) || graph.predecessors(*w).iter().any(|p| !component.contains(p))
        };
        let (entries, rest): (Vec<u32>, Vec<u32>) = component.iter().partition(|w| from_outside(w));
        found.insert(component.clone(), (entries, around.clone()));
        inside(graph, rest, Some(component), without, found);
    }
}

fn ours(nest: &Nest) -> Plain {
    let nodes = |l: u32| {
        let range = &nest.members[l as usize];
        let mut nodes = nest.order[range.start as usize..range.end as usize].to_vec();
        nodes.sort_unstable();
        nodes
    };
    let ids = 0..count(nest.parent.len());
    ids.map(|l| {
        let entries = &nest.entries_of[l as usize];
        let entries = nest.entries[entries.start as usize..entries.end as usize].to_vec();
        let parent = nest.parent[l as usize];
        (nodes(l), (entries, (parent != NONE).then(|| nodes(parent))))
    })
    .collect()
}

#[track_caller]
fn check(n: usize, edges: &[(u32, u32)], want: &[(&[u32], &[u32])]) {
    let nest = Nest::of(&FlowGraph::new(n, edges, &[0]));
    let got = ours(&nest);
    let got: Vec<(&[u32], &[u32])> =
        got.iter().map(|(nodes, (entries, _))| (&nodes[..], &entries[..])).collect();
    assert_eq!(got, want);
}

#[test]
fn a_block_that_jumps_to_itself_is_a_loop() {
    check(2, &[(0, 1), (1, 1)], &[(&[1], &[1])]);
}

#[test]
fn a_loop_with_two_ways_in_has_two_entries() {
    check(3, &[(0, 1), (0, 2), (1, 2), (2, 1)], &[(&[1, 2], &[1, 2])]);
}

#[test]
fn a_loop_inside_an_irreducible_one_is_found() {
    // 1 and 2 are entries; 3 and 4 go round between them.
    let edges = [(0, 1), (0, 2), (1, 3), (2, 1), (3, 4), (4, 2), (4, 3)];
    check(5, &edges, &[(&[1, 2, 3, 4], &[1, 2]), (&[3, 4], &[3])]);
}

#[test]
fn two_loops_with_one_header_are_one() {
    check(4, &[(0, 1), (1, 2), (1, 3), (2, 1), (3, 1)], &[(&[1, 2, 3], &[1])]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn loops_equal_brute_force_by_components(graph in any_graph(13)) {
        prop_assert_eq!(ours(&Nest::of(&graph)), brute_force(&graph));
    }
}

proptest! {
    #[test]
    fn sparse_larger_graphs_equal_brute_force(graph in any_graph(45)) {
        prop_assert_eq!(ours(&Nest::of(&graph)), brute_force(&graph));
    }

    #[test]
    fn the_forest_is_in_its_order(graph in any_graph(30)) {
        let nest = Nest::of(&graph);
        for l in 0..count(nest.parent.len()) {
            let parent = nest.parent[l as usize];
            prop_assert!(parent == NONE || parent < l);
            prop_assert_eq!(nest.depth[l as usize], if parent == NONE { 1 } else { nest.depth[parent as usize] + 1 });
            let first = |l: u32| nest.entries[nest.entries_of[l as usize].start as usize];
            for k in l + 1..count(nest.parent.len()) {
                prop_assert!(nest.parent[k as usize] != parent || first(l) < first(k));
            }
            for &e in &nest.entries[nest.entries_of[l as usize].start as usize..nest.entries_of[l as usize].end as usize] {
                prop_assert_eq!(nest.innermost[e as usize], l);
            }
        }
    }
}

/// Fifty thousand blocks in the shapes that make simple algorithms quadratic. Each takes milliseconds here; a
/// quadratic one, minutes.
#[test]
fn fifty_thousand_blocks_are_no_matter() {
    let n = 50_000u32;
    let nested: Vec<_> = (0..n - 1)
        .flat_map(|i| if i > n / 2 { vec![(i, n - i), (i, i + 1)] } else { vec![(i, i + 1)] })
        .collect();
    let ladder: Vec<_> =
        (0..n - 2).flat_map(|i| [(i, i + 1), (i, i + 2)]).chain([(n - 2, 1), (n - 1, 0)]).collect();
    let backwards: Vec<_> = (0..n - 1).flat_map(|i| vec![(i, i.saturating_sub(1)), (i, i + 1)]).collect();
    let hub: Vec<_> = (0..n - 1).map(|i| (0, i + 1)).chain((1..n).map(|i| (i, 0))).collect();
    let started = std::time::Instant::now();
    for (edges, n_loops) in [(nested, n / 2 - 2), (ladder, 2), (backwards, n - 2), (hub, 1)] {
        let nest = Nest::of(&FlowGraph::new(n as usize, &edges, &[0]));
        assert_eq!(nest.parent.len(), n_loops as usize);
    }
    assert!(started.elapsed().as_secs() < 20, "quadratic: {:?}", started.elapsed());
}

/// Every function of what the compiler makes of itself and of system libraries, ours against brute force.
#[test]
fn loops_of_real_functions_equal_brute_force() {
    let libc = Command::new("gcc").arg("-print-file-name=libc.so.6").output().expect("gcc runs");
    let libc = String::from_utf8(libc.stdout).expect("a path in plain letters");
    let program = Program::analyze(Image::load(libc.trim().as_ref()).expect("libc loads"));
    let (mut n_loops, mut n_irreducible) = (0, 0);
    for func in program.func_ids().filter(|&f| program.function(f).n_blocks() < 150) {
        let graph = FlowGraph::of(&program, func);
        let loops = Loops::compute(&program, func);
        assert_eq!(ours(&loops.nest), brute_force(&graph), "{}", program.function(func).name());
        n_loops += loops.len();
        for l in loops.ids() {
            n_irreducible += usize::from(loops.is_irreducible(l));
            check_edges(&program, &loops, l);
        }
    }
    assert!(
        n_loops > 1000 && n_irreducible > 0,
        "libc has {n_loops} loops, {n_irreducible} of them irreducible"
    );
}

/// Back edges and exits by their definitions.
fn check_edges(program: &Program, loops: &Loops, l: LoopId) {
    let members: BTreeSet<BlockId> = loops.blocks(l).collect();
    let entries: BTreeSet<BlockId> = loops.entries(l).collect();
    let all = program.function(loops.func).block_ids().flat_map(|b| program.edge_ids(b));
    let (mut back, mut exits) = (Vec::new(), Vec::new());
    for id in all {
        let e = program.edge(id);
        match (members.contains(&e.from), members.contains(&e.to)) {
            (true, true) if entries.contains(&e.to) => back.push(id),
            (true, false) => exits.push(id),
            _ => {}
        }
        let is_back = loops.back_edge_of(program, id) == Some(l);
        assert_eq!(is_back, back.last() == Some(&id), "{id}");
    }
    assert_eq!((loops.back_edges(l), loops.exits(program, l)), (&back[..], exits));
}
