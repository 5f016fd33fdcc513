//! Hashes of blocks and functions at BMAT's fuzziness levels, and the [`Keys`] that make operands equal
//! across builds.
//!
//! Invariant: a hash depends on one program and its keys alone, never on addresses; so two programs are
//! hashed apart, in parallel, and equal hashes mean equal code. What depends on matched blocks (jump targets
//! within the function) is left out of a [`BlockHash`] and added by the passes (`blocks::levels`).
//!
//! Source: BMAT, 3.1 and 3.2. We differ: an opcode is the operation with kinds and widths of operands, not
//! its encoding; distances are in blocks, not bytes (a longer form of a jump is an indirect change); level 0
//! leaves out the addresses of data that has no key, since every build changes them; vector registers are
//! merged as the first class is.

mod code;

use crate::relation::{DataMatch, FunctionMatch, Level};
use code::Reader;
use program::image::RelocationTo;
use program::{BlockId, FuncId, Program, Va};
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use code::{BlockHash, NO_TARGET, Token};

/// What makes references to functions and data equal across two builds: equal keys mean the same thing, 0
/// nothing known.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// One per function.
    pub functions: Vec<u64>,
    /// One per data object.
    pub data: Vec<u64>,
    /// Long jump tables, by function: (function, index of the table).
    tables: Vec<(u32, usize)>,
}

/// A jump table of fewer entries is short.
const LONG_TABLE: usize = 8;

impl Keys {
    /// Keys by name: of functions and imports, of named data; and by content, of string literals.
    pub fn compute(program: &Program) -> Keys {
        let functions = program
            .functions
            .par_iter()
            .map(|f| match (&f.import, f.names.first()) {
                (Some(import), _) => name_key(import),
                (None, Some(name)) => name_key(name),
                (None, None) => 0,
            })
            .collect();
        let data = program
            .data
            .par_iter()
            .map(|d| match &d.name {
                Some(name) => name_key(name),
                None if d.kind == program::DataKind::String => {
                    program.image.bytes_in(&d.range).map_or(0, content_key)
                }
                None => 0,
            })
            .collect();
        let long = program.tables.iter().enumerate().filter(|(_, t)| t.targets.len() >= LONG_TABLE);
        let mut tables: Vec<(u32, usize)> = long.map(|(i, t)| (t.func.0, i)).collect();
        tables.sort_unstable();
        Keys { functions, data, tables }
    }

    /// The long jump tables of a function, by address.
    pub(crate) fn tables_of(&self, func: FuncId) -> impl Iterator<Item = usize> + '_ {
        let from = self.tables.partition_point(|t| t.0 < func.0);
        self.tables[from..].iter().take_while(move |t| t.0 == func.0).map(|t| t.1)
    }

    /// Gives matched functions and matched data a key of their own, the same on both sides.
    pub fn join(old: &mut Keys, new: &mut Keys, functions: &[FunctionMatch], data: &[DataMatch]) {
        for m in functions {
            let key = combine(0x66, u64::from(m.new.0));
            for (keys, at) in [(&mut *old, m.old.index()), (&mut *new, m.new.index())] {
                if let Some(k) = keys.functions.get_mut(at) {
                    *k = key;
                }
            }
        }
        for m in data {
            let key = combine(0x64, m.new as u64);
            for (keys, at) in [(&mut *old, m.old), (&mut *new, m.new)] {
                if let Some(k) = keys.data.get_mut(at) {
                    *k = key;
                }
            }
        }
    }

    /// The key of the function that starts at, or holds, `at`; 0 if it has none.
    fn code(&self, program: &Program, at: Va) -> u64 {
        if let Some(f) = program.function_from(at) {
            return self.functions.get(f.index()).copied().unwrap_or(0);
        }
        let Some(block) = program.block_at(at) else { return 0 };
        let f = program.block(block).func;
        match self.functions.get(f.index()) {
            Some(&key) if key != 0 => combine(key, u64::from(block.0 - program.function(f).blocks.start)),
            _ => 0,
        }
    }

    /// The key of what lies at `at`: matched or named data with the offset in it, an import's slot, a
    /// constant of `size` bytes or (size 0) a string that cannot be written; 0 if nothing is known but its
    /// address.
    fn place(&self, program: &Program, at: Va, size: u8) -> u64 {
        let image = &program.image;
        if let Some(d) = program.data_at(at)
            && let Some(&key) = self.data.get(d)
            && key != 0
        {
            return combine(key, at.since(program.data[d].range.start));
        }
        let Some(segment) = image.segment_at(at) else { return 0 };
        if segment.executable && image.is_code(at) {
            return self.code(program, at);
        }
        if segment.writable {
            return match image.relocation_at(at).map(|r| &r.to) {
                Some(RelocationTo::Symbol(name, _)) => name_key(name),
                Some(RelocationTo::Address(to)) if image.is_code(*to) => self.code(program, *to),
                _ => 0,
            };
        }
        let Some(bytes) = image.bytes_from(at) else { return 0 };
        match usize::from(size) {
            0 => {
                let text = &bytes[..bytes.len().min(256)];
                let len =
                    text.iter().take_while(|&&b| (0x20..0x7f).contains(&b) || b"\t\n\r".contains(&b)).count();
                match text.get(len) {
                    Some(0) if len >= 2 => content_key(&text[..=len]),
                    None if len == 256 => content_key(text),
                    _ => 0,
                }
            }
            size => bytes.get(..size).map_or(0, |c| content_key(c) | 1),
        }
    }
}

/// The key that a name has in every program.
pub fn name_key(name: &str) -> u64 {
    xxh3_64(name.as_bytes()) | 1
}

/// The key that a constant has in every program.
pub fn content_key(bytes: &[u8]) -> u64 {
    combine(0x73, xxh3_64(bytes)) | 1
}

/// Folds a word into a hash; order counts.
#[inline]
pub(crate) fn combine(hash: u64, word: u64) -> u64 {
    let x = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 32)
}

/// Hashes of a function's blocks folded together, in the order of their addresses (BMAT, 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FunctionHash {
    levels: [u64; 6],
}

impl FunctionHash {
    /// The hash at a level that has one (0, 1, 3, 1a, 5, 3a); levels 2 and 4 answer with 3 and 5.
    pub fn at(&self, level: Level) -> u64 {
        let [zero, one, one_a, three, three_a, five] = self.levels;
        match level {
            Level::L0 => zero,
            Level::L1 => one,
            Level::L1a => one_a,
            Level::L2 | Level::L3 => three,
            Level::L3a => three_a,
            Level::L4 | Level::L5 => five,
        }
    }
}

/// All hashes of one program that need no matched blocks.
#[derive(Clone, Debug, Default)]
pub struct Hashes {
    /// One per function.
    pub functions: Vec<FunctionHash>,
    /// Per block, level 1, without the target of its jump.
    pub one: Vec<u64>,
    /// Per block, level 3.
    pub three: Vec<u32>,
    /// Per block, level 4.
    pub four: Vec<u32>,
    /// Per block, instructions that are no padding, at most 65,535.
    pub n_insns: Vec<u16>,
}

impl Hashes {
    /// Hashes every block and function once, in parallel.
    pub fn compute(program: &Program, keys: &Keys) -> Hashes {
        let n = program.blocks.len();
        let mut out = Hashes {
            functions: Vec::with_capacity(program.functions.len()),
            one: vec![0; n],
            three: vec![0; n],
            four: vec![0; n],
            n_insns: vec![0; n],
        };
        let functions: Vec<FuncId> = program.func_ids().collect();
        for chunk in functions.chunks(4096) {
            let done: Vec<(FunctionHash, Vec<BlockHash>)> =
                chunk.par_iter().map(|&f| hash_function(program, keys, f)).collect();
            for (&f, (hash, blocks)) in chunk.iter().zip(done) {
                out.functions.push(hash);
                for (id, b) in program.function(f).block_ids().zip(blocks) {
                    out.one[id.index()] = b.one;
                    out.three[id.index()] = low(b.three_with_direction());
                    out.four[id.index()] = low(b.four);
                    out.n_insns[id.index()] = u16::try_from(b.n_insns).unwrap_or(u16::MAX);
                }
            }
        }
        out
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half of a hash is a hash")]
fn low(hash: u64) -> u32 {
    hash as u32
}

fn hash_function(program: &Program, keys: &Keys, func: FuncId) -> (FunctionHash, Vec<BlockHash>) {
    let mut reader = Reader::new(program, keys, func);
    let mut hash = FunctionHash::default();
    let blocks: Vec<BlockHash> = program.function(func).block_ids().map(|b| reader.read(b, |_| {})).collect();
    for b in &blocks {
        let words =
            [b.zero, b.one, b.last_one, b.three_with_direction(), b.last_three_with_direction(), b.five];
        // Levels 0 and 1 know where in the function a jump leads.
        let whole = [u64::from(b.target), u64::from(b.target), u64::from(b.target), 0, 0, 0];
        for ((level, word), to) in hash.levels.iter_mut().zip(words).zip(whole) {
            *level = combine(combine(*level, word), to);
        }
    }
    (hash, blocks)
}

/// Reads all blocks of a function: their hashes, and for each its instructions' tokens.
pub(crate) fn read_function(
    program: &Program,
    keys: &Keys,
    func: FuncId,
    mut each: impl FnMut(BlockId, BlockHash, &[Token]),
) {
    let mut reader = Reader::new(program, keys, func);
    let mut tokens = Vec::new();
    for block in program.function(func).block_ids() {
        tokens.clear();
        let hash = reader.read(block, |t| tokens.push(t));
        each(block, hash, &tokens);
    }
}

#[cfg(test)]
mod tests;
