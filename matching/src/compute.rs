//! The driver: data, then functions, then the blocks of each matched pair.
//!
//! Source: BMAT, figure 2.

use crate::functions;
use crate::options::Options;
use crate::relation::{BlockMatch, BlockMethod, Level, Matching, OneToOne};
use program::{BlockId, FuncId, Program};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// What is matched already, for those who compare code: operands that refer to matched things are equal.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Which passes run.
    pub options: &'a Options,
    /// Functions, by [`FuncId`].
    pub functions: &'a OneToOne,
    /// Data, by index into [`Program::data`].
    pub data: &'a OneToOne,
}

impl Matching {
    /// Which parts of `old` and `new` are each other.
    pub fn compute(old: &Program, new: &Program, options: &Options) -> Matching {
        let data = OneToOne::new(old.data.len(), new.data.len());
        let (functions, pairs) = functions::compute(old, new, options);
        let context = Context { options, functions: &pairs, data: &data };
        let blocks: Vec<Vec<BlockMatch>> =
            functions.par_iter().map(|m| in_pair(old, m.old, new, m.new, context)).collect();
        let mut blocks: Vec<BlockMatch> = blocks.into_iter().flatten().collect();
        blocks.sort_by_key(|m| (m.new, m.old));
        Matching { functions, blocks, data: Vec::new() }
    }
}

/// Blocks of the same instructions but for addresses, in order.
fn in_pair(old: &Program, fo: FuncId, new: &Program, fn_: FuncId, _: Context<'_>) -> Vec<BlockMatch> {
    let hash = |program: &Program, block: BlockId| {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        for insn in program.insns(block) {
            hash.update(&insn.opcode().to_le_bytes());
        }
        hash.digest()
    };
    let mut by_hash: BTreeMap<u64, Vec<BlockId>> = BTreeMap::new();
    for block in old.function(fo).block_ids().rev() {
        by_hash.entry(hash(old, block)).or_default().push(block);
    }
    let mut found = Vec::new();
    for block in new.function(fn_).block_ids() {
        if let Some(from) = by_hash.get_mut(&hash(new, block)).and_then(Vec::pop) {
            found.push(BlockMatch {
                old: from,
                new: block,
                method: BlockMethod::Unique(Level::L1),
                confidence: 1.0,
                share: 1.0,
                partial: false,
            });
        }
    }
    found
}
