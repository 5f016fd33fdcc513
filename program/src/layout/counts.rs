//! How often what is drawn ran.

use crate::ids::{BlockId, EdgeId};
use crate::model::Program;

/// Executions, where they are known.
pub struct Counts<'a> {
    /// Of a block.
    pub block: &'a dyn Fn(BlockId) -> Option<RunCount>,
    /// Of an edge; of several between the same blocks, all together.
    pub edge: &'a dyn Fn(EdgeId) -> Option<RunCount>,
}

/// How often something ran: `7`, or `7..8` where that may be off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunCount {
    /// As often as this, as far as is known.
    pub n: u64,
    /// The least and the most.
    pub between: Option<(u64, u64)>,
}

impl RunCount {
    /// Whether it is sure that it did not.
    pub(super) fn is_never(self) -> bool {
        self.between.map_or(self.n, |n| n.1) == 0
    }

    /// Both together.
    pub(super) fn plus(self, other: RunCount) -> RunCount {
        let ends = |of: RunCount| of.between.unwrap_or((of.n, of.n));
        let ((least, most), (also, at_most)) = (ends(self), ends(other));
        let between = (self.between.is_some() || other.between.is_some())
            .then(|| (least.saturating_add(also), most.saturating_add(at_most)));
        RunCount { n: self.n.saturating_add(other.n), between }
    }
}

impl std::fmt::Display for RunCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.between {
            Some((least, most)) => write!(f, "{least}..{most}"),
            None => write!(f, "{}", self.n),
        }
    }
}

/// The other edges between the two blocks of `id`, such as those of a branch to the next instruction: one
/// count is of all of them.
pub(super) fn beside(program: &Program, id: EdgeId) -> impl Iterator<Item = EdgeId> + '_ {
    let edge = program.edge(id);
    program.edge_ids(edge.from).filter(move |&e| e != id && program.edge(e).to == edge.to)
}

/// Whether it is sure that an edge was never taken.
pub(super) fn is_idle(program: &Program, counts: Option<&Counts<'_>>, id: EdgeId) -> bool {
    let e = program.edge(id);
    // Exceptions are not counted by their ways: but none came from what never ran, or to it.
    let never_ran = |b: BlockId| counts.and_then(|c| (c.block)(b)).is_some_and(RunCount::is_never);
    let count = counts.and_then(|c| (c.edge)(id));
    count.map_or_else(|| never_ran(e.from) || never_ran(e.to), RunCount::is_never)
}
