//! From a function's bytes to its blocks and edges.

use crate::addr::Va;
use crate::arch::{Decoder, Flow, Insn};
use crate::discover::{Candidate, candidates};
use crate::ids::{BlockId, EdgeId, FuncId};
use crate::image::Image;
use crate::model::{Block, BlockEnd, Call, CallKind, Callee, Edge, EdgeKind, Function, Program, Sure};
use rayon::prelude::*;
use std::collections::BTreeSet;

/// One function's blocks, with addresses in place of ids.
struct Local {
    blocks: Vec<(Block, Vec<(Va, EdgeKind)>)>,
    calls: Vec<(Va, CallKind, Option<Va>)>,
    complete: bool,
}

impl Program {
    /// Finds functions, blocks and edges. Never fails: what is not understood becomes a gap.
    pub fn analyze(image: Image) -> Program {
        let found = candidates(&image);
        let locals: Vec<Local> = found.par_iter().map(|c| local(&image, c)).collect();
        let mut program = Program {
            functions: Vec::with_capacity(found.len()),
            blocks: Vec::new(),
            edges: Vec::new(),
            calls: Vec::new(),
            imports: Vec::new(),
            tables: Vec::new(),
            gaps: Vec::new(),
            data: Vec::new(),
            by_address: Vec::new(),
            image,
        };
        let entries: Vec<Va> = found.iter().map(|c| c.entry).collect();
        for (i, (c, l)) in found.into_iter().zip(locals).enumerate() {
            let first = BlockId::at(program.blocks.len());
            let starts: Vec<Va> = l.blocks.iter().map(|(b, _)| b.start).collect();
            let id_of = |va: Va| starts.binary_search(&va).ok().map(|k| BlockId::at(first.index() + k));
            for (mut block, to) in l.blocks {
                let from = BlockId::at(program.blocks.len());
                block.func = FuncId::at(i);
                block.first_edge = EdgeId::at(program.edges.len());
                for (va, kind) in to {
                    if let Some(to) = id_of(va) {
                        program.edges.push(Edge { from, to, kind, sure: Sure::Proved });
                    }
                }
                program.blocks.push(block);
            }
            for (at, kind, target) in l.calls {
                let k = starts.partition_point(|&s| s <= at);
                let callee = match target {
                    None => Callee::Indirect,
                    Some(to) => match entries.binary_search(&to) {
                        Ok(f) => Callee::Function(FuncId::at(f)),
                        Err(_) => Callee::Unknown(to),
                    },
                };
                let block = BlockId::at(first.index() + k - 1);
                program.calls.push(Call { at, block, kind, callee, returns: true });
            }
            program.functions.push(Function {
                entry: c.entry,
                names: c.names.into(),
                ranges: c.ranges.into(),
                blocks: first.0..BlockId::at(program.blocks.len()).0,
                entries: Box::default(),
                origin: c.origin,
                sure: Sure::Proved,
                returns: true,
                import: None,
                cut_from: None,
                complete: l.complete,
            });
        }
        program.calls.sort_by_key(|c| c.at);
        let mut by_address: Vec<BlockId> = (0..program.blocks.len()).map(BlockId::at).collect();
        by_address.sort_by_key(|&b| program.block(b).start);
        program.by_address = by_address;
        program.data = crate::data::find(&program);
        program
    }
}

/// Decodes one function: a linear sweep over its ranges.
fn local(image: &Image, c: &Candidate) -> Local {
    let mut insns: Vec<Insn> = Vec::new();
    for range in &c.ranges {
        insns.extend(Decoder::new(image.bytes_in(range).unwrap_or_default(), range.start));
    }
    let inside = |va: Va| c.ranges.iter().any(|r| r.contains(&va));
    let mut leaders: BTreeSet<Va> = BTreeSet::from([c.entry]);
    for insn in &insns {
        let flow = insn.flow();
        if let Flow::Jump(to) | Flow::Branch(to) = flow
            && inside(to)
        {
            leaders.insert(to);
        }
        if flow.ends_block() {
            leaders.insert(insn.end());
        }
    }
    let mut out = Local { blocks: Vec::new(), calls: Vec::new(), complete: true };
    let mut rest = insns.as_slice();
    while let Some(first) = rest.first() {
        let n = 1 + rest[1..].iter().take_while(|i| !leaders.contains(&i.at())).count();
        let (block, after) = rest.split_at(n);
        rest = after;
        // Padding after a block that does not fall through belongs to none.
        if block.iter().all(Insn::is_padding) && !targeted(&insns, first.at()) && first.at() != c.entry {
            continue;
        }
        let last = block.last().expect("a block has an instruction");
        let flow = last.flow();
        for i in block {
            match i.flow() {
                Flow::Call(to) => out.calls.push((i.at(), CallKind::Call, Some(to))),
                Flow::CallIndirect => out.calls.push((i.at(), CallKind::Call, None)),
                _ => {}
            }
        }
        let mut to = Vec::new();
        let mut end = match flow {
            Flow::Jump(_) => BlockEnd::Jump,
            Flow::Branch(_) => BlockEnd::Branch,
            Flow::JumpIndirect => BlockEnd::Unresolved,
            Flow::Return => BlockEnd::Return,
            Flow::Stop => BlockEnd::Stop,
            Flow::Invalid => BlockEnd::Broken,
            Flow::Next | Flow::Call(_) | Flow::CallIndirect => BlockEnd::FallThrough,
        };
        if flow.falls_through() {
            if inside(last.end()) {
                to.push((last.end(), EdgeKind::FallThrough));
            } else if end == BlockEnd::FallThrough {
                end = BlockEnd::Broken;
            }
        }
        match flow {
            Flow::Jump(t) if inside(t) => to.push((t, EdgeKind::Jump)),
            Flow::Branch(t) if inside(t) => to.push((t, EdgeKind::Taken)),
            Flow::Jump(t) => out.calls.push((last.at(), CallKind::TailCall, Some(t))),
            Flow::Branch(t) => out.calls.push((last.at(), CallKind::BranchTailCall, Some(t))),
            Flow::JumpIndirect => out.complete = false,
            _ => {}
        }
        let len = |va: Va| u32::try_from(va.since(first.at())).expect("functions are below 4 GiB");
        out.blocks.push((
            Block {
                start: first.at(),
                len_bytes: len(last.end()),
                last: len(last.at()),
                n_insns: u32::try_from(block.len()).expect("functions are below 4 GiB"),
                func: FuncId(0),
                first_edge: EdgeId(0),
                end,
                landing_pad: false,
            },
            to,
        ));
    }
    out.blocks.sort_by_key(|(b, _)| b.start);
    out
}

fn targeted(insns: &[Insn], at: Va) -> bool {
    insns.iter().any(|i| matches!(i.flow(), Flow::Jump(to) | Flow::Branch(to) if to == at))
}
