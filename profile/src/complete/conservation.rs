//! Counts that follow from others by conservation of flow: what comes to a node leaves it.
//!
//! A flow leads from node to node, or from or to outside. The one flow of a node that is not known is what
//! the others leave over. A system of flows whose unknown ones make no cycle, outside being one more node, is
//! settled whole.
//!
//! Source: Knuth, TAOCP vol. 1, 2.3.4.1 (Kirchhoff's law).
#![warn(clippy::indexing_slicing)]

/// Flows between nodes, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Conservation {
    flows: Vec<FlowEdge>,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct FlowEdge {
    from: Option<usize>,
    to: Option<usize>,
    n: Option<u64>,
}

/// A node: what is known to come and to leave, and which of its flows are not known.
#[derive(Clone, Debug, Default)]
struct Node {
    comes: u64,
    leaves: u64,
    open: Vec<usize>,
    n_open: usize,
}

/// A flow that was settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Which, in the order in which they were added.
    pub flow: usize,
    /// The node whose last open flow it was.
    pub node: usize,
    /// Whether it leads to that node.
    pub is_in: bool,
    /// The node at its other end, if that is not outside.
    pub other: Option<usize>,
}

/// What is made of counts that contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arithmetic {
    /// They wrap, so that what is wrong in one part of the flow does not spoil the rest.
    Wrap,
    /// They end at none.
    Saturate,
}

impl Conservation {
    /// No flows between so many nodes.
    pub fn new(n_nodes: usize) -> Conservation {
        Conservation { flows: Vec::new(), nodes: vec![Node::default(); n_nodes] }
    }

    /// Adds a flow between two nodes, `None` being outside, with its count if that is known.
    pub fn flow(&mut self, from: Option<usize>, to: Option<usize>, n: Option<u64>) {
        let f = self.flows.len();
        self.flows.push(FlowEdge { from, to, n });
        for (node, is_in) in [(from, false), (to, true)] {
            let Some(node) = node else { continue };
            match n {
                Some(n) => self.add(node, n, is_in, Arithmetic::Wrap),
                None => {
                    if let Some(node) = self.nodes.get_mut(node) {
                        node.open.push(f);
                        node.n_open += 1;
                    }
                }
            }
        }
    }

    /// Says that `n` more come to `node` from outside.
    pub fn comes(&mut self, node: usize, n: u64) {
        self.add(node, n, true, Arithmetic::Wrap);
    }

    /// Says that `n` more leave `node` to outside.
    pub fn leaves(&mut self, node: usize, n: u64) {
        self.add(node, n, false, Arithmetic::Wrap);
    }

    /// The counts, in the order in which the flows were added.
    pub fn counts(&self) -> impl Iterator<Item = Option<u64>> {
        self.flows.iter().map(|flow| flow.n)
    }

    /// Settles what follows, and tells of each flow. Sums wrap, so that what is known of a part of the flow
    /// does not spoil the rest: a flow that would be less than none is beyond 2⁶³.
    pub fn settle(&mut self, mut on_settled: impl FnMut(Settled)) {
        let has_one = |node: &Node| node.n_open == 1;
        let mut ready: Vec<usize> =
            self.nodes.iter().enumerate().filter(|(_, node)| has_one(node)).map(|(n, _)| n).collect();
        while let Some(node) = ready.pop() {
            if !self.nodes.get(node).is_some_and(has_one) {
                continue;
            }
            let Some(settled) = self.settle_last(node, Arithmetic::Wrap) else { continue };
            on_settled(settled);
            ready.extend(settled.other.filter(|&other| self.nodes.get(other).is_some_and(has_one)));
        }
    }

    /// Settles what follows, no flow being less than none: then of a node that nothing is left of, nothing
    /// flows. Counts that contradict each other are taken in the order of the nodes.
    pub fn settle_natural(&mut self) {
        let mut waiting: Vec<usize> = (0..self.nodes.len()).collect();
        let mut is_going_on = true;
        // Every round settles a node at least, and most functions need a few.
        while is_going_on {
            is_going_on = false;
            waiting.retain(|&node| {
                match self.nodes.get(node).map_or(0, |node| node.n_open) {
                    0 => return false,
                    1 => {
                        self.settle_last(node, Arithmetic::Saturate);
                    }
                    _ if self.is_spent(node) => self.settle_to_none(node),
                    _ => return true,
                }
                is_going_on = true;
                false
            });
        }
    }

    /// Whether nothing is left for what is open of `node`. Of what leads in and out at once, nobody knows.
    fn is_spent(&self, node: usize) -> bool {
        let Some(here) = self.nodes.get(node) else { return false };
        let open = || here.open.iter().filter_map(|&f| self.flows.get(f)).filter(|f| f.n.is_none());
        let is_all = |is_in: bool| open().all(|f| f.from != f.to && (f.to == Some(node)) == is_in);
        here.comes <= here.leaves && is_all(false) || here.leaves <= here.comes && is_all(true)
    }

    /// Settles the only open flow of `node`.
    fn settle_last(&mut self, node: usize, arithmetic: Arithmetic) -> Option<Settled> {
        let here = self.nodes.get(node)?;
        let flow = here.open.iter().copied().find(|&f| self.flows.get(f).is_some_and(|f| f.n.is_none()))?;
        let FlowEdge { from, to, .. } = *self.flows.get(flow)?;
        let is_in = to == Some(node);
        let (more, less) = if is_in { (here.leaves, here.comes) } else { (here.comes, here.leaves) };
        let n = match arithmetic {
            Arithmetic::Wrap => more.wrapping_sub(less),
            Arithmetic::Saturate => more.saturating_sub(less),
        };
        self.set(flow, n, arithmetic);
        Some(Settled { flow, node, is_in, other: if is_in { from } else { to } })
    }

    /// Settles that nothing flows along what is open of `node`.
    fn settle_to_none(&mut self, node: usize) {
        let open = self.nodes.get_mut(node).map(|node| std::mem::take(&mut node.open)).unwrap_or_default();
        for flow in open {
            if self.flows.get(flow).is_some_and(|flow| flow.n.is_none()) {
                self.set(flow, 0, Arithmetic::Saturate);
            }
        }
    }

    fn set(&mut self, flow: usize, n: u64, arithmetic: Arithmetic) {
        let Some(edge) = self.flows.get_mut(flow) else { return };
        edge.n = Some(n);
        let (from, to) = (edge.from, edge.to);
        for (node, is_in) in [(from, false), (to, true)] {
            let Some(node) = node else { continue };
            self.add(node, n, is_in, arithmetic);
            if let Some(node) = self.nodes.get_mut(node) {
                node.n_open -= 1;
            }
        }
    }

    fn add(&mut self, node: usize, n: u64, is_in: bool, arithmetic: Arithmetic) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        let sum = if is_in { &mut node.comes } else { &mut node.leaves };
        *sum = match arithmetic {
            Arithmetic::Wrap => sum.wrapping_add(n),
            Arithmetic::Saturate => sum.saturating_add(n),
        };
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may fail")]
mod tests;
