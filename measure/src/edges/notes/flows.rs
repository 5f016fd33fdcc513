//! The flow of a program's functions as it is written in notes: of a function that never ran, little more is
//! read than how many counters it has.
//!
//! ```text
//! functions = n: varint, function*
//! function  = entry: signed varint from the one before, marks: varint (1 whole, 2 its entry is a block), how
//!             many counters: varint, how many blocks: varint, body: bytes
//! body      = start*: signed varint from the one before, the first from the entry; block*
//! block     = marks: varint (1 counted, 2 enters, 4 leaves, 8 · n ways), way*
//! way       = 2 · (blocks from this one on, signed) + counted: varint
//! ```
#![warn(clippy::indexing_slicing)]

use super::{FunctionFlow, Node, Way};
use profile::ReadError;
use profile::encoding::{Cursor, put_bytes, unzigzag, varint, zigzag};
use program::Va;
use smallvec::SmallVec;
use std::ops::Range;

/// The flow of functions, one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Flows {
    heads: Vec<Head>,
    /// Their bodies.
    bytes: Vec<u8>,
}

/// What is known of a function at once.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Head {
    entry: Va,
    is_whole: bool,
    /// Whether one of its blocks starts at its entry.
    has_entry_block: bool,
    n_counters: usize,
    n_blocks: usize,
    /// Its body, in the bytes of all.
    body: Range<usize>,
}

/// The flow of a function.
#[derive(Clone, Copy)]
pub struct Flow<'a> {
    head: &'a Head,
    body: &'a [u8],
}

impl Flows {
    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// How many counters they have.
    pub fn n_counters(&self) -> usize {
        self.heads.iter().map(|head| head.n_counters).sum()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Flow<'_>> {
        self.heads
            .iter()
            .map(|head| Flow { head, body: self.bytes.get(head.body.clone()).unwrap_or_default() })
    }

    /// Writes them.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        varint(out, self.heads.len() as u64);
        let mut before = Va(0);
        for flow in self.iter() {
            let head = flow.head;
            varint(out, zigzag(head.entry.since(before).cast_signed()));
            before = head.entry;
            varint(out, u64::from(head.is_whole) | u64::from(head.has_entry_block) << 1);
            varint(out, head.n_counters as u64);
            varint(out, head.n_blocks as u64);
            put_bytes(out, flow.body);
        }
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if they are cut off, or say more than they hold.
    pub(super) fn parse(c: &mut Cursor<'_>) -> Result<Flows, ReadError> {
        let mut flows = Flows::default();
        let mut before = Va(0);
        for _ in 0..c.varint()? {
            before = before.plus(unzigzag(c.varint()?).cast_unsigned());
            let marks = c.varint()?;
            let [n_counters, n_blocks] = [c.varint()?, c.varint()?];
            let body = c.bytes()?;
            // What has a counter, and what is a block, takes a byte at least.
            let fits = |n: u64| usize::try_from(n).ok().filter(|n| *n <= body.len());
            let (Some(n_counters), Some(n_blocks)) = (fits(n_counters), fits(n_blocks)) else {
                return Err(c.damaged("a function has more counters than fit"));
            };
            let from = flows.bytes.len();
            flows.bytes.extend(body);
            flows.heads.push(Head {
                entry: before,
                is_whole: marks & 1 == 1,
                has_entry_block: marks & 2 == 2,
                n_counters,
                n_blocks,
                body: from..flows.bytes.len(),
            });
        }
        Ok(flows)
    }
}

impl Flows {
    /// Reads them as they were written in notes of kind 'M' and 'O': function by function, each block's
    /// start with the rest of it, as the distance from the address `before` it.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if they are cut off.
    pub(super) fn parse_old(c: &mut Cursor<'_>, before: &mut Va) -> Result<Flows, ReadError> {
        let mut address = |c: &mut Cursor<'_>| -> Result<Va, ReadError> {
            *before = before.plus(unzigzag(c.varint()?).cast_unsigned());
            Ok(*before)
        };
        let mut functions = Vec::new();
        for _ in 0..c.varint()? {
            let (entry, is_whole) = (address(c)?, c.varint()? == 1);
            let mut blocks = Vec::new();
            for i in 0..c.varint()? {
                let start = address(c)?;
                blocks.push(node(c, i.cast_signed(), start)?);
            }
            functions.push(FunctionFlow { entry, is_whole, blocks });
        }
        Ok(functions.into_iter().collect())
    }
}

impl FromIterator<FunctionFlow> for Flows {
    fn from_iter<T: IntoIterator<Item = FunctionFlow>>(functions: T) -> Flows {
        let mut flows = Flows::default();
        for flow in functions {
            let from = flows.bytes.len();
            body(&flow, &mut flows.bytes);
            flows.heads.push(Head {
                entry: flow.entry,
                is_whole: flow.is_whole,
                has_entry_block: flow.entry_block().is_some(),
                n_counters: flow.n_counters(),
                n_blocks: flow.blocks.len(),
                body: from..flows.bytes.len(),
            });
        }
        flows
    }
}

/// Appends the body of a function.
fn body(flow: &FunctionFlow, out: &mut Vec<u8>) {
    let mut before = flow.entry;
    for block in &flow.blocks {
        varint(out, zigzag(block.start.since(before).cast_signed()));
        before = block.start;
    }
    for (i, block) in (0i64..).zip(&flow.blocks) {
        let marks = u64::from(block.is_counted) | u64::from(block.enters) << 1 | u64::from(block.leaves) << 2;
        varint(out, marks | (block.ways.len() as u64) << 3);
        for way in &block.ways {
            varint(out, zigzag(i64::from(way.to) - i) << 1 | u64::from(way.is_counted));
        }
    }
}

impl<'a> Flow<'a> {
    /// Its entry.
    pub fn entry(&self) -> Va {
        self.head.entry
    }

    /// Whether all its edges are here: see [`FunctionFlow::is_whole`].
    pub fn is_whole(&self) -> bool {
        self.head.is_whole
    }

    /// Whether one of its blocks starts at its entry.
    pub fn has_entry_block(&self) -> bool {
        self.head.has_entry_block
    }

    /// How many counters it has.
    pub fn n_counters(&self) -> usize {
        self.head.n_counters
    }

    /// Where its blocks start.
    pub fn starts(self) -> impl Iterator<Item = Va> + 'a {
        let mut c = Cursor::within(self.body);
        starts(self.head, move || c.varint().ok())
    }

    /// All of it; of one that is damaged, what is whole.
    pub fn decode(self) -> FunctionFlow {
        let mut c = Cursor::within(self.body);
        let starts: Vec<Va> = starts(self.head, || c.varint().ok()).collect();
        let mut blocks = Vec::with_capacity(starts.len());
        for (i, start) in (0i64..).zip(starts) {
            let Ok(node) = node(&mut c, i, start) else { break };
            blocks.push(node);
        }
        FunctionFlow { entry: self.head.entry, is_whole: self.head.is_whole, blocks }
    }
}

/// Where the blocks of a function start, by what is read of each.
fn starts(head: &Head, mut next: impl FnMut() -> Option<u64>) -> impl Iterator<Item = Va> {
    let mut before = head.entry;
    (0..head.n_blocks).map_while(move |_| {
        before = before.plus(unzigzag(next()?).cast_unsigned());
        Some(before)
    })
}

/// The i-th block, which starts at `start`.
fn node(c: &mut Cursor<'_>, i: i64, start: Va) -> Result<Node, ReadError> {
    let marks = c.varint()?;
    let mut ways = SmallVec::new();
    for _ in 0..marks >> 3 {
        let way = c.varint()?;
        let to = u32::try_from(i.wrapping_add(unzigzag(way >> 1))).unwrap_or(u32::MAX);
        ways.push(Way { to, is_counted: way & 1 == 1 });
    }
    let (is_counted, enters, leaves) = (marks & 1 == 1, marks & 2 == 2, marks & 4 == 4);
    Ok(Node { start, is_counted, enters, leaves, ways })
}
