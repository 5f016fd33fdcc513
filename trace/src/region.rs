//! Where control may go without an event, and which events can be left out since the next ones tell.
//!
//! A position is a place in a function behind an event, an entry or a call that returned. Its region is what control may come to from there
//! before the next event: it ends at points, at calls, and where the function is left.
//!
//! Invariant: every region is a tree: to each of its blocks and ends, one way leads. At most one of its ends is silent (it may be followed by
//! whatever event of other functions: a return, a jump out, a call of something unknown); then no call of it tells itself by the entry that it
//! comes to; and where there are such calls, each comes to another entry. A block that control may come to from any depth is silent, too.
//!
//! Source: Ball and Larus, "Optimally Profiling and Tracing Programs", TOPLAS 1994, section 5 (witnesses; there a procedure's events
//! are a file of their own, here all are in one).
#![warn(clippy::indexing_slicing)]

use crate::events::{Block, End};

/// What a region ends at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Border {
    /// This point: at the start of a block, on the way to one, or out of the function.
    Point(u32),
    /// Call `call` of the block.
    Call { block: u32, call: u32 },
    /// The end of the block: control leaves the function there, or comes to an end.
    End { block: u32 },
}

/// Where control may go without an event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Region {
    /// Blocks but the one of the position, each with the place of that before it, from 1; 0: the position.
    steps: Vec<(u32, u32)>,
    /// Where it ends, and the step before, likewise.
    borders: Vec<(Border, u32)>,
    /// The one that is silent.
    silent: Option<usize>,
    /// Whether it is as the invariant says.
    pub(crate) is_clear: bool,
}

/// The most blocks of a region.
const MOST_BLOCKS: usize = 64;
/// From how many positions at most control may come to a point that is left out, through how many blocks.
const MOST_POSITIONS: usize = 48;
const MOST_BEFORE: usize = 192;

/// Whether a call is told by the entry that it comes to.
fn entry_of(blocks: &[Block], block: u32, call: u32) -> Option<u32> {
    blocks.get(block as usize)?.calls.get(call as usize)?.entry
}

/// Behind the start of a block, or one of its calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub(crate) block: u32,
    /// The next call.
    pub(crate) call: u32,
}

impl Region {
    /// Of a position.
    pub(crate) fn of(blocks: &[Block], from: Position) -> Region {
        let mut region = Region { is_clear: true, ..Region::default() };
        // Ends of blocks that control came to, and blocks whose start it came to, or the point there.
        let (mut ends, mut starts) = (Vec::new(), Vec::new());
        let mut n_far = 0;
        let mut open = vec![(from, 0u32)];
        while let Some((at, step)) = open.pop() {
            let Some(block) = blocks.get(at.block as usize) else { continue };
            if at.call as usize >= block.calls.len() {
                if ends.contains(&at.block) {
                    region.is_clear = false;
                    continue;
                }
                ends.push(at.block);
            }
            if (at.call as usize) < block.calls.len() {
                region.borders.push((Border::Call { block: at.block, call: at.call }, step));
                continue;
            }
            if let Some((point, _)) = block.leaves {
                region.borders.push((Border::Point(point), step));
            }
            if block.is_open || !matches!(block.end, End::To(_)) {
                region.borders.push((Border::End { block: at.block }, step));
            }
            let End::To(ways) = &block.end else { continue };
            for &(to, point) in ways {
                let Some(start) = blocks.get(to as usize) else { continue };
                if point != 0 {
                    region.borders.push((Border::Point(point), step));
                    continue;
                }
                if starts.contains(&to) || region.steps.len() >= MOST_BLOCKS {
                    region.is_clear = false;
                    continue;
                }
                starts.push(to);
                if start.point != 0 {
                    // Control may come there from what is called, too.
                    n_far += usize::from(start.is_far);
                    region.borders.push((Border::Point(start.point), step));
                    continue;
                }
                region.steps.push((to, step));
                open.push((Position { block: to, call: 0 }, u32::try_from(region.steps.len()).expect("few")));
            }
        }
        let mut entries = Vec::new();
        let mut n_silent = n_far;
        for (n, (border, _)) in region.borders.iter().enumerate() {
            match *border {
                Border::Point(_) => {}
                Border::Call { block, call } if let Some(entry) = entry_of(blocks, block, call) => {
                    region.is_clear &= !entries.contains(&entry);
                    entries.push(entry);
                }
                Border::Call { .. } | Border::End { .. } => {
                    region.silent = Some(n);
                    n_silent += 1;
                }
            }
        }
        region.is_clear &= n_silent == 0 || n_silent == 1 && entries.is_empty();
        region
    }

    /// The step that leads to the first border that is one of those.
    pub(crate) fn to_border(&self, is_one: impl Fn(Border) -> bool) -> Option<u32> {
        self.borders.iter().find(|(border, _)| is_one(*border)).map(|(_, step)| *step)
    }

    /// The step that leads to a block; the one of the position is not among them.
    pub(crate) fn to_block(&self, block: u32) -> Option<u32> {
        let n = self.steps.iter().position(|(to, _)| *to == block)?;
        u32::try_from(n + 1).ok()
    }

    /// The border that whatever event may follow, with the step that leads there.
    pub(crate) fn silent(&self) -> Option<(Border, u32)> {
        self.silent.and_then(|n| self.borders.get(n)).copied()
    }

    /// The blocks that control goes through from the position up to a step.
    pub(crate) fn path(&self, mut step: u32) -> Vec<u32> {
        let mut path = Vec::new();
        while let Some(&(block, before)) = (step as usize).checked_sub(1).and_then(|n| self.steps.get(n)) {
            path.push(block);
            step = before;
        }
        path.reverse();
        path
    }
}

/// What points cost, that may be left out.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// Of that at the start of each block; `None` if it must stay.
    pub starts: Vec<Option<f32>>,
    /// Of those on the ways of each block, in their order.
    pub ways: Vec<Vec<f32>>,
}

/// Leaves out points of a function, dearest first, where the next events tell what they would. Control comes from outside to those of
/// `blocks` that are `entered`.
pub fn thin(blocks: &mut [Block], entered: &[bool], costs: &Costs) {
    let mut before = vec![Vec::new(); blocks.len()];
    for (from, block) in (0u32..).zip(blocks.iter()) {
        for (to, _) in block.ways() {
            before.get_mut(to as usize).into_iter().for_each(|b| b.push(from));
        }
    }
    let mut all: Vec<(f32, u32, Option<usize>)> = Vec::new();
    for ((n, block), (start, ways)) in (0u32..).zip(blocks.iter()).zip(costs.starts.iter().zip(&costs.ways)) {
        all.extend(start.filter(|_| block.point != 0).map(|cost| (cost, n, None)));
        let points = block.ways().zip(ways).enumerate().filter(|(_, (way, _))| way.1 != 0);
        all.extend(points.map(|(k, (_, cost))| (*cost, n, Some(k))));
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, n, way) in all {
        let Some(point) = slot(blocks, n, way).map(std::mem::take) else { continue };
        let ends = match way {
            None => before
                .get(n as usize)
                .into_iter()
                .flatten()
                .copied()
                .filter(|from| leads(blocks, *from, n))
                .collect(),
            Some(_) => vec![n],
        };
        let is_well = positions(blocks, &before, entered, ends)
            .is_some_and(|all| all.into_iter().all(|from| Region::of(blocks, from).is_clear));
        if !is_well && let Some(slot) = slot(blocks, n, way) {
            *slot = point;
        }
    }
}

/// Where a point is written down: at the start of block `n`, or on a way of it.
fn slot(blocks: &mut [Block], n: u32, way: Option<usize>) -> Option<&mut u32> {
    let block = blocks.get_mut(n as usize)?;
    match (way, &mut block.end) {
        (None, _) => Some(&mut block.point),
        (Some(k), End::To(ways)) => ways.get_mut(k).map(|way| &mut way.1),
        _ => None,
    }
}

/// Whether a way without a point leads from a block to another.
fn leads(blocks: &[Block], from: u32, to: u32) -> bool {
    blocks.get(from as usize).is_some_and(|b| b.ways().any(|way| way == (to, 0)))
}

/// The positions from which control may come to the ends of these blocks without an event; `None` if there are too many.
fn positions(
    blocks: &[Block],
    before: &[Vec<u32>],
    entered: &[bool],
    mut ends: Vec<u32>,
) -> Option<Vec<Position>> {
    let (mut seen, mut found) = (Vec::new(), Vec::new());
    while let Some(n) = ends.pop() {
        if seen.contains(&n) {
            continue;
        }
        seen.push(n);
        let block = blocks.get(n as usize)?;
        let call = u32::try_from(block.calls.len()).ok()?;
        if call > 0 {
            found.push(Position { block: n, call });
        } else {
            let from = before.get(n as usize)?;
            let comes = |from: &u32| {
                blocks.get(*from as usize).is_some_and(|b| b.ways().any(|w| w.0 == n && w.1 != 0))
            };
            if block.point != 0 || entered.get(n as usize).is_none_or(|e| *e) || from.iter().any(comes) {
                found.push(Position { block: n, call: 0 });
            }
            if block.point == 0 {
                ends.extend(from.iter().copied().filter(|from| leads(blocks, *from, n)));
            }
        }
        if seen.len() > MOST_BEFORE || found.len() > MOST_POSITIONS {
            return None;
        }
    }
    Some(found)
}
