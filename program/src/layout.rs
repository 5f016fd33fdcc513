//! Where to draw the blocks and edges of a function: a layered layout.
//!
//! Back edges are reversed, nodes put into layers by longest path, long edges broken into one dummy node a
//! layer, layers ordered so that edges cross little, and nodes placed so that chains run straight. Edges are
//! polylines through their dummy nodes.
//!
//! Invariant: deterministic; no two boxes overlap; every layer lies below the one before; nothing recurses.
//! Near-linear in nodes and dummy nodes: a fixed number of sweeps.
//!
//! Source: K. Sugiyama, S. Tagawa, M. Toda, "Methods for Visual Understanding of Hierarchical System
//! Structures", 1981 (layers, dummy nodes, barycentres); E. Gansner and others, "A Technique for Drawing
//! Directed Graphs", 1993, 3 (medians, transposing neighbours). Places follow the priority idea of Sugiyama's
//! section 4, the straightness of long edges first.
//!
//! Not here: what a picture looks like (`layout::svg`), or Graphviz's text (`layout::dot`).

mod counts;
mod dot;
mod fold;
mod order;
mod place;
mod svg;

pub use counts::{Counts, RunCount};
pub use dot::dot;
pub use fold::Folding;
pub use svg::{Style, svg};

use crate::analyses::flow_graph::count;

/// The size of a node's box.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Size {
    /// From left to right.
    pub width: f64,
    /// From top to bottom.
    pub height: f64,
}

/// Where something is drawn; y grows downwards.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Coordinates {
    /// To the right.
    pub x: f64,
    /// Down.
    pub y: f64,
}

/// Where everything goes.
#[derive(Clone, PartialEq, Debug)]
pub struct Layout {
    /// Upper left corner of each node's box.
    pub nodes: Vec<Coordinates>,
    /// The corners of each edge, from its source's box to its target's.
    pub edges: Vec<Vec<Coordinates>>,
    /// Size of the whole.
    pub size: Size,
}

/// Space between boxes of a layer, between an edge and its neighbour, and between layers.
const NODE_GAP: f64 = 24.0;
const EDGE_GAP: f64 = 12.0;
const LAYER_GAP: f64 = 34.0;
/// Some 25 MB: more than any function that can be looked at needs.
const MAX_DUMMIES: usize = 200_000;

/// The layered graph: real nodes first, then dummies.
struct Layers {
    /// Nodes of each layer, from left to right.
    layers: Vec<Vec<u32>>,
    /// Layer and position of each node.
    layer: Vec<u32>,
    position: Vec<u32>,
    /// Neighbours in the layer above and below, one for each edge segment.
    above: Vec<Vec<u32>>,
    below: Vec<Vec<u32>>,
    /// How many nodes are real.
    n_real: usize,
}

impl Layers {
    fn is_dummy(&self, node: u32) -> bool {
        node as usize >= self.n_real
    }
}

/// Lays out a graph: `sizes` of its nodes, of which the first is the entry, `edges` as pairs of nodes.
///
/// Edges that go back or to their own node run along a side. Layers are from top to bottom.
///
/// # Panics
/// If an edge names a node that is not there.
pub fn compute(sizes: &[Size], edges: &[(u32, u32)]) -> Layout {
    let n = sizes.len();
    let back = back_edges(n, edges);
    let layer = longest_paths(n, edges, &back);
    let (mut graph, chains) = with_dummies(n, edges, &back, layer);
    order::reduce_crossings(&mut graph);
    let width = |v: u32| if v as usize >= n { 0.0 } else { sizes[v as usize].width };
    let gap = |a: u32, b: u32| if (a as usize) < n && (b as usize) < n { NODE_GAP } else { EDGE_GAP };
    let centre = place::centres(&graph, width, gap);
    let mut top = Vec::with_capacity(graph.layers.len());
    let mut bottom = Vec::with_capacity(graph.layers.len());
    let mut y = 0.0;
    for nodes in &graph.layers {
        let height = nodes
            .iter()
            .filter(|&&v| !graph.is_dummy(v))
            .map(|&v| sizes[v as usize].height)
            .fold(0.0, f64::max);
        // Many edges between two layers need room to be told apart.
        let edges: usize = nodes.iter().map(|&v| graph.above[v as usize].len()).sum();
        y += if top.is_empty() { 0.0 } else { LAYER_GAP + (edges as f64).sqrt() * 3.0 };
        top.push(y);
        y += height;
        bottom.push(y);
    }
    let left = (0..count(graph.layer.len()))
        .map(|v| centre[v as usize] - width(v) / 2.0)
        .fold(f64::INFINITY, f64::min);
    let left = if left.is_finite() { left } else { 0.0 };
    let nodes: Vec<Coordinates> = (0..n)
        .map(|v| Coordinates { x: centre[v] - sizes[v].width / 2.0 - left, y: top[graph.layer[v] as usize] })
        .collect();
    let route =
        Route { graph: &graph, centre: &centre, left, top: &top, bottom: &bottom, sizes, nodes: &nodes };
    let ports = route.ports(edges, &back, &chains);
    let lines: Vec<Vec<Coordinates>> =
        (0..edges.len()).map(|e| route.line(e, edges[e], back[e], &chains[e], &ports)).collect();
    let right = nodes.iter().zip(sizes).map(|(p, s)| p.x + s.width);
    let all_x = lines.iter().flatten().map(|p| p.x).chain(right);
    let size = Size { width: all_x.fold(0.0, f64::max), height: y };
    Layout { nodes, edges: lines, size }
}

/// Which edges go back in a depth-first search from node 0, then from the others in order. An edge to its own
/// node does.
fn back_edges(n: usize, edges: &[(u32, u32)]) -> Vec<bool> {
    let mut out = vec![Vec::new(); n];
    for (e, &(from, _)) in edges.iter().enumerate() {
        out[from as usize].push(e);
    }
    let mut back = vec![false; edges.len()];
    // 0 not seen, 1 on the way, 2 done.
    let mut state = vec![0u8; n];
    for root in 0..n {
        if state[root] != 0 {
            continue;
        }
        state[root] = 1;
        let mut stack = vec![(root, 0)];
        while let Some((v, next)) = stack.last_mut() {
            let Some(&e) = out[*v].get(*next) else {
                state[*v] = 2;
                stack.pop();
                continue;
            };
            *next += 1;
            let to = edges[e].1 as usize;
            match state[to] {
                0 => {
                    state[to] = 1;
                    stack.push((to, 0));
                }
                1 => back[e] = true,
                _ => {}
            }
        }
    }
    back
}

/// An edge without its direction in time: from the higher layer to the lower.
fn downwards(edge: (u32, u32), back: bool) -> (u32, u32) {
    if back { (edge.1, edge.0) } else { edge }
}

/// Layer of each node: the longest way from a source; then sources other than node 0 are pulled down to just
/// above what they lead to.
fn longest_paths(n: usize, edges: &[(u32, u32)], back: &[bool]) -> Vec<u32> {
    let mut below = vec![Vec::new(); n];
    let mut n_above = vec![0u32; n];
    for (&edge, &back) in edges.iter().zip(back).filter(|(e, _)| e.0 != e.1) {
        let (a, b) = downwards(edge, back);
        below[a as usize].push(b);
        n_above[b as usize] += 1;
    }
    let mut layer = vec![0u32; n];
    let is_source: Vec<bool> = n_above.iter().map(|&k| k == 0).collect();
    let mut ready: Vec<u32> = (0..count(n)).filter(|&v| is_source[v as usize]).collect();
    let mut order = Vec::with_capacity(n);
    while let Some(v) = ready.pop() {
        order.push(v);
        for &w in &below[v as usize] {
            layer[w as usize] = layer[w as usize].max(layer[v as usize] + 1);
            n_above[w as usize] -= 1;
            if n_above[w as usize] == 0 {
                ready.push(w);
            }
        }
    }
    for v in (1..n).filter(|&v| is_source[v]) {
        if let Some(least) = below[v].iter().map(|&w| layer[w as usize]).min() {
            layer[v] = least.saturating_sub(1);
        }
    }
    layer
}

/// The longest edges, by index, where all edges together would need more dummies than are drawn: a few
/// hundred in real functions, the square of the size in hostile ones. They run straight.
fn longer_than_room(n: usize, edges: &[(u32, u32)], back: &[bool], layer: &[u32]) -> Vec<usize> {
    let span = |e: usize| {
        let (a, b) = downwards(edges[e], back[e]);
        layer[b as usize].saturating_sub(layer[a as usize].saturating_add(1)) as usize
    };
    let mut room = MAX_DUMMIES.max(8 * n);
    let mut by_span: Vec<usize> = (0..edges.len()).filter(|&e| span(e) > 0).collect();
    by_span.sort_by_key(|&e| span(e));
    let fits = by_span.iter().take_while(|&&e| {
        let left = room.checked_sub(span(e));
        room = left.unwrap_or(0);
        left.is_some()
    });
    let n_fit = fits.count();
    let mut straight = by_span.split_off(n_fit);
    straight.sort_unstable();
    straight
}

/// Breaks edges over more than one layer with dummy nodes; gives each edge's dummies, from top to bottom.
fn with_dummies(n: usize, edges: &[(u32, u32)], back: &[bool], layer: Vec<u32>) -> (Layers, Vec<Vec<u32>>) {
    let n_layers = layer.iter().max().map_or(0, |&l| l as usize + 1);
    let mut graph = Layers {
        layers: vec![Vec::new(); n_layers],
        position: vec![0; n],
        above: vec![Vec::new(); n],
        below: vec![Vec::new(); n],
        n_real: n,
        layer,
    };
    let mut chains = Vec::with_capacity(edges.len());
    let straight = longer_than_room(n, edges, back, &graph.layer);
    for (e, (&edge, &back)) in edges.iter().zip(back).enumerate() {
        let mut chain = Vec::new();
        let (a, b) = downwards(edge, back);
        if a != b && straight.binary_search(&e).is_err() {
            let mut from = a;
            for l in graph.layer[a as usize] + 1..graph.layer[b as usize] {
                let dummy = count(graph.layer.len());
                graph.layer.push(l);
                graph.position.push(0);
                graph.above.push(vec![from]);
                graph.below.push(Vec::new());
                graph.below[from as usize].push(dummy);
                chain.push(dummy);
                from = dummy;
            }
            graph.below[from as usize].push(b);
            graph.above[b as usize].push(from);
        }
        chains.push(chain);
    }
    // First order: a depth-first search keeps what belongs together side by side.
    let mut seen = vec![false; graph.layer.len()];
    for root in 0..count(n) {
        let mut stack = vec![root];
        while let Some(v) = stack.pop() {
            if std::mem::replace(&mut seen[v as usize], true) {
                continue;
            }
            let row = &mut graph.layers[graph.layer[v as usize] as usize];
            graph.position[v as usize] = count(row.len());
            row.push(v);
            stack.extend(graph.below[v as usize].iter().rev().filter(|&&w| !seen[w as usize]));
        }
    }
    (graph, chains)
}

/// What is needed to draw edges.
struct Route<'a> {
    graph: &'a Layers,
    centre: &'a [f64],
    left: f64,
    top: &'a [f64],
    bottom: &'a [f64],
    sizes: &'a [Size],
    nodes: &'a [Coordinates],
}

impl Route<'_> {
    fn x(&self, v: u32) -> f64 {
        self.centre[v as usize] - self.left
    }

    /// Where each edge touches the lower side of its upper box, and the upper side of its lower box: spread,
    /// in the order of where the edges go, so that they do not cross at once.
    fn ports(&self, edges: &[(u32, u32)], back: &[bool], chains: &[Vec<u32>]) -> Vec<(f64, f64)> {
        let n = self.graph.n_real;
        let mut lower: Vec<Vec<(f64, usize)>> = vec![Vec::new(); n];
        let mut upper: Vec<Vec<(f64, usize)>> = vec![Vec::new(); n];
        for (e, chain) in chains.iter().enumerate() {
            let (a, b) = downwards(edges[e], back[e]);
            if a != b {
                lower[a as usize].push((self.x(chain.first().copied().unwrap_or(b)), e));
                upper[b as usize].push((self.x(chain.last().copied().unwrap_or(a)), e));
            }
        }
        let mut ports = vec![(0.0, 0.0); edges.len()];
        for v in 0..n {
            for (list, is_lower) in [(&mut lower[v], true), (&mut upper[v], false)] {
                list.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                let step = (self.sizes[v].width * 0.8 / (list.len() as f64)).min(18.0);
                for (i, &(_, e)) in list.iter().enumerate() {
                    let at = self.x(count(v)) + (i as f64 - (list.len() as f64 - 1.0) / 2.0) * step;
                    if is_lower {
                        ports[e].0 = at;
                    } else {
                        ports[e].1 = at;
                    }
                }
            }
        }
        ports
    }

    fn line(
        &self,
        e: usize,
        edge: (u32, u32),
        back: bool,
        chain: &[u32],
        ports: &[(f64, f64)],
    ) -> Vec<Coordinates> {
        let (a, b) = downwards(edge, back);
        if a == b {
            // Round the right side of the box.
            let (at, size) = (self.nodes[a as usize], self.sizes[a as usize]);
            let (right, out) = (at.x + size.width, at.x + size.width + NODE_GAP / 2.0);
            let (low, high) = (at.y + size.height * 0.75, at.y + size.height * 0.25);
            return [(right, low), (out, low), (out, high), (right, high)]
                .map(|(x, y)| Coordinates { x, y })
                .into();
        }
        let bottom_of = |v: u32| self.nodes[v as usize].y + self.sizes[v as usize].height;
        let mut line = vec![Coordinates { x: ports[e].0, y: bottom_of(a) }];
        // Straight down beside lower neighbours of the layer, then across.
        line.push(Coordinates { x: ports[e].0, y: self.bottom[self.graph.layer[a as usize] as usize] });
        for &d in chain {
            let l = self.graph.layer[d as usize] as usize;
            line.push(Coordinates { x: self.x(d), y: self.top[l] });
            line.push(Coordinates { x: self.x(d), y: self.bottom[l] });
        }
        line.push(Coordinates { x: ports[e].1, y: self.nodes[b as usize].y });
        line.dedup();
        if back {
            line.reverse();
        }
        line
    }
}

#[cfg(test)]
mod tests;
