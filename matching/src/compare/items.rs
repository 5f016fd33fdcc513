//! The events of an activity as they are compared: with the keys of both builds, and without the calls that
//! the other build has inlined.
//!
//! What an inlined function did stands in its caller there. So calls that one build alone makes are taken to
//! be transparent: what they did stands in their caller, too.

use super::code::NONE;
use super::keys::{CallKey, Keys};
use super::log::{Called, Kind, Place, Side, Token};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The key of what belongs to rounds that stand before it.
pub const JOINED: u32 = NONE - 1;

/// An event, or the place of one that is none any more, which has a gap in front of it all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// What it is called in both builds; [`NONE`] if it is none, [`JOINED`] if it is a part of rounds before.
    pub key: u32,
    /// The same of a call without its place.
    pub name: u32,
    /// Where it stands: the token of an activity, or behind the last.
    pub activity: u32,
    /// Which token.
    pub token: u32,
}

impl Item {
    /// Whether it is an event.
    pub fn is_event(&self) -> bool {
        self.key < JOINED
    }
}

/// Numbers that calls and loops have in both builds.
#[derive(Default)]
pub struct Numbers {
    calls: FxHashMap<CallKey, u32>,
    names: FxHashMap<u32, u32>,
    loops: FxHashMap<u32, u32>,
    n: u32,
}

impl Numbers {
    fn next<K: std::hash::Hash + Eq>(map: &mut FxHashMap<K, u32>, n: &mut u32, key: K) -> u32 {
        *map.entry(key).or_insert_with(|| {
            *n += 1;
            *n - 1
        })
    }
}

/// A call, as it is read.
#[derive(Clone, Copy)]
pub struct Call {
    /// What it is in both builds.
    pub key: CallKey,
    /// The activity that it came to.
    pub activity: u32,
    /// Whether the other side does not make it.
    is_transparent: bool,
}

/// How a side's activities are read.
pub struct Reading<'a> {
    /// 0 is the old one.
    pub n: usize,
    /// The side.
    pub side: &'a Side<'a>,
    /// What is what.
    pub keys: &'a Keys,
    /// Calls that the other side does not make.
    pub transparent: &'a BTreeSet<CallKey>,
    /// By call, if it is known where it is.
    calls: Vec<Option<Call>>,
    /// By activity: what all that it calls comes to, whatever is transparent.
    prints: Vec<u64>,
    /// By activity: how many events it has, with those of transparent calls.
    sizes: Vec<usize>,
}

/// Where the events of an activity are gone through.
pub struct Events {
    /// Activities, one in another, each with the next token.
    open: Vec<(u32, u32)>,
    /// How many there were.
    n: usize,
}

impl Events {
    /// At the first event.
    pub fn of(activity: u32) -> Events {
        Events { open: vec![(activity, 0)], n: 0 }
    }

    /// Whether there is none any more.
    pub fn is_over(&self) -> bool {
        self.open.is_empty()
    }
}

/// So many events of a call stand in the place of it; where there are more, the call stands for them.
const MOST_SPLICED: usize = 1 << 23;
/// From so many on, calls stand for what they did.
pub const MOST_ITEMS: usize = 1 << 24;

/// A number that hardly any two others have.
fn mixed(a: u64, b: u64) -> u64 {
    let mut z = (a ^ b.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl<'a> Reading<'a> {
    /// Of side `n`, with what is what, and what is transparent.
    pub fn new(
        n: usize,
        side: &'a Side<'a>,
        keys: &'a Keys,
        transparent: &'a BTreeSet<CallKey>,
    ) -> Reading<'a> {
        let (prints, sizes) = Default::default();
        let mut reading = Reading { n, side, keys, transparent, calls: Vec::new(), prints, sizes };
        let of = |called: &Called| {
            let site = side.code.sites.get(called.site as usize)?;
            reading.call_of(site.function, called)
        };
        reading.calls = side.log.calls.iter().map(of).collect();
        // Who calls another one has a larger number.
        for activity in &side.log.activities {
            let (mut print, mut size) = (0u64, 0usize);
            for token in &activity.tokens {
                size = size.saturating_add(1);
                let Some(call) = reading.call(activity.function, *token) else { continue };
                let inner = reading.prints.get(call.activity as usize).copied().unwrap_or_default();
                let here = match call.is_transparent {
                    true => inner,
                    false => mixed(u64::from(call.key.callee), inner),
                };
                // In whatever order: compilers change it.
                print = print.wrapping_add(here);
                if reading.is_spliced(&call) {
                    size = size.saturating_add(reading.size(call.activity));
                }
            }
            reading.prints.push(print);
            reading.sizes.push(size);
        }
        reading
    }

    /// A call that was made in this function.
    fn call_of(&self, function: u32, called: &Called) -> Option<Call> {
        let callee = self.side.log.activities.get(called.activity as usize)?.function;
        let key = self.keys.call(self.n, function, called.site, callee);
        Some(Call { key, activity: called.activity, is_transparent: self.transparent.contains(&key) })
    }

    /// How many events an activity has, more or less, with those of transparent calls.
    pub fn size(&self, activity: u32) -> usize {
        self.sizes.get(activity as usize).copied().unwrap_or_default()
    }

    /// Whether what a call came to stands in its place: it is transparent, and not too much.
    fn is_spliced(&self, call: &Call) -> bool {
        call.is_transparent && self.size(call.activity) <= MOST_SPLICED
    }

    /// Whether what a call came to may stand in its place.
    pub fn can_be_opened(&self, activity: u32) -> bool {
        (1..=MOST_SPLICED).contains(&self.size(activity))
    }

    /// What tells an event with this `key` from others with the same: what was called there, all the way
    /// down. What goes round tells nothing.
    pub fn print(&self, key: u32, item: &Item) -> u64 {
        let called = self.called(item).and_then(|called| self.prints.get(called as usize));
        called.map_or(u64::from(key), |print| mixed(u64::from(key), *print))
    }

    /// The call at a token of an activity of this function.
    pub fn call(&self, function: u32, token: Token) -> Option<Call> {
        let Kind::Call(call) = token.kind() else { return None };
        match self.calls.get(call as usize) {
            Some(Some(call)) => Some(*call),
            _ => self.call_of(function, self.side.log.calls.get(call as usize)?),
        }
    }

    /// What a call at an item came to.
    pub fn called(&self, item: &Item) -> Option<u32> {
        let activity = self.side.log.activities.get(item.activity as usize)?;
        let Kind::Call(call) = activity.tokens.get(item.token as usize)?.kind() else { return None };
        self.side.log.calls.get(call as usize).map(|called| called.activity)
    }

    /// The place of an item in its function.
    pub fn place(&self, item: &Item) -> Place {
        let Some(activity) = self.side.log.activities.get(item.activity as usize) else { return Place::End };
        self.place_of(activity.tokens.get(item.token as usize).copied())
    }

    /// The place of a token; without one, where the function is left.
    pub fn place_of(&self, token: Option<Token>) -> Place {
        match token.map(Token::kind) {
            None => Place::End,
            Some(Kind::Rounds(of)) => Place::Rounds(of),
            Some(Kind::Call(call)) => match self.side.log.calls.get(call as usize) {
                Some(called) if called.site != NONE => Place::Site(called.site),
                Some(called) => {
                    let of = self.side.log.activities.get(called.activity as usize);
                    Place::Called(of.map_or(NONE, |of| of.function))
                }
                None => Place::End,
            },
        }
    }

    /// Adds the events of `activity`, with those of transparent calls in their places; what is behind the
    /// last is an item without a key.
    pub fn add(&self, activity: u32, numbers: &mut Numbers, items: &mut Vec<Item>) {
        self.fill(&mut Events::of(activity), usize::MAX, numbers, items);
    }

    /// Adds events up to the first call at which there are as many as that, or to the last.
    pub fn fill(&self, events: &mut Events, most: usize, numbers: &mut Numbers, items: &mut Vec<Item>) {
        let first = items.len();
        while let Some(item) = self.next(events, numbers) {
            items.push(item);
            if items.len() >= most && item.is_event() && !matches!(self.place(&item), Place::Rounds(_)) {
                break;
            }
        }
        self.join_rounds(first, items);
    }

    fn next(&self, events: &mut Events, numbers: &mut Numbers) -> Option<Item> {
        loop {
            let (at, token) = events.open.last_mut()?;
            let (activity, n) = (*at, *token);
            *token += 1;
            let Some(of) = self.side.log.activities.get(activity as usize) else {
                events.open.pop();
                continue;
            };
            let Some(&token) = of.tokens.get(n as usize) else {
                events.open.pop();
                events.n += 1;
                return Some(Item { key: NONE, name: NONE, activity, token: n });
            };
            let (key, name) = match token.kind() {
                Kind::Rounds(of) => {
                    let key = self.keys.loops[self.n].get(of as usize).copied().unwrap_or(NONE);
                    let key = Numbers::next(&mut numbers.loops, &mut numbers.n, key);
                    (key, key)
                }
                Kind::Call(_) => {
                    let Some(call) = self.call(of.function, token) else { continue };
                    if self.is_spliced(&call) && events.n < MOST_ITEMS {
                        events.open.push((call.activity, 0));
                        (NONE, NONE)
                    } else {
                        let name = Numbers::next(&mut numbers.names, &mut numbers.n, call.key.callee);
                        (Numbers::next(&mut numbers.calls, &mut numbers.n, call.key), name)
                    }
                }
            };
            events.n += 1;
            return Some(Item { key, name, activity, token: n });
        }
    }

    /// Rounds of one loop are one event where no call is between them any more.
    fn join_rounds(&self, first: usize, items: &mut [Item]) {
        // Rounds since the last call: their loops, and up to where what belongs to them has been joined.
        let mut since: Vec<(u32, usize)> = Vec::new();
        let mut has_spliced = false;
        for at in first..items.len() {
            let Some(item) = items.get(at).copied() else { return };
            if !item.is_event() {
                has_spliced = true;
                continue;
            }
            let Place::Rounds(of) = self.place(&item) else {
                since.clear();
                has_spliced = false;
                continue;
            };
            let known = since.iter().position(|(other, _)| *other == of).filter(|_| has_spliced);
            let is_inside = |(other, _): &(u32, usize)| {
                let function = |of: u32| self.side.code.loops.get(of as usize).map(|of| of.function);
                function(*other) != function(of) || self.side.code.is_in(*other, of)
            };
            match known.filter(|known| since.get(known + 1..).unwrap_or_default().iter().all(is_inside)) {
                Some(known) => {
                    let from = since.get(known).map_or(at, |known| known.1 + 1);
                    since.truncate(known + 1);
                    since.last_mut().into_iter().for_each(|last| last.1 = at);
                    let joined = items.get_mut(from..=at).unwrap_or_default();
                    joined.iter_mut().for_each(|item| (item.key, item.name) = (JOINED, JOINED));
                }
                None => since.push((of, at)),
            }
        }
    }
}
