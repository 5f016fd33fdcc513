//! What the counters of one image mean, and what follows from them.
//!
//! ```text
//! notes    = magic version kind profile n: varint, function*, n: varint, sum*, n: varint, watch*, checksum
//! profile  = bytes: a `.engraft` file of kind 'P' without counts, for the image
//! function = entry: signed varint from the one before, is_whole, n: varint, block*
//! block    = start: signed varint from the one before, marks: varint (1 counted, 2 enters, 4 leaves, 8 · n ways), way*
//! way      = 2 · (blocks from this one on, signed) + counted: varint
//! sum      = address: signed varint from the one before, n: varint, position of a block: varint*
//! watch    = what: bytes, counter: varint, keeps: varint (0 count, 1 last, 2 histogram, 3 + n ring of n)
//! ```
//! Counters are numbered as they come: a function's blocks, then its ways. What has none follows by conservation of flow: what enters
//! a block, from other blocks or from outside, is its count; what leaves it, to other blocks or to outside, too. Calls that may not
//! come back, or come back twice, leave to outside: so the rest holds whatever they do.
//!
//! Source: Knuth, TAOCP vol. 1, 2.3.4.1; Ball and Larus, "Optimally Profiling and Tracing Programs", TOPLAS 1994, section 3.
#![warn(clippy::indexing_slicing)]

use crate::counts::{Edge, Exactness, ImageRef, Profile};
use crate::engraft::{self, Cursor, MAGIC, VERSION, put_bytes, varint};
use crate::format::ReadError;
use program::Va;
use xxhash_rust::xxh3::xxh3_64;

/// What the counters of one image mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notes {
    /// The image.
    pub image: ImageRef,
    /// The functions that are counted. Their counters come one after the other.
    pub functions: Vec<Flow>,
    /// Functions of one block that have no counter, and run as often as these blocks, by position among all, together.
    pub sums: Vec<(Va, Vec<u32>)>,
    /// Words behind the counters, which keep other things.
    pub watches: Vec<Watch>,
}

/// The flow of a function: which of its counts are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Its entry.
    pub entry: Va,
    /// Whether all edges are here, so that their counts follow, too. Else only those of blocks hold, and what entered them.
    pub is_whole: bool,
    /// Its blocks, by address; those of cold parts may come first.
    pub blocks: Vec<Node>,
}

/// A block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its start.
    pub start: Va,
    /// Whether it has a counter.
    pub is_counted: bool,
    /// Whether control may come to it from outside: calls, jumps of other functions, exceptions.
    pub enters: bool,
    /// Whether control may leave the function in it: returns, jumps out of it, calls that do not come back.
    pub leaves: bool,
    /// Where control goes from it.
    pub ways: Vec<Way>,
}

/// An edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The block that it leads to, by position.
    pub to: u32,
    /// Whether it has a counter.
    pub is_counted: bool,
}

/// Words that keep what was seen at a point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    /// What was asked for.
    pub what: String,
    /// The first word.
    pub word: u32,
    /// What is in it, and in those that follow.
    pub keeps: Keeps,
}

/// What words keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// How often.
    Count,
    /// The last value.
    Last,
    /// 65 words: how many values had 0, 1, 2 … 64 bits.
    Histogram,
    /// How many values there were, and behind it the last ones: so many, a power of two.
    Ring(u32),
}

impl Keeps {
    /// How many words.
    pub fn n_words(self) -> u64 {
        match self {
            Keeps::Count | Keeps::Last => 1,
            Keeps::Histogram => 65,
            Keeps::Ring(len) => 1 + u64::from(len),
        }
    }
}

/// What follows from a function's counters: nothing where they leave a choice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Solved {
    /// Per block: how often it ran.
    pub blocks: Vec<Option<u64>>,
    /// Per block: how often it was entered from outside.
    pub enters: Vec<Option<u64>>,
    /// Per way, block by block.
    pub ways: Vec<Option<u64>>,
}

impl Flow {
    /// How many counters it has.
    pub fn n_counters(&self) -> usize {
        let ways = self.blocks.iter().map(|b| b.ways.iter().filter(|w| w.is_counted).count());
        self.blocks.iter().filter(|b| b.is_counted).count() + ways.sum::<usize>()
    }

    fn never_ran(&self) -> Solved {
        let none = vec![Some(0); self.blocks.len()];
        let n_ways = self.blocks.iter().map(|b| b.ways.len()).sum();
        Solved { enters: none.clone(), blocks: none, ways: vec![Some(0); n_ways] }
    }

    /// What follows from its counters. Sums wrap, so that what is known of a part of the flow does not spoil the rest.
    pub fn solve(&self, counters: &[u64]) -> Solved {
        if self.is_whole && counters.iter().all(|n| *n == 0) {
            return self.never_ran();
        }
        let mut counters = counters.iter().copied();
        let mut next = |is_counted: bool| match is_counted {
            true => Some(counters.next().unwrap_or(0)),
            false => None,
        };
        // Flows from node to node: 2 i is the head of block i, 2 i + 1 its end; None is outside.
        let mut flows: Vec<(Option<usize>, Option<usize>)> = Vec::new();
        let mut known: Vec<Option<u64>> = Vec::new();
        for (i, block) in self.blocks.iter().enumerate() {
            flows.push((Some(2 * i), Some(2 * i + 1)));
            known.push(next(block.is_counted));
        }
        for (i, block) in self.blocks.iter().enumerate() {
            for way in &block.ways {
                flows.push((Some(2 * i + 1), Some(2 * way.to as usize)));
                known.push(next(way.is_counted));
            }
        }
        let n_ways = flows.len() - self.blocks.len();
        for (i, block) in self.blocks.iter().enumerate() {
            flows.push((None, Some(2 * i)));
            known.push((!block.enters).then_some(0));
            flows.push((Some(2 * i + 1), None));
            known.push((!block.leaves).then_some(0));
        }
        let is_given: Vec<bool> = known.iter().map(Option::is_some).collect();
        let mut balance = vec![0u64; 2 * self.blocks.len()];
        let mut unknown: Vec<Vec<usize>> = vec![Vec::new(); 2 * self.blocks.len()];
        let mut left = vec![0usize; 2 * self.blocks.len()];
        for (f, (&(from, to), n)) in flows.iter().zip(&known).enumerate() {
            for (node, is_in) in [(from, false), (to, true)] {
                let Some(node) = node else { continue };
                match n {
                    Some(n) => add(&mut balance, node, *n, is_in),
                    None => {
                        if let (Some(all), Some(left)) = (unknown.get_mut(node), left.get_mut(node)) {
                            all.push(f);
                            *left += 1;
                        }
                    }
                }
            }
        }
        let mut ready: Vec<usize> = (0..left.len()).filter(|&n| left.get(n) == Some(&1)).collect();
        while let Some(node) = ready.pop() {
            if left.get(node) != Some(&1) {
                continue;
            }
            let open = unknown.get(node).and_then(|all| all.iter().find(|&&f| known.get(f) == Some(&None)));
            let Some((&f, &(from, to))) = open.and_then(|f| Some((f, flows.get(*f)?))) else { continue };
            let is_in = to == Some(node);
            let here = balance.get(node).copied().unwrap_or(0);
            let n = if is_in { here.wrapping_neg() } else { here };
            if let Some(place) = known.get_mut(f) {
                *place = Some(n);
            }
            for (end, is_in) in [(from, false), (to, true)] {
                let Some(end) = end else { continue };
                add(&mut balance, end, n, is_in);
                if let Some(left) = left.get_mut(end) {
                    *left -= 1;
                    if *left == 1 {
                        ready.push(end);
                    }
                }
            }
        }
        // A running program may be read: then a count may be one behind what follows from others.
        let least = |(n, given): (Option<u64>, bool)| n.map(|n| if given || n < 1 << 63 { n } else { 0 });
        let mut known = known.into_iter().zip(is_given).map(least);
        let blocks = known.by_ref().take(self.blocks.len()).collect();
        let ways = known.by_ref().take(n_ways).collect();
        Solved { blocks, ways, enters: known.step_by(2).collect() }
    }
}

fn add(balance: &mut [u64], node: usize, n: u64, is_in: bool) {
    if let Some(place) = balance.get_mut(node) {
        *place = place.wrapping_add(if is_in { n } else { n.wrapping_neg() });
    }
}

impl Notes {
    /// How many counters there are.
    pub fn n_counters(&self) -> usize {
        self.functions.iter().map(Flow::n_counters).sum()
    }

    /// The profile that `counts`, one a counter, stand for.
    pub fn profile(&self, counts: &[u64]) -> Profile {
        let mut profile =
            Profile { image: self.image.clone(), exactness: Exactness::Exact, ..Profile::default() };
        let mut all = Vec::new();
        let mut first = 0;
        for flow in &self.functions {
            let end = first + flow.n_counters();
            let solved = flow.solve(counts.get(first..end).unwrap_or_default());
            first = end;
            for (node, n) in flow.blocks.iter().zip(&solved.blocks) {
                all.push(n.unwrap_or(0));
                profile.blocks.extend(n.map(|n| (node.start, n)));
            }
            let entered = flow.blocks.iter().zip(&solved.enters).find(|(node, _)| node.start == flow.entry);
            profile.entries.extend(entered.and_then(|(_, n)| Some((flow.entry, (*n)?))));
            // Of what never ran, blocks say all.
            if flow.is_whole && solved.blocks.iter().any(|n| *n != Some(0)) {
                let ways = flow.blocks.iter().flat_map(|b| b.ways.iter().map(move |w| (b, w)));
                for ((from, way), n) in ways.zip(&solved.ways) {
                    let (Some(to), Some(n)) = (flow.blocks.get(way.to as usize), n) else { continue };
                    // Two edges between the same blocks are one here.
                    let sum = profile.edges.entry(Edge { from: from.start, to: to.start }).or_insert(0);
                    *sum = sum.saturating_add(*n);
                }
            }
        }
        for (at, blocks) in &self.sums {
            let count = |n: &u32| all.get(*n as usize).copied().unwrap_or(0);
            let sum = blocks.iter().fold(0u64, |sum, n| sum.saturating_add(count(n)));
            profile.blocks.insert(*at, sum);
            profile.entries.insert(*at, sum);
        }
        profile
    }

    /// Writes them.
    pub fn write(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([VERSION, KIND]);
        let empty = Profile { image: self.image.clone(), ..Profile::default() };
        put_bytes(&mut out, &engraft::write(&empty).bytes);
        let mut before = Va(0);
        let mut address = |out: &mut Vec<u8>, at: Va| {
            varint(out, zigzag(at.since(before).cast_signed()));
            before = at;
        };
        varint(&mut out, self.functions.len() as u64);
        for flow in &self.functions {
            address(&mut out, flow.entry);
            out.push(u8::from(flow.is_whole));
            varint(&mut out, flow.blocks.len() as u64);
            for (i, block) in (0i64..).zip(&flow.blocks) {
                address(&mut out, block.start);
                let marks =
                    u64::from(block.is_counted) | u64::from(block.enters) << 1 | u64::from(block.leaves) << 2;
                varint(&mut out, marks | (block.ways.len() as u64) << 3);
                for way in &block.ways {
                    varint(&mut out, zigzag(i64::from(way.to) - i) << 1 | u64::from(way.is_counted));
                }
            }
        }
        varint(&mut out, self.sums.len() as u64);
        for (at, all) in &self.sums {
            address(&mut out, *at);
            varint(&mut out, all.len() as u64);
            all.iter().for_each(|&n| varint(&mut out, u64::from(n)));
        }
        varint(&mut out, self.watches.len() as u64);
        for watch in &self.watches {
            put_bytes(&mut out, watch.what.as_bytes());
            varint(&mut out, u64::from(watch.word));
            let keeps = match watch.keeps {
                Keeps::Count => 0,
                Keeps::Last => 1,
                Keeps::Histogram => 2,
                Keeps::Ring(len) => 3 + u64::from(len),
            };
            varint(&mut out, keeps);
        }
        let sum = xxh3_64(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if they are cut off, changed, or of a version that we do not know.
    pub fn parse(file: &[u8]) -> Result<Notes, ReadError> {
        let mut c = Cursor::open(file, KIND, "these are no notes that we know")?;
        let image = engraft::parse(c.bytes()?)?.image;
        let mut before = Va(0);
        let mut address = |c: &mut Cursor<'_>| -> Result<Va, ReadError> {
            before = before.plus(unzigzag(c.varint()?).cast_unsigned());
            Ok(before)
        };
        let word = |c: &mut Cursor<'_>| Ok(u32::try_from(c.varint()?).unwrap_or(u32::MAX));
        let mut functions = Vec::new();
        for _ in 0..c.varint()? {
            let entry = address(&mut c)?;
            let is_whole = c.varint()? == 1;
            let mut blocks = Vec::new();
            for i in 0..c.varint()?.cast_signed() {
                let start = address(&mut c)?;
                let marks = c.varint()?;
                let mut ways = Vec::new();
                for _ in 0..marks >> 3 {
                    let way = c.varint()?;
                    let to = u32::try_from(i.wrapping_add(unzigzag(way >> 1))).unwrap_or(u32::MAX);
                    ways.push(Way { to, is_counted: way & 1 == 1 });
                }
                blocks.push(Node {
                    start,
                    is_counted: marks & 1 == 1,
                    enters: marks & 2 == 2,
                    leaves: marks & 4 == 4,
                    ways,
                });
            }
            functions.push(Flow { entry, is_whole, blocks });
        }
        let mut sums = Vec::new();
        for _ in 0..c.varint()? {
            let at = address(&mut c)?;
            let n = c.varint()?;
            sums.push((at, (0..n).map(|_| word(&mut c)).collect::<Result<_, ReadError>>()?));
        }
        let mut watches = Vec::new();
        for _ in 0..c.varint()? {
            let what = String::from_utf8_lossy(c.bytes()?).into_owned();
            let first = word(&mut c)?;
            let keeps = match c.varint()? {
                0 => Keeps::Count,
                1 => Keeps::Last,
                2 => Keeps::Histogram,
                n => Keeps::Ring(u32::try_from(n - 3).unwrap_or(0)),
            };
            watches.push(Watch { what, word: first, keeps });
        }
        Ok(Notes { image, functions, sums, watches })
    }
}

/// What kind of `.engraft` file notes are; those of 'N' came before.
const KIND: u8 = b'F';

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)).cast_unsigned()
}

fn unzigzag(n: u64) -> i64 {
    ((n >> 1) ^ (n & 1).wrapping_neg()).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(start: u64, marks: &str, ways: &[u32]) -> Node {
        let has = |mark| marks.contains(mark);
        let ways = ways.iter().map(|&to| Way { to, is_counted: false }).collect();
        Node { start: Va(start), is_counted: has('c'), enters: has('e'), leaves: has('l'), ways }
    }

    fn check(blocks: Vec<Node>, counters: &[u64], want: &[u64]) {
        let flow = Flow { entry: Va(0), is_whole: true, blocks };
        let solved = flow.solve(counters);
        let got: Vec<Option<u64>> = solved.blocks.into_iter().chain(solved.ways).collect();
        assert_eq!(got, want.iter().map(|&n| Some(n)).collect::<Vec<_>>());
    }

    /// `for (; n > 0; n--) s += n & 1`, called with 3 and then with 0; the counts were written down by hand.
    #[test]
    fn what_has_no_counter_follows() {
        let blocks = || {
            vec![
                node(0, "e", &[1, 4]),
                node(1, "c", &[2, 3]),
                node(2, "c", &[3]),
                node(3, "", &[1, 4]),
                node(4, "cl", &[]),
            ]
        };
        // Entered twice, the loop ran once: which edge into the last block was taken how often is left open.
        let solved = Flow { entry: Va(0), is_whole: true, blocks: blocks() }.solve(&[3, 2, 2]);
        assert_eq!(solved.blocks, [None, Some(3), Some(2), Some(3), Some(2)]);
        let mut counted = blocks();
        if let Some(way) = counted.get_mut(0).and_then(|b| b.ways.get_mut(1)) {
            way.is_counted = true;
        }
        check(counted, &[3, 2, 2, 1], &[2, 3, 2, 3, 2, 1, 1, 2, 1, 2, 2, 1]);
    }

    /// A call that throws: the block behind it runs less often, and its own count holds.
    #[test]
    fn calls_that_do_not_come_back_leave() {
        check(vec![node(0, "cel", &[1]), node(1, "cl", &[])], &[10, 7], &[10, 7, 7]);
        // Twice: setjmp.
        check(vec![node(0, "cel", &[1]), node(1, "cl", &[])], &[1, 2], &[1, 2, 2]);
    }

    #[test]
    fn hostile_flows_do_no_harm() {
        let far = node(0, "ce", &[7, u32::MAX]);
        let solved = Flow { entry: Va(0), is_whole: true, blocks: vec![far] }.solve(&[]);
        assert_eq!(solved.blocks, [Some(0)]);
    }
}
