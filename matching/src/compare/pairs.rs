//! Activities of both builds that are the same, from the threads down: their events aligned, and what was
//! called at events that are paired, paired.
//!
//! Each two activities are aligned once, however often they come together: one that calls another has a
//! larger number, so those with the largest come first.
//!
//! Activities of very many events are aligned piece by piece: what is paired in the first half of as many
//! events as are looked at is kept, and what is looked at next begins behind it.

use super::code::NONE;
use super::items::{Events, Item, JOINED, MOST_ITEMS, Numbers, Reading};
use super::log::Place;
use super::sequence::{self, Keyed};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::ops::Range;

/// How deep gaps are opened, one in another.
const MOST_OPENED: u32 = 12;

/// So many events are looked at at a time.
pub const AT_A_TIME: usize = 1 << 20;
/// So much more are looked at, if less than half of them are paired.
const MOST_TIMES: usize = 8;

/// Two activities, aligned, or a piece of them.
pub struct Aligned {
    /// Those of the old and of the new build.
    pub activities: [u32; 2],
    /// How often they come together.
    pub times: f64,
    /// The events of both, those of what was opened in their places.
    pub items: [Vec<Item>; 2],
    /// Which of the one is which of the other, in order.
    pub pairs: Vec<(usize, usize)>,
    /// Whether it is the first piece. Another one begins behind the last pair of the one before.
    pub is_first: bool,
    /// Whether it is the last piece.
    pub is_last: bool,
    /// Whether what was called stands behind each call, and its return is an event, too.
    pub is_flat: bool,
}

/// Aligns what is reachable from `roots`, pairs of activities, looking at so many events at a time; gives
/// each to `take`, once, if in pieces, one behind the other.
pub fn align(sides: &[Reading<'_>; 2], roots: &[[u32; 2]], at_a_time: usize, mut take: impl FnMut(Aligned)) {
    let mut aligner = Aligner::new(sides);
    // By what must come first: the largest.
    let mut todo: BTreeMap<[u32; 2], f64> = BTreeMap::new();
    for root in roots {
        *todo.entry(*root).or_default() += 1.0;
    }
    while let Some((activities, times)) = todo.pop_last() {
        let mut is_first = true;
        aligner.pieces(activities, at_a_time, |(items, pairs), is_last| {
            for &(x, y) in &pairs {
                let called = |n: usize, at: usize| items[n].get(at).and_then(|item| sides[n].called(item));
                if let (Some(a), Some(b)) = (called(0, x), called(1, y)) {
                    *todo.entry([a, b]).or_default() += times;
                }
            }
            take(Aligned { activities, times, items, pairs, is_first, is_last, is_flat: false });
            is_first = false;
        });
    }
}

/// What two activities did, and what of the one is what of the other, in order.
pub type Both = ([Vec<Item>; 2], Vec<(usize, usize)>);

/// Aligns activities of two sides.
pub struct Aligner<'a, 'b> {
    sides: &'a [Reading<'b>; 2],
    numbers: Numbers,
}

impl<'a, 'b> Aligner<'a, 'b> {
    /// Of two sides.
    pub fn new(sides: &'a [Reading<'b>; 2]) -> Aligner<'a, 'b> {
        Aligner { sides, numbers: Numbers::default() }
    }

    /// The events of two activities, and which of the one is which of the other, in order.
    pub fn align(&mut self, activities: [u32; 2]) -> Both {
        let mut all = Both::default();
        self.pieces(activities, usize::MAX, |piece, _| all = piece);
        all
    }

    /// The same, piece by piece; and whether it is the last one.
    fn pieces(&mut self, activities: [u32; 2], at_a_time: usize, mut take: impl FnMut(Both, bool)) {
        let (sides, numbers) = (self.sides, &mut self.numbers);
        let mut events = activities.map(Events::of);
        let mut items: [Vec<Item>; 2] = Default::default();
        let mut most = at_a_time;
        loop {
            for n in [0, 1] {
                if items[n].len() < most {
                    sides[n].fill(&mut events[n], most, numbers, &mut items[n]);
                }
            }
            let mut made = Making { sides, numbers, items: Default::default(), pairs: Vec::new() };
            let is_over = events.each_ref().map(Events::is_over);
            if is_over == [true, true] {
                let [a, b] = &items;
                made.align(a, b, 0, false);
                take((made.items, made.pairs), true);
                return;
            }
            let may_be_more = most < at_a_time.saturating_mul(MOST_TIMES);
            let Some(ends) = made.align_start(&items, is_over, may_be_more) else {
                most = most.saturating_mul(2);
                continue;
            };
            let piece = (made.items, made.pairs);
            items.iter_mut().zip(ends).for_each(|(items, end)| _ = items.drain(..end));
            most = at_a_time;
            take(piece, false);
        }
    }
}

/// An alignment in the making.
struct Making<'a, 'b> {
    sides: &'a [Reading<'b>; 2],
    numbers: &'a mut Numbers,
    items: [Vec<Item>; 2],
    pairs: Vec<(usize, usize)>,
}

impl Making<'_, '_> {
    /// Appends `old` and `new`, aligned by their keys, or by names alone.
    fn align(&mut self, old: &[Item], new: &[Item], depth: u32, by_name: bool) {
        let pairs = self.paired(old, new, by_name);
        let (a, b) = self.append(old, new, &pairs, depth, by_name);
        self.gap(old.get(a..).unwrap_or_default(), new.get(b..).unwrap_or_default(), depth, by_name);
    }

    /// Appends the start of what is followed by more, unless `is_over`, up to a call that is paired in the
    /// first half: where that is. Nothing, if there is none; or not enough is paired, and it may be looked at
    /// more.
    fn align_start(
        &mut self,
        items: &[Vec<Item>; 2],
        is_over: [bool; 2],
        may_be_more: bool,
    ) -> Option<[usize; 2]> {
        let [old, new] = items;
        let mut pairs = self.paired(old, new, false);
        let half = |n: usize| if is_over[n] { items[n].len() } else { items[n].len() / 2 };
        let is_call =
            |at: usize| old.get(at).is_some_and(|of| !matches!(self.sides[0].place(of), Place::Rounds(_)));
        let last = pairs.iter().rposition(|&(x, y)| x < half(0) && y < half(1) && is_call(x))?;
        pairs.truncate(last + 1);
        let (x, y) = *pairs.last()?;
        let n_events =
            |items: &[Item], end: usize| items.iter().take(end).filter(|item| item.is_event()).count();
        if may_be_more && 2 * pairs.len() < n_events(old, x).min(n_events(new, y)) {
            return None;
        }
        let (a, b) = self.append(old, new, &pairs, 0, false);
        Some([a, b])
    }

    /// Which of `old` is which of `new`, by their keys, or by names alone.
    fn paired(&self, old: &[Item], new: &[Item], by_name: bool) -> Vec<(usize, usize)> {
        // Where the events are, and their keys.
        let keyed = |n: usize, items: &[Item]| -> (Vec<u32>, (Vec<u32>, Vec<u64>)) {
            let all = (0..).zip(items).filter(|(_, item)| item.is_event());
            let key = |item: &Item| if by_name { item.name } else { item.key };
            all.map(|(at, item)| (at, (key(item), self.sides[n].print(key(item), item)))).unzip()
        };
        let (at_old, (keys_old, fine_old)) = keyed(0, old);
        let (at_new, (keys_new, fine_new)) = keyed(1, new);
        let old = Keyed { keys: &keys_old, fine: &fine_old };
        let pairs = sequence::pairs(old, Keyed { keys: &keys_new, fine: &fine_new }).into_iter();
        pairs.filter_map(|(x, y)| Some((*at_old.get(x)? as usize, *at_new.get(y)? as usize))).collect()
    }

    /// Appends `old` and `new` up to the last pair, with what is between them: where what is left begins.
    fn append(
        &mut self,
        old: &[Item],
        new: &[Item],
        pairs: &[(usize, usize)],
        depth: u32,
        by_name: bool,
    ) -> (usize, usize) {
        let (mut a, mut b) = (0, 0);
        for &(x, y) in pairs {
            self.gap(old.get(a..x).unwrap_or_default(), new.get(b..y).unwrap_or_default(), depth, by_name);
            self.pairs.push((self.items[0].len(), self.items[1].len()));
            self.items[0].extend(old.get(x));
            self.items[1].extend(new.get(y));
            (a, b) = (x + 1, y + 1);
        }
        (a, b)
    }

    /// Appends what is between two pairs: aligned by names, then with the calls opened that the other side
    /// does not make there.
    fn gap(&mut self, old: &[Item], new: &[Item], depth: u32, by_name: bool) {
        let has = |items: &[Item]| items.iter().any(Item::is_event);
        if !has(old) || !has(new) || depth >= MOST_OPENED {
            self.items[0].extend_from_slice(old);
            self.items[1].extend_from_slice(new);
            return;
        }
        let names =
            |items: &[Item]| items.iter().filter(|item| item.is_event()).map(|item| item.name).collect();
        let (of_old, of_new): (FxHashSet<u32>, FxHashSet<u32>) = (names(old), names(new));
        if !by_name && !of_old.is_disjoint(&of_new) {
            self.align(old, new, depth + 1, true);
            return;
        }
        let (opened_old, is_open) = self.opened(0, old, &of_new);
        let (opened_new, is_open_too) = self.opened(1, new, &of_old);
        match is_open || is_open_too {
            true => self.align(&opened_old, &opened_new, depth + 1, false),
            false => self.nests(old, new),
        }
    }

    /// Appends what is between two pairs, and in which nothing is the same. Compilers make other loops of the
    /// same ones: the rounds in it are one nest then, which is compared as a whole, for its ends are known.
    fn nests(&mut self, old: &[Item], new: &[Item]) {
        let both = [old, new];
        let ranges = [0, 1].map(|n: usize| self.rounds(n, both[n]));
        let before = self.items.each_ref().map(Vec::len);
        both.into_iter().zip(&mut self.items).for_each(|(of, items)| items.extend_from_slice(of));
        let [Some(of_old), Some(of_new)] = ranges else { return };
        let ranges = [of_old, of_new];
        let loops = [0, 1].map(|n: usize| self.loops(n, both[n].get(ranges[n].clone()).unwrap_or_default()));
        let codes = self.sides.each_ref().map(|of| of.side.code);
        let keys = self.sides[0].keys;
        let is_one = |a: &u32| loops[1].iter().any(|b| keys.may_be_one(codes, [*a, *b]));
        if !loops[0].iter().any(is_one) {
            return;
        }
        for n in [0, 1] {
            let inner = before[n] + ranges[n].start + 1..before[n] + ranges[n].end;
            let inner = self.items[n].get_mut(inner).unwrap_or_default().iter_mut();
            inner.for_each(|item| (item.key, item.name) = (JOINED, JOINED));
        }
        self.pairs.push((before[0] + ranges[0].start, before[1] + ranges[1].start));
    }

    /// The loops that go round in `items`.
    fn loops(&self, n: usize, items: &[Item]) -> Vec<u32> {
        let of = |item: &Item| match self.sides[n].place(item) {
            Place::Rounds(of) => Some(of),
            _ => None,
        };
        items.iter().filter(|item| item.is_event()).filter_map(of).collect()
    }

    /// Where rounds stand among `items` of side `n`, between which nothing is called.
    fn rounds(&self, n: usize, items: &[Item]) -> Option<Range<usize>> {
        let is_rounds =
            |item: &Item| item.is_event() && matches!(self.sides[n].place(item), Place::Rounds(_));
        let start = items.iter().position(is_rounds)?;
        let rest = items.get(start..)?.iter();
        let nest = rest.take_while(|item| !item.is_event() || is_rounds(item)).collect::<Vec<_>>();
        let len = nest.iter().rposition(|item| is_rounds(item))? + 1;
        Some(start..start + len)
    }

    /// `items` with what the calls did that are none of `others`; and whether there is any.
    fn opened(&mut self, n: usize, items: &[Item], others: &FxHashSet<u32>) -> (Vec<Item>, bool) {
        let mut opened = Vec::new();
        let mut is_any = false;
        for item in items {
            let called = Some(item).filter(|item| item.is_event() && !others.contains(&item.name));
            let Some(activity) = called.and_then(|item| self.sides[n].called(item)) else {
                opened.push(*item);
                continue;
            };
            if !self.sides[n].can_be_opened(activity) || opened.len() >= MOST_ITEMS {
                opened.push(*item);
                continue;
            }
            is_any = true;
            opened.push(Item { key: NONE, name: NONE, ..*item });
            self.sides[n].add(activity, self.numbers, &mut opened);
        }
        (opened, is_any)
    }
}

#[cfg(test)]
mod tests {
    use super::super::intervals::{Intervals, events};
    use super::super::log::Side;
    use super::super::log::tests::{code, log_of};
    use super::super::{Was, read};
    use trace::{FuncId, Symbol};

    /// What came of two runs that are looked at by so many events at a time: how much is paired, how many
    /// instructions are in intervals, in how many pieces, and whether both sides have as many in each.
    fn aligned(runs: [&[u32]; 2], at_a_time: usize) -> ([f64; 2], [f64; 2], usize, bool) {
        let mut code = code();
        for (n, function) in code.functions.iter_mut().enumerate() {
            (function.bare, function.is_named) = (format!("f{n}").into(), true);
        }
        let logs = runs.map(|run| log_of(&code, run));
        let sides = logs.each_ref().map(|log| Side { code: &code, log, modules: &[] });
        read(&sides, &Was::default(), |readings, roots| {
            let mut intervals = Intervals::new(readings);
            let mut n_pieces = 0;
            super::align(readings, roots, at_a_time, |aligned| {
                n_pieces += usize::from(!aligned.is_last);
                intervals.add(&aligned);
            });
            intervals.finish();
            let share = |n: usize| intervals.paired[n].heavy / events(&sides[n]).heavy;
            let lengths = intervals.lengths.map(|of| of.all);
            let is_same = intervals.found.values().all(|of| (of.insns[0] - of.insns[1]).abs() < 1e-6);
            ([share(0), share(1)], lengths, n_pieces, is_same)
        })
    }

    /// So many steps of one activation, drawn from a seed: rounds, and calls of two functions.
    fn steps(seed: u64, n: usize) -> Vec<Vec<u32>> {
        let enter = |n: u32| Symbol::enter(FuncId(n)).0;
        let exit = Symbol::EXIT.0;
        let mut dice = seed;
        let mut step = || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match dice >> 33 & 7 {
                0 => vec![1, 2, 2, 3],
                1 => vec![1, 2, 3, 1, 3],
                2 | 3 => vec![4, enter(2), 0, exit],
                4 => vec![4, enter(1), 0, 1, 2, exit],
                _ => vec![4, enter(1), 0, exit, enter(1), 2, exit],
            }
        };
        (0..n).map(|_| step()).collect()
    }

    fn run(steps: &[Vec<u32>]) -> Vec<u32> {
        [&[Symbol::enter(FuncId(0)).0][..], &steps.concat(), &[Symbol::EXIT.0]].concat()
    }

    #[test]
    fn pieces_come_to_what_all_of_it_comes_to() {
        for seed in 1..20 {
            let run = run(&steps(seed, 1000));
            let whole = aligned([&run, &run], usize::MAX);
            assert!(whole.0 == [1.0, 1.0] && whole.2 == 0 && whole.3, "{whole:?}");
            for at_a_time in [4, 30, 100] {
                let pieces = aligned([&run, &run], at_a_time);
                assert!(pieces.2 > 5, "{} pieces at {at_a_time}", pieces.2);
                assert_eq!((pieces.0, pieces.3), (whole.0, true), "{seed}, {at_a_time}");
                assert!((0..2).all(|n| (pieces.1[n] - whole.1[n]).abs() < 1e-3), "{pieces:?} {whole:?}");
            }
        }
    }

    #[test]
    fn nothing_is_lost_between_pieces_of_runs_that_differ() {
        for seed in 1..20 {
            // One does more at the start, the other in the midst, and each leaves something out.
            let (both, more) = (steps(seed, 2000), steps(seed + 100, 20));
            let without = |n: usize| {
                let all = both.iter().enumerate().filter(move |(at, _)| at % 31 != n);
                all.map(|(_, step)| step.clone()).collect::<Vec<_>>()
            };
            let old = run(&[&more[..10], &without(3)].concat());
            let mut new = without(7);
            new.splice(900..900, more[10..].iter().cloned());
            let new = run(&new);
            let whole = aligned([&old, &new], usize::MAX);
            assert!(whole.0[0] > 0.9 && whole.2 == 0, "{whole:?}");
            for at_a_time in [400, 1000] {
                let pieces = aligned([&old, &new], at_a_time);
                assert!(pieces.2 > 2, "{} pieces at {at_a_time}", pieces.2);
                for n in [0, 1] {
                    assert!((pieces.1[n] - whole.1[n]).abs() < 1e-3, "{pieces:?} {whole:?}");
                    assert!(pieces.0[n] > 0.97 * whole.0[n], "{pieces:?} {whole:?}");
                }
            }
        }
    }
}
