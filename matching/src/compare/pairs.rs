//! Activities of both builds that are the same, from the threads down: their events aligned, and what was
//! called at events that are paired, paired.
//!
//! Each two activities are aligned once, however often they come together: one that calls another has a
//! larger number, so those with the largest come first.

use super::code::NONE;
use super::items::{Item, JOINED, MOST_ITEMS, Numbers, Reading};
use super::log::Place;
use super::sequence::{self, Keyed};
use std::collections::BTreeMap;
use std::ops::Range;

/// How deep gaps are opened, one in another.
const MOST_OPENED: u32 = 12;

/// Two activities, aligned.
pub struct Aligned {
    /// Those of the old and of the new build.
    pub activities: [u32; 2],
    /// How often they come together.
    pub times: f64,
    /// The events of both, those of what was opened in their places.
    pub items: [Vec<Item>; 2],
    /// Which of the one is which of the other, in order.
    pub pairs: Vec<(usize, usize)>,
}

/// Aligns what is reachable from `roots`, pairs of activities; gives each to `take`, once.
pub fn align(sides: &[Reading<'_>; 2], roots: &[[u32; 2]], mut take: impl FnMut(Aligned)) {
    let mut aligner = Aligner::new(sides);
    // By what must come first: the largest.
    let mut todo: BTreeMap<[u32; 2], f64> = BTreeMap::new();
    for root in roots {
        *todo.entry(*root).or_default() += 1.0;
    }
    while let Some((activities, times)) = todo.pop_last() {
        let (items, pairs) = aligner.align(activities);
        for &(x, y) in &pairs {
            let called = |n: usize, at: usize| items[n].get(at).and_then(|item| sides[n].called(item));
            if let (Some(a), Some(b)) = (called(0, x), called(1, y)) {
                *todo.entry([a, b]).or_default() += times;
            }
        }
        take(Aligned { activities, times, items, pairs });
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
    pub fn align(&mut self, [old, new]: [u32; 2]) -> Both {
        let (sides, numbers) = (self.sides, &mut self.numbers);
        let items = [sides[0].items(old, numbers), sides[1].items(new, numbers)];
        let mut made = Making { sides, numbers, items: Default::default(), pairs: Vec::new() };
        let [a, b] = &items;
        made.align(a, b, 0, false);
        (made.items, made.pairs)
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
        // Where the events are, and their keys.
        let keyed = |n: usize, items: &[Item]| -> (Vec<usize>, (Vec<u32>, Vec<u64>)) {
            let all = items.iter().enumerate().filter(|(_, item)| item.is_event());
            let key = |item: &Item| if by_name { item.name } else { item.key };
            all.map(|(at, item)| (at, (key(item), self.sides[n].print(key(item), item)))).unzip()
        };
        let (at_old, (keys_old, fine_old)) = keyed(0, old);
        let (at_new, (keys_new, fine_new)) = keyed(1, new);
        let (mut a, mut b) = (0, 0);
        let old_keyed = Keyed { keys: &keys_old, fine: &fine_old };
        for (x, y) in sequence::pairs(old_keyed, Keyed { keys: &keys_new, fine: &fine_new }) {
            let (Some(&x), Some(&y)) = (at_old.get(x), at_new.get(y)) else { continue };
            self.gap(old.get(a..x).unwrap_or_default(), new.get(b..y).unwrap_or_default(), depth, by_name);
            self.pairs.push((self.items[0].len(), self.items[1].len()));
            self.items[0].extend(old.get(x));
            self.items[1].extend(new.get(y));
            (a, b) = (x + 1, y + 1);
        }
        self.gap(old.get(a..).unwrap_or_default(), new.get(b..).unwrap_or_default(), depth, by_name);
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
        let (of_old, of_new): (Vec<u32>, Vec<u32>) = (names(old), names(new));
        if !by_name && of_old.iter().any(|name| of_new.contains(name)) {
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
    fn opened(&mut self, n: usize, items: &[Item], others: &[u32]) -> (Vec<Item>, bool) {
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
