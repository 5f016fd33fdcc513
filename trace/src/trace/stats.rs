//! Numbers of a whole trace: how often each block was executed, how much of what there is.

use crate::balance::Balance;
use crate::decode::Faults;
use crate::file::ReadError;
use crate::ids::{BlockId, FuncId, ThreadId};
use crate::symbol::{Cause, Step, Symbol};
use crate::trace::Trace;
use crate::trace::part::Part;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Numbers from these on are not counted in tables.
const MOST_FUNCTIONS: u32 = 1 << 20;
const MOST_BLOCKS: u32 = 1 << 14;

impl Trace {
    /// How often each block was executed, by the numbers of its function and of itself; in one stream, if one
    /// is named.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn block_counts(
        &self,
        thread: Option<ThreadId>,
    ) -> Result<BTreeMap<(FuncId, BlockId), u64>, ReadError> {
        // By function; those of numbers beyond a table's.
        let mut counts: Vec<Vec<u64>> = Vec::new();
        let mut rare: BTreeMap<(FuncId, BlockId), u64> = BTreeMap::new();
        let (mut open, mut of): (Vec<FuncId>, _) = (Vec::new(), None);
        self.read_part(&Part { thread, ..Part::ALL }, |piece| {
            if of.replace(piece.thread) != Some(piece.thread) {
                open.clear();
            }
            for &code in piece.symbols {
                match Symbol(code).step() {
                    Step::Enter(func) => open.push(func),
                    Step::Exit => drop(open.pop()),
                    Step::Block(block) => {
                        let func = open.last().copied().unwrap_or(FuncId(0));
                        if func.0 >= MOST_FUNCTIONS || block.0 >= MOST_BLOCKS {
                            *rare.entry((func, block)).or_default() += 1;
                            continue;
                        }
                        let (func, block) = (func.index(), block.index());
                        if counts.len() <= func {
                            counts.resize(func + 1, Vec::new());
                        }
                        let Some(blocks) = counts.get_mut(func) else { continue };
                        if blocks.len() <= block {
                            blocks.resize(block + 1, 0);
                        }
                        blocks.get_mut(block).into_iter().for_each(|n| *n += 1);
                    }
                }
            }
            ControlFlow::<()>::Continue(())
        })?;
        let each = |(func, blocks): (FuncId, Vec<u64>)| {
            (0..).map(BlockId).zip(blocks).filter(|b| b.1 > 0).map(move |(block, n)| ((func, block), n))
        };
        Ok((0..).map(FuncId).zip(counts).flat_map(each).chain(rare).collect())
    }

    /// Numbers of the whole trace, in one pass.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn stats(&self) -> Result<Stats, ReadError> {
        let mut stats = Stats::default();
        let mut functions = std::collections::BTreeSet::new();
        let (mut balance, mut of) = (Balance::default(), None);
        self.read(|thread, symbols| {
            if of.replace(thread) != Some(thread) {
                stats.n_threads += 1;
                stats.n_open += balance.open().len() as u64;
                balance = Balance::default();
            }
            for &code in symbols {
                let symbol = Symbol(code);
                if balance.push(symbol).is_err() {
                    stats.n_unbalanced += 1;
                }
                match symbol.step() {
                    Step::Enter(func) => {
                        stats.n_entries += 1;
                        functions.insert(func);
                        stats.deepest = stats.deepest.max(balance.open().len() as u64);
                    }
                    Step::Block(_) => stats.n_blocks += 1,
                    Step::Exit => {
                        stats.n_exits += 1;
                        stats.n_open += u64::from(symbol.cause() == Some(Cause::RecordingEnd));
                    }
                }
            }
            ControlFlow::<()>::Continue(())
        })?;
        stats.n_open += balance.open().len() as u64;
        stats.n_functions = functions.len() as u64;
        stats.faults = self.faults();
        stats.n_symbols = stats.n_entries + stats.n_blocks + stats.n_exits;
        Ok(stats)
    }
}

/// What [`Trace::stats`] counts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Streams.
    pub n_threads: u64,
    /// Symbols of all kinds.
    pub n_symbols: u64,
    /// Functions entered, each time.
    pub n_entries: u64,
    /// Blocks executed, each time.
    pub n_blocks: u64,
    /// Functions left, each time.
    pub n_exits: u64,
    /// Functions that ran.
    pub n_functions: u64,
    /// The most functions open at once.
    pub deepest: u64,
    /// Functions that what is kept ends in: of a stream that was cut, or of a part.
    pub n_open: u64,
    /// Symbols that cannot stand where they are: always 0 in what we wrote.
    pub n_unbalanced: u64,
    /// Of a recording: what was wrong with its events.
    pub faults: Faults,
}
