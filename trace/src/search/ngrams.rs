//! Paths of a given length: the strings of blocks of one activation, calls left out, with how often each
//! occurs.
//!
//! On a column, each symbol is run through once: what is wholly in a part was counted there, as often as the
//! part occurs; the strings that end in a part and begin before it are new. Only the first and the last
//! blocks of each symbol are kept for this. Where there is no column, activations are followed, each with its
//! last blocks.
//!
//! Source: the counting is that of Goto, Bannai, Inenaga and Takeda, Fast q-gram mining on SLP compressed
//! strings, Journal of Discrete Algorithms, 2013; there, rules have two symbols.

use crate::file::ReadError;
use crate::file::flow::{FlowGraphs, Successors};
use crate::ids::{BlockId, FuncId};
use crate::search::columns::Column;
use crate::symbol::{Step, Symbol};
use crate::trace::Trace;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

#[cfg(test)]
mod tests;

/// The longest paths that are counted.
pub const LONGEST: usize = 64;

/// A trace may say any number; no function has a block beyond this one.
const MOST_BLOCKS: u32 = 1 << 22;

/// The paths of a function of one length, with how often each occurs.
pub type Paths = BTreeMap<Vec<BlockId>, u64>;

impl Trace {
    /// The paths of `len` blocks, at most [`LONGEST`], of each function that ran so many in one activation;
    /// or of `func` alone.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn paths(&self, len: usize, func: Option<FuncId>) -> Result<BTreeMap<FuncId, Paths>, ReadError> {
        let len = len.clamp(1, LONGEST);
        let Some(functions) = self.column_functions()? else { return self.paths_by_scan(len, func) };
        let mut all = BTreeMap::new();
        for of in functions.into_iter().filter(|of| func.is_none_or(|func| func == *of)) {
            let paths = self.column(of)?.map_or_else(Paths::new, |column| of_column(&column, len));
            if !paths.is_empty() {
                all.insert(of, paths);
            }
        }
        Ok(all)
    }

    /// What follows what in one function, of a trace that knows no program.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn observed_flow(&self, func: FuncId) -> Result<FlowGraphs, ReadError> {
        let (pairs, ran) = (self.paths(2, Some(func))?, self.paths(1, Some(func))?);
        let mut blocks: Vec<Successors> = Vec::new();
        for block in ran.values().flat_map(BTreeMap::keys).flatten() {
            if block.0 > MOST_BLOCKS {
                return Ok(FlowGraphs::default());
            }
            blocks.resize(blocks.len().max(block.index() + 1), Successors::default());
        }
        for pair in pairs.values().flat_map(BTreeMap::keys) {
            if let [from, to] = *pair.as_slice()
                && let Some(block) = blocks.get_mut(from.index())
            {
                block.to.push(to);
            }
        }
        Ok(FlowGraphs { modules: Vec::new(), functions: [(func, blocks)].into() })
    }

    fn paths_by_scan(&self, len: usize, func: Option<FuncId>) -> Result<BTreeMap<FuncId, Paths>, ReadError> {
        let mut counts: HashMap<FuncId, HashMap<Vec<BlockId>, u64>> = HashMap::new();
        let (mut open, mut of): (Vec<(FuncId, Vec<BlockId>)>, _) = (Vec::new(), None);
        self.read(|thread, symbols| {
            if of.replace(thread) != Some(thread) {
                open.clear();
            }
            for &code in symbols {
                match Symbol(code).step() {
                    Step::Enter(func) => open.push((func, Vec::new())),
                    Step::Exit => drop(open.pop()),
                    Step::Block(block) => {
                        let Some((of, last)) = open.last_mut() else { continue };
                        if func.is_some_and(|func| func != *of) {
                            continue;
                        }
                        if last.len() == len {
                            last.rotate_left(1);
                            last.pop();
                        }
                        last.push(block);
                        if last.len() == len {
                            let counts = counts.entry(*of).or_default();
                            match counts.get_mut(last.as_slice()) {
                                Some(n) => *n += 1,
                                None => drop(counts.insert(last.clone(), 1)),
                            }
                        }
                    }
                }
            }
            ControlFlow::<()>::Continue(())
        })?;
        Ok(counts.into_iter().map(|(func, paths)| (func, paths.into_iter().collect())).collect())
    }
}

/// The ends of what a symbol makes: as many blocks as can be in a path that is not wholly in it.
struct Ends {
    first: Vec<u32>,
    last: Vec<u32>,
}

fn of_column(column: &Column, len: usize) -> Paths {
    let weights = column.weights();
    let kept = len - 1;
    let mut counts: HashMap<Vec<u32>, u64> = HashMap::new();
    let mut add = |path: &[u32], n: u64| match counts.get_mut(path) {
        Some(count) => *count = count.saturating_add(n),
        None => drop(counts.insert(path.to_vec(), n)),
    };
    let n_terminals = column.n_terminals();
    let mut ends: Vec<Ends> = Vec::with_capacity(weights.len());
    for block in 0..n_terminals {
        let this: Vec<u32> = u32::try_from(block).into_iter().take(kept).collect();
        if let (0, Ok(block)) = (kept, u32::try_from(block)) {
            add(&[block], weights[block as usize]);
        }
        ends.push(Ends { first: this.clone(), last: this });
    }
    // The last blocks so far, and behind them the first of the next part.
    let mut text: Vec<u32> = Vec::new();
    for rule in 0..column.n_rules() {
        let n = weights[n_terminals + rule];
        let mut first: Vec<u32> = Vec::new();
        text.clear();
        for &part in column.body(rule) {
            let part = &ends[part as usize];
            if first.len() < kept {
                first.extend(part.first.iter().take(kept - first.len()));
            }
            let n_before = text.len();
            text.extend(&part.first);
            for (start, path) in text.windows(len).enumerate() {
                // One that begins in the part would be wholly in it: of that there are too few.
                debug_assert!(start < n_before, "a path begins before the part");
                add(path, n);
            }
            // Where the part is long, what is behind it is its own end; where it is short, that is all of it.
            if part.last.len() == kept {
                text.clone_from(&part.last);
            } else {
                text.drain(..text.len().saturating_sub(kept));
            }
        }
        ends.push(Ends { first, last: text.clone() });
    }
    let named = |path: Vec<u32>| path.iter().map(|&i| column.block(i)).collect();
    counts.into_iter().filter(|(_, n)| *n > 0).map(|(path, n)| (named(path), n)).collect()
}
