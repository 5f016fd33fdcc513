//! How often code runs, by a sample of a run's events: what later recordings of the same program go by, so
//! that events stand where it runs seldom.
#![warn(clippy::indexing_slicing)]

use crate::decode::{Decoder, ModuleCodes};
use crate::ids::{BlockId, FuncId};
use crate::recording::module_code::ModuleCode;
use crate::symbol::{Step, Symbol};
use std::collections::BTreeMap;

/// The most chunks that are kept.
const MOST: usize = 32;

/// Chunks of events, spread evenly over a run whose length is not known before.
#[derive(Debug, Default)]
pub struct Sample {
    chunks: Vec<Vec<u8>>,
    /// How many were seen.
    n_seen: usize,
    /// One of this many is kept, less one: a power of two.
    skips: usize,
}

/// How often the code of a module ran in a sample.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Weights {
    /// Executions of a block, by its start.
    pub blocks: BTreeMap<u64, u64>,
    /// Executions of an edge inside a function, by the starts of its blocks.
    pub edges: BTreeMap<(u64, u64), u64>,
    /// Events of the whole run, about.
    pub n_events: u64,
}

/// Of a block that ran: how often, and where it went in its function how often.
#[derive(Clone, Debug, Default)]
struct Ran {
    n: u64,
    to: Vec<(BlockId, u64)>,
}

impl Sample {
    /// Keeps words of events, or not.
    pub fn offer(&mut self, words: &[u8]) {
        self.n_seen += 1;
        if (self.n_seen - 1) & self.skips != 0 {
            return;
        }
        if self.chunks.len() == MOST {
            // The even ones are those of twice the distance.
            let mut n = 0;
            self.chunks.retain(|_| {
                n += 1;
                n % 2 == 1
            });
            self.skips = 2 * self.skips + 1;
            if (self.n_seen - 1) & self.skips != 0 {
                return;
            }
        }
        self.chunks.push(words.to_vec());
    }

    /// How often the code of each module ran; `None` unless `is_wanted` says of one of them, by its place and
    /// how many events it appended, that somebody wants to know: it takes long. A chunk starts anywhere: what
    /// was open before it is taken up where it goes on.
    pub fn weights(
        &self,
        codes: Vec<ModuleCode>,
        is_wanted: impl Fn(usize, u64) -> bool,
    ) -> Option<Vec<Weights>> {
        let codes = ModuleCodes::new(codes);
        let mut weights: Vec<Weights> = codes.modules().map(|_| Weights::default()).collect();
        let scale = self.skips as u64 + 1;
        for word in self.chunks.iter().flat_map(|chunk| words(chunk)) {
            let n = codes.module_of(word).and_then(|module| weights.get_mut(module));
            n.into_iter().for_each(|weights| weights.n_events += scale);
        }
        if !weights.iter().enumerate().any(|(module, weights)| is_wanted(module, weights.n_events)) {
            return None;
        }
        let mut ran: Vec<Vec<Ran>> = Vec::new();
        let mut symbols = Vec::new();
        for chunk in &self.chunks {
            let words: Vec<u32> = words(chunk).collect();
            let mut decoder = Decoder::new(&codes);
            // Functions that are open, each with its last block.
            let mut open: Vec<(FuncId, Option<BlockId>)> = Vec::new();
            for words in words.chunks(1 << 12) {
                symbols.clear();
                decoder.push(words, &mut symbols);
                for code in &symbols {
                    match Symbol(*code).step() {
                        Step::Enter(func) => open.push((func, None)),
                        Step::Exit => drop(open.pop()),
                        Step::Block(block) => {
                            let Some((func, last)) = open.last_mut() else { continue };
                            let before = last.replace(block);
                            count(&mut ran, *func, before, block);
                        }
                    }
                }
            }
        }
        for ((first, code), weights) in codes.modules().zip(&mut weights) {
            for (function, ran) in code.functions.iter().zip(ran.iter().skip(first.index())) {
                let at = |n: BlockId| function.blocks.get(n.index()).map(|block| block.at);
                for (from, ran) in (0..).map(BlockId).zip(ran).filter(|(_, ran)| ran.n > 0) {
                    let Some(from) = at(from) else { continue };
                    weights.blocks.insert(from, ran.n);
                    let edges = ran.to.iter().filter_map(|(to, n)| Some(((from, at(*to)?), *n)));
                    weights.edges.extend(edges);
                }
            }
        }
        Some(weights)
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

fn count(ran: &mut Vec<Vec<Ran>>, func: FuncId, before: Option<BlockId>, block: BlockId) {
    let func = func.index();
    if ran.len() <= func {
        ran.resize(func + 1, Vec::new());
    }
    let Some(blocks) = ran.get_mut(func) else { return };
    let n_blocks = block.max(before.unwrap_or_default()).index() + 1;
    if blocks.len() < n_blocks {
        blocks.resize(n_blocks, Ran::default());
    }
    blocks.get_mut(block.index()).into_iter().for_each(|ran| ran.n += 1);
    if let Some(from) = before.and_then(|n| blocks.get_mut(n.index())) {
        match from.to.iter_mut().find(|(to, _)| *to == block) {
            Some((_, n)) => *n += 1,
            None => from.to.push((block, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_kept_at_equal_distances() {
        for (n, every) in [(1, 1), (32, 1), (33, 2), (64, 2), (65, 4), (1000, 32)] {
            let mut sample = Sample::default();
            (0..n).for_each(|k: u32| sample.offer(&k.to_le_bytes()));
            let want: Vec<Vec<u8>> = (0..n).step_by(every).map(|k| k.to_le_bytes().to_vec()).collect();
            assert_eq!((sample.chunks, sample.skips + 1), (want, every), "{n}");
        }
    }
}
