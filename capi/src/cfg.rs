//! The control flow graph of a function, and its loops.

use crate::process::Function;
use program::{BlockId, Loops};

/// The control flow graph of a function.
pub struct Cfg {
    pub(crate) blocks: Vec<Block>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) loops: Vec<Loop>,
}

/// A block: straight-line code that is entered at its start. A call does not end it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Block {
    /// Its first byte, an address in the process.
    pub address: u64,
    /// Its length in bytes.
    pub len_bytes: u32,
    /// How many instructions it has.
    pub n_instructions: u32,
    /// In how many loops it lies.
    pub loop_depth: u32,
}

/// A way from one block to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Edge {
    /// The number of the block that it leaves.
    pub from: u32,
    /// The number of the block that it leads to.
    pub to: u32,
}

/// A loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Loop {
    /// The number of its first block.
    pub header: u32,
    /// How many blocks it has, those of the loops in it included.
    pub n_blocks: u32,
    /// How deep it lies: 1 for an outermost one.
    pub depth: u32,
    /// The number of the loop around it, -1 if there is none.
    pub parent: i32,
}

impl Cfg {
    /// That of `function`; numbers are positions, blocks by address.
    pub fn build(function: &Function) -> Cfg {
        let (program, func) = (&function.module.program, function.func);
        let loops = Loops::compute(program, func);
        let ids: Vec<BlockId> = program.function(func).block_ids().collect();
        let number = |block: BlockId| ids.binary_search(&block).ok().and_then(|n| u32::try_from(n).ok());
        let block = |id: &BlockId| {
            let block = program.block(*id);
            Block {
                address: function.module.live(block.start).0,
                len_bytes: block.len_bytes,
                n_instructions: block.n_insns,
                loop_depth: loops.block_depth(*id),
            }
        };
        let edges = program.edges_of(func).iter();
        let edges = edges.filter_map(|edge| Some(Edge { from: number(edge.from)?, to: number(edge.to)? }));
        let position = |id| loops.ids().position(|other| other == id).and_then(|n| i32::try_from(n).ok());
        let of = |id| Loop {
            header: number(loops.header(id)).unwrap_or(0),
            n_blocks: u32::try_from(loops.blocks(id).len()).unwrap_or(u32::MAX),
            depth: loops.depth(id),
            parent: loops.parent(id).and_then(position).unwrap_or(-1),
        };
        Cfg {
            blocks: ids.iter().map(block).collect(),
            edges: edges.collect(),
            loops: loops.ids().map(of).collect(),
        }
    }
}
