//! One function, read for matching: hashes, tokens and the graph of its blocks, numbered 0.. by address.
//!
//! Not here: what program it is of (`program`), how hashes are made (`hash`).

use crate::hash::{BlockHash, Keys, NO_TARGET, Token, read_function};
use program::{BlockEnd, BlockId, EdgeKind, FuncId, Program};

/// No block.
pub(crate) const NONE: u32 = u32::MAX;

/// A neighbour, and by what kind of edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// Position of the neighbour.
    pub to: u32,
    /// The edge between.
    pub kind: EdgeKind,
}

/// A function's blocks for matching.
#[derive(Debug)]
pub(crate) struct Body {
    /// The id of the first block.
    pub first: u32,
    /// Position of the block at the main entry.
    pub entry: u32,
    /// Hashes, one per block.
    pub hash: Vec<BlockHash>,
    /// How each block ends.
    pub end: Vec<BlockEnd>,
    /// Long tables of labels, each as the blocks it leads to, in order.
    pub tables: Vec<Vec<u32>>,
    tokens: Vec<Token>,
    token_at: Vec<u32>,
    succ: Vec<Link>,
    succ_at: Vec<u32>,
    pred: Vec<Link>,
    pred_at: Vec<u32>,
}

impl Body {
    /// Reads the blocks of `func`.
    pub fn read(program: &Program, keys: &Keys, func: FuncId) -> Body {
        let f = program.function(func);
        let n = f.n_blocks();
        let first = f.blocks.start;
        let bytes: u64 = program.blocks_of(func).iter().map(|b| b.end_va().since(b.start)).sum();
        // Instructions are about four bytes long.
        let n_insns = usize::try_from(bytes / 4).unwrap_or(0);
        let n_edges = f.block_ids().map(|b| program.successors(b).len()).sum();
        let mut body = Body {
            first,
            entry: program.entry_block(func).map_or(0, |b| b.0 - first),
            hash: Vec::with_capacity(n),
            end: f.block_ids().map(|b| program.block(b).end).collect(),
            tables: keys.tables_of(func).map(|t| labels(program, func, t)).collect(),
            tokens: Vec::with_capacity(n_insns),
            token_at: Vec::with_capacity(n + 1),
            succ: Vec::with_capacity(n_edges),
            succ_at: Vec::with_capacity(n + 1),
            pred: Vec::new(),
            pred_at: vec![0; n + 1],
        };
        body.token_at.push(0);
        body.succ_at.push(0);
        read_function(program, keys, func, |_, hash, tokens| {
            body.hash.push(hash);
            body.tokens.extend_from_slice(tokens);
            body.token_at.push(count(body.tokens.len()));
        });
        for id in f.block_ids() {
            for e in program.successors(id) {
                body.succ.push(Link { to: e.to.0 - first, kind: e.kind });
                body.pred_at[e.to.index() - first as usize + 1] += 1;
            }
            body.succ_at.push(count(body.succ.len()));
        }
        for i in 0..n {
            body.pred_at[i + 1] += body.pred_at[i];
        }
        let mut next = body.pred_at.clone();
        body.pred = vec![Link { to: NONE, kind: EdgeKind::Jump }; body.succ.len()];
        for from in 0..count(n) {
            for i in body.succ_at[from as usize]..body.succ_at[from as usize + 1] {
                let link = body.succ[i as usize];
                let slot = &mut next[link.to as usize];
                body.pred[*slot as usize] = Link { to: from, kind: link.kind };
                *slot += 1;
            }
        }
        body
    }

    /// Only these blocks (in rising order) and the edges between them; block `i` is `keep[i]`.
    pub fn restricted(&self, keep: &[u32]) -> Body {
        let position = |b: u32| keep.binary_search(&b).ok().map(count);
        let mut out = Body {
            first: self.first,
            entry: 0,
            hash: Vec::with_capacity(keep.len()),
            end: keep.iter().map(|&b| self.end[b as usize]).collect(),
            tables: Vec::new(),
            tokens: Vec::new(),
            token_at: vec![0],
            succ: Vec::new(),
            succ_at: vec![0],
            pred: Vec::new(),
            pred_at: vec![0],
        };
        for &b in keep {
            let target = match self.hash(b).target {
                NO_TARGET => NO_TARGET,
                to => position(to).unwrap_or(NO_TARGET),
            };
            out.hash.push(BlockHash { at: count(out.hash.len()), target, ..*self.hash(b) });
            out.tokens.extend_from_slice(self.tokens(b));
            out.token_at.push(count(out.tokens.len()));
            let inside = |l: &Link| position(l.to).map(|to| Link { to, ..*l });
            out.succ.extend(self.successors(b).iter().filter_map(inside));
            out.succ_at.push(count(out.succ.len()));
            out.pred.extend(self.predecessors(b).iter().filter_map(inside));
            out.pred_at.push(count(out.pred.len()));
        }
        out
    }

    /// How many blocks it has.
    pub fn n_blocks(&self) -> u32 {
        count(self.hash.len())
    }
    /// The block's id in its program.
    pub fn id(&self, block: u32) -> BlockId {
        BlockId(self.first + block)
    }
    /// The position of a block of its program, if it is one of these.
    pub fn position(&self, block: BlockId) -> Option<u32> {
        block.0.checked_sub(self.first).filter(|&i| i < self.n_blocks())
    }
    /// Where control goes from the block.
    pub fn successors(&self, block: u32) -> &[Link] {
        &self.succ[self.succ_at[block as usize] as usize..self.succ_at[block as usize + 1] as usize]
    }
    /// Where control comes from.
    pub fn predecessors(&self, block: u32) -> &[Link] {
        &self.pred[self.pred_at[block as usize] as usize..self.pred_at[block as usize + 1] as usize]
    }
    /// The instructions of a block, as tokens.
    pub fn tokens(&self, block: u32) -> &[Token] {
        &self.tokens[self.token_at[block as usize] as usize..self.token_at[block as usize + 1] as usize]
    }
    /// The instructions of all blocks.
    pub fn all_tokens(&self) -> &[Token] {
        &self.tokens
    }
    /// The hashes of a block.
    pub fn hash(&self, block: u32) -> &BlockHash {
        &self.hash[block as usize]
    }
}

/// The blocks of `func` that table number `table` leads to.
fn labels(program: &Program, func: FuncId, table: usize) -> Vec<u32> {
    let blocks = &program.function(func).blocks;
    let inside = program.tables[table].targets.iter().filter_map(|&at| program.block_from(at));
    inside.map(|b| b.0).filter(|b| blocks.contains(b)).map(|b| b - blocks.start).collect()
}

/// A length as a number of blocks or instructions.
pub(crate) fn count(len: usize) -> u32 {
    u32::try_from(len).expect("ids are 32 bits, so no table is longer")
}
