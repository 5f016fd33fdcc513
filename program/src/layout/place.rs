//! Gives each node its place in its layer: near its neighbours, in its layer's order, without overlaps.
//!
//! Each sweep asks every node where it would like to be (the median of its neighbours in the layer before;
//! dummy nodes with more weight, so that long edges run straight) and finds the places in order that are
//! nearest to those wishes by weighted least squares.
//!
//! Source: the last step is isotonic regression by pooling adjacent violators (R. Barlow and others, 1972).

use super::Layers;

const SWEEPS: usize = 10;
/// How much more a straight long edge counts than a box near its neighbours.
const DUMMY_WEIGHT: f64 = 8.0;

/// The centre of each node.
pub(super) fn centres(graph: &Layers, width: impl Fn(u32) -> f64, gap: impl Fn(u32, u32) -> f64) -> Vec<f64> {
    let mut centre = vec![0.0; graph.layer.len()];
    // Distances from the first node of the layer, if all stand as close as may be.
    let mut offset = vec![0.0; graph.layer.len()];
    for nodes in &graph.layers {
        for pair in nodes.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            offset[b as usize] = offset[a as usize] + (width(a) + width(b)) / 2.0 + gap(a, b);
        }
        let middle = nodes.last().map_or(0.0, |&v| offset[v as usize]) / 2.0;
        for &v in nodes {
            centre[v as usize] = offset[v as usize] - middle;
        }
    }
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        for i in 0..graph.layers.len() {
            let l = if down { i } else { graph.layers.len() - 1 - i };
            let last = sweep + 2 >= SWEEPS;
            settle(graph, l, down, last, &mut centre, &offset);
        }
    }
    centre
}

/// Moves the nodes of a layer to where they want to be, as far as order and distances allow.
fn settle(graph: &Layers, l: usize, down: bool, both: bool, centre: &mut [f64], offset: &[f64]) {
    let nodes = &graph.layers[l];
    // Wishes with the distances taken out: then places need only not decrease. Pools: sum of weighted wishes,
    // weight, how many.
    let mut pools: Vec<(f64, f64, usize)> = Vec::with_capacity(nodes.len());
    for &v in nodes {
        let (first, second) = (&graph.above[v as usize], &graph.below[v as usize]);
        let (first, second) = if down { (first, second) } else { (second, first) };
        let mut at: Vec<f64> = first.iter().map(|&w| centre[w as usize]).collect();
        if both || at.is_empty() {
            at.extend(second.iter().map(|&w| centre[w as usize]));
        }
        at.sort_by(f64::total_cmp);
        let wish = match at.len() {
            0 => centre[v as usize],
            k => f64::midpoint(at[(k - 1) / 2], at[k / 2]),
        };
        let straight = graph.is_dummy(v) && first.iter().any(|&w| graph.is_dummy(w));
        let weight = if straight { DUMMY_WEIGHT } else { 1.0 };
        let mut pool = ((wish - offset[v as usize]) * weight, weight, 1);
        while let Some(&(sum, weight, n)) = pools.last().filter(|p| p.0 / p.1 > pool.0 / pool.1) {
            pool = (pool.0 + sum, pool.1 + weight, pool.2 + n);
            pools.pop();
        }
        pools.push(pool);
    }
    let mut rest = nodes.iter();
    for (sum, weight, n) in pools {
        for &v in rest.by_ref().take(n) {
            centre[v as usize] = sum / weight + offset[v as usize];
        }
    }
}
