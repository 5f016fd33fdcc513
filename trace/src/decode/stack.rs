//! What is open in a stream: on the stack of its thread, and on others.
//!
//! Invariant: no question costs what is open altogether, only what has changed of it since the last one: a
//! program may never come back from a million calls (coroutines that are entered anew each time).
#![warn(clippy::indexing_slicing)]

use super::activation::Activation;
use super::module_codes::ModuleFunction;
use crate::decode::region::BlockPosition;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

/// Functions that are open.
#[derive(Debug, Default)]
pub(super) struct Stack {
    /// On the stack that control is on.
    pub(super) open: Open,
    /// On other stacks, when control went to one that was left before.
    pub(super) parked: VecDeque<Vec<Activation>>,
    /// Where streams may have gone on in another process.
    pub(super) forked: Forked,
}

/// What was open where streams may have gone on in another process: by module, point and stack pointer.
#[derive(Debug, Default)]
pub struct Forked(HashMap<(usize, u32, u32), Option<Arc<Kept>>>);

impl Forked {
    /// Notes what is open where a stream may go on.
    pub(super) fn keep(&mut self, at: (usize, u32, u32), open: &mut Open) {
        self.0.insert(at, open.keep());
    }

    /// What was open there.
    pub(super) fn get(&self, at: (usize, u32, u32)) -> Option<Vec<Activation>> {
        let mut all: Vec<Activation> = Vec::new();
        let mut next = self.0.get(&at)?.as_ref();
        while let Some(kept) = next {
            all.push(kept.top);
            next = kept.below.as_ref();
        }
        all.reverse();
        Some(all)
    }
}

/// What was open once: the one on top, and what was below it, which several have in common.
#[derive(Debug)]
struct Kept {
    top: Activation,
    below: Option<Arc<Kept>>,
}

impl Drop for Kept {
    /// One after the other: there may be more than fit on our stack.
    fn drop(&mut self) {
        let mut below = self.below.take();
        while let Some(mut kept) = below.and_then(Arc::into_inner) {
            below = kept.below.take();
        }
    }
}

/// Functions that are open on one stack, the outermost first.
#[derive(Debug, Default)]
pub(super) struct Open {
    all: Vec<Activation>,
    /// A number for each that no other has had: if one is still there, so is all below it, unchanged.
    ids: Vec<u64>,
    n_ids: u64,
    /// Those that the three lists below know.
    listed: Vec<(u64, ModuleFunction, Option<u32>)>,
    /// Positions of the activations of a function.
    positions: HashMap<ModuleFunction, Vec<usize>>,
    /// Those whose frames are known, by these.
    framed: HashMap<ModuleFunction, BTreeMap<u32, Vec<usize>>>,
    /// The others.
    unframed: HashMap<ModuleFunction, Vec<usize>>,
    kept: Vec<(u64, Arc<Kept>)>,
    /// By what was told: from where it led nowhere.
    dead_ends: HashMap<u32, (u64, BlockPosition)>,
}

impl Deref for Open {
    type Target = [Activation];
    fn deref(&self) -> &[Activation] {
        &self.all
    }
}

impl From<Vec<Activation>> for Open {
    fn from(all: Vec<Activation>) -> Open {
        let ids: Vec<u64> = (0..).take(all.len()).collect();
        Open { n_ids: ids.len() as u64, ids, all, ..Open::default() }
    }
}

/// More words than this lead nowhere: all are forgotten.
const MOST_DEAD_ENDS: usize = 1 << 12;

impl Open {
    /// One is entered.
    pub(super) fn push(&mut self, new: Activation) {
        self.all.push(new);
        self.ids.push(self.n_ids);
        self.n_ids += 1;
    }

    /// The one on top is left.
    pub(super) fn pop(&mut self) -> Option<Activation> {
        self.ids.pop();
        self.all.pop()
    }

    /// The one on top, to be changed. No other may.
    pub(super) fn last_mut(&mut self) -> Option<&mut Activation> {
        self.all.last_mut()
    }

    /// All but the first `n` are left.
    pub(super) fn truncate(&mut self, n: usize) {
        self.all.truncate(n);
        self.ids.truncate(n);
    }

    /// The same; how many these are.
    pub(super) fn leave_from(&mut self, n: usize) -> usize {
        let n_left = self.all.len().saturating_sub(n);
        self.truncate(n);
        n_left
    }

    /// All of them, without what is known of them.
    pub(super) fn into_all(self) -> Vec<Activation> {
        self.all
    }

    /// The positions of the activations of `function`, the outermost first.
    pub(super) fn of(&mut self, function: ModuleFunction) -> &[usize] {
        self.list();
        self.positions.get(&function).map_or(&[], Vec::as_slice)
    }

    /// The activation of `function` whose frame starts at `at` or nearest above it: how far above, and its
    /// position. One whose frame is not known is taken to start there. Of several, the innermost.
    pub(super) fn nearest(&mut self, function: ModuleFunction, at: u32) -> Option<(u32, usize)> {
        self.list();
        let framed = self.framed.get(&function).and_then(|all| {
            let (frame, positions) = all.range(at..).next().or_else(|| all.iter().next())?;
            Some((frame.wrapping_sub(at), *positions.last()?))
        });
        let unframed = self.unframed.get(&function).and_then(|all| Some((0, *all.last()?)));
        let nearer = |(distance, position): (u32, usize)| (distance, usize::MAX - position);
        framed.into_iter().chain(unframed).min_by_key(|one| nearer(*one)).filter(|one| one.0 < 1 << 31)
    }

    /// Brings the lists up to date.
    fn list(&mut self) {
        while let Some(&(id, function, frame)) = self.listed.last() {
            if self.ids.get(self.listed.len() - 1) == Some(&id) {
                break;
            }
            self.listed.pop();
            self.positions.get_mut(&function).map(Vec::pop);
            match frame {
                Some(frame) => {
                    let all = self.framed.entry(function).or_default();
                    if let Some(positions) = all.get_mut(&frame) {
                        positions.pop();
                        if positions.is_empty() {
                            all.remove(&frame);
                        }
                    }
                }
                None => drop(self.unframed.get_mut(&function).map(Vec::pop)),
            }
        }
        let known = self.listed.len();
        for (n, (id, a)) in self.ids.iter().zip(&self.all).enumerate().skip(known) {
            self.listed.push((*id, a.function, a.frame));
            self.positions.entry(a.function).or_default().push(n);
            match a.frame {
                Some(frame) => {
                    self.framed.entry(a.function).or_default().entry(frame).or_default().push(n);
                }
                None => self.unframed.entry(a.function).or_default().push(n),
            }
        }
    }

    /// What is open now, to be kept.
    fn keep(&mut self) -> Option<Arc<Kept>> {
        while let Some((id, kept)) = self.kept.last() {
            let n = self.kept.len() - 1;
            // Who was on top meanwhile may have gone on.
            if self.ids.get(n) == Some(id) && self.all.get(n) == Some(&kept.top) {
                break;
            }
            self.kept.pop();
        }
        let known = self.kept.len();
        for (id, top) in self.ids.iter().zip(&self.all).skip(known) {
            let below = self.kept.last().map(|(_, kept)| Arc::clone(kept));
            self.kept.push((*id, Arc::new(Kept { top: *top, below })));
        }
        self.kept.last().map(|(_, kept)| Arc::clone(kept))
    }

    /// Whether what is told by `word` is known to be nowhere that the first `n` lead to, from this place of
    /// the last of them.
    pub(super) fn is_dead_end(&self, n: usize, at: BlockPosition, word: u32) -> bool {
        let id = n.checked_sub(1).and_then(|n| self.ids.get(n));
        self.dead_ends.get(&word).is_some_and(|(dead, position)| Some(dead) == id && *position == at)
    }

    /// Notes that it is so.
    pub(super) fn note_dead_end(&mut self, n: usize, at: BlockPosition, word: u32) {
        if self.dead_ends.len() >= MOST_DEAD_ENDS {
            self.dead_ends.clear();
        }
        if let Some(id) = n.checked_sub(1).and_then(|n| self.ids.get(n)) {
            self.dead_ends.insert(word, (*id, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoder, ModuleCodes};
    use crate::ids::{BlockId, FuncId};
    use crate::recording::event::{ENTRY, FROM_ANYWHERE, HAS_FRAME};
    use crate::recording::module_code::{Block, End, Function, ModuleCode, PointPlace, Site, SiteTold};
    use crate::symbol::{Cause, Symbol};
    use proptest::prelude::*;

    /// What happens to a stack.
    #[derive(Clone, Debug)]
    enum Change {
        Push(u32, Option<u32>),
        Truncate(usize),
        Go(u32),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            (0..3_u32, prop::option::of(prop_oneof![0..6_u32, (u32::MAX - 3)..u32::MAX]))
                .prop_map(|(f, frame)| Change::Push(f, frame)),
            (0..12_usize).prop_map(Change::Truncate),
            (0..4_u32).prop_map(Change::Go),
        ]
    }

    proptest! {
        /// Lists that follow what changes answer what a look at all that is open does.
        #[test]
        fn what_is_known_of_a_stack_is_what_a_look_at_all_of_it_says(
            changes in prop::collection::vec(change(), 0..60),
            at in 0..6_u32,
        ) {
            let (mut open, mut forked) = (Open::default(), Forked::default());
            let of = |func| ModuleFunction { module: 0, func };
            for (n, change) in (0..).zip(changes) {
                match change {
                    Change::Push(func, frame) => open.push(Activation::at(of(func), BlockId(0), frame)),
                    Change::Truncate(n) => open.truncate(n),
                    Change::Go(block) => open.last_mut().into_iter().for_each(|a| a.block = BlockId(block)),
                }
                let all: Vec<Activation> = open.to_vec();
                let own = |func| all.iter().enumerate().filter(move |(_, a)| a.function == of(func));
                for func in 0..3 {
                    let above = |a: &Activation| a.frame.map_or(0, |frame| frame.wrapping_sub(at));
                    let plain = own(func).rev().map(|(n, a)| (above(a), n)).filter(|a| a.0 < 1 << 31);
                    prop_assert_eq!(open.nearest(of(func), at), plain.min_by_key(|a| a.0));
                    prop_assert_eq!(open.of(of(func)), own(func).map(|(n, _)| n).collect::<Vec<_>>());
                }
                forked.keep((0, n, 0), &mut open);
                prop_assert_eq!(forked.get((0, n, 0)), Some(all));
            }
        }
    }

    const N: u32 = 100_000;
    /// A walk through all that is open for each event takes minutes.
    const MOST: std::time::Duration = std::time::Duration::from_secs(60);

    fn block(calls: Vec<Site>, end: End) -> Block {
        Block { calls, end, ..Block::default() }
    }

    fn code(functions: Vec<Vec<Block>>, points: Vec<PointPlace>) -> ModuleCodes {
        let entries = (0..).take(functions.len()).map(|func| (func, BlockId(0))).collect();
        let functions =
            functions.into_iter().map(|blocks| Function { blocks, ..Function::default() }).collect();
        ModuleCodes::new(vec![ModuleCode { base: 8, entries, functions, points, ..ModuleCode::default() }])
    }

    /// Coroutines that are entered anew each time, and never left.
    #[test]
    fn a_stack_that_only_grows_is_decoded_event_by_event() {
        let began = std::time::Instant::now();
        let calls = |n| vec![Site { point: n, told: SiteTold::Event, ..Site::default() }];
        let to = End::To(vec![(BlockId(1), 0)]);
        let blocks = vec![block(calls(1), to), block(calls(2), End::Stop)];
        let points = vec![PointPlace::Behind(0, BlockId(0), 0), PointPlace::Behind(0, BlockId(1), 0)];
        let codes = code(vec![blocks], points);
        let (mut decoder, mut out) = (Decoder::new(&codes), Vec::new());
        for n in 0..N {
            decoder.push(&[ENTRY | HAS_FRAME | 8, 1 << 30 | n, FROM_ANYWHERE | 9, 1 << 30 | n], &mut out);
        }
        assert_eq!(decoder.faults.n_astray, 0);
        let enters = Symbol::enter(FuncId(0)).from_outside().0;
        assert_eq!(out.iter().filter(|&&code| Symbol(code).is_entry_of(FuncId(0))).count(), N as usize);
        assert_eq!(out.first(), Some(&enters));
        decoder.finish(Cause::RecordingEnd, &mut out);
        assert!(began.elapsed() < MOST, "{:?}", began.elapsed());
    }

    /// What calls back from deep inside a recursion is looked for in all that may have returned once, not
    /// each time.
    #[test]
    fn a_callback_is_not_looked_for_again_where_it_was_not() {
        let began = std::time::Instant::now();
        let call = |entry| vec![Site { entry: Some(entry), told: SiteTold::Event, ..Site::default() }];
        let first = vec![block(call(1), End::Stop)];
        let recursion = vec![block(call(1), End::Return)];
        let called_back = vec![block(Vec::new(), End::Return)];
        let codes = code(vec![first, recursion, called_back], Vec::new());
        let (mut decoder, mut out) = (Decoder::new(&codes), Vec::new());
        decoder.push(&[ENTRY | 8], &mut out);
        for _ in 0..N {
            decoder.push(&[ENTRY | 9], &mut out);
        }
        for _ in 0..N {
            decoder.push(&[ENTRY | 10], &mut out);
        }
        let n_of = |func| out.iter().filter(|&&code| Symbol(code).is_entry_of(FuncId(func))).count();
        assert_eq!((n_of(0), n_of(1), n_of(2)), (1, N as usize, N as usize));
        assert!(began.elapsed() < MOST, "{:?}", began.elapsed());
    }

    #[test]
    fn a_million_open_functions_are_kept_and_dropped() {
        let (mut open, mut forked) = (Open::default(), Forked::default());
        for n in 0..1 << 20 {
            open.push(Activation::at(ModuleFunction { module: 0, func: 0 }, BlockId(0), Some(n)));
            // A look at all each time would take a million times a million steps.
            forked.keep((0, 0, 0), &mut open);
            assert_eq!(open.nearest(ModuleFunction { module: 0, func: 0 }, 0), Some((0, 0)));
        }
        drop(open);
        drop(forked);
    }
}
