//! What ran when: how much of each function, window by window of a thread's run.
//!
//! Windows are equally long in what ran, not in time: of a run that is read once, nobody knows before how
//! long it is, so they grow while it is read. A block counts where it starts.

use crate::file::ReadError;
use crate::ids::{BlockId, FuncId, ThreadId};
use crate::symbol::{Step, Symbol};
use crate::trace::Trace;
use crate::trace::part::{Part, Piece};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

/// The windows of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Windows {
    /// The thread.
    pub thread: ThreadId,
    /// What all of it weighs.
    pub total: u64,
    /// How long each window is; the last one may end before that.
    pub size: u64,
    /// Where the first one begins.
    pub start: u64,
    /// One behind the other.
    pub windows: Vec<Window>,
}

/// A part of a thread's run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Window {
    /// What the blocks of each function weigh that started in it.
    pub own: BTreeMap<FuncId, u64>,
    /// The index of its first symbol, if a block started in it.
    pub first: Option<u64>,
}

impl Windows {
    /// Those of all threads, at least `n` and at most twice as many if so much ran between `wanted`, which
    /// counts from the start of each. Blocks weigh as in [`super::CallTree::of`].
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn of(
        trace: &Trace,
        wanted: &Range<u64>,
        n: usize,
        mut weight: impl FnMut(FuncId, Option<BlockId>, BlockId) -> u64,
    ) -> Result<Vec<Windows>, ReadError> {
        let mut all: Vec<Growing> = Vec::new();
        trace.read_part(&Part::ALL, |piece: Piece<'_>| {
            if all.last().is_none_or(|last| last.made.thread != piece.thread) {
                all.push(Growing::new(piece.thread, wanted.clone(), n.max(1)));
            }
            if let Some(last) = all.last_mut() {
                last.read(piece, &mut weight);
            }
            ControlFlow::<()>::Continue(())
        })?;
        Ok(all.into_iter().map(Growing::finish).collect())
    }
}

/// Windows in the making.
struct Growing {
    made: Windows,
    wanted: Range<u64>,
    n: usize,
    /// Functions that are open, each with the block that it was in last.
    open: Vec<(FuncId, Option<BlockId>)>,
    /// The window that is filled: by function, and which of these it has.
    at: usize,
    own: Vec<u64>,
    touched: Vec<FuncId>,
}

impl Growing {
    fn new(thread: ThreadId, wanted: Range<u64>, n: usize) -> Growing {
        let made = Windows { thread, total: 0, size: 1, start: wanted.start, windows: Vec::new() };
        Growing { made, wanted, n, open: Vec::new(), at: 0, own: Vec::new(), touched: Vec::new() }
    }

    fn read(&mut self, piece: Piece<'_>, weight: &mut impl FnMut(FuncId, Option<BlockId>, BlockId) -> u64) {
        self.open.extend(piece.open.iter().map(|func| (*func, None)));
        for (index, &code) in (piece.first..).zip(piece.symbols) {
            match Symbol(code).step() {
                Step::Enter(func) => self.open.push((func, None)),
                Step::Exit => drop(self.open.pop()),
                Step::Block(block) => {
                    let Some((func, last)) = self.open.last_mut() else { continue };
                    let (func, before) = (*func, last.replace(block));
                    let n = weight(func, before, block);
                    if self.wanted.contains(&self.made.total) {
                        self.add(index, func, n);
                    }
                    self.made.total = self.made.total.saturating_add(n);
                }
            }
        }
    }

    fn add(&mut self, index: u64, func: FuncId, n: u64) {
        let place =
            |made: &Windows| usize::try_from((made.total - made.start) / made.size).unwrap_or(usize::MAX);
        let mut at = place(&self.made);
        if at != self.at || self.made.windows.is_empty() {
            self.fill();
            while at >= 2 * self.n {
                self.double();
                at = place(&self.made);
            }
            self.made.windows.resize(self.made.windows.len().max(at + 1), Window::default());
            self.at = at;
        }
        if let Some(window) = self.made.windows.get_mut(at) {
            window.first.get_or_insert(index);
        }
        if self.own.len() <= func.index() {
            self.own.resize(func.index() + 1, 0);
        }
        if let Some(own) = self.own.get_mut(func.index()) {
            if *own == 0 {
                self.touched.push(func);
            }
            *own = own.saturating_add(n);
        }
    }

    /// Puts what was gathered into its window.
    fn fill(&mut self) {
        let Some(window) = self.made.windows.get_mut(self.at) else { return };
        for func in self.touched.drain(..) {
            let own = self.own.get_mut(func.index()).map(std::mem::take).unwrap_or_default();
            if own > 0 {
                let sum = window.own.entry(func).or_default();
                *sum = sum.saturating_add(own);
            }
        }
    }

    /// Makes one window of each two.
    fn double(&mut self) {
        let old = std::mem::take(&mut self.made.windows);
        let mut old = old.into_iter();
        while let Some(mut window) = old.next() {
            if let Some(next) = old.next() {
                window.first = window.first.or(next.first);
                for (func, own) in next.own {
                    let sum = window.own.entry(func).or_default();
                    *sum = sum.saturating_add(own);
                }
            }
            self.made.windows.push(window);
        }
        self.made.size = self.made.size.saturating_mul(2);
        self.at /= 2;
    }

    fn finish(mut self) -> Windows {
        self.fill();
        self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::import::{Stores, import};
    use crate::file::names::Names;
    use crate::tests::random_stream;

    /// Slow and plainly right: each block by itself.
    #[test]
    fn a_block_counts_in_the_window_that_it_starts_in() {
        for seed in 0..20 {
            let stream = random_stream(seed, 4000);
            let bytes: Vec<u8> = stream.iter().flat_map(|code| code.to_le_bytes()).collect();
            let mut packed = Vec::new();
            import(bytes.as_slice(), &mut packed, &Names::default(), Stores::PACKED).expect("it is a trace");
            let trace = crate::tests::opened(&packed).expect("it is a file");
            let (mut open, mut position, mut blocks) = (Vec::new(), 0_u64, Vec::new());
            for (index, &code) in (0_u64..).zip(&stream) {
                match code {
                    0x8000_0000.. => drop(open.pop()),
                    0x4000_0000.. => open.push(FuncId(code & 0x1fff_ffff)),
                    block => {
                        let Some(func) = open.last() else { continue };
                        blocks.push((position, index, *func, u64::from(block) + 1));
                        position += u64::from(block) + 1;
                    }
                }
            }
            for wanted in [0..u64::MAX, position / 3..position / 2, position / 2..position / 2 + 1] {
                let weight = |_, _, block: BlockId| u64::from(block.0) + 1;
                let got = Windows::of(&trace, &wanted, 10, weight).expect("it is whole");
                let [got] = got.as_slice() else { panic!("{} threads", got.len()) };
                assert_eq!((got.total, got.start), (position, wanted.start));
                assert!(got.windows.len() <= 20 && got.size.is_power_of_two());
                assert!(got.windows.len() >= 10 || got.size == 1, "{} of {}", got.windows.len(), got.size);
                for (window, at) in got.windows.iter().zip(0..) {
                    let from = wanted.start + at * got.size;
                    let here = |of: &&(u64, u64, FuncId, u64)| {
                        wanted.contains(&of.0) && (from..from + got.size).contains(&of.0)
                    };
                    let mut own: BTreeMap<FuncId, u64> = BTreeMap::new();
                    blocks.iter().filter(here).for_each(|of| *own.entry(of.2).or_default() += of.3);
                    let first = blocks.iter().find(here).map(|of| of.1);
                    assert_eq!(window, &Window { own, first }, "seed {seed}, window {at}");
                }
            }
        }
    }
}
