//! Where control may go without an event, and which events can be left out since the next ones tell.
//!
//! A position is a place in a function behind an event, an entry or a call that returned. Its region is what
//! control may come to from there before the next event: it ends at points, at calls that something tells of,
//! and where the function is left.
//!
//! Invariant: every region is a tree: to each of its blocks and ends, one way leads. At most one of its ends
//! is silent (it may be followed by whatever event of other functions: a return, a jump out, a call of
//! something unknown, or one that what it calls tells of); then no call of it tells itself by the entry that
//! it comes to; and where there are such calls, each comes to another entry. A block that control may come to
//! from any depth is silent, too. Where regions follow each other by their silent ends, out of functions and
//! into others, no point is of two of them (`Passage`).
//!
//! Source: Ball and Larus, "Optimally Profiling and Tracing Programs", TOPLAS 1994, section 5 (witnesses;
//! there a procedure's events are a file of their own, here all are in one).
#![warn(clippy::indexing_slicing)]

use crate::ids::BlockId;
use crate::recording::module_code::{Block, End, Site, SiteTold};

/// What a region ends at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Border {
    /// This point: at the start of a block, on the way to one, or out of the function.
    Point(u32),
    /// Call `call` of the block.
    Call { block: BlockId, call: u32 },
    /// The end of the block: control leaves the function there, or comes to an end.
    End { block: BlockId },
}

/// Where control may go without an event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Region {
    /// Blocks but the one of the position, each with the place of that before it, from 1; 0: the position.
    steps: Vec<(BlockId, u32)>,
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

fn site(blocks: &[Block], block: BlockId, call: u32) -> Option<&Site> {
    blocks.get(block.index())?.calls.get(call as usize)
}

/// The entry that a call is told by.
fn entry_of(blocks: &[Block], block: BlockId, call: u32) -> Option<u32> {
    site(blocks, block, call)?.entry.filter(|_| !is_inside(blocks, block, call))
}

fn is_inside(blocks: &[Block], block: BlockId, call: u32) -> bool {
    site(blocks, block, call).is_some_and(|site| site.told == SiteTold::Inside)
}

/// Behind the start of a block, or one of its calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockPosition {
    pub(crate) block: BlockId,
    /// The next call.
    pub(crate) call: u32,
}

impl Region {
    /// Of a position.
    pub(crate) fn of(blocks: &[Block], from: BlockPosition) -> Region {
        let mut region = Region { is_clear: true, ..Region::default() };
        // Ends of blocks that control came to, and blocks whose start it came to, or the point there.
        let (mut ends, mut starts) = (Vec::new(), Vec::new());
        let mut n_far = 0;
        let mut open = vec![(from, 0u32)];
        while let Some((at, step)) = open.pop() {
            let Some(block) = blocks.get(at.block.index()) else { continue };
            if let Some(call) = block.next_call(at.call) {
                region.borders.push((Border::Call { block: at.block, call }, step));
                continue;
            }
            if ends.contains(&at.block) {
                region.is_clear = false;
                continue;
            }
            ends.push(at.block);
            if let Some((point, _)) = block.leaves {
                region.borders.push((Border::Point(point), step));
            }
            if block.is_open || !matches!(block.end, End::To(_)) {
                region.borders.push((Border::End { block: at.block }, step));
            }
            let End::To(ways) = &block.end else { continue };
            for &(to, point) in ways {
                let Some(start) = blocks.get(to.index()) else { continue };
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
                open.push((
                    BlockPosition { block: to, call: 0 },
                    u32::try_from(region.steps.len()).expect("few"),
                ));
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

    /// The first border that is one of those, with the step that leads there.
    pub(crate) fn border(&self, is_one: impl Fn(Border) -> bool) -> Option<(Border, u32)> {
        self.borders.iter().copied().find(|(border, _)| is_one(*border))
    }

    /// Its blocks but that of the position, each with the step that leads there.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (BlockId, u32)> {
        self.steps.iter().map(|(block, _)| *block).zip(1..)
    }

    /// The step that leads to a block; the one of the position is not among them.
    pub(crate) fn to_block(&self, block: BlockId) -> Option<u32> {
        let n = self.steps.iter().position(|(to, _)| *to == block)?;
        u32::try_from(n + 1).ok()
    }

    /// The border that whatever event may follow, with the step that leads there.
    pub(crate) fn silent(&self) -> Option<(Border, u32)> {
        self.silent.and_then(|n| self.borders.get(n)).copied()
    }

    /// The blocks that control goes through from the position up to a step.
    pub(crate) fn path(&self, mut step: u32) -> Vec<BlockId> {
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
    /// Of the entries that the calls of each block come to, in their order; `None` if they must tell.
    pub calls: Vec<Vec<Option<f32>>>,
    /// Whether something is to tell of every way through the function, so that its entry need not.
    pub always: bool,
}

/// A point of a function of a module: the function, then the number that its blocks have for the point.
type Word = (u32, u32);

/// What may be told where control passes from regions of a function to those of others by silent ends.
#[derive(Clone, Debug, Default)]
pub struct Passage {
    /// The points of which one is next when an entry is entered; `None`: not known, or none need be, or its
    /// stack pointer is needed.
    first: Option<Vec<Word>>,
    /// The points that could have been next when it returned without an event; `None`: not known.
    last: Option<Vec<Word>>,
    /// How many symbols it makes, if it has one way, without events.
    plain: Option<usize>,
}

/// Of more points than this, nothing is known.
const MOST_WORDS: usize = 256;
/// The most symbols of a function that is plain.
pub(crate) const MOST_PLAIN: usize = 64;

/// By entry: those of functions that are done.
#[derive(Debug, Default)]
pub struct Passages(Vec<Option<Passage>>);

impl Passages {
    fn get(&self, entry: Option<u32>) -> Option<&Passage> {
        self.0.get(entry? as usize)?.as_ref()
    }

    /// Whether a call of an entry can be left out: nothing tells of it, nor what it does.
    pub fn is_plain(&self, entry: u32) -> bool {
        self.get(Some(entry)).is_some_and(|passage| passage.plain.is_some())
    }

    /// Adds the entries of `func`, each with its block: what it calls is here, but what may call it, too.
    /// None of it may be entered that needs its stack pointer (`has_frame`).
    pub fn add(
        &mut self,
        func: u32,
        blocks: &[Block],
        entered: &[bool],
        has_frame: bool,
        entries: &[(u32, BlockId)],
    ) {
        let last = self.last(func, blocks, entered);
        for &(entry, block) in entries {
            let n = entry as usize;
            if self.0.len() <= n {
                self.0.resize_with(n + 1, || None);
            }
            let passage = Passage {
                first: self.first(func, blocks, block).filter(|_| !has_frame),
                last: last.clone(),
                plain: self.plain(blocks, block).filter(|_| !has_frame),
            };
            self.0.get_mut(n).into_iter().for_each(|slot| *slot = Some(passage.clone()));
        }
    }

    fn first(&self, func: u32, blocks: &[Block], block: BlockId) -> Option<Vec<Word>> {
        let start = blocks.get(block.index())?;
        if start.point != 0 {
            return Some(vec![(func, start.point)]).filter(|_| !start.is_far);
        }
        let region = Region::of(blocks, BlockPosition { block, call: 0 });
        let mut words = region.words(func, blocks)?;
        match region.silent().map(|(border, _)| border) {
            Some(Border::End { block }) => {
                let block = blocks.get(block.index())?;
                if !block.is_open && matches!(block.end, End::Return | End::Tail(None)) {
                    return None;
                }
            }
            Some(Border::Call { block, call }) if is_inside(blocks, block, call) => {
                let of_callee = self.get(site(blocks, block, call)?.entry)?.first.as_ref()?;
                words.extend(of_callee);
            }
            _ => {}
        }
        few(words)
    }

    fn last(&self, func: u32, blocks: &[Block], entered: &[bool]) -> Option<Vec<Word>> {
        let mut words = Vec::new();
        for ((n, block), entered) in (0..).map(BlockId).zip(blocks).zip(entered) {
            // A jump out of it comes back to where it would have.
            let tail = if let End::Tail(to) = block.end { to } else { None };
            for to in [tail, block.leaves.and_then(|(_, to)| to)].into_iter().flatten() {
                words.extend(self.get(Some(to))?.last.as_ref()?);
            }
            let on_way = blocks.iter().flat_map(Block::ways).any(|(to, point)| to == n && point != 0);
            let starts = *entered || block.point != 0 || on_way;
            let behind = (1..).zip(&block.calls).filter(|(_, site)| site.told != SiteTold::Nothing);
            let behind = behind.map(|(call, site)| (call, Some(site)));
            for (call, site) in starts.then_some((0, None)).into_iter().chain(behind) {
                let region = Region::of(blocks, BlockPosition { block: n, call });
                let Some((Border::End { block }, _)) = region.silent() else { continue };
                if !blocks.get(block.index()).is_some_and(|b| matches!(b.end, End::Return | End::Tail(_))) {
                    continue;
                }
                words.extend(region.words(func, blocks)?);
                if let Some(site) = site.filter(|site| site.point == 0) {
                    words.extend(self.get(site.entry)?.last.as_ref()?);
                }
            }
            if words.len() > 16 * MOST_WORDS {
                return None;
            }
        }
        few(words)
    }

    fn plain(&self, blocks: &[Block], block: BlockId) -> Option<usize> {
        let region = Region::of(blocks, BlockPosition { block, call: 0 });
        let [(Border::End { block: end }, _)] = *region.borders.as_slice() else { return None };
        if !region.is_clear || blocks.get(end.index())?.end != End::Return {
            return None;
        }
        let mut n = 2;
        for at in region.steps.iter().map(|(n, _)| *n).chain([block]) {
            let block = blocks.get(at.index())?;
            if block.point != 0 || block.may_end || block.is_open || block.leaves.is_some() {
                return None;
            }
            n += 1;
            for site in &block.calls {
                n += if site.stub != 0 { 3 } else { 0 };
                n += site.entry.map_or(Some(0), |entry| self.get(Some(entry))?.plain)?;
            }
        }
        (n <= MOST_PLAIN).then_some(n)
    }

    /// Whether the region of a position is as the invariant says, and those that follow it and that it
    /// follows.
    fn is_well(&self, blocks: &[Block], from: BlockPosition) -> bool {
        let region = Region::of(blocks, from);
        if !region.is_clear {
            return false;
        }
        let Some((Border::Call { block, call }, _)) = region.silent() else { return true };
        if !is_inside(blocks, block, call) {
            return true;
        }
        let entry = |block, call| site(blocks, block, call).and_then(|site| site.entry);
        let Some(first) = self.get(entry(block, call)).and_then(|passage| passage.first.as_ref()) else {
            return false;
        };
        let before = from.call.checked_sub(1).and_then(|call| site(blocks, from.block, call));
        match before.filter(|site| site.point == 0) {
            None => true,
            Some(site) => {
                let last = self.get(site.entry).and_then(|passage| passage.last.as_ref());
                last.is_some_and(|last| !first.iter().any(|word| last.binary_search(word).is_ok()))
            }
        }
    }
}

/// In order, each once; `None` if they are too many.
fn few(mut words: Vec<Word>) -> Option<Vec<Word>> {
    words.sort_unstable();
    words.dedup();
    (words.len() <= MOST_WORDS).then_some(words)
}

impl Region {
    /// Whether it may end at a return that nothing tells of.
    fn returns(&self, blocks: &[Block]) -> bool {
        let Some((Border::End { block }, _)) = self.silent() else { return false };
        blocks.get(block.index()).is_some_and(|b| b.end == End::Return)
    }

    /// The points that it ends at, those behind calls, too; `None` if it is not clear, or control may come
    /// there from any depth.
    fn words(&self, func: u32, blocks: &[Block]) -> Option<Vec<Word>> {
        let is_far = |n: u32| blocks.iter().any(|b| b.is_far && b.point == n);
        let mut words = Vec::new();
        for (border, _) in &self.borders {
            match *border {
                Border::Point(n) if is_far(n) => return None,
                Border::Point(n) => words.push((func, n)),
                Border::Call { block, call } => {
                    let point = site(blocks, block, call)?.point;
                    words.extend((point != 0).then_some((func, point)));
                }
                Border::End { .. } => {}
            }
        }
        Some(words).filter(|_| self.is_clear)
    }
}

/// A point of a function that may be left out, or the entry that a call of it is told by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Candidate {
    Start(BlockId),
    Way(BlockId, usize),
    Call(BlockId, u32),
}

/// Leaves out points of a function, and what entries that it calls tell, dearest first, where the next events
/// tell what they would. Control comes from outside to those of `blocks` that are `entered`; each point has a
/// number of its own; what it calls is among `passages`.
pub fn thin(blocks: &mut [Block], entered: &[bool], costs: &Costs, passages: &Passages) {
    let mut before = vec![Vec::new(); blocks.len()];
    for (from, block) in (0..).map(BlockId).zip(blocks.iter()) {
        for (to, _) in block.ways() {
            before.get_mut(to.index()).into_iter().for_each(|b| b.push(from));
        }
    }
    let mut all: Vec<(f32, Candidate)> = Vec::new();
    for ((n, block), start) in (0..).map(BlockId).zip(blocks.iter()).zip(&costs.starts) {
        all.extend(start.filter(|_| block.point != 0).map(|cost| (cost, Candidate::Start(n))));
    }
    for ((n, block), ways) in (0..).map(BlockId).zip(blocks.iter()).zip(&costs.ways) {
        let points = block.ways().zip(ways).enumerate().filter(|(_, (way, _))| way.1 != 0);
        all.extend(points.map(|(k, (_, cost))| (*cost, Candidate::Way(n, k))));
    }
    for (n, calls) in (0..).map(BlockId).zip(&costs.calls) {
        all.extend((0..).zip(calls).filter_map(|(k, cost)| Some(((*cost)?, Candidate::Call(n, k)))));
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, place) in all {
        let ends = match place {
            Candidate::Start(n) => {
                let from = before.get(n.index()).into_iter().flatten().copied();
                from.filter(|from| blocks.get(from.index()).is_some_and(|b| b.ways().any(|w| w == (n, 0))))
                    .collect()
            }
            Candidate::Way(n, _) => vec![n],
            Candidate::Call(..) => Vec::new(),
        };
        let Some(was) = leave_out(blocks, place) else { continue };
        let mut ends: Vec<BlockPosition> = ends.into_iter().filter_map(|n| end_of(blocks, n)).collect();
        if let Candidate::Call(block, call) = place {
            ends.push(BlockPosition { block, call });
        }
        let is_well = positions(blocks, &before, entered, ends).is_some_and(|all| {
            let may_be = |from: BlockPosition| {
                let n = from.block.index();
                let is_entry = from.call == 0
                    && entered.get(n).is_some_and(|e| *e)
                    && blocks.get(n).is_some_and(|b| b.point == 0);
                let is_silent = || is_entry && Region::of(blocks, from).returns(blocks);
                passages.is_well(blocks, from) && !(costs.always && is_silent())
            };
            all.into_iter().all(may_be)
        });
        if !is_well {
            put_back(blocks, place, was);
        }
    }
}

fn end_of(blocks: &[Block], block: BlockId) -> Option<BlockPosition> {
    let call = u32::try_from(blocks.get(block.index())?.calls.len()).ok()?;
    Some(BlockPosition { block, call })
}

/// Leaves out what a place tells; what that was.
fn leave_out(blocks: &mut [Block], place: Candidate) -> Option<u32> {
    if let Candidate::Call(block, call) = place {
        let site = blocks.get_mut(block.index())?.calls.get_mut(call as usize)?;
        (site.told == SiteTold::Event && site.point == 0).then(|| site.told = SiteTold::Inside)?;
        return Some(0);
    }
    slot(blocks, place).map(std::mem::take)
}

fn put_back(blocks: &mut [Block], place: Candidate, was: u32) {
    if let Candidate::Call(block, call) = place {
        let site = blocks.get_mut(block.index()).and_then(|b| b.calls.get_mut(call as usize));
        site.into_iter().for_each(|site| site.told = SiteTold::Event);
    } else if let Some(slot) = slot(blocks, place) {
        *slot = was;
    }
}

/// Where a point is written down.
fn slot(blocks: &mut [Block], place: Candidate) -> Option<&mut u32> {
    match place {
        Candidate::Start(n) => blocks.get_mut(n.index()).map(|block| &mut block.point),
        Candidate::Way(n, k) => match &mut blocks.get_mut(n.index())?.end {
            End::To(ways) => ways.get_mut(k).map(|way| &mut way.1),
            _ => None,
        },
        Candidate::Call(..) => None,
    }
}

/// The positions from which control may come to these places without an event, a call of its block or its
/// end; `None` if there are too many.
fn positions(
    blocks: &[Block],
    before: &[Vec<BlockId>],
    entered: &[bool],
    mut places: Vec<BlockPosition>,
) -> Option<Vec<BlockPosition>> {
    let (mut seen, mut found) = (Vec::new(), Vec::new());
    while let Some(place) = places.pop() {
        if seen.contains(&place) {
            continue;
        }
        seen.push(place);
        let n = place.block;
        let block = blocks.get(n.index())?;
        let calls = (1u32..).zip(&block.calls).take(place.call as usize);
        if let Some((call, _)) = calls.filter(|(_, site)| site.told != SiteTold::Nothing).last() {
            found.push(BlockPosition { block: n, call });
        } else {
            let from = before.get(n.index())?;
            let ways = |from: &BlockId| blocks.get(from.index()).map(Block::ways).into_iter().flatten();
            let comes = |from: &BlockId| ways(from).any(|w| w.0 == n && w.1 != 0);
            if block.point != 0 || entered.get(n.index()).is_none_or(|e| *e) || from.iter().any(comes) {
                found.push(BlockPosition { block: n, call: 0 });
            }
            if block.point == 0 {
                let leads = from.iter().filter(|from| ways(from).any(|w| w == (n, 0)));
                places.extend(leads.filter_map(|from| end_of(blocks, *from)));
            }
        }
        if seen.len() > MOST_BEFORE || found.len() > MOST_POSITIONS {
            return None;
        }
    }
    Some(found)
}
