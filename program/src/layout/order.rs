//! Orders each layer so that edges cross little: medians of the neighbours above and below in turn, then
//! swaps of neighbours that pay; the best order seen is kept.
//!
//! Source: Gansner and others 1993, 3.

use super::Layers;
use crate::analyses::flow_graph::count;

const SWEEPS: usize = 12;

/// Reorders the layers of `graph`.
pub(super) fn reduce_crossings(graph: &mut Layers) {
    let mut best = graph.layers.clone();
    let mut least = crossings(graph);
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        for i in 1..graph.layers.len() {
            let l = if down { i } else { graph.layers.len() - 1 - i };
            by_median(graph, l, down);
        }
        swap_neighbours(graph);
        let now = crossings(graph);
        if now < least {
            (least, best) = (now, graph.layers.clone());
        }
        if least == 0 {
            break;
        }
    }
    for (l, nodes) in best.into_iter().enumerate() {
        set(graph, l, nodes);
    }
}

fn set(graph: &mut Layers, l: usize, nodes: Vec<u32>) {
    for (i, &v) in nodes.iter().enumerate() {
        graph.position[v as usize] = count(i);
    }
    graph.layers[l] = nodes;
}

/// Sorts a layer by the median position of its neighbours above (or below); nodes without any keep their
/// place.
fn by_median(graph: &mut Layers, l: usize, down: bool) {
    let mut keyed: Vec<(f64, u32)> = Vec::new();
    let mut fixed: Vec<(usize, u32)> = Vec::new();
    for (i, &v) in graph.layers[l].iter().enumerate() {
        let neighbours = if down { &graph.above[v as usize] } else { &graph.below[v as usize] };
        let mut at: Vec<u32> = neighbours.iter().map(|&w| graph.position[w as usize]).collect();
        at.sort_unstable();
        match at.len() {
            0 => fixed.push((i, v)),
            k if k % 2 == 1 => keyed.push((f64::from(at[k / 2]), v)),
            k => keyed.push((f64::from(at[k / 2 - 1] + at[k / 2]) / 2.0, v)),
        }
    }
    // Stable: what is equal keeps its order.
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut nodes: Vec<u32> = Vec::with_capacity(graph.layers[l].len());
    let (mut keyed, mut fixed) = (keyed.into_iter(), fixed.into_iter().peekable());
    for i in 0..graph.layers[l].len() {
        let next = match fixed.next_if(|f| f.0 == i) {
            Some(f) => Some(f.1),
            None => keyed.next().map(|k| k.1),
        };
        nodes.extend(next.or_else(|| fixed.next().map(|f| f.1)));
    }
    set(graph, l, nodes);
}

/// Swaps neighbours where that makes fewer crossings, one pass over each layer.
fn swap_neighbours(graph: &mut Layers) {
    for l in 0..graph.layers.len() {
        for i in 1..graph.layers[l].len() {
            let (a, b) = (graph.layers[l][i - 1], graph.layers[l][i]);
            let now = cross(graph, a, b);
            if now > 0 && cross(graph, b, a) < now {
                graph.layers[l].swap(i - 1, i);
                graph.position[a as usize] = count(i);
                graph.position[b as usize] = count(i - 1);
            }
        }
    }
}

/// Crossings of the edges of `a` with those of `b` if `a` stands to the left.
fn cross(graph: &Layers, a: u32, b: u32) -> usize {
    let mut n = 0;
    for lists in [&graph.above, &graph.below] {
        let mut left: Vec<u32> = lists[a as usize].iter().map(|&w| graph.position[w as usize]).collect();
        let mut right: Vec<u32> = lists[b as usize].iter().map(|&w| graph.position[w as usize]).collect();
        left.sort_unstable();
        right.sort_unstable();
        let mut smaller = 0;
        for x in left {
            while right.get(smaller).is_some_and(|&y| y < x) {
                smaller += 1;
            }
            n += smaller;
        }
    }
    n
}

/// All crossings: inversions between layers, by a tree of sums.
pub(super) fn crossings(graph: &Layers) -> usize {
    let mut n = 0;
    for nodes in graph.layers.iter().skip(1) {
        let mut segments: Vec<(u32, u32)> = Vec::new();
        for &v in nodes {
            segments.extend(
                graph.above[v as usize]
                    .iter()
                    .map(|&w| (graph.position[w as usize], graph.position[v as usize])),
            );
        }
        segments.sort_unstable();
        let mut tree = vec![0usize; nodes.len() + 1];
        for (seen, &(_, at)) in segments.iter().enumerate() {
            let mut not_right = 0;
            let mut i = at as usize + 1;
            while i > 0 {
                not_right += tree[i];
                i &= i - 1;
            }
            n += seen - not_right;
            let mut i = at as usize + 1;
            while i < tree.len() {
                tree[i] += 1;
                i += i & i.wrapping_neg();
            }
        }
    }
    n
}
