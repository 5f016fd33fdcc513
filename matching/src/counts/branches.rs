//! The two sides of a conditional branch.

use program::{BlockEnd, BlockId, EdgeKind, Program};

/// The two sides of a conditional branch: edges taken and not taken, if both stay in the function and differ.
pub(crate) fn branch_sides(p: &Program, b: BlockId) -> Option<[usize; 2]> {
    if p.block(b).end != BlockEnd::Branch {
        return None;
    }
    let mut sides = [None; 2];
    for e in p.edge_ids(b) {
        match p.edge(e).kind {
            EdgeKind::Taken => sides[0] = Some(e.index()),
            EdgeKind::FallThrough => sides[1] = Some(e.index()),
            _ => {}
        }
    }
    let [taken, not] = sides;
    let (taken, not) = (taken?, not?);
    (p.edges[taken].to != p.edges[not].to).then_some([taken, not])
}
